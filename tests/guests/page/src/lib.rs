//! A guest that answers HTTP and nothing else: it does not export `handler`. It counts in memory, and carries that over a swap.
//!
//! GET shows how often it was asked, here and before; anything else writes the body to the key of the path.

use std::cell::Cell;
use std::io::{Read as _, Write as _};

use quarry_guest::db;
use wasip2::exports::http::incoming_handler;
use wasip2::http::types::{
    Fields, IncomingRequest, Method, OutgoingBody, OutgoingResponse, ResponseOutparam,
};

wit_bindgen::generate!({
    path: "../../../guest-sdk/wit",
    inline: "package quarry:test-page; world page { export quarry:shard/handoff@0.1.0; }",
    world: "page",
    generate_all,
});

use exports::quarry::shard::handoff;
use quarry::shard::types::Error;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Page;

export!(Page);
wasip2::http::proxy::export!(Page);

impl handoff::Guest for Page {
    fn suspend() -> Result<Vec<u8>, Error> {
        Ok(COUNT.get().to_le_bytes().to_vec())
    }

    fn resume(_: u64, state: Vec<u8>) -> Result<(), Error> {
        COUNT.set(u64::from_le_bytes(state.try_into().unwrap_or_default()));
        Ok(())
    }
}

impl incoming_handler::Guest for Page {
    fn handle(request: IncomingRequest, out: ResponseOutparam) {
        COUNT.set(COUNT.get() + 1);
        let path = request.path_with_query().unwrap_or_default();
        let (status, text) = match request.method() {
            Method::Get => (200, COUNT.get().to_string()),
            _ => {
                let body = request.consume().expect("a body");
                let mut bytes = Vec::new();
                let read = body.stream().expect("a stream").read_to_end(&mut bytes);
                match (read, db::put(path.as_str(), bytes)) {
                    (Ok(_), Ok(_)) => (204, String::new()),
                    (read, put) => (500, format!("{read:?} {put:?}")),
                }
            }
        };
        let response = OutgoingResponse::new(Fields::new());
        response.set_status_code(status).expect("a status");
        let body = response.body().expect("a body");
        ResponseOutparam::set(out, Ok(response));
        let mut stream = body.write().expect("a stream");
        stream.write_all(text.as_bytes()).expect("written");
        drop(stream);
        OutgoingBody::finish(body, None).expect("finished");
    }
}

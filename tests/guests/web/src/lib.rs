//! A guest that answers HTTP beside calls, and misbehaves on demand.
//!
//! | path | what it does |
//! |---|---|
//! | `/echo` | JSON of all that it got |
//! | `/body` | the body as it came |
//! | `/size?N` | N bytes |
//! | `/count` | POST adds one to the key `count`, GET shows it |
//! | `/slow?MS` | reads `count`, waits, and writes one more |
//! | `/applied` | as POST `/count`; the answer need not wait |
//! | `/status?N` | that status, with `content-length: 7` and no body |
//! | `/set?NAME=VALUE` | sets that header, and says what came of it |
//! | `/fields?N` | an answer with N headers |
//! | `/many?N` | an answer with a header of N bytes |
//! | `/none`, `/error`, `/unfinished`, `/short` | no answer, an error code, one that is not finished, one shorter than its `content-length` |
//! | `/panic`, `/spin` | trap |
//! | `/leak` | leaves headers, an answer, a stream and a pollable behind |
//! | `/keep`, `/drop` | keeps headers and a stream of this request; drops what was kept |
//! | `/fetch?URL` | asks there, with method and body of the request, and gives status, headers and body as JSON |
//! | `/fetch-put?URL` | as POST `/count`, and asks then |
//! | `/fetch-late?URL` | asks there with POST, writes to `count` meanwhile, and shows it in the body |
//! | `/together?N URL` | asks N times at once |

use std::cell::RefCell;
use std::hint::black_box;
use std::io::{Read as _, Write as _};
use std::thread::sleep;
use std::time::Duration;

use quarry_guest::__private::bindings::handler::quarry::shard::current_call;
use quarry_guest::prelude::*;
use serde_json::{Value, json};
use wasip2::exports::http::incoming_handler;
use wasip2::http::outgoing_handler;
use wasip2::http::types::{
    ErrorCode, Fields, FutureIncomingResponse, IncomingBody, IncomingRequest, Method, OutgoingBody,
    OutgoingRequest, OutgoingResponse, ResponseOutparam, Scheme,
};
use wasip2::io::streams::{OutputStream, StreamError};

#[derive(Default)]
struct Web;

impl Guest for Web {
    fn call(&mut self, call: Call) -> Result<Reply> {
        match call.method() {
            "count" => Ok(Reply::text(count()?)),
            "increment" => Ok(Reply::text(add()?)),
            "fetch" => fetched(call.text()?, &Method::Get, &[]).map(Reply::text),
            other => Err(Error::unknown_method(other)),
        }
    }

    fn query(&self, call: Call) -> Result<Reply> {
        match call.method() {
            "fetch" => fetched(call.text()?, &Method::Get, &[]).map(Reply::text),
            "post" => fetched(call.text()?, &Method::Post, b"x").map(Reply::text),
            other => Err(Error::unknown_method(other)),
        }
    }
}

quarry_guest::export!(Web, queries);
wasip2::http::proxy::export!(Web);

thread_local! {
    /// What outlives its request.
    static KEPT: RefCell<Vec<(Fields, OutputStream)>> = const { RefCell::new(Vec::new()) };
}

impl incoming_handler::Guest for Web {
    fn handle(request: IncomingRequest, out: ResponseOutparam) {
        let target = request.path_with_query().unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let number = || query.parse().unwrap_or(0);
        let text = |result: Result<u64>| match result {
            Ok(count) => (200, count.to_string()),
            Err(error) => (500, error.to_string()),
        };
        let (status, body) = match (path, request.method()) {
            ("/echo", _) => (200, echo(&request, &target).to_string()),
            ("/body", _) => return answer(out, 200, Fields::new(), &body(&request)),
            ("/size", _) => return answer(out, 200, Fields::new(), &vec![b'.'; number()]),
            ("/count", Method::Post) => text(add()),
            ("/count", _) => text(count()),
            ("/slow", _) => text(slow(query.parse().unwrap_or(0))),
            ("/applied", _) => {
                current_call::reply_when_applied();
                text(add())
            }
            ("/status", _) => {
                let fields = Fields::new();
                _ = fields.set("content-length", &[b"7".to_vec()]);
                let response = OutgoingResponse::new(fields);
                _ = response.set_status_code(query.parse().unwrap_or(0));
                return ResponseOutparam::set(out, Ok(response));
            }
            ("/set", _) => {
                let (name, value) = query.split_once('=').unwrap_or((query, ""));
                let fields = Fields::new();
                let set = fields.set(name, &[value.as_bytes().to_vec()]);
                return answer(out, 200, fields, format!("{set:?}").as_bytes());
            }
            ("/fields", _) => {
                let fields = Fields::new();
                for n in 0..number() {
                    _ = fields.append(&format!("x-{n}"), b"v");
                }
                return answer(out, 200, fields, b"");
            }
            ("/many", _) => {
                let fields = Fields::new();
                _ = fields.append("x-many", &vec![b'v'; number()]);
                return answer(out, 200, fields, b"");
            }
            ("/none", _) => return,
            ("/error", _) => return ResponseOutparam::set(out, Err(ErrorCode::LoopDetected)),
            ("/unfinished", _) => {
                let response = OutgoingResponse::new(Fields::new());
                let body = response.body().expect("a body");
                ResponseOutparam::set(out, Ok(response));
                let mut stream = body.write().expect("a stream");
                stream.write_all(b"half").expect("written");
                return;
            }
            ("/short", _) => {
                let fields = Fields::new();
                _ = fields.set("content-length", &[b"7".to_vec()]);
                let response = OutgoingResponse::new(fields);
                let body = response.body().expect("a body");
                ResponseOutparam::set(out, Ok(response));
                body.write()
                    .expect("a stream")
                    .write_all(b"half")
                    .expect("written");
                _ = OutgoingBody::finish(body, None);
                return;
            }
            ("/panic", _) => panic!("on demand"),
            ("/spin", _) => loop {
                black_box(1);
            },
            ("/leak", _) => {
                let response = OutgoingResponse::new(Fields::new());
                let body = response.body().expect("a body");
                let stream = body.write().expect("a stream");
                std::mem::forget((stream.subscribe(), stream, body, response));
                (200, "left".into())
            }
            ("/keep", _) => {
                let response = OutgoingResponse::new(Fields::new());
                let body = response.body().expect("a body");
                let stream = body.write().expect("a stream");
                std::mem::forget((body, response));
                KEPT.with_borrow_mut(|kept| kept.push((Fields::new(), stream)));
                (200, "kept".into())
            }
            ("/drop", _) => (200, KEPT.take().len().to_string()),
            ("/fetch", method) => fetch(query, &method, &body(&request)),
            ("/fetch-put", method) => match add() {
                Ok(_) => fetch(query, &method, &body(&request)),
                Err(error) => (500, error.to_string()),
            },
            ("/fetch-late", _) => late(query),
            ("/together", _) => together(query),
            _ => (404, format!("there is no {path}")),
        };
        answer(out, status, Fields::new(), body.as_bytes());
    }
}

fn answer(out: ResponseOutparam, status: u16, fields: Fields, bytes: &[u8]) {
    let response = OutgoingResponse::new(fields);
    response.set_status_code(status).expect("a status");
    let body = response.body().expect("a body");
    ResponseOutparam::set(out, Ok(response));
    let mut stream = body.write().expect("a stream");
    // The host ends the request where it is too much.
    if stream
        .write_all(bytes)
        .and_then(|()| std::io::Write::flush(&mut stream))
        .is_err()
    {
        return;
    }
    drop(stream);
    OutgoingBody::finish(body, None).expect("finished");
}

fn echo(request: &IncomingRequest, target: &str) -> Value {
    let headers: Vec<_> = request
        .headers()
        .entries()
        .into_iter()
        .map(|(name, value)| json!([name, String::from_utf8_lossy(&value)]))
        .collect();
    let method = match request.method() {
        Method::Other(name) => name,
        other => format!("{other:?}")
            .trim_start_matches("Method::")
            .to_uppercase(),
    };
    json!({
        "method": method,
        "target": target,
        "authority": request.authority(),
        "headers": headers,
        "body": String::from_utf8_lossy(&body(request)),
    })
}

fn body(request: &IncomingRequest) -> Vec<u8> {
    read(&request.consume().expect("a body")).unwrap_or_default()
}

fn read(body: &IncomingBody) -> std::io::Result<Vec<u8>> {
    let mut stream = body.stream().expect("a stream");
    let mut all = Vec::new();
    stream.read_to_end(&mut all)?;
    Ok(all)
}

fn count() -> Result<u64> {
    Ok(db::get::<u64>("count")?.unwrap_or(0))
}

fn add() -> Result<u64> {
    let count = count()? + 1;
    db::put("count", count)?;
    Ok(count)
}

fn slow(ms: u64) -> Result<u64> {
    let count = count()? + 1;
    sleep(Duration::from_millis(ms));
    db::put("count", count)?;
    Ok(count)
}

/// What came of asking elsewhere.
fn fetch(url: &str, method: &Method, body: &[u8]) -> (u16, String) {
    match begin(url, method, body).and_then(end) {
        Ok(found) => (200, found.to_string()),
        Err(error) => (502, error),
    }
}

fn fetched(url: &str, method: &Method, body: &[u8]) -> Result<String> {
    match begin(url, method, body).and_then(end) {
        Ok(found) => Ok(found.to_string()),
        Err(error) => Err(Error::new("fetch-failed", error)),
    }
}

fn late(url: &str) -> (u16, String) {
    let show = || add().map_or_else(|error| error.to_string(), |count| count.to_string());
    match begin_with(url, &Method::Post, || show().into_bytes()).and_then(end) {
        Ok(found) => (200, found.to_string()),
        Err(error) => (502, error),
    }
}

fn together(query: &str) -> (u16, String) {
    let (n, url) = query
        .split_once(' ')
        .or_else(|| query.split_once("%20"))
        .unwrap_or(("0", query));
    let begun: Vec<_> = (0..n.parse().unwrap_or(0))
        .map(|_| begin(url, &Method::Get, &[]))
        .collect();
    let ended: Vec<_> = begun
        .into_iter()
        .map(|begun| match begun.and_then(end) {
            Ok(found) => found["status"].to_string(),
            Err(error) => error,
        })
        .collect();
    (200, json!(ended).to_string())
}

fn begin(
    url: &str,
    method: &Method,
    bytes: &[u8],
) -> std::result::Result<FutureIncomingResponse, String> {
    begin_with(url, method, || bytes.to_vec())
}

/// The body is made once the request is on its way.
fn begin_with(
    url: &str,
    method: &Method,
    bytes: impl FnOnce() -> Vec<u8>,
) -> std::result::Result<FutureIncomingResponse, String> {
    let (scheme, rest) = match url.split_once("://") {
        Some(("http", rest)) => (Scheme::Http, rest),
        Some((_, rest)) => (Scheme::Https, rest),
        None => (Scheme::Http, url),
    };
    let (authority, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    };
    let fields = Fields::new();
    _ = fields.set("x-from", &[b"web".to_vec()]);
    let request = OutgoingRequest::new(fields);
    request.set_method(method).map_err(|()| "the method")?;
    request
        .set_scheme(Some(&scheme))
        .map_err(|()| "the scheme")?;
    request
        .set_authority(Some(authority))
        .map_err(|()| "the authority")?;
    request
        .set_path_with_query(Some(path))
        .map_err(|()| "the path")?;
    let body = request.body().expect("a body");
    let answer = outgoing_handler::handle(request, None).map_err(|code| format!("{code:?}"))?;
    let bytes = bytes();
    if !bytes.is_empty() {
        let mut stream = body.write().expect("a stream");
        if let Err(error) = stream
            .write_all(&bytes)
            .and_then(|()| std::io::Write::flush(&mut stream))
        {
            drop(stream);
            // What the host has to say stands in the answer.
            return match end(answer) {
                Err(error) => Err(error),
                Ok(_) => Err(error.to_string()),
            };
        }
    }
    OutgoingBody::finish(body, None).map_err(|code| format!("{code:?}"))?;
    Ok(answer)
}

fn end(answer: FutureIncomingResponse) -> std::result::Result<Value, String> {
    answer.subscribe().block();
    let response = answer
        .get()
        .expect("it is there")
        .expect("it is taken once")
        .map_err(|code| format!("{code:?}"))?;
    let headers: Vec<_> = response
        .headers()
        .entries()
        .into_iter()
        .map(|(name, value)| json!([name, String::from_utf8_lossy(&value)]))
        .collect();
    let body = response.consume().expect("a body");
    let stream = body.stream().expect("a stream");
    let mut all = Vec::new();
    loop {
        match stream.blocking_read(1 << 16) {
            Ok(more) => all.extend(more),
            Err(StreamError::Closed) => break,
            Err(StreamError::LastOperationFailed(error)) => {
                let code = wasip2::http::types::http_error_code(&error);
                return Err(match code {
                    Some(code) => format!("{code:?}"),
                    None => error.to_debug_string(),
                });
            }
        }
    }
    let text = String::from_utf8_lossy(&all[..all.len().min(1000)]).into_owned();
    Ok(json!({"status": response.status(), "headers": headers, "bytes": all.len(), "body": text}))
}

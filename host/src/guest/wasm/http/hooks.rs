//! How `wasi:http` behaves for a guest: which headers it may set, and where its requests go.

use ::http::uri::Scheme;
use ::http::{HeaderName, Request, Response};
use std::sync::Arc;
use wasmtime_wasi_http::{Error, ForbiddenHeaderFilter, RequestOptions, WasiBody, WasiHttpHooks};

use crate::guest::http::HOP_BY_HOP;

/// What is decided for a guest.
#[derive(Default)]
pub(in crate::guest::wasm) struct Hooks;

/// The rest of a request that was sent.
type Sending = Box<dyn Future<Output = Result<(), Error>> + Send>;

impl WasiHttpHooks for Hooks {
    fn is_forbidden_header(&mut self, name: &HeaderName) -> bool {
        HOP_BY_HOP.contains(name)
    }

    fn forbidden_header_filter(&mut self) -> ForbiddenHeaderFilter {
        Arc::new(|name| HOP_BY_HOP.contains(name))
    }

    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        _: Option<RequestOptions>,
        _: Sending,
    ) -> Box<dyn Future<Output = Result<(Response<WasiBody>, Sending), Error>> + Send> {
        let scheme = request.uri().scheme().unwrap_or(&Scheme::HTTPS);
        let host = request.uri().host().unwrap_or_default();
        let message = format!("{scheme}://{host} is not granted");
        Box::new(async move { Err(Error::InternalError(Some(message))) })
    }
}

//! Requests of peers that have proved themselves.

use std::time::Duration;

use ::http::{Method, Request, Response, StatusCode};
use bytes::Bytes;
use hyper::body::Incoming;

use super::body::{self, Room, Share, Unread};
use super::{ASK, CALL, Shared, json};
use crate::call::{CallError, CallErrorKind};
use crate::clock;
use crate::config::units::Size;
use crate::transport::wire::{self, HEAD_MAX_BYTES, Pieces};
use crate::transport::{Ask, NotOwner, Told};

/// How long a body may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(30);
/// Bytes of a routing key and of the length of a head, at most, beside head and payload.
const KEY_MAX_BYTES: usize = (64 << 10) + 4;
/// Bytes of a question, at most.
const ASK_MAX_BYTES: usize = 64 << 10;

pub(super) async fn answer(shared: &Shared, request: Request<Incoming>) -> Response<Pieces> {
    match (request.method(), request.uri().path()) {
        (&Method::POST, CALL) => Response::new(call(shared, request).await),
        (&Method::POST, ASK) => ask(shared, request).await,
        _ => status(StatusCode::NOT_FOUND),
    }
}

async fn call(shared: &Shared, request: Request<Incoming>) -> Pieces {
    let limits = &shared.limits;
    let most = limits.payload + HEAD_MAX_BYTES + KEY_MAX_BYTES;
    let (body, _share) = match read(shared, request, most).await {
        Ok(read) => read,
        Err(error) => return wire::encode_answer(Ok(Err(error))),
    };
    let forward = match wire::decode_call(body, limits.timeout) {
        Ok(forward) => forward,
        Err(malformed) => {
            let message = format!("the forwarded request cannot be read: {malformed}");
            return wire::encode_answer(Ok(Err(CallError::host(CallErrorKind::Invalid, message))));
        }
    };
    let Some(service) = shared.service.upgrade() else {
        return wire::encode_answer(Err(NotOwner {
            generation: 0,
            owner: None,
        }));
    };
    wire::encode_answer(service.run(forward).await)
}

async fn ask(shared: &Shared, request: Request<Incoming>) -> Response<Pieces> {
    let Ok((body, _share)) = read(shared, request, ASK_MAX_BYTES).await else {
        return status(StatusCode::BAD_REQUEST);
    };
    let Ok(ask) = serde_json::from_slice::<Ask>(&body) else {
        return status(StatusCode::BAD_REQUEST);
    };
    let told = match shared.service.upgrade() {
        Some(service) => service.answer(ask).await,
        None => Told::failed(CallError::host(
            CallErrorKind::Unassigned,
            "the node has stopped",
        )),
    };
    json(StatusCode::OK, &told)
}

async fn read(
    shared: &Shared,
    request: Request<Incoming>,
    most: usize,
) -> Result<(Bytes, Share<'_>), CallError> {
    let room = Room {
        used: &shared.payloads,
        most: shared.limits.payloads,
    };
    let reading = body::read(request.into_body(), most, Some(&room));
    let read = clock::timeout(BODY_TIME, reading).await;
    let (kind, message) = match read.unwrap_or(Err(Unread::Incomplete)) {
        Ok(read) => return Ok(read),
        Err(Unread::TooLong) => (
            CallErrorKind::Invalid,
            format!(
                "the forwarded payload is larger than {}, which is all that the shard's owner takes (`http.max_body` there)",
                Size(shared.limits.payload as u64)
            ),
        ),
        Err(Unread::NoRoom) => (
            CallErrorKind::Overloaded,
            format!(
                "the requests that other nodes forwarded to the shard's owner have {} together, all that it takes (`http.max_bodies` there); nothing ran",
                Size(shared.limits.payloads as u64)
            ),
        ),
        Err(Unread::Incomplete) => (
            CallErrorKind::Invalid,
            "the forwarded request ended early; nothing ran".into(),
        ),
    };
    Err(CallError::host(kind, message))
}

fn status(status: StatusCode) -> Response<Pieces> {
    let mut response = Response::new(Pieces::default());
    *response.status_mut() = status;
    response
}

//! Calls and queries: raw bytes in, raw bytes out. This is the hot path.
//!
//! A caller that goes away drops the future in here. A call that was handed to its shard is not taken back by that: it runs, and its
//! reply is dropped.

use std::sync::Arc;
use std::time::Duration;

use ::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use ::http::{HeaderMap, HeaderValue, Request, Response};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;

use super::query::{CallQuery, method};
use super::{Problem, Shared, body};
use crate::call::{CallError, CallErrorKind, CallOptions, CallReply, QueryOptions};
use crate::clock;
use crate::config::units::Span;

/// Headers that a guest gets, beside those that begin with `x-`.
const PASSED_ON: [&str; 5] = [
    "content-type",
    "accept",
    "traceparent",
    "tracestate",
    "idempotency-key",
];

const SHARD: HeaderName = HeaderName::from_static("quarry-shard");
const SEQ: HeaderName = HeaderName::from_static("quarry-seq");
const REVISION: HeaderName = HeaderName::from_static("quarry-revision");
const NODE: HeaderName = HeaderName::from_static("quarry-node");

pub(super) async fn call(
    shared: &Shared,
    name: &str,
    query: &str,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Problem> {
    let name = method(name)?;
    let query = CallQuery::call(query, shared.options.max_timeout)?;
    let headers = passed_on(request.headers())?;
    let (payload, left, _share) = payload(shared, request, query.timeout).await?;
    let options = CallOptions {
        durability: query.durability,
        timeout: Some(left),
        headers,
        revision: query.revision,
    };
    let reply = shared
        .cluster
        .call(query.target, &name, payload, options)
        .await?;
    Ok(respond(shared, reply))
}

pub(super) async fn query(
    shared: &Shared,
    name: &str,
    query: &str,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Problem> {
    let name = method(name)?;
    let query = CallQuery::query(query, shared.options.max_timeout)?;
    let headers = passed_on(request.headers())?;
    let (payload, left, _share) = payload(shared, request, query.timeout).await?;
    let options = QueryOptions {
        read: query.read,
        timeout: Some(left),
        headers,
        revision: query.revision,
    };
    let reply = shared
        .cluster
        .query(query.target, &name, payload, options)
        .await?;
    Ok(respond(shared, reply))
}

/// Reads the body, and says how much of the caller's time is left after it. The share of the body is to be kept until the reply.
pub(super) async fn payload(
    shared: &Shared,
    request: Request<Incoming>,
    timeout: Option<Duration>,
) -> Result<(Bytes, Duration, body::Share<'_>), Problem> {
    let timeout = timeout.unwrap_or(shared.options.timeout);
    let began = clock::now();
    let asks = request.headers().contains_key(::http::header::EXPECT);
    let (body, most) = (
        request.into_body(),
        (shared.options.max_body, "`http.max_body`"),
    );
    let (payload, share) = body::read(body, asks, most, &shared.bodies, timeout).await?;
    let left = timeout.saturating_sub(clock::now().saturating_duration_since(began));
    if left.is_zero() {
        let detail = format!(
            "the time of the call, {}, was used up by its body; nothing ran",
            Span(timeout)
        );
        return Err(CallError::host(CallErrorKind::Timeout, detail).into());
    }
    Ok((payload, left, share))
}

fn passed_on(headers: &HeaderMap) -> Result<Vec<(String, String)>, Problem> {
    let mut passed = Vec::new();
    for (name, value) in headers {
        let text = name.as_str();
        if text.starts_with("x-") || PASSED_ON.contains(&text) {
            let value = std::str::from_utf8(value.as_bytes()).map_err(|_| {
                Problem::invalid(format!("the value of the header `{name}` is not UTF-8"))
            })?;
            passed.push((text.to_owned(), value.to_owned()));
        }
    }
    Ok(passed)
}

fn respond(shared: &Shared, reply: CallReply) -> Response<Full<Bytes>> {
    let octets = HeaderValue::from_static("application/octet-stream");
    // A guest may say anything; what cannot be a header is no media type either.
    let content = reply
        .content_type
        .and_then(|content| HeaderValue::try_from(content).ok())
        .unwrap_or(octets);
    let mut response = Response::new(Full::new(reply.payload));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let (shard, seq, revision) = (reply.shard, reply.seq, reply.revision);
    stamp(shared, headers, shard, seq, revision, &reply.node);
    response
}

/// Says where a reply comes from.
pub(super) fn stamp(
    shared: &Shared,
    headers: &mut HeaderMap,
    shard: u32,
    seq: u64,
    revision: u64,
    node: &Arc<str>,
) {
    headers.insert(SHARD, shard.into());
    headers.insert(SEQ, seq.into());
    headers.insert(REVISION, revision.into());
    let own = shared
        .node
        .as_ref()
        .filter(|_| node == shared.cluster.node());
    if let Some(node) = own.cloned().or_else(|| HeaderValue::from_str(node).ok()) {
        headers.insert(NODE, node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_gets_the_headers_meant_for_it() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("x-user", "ann"),
            ("accept", "text/plain"),
            ("authorization", "secret"),
            ("cookie", "c"),
            ("traceparent", "00-1"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        headers.append(
            "x-user",
            HeaderValue::from_bytes("größe".as_bytes()).expect("value"),
        );
        let mut passed = passed_on(&headers).expect("headers");
        passed.sort();
        let expected = [
            ("accept", "text/plain"),
            ("traceparent", "00-1"),
            ("x-user", "ann"),
            ("x-user", "größe"),
        ];
        assert_eq!(
            passed,
            expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );

        headers.insert("x-bad", HeaderValue::from_bytes(b"\xff").expect("value"));
        let problem = passed_on(&headers).expect_err("refused");
        assert_eq!(
            problem.detail,
            "the value of the header `x-bad` is not UTF-8"
        );
    }
}

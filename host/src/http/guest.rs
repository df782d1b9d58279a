//! HTTP requests to the guests of shards: everything under `/http`.
//!
//! A request is a call but for its form. Which shard it is for stands in a header, and then all of the path is the guest's; or in the path,
//! which the guest sees without it. Whatever the host has to say is problem details, as everywhere; whatever the guest answers passes
//! through, whole: its body is collected first, since nothing may leave that is not durable.

use ::http::header::{CONTENT_LENGTH, HOST};
use ::http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;

use super::query::terms::{self, Terms};
use super::{Problem, Shared, calls};
use crate::call::{CallError, CallOptions, HttpReply, HttpRequest, Target};
use crate::client;
use crate::guest::http::strip_hop_by_hop;
use crate::guest::{HttpHead, LAST_WROTE};

/// Tells the guest what was taken off its path.
const PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");
/// What calls to other shards get along.
const TRACE: [&str; 2] = ["traceparent", "tracestate"];

/// Serves a request; `path` is what stands behind `/http/`.
pub(super) async fn serve(
    shared: &Shared,
    path: &str,
    query: &str,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Problem> {
    let terms = Terms::of(request.headers(), shared.options.max_timeout)?;
    let (target, taken) = place(terms.target, path)?;
    let mut head = HttpHead {
        module: terms.module,
        method: request.method().clone(),
        target: rest(&path[taken.len()..], query)?,
        authority: authority(&request),
        headers: request.headers().clone(),
    };
    strip_hop_by_hop(&mut head.headers);
    for name in &terms::OURS {
        head.headers.remove(name);
    }
    let prefix = match taken {
        "" => "/http".to_owned(),
        taken => format!("/http/{taken}"),
    };
    if let Ok(prefix) = HeaderValue::from_str(&prefix) {
        head.headers.insert(PREFIX, prefix);
    }
    if let Some(key) = key_of(&target) {
        head.headers.insert(terms::KEY, key);
    }
    let options = CallOptions {
        durability: terms.durability,
        timeout: None,
        headers: trace(&head),
        revision: terms.revision,
    };
    let (body, left, _share) = calls::payload(shared, request, terms.timeout).await?;
    if !body.is_empty() || head.headers.contains_key(CONTENT_LENGTH) {
        head.headers.insert(CONTENT_LENGTH, body.len().into());
    }
    let is_head = head.method == Method::HEAD;
    let options = CallOptions {
        timeout: Some(left),
        ..options
    };
    let request = HttpRequest { head, body };
    let reply = shared.cluster.http(target, request, options).await;
    let reply = reply.map_err(discreet)?;
    Ok(respond(shared, reply, is_head))
}

/// An error without what the guest wrote as it failed. A caller of `/v1/call` gets that; a page may be anybody's to visit.
fn discreet(mut error: CallError) -> CallError {
    if let Some(at) = error.message.find(LAST_WROTE) {
        error.message.truncate(at);
        error.message.push_str("; the guest's log says more");
    }
    error
}

/// Where a request goes, and what of its path says so.
fn place(header: Option<Target>, path: &str) -> Result<(Target, &str), Problem> {
    if let Some(target) = header {
        return Ok((target, ""));
    }
    terms::prefix(path)?.ok_or_else(|| {
        Problem::invalid(
            "say which shard the request is for: by the header `quarry-key: KEY`, the header `quarry-shard: N`, or the path /http/key/KEY/... or /http/shard/N/...",
        )
    })
}

/// The routing key as the guest gets it, however it was given: percent-encoded, since a key has any bytes.
fn key_of(target: &Target) -> Option<HeaderValue> {
    match target {
        Target::Key(key) => HeaderValue::from_str(&client::percent(key)).ok(),
        Target::Shard(_) => None,
    }
}

/// Path and query as the guest gets them.
fn rest(path: &str, query: &str) -> Result<::http::uri::PathAndQuery, Problem> {
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mark = if query.is_empty() { "" } else { "?" };
    let text = format!("{slash}{path}{mark}{query}");
    text.parse()
        .map_err(|_| Problem::invalid("the path is none that can be passed on"))
}

fn authority<B>(request: &Request<B>) -> String {
    let host = || request.headers().get(HOST)?.to_str().ok();
    let named = request
        .uri()
        .authority()
        .map(|authority| authority.as_str());
    // HTTP/1.0 need not say.
    named.or_else(host).unwrap_or("localhost").to_owned()
}

fn trace(head: &HttpHead) -> Vec<(String, String)> {
    let value = |name: &&str| {
        let value = head.headers.get(*name)?.to_str().ok()?;
        Some(((*name).to_owned(), value.to_owned()))
    };
    TRACE.iter().filter_map(value).collect()
}

fn respond(shared: &Shared, mut reply: HttpReply, is_head: bool) -> Response<Full<Bytes>> {
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::BAD_GATEWAY);
    let mut headers = std::mem::take(&mut reply.headers);
    // The body is whole, so its length is known; what HEAD would have had only the guest knows.
    if !is_head {
        headers.remove(CONTENT_LENGTH);
    }
    let (shard, seq, revision) = (reply.shard, reply.seq, reply.revision);
    calls::stamp(shared, &mut headers, shard, seq, revision, &reply.node);
    let bodiless = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let body = if bodiless { Bytes::new() } else { reply.body };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guest_is_told_the_key_in_one_form() {
        for (target, seen) in [
            (Target::key("ann"), Some("ann")),
            (Target::key(&b"a/b \xff"[..]), Some("a%2Fb%20%FF")),
            (Target::Shard(1), None),
        ] {
            let key = key_of(&target);
            assert_eq!(key.as_ref().and_then(|key| key.to_str().ok()), seen);
        }
    }

    #[test]
    fn the_guest_sees_the_rest_of_the_path() {
        for (path, query, header, target, seen) in [
            (
                "a/b",
                "q=1&r",
                Some(Target::Shard(2)),
                Target::Shard(2),
                "/a/b?q=1&r",
            ),
            ("", "", Some(Target::Shard(2)), Target::Shard(2), "/"),
            (
                "shard/3/x",
                "",
                Some(Target::Shard(2)),
                Target::Shard(2),
                "/shard/3/x",
            ),
            ("shard/3", "", None, Target::Shard(3), "/"),
            ("shard/3/", "q", None, Target::Shard(3), "/?q"),
            ("shard/3/a%20b//c", "", None, Target::Shard(3), "/a%20b//c"),
            ("key/k%C3%A4/a", "", None, Target::key("kä"), "/a"),
        ] {
            let (found, taken) = place(header, path).expect(path);
            assert_eq!(found, target, "{path}");
            let rest = rest(&path[taken.len()..], query).expect(path);
            assert_eq!(rest.as_str(), seen, "{path}");
        }
        for path in ["", "a/b", "shards/3/a"] {
            let problem = place(None, path).expect_err(path);
            for way in ["quarry-key", "quarry-shard", "/http/key/", "/http/shard/"] {
                assert!(problem.detail.contains(way), "{}", problem.detail);
            }
        }
    }
}

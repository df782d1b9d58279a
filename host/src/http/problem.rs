//! Errors over HTTP: `application/problem+json` (RFC 9457) with a stable `code`, and the only mapping from errors to status codes.
//!
//! | what failed | status | `source` |
//! |---|---|---|
//! | the request: parameters, method name, shard out of range (`invalid-request`) | 400 | host |
//! | no such route (`not-found`), the guest has no queries (`no-queries`) or answers no HTTP (`no-http`) | 404 | host |
//! | a method that the route lacks (`method-not-allowed`) | 405 | host |
//! | its `Host` is not a name of this node (`forbidden-host`) | 403 | host |
//! | a web page of another origin made it (`forbidden-origin`) | 403 | host |
//! | the body did not arrive in time (`body-timeout`), or ended early (`body-incomplete`) | 408, 400 | host |
//! | a body, a path or headers over the limit (`body-too-large`, `uri-too-long`, `headers-too-large`) | 413, 414, 431 | host |
//! | the shard's queue is full, or too many bytes of bodies are in progress (`overloaded`) | 429 | host |
//! | the shard is not open (`unassigned`), not this node's (`not-owner`), its owner not reached (`unreachable`), quarantined (`quarantined`), or the node has no room for an instance (`no-room`) | 503 | host |
//! | an operator's command cannot be carried out now (`refused`) | 409 | host |
//! | a call between shards that could never be answered, or goes too deep (`call-cycle`, `call-depth`; from outside there is none) | 409 | host |
//! | the shard runs another revision than the call is for (`wrong-revision`) | 409 | host |
//! | there is no such revision or module (`no-revision`, `no-module`) | 404 | host |
//! | what is deployed, or lies in the bucket, does not allow it (`rollout-busy`, `rollout-idle`, `rollout-not-held`, `rollout-goes-back`, `unchanged`, `revision-needed`, `no-way-back`, `module-incomplete`, `module-tampered`, `too-many`, `pinned`) | 409 | host |
//! | a module is empty or too large (`module-size`) | 413 | host |
//! | what lies in the bucket is unreadable (`corrupt-record`), or it is not known whether it was written (`outcome-unknown`) | 500 | host |
//! | the store fails (`store-failed`), or others write all the time (`contended`) | 503 | host |
//! | the time is up (`timeout`) | 504 | host |
//! | the shard ended before the call's writes were durable (`outcome-unknown`) | 500 | host |
//! | the guest's own `not-found`, `unknown-method`; a module that answers no HTTP (`no-http`) | 404 | guest |
//! | the guest took an HTTP request and gave no answer (`no-response`), an error instead (`response-error`), half of one (`response-incomplete`), or one that HTTP does not allow (`bad-response`) | 502 | guest |
//! | the guest's own `forbidden` | 403 | guest |
//! | the guest's own `conflict`, `already-exists` | 409 | guest |
//! | the guest's own `limit` | 413 | guest |
//! | the guest's own `invalid-...` | 400 | guest |
//! | any other error of the guest that is retryable | 503 | guest |
//! | the guest's own `internal` | 500 | guest |
//! | any other error of the guest | 422 | guest |
//! | the guest used up its CPU or wall time | 504 | trap |
//! | the guest cannot be instantiated | 503 | trap |
//! | the guest failed in any other way | 500 | trap |
//!
//! With `source: host`, 4xx other than 408 and 503 mean that nothing ran; after 500 and 504 the call may have run.

use std::borrow::Cow;

use ::http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use ::http::{HeaderValue, Response, StatusCode};
use bytes::Bytes;
use http_body_util::Full;
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::query::Refused;
use crate::call::{CallError, CallErrorKind, Source};
use crate::deploy::{self, DeployError};
use crate::guest::TrapKind;

/// The longest code of a guest that becomes part of a problem's `type`.
const CODE_MAX_BYTES: usize = 64;

/// An error as its caller gets it. Its `type` and `title` follow from these.
#[derive(Debug, Clone)]
pub struct Problem {
    /// The status code.
    pub status: StatusCode,
    /// What happened, for a person.
    pub detail: String,
    /// The stable code.
    pub code: Cow<'static, str>,
    /// Who says so.
    pub source: Source,
    /// Whether the same request may succeed when made again.
    pub retryable: bool,
    /// The shard, where it is known.
    pub shard: Option<u32>,
    /// The newest write that a guest's error can show.
    pub seq: Option<u64>,
    /// The revision that failed, where one ran, or that the shard runs instead of another one.
    pub revision: Option<u64>,
    /// The methods that a route has, with 405.
    pub allow: Option<&'static str>,
}

impl Problem {
    /// A failure of the request or the host.
    pub(super) fn host(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
            code: Cow::Borrowed(code),
            source: Source::Host,
            retryable: status == StatusCode::SERVICE_UNAVAILABLE,
            shard: None,
            seq: None,
            revision: None,
            allow: None,
        }
    }

    /// The request is not one.
    pub(super) fn invalid(detail: impl Into<String>) -> Self {
        Self::host(
            StatusCode::BAD_REQUEST,
            CallErrorKind::Invalid.code(),
            detail,
        )
    }

    /// Turns it into a response.
    pub(super) fn respond(self) -> Response<Full<Bytes>> {
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(shard) = self.shard {
            headers.insert("quarry-shard", shard.into());
        }
        if let Some(allow) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        // The host's own refusals pass within about a second; when a guest's does, only the guest knows.
        let refused = matches!(
            self.status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        );
        if self.retryable && refused {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl Serialize for Problem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let kind = match self.source {
            Source::Host | Source::Trap => format!("urn:quarry:error:{}", self.code),
            Source::Guest if is_plain(&self.code) => {
                format!("urn:quarry:guest-error:{}", self.code)
            }
            Source::Guest => "urn:quarry:guest-error".into(),
        };
        let mut fields = serializer.serialize_map(None)?;
        fields.serialize_entry("type", &kind)?;
        fields.serialize_entry("title", self.status.canonical_reason().unwrap_or("Error"))?;
        fields.serialize_entry("status", &self.status.as_u16())?;
        fields.serialize_entry("detail", &self.detail)?;
        fields.serialize_entry("code", &self.code)?;
        fields.serialize_entry("source", &self.source)?;
        fields.serialize_entry("retryable", &self.retryable)?;
        if let Some(shard) = self.shard {
            fields.serialize_entry("shard", &shard)?;
        }
        if let Some(seq) = self.seq {
            fields.serialize_entry("seq", &seq)?;
        }
        if let Some(revision) = self.revision {
            fields.serialize_entry("revision", &revision)?;
        }
        fields.end()
    }
}

impl From<CallError> for Problem {
    fn from(error: CallError) -> Self {
        let (status, source) = (status_of(&error), error.source());
        Self {
            status,
            detail: error.message,
            code: Cow::Owned(error.code),
            source,
            retryable: error.retryable,
            shard: error.shard,
            seq: error.seq,
            revision: error.revision,
            allow: None,
        }
    }
}

impl From<DeployError> for Problem {
    fn from(error: DeployError) -> Self {
        Self {
            retryable: error.is_transient(),
            ..Self::host(deploy_status(error.code()), error.code(), error.to_string())
        }
    }
}

impl From<deploy::Error> for Problem {
    fn from(error: deploy::Error) -> Self {
        DeployError::from(error).into()
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        Self::invalid(refused.to_string())
    }
}

/// The status code of a failed call; the table is at the head of this file.
#[must_use]
pub fn status_of(error: &CallError) -> StatusCode {
    match error.kind {
        CallErrorKind::Invalid => StatusCode::BAD_REQUEST,
        CallErrorKind::NoQueries | CallErrorKind::NoHttp => StatusCode::NOT_FOUND,
        CallErrorKind::Overloaded => StatusCode::TOO_MANY_REQUESTS,
        CallErrorKind::Unassigned
        | CallErrorKind::NotOwner
        | CallErrorKind::Unreachable
        | CallErrorKind::Quarantined
        | CallErrorKind::NoRoom => StatusCode::SERVICE_UNAVAILABLE,
        CallErrorKind::Refused
        | CallErrorKind::WrongRevision
        | CallErrorKind::Cycle
        | CallErrorKind::Depth => StatusCode::CONFLICT,
        CallErrorKind::Timeout => StatusCode::GATEWAY_TIMEOUT,
        CallErrorKind::Unknown => StatusCode::INTERNAL_SERVER_ERROR,
        CallErrorKind::Guest => guest_status(&error.code, error.retryable),
        CallErrorKind::Trap(kind) => match kind {
            TrapKind::CpuTime | TrapKind::WallTime => StatusCode::GATEWAY_TIMEOUT,
            TrapKind::Instantiate => StatusCode::SERVICE_UNAVAILABLE,
            TrapKind::Aborted
            | TrapKind::StackOverflow
            | TrapKind::Memory
            | TrapKind::ReplyTooLarge
            | TrapKind::Host => StatusCode::INTERNAL_SERVER_ERROR,
        },
    }
}

/// The status code for an order that was not given, by its code.
fn deploy_status(code: &str) -> StatusCode {
    match code {
        "invalid-request" => StatusCode::BAD_REQUEST,
        "no-revision" | "no-module" => StatusCode::NOT_FOUND,
        "module-size" => StatusCode::PAYLOAD_TOO_LARGE,
        "corrupt-record" | "outcome-unknown" => StatusCode::INTERNAL_SERVER_ERROR,
        "store-failed" | "contended" => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::CONFLICT,
    }
}

fn guest_status(code: &str, retryable: bool) -> StatusCode {
    match code {
        "not-found" | "unknown-method" | "no-http" => StatusCode::NOT_FOUND,
        "no-response" | "response-error" | "response-incomplete" | "bad-response" => {
            StatusCode::BAD_GATEWAY
        }
        "forbidden" => StatusCode::FORBIDDEN,
        "conflict" | "already-exists" => StatusCode::CONFLICT,
        "limit" => StatusCode::PAYLOAD_TOO_LARGE,
        _ if code.starts_with("invalid-") => StatusCode::BAD_REQUEST,
        _ if retryable => StatusCode::SERVICE_UNAVAILABLE,
        "internal" => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

/// Whether a guest's code is what it should be, and so can be part of a URN.
fn is_plain(code: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=CODE_MAX_BYTES).contains(&code.len()) && code.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::{GuestError, Trap};

    fn json(problem: &Problem) -> serde_json::Value {
        serde_json::to_value(problem).expect("JSON")
    }

    #[test]
    fn failures_of_the_host_and_traps() {
        use CallErrorKind as K;
        for (kind, status, source, retryable) in [
            (K::Invalid, 400, "host", false),
            (K::Unassigned, 503, "host", true),
            (K::NotOwner, 503, "host", true),
            (K::Unreachable, 503, "host", true),
            (K::Refused, 409, "host", false),
            (K::Overloaded, 429, "host", true),
            (K::Quarantined, 503, "host", false),
            (K::NoRoom, 503, "host", true),
            (K::NoQueries, 404, "host", false),
            (K::NoHttp, 404, "host", false),
            (K::Cycle, 409, "host", false),
            (K::Depth, 409, "host", false),
            (K::WrongRevision, 409, "host", false),
            (K::Timeout, 504, "host", false),
            (K::Unknown, 500, "host", false),
            (K::Trap(TrapKind::Aborted), 500, "trap", false),
            (K::Trap(TrapKind::StackOverflow), 500, "trap", false),
            (K::Trap(TrapKind::Memory), 500, "trap", false),
            (K::Trap(TrapKind::CpuTime), 504, "trap", false),
            (K::Trap(TrapKind::WallTime), 504, "trap", false),
            (K::Trap(TrapKind::ReplyTooLarge), 500, "trap", false),
            (K::Trap(TrapKind::Instantiate), 503, "trap", false),
            (K::Trap(TrapKind::Host), 500, "trap", false),
        ] {
            let problem = Problem::from(CallError::host(kind, "because").at(3));
            let got = json(&problem);
            assert_eq!(got["status"], status, "{kind:?}");
            assert_eq!(got["source"], source, "{kind:?}");
            assert_eq!(got["retryable"], retryable, "{kind:?}");
            assert_eq!(got["code"], kind.code(), "{kind:?}");
            assert_eq!(
                got["type"],
                format!("urn:quarry:error:{}", kind.code()),
                "{kind:?}"
            );
            assert_eq!(
                (&got["detail"], &got["shard"]),
                (&"because".into(), &3.into()),
                "{kind:?}"
            );
            assert!(got.get("seq").is_none());
            let response = problem.respond();
            assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
            assert_eq!(response.headers()["quarry-shard"], "3");
            assert_eq!(
                response.headers().contains_key(RETRY_AFTER),
                retryable,
                "{kind:?}"
            );
        }
        let trap = Problem::from(CallError::trap(&Trap::new(TrapKind::Aborted, "panicked")));
        assert_eq!(trap.code, "guest-trap");
    }

    #[test]
    fn orders_that_are_not_given() {
        use deploy::Error as Bucket;
        use quarry_core::deploy::Refused;
        let store = || "memory:".to_owned();
        let digest = deploy::objects::digest(b"x");
        for (error, status, code, retryable) in [
            (
                Bucket::NoRevision {
                    number: 3,
                    store: store(),
                }
                .into(),
                404,
                "no-revision",
                false,
            ),
            (
                Bucket::NoModule {
                    digest,
                    store: store(),
                }
                .into(),
                404,
                "no-module",
                false,
            ),
            (
                Bucket::Vanished { store: store() }.into(),
                500,
                "corrupt-record",
                false,
            ),
            (
                Bucket::Size { size: 0, most: 9 }.into(),
                413,
                "module-size",
                false,
            ),
            (
                Bucket::Tampered {
                    digest,
                    found: digest,
                    store: store(),
                }
                .into(),
                409,
                "module-tampered",
                false,
            ),
            (
                Bucket::Contended { first: 1, last: 9 }.into(),
                503,
                "contended",
                true,
            ),
            (
                DeployError::Refused(Refused::Idle),
                409,
                "rollout-idle",
                false,
            ),
            (
                DeployError::Refused(Refused::NothingChosen),
                400,
                "invalid-request",
                false,
            ),
            (
                DeployError::Needed {
                    number: 3,
                    why: "shards run it",
                },
                409,
                "revision-needed",
                false,
            ),
            (DeployError::Changing, 503, "contended", true),
            (DeployError::Pinned, 409, "pinned", false),
        ] {
            let got = json(&Problem::from(error));
            assert_eq!(
                (&got["status"], &got["code"]),
                (&status.into(), &code.into())
            );
            assert_eq!(
                (&got["source"], &got["retryable"]),
                (&"host".into(), &retryable.into()),
                "{code}"
            );
        }
    }

    #[test]
    fn errors_of_a_guest() {
        for (code, retryable, status, kind) in [
            ("not-found", false, 404, "urn:quarry:guest-error:not-found"),
            (
                "unknown-method",
                false,
                404,
                "urn:quarry:guest-error:unknown-method",
            ),
            ("forbidden", false, 403, "urn:quarry:guest-error:forbidden"),
            ("conflict", true, 409, "urn:quarry:guest-error:conflict"),
            (
                "already-exists",
                false,
                409,
                "urn:quarry:guest-error:already-exists",
            ),
            ("limit", false, 413, "urn:quarry:guest-error:limit"),
            (
                "invalid-json",
                false,
                400,
                "urn:quarry:guest-error:invalid-json",
            ),
            (
                "unavailable",
                true,
                503,
                "urn:quarry:guest-error:unavailable",
            ),
            ("internal", false, 500, "urn:quarry:guest-error:internal"),
            (
                "insufficient-funds",
                false,
                422,
                "urn:quarry:guest-error:insufficient-funds",
            ),
            ("timeout", false, 422, "urn:quarry:guest-error:timeout"),
            ("", false, 422, "urn:quarry:guest-error"),
            ("Not A Code\r\n", false, 422, "urn:quarry:guest-error"),
        ] {
            let error = GuestError {
                code: code.into(),
                message: "m".into(),
                retryable,
            };
            let got = json(&Problem::from(CallError::guest(error)));
            assert_eq!(
                (&got["status"], &got["type"]),
                (&status.into(), &kind.into()),
                "{code}"
            );
            assert_eq!(
                (&got["source"], &got["code"]),
                (&"guest".into(), &code.into()),
                "{code}"
            );
        }
    }
}

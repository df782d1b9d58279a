//! A call as its caller sees it: where it goes, what it asks for, what comes back, and how it can fail.
//!
//! Failures of routing (nothing ran, or nobody knows) stay apart from the guest's own error and from a trap:
//! [`CallError::source`] says which it is, `code` is stable.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use quarry_core::chain::Meeting;

use crate::gate::Ended;
use crate::guest::{GuestError, HttpAnswer, HttpHead, NoRoom, Trap, TrapKind};

/// Where a call goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// To the shard that this key belongs to; the guest gets the key.
    Key(Bytes),
    /// To a shard by its number; the guest gets no key.
    Shard(u32),
}

impl Target {
    /// The shard of a key.
    pub fn key(key: impl Into<Bytes>) -> Self {
        Self::Key(key.into())
    }
}

/// When a call's reply may leave the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// Once every write that it may show is durable.
    #[default]
    Durable,
    /// At once. A crash may undo what it shows.
    Applied,
}

/// What a query reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Read {
    /// Every write that is applied; the reply waits until they are durable.
    #[default]
    Applied,
    /// What is durable, at the least every write that was acknowledged; waits for nothing.
    Durable,
}

/// How a call is made.
#[derive(Debug, Clone, Default)]
pub struct CallOptions {
    /// When the reply may leave; when none, once what it shows is durable, unless the guest asked for earlier.
    pub durability: Option<Durability>,
    /// How long the caller waits, all retries included; `call.timeout` when none.
    pub timeout: Option<Duration>,
    /// Headers for the guest, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The only revision that may run it: where the shard runs another one when its turn comes, it is refused with
    /// [`CallErrorKind::WrongRevision`]. Any when none.
    pub revision: Option<u64>,
}

/// How a query is made.
#[derive(Debug, Clone, Default)]
pub struct QueryOptions {
    /// What it reads.
    pub read: Read,
    /// How long the caller waits; `call.timeout` when none.
    pub timeout: Option<Duration>,
    /// Headers for the guest, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The only revision that may run it, as in [`CallOptions::revision`].
    pub revision: Option<u64>,
}

/// A reply and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallReply {
    /// The guest's bytes.
    pub payload: Bytes,
    /// Their media type; `application/octet-stream` when none.
    pub content_type: Option<String>,
    /// The shard that ran it.
    pub shard: u32,
    /// The newest write that it can show.
    pub seq: u64,
    /// The revision that ran it.
    pub revision: u64,
    /// The node that ran it.
    pub node: Arc<str>,
    /// Of an answer over HTTP, all but the body, which is the payload.
    pub http: Option<Box<HttpAnswer>>,
}

/// An HTTP request for the guest of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRequest {
    /// All but the body.
    pub head: HttpHead,
    /// The body, whole.
    pub body: Bytes,
}

/// What the guest answered, and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpReply {
    /// The status code.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, whole.
    pub body: Bytes,
    /// The shard that ran it.
    pub shard: u32,
    /// The newest write that it can show.
    pub seq: u64,
    /// The revision that ran it.
    pub revision: u64,
    /// The node that ran it.
    pub node: Arc<str>,
}

/// Who says that a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The host: the request, the way to the shard, or the shard.
    Host,
    /// The guest's own error.
    Guest,
    /// The guest failed.
    Trap,
}

/// Why a call failed. `kind` is for code, `code` for the wire.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    /// What kind of failure it is.
    pub kind: CallErrorKind,
    /// Stable, in kebab case; a guest's own where [`CallError::source`] says so.
    pub code: String,
    /// For a person.
    pub message: String,
    /// Whether the same call may succeed when made again.
    pub retryable: bool,
    /// The shard, where it is known.
    pub shard: Option<u32>,
    /// The newest write that a guest's error can show.
    pub seq: Option<u64>,
    /// The revision that failed, where one ran; of [`CallErrorKind::WrongRevision`], the one that the shard runs.
    pub revision: Option<u64>,
}

/// The kinds of [`CallError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallErrorKind {
    /// The request is not a call: shard out of range, method name, timeout.
    Invalid,
    /// The shard is not open anywhere now. Nothing ran.
    Unassigned,
    /// The node that was asked does not own the shard, or is not sure to. Nothing ran, or nothing that changes anything.
    NotOwner,
    /// The shard's owner cannot be reached. Nothing was sent.
    Unreachable,
    /// What an operator wants cannot be done now. Nothing was done.
    Refused,
    /// The shard's queue is full. Nothing ran.
    Overloaded,
    /// The shard's guest failed too often, and calls are refused. Nothing ran.
    Quarantined,
    /// The node has no room for another instance. Nothing ran.
    NoRoom,
    /// The guest has no `queries`. Nothing ran.
    NoQueries,
    /// The guest answers no HTTP. Nothing ran.
    NoHttp,
    /// A call between shards that could never be answered: a shard that it is for waits for it. Nothing ran.
    Cycle,
    /// More shards would wait for each other than `limits.call_depth`. Nothing ran.
    Depth,
    /// The shard runs another revision than the only one that may run it. Nothing ran.
    WrongRevision,
    /// The time is up. The call may have run, or may still run.
    Timeout,
    /// The call ran, and its writes were not durable when the shard ended: they may or may not survive.
    Unknown,
    /// The guest's own error.
    Guest,
    /// The guest failed in the middle of the call. Writes that it made before stay.
    Trap(TrapKind),
}

impl CallErrorKind {
    /// Every kind.
    pub const ALL: [Self; 24] = [
        Self::Invalid,
        Self::Unassigned,
        Self::NotOwner,
        Self::Unreachable,
        Self::Refused,
        Self::Overloaded,
        Self::Quarantined,
        Self::NoRoom,
        Self::NoQueries,
        Self::NoHttp,
        Self::Cycle,
        Self::Depth,
        Self::WrongRevision,
        Self::Timeout,
        Self::Unknown,
        Self::Guest,
        Self::Trap(TrapKind::Aborted),
        Self::Trap(TrapKind::StackOverflow),
        Self::Trap(TrapKind::Memory),
        Self::Trap(TrapKind::CpuTime),
        Self::Trap(TrapKind::WallTime),
        Self::Trap(TrapKind::ReplyTooLarge),
        Self::Trap(TrapKind::Instantiate),
        Self::Trap(TrapKind::Host),
    ];

    /// The kind of a code, as [`CallErrorKind::code`] gives it.
    #[must_use]
    pub fn of_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// The stable code of a failure that is not the guest's own.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Invalid => "invalid-request",
            Self::Unassigned => "unassigned",
            Self::NotOwner => "not-owner",
            Self::Unreachable => "unreachable",
            Self::Refused => "refused",
            Self::Overloaded => "overloaded",
            Self::Quarantined => "quarantined",
            Self::NoRoom => "no-room",
            Self::NoQueries => "no-queries",
            Self::NoHttp => "no-http",
            Self::Cycle => "call-cycle",
            Self::Depth => "call-depth",
            Self::WrongRevision => "wrong-revision",
            Self::Timeout => "timeout",
            Self::Unknown => "outcome-unknown",
            Self::Guest => "guest-error",
            Self::Trap(kind) => match kind {
                TrapKind::Aborted => "guest-trap",
                TrapKind::StackOverflow => "guest-stack-overflow",
                TrapKind::Memory => "guest-memory-limit",
                TrapKind::CpuTime => "guest-cpu-limit",
                TrapKind::WallTime => "guest-wall-limit",
                TrapKind::ReplyTooLarge => "guest-reply-limit",
                TrapKind::Instantiate => "guest-not-started",
                TrapKind::Host => "internal",
            },
        }
    }
}

impl CallError {
    /// A failure that is not the guest's own.
    pub fn host(kind: CallErrorKind, message: impl Into<String>) -> Self {
        let retryable = matches!(
            kind,
            CallErrorKind::Unassigned
                | CallErrorKind::NotOwner
                | CallErrorKind::Unreachable
                | CallErrorKind::Overloaded
                | CallErrorKind::NoRoom
        );
        Self {
            kind,
            code: kind.code().into(),
            message: message.into(),
            retryable,
            shard: None,
            seq: None,
            revision: None,
        }
    }

    /// The guest's own error.
    #[must_use]
    pub fn guest(error: GuestError) -> Self {
        Self {
            kind: CallErrorKind::Guest,
            code: error.code,
            message: error.message,
            retryable: error.retryable,
            shard: None,
            seq: None,
            revision: None,
        }
    }

    /// The guest failed.
    #[must_use]
    pub fn trap(trap: &Trap) -> Self {
        Self::host(CallErrorKind::Trap(trap.kind), trap.to_string())
    }

    /// Two chains of calls met, each of which waits for the other: one of them may go on, so that the other may be made again.
    #[must_use]
    pub fn met(meeting: &Meeting) -> Self {
        Self {
            retryable: true,
            ..Self::host(CallErrorKind::Cycle, meeting.to_string())
        }
    }

    /// There was no instance to run it.
    #[must_use]
    pub fn no_room(why: NoRoom) -> Self {
        Self {
            retryable: !matches!(why, NoRoom::NoQueries { .. }),
            ..Self::host(CallErrorKind::NoRoom, why.to_string())
        }
    }

    /// The shard's guest answers no HTTP.
    #[must_use]
    pub fn no_http(module: &str) -> Self {
        let message = format!(
            "the guest answers no HTTP: {module} does not export `wasi:http/incoming-handler@0.2`; call its methods with POST /v1/call/METHOD, or deploy a component that exports it"
        );
        Self::host(CallErrorKind::NoHttp, message)
    }

    /// The shard runs another revision than the only one that may run the call.
    #[must_use]
    pub fn wrong_revision(shard: u32, runs: u64, wanted: u64) -> Self {
        let message = format!(
            "shard {shard} runs revision {runs}, and this was to be run by revision {wanted} alone; nothing ran. `quarry shards` shows what each shard runs"
        );
        Self {
            revision: Some(runs),
            ..Self::host(CallErrorKind::WrongRevision, message).at(shard)
        }
    }

    /// This node's lease on a shard ran out, and nothing was run.
    #[must_use]
    pub fn lease_ran_out(shard: u32) -> Self {
        let message =
            format!("this node's lease on shard {shard} ran out: another node may own it");
        Self::host(CallErrorKind::NotOwner, message).at(shard)
    }

    /// The shard was closed, or its database had ended, before the call began: nothing was run.
    #[must_use]
    pub fn closed(shard: u32) -> Self {
        let message = format!("shard {shard} was closed before the call began");
        Self::host(CallErrorKind::Unassigned, message).at(shard)
    }

    /// The shard ended before the call's writes were durable.
    #[must_use]
    pub fn ended(ended: &Ended) -> Self {
        Self::host(CallErrorKind::Unknown, ended.to_string())
    }

    /// The same error, with its shard.
    #[must_use]
    pub fn at(mut self, shard: u32) -> Self {
        self.shard = Some(shard);
        self
    }

    /// Who says so.
    #[must_use]
    pub fn source(&self) -> Source {
        match self.kind {
            CallErrorKind::Guest => Source::Guest,
            CallErrorKind::Trap(_) => Source::Trap,
            _ => Source::Host,
        }
    }

    /// Whether it is sure that nothing ran, so that the call may be made again without doing it twice.
    #[must_use]
    pub fn never_ran(&self) -> bool {
        use CallErrorKind::{
            Cycle, Depth, Invalid, NoHttp, NoQueries, NoRoom, NotOwner, Overloaded, Quarantined,
            Refused, Unassigned, Unreachable, WrongRevision,
        };
        matches!(
            self.kind,
            Invalid
                | Unassigned
                | NotOwner
                | Unreachable
                | Refused
                | Overloaded
                | Quarantined
                | NoRoom
                | NoQueries
                | NoHttp
                | Cycle
                | Depth
                | WrongRevision
        )
    }
}

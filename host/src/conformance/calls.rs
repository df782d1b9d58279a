//! How calls are sent, and whether they failed as they have to.

use bytes::Bytes;

use super::case::{Call, Failing};
use super::world::Ended;
use crate::Cluster;
use crate::call::{
    CallError, CallErrorKind, CallOptions, CallReply, Durability, QueryOptions, Source, Target,
};
use crate::guest::TrapKind;

/// Sends a request to the guest, in the way of a call.
pub(super) async fn sent(
    cluster: &Cluster,
    call: &Call,
    method: &str,
    payload: Bytes,
) -> Result<CallReply, CallError> {
    let target = match &call.key {
        Some(key) => Target::key(key.clone()),
        None => Target::Shard(call.shard),
    };
    if call.query {
        let options = QueryOptions {
            timeout: call.timeout,
            headers: call.headers.clone(),
            ..QueryOptions::default()
        };
        return cluster.query(target, method, payload, options).await;
    }
    let options = CallOptions {
        durability: call.applied.then_some(Durability::Applied),
        timeout: call.timeout,
        headers: call.headers.clone(),
        ..CallOptions::default()
    };
    cluster.call(target, method, payload, options).await
}

impl Failing {
    /// Whether an error is of this kind.
    pub(super) fn is(&self, error: &CallError) -> bool {
        match self {
            Self::Guest(code, says, retryable) => {
                error.source() == Source::Guest
                    && error.code == *code
                    && error.message.contains(says)
                    && error.retryable == *retryable
            }
            Self::Trap(kind) => is_trap(error, *kind),
            Self::Either(kinds) => {
                error.source() == Source::Guest || kinds.iter().any(|kind| is_trap(error, *kind))
            }
            Self::Host(kind) => error.kind == *kind,
            Self::Not(how) => !how.is(error),
        }
    }

    /// For people.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Guest(code, says, retryable) => {
                let retryable = if *retryable { "" } else { "not " };
                format!("the guest's error {code}, {retryable}retryable, that says {says:?}")
            }
            Self::Trap(kind) => format!("a trap ({kind})"),
            Self::Either(kinds) => {
                let kinds: Vec<_> = kinds.iter().map(ToString::to_string).collect();
                format!("an error of the guest, or a trap ({})", kinds.join(", "))
            }
            Self::Host(kind) => format!("the host's error {}", kind.code()),
            Self::Not(how) => format!("anything but {}", how.shown()),
        }
    }
}

fn is_trap(error: &CallError, kind: TrapKind) -> bool {
    error.kind == CallErrorKind::Trap(kind)
}

/// A call that was not to fail.
pub(super) fn failed(error: &CallError) -> Ended {
    Ended::Failed(format!(
        "it failed with {} ({:?}): {error}",
        error.code,
        error.source()
    ))
}

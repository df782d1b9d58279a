//! Calls and queries that a guest makes to other shards, in the middle of a call or a query of its own.
//!
//! Everything that such a call may rest on is settled here, for components and native logic alike: that the shards which wait for it form
//! no circle, that what this shard has written is durable before the call leaves (promise P1), that nothing leaves after the lease ran
//! out (P3), and that the wait ends with the call that makes it. The way to the other shard is the node's ([`Route`]).
//!
//! Dropping the future of a call gives it up: one that has not begun there never will.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use quarry_core::chain::{self, Refusal};
use tokio::sync::watch;

use super::outgoing::Outside;
use super::{GuestError, METHOD_MAX_BYTES, Request};
use crate::call::{CallError, CallErrorKind, CallReply};
use crate::clock;
use crate::db::{ReadView, ShardDb};
use crate::gate::Ended;
use crate::metrics::BetweenMetrics;

pub mod waits;

pub use quarry_core::chain::Kind;
use waits::Waits;

/// The longest routing key, in bytes.
const KEY_MAX_BYTES: usize = 65_535;
/// The headers that go along.
const HEADERS: [&str; 2] = ["traceparent", "tracestate"];

/// The way to the other shards. It waits until the request's deadline at most, and never sends what was sent once.
#[async_trait]
pub trait Route: Send + Sync {
    /// Runs a request on a shard, wherever that is. A call's reply is durable there; a query reads what is durable.
    ///
    /// # Errors
    /// As [`crate::Cluster::call`].
    async fn route(&self, shard: u32, request: Request, kind: Kind)
    -> Result<CallReply, CallError>;
}

/// What the shards of a node share to reach others.
#[derive(Clone)]
pub struct Reach {
    /// The way.
    pub route: Arc<dyn Route>,
    /// Who waits for whom.
    pub waits: Arc<Waits>,
    /// Counts them.
    pub metrics: Arc<BetweenMetrics>,
    /// The way to hosts outside that are granted.
    pub outside: Arc<Outside>,
    /// Bytes of a payload, at most: `http.max_body`, as for calls from outside.
    pub payload: usize,
}

/// Calls from one shard.
pub struct Calls {
    shard: u32,
    shards: u32,
    db: Arc<ShardDb>,
    reach: Reach,
    /// How many of the shard's queries wait for others.
    waiting: watch::Sender<usize>,
}

/// What is asked of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// The shard.
    pub shard: u32,
    /// The method, of 1 to 128 bytes.
    pub method: String,
    /// The routing key that its guest gets; up to 65,535 bytes.
    pub key: Option<Bytes>,
    /// The payload; up to `http.max_body`.
    pub payload: Bytes,
}

/// The call or the query in progress, as far as it matters to what it asks.
#[derive(Debug, Clone, Copy)]
pub struct Within<'a> {
    /// When its caller gives up.
    pub deadline: Instant,
    /// The shards that wait for it, outermost first.
    pub chain: &'a [u32],
    /// Its headers.
    pub headers: &'a [(String, String)],
}

impl<'a> From<&'a Request> for Within<'a> {
    fn from(request: &'a Request) -> Self {
        Self {
            deadline: request.deadline,
            chain: &request.chain,
            headers: &request.headers,
        }
    }
}

impl Calls {
    /// The calls of a shard with this database.
    #[must_use]
    pub fn new(shard: u32, shards: u32, db: Arc<ShardDb>, reach: Reach) -> Self {
        Self {
            shard,
            shards,
            db,
            reach,
            waiting: watch::Sender::new(0),
        }
    }

    /// The shard of a key.
    #[must_use]
    pub fn shard_for(&self, key: &[u8]) -> u32 {
        quarry_core::hash::shard_for(key, self.shards)
    }

    /// Calls another shard, in the middle of a call. Leaves when all that this shard has written is durable, and waits until the deadline
    /// of the call in progress at most. Made one at a time: of several at once only the newest is looked at for circles.
    ///
    /// # Errors
    /// Codes `call-cycle` and `call-depth`, `invalid-argument` and `limit` (nothing was sent), the other guest's own error, and all of
    /// [`crate::Cluster::call`].
    pub async fn call(&self, within: Within<'_>, ask: Ask) -> Result<CallReply, CallError> {
        let shown = self.db.visible_seq();
        self.ask(within, shown, ask, Kind::Call).await
    }

    /// Runs a query on a shard, which may be this one, in the middle of a call.
    ///
    /// # Errors
    /// As [`Calls::call`], but for `call-cycle`.
    pub async fn query(&self, within: Within<'_>, ask: Ask) -> Result<CallReply, CallError> {
        let shown = self.db.visible_seq();
        self.ask(within, shown, ask, Kind::Query).await
    }

    /// Runs a query on a shard, which may be this one, in the middle of a query over `view`.
    ///
    /// # Errors
    /// As [`Calls::query`]; `overloaded`, where the queries of the other shard wait for others, all of them.
    pub async fn query_from(
        &self,
        view: &ReadView,
        within: Within<'_>,
        ask: Ask,
    ) -> Result<CallReply, CallError> {
        self.waiting.send_modify(|waiting| *waiting += 1);
        let _waiting = Counted(&self.waiting);
        self.ask(within, view.seq(), ask, Kind::Query).await
    }

    /// Returns once so many of the shard's queries wait for others. Safe to drop.
    pub(crate) async fn queries_wait(&self, all: usize) {
        let mut waiting = self.waiting.subscribe();
        // The sender is `self`.
        _ = waiting.wait_for(|waiting| *waiting >= all).await;
    }

    async fn ask(
        &self,
        within: Within<'_>,
        shown: u64,
        ask: Ask,
        kind: Kind,
    ) -> Result<CallReply, CallError> {
        let to = ask.shard;
        let outcome = self.try_ask(within, shown, ask, kind).await;
        self.reach.metrics.asked(&outcome);
        if let Err(error) = &outcome
            && matches!(error.kind, CallErrorKind::Cycle | CallErrorKind::Depth)
        {
            tracing::warn!(shard = self.shard, to, %error, event = "cluster_call.refused", "a call between shards was refused");
        }
        outcome
    }

    async fn try_ask(
        &self,
        within: Within<'_>,
        shown: u64,
        ask: Ask,
        kind: Kind,
    ) -> Result<CallReply, CallError> {
        self.check(&ask)?;
        let depth = self.db.limits().call_depth;
        let chain = chain::extend(within.chain, self.shard, ask.shard, kind, depth);
        let chain = chain.map_err(|refusal| refused(&refusal))?;
        let _waiting = (kind == Kind::Call).then(|| self.reach.waits.begin(self.shard, ask.shard));
        self.leave(shown, within.deadline).await?;
        let headers = within.headers.iter();
        let headers = headers
            .filter(|(name, _)| HEADERS.iter().any(|own| name.eq_ignore_ascii_case(own)))
            .cloned();
        let request = Request {
            method: ask.method,
            key: ask.key,
            payload: ask.payload,
            headers: headers.collect(),
            deadline: within.deadline,
            chain,
            http: None,
        };
        tokio::select! {
            biased;
            answer = self.reach.route.route(ask.shard, request, kind) => answer,
            // Nobody gets the reply of a shard that has ended, so nothing is waited for, either.
            () = self.db.gate().over() => Err(self.ended()),
        }
    }

    /// The way to hosts outside of the cluster.
    #[must_use]
    pub fn outside(&self) -> &Arc<Outside> {
        &self.reach.outside
    }

    /// The newest write that a call in progress can show.
    pub(crate) fn visible_seq(&self) -> u64 {
        self.db.visible_seq()
    }

    /// Returns when the shard has ended. Safe to drop.
    pub(crate) async fn over(&self) {
        self.db.gate().over().await;
    }

    /// Returns when what this shard asks may leave: all that it may show is durable, and the lease holds. Waits until the deadline at most.
    ///
    /// # Errors
    /// Why it never may.
    pub(crate) async fn leave(&self, shown: u64, deadline: Instant) -> Result<(), CallError> {
        let gate = self.db.gate();
        if clock::now() >= deadline {
            return Err(self.late());
        }
        if gate.is_open(shown) {
            return Ok(());
        }
        let durable = clock::timeout_at(deadline, gate.durable(shown)).await;
        match durable.map_err(|_| self.late())? {
            Ok(()) => {}
            Err(Ended::Expired) => return Err(CallError::lease_ran_out(self.shard)),
            Err(ended) => {
                let message = format!(
                    "nothing was sent, since the calling shard {} has ended: {ended}",
                    self.shard
                );
                return Err(CallError::host(CallErrorKind::Unassigned, message));
            }
        }
        if gate.deadline().passed() {
            return Err(CallError::lease_ran_out(self.shard));
        }
        Ok(())
    }

    fn check(&self, ask: &Ask) -> Result<(), CallError> {
        let Ask {
            shard,
            method,
            key,
            payload,
        } = ask;
        if *shard >= self.shards {
            let message = format!(
                "there is no shard {shard}: the cluster has {}, from 0 to {}",
                self.shards,
                self.shards - 1
            );
            return Err(invalid("invalid-argument", message));
        }
        if method.is_empty() || method.len() > METHOD_MAX_BYTES {
            let message = format!(
                "a method's name has 1 to {METHOD_MAX_BYTES} bytes, not {}",
                method.len()
            );
            return Err(invalid("invalid-argument", message));
        }
        let key = key.as_ref().map_or(0, Bytes::len);
        if key > KEY_MAX_BYTES {
            let message = format!("the key has {key} bytes; a key has up to {KEY_MAX_BYTES}");
            return Err(invalid("limit", message));
        }
        if payload.len() > self.reach.payload {
            let message = format!(
                "the payload has {} bytes, over http.max_body ({})",
                payload.len(),
                self.reach.payload
            );
            return Err(invalid("limit", message));
        }
        Ok(())
    }

    fn late(&self) -> CallError {
        let message = format!(
            "the time of the call in progress was up before shard {} could ask elsewhere; nothing was sent",
            self.shard
        );
        CallError::host(CallErrorKind::Timeout, message)
    }

    fn ended(&self) -> CallError {
        let message = format!(
            "shard {} ended while it waited for another; what it asked may have run",
            self.shard
        );
        CallError::host(CallErrorKind::Unknown, message)
    }
}

/// So that a guest can pass on what failed.
impl From<CallError> for GuestError {
    fn from(error: CallError) -> Self {
        Self {
            code: error.code,
            message: error.message,
            retryable: error.retryable,
        }
    }
}

/// A query that waits; no more when dropped.
struct Counted<'a>(&'a watch::Sender<usize>);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|waiting| *waiting -= 1);
    }
}

fn refused(refusal: &Refusal) -> CallError {
    let kind = match refusal {
        Refusal::Cycle { .. } => CallErrorKind::Cycle,
        Refusal::Depth { .. } => CallErrorKind::Depth,
    };
    CallError::host(kind, refusal.to_string())
}

fn invalid(code: &str, message: String) -> CallError {
    CallError {
        code: code.into(),
        ..CallError::host(CallErrorKind::Invalid, message)
    }
}

#[cfg(test)]
pub(super) mod tests;

//! The public API: a cluster as one of its nodes sees it.
//!
//! [`Cluster::start`] opens the store, checks it, and opens the shards; [`Cluster::call`] runs a method of the guest on the
//! shard of a key. The handle is cheap to clone; [`Cluster::stop`] closes every shard, and so does dropping the last handle, in
//! the background.
//!
//! ```
//! use std::sync::Arc;
//!
//! use quarry::call::{CallOptions, Target};
//! use quarry::config::Config;
//! use quarry::guest::native::{self, Logic};
//! use quarry::guest::{GuestError, InstanceContext, Reply, Request};
//!
//! struct Counter;
//!
//! #[async_trait::async_trait]
//! impl Logic for Counter {
//!     async fn call(&mut self, context: &InstanceContext, request: &Request) -> Result<Reply, GuestError> {
//!         let key = request.key.clone().ok_or_else(|| GuestError::new("invalid-key", "give a key"))?;
//!         let count = match context.db.view().get(&key).await? {
//!             Some(value) => u64::from_le_bytes(value[..].try_into().unwrap_or_default()) + 1,
//!             None => 1,
//!         };
//!         context.db.put(key, count.to_le_bytes().to_vec().into()).await?;
//!         Ok(Reply::new(count.to_string()))
//!     }
//! }
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let config = Config { shards: 2, ..Config::default() };
//! let cluster = quarry::Cluster::start(Arc::new(config), native::module("main", 1, |_| Counter)).await.unwrap();
//! let reply = cluster.call(Target::key("a"), "increment", "".into(), CallOptions::default()).await.unwrap();
//! assert_eq!(reply.payload, "1");
//! cluster.stop().await;
//! # });
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quarry_core::hash;
use quarry_core::retry::{self, Failed, Policy};
use tokio::sync::oneshot;

use crate::call::{
    CallError, CallErrorKind, CallOptions, CallReply, Durability, QueryOptions, Read, Target,
};
use crate::clock;
use crate::config::Config;
use crate::guest::{METHOD_MAX_BYTES, Module, Request};
use crate::lease::handle::Leases;
use crate::metrics;
use crate::shard::{Control, Outcome, ShardHandle};
use crate::store::probe::ProbeReport;

mod node;
mod place;
mod runner;
mod start;
pub mod status;
mod supervise;
mod swap;

use node::Node;
pub use start::{ClusterBuilder, StartError};
use status::{ClusterStatus, Location, ShardReport};
pub(crate) use supervise::database_path;
pub use swap::{SwapError, SwapReport};

/// A running node of a cluster.
#[derive(Clone)]
pub struct Cluster {
    node: Arc<Node>,
    _alive: Arc<node::Alive>,
}

/// How a request is run on its shard.
#[derive(Clone, Copy)]
enum How {
    Call(Option<Durability>),
    Query(Read),
}

impl How {
    async fn run(self, handle: &ShardHandle, request: Request) -> Result<Outcome, CallError> {
        match self {
            Self::Call(durability) => handle.call(request, durability).await,
            Self::Query(read) => handle.query(request, read).await,
        }
    }
}

/// Not every shard is ready.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", describe_not_ready(.shards))]
pub struct NotReady {
    /// The shards that do not run.
    pub shards: Vec<ShardReport>,
}

impl Cluster {
    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.node.config
    }

    /// The cluster's name.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.node.cluster
    }

    /// This node's name.
    #[must_use]
    pub fn node(&self) -> &Arc<str> {
        &self.node.node
    }

    /// How many shards the cluster has.
    #[must_use]
    pub fn shards(&self) -> u32 {
        self.node.config.shards
    }

    /// The shard of a key: xxh64(key, seed 0) mod shards.
    #[must_use]
    pub fn shard_for(&self, key: &[u8]) -> u32 {
        hash::shard_for(key, self.shards())
    }

    /// Runs a method of the guest on the shard of the target. The reply comes once every write that it may show is durable,
    /// unless the options say otherwise. A call that was sent is never sent again.
    ///
    /// # Errors
    /// See [`CallError`]; [`CallError::never_ran`] tells whether it is sure that nothing ran.
    pub async fn call(
        &self,
        target: Target,
        method: &str,
        payload: Bytes,
        options: CallOptions,
    ) -> Result<CallReply, CallError> {
        let CallOptions {
            durability,
            timeout,
            headers,
        } = options;
        let begun = clock::now();
        let (shard, request) = self.request(target, method, payload, timeout, headers)?;
        let outcome = self.route(shard, request, How::Call(durability)).await;
        let took = clock::now().saturating_duration_since(begun);
        self.node.slots[shard as usize]
            .calls
            .call(method, metrics::Outcome::of(&outcome), took);
        outcome
    }

    /// Runs a query of the guest on the shard of the target, in parallel with calls and other queries.
    ///
    /// # Errors
    /// As [`Cluster::call`].
    pub async fn query(
        &self,
        target: Target,
        method: &str,
        payload: Bytes,
        options: QueryOptions,
    ) -> Result<CallReply, CallError> {
        let QueryOptions {
            read,
            timeout,
            headers,
        } = options;
        let begun = clock::now();
        let (shard, request) = self.request(target, method, payload, timeout, headers)?;
        let outcome = self.route(shard, request, How::Query(read)).await;
        let took = clock::now().saturating_duration_since(begun);
        self.node.slots[shard as usize]
            .calls
            .query(method, metrics::Outcome::of(&outcome), took);
        outcome
    }

    /// Where a shard is.
    ///
    /// # Errors
    /// [`CallErrorKind::Invalid`] for a number out of range.
    pub fn lookup(&self, shard: u32) -> Result<Location, CallError> {
        self.check_shard(shard)?;
        Ok(self.locate(shard))
    }

    /// Where every shard is, as this node sees it.
    #[must_use]
    pub fn assignments(&self) -> BTreeMap<u32, Location> {
        (0..self.shards())
            .map(|shard| (shard, self.locate(shard)))
            .collect()
    }

    /// The shards open on this node, in order.
    #[must_use]
    pub fn local_shards(&self) -> Vec<u32> {
        (0..self.shards())
            .filter(|shard| self.locate(*shard) == Location::Local)
            .collect()
    }

    /// The lifecycle state of every shard. Never reads the store.
    ///
    /// # Errors
    /// None on one node.
    pub async fn status(&self, timeout: Duration) -> Result<ClusterStatus, CallError> {
        _ = timeout;
        Ok(self.node.status())
    }

    /// Whether every shard that is this node's to run runs.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.node.share_ready()
    }

    /// This node's place in its cluster: routes, peers, and commands.
    #[must_use]
    pub fn leases(&self) -> &Arc<Leases> {
        &self.node.leases
    }

    /// Waits until every shard runs; without a timeout for as long as it takes.
    ///
    /// # Errors
    /// When the time is up or the node stops, with the shards that do not run and why.
    pub async fn await_ready(&self, timeout: Option<Duration>) -> Result<(), NotReady> {
        let mut changed = self.node.changed.subscribe();
        let end = async {
            match timeout {
                Some(timeout) => tokio::time::sleep(timeout).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = changed.wait_for(|_| self.ready()) => return Ok(()),
            () = end => {}
            () = self.node.stop.cancelled() => {}
        }
        Err(NotReady {
            shards: self.node.not_ready(),
        })
    }

    /// What a shard is doing.
    ///
    /// # Errors
    /// [`CallErrorKind::Invalid`] for a number out of range.
    pub fn shard_report(&self, shard: u32) -> Result<ShardReport, CallError> {
        self.check_shard(shard)?;
        Ok(self.node.slots[shard as usize].report())
    }

    /// The newest write up to which every write of a shard is durable.
    ///
    /// # Errors
    /// [`CallErrorKind::Unassigned`] when the shard is not open here.
    pub fn durable_seq(&self, shard: u32) -> Result<u64, CallError> {
        Ok(self.open_shard(shard)?.db().gate().durable_seq())
    }

    /// Waits until every write of a shard up to `seq` is durable. Who asks in the order of seq is told in the order of seq.
    ///
    /// # Errors
    /// [`CallErrorKind::Unknown`] when the shard ends first, [`CallErrorKind::Invalid`] for a seq that was not given out yet,
    /// [`CallErrorKind::Unassigned`] when the shard is not open here.
    pub async fn notify_when_durable(&self, shard: u32, seq: u64) -> Result<(), CallError> {
        let handle = self.open_shard(shard)?;
        let db = handle.db();
        let newest = db.visible_seq();
        if !db.knows(seq) {
            let message = format!(
                "seq {seq} of shard {shard} belongs to an earlier opening of the shard; if it was not durable then, it is lost"
            );
            return Err(CallError::host(CallErrorKind::Unknown, message).at(shard));
        }
        if seq > newest {
            let message = format!(
                "seq {seq} of shard {shard} was not given out yet; the newest write is {newest}"
            );
            return Err(CallError::host(CallErrorKind::Invalid, message).at(shard));
        }
        handle
            .db()
            .gate()
            .durable(seq)
            .await
            .map_err(|ended| CallError::ended(&ended).at(shard))
    }

    /// Probes the store now.
    pub async fn probe(&self, timeout: Duration) -> ProbeReport {
        self.node.probe_now(timeout).await
    }

    /// Makes a new instance of a shard's guest, and lifts a quarantine. A shard that is down is opened at once.
    ///
    /// # Errors
    /// When the guest does not start.
    pub async fn restart_shard(&self, shard: u32) -> Result<(), CallError> {
        self.check_shard(shard)?;
        let slot = &self.node.slots[shard as usize];
        let Some(handle) = slot.handle() else {
            if self.node.stop.is_cancelled() {
                return Err(self.unassigned(shard));
            }
            return self.node.retry(shard).map_err(|_| self.unassigned(shard));
        };
        let (done, restarted) = oneshot::channel();
        handle.control(Control::Restart { done }).await?;
        restarted
            .await
            .unwrap_or_else(|_| Err(self.unassigned(shard)))
    }

    /// Runs another module on every shard, in place: databases, caches and waiting replies stay. When it does not start on one of
    /// them, all go back to the module they ran.
    ///
    /// # Errors
    /// When the module refuses its options or does not start, with the guest's reason.
    pub async fn swap(&self, module: Arc<dyn Module>) -> Result<SwapReport, SwapError> {
        swap::swap(&self.node, module).await
    }

    /// Waits until the node stops, of its own accord too: it does when the part that keeps its deadlines fails. Safe to drop.
    pub async fn stopping(&self) {
        self.node.stop.cancelled().await;
    }

    /// Stops: refuses new calls, finishes the accepted ones, stops the guests, closes every database. With leases, each is freed
    /// once its shard has closed, for a node that is named to take it, and then the node leaves its cluster. Bounded by
    /// `shard.close_timeout` and `lease.ttl`.
    pub async fn stop(&self) {
        self.node.stop().await;
    }

    /// Runs a method so many times in a row on the shard's own thread, with nothing in between, and gives each time in nanoseconds.
    pub(crate) async fn measure(
        &self,
        shard: u32,
        method: &str,
        calls: usize,
    ) -> Result<Vec<u64>, CallError> {
        let handle = self.open_shard(shard)?;
        let (_, request) =
            self.request(Target::Shard(shard), method, Bytes::new(), None, Vec::new())?;
        let (done, measured) = oneshot::channel();
        handle
            .control(Control::Measure {
                request,
                calls,
                done,
            })
            .await?;
        measured
            .await
            .unwrap_or_else(|_| Err(self.unassigned(shard)))
    }

    fn request(
        &self,
        target: Target,
        method: &str,
        payload: Bytes,
        timeout: Option<Duration>,
        headers: Vec<(String, String)>,
    ) -> Result<(u32, Request), CallError> {
        if method.is_empty() || method.len() > METHOD_MAX_BYTES {
            let message = format!(
                "a method's name has 1 to {METHOD_MAX_BYTES} bytes, not {}",
                method.len()
            );
            return Err(CallError::host(CallErrorKind::Invalid, message));
        }
        let (shard, key) = match target {
            Target::Key(key) => (self.shard_for(&key), Some(key)),
            Target::Shard(shard) => (shard, None),
        };
        self.check_shard(shard)?;
        let limits = &self.node.config.call;
        let timeout = timeout.unwrap_or(limits.timeout);
        if timeout > limits.max_timeout {
            let message = format!(
                "a timeout of {timeout:?} is over call.max_timeout ({:?})",
                limits.max_timeout
            );
            return Err(CallError::host(CallErrorKind::Invalid, message));
        }
        let deadline = clock::now() + timeout;
        Ok((
            shard,
            Request {
                method: method.to_owned(),
                key,
                payload,
                headers,
                deadline,
            },
        ))
    }

    /// Runs a request on the shard's handle; again, after a pause, only where it is sure that nothing ran.
    async fn route(&self, shard: u32, request: Request, how: How) -> Result<CallReply, CallError> {
        let deadline = request.deadline;
        let slot = &self.node.slots[shard as usize];
        let policy = Policy {
            retries: self.node.config.call.retries,
            delay: self.node.config.call.retry_delay,
        };
        let run = async {
            let mut failed = 0;
            loop {
                let outcome = match slot.handle() {
                    Some(handle) => how.run(&handle, request.clone()).await,
                    None => Err(self.unassigned(shard)),
                };
                let error = match outcome {
                    Ok(outcome) => return Ok(self.reply(shard, outcome)),
                    Err(error) => error,
                };
                failed += 1;
                let kind = if error.kind == CallErrorKind::Unassigned {
                    Failed::NeverSent
                } else {
                    Failed::Final
                };
                let left = deadline.saturating_duration_since(clock::now());
                match retry::next(policy, failed, kind, left, rand::random()) {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => return Err(error),
                }
            }
        };
        match tokio::time::timeout_at(deadline.into(), run).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let why = slot.store_trouble().map_or_else(String::new, |trouble| {
                    format!("; the store fails: {trouble}")
                });
                let message = format!(
                    "shard {shard} did not reply in time; the call may have run, or may still run{why}"
                );
                Err(CallError::host(CallErrorKind::Timeout, message).at(shard))
            }
        }
    }

    fn reply(&self, shard: u32, outcome: Outcome) -> CallReply {
        let Outcome {
            payload,
            content_type,
            seq,
            revision,
        } = outcome;
        CallReply {
            payload,
            content_type,
            shard,
            seq,
            revision,
            node: self.node.node.clone(),
        }
    }

    fn open_shard(&self, shard: u32) -> Result<Arc<ShardHandle>, CallError> {
        self.check_shard(shard)?;
        self.node.slots[shard as usize]
            .handle()
            .ok_or_else(|| self.unassigned(shard))
    }

    fn locate(&self, shard: u32) -> Location {
        match self.node.slots[shard as usize].handle() {
            Some(_) => Location::Local,
            None => Location::Unassigned,
        }
    }

    fn check_shard(&self, shard: u32) -> Result<(), CallError> {
        let shards = self.shards();
        if shard >= shards {
            let message = format!(
                "there is no shard {shard}: the cluster has {shards}, from 0 to {}",
                shards - 1
            );
            return Err(CallError::host(CallErrorKind::Invalid, message));
        }
        Ok(())
    }

    fn unassigned(&self, shard: u32) -> CallError {
        let slot = &self.node.slots[shard as usize];
        let state = slot.state().as_str();
        let why = slot
            .last_error()
            .map_or_else(String::new, |error| format!("; last error: {error}"));
        CallError::host(
            CallErrorKind::Unassigned,
            format!("shard {shard} is not open here now ({state}){why}"),
        )
        .at(shard)
    }
}

fn describe_not_ready(shards: &[ShardReport]) -> String {
    let mut text = format!("{} shards do not run:", shards.len());
    for report in shards.iter().take(8) {
        text.push_str(&format!(" {} is {}", report.shard, report.status.as_str()));
        if let Some(error) = &report.last_error {
            text.push_str(&format!(" ({error})"));
        }
        text.push(';');
    }
    if shards.len() > 8 {
        text.push_str(" ...");
    }
    text
}

#[cfg(test)]
mod tests;

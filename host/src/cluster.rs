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
use tokio::sync::oneshot;

use crate::call::{
    CallError, CallErrorKind, CallOptions, CallReply, HttpReply, HttpRequest, QueryOptions, Target,
};
use crate::clock;
use crate::config::Config;
use crate::guest::{self, METHOD_MAX_BYTES, Module, Request};
use crate::lease::handle::Leases;
use crate::shard::{Control, ShardHandle};
use crate::store::probe::ProbeReport;
use crate::transport::{How, Run};

mod between;
mod deployed;
mod founding;
mod node;
mod parking;
mod peers;
mod place;
mod remote;
pub mod rollout;
mod routing;
mod runner;
mod start;
pub mod status;
mod supervise;
mod swap;
mod wanted;

pub use crate::shard::swap::{NotSwapped, SwapStep};
pub use deployed::said;
use node::Node;
pub use start::{ClusterBuilder, StartError};
use status::{Location, ShardReport};
pub(crate) use supervise::database_path;
pub use swap::{SwapError, SwapOptions, SwapReport};

/// A running node of a cluster.
#[derive(Clone)]
pub struct Cluster {
    node: Arc<Node>,
    _alive: Arc<node::Alive>,
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
            revision,
        } = options;
        let (shard, request) = self.request(target, method, payload, timeout, headers)?;
        let how = How::Call(durability);
        let run = Run { how, revision };
        self.node.run(shard, method, request, run).await
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
            revision,
        } = options;
        let (shard, request) = self.request(target, method, payload, timeout, headers)?;
        let how = How::Query(read);
        let run = Run { how, revision };
        self.node.run(shard, method, request, run).await
    }

    /// Has the guest of the target's shard answer an HTTP request, in the place of a call: in its queue, under its limits, and durable
    /// before the answer leaves, as in [`Cluster::call`].
    ///
    /// # Errors
    /// As [`Cluster::call`]; [`CallErrorKind::NoHttp`] where the guest answers none. What the guest answers is no error, whatever its status.
    pub async fn http(
        &self,
        target: Target,
        request: HttpRequest,
        options: CallOptions,
    ) -> Result<HttpReply, CallError> {
        let CallOptions {
            durability,
            timeout,
            headers,
            revision,
        } = options;
        let HttpRequest { head, body } = request;
        let method = guest::http::METHOD;
        let (shard, mut request) = self.request(target, method, body, timeout, headers)?;
        request.http = Some(Arc::new(head));
        let how = How::Call(durability);
        let run = Run { how, revision };
        let reply = self.node.run(shard, method, request, run).await?;
        let Some(answer) = reply.http else {
            let message = format!("node {} gave a reply that is none of HTTP", reply.node);
            return Err(CallError::host(CallErrorKind::Unknown, message).at(shard));
        };
        Ok(HttpReply {
            status: answer.status,
            headers: answer.headers,
            body: reply.payload,
            shard: reply.shard,
            seq: reply.seq,
            revision: reply.revision,
            node: reply.node,
        })
    }

    /// Where a shard is.
    ///
    /// # Errors
    /// [`CallErrorKind::Invalid`] for a number out of range.
    pub fn lookup(&self, shard: u32) -> Result<Location, CallError> {
        self.check_shard(shard)?;
        Ok(self.node.locate(shard))
    }

    /// Where every shard is, as this node sees it.
    #[must_use]
    pub fn assignments(&self) -> BTreeMap<u32, Location> {
        (0..self.shards())
            .map(|shard| (shard, self.node.locate(shard)))
            .collect()
    }

    /// The shards open on this node, in order.
    #[must_use]
    pub fn local_shards(&self) -> Vec<u32> {
        (0..self.shards())
            .filter(|shard| self.node.locate(*shard) == Location::Local)
            .collect()
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

    /// What a shard is doing.
    ///
    /// # Errors
    /// [`CallErrorKind::Invalid`] for a number out of range.
    pub fn shard_report(&self, shard: u32) -> Result<ShardReport, CallError> {
        self.check_shard(shard)?;
        Ok(self.node.slots[shard as usize].report())
    }

    /// Probes the store now.
    pub async fn probe(&self, timeout: Duration) -> ProbeReport {
        self.node.probe_now(timeout).await
    }

    /// Runs another module on every shard, in place: databases, caches and waiting replies stay, and so does memory where both modules
    /// export `handoff`. Calls go on, but for a pause in which the new instance takes over; the call in progress ends first, or the
    /// module is not adopted where it takes longer than `limits.drain`. A module that exports `migration` first brings the stored data to its form, between the calls of the present one.
    /// When it is not adopted on one of them, all go back to the module they ran.
    ///
    /// # Errors
    /// When the module refuses its options, does not start, does not migrate the data, or memory is not handed over, with the guest's reason.
    pub async fn swap(&self, module: Arc<dyn Module>) -> Result<SwapReport, SwapError> {
        self.swap_with(module, SwapOptions::default()).await
    }

    /// As [`Cluster::swap`], with options.
    ///
    /// # Errors
    /// As [`Cluster::swap`].
    pub async fn swap_with(
        &self,
        module: Arc<dyn Module>,
        options: SwapOptions,
    ) -> Result<SwapReport, SwapError> {
        swap::swap(&self.node, module, options).await
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
        payload: Bytes,
        calls: usize,
    ) -> Result<Vec<u64>, CallError> {
        let handle = self.open_shard(shard)?;
        let (_, request) = self.request(Target::Shard(shard), method, payload, None, Vec::new())?;
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
            .unwrap_or_else(|_| Err(self.node.unassigned(shard)))
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
                chain: Vec::new(),
                http: None,
            },
        ))
    }

    fn open_shard(&self, shard: u32) -> Result<Arc<ShardHandle>, CallError> {
        self.check_shard(shard)?;
        self.node.slots[shard as usize]
            .handle()
            .ok_or_else(|| self.node.unassigned(shard))
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

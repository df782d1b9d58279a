//! What the host knows of a guest, whatever it is made of: a component ([`wasm`]) or Rust in this process ([`native`]).
//!
//! A [`Module`] is a guest made ready on this node, shared by all shards. It makes instances: one [`Instance`] a shard runs the
//! calls, a few [`QueryInstance`]s run queries. A guest fails in one of two ways, and they are never confused: an
//! *error* is its answer to the caller and leaves the instance as it is; a *trap* ends the instance.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;

use crate::db::{ReadView, ShardDb};
use crate::gate::Gate;
use crate::gate::deadline::Deadline;
use crate::metrics::guest::ModuleMetrics;

pub mod calls;
pub mod compound;
pub mod http;
pub mod limits;
pub mod log;
pub mod native;
pub mod notify;
pub mod outgoing;
pub mod timers;
pub mod wasm;

pub use http::{HttpAnswer, HttpHead};
pub use limits::Limits;
pub use timers::Timer;

/// A guest made ready on this node. Cheap to share; instances are made from it for any number of shards.
///
/// The contract of an implementation: limits are honoured; an error and a trap are told apart; dropping a future of an
/// instance in the middle is allowed and ends the instance, which is then never used again; a guest reaches nothing but
/// what its context holds.
#[async_trait]
pub trait Module: Send + Sync + 'static {
    /// What this module is.
    fn describe(&self) -> &ModuleInfo;

    /// Checks options in a throw-away instance without a database. The error is the guest's own text.
    ///
    /// # Errors
    /// [`Failure::Error`] with code `invalid-options` when the guest refuses them; a trap when it fails.
    async fn validate(&self, options: &str) -> Result<(), Failure>;

    /// Makes the instance that runs a shard's calls. It is not started yet.
    ///
    /// # Errors
    /// A trap when the instance cannot be made; [`Failure::NoRoom`] when the node has no room for it.
    async fn instantiate(&self, context: InstanceContext) -> Result<Box<dyn Instance>, Failure>;

    /// Makes an instance for queries.
    ///
    /// # Errors
    /// As [`Module::instantiate`].
    async fn instantiate_query(
        &self,
        context: InstanceContext,
    ) -> Result<Box<dyn QueryInstance>, Failure>;

    /// The limits that its instances run under, where it has some of its own: else those of its node.
    fn limits(&self) -> Option<&Arc<Limits>> {
        None
    }

    /// The names of the modules that take their timers: this one, or those that it is made of.
    fn timer_takers(&self) -> Vec<Arc<str>> {
        let info = self.describe();
        let takes = info.exports.timer_events;
        takes.then(|| info.name.clone()).into_iter().collect()
    }

    /// How often an instance for queries was refused on this node for want of room. It only grows; when it does, shards give back the
    /// instances for queries that they do not use.
    fn crowded(&self) -> u64 {
        0
    }
}

/// An instance that runs a shard's calls, one at a time. After a trap it is dropped.
#[async_trait]
pub trait Instance: Send {
    /// Runs before the first call.
    ///
    /// # Errors
    /// An error or a trap keeps the shard from serving.
    async fn start(&mut self) -> Result<(), Failure>;

    /// Runs one call.
    ///
    /// # Errors
    /// The guest's own error, or a trap.
    async fn call(&mut self, request: &Request) -> Result<Reply, Failure>;

    /// Answers an HTTP request, under the limits of a call. The reply has [`Reply::http`].
    ///
    /// # Errors
    /// The guest's own error, that it answers none among them, or a trap.
    async fn http(&mut self, request: &Request, head: &HttpHead) -> Result<Reply, Failure> {
        _ = (request, head);
        Err(Failure::Error(GuestError::new(
            "no-http",
            "this guest answers no HTTP",
        )))
    }

    /// Runs what was asked for, a call or an HTTP request.
    ///
    /// # Errors
    /// As [`Instance::call`] and [`Instance::http`].
    async fn serve(&mut self, request: &Request) -> Result<Reply, Failure> {
        match &request.http {
            None => self.call(request).await,
            Some(head) => self.http(request, head).await,
        }
    }

    /// Tells the guest which of its tags became durable, lowest seq first. Those of other modules ([`notify::Tag::of`]) are not its own.
    ///
    /// # Errors
    /// A trap.
    async fn durable(&mut self, tags: Vec<notify::Tag>) -> Result<(), Failure>;

    /// Runs a timer that is due, under the limits of a call. It is one of a module that takes timers ([`Module::timer_takers`]).
    ///
    /// # Errors
    /// The guest's own error, or a trap.
    async fn fire(&mut self, timer: &Timer) -> Result<(), Failure> {
        _ = timer;
        Ok(())
    }

    /// Runs after the last call.
    ///
    /// # Errors
    /// A trap.
    async fn stop(&mut self, reason: StopReason) -> Result<(), Failure>;

    /// Gives the memory that a swap carries over, and leaves the instance as it was.
    ///
    /// # Errors
    /// An error leaves the instance as it was, too; a trap.
    async fn suspend(&mut self) -> Result<Bytes, Failure>;

    /// Takes over the memory of an instance of revision `from_revision`, after the start and before the first call.
    ///
    /// # Errors
    /// An error or a trap keeps the instance from serving.
    async fn resume(&mut self, from_revision: u64, state: &[u8]) -> Result<(), Failure>;

    /// Runs one step that brings the stored data to what this revision serves, after the start and before the first call: true when it is
    /// there, false when there is more to do. `from_revision` is what the shard runs meanwhile, 0 where nothing does.
    ///
    /// # Errors
    /// An error or a trap keeps the instance from serving.
    async fn migrate(&mut self, from_revision: u64) -> Result<bool, Failure> {
        _ = from_revision;
        Ok(true)
    }
}

/// An instance that runs read-only calls. It may serve several queries, one after the other.
#[async_trait]
pub trait QueryInstance: Send {
    /// Runs one query over `view`.
    ///
    /// # Errors
    /// The guest's own error, or a trap.
    async fn query(&mut self, request: &Request, view: ReadView) -> Result<Reply, Failure>;
}

/// What a module is, as shown by `quarry verify` and in a shard's status.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ModuleInfo {
    /// The module's name within its revision.
    pub name: Arc<str>,
    /// The revision's number.
    pub revision: u64,
    /// `sha256:` and the hex digest of the component; `native` for Rust in this process.
    pub digest: Arc<str>,
    /// Which of the optional exports it has.
    pub exports: Exports,
}

/// The optional exports of a guest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Exports {
    /// `queries`.
    pub queries: bool,
    /// `lifecycle`.
    pub lifecycle: bool,
    /// `options`.
    pub options: bool,
    /// `durable-events`.
    pub durable_events: bool,
    /// `timer-events`.
    pub timer_events: bool,
    /// `handoff`.
    pub handoff: bool,
    /// `migration`.
    pub migration: bool,
    /// `wasi:http/incoming-handler`.
    pub http: bool,
}

/// Where an instance runs and what it may use. This is all that a guest can reach.
#[derive(Clone)]
pub struct InstanceContext {
    /// The cluster's name.
    pub cluster: Arc<str>,
    /// This node's name.
    pub node: Arc<str>,
    /// The shard's number.
    pub shard: u32,
    /// How many shards the cluster has.
    pub shards: u32,
    /// The lease's generation; 0 without leases.
    pub generation: u64,
    /// The module's options, a JSON object.
    pub options: Arc<str>,
    /// The shard's open database.
    pub db: Arc<ShardDb>,
    /// When writes of this shard become durable.
    pub gate: Arc<Gate>,
    /// Hands durable tags to the guest.
    pub notifier: Arc<notify::Notifier>,
    /// Sets the guest's timers.
    pub timers: timers::Timers,
    /// Whether the shard goes on.
    pub status: Arc<ShardFlag>,
    /// Where the guest's lines go.
    pub log: Arc<log::GuestLog>,
    /// Calls to other shards.
    pub calls: Arc<calls::Calls>,
    /// The module's own metrics.
    pub metrics: Arc<ModuleMetrics>,
}

/// Whether a shard goes on, and until when it is owned for sure, as its guest and its parts see it.
///
/// A fenced shard never becomes stopping, so that a guest can tell the two apart.
#[derive(Debug)]
pub struct ShardFlag {
    state: std::sync::atomic::AtomicU8,
    deadline: Arc<Deadline>,
}

/// The states of a [`ShardFlag`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShardStatus {
    /// Calls are served.
    Running,
    /// The shard is being closed or moved.
    Stopping,
    /// Another writer opened its database.
    Fenced,
}

impl Default for ShardFlag {
    /// Without a lease.
    fn default() -> Self {
        Self::new(Arc::new(Deadline::never()))
    }
}

impl ShardFlag {
    /// The flag of a shard that runs, on a node that is sure to own it until `deadline`.
    #[must_use]
    pub fn new(deadline: Arc<Deadline>) -> Self {
        Self {
            state: 0.into(),
            deadline,
        }
    }

    /// The present state.
    #[must_use]
    pub fn get(&self) -> ShardStatus {
        match self.state.load(std::sync::atomic::Ordering::Acquire) {
            0 => ShardStatus::Running,
            1 => ShardStatus::Stopping,
            _ => ShardStatus::Fenced,
        }
    }

    /// Goes to stopping, unless the shard is fenced.
    pub fn set_stopping(&self) {
        self.state.fetch_max(1, std::sync::atomic::Ordering::AcqRel);
    }

    /// Goes to fenced, for good.
    pub fn set_fenced(&self) {
        self.state.store(2, std::sync::atomic::Ordering::Release);
    }

    /// For how long this node is sure to own the shard: zero once the deadline of its lease has passed, none without leases.
    #[must_use]
    pub fn owned_for(&self) -> Option<Duration> {
        self.deadline.left()
    }
}

/// One call or query, as the guest gets it.
#[derive(Debug, Clone)]
pub struct Request {
    /// The method's name: 1 to 128 bytes.
    pub method: String,
    /// The routing key; none when the caller named a shard.
    pub key: Option<Bytes>,
    /// The caller's bytes.
    pub payload: Bytes,
    /// Headers that are passed on, names in lower case.
    pub headers: Vec<(String, String)>,
    /// When the caller gives up.
    pub deadline: Instant,
    /// The shards that wait for it, outermost first; empty for a caller from outside. Nobody but a node of the cluster can say so.
    pub chain: Vec<u32>,
    /// Of an HTTP request, all but the body, which is the payload; the method is [`http::METHOD`] then.
    pub http: Option<Arc<HttpHead>>,
}

impl Request {
    /// How much it takes where it waits.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let key = self.key.as_ref().map_or(0, Bytes::len);
        self.payload.len() + key + self.http.as_ref().map_or(0, |head| head.bytes())
    }
}

/// A guest's answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reply {
    /// The bytes for the caller.
    pub payload: Bytes,
    /// Its media type; `application/octet-stream` when none.
    pub content_type: Option<String>,
    /// The guest asked that the reply goes out before what it shows is durable.
    pub when_applied: bool,
    /// Of an answer over HTTP, all but the body, which is the payload.
    pub http: Option<Box<HttpAnswer>>,
}

impl Reply {
    /// A reply of these bytes.
    #[must_use]
    pub fn new(payload: impl Into<Bytes>) -> Self {
        Self {
            payload: payload.into(),
            ..Self::default()
        }
    }
}

/// Why a call did not give a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The guest's answer is an error. The instance goes on.
    Error(GuestError),
    /// The instance is gone.
    Trap(Trap),
    /// There is no instance, for want of room; the guest has no part in it.
    NoRoom(NoRoom),
}

/// The node has no room for another instance. It is no fault of the guest, and passes when another one ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// All of the node's instances are there.
    #[error(
        "the node has no room for another instance: limits.instances ({instances}) are there; it is tried again, and a higher limits.instances makes room"
    )]
    Node {
        /// `limits.instances`.
        instances: u32,
    },
    /// Queries have all that they may have.
    #[error(
        "queries of this node have all the {queries} instances that they may have of limits.instances ({instances}), the rest being kept for the shards themselves; try again later, or raise limits.instances"
    )]
    Queries {
        /// What queries may have.
        queries: u32,
        /// `limits.instances`.
        instances: u32,
    },
    /// There is none for queries, now or later.
    #[error(
        "limits.instances ({instances}) leaves none for queries: all are kept for the shards themselves; raise limits.instances"
    )]
    NoQueries {
        /// `limits.instances`.
        instances: u32,
    },
}

/// A guest's own error; the record `types.error` of the WIT.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
#[error("{code}: {message}")]
pub struct GuestError {
    /// Stable, in kebab case, at most 64 bytes.
    pub code: String,
    /// For a person, at most 8 KiB.
    pub message: String,
    /// Whether the same request may succeed when made again.
    pub retryable: bool,
}

impl GuestError {
    /// An error that trying again does not help.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
            retryable: false,
        }
    }

    /// An error that trying again may help.
    pub fn retryable(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
            retryable: true,
        }
    }
}

/// In the message of a [`Trap`], before what the guest wrote last. That is for whoever calls it, and not for whoever visits a page of its.
pub(crate) const LAST_WROTE: &str = "; it last wrote: ";

/// The end of an instance.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct Trap {
    /// What kind of end it was.
    pub kind: TrapKind,
    /// For a person: what happened, the limit and its setting where it was one, the guest's last words on stderr.
    pub message: String,
}

impl Trap {
    /// A trap.
    pub fn new(kind: TrapKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }
}

/// The kinds of [`Trap`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrapKind {
    /// The guest aborted: a panic, `unreachable`, an out-of-bounds access, an uncaught exception.
    Aborted,
    /// The guest's stack is used up.
    StackOverflow,
    /// The guest wanted more memory than `limits.memory`.
    Memory,
    /// The call ran for longer than `limits.cpu_time`.
    CpuTime,
    /// The call lasted longer than `limits.wall_time`.
    WallTime,
    /// The guest replied more than `limits.reply`.
    ReplyTooLarge,
    /// The instance could not be made.
    Instantiate,
    /// The host failed.
    Host,
}

impl fmt::Display for TrapKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Aborted => "guest aborted",
            Self::StackOverflow => "guest stack overflow",
            Self::Memory => "guest memory limit",
            Self::CpuTime => "guest CPU time limit",
            Self::WallTime => "guest wall time limit",
            Self::ReplyTooLarge => "guest reply too large",
            Self::Instantiate => "guest cannot be instantiated",
            Self::Host => "host failure",
        })
    }
}

/// Why a guest is stopped, as `lifecycle.stop` tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The shard is closed.
    Stopping,
    /// Another writer opened the shard's database.
    Fenced,
    /// Another revision takes over.
    Swapping,
}

impl StopReason {
    /// The word that the guest gets.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stopping => "stopping",
            Self::Fenced => "fenced",
            Self::Swapping => "swapping",
        }
    }
}

/// Options of a module, as configured. Kept ordered, so that the same options are the same text.
pub type Options = BTreeMap<String, serde_json::Value>;

/// The longest method name, in bytes.
pub const METHOD_MAX_BYTES: usize = 128;

/// The time within which `lifecycle.stop` has to return, where the limits say nothing else.
pub const STOP_TIME: Duration = Duration::from_secs(5);

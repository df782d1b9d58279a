//! How nodes talk to each other: calls go to the node that owns a shard, in one hop; everything else is a short question.
//!
//! [`Transport`] is the client's side and [`Service`] what a node offers; they meet over HTTP/2 ([`server`]) or within one
//! process ([`memory`]). What a transport tells apart is what its caller may do next: a request that was never sent, or that was refused
//! by a node that is not the owner, may be made again elsewhere; one that was sent may not (promise P5).
//!
//! A node runs a forwarded call or refuses it, and never forwards it again: [`Service::run`] has no way to.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::call::{CallError, CallErrorKind, CallReply, Durability, Read};
use crate::cluster::said::NodeSaid;
use crate::cluster::status::{NodeReport, ShardReport};
use crate::guest::Request;

pub mod auth;
mod client;
mod lines;
pub mod memory;
pub mod server;
mod wire;

pub use auth::{Party, Secret};
pub use client::Http2;

/// The longest wait for a connection and its handshake.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A node in one of its sessions, and where it is reached.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Destination {
    /// Its name.
    pub node: String,
    /// Its session: a restart makes another one.
    pub session: String,
    /// `HOST:PORT` of its internal listener.
    pub address: String,
}

/// How a request is run on its shard, and by what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// How.
    pub how: How,
    /// The only revision that may run it, looked at where it begins; any when none.
    pub revision: Option<u64>,
}

impl From<How> for Run {
    /// By whatever revision the shard runs.
    fn from(how: How) -> Self {
        Self {
            how,
            revision: None,
        }
    }
}

/// How a request is run on its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// As a call.
    Call(Option<Durability>),
    /// As a query.
    Query(Read),
}

/// A request for the owner of its shard.
#[derive(Debug, Clone)]
pub struct Forward {
    /// The shard.
    pub shard: u32,
    /// The lease that the sender believes in; 0 when it knows none.
    pub generation: u64,
    /// How it is run.
    pub run: Run,
    /// What is run. Its deadline travels as the time that is left.
    pub request: Request,
}

/// What came of a request that reached the owner.
pub type Answer = Result<CallReply, CallError>;

/// A node refused a request because the shard is not its own. Nothing ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotOwner {
    /// The newest generation of the shard's lease that it knows; 0 when it knows none.
    pub generation: u64,
    /// Who has the shard, or is about to get it, as far as it knows.
    pub owner: Option<Destination>,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Nothing was sent: it may be sent again, or elsewhere.
    #[error("{0}")]
    NeverSent(String),
    /// It was refused before anything ran.
    #[error("the node does not own the shard")]
    NotOwner(NotOwner),
    /// It was sent, and may have been carried out.
    #[error("{0}")]
    Sent(String),
}

/// A short question to a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Ask {
    /// How it and its shards are.
    Report,
    /// Whether it owns a shard. It may take its time to say no.
    Place {
        /// The shard.
        shard: u32,
        /// How long it may wait for that to become so, in milliseconds.
        wait_ms: u64,
        /// The newest generation that the one who asks knows: a lease of another node above it is an answer at once.
        above: u64,
    },
    /// A peer freed a shard's lease for it.
    Notice {
        /// The shard.
        shard: u32,
    },
    /// An operator wants something of it.
    Command(Command),
    /// How one of its shards is.
    Shard {
        /// The shard.
        shard: u32,
    },
    /// Restart one of its shards.
    Restart {
        /// The shard.
        shard: u32,
    },
    /// The newest durable write of one of its shards.
    DurableSeq {
        /// The shard.
        shard: u32,
    },
    /// Wait until a write of one of its shards is durable.
    Durable {
        /// The shard.
        shard: u32,
        /// The write.
        seq: u64,
        /// How long it may wait, in milliseconds.
        wait_ms: u64,
    },
    /// How far it is with a rollout.
    Deployed {
        /// The rollout's number.
        number: u64,
        /// Its revision; 0 when none is in progress.
        target: u64,
    },
    /// The rollout record has changed.
    Rollout {
        /// Its counter.
        counter: u64,
    },
    /// The one who asks cannot run what the rollout record says, and takes no shards.
    Outside {
        /// Its name.
        node: String,
        /// Why.
        why: String,
    },
}

/// What an operator wants of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum Command {
    /// Hand one of its shards to another node.
    Move {
        /// The shard.
        shard: u32,
        /// The node's name.
        to: String,
    },
    /// Take no further shards.
    Cordon,
    /// Take shards again.
    Uncordon,
    /// Hand over every shard, and take none.
    Drain,
}

/// What a node answers to a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "told", rename_all = "kebab-case")]
pub enum Told {
    /// To [`Ask::Report`].
    Report(Box<NodeReport>),
    /// To [`Ask::Place`]: it owns the shard.
    Owner {
        /// With this lease,
        generation: u64,
        /// for at least this long after the question was sent, in milliseconds.
        for_ms: u64,
    },
    /// The shard is not its own.
    NotOwner(NotOwner),
    /// To [`Ask::Shard`] and [`Ask::Restart`].
    Shard(Box<ShardReport>),
    /// To [`Ask::DurableSeq`].
    Seq {
        /// The newest write up to which every write is durable.
        seq: u64,
    },
    /// To [`Ask::Deployed`].
    Deployed(Box<NodeSaid>),
    /// It is done, or will be.
    Done,
    /// To [`Ask::Durable`]: the time is up.
    NotYet,
    /// It failed.
    Failed(wire::WireError),
}

/// The way to other nodes. Everything takes a bounded time; dropping a future gives up the wait, not what was sent.
#[async_trait]
pub trait Transport: Send + Sync {
    /// Has a call or a query run by its owner. Costs one round trip where there is a connection already. The caller bounds the wait;
    /// connecting takes at most [`CONNECT_TIMEOUT`].
    async fn call(&self, to: &Destination, forward: Forward) -> Result<Answer, Failure>;

    /// Asks a question, and waits for at most `within`.
    async fn ask(&self, to: &Destination, ask: Ask, within: Duration) -> Result<Told, Failure>;
}

/// What a node offers to its peers. A transport calls it only for peers that have proved who they are.
#[async_trait]
pub trait Service: Send + Sync {
    /// Runs a call or a query here, or refuses at once.
    async fn run(&self, forward: Forward) -> Result<Answer, NotOwner>;

    /// Answers a question.
    async fn answer(&self, ask: Ask) -> Told;
}

/// Who a node is, for its transport.
pub struct Identity {
    /// The cluster's name.
    pub cluster: String,
    /// How many shards it has.
    pub shards: u32,
    /// This node's name.
    pub node: String,
    /// Its session as it is now: it changes when the node has to join anew.
    pub session: Box<dyn Fn() -> String + Send + Sync>,
    /// The cluster's secret.
    pub secret: Secret,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity")
            .field("cluster", &self.cluster)
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

impl Identity {
    /// This node as it is now.
    #[must_use]
    pub fn party(&self) -> Party {
        Party {
            name: self.node.clone(),
            session: (self.session)(),
        }
    }
}

/// What internal connections are bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a forwarded payload, at most: `http.max_body`.
    pub payload: usize,
    /// Bytes of all forwarded payloads that are being read or run, at most: `http.max_bodies`.
    pub payloads: usize,
    /// Bytes of a reply, at most: `limits.reply`.
    pub reply: usize,
    /// The longest time that a forwarded call may have left: `call.max_timeout`.
    pub timeout: Duration,
    /// Connections of peers at once, at most: `internal.max_connections`.
    pub connections: usize,
    /// Requests in progress to one peer, at most: `internal.max_requests`.
    pub requests: usize,
}

impl Told {
    /// What was asked for failed.
    #[must_use]
    pub fn failed(error: CallError) -> Self {
        Self::Failed(error.into())
    }

    /// The error of an answer that does not fit the question, or that says so itself.
    #[must_use]
    pub fn into_error(self, of: &str) -> CallError {
        match self {
            Self::Failed(error) => error.into(),
            Self::NotOwner(_) => CallError::host(
                CallErrorKind::NotOwner,
                format!("node {of} does not own the shard any more"),
            ),
            other => CallError::host(
                CallErrorKind::Unknown,
                format!("node {of} answered something else than what was asked: {other:?}"),
            ),
        }
    }
}

impl From<&crate::config::Config> for Limits {
    fn from(config: &crate::config::Config) -> Self {
        let bytes = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
        Self {
            payload: bytes(config.http.max_body),
            payloads: bytes(config.http.max_bodies),
            reply: bytes(config.limits.reply),
            timeout: config.call.max_timeout,
            connections: config.internal.max_connections,
            requests: config.internal.max_requests,
        }
    }
}

#[cfg(test)]
mod tests;

//! What a cluster says of itself: lifecycle state, never read from the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::guest::ModuleInfo;

/// Where a shard is, as this node sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "location", rename_all = "kebab-case")]
pub enum Location {
    /// Open on this node.
    Local,
    /// Another node has it.
    Remote {
        /// Its name.
        node: Arc<str>,
    },
    /// Nobody is known to have it open.
    Unassigned,
}

/// What a shard is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShardState {
    /// Its database is open and its guest serves calls.
    Running,
    /// Its database or its guest is being started.
    Starting,
    /// It is being closed.
    Stopping,
    /// Another writer opened its database; it is opened again after a pause.
    Fenced,
    /// Its database or its guest failed; it is started again after a pause.
    Crashed,
    /// Its guest failed too often; calls are refused until it is restarted or swapped.
    Quarantined,
    /// No node has it.
    Unassigned,
    /// Its owner does not answer.
    Unavailable,
}

impl ShardState {
    /// The word for it, as in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Starting => "starting",
            Self::Stopping => "stopping",
            Self::Fenced => "fenced",
            Self::Crashed => "crashed",
            Self::Quarantined => "quarantined",
            Self::Unassigned => "unassigned",
            Self::Unavailable => "unavailable",
        }
    }
}

/// One shard's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardReport {
    /// The shard's number.
    pub shard: u32,
    /// The node that has it, or tries to.
    pub node: Option<Arc<str>>,
    /// What it is doing.
    pub status: ShardState,
    /// When that began, in milliseconds since the Unix epoch.
    pub since_ms: i64,
    /// The last failure; kept after recovery, until the node restarts.
    pub last_error: Option<String>,
    /// The lease's generation; 0 without leases.
    pub generation: u64,
    /// The writer epoch of its database, while it is open.
    pub writer_epoch: Option<u64>,
    /// The revision that its guest runs, while one does.
    pub revision: Option<u64>,
    /// The newest write up to which every write is durable, while it is open.
    pub durable_seq: Option<u64>,
    /// The newest write, while it is open.
    pub applied_seq: Option<u64>,
    /// Calls in its queue, the one that runs included, and queries that wait or run.
    pub queued: usize,
    /// How often its guest trapped since the node started.
    pub traps: u64,
    /// How often its database was opened since the node started.
    pub opens: u64,
    /// Why its owner has it, in words; none without leases.
    #[serde(default)]
    pub why: Option<String>,
    /// Whether an operator put it where it is.
    #[serde(default)]
    pub pinned: bool,
}

/// The probe of the store at this node's start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeState {
    /// How it went.
    pub status: ProbeStatus,
    /// Its last failure; kept after it passed.
    pub last_error: Option<String>,
}

/// How the probe of the store went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeStatus {
    /// It runs, or is tried again.
    Pending,
    /// The store does what Quarry needs.
    Passed,
    /// The store does not.
    Failed,
    /// It was switched off.
    Skipped,
}

/// A cluster as one of its nodes sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClusterStatus {
    /// The cluster's name.
    pub cluster: Arc<str>,
    /// The node that answers.
    pub node: Arc<str>,
    /// Whether every shard runs.
    pub ready: bool,
    /// The store, without credentials.
    pub store: String,
    /// The probe of the store.
    pub probe: ProbeState,
    /// The module that new instances are made of.
    pub module: Option<ModuleInfo>,
    /// The nodes, by name.
    pub nodes: Vec<NodeView>,
    /// Every shard, by its number.
    pub shards: BTreeMap<u32, ShardReport>,
}

/// A node of a cluster, as another one sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeView {
    /// Its name.
    pub node: Arc<str>,
    /// `live`, `draining`, `left`, `dead` (another node ended it because it had expired), `expired` (nobody has ended it yet), or `fixed`
    /// without leases.
    pub state: Arc<str>,
    /// Whether it is the node that answers.
    pub this: bool,
    /// How many shards it has.
    pub shards: usize,
    /// Where its internal listener is reached; empty when it has none.
    pub address: String,
    /// Its session; none without leases.
    pub session: Option<String>,
    /// Where it stands, if it says so.
    pub zone: Option<String>,
    /// Whether it takes no further shards.
    pub cordoned: bool,
    /// What it runs.
    pub software: Option<String>,
    /// How long ago it was seen to renew its session, in milliseconds.
    pub seen_ms: Option<u64>,
    /// What is wrong with it, or why it did not answer.
    pub error: Option<String>,
}

/// What a node says of itself to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Its name.
    pub node: Arc<str>,
    /// The probe of the store at its start.
    pub probe: ProbeState,
    /// The shards that it has, or tries to open.
    pub shards: Vec<ShardReport>,
}

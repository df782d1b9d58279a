//! What goes into a runner and what comes out of it.

use crate::lease::record::NodeName;
use crate::strategy::DownReason;
use crate::time::Moment;

/// What the loop wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunnerCommand {
    /// Open a shard. It waits until what ran under an earlier generation has closed.
    Open {
        /// The shard.
        shard: u32,
        /// The generation of its lease.
        generation: u64,
        /// The writer epoch that its database must have; none for any (no leases).
        writer_epoch: Option<u64>,
        /// When it has to have stopped, unless this is extended.
        deadline: Moment,
    },
    /// Move deadlines on; never back, and never for a shard that is past its own.
    Extend {
        /// Which shards.
        which: Which,
        /// The new deadline.
        deadline: Moment,
    },
    /// Stop a shard, cleanly unless the reason forbids it.
    Stop {
        /// The shard.
        shard: u32,
        /// Why.
        reason: StopReason,
        /// Who is to have it.
        successor: Option<NodeName>,
    },
    /// Stop all shards.
    StopAll {
        /// Why.
        reason: StopReason,
    },
    /// End the pause before a shard that is down is opened again; nothing for any other.
    Retry {
        /// The shard.
        shard: u32,
    },
}

/// Shards that a deadline is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// All.
    All,
    /// One.
    Shard(u32),
}

/// Why a shard is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopReason {
    /// It moves to another node, or the node stops: closed cleanly.
    Released,
    /// Its lease was lost: cut off at once.
    Lost,
    /// Its deadline has passed: cut off at once.
    Expired,
}

/// What the host tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostEvent {
    /// The database is open and the guest has started. Nothing is served before [`HostEffect::Serve`].
    Opened {
        /// The shard.
        shard: u32,
        /// As it was asked for.
        generation: u64,
        /// The database's writer epoch now.
        writer_epoch: u64,
    },
    /// It could not be opened, and nothing of it is left.
    OpenFailed {
        /// The shard.
        shard: u32,
        /// As it was asked for.
        generation: u64,
        /// How it failed.
        kind: OpenFailure,
        /// What happened, for people.
        error: String,
    },
    /// An open shard works no more. It is still to be closed.
    Down {
        /// The shard.
        shard: u32,
        /// As it was asked for.
        generation: u64,
        /// Why.
        reason: DownReason,
        /// What happened, for people.
        error: String,
    },
    /// It has closed, and nothing of it is left.
    Closed {
        /// The shard.
        shard: u32,
        /// As it was asked for.
        generation: u64,
        /// Whether everything was flushed, so that its writer epoch stands.
        clean: bool,
    },
}

/// How an open failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenFailure {
    /// The database has another writer epoch.
    Fenced,
    /// The database or the guest failed.
    Failed,
    /// It took too long.
    TimedOut,
}

/// What the runner takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunnerEvent {
    /// From the loop.
    Command(RunnerCommand),
    /// From the host.
    Host(HostEvent),
    /// The moment of [`super::Runner::wake_at`] has come.
    Wake,
}

/// What the host has to do, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostEffect {
    /// Open a database with this writer epoch and start its guest; answer `Opened` or `OpenFailed`.
    Open {
        /// The shard.
        shard: u32,
        /// The generation for the guest, and for the answer.
        generation: u64,
        /// The writer epoch that the database must have; none for any.
        writer_epoch: Option<u64>,
        /// The deadline as it stands; it is extended by [`HostEffect::Deadline`].
        deadline: Moment,
    },
    /// Serve a shard that was opened.
    Serve {
        /// The shard.
        shard: u32,
        /// Its generation.
        generation: u64,
        /// Its gate's deadline.
        deadline: Moment,
    },
    /// Set the deadline of a shard's gate: no reply and no strict read leaves after it.
    Deadline {
        /// The shard.
        shard: u32,
        /// Its generation.
        generation: u64,
        /// The new deadline, later than the one before.
        deadline: Moment,
    },
    /// Cut a shard off from its store and shut its gate, before this call returns. It is opening, open or closing.
    Fence {
        /// The shard.
        shard: u32,
        /// Its generation.
        generation: u64,
        /// Why.
        reason: StopReason,
    },
    /// Close a shard; answer `Closed`, however long it takes.
    Close {
        /// The shard.
        shard: u32,
        /// Its generation.
        generation: u64,
        /// How.
        how: How,
        /// Who is to have it, so that calls can wait for the move.
        successor: Option<NodeName>,
    },
    /// Tell the loop.
    Report(RunnerReport),
}

/// How a shard is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Guest first, then the database with a flush, within the host's limit.
    Clean,
    /// Nothing is flushed; what hangs is given up.
    Abandon,
}

/// What the loop is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunnerReport {
    /// The shard is the runner's: it waits, opens or runs. A lease is renewed only from here to `Closed`.
    Accepted {
        /// The shard.
        shard: u32,
        /// The generation.
        generation: u64,
    },
    /// It is served.
    Opened {
        /// The shard.
        shard: u32,
        /// The generation.
        generation: u64,
        /// The database's writer epoch now.
        writer_epoch: u64,
    },
    /// It went down or did not open; unless `Closed` follows, the runner opens it again after a pause.
    Down {
        /// The shard.
        shard: u32,
        /// The generation.
        generation: u64,
        /// Why.
        reason: DownReason,
        /// How often in a row.
        failures: u32,
        /// What happened, for people.
        error: String,
    },
    /// Its deadline passed, and it was cut off. `Closed` follows.
    SelfFenced {
        /// The shard.
        shard: u32,
        /// The generation.
        generation: u64,
    },
    /// The runner has nothing of it any more.
    Closed {
        /// The shard.
        shard: u32,
        /// The generation.
        generation: u64,
        /// The database's writer epoch, if it was closed cleanly.
        writer_epoch: Option<u64>,
        /// Why.
        why: ClosedWhy,
    },
}

/// Why a runner has nothing of a shard any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClosedWhy {
    /// The loop wanted it.
    Stopped,
    /// Its deadline passed.
    Expired,
    /// The database has another writer epoch.
    Fenced,
    /// The strategy gave it back: it failed too often here.
    GaveUp,
}

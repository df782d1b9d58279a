//! What goes into a loop and what comes out of it.

use std::time::Duration;

use crate::lease::op::{LeaseOp, OpId, OpResult};
use crate::lease::record::{NodeName, Owner, SessionId};
use crate::route::RouteTable;
use crate::runner::{RunnerCommand, RunnerReport};
use crate::time::Moment;

/// What a loop takes.
#[expect(
    clippy::large_enum_variant,
    reason = "each is moved a few times and kept nowhere in numbers"
)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The moment of [`super::Control::wake_at`] has come.
    Wake,
    /// An operation ended.
    Done {
        /// Which.
        id: OpId,
        /// How.
        result: OpResult,
        /// A moment at or before the sending of its first request; read after the effect was taken, on the same clock as `now`.
        sent: Moment,
    },
    /// The runner told something.
    Runner(RunnerReport),
    /// An operator wants something.
    Command(Command),
    /// A peer says that it freed a shard for this node.
    Notice {
        /// The shard.
        shard: u32,
    },
    /// A peer said that it does not have a shard though the table says so.
    RouteMiss {
        /// The shard.
        shard: u32,
    },
}

/// What an operator can want of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Move a shard that this node holds to a peer, and keep it there.
    Move {
        /// The shard.
        shard: u32,
        /// The peer.
        to: NodeName,
    },
    /// Take no further shards.
    Cordon,
    /// Take shards again, after `Cordon` or `Drain`.
    Uncordon,
    /// Give all shards away and take none, but stay.
    Drain,
    /// Give all shards away and end: [`Effect::Left`] is the last effect.
    Leave,
}

/// What whoever drives the loop has to do, in this order.
#[expect(
    clippy::large_enum_variant,
    reason = "each is moved a few times and kept nowhere in numbers"
)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Carry an operation out and answer [`Event::Done`], in this time at the latest (with an unknown outcome).
    Op {
        /// Names it.
        id: OpId,
        /// What to do.
        op: LeaseOp,
        /// Its whole time, retries included.
        deadline: Duration,
    },
    /// Tell the runner.
    Runner(RunnerCommand),
    /// Tell a peer that a shard was freed for it ([`Event::Notice`] there). May get lost.
    Notify {
        /// The peer.
        peer: NodeName,
        /// Where it is reached; empty when that is not known.
        address: String,
        /// The shard.
        shard: u32,
    },
    /// Routes have changed.
    Routes(RouteTable),
    /// Something happened that people want to know.
    Emit(LeaseEvent),
    /// A command was refused, and why. Others were taken.
    Refused(CommandError),
    /// The session has ended, and nothing is held: the loop is over.
    Left,
}

/// Why a command was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The shard is not held here.
    #[error("shard {shard} is not held by this node{}", owner.as_ref().map(|owner| format!(", but by {owner}")).unwrap_or_default())]
    NotHeld {
        /// The shard.
        shard: u32,
        /// Who holds it.
        owner: Option<NodeName>,
    },
    /// The node to move to cannot take it.
    #[error(
        "shard {shard} cannot move to {to}: {why}; nodes that can take it: {}",
        list(nodes)
    )]
    NoTarget {
        /// The shard.
        shard: u32,
        /// The node asked for.
        to: NodeName,
        /// What is wrong with it.
        why: String,
        /// The nodes that can take it.
        nodes: Vec<NodeName>,
    },
    /// The node leaves; nothing else is done any more.
    #[error("this node is leaving the cluster")]
    Leaving,
}

fn list(nodes: &[NodeName]) -> String {
    if nodes.is_empty() {
        return "none".into();
    }
    let names: Vec<&str> = nodes.iter().map(NodeName::as_str).collect();
    names.join(", ")
}

/// Something that people want to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseEvent {
    /// A session began.
    Joined {
        /// The session.
        session: SessionId,
    },
    /// The session cannot begin: another live one has this name. It is looked at again each interval, and taken over when it expires.
    NameTaken {
        /// The other session.
        session: Option<SessionId>,
        /// Where it is reached.
        address: String,
        /// Whether it surely lives: it was renewed since it was first seen here.
        alive: bool,
    },
    /// The session ended by itself.
    Left {
        /// The session.
        session: SessionId,
    },
    /// The session was ended by a peer or by another node of this name. All shards stop; a new one begins.
    SessionLost {
        /// The session.
        session: SessionId,
        /// What stands in its place.
        why: String,
    },
    /// A lease was claimed.
    Claimed {
        /// The shard.
        shard: u32,
        /// Its new generation.
        generation: u64,
        /// From whom, if it had an owner.
        from: Option<Owner>,
    },
    /// A claim was lost to somebody else.
    ClaimLost {
        /// The shard.
        shard: u32,
        /// Who holds it now.
        owner: Option<Owner>,
    },
    /// A lease was freed.
    Released {
        /// The shard.
        shard: u32,
        /// The generation under which it was held.
        generation: u64,
        /// Who is to take it.
        successor: Option<NodeName>,
    },
    /// A lease that was held is somebody else's.
    Lost {
        /// The shard.
        shard: u32,
        /// Whose.
        owner: Option<Owner>,
    },
    /// A shard was cut off because its lease could not be renewed in time.
    SelfFenced {
        /// The shard.
        shard: u32,
        /// The generation under which it was held.
        generation: u64,
    },
    /// A renewal did not come through.
    RenewFailed {
        /// What happened.
        error: String,
        /// How long shards still run without one.
        left: Duration,
    },
    /// Nodes or leases could not be read; nothing is claimed in this round.
    ReadFailed {
        /// What happened.
        error: String,
    },
    /// A write of a lease has an unknown outcome; it is looked into.
    Unknown {
        /// The operation.
        op: &'static str,
        /// The shard, if it is about one.
        shard: Option<u32>,
        /// What happened.
        error: String,
    },
    /// A peer's session had expired and was ended.
    Tombstoned {
        /// The peer.
        node: NodeName,
        /// Its session.
        session: SessionId,
    },
    /// This node's own tick came late: it starts counting anew and takes nothing over in this round.
    ObserverLate {
        /// How late.
        by: Duration,
    },
    /// More than half of the nodes expired at once: they get one more round.
    MassExpiry {
        /// How many.
        expired: usize,
        /// Of how many.
        nodes: usize,
    },
    /// A node's record is unreadable; it gets no shards, and its own stay until it expires.
    NodeUnreadable {
        /// The node.
        node: NodeName,
        /// What is wrong.
        error: String,
    },
    /// A node of another cluster, or one that speaks another protocol, uses this bucket.
    NodeForeign {
        /// The node.
        node: NodeName,
        /// What is wrong.
        why: String,
    },
    /// A lease is missing or unreadable; it is written anew.
    LeaseVanished {
        /// The shard.
        shard: u32,
        /// What is wrong.
        why: String,
    },
    /// A lease names this session, though this node does not hold it: a write came late. It is taken or freed.
    Stray {
        /// The shard.
        shard: u32,
    },
    /// A shard failed too often here and is given to another node, if there is one.
    GaveUp {
        /// The shard.
        shard: u32,
        /// Who is to take it.
        successor: Option<NodeName>,
    },
}

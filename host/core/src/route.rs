//! Where a call goes: pure decisions over a table that the loop keeps.

use std::collections::BTreeMap;

use crate::lease::record::{NodeName, SessionId};
use crate::rules::{Mutation, Rules};
use crate::time::Moment;

/// Where every shard is, as this node knows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RouteTable {
    /// The index is the shard's number. None when nobody is known to have it.
    pub shards: Vec<Option<Route>>,
    /// The nodes that routes lead to, and others that live.
    pub nodes: BTreeMap<NodeName, NodeRoute>,
}

/// Who has a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The owner.
    pub owner: NodeName,
    /// Its session.
    pub session: SessionId,
    /// The generation of its lease.
    pub generation: u64,
    /// Whether it is there, or about to be.
    pub state: RouteState,
    /// The lease's own deadline, in layouts that renew each lease: the route also ends with its node's.
    pub until: Moment,
}

/// Whether a shard is where its route leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteState {
    /// It is, or is being opened there.
    Open,
    /// Its lease was freed for this node, which is to claim it.
    Moving,
}

/// How a node is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRoute {
    /// Its session.
    pub session: SessionId,
    /// Where its internal listener is; empty when it has none.
    pub address: String,
    /// Until when it may be sent calls: one TTL after the newest version of its session was first seen. Never later than peers may take
    /// its shards over.
    pub until: Moment,
}

/// What this node itself has of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Local {
    /// Nothing.
    None,
    /// It is being opened, or opened again.
    Opening,
    /// It is served, until this moment unless its lease is renewed.
    Open {
        /// Its deadline.
        until: Moment,
    },
    /// It is being closed, for this node if that is known.
    Closing {
        /// Who is to have it.
        successor: Option<NodeName>,
    },
    /// It is held but refuses calls (quarantined).
    Refusing,
}

/// A call that looks for its shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// The shard.
    pub shard: u32,
    /// Whether a peer sent it here: then it goes no further.
    pub forwarded: bool,
    /// How many attempts of it failed before, because a peer refused it or could not be reached.
    pub attempt: u32,
    /// When the caller gives up.
    pub deadline: Moment,
    /// Since when the call has been looking for its shard.
    pub since: Moment,
    /// The longest time that a call waits for its shard to open, move or be claimed.
    pub park: std::time::Duration,
}

/// Where a call goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It runs here.
    Local {
        /// Until when this node may answer it.
        until: Moment,
    },
    /// It is sent to a peer.
    Forward {
        /// The peer.
        node: NodeName,
        /// Its session; the peer refuses calls for another.
        session: SessionId,
        /// Its address.
        address: String,
        /// The generation of the lease that the route was read from.
        generation: u64,
        /// When the route ends. Nothing is sent after it.
        until: Moment,
    },
    /// It waits for the table or the local state to change, at the longest until this moment; then it asks again.
    Park {
        /// The end of its patience.
        until: Moment,
    },
    /// It is refused. Nothing ran.
    Refuse(Refusal),
}

/// Why a call was refused before anything ran.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such shard.
    #[error("there is no shard {shard}; valid are 0 to {}", shards.saturating_sub(1))]
    NoSuchShard {
        /// The number asked for.
        shard: u32,
        /// How many there are.
        shards: u32,
    },
    /// Nobody is known to have the shard.
    #[error("shard {shard} has no owner")]
    Unassigned {
        /// The shard.
        shard: u32,
    },
    /// A peer sent the call here, and the shard is not here.
    #[error("shard {shard} is not on this node{}", owner.as_ref().map(|owner| format!(", but on {owner}")).unwrap_or_default())]
    NotOwner {
        /// The shard.
        shard: u32,
        /// Who has it, as this node knows.
        owner: Option<NodeName>,
        /// The generation under which.
        generation: u64,
    },
    /// Its owner has no address.
    #[error("shard {shard} is on node {owner}, which advertises no address")]
    NoAddress {
        /// The shard.
        shard: u32,
        /// Its owner.
        owner: NodeName,
    },
}

/// Decides where a call goes.
#[must_use]
pub fn route(ask: &Ask, table: &RouteTable, local: &Local, now: Moment, rules: Rules) -> Decision {
    let _ = (local, now, rules.broken(Mutation::ForwardTwice));
    let shards = u32::try_from(table.shards.len()).unwrap_or(u32::MAX);
    Decision::Refuse(Refusal::NoSuchShard {
        shard: ask.shard,
        shards,
    })
}

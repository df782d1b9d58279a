//! Where a call goes: pure decisions over a table that the loop keeps.

use std::collections::BTreeMap;

use crate::lease::record::{NodeName, SessionId};
use crate::rules::{Mutation, Rules};
use crate::time::Moment;

/// Where every shard is, as this node knows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RouteTable {
    /// The node and the session whose table it is.
    pub me: Option<(NodeName, SessionId)>,
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
    /// The owner and the generation that refused its last attempt: as long as the table says no other, the call waits.
    pub refused_by: Option<(NodeName, u64)>,
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
///
/// What is here is known for sure, so it comes first. A call that a peer sent goes no further: it runs here, waits for the shard to open
/// here, or is refused. A call waits rather than fail while its shard opens, moves, or has no owner that may be sent calls, for
/// [`Ask::park`] since it began to look, and never past its own deadline.
#[must_use]
pub fn route(ask: &Ask, table: &RouteTable, local: &Local, now: Moment, rules: Rules) -> Decision {
    let shard = ask.shard;
    let Some(route) = table.shards.get(shard as usize) else {
        let shards = u32::try_from(table.shards.len()).unwrap_or(u32::MAX);
        return Decision::Refuse(Refusal::NoSuchShard { shard, shards });
    };
    let unassigned = || Refusal::Unassigned { shard };
    let not_owner = || Refusal::NotOwner {
        shard,
        owner: route.as_ref().map(|route| route.owner.clone()),
        generation: route.as_ref().map_or(0, |route| route.generation),
    };
    match local {
        Local::Open { until } if now < *until => return Decision::Local { until: *until },
        // It is about to be cut off, and may come back here or elsewhere.
        Local::Open { .. } | Local::Opening => return park(ask, now, unassigned()),
        Local::Refusing => return Decision::Refuse(not_owner()),
        Local::Closing { .. } | Local::None => {}
    }
    if ask.forwarded && !rules.broken(Mutation::ForwardTwice) {
        // It was freed for this node, or claimed by it, and its opening is yet to begin.
        let arrives = matches!(local, Local::None)
            && route
                .as_ref()
                .is_some_and(|route| table.is_me(&route.owner, route.session));
        return if arrives {
            park(ask, now, not_owner())
        } else {
            Decision::Refuse(not_owner())
        };
    }
    let Some(route) = route else {
        return park(ask, now, unassigned());
    };
    let node = table
        .nodes
        .get(&route.owner)
        .filter(|node| node.session == route.session);
    let Some(node) = node.filter(|_| !table.is_me(&route.owner, route.session)) else {
        // Its owner is gone, or it is this node, where it is not yet or no more.
        return park(ask, now, unassigned());
    };
    let until = node.until.min(route.until);
    let expired = until <= now && !rules.broken(Mutation::RoutePastDeadline);
    let closing =
        matches!(local, Local::Closing { successor } if successor.as_ref() != Some(&route.owner));
    let refused = ask.refused_by.as_ref() == Some(&(route.owner.clone(), route.generation));
    if expired || route.state == RouteState::Moving || closing || refused {
        return park(ask, now, unassigned());
    }
    if node.address.is_empty() {
        let owner = route.owner.clone();
        return Decision::Refuse(Refusal::NoAddress { shard, owner });
    }
    Decision::Forward {
        node: route.owner.clone(),
        session: route.session,
        address: node.address.clone(),
        generation: route.generation,
        until,
    }
}

/// The call waits, unless it has waited enough.
fn park(ask: &Ask, now: Moment, refusal: Refusal) -> Decision {
    let until = (ask.since + ask.park).min(ask.deadline);
    if now < until {
        Decision::Park { until }
    } else {
        Decision::Refuse(refusal)
    }
}

impl RouteTable {
    /// Whether this is the session whose table it is.
    fn is_me(&self, owner: &NodeName, session: SessionId) -> bool {
        self.me
            .as_ref()
            .is_some_and(|(name, mine)| name == owner && *mine == session)
    }
}

#[cfg(test)]
mod tests;

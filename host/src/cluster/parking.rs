//! Calls that wait for their shard: it moves, opens, or has lost its owner and gets another.
//!
//! A call that waits holds nothing but its place, and their number is bounded. While any waits for a shard, one task a shard looks for
//! the new owner: it asks the node that is to have it, which answers when it has. So the wait ends with the move, not with the next
//! round of the lease loop, and it costs one question however many calls wait.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quarry_core::route::{Decision, Local};
use quarry_core::time::Moment;
use tokio::sync::watch;

use super::node::Node;
use crate::clock;
use crate::transport::{Destination, NotOwner};

mod seek;

use seek::seek;

/// How long a refusal holds: for that long nothing is sent along the route that it came from, unless its owner says that it has the shard
/// now. A new route holds at once. Longer than two questions are apart.
const REFUSED: Duration = Duration::from_secs(3);

/// What this node has learned of its shards beside the table: from refusals, and from owners.
pub(super) struct Parking {
    /// This node, which is no help to itself.
    me: String,
    lots: Mutex<BTreeMap<u32, Lot>>,
    news: watch::Sender<u64>,
}

/// What is known of one shard.
#[derive(Default)]
struct Lot {
    /// Calls that wait.
    parked: usize,
    /// Whether a task looks for the owner.
    seeking: bool,
    /// Who is said to have it, or to get it.
    hint: Option<Destination>,
    refused: Option<Refused>,
    owner: Option<Owner>,
}

/// A route that leads to a node which does not have the shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Refused {
    /// Up to this generation of the lease,
    generation: u64,
    /// and up to this moment.
    until: Moment,
}

/// A node that says that it has the shard.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Owner {
    to: Destination,
    generation: u64,
    until: Moment,
}

/// Where a call goes, all told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Way {
    /// It is to run here, once it can.
    Here {
        /// The end of its patience.
        until: Moment,
    },
    /// To a peer.
    Peer {
        to: Destination,
        generation: u64,
        /// When the route ends.
        until: Moment,
    },
    /// Nowhere for now.
    Wait {
        /// The end of its patience.
        until: Moment,
    },
    /// Nowhere.
    Refused(quarry_core::route::Refusal),
}

/// A call's place. Given back when dropped.
pub(super) struct Place {
    node: Arc<Node>,
    shard: u32,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(peers) = self.node.peers() {
            let mut lots = peers.parking.lots();
            if let Some(lot) = lots.get_mut(&self.shard) {
                lot.parked -= 1;
            }
        }
    }
}

impl Parking {
    /// Nothing waits, and nothing is learned.
    pub fn new(me: &str) -> Self {
        Self {
            me: me.into(),
            lots: Mutex::default(),
            news: watch::Sender::default(),
        }
    }

    /// Tells of everything learned from now on.
    pub fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// How many calls wait.
    pub fn parked(&self) -> usize {
        self.lots().values().map(|lot| lot.parked).sum()
    }

    /// Takes a place for a call that waits, and sees to it that somebody looks for the shard. None when all places are taken.
    pub fn enter(node: &Arc<Node>, shard: u32) -> Option<Place> {
        let peers = node.peers()?;
        let mut lots = peers.parking.lots();
        let lot = lots.entry(shard).or_default();
        if lot.parked >= node.config.call.max_parked {
            return None;
        }
        lot.parked += 1;
        if !lot.seeking {
            lot.seeking = true;
            node.threads
                .peers()
                .spawn(seek(Arc::downgrade(node), shard));
        }
        Some(Place {
            node: node.clone(),
            shard,
        })
    }

    /// A peer refused a call that was sent to it as the owner by this generation.
    pub fn refused(&self, shard: u32, generation: u64, refusal: NotOwner, from: &str) {
        let mut lots = self.lots();
        let lot = lots.entry(shard).or_default();
        let generation = generation.max(lot.refused.map_or(0, |refused| refused.generation));
        lot.refused = Some(Refused {
            generation,
            until: clock::boot_now() + REFUSED,
        });
        lot.owner = lot
            .owner
            .take()
            .filter(|owner| owner.generation > generation);
        let Some(owner) = self.leading_on(refusal, from) else {
            return;
        };
        let known = lot.hint.replace(owner);
        let news = known != lot.hint;
        drop(lots);
        if news {
            self.learned();
        }
    }

    /// What the core decided, corrected by what was learned since its table was read.
    pub fn correct(
        &self,
        shard: u32,
        decision: Decision,
        local: &Local,
        patience: Moment,
        now: Moment,
    ) -> Way {
        let lots = self.lots();
        let lot = lots.get(&shard);
        let refused = lot
            .and_then(|lot| lot.refused)
            .filter(|refused| now < refused.until);
        let owner = lot
            .and_then(|lot| lot.owner.as_ref())
            .filter(|owner| now < owner.until);
        let elsewhere = matches!(local, Local::None | Local::Closing { .. });
        let by_owner = |than: u64| {
            let owner = owner.filter(|owner| elsewhere && owner.generation > than)?;
            Some(Way::Peer {
                to: owner.to.clone(),
                generation: owner.generation,
                until: owner.until,
            })
        };
        match decision {
            Decision::Local { .. } => Way::Here { until: patience },
            // A table that is behind: what is said to be here is not here yet, or not any more.
            Decision::Forward { node, .. } if node.as_str() == self.me => {
                by_owner(0).unwrap_or(Way::Wait { until: patience })
            }
            Decision::Forward {
                node,
                session,
                address,
                generation,
                until,
            } => {
                if let Some(way) = by_owner(generation) {
                    return way;
                }
                if refused.is_some_and(|refused| generation <= refused.generation) {
                    return Way::Wait { until: patience };
                }
                Way::Peer {
                    to: Destination {
                        node: node.to_string(),
                        session: session.to_string(),
                        address,
                    },
                    generation,
                    until,
                }
            }
            Decision::Park { until } => by_owner(0).unwrap_or(Way::Wait { until }),
            Decision::Refuse(refusal) => by_owner(0).unwrap_or(Way::Refused(refusal)),
        }
    }

    fn lots(&self) -> MutexGuard<'_, BTreeMap<u32, Lot>> {
        self.lots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Parking {
    /// Whom a refusal names: neither the node that refused nor this one.
    fn leading_on(&self, refusal: NotOwner, from: &str) -> Option<Destination> {
        let owner = refusal.owner?;
        (owner.node != from && owner.node != self.me).then_some(owner)
    }

    fn found(&self, shard: u32, to: Destination, generation: u64, until: Moment) {
        if let Some(lot) = self.lots().get_mut(&shard) {
            lot.hint = Some(to.clone());
            // It may be the one that refused before, while it opened.
            lot.refused = lot
                .refused
                .filter(|refused| refused.generation > generation);
            lot.owner = Some(Owner {
                to,
                generation,
                until,
            });
        }
        self.learned();
    }

    fn learned(&self) {
        self.news.send_modify(|version| *version += 1);
    }

    /// A node that should have the shard, or get it, does not.
    fn pointed(&self, shard: u32, refusal: NotOwner, from: &str) {
        if let Some(lot) = self.lots().get_mut(&shard) {
            // It does not have it yet: calls go on waiting.
            if let Some(refused) = &mut lot.refused {
                refused.until = clock::boot_now() + REFUSED;
            }
            // Where there is no hint any more, the table is asked.
            lot.hint = self.leading_on(refusal, from);
        }
    }

    /// A node that was asked for no better reason than that it is there may know the owner.
    fn heard(&self, shard: u32, refusal: NotOwner, from: &str) {
        let owner = self.leading_on(refusal, from);
        if let Some(lot) = self.lots().get_mut(&shard)
            && owner.is_some()
        {
            lot.hint = owner;
        }
    }

    /// A hint that led nowhere is forgotten: another may come with the next refusal.
    fn unhinted(&self, shard: u32, to: &Destination) {
        if let Some(lot) = self.lots().get_mut(&shard) {
            lot.hint = lot.hint.take().filter(|hint| hint != to);
        }
    }
}

#[cfg(test)]
mod tests;

//! What a loop tells people.

use std::time::Duration;

use super::{Control, Fate, Phase};
use crate::lease::record::{NodeRecord, Owner};
use crate::time::Moment;

/// What a node knows of a shard's lease, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardLease {
    /// The shard.
    pub shard: u32,
    /// Who holds it.
    pub owner: Option<Owner>,
    /// Whether its owner's session lives, as far as this node knows.
    pub alive: bool,
    /// Its generation.
    pub generation: u64,
    /// Whether an operator put it there.
    pub pinned: bool,
    /// Since when, in milliseconds since 1970 by the writer's wall clock.
    pub since_ms: u64,
    /// Why, or what is wrong with the lease.
    pub why: String,
}

/// What a node knows of a node, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStatus {
    /// Its record as it was last read.
    pub record: NodeRecord,
    /// Whether its session lives, as far as this node knows.
    pub alive: bool,
    /// How many leases name its session.
    pub held: u32,
    /// How long ago its session was seen to be renewed.
    pub unchanged: Duration,
    /// What is wrong with it: another protocol or cluster, or that it cannot read from the store.
    pub problem: Option<String>,
}

/// Figures of a loop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Leases that this node holds.
    pub owned: u32,
    /// How many it is to hold by the last plan.
    pub share: u32,
    /// Shards that have no owner that lives, as far as this node knows.
    pub unowned: u32,
    /// Shards on their way from or to this node.
    pub moves: u32,
    /// How long its shards still run without a renewal; the whole TTL when it has none.
    pub slack: Duration,
}

impl Control {
    /// All leases, for people; none before they were read.
    #[must_use]
    pub fn shards(&self, now: Moment) -> Vec<ShardLease> {
        let lease = |known: &super::Known| {
            let record = &known.seen.record;
            let problem = known.seen.corrupt.as_ref().map(ToString::to_string);
            ShardLease {
                shard: record.shard,
                owner: record.owner.clone(),
                alive: matches!(self.fate(known, now), Fate::Mine | Fate::Lives),
                generation: record.generation,
                pinned: record.pinned,
                since_ms: record.since_ms,
                why: problem.unwrap_or_else(|| record.why.clone()),
            }
        };
        self.known.iter().flatten().map(lease).collect()
    }

    /// All nodes whose record is readable, for people; this one is among them once peers could see it.
    #[must_use]
    pub fn nodes(&self, now: Moment) -> Vec<NodeStatus> {
        let held = |record: &NodeRecord| {
            let holds = |known: &&super::Known| {
                let owner = known.seen.record.owner.as_ref();
                owner.is_some_and(|owner| owner.session == record.info.session)
            };
            u32::try_from(self.known.iter().flatten().filter(holds).count()).unwrap_or(u32::MAX)
        };
        let peers = self.peers.map.values().filter_map(|peer| {
            let record = peer.record.clone()?;
            Some(NodeStatus {
                alive: peer.may_live(self.timing, now),
                held: held(&record),
                unchanged: now.since(peer.since),
                problem: peer
                    .foreign(&self.options.cluster)
                    .or_else(|| blind(&record)),
                record,
            })
        });
        let me = self.own.clone().map(|record| NodeStatus {
            alive: matches!(self.phase, Phase::Member) && now < self.until,
            held: held(&record),
            unchanged: now.since(self.renewed),
            problem: blind(&record),
            record,
        });
        let mut nodes: Vec<NodeStatus> = peers.chain(me).collect();
        nodes.sort_by(|a, b| a.record.info.name.cmp(&b.record.info.name));
        nodes
    }

    /// Figures.
    #[must_use]
    pub fn gauges(&self, now: Moment) -> Gauges {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let deadlines = self.holds.keys().map(|shard| self.deadline(*shard));
        let slack = deadlines
            .min()
            .map_or(self.timing.ttl, |until| until.since(now));
        let leaving = self
            .holds
            .values()
            .filter(|hold| hold.wish != super::Wish::Keep)
            .count();
        let opening = self
            .runs
            .values()
            .filter(|run| !run.open && !run.stopping)
            .count();
        Gauges {
            owned: count(self.holds.len()),
            share: self.share,
            unowned: count(self.unowned.len()),
            moves: count(leaving + opening),
            slack,
        }
    }
}

/// What a node says that ails it.
fn blind(record: &NodeRecord) -> Option<String> {
    let blind = record.info.blind && !record.info.state.is_over();
    blind.then(|| "it can write to the store but not read from it; it keeps its shards and takes no others".into())
}

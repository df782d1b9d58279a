//! The loop: keeps a session and its leases alive, claims, moves and frees shards, and knows where the others are. A machine: events
//! and time go in, effects come out.

mod event;
mod options;

use std::sync::Arc;

pub use event::{Command, CommandError, Effect, Event, LeaseEvent};
pub use options::{
    ControlOptions, LEASE_TTL, MAX_CONCURRENCY, MAX_TTL, MIN_TTL, OptionsError, Timing,
};

use crate::lease::record::{NodeRecord, Owner, SessionId};
use crate::rng::Rng;
use crate::strategy::Strategy;
use crate::time::Moment;

/// The loop. See the module.
#[derive(Debug)]
pub struct Control {
    options: ControlOptions,
    timing: Timing,
    strategy: Arc<dyn Strategy>,
    rng: Rng,
    session: SessionId,
    next: Moment,
}

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
    pub unchanged: std::time::Duration,
    /// What is wrong with it: another protocol or cluster, an unreadable record.
    pub problem: Option<String>,
}

/// Figures of a loop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Leases that this node holds.
    pub owned: u32,
    /// Shards that have no owner that lives, as far as this node knows.
    pub unowned: u32,
    /// Shards on their way from or to this node.
    pub moves: u32,
    /// How long its shards still run without a renewal; the whole TTL when it has none.
    pub slack: std::time::Duration,
}

impl Control {
    /// A loop that has done nothing; it wants to be woken at once. `seed` is to be random: the names of sessions come from it.
    ///
    /// # Errors
    /// [`OptionsError`] for options that make no sense.
    pub fn new(
        options: ControlOptions,
        strategy: Arc<dyn Strategy>,
        seed: u128,
        now: Moment,
    ) -> Result<Self, OptionsError> {
        let timing = options.timing()?;
        let mut rng = Rng::new(seed);
        let session = SessionId::new(rng.next_u128());
        Ok(Self {
            options,
            timing,
            strategy,
            rng,
            session,
            next: now,
        })
    }

    /// Takes an event: what is to be done, in order.
    pub fn handle(&mut self, event: Event, now: Moment) -> Vec<Effect> {
        let _ = (
            event,
            now,
            &self.options,
            self.timing,
            &self.strategy,
            &mut self.rng,
        );
        Vec::new()
    }

    /// When the loop wants an [`Event::Wake`]; never once it has left.
    #[must_use]
    pub fn wake_at(&self) -> Option<Moment> {
        Some(self.next)
    }

    /// This run of the node. Another one after the session was lost.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// All leases, for people.
    #[must_use]
    pub fn shards(&self, now: Moment) -> Vec<ShardLease> {
        let _ = now;
        Vec::new()
    }

    /// All nodes, for people; those whose record was never readable are not among them.
    #[must_use]
    pub fn nodes(&self, now: Moment) -> Vec<NodeStatus> {
        let _ = now;
        Vec::new()
    }

    /// Figures.
    #[must_use]
    pub fn gauges(&self, now: Moment) -> Gauges {
        let _ = now;
        Gauges::default()
    }
}

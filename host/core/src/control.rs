//! The loop: keeps a session and its leases alive, claims, moves and frees shards, and knows where the others are. A machine: events
//! and time go in, effects come out.
//!
//! After each event it does all that is due, so nothing hangs on an event that got lost.
//!
//! - `session`: joining, heartbeats, losing the session, leaving;
//! - `look`: reading nodes and leases;
//! - `assign`: what follows: which sessions to end, what to free, what to claim;
//! - `hold`: the leases that this node holds, from claim to release;
//! - `running`: their shards, which the runner opens and closes;
//! - `peers`: since when each peer has not changed;
//! - `routes`: where calls go.
//!
//! Rules that keep it safe: an owner's deadline counts from the *sending* of its newest renewal that was *won*; a peer's expiry counts
//! from the *reply* that first showed what it last wrote; a session is ended by compare-and-set on that very version before a lease of
//! it is claimed; a lease is freed after its shard has closed; what a read showed is believed only if it began after the own last
//! write of the same lease.

mod assign;
mod event;
mod hold;
mod look;
mod options;
mod peers;
mod routes;
mod running;
mod session;
mod state;
mod status;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub use event::{Command, CommandError, Effect, Event, LeaseEvent};
pub use options::{
    ControlOptions, LEASE_TTL, MAX_CONCURRENCY, MAX_TTL, MIN_TTL, OptionsError, Timing,
};
pub use status::{Gauges, NodeStatus, ShardLease};

use peers::Peers;
use state::{Fate, Flight, Freeing, Hold, Joining, Known, Pace, Phase, Run, Wanted, What, Wish};

use crate::lease::op::{LeaseOp, OpId, OpResult};
use crate::lease::record::{NodeName, NodeRecord, Owner, SessionId};
use crate::rng::Rng;
use crate::route::RouteTable;
use crate::rules::Mutation;
use crate::strategy::Strategy;
use crate::time::Moment;

/// How many reads and renewals of single leases are in flight at once, of each.
const WINDOW: usize = 64;

/// The loop. See the module.
#[derive(Debug)]
pub struct Control {
    options: ControlOptions,
    timing: Timing,
    strategy: Arc<dyn Strategy>,
    rng: Rng,
    effects: Vec<Effect>,

    /// Counts events: what began before what.
    events: u64,
    /// When the loop wants to be woken at the latest: a later event means that this node slept.
    tick: Moment,
    /// When the last event was taken; what was due then has had its chance.
    last: Option<Moment>,
    next_op: u64,
    flights: BTreeMap<OpId, Flight>,
    /// The shards that an operation in flight is about.
    busy: BTreeMap<u32, OpId>,

    phase: Phase,
    session: SessionId,
    own: Option<NodeRecord>,
    beat: Pace,
    /// Until when the session's newest renewal lasts, less the margin.
    until: Moment,
    /// When it was sent.
    renewed: Moment,
    /// The event at which the newest proof began that this session lives.
    proof: u64,
    /// A lease was written since the last heartbeat.
    news: bool,
    /// The newest heartbeat says so.
    telling: bool,
    cordoned: bool,
    draining: bool,
    leaving: bool,
    /// How many shards the last plan gives this node.
    share: u32,
    leave: Pace,

    look: Pace,
    looks: u64,
    /// When the newest look began.
    looked: Moment,
    /// The next look reads everything.
    whole: bool,
    /// The event at which the newest reading of all nodes began.
    nodes_asked: u64,
    peers: Peers,
    known: Vec<Option<Known>>,
    /// The event at which this node's last write of a lease ended.
    written: BTreeMap<u32, u64>,
    /// The highest generation that was ever seen.
    highest: BTreeMap<u32, u64>,
    /// The event at which a node was last seen to have given a shard away or lost it: what was read of it before may be out of date.
    gave: BTreeMap<NodeName, u64>,
    /// Since when a shard has had no owner that may live.
    unowned: BTreeMap<u32, Moment>,
    /// Shards that failed here, and until when they are left to others.
    avoid: BTreeMap<u32, Moment>,
    /// When single leases were last read on demand.
    reads: BTreeMap<u32, Moment>,
    /// When nodes and leases were last read in full, and when that was done after it had not been for long.
    sighted: Moment,
    regained: Moment,
    /// Looks have failed for two intervals though heartbeats come through: peers are told, so that nobody waits for this node to take
    /// what it cannot see.
    unsighted: bool,
    /// Leases that are to be read again.
    reread: BTreeSet<u32>,
    /// When single leases were last read because a peer freed them.
    notices: BTreeMap<u32, Moment>,
    /// Leases that a peer freed while they were being read, which may have shown what stood there before.
    unread: BTreeSet<u32>,

    holds: BTreeMap<u32, Hold>,
    runs: BTreeMap<u32, Run>,
    /// The shards to claim.
    wanted: VecDeque<Wanted>,
    /// Shards that were freed for somebody, and how often that is still told.
    told: BTreeMap<u32, (NodeName, u32)>,
    routes: RouteTable,
    routes_changed: bool,
    /// When they may be told again.
    routes_at: Moment,
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
        let pace = || Pace {
            at: now,
            flying: None,
            failures: 0,
        };
        let shards = options.shards as usize;
        let control = Self {
            options,
            timing,
            strategy,
            rng,
            effects: Vec::new(),
            events: 0,
            tick: now + timing.interval,
            last: None,
            next_op: 0,
            flights: BTreeMap::new(),
            busy: BTreeMap::new(),
            phase: Phase::Joining(Joining {
                at: now,
                flying: false,
                other: None,
            }),
            session,
            own: None,
            beat: pace(),
            until: Moment::ORIGIN,
            renewed: now,
            proof: 0,
            news: false,
            telling: false,
            cordoned: false,
            draining: false,
            leaving: false,
            share: 0,
            leave: pace(),
            look: pace(),
            looks: 0,
            looked: Moment::ORIGIN,
            whole: true,
            nodes_asked: 0,
            peers: Peers::default(),
            known: vec![None; shards],
            written: BTreeMap::new(),
            highest: BTreeMap::new(),
            gave: BTreeMap::new(),
            unowned: BTreeMap::new(),
            avoid: BTreeMap::new(),
            reads: BTreeMap::new(),
            sighted: now,
            regained: Moment::ORIGIN,
            unsighted: false,
            reread: BTreeSet::new(),
            notices: BTreeMap::new(),
            unread: BTreeSet::new(),
            holds: BTreeMap::new(),
            runs: BTreeMap::new(),
            wanted: VecDeque::new(),
            told: BTreeMap::new(),
            routes: RouteTable {
                me: None,
                shards: vec![None; shards],
                nodes: BTreeMap::new(),
            },
            routes_changed: false,
            routes_at: now,
        };
        control.info().check("this node's record")?;
        Ok(control)
    }

    /// Takes an event: what is to be done, in order.
    pub fn handle(&mut self, event: Event, now: Moment) -> Vec<Effect> {
        if matches!(self.phase, Phase::Left) {
            return Vec::new();
        }
        self.events += 1;
        self.guard(now);
        match event {
            Event::Wake => {}
            Event::Done { id, result, sent } => self.done(id, result, sent.min(now), now),
            Event::Runner(report) => self.report(report, now),
            Event::Command(command) => self.command(command, now),
            Event::Notice { shard } => self.noticed(shard, now),
            Event::RouteMiss { shard } => self.missed(shard, now),
        }
        self.work(now);
        self.route(now);
        self.tick = now + self.timing.interval;
        self.last = Some(now);
        std::mem::take(&mut self.effects)
    }

    /// When the loop wants an [`Event::Wake`]; never once it has left.
    #[must_use]
    pub fn wake_at(&self) -> Option<Moment> {
        // What was due at the last event and was not done waits for another event: an operation in flight, or the next renewal.
        let new = |due: &Moment| self.last.is_none_or(|last| *due > last);
        let due = match &self.phase {
            Phase::Left => return None,
            Phase::Joining(joining) => (!joining.flying).then_some(joining.at).filter(new),
            Phase::Member => {
                let leave = self.leave.due().filter(|_| self.leaving && self.is_empty());
                let expiry = self.next_expiry().filter(|_| self.look.flying.is_none());
                let paces = [self.beat.due(), self.look.due(), leave, expiry];
                let all = paces.into_iter().flatten().chain(self.holds_due());
                all.filter(new).min()
            }
        };
        let routes = self.routes_changed.then_some(self.routes_at).filter(new);
        due.into_iter().chain(routes).chain([self.tick]).min()
    }

    /// This run of the node. Another one after the session was lost.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Does all that is due.
    fn work(&mut self, now: Moment) {
        match self.phase {
            Phase::Left => {}
            Phase::Joining(_) => self.join(now),
            Phase::Member => {
                self.heartbeat(now);
                self.start_look(now);
                self.tend(now);
                self.read_again(now);
                self.pump(now);
                self.try_leave(now);
            }
        }
    }

    /// A node that slept has missed what its peers wrote meanwhile: it starts counting anew.
    fn guard(&mut self, now: Moment) {
        let by = now.since(self.wake_at().unwrap_or(self.tick));
        if by <= self.timing.interval || self.broken(Mutation::NoObserverGuard) {
            return;
        }
        self.emit(LeaseEvent::ObserverLate { by });
        self.wanted.clear();
        self.peers.restart(now);
        for known in self.known.iter_mut().flatten() {
            known.since = now;
        }
        for since in self.unowned.values_mut() {
            *since = now;
        }
        if let Phase::Joining(Joining {
            other: Some((_, since, _)),
            ..
        }) = &mut self.phase
        {
            *since = now;
        }
    }

    fn done(&mut self, id: OpId, result: OpResult, sent: Moment, now: Moment) {
        let Some(flight) = self.flights.remove(&id) else {
            return;
        };
        self.busy.retain(|_, busy| *busy != id);
        let current = flight.session == self.session;
        if let What::Claim(shard) | What::Renew(shard) | What::Release(shard) = &flight.what
            && !current
        {
            // The outcome of a write of an earlier session is nobody's any more, and no listing tells of it once more.
            self.reread.insert(*shard);
        }
        match (flight.what, result) {
            (What::Setup, OpResult::Setup(outcome)) if current => {
                self.joined(outcome, flight.asked, sent, now);
            }
            (What::Heartbeat, OpResult::Heartbeat(outcome)) if current => {
                self.beaten(outcome, flight.asked, sent, now);
            }
            (What::Leave, OpResult::Leave(outcome)) if current => self.leave_done(outcome, now),
            (What::Nodes, OpResult::Nodes(nodes)) => self.nodes_read(nodes, flight.asked, now),
            (What::Owners, OpResult::Owners(owners)) => self.owners_read(owners, flight.asked, now),
            (What::Read(shard), OpResult::Read(read)) => {
                self.one_read(shard, read, flight.asked, now)
            }
            (What::Tombstone(node), OpResult::Tombstone(outcome)) => {
                self.tombstoned(node, outcome, flight.asked, now);
            }
            (What::Claim(shard), OpResult::Claim(outcome)) => {
                self.claimed(shard, outcome, current, sent, now);
            }
            (What::Renew(shard), OpResult::Renew(outcome)) if current => {
                self.renewed(shard, outcome, sent, now);
            }
            (What::Release(shard), OpResult::Release(outcome)) if current => {
                self.released(shard, outcome, now);
            }
            // The outcome of a write of an earlier session: others will see it, and so will this node.
            _ => {}
        }
    }

    fn spawn(&mut self, op: LeaseOp, what: What, deadline: Duration) -> OpId {
        self.next_op += 1;
        let id = OpId(self.next_op);
        if let What::Read(shard) | What::Claim(shard) | What::Renew(shard) | What::Release(shard) =
            what
        {
            self.busy.insert(shard, id);
        }
        let flight = Flight {
            what,
            asked: self.events,
            session: self.session,
        };
        self.flights.insert(id, flight);
        self.effects.push(Effect::Op { id, op, deadline });
        id
    }

    /// How many operations of a kind are in flight.
    fn flying(&self, kind: impl Fn(&What) -> bool) -> usize {
        self.flights
            .values()
            .filter(|flight| kind(&flight.what))
            .count()
    }

    fn emit(&mut self, event: LeaseEvent) {
        self.effects.push(Effect::Emit(event));
    }

    fn broken(&self, mutation: Mutation) -> bool {
        self.options.rules.broken(mutation)
    }

    fn me(&self) -> Owner {
        Owner {
            name: self.options.name.clone(),
            session: self.session,
        }
    }

    /// Whether nothing is held, running or being written.
    fn is_empty(&self) -> bool {
        let busy: BTreeSet<&OpId> = self.busy.values().collect();
        self.holds.is_empty() && self.runs.is_empty() && busy.is_empty()
    }
}

#[cfg(test)]
mod tests;

//! The quiet phase, and the oracles of liveness and economy: everything settles, then stands still at the least cost, then takes single
//! clean changes within their bounds, with the fewest moves, and without failing a call that need not fail.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use quarry_core::control::Command;
use quarry_core::lease::object::Key;
use quarry_core::lease::record::{LeaseRecord, NodeName, NodeRecord};

use super::super::queue::{MILLI, SECOND, Time};
use super::super::setup::{LayoutName, Probe};
use super::super::store::{LONGEST, Way};
use super::event::Event;
use super::process::{Life, ProcessId};
use super::report::{Figures, Outcome};
use super::{World, node_name, shown};

/// How often gates are looked at.
const LOOK: Time = 100 * MILLI;

/// What the quiet phase keeps in mind.
#[derive(Debug, Default)]
pub struct Quiet {
    looking: bool,
    /// Since when each shard has had no open gate, and the longest such time.
    dark: BTreeMap<u32, Time>,
    longest: Option<(Time, u32)>,
}

/// What a change may cost.
#[derive(Debug)]
struct Bounds {
    /// How long a shard may be without an open gate.
    gap: Time,
    /// When everything must have settled.
    settled: Time,
    moves: u64,
    /// Whether no call may fail.
    calls: bool,
}

impl World {
    pub(super) fn run_quiet(&mut self) {
        if self.violation.is_some() {
            return;
        }
        self.make_peace();
        // What hangs in the air comes down first; callers of the bad times have given up.
        let end = self.aftermath.max(self.queue.now() + 35 * SECOND);
        self.advance(end);
        let bound = 3 * self.setup.ttl
            + 8 * self.setup.interval
            + self.setup.databases.open_timeout
            + self.setup.databases.close_timeout
            + 70 * SECOND
            + self.opens(u64::from(self.setup.shards));
        self.settle(bound, "after all faults had ended");
        self.stand_still(6);
        for probe in self.setup.probes.clone() {
            self.probe(probe);
            self.stand_still(4);
        }
    }

    pub(super) fn finish(mut self) -> Outcome {
        if self.violation.is_none() {
            self.check_histories();
        }
        let now = self.queue.now();
        self.figures.events = self.queue.scheduled();
        self.figures.simulated = now;
        self.figures.node_time = self
            .processes
            .iter()
            .map(|process| process.died.unwrap_or(now) - process.born)
            .sum();
        Outcome {
            setup: self.setup,
            violation: self.violation,
            figures: self.figures,
        }
    }

    /// Ends all faults.
    fn make_peace(&mut self) {
        self.trace(|| "all faults end".into());
        self.hostile = false;
        for process in 0..self.processes.len() {
            if !self.processes[process].running() {
                continue;
            }
            self.processes[process].way = Way::default();
            self.processes[process].cut = false;
            for pause in [true, false] {
                let target = &self.processes[process];
                if (pause && target.paused) || (!pause && target.stalled) {
                    self.resume(process, pause);
                }
            }
            let target = &self.processes[process];
            if (target.cordoned || target.draining) && !target.leaving {
                self.queue
                    .after(SECOND, Event::Command(process, Command::Uncordon));
            }
        }
        let stays = self
            .processes
            .iter()
            .any(|process| process.running() && !process.leaving);
        if !stays {
            let process = self.spawn(&node_name(20), None);
            self.queue.after(0, Event::Start(process));
        }
    }

    /// Waits until everything is as it should be.
    fn settle(&mut self, bound: Time, when: &str) {
        let begun = self.queue.now();
        while self.violation.is_none() {
            let passed = Duration::from_nanos(self.queue.now() - begun);
            match self.settled() {
                Ok(()) => return self.trace(|| format!("settled {passed:?} {when}")),
                Err(why) if self.queue.now() - begun > bound => {
                    return self.fail("L2", format!("not settled {passed:?} {when}: {why}"));
                }
                Err(_) => self.advance(self.queue.now() + 250 * MILLI),
            }
        }
    }

    /// The processes that are the nodes of the cluster, by name: their session is the one in the bucket.
    fn members(&self) -> BTreeMap<NodeName, ProcessId> {
        let mut members = BTreeMap::new();
        for process in self.processes.iter().filter(|process| process.running()) {
            let key = Key::Node(process.name.clone()).object_name(self.setup.shards);
            let record = self
                .store
                .get(&key)
                .and_then(|object| NodeRecord::decode(&process.name, &object.body).ok());
            if let Some(record) = record
                && record.info.session == process.control.session()
                && !record.info.state.is_over()
            {
                members.insert(process.name.clone(), process.id);
            }
        }
        members
    }

    /// The members that take shards, and how many each has.
    fn loads(&self) -> BTreeMap<ProcessId, u64> {
        self.members()
            .values()
            .map(|id| &self.processes[*id])
            .filter(|process| !process.cordoned && !process.draining && !process.leaving)
            .map(|process| (process.id, process.sites.len() as u64))
            .collect()
    }

    fn settled(&self) -> Result<(), String> {
        let members = self.members();
        for process in self.processes.iter().filter(|process| process.running()) {
            if process.leaving {
                return Err(format!("{} has not left yet", shown(process.id)));
            }
            if !members.contains_key(&process.name) {
                return Err(format!(
                    "{} of {} has not joined",
                    shown(process.id),
                    process.name
                ));
            }
            if process.draining && !process.sites.is_empty() {
                return Err(format!(
                    "{} drains and still has {} shards",
                    shown(process.id),
                    process.sites.len()
                ));
            }
        }
        for shard in 0..self.setup.shards {
            let open: Vec<ProcessId> = self
                .processes
                .iter()
                .filter(|process| {
                    process.gate(shard, self.queue.now()) && process.sites[&shard].takes()
                })
                .map(|process| process.id)
                .collect();
            let [owner] = open[..] else {
                return Err(format!("shard {shard} is open on {open:?}"));
            };
            let key = Key::Lease(shard).object_name(self.setup.shards);
            let lease = self
                .store
                .get(&key)
                .and_then(|object| LeaseRecord::decode(shard, &object.body).ok());
            let process = &self.processes[owner];
            let Some(lease) = lease else {
                return Err(format!("shard {shard} has no readable lease"));
            };
            let held = lease.owner.as_ref().is_some_and(|holder| {
                holder.name == process.name && holder.session == process.control.session()
            });
            if !held || lease.generation != process.sites[&shard].generation {
                return Err(format!(
                    "shard {shard} is open on {}, its lease says {lease:?}",
                    shown(owner)
                ));
            }
        }
        let loads = self.loads();
        let (most, least) = (
            loads.values().max().copied().unwrap_or(0),
            loads.values().min().copied().unwrap_or(0),
        );
        if most > least + 1 {
            return Err(format!("shares are {loads:?}"));
        }
        Ok(())
    }

    /// In a settled cluster nothing moves, no gate closes, no call fails, and the store hears no more than it must.
    fn stand_still(&mut self, rounds: u64) {
        if self.violation.is_some() {
            return;
        }
        let begun = self.queue.now();
        let changes: Vec<u64> = self
            .facts
            .shards
            .iter()
            .map(|facts| facts.changes)
            .collect();
        let requests: Vec<u64> = self
            .processes
            .iter()
            .map(|process| process.requests)
            .collect();
        let failed = self.calls.failed;
        self.look_on();
        self.advance(begun + rounds * self.setup.interval);
        self.quiet.looking = false;
        if self.violation.is_some() {
            return;
        }
        let moved = self
            .facts
            .shards
            .iter()
            .zip(&changes)
            .position(|(facts, before)| facts.changes != *before);
        if let Some(shard) = moved {
            return self.fail(
                "L3",
                format!("shard {shard} changed its owner in a settled cluster"),
            );
        }
        if let Some((gap, shard)) = self.quiet.longest {
            return self.fail(
                "L3",
                format!(
                    "shard {shard} was not served for {:?} in a settled cluster",
                    Duration::from_nanos(gap)
                ),
            );
        }
        if self.calls.failed != failed {
            let words = self.calls.last_failure.clone();
            return self.fail("L3", format!("a call failed in a settled cluster: {words}"));
        }
        self.check_requests(rounds, &requests);
    }

    fn check_requests(&mut self, rounds: u64, before: &[u64]) {
        // One page of a listing holds all, and the sixtieth round, which reads everything, may be among them.
        if self.store.len() > 900 {
            return;
        }
        let shards = u64::from(self.setup.shards);
        for (process, before) in self.processes.iter().zip(before) {
            if !process.running() {
                continue;
            }
            let each = match self.setup.layout {
                LayoutName::Session => 2,
                LayoutName::Shard => 2 + shards + process.sites.len() as u64,
            };
            let sent = process.requests - before;
            self.figures.steady_rounds += rounds;
            self.figures.steady_requests += sent;
            let most = each * (rounds + 1) + 2;
            if sent > most {
                let words = format!(
                    "{} sent {sent} requests in {rounds} settled rounds; {most} are allowed",
                    shown(process.id)
                );
                return self.fail("E1", words);
            }
        }
    }

    /// Makes one clean change and holds the cluster to its bounds.
    fn probe(&mut self, probe: Probe) {
        if self.violation.is_some() {
            return;
        }
        let loads = self.loads();
        let ids: Vec<ProcessId> = loads.keys().copied().collect();
        let probe = if ids.len() < 2 || (probe == Probe::Join && ids.len() >= 9) {
            if ids.len() >= 9 {
                Probe::Leave
            } else {
                Probe::Join
            }
        } else {
            probe
        };
        let Some(&victim) = ids.get(self.chance.index(ids.len())) else {
            return;
        };
        self.figures.probes += 1;
        self.trace(|| format!("probe {probe:?} of {}: {loads:?}", shown(victim)));
        let before = self.total_changes();
        let claims = (self.figures.claims, self.figures.claims_lost);
        let failed = self.calls.failed;
        self.look_on();
        let bounds = self.apply_probe(probe, victim, &loads);
        self.settle(
            bounds.settled,
            &format!("after {probe:?} of {}", shown(victim)),
        );
        // Shards that move although all is settled count as well.
        self.advance(self.queue.now() + self.setup.interval);
        self.quiet.looking = false;
        if self.violation.is_some() {
            return;
        }
        if let Some((gap, shard)) = self.quiet.longest
            && gap > bounds.gap
        {
            let (gap, most) = (Duration::from_nanos(gap), Duration::from_nanos(bounds.gap));
            return self.fail("L1", format!("shard {shard} was not served for {gap:?} after {probe:?} of {}; {most:?} are allowed", shown(victim)));
        }
        let moves = self.total_changes() - before;
        self.figures.moves += moves;
        self.figures.moves_least += bounds.moves;
        if moves > bounds.moves {
            return self.fail(
                "E2",
                format!(
                    "{probe:?} of {} took {moves} moves instead of {}; shares were {loads:?}",
                    shown(victim),
                    bounds.moves
                ),
            );
        }
        if bounds.calls && self.calls.failed != failed {
            let words = self.calls.last_failure.clone();
            return self.fail(
                "P3",
                format!(
                    "a call failed during {probe:?} of {}: {words}",
                    shown(victim)
                ),
            );
        }
        let won = self.figures.claims - claims.0;
        let lost = self.figures.claims_lost - claims.1;
        if lost > won + ids.len() as u64 {
            self.fail(
                "E3",
                format!(
                    "{lost} claims were lost and {won} won after {probe:?} of {}",
                    shown(victim)
                ),
            );
        }
    }

    fn apply_probe(
        &mut self,
        probe: Probe,
        victim: ProcessId,
        loads: &BTreeMap<ProcessId, u64>,
    ) -> Bounds {
        let own = loads.get(&victim).copied().unwrap_or(0);
        let shards: u64 = loads.values().sum();
        let nodes = loads.len() as u64;
        let request = (LONGEST + 1) * self.setup.store_delay;
        let opens = self.opens(shards.div_ceil(nodes.max(1)) + 1);
        // Clocks run at different rates.
        let drifting = |time: Time| time + time / 50;
        let crash = drifting(self.setup.ttl + self.setup.interval) + 6 * request + opens + SECOND;
        let planned = drifting(self.setup.interval) + 8 * request + 2 * opens + SECOND;
        let rest = || {
            loads
                .iter()
                .filter(|(id, _)| **id != victim)
                .map(|(_, load)| *load)
                .collect::<Vec<_>>()
        };
        match probe {
            Probe::Crash => {
                self.kill(victim, Life::Killed);
                Bounds {
                    gap: crash,
                    settled: crash + 3 * self.setup.interval,
                    moves: own + surplus(rest(), own),
                    calls: false,
                }
            }
            Probe::Restart => {
                self.kill(victim, Life::Killed);
                self.start_again(victim, 100 * MILLI);
                let share = shards.div_ceil(nodes);
                Bounds {
                    gap: crash,
                    settled: 2 * crash + 4 * self.setup.interval + planned,
                    moves: own + surplus(rest(), own) + share,
                    calls: false,
                }
            }
            Probe::Leave | Probe::Drain => {
                let command = if probe == Probe::Leave {
                    Command::Leave
                } else {
                    Command::Drain
                };
                self.queue.after(0, Event::Command(victim, command));
                let settled = planned + 3 * self.setup.interval + self.opens(own) * 2;
                self.advance(self.queue.now());
                Bounds {
                    gap: planned,
                    settled,
                    moves: own + surplus(rest(), own),
                    calls: true,
                }
            }
            Probe::Join => {
                let taken: BTreeSet<NodeName> = self
                    .processes
                    .iter()
                    .map(|process| process.name.clone())
                    .collect();
                let name = (0..)
                    .map(node_name)
                    .find(|name| !taken.contains(name))
                    .expect("a free name");
                let process = self.spawn(&name, None);
                self.queue.after(0, Event::Start(process));
                self.advance(self.queue.now());
                let mut all: Vec<u64> = loads.values().copied().collect();
                all.push(0);
                Bounds {
                    gap: planned,
                    settled: planned + 4 * self.setup.interval + opens * 2,
                    moves: surplus(all, 0),
                    calls: true,
                }
            }
            Probe::Move => {
                let from = loads
                    .iter()
                    .filter(|(_, load)| **load > 0)
                    .map(|(id, _)| *id)
                    .collect::<Vec<_>>();
                let from = *self.chance.pick(&from);
                let to: Vec<ProcessId> = loads.keys().copied().filter(|id| *id != from).collect();
                let to = self.processes[*self.chance.pick(&to)].name.clone();
                let held: Vec<u32> = self.processes[from].sites.keys().copied().collect();
                let shard = *self.chance.pick(&held);
                self.trace(|| format!("move of shard {shard} from {} to {to}", shown(from)));
                self.queue.after(
                    0,
                    Event::Command(
                        from,
                        Command::Move {
                            shard,
                            to: to.clone(),
                        },
                    ),
                );
                let end = self.queue.now() + planned + 2 * self.setup.interval;
                self.advance(end);
                let there = self
                    .members()
                    .get(&to)
                    .is_some_and(|id| self.processes[*id].sites.contains_key(&shard));
                if !there && self.violation.is_none() {
                    self.fail(
                        "move",
                        format!("shard {shard} is not on {to} after it was moved there"),
                    );
                }
                Bounds {
                    gap: planned,
                    settled: planned + 4 * self.setup.interval,
                    moves: 2,
                    calls: true,
                }
            }
        }
    }

    /// How long it takes one node to claim and open so many shards.
    fn opens(&self, shards: u64) -> Time {
        let request = 2 * self.setup.store_delay;
        let one = 6 * self.setup.databases.step + 4 * request;
        shards.div_ceil(self.setup.max_concurrency as u64) * one + 10 * MILLI
    }

    fn total_changes(&self) -> u64 {
        self.facts.shards.iter().map(|facts| facts.changes).sum()
    }

    fn look_on(&mut self) {
        self.quiet = Quiet {
            looking: true,
            ..Quiet::default()
        };
        self.queue.after(LOOK, Event::Look);
    }

    /// Looks which shards are served.
    pub(super) fn look(&mut self) {
        if !self.quiet.looking {
            return;
        }
        self.queue.after(LOOK, Event::Look);
        let now = self.queue.now();
        let mut lit = vec![false; self.databases.len()];
        for process in self.processes.iter().filter(|process| process.running()) {
            for (shard, site) in &process.sites {
                if site.takes() {
                    lit[*shard as usize] = true;
                }
            }
        }
        for (shard, lit) in (0u32..).zip(lit) {
            if lit {
                self.quiet.dark.remove(&shard);
                continue;
            }
            let since = *self.quiet.dark.entry(shard).or_insert(now);
            let gap = now - since + LOOK;
            if self.quiet.longest.is_none_or(|(longest, _)| gap > longest) {
                self.quiet.longest = Some((gap, shard));
            }
        }
    }

    pub fn figures(&self) -> &Figures {
        &self.figures
    }
}

/// The fewest moves, besides those of `orphans` shards without an owner, that balance these shares: who has most keeps the ceiling.
fn surplus(mut loads: Vec<u64>, orphans: u64) -> u64 {
    let nodes = loads.len() as u64;
    if nodes == 0 {
        return 0;
    }
    let total: u64 = loads.iter().sum::<u64>() + orphans;
    loads.sort_unstable_by(|a, b| b.cmp(a));
    let ceilings = total % nodes;
    loads
        .iter()
        .zip(0u64..)
        .map(|(load, index)| load.saturating_sub(total / nodes + u64::from(index < ceilings)))
        .sum()
}

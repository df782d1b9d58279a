//! The quiet phase, and the oracles of liveness and economy: everything settles, then stands still at the least cost, then takes single
//! clean changes within their bounds, with the fewest moves, and without failing a call that need not fail.

mod probes;

use std::collections::BTreeMap;
use std::time::Duration;

use quarry_core::control::Command;
use quarry_core::lease::object::Key;
use quarry_core::lease::record::{LeaseRecord, NodeName, NodeRecord};

use super::super::queue::{MILLI, SECOND, Time};
use super::super::setup::LayoutName;
use super::super::store::Way;
use super::event::Event;
use super::process::ProcessId;
use super::report::{Figures, Outcome};
use super::{World, node_name, shown};

/// How often gates are looked at.
const LOOK: Time = 100 * MILLI;

/// The longest body of a node's record, and the longest of a lease that the loop writes.
const MOST_NODE: u64 = 2047;
const MOST_LEASE: u64 = 512;

/// What the quiet phase keeps in mind.
#[derive(Debug, Default)]
pub struct Quiet {
    looking: bool,
    /// Since when each shard has had no open gate, and the longest such time.
    pub(super) dark: BTreeMap<u32, Time>,
    longest: Option<(Time, u32)>,
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
        // What was put off during a pause may have been the wish to leave.
        self.keep_somebody();
        // Where one page of a listing does not hold all, a lease that is gone is only seen in every sixtieth round.
        let rounds = if self.store.len() > 900 { 64 } else { 0 };
        let bound = rounds * self.setup.interval
            + 3 * self.setup.ttl
            + 8 * self.setup.interval
            + self.setup.databases.open_timeout
            + self.setup.databases.close_timeout
            + 70 * SECOND
            + self.setup.opens(u64::from(self.setup.shards));
        self.settle(bound, "after all faults had ended");
        self.stand_still(6);
        for probe in self.setup.probes.clone() {
            self.probe(probe);
            self.stand_still(4);
        }
        self.run_rollouts();
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
        self.keep_somebody();
    }

    /// Starts a node when none is left, or none that stays.
    fn keep_somebody(&mut self) {
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
        let hold = 2 * self.setup.interval;
        let mut since = None;
        while self.violation.is_none() {
            let now = self.queue.now();
            let passed = Duration::from_nanos(now - begun);
            match self.settled() {
                Ok(()) if now - *since.get_or_insert(now) >= hold => {
                    return self.trace(|| format!("settled {passed:?} {when}"));
                }
                Ok(()) => {}
                Err(why) if now - begun > bound => {
                    return self.fail("L2", format!("not settled {passed:?} {when}: {why}"));
                }
                Err(_) => since = None,
            }
            self.advance(now + 250 * MILLI);
        }
    }

    /// The processes that are the nodes of the cluster, by name: their session is the one in the bucket.
    pub(super) fn members(&self) -> BTreeMap<NodeName, ProcessId> {
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
    pub(super) fn loads(&self) -> BTreeMap<ProcessId, u64> {
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
        let traffic: Vec<[u64; 3]> = self
            .processes
            .iter()
            .map(|process| [process.requests, process.written, process.read])
            .collect();
        let opens = self.figures.opens;
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
        if self.figures.opens != opens {
            return self.fail("E5", "a database was opened in a settled cluster".into());
        }
        self.check_traffic(rounds, &traffic);
    }

    /// A round costs each node one heartbeat and one listing; where each lease is renewed by itself, one write for each that it holds and
    /// one read for each that there is. Every sixtieth round reads all records of nodes, too.
    fn check_traffic(&mut self, rounds: u64, before: &[[u64; 3]]) {
        // One page of a listing holds all, and the sixtieth round may be among them.
        if self.store.len() > 900 {
            return;
        }
        let shards = u64::from(self.setup.shards);
        let records = self.store.list("nodes/", None, 1000).0;
        let bytes: u64 = records
            .iter()
            .map(|(_, record)| record.body.len() as u64)
            .sum();
        let (records, bytes) = (
            records.len() as u64,
            bytes.min(20_000 * records.len() as u64),
        );
        for (process, before) in self.processes.iter().zip(before) {
            if !process.running() {
                continue;
            }
            let held = process.sites.len() as u64;
            // Requests, bytes written, and bytes read in a round.
            let [requests, written, read] = match self.setup.layout {
                // Who waits for its name reads the record of who has it.
                LayoutName::Session | LayoutName::Shard if process.waits => {
                    [2, MOST_NODE, MOST_NODE]
                }
                LayoutName::Session => [2, MOST_NODE, 0],
                LayoutName::Shard => [
                    2 + shards + held,
                    MOST_NODE + held * MOST_LEASE,
                    shards * MOST_LEASE,
                ],
            };
            // A round more than passed may fall into the time, the last news of each node, and a whole reading.
            let whole = [4 + 2 * records, 0, 2 * bytes];
            let sent = [process.requests, process.written, process.read];
            self.figures.steady_rounds += rounds;
            self.figures.steady_requests += sent[0] - before[0];
            for (index, what, oracle) in [
                (0, "requests", "E1"),
                (1, "bytes written", "E4"),
                (2, "bytes read", "E4"),
            ] {
                let spent = sent[index] - before[index];
                let most = [requests, written, read][index] * (rounds + 1) + whole[index];
                if spent > most {
                    let words = format!(
                        "{} took {spent} {what} in {rounds} settled rounds; {most} are allowed",
                        shown(process.id)
                    );
                    return self.fail(oracle, words);
                }
            }
        }
    }

    fn total_changes(&self) -> u64 {
        self.facts.shards.iter().map(|facts| facts.changes).sum()
    }

    fn look_on(&mut self) {
        self.calls.counted_from = self.queue.now();
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

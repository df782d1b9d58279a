//! Single clean changes in a quiet world, and what each may cost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use quarry_core::control::Command;
use quarry_core::lease::record::NodeName;

use super::super::super::queue::{MILLI, Time};
use super::super::super::setup::{LayoutName, Misfortune, Probe};
use super::super::super::store::LONGEST;
use super::super::event::Event;
use super::super::process::{Life, ProcessId};
use super::super::{World, node_name, shown};
use super::LOOK;

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
    /// Makes one clean change and holds the cluster to its bounds.
    pub fn probe(&mut self, probe: Probe) {
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
        // Another process of a victim's name would take its place at once.
        let names: Vec<&NodeName> = self
            .processes
            .iter()
            .filter(|process| process.running())
            .map(|process| &process.name)
            .collect();
        let alone = |id: &ProcessId| {
            names
                .iter()
                .filter(|name| ***name == self.processes[*id].name)
                .count()
                == 1
        };
        let ids: Vec<ProcessId> = ids.into_iter().filter(alone).collect();
        let Some(&victim) = ids.get(self.chance.index(ids.len())) else {
            return;
        };
        self.figures.probes += 1;
        self.trace(|| format!("probe {probe:?} of {}: {loads:?}", shown(victim)));
        let before = self.total_changes();
        let claims = (self.figures.claims, self.figures.claims_lost);
        let opens = self.figures.opens;
        let failed = self.calls.failed;
        self.look_on();
        let bounds = self.apply_probe(probe, victim, &ids, &loads);
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
        self.trace(|| {
            let longest = self.quiet.longest.map(|(gap, _)| gap / MILLI);
            let (most, least) = (bounds.gap / MILLI, bounds.moves);
            format!("longest gap {longest:?} of {most} ms, {moves} of {least} moves")
        });
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
            return self.fail(
                "E3",
                format!(
                    "{lost} claims were lost and {won} won after {probe:?} of {}",
                    shown(victim)
                ),
            );
        }
        // A claim that was won is opened once.
        let opens = self.figures.opens - opens;
        if opens > won {
            self.fail(
                "E5",
                format!(
                    "{opens} databases were opened and {won} claims won after {probe:?} of {}",
                    shown(victim)
                ),
            );
        }
    }

    /// How much time an outage has to leave to a lease that was due for renewal right at its beginning, so that one still comes in time.
    ///
    /// Attempts are made until the store is back. One that was sent just before that may hang for half of what was left, or an eighth of
    /// an interval, if that is more; one that failed at once is followed by the next after such an eighth. That one has to read what became
    /// of those before and to write, and is given up by the same measure. The runner hears of it a moment later.
    fn time_to_renew(&self, request: Time) -> Time {
        let least = self.setup.interval / 8;
        let renewal = 2 * request;
        // What has to be left when the last attempt begins, so that it is not given up too early.
        let last = if renewal <= least {
            renewal
        } else {
            2 * renewal
        };
        (2 * last).max(last + least) + 2 * MILLI
    }

    /// The moves that give a node its share again, once the others have taken what it had.
    fn comes_back(&self, mut rest: Vec<u64>, own: u64) -> u64 {
        match self.setup.layout {
            // They have shared it by then.
            LayoutName::Session => {
                let (total, nodes) = (rest.iter().sum::<u64>() + own, rest.len() as u64);
                let share = |rank: u64| total / nodes + u64::from(rank < total % nodes);
                rest = (0..nodes).map(share).collect();
            }
            // It is the one that is to take them, and cannot yet; so those may who lose patience, and one of them may be first with all,
            // though it has its share already. That goes back, too.
            LayoutName::Shard => {
                if let Some(most) = rest.iter_mut().max() {
                    *most += own;
                }
            }
        }
        rest.push(0);
        surplus(rest, 0)
    }

    fn apply_probe(
        &mut self,
        probe: Probe,
        victim: ProcessId,
        ids: &[ProcessId],
        loads: &BTreeMap<ProcessId, u64>,
    ) -> Bounds {
        let own = loads.get(&victim).copied().unwrap_or(0);
        let shards: u64 = loads.values().sum();
        let nodes = loads.len() as u64;
        let interval = self.setup.interval;
        let request = (LONGEST + 1) * self.setup.store_delay;
        // How long it takes one node to open so many shards more.
        let setup = self.setup.clone();
        let opens = |many: u64| setup.opens(many) + 2 * LOOK;
        let share = shards.div_ceil(nodes.max(1)) + 1;
        // Clocks run at different rates.
        let drifting = |time: Time| time + time / 50;
        let drifting_back = |time: Time| time - time / 50;
        // A look: a listing, the bodies of peers that have news, and what changed of the leases, or all of them.
        let leases = match self.setup.layout {
            LayoutName::Session => 1,
            LayoutName::Shard => 1 + shards.div_ceil(16),
        };
        let look = (2 + leases) * request;
        // A crash: the last heartbeat takes effect (1 request) and is seen by a look that begins an interval later at the most. A TTL
        // after that was answered, who saw it looks again, ends the session (a read and a write), and claims (the database's epoch and
        // a write). Where each lease expires by itself, that is only seen by a look that comes an interval later at the most.
        let late = match self.setup.layout {
            LayoutName::Session => 0,
            LayoutName::Shard => interval,
        };
        let crash =
            drifting(self.setup.ttl + interval + late) + 5 * request + 2 * look + opens(share);
        // A handover waits for nobody's round: a flush on its way and the close, the lease is freed (1 request), its successor is told,
        // reads it and claims it (2 requests, 3 if the database has to be asked), and opens it.
        let close = 2 * request + 3 * self.setup.databases.step + 50 * MILLI;
        let handover = |many: u64| close + 4 * request + 100 * MILLI + opens(many);
        // Peers see a change of a node's record in their next look.
        let seen = drifting(interval) + 2 * request + look;
        // A node that comes reads whatever has the name of a node, sixteen at a time.
        let records = self.store.list("nodes/", None, usize::MAX).0.len() as u64;
        let reading_all = records.div_ceil(16) * request;
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
                    // Two of the survivors may give a shard to each other.
                    settled: crash + seen + handover(1),
                    moves: own + surplus(rest(), own),
                    calls: false,
                }
            }
            Probe::Restart => {
                self.kill(victim, Life::Killed);
                self.start_again(victim, 100 * MILLI);
                // Where each lease expires by itself, the node that came back has not watched it for a TTL yet, though the plan is that
                // it takes it; the others wait for it before they do.
                let wait = match self.setup.layout {
                    LayoutName::Session => 0,
                    // Their patience: it has least to carry, and they come after it.
                    LayoutName::Shard => drifting(2 * interval + interval * 3 / 4) + look,
                };
                Bounds {
                    gap: crash + wait,
                    // It tries to join each interval, peers see it, and it gets its share.
                    settled: crash + wait + interval + 2 * seen + handover(share) + reading_all,
                    moves: own + surplus(rest(), own) + self.comes_back(rest(), own),
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
                self.advance(self.queue.now());
                let many = own.div_ceil(nodes - 1) + 1;
                Bounds {
                    gap: handover(many),
                    // It says that it has left.
                    settled: handover(many) + seen,
                    moves: own + surplus(rest(), own),
                    calls: true,
                }
            }
            Probe::Blip => {
                let long = drifting_back(self.setup.ttl - self.setup.margin - interval)
                    .saturating_sub(self.time_to_renew(request));
                for process in &mut self.processes {
                    process.way.outage = true;
                }
                self.queue
                    .after(long, Event::Heal(Misfortune::Outage, usize::MAX));
                self.advance(self.queue.now() + long + self.setup.interval);
                Bounds {
                    gap: 0,
                    settled: self.setup.interval,
                    moves: 0,
                    // A route may end before the store is back.
                    calls: false,
                }
            }
            Probe::Pause => {
                self.processes[victim].paused = true;
                let long =
                    self.setup.ttl + 2 * self.setup.interval + self.chance.range(0, self.setup.ttl);
                self.queue
                    .after(long, Event::Heal(Misfortune::Pause, victim));
                self.advance(self.queue.now() + long);
                Bounds {
                    gap: crash,
                    settled: crash + interval + 2 * seen + handover(share),
                    moves: own + surplus(rest(), own) + self.comes_back(rest(), own),
                    calls: false,
                }
            }
            Probe::SpoilLease => {
                // Where one page of a listing does not hold all, every sixtieth round shows it.
                let rounds = if self.store.len() > 900 { 64 } else { 2 };
                let how = *self
                    .chance
                    .pick(&[Misfortune::DeleteLease, Misfortune::CorruptLease]);
                self.befall(how, 0);
                Bounds {
                    gap: crash,
                    settled: crash + rounds * self.setup.interval,
                    moves: 1,
                    calls: false,
                }
            }
            Probe::Blind => {
                // It notices two intervals after its last good look, at its next attempt, and says so at once; its peers look once an
                // interval. That is before a crashed peer expires, or little after, so the bound of a crash holds.
                let told = drifting(3 * self.setup.interval + self.setup.interval / 2);
                let gap = crash.max(told + 6 * request) + opens(shards);
                let other = ids.iter().copied().find(|id| *id != victim);
                let mut moves = 0;
                if let Some(other) = other.filter(|_| nodes > 2) {
                    self.processes[victim].way.blind = true;
                    self.kill(other, Life::Killed);
                    self.advance(self.queue.now() + gap + self.setup.interval);
                    self.processes[victim].way.blind = false;
                    let dark = self.quiet.dark.keys().next().copied();
                    if let Some(shard) = dark {
                        let words = format!(
                            "shard {shard} is not served, because {} takes nothing",
                            shown(victim)
                        );
                        self.fail("L1", words);
                    }
                    // What the crashed one had goes to those who see, and a fair share back once the blind one does, too.
                    let see = |id: &ProcessId| *id != victim && *id != other;
                    let seeing = || loads.iter().filter(|(id, _)| see(id));
                    let orphans = loads[&other];
                    let rest: Vec<u64> = seeing().map(|(_, load)| *load).collect();
                    let (carried, many) = (shards - own, rest.len() as u64);
                    moves = orphans + surplus(rest, orphans);
                    let share = |rank: u64| carried / many + u64::from(rank < carried % many);
                    let after = (0..many).map(share).chain([own]).collect();
                    // Some of those who see hear of it a round before the others.
                    moves += surplus(after, 0) + nodes;
                }
                Bounds {
                    gap,
                    settled: 2 * seen + handover(share),
                    moves,
                    calls: false,
                }
            }
            Probe::SpoilNode => {
                let how = *self
                    .chance
                    .pick(&[Misfortune::DeleteNode, Misfortune::CorruptNode]);
                self.befall(how, 0);
                Bounds {
                    gap: crash,
                    settled: 2 * crash + 4 * interval + handover(share),
                    moves: own.max(shards.div_ceil(nodes)) * 2 + nodes,
                    calls: false,
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
                    gap: handover(share),
                    // It joins (a read and a write), peers see it, and it gets its share.
                    settled: 2 * request + seen + handover(share) + reading_all,
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
                let changes = self.facts.shards[shard as usize].changes;
                let end = self.queue.now() + handover(1);
                self.advance(end);
                let there = self.facts.shards[shard as usize].changes > changes;
                if !there && self.violation.is_none() {
                    self.fail(
                        "move",
                        format!("shard {shard} is not on {to} after it was moved there"),
                    );
                }
                Bounds {
                    gap: handover(1),
                    // Another one comes back for it.
                    settled: seen + handover(1),
                    moves: 2,
                    calls: true,
                }
            }
        }
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

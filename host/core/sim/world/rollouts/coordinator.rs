//! A node that carries a rollout on: it asks every node that lives, and writes what the core says. Any node can; the first by name does,
//! and the next ones once the record has stood still for a while.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use quarry_core::deploy::{Check, Phase, RolloutRecord, Sample, Seen, ShardSeen, advance};
use quarry_core::lease::record::{NodeName, NodeState};
use quarry_core::rules::Mutation;
use quarry_core::time::Moment;

use super::super::super::queue::{MILLI, SECOND, Time};
use super::super::World;
use super::super::process::{ProcessId, Stage};
use super::{Who, Work};

/// The pause between two looks at a rollout.
const STEP: Time = 500 * MILLI;
/// How long the record stands still before the next node by name looks, too, and between its looks.
const STILL: Duration = Duration::from_secs(5);
/// How long a node may take to say how far it is.
pub const ANSWER: Time = 2 * SECOND;

/// What a node says of a rollout.
#[derive(Debug, Clone)]
pub struct Said {
    /// The version of the record that it follows.
    pub counter: u64,
    pub check: Check,
    /// Its shards, with the generation of each.
    pub shards: Vec<(u32, u64, ShardSeen)>,
    pub samples: BTreeMap<u64, Sample>,
}

/// A look at a rollout: who was asked, and what they said.
#[derive(Debug)]
pub struct Round {
    pub id: u64,
    pub begun: Time,
    tag: u64,
    record: RolloutRecord,
    asked: BTreeMap<NodeName, Option<ProcessId>>,
    said: BTreeMap<NodeName, Said>,
}

/// What a step rests on.
#[derive(Debug, Clone)]
pub struct Rests {
    pub by: ProcessId,
    /// When the look began.
    pub begun: Time,
    /// Who was asked.
    pub asked: BTreeSet<ProcessId>,
}

impl World {
    /// Looks at the rollout after a while, if there is one and no look is due sooner.
    pub(super) fn look_soon(&mut self, process: ProcessId, delay: Time) {
        let at = self.queue.now() + delay;
        let adopter = &mut self.processes[process].adopter;
        let active = adopter
            .record()
            .is_some_and(|record| record.active.is_some());
        if active && adopter.look_at.is_none_or(|look| look > at) {
            adopter.look_at = Some(at);
            self.rollout_after(Some(process), delay, Work::Look);
        }
    }

    pub(super) fn look_at_rollout(&mut self, process: ProcessId) {
        let world = self.queue.now();
        let adopter = &mut self.processes[process].adopter;
        if adopter.look_at.is_some_and(|at| at > world) {
            return;
        }
        adopter.look_at = None;
        self.look_soon(process, STEP);
        let now = self.local(process);
        let adopter = &self.processes[process].adopter;
        let Some((tag, record)) = adopter.followed.clone() else {
            return;
        };
        let Some(active) = record.active.as_ref() else {
            return;
        };
        if adopter.round.is_some() || adopter.writing.is_some() {
            return;
        }
        let alive = self.alive(process);
        let Some(rank) = alive
            .keys()
            .position(|name| *name == self.processes[process].name)
        else {
            return;
        };
        let adopter = &self.processes[process].adopter;
        let stood = now.since(adopter.since) >= STILL * u32::try_from(rank.min(6)).unwrap_or(6);
        let looked = adopter
            .looked
            .filter(|(counter, _)| *counter == record.counter);
        let again = looked.is_none_or(|(_, at)| rank == 0 || now.since(at) >= STILL);
        if !stood || !again {
            return;
        }
        let id = self.rollouts.id();
        let target = active.target;
        self.processes[process].adopter.looked = Some((record.counter, now));
        self.processes[process].adopter.round = Some(Round {
            id,
            begun: world,
            tag,
            record,
            asked: alive.clone(),
            said: BTreeMap::new(),
        });
        self.rollout_after(Some(process), ANSWER, Work::RoundEnds(id));
        for to in alive.into_values().flatten() {
            if to == process {
                let said = self.says(process, target);
                self.told(process, process, id, said);
            } else {
                let ask = Work::Ask {
                    from: process,
                    round: id,
                    target,
                };
                self.send_rollout(process, to, ask);
            }
        }
    }

    /// The nodes that live, as a node knows, this one among them once it has joined.
    fn alive(&self, process: ProcessId) -> BTreeMap<NodeName, Option<ProcessId>> {
        let now = self.local(process);
        let nodes = self.processes[process].control.nodes(now);
        nodes
            .into_iter()
            .filter(|node| {
                let state = node.record.info.state;
                node.alive && matches!(state, NodeState::Live | NodeState::Draining)
            })
            .map(|node| {
                let to = self.resolve(&node.record.info.advertise);
                (node.record.info.name, to)
            })
            .collect()
    }

    fn send_rollout(&mut self, from: ProcessId, to: ProcessId, work: Work) {
        if self.processes[from].cut || self.processes[to].cut {
            return;
        }
        let usual = self.setup.peer_delay;
        let delay = usual / 2 + self.rollouts.rng.exponential(usual / 2);
        self.rollout_after(Some(to), delay, work);
    }

    pub(super) fn tell_of_record(&mut self, process: ProcessId, counter: u64) {
        for to in self.alive(process).into_values().flatten() {
            if to != process {
                self.send_rollout(process, to, Work::Notice(counter));
            }
        }
    }

    pub(super) fn asked(&mut self, process: ProcessId, from: ProcessId, round: u64, target: u64) {
        let said = self.says(process, target);
        let said = Work::Said {
            from: process,
            round,
            said,
        };
        self.send_rollout(process, from, said);
    }

    /// What a node says of itself.
    fn says(&self, process: ProcessId, target: u64) -> Said {
        let node = &self.processes[process];
        let adopter = &node.adopter;
        let number = adopter.record().map_or(0, |record| record.number);
        let now = self.queue.now();
        let does = |shard: u32| {
            let site = &node.sites[&shard];
            let wanted = adopter
                .record()
                .map_or(0, |record| record.revision_of(shard, self.setup.shards));
            let runs = adopter
                .runs
                .get(&shard)
                .filter(|runs| runs.handle == site.handle && node.gate(shard, now));
            let runs = runs
                .filter(|_| site.stage == Stage::Open)
                .map(|runs| runs.revision);
            let failed = adopter
                .failed
                .get(&shard)
                .filter(|failed| (failed.number, failed.revision) == (number, wanted));
            let swaps =
                adopter.swapping.contains_key(&shard) && !self.rules.broken(Mutation::HideSwap);
            match (runs, failed) {
                // It runs what it ran, and will run what was wanted when it began.
                _ if swaps => ShardSeen::Silent,
                (Some(runs), _) if runs == wanted => ShardSeen::Runs(runs),
                (_, Some(failed)) => ShardSeen::Failed {
                    revision: failed.revision,
                    why: "it did not start".into(),
                },
                (Some(runs), None) => ShardSeen::Runs(runs),
                // It opens or closes.
                (None, None) => ShardSeen::Silent,
            }
        };
        Said {
            counter: adopter.counter(),
            check: adopter.ready.get(&target).cloned().unwrap_or(Check::Busy),
            shards: node
                .sites
                .iter()
                .map(|(shard, site)| (*shard, site.generation, does(*shard)))
                .collect(),
            samples: adopter.samples.clone(),
        }
    }

    pub(super) fn told(&mut self, process: ProcessId, from: ProcessId, round: u64, said: Said) {
        let name = self.processes[from].name.clone();
        let Some(open) = self.processes[process]
            .adopter
            .round
            .as_mut()
            .filter(|open| open.id == round)
        else {
            return;
        };
        if open.asked.get(&name) == Some(&Some(from)) {
            open.said.insert(name, said);
        }
        if open.said.len() == open.asked.len() {
            self.conclude(process, round);
        }
    }

    /// All have answered, or had the time to.
    pub(super) fn conclude(&mut self, process: ProcessId, round: u64) {
        let adopter = &mut self.processes[process].adopter;
        if adopter.round.as_ref().is_none_or(|open| open.id != round) {
            return;
        }
        let Some(round) = adopter.round.take() else {
            return;
        };
        // Another version was read meanwhile: what was asked is of no use.
        if adopter.counter() != round.record.counter || adopter.writing.is_some() {
            return;
        }
        let since = adopter.since;
        let seen = self.seen(process, &round);
        let waited = if self.rules.broken(Mutation::NeverLate) {
            Duration::ZERO
        } else {
            self.local(process).since(since)
        };
        if let Some(next) = advance(&round.record, &seen, waited) {
            let before = Some((round.tag, &round.record));
            let rests = Rests {
                by: process,
                begun: round.begun,
                asked: round.asked.values().flatten().copied().collect(),
            };
            let id = self.write_record(Who::Node(process), before, next, Some(rests));
            self.processes[process].adopter.writing = Some(id);
        }
    }

    /// What was said, for the core.
    fn seen(&self, process: ProcessId, round: &Round) -> Seen {
        let record = &round.record;
        let current = |said: &Said| {
            said.counter >= record.counter || self.rules.broken(Mutation::BelieveStale)
        };
        let gone = self.rules.broken(Mutation::SilentIsGone);
        let asked = round.asked.keys();
        let counted = asked.filter(|name| !gone || round.said.contains_key(*name));
        let nodes = counted.map(|name| {
            let check = match round.said.get(name) {
                Some(said) if current(said) => match &said.check {
                    Check::Busy if self.rules.broken(Mutation::RollUnchecked) => Check::Fine,
                    check => check.clone(),
                },
                Some(_) => Check::Busy,
                None => Check::Silent,
            };
            (name.clone(), check)
        });
        let routes = &self.processes[process].routes;
        let mut shards: Vec<(u64, ShardSeen)> = Vec::new();
        for shard in 0..self.setup.shards as usize {
            let owner = routes.shards.get(shard).and_then(Option::as_ref);
            let silent = owner.is_some_and(|route| {
                round.asked.contains_key(&route.owner)
                    && round
                        .said
                        .get(&route.owner)
                        .is_none_or(|said| !current(said))
            });
            let silent = silent && !gone;
            let unknown = if silent {
                ShardSeen::Silent
            } else {
                ShardSeen::Unowned
            };
            shards.push((0, unknown));
        }
        for said in round.said.values() {
            for (shard, generation, state) in &said.shards {
                let place = &mut shards[*shard as usize];
                let state = if current(said) {
                    state.clone()
                } else {
                    ShardSeen::Silent
                };
                let first = !matches!(place.1, ShardSeen::Runs(_));
                if *generation > place.0 || (*generation == place.0 && first) {
                    *place = (*generation, state);
                }
            }
        }
        let target = record.active.as_ref().map_or(0, |active| active.target);
        let sum = |revision: u64| {
            let mut sum = Sample::default();
            for sample in round
                .said
                .values()
                .filter_map(|said| said.samples.get(&revision))
            {
                sum.calls += sample.calls;
                sum.errors += sample.errors;
                sum.traps += sample.traps;
            }
            sum
        };
        Seen {
            nodes: nodes.collect(),
            shards: shards.into_iter().map(|(_, seen)| seen).collect(),
            old: sum(record.stable),
            new: sum(target),
            allowed: std::time::Duration::ZERO,
        }
    }

    /// Whether a node waits with a rollout in its hands.
    pub(super) fn rollout_phase(&self) -> Option<Phase> {
        let record = self.standing_record()?;
        record.active.map(|active| active.phase)
    }

    /// How long a node's reading of the record is behind at the most, in a quiet world.
    pub(super) fn hears(&self) -> Time {
        self.setup.deploys.poll + 2 * SECOND + 20 * self.setup.store_delay
    }

    pub(super) fn moment(&self, process: ProcessId) -> Moment {
        self.local(process)
    }
}

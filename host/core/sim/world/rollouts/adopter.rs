//! A node that follows the record, and has its shards run what it says.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use quarry_core::deploy::{Check, Phase, RolloutRecord, Sample};
use quarry_core::rules::Mutation;
use quarry_core::time::Moment;

use super::super::super::queue::{SECOND, Time};
use super::super::World;
use super::super::process::ProcessId;
use super::coordinator::Round;
use super::{Who, Work};

/// How often the record is read while a rollout is in progress.
const ACTIVE_POLL: Time = SECOND;
/// How long after a revision could not be fetched it is tried again.
const FETCH_AGAIN: Time = 2 * SECOND;
/// The longest pause before a swap that failed is tried again.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What a node has of rollouts.
#[derive(Debug, Default)]
pub struct Adopter {
    /// The record as it was last read, and its tag; none before the first, or where there is none.
    pub followed: Option<(u64, RolloutRecord)>,
    /// When that version was first read, by this node's clock.
    pub since: Moment,
    pub reading: Option<u64>,
    pub writing: Option<u64>,
    /// When it reads the record next, looks at its shards, looks at the rollout.
    poll_at: Option<Time>,
    adopt_at: Option<Time>,
    pub look_at: Option<Time>,
    /// The revisions that it fetched: what it says of them.
    pub ready: BTreeMap<u64, Check>,
    /// What each shard runs, by the handle of its database.
    pub runs: BTreeMap<u32, Runs>,
    pub swapping: BTreeMap<u32, Runs>,
    pub failed: BTreeMap<u32, Failed>,
    /// What calls came to, by revision, since this rollout began.
    pub samples: BTreeMap<u64, Sample>,
    pub round: Option<Round>,
    /// The version that it looked at last, and when.
    pub looked: Option<(u64, Moment)>,
}

/// A revision on a shard, or on its way there.
#[derive(Debug, Clone, Copy)]
pub struct Runs {
    pub handle: u64,
    pub revision: u64,
    /// Since when.
    pub since: Time,
}

/// A shard that did not take a revision.
#[derive(Debug, Clone, Copy)]
pub struct Failed {
    pub number: u64,
    pub revision: u64,
    tries: u32,
    again: Moment,
}

impl Adopter {
    pub fn record(&self) -> Option<&RolloutRecord> {
        self.followed.as_ref().map(|(_, record)| record)
    }

    pub fn counter(&self) -> u64 {
        self.record().map_or(0, |record| record.counter)
    }

    /// Whether a revision can be run here; what there is before anything was deployed always can.
    fn is_fine(&self, revision: u64) -> bool {
        revision == 0 || self.ready.get(&revision) == Some(&Check::Fine)
    }
}

impl World {
    /// A node begins to follow the record.
    pub(in super::super) fn begin_rollouts(&mut self, process: ProcessId) {
        if self.setup.deploys.on {
            self.poll_record(process);
        }
    }

    pub(super) fn poll_after(&mut self, process: ProcessId, delay: Time) {
        let at = self.queue.now() + delay;
        let adopter = &mut self.processes[process].adopter;
        if adopter.poll_at.is_none_or(|poll| poll > at) {
            adopter.poll_at = Some(at);
            self.rollout_after(Some(process), delay, Work::Poll);
        }
    }

    pub(super) fn poll_record(&mut self, process: ProcessId) {
        let now = self.queue.now();
        let adopter = &mut self.processes[process].adopter;
        if adopter.poll_at.is_some_and(|at| at > now) && adopter.reading.is_some() {
            return;
        }
        adopter.poll_at = None;
        if adopter.reading.is_none() {
            let id = self.read_record(Who::Node(process));
            self.processes[process].adopter.reading = Some(id);
        }
    }

    pub(super) fn noticed_record(&mut self, process: ProcessId, counter: u64) {
        if self.processes[process].adopter.counter() < counter {
            self.poll_record(process);
        }
    }

    /// Takes up the record as it was read.
    pub(super) fn follow(&mut self, process: ProcessId, found: Option<(u64, RolloutRecord)>) {
        let now = self.local(process);
        let old_wins = self.rules.broken(Mutation::OldRecordWins);
        let adopter = &mut self.processes[process].adopter;
        if found.is_none() && adopter.followed.is_none() {
            adopter.followed = Some((0, RolloutRecord::fresh()));
        }
        if let Some((tag, record)) = found
            && (record.counter > adopter.counter()
                || (old_wins && record.counter != adopter.counter()))
        {
            let before = adopter.counter();
            if adopter.record().map(|record| record.number) != Some(record.number) {
                adopter.samples.clear();
                if let Some(active) = &record.active {
                    // Another rollout asks again.
                    adopter.ready.retain(|revision, check| {
                        *revision != active.target || *check == Check::Fine
                    });
                }
            }
            adopter.since = now;
            adopter.followed = Some((tag, record));
            self.check_follows(process, before);
            self.fetch(process);
            self.look_soon(process, 0);
        }
        let active = self.processes[process]
            .adopter
            .record()
            .is_some_and(|record| record.active.is_some());
        let pause = if active {
            ACTIVE_POLL
        } else {
            self.setup.deploys.poll
        };
        self.poll_after(process, pause);
        self.adopt(process);
    }

    /// Fetches and compiles what the record names.
    fn fetch(&mut self, process: ProcessId) {
        let adopter = &mut self.processes[process].adopter;
        let Some(record) = adopter.record() else {
            return;
        };
        let target = record.active.as_ref().map(|active| active.target);
        let wanted: BTreeSet<u64> = [Some(record.stable), Some(record.previous), target]
            .into_iter()
            .flatten()
            .filter(|revision| *revision != 0)
            .collect();
        // What is stable runs here somehow: a node that finds out only then that it cannot takes no shards, which is not modelled.
        let stable = record.stable;
        adopter.ready.retain(|revision, check| {
            let refused = matches!(check, Check::Refused(_));
            wanted.contains(revision) && !(*revision == stable && refused)
        });
        for revision in wanted {
            if !self.processes[process]
                .adopter
                .ready
                .contains_key(&revision)
            {
                let usual = self.setup.deploys.compile;
                let delay = usual / 2 + self.rollouts.rng.exponential(usual / 2);
                let ready = &mut self.processes[process].adopter.ready;
                ready.insert(revision, Check::Busy);
                self.rollout_after(Some(process), delay, Work::Loaded(revision));
            }
        }
    }

    pub(super) fn loaded(&mut self, process: ProcessId, revision: u64) {
        let way = self.processes[process].way;
        let refused = self.setup.deploys.guest(revision).refused;
        let adopter = &mut self.processes[process].adopter;
        if adopter.ready.get(&revision) != Some(&Check::Busy) {
            return;
        }
        if way.cut || way.deaf || way.outage || way.blind {
            return self.rollout_after(Some(process), FETCH_AGAIN, Work::Loaded(revision));
        }
        let stable = adopter.record().map_or(0, |record| record.stable);
        let refuses = refused > 0 && (process as u64).is_multiple_of(refused);
        let check = if refuses && revision != stable {
            Check::Refused("it imports what there is not".into())
        } else {
            Check::Fine
        };
        adopter.ready.insert(revision, check);
        self.adopt(process);
    }

    /// Whether a revision starts on a shard.
    fn starts(&mut self, shard: u32, revision: u64) -> bool {
        if revision == 0 {
            return true;
        }
        let guest = self.setup.deploys.guest(revision);
        let by_chance = self.hostile && self.rollouts.rng.chance(guest.fails);
        guest.fails_on != Some(shard) && !by_chance
    }

    /// A shard was opened here: it begins with what it is to run, or else with what it would run if there were no rollout.
    pub(in super::super) fn shard_opened(&mut self, process: ProcessId, shard: u32) {
        if !self.setup.deploys.on {
            return;
        }
        let Some(handle) = self.processes[process]
            .sites
            .get(&shard)
            .map(|site| site.handle)
        else {
            return;
        };
        let shards = self.setup.shards;
        let adopter = &mut self.processes[process].adopter;
        adopter.swapping.remove(&shard);
        adopter.runs.remove(&shard);
        let Some(record) = adopter.record().cloned() else {
            return;
        };
        let first = record.revision_of(shard, shards);
        let blamed = adopter
            .failed
            .get(&shard)
            .is_some_and(|failed| (failed.number, failed.revision) == (record.number, first));
        for revision in [first, record.stable] {
            let blamed = revision == first && first != record.stable && blamed;
            if blamed || !self.processes[process].adopter.is_fine(revision) {
                continue;
            }
            self.check_begins(process, shard, revision);
            if self.starts(shard, revision) {
                let since = self.queue.now();
                let runs = Runs {
                    handle,
                    revision,
                    since,
                };
                self.processes[process].adopter.runs.insert(shard, runs);
                break;
            }
            self.note_failure(process, shard, revision);
        }
        self.adopt(process);
    }

    fn note_failure(&mut self, process: ProcessId, shard: u32, revision: u64) {
        let now = self.local(process);
        let adopter = &mut self.processes[process].adopter;
        let number = adopter.record().map_or(0, |record| record.number);
        let before = adopter
            .failed
            .get(&shard)
            .filter(|failed| failed.revision == revision);
        let tries = before.map_or(0, |failed| failed.tries) + 1;
        let pause = Duration::from_secs(1 << (tries - 1).min(6)).min(LONGEST_PAUSE);
        let failed = Failed {
            number,
            revision,
            tries,
            again: now + pause,
        };
        adopter.failed.insert(shard, failed);
    }

    /// What a shard of a node is to run, as far as that node knows.
    fn wanted(&self, process: ProcessId, shard: u32) -> u64 {
        let Some(record) = self.processes[process].adopter.record() else {
            return 0;
        };
        match &record.active {
            Some(active) if self.rules.broken(Mutation::AdoptUnasked) => active.target,
            Some(active)
                if self.rules.broken(Mutation::NeverGoBack) && active.phase == Phase::Back =>
            {
                active.target
            }
            _ => record.revision_of(shard, self.setup.shards),
        }
    }

    /// Begins the swaps that are to be made now.
    pub(super) fn adopt(&mut self, process: ProcessId) {
        let world = self.queue.now();
        let now = self.local(process);
        let target = &mut self.processes[process];
        target.adopter.adopt_at = None;
        let sites = &target.sites;
        let here = |shard: &u32, runs: &Runs| {
            sites
                .get(shard)
                .is_some_and(|site| site.handle == runs.handle)
        };
        target.adopter.runs.retain(|shard, runs| here(shard, runs));
        target
            .adopter
            .swapping
            .retain(|shard, runs| here(shard, runs));
        let Some(record) = target.adopter.record().cloned() else {
            return;
        };
        let open: Vec<(u32, u64)> = target
            .sites
            .iter()
            .filter(|(_, site)| site.takes())
            .map(|(shard, site)| (*shard, site.handle))
            .collect();
        let mut soonest: Option<Moment> = None;
        for (shard, handle) in open {
            let revision = self.wanted(process, shard);
            let adopter = &mut self.processes[process].adopter;
            let runs = adopter.runs.get(&shard).map(|runs| runs.revision);
            if runs == Some(revision) {
                adopter.failed.remove(&shard);
                continue;
            }
            if !adopter.is_fine(revision)
                || adopter.swapping.contains_key(&shard)
                || adopter.swapping.len() >= self.setup.deploys.at_once
            {
                continue;
            }
            let forth = record
                .active
                .as_ref()
                .is_some_and(|active| active.target == revision && active.phase != Phase::Back);
            let before = adopter
                .failed
                .get(&shard)
                .filter(|failed| failed.revision == revision);
            if let Some(failed) = before {
                // A rollout that goes forth tries each shard once.
                if forth && failed.number == record.number {
                    continue;
                }
                if !forth && now < failed.again {
                    soonest = Some(soonest.map_or(failed.again, |at| at.min(failed.again)));
                    continue;
                }
            }
            self.check_begins(process, shard, revision);
            let usual = self.setup.deploys.swap;
            let delay = usual / 2 + self.rollouts.rng.exponential(usual);
            self.processes[process].adopter.swapping.insert(
                shard,
                Runs {
                    handle,
                    revision,
                    since: world,
                },
            );
            self.rollout_after(Some(process), delay, Work::Swapped(shard, handle));
        }
        if let Some(at) = soonest {
            let delay = self.world_time(process, at).saturating_sub(world);
            let adopter = &mut self.processes[process].adopter;
            if adopter.adopt_at.is_none_or(|next| next > world + delay) {
                adopter.adopt_at = Some(world + delay);
                self.rollout_after(Some(process), delay, Work::Adopt);
            }
        }
    }

    pub(super) fn swapped(&mut self, process: ProcessId, shard: u32, handle: u64) {
        let target = &mut self.processes[process];
        let Some(swap) = target
            .adopter
            .swapping
            .get(&shard)
            .copied()
            .filter(|swap| swap.handle == handle)
        else {
            return;
        };
        target.adopter.swapping.remove(&shard);
        let here = target
            .sites
            .get(&shard)
            .is_some_and(|site| site.handle == handle && site.takes());
        if here {
            self.figures.swaps += 1;
            if self.starts(shard, swap.revision) {
                let since = self.queue.now();
                let adopter = &mut self.processes[process].adopter;
                adopter.runs.insert(shard, Runs { since, ..swap });
                adopter.failed.remove(&shard);
            } else {
                self.note_failure(process, shard, swap.revision);
            }
        }
        self.adopt(process);
    }

    /// A call runs: it may come to an error or a trap, which is all that rollouts know of it.
    pub(in super::super) fn sample_call(&mut self, process: ProcessId, shard: u32) {
        let Some(revision) = self.processes[process]
            .adopter
            .runs
            .get(&shard)
            .map(|runs| runs.revision)
        else {
            return;
        };
        let guest = self.setup.deploys.guest(revision);
        let rng = &mut self.rollouts.rng;
        let (error, trap) = (rng.chance(guest.errors), rng.chance(guest.traps));
        let sample = self.processes[process]
            .adopter
            .samples
            .entry(revision)
            .or_default();
        sample.calls += 1;
        sample.errors += u64::from(error);
        sample.traps += u64::from(trap);
    }
}

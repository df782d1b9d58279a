//! The oracles of rollouts: they know every version of the record that ever stood, and what each shard runs.
//!
//! - `R1`: each version follows from the one before, as one step or one command, and is written over none but that one.
//! - `R2`: a shard begins to run what the record that its node follows says, nothing that no version ever said; a node follows no version
//!   that is older than what it followed.
//! - `R3`: what a version says of nodes and shards was so when it was looked at: all who were asked could run the target before any shard
//!   was to; who adopted it runs it; nobody runs what was rolled back.
//! - `R4`: in a quiet world a rollout ends in a bounded time, and then every shard runs what the record says.
//! - `R5`: who ordered a rollout is told what became of it: how it ended, that another one came after it, or why it was refused.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use quarry_core::deploy::{
    Active, Check, Command, Outcome, Phase, Plan, ROLLOUT, Refused, RolloutRecord,
};

use super::super::super::queue::{MILLI, SECOND, Time};
use super::super::World;
use super::super::process::{Life, ProcessId};
use super::coordinator::{ANSWER, Rests};
use super::operators::Told;
use super::{Write, decoded};

/// What is true of the record.
#[derive(Debug, Default)]
pub struct Chronicle {
    /// How many versions there were.
    versions: u64,
    /// What some version said that a shard is to run.
    said: BTreeSet<(u32, u64)>,
    rollouts: BTreeMap<u64, Rollout>,
    /// The latest moment at which a write that nobody waits for any more lands.
    pub aftermath: Time,
}

/// A rollout as it was.
#[derive(Debug)]
struct Rollout {
    by: String,
    outcome: Option<Outcome>,
}

impl World {
    /// The record as it stands in the store.
    pub(super) fn standing_record(&self) -> Option<RolloutRecord> {
        self.store.get(ROLLOUT).map(|object| decoded(&object.body))
    }

    /// A version of the record came to stand.
    pub(super) fn record_written(&mut self, before: Option<RolloutRecord>, write: &Write) {
        let before = before.unwrap_or_else(RolloutRecord::fresh);
        let record = &write.record;
        self.trace(|| format!("rollout record: {record:?}"));
        if let Some(wrong) = follows_wrongly(&before, record) {
            return self.fail("R1", format!("{wrong}: {record:?} over {before:?}"));
        }
        self.rollouts.chronicle.versions += 1;
        for shard in 0..self.setup.shards {
            let revision = record.revision_of(shard, self.setup.shards);
            self.rollouts.chronicle.said.insert((shard, revision));
        }
        if let (Some(active), true) = (&record.active, record.number > before.number) {
            let rollout = Rollout {
                by: active.by.clone(),
                outcome: None,
            };
            self.rollouts
                .chronicle
                .rollouts
                .insert(record.number, rollout);
            self.figures.rollouts += 1;
        }
        if let (Some(_), Some(_), Some(last)) = (&before.active, &record.active, &record.last)
            && record.number > before.number
        {
            if let Some(rollout) = self.rollouts.chronicle.rollouts.get_mut(&before.number) {
                rollout.outcome = Some(last.outcome);
            }
            self.figures.rolled_back += 1;
        }
        if let (Some(active), None, Some(last)) = (&before.active, &record.active, &record.last) {
            if let Some(rollout) = self.rollouts.chronicle.rollouts.get_mut(&record.number) {
                rollout.outcome = Some(last.outcome);
            }
            match last.outcome {
                Outcome::Adopted => self.figures.adopted += 1,
                Outcome::Refused | Outcome::RolledBack | Outcome::Superseded => {
                    self.figures.rolled_back += 1;
                }
            }
            if let Some(rests) = &write.rests {
                self.check_ended(active, last.outcome, before.counter, rests);
            }
        }
        let checked = |record: &RolloutRecord| {
            record
                .active
                .as_ref()
                .is_some_and(|active| active.phase == Phase::Rolling)
        };
        let was_checking = before
            .active
            .as_ref()
            .is_some_and(|active| active.phase == Phase::Checking);
        if was_checking
            && checked(record)
            && let Some(rests) = &write.rests
        {
            self.check_checked(record, rests);
        }
    }

    /// All who were asked can run the target.
    fn check_checked(&mut self, record: &RolloutRecord, rests: &Rests) {
        let target = record.active.as_ref().map_or(0, |active| active.target);
        let lacks = rests.asked.iter().find(|process| {
            let node = &self.processes[**process];
            node.running() && node.adopter.ready.get(&target) != Some(&Check::Fine)
        });
        if let Some(process) = lacks.copied() {
            let ready = self.processes[process].adopter.ready.get(&target).cloned();
            self.fail(
                "R3",
                format!("revision {target} rolls, and p{process} said {ready:?} of it"),
            );
        }
    }

    /// A rollout ended. What begins while somebody looks, or where nobody knew of it, is set right later.
    fn check_ended(&mut self, active: &Active, outcome: Outcome, version: u64, rests: &Rests) {
        let now = self.queue.now();
        for process in 0..self.processes.len() {
            let node = &self.processes[process];
            if !rests.asked.contains(&process) || !node.running() {
                continue;
            }
            // Who has not heard that the rollout goes back goes on with it.
            let unheard = active.phase == Phase::Back && node.adopter.counter() < version;
            let wrong = node.sites.iter().find_map(|(shard, site)| {
                let serves = site.takes() && node.gate(*shard, now);
                let old = |runs: &&super::adopter::Runs| {
                    runs.handle == site.handle && runs.since < rests.begun
                };
                let runs = node.adopter.runs.get(shard).filter(old);
                let swaps = node.adopter.swapping.get(shard).filter(old);
                let target = |runs: &super::adopter::Runs| runs.revision == active.target;
                let wrong = match outcome {
                    Outcome::Adopted => runs.is_some_and(|runs| !target(runs)),
                    // No shard is touched before every node has said that it can run the target.
                    Outcome::Refused | Outcome::RolledBack | Outcome::Superseded => {
                        runs.is_some_and(target)
                            || swaps.is_some_and(target)
                            || (unheard && runs.is_some())
                    }
                };
                (serves && wrong).then_some((*shard, runs.copied(), swaps.copied()))
            });
            if let Some((shard, runs, swaps)) = wrong {
                let target = active.target;
                return self.fail(
                    "R3",
                    format!(
                        "revision {target} ended as {outcome:?} by p{}, while shard {shard} on p{process} runs {runs:?} and swaps to {swaps:?}",
                        rests.by
                    ),
                );
            }
        }
    }

    /// A node follows another version.
    pub(super) fn check_follows(&mut self, process: ProcessId, before: u64) {
        let counter = self.processes[process].adopter.counter();
        if counter < before {
            self.fail(
                "R2",
                format!("p{process} follows version {counter} of the record after {before}"),
            );
        }
    }

    /// A shard begins to run a revision, or to swap to it.
    pub(super) fn check_begins(&mut self, process: ProcessId, shard: u32, revision: u64) {
        let record = self.processes[process].adopter.record();
        let permits = record.is_some_and(|record| {
            record.stable == revision || record.revision_of(shard, self.setup.shards) == revision
        });
        let said = &self.rollouts.chronicle.said;
        // What there is before anything was deployed nobody has to say.
        let said = revision == 0 || said.contains(&(shard, revision));
        if !permits || !said {
            let record = format!("{record:?}");
            self.fail(
                "R2",
                format!(
                    "shard {shard} on p{process} begins revision {revision}, and follows {record}"
                ),
            );
        }
    }

    /// An operator takes a rollout for its own.
    pub(super) fn check_won(&mut self, operator: usize, number: u64) {
        let by = self.operator_name(operator).to_owned();
        let rollout = self.rollouts.chronicle.rollouts.get(&number);
        if rollout.is_none_or(|rollout| rollout.by != by) {
            self.fail(
                "R5",
                format!("{by} takes rollout {number} for its own: {rollout:?}"),
            );
        }
    }

    /// An operator is told what became of its order.
    pub(super) fn check_told(&mut self, operator: usize, told: &Told) {
        let record = self.standing_record().unwrap_or_else(RolloutRecord::fresh);
        let rollouts = &self.rollouts.chronicle.rollouts;
        let right = match told {
            Told::Ended(number, outcome) => rollouts
                .get(number)
                .is_some_and(|rollout| rollout.outcome == Some(*outcome)),
            Told::Superseded(number) => record.number > *number,
            Told::Refused(Refused::Busy { number, .. }) => rollouts.contains_key(number),
            Told::Refused(_) | Told::Done => true,
            Told::Unknown => self.may_doubt(operator),
        };
        if !right {
            self.fail(
                "R5",
                format!("o{operator} is told {told:?}, and {record:?} stands"),
            );
        }
    }

    /// Whether nothing is left to do of rollouts.
    fn rollouts_settled(&self) -> Result<(), String> {
        let Some(record) = self.standing_record() else {
            return Err("nothing was ever deployed".into());
        };
        if let Some(active) = &record.active {
            return Err(format!("rollout {} is {:?}", record.number, active));
        }
        let now = self.queue.now();
        for shard in 0..self.setup.shards {
            let wanted = record.revision_of(shard, self.setup.shards);
            let runs: Vec<(ProcessId, Option<u64>)> = self
                .processes
                .iter()
                .filter(|process| process.gate(shard, now))
                .map(|process| {
                    let runs = process.adopter.runs.get(&shard);
                    (process.id, runs.map(|runs| runs.revision))
                })
                .collect();
            if !matches!(runs[..], [(_, Some(revision))] if revision == wanted) {
                return Err(format!(
                    "shard {shard} is to run {wanted}, and the nodes that serve it run {runs:?}"
                ));
            }
        }
        let waits = self
            .rollouts
            .operators
            .iter()
            .position(|operator| !operator.over);
        waits.map_or(Ok(()), |operator| Err(format!("o{operator} still waits")))
    }

    /// How long a rollout may take from any state of it, once all is quiet and no operator has to be waited for.
    ///
    /// Each step waits for its time to run out at the most, from when its version was read; one who coordinates looks a moment later, and
    /// asks, and writes. A plan has four waves at the most, after the check; going back is a step that has no end of its own, and lasts
    /// until each node has heard of it, fetched what was stable, and has swapped its shards back, which one that failed tries again
    /// within a minute.
    fn rollout_bound(&self) -> Time {
        let deploys = &self.setup.deploys;
        let write = 12 * self.setup.store_delay + 100 * MILLI;
        let look = 5 * SECOND + ANSWER + SECOND;
        let step = self.hears() + deploys.step_timeout.max(deploys.bake) + look + write;
        let shards = u64::from(self.setup.shards).div_ceil(deploys.at_once as u64);
        let fetch = 12 * deploys.compile + 4 * SECOND;
        let back = self.hears() + fetch + 8 * shards * deploys.swap + 60 * SECOND + look + write;
        // Whoever waits for it looks now and then.
        5 * step + back + 4 * SECOND
    }

    fn settle_rollouts(&mut self, bound: Time, when: &str) {
        let begun = self.queue.now();
        while self.violation.is_none() {
            let now = self.queue.now();
            match self.rollouts_settled() {
                Ok(()) => {
                    let passed = Duration::from_nanos(now - begun);
                    return self.trace(|| format!("rollouts settled {passed:?} {when}"));
                }
                Err(why) if now - begun > bound => {
                    let passed = Duration::from_nanos(now - begun);
                    return self.fail("R4", format!("not settled {passed:?} {when}: {why}"));
                }
                Err(_) => self.advance(now + 250 * MILLI),
            }
        }
    }

    /// After all else: what is in progress ends, and one more deployment does, though the node that coordinates it dies, if another stays.
    pub(in super::super) fn run_rollouts(&mut self) {
        if !self.setup.deploys.on || self.violation.is_some() {
            return;
        }
        let end = self.rollouts.chronicle.aftermath;
        self.advance(end);
        // What waits for an operator has one.
        let bound = self.rollout_bound();
        for order in [Command::Resume, Command::Promote] {
            self.command_rollout(order);
            self.advance(self.queue.now() + SECOND);
        }
        self.promote_what_is_held(bound);
        self.settle_rollouts(bound, "after all faults had ended");
        let Some(record) = self.standing_record() else {
            return;
        };
        // One of two that are good is not what runs now.
        let target = if record.stable == 1 { 2 } else { 1 };
        self.deploy(target, Plan::Waves(50));
        self.advance(self.queue.now() + self.setup.deploys.compile / 2);
        let first = self.members().into_values().next();
        // Somebody has to stay who takes shards.
        let stays = self.loads().into_keys().any(|taker| Some(taker) != first);
        let dies = stays && self.rollouts.rng.chance(0.5);
        if let Some(first) = first.filter(|_| dies) {
            self.kill(first, Life::Killed);
        }
        // Its shards are taken over first; what came in the way of the rollout then leads back.
        let deploys = self.setup.deploys.clone();
        let ttl = if dies {
            3 * self.setup.ttl
                + 8 * self.setup.interval
                + self.setup.opens(u64::from(self.setup.shards))
        } else {
            0
        };
        self.settle_rollouts(bound + ttl, "after a deployment in a quiet world");
        let record = self.standing_record().unwrap_or_else(RolloutRecord::fresh);
        // Where a step takes longer than it may, it is right that it does not last.
        let held = u64::from(self.setup.shards).div_ceil(self.members().len().max(1) as u64) + 1;
        let swaps = 8 * held.div_ceil(deploys.at_once as u64) * deploys.swap;
        let slow = self.hears() + swaps.max(12 * deploys.compile) + 10 * SECOND;
        let in_time = slow < deploys.step_timeout;
        if self.violation.is_none() && !dies && in_time && record.stable != target {
            self.fail(
                "R4",
                format!("revision {target} is good, and was not adopted: {record:?}"),
            );
        }
    }

    /// A canary that is there only now has its operator, too.
    fn promote_what_is_held(&mut self, bound: Time) {
        let end = self.queue.now() + bound;
        while self.violation.is_none() && self.queue.now() < end {
            match self.rollout_phase() {
                Some(Phase::Held) => self.command_rollout(Command::Promote),
                Some(_) => {}
                None => return,
            }
            self.advance(self.queue.now() + 2 * SECOND);
        }
    }
}

/// What is wrong with a version, if it does not follow from the one before.
fn follows_wrongly(before: &RolloutRecord, now: &RolloutRecord) -> Option<&'static str> {
    if now.counter != before.counter + 1 {
        return Some("it was not written over the newest version");
    }
    match (&before.active, &now.active) {
        (None, None) => Some("nothing was in progress"),
        (None, Some(active)) => {
            let begins = now.number == before.number + 1
                && active.phase == Phase::Checking
                && (now.stable, now.previous) == (before.stable, before.previous)
                && now.last == before.last;
            (!begins).then_some("a rollout does not begin so")
        }
        // The way on from one that goes back, and perhaps cannot.
        (Some(old), Some(new)) if now.number == before.number + 1 => {
            let last = now.last.as_ref();
            let begins = old.phase == Phase::Back
                && new.phase == Phase::Checking
                && new.target != before.stable
                && (now.stable, now.previous) == (before.stable, before.previous)
                && last.is_some_and(|last| {
                    (last.number, last.target, last.outcome)
                        == (before.number, old.target, Outcome::Superseded)
                        && !last.why.is_empty()
                });
            (!begins).then_some("a rollout does not follow another so")
        }
        (Some(old), Some(new)) => {
            let goes_on = now.number == before.number
                && old.target == new.target
                && old.by == new.by
                && (now.stable, now.previous) == (before.stable, before.previous)
                && (old.phase != Phase::Back || new.phase == Phase::Back)
                && (new.phase != Phase::Checking || old.phase == Phase::Checking)
                && now.last == before.last;
            (!goes_on).then_some("a rollout does not go on so")
        }
        (Some(old), None) => {
            let last = now.last.as_ref();
            let ends = now.number == before.number
                && last.is_some_and(|last| {
                    (last.number, last.target) == (now.number, old.target)
                        && match last.outcome {
                            Outcome::Adopted => {
                                now.stable == old.target && now.previous == before.stable
                            }
                            // By another one alone, which is then in progress.
                            Outcome::Superseded => false,
                            // Nobody is to wonder why.
                            Outcome::Refused | Outcome::RolledBack => {
                                let from = match last.outcome {
                                    Outcome::Refused => Phase::Checking,
                                    _ => Phase::Back,
                                };
                                (now.stable, now.previous) == (before.stable, before.previous)
                                    && old.phase == from
                                    && !last.why.is_empty()
                            }
                        }
                });
            (!ends).then_some("a rollout does not end so")
        }
    }
}

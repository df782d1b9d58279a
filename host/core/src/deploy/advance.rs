//! The next step of a rollout, from its record and from what the nodes say.

use std::collections::BTreeMap;
use std::time::Duration;

use super::record::{Active, Ended, Gates, Outcome, Phase, Plan, RolloutRecord};
use super::selection::Selection;
use crate::lease::record::NodeName;

/// How many shards or nodes a reason names.
const NAMED: usize = 4;

/// What a node says of the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// It did not answer.
    Silent,
    /// It fetches, compiles or checks it.
    Busy,
    /// It can run it.
    Fine,
    /// It cannot, and why.
    Refused(String),
}

/// What the owner of a shard says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShardSeen {
    /// It has none that lives.
    Unowned,
    /// Its owner did not answer.
    Silent,
    /// Its owner has it, and it does not serve calls now: it opens, closes, swaps, or its guest is being started anew.
    Down(String),
    /// It serves calls by this revision.
    Runs(u64),
    /// It was to take this revision, and failed.
    Failed {
        /// The revision.
        revision: u64,
        /// Why.
        why: String,
    },
}

/// What calls by one revision came to since the rollout began, on all shards that run it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sample {
    /// Calls that ended.
    pub calls: u64,
    /// Of these, those that the guest failed with an error.
    pub errors: u64,
    /// Traps.
    pub traps: u64,
    /// The time of the slowest percent, in microseconds.
    pub p99_us: u64,
}

/// What a coordinator has seen after it read the record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    /// All nodes that live.
    pub nodes: BTreeMap<NodeName, Check>,
    /// All shards; the index is the shard's number.
    pub shards: Vec<ShardSeen>,
    /// Of the stable revision.
    pub old: Sample,
    /// Of the target.
    pub new: Sample,
    /// By how much a step that reaches shards may take longer than the record says: for as long as further shards came to run the target, and
    /// for a migration that is within its own limits.
    pub allowed: Duration,
}

/// The record after the next step; none while there is nothing to do. `waited` is the time since this coordinator first read the record in
/// its present version. Whoever writes the step gives it the next counter and a nonce.
///
/// Nothing is done twice: a step rests on what was seen, and takes effect only on the version that was read.
#[must_use]
pub fn advance(record: &RolloutRecord, seen: &Seen, waited: Duration) -> Option<RolloutRecord> {
    let active = record.active.as_ref()?;
    let late = waited >= Duration::from_millis(active.step_timeout_ms);
    match active.phase {
        Phase::Checking => check(record, active, seen, late),
        Phase::Rolling | Phase::Held => {
            if let Some(why) = fails(record, active, seen) {
                return Some(back(record, why));
            }
            if active.phase == Phase::Held {
                return None;
            }
            let missing = missing(record, active, seen);
            if missing.is_empty() {
                let watched = waited >= Duration::from_millis(active.bake_ms);
                return (watched && !active.paused).then(|| onward(record, active, seen));
            }
            // A rollout that is paused waits for as long as it takes, too.
            let step = Duration::from_millis(active.step_timeout_ms).saturating_add(seen.allowed);
            (waited >= step && !active.paused).then(|| {
                let why = format!("within {step:?}, {} did not come to run it", names(missing));
                back(record, why)
            })
        }
        Phase::Back => {
            let there = |shard: &ShardSeen| match shard {
                ShardSeen::Unowned => true,
                // One that failed to go back goes on with what it runs.
                ShardSeen::Silent | ShardSeen::Down(_) | ShardSeen::Failed { .. } => false,
                // Another rollout may have been in the middle when this one began.
                ShardSeen::Runs(revision) => *revision == record.stable,
            };
            // A node that does not answer may have shards that nobody else knows of yet.
            let heard = seen.nodes.values().all(|check| *check != Check::Silent);
            let all = heard && !seen.shards.is_empty() && seen.shards.iter().all(there);
            all.then(|| end(record, Outcome::RolledBack, &active.why))
        }
    }
}

/// Every node has its say before any shard is touched.
fn check(
    record: &RolloutRecord,
    active: &Active,
    seen: &Seen,
    late: bool,
) -> Option<RolloutRecord> {
    let refusal = seen.nodes.iter().find_map(|(name, check)| match check {
        Check::Refused(why) => Some(format!("node {name} cannot run it: {why}")),
        _ => None,
    });
    // Where the rollout before was still going back when this one began, that goes on first.
    let refuse = |why: String| {
        let strays = |shard: &ShardSeen| matches!(shard, ShardSeen::Runs(revision) if *revision != record.stable);
        if seen.shards.iter().any(strays) {
            back(record, why)
        } else {
            end(record, Outcome::Refused, &why)
        }
    };
    if let Some(why) = refusal {
        return Some(refuse(why));
    }
    let open = |(name, check): (&NodeName, &Check)| {
        (*check != Check::Fine).then(|| format!("node {name}"))
    };
    let open: Vec<String> = seen.nodes.iter().filter_map(open).collect();
    if open.is_empty() && !seen.nodes.is_empty() && !active.paused {
        let mut next = record.clone();
        let shards = u32::try_from(seen.shards.len()).unwrap_or(u32::MAX);
        let active = next.active.as_mut()?;
        active.phase = Phase::Rolling;
        active.selection = match active.plan {
            Plan::All => Selection::All,
            Plan::Waves(percent) | Plan::Canary(percent) => Selection::part(percent, shards),
            Plan::Chosen => active.selection.clone(),
        };
        return Some(next);
    }
    (late && !active.paused).then(|| {
        let why = format!(
            "within {:?}, {} did not say that it can run it",
            Duration::from_millis(active.step_timeout_ms),
            names(open)
        );
        refuse(why)
    })
}

/// Why the target is not to go on, if it is not.
fn fails(record: &RolloutRecord, active: &Active, seen: &Seen) -> Option<String> {
    let failed = seen
        .shards
        .iter()
        .enumerate()
        .find_map(|(number, shard)| match shard {
            ShardSeen::Failed { revision, why } if *revision == active.target => {
                Some(format!("shard {number} did not take it: {why}"))
            }
            _ => None,
        });
    failed.or_else(|| gate(&active.gates, record.stable, seen.old, seen.new))
}

fn gate(gates: &Gates, stable: u64, old: Sample, new: Sample) -> Option<String> {
    if new.traps > gates.traps {
        return Some(format!(
            "it trapped {} times, and {} are borne",
            new.traps, gates.traps
        ));
    }
    let enough = |sample: Sample| sample.calls >= gates.least_calls.max(1);
    if stable == 0 || !enough(old) || !enough(new) {
        return None;
    }
    // In hundredths of a percent, rounded down for the older one: a tie is no reason.
    let rate = |sample: Sample| sample.errors.saturating_mul(10_000) / sample.calls;
    let (before, now) = (rate(old), rate(new));
    if now > before + u64::from(gates.errors_percent) * 100 {
        return Some(format!(
            "{} of {} calls failed, and {} of {} by revision {stable}",
            new.errors, new.calls, old.errors, old.calls
        ));
    }
    let borne = old.p99_us.saturating_mul(u64::from(gates.latency_percent)) / 100;
    (gates.latency_percent > 0 && new.p99_us > borne).then(|| {
        format!(
            "the slowest percent of its calls takes {} us, and {} us by revision {stable}",
            new.p99_us, old.p99_us
        )
    })
}

/// The shards of the selection that do not run the target yet.
fn missing(record: &RolloutRecord, active: &Active, seen: &Seen) -> Vec<String> {
    let shards = u32::try_from(seen.shards.len()).unwrap_or(u32::MAX);
    let chosen = active.selection.of(shards, record.number);
    let lacks = |shard: &u32| {
        let seen = seen.shards.get(*shard as usize)?;
        let how = match seen {
            ShardSeen::Runs(revision) if *revision == active.target => return None,
            ShardSeen::Runs(revision) => format!("runs revision {revision}"),
            ShardSeen::Unowned => "has no owner".into(),
            ShardSeen::Silent => "is on a node that does not answer".into(),
            ShardSeen::Down(why) => why.clone(),
            ShardSeen::Failed { revision, .. } => format!("failed with revision {revision}"),
        };
        Some(format!("shard {shard} ({how})"))
    };
    chosen.iter().filter_map(lacks).collect()
}

/// All of the selection run the target: the next step.
fn onward(record: &RolloutRecord, active: &Active, seen: &Seen) -> RolloutRecord {
    let shards = u32::try_from(seen.shards.len()).unwrap_or(u32::MAX);
    let reached = active.selection.count(shards);
    let mut next = record.clone();
    let Some(active) = next.active.as_mut().filter(|_| reached < shards) else {
        return end(record, Outcome::Adopted, "");
    };
    match active.plan {
        Plan::All => active.selection = Selection::All,
        Plan::Waves(percent) => {
            let step = Selection::part(percent, shards).count(shards);
            let more = reached.saturating_add(step);
            active.selection = if more >= shards {
                Selection::All
            } else {
                Selection::First(more)
            };
        }
        Plan::Canary(_) | Plan::Chosen => active.phase = Phase::Held,
    }
    next
}

fn back(record: &RolloutRecord, why: String) -> RolloutRecord {
    let mut next = record.clone();
    if let Some(active) = &mut next.active {
        active.phase = Phase::Back;
        active.selection = Selection::None;
        active.why = why;
    }
    next
}

fn end(record: &RolloutRecord, outcome: Outcome, why: &str) -> RolloutRecord {
    let mut next = record.clone();
    let Some(active) = next.active.take() else {
        return next;
    };
    if outcome == Outcome::Adopted {
        next.previous = next.stable;
        next.stable = active.target;
    }
    next.last = Some(Ended {
        number: record.number,
        target: active.target,
        order: active.order,
        outcome,
        why: why.to_owned(),
    });
    next
}

/// The first few, and how many more there are.
fn names(mut all: Vec<String>) -> String {
    let more = all.len().saturating_sub(NAMED);
    all.truncate(NAMED);
    let listed = all.join(", ");
    match (listed.is_empty(), more) {
        (true, _) => "no node".into(),
        (false, 0) => listed,
        (false, more) => format!("{listed} and {more} more"),
    }
}

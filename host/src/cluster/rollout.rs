//! How a rollout goes, for operators: the record, and what every node says of its shards.

use std::sync::Arc;
use std::time::Duration;

use quarry_core::deploy::{Active, Ended, Outcome, Plan, RolloutRecord};
use serde::Serialize;

use super::Cluster;
use super::deployed::coordinator::{Said, calls, phase_word};
use super::deployed::{Followed, adopter};
use super::said::{CheckSaid, ShardDoes, SwapsSaid};
use crate::call::CallErrorKind;
use crate::clock;
use crate::deploy::DeployError;

/// The rollout in progress, or how the last one ended, with every shard and every node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RolloutStatus {
    /// How often the record was written; 0 where there is none. It grows with each change.
    pub counter: u64,
    /// The number of the newest rollout; 0 before the first.
    pub rollout: u64,
    /// The revision that shards run which no rollout has reached; 0 for none.
    pub stable: u64,
    /// The revision before that; 0 for none.
    pub previous: u64,
    /// The rollout in progress.
    pub active: Option<ActiveView>,
    /// How the one before ended.
    pub last: Option<EndedView>,
    /// The nodes that live, by name, and those that would join them if they could run what the record says.
    pub nodes: Vec<NodeRollout>,
    /// Every shard, by its number.
    pub shards: Vec<ShardRollout>,
    /// How many shards serve calls by the revision that they are to run.
    pub adopted: u32,
    /// The swaps of the newest rollout.
    pub swaps: SwapsView,
    /// What calls came to since it began, by revision: of what is stable, and of what is rolled out.
    pub calls: Vec<CallsView>,
    /// Why the node that answers cannot read the record, or takes no shards.
    pub trouble: Option<String>,
}

/// A rollout in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ActiveView {
    /// What is rolled out.
    pub target: u64,
    /// Who ordered it.
    pub by: String,
    /// Which order it was, in 32 hex digits; zeros where the record knows of none.
    pub order: String,
    /// `all`, `waves`, `canary` or `chosen`.
    pub plan: &'static str,
    /// Of waves and a canary, how many of the shards.
    pub percent: Option<u8>,
    /// `checking`, `rolling`, `held` or `back`.
    pub phase: &'static str,
    /// Whether an operator stopped it.
    pub paused: bool,
    /// The shards that are to run the target by now.
    pub selection: String,
    /// How many they are.
    pub selected: u32,
    /// Why it goes back; empty while it does not.
    pub why: String,
    /// How long the record has stood as it is, as the node that answers has seen it, in milliseconds.
    pub stands_ms: u64,
}

/// A rollout that ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EndedView {
    /// Its number.
    pub rollout: u64,
    /// What was rolled out.
    pub target: u64,
    /// Which order it was, as [`ActiveView::order`].
    pub order: String,
    /// `adopted`, `rolled-back`, `refused`: no shard was touched, or `superseded`: another rollout began before every shard had gone back.
    pub outcome: &'static str,
    /// Why; empty when there is nothing to say.
    pub why: String,
}

/// A node in a rollout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeRollout {
    /// Its name.
    pub node: Arc<str>,
    /// Whether it can run the target: `fine`, `busy`, `refused`, or `silent` when it did not answer.
    pub check: &'static str,
    /// Why it cannot, or did not answer.
    pub why: Option<String>,
    /// The counter of the record that it follows.
    pub counter: Option<u64>,
}

/// A shard in a rollout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShardRollout {
    /// Its number.
    pub shard: u32,
    /// The node that has it; none where no node that answers does.
    pub node: Option<Arc<str>>,
    /// The revision that it is to run.
    pub wanted: u64,
    /// The revision of its guest, while it is open.
    pub revision: Option<u64>,
    /// Whether it serves calls by the revision that it is to run.
    pub adopted: bool,
    /// Why it does not, where its node says so.
    pub why: Option<String>,
}

/// The swaps of a rollout, on all nodes that answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SwapsView {
    /// How many were made, those back included.
    pub made: u64,
    /// How long no call could begin on a shard, in microseconds: of half of them at most this,
    pub pause_p50_us: u64,
    /// of 99 percent at most this,
    pub pause_p99_us: u64,
    /// and the longest.
    pub pause_max_us: u64,
    /// Calls that waited for one.
    pub calls_parked: u64,
    /// Of these, the calls that failed for it: their time ran out before it was done.
    pub calls_failed: u64,
}

/// What calls by a revision came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CallsView {
    /// The revision.
    pub revision: u64,
    /// Calls and queries that ended.
    pub calls: u64,
    /// Of these, those that the guest failed with an error.
    pub errors: u64,
    /// Traps.
    pub traps: u64,
    /// The time of the slowest percent within the guest, in microseconds; none where it is not measured.
    pub p99_us: Option<u64>,
}

impl Cluster {
    /// How the rollout goes that is in progress, or how the last one ended. Other nodes are asked at the same time; what they do not
    /// answer is told as such. Never reads the store.
    ///
    /// # Errors
    /// [`DeployError::Pinned`] on a node that was started with a guest of its own.
    pub async fn rollout(&self) -> Result<RolloutStatus, DeployError> {
        let deployed = self.node.deployed()?;
        let followed = deployed.followed();
        let record = followed.record();
        let target = shown_target(&record);
        let said = self.node.all_say(record.number, target).await;
        let mut status = status(&followed, &record, self.shards(), &said);
        let outside = deployed.outside.listed(|node| said.contains_key(node));
        status.nodes.extend(outside);
        status.nodes.sort_by(|a, b| a.node.cmp(&b.node));
        status.trouble = followed.trouble.as_ref().map(ToString::to_string);
        if status.trouble.is_none() {
            let lacks = adopter::lacks(&self.node, deployed);
            status.trouble = lacks.map(|(why, _)| why.to_string());
        }
        Ok(status)
    }

    /// The rollout record as this node follows it.
    ///
    /// # Errors
    /// [`DeployError::Pinned`].
    pub fn rollout_record(&self) -> Result<RolloutRecord, DeployError> {
        Ok(self.node.deployed()?.followed().record())
    }

    /// Waits until the rollout record is another one than that with the counter `since`, or the time is up; gives its counter. Safe to
    /// drop.
    ///
    /// # Errors
    /// [`DeployError::Pinned`].
    pub async fn rollout_changed(&self, since: u64, wait: Duration) -> Result<u64, DeployError> {
        let deployed = self.node.deployed()?;
        let mut followed = deployed.watch();
        let changed = followed.wait_for(|followed| followed.counter() != since);
        tokio::select! {
            changed = clock::timeout(wait, changed) => drop(changed),
            () = self.node.stop.cancelled() => {}
        }
        Ok(deployed.followed().counter())
    }
}

/// What is rolled out, or was last.
fn shown_target(record: &RolloutRecord) -> u64 {
    let active = record.active.as_ref().map(|active| active.target);
    let last = record.last.as_ref().map(|last| last.target);
    active.or(last).unwrap_or(record.stable)
}

fn status(followed: &Followed, record: &RolloutRecord, shards: u32, said: &Said) -> RolloutStatus {
    let target = shown_target(record);
    let shown = shards_of(record, shards, said);
    let adopted = shown.iter().filter(|shard| shard.adopted).count();
    let old = match &record.last {
        // Once it is adopted, what it took the place of is the one before.
        Some(last) if record.active.is_none() && last.outcome == Outcome::Adopted => {
            record.previous
        }
        _ => record.stable,
    };
    let mut revisions = vec![old, target];
    revisions.dedup();
    RolloutStatus {
        counter: followed.counter(),
        rollout: record.number,
        stable: record.stable,
        previous: record.previous,
        active: record
            .active
            .as_ref()
            .map(|active| active_view(active, followed, shards)),
        last: record.last.as_ref().map(ended_view),
        nodes: nodes_of(said),
        adopted: u32::try_from(adopted).unwrap_or(u32::MAX),
        shards: shown,
        swaps: swaps_of(said, &revisions),
        calls: revisions
            .iter()
            .map(|revision| {
                let counts = calls(said, *revision);
                let timed = counts.took.count() > 0;
                CallsView {
                    revision: *revision,
                    calls: counts.calls,
                    errors: counts.errors,
                    traps: counts.traps,
                    p99_us: timed.then(|| counts.took.percentile_us(99)),
                }
            })
            .collect(),
        trouble: None,
    }
}

fn active_view(active: &Active, followed: &Followed, shards: u32) -> ActiveView {
    let (plan, percent) = match active.plan {
        Plan::All => ("all", None),
        Plan::Waves(percent) => ("waves", Some(percent)),
        Plan::Canary(percent) => ("canary", Some(percent)),
        Plan::Chosen => ("chosen", None),
    };
    let stands = followed
        .since
        .map(|since| clock::now().saturating_duration_since(since));
    let stands = stands.unwrap_or_default().as_millis();
    ActiveView {
        target: active.target,
        by: active.by.clone(),
        order: active.order.to_string(),
        plan,
        percent,
        phase: phase_word(active.phase),
        paused: active.paused,
        selection: active.selection.to_string(),
        selected: active.selection.count(shards),
        why: active.why.clone(),
        stands_ms: u64::try_from(stands).unwrap_or(u64::MAX),
    }
}

fn ended_view(ended: &Ended) -> EndedView {
    EndedView {
        rollout: ended.number,
        target: ended.target,
        order: ended.order.to_string(),
        outcome: outcome_word(ended.outcome),
        why: ended.why.clone(),
    }
}

/// The word for how a rollout ended.
#[must_use]
pub fn outcome_word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Adopted => "adopted",
        Outcome::RolledBack => "rolled-back",
        Outcome::Refused => "refused",
        Outcome::Superseded => "superseded",
    }
}

fn nodes_of(said: &Said) -> Vec<NodeRollout> {
    let view = |(name, said): (&quarry_core::lease::record::NodeName, &_)| {
        let node = name.as_str().into();
        match said {
            Ok(said) => {
                let said: &super::said::NodeSaid = said;
                let (check, why) = match &said.check {
                    CheckSaid::Busy => ("busy", None),
                    CheckSaid::Fine => ("fine", None),
                    CheckSaid::Refused { why } => ("refused", Some(why.clone())),
                };
                NodeRollout {
                    node,
                    check,
                    why: why.or_else(|| said.trouble.clone()),
                    counter: Some(said.counter),
                }
            }
            Err(error) => {
                let error: &crate::call::CallError = error;
                NodeRollout {
                    node,
                    // It runs a guest of its own.
                    check: if error.kind == CallErrorKind::Refused {
                        "refused"
                    } else {
                        "silent"
                    },
                    why: Some(error.message.clone()),
                    counter: None,
                }
            }
        }
    };
    said.iter().map(view).collect()
}

fn shards_of(record: &RolloutRecord, shards: u32, said: &Said) -> Vec<ShardRollout> {
    let mut wanted = vec![record.stable; shards as usize];
    if let Some(active) = record.reaching() {
        for shard in active.selection.of(shards, record.number) {
            wanted[shard as usize] = active.target;
        }
    }
    let mut shown: Vec<(u64, ShardRollout)> = (0..shards)
        .zip(wanted)
        .map(|(shard, wanted)| {
            let view = ShardRollout {
                shard,
                node: None,
                wanted,
                revision: None,
                adopted: false,
                why: None,
            };
            (0, view)
        })
        .collect();
    for said in said.values().flatten() {
        for shard in &said.shards {
            let Some((generation, view)) = shown.get_mut(shard.shard as usize) else {
                continue;
            };
            let runs = shard.does == ShardDoes::Runs && shard.revision.is_some();
            if shard.generation < *generation
                || (shard.generation == *generation && view.node.is_some() && !runs)
            {
                continue;
            }
            *generation = shard.generation;
            view.node = Some(said.node.clone());
            view.revision = shard.revision;
            view.adopted = runs && shard.revision == Some(view.wanted);
            view.why = match &shard.does {
                ShardDoes::Runs => None,
                ShardDoes::Failed { revision, why } => {
                    Some(format!("did not take revision {revision}: {why}"))
                }
                ShardDoes::Swaps { to } => Some(format!("swaps to revision {to}")),
                ShardDoes::Down { why } => Some(why.clone()),
            };
        }
    }
    shown.into_iter().map(|(_, view)| view).collect()
}

fn swaps_of(said: &Said, revisions: &[u64]) -> SwapsView {
    let mut all = SwapsSaid::default();
    for said in said.values().flatten() {
        all.pauses.add(&said.swaps.pauses);
        all.longest_us = all.longest_us.max(said.swaps.longest_us);
        all.parked = all.parked.saturating_add(said.swaps.parked);
    }
    let lost = revisions.iter().map(|revision| calls(said, *revision).lost);
    SwapsView {
        made: all.pauses.count(),
        // A bucket's bound may be above all that is in it.
        pause_p50_us: all.pauses.percentile_us(50).min(all.longest_us),
        pause_p99_us: all.pauses.percentile_us(99).min(all.longest_us),
        pause_max_us: all.longest_us,
        calls_parked: all.parked,
        calls_failed: lost.fold(0, u64::saturating_add),
    }
}

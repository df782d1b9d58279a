//! Carries a rollout on: asks every node that lives, and writes what the core says.
//!
//! Any node can, and two that do at once do no harm: each step rests on the record as it was read, and one of two writes wins. To save
//! requests the first by name does; the next ones begin once the record has stood still for a while.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use quarry_core::deploy::{Active, Check, Phase, RolloutRecord, Sample, Seen, ShardSeen, advance};
use quarry_core::lease::record::{NodeName, NodeState};
use quarry_core::route::RouteTable;

use super::said::{NodeSaid, ShardDoes};
use super::{Deployed, Followed, notice};
use crate::call::{CallError, CallErrorKind};
use crate::clock;
use crate::cluster::node::Node;
use crate::deploy::{Stored, Written};
use crate::shard::sample::Counts;
use crate::transport::{Ask, Destination, Told};

/// The pause between two looks at a rollout.
const STEP: Duration = Duration::from_millis(200);
/// The same, while it waits for an operator.
const HELD: Duration = Duration::from_secs(1);
/// How long the record stands still before the next node by name looks, too, and between its looks.
const STILL: Duration = Duration::from_secs(5);
/// How long a node may take to say how far it is.
pub(super) const ANSWER: Duration = Duration::from_secs(2);
/// The most nodes that wait for their turn one after the other.
const RANKS: u32 = 6;

/// Carries on whatever rollout there is, until the node stops.
pub(super) async fn coordinate(node: Arc<Node>) {
    let Some(deployed) = &node.deployed else {
        return;
    };
    let mut followed = deployed.watch();
    let mut last: Option<(u64, Instant)> = None;
    let mut progress = Progress::default();
    loop {
        let now = followed.borrow_and_update().clone();
        let active = now
            .stored
            .as_ref()
            .and_then(|stored| stored.record.active.as_ref());
        let due = match active {
            Some(active) => due(&node, &now, active, last).await,
            None => None,
        };
        let wait = async {
            match due {
                Some(due) => clock::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = node.stop.cancelled() => return,
            changed = followed.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
            () = wait => {}
        }
        last = Some((now.counter(), clock::now()));
        if let Some(stored) = &now.stored {
            let stepping = step(&node, deployed, stored, &now, &mut progress);
            tokio::select! {
                () = node.stop.cancelled() => return,
                () = stepping => {}
            }
        }
    }
}

/// When this node is to look at the rollout next. `last` is the version that it looked at last, and when.
async fn due(
    node: &Arc<Node>,
    followed: &Followed,
    active: &Active,
    last: Option<(u64, Instant)>,
) -> Option<Instant> {
    let now = clock::now();
    let looked = last.filter(|(counter, _)| *counter == followed.counter());
    let Some(rank) = rank(node).await else {
        // It has not joined its cluster, or has left it.
        return Some(now + STILL);
    };
    if rank == 0 {
        let pause = if active.phase == Phase::Held {
            HELD
        } else {
            STEP
        };
        return Some(looked.map_or(now, |(_, at)| at + pause));
    }
    if let Some((_, at)) = looked {
        return Some(at + STILL);
    }
    let since = followed.since.map_or(Duration::ZERO, |since| {
        clock::now().saturating_duration_since(since)
    });
    Some(now + (STILL * rank.min(RANKS)).saturating_sub(since))
}

/// How many nodes that live come before this one; none where it is not one of them.
async fn rank(node: &Arc<Node>) -> Option<u32> {
    let alive = node.alive().await;
    let mine = alive.keys().position(|name| *name.as_str() == *node.node)?;
    u32::try_from(mine).ok()
}

async fn step(
    node: &Arc<Node>,
    deployed: &Deployed,
    stored: &Stored,
    followed: &Followed,
    progress: &mut Progress,
) {
    let record = &stored.record;
    let Some(active) = &record.active else { return };
    let said = node.all_say(record.number, active.target).await;
    let mut seen = seen(node, record, active, &said);
    let waited = followed.since.map_or(Duration::ZERO, |since| {
        clock::now().saturating_duration_since(since)
    });
    let step = Duration::from_millis(active.step_timeout_ms);
    let migration = said.values().flatten().map(|said| said.migration_ms).max();
    let migration = Duration::from_millis(migration.unwrap_or_default());
    let last = progress.last(record, active, &seen, waited);
    seen.allowed = last.saturating_add(migration.saturating_sub(step));
    let Some(next) = advance(record, &seen, waited) else {
        return;
    };
    match deployed.objects.write_rollout(Some(stored), next).await {
        Ok(Written::Won(won)) => {
            tell(node, &won.record);
            let counter = won.record.counter;
            deployed.learn(won);
            notice(node, counter);
        }
        // Somebody else was first.
        Ok(Written::Lost) => deployed.look(),
        Err(error) => {
            tracing::warn!(event = "deploy.step", rollout = record.number, %error, "the rollout record could not be written; it is tried again");
            deployed.look();
        }
    }
}

/// How far the present step has come, as this coordinator has seen it. Another one begins to count anew: a step is rather given more time
/// than less.
#[derive(Debug, Default)]
struct Progress {
    /// The version of the record.
    counter: u64,
    /// The most shards that ran the target, and how long after the step had begun.
    most: usize,
    at: Duration,
}

impl Progress {
    /// When the last of the shards that run the target by now came to it, counted from the beginning of the step.
    fn last(
        &mut self,
        record: &RolloutRecord,
        active: &Active,
        seen: &Seen,
        waited: Duration,
    ) -> Duration {
        let runs = |shard: &&ShardSeen| **shard == ShardSeen::Runs(active.target);
        let run = seen.shards.iter().filter(runs).count();
        if self.counter != record.counter {
            *self = Self {
                counter: record.counter,
                most: run,
                at: Duration::ZERO,
            };
        }
        if run > self.most {
            (self.most, self.at) = (run, waited);
        }
        self.at
    }
}

/// Tells of a step of a rollout that this node wrote. Of its end every node tells, as it learns of it.
fn tell(node: &Node, now: &RolloutRecord) {
    let (cluster, rollout) = (&*node.cluster, now.number);
    if let Some(active) = &now.active {
        let (target, selection) = (active.target, active.selection.to_string());
        let phase = phase_word(active.phase);
        if active.phase == Phase::Back {
            let why = &active.why;
            tracing::warn!(
                event = "deploy.back",
                cluster,
                rollout,
                revision = target,
                why,
                "rollout goes back"
            );
        } else {
            tracing::info!(event = "deploy.step", cluster, rollout, revision = target, phase, %selection, "rollout goes on");
        }
    }
}

/// The word for a phase.
pub(in crate::cluster) fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Checking => "checking",
        Phase::Rolling => "rolling",
        Phase::Held => "held",
        Phase::Back => "back",
    }
}

/// What nodes answered, by name.
pub(in crate::cluster) type Said = BTreeMap<NodeName, Result<NodeSaid, CallError>>;

/// What was said, for the core.
fn seen(node: &Node, record: &RolloutRecord, active: &Active, said: &Said) -> Seen {
    let nodes = said.iter().map(|(name, said)| {
        let check = match said {
            Ok(said) if said.counter >= record.counter => said.check.clone().into(),
            Ok(_) => Check::Busy,
            // It runs a guest of its own.
            Err(error) if error.kind == CallErrorKind::Refused => {
                Check::Refused(error.message.clone())
            }
            Err(_) => Check::Silent,
        };
        (name.clone(), check)
    });
    let (old, new) = (calls(said, record.stable), calls(said, active.target));
    let enough = |counts: &Counts| counts.took.count() >= active.gates.least_calls.max(1);
    // Times that were measured on one side alone say nothing.
    let timed = enough(&old) && enough(&new);
    let sample = |counts: &Counts| Sample {
        calls: counts.calls,
        errors: counts.errors,
        traps: counts.traps,
        p99_us: if timed {
            counts.took.percentile_us(99)
        } else {
            0
        },
    };
    Seen {
        nodes: nodes.collect(),
        shards: shards(
            &node.leases.routes(),
            node.config.shards,
            record,
            active,
            said,
        ),
        old: sample(&old),
        new: sample(&new),
        allowed: Duration::ZERO,
    }
}

/// What calls by a revision came to, on all nodes.
pub(in crate::cluster) fn calls(said: &Said, revision: u64) -> Counts {
    let mut all = Counts::default();
    for said in said.values().flatten() {
        for (of, counts) in &said.calls {
            if *of == revision {
                all.add(counts);
            }
        }
    }
    all
}

/// How each shard is, of all that was said by nodes that follow the record in this version.
fn shards(
    routes: &RouteTable,
    count: u32,
    record: &RolloutRecord,
    active: &Active,
    said: &Said,
) -> Vec<ShardSeen> {
    let counter = record.counter;
    let mut seen: Vec<(u64, ShardSeen)> = Vec::new();
    for shard in 0..count {
        let route = routes.shards.get(shard as usize).and_then(Option::as_ref);
        let owner = route.and_then(|route| said.get(&route.owner));
        let unknown = match owner {
            // It runs a guest of its own: it takes no revision, and has none to go back from.
            Some(Err(error)) if error.kind == CallErrorKind::Refused => {
                if active.phase == Phase::Back {
                    ShardSeen::Unowned
                } else {
                    ShardSeen::Failed {
                        revision: active.target,
                        why: error.message.clone(),
                    }
                }
            }
            // It did not answer, or does not know of the step yet.
            Some(Err(_)) => ShardSeen::Silent,
            Some(Ok(said)) if said.counter < counter => ShardSeen::Silent,
            _ => ShardSeen::Unowned,
        };
        seen.push((0, unknown));
    }
    for said in said.values().flatten() {
        for shard in &said.shards {
            let Some(place) = seen.get_mut(shard.shard as usize) else {
                continue;
            };
            let state = match &shard.does {
                _ if said.counter < counter => ShardSeen::Silent,
                ShardDoes::Runs => match shard.revision {
                    Some(revision) => ShardSeen::Runs(revision),
                    None => ShardSeen::Down("opens".into()),
                },
                ShardDoes::Failed { revision, why } => ShardSeen::Failed {
                    revision: *revision,
                    why: why.clone(),
                },
                // It does not run the target, and will not: what keeps it down must not keep a rollout from its end.
                ShardDoes::Down { .. } | ShardDoes::Swaps { .. }
                    if active.phase == Phase::Back
                        && shard.revision != Some(active.target)
                        && shard.does != (ShardDoes::Swaps { to: active.target }) =>
                {
                    ShardSeen::Unowned
                }
                ShardDoes::Down { why } => ShardSeen::Down(why.clone()),
                ShardDoes::Swaps { to } => ShardSeen::Down(format!("swaps to revision {to}")),
            };
            // Of two that say something, the one with the newer lease; of one lease, the one that serves.
            let serves = |state: &ShardSeen| matches!(state, ShardSeen::Runs(_));
            let first = matches!(place.1, ShardSeen::Unowned) || !serves(&place.1);
            if shard.generation > place.0 || (shard.generation == place.0 && first) {
                *place = (shard.generation, state);
            }
        }
    }
    seen.into_iter().map(|(_, state)| state).collect()
}

impl Node {
    /// The nodes that live, this one among them once it has joined, and where the others are reached.
    pub(in crate::cluster) async fn alive(&self) -> BTreeMap<NodeName, Option<Destination>> {
        if self.leases.leased_strategy() {
            let nodes = self.leases.nodes().await.unwrap_or_default();
            let lives = |state| matches!(state, NodeState::Live | NodeState::Draining);
            let alive = nodes
                .into_iter()
                .filter(|member| member.alive && lives(member.record.info.state));
            let of = |name: NodeName| {
                let to = self.destination(&name);
                (name, to)
            };
            return alive.map(|member| of(member.record.info.name)).collect();
        }
        self.peers_alive().into_iter().collect()
    }

    /// The nodes of the table of routes, and where they are reached; this one is not reached.
    pub(super) fn peers_alive(&self) -> Vec<(NodeName, Option<Destination>)> {
        let routes = self.leases.routes();
        let names = routes.nodes.keys().cloned();
        names
            .map(|name| {
                let to = (*name.as_str() != *self.node)
                    .then(|| self.destination(&name))
                    .flatten();
                (name, to)
            })
            .collect()
    }

    /// Asks every node that lives how far it is with a rollout.
    pub(in crate::cluster) async fn all_say(&self, number: u64, target: u64) -> Said {
        let alive = self.alive().await;
        let asked = alive.into_iter().map(|(name, to)| async move {
            let said = self.says(&name, to, number, target).await;
            (name, said)
        });
        join_all(asked).await.into_iter().collect()
    }

    async fn says(
        &self,
        name: &NodeName,
        to: Option<Destination>,
        number: u64,
        target: u64,
    ) -> Result<NodeSaid, CallError> {
        if *name.as_str() == *self.node {
            return self.said(number, target).ok_or_else(|| self.pinned());
        }
        let to = to.ok_or_else(|| {
            let message = format!("node `{name}` advertises no address (`internal.advertise`)");
            CallError::host(CallErrorKind::Unreachable, message)
        })?;
        let ask = Ask::Deployed { number, target };
        match self.ask(&to, ask, ANSWER).await? {
            Told::Deployed(said) => Ok(*said),
            other => Err(other.into_error(&to.node)),
        }
    }

    /// This node does not follow the rollout record.
    pub(in crate::cluster) fn pinned(&self) -> CallError {
        let message = format!(
            "node `{}` was started with a guest of its own, and runs nothing that is deployed",
            self.node
        );
        CallError::host(CallErrorKind::Refused, message)
    }

    /// A peer says that the rollout record has changed.
    pub(in crate::cluster) fn told_of_rollout(&self, counter: u64) {
        if let Some(deployed) = &self.deployed
            && deployed.followed().counter() < counter
        {
            deployed.look();
        }
    }
}

#[cfg(test)]
mod tests;

//! Another module on every shard, in place.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::oneshot;

use super::node::Node;
use super::start::{StartError, validate};
use super::status::ShardState;
use super::wanted::Wanted;
use crate::call::{CallError, CallErrorKind};
use crate::clock;
use crate::deploy::Loaded;
use crate::guest::Module;
use crate::shard::Control;
use crate::shard::swap::{NotSwapped, Order, START_GRACE, SwapStep, Swapped, Turn};

/// How much longer than its limits the swap of a shard may take.
const SWAP_GRACE: Duration = Duration::from_secs(5);

/// How to swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwapOptions {
    /// Whether memory is handed over where both revisions export `handoff`, which is the default. Without it a revision that does not hand
    /// over its memory can be swapped for another; the memory is then lost.
    pub carry_memory: bool,
}

impl Default for SwapOptions {
    fn default() -> Self {
        Self { carry_memory: true }
    }
}

/// A swap that every open shard made.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct SwapReport {
    /// The revision that the shards run now.
    pub revision: u64,
    /// How many shards swapped.
    pub shards: usize,
    /// How long it took in all.
    pub took: Duration,
    /// For how long each of them began no call, the shortest first.
    pub pauses: Vec<Duration>,
}

impl SwapReport {
    /// The pause that `percent` of 100 shards did not exceed; zero where no shard was open.
    #[must_use]
    pub fn pause(&self, percent: usize) -> Duration {
        let at = (self.pauses.len() * percent.min(100)).div_ceil(100).max(1) - 1;
        self.pauses.get(at).copied().unwrap_or_default()
    }

    /// The longest pause.
    #[must_use]
    pub fn longest_pause(&self) -> Duration {
        self.pause(100)
    }
}

/// A swap that was not made: every shard runs what it ran.
#[derive(Debug, thiserror::Error)]
pub enum SwapError {
    /// The guest refuses its options, or fails when asked.
    #[error(transparent)]
    Refused(StartError),
    /// The cluster runs what is deployed to it.
    #[error(
        "this node runs what is deployed to its cluster: deploy the revision, and every node takes it"
    )]
    Deployed,
    /// A shard did not take it.
    #[error(
        "revision {revision} was not adopted on shard {shard}: {why}; every shard runs what it ran before"
    )]
    NotAdopted {
        /// The revision that failed.
        revision: u64,
        /// The shard.
        shard: u32,
        /// How far it came, and why no further.
        why: NotSwapped,
    },
    /// The host failed.
    #[error("{0}")]
    Failed(String),
}

/// Swaps on a task of its own: a caller that goes away leaves no mixture behind.
pub(super) async fn swap(
    node: &Arc<Node>,
    module: Arc<dyn Module>,
    options: SwapOptions,
) -> Result<SwapReport, SwapError> {
    let (owned, control) = (node.clone(), node.threads.control());
    let swapping = node.tasks.spawn_on(
        async move { swap_all(&owned, module, options).await },
        &control,
    );
    swapping.await.unwrap_or_else(|error| {
        Err(SwapError::Failed(format!(
            "the swap failed in the host: {error}"
        )))
    })
}

async fn swap_all(
    node: &Arc<Node>,
    module: Arc<dyn Module>,
    options: SwapOptions,
) -> Result<SwapReport, SwapError> {
    if node.deployed.is_some() {
        return Err(SwapError::Deployed);
    }
    let _one_at_a_time = node.swapping.lock().await;
    let begun = clock::now();
    let before = node.wanted.load_full();
    let old = before
        .stable()
        .loaded
        .clone()
        .map_err(|why| SwapError::Failed(why.to_string()))?;
    let new = Arc::new(Loaded {
        module: module.clone(),
        options: old.options.clone(),
    });
    validate(&module, &new.options)
        .await
        .map_err(SwapError::Refused)?;
    let revision = module.describe().revision;
    // A shard that opens in the middle may still take the old module; it is asked again below.
    node.wanted.store(Arc::new(Wanted::everywhere(new.clone())));
    let all: Vec<u32> = (0..node.config.shards).collect();
    let mut swapped: Vec<(u32, Swapped)> = Vec::new();
    // One shard goes first: a module that does not start disturbs no other.
    let first = all
        .iter()
        .copied()
        .find(|shard| node.slots[*shard as usize].handle().is_some());
    let rest: Vec<u32> = all
        .into_iter()
        .filter(|shard| Some(*shard) != first)
        .collect();
    for wave in [first.into_iter().collect::<Vec<_>>(), rest] {
        let swaps = wave
            .into_iter()
            .map(|shard| one(node, shard, new.clone(), options));
        let outcomes = join_all(swaps).await;
        let mut failed = None;
        for (shard, outcome) in outcomes {
            match outcome {
                Some(Ok(done)) => swapped.push((shard, done)),
                Some(Err(why)) => failed = failed.or(Some((shard, why))),
                None => {}
            }
        }
        if let Some((shard, why)) = failed {
            node.wanted.store(before);
            // Not only those that were swapped here: one that opened meanwhile has taken the new module by itself.
            let astray = node.slots.iter().filter(|slot| {
                slot.handle()
                    .is_some_and(|handle| handle.revision() == revision)
            });
            let back: Vec<_> = astray
                .map(|slot| back(node, slot.shard(), old.clone()))
                .collect();
            join_all(back).await;
            return Err(SwapError::NotAdopted {
                revision,
                shard,
                why,
            });
        }
    }
    let mut pauses: Vec<Duration> = swapped.iter().map(|(_, done)| done.pause).collect();
    pauses.sort_unstable();
    let took = clock::now().saturating_duration_since(begun);
    Ok(SwapReport {
        revision,
        shards: swapped.len(),
        took,
        pauses,
    })
}

/// Swaps one shard back to what it ran before: with its memory, but rather without it than not at all.
async fn back(node: &Arc<Node>, shard: u32, old: Arc<Loaded>) {
    for carry_memory in [true, false] {
        match one(node, shard, old.clone(), SwapOptions { carry_memory }).await {
            (_, Some(Err(error))) => {
                tracing::error!(shard, carry_memory, %error, "shard did not go back to its old module");
            }
            _ => return,
        }
    }
}

/// Swaps one shard; nothing to do where it is not open, since it then starts with the node's module.
pub(super) async fn one(
    node: &Arc<Node>,
    shard: u32,
    loaded: Arc<Loaded>,
    options: SwapOptions,
) -> (u32, Option<Result<Swapped, NotSwapped>>) {
    let Some(handle) = node.slots[shard as usize].handle() else {
        return (shard, None);
    };
    let (done, outcome) = oneshot::channel();
    let turn = Arc::new(Turn::new());
    let swap = Control::Swap(Order {
        module: loaded.module.clone(),
        options: loaded.options.clone(),
        carry_memory: options.carry_memory,
        turn: turn.clone(),
        done,
    });
    if handle.control(swap).await.is_err() {
        return (shard, None);
    }
    let failed = |step, message: String| {
        let error = CallError::host(CallErrorKind::Timeout, message).at(shard);
        (shard, Some(Err(NotSwapped { step, error })))
    };
    let drain = drain(node, &loaded.module);
    // A shard whose guest is just being started comes to the swap after that, which has a limit of its own.
    let starts = || node.slots[shard as usize].report().status == ShardState::Starting;
    let start = node.config.limits.start_time + START_GRACE;
    let answer = async {
        tokio::select! {
            biased;
            outcome = outcome => Some(outcome),
            () = turn.overdue(drain, starts, start) => None,
        }
    };
    // An instance is made beside the calls, and one more where an old one is lost on the way. All of it is bounded for a component; native
    // logic may hang.
    let limit = limit(node, &loaded.module, drain);
    match clock::timeout(limit, answer).await {
        Ok(Some(outcome)) => {
            let at = |why: NotSwapped| NotSwapped {
                error: why.error.at(shard),
                ..why
            };
            (shard, outcome.ok().map(|outcome| outcome.map_err(at)))
        }
        Ok(None) => failed(
            SwapStep::Drain,
            format!(
                "what the guest was doing when the swap was due is still in progress after {drain:?}, and goes on; set limits.drain higher, or swap again once it has ended"
            ),
        ),
        Err(_) => failed(
            SwapStep::Answer,
            format!("it did not swap within {limit:?}"),
        ),
    }
}

/// How long the swap of a shard to a module may wait for what is in progress.
fn drain(node: &Node, module: &Arc<dyn Module>) -> Duration {
    let own = module.limits().map(|own| own.drain);
    own.unwrap_or(node.config.limits.drain)
}

/// How long the swap of a shard to a module may take. It may wait as long as `drain` for its turn: when it is ordered, when the instance is
/// made, and for a step of its migration.
fn limit(node: &Node, module: &Arc<dyn Module>, drain: Duration) -> Duration {
    let (config, own) = (&node.config.limits, module.limits());
    let most = |config: Duration, own: Option<Duration>| own.map_or(config, |own| own.max(config));
    let start = most(config.start_time, own.map(|own| own.start_time));
    let handoff = most(config.handoff_time, own.map(|own| own.handoff_time));
    let stop = most(config.stop_time, own.map(|own| own.stop_time));
    let migration = migration_time(node, module);
    drain * 3 + start * 5 + migration + handoff * 2 + stop + SWAP_GRACE
}

/// How long a module may take to migrate the data of a shard.
pub(super) fn migration_time(node: &Node, module: &Arc<dyn Module>) -> Duration {
    if !module.describe().exports.migration {
        return Duration::ZERO;
    }
    let (config, own) = (&node.config.limits, module.limits());
    let most = |config: Duration, own: Option<Duration>| own.map_or(config, |own| own.max(config));
    let step = most(
        config.migrate_step_time,
        own.map(|own| own.migrate_step_time),
    );
    // A step that ended within the time of all may be followed by as long for calls, and by another one.
    most(config.migrate_time, own.map(|own| own.migrate_time)) + step * 2
}

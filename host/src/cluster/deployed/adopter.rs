//! Has the shards of this node run what the record says: makes the revisions ready, and swaps each shard in place.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use quarry_core::deploy::{Phase, RolloutRecord};
use tokio::sync::watch;

use super::{Deployed, Followed};
use crate::call::CallErrorKind;
use crate::clock;
use crate::cluster::node::Node;
use crate::cluster::status::ShardState;
use crate::cluster::swap::{self, SwapOptions};
use crate::cluster::wanted::Wanted;
use crate::deploy::{Loaded, placeholder};
use crate::shard::sample::Times;
use crate::shard::swap::{NotSwapped, SwapStep, Swapped};

/// The pauses before a swap that failed is tried again, where it is.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How long a node that starts waits for its revisions before it goes on in the background.
const READY: Duration = Duration::from_secs(60);

/// Which shards are on their way, and which did not get there.
#[derive(Debug, Default)]
pub(super) struct Adopting {
    /// Shards that swap now, and to what.
    pub swapping: BTreeMap<u32, u64>,
    /// Shards that did not take a revision.
    pub failed: BTreeMap<u32, Failed>,
    /// Of the newest rollout.
    pub swaps: Swaps,
}

/// A swap that was not made.
#[derive(Debug, Clone)]
pub(super) struct Failed {
    /// The rollout.
    pub number: u64,
    pub revision: u64,
    pub why: String,
    tries: u32,
    /// It is not the revision's fault, and says nothing of it.
    excused: bool,
    /// When it is tried again; in a rollout that goes forth it is not.
    again: Instant,
}

/// The swaps of this node in one rollout.
#[derive(Debug, Clone, Default)]
pub(super) struct Swaps {
    pub number: u64,
    pub pauses: Times,
    pub longest: Duration,
    /// Calls that waited for one.
    pub parked: u64,
}

/// A swap that has ended.
struct Ended {
    shard: u32,
    /// The rollout.
    number: u64,
    revision: u64,
    /// None where the shard is not here any more, or is to run something else.
    outcome: Option<Result<Swapped, NotSwapped>>,
}

type Swapping = Pin<Box<dyn Future<Output = Ended> + Send>>;

/// Adopts what the record says, until the node stops.
pub(super) async fn adopt(node: Arc<Node>) {
    let Some(deployed) = &node.deployed else {
        return;
    };
    let mut followed = deployed.watch();
    let mut made = deployed.catalog.changes();
    let mut swaps: FuturesUnordered<Swapping> = FuturesUnordered::new();
    let mut first = true;
    loop {
        // Whatever ended the wait below, a change that came at the same time must not be passed over.
        let seen = [followed.has_changed(), made.has_changed()];
        let news = first || seen.into_iter().any(|changed| changed.unwrap_or(false));
        first = false;
        let now = followed.borrow_and_update().clone();
        made.borrow_and_update();
        if news {
            follow(&node, deployed, &now);
            node.changed.send_modify(|version| *version += 1);
        }
        for swap in due(&node, deployed, &now) {
            swaps.push(swap);
        }
        let again = next_try(deployed);
        let again = async move {
            match again {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        // The changes are left for the look above.
        let followed_changes = followed.clone();
        let made_changes = made.clone();
        tokio::select! {
            () = node.stop.cancelled() => return,
            Some(ended) = swaps.next(), if !swaps.is_empty() => end(deployed, ended),
            () = changes(followed_changes) => {}
            () = changes(made_changes) => {}
            () = deployed.poke.notified() => {}
            () = again => {}
        }
    }
}

/// Returns once a value is another one than was seen; for ever where it cannot change any more.
async fn changes<T>(mut of: watch::Receiver<T>) {
    if of.changed().await.is_err() {
        std::future::pending().await
    }
}

/// Waits until this node can run all that the record says, or has found out that it cannot yet. A node that cannot takes no shards: they
/// would have no guest, and others may run them.
///
/// # Errors
/// Why it cannot.
pub(in crate::cluster) async fn ready(node: &Arc<Node>) -> Result<(), Arc<str>> {
    let Some(deployed) = &node.deployed else {
        return Ok(());
    };
    let mut changed = node.changed.subscribe();
    let wait = async {
        loop {
            changed.borrow_and_update();
            match lacks(node, deployed) {
                None => return Ok(()),
                Some((why, true)) => return Err(why),
                Some((_, false)) => {}
            }
            if changed.changed().await.is_err() {
                return Err("the node stops".into());
            }
        }
    };
    let ready = tokio::time::timeout(READY, wait).await;
    ready.unwrap_or_else(|_| {
        let why =
            lacks(node, deployed).map_or_else(|| "it has just become so".into(), |(why, _)| why);
        Err(format!("it was not ready within {READY:?}: {why}").into())
    })
}

/// Waits until what keeps this node from its shards is something else than `why`, or nothing.
pub(in crate::cluster) async fn another(node: &Arc<Node>, why: &str) {
    let Some(deployed) = &node.deployed else {
        return;
    };
    let mut changed = node.changed.subscribe();
    let same = |(now, refused): (Arc<str>, bool)| refused && *now == *why;
    while lacks(node, deployed).is_some_and(same) {
        if changed.changed().await.is_err() {
            return;
        }
    }
}

/// What this node lacks to run all that the record says, and whether waiting a little does not help.
pub(in crate::cluster) fn lacks(node: &Node, deployed: &Deployed) -> Option<(Arc<str>, bool)> {
    let followed = deployed.followed();
    if followed.since.is_none() {
        let why = followed.trouble.clone();
        return Some(match why {
            Some(why) => (why, true),
            None => ("the rollout record was not read yet".into(), false),
        });
    }
    let record = followed.record();
    if let Err(why) = &node.wanted.load().stable().loaded {
        return Some((why.clone(), deployed.catalog.is_refused(record.stable)));
    }
    let target = record.active.as_ref().map(|active| active.target)?;
    let why = deployed.catalog.source(target).loaded.err()?;
    Some((why, deployed.catalog.is_refused(target)))
}

/// Takes up what the record says.
fn follow(node: &Arc<Node>, deployed: &Deployed, followed: &Followed) {
    if followed.since.is_none() {
        return;
    }
    let record = followed.record();
    let active = record.active.as_ref();
    let mut wanted = BTreeSet::from([record.stable]);
    // Kept warm, so that going back is as fast as a swap.
    wanted.extend((record.previous != placeholder::REVISION).then_some(record.previous));
    wanted.extend(active.map(|active| active.target));
    deployed.catalog.want(&wanted);
    let number = record.number;
    let begins = {
        let mut adopting = deployed.adopting();
        let begins = adopting.swaps.number != number;
        if begins {
            adopting.swaps = Swaps {
                number,
                ..Swaps::default()
            };
        }
        begins
    };
    match active {
        Some(active) => {
            if begins {
                deployed.catalog.afresh(active.target);
            }
            node.samples.begin(number, active.gates.latency_percent > 0);
        }
        None => node.samples.untimed(),
    }
    let source = |revision| deployed.catalog.source(revision);
    let before = node.wanted.load_full();
    let wanted = Arc::new(Wanted::of(&record, node.config.shards, source));
    node.wanted.store(wanted.clone());
    deployed.metrics.follows(&record);
    for slot in &node.slots {
        let shard = slot.shard();
        // It waits to be opened again, for want of a guest that there is now.
        if before.opens_with(shard).is_err()
            && wanted.opens_with(shard).is_ok()
            && node.is_mine(slot)
            && slot.handle().is_none()
        {
            _ = node.retry(shard);
        }
    }
}

/// The swaps that are to be made now.
fn due(node: &Arc<Node>, deployed: &Deployed, followed: &Followed) -> Vec<Swapping> {
    if followed.since.is_none() {
        return Vec::new();
    }
    let record = followed.record();
    let wanted = node.wanted.load_full();
    let now = clock::now();
    let mut adopting = deployed.adopting();
    let room = node
        .config
        .shard
        .max_concurrency
        .saturating_sub(adopting.swapping.len());
    let mut swaps: Vec<Swapping> = Vec::new();
    for slot in &node.slots {
        if swaps.len() >= room {
            break;
        }
        let shard = slot.shard();
        let source = wanted.source(shard);
        let (Some(handle), Ok(loaded)) = (slot.handle(), &source.loaded) else {
            continue;
        };
        let revision = source.revision;
        if handle.revision() == revision {
            adopting.failed.remove(&shard);
            continue;
        }
        let forth = is_target(&record, revision);
        if adopting.swapping.contains_key(&shard)
            || adopting
                .failed
                .get(&shard)
                .is_some_and(|failed| !failed.may_try(&record, revision, forth, now))
        {
            continue;
        }
        adopting.swapping.insert(shard, revision);
        let (node, loaded) = (node.clone(), loaded.clone());
        let number = record.number;
        swaps.push(Box::pin(async move {
            let outcome = tokio::select! {
                outcome = one(&node, shard, loaded, !forth) => outcome,
                // It may take long, where data is migrated. The shard gives up what nobody waits for.
                () = unwanted(&node, shard, revision) => None,
            };
            Ended {
                shard,
                number,
                revision,
                outcome,
            }
        }));
    }
    swaps
}

/// Waits until a shard is to run something else.
async fn unwanted(node: &Node, shard: u32, revision: u64) {
    let mut changed = node.changed.subscribe();
    while node.wanted.load().source(shard).revision == revision {
        if changed.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Swaps a shard. To what is stable it goes rather without its memory than not at all; and what the old revision does not hand over, by its
/// own fault, does not keep a new one away.
async fn one(
    node: &Arc<Node>,
    shard: u32,
    loaded: Arc<Loaded>,
    anyhow: bool,
) -> Option<Result<Swapped, NotSwapped>> {
    let with = SwapOptions { carry_memory: true };
    let first = swap::one(node, shard, loaded.clone(), with).await.1?;
    match first {
        Err(why) if why.step == SwapStep::Suspend || (anyhow && why.step == SwapStep::Resume) => {
            tracing::warn!(event = "deploy.memory_lost", shard, revision = loaded.revision(), %why, "swapping without the memory of the old revision");
            let without = SwapOptions {
                carry_memory: false,
            };
            swap::one(node, shard, loaded, without).await.1
        }
        other => Some(other),
    }
}

fn end(deployed: &Deployed, ended: Ended) {
    let Ended {
        shard,
        number,
        revision,
        outcome,
    } = ended;
    let mut adopting = deployed.adopting();
    adopting.swapping.remove(&shard);
    match outcome {
        Some(Ok(swapped)) => {
            adopting.failed.remove(&shard);
            if adopting.swaps.number == number {
                let swaps = &mut adopting.swaps;
                swaps.pauses.record(swapped.pause);
                swaps.longest = swaps.longest.max(swapped.pause);
                swaps.parked = swaps.parked.saturating_add(swapped.parked as u64);
            }
            let Swapped {
                from,
                to,
                pause,
                parked,
            } = swapped;
            tracing::info!(
                event = "deploy.swapped",
                shard,
                from,
                revision = to,
                rollout = number,
                ?pause,
                parked,
                "shard swapped"
            );
        }
        Some(Err(why)) => {
            let excused = matches!(
                why.error.kind,
                CallErrorKind::NoRoom | CallErrorKind::Overloaded
            );
            let before = adopting.failed.get(&shard);
            let before = before.filter(|before| before.revision == revision);
            let tries = before.map_or(0, |before| before.tries).saturating_add(1);
            let pause = (FIRST_PAUSE * 2_u32.saturating_pow(tries.min(8) - 1)).min(LONGEST_PAUSE);
            tracing::error!(event = "deploy.not_swapped", shard, revision, rollout = number, %why, excused, "shard did not take a revision, and goes on with the one that it runs");
            let failed = Failed {
                number,
                revision,
                why: why.to_string(),
                tries,
                excused,
                again: clock::now() + pause,
            };
            adopting.failed.insert(shard, failed);
        }
        None => {}
    }
    deployed.metrics.failed(adopting.failed.len());
}

/// When a swap that failed is to be tried again.
fn next_try(deployed: &Deployed) -> Option<Instant> {
    let adopting = deployed.adopting();
    let now = clock::now();
    let times = adopting.failed.values().map(|failed| failed.again);
    times.filter(|at| *at > now).min()
}

impl Failed {
    /// Whether a swap to a revision may be tried. In a rollout that goes forth a shard tries its target once.
    fn may_try(&self, record: &RolloutRecord, revision: u64, forth: bool, now: Instant) -> bool {
        if self.revision != revision {
            return true;
        }
        if forth && !self.excused {
            return self.number != record.number;
        }
        now >= self.again
    }

    /// Whether it says that a shard cannot run a revision.
    pub(super) fn blames(&self, number: u64, revision: u64) -> bool {
        !self.excused && self.revision == revision && self.number == number
    }
}

/// Whether a revision is what the rollout in progress brings.
fn is_target(record: &RolloutRecord, revision: u64) -> bool {
    record
        .active
        .as_ref()
        .is_some_and(|active| active.target == revision && active.phase != Phase::Back)
}

impl Deployed {
    /// What a shard that opens begins with: what it is to run, unless that failed on it in this very rollout.
    pub fn opens_with(&self, wanted: &Wanted, shard: u32) -> Result<Arc<Loaded>, Arc<str>> {
        let source = wanted.source(shard);
        let number = self.followed.borrow().record().number;
        let failed = self
            .adopting()
            .failed
            .get(&shard)
            .is_some_and(|failed| failed.blames(number, source.revision));
        match &wanted.stable().loaded {
            Ok(stable) if failed => Ok(stable.clone()),
            _ => wanted.opens_with(shard),
        }
    }
}

/// Whether a shard has a guest that cannot be had to serve by waiting.
pub(super) fn is_lost(state: ShardState) -> bool {
    state == ShardState::Quarantined
}

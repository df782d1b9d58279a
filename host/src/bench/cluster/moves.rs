//! An operator moves a shard that is called all the time, through every node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::figure::{Figure, Times, Unit};
use super::ring::{Member, Ring};
use super::{Error, Part};
use crate::call::Durability;
use crate::clock;

const NODES: usize = 3;
/// Callers through each node.
const CALLERS: usize = 2;
const WITHIN: Duration = Duration::from_secs(30);
/// Load before and after each move.
const AROUND: Duration = Duration::from_millis(300);

/// What one caller saw.
#[derive(Default)]
struct Seen {
    acknowledged: u64,
    failed: u64,
    why: Option<String>,
    /// The last acknowledgement of the node that had the shard.
    last: Option<Instant>,
    /// The first one of the node that has it then.
    first: Option<Instant>,
}

/// What all callers of a shard share.
struct Load {
    shard: u32,
    /// The node that has it,
    from: String,
    /// and the one that gets it.
    to: String,
    /// That one has acknowledged a call.
    arrived: Notify,
    over: AtomicBool,
}

/// What moves came to.
#[derive(Default)]
struct Found {
    gaps: Vec<Duration>,
    /// Of each caller, its own.
    waits: Vec<Duration>,
    calls: u64,
    failed: u64,
    lost: u64,
}

pub(super) async fn measure(
    ring: &Ring,
    moves: u32,
    progress: &impl Fn(&str),
    found: &mut impl FnMut(Figure),
) -> Result<(), Error> {
    let members: Vec<_> = ring
        .start_all(NODES)
        .await?
        .into_iter()
        .map(Arc::new)
        .collect();
    let mut all = Found::default();
    for number in 1..=moves {
        if number % 10 == 1 {
            progress(&format!("  move {number} of {moves}"));
        }
        one(ring, &members, &mut all, progress).await?;
    }
    let gaps = Times::of(all.gaps);
    let gap = |what: &str, time| Figure::time(Part::Move, format!("write gap, {what}"), time);
    let peers =
        "KCL 3 up to 30 s; Akka buffers for seconds; CockroachDB milliseconds (it opens nothing)";
    found(gap("p50", gaps.percentile(50)).at_most(400.0).peers(peers));
    found(gap("p99", gaps.percentile(99)));
    found(gap("max", gaps.max()));
    let waits = Times::of(all.waits);
    let wait =
        |what: &str, time| Figure::time(Part::Move, format!("wait of a caller, {what}"), time);
    found(wait("p50", waits.percentile(50)));
    found(wait("p99", waits.percentile(99)));
    let count = |what: String, value: u64| Figure::new(Part::Move, what, value as f64, Unit::Count);
    found(count(format!("failed of {} calls", all.calls), all.failed).at_most(0.0));
    found(count("acknowledged writes that are missing".into(), all.lost).at_most(0.0));
    for member in members {
        member.cluster.stop().await;
    }
    Ok(())
}

/// Moves a shard of the node that has most to one that has fewer, so that nothing else has to move.
async fn one(
    ring: &Ring,
    members: &[Arc<Member>],
    all: &mut Found,
    progress: &impl Fn(&str),
) -> Result<(), Error> {
    let by_load = |member: &&Arc<Member>| member.serves().len();
    let from = members.iter().max_by_key(by_load);
    let to = members.iter().min_by_key(by_load);
    let (Some(from), Some(to)) = (from, to) else {
        return Err(Error("there is no node".into()));
    };
    let shards = from.serves();
    let shard = shards[rand::random_range(0..shards.len())];
    let before = count(from, shard).await?;
    let load = Arc::new(Load {
        shard,
        from: from.name.clone(),
        to: to.name.clone(),
        arrived: Notify::new(),
        over: AtomicBool::new(false),
    });
    let mut callers = JoinSet::new();
    for member in members {
        for _ in 0..CALLERS {
            callers.spawn(call(member.clone(), load.clone()));
        }
    }
    tokio::time::sleep(AROUND).await;
    let moved = from.cluster.move_shard(shard, &to.name, WITHIN).await;
    // Who never arrives is missed below.
    _ = tokio::time::timeout(WITHIN, load.arrived.notified()).await;
    tokio::time::sleep(AROUND).await;
    load.over.store(true, Ordering::Release);
    let mut seen = Seen::default();
    while let Some(caller) = callers.join_next().await {
        let caller = caller.map_err(|error| Error(error.to_string()))?;
        all.waits.extend(caller.gap());
        seen.add(caller);
    }
    moved.map_err(|error| Error(error.to_string()))?;
    let gap = seen.gap();
    all.gaps
        .push(gap.ok_or_else(|| Error("a move was not seen by its callers".into()))?);
    all.calls += seen.acknowledged + seen.failed;
    all.failed += seen.failed;
    if let Some(why) = seen.why {
        progress(&format!("  a call failed: {why}"));
    }
    let after = count(to, shard).await?;
    all.lost += (before + seen.acknowledged).saturating_sub(after);
    ring.settled(&members.iter().map(|member| &**member).collect::<Vec<_>>())
        .await
}

/// Calls a shard until it is over.
async fn call(through: Arc<Member>, load: Arc<Load>) -> Seen {
    let mut seen = Seen::default();
    while !load.over.load(Ordering::Acquire) {
        match through.increment(load.shard, WITHIN).await {
            Ok(reply) => {
                let now = clock::now();
                seen.acknowledged += 1;
                if *reply.node == *load.from {
                    seen.last = Some(now);
                } else if *reply.node == *load.to && seen.first.is_none() {
                    seen.first = Some(now);
                    load.arrived.notify_one();
                }
            }
            Err(error) => {
                seen.failed += 1;
                seen.why = Some(error.to_string());
            }
        }
    }
    seen
}

impl Seen {
    /// From the last acknowledgement of the one node to the first of the other.
    fn gap(&self) -> Option<Duration> {
        let (last, first) = self.last.zip(self.first)?;
        Some(first.saturating_duration_since(last))
    }

    fn add(&mut self, other: Self) {
        self.acknowledged += other.acknowledged;
        self.failed += other.failed;
        self.why = self.why.take().or(other.why);
        self.last = self.last.max(other.last);
        self.first = match (self.first, other.first) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }
}

/// How far a shard has counted.
async fn count(member: &Member, shard: u32) -> Result<u64, Error> {
    let reply = member.call(shard, "get", Durability::Durable, WITHIN).await;
    let reply = reply.map_err(|error| Error(error.to_string()))?;
    let text = std::str::from_utf8(&reply.payload).unwrap_or_default();
    text.parse()
        .map_err(|_| Error(format!("shard {shard} counts {text:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_together_saw_the_last_of_one_node_and_the_first_of_the_other() {
        let begun = clock::now();
        let at = |millis| Some(begun + Duration::from_millis(millis));
        let mut all = Seen::default();
        for (acknowledged, failed, last, first) in [
            (3, 0, at(10), at(90)),
            (2, 1, at(30), None),
            (1, 0, None, at(70)),
        ] {
            all.add(Seen {
                acknowledged,
                failed,
                why: (failed > 0).then(|| "why".into()),
                last,
                first,
            });
        }
        assert_eq!((all.acknowledged, all.failed), (6, 1));
        assert_eq!((all.last, all.first), (at(30), at(70)));
        assert_eq!(all.gap(), Some(Duration::from_millis(40)));
        assert_eq!(all.why.as_deref(), Some("why"));
    }
}

//! A node is cut off from the store without leaving: how long its shards acknowledge nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::figure::{Figure, Times, Unit};
use super::ring::{Member, Ring};
use super::{Error, Part};
use crate::clock;

const NODES: usize = 3;
/// How long each call is waited for. One that the dead node has is not made again before.
const WITHIN: Duration = Duration::from_millis(500);
/// The pause between two calls to a shard.
const PAUSE: Duration = Duration::from_millis(10);
/// All shards acknowledge for so long before.
const BEFORE: Duration = Duration::from_secs(1);

pub(super) async fn measure(
    ring: &Ring,
    rounds: u32,
    progress: &impl Fn(&str),
    found: &mut impl FnMut(Figure),
) -> Result<(), Error> {
    let members: Vec<_> = ring
        .start_all(NODES)
        .await?
        .into_iter()
        .map(Arc::new)
        .collect();
    let mut gaps = Vec::new();
    let ttl = ring.lease();
    for round in 0..rounds {
        progress(&format!("  TTL {ttl:?}, round {} of {rounds}", round + 1));
        let victim = round as usize % NODES;
        gaps.extend(one(ring, &members, victim).await?);
        members[victim].heal();
        ring.settled(&members.iter().map(|member| &**member).collect::<Vec<_>>())
            .await?;
    }
    let gaps = Times::of(gaps);
    let figure =
        |what: &str, time| Figure::time(Part::Failover, format!("TTL {ttl:?}: {what}"), time);
    let bound = ttl + ring.interval() + Duration::from_secs(1);
    found(Figure::new(
        Part::Failover,
        format!("TTL {ttl:?}: shards that failed over"),
        gaps.len() as f64,
        Unit::Count,
    ));
    found(figure("mean", gaps.mean()));
    found(figure("p50", gaps.percentile(50)));
    let peers = "KCL 10-30 s, Orleans ~15 s, Kubernetes 15-17 s, Event Hubs 60 s, celld ~11 s at TTL 10 s, CockroachDB < 15 s";
    let p99 = figure("p99", gaps.percentile(99));
    found(p99.at_most(bound.as_secs_f64() * 1e3).peers(peers));
    found(figure("max", gaps.max()));
    for member in members {
        member.cluster.stop().await;
    }
    Ok(())
}

/// Cuts one node off, and gives for each of its shards the time from its last acknowledgement to the first elsewhere.
async fn one(ring: &Ring, members: &[Arc<Member>], victim: usize) -> Result<Vec<Duration>, Error> {
    let dead = &members[victim];
    let others: Vec<_> = members
        .iter()
        .filter(|member| member.name != dead.name)
        .collect();
    let mut watches = JoinSet::new();
    for (number, shard) in dead.serves().into_iter().enumerate() {
        let through = others[number % others.len()].clone();
        watches.spawn(watch(through, shard, dead.name.clone()));
    }
    // At no certain moment between two renewals.
    let moment = ring.interval().mul_f64(rand::random());
    tokio::time::sleep(BEFORE + moment).await;
    dead.cut();
    let limit = ring.lease() * 4 + Duration::from_secs(60);
    let gaps = async {
        let mut gaps = Vec::new();
        while let Some(gap) = watches.join_next().await {
            let gap = gap.map_err(|error| Error(error.to_string()))?;
            gaps.push(
                gap.ok_or_else(|| Error("a shard left its node before that was cut off".into()))?,
            );
        }
        Ok(gaps)
    };
    tokio::time::timeout(limit, gaps).await.unwrap_or_else(|_| {
        Err(Error(format!(
            "shards of a node that was cut off acknowledged nothing elsewhere within {limit:?}"
        )))
    })
}

/// Calls a shard until another node acknowledges. None when it never did where it was.
async fn watch(through: Arc<Member>, shard: u32, dead: String) -> Option<Duration> {
    let mut last: Option<Instant> = None;
    loop {
        if let Ok(reply) = through.increment(shard, WITHIN).await {
            let now = clock::now();
            if *reply.node != *dead {
                return last.map(|last| now - last);
            }
            last = Some(now);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

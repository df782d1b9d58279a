//! A call that is in progress when a swap is due: it is waited for, and never cut short. Where it takes too long, the old guest goes on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use quarry::Cluster;
use quarry::call::CallErrorKind;
use quarry::cluster::status::ShardState;
use quarry::cluster::{SwapError, SwapOptions, SwapStep};
use quarry::guest::native::{self, Logic};
use quarry::guest::{GuestError, InstanceContext, Module, Reply, Request};
use tokio::sync::watch;

use super::callers::{Callers, each_counted_once};
use crate::support::guests::{self, ask, shown};
use crate::support::native::{call, config};
use crate::support::process::{DEADLINE, until};
use crate::support::store::within;

const DRAIN: Duration = Duration::from_millis(300);

/// Where the calls of `hold` and `block` are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    No,
    Begun,
    Over,
}

/// Counts in memory, and hands it over. `hold` lasts until it is over, and so does `block`, which keeps its thread.
struct Holds {
    hand: Arc<watch::Sender<Hold>>,
    count: u64,
}

fn holds(hand: &Arc<watch::Sender<Hold>>, revision: u64) -> Arc<dyn Module> {
    let hand = hand.clone();
    native::module("main", revision, move |_| Holds {
        hand: hand.clone(),
        count: 0,
    })
}

#[async_trait]
impl Logic for Holds {
    const HANDOFF: bool = true;

    async fn call(&mut self, _: &InstanceContext, request: &Request) -> Result<Reply, GuestError> {
        match request.method.as_str() {
            "hold" => {
                self.hand.send_replace(Hold::Begun);
                let mut hand = self.hand.subscribe();
                _ = hand.wait_for(|hold| *hold == Hold::Over).await;
            }
            "block" => {
                self.hand.send_replace(Hold::Begun);
                let begun = Instant::now();
                while *self.hand.borrow() != Hold::Over && begun.elapsed() < DEADLINE {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            _ => {}
        }
        self.count += 1;
        Ok(Reply::new(self.count.to_string()))
    }

    async fn suspend(&mut self, _: &InstanceContext) -> Result<bytes::Bytes, GuestError> {
        Ok(self.count.to_string().into())
    }

    async fn resume(
        &mut self,
        _: &InstanceContext,
        _: u64,
        state: &[u8],
    ) -> Result<(), GuestError> {
        let count = std::str::from_utf8(state).expect("text").parse();
        self.count = count.expect("a count");
        Ok(())
    }
}

/// Checks what a swap says that was given up for a call on shard 0, and that the shard runs what it ran.
#[track_caller]
fn given_up(cluster: &Cluster, error: &SwapError, what: &str) {
    let text = error.to_string();
    for part in ["shard 0", "limits.drain", "300ms", "goes on"] {
        assert!(text.contains(part), "{what}: {part}: {text}");
    }
    let SwapError::NotAdopted { shard: 0, why, .. } = error else {
        panic!("{what}: {error:?}");
    };
    assert_eq!(why.step, SwapStep::Drain, "{what}");
    assert_eq!(why.error.kind, CallErrorKind::Timeout, "{what}");
    let report = cluster.shard_report(0).expect("a report");
    assert_eq!(
        (report.revision, report.status, report.traps),
        (Some(1), ShardState::Running, 0),
        "{what}"
    );
}

/// A native guest that waits, and one that keeps the thread of all shards.
#[tokio::test(flavor = "multi_thread")]
async fn native_logic_that_does_not_end_is_left_alone() {
    for method in ["hold", "block"] {
        for carry_memory in [true, false] {
            let what = format!("{method}, memory {carry_memory}");
            let mut config = config();
            config.limits.drain = DRAIN;
            let hand = Arc::new(watch::Sender::new(Hold::No));
            let cluster = Cluster::start(Arc::new(config), holds(&hand, 1))
                .await
                .expect("start");
            let key = guests::keys(&cluster).swap_remove(0);
            let holding = tokio::spawn({
                let (cluster, key) = (cluster.clone(), key.clone());
                async move { call(&cluster, &key, method, "").await }
            });
            let mut begun = hand.subscribe();
            let begun = within(begun.wait_for(|hold| *hold == Hold::Begun)).await;
            drop(begun.expect("it has begun"));
            // They wait for it, and go on after it.
            let waiting: Vec<_> = (0..8)
                .map(|_| {
                    let (cluster, key) = (cluster.clone(), key.clone());
                    tokio::spawn(async move { call(&cluster, &key, "count", "").await })
                })
                .collect();
            let options = SwapOptions { carry_memory };
            let ordered = Instant::now();
            let swap = cluster.swap_with(holds(&hand, 2), options);
            let error = within(swap).await.expect_err("given up");
            assert!(ordered.elapsed() >= DRAIN, "{what}: not before its time");
            given_up(&cluster, &error, &what);
            assert!(!holding.is_finished(), "{what}: it was not cut short");
            hand.send_replace(Hold::Over);
            let held = within(holding).await.expect("a caller").expect("a reply");
            assert_eq!((shown(&held).as_str(), held.revision), ("1", 1), "{what}");
            let mut counts = Vec::new();
            for caller in waiting {
                let reply = within(caller).await.expect("a caller").expect("a reply");
                assert_eq!(reply.revision, 1, "{what}");
                counts.push(shown(&reply).parse::<u64>().expect("a count"));
            }
            counts.sort_unstable();
            assert_eq!(counts, (2..=9).collect::<Vec<_>>(), "{what}");
            // The one that was given up is not in the way of the next.
            let swap = cluster.swap_with(holds(&hand, 3), options);
            within(swap).await.expect("nothing is in progress");
            let count = if carry_memory { "10" } else { "1" };
            assert_eq!(ask(&cluster, &key, "count", "").await, count, "{what}");
            cluster.stop().await;
        }
    }
}

/// Beside load: it waits with the call that lingers, and nothing of it is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_component_that_does_not_end_is_left_alone() {
    for carry_memory in [true, false] {
        let what = format!("memory {carry_memory}");
        let mut config = config();
        config.limits.drain = DRAIN;
        let cluster = guests::start(config.clone(), "handoff").await;
        let key = guests::keys(&cluster).swap_remove(0);
        let lingering = tokio::spawn({
            let (cluster, key) = (cluster.clone(), key.clone());
            async move { call(&cluster, &key, "linger", "2500").await }
        });
        let queued = |least: usize| {
            let report = cluster.shard_report(0).expect("a report");
            (report.queued >= least).then_some(())
        };
        until("it is with its shard", || queued(1)).await;
        let callers = Callers::start(&cluster, 16, 4, "count-through");
        until("callers wait for it", || queued(2)).await;
        let options = SwapOptions { carry_memory };
        let newer = guests::module(&config, "handoff", 2).await;
        let error = within(cluster.swap_with(newer, options))
            .await
            .expect_err("given up");
        given_up(&cluster, &error, &what);
        let reply = within(lingering).await.expect("a caller").expect("a reply");
        assert_eq!((shown(&reply).as_str(), reply.revision), ("1", 1), "{what}");
        assert_eq!(ask(&cluster, &key, "memory", "").await, "1 0", "{what}");
        let newest = guests::module(&config, "handoff", 3).await;
        within(cluster.swap_with(newest, options))
            .await
            .expect("nothing lingers");
        let memory = if carry_memory { "1 0" } else { "0 0" };
        assert_eq!(ask(&cluster, &key, "memory", "").await, memory, "{what}");
        each_counted_once(&callers.stop().await);
        cluster.stop().await;
    }
}

//! Memory that goes along: nothing that a call counted is lost or counted twice, whatever a revision does on the way.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use quarry::Cluster;
use quarry::call::CallErrorKind;
use quarry::cluster::status::ShardState;
use quarry::cluster::{SwapError, SwapOptions, SwapReport, SwapStep};
use quarry::config::Config;
use quarry::guest::native::{self, Logic};
use quarry::guest::{GuestError, InstanceContext, Reply, Request};

use super::callers::{Callers, each_counted_once};
use crate::support::guests::{self, ask, options, refused, shown};
use crate::support::native::{call, config};
use crate::support::store::{fresh, within};

async fn swap(cluster: &Cluster, config: &Config, revision: u64) -> Result<SwapReport, SwapError> {
    swap_with(cluster, config, revision, SwapOptions::default()).await
}

async fn swap_with(
    cluster: &Cluster,
    config: &Config,
    revision: u64,
    options: SwapOptions,
) -> Result<SwapReport, SwapError> {
    let module = guests::module(config, "handoff", revision).await;
    within(cluster.swap_with(module, options)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_goes_back_and_forth_under_load() {
    const SWAPS: u64 = 100;
    let config = config();
    let cluster = guests::start(config.clone(), "handoff").await;
    let callers = Callers::start(&cluster, 64, 8, "count");
    let mut pauses = Vec::new();
    for swaps in 1..=SWAPS {
        let report = swap(&cluster, &config, 1 + swaps % 2).await.expect("swap");
        assert_eq!(report.shards, 2);
        pauses.push(report.longest_pause());
        for key in ["counter-0", "counter-1"] {
            ask(&cluster, key, "memory", "").await;
        }
    }
    let counts = callers.stop().await;
    each_counted_once(&counts);
    for key in guests::keys(&cluster) {
        let resumed = ask(&cluster, &key, "resumed", "").await;
        let resumed: Vec<u64> = serde_json::from_str(&resumed).expect("revisions");
        let from = (1..=SWAPS).map(|swaps| 2 - swaps % 2);
        assert_eq!(resumed, from.collect::<Vec<_>>());
    }
    pauses.sort_unstable();
    let calls: usize = counts.values().map(Vec::len).sum();
    println!(
        "{calls} calls, {SWAPS} swaps; pause p50 {:?}, p99 {:?}, max {:?}",
        pauses[pauses.len() / 2],
        pauses[pauses.len() * 99 / 100],
        pauses[pauses.len() - 1]
    );
    cluster.stop().await;
}

/// Without its memory a guest begins with what it reads at its start. No call runs beside that, or the cache would miss what it wrote.
#[tokio::test(flavor = "multi_thread")]
async fn a_cache_that_a_start_fills_misses_nothing() {
    let config = config();
    let cluster = guests::start(config.clone(), "handoff").await;
    let callers = Callers::start(&cluster, 16, 4, "count-through");
    for swaps in 1..=30 {
        let carry_memory = swaps % 3 == 0;
        let swapped = swap_with(
            &cluster,
            &config,
            1 + swaps % 2,
            SwapOptions { carry_memory },
        );
        swapped.await.expect("swap");
        ask(&cluster, "counter-0", "memory", "").await;
    }
    each_counted_once(&callers.stop().await);
    cluster.stop().await;
}

/// The start of the new revision ends only when the old one has served a call.
#[tokio::test(flavor = "multi_thread")]
async fn the_old_revision_serves_while_the_new_one_starts() {
    let mut config = Config {
        shards: 1,
        ..config()
    };
    options(
        &mut config,
        r#"{"revision":2,"step":"start","how":"notify"}"#,
    );
    let cluster = guests::start(config.clone(), "handoff").await;
    let swapping = tokio::spawn({
        let (cluster, config) = (cluster.clone(), config.clone());
        async move { swap(&cluster, &config, 2).await }
    });
    within(async { while ask(&cluster, "early", "get", "").await.is_empty() {} }).await;
    // Durable once it is told, and with it what the new revision wrote before and asked to be told of.
    ask(&cluster, "a", "notify", "7").await;
    let reply = within(call(&cluster, "a", "count", ""))
        .await
        .expect("call");
    assert_eq!((shown(&reply).as_str(), reply.revision), ("1", 1));
    ask(&cluster, "go", "put", "x").await;
    let report = within(swapping).await.expect("join").expect("swap");
    assert_eq!(report.revision, 2);
    let reply = within(call(&cluster, "a", "count", ""))
        .await
        .expect("call");
    assert_eq!((shown(&reply).as_str(), reply.revision), ("2", 2));
    within(async { while ask(&cluster, "a", "tags", "").await != "[7,77]" {} }).await;
    cluster.stop().await;
}

/// A step, how it fails, what the error says, and whether the old instance lives.
const FAILURES: [(&str, &str, &str, bool); 13] = [
    ("start", "error", "start failed on purpose", true),
    ("start", "panic", "start panicked on purpose", true),
    ("start", "spin", "limits.cpu_time (200ms)", true),
    ("start", "hang", "limits.start_time (500ms)", true),
    ("suspend", "error", "suspend failed on purpose", true),
    (
        "suspend",
        "large",
        "65536 bytes are over limits.handoff_bytes (65535 bytes)",
        true,
    ),
    (
        "suspend",
        "huge",
        "far over limits.handoff_bytes (65535 bytes)",
        false,
    ),
    ("suspend", "panic", "suspend panicked on purpose", false),
    ("suspend", "spin", "limits.cpu_time (200ms)", false),
    ("suspend", "hang", "limits.handoff_time (500ms)", false),
    ("resume", "error", "resume failed on purpose", true),
    ("resume", "panic", "resume panicked on purpose", true),
    ("resume", "hang", "limits.handoff_time (500ms)", true),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_swap_that_fails_fails_no_call() {
    for (step, how, says, kept) in FAILURES {
        let mut config = config();
        let of = if step == "suspend" { 1 } else { 2 };
        options(
            &mut config,
            &format!(r#"{{"revision":{of},"step":"{step}","how":"{how}"}}"#),
        );
        config.limits.cpu_time = Duration::from_millis(200);
        config.limits.handoff_bytes = 65_535;
        // The host copies four times the largest of these at most.
        config.limits.value = 64 << 10;
        config.limits.reply = 64 << 10;
        config.limits.batch = 256 << 10;
        config.limits.traps = 0;
        if how == "hang" {
            config.limits.start_time = Duration::from_millis(500);
            config.limits.handoff_time = Duration::from_millis(500);
        }
        let cluster = guests::start(config.clone(), "handoff").await;
        let key = &guests::keys(&cluster)[0];
        for _ in 0..3 {
            ask(&cluster, key, "count", "").await;
        }
        let callers = Callers::start(&cluster, 8, 4, "count");
        let error = swap(&cluster, &config, 2).await.expect_err(says);
        let text = error.to_string();
        assert!(
            text.contains(says) && text.contains("every shard runs what it ran before"),
            "{step} {how}: {text}"
        );
        let SwapError::NotAdopted {
            revision: 2,
            shard: 0,
            why,
        } = error
        else {
            panic!("{step} {how}: {error:?}");
        };
        let failed_at = match step {
            "start" => SwapStep::Start,
            "suspend" => SwapStep::Suspend,
            _ => SwapStep::Resume,
        };
        assert_eq!(why.step, failed_at, "{step} {how}");
        let (memory, traps) = if kept { ("3 0", 0) } else { ("0 0", 1) };
        assert_eq!(
            ask(&cluster, key, "memory", "").await,
            memory,
            "{step} {how}"
        );
        let report = cluster.shard_report(0).expect("a report");
        assert_eq!(
            (report.revision, report.status, report.traps),
            (Some(1), ShardState::Running, traps),
            "{step} {how}"
        );
        // The next one is not in the way of its own failure.
        let next = SwapOptions {
            carry_memory: step != "suspend",
        };
        let swapped = swap_with(&cluster, &config, 3, next).await;
        swapped.unwrap_or_else(|error| panic!("{step} {how}: {error}"));
        let memory = if next.carry_memory { "3 0" } else { "0 0" };
        assert_eq!(
            ask(&cluster, key, "memory", "").await,
            memory,
            "{step} {how}"
        );
        let counts = callers.stop().await;
        if next.carry_memory {
            each_counted_once(&counts);
        }
        cluster.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_swapped_goes_back_with_its_memory() {
    let mut config = config();
    options(
        &mut config,
        r#"{"revision":2,"step":"resume","how":"panic","shard":1}"#,
    );
    let cluster = guests::start(config.clone(), "handoff").await;
    let callers = Callers::start(&cluster, 8, 4, "count");
    let error = swap(&cluster, &config, 2).await.expect_err("shard 1 fails");
    assert!(
        matches!(error, SwapError::NotAdopted { shard: 1, .. }),
        "{error:?}"
    );
    let keys = guests::keys(&cluster);
    assert_eq!(ask(&cluster, &keys[0], "resumed", "").await, "[1,2]");
    assert_eq!(ask(&cluster, &keys[1], "resumed", "").await, "[]");
    each_counted_once(&callers.stop().await);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swap_heals_a_quarantined_shard() {
    for how in ["none", "error"] {
        let mut config = Config {
            shards: 1,
            ..config()
        };
        options(
            &mut config,
            &format!(r#"{{"revision":2,"step":"start","how":"{how}"}}"#),
        );
        config.limits.traps = 0;
        let cluster = guests::start(config.clone(), "handoff").await;
        ask(&cluster, "a", "count-through", "").await;
        refused(&cluster, "a", "panic", "").await;
        let error = refused(&cluster, "a", "memory", "").await;
        assert_eq!(error.kind, CallErrorKind::Quarantined, "{error}");
        if how == "error" {
            let error = swap(&cluster, &config, 2).await.expect_err("no start");
            assert!(error.to_string().contains("start failed on purpose"));
            let error = refused(&cluster, "a", "memory", "").await;
            assert!(
                error.kind == CallErrorKind::Quarantined
                    && error.message.contains("call panicked on purpose"),
                "{error}"
            );
        }
        swap(&cluster, &config, 3).await.expect("swap");
        assert_eq!(ask(&cluster, "a", "memory", "").await, "0 1");
        assert_eq!(ask(&cluster, "a", "resumed", "").await, "[]");
        let report = cluster.shard_report(0).expect("a report");
        assert_eq!(
            (report.revision, report.status),
            (Some(3), ShardState::Running)
        );

        cluster.stop().await;
    }
}

/// The old instance traps while the new one starts: there is nothing to take over, and the new one starts again.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_instance_that_traps_meanwhile_keeps_nobody() {
    let mut config = Config {
        shards: 1,
        ..config()
    };
    options(
        &mut config,
        r#"{"revision":2,"step":"start","how":"notify"}"#,
    );
    config.limits.traps = 0;
    let cluster = guests::start(config.clone(), "handoff").await;
    let swapping = tokio::spawn({
        let (cluster, config) = (cluster.clone(), config.clone());
        async move { swap(&cluster, &config, 2).await }
    });
    within(async { while ask(&cluster, "early", "get", "").await.is_empty() {} }).await;
    ask(&cluster, "a", "count-through", "").await;
    refused(&cluster, "a", "go-and-panic", "").await;
    within(swapping).await.expect("join").expect("swap");
    assert_eq!(ask(&cluster, "a", "memory", "").await, "0 1");
    assert_eq!(ask(&cluster, "a", "resumed", "").await, "[]");
    cluster.stop().await;
}

/// A node that stops does not wait for a start.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_a_swap_on_its_way() {
    let store = fresh();
    let mut config = config();
    options(&mut config, r#"{"revision":2,"step":"start","how":"wait"}"#);
    config.limits.start_time = Duration::from_secs(3600);
    let cluster = guests::start_on(store.clone(), config.clone(), "handoff").await;
    ask(&cluster, "a", "put", "kept").await;
    let swapping = tokio::spawn({
        let module = guests::module(&config, "handoff", 2).await;
        let cluster = cluster.clone();
        async move { cluster.swap(module).await }
    });
    // Its word to the shards has gone out by then, or is refused; either way nothing hangs.
    ask(&cluster, "a", "count", "").await;
    within(cluster.stop()).await;
    let outcome = within(swapping).await.expect("join");
    assert!(outcome.is_ok_and(|report| report.shards == 0));
    let after = guests::start_on(store, config, "handoff").await;
    assert_eq!(ask(&after, "a", "get", "").await, "kept");
    after.stop().await;
}

/// One that hands over its memory is not stopped; one that does not is, and the new one takes nothing over.
#[tokio::test(flavor = "multi_thread")]
async fn a_guest_without_it_lives_beside_one_with() {
    let config = config();
    let cluster = guests::start(config.clone(), "handoff").await;
    ask(&cluster, "a", "count", "").await;
    swap(&cluster, &config, 2).await.expect("swap");
    assert_eq!(ask(&cluster, "stopped", "get", "").await, "");
    for (revision, key) in [(3, "stopped"), (5, "stopped")] {
        let kv = guests::module(&config, "kv", revision).await;
        within(cluster.swap(kv)).await.expect("swap");
        let stopped = format!("{} swapping", revision - 1);
        assert_eq!(ask(&cluster, key, "get", "").await, stopped);
        swap(&cluster, &config, revision + 1).await.expect("swap");
        assert_eq!(ask(&cluster, "a", "memory", "").await, "0 0");
        assert_eq!(ask(&cluster, "a", "resumed", "").await, "[]");
        ask(&cluster, "a", "count", "").await;
    }
    cluster.stop().await;
}

/// Native logic that counts, and says so to the next.
struct Count(u64);

#[async_trait]
impl Logic for Count {
    const HANDOFF: bool = true;

    async fn call(
        &mut self,
        _context: &InstanceContext,
        _request: &Request,
    ) -> Result<Reply, GuestError> {
        self.0 += 1;
        Ok(Reply::new(self.0.to_string()))
    }

    async fn suspend(&mut self, _context: &InstanceContext) -> Result<Bytes, GuestError> {
        Ok(Bytes::copy_from_slice(&self.0.to_le_bytes()))
    }

    async fn resume(
        &mut self,
        _context: &InstanceContext,
        from_revision: u64,
        state: &[u8],
    ) -> Result<(), GuestError> {
        let state = state.try_into().ok();
        let unknown = || GuestError::new("unknown-state", format!("of {from_revision}"));
        self.0 = u64::from_le_bytes(state.ok_or_else(unknown)?);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn native_logic_carries_its_memory_too() {
    let module = |revision| native::module("count", revision, |_| Count(0));
    let cluster = Cluster::start(Arc::new(config()), module(1))
        .await
        .expect("start");
    for revision in 2..=4 {
        ask(&cluster, "a", "count", "").await;
        within(cluster.swap(module(revision))).await.expect("swap");
    }
    assert_eq!(ask(&cluster, "a", "count", "").await, "4");
    cluster.stop().await;
}

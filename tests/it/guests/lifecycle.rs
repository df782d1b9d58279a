//! Guests that fail when they start, stop, or check their options.

use std::time::{Duration, Instant};

use quarry::Cluster;
use quarry::call::CallErrorKind;
use quarry::cluster::StartError;
use quarry::cluster::status::ShardState;
use quarry::config::Config;
use quarry::guest::TrapKind;

use crate::support::guests::{self, ask, options, refused};
use crate::support::native::{call, config};
use crate::support::store::{begun, fresh, within};

fn with(text: &str) -> Config {
    let mut config = config();
    options(&mut config, text);
    config.limits.cpu_time = Duration::from_millis(200);
    config
}

/// The node starts, and says of each shard why it does not serve.
#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_does_not_start_quarantines_its_shards_and_says_why() {
    let mut slow = with(r#"{"start":"spin"}"#);
    slow.limits.cpu_time = Duration::from_secs(20);
    slow.limits.start_time = Duration::from_millis(50);
    for (mut config, says) in [
        (
            with(r#"{"start":"error"}"#),
            "the guest's start failed with mine: start failed on purpose",
        ),
        (with(r#"{"start":"panic"}"#), "start panicked on purpose"),
        (with(r#"{"start":"spin"}"#), "limits.cpu_time (200ms)"),
        (slow, "limits.start_time (50ms)"),
    ] {
        config.limits.traps = 1;
        let cluster = within(guests::start(config, "lifecycle")).await;
        assert!(!cluster.ready(), "{says}");
        let error = refused(&cluster, "a", "get", "").await;
        assert_eq!(error.kind, CallErrorKind::Quarantined, "{error}");
        assert!(error.message.contains(says), "{error}");
        let not_ready = cluster
            .await_ready(Some(Duration::ZERO))
            .await
            .expect_err("no shard runs");
        assert_eq!(not_ready.shards.len(), 2);
        assert!(not_ready.to_string().contains(says), "{not_ready}");
        let error = within(cluster.restart_shard(0))
            .await
            .expect_err("it fails again");
        assert_eq!(
            error.kind,
            CallErrorKind::Trap(TrapKind::Instantiate),
            "{error}"
        );
        assert!(error.message.contains(says), "{error}");
        within(cluster.stop()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_fails_once_is_tried_again() {
    let cluster = guests::start(with(r#"{"start":"once"}"#), "lifecycle").await;
    within(cluster.await_ready(None)).await.expect("ready");
    for shard in [0, 1] {
        let report = || cluster.shard_report(shard).expect("a report");
        assert_eq!(report().status, ShardState::Running);
        // The guest's words may show what it wrote before it failed, so they are not told before that is durable.
        let told = async {
            while !report()
                .last_error
                .is_some_and(|error| error.contains("on purpose, once"))
            {
                tokio::task::yield_now().await;
            }
        };
        within(told).await;
    }
    ask(&cluster, "a", "put", "x").await;
    assert_eq!(ask(&cluster, "a", "get", "").await, "x");
    cluster.stop().await;
}

/// Nothing opens before the guest took its options.
#[tokio::test(flavor = "multi_thread")]
async fn options_that_a_guest_refuses_keep_the_node_from_starting() {
    for (text, says) in [
        (
            r#"{"validate":"refuse"}"#,
            &[
                "lifecycle",
                "refused on purpose",
                r#"{"validate":"refuse"}"#,
            ][..],
        ),
        (
            r#"{"wrong":1}"#,
            &[
                "there is no option `wrong`",
                "choose from start, stop, validate, durable, call",
            ],
        ),
        (r#"{"validate":"read"}"#, &["reading failed with closed"]),
        (
            r#"{"validate":"panic"}"#,
            &[
                "it failed to check its options",
                "validate panicked on purpose",
            ],
        ),
        (
            r#"{"validate":"spin"}"#,
            &["it failed to check its options", "limits.cpu_time (200ms)"],
        ),
    ] {
        let config = with(text);
        let module = guests::module(&config, "lifecycle", 1).await;
        let store = fresh();
        let started = within(Cluster::start_on(store.clone(), config.into(), module)).await;
        let error = started.map(|_| ()).expect_err(text);
        assert!(matches!(error, StartError::Guest { .. }), "{error:?}");
        for part in says {
            assert!(error.to_string().contains(part), "{text}: {error}");
        }
        let below = store.path("");
        let written =
            futures::TryStreamExt::try_collect::<Vec<_>>(store.objects().list(Some(&below)))
                .await
                .expect("a list");
        assert!(written.is_empty(), "{text}: {written:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn options_reach_the_guest() {
    let cluster = guests::start(with(r#"{"start":"write","stop":"write"}"#), "lifecycle").await;
    assert_eq!(
        ask(&cluster, "a", "options", "").await,
        r#"{"start":"write","stop":"write"}"#
    );
    cluster.stop().await;
}

/// Start and stop may write, and each runs once for an instance.
#[tokio::test(flavor = "multi_thread")]
async fn start_and_stop_write_to_the_open_database() {
    let store = fresh();
    for (starts, stopped) in [("1", ""), ("2", "stopping"), ("3", "stopping")] {
        let config = with(r#"{"start":"write","stop":"write"}"#);
        let cluster = guests::start_on(store.clone(), config.clone(), "lifecycle").await;
        assert_eq!(ask(&cluster, "a", "starts", "").await, starts);
        assert_eq!(ask(&cluster, "a", "stopped", "").await, stopped);
        if starts == "3" {
            let newer = guests::module(&config, "lifecycle", 2).await;
            within(cluster.swap(newer)).await.expect("swap");
            assert_eq!(ask(&cluster, "a", "starts", "").await, "4");
            assert_eq!(ask(&cluster, "a", "stopped", "").await, "swapping");
        }
        within(cluster.stop()).await;
    }
}

/// A stop that never returns costs `limits.stop_time`, wherever an instance is stopped.
#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_does_not_stop_is_cut_off() {
    for (stop, cpu_time) in [("spin", 20_000), ("spin", 50), ("panic", 20_000)] {
        let store = fresh();
        let mut config = with(&format!(r#"{{"stop":"{stop}"}}"#));
        config.limits.cpu_time = Duration::from_millis(cpu_time);
        config.limits.stop_time = Duration::from_millis(100);
        let cluster = guests::start_on(store.clone(), config.clone(), "lifecycle").await;
        ask(&cluster, "a", "put", "kept").await;
        within(cluster.restart_shard(0)).await.expect("restart");
        within(cluster.restart_shard(1)).await.expect("restart");
        let newer = guests::module(&config, "lifecycle", 2).await;
        within(cluster.swap(newer)).await.expect("swap");
        assert_eq!(ask(&cluster, "a", "get", "").await, "kept");
        let begun = Instant::now();
        within(cluster.stop()).await;
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "{stop}: the stop took {:?}",
            begun.elapsed()
        );
        let after = guests::start_on(store, config, "kv").await;
        assert_eq!(ask(&after, "a", "get", "").await, "kept", "{stop}");
        after.stop().await;
    }
}

/// A call that does not end is cut off after `shard.close_timeout`. Nobody is told that it did not run: it may have.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_does_not_wait_for_a_call_for_ever() {
    for (method, payload) in [("sleep", "25000"), ("spin", "")] {
        stop_during(method, payload).await;
    }
}

async fn stop_during(method: &'static str, payload: &'static str) {
    let store = fresh();
    let mut config = config();
    config.shard.close_timeout = Duration::from_secs(1);
    config.limits.cpu_time = Duration::from_secs(25);
    let cluster = guests::start_on(store.clone(), config.clone(), "misbehave").await;
    ask(&cluster, "a", "put", "kept").await;
    let shard = cluster.shard_for(b"a");
    let spawn = |method: &'static str, payload: &'static str| {
        let cluster = cluster.clone();
        begun(async move { call(&cluster, "a", method, payload).await })
    };
    let queued = async |calls| {
        within(async {
            while cluster.shard_report(shard).expect("a report").queued < calls {
                tokio::task::yield_now().await;
            }
        })
        .await;
    };
    let running = spawn(method, payload);
    queued(1).await;
    let waiting = spawn("put", "never");
    queued(2).await;
    let begun = Instant::now();
    within(cluster.stop()).await;
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{method}: the stop took {:?}",
        begun.elapsed()
    );
    let error = within(running)
        .await
        .expect("join")
        .expect_err("it was cut off");
    assert_eq!(error.kind, CallErrorKind::Unknown, "{method}: {error}");
    assert!(!error.never_ran() && !error.retryable, "{method}: {error}");
    let error = within(waiting)
        .await
        .expect("join")
        .expect_err("it never began");
    assert_eq!(error.kind, CallErrorKind::Unassigned, "{method}: {error}");
    let after = guests::start_on(store, config, "misbehave").await;
    assert_eq!(ask(&after, "a", "get", "").await, "kept");
    after.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_fails_to_take_durable_tags_is_replaced() {
    for (durable, says) in [
        ("panic", "durable panicked on purpose: [7]"),
        ("spin", "limits.cpu_time (200ms)"),
    ] {
        let mut config = with(&format!(r#"{{"durable":"{durable}"}}"#));
        config.limits.traps = 0;
        let cluster = guests::start(config, "lifecycle").await;
        let shard = cluster.shard_for(b"a");
        ask(&cluster, "a", "put", "kept").await;
        // The reply may come before the tag is handed over, or be refused after it.
        let notified = within(call(&cluster, "a", "notify", "7")).await;
        assert!(notified.is_ok(), "{notified:?}");
        within(async {
            while cluster.shard_report(shard).expect("a report").status != ShardState::Quarantined {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let error = refused(&cluster, "a", "get", "").await;
        assert!(
            error.kind == CallErrorKind::Quarantined && error.message.contains(says),
            "{error}"
        );
        within(cluster.restart_shard(shard)).await.expect("restart");
        assert_eq!(ask(&cluster, "a", "get", "").await, "kept");
        cluster.stop().await;
    }
}

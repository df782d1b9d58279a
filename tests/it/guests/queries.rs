//! Queries: read-only, in parallel with calls and each other, and as badly behaved.

use std::time::Duration;

use quarry::call::{CallErrorKind, QueryOptions, Read, Target};
use quarry::guest::TrapKind;

use crate::support::guests::{self, ask, query, shown};
use crate::support::native::{call, config};
use crate::support::neighbour::Neighbour;
use crate::support::store::{Held, within};

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_fails_costs_nobody_anything() {
    let mut config = config();
    config.limits.cpu_time = Duration::from_secs(1);
    config.limits.memory = 32 << 20;
    config.limits.reply = 1 << 20;
    config.limits.query_instances = 2;
    let cluster = guests::start(config, "misbehave").await;
    // The very shard whose queries fail.
    let neighbour = Neighbour::of(&cluster, "a");
    neighbour.serves(1).await;
    for (method, payload, kind, says) in [
        (
            "trap",
            "because",
            TrapKind::Aborted,
            "trapped on purpose: because",
        ),
        ("spin", "", TrapKind::CpuTime, "limits.cpu_time (1s)"),
        (
            "allocate",
            "",
            TrapKind::Memory,
            "limits.memory (33554432 bytes)",
        ),
        ("recurse", "", TrapKind::StackOverflow, "stack"),
        (
            "big-reply",
            "1048577",
            TrapKind::ReplyTooLarge,
            "limits.reply",
        ),
    ] {
        for _ in 0..3 {
            let served = neighbour.served();
            let error = query(&cluster, "a", method, payload)
                .await
                .expect_err(method);
            assert_eq!(error.kind, CallErrorKind::Trap(kind), "{method}: {error}");
            assert!(error.message.contains(says), "{method}: {error}");
            assert!(
                method != "spin" || neighbour.served() > served,
                "calls go on while a query spins"
            );
        }
        query(&cluster, "a", "get", "")
            .await
            .unwrap_or_else(|error| panic!("after {method}: {error}"));
    }
    let report = cluster
        .shard_report(cluster.shard_for(b"a"))
        .expect("a report");
    assert_eq!(
        report.traps, 0,
        "the instance that runs the calls is another"
    );
    neighbour.stop().await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_cannot_write() {
    let cluster = guests::start(config(), "misbehave").await;
    ask(&cluster, "a", "put", "one").await;
    for method in [
        "put",
        "delete",
        "batch",
        "merge",
        "transaction",
        "txn-conflict",
        "ttl",
        "notify",
        "empty-batch",
    ] {
        let payload = if method == "ttl" || method == "notify" {
            "1000"
        } else {
            "x y"
        };
        let error = query(&cluster, "a", method, payload)
            .await
            .expect_err(method);
        assert_eq!(
            (error.kind, error.code.as_str()),
            (CallErrorKind::Guest, "read-only"),
            "{method}: {error}"
        );
        assert!(
            error.message.contains("make it a call"),
            "{method}: {error}"
        );
    }
    assert_eq!(ask(&cluster, "a", "get", "").await, "one");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_run_in_parallel_with_calls_and_each_other() {
    let mut config = config();
    config.threads.query = 2;
    config.limits.query_instances = 3;
    let cluster = guests::start(config, "misbehave").await;
    let ask_for = |method: &'static str, payload: &'static str| {
        let cluster = cluster.clone();
        tokio::spawn(async move { query(&cluster, "a", method, payload).await })
    };
    // A call and two queries wait; another query is served meanwhile.
    let call = tokio::spawn({
        let cluster = cluster.clone();
        async move { call(&cluster, "a", "sleep", "1500").await }
    });
    let sleeping = [ask_for("sleep", "1500"), ask_for("sleep", "1500")];
    within(async {
        while cluster
            .shard_report(cluster.shard_for(b"a"))
            .expect("a report")
            .queued
            < 3
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let key = query(&cluster, "a", "key", "").await.expect("served");
    assert_eq!(shown(&key), "a");
    assert!(!call.is_finished() && sleeping.iter().all(|task| !task.is_finished()));
    within(call).await.expect("join").expect("slept");
    for task in sleeping {
        within(task).await.expect("join").expect("slept");
    }
    cluster.stop().await;
}

/// A query sees what is applied and waits for it; with `read=durable` it sees what is durable and waits for nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_query_shows_what_it_may() {
    let held = Held::new();
    let cluster = guests::start_on(held.store(), config(), "kv").await;
    ask(&cluster, "a", "put", "old").await;
    held.hold();
    let write = tokio::spawn({
        let cluster = cluster.clone();
        async move { call(&cluster, "a", "put", "new").await }
    });
    within(held.someone_waits()).await;
    let waits = tokio::spawn({
        let cluster = cluster.clone();
        async move { query(&cluster, "a", "get", "").await }
    });
    let durable = QueryOptions {
        read: Read::Durable,
        ..QueryOptions::default()
    };
    let old = within(cluster.query(Target::key("a"), "get", "".into(), durable.clone()))
        .await
        .expect("at once");
    assert_eq!(shown(&old), "old");
    assert!(!waits.is_finished() && !write.is_finished());
    held.release();
    let new = within(waits).await.expect("join").expect("a reply");
    assert_eq!(shown(&new), "new");
    let written = within(write).await.expect("join").expect("written");
    assert!(new.seq >= written.seq && old.seq < written.seq);
    let durable = within(cluster.query(Target::key("a"), "get", "".into(), durable))
        .await
        .expect("at once");
    assert_eq!(shown(&durable), "new", "what was acknowledged is there");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_without_queries_says_so() {
    let cluster = guests::start(config(), "reach").await;
    let error = query(&cluster, "a", "env", "")
        .await
        .expect_err("no queries");
    assert_eq!(
        (error.kind, error.code.as_str()),
        (CallErrorKind::NoQueries, "no-queries")
    );
    assert!(
        error.never_ran() && error.message.contains("use call"),
        "{error}"
    );
    cluster.stop().await;
}

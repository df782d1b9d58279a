//! A shard that waits for another: who goes on meanwhile, and how the wait ends.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quarry::Cluster;
use quarry::call::{CallErrorKind, CallOptions, Target};

use super::stage::{Stage, beside, call, counted};
use crate::support::native::config;
use crate::support::store::{Held, within};

/// Three shards on one thread.
async fn start(stage: &Stage) -> Cluster {
    let mut config = config();
    config.shards = 3;
    config.shard.close_timeout = Duration::from_secs(1);
    let started = Cluster::start(Arc::new(config), stage.module()).await;
    started.expect("start")
}

/// Waits until so many calls are in a shard's queue, the one that runs included.
async fn queued(cluster: &Cluster, shard: u32, calls: usize) {
    within(async {
        while cluster.shard_report(shard).expect("a report").queued < calls {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_other_shards_of_the_thread_go_on() {
    let stage = Stage::new();
    let cluster = start(&stage).await;
    let waits = beside(&cluster, 0, "ask", "1 hold");
    stage.someone_waits(1).await;
    let reply = call(&cluster, 2, "count", "").await.expect("served");
    assert_eq!(reply.payload, "1");
    assert!(!waits.is_finished());
    // Its own calls wait with it.
    let behind = beside(&cluster, 0, "count", "");
    queued(&cluster, 0, 2).await;
    assert!(!behind.is_finished());
    stage.open();
    assert_eq!(waits.await.expect("join").expect("a reply").payload, "held");
    behind.await.expect("join").expect("a reply");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_given_up_never_runs() {
    let stage = Stage::new();
    let cluster = start(&stage).await;
    let busy = beside(&cluster, 1, "hold", "");
    stage.someone_waits(1).await;
    let options = CallOptions {
        timeout: Some(Duration::from_millis(300)),
        ..CallOptions::default()
    };
    let payload = Bytes::from_static(b"1 count");
    let late = within(cluster.call(Target::Shard(0), "ask", payload, options)).await;
    // The guest's own, or the host's: both have the same time.
    assert_eq!(late.expect_err("late").code, "timeout");
    // Its guest was told at the same time, and goes on.
    call(&cluster, 0, "count", "").await.expect("served");
    stage.open();
    busy.await.expect("join").expect("a reply");
    let counted = call(&cluster, 1, "counted", "").await.expect("a reply");
    assert_eq!(counted.payload, "0");
    cluster.stop().await;
}

/// Shard 0 calls shard 1, whose call in progress then calls shard 0.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_in_the_queue_of_a_shard_that_begins_to_wait_for_its_caller_is_refused() {
    let stage = Stage::new();
    let cluster = start(&stage).await;
    let second = beside(&cluster, 1, "meet", "0 count");
    stage.someone_waits(1).await;
    let first = beside(&cluster, 0, "ask", "1 count");
    queued(&cluster, 1, 2).await;
    stage.open();
    let error = first
        .await
        .expect("join")
        .expect_err("they wait for each other");
    assert_eq!(
        (error.kind, error.code.as_str()),
        (CallErrorKind::Guest, "call-cycle")
    );
    assert!(error.retryable, "{error:?}");
    assert!(
        error.message.contains("0 waits for this call, and 1 -> 0"),
        "{error}"
    );
    let reply = second.await.expect("join").expect("the other goes on");
    assert_eq!(reply.payload, "1");
    assert_eq!(
        call(&cluster, 1, "counted", "")
            .await
            .expect("a reply")
            .payload,
        "0"
    );
    cluster.stop().await;
}

/// Both calls leave at the same moment.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_chains_that_meet_one_goes_on() {
    let stage = Stage::new();
    let cluster = start(&stage).await;
    let both = [
        beside(&cluster, 0, "meet", "1 count"),
        beside(&cluster, 1, "meet", "0 count"),
    ];
    stage.someone_waits(2).await;
    stage.open();
    let (mut refused, mut replied) = (0, 0);
    for call in both {
        match call.await.expect("join") {
            Ok(reply) => {
                assert_eq!(reply.payload, "1");
                replied += 1;
            }
            Err(error) => {
                assert_eq!((error.code.as_str(), error.retryable), ("call-cycle", true));
                refused += 1;
            }
        }
    }
    assert_eq!((refused, replied), (1, 1));
    cluster.stop().await;
}

/// Three calls at the same moment, each for the next shard.
#[tokio::test(flavor = "multi_thread")]
async fn of_three_chains_in_a_ring_one_is_refused() {
    let stage = Stage::new();
    let cluster = start(&stage).await;
    let ring = [
        beside(&cluster, 0, "meet", "1 count"),
        beside(&cluster, 1, "meet", "2 count"),
        beside(&cluster, 2, "meet", "0 count"),
    ];
    stage.someone_waits(3).await;
    stage.open();
    let mut refused = 0;
    for call in ring {
        if let Err(error) = call.await.expect("join") {
            assert_eq!((error.code.as_str(), error.retryable), ("call-cycle", true));
            refused += 1;
        }
    }
    assert_eq!(refused, 1);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_leaves_when_what_its_shard_wrote_is_durable() {
    let held = Held::new();
    let stage = Stage::new();
    let cluster = Cluster::start_on(held.store(), Arc::new(config()), stage.module());
    let cluster = cluster.await.expect("start");
    held.hold();
    let late = CallOptions {
        timeout: Some(Duration::from_millis(500)),
        ..CallOptions::default()
    };
    let payload = Bytes::from_static(b"1 count");
    let asked = cluster.call(Target::Shard(0), "put-ask", payload, late);
    let waits = beside(&cluster, 0, "put-ask", "1 count");
    let error = within(asked).await.expect_err("never durable in time");
    assert_eq!(error.code, "timeout");
    within(held.someone_waits()).await;
    assert!(!waits.is_finished());
    assert_eq!(
        call(&cluster, 1, "counted", "")
            .await
            .expect("a reply")
            .payload,
        "0"
    );
    held.release();
    let reply = waits.await.expect("join").expect("a reply");
    assert_eq!(reply.payload, "1", "the one that was late never left");
    assert_eq!(counted(&cluster, 1).await, "1", "and its reply is durable");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_stops_while_a_shard_waits_for_one_that_hangs() {
    let stage = Stage::new();
    let cluster = start(&stage).await;
    let waits = beside(&cluster, 0, "ask", "1 hold");
    stage.someone_waits(1).await;
    within(cluster.stop()).await;
    let error = waits.await.expect("join").expect_err("cut off");
    assert!(!error.never_ran(), "{error:?}");
}

//! Promise P1: what leaves the host is durable, and nothing that left is ever lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quarry::Cluster;
use quarry::call::{CallErrorKind, QueryOptions, Read, Target};

use crate::support::native::{self, applied, call, config};
use crate::support::store::{Held, fresh, within};

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_shows_what_was_written() {
    let cluster = Cluster::start(Arc::new(config()), native::module())
        .await
        .expect("start");
    assert!(cluster.ready());
    let put = call(&cluster, "a", "put", "one").await.expect("put");
    assert_eq!(put.payload, put.seq.to_string());
    assert!(cluster.durable_seq(put.shard).await.expect("open") >= put.seq);
    assert_eq!(
        call(&cluster, "a", "get", "").await.expect("get").payload,
        "one"
    );
    let later = applied(&cluster, "a", "put", "two").await.expect("put");
    assert!(later.seq > put.seq);
    cluster
        .notify_when_durable(later.shard, later.seq)
        .await
        .expect("durable");
    cluster.stop().await;
}

/// While the store does not take WAL objects, whatever shows an undurable write waits: replies, errors, reads, queries.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_leaves_before_it_is_durable() {
    let held = Held::new();
    let cluster = Cluster::start_on(held.store(), Arc::new(config()), native::module())
        .await
        .expect("start");
    call(&cluster, "a", "put", "old").await.expect("put");
    held.hold();
    let put = applied(&cluster, "a", "put", "new")
        .await
        .expect("applied replies at once");

    let released = Arc::new(AtomicBool::new(false));
    let mut waiting = Vec::new();
    for method in ["get", "put", "fail-after-put", "nothing-like-this"] {
        let (cluster, released) = (cluster.clone(), released.clone());
        waiting.push(tokio::spawn(async move {
            let outcome = call(&cluster, "a", method, "later").await;
            assert!(
                released.load(Ordering::SeqCst),
                "{method} left before its write was durable: {outcome:?}"
            );
        }));
    }
    let (asking, seen) = (cluster.clone(), released.clone());
    waiting.push(tokio::spawn(async move {
        let outcome = asking
            .query(Target::key("a"), "get", "".into(), QueryOptions::default())
            .await;
        assert!(
            seen.load(Ordering::SeqCst),
            "a query left before its view was durable: {outcome:?}"
        );
    }));
    // A query of what is durable waits for nothing, and does not see the new value.
    let durable = QueryOptions {
        read: Read::Durable,
        ..QueryOptions::default()
    };
    let old = within(cluster.query(Target::key("a"), "get", "".into(), durable))
        .await
        .expect("query");
    assert_eq!(old.payload, "old");
    assert!(old.seq < put.seq);
    // Another shard's replies do not wait for this one; here the store holds all WAL objects, so only a read shows it.
    let other = (0..100)
        .map(|n| n.to_string())
        .find(|key| cluster.shard_for(key.as_bytes()) != put.shard)
        .expect("another shard");
    within(call(&cluster, &other, "get", ""))
        .await
        .expect("a shard without undurable writes replies");

    // The held flush has to be seen, or the test shows nothing.
    within(held.someone_waits()).await;
    assert!(waiting.iter().all(|task| !task.is_finished()));
    released.store(true, Ordering::SeqCst);
    held.release();
    for task in waiting {
        within(task).await.expect("a waiter failed");
    }
    cluster.stop().await;
}

/// A database that ends before a write is durable: its caller learns that nobody knows, and never that it worked.
#[tokio::test(flavor = "multi_thread")]
async fn a_fence_fails_what_was_not_durable() {
    let held = Held::new();
    let store = held.store();
    let first = Cluster::start_on(store.clone(), Arc::new(config()), native::module())
        .await
        .expect("start");
    call(&first, "a", "put", "old").await.expect("put");
    held.hold();
    let waiting = tokio::spawn({
        let first = first.clone();
        async move { call(&first, "a", "put", "new").await }
    });
    within(held.someone_waits()).await;
    // The second process has the same store, without the hold.
    let second = Cluster::start_on(held.inner(), Arc::new(config()), native::module())
        .await
        .expect("start");
    held.release();
    let error = within(waiting)
        .await
        .expect("join")
        .expect_err("the write was fenced");
    assert_eq!(error.kind, CallErrorKind::Unknown, "{error}");
    assert_eq!(
        call(&second, "a", "get", "").await.expect("get").payload,
        "old"
    );
    first.stop().await;
    second.stop().await;
}

/// What was acknowledged is there after a node that was never stopped is gone, and seqs go on upwards.
#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_a_node_that_vanishes() {
    let store = fresh();
    let mut last = 0;
    for round in 0..3_u32 {
        let cluster = Cluster::start_on(store.clone(), Arc::new(config()), native::module())
            .await
            .expect("start");
        for n in 0..round * 10 {
            assert_eq!(
                call(&cluster, &n.to_string(), "get", "")
                    .await
                    .expect("get")
                    .payload,
                n.to_string()
            );
        }
        for n in round * 10..round * 10 + 10 {
            let put = call(&cluster, &n.to_string(), "put", &n.to_string())
                .await
                .expect("put");
            if put.shard == 0 {
                assert!(put.seq > last, "seq {} after {last}", put.seq);
                last = put.seq;
            }
        }
        // Not durable, and lost or not: its seq must not be handed out again.
        let lost = applied(&cluster, "lost", "put", "x").await.expect("put");
        last = if lost.shard == 0 { lost.seq } else { last };
        std::mem::forget(cluster);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn increments_are_neither_lost_nor_doubled() {
    let cluster = Cluster::start(Arc::new(config()), native::module())
        .await
        .expect("start");
    let mut callers = Vec::new();
    for _ in 0..16 {
        let cluster = cluster.clone();
        callers.push(tokio::spawn(async move {
            for _ in 0..50 {
                call(&cluster, "count", "increment", "")
                    .await
                    .expect("increment");
            }
        }));
    }
    for caller in callers {
        caller.await.expect("caller");
    }
    assert_eq!(
        call(&cluster, "count", "increment", "")
            .await
            .expect("increment")
            .payload,
        "801"
    );
    cluster.stop().await;
}

/// A write that nobody waits for becomes durable by itself.
#[tokio::test(flavor = "multi_thread")]
async fn applied_writes_become_durable_soon() {
    let mut config = config();
    config.shard.flush_after = Duration::from_millis(10);
    let cluster = Cluster::start(Arc::new(config), native::module())
        .await
        .expect("start");
    let put = applied(&cluster, "a", "put", "x").await.expect("put");
    within(async {
        while cluster.durable_seq(put.shard).await.expect("open") < put.seq {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let error = cluster
        .notify_when_durable(put.shard, put.seq + 1)
        .await
        .expect_err("a seq that was not given out");
    assert_eq!(error.kind, CallErrorKind::Invalid);
    cluster.stop().await;
}

/// A seq that was handed out and lost with its opening is not durable, however far the seqs of later openings have come.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_seq_is_never_durable() {
    let held = Held::new();
    let mut one = config();
    one.shards = 1;
    let first = Cluster::start_on(held.store(), Arc::new(one.clone()), native::module())
        .await
        .expect("start");
    let kept = call(&first, "a", "put", "kept").await.expect("put");
    held.hold();
    let lost = applied(&first, "a", "put", "lost").await.expect("applied");
    within(held.someone_waits()).await;
    let second = Cluster::start_on(held.inner(), Arc::new(one), native::module())
        .await
        .expect("start");
    held.release();
    let next = call(&second, "a", "put", "next").await.expect("put");
    assert!(next.seq > lost.seq && lost.seq > kept.seq);
    let error = second
        .notify_when_durable(0, lost.seq)
        .await
        .expect_err("it is lost");
    assert_eq!(error.kind, CallErrorKind::Unknown, "{error}");
    assert!(error.message.contains("earlier opening"), "{error}");
    second
        .notify_when_durable(0, next.seq)
        .await
        .expect("durable");
    first.stop().await;
    second.stop().await;
}

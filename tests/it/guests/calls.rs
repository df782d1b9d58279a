//! Calls and their bounds in time, with a guest that takes its time.

use std::time::Duration;

use bytes::Bytes;
use quarry::Cluster;
use quarry::call::{CallError, CallErrorKind, CallOptions, CallReply, Durability, Target};
use quarry::config::Config;
use tokio::task::JoinHandle;

use crate::support::guests::{self, ask, refused, shown};
use crate::support::native::{applied, call, config};
use crate::support::store::{Held, begun, within};

fn one_shard() -> Config {
    Config {
        shards: 1,
        ..config()
    }
}

fn spawn(
    cluster: &Cluster,
    method: &'static str,
    payload: impl Into<Bytes>,
    options: CallOptions,
) -> JoinHandle<Result<CallReply, CallError>> {
    let (cluster, payload) = (cluster.clone(), payload.into());
    begun(async move {
        cluster
            .call(Target::key("a"), method, payload, options)
            .await
    })
}

async fn queued(cluster: &Cluster, calls: usize) {
    within(async {
        while cluster.shard_report(0).expect("a report").queued != calls {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// The caller goes away; the call that began runs to its end, and the next one sees what it did.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_began_goes_on_without_its_caller() {
    let cluster = guests::start(one_shard(), "misbehave").await;
    let options = CallOptions {
        timeout: Some(Duration::from_millis(30)),
        ..CallOptions::default()
    };
    let error = within(spawn(&cluster, "old-transaction", "300", options))
        .await
        .expect("join")
        .expect_err("too late");
    assert_eq!(
        (error.kind, error.code.as_str()),
        (CallErrorKind::Timeout, "timeout"),
        "{error}"
    );
    assert!(
        !error.never_ran() && error.message.contains("may have run"),
        "{error}"
    );
    assert_eq!(ask(&cluster, "old-transaction", "get", "").await, "x");
    assert_eq!(
        ask(&cluster, "a", "memory-count", "").await,
        "1",
        "the instance is the same"
    );
    assert_eq!(cluster.shard_report(0).expect("a report").traps, 0);
    cluster.stop().await;
}

/// A caller that gives up in the queue: its call never runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_time_ran_out_in_the_queue_never_runs() {
    let cluster = guests::start(one_shard(), "misbehave").await;
    let running = spawn(&cluster, "sleep", "1000", CallOptions::default());
    queued(&cluster, 1).await;
    let options = CallOptions {
        timeout: Some(Duration::from_millis(20)),
        ..CallOptions::default()
    };
    let error = within(spawn(&cluster, "put", "late", options))
        .await
        .expect("join")
        .expect_err("too late");
    assert_eq!(error.kind, CallErrorKind::Timeout);
    within(running).await.expect("join").expect("slept");
    assert_eq!(refused(&cluster, "a", "get", "").await.code, "not-found");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_is_first_in_first_out_and_bounded() {
    let mut config = one_shard();
    config.limits.queue_calls = 4;
    let cluster = guests::start(config, "misbehave").await;
    let running = spawn(&cluster, "sleep", "1000", CallOptions::default());
    queued(&cluster, 1).await;
    let mut waiting = Vec::new();
    for n in 1..4_usize {
        waiting.push(spawn(&cluster, "memory-count", "", CallOptions::default()));
        queued(&cluster, n + 1).await;
    }
    let error = refused(&cluster, "a", "get", "").await;
    assert_eq!(
        (error.kind, error.code.as_str()),
        (CallErrorKind::Overloaded, "overloaded"),
        "{error}"
    );
    assert!(
        error.retryable && error.never_ran() && error.message.contains("limits.queue_calls 4"),
        "{error}"
    );
    within(running).await.expect("join").expect("slept");
    for (n, call) in waiting.into_iter().enumerate() {
        let reply = within(call).await.expect("join").expect("a reply");
        assert_eq!(shown(&reply), (n + 1).to_string());
    }
    queued(&cluster, 0).await;
    assert_eq!(
        ask(&cluster, "a", "memory-count", "").await,
        "4",
        "room again"
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_is_bounded_in_bytes() {
    let mut config = one_shard();
    config.limits.queue_bytes = 64 << 10;
    config.http.max_body = 64 << 10;
    let cluster = guests::start(config, "misbehave").await;
    let running = spawn(&cluster, "sleep", "1000", CallOptions::default());
    queued(&cluster, 1).await;
    let waiting = spawn(&cluster, "echo", vec![1; 60 << 10], CallOptions::default());
    queued(&cluster, 2).await;
    let error = within(spawn(
        &cluster,
        "echo",
        vec![2; 60 << 10],
        CallOptions::default(),
    ))
    .await
    .expect("join")
    .expect_err("too much");
    assert_eq!(error.kind, CallErrorKind::Overloaded, "{error}");
    assert!(
        error.message.contains("limits.queue_bytes 65536"),
        "{error}"
    );
    within(running).await.expect("join").expect("slept");
    assert_eq!(
        within(waiting)
            .await
            .expect("join")
            .expect("echoed")
            .payload,
        vec![1; 60 << 10]
    );
    cluster.stop().await;
}

/// Who may see a write before it is durable: nobody, unless guest or caller say so; and the caller has the last word.
#[tokio::test(flavor = "multi_thread")]
async fn a_reply_leaves_early_only_when_asked_to() {
    let held = Held::new();
    let cluster = guests::start_on(held.store(), one_shard(), "misbehave").await;
    held.hold();
    let guests_wish = within(call(&cluster, "a", "reply-when-applied", "1"))
        .await
        .expect("at once");
    let callers_wish = within(applied(&cluster, "a", "put", "2"))
        .await
        .expect("at once");
    assert!(callers_wish.seq > guests_wish.seq);
    assert!(cluster.durable_seq(0).await.expect("open") < guests_wish.seq);
    let durable = CallOptions {
        durability: Some(Durability::Durable),
        ..CallOptions::default()
    };
    let held_back = [
        spawn(&cluster, "put", "3", CallOptions::default()),
        spawn(&cluster, "get", "", CallOptions::default()),
        spawn(&cluster, "write-then-error", "4", CallOptions::default()),
        spawn(&cluster, "reply-when-applied", "5", durable),
    ];
    within(held.someone_waits()).await;
    // All of them ran: this call came after them, and is let out.
    queued(&cluster, 0).await;
    let last = within(applied(&cluster, "a", "get", ""))
        .await
        .expect("at once");
    assert_eq!(last.seq, callers_wish.seq + 3);
    assert!(held_back.iter().all(|call| !call.is_finished()));
    held.release();
    for (call, ok) in held_back.into_iter().zip([true, true, false, true]) {
        assert_eq!(within(call).await.expect("join").is_ok(), ok);
    }
    assert!(cluster.durable_seq(0).await.expect("open") >= last.seq);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_may_be_empty_or_as_large_as_its_limit() {
    let mut config = one_shard();
    config.limits.reply = 1 << 20;
    let cluster = guests::start(config, "misbehave").await;
    for size in [0, 1, 1 << 20] {
        let reply = within(call(&cluster, "a", "big-reply", &size.to_string()))
            .await
            .expect("a reply");
        assert_eq!(reply.payload.len(), size);
    }
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let reply = within(spawn(
        &cluster,
        "echo",
        bytes.clone(),
        CallOptions::default(),
    ))
    .await
    .expect("join")
    .expect("echoed");
    assert_eq!(reply.payload, bytes);
    cluster.stop().await;
}

/// While the store takes nothing, replies pile up at the gate, whether their callers still wait or not. At a bound no further call
/// begins, and the queue does the rest.
#[tokio::test(flavor = "multi_thread")]
async fn replies_at_the_gate_are_bounded() {
    let held = Held::new();
    let mut config = one_shard();
    config.limits.queue_bytes = 64 << 10;
    config.http.max_body = 64 << 10;
    config.limits.queue_calls = 2;
    let cluster = guests::start_on(held.store(), config, "misbehave").await;
    held.hold();
    within(applied(&cluster, "a", "put", "x"))
        .await
        .expect("at once");
    let soon = |durability| CallOptions {
        timeout: Some(Duration::from_millis(100)),
        durability,
        ..CallOptions::default()
    };
    for _ in 0..2 {
        let gave_up = within(spawn(&cluster, "big-reply", "40000", soon(None))).await;
        let error = gave_up.expect("join").expect_err("it is not durable");
        assert_eq!(error.kind, CallErrorKind::Timeout, "{error}");
    }
    queued(&cluster, 0).await;
    let waits = || {
        spawn(
            &cluster,
            "memory-count",
            "",
            soon(Some(Durability::Applied)),
        )
    };
    let waiting = [waits(), waits()];
    queued(&cluster, 2).await;
    let error = refused(&cluster, "a", "get", "").await;
    assert_eq!(error.kind, CallErrorKind::Overloaded, "{error}");
    for call in waiting {
        let error = within(call)
            .await
            .expect("join")
            .expect_err("it may not begin");
        assert_eq!(error.kind, CallErrorKind::Timeout, "{error}");
    }
    held.release();
    within(async {
        // Their places are free once the shard has looked at them.
        while call(&cluster, "a", "get", "").await.is_err() {}
    })
    .await;
    assert_eq!(
        ask(&cluster, "a", "memory-count", "").await,
        "1",
        "none of them ran"
    );
    cluster.stop().await;
}

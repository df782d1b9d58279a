//! The life of a shard: start, trap, quarantine, fence, stop.

use std::sync::Arc;
use std::time::Duration;

use quarry::Cluster;
use quarry::call::{CallErrorKind, CallOptions, Target};
use quarry::cluster::status::{Location, ShardState};
use quarry::guest::TrapKind;
use quarry::guest::native as logic;

use crate::support::native::{self, Register, call, config};
use crate::support::store::{begun, fresh, within};

#[tokio::test(flavor = "multi_thread")]
async fn start_opens_every_shard_before_it_returns() {
    let mut config = config();
    config.shards = 40;
    config.shard.max_concurrency = 3;
    let cluster = Cluster::start(Arc::new(config), native::module())
        .await
        .expect("start");
    assert_eq!(cluster.local_shards(), (0..40).collect::<Vec<_>>());
    assert!(
        cluster
            .assignments()
            .values()
            .all(|location| *location == Location::Local)
    );
    let status = cluster
        .status(Duration::from_secs(1))
        .await
        .expect("status");
    assert!(status.ready);
    assert!(
        status
            .shards
            .values()
            .all(|report| report.status == ShardState::Running && report.opens == 1),
        "{status:?}"
    );
    cluster.stop().await;
    assert!(cluster.local_shards().is_empty());
    let error = call(&cluster, "a", "get", "").await.expect_err("stopped");
    assert_eq!(error.kind, CallErrorKind::Unassigned);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trap_fails_its_call_and_replaces_the_instance() {
    let cluster = Cluster::start(Arc::new(config()), native::module())
        .await
        .expect("start");
    call(&cluster, "a", "put", "kept").await.expect("put");
    let error = call(&cluster, "a", "panic", "").await.expect_err("trap");
    assert_eq!(error.kind, CallErrorKind::Trap(TrapKind::Aborted));
    assert!(error.message.contains("on demand"), "{error}");
    assert_eq!(
        within(call(&cluster, "a", "get", ""))
            .await
            .expect("get")
            .payload,
        "kept"
    );
    let report = cluster
        .shard_report(cluster.shard_for(b"a"))
        .expect("report");
    assert_eq!((report.status, report.traps), (ShardState::Running, 1));
    assert!(
        report
            .last_error
            .expect("kept after recovery")
            .contains("on demand")
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_traps_quarantine_the_shard_and_a_restart_heals_it() {
    let mut config = config();
    config.limits.traps = 2;
    let cluster = Cluster::start(Arc::new(config), native::module())
        .await
        .expect("start");
    let shard = cluster.shard_for(b"a");
    for _ in 0..3 {
        call(&cluster, "a", "panic", "").await.expect_err("trap");
    }
    let error = call(&cluster, "a", "get", "").await.expect_err("refused");
    assert_eq!(error.kind, CallErrorKind::Quarantined);
    assert!(
        error.message.contains("more than 2 times") && error.message.contains("on demand"),
        "{error}"
    );
    assert_eq!(
        cluster.shard_report(shard).expect("report").status,
        ShardState::Quarantined
    );
    let not_ready = cluster
        .await_ready(Some(Duration::ZERO))
        .await
        .expect_err("one is quarantined");
    assert!(
        not_ready
            .to_string()
            .contains(&format!("{shard} is quarantined")),
        "{not_ready}"
    );
    // The other shard goes on.
    let other = (0..100)
        .map(|n| n.to_string())
        .find(|key| cluster.shard_for(key.as_bytes()) != shard)
        .expect("another shard");
    call(&cluster, &other, "put", "x").await.expect("put");
    within(cluster.restart_shard(shard)).await.expect("restart");
    call(&cluster, "a", "get", "").await.expect("healed");
    cluster.stop().await;
}

/// Two processes on one store: the first is fenced and says so, and the two do not fight.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_fences_the_first() {
    let store = fresh();
    let mut one = config();
    one.shards = 1;
    let first = Cluster::start_on(store.clone(), Arc::new(one.clone()), native::module())
        .await
        .expect("start");
    call(&first, "a", "put", "x").await.expect("put");
    let second = Cluster::start_on(store, Arc::new(one), native::module())
        .await
        .expect("start");
    let error = call(&first, "a", "put", "y").await.expect_err("fenced");
    assert!(
        matches!(
            error.kind,
            CallErrorKind::Unknown | CallErrorKind::Unassigned | CallErrorKind::Guest
        ),
        "{error}"
    );
    within(async {
        while first.shard_report(0).expect("report").last_error.is_none() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let report = first.shard_report(0).expect("report");
    assert!(
        report
            .last_error
            .as_deref()
            .unwrap_or_default()
            .contains("another writer"),
        "{report:?}"
    );
    first.stop().await;
    // The first may have taken it back once; the second comes back as well.
    within(second.await_ready(None)).await.expect("ready");
    assert_eq!(
        within(call(&second, "a", "get", ""))
            .await
            .expect("get")
            .payload,
        "x"
    );
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_refuses_and_a_late_call_never_runs() {
    let mut config = config();
    config.shards = 1;
    config.limits.queue_calls = 4;
    let cluster = Cluster::start(Arc::new(config), native::module())
        .await
        .expect("start");
    let wait = |timeout| {
        let cluster = cluster.clone();
        let options = CallOptions {
            timeout: Some(timeout),
            ..CallOptions::default()
        };
        begun(async move {
            cluster
                .call(Target::key("a"), "wait", "".into(), options)
                .await
        })
    };
    let running = wait(Duration::from_secs(20));
    let report = || cluster.shard_report(0).expect("report");
    let settle = async |queued: usize| {
        within(async {
            while report().queued != queued {
                tokio::task::yield_now().await
            }
        })
        .await
    };
    settle(1).await;
    let options = CallOptions {
        timeout: Some(Duration::from_millis(20)),
        ..CallOptions::default()
    };
    let late = cluster
        .call(Target::key("a"), "increment", "".into(), options)
        .await
        .expect_err("its time ran out in the queue");
    assert_eq!(late.kind, CallErrorKind::Timeout);
    let queued = [wait(Duration::from_secs(20)), wait(Duration::from_secs(20))];
    settle(4).await;
    let error = call(&cluster, "a", "get", "").await.expect_err("full");
    assert_eq!(error.kind, CallErrorKind::Overloaded);
    assert!(
        error.message.contains("limits.queue_calls 4") && error.retryable,
        "{error}"
    );
    native::HELD.send_replace(false);
    for call in queued.into_iter().chain([running]) {
        assert_eq!(
            within(call).await.expect("join").expect("reply").payload,
            "waited"
        );
    }
    assert_eq!(
        call(&cluster, "a", "increment", "")
            .await
            .expect("increment")
            .payload,
        "1",
        "the late call must not have run"
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_no_calls_are_refused() {
    let cluster = Cluster::start(Arc::new(config()), native::module())
        .await
        .expect("start");
    let long = "m".repeat(129);
    for (target, method, timeout, expected) in [
        (
            Target::Shard(2),
            "get",
            None,
            "there is no shard 2: the cluster has 2, from 0 to 1",
        ),
        (Target::key("a"), "", None, "1 to 128 bytes, not 0"),
        (
            Target::key("a"),
            long.as_str(),
            None,
            "1 to 128 bytes, not 129",
        ),
        (
            Target::key("a"),
            "get",
            Some(Duration::from_secs(601)),
            "call.max_timeout",
        ),
    ] {
        let options = CallOptions {
            timeout,
            ..CallOptions::default()
        };
        let error = cluster
            .call(target, method, "".into(), options)
            .await
            .expect_err(expected);
        assert_eq!(error.kind, CallErrorKind::Invalid);
        assert!(error.message.contains(expected), "{error}");
        assert!(error.never_ran());
    }
    cluster.stop().await;
}

/// Two revisions of one guest over one database; a revision that does not start is not adopted.
#[tokio::test(flavor = "multi_thread")]
async fn a_swap_keeps_the_data_and_a_failed_one_keeps_the_guest() {
    struct Refuses;
    #[async_trait::async_trait]
    impl logic::Logic for Refuses {
        async fn start(
            &mut self,
            context: &quarry::guest::InstanceContext,
        ) -> Result<(), quarry::guest::GuestError> {
            if context.shard == 1 {
                Err(quarry::guest::GuestError::new(
                    "not-here",
                    "shard 1 is not for me",
                ))
            } else {
                Ok(())
            }
        }
        async fn call(
            &mut self,
            _: &quarry::guest::InstanceContext,
            _: &quarry::guest::Request,
        ) -> Result<quarry::guest::Reply, quarry::guest::GuestError> {
            Ok(quarry::guest::Reply::new("refuses"))
        }
    }
    let cluster = Cluster::start(Arc::new(config()), native::module())
        .await
        .expect("start");
    call(&cluster, "a", "put", "kept").await.expect("put");
    let report = cluster
        .swap(logic::module("main", 2, |_| Register))
        .await
        .expect("swap");
    assert_eq!((report.revision, report.shards), (2, 2));
    let get = call(&cluster, "a", "get", "").await.expect("get");
    assert_eq!((&get.payload[..], get.revision), (&b"kept"[..], 2));
    let error = cluster
        .swap(logic::module("main", 3, |_| Refuses))
        .await
        .expect_err("it does not start on shard 1");
    assert!(
        error
            .to_string()
            .contains("revision 3 was not adopted on shard 1: the new revision did not start: "),
        "{error}"
    );
    for shard in 0..2 {
        assert_eq!(
            cluster.shard_report(shard).expect("report").revision,
            Some(2),
            "every shard runs what it ran"
        );
    }
    assert_eq!(
        call(&cluster, "a", "get", "").await.expect("get").payload,
        "kept"
    );
    cluster.stop().await;
}

/// A panic of native logic that the host does not run inside a call ends neither the node nor the shard for good.
#[tokio::test(flavor = "multi_thread")]
async fn a_factory_that_panics_is_tried_again() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let made = Arc::new(AtomicUsize::new(0));
    let count = made.clone();
    let module = logic::module("main", 1, move |context| {
        if context.shard == 0 && count.fetch_add(1, Ordering::SeqCst) == 0 {
            panic!("not yet");
        }
        Register
    });
    let cluster = Cluster::start(Arc::new(config()), module)
        .await
        .expect("start");
    within(cluster.await_ready(None)).await.expect("ready");
    assert!(made.load(Ordering::SeqCst) > 1);
    let report = cluster.shard_report(0).expect("report");
    assert!(
        report.last_error.unwrap_or_default().contains("not yet"),
        "the failure is kept"
    );
    cluster.stop().await;
    assert!(
        within(cluster.await_ready(None)).await.is_err(),
        "a node that stopped will never be ready"
    );
}

//! Maintenance against real databases over memory. Each test has a runtime of its own for maintenance, as a node has, and
//! waits on signals with a deadline.

mod shard;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use slatedb::CloseReason;
use slatedb::config::{FlushOptions, FlushType};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use self::shard::{Shard, Watched};
use super::*;

const DEADLINE: Duration = Duration::from_secs(30);

/// Options under which nothing waits for long, with garbage collection out of the way.
fn options(runtime: &Runtime) -> Options {
    Options {
        compaction_rest: Duration::ZERO,
        compaction_poll: Duration::from_millis(5),
        look_interval: Duration::from_millis(1),
        step_timeout: Duration::from_secs(10),
        store_retries: 1,
        ..Options::new(runtime.handle().clone())
    }
}

async fn until(
    totals: &mut watch::Receiver<ShardTotals>,
    enough: impl FnMut(&ShardTotals) -> bool,
) -> ShardTotals {
    *timeout(DEADLINE, totals.wait_for(enough))
        .await
        .expect("in time")
        .expect("maintenance goes on")
}

/// Ends a test's runtime from async code, where it cannot be dropped.
fn end(runtime: Runtime) {
    runtime.shutdown_background();
}

#[tokio::test]
async fn a_shard_that_writes_hard_neither_stalls_nor_loses_nor_is_fenced() {
    let runtime = runtime(1).expect("threads");
    let shard = Shard::open(1).await;
    let maintenance = Maintenance::unchecked(options(&runtime));
    let registration = maintenance.register(shard.info(1), 0.0);
    let mut model = BTreeMap::new();
    // Four times as many memtables as L0 may hold.
    for round in 0..32_u32 {
        for number in 0..20_u32 {
            let (key, value) = (
                format!("key-{}", (round * 7 + number) % 50),
                format!("{round}-{number}"),
            );
            let write = shard.db.put(key.as_bytes(), value.as_bytes());
            timeout(DEADLINE, write)
                .await
                .expect("a write does not stall")
                .expect("writes");
            model.insert(key, value);
        }
        shard.flush_memtable().await;
    }
    until(&mut registration.totals(), |totals| totals.compactions > 0).await;
    registration.stop().await.expect("stops in time");

    assert_eq!(shard.db.status().close_reason, None);
    let manifest = shard.stored_manifest().await;
    assert_eq!(manifest.writer_epoch(), 1);
    assert!(manifest.compactor_epoch() > 0);
    assert!(!manifest.compacted().is_empty());
    shard.db.close().await.expect("closes");
    let reopened = Shard::open_on(shard.store.clone(), 1).await;
    for (key, value) in &model {
        let read = reopened.db.get(key).await.expect("reads");
        assert_eq!(read.as_deref(), Some(value.as_bytes()), "{key}");
    }
    reopened.db.close().await.expect("closes");
    end(runtime);
}

#[tokio::test]
async fn a_shard_that_already_stalls_is_relieved() {
    let runtime = runtime(1).expect("threads");
    let shard = Shard::open(1).await;
    shard.fill_l0(8).await;
    shard.db.put(b"one", b"more").await.expect("writes");
    let stalled = tokio::spawn({
        let db = shard.db.clone();
        async move {
            db.flush_with_options(FlushOptions {
                flush_type: FlushType::MemTable,
            })
            .await
        }
    });
    let registration = Maintenance::unchecked(options(&runtime)).register(shard.info(1), 0.0);
    timeout(DEADLINE, stalled)
        .await
        .expect("relieved in time")
        .expect("no panic")
        .expect("flushes");
    let totals = until(&mut registration.totals(), |totals| totals.compactions > 0).await;
    assert_eq!(totals.failed_compactions, 0);
    assert!(
        shard.db.manifest().l0().len() < 4,
        "the database knows of the result at once"
    );
    registration.stop().await.expect("stops in time");
    shard.db.close().await.expect("closes");
    end(runtime);
}

#[tokio::test]
async fn merges_survive_compaction() {
    let runtime = runtime(1).expect("threads");
    let shard = Shard::open(1).await;
    for letter in b'a'..=b'f' {
        shard.db.merge(b"word", [letter]).await.expect("merges");
        shard.flush_memtable().await;
    }
    let registration = Maintenance::unchecked(options(&runtime)).register(shard.info(1), 0.0);
    let totals = until(&mut registration.totals(), |totals| totals.compactions > 0).await;
    assert_eq!(totals.failed_compactions, 0);
    let manifest = shard.db.manifest();
    assert_eq!((manifest.l0().len(), manifest.compacted().len()), (0, 1));
    assert_eq!(
        shard.db.get(b"word").await.expect("reads").as_deref(),
        Some(&b"abcdef"[..])
    );
    registration.stop().await.expect("stops in time");
    shard.db.close().await.expect("closes");
    end(runtime);
}

/// Waits until no task is left on a runtime that only maintenance uses.
async fn no_task_left(runtime: &Runtime) {
    let metrics = runtime.metrics();
    let none = async {
        while metrics.num_alive_tasks() > 0 {
            tokio::task::yield_now().await;
        }
    };
    let left = || format!("{} tasks are left", metrics.num_alive_tasks());
    timeout(DEADLINE, none)
        .await
        .unwrap_or_else(|_| panic!("{}", left()));
}

#[tokio::test]
async fn a_stop_at_any_moment_leaves_no_task_and_the_next_start_carries_on() {
    let runtime = runtime(1).expect("threads");
    let maintenance = Maintenance::unchecked(options(&runtime));
    let metrics = runtime.metrics();
    // Its own two, the compactor's start, then the compactor's coordinator, worker, monitor and jobs.
    for tasks in 0..=7 {
        let shard = Shard::open(1).await;
        shard.fill_l0(8).await;
        let registration = maintenance.register(shard.info(1), 0.0);
        let totals = registration.totals();
        let moment = async {
            while metrics.num_alive_tasks() < tasks && totals.borrow().compactions == 0 {
                tokio::task::yield_now().await;
            }
        };
        timeout(DEADLINE, moment)
            .await
            .expect("the compactor gets that far, or is done");
        registration
            .stop()
            .await
            .unwrap_or_else(|error| panic!("at {tasks} tasks: {error}"));
        no_task_left(&runtime).await;

        let registration = maintenance.register(shard.info(1), 0.0);
        let mut status = shard.db.subscribe();
        let relieved = async {
            while look(&shard.db).expect("open").l0 >= 4 {
                status.changed().await.expect("open");
            }
        };
        timeout(DEADLINE, relieved)
            .await
            .unwrap_or_else(|_| panic!("stopped at {tasks} tasks, does not carry on"));
        registration.stop().await.expect("stops in time");
        no_task_left(&runtime).await;
        assert_eq!(shard.db.status().close_reason, None);
        for number in 0..8 {
            let read = shard.db.get(format!("key-{number}")).await.expect("reads");
            assert_eq!(
                read.as_deref(),
                Some(&b"value"[..]),
                "key-{number}, stopped at {tasks} tasks"
            );
        }
        shard.db.close().await.expect("closes");
    }
    end(runtime);
}

#[tokio::test]
async fn a_dropped_registration_ends_its_tasks() {
    let runtime = runtime(1).expect("threads");
    let shard = Shard::open(1).await;
    shard.fill_l0(4).await;
    let maintenance = Maintenance::unchecked(options(&runtime));
    drop(maintenance.register(shard.info(1), 0.0));
    no_task_left(&runtime).await;
    shard.db.close().await.expect("closes");
    end(runtime);
}

#[tokio::test]
async fn a_closed_database_ends_its_maintenance() {
    let runtime = runtime(1).expect("threads");
    let shard = Shard::open(1).await;
    let registration = Maintenance::unchecked(options(&runtime)).register(shard.info(1), 0.0);
    shard.db.close().await.expect("closes");
    no_task_left(&runtime).await;
    registration.stop().await.expect("nothing to stop");
    end(runtime);
}

#[tokio::test]
async fn an_idle_shard_costs_no_request() {
    let runtime = runtime(1).expect("threads");
    let shard = Shard::open(1).await;
    shard.fill_l0(3).await;
    let before = shard.store.requests.load(Ordering::SeqCst);
    let registration = Maintenance::unchecked(options(&runtime)).register(shard.info(1), 0.0);
    // A stretch of time in which a poll at any of the intervals set here would show, not a wait for something.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(shard.store.requests.load(Ordering::SeqCst), before);
    // It was watched all the same.
    shard.db.put(b"key", b"value").await.expect("writes");
    shard.flush_memtable().await;
    until(&mut registration.totals(), |totals| totals.compactions > 0).await;
    registration.stop().await.expect("stops in time");
    shard.db.close().await.expect("closes");
    end(runtime);
}

#[tokio::test]
async fn many_shards_get_their_turn_with_one_place() {
    let runtime = runtime(1).expect("threads");
    let maintenance = Maintenance::unchecked(Options {
        concurrency: 1,
        ..options(&runtime)
    });
    let mut shards = Vec::new();
    for number in 0..6 {
        let shard = Shard::open(number).await;
        shard.fill_l0(5).await;
        shards.push(shard);
    }
    let registrations: Vec<_> = shards
        .iter()
        .zip(0..)
        .map(|(shard, number)| maintenance.register(shard.info(number), 0.0))
        .collect();
    for (registration, shard) in registrations.into_iter().zip(&shards) {
        until(&mut registration.totals(), |totals| totals.compactions > 0).await;
        assert_eq!(shard.db.manifest().l0().len(), 0);
        registration.stop().await.expect("stops in time");
        shard.db.close().await.expect("closes");
    }
    end(runtime);
}

#[tokio::test]
async fn a_failure_is_counted_and_tried_again() {
    let runtime = runtime(1).expect("threads");
    let shard = Shard::open(1).await;
    shard.fill_l0(4).await;
    // Only maintenance meets the refusals: the database has its own way to the store.
    let refusing = Arc::new(Watched {
        refuses: AtomicBool::new(true),
        ..Watched::default()
    });
    let info = ShardDbInfo {
        store: refusing,
        ..shard.info(1)
    };
    let maintenance = Maintenance::unchecked(options(&runtime));
    let registration = maintenance.register(info, 0.0);
    until(&mut registration.totals(), |totals| {
        totals.failed_compactions == 2
    })
    .await;
    registration.stop().await.expect("stops in time");
    no_task_left(&runtime).await;
    assert_eq!(shard.db.status().close_reason, None);

    let registration = maintenance.register(shard.info(1), 0.0);
    until(&mut registration.totals(), |totals| totals.compactions > 0).await;
    registration.stop().await.expect("stops in time");
    shard.db.close().await.expect("closes");
    end(runtime);
}

#[tokio::test]
async fn an_owner_that_lost_its_shard_does_not_disturb_the_next_one() {
    let runtime = runtime(1).expect("threads");
    let lost = Shard::open(1).await;
    lost.fill_l0(6).await;
    let next = Shard::open_on(lost.store.clone(), 1).await;
    let maintenance = Maintenance::unchecked(options(&runtime));
    let registration = maintenance.register(lost.info(1), 0.0);
    let mut totals = registration.totals();
    // It finds out when it refreshes its manifest for the compaction, and ends.
    let ended = async { while totals.changed().await.is_ok() {} };
    timeout(DEADLINE, ended).await.expect("ends by itself");
    registration.stop().await.expect("stops in time");
    assert_eq!(lost.db.status().close_reason, Some(CloseReason::Fenced));
    assert_eq!(
        next.stored_manifest().await.compactor_epoch(),
        0,
        "no compactor was started"
    );
    next.db.put(b"still", b"mine").await.expect("writes");
    next.flush_memtable().await;
    assert_eq!(next.db.status().close_reason, None);
    next.db.close().await.expect("closes");
    end(runtime);
}

#[tokio::test]
async fn garbage_is_collected_after_a_change_and_fences_stay() {
    let runtime = runtime(1).expect("threads");
    let shard = Shard::open(1).await;
    for number in 0..5_u32 {
        shard
            .db
            .put(format!("key-{number}"), b"value")
            .await
            .expect("writes");
        shard.db.flush().await.expect("flushes");
    }
    shard.flush_memtable().await;
    let before = shard.files("wal").await;
    let fences = before.iter().filter(|object| object.size == 0).count();
    assert!((before.len(), fences) >= (6, 1), "{before:?}");
    let options = Options {
        gc_interval: Duration::from_millis(20),
        gc_min_age: Duration::ZERO,
        checkpoint_lifetime: Duration::from_secs(1),
        ..options(&runtime)
    };
    let registration = Maintenance::unchecked(options).register(shard.info(1), 0.0);
    let totals = until(&mut registration.totals(), |totals| totals.gc_passes > 0).await;
    assert_eq!(totals.failed_gc_passes, 0);
    let after = shard.files("wal").await;
    assert!(after.len() < before.len(), "{after:?}");
    assert_eq!(
        after.iter().filter(|object| object.size == 0).count(),
        fences,
        "{after:?}"
    );

    // A change is followed by a pass of its own.
    let passes = registration.totals().borrow().gc_passes;
    shard.db.put(b"one", b"more").await.expect("writes");
    shard.flush_memtable().await;
    until(&mut registration.totals(), |totals| {
        totals.gc_passes > passes
    })
    .await;
    registration.stop().await.expect("stops in time");
    shard.db.close().await.expect("closes");
    let reopened = Shard::open_on(shard.store.clone(), 1).await;
    for number in 0..5_u32 {
        assert!(
            reopened
                .db
                .get(format!("key-{number}"))
                .await
                .expect("reads")
                .is_some(),
            "key-{number}"
        );
    }
    reopened.db.close().await.expect("closes");
    end(runtime);
}

#[test]
fn options_out_of_bounds_are_refused_by_name() {
    let runtime = runtime(1).expect("threads");
    let valid = || Options::new(runtime.handle().clone());
    assert!(Maintenance::new(valid()).is_ok());
    let cases: [(Options, &str); 7] = [
        (
            Options {
                concurrency: 0,
                ..valid()
            },
            "maintenance: `concurrency` is 0; give a number from 1 to 64",
        ),
        (
            Options {
                l0_trigger: 1,
                ..valid()
            },
            "maintenance: `l0_trigger` is 1; give a number from 2 to 7",
        ),
        (
            Options {
                l0_trigger: 8,
                ..valid()
            },
            "maintenance: `l0_trigger` is 8; give a number from 2 to 7",
        ),
        (
            Options {
                l0_max_ssts: 2,
                ..valid()
            },
            "maintenance: `l0_max_ssts` is 2; give a number from 3 to 1024",
        ),
        (
            Options {
                sorted_run_trigger: 1,
                ..valid()
            },
            "maintenance: `sorted_run_trigger` is 1; give a number from 2 to 1024",
        ),
        (
            Options {
                gc_min_age: Duration::from_secs(299),
                ..valid()
            },
            "maintenance: `gc_min_age` is 299s; give at least 300s",
        ),
        (
            Options {
                compaction_poll: Duration::ZERO,
                ..valid()
            },
            "maintenance: `compaction_poll` is 0ns; give at least 10ms",
        ),
    ];
    for (options, message) in cases {
        assert_eq!(
            Maintenance::new(options).expect_err(message).to_string(),
            message
        );
    }
}

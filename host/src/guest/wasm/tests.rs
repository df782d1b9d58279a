//! Guests of a few instructions on a real engine and a real database.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use slatedb::object_store::memory::InMemory;

use super::*;
use crate::clock;
use crate::db::ShardDb;
use crate::gate::Gate;
use crate::gate::deadline::Deadline;
use crate::guest::NoRoom;
use crate::guest::calls::Calls;
use crate::guest::calls::tests::nowhere;
use crate::guest::log::GuestLog;
use crate::guest::notify::Notifier;
use crate::guest::timers::Timers;
use wat::Wat;

mod versions;
pub(super) mod wat;

/// Instances that the engine of a bench has room for.
const INSTANCES: u32 = 4;

/// One shard's database, and an engine.
struct Bench {
    runtime: Arc<Runtime>,
    limits: Arc<Limits>,
    context: InstanceContext,
    _cache: tempfile::TempDir,
}

impl Bench {
    async fn new(limits: Limits, options: &str) -> Self {
        let cache = tempfile::tempdir().expect("a folder");
        let options_ = RuntimeOptions {
            instances: INSTANCES,
            writers: 2,
            compile_threads: 1,
            cache_dir: Some(cache.path().to_owned()),
        };
        let limits = Arc::new(limits);
        let db = slatedb::Db::builder("shard", Arc::new(InMemory::new()))
            .build()
            .await
            .expect("a database");
        let gate = Arc::new(Gate::new(
            db.snapshot().expect("a snapshot"),
            Arc::new(Deadline::never()),
        ));
        let shard = Arc::new(ShardDb::new(db, 1, gate.clone(), limits.clone(), None));
        let (notifier, _tags) = Notifier::new(gate.clone(), limits.notifications);
        let calls = Calls::new(3, 8, shard.clone(), nowhere());
        let (timers, _schedule) = Timers::new(shard.clone(), limits.timers);
        let context = InstanceContext {
            cluster: "test".into(),
            node: "one".into(),
            shard: 3,
            shards: 8,
            generation: 7,
            options: options.into(),
            db: shard,
            gate,
            notifier: Arc::new(notifier),
            timers,
            status: Arc::default(),
            log: Arc::new(GuestLog::new(3, "main".into(), 1, 1 << 20)),
            calls: Arc::new(calls),
            metrics: crate::metrics::guest::of("test", "main"),
        };
        Self {
            runtime: Runtime::new(options_).expect("an engine"),
            limits,
            context,
            _cache: cache,
        }
    }

    async fn module(&self, bytes: impl Into<Bytes>) -> Arc<WasmModule> {
        self.runtime
            .load(bytes.into(), "main".into(), 1, self.limits.clone())
            .await
            .expect("a guest")
    }

    async fn instance(&self, bytes: impl Into<Bytes>) -> Box<dyn Instance> {
        self.module(bytes)
            .await
            .instantiate(self.context.clone())
            .await
            .expect("an instance")
    }
}

fn request(method: &str, key: Option<&str>, payload: impl Into<Bytes>) -> Request {
    Request {
        method: method.into(),
        key: key.map(|key| Bytes::copy_from_slice(key.as_bytes())),
        payload: payload.into(),
        headers: vec![("x-test".into(), "yes".into())],
        deadline: clock::now() + Duration::from_secs(60),
        chain: Vec::new(),
        http: None,
    }
}

fn limits() -> Limits {
    Limits {
        memory: 4 << 20,
        reply: 1 << 10,
        cpu_time: Duration::from_millis(50),
        ..Limits::default()
    }
}

fn trap(outcome: Result<Reply, Failure>) -> Trap {
    match outcome {
        Err(Failure::Trap(trap)) => trap,
        other => panic!("no trap: {other:?}"),
    }
}

#[tokio::test]
async fn a_guest_ends_in_the_way_that_it_ends() {
    let forever = "(loop $again (br $again)) (unreachable)";
    let recursion = "(call $call (local.get 0) (local.get 1) (local.get 2) (local.get 3) (local.get 4) (local.get 5) (local.get 6))";
    // The payload's length as the length of a list that begins at 0.
    let long_reply = "(i32.store offset=8 (i32.const 16) (i32.mul (local.get $payload_len) (i32.const 1024))) (i32.const 16)";
    for (name, body, payload, kind, text) in [
        (
            "unreachable",
            "(unreachable)",
            0,
            TrapKind::Aborted,
            "unreachable",
        ),
        (
            "out of bounds",
            "(i32.load (i32.const -8))",
            0,
            TrapKind::Aborted,
            "out of bounds",
        ),
        (
            "a result outside of memory",
            "(i32.const -8)",
            0,
            TrapKind::Aborted,
            "out of bounds",
        ),
        (
            "endless",
            forever,
            0,
            TrapKind::CpuTime,
            "limits.cpu_time (50ms)",
        ),
        ("recursion", recursion, 0, TrapKind::StackOverflow, "stack"),
        (
            "recursion that keeps a stack in memory",
            "(global.set $sp (i32.sub (global.get $sp) (i32.const 8192))) (i32.store (global.get $sp) (i32.const 1)) (call $call (local.get 0) (local.get 1) (local.get 2) (local.get 3) (local.get 4) (local.get 5) (local.get 6))",
            0,
            TrapKind::StackOverflow,
            "recursion",
        ),
        (
            "no more memory",
            "(if (i32.eq (memory.grow (i32.const 64)) (i32.const -1)) (then (unreachable))) (i32.const 16)",
            0,
            TrapKind::Memory,
            "limits.memory (4194304 bytes)",
        ),
        (
            "a long reply",
            long_reply,
            2,
            TrapKind::ReplyTooLarge,
            "2048 bytes is over limits.reply (1024 bytes)",
        ),
        (
            "a reply longer than memory",
            long_reply,
            1 << 12,
            TrapKind::Aborted,
            "out of bounds",
        ),
    ] {
        let bench = Bench::new(limits(), "{}").await;
        let core = "(global $sp (mut i32) (i32.const 1048576))";
        let mut instance = bench
            .instance(
                Wat {
                    core,
                    body,
                    ..Wat::default()
                }
                .build(),
            )
            .await;
        let found = trap(instance.call(&request("any", None, vec![0; payload])).await);
        assert_eq!(found.kind, kind, "{name}: {found}");
        assert!(found.message.contains(text), "{name}: {found}");
        let again = trap(instance.call(&request("any", None, "")).await);
        assert_eq!(again.kind, TrapKind::Host, "{name}: the instance is gone");
    }
}

#[tokio::test]
async fn a_reply_over_what_may_be_copied_is_refused_before_it_is() {
    let limits = Limits {
        memory: 64 << 20,
        reply: 1 << 10,
        batch: 1 << 10,
        value: 1 << 10,
        ..Limits::default()
    };
    let body = "(i32.store offset=8 (i32.const 16) (i32.const 0x1000000)) (i32.const 16)";
    let bench = Bench::new(limits, "{}").await;
    let mut instance = bench
        .instance(
            Wat {
                pages: 512,
                body,
                ..Wat::default()
            }
            .build(),
        )
        .await;
    let found = trap(instance.call(&request("any", None, "")).await);
    assert_eq!(
        (found.kind, found.message.as_str()),
        (
            TrapKind::ReplyTooLarge,
            "a reply is over limits.reply (1024 bytes)"
        )
    );
}

#[tokio::test]
async fn replies_and_errors_leave_the_instance_as_it_is() {
    let bench = Bench::new(limits(), "{}").await;
    // The method's length tells: an empty reply, the payload, an error with a good code, one with a bad code.
    let body = r#"
      (if (i32.eq (local.get $method_len) (i32.const 1)) (then (return (i32.const 16))))
      (if (i32.eq (local.get $method_len) (i32.const 2)) (then
        (i32.store offset=4 (i32.const 64) (local.get $payload)) (i32.store offset=8 (i32.const 64) (local.get $payload_len)) (return (i32.const 64))))
      (i32.store8 (i32.const 128) (i32.const 1))
      (i32.store offset=4 (i32.const 128) (select (i32.const 256) (i32.const 272) (i32.eq (local.get $method_len) (i32.const 3))))
      (i32.store offset=8 (i32.const 128) (i32.const 7))
      (i32.store8 offset=20 (i32.const 128) (i32.const 1))
      (i32.const 128)"#;
    let core = r#"(data (i32.const 256) "no-luck") (data (i32.const 272) "No Luck")"#;
    let mut instance = bench
        .instance(
            Wat {
                core,
                body,
                ..Wat::default()
            }
            .build(),
        )
        .await;
    for round in 0..3 {
        let reply = instance.call(&request("1", None, "x")).await;
        assert_eq!(reply, Ok(Reply::default()), "round {round}");
        let reply = instance.call(&request("22", Some("key"), "hello")).await;
        assert_eq!(reply, Ok(Reply::new("hello")), "round {round}");
        for (method, code) in [("333", "no-luck"), ("4444", "guest-error")] {
            match instance.call(&request(method, None, "")).await {
                Err(Failure::Error(error)) => {
                    assert!(error.code == code && error.retryable, "{method}: {error:?}")
                }
                other => panic!("{method}: {other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn a_guest_that_spins_lets_its_neighbours_run() {
    let bench = Bench::new(
        Limits {
            cpu_time: Duration::from_millis(200),
            ..limits()
        },
        "{}",
    )
    .await;
    let mut instance = bench
        .instance(Wat::call("(loop $again (br $again)) (unreachable)"))
        .await;
    let turns = Arc::new(AtomicU64::new(0));
    let counted = turns.clone();
    let neighbour = tokio::spawn(async move {
        loop {
            // A timer, so that the runtime's drivers have to have their turn as well.
            tokio::time::sleep(Duration::from_millis(1)).await;
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let found = trap(instance.call(&request("any", None, "")).await);
    neighbour.abort();
    assert_eq!(found.kind, TrapKind::CpuTime, "{found}");
    let turns = turns.load(Ordering::Relaxed);
    assert!(
        turns >= 10,
        "the neighbour had {turns} turns while the guest used 200 ms"
    );
}

#[tokio::test]
async fn wall_time_ends_what_cpu_time_does_not() {
    let limits = Limits {
        cpu_time: Duration::from_secs(3600),
        wall_time: Duration::from_millis(30),
        ..limits()
    };
    let bench = Bench::new(limits, "{}").await;
    let mut instance = bench
        .instance(Wat::call("(loop $again (br $again)) (unreachable)"))
        .await;
    let begun = Instant::now();
    let found = trap(instance.call(&request("any", None, "")).await);
    assert_eq!(
        (found.kind, found.message.as_str()),
        (
            TrapKind::WallTime,
            "it lasted longer than limits.wall_time (30ms)"
        )
    );
    assert!(begun.elapsed() >= Duration::from_millis(30));
}

#[tokio::test]
async fn a_call_that_is_dropped_ends_its_instance() {
    let bench = Bench::new(limits(), "{}").await;
    let mut instance = bench
        .instance(Wat::call("(loop $again (br $again)) (unreachable)"))
        .await;
    let asked = request("any", None, "");
    let mut call = instance.call(&asked);
    assert!(
        futures::poll!(&mut call).is_pending(),
        "the guest spins, so it pauses at a tick"
    );
    drop(call);
    let found = trap(instance.call(&asked).await);
    assert_eq!(found.kind, TrapKind::Host, "{found}");
}

#[tokio::test]
async fn an_instance_that_cannot_be_made_says_why() {
    let bench = Bench::new(limits(), "{}").await;
    let start_of = "(func $start (loop $again (br $again))) (start $start)";
    for (name, wat, kind, text) in [
        (
            "too much memory",
            Wat {
                pages: 65,
                ..Wat::default()
            },
            TrapKind::Memory,
            "limits.memory",
        ),
        (
            "a start that does not end",
            Wat {
                core: start_of,
                ..Wat::default()
            },
            TrapKind::CpuTime,
            "limits.cpu_time",
        ),
        (
            "a start that fails",
            Wat {
                core: "(func $start (unreachable)) (start $start)",
                ..Wat::default()
            },
            TrapKind::Aborted,
            "unreachable",
        ),
    ] {
        let module = bench.module(wat.build()).await;
        match module.instantiate(bench.context.clone()).await.err() {
            Some(Failure::Trap(found)) => assert!(
                found.kind == kind && found.message.contains(text),
                "{name}: {found}"
            ),
            other => panic!("{name}: {other:?}"),
        }
    }
}

/// One of the four places is for queries.
#[tokio::test]
async fn room_is_kept_for_calls() {
    let bench = Bench::new(limits(), "{}").await;
    let module = bench.module(Wat::default().build()).await;
    let context = || bench.context.clone();
    let query = module.instantiate_query(context()).await.expect("room");
    let (queries, instances) = (1, INSTANCES);
    assert_eq!(
        module.instantiate_query(context()).await.err(),
        Some(Failure::NoRoom(NoRoom::Queries { queries, instances }))
    );
    assert_eq!(module.crowded(), 1);
    let mut held = Vec::new();
    for _ in 1..INSTANCES {
        held.push(module.instantiate(context()).await.expect("room"));
    }
    assert_eq!(
        module.instantiate(context()).await.err(),
        Some(Failure::NoRoom(NoRoom::Node { instances }))
    );
    drop(query);
    held.push(module.instantiate(context()).await.expect("room again"));
    assert!(module.instantiate_query(context()).await.is_err());
    drop(held);
    module
        .instantiate_query(context())
        .await
        .expect("room again");
}

//! Guests that end in the middle of a call: each in its way, and only their own call fails.

use std::time::Duration;

use quarry::call::{CallErrorKind, Source};
use quarry::cluster::status::ShardState;
use quarry::config::Config;
use quarry::guest::TrapKind;

use crate::support::guests::{self, ask, keys, refused};
use crate::support::native::config;
use crate::support::neighbour::Neighbour;
use crate::support::store::within;

/// Limits that are met fast, but for that of CPU time, which a busy machine would make anything meet.
fn tight() -> Config {
    let mut config = config();
    config.limits.cpu_time = Duration::from_secs(20);
    config.limits.memory = 32 << 20;
    config.limits.reply = 1 << 20;
    config
}

/// The same, where a guest is to spin.
fn impatient() -> Config {
    let mut config = tight();
    config.limits.cpu_time = Duration::from_millis(300);
    config
}

/// A way to end: the method and its payload, and what the caller learns.
struct Case {
    method: &'static str,
    payload: &'static str,
    kind: TrapKind,
    code: &'static str,
    says: &'static str,
    /// Whether it takes so long that the neighbour has to be served meanwhile.
    slow: bool,
}

const fn case(
    method: &'static str,
    payload: &'static str,
    kind: TrapKind,
    code: &'static str,
    says: &'static str,
) -> Case {
    Case {
        method,
        payload,
        kind,
        code,
        says,
        slow: false,
    }
}

const fn slow(mut case: Case) -> Case {
    case.slow = true;
    case
}

#[rustfmt::skip]
const CASES: &[Case] = &[
    case("trap", "because", TrapKind::Aborted, "guest-trap", "trapped on purpose: because"),
    case("abort", "", TrapKind::Aborted, "guest-trap", "unreachable"),
    case("exit", "", TrapKind::Aborted, "guest-trap", "it exited with status 0"),
    case("out-of-bounds", "", TrapKind::Aborted, "guest-trap", "index out of bounds"),
    case("allocate", "", TrapKind::Memory, "guest-memory-limit", "limits.memory (33554432 bytes)"),
    case("recurse", "", TrapKind::StackOverflow, "guest-stack-overflow", "its stack of 1 MiB is used up"),
    case("recurse-with-frames", "", TrapKind::StackOverflow, "guest-stack-overflow", "deep in a recursion"),
    case("big-reply", "1048577", TrapKind::ReplyTooLarge, "guest-reply-limit", "a reply of 1048577 bytes is over limits.reply (1048576 bytes)"),
    case("big-reply", "1073741824", TrapKind::Memory, "guest-memory-limit", "limits.memory (33554432 bytes)"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_trap_costs_its_own_call_and_nothing_else() {
    check(tight(), CASES).await;
}

/// Apart from the others, of which a busy machine may take its time for any.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_spins_costs_nothing_else() {
    let spins = case(
        "spin",
        "",
        TrapKind::CpuTime,
        "guest-cpu-limit",
        "limits.cpu_time (300ms)",
    );
    check(impatient(), &[slow(spins)]).await;
}

/// Apart as well: a guest that spins would meet this limit first.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_lasts_too_long_costs_nothing_else() {
    let mut config = tight();
    config.limits.wall_time = Duration::from_millis(600);
    config.limits.cpu_time = Duration::from_millis(600);
    let waits = case(
        "sleep",
        "60000",
        TrapKind::WallTime,
        "guest-wall-limit",
        "limits.wall_time (600ms)",
    );
    check(config, &[slow(waits)]).await;
}

/// Both shards share a thread, so whatever the guest does to it, it does to the neighbour.
async fn check(config: Config, cases: &[Case]) {
    let cluster = guests::start(config, "misbehave").await;
    let keys = keys(&cluster);
    let neighbour = Neighbour::of(&cluster, &keys[1]);
    neighbour.serves(1).await;
    for (n, case) in cases.iter().enumerate() {
        let name = format!("{} {:?}", case.method, case.payload);
        let kept = format!("before {n}");
        ask(&cluster, &keys[0], "put", &kept).await;
        let served = neighbour.served();
        let error = refused(&cluster, &keys[0], case.method, case.payload).await;
        let meanwhile = neighbour.served() - served;
        assert_eq!(
            error.kind,
            CallErrorKind::Trap(case.kind),
            "{name}: {error}"
        );
        assert_eq!(error.code, case.code, "{name}");
        assert_eq!(error.source(), Source::Trap, "{name}");
        assert!(error.message.contains(case.says), "{name}: {error}");
        assert!(!error.never_ran() && !error.retryable, "{name}");
        assert_eq!((error.shard, error.revision), (Some(0), Some(1)), "{name}");
        if case.slow {
            assert!(
                meanwhile >= 3,
                "{name}: the neighbour was served {meanwhile} times"
            );
        }
        neighbour.serves(1).await;
        // A new instance, without anyone's help, over the same data.
        assert_eq!(ask(&cluster, &keys[0], "get", "").await, kept, "{name}");
        assert_eq!(
            ask(&cluster, &keys[0], "memory-count", "").await,
            "1",
            "{name}"
        );
        let report = cluster.shard_report(0).expect("a report");
        assert_eq!(report.status, ShardState::Running, "{name}");
        assert_eq!(report.traps, n as u64 + 1, "{name}");
        let last = report.last_error.expect("kept after recovery");
        assert!(last.contains(case.says), "{name}: {last}");
        // Forgets the trap: many within a minute would quarantine the shard.
        within(cluster.restart_shard(0)).await.expect("restart");
    }
    neighbour.stop().await;
    cluster.stop().await;
}

/// The message of a trap has what the guest wrote last, in that call only.
#[tokio::test(flavor = "multi_thread")]
async fn what_earlier_calls_wrote_is_no_part_of_a_trap() {
    let cluster = guests::start(tight(), "misbehave").await;
    ask(&cluster, "a", "stderr", "a secret of another caller").await;
    let error = refused(&cluster, "a", "abort", "").await;
    assert!(error.message.contains("unreachable"), "{error}");
    assert!(!error.message.contains("secret"), "{error}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_before_the_end_stays() {
    let cluster = guests::start(tight(), "misbehave").await;
    let error = refused(&cluster, "a", "write-then-trap", "one").await;
    assert_eq!(
        error.kind,
        CallErrorKind::Trap(TrapKind::Aborted),
        "{error}"
    );
    let seq = error.seq.expect("the error shows the write");
    // The error left once the write was durable, as a reply would have.
    assert!(
        cluster
            .durable_seq(error.shard.expect("known"))
            .await
            .expect("open")
            >= seq
    );
    assert_eq!(ask(&cluster, "a", "get", "").await, "one");
    let error = refused(&cluster, "a", "write-then-error", "two").await;
    assert_eq!(
        (error.kind, error.code.as_str()),
        (CallErrorKind::Guest, "written"),
        "{error}"
    );
    assert!(error.seq.expect("the error shows the write") > seq);
    assert_eq!(ask(&cluster, "a", "get", "").await, "two");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_traps_quarantine_one_shard_until_a_restart_or_a_swap() {
    let mut config = tight();
    config.limits.traps = 1;
    let cluster = guests::start(config.clone(), "misbehave").await;
    let keys = keys(&cluster);
    let neighbour = Neighbour::of(&cluster, &keys[1]);
    ask(&cluster, &keys[0], "put", "kept").await;
    // How long a reply gets is up to the caller, who quarantines nothing with it.
    for _ in 0..4 {
        let error = refused(&cluster, &keys[0], "big-reply", "1048577").await;
        assert_eq!(error.code, "guest-reply-limit", "{error}");
    }
    for heal in ["restart", "swap"] {
        for _ in 0..2 {
            refused(&cluster, &keys[0], "trap", "twice").await;
        }
        let error = refused(&cluster, &keys[0], "get", "").await;
        assert_eq!(error.kind, CallErrorKind::Quarantined, "{error}");
        assert_eq!(error.code, "quarantined");
        assert!(error.never_ran() && !error.retryable);
        assert!(
            error.message.contains("more than 1 times in 60s"),
            "{error}"
        );
        assert!(
            error.message.contains("trapped on purpose: twice"),
            "{error}"
        );
        assert_eq!(
            cluster.shard_report(0).expect("a report").status,
            ShardState::Quarantined
        );
        assert!(!cluster.ready());
        neighbour.serves(1).await;
        match heal {
            "restart" => within(cluster.restart_shard(0)).await.expect("restart"),
            _ => {
                let newer = guests::module(&config, "misbehave", 2).await;
                within(cluster.swap(newer)).await.expect("swap");
            }
        }
        assert_eq!(ask(&cluster, &keys[0], "get", "").await, "kept", "{heal}");
        assert!(cluster.ready(), "{heal}");
    }
    neighbour.stop().await;
    cluster.stop().await;
}

/// Calls that wait while a guest is replaced are run by the new instance, in their order.
#[tokio::test(flavor = "multi_thread")]
async fn calls_in_the_queue_outlive_a_trap() {
    let cluster = guests::start(impatient(), "misbehave").await;
    let key = &keys(&cluster)[0];
    let calls = (0..20).map(|n| {
        let (cluster, key) = (cluster.clone(), key.clone());
        async move {
            if n == 3 {
                refused(&cluster, &key, "spin", "").await;
                String::new()
            } else {
                ask(&cluster, &key, "memory-count", "").await
            }
        }
    });
    let counts: Vec<String> = futures::future::join_all(calls).await;
    let counts: Vec<u64> = counts.iter().filter_map(|text| text.parse().ok()).collect();
    assert_eq!(counts, (1..=3).chain(1..=16).collect::<Vec<_>>());
    cluster.stop().await;
}

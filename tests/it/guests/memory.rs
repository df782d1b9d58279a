//! The host's memory, whatever guests do. Measured in a process of its own, since other tests take memory too.

#![cfg(target_os = "linux")]

use std::process::Command;
use std::time::Duration;

use quarry::Cluster;

use crate::support::guests::{self, ask, keys, query};
use crate::support::native::{call, config};
use crate::support::neighbour::Neighbour;
use crate::support::store::within;

/// What a guest may have, in MiB.
const GUEST: u64 = 64;
/// By how much the process may grow for good, in MiB: block cache, allocator, histories of the database.
const GROWTH: u64 = 100;
/// By how much it may grow meanwhile, in MiB: a guest's memory for the call and one for a query, and a copy of the largest reply.
const PEAK: u64 = 2 * GUEST + GROWTH;

/// 24 values of 16 MB, of one key.
const LARGE_VALUES: &str = "oversize\noversize\noversize\noversize\noversize\noversize\noversize\noversize\noversize\noversize\noversize\noversize\noversize\noversize\noversize\noversize\noversize\noversize\noversize\noversize\noversize\noversize\noversize\noversize\n";

/// What a guest does, how often; each as a call, and as a query where it writes nothing.
const CASES: &[(&str, &str, usize)] = &[
    ("allocate", "", 12),
    ("big-reply", "41943040", 12),
    ("big-reply", "1073741824", 12),
    ("big-error", "", 30),
    ("flood-log", "5000", 6),
    ("flood-stderr", "4", 6),
    ("trap", "again", 60),
    ("leak-cursors", "60", 150),
    ("leak-snapshots", "60", 150),
    ("leak-transactions", "60", 150),
    ("oversize-value", "20000000", 6),
    ("get-many", "repeat 1000", 60),
    ("get-many", LARGE_VALUES, 6),
];

#[test]
fn memory_stays_bounded() {
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args([
            "--exact",
            "guests::memory::alone",
            "--ignored",
            "--nocapture",
        ])
        .output()
        .expect("it runs");
    let text = [output.stdout, output.stderr]
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .concat();
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("1 passed"),
        "the test has another name now: {text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in a process of its own, which `memory_stays_bounded` starts"]
async fn alone() {
    let mut config = config();
    config.limits.memory = GUEST << 20;
    config.limits.reply = 16 << 20;
    config.limits.cpu_time = Duration::from_secs(20);
    config.limits.query_instances = 1;
    let cluster = guests::start(config, "misbehave").await;
    let keys = keys(&cluster);
    let neighbour = Neighbour::of(&cluster, &keys[1]);
    ask(&cluster, &keys[0], "oversize-value", "16000000").await;
    // Whatever is taken once and for all is taken now.
    for (method, payload, _) in CASES {
        misbehave(&cluster, &keys[0], method, payload).await;
    }
    for (method, payload, times) in CASES {
        forget_peak();
        let before = status("VmRSS");
        for _ in 0..*times {
            misbehave(&cluster, &keys[0], method, payload).await;
        }
        neighbour.serves(1).await;
        let (after, peak) = (status("VmRSS"), status("VmHWM"));
        println!("{method} {payload}: {before} MiB before, {peak} MiB at most, {after} MiB after");
        assert!(
            after < before + GROWTH,
            "{method} {payload}: {before} MiB, then {after} MiB"
        );
        assert!(
            peak < before + PEAK,
            "{method} {payload}: {before} MiB, then {peak} MiB for a while"
        );
    }
    neighbour.stop().await;
    within(cluster.stop()).await;
}

async fn misbehave(cluster: &Cluster, key: &str, method: &str, payload: &str) {
    let outcome = within(call(cluster, key, method, payload)).await;
    let queried = query(cluster, key, method, payload).await;
    if outcome.is_err_and(|error| matches!(error.kind, quarry::call::CallErrorKind::Trap(_))) {
        assert!(queried.is_err(), "{method}: a query ends as a call does");
        // Forgets the trap, which would bring longer and longer pauses.
        within(cluster.restart_shard(0)).await.expect("restart");
    }
    ask(cluster, key, "drop-leaked", "").await;
    query(cluster, key, "drop-leaked", "")
        .await
        .expect("dropped");
}

/// A line of this process's status, in MiB.
fn status(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .expect("the line");
    line.trim()
        .trim_end_matches(" kB")
        .parse::<u64>()
        .expect("a number")
        >> 10
}

/// Counts the peak from now on. Where the system does not allow it, the peak of earlier cases counts as well.
fn forget_peak() {
    _ = std::fs::write("/proc/self/clear_refs", "5");
}

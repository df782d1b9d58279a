//! What a call leaves open is closed when it ends: nothing piles up, and nothing of it can be used later.

use std::time::Duration;

use quarry::call::CallErrorKind;

use crate::support::guests::{self, ask, keys, query, refused, shown};
use crate::support::native::config;
use crate::support::neighbour::Neighbour;

/// Calls of each kind of leak.
const CALLS: usize = 200;
/// What each leaves open; `limits.open_resources` is 64.
const LEFT_OPEN: usize = 60;

#[tokio::test(flavor = "multi_thread")]
async fn what_calls_leave_open_does_not_add_up() {
    let mut config = config();
    config.limits.cpu_time = Duration::from_secs(10);
    let cluster = guests::start(config, "misbehave").await;
    let keys = keys(&cluster);
    let neighbour = Neighbour::of(&cluster, &keys[1]);
    ask(&cluster, &keys[0], "put", "kept").await;
    for (method, outcome) in [
        ("leak-cursors", "closed none none"),
        ("leak-snapshots", "none closed none"),
        ("leak-transactions", "none none closed"),
    ] {
        for n in 1..=CALLS {
            let kept = ask(&cluster, &keys[0], method, &LEFT_OPEN.to_string()).await;
            assert_eq!(kept, (n * LEFT_OPEN).to_string(), "{method}");
        }
        assert_eq!(
            ask(&cluster, &keys[0], "use-leaked", "").await,
            outcome,
            "{method}"
        );
        ask(&cluster, &keys[0], "drop-leaked", "").await;
        assert_eq!(ask(&cluster, &keys[0], "get", "").await, "kept", "{method}");
        // All of them can be opened anew.
        ask(&cluster, &keys[0], method, "64").await;
        ask(&cluster, &keys[0], "drop-leaked", "").await;
    }
    let leaked = refused(&cluster, "leaked", "get", "").await;
    assert_eq!(
        leaked.code, "not-found",
        "a transaction without a commit changes nothing"
    );
    assert_eq!(cluster.shard_report(0).expect("a report").traps, 0);
    neighbour.serves(1).await;
    neighbour.stop().await;
    cluster.stop().await;
}

/// Queries share instances, so what one leaves behind must not meet the next.
#[tokio::test(flavor = "multi_thread")]
async fn what_queries_leave_open_does_not_add_up() {
    let mut config = config();
    config.limits.query_instances = 1;
    let cluster = guests::start(config, "misbehave").await;
    ask(&cluster, "a", "put", "kept").await;
    for method in ["leak-cursors", "leak-snapshots"] {
        for _ in 0..50 {
            query(&cluster, "a", method, "60").await.expect("leaks");
        }
        let outcome = query(&cluster, "a", "use-leaked", "").await.expect("used");
        assert!(shown(&outcome).contains("closed"), "{}", shown(&outcome));
        query(&cluster, "a", "drop-leaked", "")
            .await
            .expect("dropped");
    }
    let error = query(&cluster, "a", "leak-transactions", "1")
        .await
        .expect_err("a query cannot write");
    assert_eq!(
        (error.kind, error.code.as_str()),
        (CallErrorKind::Guest, "read-only")
    );
    let got = query(&cluster, "a", "get", "").await.expect("get");
    assert_eq!(shown(&got), "kept");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_is_dropped_changes_nothing() {
    let cluster = guests::start(config(), "misbehave").await;
    ask(&cluster, "a", "put", "before").await;
    ask(&cluster, "a", "transaction-dropped", "after").await;
    assert_eq!(ask(&cluster, "a", "get", "").await, "before");
    cluster.stop().await;
}

//! Timers of components: what a guest sets comes back to it, over whatever becomes of its instance and its node.

use std::time::Duration;

use quarry::Cluster;
use quarry::cluster::status::ShardState;
use quarry::config::Config;
use serde_json::json;

use crate::support::guests::{self, ask, query, refused, shown};
use crate::support::native::config;
use crate::support::store::{fresh, within};

fn one_shard() -> Config {
    let mut config = Config {
        shards: 1,
        ..config()
    };
    config.limits.cpu_time = Duration::from_millis(200);
    config
}

fn timer(name: &str, after_ms: u64, holds: &str) -> String {
    json!([name, after_ms, holds]).to_string()
}

async fn set(cluster: &Cluster, method: &str, name: &str, after_ms: u64, holds: &str) {
    ask(cluster, "a", method, &timer(name, after_ms, holds)).await;
}

/// Asks until the instance has got so many timers.
async fn fired(cluster: &Cluster, count: usize) -> Vec<String> {
    within(async {
        loop {
            let fired = ask(cluster, "a", "fired", "").await;
            let fired: Vec<String> = serde_json::from_str(&fired).expect("a list");
            if fired.len() >= count {
                return fired;
            }
        }
    })
    .await
}

/// Asks until the timers that count were counted.
async fn counted(cluster: &Cluster, count: u64) {
    within(async {
        while ask(cluster, "a", "count", "").await != count.to_string() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_gets_its_timers_and_their_writes_stay() {
    let store = fresh();
    let cluster = guests::start_on(store.clone(), one_shard(), "alarm").await;
    set(&cluster, "set-durable", "later", 3_600_000, "").await;
    set(&cluster, "set", "volatile", 3_600_000, "").await;
    for n in 0..20 {
        let method = if n % 2 == 0 { "set" } else { "set-durable" };
        set(&cluster, method, &n.to_string(), n % 3, "count").await;
    }
    counted(&cluster, 20).await;
    assert_eq!(fired(&cluster, 20).await.len(), 20);
    for name in ["later", "volatile"] {
        let due = query(&cluster, "a", "due", &timer(name, 0, "")).await;
        assert_eq!(shown(&due.expect("a query")), "true");
    }
    within(cluster.stop()).await;
    let cluster = guests::start_on(store, one_shard(), "alarm").await;
    assert_eq!(ask(&cluster, "a", "count", "").await, "20");
    for (name, there) in [("later", "true"), ("volatile", "false"), ("1", "false")] {
        assert_eq!(ask(&cluster, "a", "due", &timer(name, 0, "")).await, there);
    }
    within(cluster.stop()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_that_fails_ends_no_more_than_itself() {
    let cluster = guests::start(one_shard(), "alarm").await;
    set(&cluster, "set-durable", "error", 0, "error").await;
    fired(&cluster, 1).await;
    // It is there still, and comes again.
    assert_eq!(
        ask(&cluster, "a", "due", &timer("error", 0, "")).await,
        "true"
    );
    fired(&cluster, 2).await;
    assert_eq!(
        ask(&cluster, "a", "cancel", &timer("error", 0, "")).await,
        "true"
    );
    for (traps, holds) in (1..).zip(["trap", "spin"]) {
        set(&cluster, "set", "volatile", 3_600_000, "").await;
        set(&cluster, "set-durable", holds, 0, holds).await;
        within(async {
            while cluster.shard_report(0).expect("a report").traps < traps {
                tokio::task::yield_now().await;
            }
        })
        .await;
        // The instance is another one, and the timer waits for a while.
        assert!(fired(&cluster, 0).await.is_empty(), "{holds}");
        assert_eq!(
            ask(&cluster, "a", "due", &timer("volatile", 0, "")).await,
            "false"
        );
        assert_eq!(
            ask(&cluster, "a", "cancel", &timer(holds, 0, "")).await,
            "true"
        );
    }
    let report = cluster.shard_report(0).expect("a report");
    assert_eq!((report.status, report.traps), (ShardState::Running, 2));
    within(cluster.stop()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_asks_about_timers_and_sets_none() {
    let cluster = guests::start(one_shard(), "alarm").await;
    set(&cluster, "set-durable", "a", 3_600_000, "").await;
    for method in ["set", "set-durable", "cancel"] {
        let asked = query(&cluster, "a", method, &timer("a", 0, "")).await;
        assert_eq!(asked.expect_err("refused").code, "read-only", "{method}");
    }
    for (name, there) in [("a", "true"), ("b", "false")] {
        let due = query(&cluster, "a", "due", &timer(name, 0, "")).await;
        assert_eq!(shown(&due.expect("a query")), there);
    }
    let error = refused(&cluster, "a", "set", &timer("", 0, "")).await;
    assert_eq!(error.code, "invalid-argument");
    within(cluster.stop()).await;
}

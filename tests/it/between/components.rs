//! What a component gets that asks other shards: answers, errors, and what it may not.

use std::time::Duration;

use bytes::Bytes;
use quarry::Cluster;
use quarry::call::{CallError, CallErrorKind, CallOptions, CallReply, QueryOptions, Target};
use quarry::config::Config;
use serde_json::{Value, json};

use crate::support::guests::{self, keys, shown};
use crate::support::native::config;
use crate::support::store::within;

fn three() -> Config {
    Config {
        shards: 3,
        ..config()
    }
}

async fn ask(cluster: &Cluster, shard: u32, plan: Value) -> Result<CallReply, CallError> {
    call(cluster, shard, "ask", plan.to_string()).await
}

async fn call(
    cluster: &Cluster,
    shard: u32,
    method: &str,
    payload: impl Into<Bytes>,
) -> Result<CallReply, CallError> {
    let options = CallOptions::default();
    within(cluster.call(Target::Shard(shard), method, payload.into(), options)).await
}

async fn query(cluster: &Cluster, shard: u32, plan: Value) -> Result<CallReply, CallError> {
    let (payload, options) = (plan.to_string().into(), QueryOptions::default());
    within(cluster.query(Target::Shard(shard), "ask", payload, options)).await
}

fn text(reply: Result<CallReply, CallError>) -> String {
    shown(&reply.expect("a reply"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_asks_by_shard_and_by_key() {
    let cluster = guests::start(three(), "relay").await;
    let key = keys(&cluster)[1].clone();
    for (plan, expected) in [
        (json!({"shard": 1, "method": "count"}), "1"),
        (json!({"key": key, "method": "count"}), "2"),
        (json!({"key": key, "method": "key"}), &*key),
        (json!({"shard": 1, "method": "key"}), "none"),
        (
            json!({"kind": "query", "shard": 1, "method": "counted"}),
            "2",
        ),
        (json!({"kind": "query", "key": key, "method": "key"}), &key),
        // A query of itself, of what it has just written.
        (
            json!({"kind": "query", "shard": 0, "method": "counted"}),
            "0",
        ),
        // Three shards in a row.
        (
            json!({"shard": 1, "method": "ask", "payload": {"shard": 2, "method": "count"}}),
            "1",
        ),
    ] {
        assert_eq!(
            text(ask(&cluster, 0, plan.clone()).await),
            expected,
            "{plan}"
        );
    }
    assert_eq!(
        text(call(&cluster, 0, "at-start", "").await),
        "invalid-argument: other shards can be asked in the middle of a call, a timer or a query; this is none of them"
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_comes_back_as_it_is() {
    let mut config = three();
    config.limits.call_depth = 2;
    config.http.max_body = 1 << 10;
    let cluster = guests::start(config, "relay").await;
    let long = "x".repeat(2 << 10);
    let deep = json!({"shard": 1, "method": "ask", "payload":
        {"kind": "query", "shard": 2, "method": "ask", "payload": {"kind": "query", "shard": 2, "method": "counted"}}});
    for (plan, code, retryable, says) in [
        (
            json!({"shard": 1, "method": "fail"}),
            "overdraft",
            true,
            "no money",
        ),
        (
            json!({"shard": 1, "method": "trap"}),
            "guest-trap",
            false,
            "trapped on purpose",
        ),
        (
            json!({"shard": 1, "method": "none"}),
            "unknown-method",
            false,
            "none",
        ),
        (
            json!({"shard": 3, "method": "count"}),
            "invalid-argument",
            false,
            "from 0 to 2",
        ),
        (
            json!({"shard": 1, "method": ""}),
            "invalid-argument",
            false,
            "1 to 128 bytes",
        ),
        (
            json!({"shard": 1, "method": "count", "payload": long}),
            "limit",
            false,
            "http.max_body (1024)",
        ),
        (
            json!({"shard": 0, "method": "count"}),
            "call-cycle",
            false,
            "0 -> 0",
        ),
        (
            json!({"shard": 1, "method": "ask", "payload": {"shard": 0, "method": "count"}}),
            "call-cycle",
            false,
            "0 -> 1 -> 0",
        ),
        (deep, "call-depth", false, "limits.call_depth (2)"),
    ] {
        let error = ask(&cluster, 0, plan.clone()).await.expect_err(code);
        assert_eq!(
            (error.kind, error.code.as_str()),
            (CallErrorKind::Guest, code),
            "{plan}: {error}"
        );
        assert_eq!(error.retryable, retryable, "{plan}");
        assert!(error.message.contains(says), "{plan}: {error}");
        // The caller goes on, whatever became of the other.
        let mut caught = plan;
        caught["catch"] = true.into();
        let caught = text(ask(&cluster, 0, caught).await);
        assert!(caught.starts_with(code), "{caught}");
    }
    // A circle of three, where the depth allows it.
    let mut config = three();
    config.limits.query_instances = 2;
    let wide = guests::start(config, "relay").await;
    let plan = json!({"shard": 1, "method": "ask", "payload":
        {"shard": 2, "method": "ask", "payload": {"shard": 0, "method": "count"}}});
    let error = ask(&wide, 0, plan).await.expect_err("a circle");
    assert!(error.message.contains("0 -> 1 -> 2 -> 0"), "{error}");
    for shard in 0..3 {
        let counted = text(call(&wide, shard, "counted", "").await);
        assert_eq!(counted, "0", "shard {shard}");
    }
    // Queries in queries, and no further than there are instances.
    let once = json!({"kind": "query", "shard": 1, "method": "ask", "payload": {"kind": "query", "shard": 0, "method": "counted"}});
    assert_eq!(text(query(&wide, 0, once).await), "0");
    let inner = json!({"kind": "query", "shard": 0, "method": "counted"});
    let twice = json!({"kind": "query", "shard": 0, "method": "ask", "payload": inner});
    let error = query(&wide, 0, twice)
        .await
        .expect_err("all instances wait");
    assert_eq!(
        (error.code.as_str(), error.retryable),
        ("overloaded", true),
        "{error}"
    );
    assert!(error.message.contains("limits.query_instances"), "{error}");
    // A query changes nothing, not elsewhere either.
    let writes = json!({"shard": 1, "method": "count"});
    let error = query(&wide, 0, writes).await.expect_err("a query");
    assert_eq!(error.code, "read-only");
    for cluster in [cluster, wide] {
        cluster.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_other_shard_has_the_time_that_is_left() {
    let cluster = guests::start(three(), "relay").await;
    let options = CallOptions {
        timeout: Some(Duration::from_secs(9)),
        ..CallOptions::default()
    };
    let plan = json!({"shard": 1, "method": "ask", "payload": {"shard": 2, "method": "left"}});
    let asked = cluster.call(Target::Shard(0), "ask", plan.to_string().into(), options);
    let left: u64 = text(within(asked).await).parse().expect("milliseconds");
    assert!((1..=9_000).contains(&left), "{left}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_of_itself_sees_what_the_call_wrote() {
    let cluster = guests::start(three(), "relay").await;
    call(&cluster, 0, "count", "").await.expect("a reply");
    let plan = json!({"put": "x", "kind": "query", "shard": 0, "method": "counted"});
    assert_eq!(text(ask(&cluster, 0, plan).await), "1");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_metrics_of_a_guest_can_be_read() {
    let mut config = three();
    config.cluster = "guest-metrics".into();
    let cluster = guests::start(config, "relay").await;
    for shard in 0..3 {
        call(&cluster, shard, "measure", "a \"b\"")
            .await
            .expect("a reply");
    }
    ask(&cluster, 0, json!({"shard": 0, "method": "count"}))
        .await
        .expect_err("a circle");
    ask(&cluster, 0, json!({"shard": 1, "method": "count"}))
        .await
        .expect("a reply");
    let text = quarry::metrics::install()
        .render()
        .expect("the recorder of this process");
    for line in [
        r#"quarry_guest_measured_total{cluster="guest-metrics",module="relay",what="a \"b\""} 6"#,
        r#"quarry_guest_measure{cluster="guest-metrics",module="relay"} 1.5"#,
        r#"quarry_guest_measures_count{cluster="guest-metrics",module="relay"} 3"#,
        r#"quarry_guest_metrics_dropped_total{cluster="guest-metrics",module="relay"} 3"#,
        r#"quarry_cluster_calls_total{cluster="guest-metrics",outcome="cycle"} 1"#,
        r#"quarry_cluster_calls_total{cluster="guest-metrics",outcome="ok"} 1"#,
        "# HELP quarry_guest_measured_total What was measured.",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    cluster.stop().await;
}

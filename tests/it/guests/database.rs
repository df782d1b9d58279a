//! The database as a guest sees it.

use std::time::Duration;

use quarry::call::CallErrorKind;
use quarry::config::Config;

use crate::support::guests::{self, ask, refused};
use crate::support::native::{call, config};
use crate::support::store::{fresh, within};

fn roomy() -> Config {
    let mut config = config();
    config.shards = 1;
    config.limits.cpu_time = Duration::from_secs(20);
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn single_keys_and_batches() {
    let cluster = guests::start(roomy(), "misbehave").await;
    let put: u64 = ask(&cluster, "a", "put", "one")
        .await
        .parse()
        .expect("a seq");
    let batch: u64 = ask(&cluster, "a", "batch", "b two\nc three\nb four")
        .await
        .parse()
        .expect("a seq");
    assert!(batch > put);
    assert_eq!(
        ask(&cluster, "a", "get-many", "a\nb\nc\nd").await,
        "3\n4\n5\n-"
    );
    assert_eq!(
        ask(&cluster, "b", "get", "").await,
        "four",
        "later operations of a batch win"
    );
    ask(&cluster, "a", "batch", "a\nd five").await;
    assert_eq!(refused(&cluster, "a", "get", "").await.code, "not-found");
    let deleted: u64 = ask(&cluster, "d", "delete", "")
        .await
        .parse()
        .expect("a seq");
    assert!(deleted > batch);
    ask(&cluster, "d", "delete", "").await;
    assert_eq!(refused(&cluster, "d", "get", "").await.code, "not-found");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scans_in_both_directions_over_ranges_and_prefixes() {
    let cluster = guests::start(roomy(), "misbehave").await;
    ask(&cluster, "a", "batch", "a 1\nb/1 1\nb/2 1\nb/3 1\nc 1\nd 1").await;
    ask(&cluster, "b/2", "delete", "").await;
    #[rustfmt::skip]
    let cases = [
        ("scan", "", "a\nb/1\nb/3\nc\nd"),
        ("scan", "!", "d\nc\nb/3\nb/1\na"),
        ("scan", "b/", "b/1\nb/3"),
        ("scan", "!b/", "b/3\nb/1"),
        ("scan", "x", ""),
        ("scan-range", "b\nd", "b/1\nb/3\nc"),
        ("scan-range", "b/3", "b/3\nc\nd"),
        ("scan-range", "\nb/3", "a\nb/1"),
        ("scan-range", "c\nc", ""),
        ("scan-range", "d\na", ""),
    ];
    for (method, payload, keys) in cases {
        assert_eq!(
            ask(&cluster, "a", method, payload).await,
            keys,
            "{method} {payload:?}"
        );
    }
    cluster.stop().await;
}

/// More entries than any page holds, and values so large that pages end early.
#[tokio::test(flavor = "multi_thread")]
async fn long_scans_come_whole_and_in_order() {
    const ENTRIES: usize = 6_000;
    let cluster = guests::start(roomy(), "misbehave").await;
    ask(&cluster, "a", "fill", &ENTRIES.to_string()).await;
    let mut keys: Vec<String> = (0..ENTRIES).map(|n| format!("fill/{n:08}")).collect();
    assert_eq!(ask(&cluster, "a", "scan", "fill/").await, keys.join("\n"));
    keys.reverse();
    assert_eq!(ask(&cluster, "a", "scan", "!fill/").await, keys.join("\n"));
    let large = "x".repeat(3 << 20);
    for key in ["large/1", "large/2", "large/3"] {
        ask(&cluster, key, "put", &large).await;
    }
    assert_eq!(
        ask(&cluster, "a", "scan", "large/").await,
        "large/1\nlarge/2\nlarge/3"
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_does_not_see_later_writes() {
    let cluster = guests::start(roomy(), "misbehave").await;
    ask(&cluster, "a", "put", "old").await;
    assert_eq!(ask(&cluster, "a", "snapshot", "new").await, "1 old");
    assert_eq!(ask(&cluster, "a", "get", "").await, "new");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_commit_or_conflict() {
    let cluster = guests::start(roomy(), "misbehave").await;
    assert_eq!(ask(&cluster, "a", "transaction", "one,").await, "one,");
    assert_eq!(ask(&cluster, "a", "transaction", "two").await, "one,two");
    assert_eq!(ask(&cluster, "a", "get", "").await, "one,two");
    for isolation in ["snapshot", "serializable"] {
        let error = refused(&cluster, "k", "txn-conflict", isolation).await;
        assert_eq!(
            (error.kind, error.code.as_str()),
            (CallErrorKind::Guest, "conflict"),
            "{isolation}: {error}"
        );
        assert!(error.retryable, "{isolation}: {error}");
        assert_eq!(ask(&cluster, "k", "get", "").await, "other", "{isolation}");
        assert_eq!(
            refused(&cluster, "txn-conflict", "get", "").await.code,
            "not-found",
            "{isolation}"
        );
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn values_expire() {
    let cluster = guests::start(roomy(), "misbehave").await;
    ask(&cluster, "short", "ttl", "100").await;
    let seq = ask(&cluster, "long", "ttl", "60000").await;
    within(async {
        loop {
            match call(&cluster, "short", "get", "").await {
                Ok(reply) => assert_eq!(reply.payload, "ttl"),
                Err(error) if error.code == "not-found" => break,
                Err(error) => panic!("{error}"),
            }
        }
    })
    .await;
    assert_eq!(
        ask(&cluster, "a", "scan", "").await,
        "long",
        "a scan leaves out what expired"
    );
    assert_eq!(
        refused(&cluster, "short", "versioned", "").await.code,
        "not-found"
    );
    let versioned = ask(&cluster, "long", "versioned", "").await;
    let [found, created, expires, value] = versioned.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{versioned}")
    };
    let ms = |text: &str| text.parse::<u64>().expect("milliseconds");
    assert_eq!((found, value), (seq.as_str(), "ttl"));
    assert_eq!(ms(expires) - ms(created), 60_000, "{versioned}");
    let seq = ask(&cluster, "long", "put", "for good").await;
    let versioned = ask(&cluster, "long", "versioned", "").await;
    assert!(
        versioned.starts_with(&format!("{seq} ")) && versioned.ends_with(" - for good"),
        "{versioned}"
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn merges_add_up() {
    for (operator, method, operands, get, sum, wrong) in [
        (
            "u64-add",
            "merge-u64",
            ["5", "7", "30"],
            "get-u64",
            "42",
            Some("no u64"),
        ),
        ("append", "merge", ["a", "b", "c"], "get", "abc", None),
    ] {
        let config = Config {
            merge_operator: Some(operator.into()),
            ..roomy()
        };
        let cluster = guests::start(config, "misbehave").await;
        for operand in operands {
            ask(&cluster, "m", method, operand).await;
        }
        assert_eq!(ask(&cluster, "m", get, "").await, sum, "{operator}");
        if let Some(wrong) = wrong {
            let error = refused(&cluster, "m", "merge", wrong).await;
            assert_eq!(error.code, "invalid-value", "{operator}: {error}");
            assert!(error.message.contains(operator), "{error}");
            assert_eq!(ask(&cluster, "m", get, "").await, sum, "{operator}");
        }
        cluster.stop().await;
    }
}

/// Each write has a seq of its own, later ones higher, also over a restart of the node.
#[tokio::test(flavor = "multi_thread")]
async fn seqs_only_grow() {
    let store = fresh();
    let mut last = 0;
    for _ in 0..3 {
        let cluster = guests::start_on(store.clone(), roomy(), "misbehave").await;
        for _ in 0..5 {
            let reply = within(call(&cluster, "a", "put", "x")).await.expect("put");
            let seq: u64 = guests::shown(&reply).parse().expect("a seq");
            assert!(seq > last, "{seq} after {last}");
            assert_eq!(reply.seq, seq);
            let read = within(call(&cluster, "a", "get", "")).await.expect("get");
            assert_eq!(read.seq, seq, "a read shows the newest write");
            assert_eq!(ask(&cluster, "a", "durable-seq", "").await, seq.to_string());
            last = seq;
        }
        cluster.stop().await;
    }
}

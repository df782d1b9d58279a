//! The examples, as their users call them.

use std::sync::Arc;
use std::time::Duration;

use quarry::call::{CallErrorKind, CallOptions, QueryOptions, Read, Target};
use quarry::config::Config;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};

use crate::support::guests::{self, ask, keys, query, refused, shown};
use crate::support::native::{call, config};
use crate::support::store::within;

/// As many shards as the examples' own `quarry.toml` says, on two threads.
fn usual() -> Config {
    let mut config = Config {
        shards: 16,
        ..config()
    };
    config.threads.shard = 2;
    config.threads.query = 2;
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn the_counter_counts_per_key() {
    let cluster = guests::start(usual(), "counter").await;
    let keys = keys(&cluster);
    for (n, key) in keys.iter().enumerate() {
        assert_eq!(ask(&cluster, key, "get", "").await, "0");
        let reply = within(call(&cluster, key, "increment", ""))
            .await
            .expect("increment");
        assert_eq!(shown(&reply), "1");
        assert_eq!(
            (reply.shard as usize, reply.revision, &*reply.node),
            (n, 1, "test")
        );
        assert_eq!(
            reply.seq,
            cluster.durable_seq(reply.shard).await.expect("open"),
            "it left once it was durable"
        );
        assert_eq!(ask(&cluster, key, "increment", "41").await, "42");
        let queried = query(&cluster, key, "get", "").await.expect("query");
        assert_eq!(
            (shown(&queried).as_str(), queried.shard as usize),
            ("42", n)
        );
        assert!(queried.seq > reply.seq);
    }
    // The guest hears of its increments; the newest it knows is at most what the host knows.
    let key = &keys[0];
    let seq = within(call(&cluster, key, "get", ""))
        .await
        .expect("get")
        .seq;
    within(async { while ask(&cluster, key, "durable", "").await != seq.to_string() {} }).await;
    for (payload, code, says) in [
        ("-1", "invalid-payload", "`-1`"),
        ("x", "invalid-payload", "`x`"),
        ("18446744073709551615", "overflow", "18446744073709551615"),
    ] {
        let error = refused(&cluster, key, "increment", payload).await;
        assert_eq!(
            (error.kind, error.code.as_str()),
            (CallErrorKind::Guest, code),
            "{error}"
        );
        assert!(error.message.contains(says), "{error}");
    }
    let error = within(cluster.call(
        Target::Shard(3),
        "increment",
        "".into(),
        CallOptions::default(),
    ))
    .await
    .expect_err("no key");
    assert_eq!(error.code, "missing-key", "{error}");
    assert_eq!(
        refused(&cluster, key, "decrement", "").await.code,
        "unknown-method"
    );
    assert_eq!(ask(&cluster, key, "get", "").await, "42");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_counter_loses_no_increment() {
    let cluster = guests::start(usual(), "counter").await;
    let callers = (0..32).map(|_| {
        let cluster = cluster.clone();
        tokio::spawn(async move {
            for _ in 0..20 {
                within(call(&cluster, "hits", "increment", ""))
                    .await
                    .expect("increment");
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.expect("caller");
    }
    assert_eq!(ask(&cluster, "hits", "get", "").await, "640");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kv_keeps_values() {
    let cluster = guests::start(usual(), "kv").await;
    let bytes: Vec<u8> = (0..=255).collect();
    let put = within(cluster.call(
        Target::key("k"),
        "put",
        bytes.clone().into(),
        CallOptions::default(),
    ))
    .await
    .expect("put");
    assert_eq!(shown(&put), put.seq.to_string());
    let get = within(call(&cluster, "k", "get", "")).await.expect("get");
    assert_eq!(
        (&get.payload[..], get.seq, get.content_type),
        (&bytes[..], put.seq, None)
    );
    let deleted = within(call(&cluster, "k", "delete", ""))
        .await
        .expect("delete");
    assert!(deleted.seq > put.seq);
    for outcome in [
        call(&cluster, "k", "get", "").await,
        query(&cluster, "k", "get", "").await,
    ] {
        let error = outcome.expect_err("deleted");
        assert_eq!(
            (error.kind, error.code.as_str()),
            (CallErrorKind::Guest, "not-found")
        );
        assert!(
            error.message.contains("`k`") && error.seq == Some(deleted.seq),
            "{error:?}"
        );
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kv_scans_a_shard() {
    let cluster = guests::start(
        Config {
            shards: 1,
            ..usual()
        },
        "kv",
    )
    .await;
    for n in 0..12 {
        ask(&cluster, &format!("user/{n:02}"), "put", &n.to_string()).await;
    }
    let raw = vec![0xff_u8, 0x00];
    within(cluster.call(
        Target::key(raw.clone()),
        "put",
        vec![0x80].into(),
        CallOptions::default(),
    ))
    .await
    .expect("put");
    let lines = async |payload: Value| -> Vec<Value> {
        let payload = payload.to_string();
        let reply = within(cluster.call(
            Target::Shard(0),
            "scan",
            payload.clone().into(),
            CallOptions::default(),
        ))
        .await
        .expect("scan");
        assert_eq!(reply.content_type.as_deref(), Some("application/jsonl"));
        let queried = within(cluster.query(
            Target::Shard(0),
            "scan",
            payload.into(),
            QueryOptions::default(),
        ))
        .await
        .expect("scan");
        assert_eq!(queried.payload, reply.payload);
        shown(&reply)
            .lines()
            .map(|line| serde_json::from_str(line).expect("a line of JSON"))
            .collect()
    };
    let keys = |lines: Vec<Value>| -> Vec<String> {
        lines
            .iter()
            .map(|line| line["key"].as_str().unwrap_or("raw").to_owned())
            .collect()
    };
    let all = lines(json!({})).await;
    assert_eq!(all.len(), 13);
    assert_eq!(all[3], json!({"key": "user/03", "value": "3"}));
    assert_eq!(
        all[12],
        json!({"key_base64": "/wA=", "value_base64": "gA=="})
    );
    assert_eq!(
        keys(lines(json!({"prefix": "user/1"})).await),
        ["user/10", "user/11"]
    );
    assert_eq!(
        keys(lines(json!({"start": "user/02", "end": "user/05"})).await),
        ["user/02", "user/03", "user/04"]
    );
    assert_eq!(
        keys(lines(json!({"prefix": "user/", "reverse": true, "limit": 2})).await),
        ["user/11", "user/10"]
    );
    for (payload, says) in [
        (r#"{"limit":0}"#, "1 to 100000, not 0"),
        (r#"{"prefix":"a","start":"b"}"#, "not both"),
        (r#"{"form":"a"}"#, "form"),
        ("{", ""),
    ] {
        let error = refused(&cluster, "any", "scan", payload).await;
        assert!(
            error.code == "invalid-payload" && error.message.contains(says),
            "{error}"
        );
    }
    cluster.stop().await;
}

/// Reads as queries run beside the writer, and show at least what was acknowledged when they were asked.
#[tokio::test(flavor = "multi_thread")]
async fn kv_is_read_in_parallel() {
    let cluster = guests::start(usual(), "kv").await;
    ask(&cluster, "k", "put", "0").await;
    let acknowledged = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let order = std::sync::atomic::Ordering::SeqCst;
    let readers: Vec<_> = (0..8)
        .map(|n| {
            let (cluster, acknowledged) = (cluster.clone(), acknowledged.clone());
            let read = if n % 2 == 0 {
                Read::Applied
            } else {
                Read::Durable
            };
            tokio::spawn(async move {
                for _ in 0..40 {
                    let least = acknowledged.load(order);
                    let options = QueryOptions {
                        read,
                        ..QueryOptions::default()
                    };
                    let reply = within(cluster.query(Target::key("k"), "get", "".into(), options))
                        .await
                        .expect("get");
                    let seen: u64 = shown(&reply).parse().expect("a number");
                    assert!(
                        seen >= least,
                        "{read:?}: {seen} after {least} was acknowledged"
                    );
                }
            })
        })
        .collect();
    let mut number = 0_u64;
    while readers.iter().any(|reader| !reader.is_finished()) {
        number += 1;
        ask(&cluster, "k", "put", &number.to_string()).await;
        acknowledged.store(number, order);
    }
    for reader in readers {
        reader.await.expect("reader");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bank_refuses_what_is_wrong() {
    let cluster = guests::start(usual(), "bank").await;
    let opened = ask(
        &cluster,
        "north",
        "open",
        r#"{"account":"ann","balance":100}"#,
    )
    .await;
    assert_eq!(
        serde_json::from_str::<Value>(&opened).expect("JSON"),
        json!({"account": "ann", "balance": 100})
    );
    ask(
        &cluster,
        "north",
        "open",
        r#"{"account":"bob","balance":18446744073709551615}"#,
    )
    .await;
    ask(
        &cluster,
        "south",
        "open",
        r#"{"account":"cid","balance":7}"#,
    )
    .await;
    for (method, payload, code) in [
        ("open", r#"{"account":"ann","balance":1}"#, "account-exists"),
        ("open", r#"{"account":"","balance":1}"#, "invalid-account"),
        (
            "open",
            r#"{"account":"eve","balance":-1}"#,
            "invalid-payload",
        ),
        (
            "transfer",
            r#"{"from":"ann","to":"cid","amount":1}"#,
            "unknown-account",
        ),
        (
            "transfer",
            r#"{"from":"ann","to":"bob","amount":101}"#,
            "overdraft",
        ),
        (
            "transfer",
            r#"{"from":"ann","to":"bob","amount":1}"#,
            "overflow",
        ),
        ("transfer", r#"{"from":"ann"}"#, "invalid-payload"),
        ("close", "", "unknown-method"),
    ] {
        let error = refused(&cluster, "north", method, payload).await;
        assert_eq!(
            (error.kind, error.code.as_str()),
            (CallErrorKind::Guest, code),
            "{payload}: {error}"
        );
    }
    let moved = ask(
        &cluster,
        "north",
        "transfer",
        r#"{"from":"bob","to":"ann","amount":5}"#,
    )
    .await;
    assert_eq!(
        serde_json::from_str::<Value>(&moved).expect("JSON"),
        json!({"from": u64::MAX - 5, "to": 105})
    );
    for (bank, total) in [
        ("north", r#"{"accounts":2,"total":18446744073709551715}"#),
        ("south", r#"{"accounts":1,"total":7}"#),
        ("west", r#"{"accounts":0,"total":0}"#),
    ] {
        assert_eq!(ask(&cluster, bank, "total", "").await, total);
        assert_eq!(
            shown(&query(&cluster, bank, "total", "").await.expect("total")),
            total
        );
    }
    cluster.stop().await;
}

/// 64 callers move money at random between a few accounts; whoever looks, whenever, sees the same sum.
#[tokio::test(flavor = "multi_thread")]
async fn the_total_of_a_bank_never_changes() {
    const CALLERS: u64 = 64;
    const ACCOUNTS: usize = 8;
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let cluster = guests::start(usual(), "bank").await;
    for account in 0..ACCOUNTS {
        ask(
            &cluster,
            "north",
            "open",
            &json!({"account": account.to_string(), "balance": 1_000}).to_string(),
        )
        .await;
    }
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let cluster = cluster.clone();
            let mut random = rand::rngs::StdRng::seed_from_u64(seed.wrapping_add(caller));
            tokio::spawn(async move {
                let mut moved = 0;
                for _ in 0..15 {
                    let [from, to] = [(); 2].map(|()| random.random_range(0..ACCOUNTS).to_string());
                    let amount = random.random_range(0..800_u64);
                    let payload = json!({"from": from, "to": to, "amount": amount}).to_string();
                    match within(call(&cluster, "north", "transfer", &payload)).await {
                        Ok(_) => moved += 1,
                        Err(error) => assert_eq!(error.code, "overdraft", "{error}"),
                    }
                }
                moved
            })
        })
        .collect();
    let expected = json!({"accounts": ACCOUNTS, "total": ACCOUNTS * 1_000}).to_string();
    let mut looked = 0;
    while callers.iter().any(|caller| !caller.is_finished()) {
        let durable = QueryOptions {
            read: Read::Durable,
            timeout: Some(Duration::from_secs(20)),
            ..QueryOptions::default()
        };
        let applied = QueryOptions {
            read: Read::Applied,
            ..durable.clone()
        };
        for options in [durable, applied] {
            let reply = within(cluster.query(Target::key("north"), "total", "".into(), options))
                .await
                .expect("total");
            assert_eq!(shown(&reply), expected, "seed {seed}");
        }
        assert_eq!(
            ask(&cluster, "north", "total", "").await,
            expected,
            "seed {seed}"
        );
        looked += 1;
    }
    let mut moved = 0;
    for caller in callers {
        moved += caller.await.expect("caller");
    }
    assert!(
        moved > 100 && looked > 0,
        "seed {seed}: {moved} transfers, {looked} looks"
    );
    assert_eq!(
        ask(&cluster, "north", "total", "").await,
        expected,
        "seed {seed}"
    );
    cluster.stop().await;
}

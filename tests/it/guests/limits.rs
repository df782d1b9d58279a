//! Arguments over a limit: an error for the guest, which names the limit, and no trap.

use std::time::Duration;

use quarry::call::CallErrorKind;
use quarry::config::Config;

use crate::support::guests::{self, ask, keys, query, refused};
use crate::support::native::{call, config};
use crate::support::neighbour::Neighbour;
use crate::support::store::within;

fn small() -> Config {
    let mut config = config();
    config.limits.key = 1_000;
    config.limits.value = 1 << 20;
    config.limits.batch = 2 << 20;
    config.limits.open_resources = 8;
    config.limits.transaction_age = Duration::from_millis(20);
    config.limits.wall_time = Duration::from_secs(20);
    config.limits.cpu_time = Duration::from_secs(10);
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_names_its_limit_and_leaves_the_guest_as_it_is() {
    let cluster = guests::start(small(), "misbehave").await;
    let keys = keys(&cluster);
    let neighbour = Neighbour::of(&cluster, &keys[1]);
    ask(&cluster, &keys[0], "put", "kept").await;
    let mut asked = 0;
    #[rustfmt::skip]
    let cases = [
        ("empty-key", "x", "invalid-key", "a key cannot be empty"),
        ("empty-key-get", "", "invalid-key", "a key cannot be empty"),
        ("empty-key-batch", "", "invalid-key", "a key cannot be empty"),
        ("empty-key-transaction", "", "invalid-key", "a key cannot be empty"),
        ("oversize-key", "1001", "invalid-key", "a key of 1001 bytes is over limits.key (1000 bytes)"),
        ("oversize-key-get", "70000", "invalid-key", "a key of 70000 bytes is over limits.key (1000 bytes)"),
        ("oversize-value", "1048577", "invalid-value", "a value of 1048577 bytes is over limits.value (1048576 bytes)"),
        ("oversize-batch", "", "invalid-value", "a value of 15728640 bytes is over limits.value (1048576 bytes)"),
        ("empty-batch", "", "invalid-argument", "at least one operation"),
        ("ttl-zero", "", "invalid-argument", "at least 1 ms"),
        ("merge", "x", "no-merge-operator", "merge_operator"),
        ("get-many", "repeat 1025", "limit", "1025 keys"),
        ("too-many-cursors", "", "limit", "limits.open_resources"),
        ("leak-snapshots", "9", "limit", "limits.open_resources"),
        ("leak-transactions", "9", "limit", "limits.open_resources"),
        ("old-transaction", "60", "limit", "limits.transaction_age (20ms)"),
        ("use-closed-transaction", "", "closed", "the transaction is over"),
        ("notify", "1 99999999999999999", "invalid-argument", "seq 99999999999999999 was not given out yet"),
        ("error", "My_Code", "guest-error", "\"My_Code\""),
        ("error", "mine retryable", "mine", "failed on purpose with `mine`"),
        ("no-such-method", "", "unknown-method", "no-such-method"),
    ];
    for (method, payload, code, says) in cases {
        let error = refused(&cluster, &keys[0], method, payload).await;
        assert_eq!(
            error.kind,
            CallErrorKind::Guest,
            "{method} {payload}: {error}"
        );
        assert_eq!(error.code, code, "{method} {payload}: {error}");
        assert!(error.message.contains(says), "{method} {payload}: {error}");
        assert_eq!(
            error.retryable,
            payload.ends_with("retryable"),
            "{method} {payload}"
        );
        asked += 1;
        // The same instance goes on.
        let count = ask(&cluster, &keys[0], "memory-count", "").await;
        assert_eq!(count, asked.to_string(), "{method} {payload}");
    }
    assert_eq!(cluster.shard_report(0).expect("a report").traps, 0);
    neighbour.serves(1).await;
    neighbour.stop().await;
    // What is just within the limits is taken.
    for (method, payload) in [
        ("oversize-key", "1000"),
        ("oversize-value", "1048576"),
        ("leak-cursors", "8"),
        ("get-many", "repeat 1024"),
    ] {
        within(call(&cluster, &keys[0], method, payload))
            .await
            .unwrap_or_else(|error| panic!("{method}: {error}"));
    }
    // Twice 1 MiB may be read at once, and no more.
    let one = "oversize\n";
    ask(&cluster, &keys[0], "get-many", &one.repeat(2)).await;
    let error = refused(&cluster, &keys[0], "get-many", &one.repeat(3)).await;
    assert!(
        error.code == "limit" && error.message.contains("limits.batch, 2097152 bytes"),
        "{error}"
    );
    let error = query(&cluster, &keys[0], "get-many", &one.repeat(3))
        .await
        .expect_err("over");
    assert_eq!(error.code, "limit", "{error}");
    assert_eq!(
        ask(&cluster, &keys[0], "put", "")
            .await
            .parse::<u64>()
            .map(|seq| seq > 0),
        Ok(true),
        "an empty value is a value"
    );
    assert_eq!(ask(&cluster, &keys[0], "get", "").await, "");
    cluster.stop().await;
}

/// Several values that are fine alone, and too large together.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_over_its_limit_writes_nothing() {
    let mut config = config();
    config.limits.batch = 40 << 20;
    let cluster = guests::start(config, "misbehave").await;
    let error = refused(&cluster, "a", "oversize-batch", "").await;
    assert_eq!(
        (error.kind, error.code.as_str()),
        (CallErrorKind::Guest, "limit"),
        "{error}"
    );
    assert!(
        error
            .message
            .contains("a batch of 47186115 bytes (64 for each operation among them) is over limits.batch (41943040 bytes)"),
        "{error}"
    );
    assert_eq!(ask(&cluster, "a", "get-many", "a\nb\nc").await, "-\n-\n-");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_over_its_bound_is_cut() {
    let cluster = guests::start(config(), "misbehave").await;
    let error = refused(&cluster, "a", "big-error", "").await;
    assert_eq!(
        (error.code.as_str(), error.message.len()),
        ("big-error", 8 << 10)
    );
    cluster.stop().await;
}

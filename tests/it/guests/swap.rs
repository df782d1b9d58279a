//! Another guest in place: no call and no write is lost, and one that does not start is not adopted.

use quarry::call::CallErrorKind;
use quarry::cluster::{SwapError, SwapStep};
use quarry::config::Config;

use crate::support::guests::{self, ask, options, query, refused, shown};
use crate::support::native::{call, config};
use crate::support::store::within;

mod callers;
mod drain;
mod handoff;
mod migrate;

#[tokio::test(flavor = "multi_thread")]
async fn another_guest_takes_over_the_data() {
    let config = config();
    let cluster = guests::start(config.clone(), "counter").await;
    for count in 1..=3 {
        assert_eq!(ask(&cluster, "a", "increment", "").await, count.to_string());
    }
    let kv = guests::module(&config, "kv", 2).await;
    let report = within(cluster.swap(kv)).await.expect("swap");
    assert_eq!((report.revision, report.shards), (2, 2));
    assert!(report.longest_pause() <= report.took);
    assert!(report.pause(50) <= report.pause(99) && report.pause(99) <= report.longest_pause());
    assert_eq!(report.pauses.len(), report.shards);
    assert_eq!(
        refused(&cluster, "a", "increment", "").await.code,
        "unknown-method"
    );
    let stored = within(call(&cluster, "a", "get", "")).await.expect("get");
    assert_eq!(
        (&stored.payload[..], stored.revision),
        (&3_u64.to_le_bytes()[..], 2),
        "the counter's value, as it is stored"
    );
    let queried = query(&cluster, "a", "get", "").await.expect("query");
    assert_eq!((queried.payload, queried.revision), (stored.payload, 2));
    ask(&cluster, "b", "put", "new").await;
    let back = guests::module(&config, "counter", 3).await;
    within(cluster.swap(back)).await.expect("swap");
    assert_eq!(ask(&cluster, "a", "increment", "").await, "4");
    for shard in 0..2 {
        assert_eq!(
            cluster.shard_report(shard).expect("a report").revision,
            Some(3)
        );
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swap_under_load_loses_nothing() {
    const CALLERS: usize = 8;
    let config = config();
    let cluster = guests::start(config.clone(), "counter").await;
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let callers: Vec<_> = (0..CALLERS)
        .map(|n| {
            let (cluster, stopped) = (cluster.clone(), stopped.clone());
            tokio::spawn(async move {
                let key = format!("counter-{}", n % 4);
                let mut made = Vec::new();
                while !*stopped.borrow() {
                    let reply = within(call(&cluster, &key, "increment", ""))
                        .await
                        .expect("no call fails");
                    made.push((key.clone(), reply.revision));
                }
                made
            })
        })
        .collect();
    for revision in 2..=6 {
        let newer = guests::module(&config, "counter", revision).await;
        within(cluster.swap(newer)).await.expect("swap");
        ask(&cluster, "between", "increment", "").await;
    }
    stop.send(true).expect("callers");
    let mut made = Vec::new();
    for caller in callers {
        let calls = within(caller).await.expect("caller");
        assert!(
            calls.is_sorted_by_key(|(_, revision)| *revision),
            "nobody meets an older revision after a newer one"
        );
        made.extend(calls);
    }
    for n in 0..4 {
        let key = format!("counter-{n}");
        let count = made.iter().filter(|(made, _)| *made == key).count();
        assert_eq!(ask(&cluster, &key, "get", "").await, count.to_string());
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_does_not_start_is_not_adopted() {
    for (start, says) in [
        ("panic", "start panicked on purpose"),
        ("error", "start failed on purpose"),
        ("spin", "limits.cpu_time"),
    ] {
        let mut config = config();
        options(&mut config, &format!(r#"{{"start":"{start}"}}"#));
        config.limits.cpu_time = std::time::Duration::from_millis(200);
        let cluster = guests::start(config.clone(), "misbehave").await;
        ask(&cluster, "a", "put", "kept").await;
        assert_eq!(ask(&cluster, "a", "memory-count", "").await, "1");
        let lifecycle = guests::module(&config, "lifecycle", 2).await;
        let error = within(cluster.swap(lifecycle))
            .await
            .expect_err("it does not start");
        assert!(
            matches!(
                &error,
                SwapError::NotAdopted { revision: 2, shard: 0, why } if why.step == SwapStep::Start
            ),
            "{error:?}"
        );
        assert!(
            error.to_string().contains(says)
                && error
                    .to_string()
                    .contains("every shard runs what it ran before"),
            "{error}"
        );
        assert_eq!(
            ask(&cluster, "a", "memory-count", "").await,
            "2",
            "the old instance goes on, with its memory"
        );
        assert_eq!(ask(&cluster, "a", "get", "").await, "kept");
        assert!(cluster.ready());
        for shard in 0..2 {
            let report = cluster.shard_report(shard).expect("a report");
            assert_eq!(
                (report.revision, report.traps),
                (Some(1), 0),
                "a swap that fails counts against nobody"
            );
        }
        // A restart makes the old guest, not the one that failed.
        within(cluster.restart_shard(0)).await.expect("restart");
        let reply = within(call(&cluster, "a", "get", "")).await.expect("get");
        assert_eq!((shown(&reply).as_str(), reply.revision), ("kept", 1));
        cluster.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_refuses_the_options_is_not_adopted() {
    let mut config = Config {
        shards: 1,
        ..config()
    };
    options(&mut config, r#"{"mine":1}"#);
    let cluster = guests::start(config.clone(), "misbehave").await;
    assert_eq!(ask(&cluster, "a", "memory-count", "").await, "1");
    let lifecycle = guests::module(&config, "lifecycle", 2).await;
    let error = within(cluster.swap(lifecycle)).await.expect_err("refused");
    assert!(matches!(error, SwapError::Refused(_)), "{error:?}");
    assert!(
        error.to_string().contains("there is no option `mine`"),
        "{error}"
    );
    assert_eq!(ask(&cluster, "a", "memory-count", "").await, "2");
    cluster.stop().await;
}

/// Memory is state for as long as the instance lives, and no longer.
#[tokio::test(flavor = "multi_thread")]
async fn memory_lives_as_long_as_its_instance() {
    let config = config();
    let cluster = guests::start(config.clone(), "misbehave").await;
    assert_eq!(ask(&cluster, "a", "memory-count", "").await, "1");
    assert_eq!(ask(&cluster, "a", "memory-count", "").await, "2");
    let error = refused(&cluster, "a", "trap", "").await;
    assert!(matches!(error.kind, CallErrorKind::Trap(_)), "{error}");
    assert_eq!(ask(&cluster, "a", "memory-count", "").await, "1");
    let newer = guests::module(&config, "misbehave", 2).await;
    within(cluster.swap(newer)).await.expect("swap");
    assert_eq!(ask(&cluster, "a", "memory-count", "").await, "1");
    within(cluster.restart_shard(cluster.shard_for(b"a")))
        .await
        .expect("restart");
    assert_eq!(ask(&cluster, "a", "memory-count", "").await, "1");
    cluster.stop().await;
}

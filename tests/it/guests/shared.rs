//! One engine for many shards: a component is compiled once, and instances come out of one pool.

use std::sync::Arc;
use std::time::Duration;

use quarry::Cluster;
use quarry::call::CallErrorKind;
use quarry::cluster::SwapError;
use quarry::cluster::status::ShardState;
use quarry::config::Config;
use quarry::guest::Limits;
use quarry::guest::wasm::{Runtime, RuntimeOptions, WasmModule};

use crate::support::guests::{ask, component, query};
use crate::support::native::config;
use crate::support::store::{fresh, within};

/// An engine with nothing in its cache.
fn cold(instances: u32, writers: u32) -> (Arc<Runtime>, tempfile::TempDir) {
    let cache = tempfile::tempdir().expect("a folder");
    let options = RuntimeOptions {
        instances,
        writers,
        compile_threads: 2,
        cache_dir: Some(cache.path().to_owned()),
    };
    (Runtime::new(options).expect("an engine"), cache)
}

async fn load(
    runtime: &Arc<Runtime>,
    config: &Config,
    guest: &str,
    revision: u64,
) -> Arc<WasmModule> {
    let limits = Arc::new(Limits::from(config));
    runtime
        .load(component(guest), guest.into(), revision, limits)
        .await
        .expect("a guest")
}

/// A node with a store of its own.
async fn start(config: &Config, module: &Arc<WasmModule>) -> Cluster {
    let config = Arc::new(config.clone());
    within(Cluster::start_on(fresh(), config, module.clone()))
        .await
        .expect("start")
}

#[tokio::test(flavor = "multi_thread")]
async fn many_shards_share_what_was_compiled_once() {
    let config = Config {
        shards: 64,
        ..config()
    };
    let (runtime, _cache) = cold(config.instances(), config.writers());
    // All who ask at once, for two revisions, share one compilation.
    let loads = (0..16).map(|n| load(&runtime, &config, "kv", 1 + n % 2));
    let modules = within(futures::future::join_all(loads)).await;
    assert_eq!(runtime.compilations(), 1);
    let cluster = within(Cluster::start(Arc::new(config.clone()), modules[0].clone()))
        .await
        .expect("start");
    assert!(cluster.ready());
    let keys = crate::support::guests::keys(&cluster);
    for key in &keys {
        ask(&cluster, key, "put", key).await;
    }
    within(cluster.swap(modules[1].clone()))
        .await
        .expect("swap");
    for key in &keys {
        assert_eq!(ask(&cluster, key, "get", "").await, *key);
    }
    assert_eq!(runtime.compilations(), 1);
    load(&runtime, &config, "counter", 3).await;
    assert_eq!(runtime.compilations(), 2);
    cluster.stop().await;
}

/// A pool that is used up names its setting, is nobody's trap, and stops nobody who has an instance.
#[tokio::test(flavor = "multi_thread")]
async fn a_shard_without_room_waits_for_it() {
    let mut config = config();
    config.limits.traps = 0;
    let (runtime, _cache) = cold(2, 2);
    let module = load(&runtime, &config, "kv", 1).await;
    let one = Config {
        shards: 1,
        ..config.clone()
    };
    let first = start(&one, &module).await;
    let second = start(&config, &module).await;
    assert!(first.ready() && !second.ready(), "one instance was left");
    let reports: Vec<_> = (0..2)
        .map(|shard| second.shard_report(shard).expect("a report"))
        .collect();
    let (running, waiting): (Vec<_>, Vec<_>) = reports
        .into_iter()
        .partition(|report| report.status == ShardState::Running);
    assert_eq!((running.len(), waiting.len()), (1, 1));
    assert_eq!(
        (waiting[0].status, waiting[0].traps),
        (ShardState::Starting, 0)
    );
    let why = waiting[0].last_error.clone().expect("why");
    assert!(why.contains("limits.instances (2)"), "{why}");
    let error = within(second.restart_shard(waiting[0].shard))
        .await
        .expect_err("there is still no room");
    assert_eq!(error.kind, CallErrorKind::NoRoom, "{error}");
    let keys = crate::support::guests::keys(&second);
    let key = &keys[running[0].shard as usize];
    ask(&second, key, "put", "kept").await;
    // Nor is there any for a swap, or for a query.
    let newer = load(&runtime, &config, "kv", 2).await;
    let error = within(second.swap(newer))
        .await
        .expect_err("no instance to start beside the old one");
    let SwapError::NotAdopted { why, .. } = error else {
        panic!("{error}");
    };
    let error = why.error;
    assert!(
        error.kind == CallErrorKind::NoRoom && error.message.contains("limits.instances (2)"),
        "{error}"
    );
    // Trying that again is of no use where no query will ever find any.
    let error = query(&second, key, "get", "").await.expect_err("no room");
    assert!(
        error.kind == CallErrorKind::NoRoom
            && error.message.contains("limits.instances (2)")
            && !error.retryable,
        "{error}"
    );
    // Instances go back to the pool, and whoever waits for room finds it by itself.
    within(first.stop()).await;
    within(second.await_ready(None)).await.expect("ready");
    let report = second.shard_report(waiting[0].shard).expect("a report");
    assert_eq!(report.traps, 0);
    for _ in 0..5 {
        within(second.restart_shard(0)).await.expect("restart");
        within(second.restart_shard(1)).await.expect("restart");
    }
    assert_eq!(ask(&second, key, "get", "").await, "kept");
    within(second.stop()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_leave_the_shards_their_room() {
    let mut config = config();
    config.limits.traps = 0;
    config.lag_interval = Duration::from_millis(100);
    // Room for three shards, and one query at a time.
    let (runtime, _cache) = cold(4, 3);
    let module = load(&runtime, &config, "kv", 1).await;
    let cluster = start(&config, &module).await;
    let keys = crate::support::guests::keys(&cluster);
    for key in &keys {
        ask(&cluster, key, "put", "x").await;
    }
    query(&cluster, &keys[0], "get", "").await.expect("a query");
    // The first shard has kept its instance, for the next query.
    query(&cluster, &keys[0], "get", "").await.expect("a query");
    let error = query(&cluster, &keys[1], "get", "")
        .await
        .expect_err("queries have what they may have");
    assert_eq!(error.kind, CallErrorKind::NoRoom, "{error}");
    assert!(
        error.message.contains("limits.instances (4)") && error.retryable,
        "{error}"
    );
    // So a further shard finds its room,
    let one = Config {
        shards: 1,
        ..config.clone()
    };
    let third = start(&one, &module).await;
    assert!(third.ready());
    // and the instance that is not used goes where one is wanted.
    within(async {
        while query(&cluster, &keys[1], "get", "").await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    third.stop().await;
    cluster.stop().await;
}

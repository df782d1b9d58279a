//! One engine for many shards: a component is compiled once, and instances come out of one pool.

use std::sync::Arc;

use quarry::Cluster;
use quarry::call::CallErrorKind;
use quarry::cluster::SwapError;
use quarry::cluster::status::ShardState;
use quarry::config::Config;
use quarry::guest::wasm::{Runtime, RuntimeOptions, WasmModule};
use quarry::guest::{Limits, TrapKind};
use quarry::store::Store;

use crate::support::guests::{ask, component, query};
use crate::support::native::config;
use crate::support::store::within;

/// An engine with nothing in its cache.
fn cold(instances: u32) -> (Arc<Runtime>, tempfile::TempDir) {
    let cache = tempfile::tempdir().expect("a folder");
    let options = RuntimeOptions {
        instances,
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

#[tokio::test(flavor = "multi_thread")]
async fn many_shards_share_what_was_compiled_once() {
    let config = Config {
        shards: 64,
        ..config()
    };
    let (runtime, _cache) = cold(config.instances());
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

#[tokio::test(flavor = "multi_thread")]
async fn an_exhausted_pool_names_its_setting_and_stops_nobody_else() {
    let config = config();
    let (runtime, _cache) = cold(2);
    let module = load(&runtime, &config, "kv", 1).await;
    let cluster = Cluster::start(Arc::new(config.clone()), module.clone())
        .await
        .expect("start");
    assert!(cluster.ready(), "two shards, two instances");
    ask(&cluster, "a", "put", "kept").await;
    let error = query(&cluster, "a", "get", "")
        .await
        .expect_err("no instance for a query");
    assert_eq!(
        error.kind,
        CallErrorKind::Trap(TrapKind::Instantiate),
        "{error}"
    );
    assert!(error.message.contains("limits.instances (2)"), "{error}");
    let newer = load(&runtime, &config, "kv", 2).await;
    let error = within(cluster.swap(newer))
        .await
        .expect_err("no instance to start beside the old one");
    assert!(matches!(error, SwapError::NotStarted { .. }), "{error:?}");
    assert!(
        error.to_string().contains("limits.instances (2)"),
        "{error}"
    );
    assert_eq!(ask(&cluster, "a", "get", "").await, "kept");
    // Instances go back to the pool: a restart, as often as one likes.
    for _ in 0..5 {
        within(cluster.restart_shard(0)).await.expect("restart");
        within(cluster.restart_shard(1)).await.expect("restart");
    }
    assert_eq!(ask(&cluster, "a", "get", "").await, "kept");
    within(cluster.stop()).await;

    // A shard that finds no room does not serve, and says so; the others do.
    let mut three = Config {
        shards: 3,
        ..config
    };
    three.limits.traps = 0;
    let store = Store::open("memory:", &Default::default()).expect("store");
    let cluster = within(Cluster::start_on(store, Arc::new(three), module))
        .await
        .expect("start");
    let reports: Vec<_> = (0..3)
        .map(|shard| cluster.shard_report(shard).expect("a report"))
        .collect();
    let (running, down): (Vec<_>, Vec<_>) = reports
        .into_iter()
        .partition(|report| report.status == ShardState::Running);
    assert_eq!((running.len(), down.len()), (2, 1));
    assert_eq!(down[0].status, ShardState::Quarantined);
    let why = down[0].last_error.clone().expect("why");
    assert!(why.contains("limits.instances (2)"), "{why}");
    let keys = crate::support::guests::keys(&cluster);
    for report in running {
        ask(&cluster, &keys[report.shard as usize], "put", "x").await;
    }
    cluster.stop().await;
}

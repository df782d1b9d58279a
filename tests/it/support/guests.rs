//! Guests as components, built by this package's build script, on nodes of this process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use bytes::Bytes;
use quarry::Cluster;
use quarry::call::{CallError, CallReply, QueryOptions, Target};
use quarry::config::Config;
use quarry::guest::wasm::{Runtime, RuntimeOptions};
use quarry::guest::{Limits, Module};
use quarry::store::Store;

use super::native::call;
use super::store::within;

/// Instances that all tests of this process together have room for.
const INSTANCES: u32 = 1_000;

/// One engine for all tests, so that each guest is compiled once. What it compiled is kept beside the guests.
static RUNTIME: LazyLock<Arc<Runtime>> = LazyLock::new(|| {
    let options = RuntimeOptions {
        instances: INSTANCES,
        writers: INSTANCES / 2,
        compile_threads: 2,
        cache_dir: Some(folder().join("compiled")),
    };
    Runtime::new(options).expect("an engine")
});

/// A module of each guest, so that what was compiled lives from one test to the next.
static KEPT: Mutex<BTreeMap<String, Arc<dyn Module>>> = Mutex::new(BTreeMap::new());

fn folder() -> PathBuf {
    PathBuf::from(env!("QUARRY_GUESTS"))
}

/// A guest's component: `counter`, `misbehave`, ...
pub fn component(guest: &str) -> Bytes {
    let file = folder().join(format!("{guest}.wasm"));
    std::fs::read(&file)
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()))
        .into()
}

/// A component in the text format, of `tests/guests/wat`.
pub fn text(file: &str) -> Bytes {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("guests/wat")
        .join(file);
    wat::parse_file(&file)
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()))
        .into()
}

/// The engine that tests share.
pub fn runtime() -> Arc<Runtime> {
    RUNTIME.clone()
}

/// A guest as a revision, under the limits of a configuration. The module is named after the guest.
pub async fn module(config: &Config, guest: &str, revision: u64) -> Arc<dyn Module> {
    named(config, guest, guest, revision).await
}

/// As [`module`], with a name of its own.
pub async fn named(config: &Config, guest: &str, name: &str, revision: u64) -> Arc<dyn Module> {
    let limits = Arc::new(Limits::from(config));
    let loaded = RUNTIME
        .load(component(guest), name.into(), revision, limits)
        .await;
    let module = loaded.unwrap_or_else(|error| panic!("{guest}: {error}"));
    KEPT.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(guest.into(), module.clone());
    module
}

/// A node with a guest, revision 1.
pub async fn start(config: Config, guest: &str) -> Cluster {
    let module = module(&config, guest, 1).await;
    Cluster::start(Arc::new(config), module)
        .await
        .expect("start")
}

/// As [`start`], on a store.
pub async fn start_on(store: Store, config: Config, guest: &str) -> Cluster {
    let module = module(&config, guest, 1).await;
    Cluster::start_on(store, Arc::new(config), module)
        .await
        .expect("start")
}

/// Makes the options of the module.
pub fn options(config: &mut Config, options: &str) {
    config.module.options = serde_json::from_str(options).expect("an object");
}

/// A call's reply as text.
pub async fn ask(cluster: &Cluster, key: &str, method: &str, payload: &str) -> String {
    match within(call(cluster, key, method, payload)).await {
        Ok(reply) => shown(&reply),
        Err(error) => panic!("{method} {payload:?} of {key}: {error:?}"),
    }
}

/// The error of a call that has to fail.
pub async fn refused(cluster: &Cluster, key: &str, method: &str, payload: &str) -> CallError {
    match within(call(cluster, key, method, payload)).await {
        Ok(reply) => panic!("{method} {payload:?} of {key} replied {}", shown(&reply)),
        Err(error) => error,
    }
}

/// Runs a query.
pub async fn query(
    cluster: &Cluster,
    key: &str,
    method: &str,
    payload: &str,
) -> Result<CallReply, CallError> {
    let target = Target::key(key.to_owned());
    within(cluster.query(
        target,
        method,
        payload.to_owned().into(),
        QueryOptions::default(),
    ))
    .await
}

/// A key for each shard, so that `keys(&cluster)[n]` belongs to shard n.
pub fn keys(cluster: &Cluster) -> Vec<String> {
    let of = |shard| {
        let mut candidates = (0..10_000).map(|n| format!("key-{n}"));
        candidates.find(|key| cluster.shard_for(key.as_bytes()) == shard)
    };
    (0..cluster.shards())
        .map(|shard| of(shard).expect("a key of each shard"))
        .collect()
}

/// The start of a reply's payload as text.
pub fn shown(reply: &CallReply) -> String {
    String::from_utf8_lossy(&reply.payload).into_owned()
}

//! What Quarry costs on this machine, measured side by side in one run: a guest against native code, replies that wait for durability
//! against those that do not, and both against the store's own PUT.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use object_store::{ObjectStoreExt, PutMode, PutOptions, PutPayload};
use serde::Serialize;
use tokio::runtime::Handle;

use crate::Cluster;
use crate::call::{CallOptions, Durability, QueryOptions, Target};
use crate::clock;
use crate::config::Config;
use crate::guest::Module;
use crate::http::{HttpOptions, HttpServer};
use crate::metrics;
use crate::store::Store;

pub mod cluster;
pub mod compile;
pub mod guests;
mod http;
mod idle;
mod measure;
mod native;
mod resident;
mod spin;
pub mod swap;

pub use idle::Idle;
pub use measure::Entry;
use measure::{Sample, callers};
pub use spin::Spin;

/// The callers of the measurements.
const CALLERS: [usize; 2] = [1, 64];
/// Calls in a row on a shard's own thread.
const ON_THREAD: usize = 200_000;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long each measurement takes.
    pub time: Duration,
    /// The stores, by their URL.
    pub stores: Vec<String>,
    /// Options of the stores.
    pub store_options: BTreeMap<String, String>,
    /// Only these of [`GROUPS`]; all when empty.
    pub only: Vec<String>,
    /// Shards of the idle measurement.
    pub idle_shards: u32,
}

/// The groups of measurements.
pub const GROUPS: [&str; 9] = [
    "put", "call", "applied", "durable", "query", "start", "http", "idle", "spin",
];

/// What was found.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// Cores of the machine.
    pub cores: usize,
    /// Measurements of calls, by store.
    pub stores: Vec<StoreReport>,
    /// What idle shards cost.
    pub idle: Option<Idle>,
    /// What a spinning shard costs its neighbours.
    pub spin: Vec<Spin>,
}

/// Measurements on one store.
#[derive(Debug, Clone, Serialize)]
pub struct StoreReport {
    /// The store, without credentials.
    pub store: String,
    /// What was measured.
    pub entries: Vec<Entry>,
}

/// Why a bench stopped.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

impl Options {
    fn wants(&self, group: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == group)
    }
}

/// Measures. `make` gives the guest for a configuration's limits; `progress` hears what is measured.
///
/// # Errors
/// When a node does not start.
pub async fn run<F>(
    options: &Options,
    make: impl Fn(Config) -> F,
    progress: impl Fn(&str),
) -> Result<Report, Error>
where
    F: Future<Output = Result<Arc<dyn Module>, String>>,
{
    metrics::install();
    let mut report = Report {
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        ..Report::default()
    };
    for url in &options.stores {
        report
            .stores
            .push(store(options, url, &make, &progress).await?);
    }
    if options.wants("idle") {
        progress(&format!("idle: {} shards", options.idle_shards));
        report.idle = Some(idle::measure(options, &make).await?);
    }
    if options.wants("spin") {
        for threads in [2, 1] {
            progress(&format!("spin: a spinning guest, {threads} shard threads"));
            report
                .spin
                .push(spin::measure(options, threads, &make).await?);
        }
    }
    Ok(report)
}

async fn store<F>(
    options: &Options,
    url: &str,
    make: &impl Fn(Config) -> F,
    progress: &impl Fn(&str),
) -> Result<StoreReport, Error>
where
    F: Future<Output = Result<Arc<dyn Module>, String>>,
{
    let opened =
        Store::open(url, &options.store_options).map_err(|error| Error(error.to_string()))?;
    let name = opened.to_string();
    let mut entries = Vec::new();
    if options.wants("put") {
        progress(&format!("{name}: put"));
        entries.push(put(&opened, options.time).await);
    }
    for what in ["native", "guest"] {
        let config = config(url, options);
        let module = if what == "native" {
            native::module()
        } else {
            make(config.clone()).await.map_err(Error)?
        };
        let cluster = start(config, module).await?;
        let say = |group: &str| progress(&format!("{name}: {group}, {what}"));
        if options.wants("call") {
            say("call");
            for method in ["empty", "get", "put", "increment"] {
                let latencies = cluster
                    .measure(0, method, bytes::Bytes::new(), ON_THREAD)
                    .await
                    .map_err(|error| Error(error.to_string()))?;
                let elapsed = Duration::from_nanos(latencies.iter().sum());
                entries.push(
                    Sample::of(&latencies, elapsed)
                        .entry(format!("{method} on its shard thread"), what),
                );
            }
        }
        for (group, durability) in [
            ("applied", Durability::Applied),
            ("durable", Durability::Durable),
        ] {
            if options.wants(group) {
                for count in CALLERS {
                    say(&format!("{group}, {count} callers"));
                    let sample = calls(&cluster, count, options.time, durability).await;
                    entries.push(sample.entry(format!("counter, {group}, {count} callers"), what));
                }
            }
        }
        if options.wants("query") {
            for count in [1, 4] {
                say(&format!("queries, {count} callers"));
                let sample = queries(&cluster, count, options.time).await;
                entries.push(sample.entry(format!("query, {count} callers"), what));
            }
        }
        if options.wants("start") {
            say("start");
            let mut sample = Sample::new();
            let begun = clock::now();
            while clock::now() - begun < options.time / 2 {
                let before = clock::now();
                let ok = cluster.restart_shard(0).await.is_ok();
                sample.record(clock::now() - before, ok);
            }
            let mut entry = sample.entry("start of an instance", what);
            entry.per_second = entry.count as f64 / (clock::now() - begun).as_secs_f64();
            entries.push(entry);
        }
        if options.wants("http") {
            for count in CALLERS {
                say(&format!("HTTP, durable, {count} connections"));
                let sample = over_http(&cluster, count, options.time).await?;
                entries.push(
                    sample.entry(format!("counter, durable, HTTP, {count} connections"), what),
                );
            }
        }
        cluster.stop().await;
    }
    Ok(StoreReport {
        store: name,
        entries,
    })
}

fn config(url: &str, options: &Options) -> Config {
    let mut config = Config {
        store: url.to_owned(),
        store_options: options.store_options.clone(),
        // A path of its own each time: whatever is there stays, and nothing is found.
        path: format!("bench-{:016x}", rand::random::<u64>()),
        shards: 1,
        node: "bench".into(),
        ..Config::default()
    };
    config.threads.shard = 1;
    config.limits.instances = Some(64);
    config
}

async fn start(config: Config, module: Arc<dyn Module>) -> Result<Cluster, Error> {
    let cluster = Cluster::start(Arc::new(config), module)
        .await
        .map_err(|error| Error(error.to_string()))?;
    cluster
        .await_ready(Some(Duration::from_secs(60)))
        .await
        .map_err(|error| Error(error.to_string()))?;
    Ok(cluster)
}

/// New objects of the size of a small WAL object, one after the other: what every durable reply waits for.
async fn put(store: &Store, time: Duration) -> Entry {
    let mut sample = Sample::new();
    let (begun, mut number) = (clock::now(), 0_u32);
    let run = format!("bench-put-{:016x}", rand::random::<u64>());
    while clock::now() - begun < time {
        let path = store.path(&format!("{run}/{number:08}"));
        let options = PutOptions::from(PutMode::Create);
        let before = clock::now();
        let put = store
            .objects()
            .put_opts(&path, PutPayload::from(vec![7_u8; 300]), options)
            .await;
        sample.record(clock::now() - before, put.is_ok());
        number += 1;
    }
    let mut entry = sample.entry("PUT of 300 bytes", "store");
    entry.per_second = entry.count as f64 / (clock::now() - begun).as_secs_f64();
    for number in 0..number {
        _ = store
            .objects()
            .delete(&store.path(&format!("{run}/{number:08}")))
            .await;
    }
    entry
}

async fn calls(cluster: &Cluster, count: usize, time: Duration, durability: Durability) -> Sample {
    let cluster = cluster.clone();
    callers(count, time, move |_| {
        let cluster = cluster.clone();
        async move {
            let options = CallOptions {
                durability: Some(durability),
                ..CallOptions::default()
            };
            cluster
                .call(
                    Target::key("counter"),
                    "increment",
                    bytes::Bytes::new(),
                    options,
                )
                .await
                .is_ok()
        }
    })
    .await
}

async fn queries(cluster: &Cluster, count: usize, time: Duration) -> Sample {
    let cluster = cluster.clone();
    callers(count, time, move |_| {
        let cluster = cluster.clone();
        async move {
            cluster
                .query(
                    Target::key("counter"),
                    "get",
                    bytes::Bytes::new(),
                    QueryOptions::default(),
                )
                .await
                .is_ok()
        }
    })
    .await
}

async fn over_http(cluster: &Cluster, count: usize, time: Duration) -> Result<Sample, Error> {
    let options = HttpOptions {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        ..HttpOptions::from(cluster.config())
    };
    let server = HttpServer::bind(options, cluster.clone(), &Handle::current()).await;
    let server = server.map_err(|error| Error(error.to_string()))?;
    let address = server.local_addr();
    let mut connections = Vec::new();
    for _ in 0..count {
        let connection = http::Connection::open(address, "/v1/call/increment?key=counter").await;
        connections.push(tokio::sync::Mutex::new(
            connection.map_err(|error| Error(error.to_string()))?,
        ));
    }
    let connections = Arc::new(connections);
    let held = connections.clone();
    let sample = callers(count, time, move |caller| {
        let connections = connections.clone();
        async move {
            connections[caller]
                .lock()
                .await
                .call()
                .await
                .unwrap_or(false)
        }
    })
    .await;
    drop(held);
    server.stop(Duration::from_secs(1)).await;
    Ok(sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls that are faster than the store: what they are to be told of stays within its bound, and none of them fails.
    #[tokio::test(flavor = "multi_thread")]
    async fn calls_on_their_thread_wait_for_a_slower_store() {
        let options = Options {
            time: Duration::from_secs(1),
            stores: Vec::new(),
            store_options: BTreeMap::new(),
            only: Vec::new(),
            idle_shards: 0,
        };
        let mut config = config("memory:", &options);
        config.limits.notifications = 8;
        let cluster = start(config, native::module()).await.expect("start");
        let times = cluster.measure(0, "increment", bytes::Bytes::new(), 200);
        assert_eq!(times.await.expect("no call fails").len(), 200);
        cluster.stop().await;
    }
}

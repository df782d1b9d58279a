//! How a node starts: configuration, store, probe, record, threads, shards.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Cluster;
use super::node::{Alive, Loaded, Node, PROBE_TIME};
use super::status::{ProbeState, ProbeStatus};
use super::supervise::supervise;
use crate::config::{self, Config, Probe};
use crate::db::cache::NodeCache;
use crate::db::maintenance::{self, Maintenance};
use crate::db::open::Databases;
use crate::db::{merge, settings};
use crate::gate::flusher;
use crate::guest::{Failure, Limits, Module};
use crate::metrics;
use crate::record;
use crate::shard::slot::Slot;
use crate::store::{self, Store};
use crate::threads::{Sizes, Threads};

/// The pauses of a probe in the background.
const PROBE_FIRST: Duration = Duration::from_secs(1);
const PROBE_LONGEST: Duration = Duration::from_secs(30);

/// Why a node did not start. Nothing is left running.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// The SlateDB settings are wrong.
    #[error(transparent)]
    Settings(#[from] settings::Error),
    /// The store is wrong, unreachable, or does not do what Quarry needs.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The data belongs to a cluster of another shape.
    #[error(transparent)]
    Record(#[from] record::Error),
    /// The store did not answer in time.
    #[error(
        "the cluster record in {store} could not be read and checked within {limit:?}: see that the store is reachable and answers"
    )]
    RecordTimeout {
        /// The store, without credentials.
        store: String,
        /// The time it had.
        limit: Duration,
    },
    /// The merge operator is unknown.
    #[error(transparent)]
    Merge(#[from] merge::Error),
    /// The guest refuses its options, or fails when asked.
    #[error("the guest `{module}` cannot run: {reason}")]
    Guest {
        /// The module's name.
        module: Arc<str>,
        /// The guest's words.
        reason: String,
    },
    /// The system gives no more threads.
    #[error("the node's threads did not start: {0}")]
    Threads(std::io::Error),
    /// The maintenance options are wrong.
    #[error(transparent)]
    Maintenance(#[from] maintenance::InvalidOptions),
}

impl Cluster {
    /// Starts a node: checks the store and the cluster's record, then opens every shard, and returns once each was tried. Shards that
    /// did not open are tried again in the background; see [`Cluster::await_ready`]. With `probe = "background"` it returns at
    /// once, and the shards open when the store has passed.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start(config: Arc<Config>, module: Arc<dyn Module>) -> Result<Self, StartError> {
        config.validate()?;
        let threads = threads(&config)?;
        let store = Store::open_on(
            &config.store,
            &config.store_options,
            Some(threads.storage()),
        )?;
        Self::run(store, threads, config, module).await
    }

    /// As [`Cluster::start`], on a store that is open already (`store` and `store_options` of the configuration are not
    /// looked at): one in memory that several clusters share, or one of the caller's own.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start_on(
        store: Store,
        config: Arc<Config>,
        module: Arc<dyn Module>,
    ) -> Result<Self, StartError> {
        config.validate()?;
        let threads = threads(&config)?;
        Self::run(store, threads, config, module).await
    }

    async fn run(
        store: Store,
        threads: Threads,
        config: Arc<Config>,
        module: Arc<dyn Module>,
    ) -> Result<Self, StartError> {
        // Before anything that has metrics is made: handles made earlier count nothing.
        metrics::install();
        let settings = settings::effective(config.settings.clone())?;
        if let Some(name) = &config.merge_operator {
            merge::operator(name)?;
        }
        let options: Arc<str> = serde_json::Value::Object(config.module.options.clone())
            .to_string()
            .into();
        validate(&module, &options).await?;
        let cluster: Arc<str> = config.cluster.as_str().into();
        let name: Arc<str> = config.node.as_str().into();
        let mut tending = maintenance::Options::new(threads.compaction());
        tending.l0_max_ssts = settings.l0_max_ssts;
        // Below both bounds at which flushes stall.
        let stall = settings.l0_max_ssts.min(settings.l0_max_ssts_per_key);
        tending.l0_trigger = tending.l0_trigger.min(stall.saturating_sub(1));
        let stop = CancellationToken::new();
        let databases = Databases {
            cluster: cluster.clone(),
            store: store.objects(),
            settings,
            merge_operator: config.merge_operator.as_deref().map(Into::into),
            cache: NodeCache::new(config.cache.capacity),
            maintenance: Maintenance::new(tending)?,
            flush: flusher::Options {
                flush_interval: config.shard.flush_interval,
                flush_after: config.shard.flush_after,
                memtable_flush_wal_objects: u32::try_from(config.shard.memtable_flush_wal_objects)
                    .unwrap_or(u32::MAX),
                took: metrics::flushes(&cluster),
            },
            limits: Arc::new(Limits::from(&*config)),
            storage: threads.storage(),
            open_timeout: config.shard.open_timeout,
            close_timeout: config.shard.close_timeout,
            stop: stop.clone(),
        };
        let (changed, _) = watch::channel(0);
        let slots = (0..config.shards)
            .map(|shard| Arc::new(Slot::new(&cluster, shard, name.clone(), changed.clone())))
            .collect();
        let node = Arc::new(Node {
            opening: Semaphore::new(config.shard.max_concurrency),
            probe: Mutex::new(ProbeState {
                status: ProbeStatus::Pending,
                last_error: None,
            }),
            module: ArcSwap::from_pointee(Loaded { module, options }),
            swapping: tokio::sync::Mutex::new(()),
            tasks: TaskTracker::new(),
            stop: stop.clone(),
            config,
            cluster,
            node: name,
            store,
            slots,
            changed,
            databases,
            threads,
        });
        let cluster = Self {
            node: node.clone(),
            _alive: Arc::new(Alive(stop)),
        };
        match node.config.probe {
            Probe::Background => {
                node.tasks
                    .spawn_on(in_background(node.clone()), &node.threads.control());
            }
            probe => {
                check_store(&node, probe == Probe::Before).await?;
                open_shards(&node);
                let mut changed = node.changed.subscribe();
                _ = changed
                    .wait_for(|_| node.slots.iter().all(|slot| slot.attempted()))
                    .await;
            }
        }
        Ok(cluster)
    }
}

fn threads(config: &Config) -> Result<Threads, StartError> {
    let sizes = Sizes {
        shard: config.threads.shard,
        storage: config.threads.storage,
        query: config.threads.query,
        compaction: config.threads.compaction,
    };
    Threads::start(sizes).map_err(StartError::Threads)
}

/// Whether the guest takes its options.
pub(super) async fn validate(module: &Arc<dyn Module>, options: &str) -> Result<(), StartError> {
    let info = module.describe();
    if !info.exports.options {
        return Ok(());
    }
    module.validate(options).await.map_err(|failure| {
        let reason = match failure {
            Failure::Error(error) => format!("it refuses its options {options}: {}", error.message),
            Failure::Trap(trap) => format!("it failed to check its options: {trap}"),
            Failure::NoRoom(why) => format!("its options were not checked: {why}"),
        };
        StartError::Guest {
            module: info.name.clone(),
            reason,
        }
    })
}

/// Probes the store, and makes sure that the data is this cluster's.
async fn check_store(node: &Arc<Node>, probe: bool) -> Result<(), StartError> {
    if probe {
        let report = node.probe_now(PROBE_TIME).await;
        if let Err(error) = report.into_result() {
            node.set_probe(ProbeStatus::Failed, Some(error.to_string()));
            return Err(error.into());
        }
        node.set_probe(ProbeStatus::Passed, None);
        tracing::info!(store = %node.store, "store probed");
    } else {
        node.set_probe(ProbeStatus::Skipped, None);
    }
    let wanted = record::Wanted {
        shards: node.config.shards,
        merge_operator: node.config.merge_operator.clone(),
    };
    let checked = record::ensure(&node.store, &node.config.path, &wanted);
    match tokio::time::timeout(PROBE_TIME, checked).await {
        Ok(checked) => checked.map(drop).map_err(StartError::from),
        Err(_) => Err(StartError::RecordTimeout {
            store: node.store.to_string(),
            limit: PROBE_TIME,
        }),
    }
}

fn open_shards(node: &Arc<Node>) {
    let control = node.threads.control();
    for shard in 0..node.config.shards {
        node.tasks
            .spawn_on(supervise(node.clone(), shard), &control);
    }
    node.tasks.spawn_on(node.clone().sample(), &control);
}

/// Tries the store until it passes, then opens the shards. Data of another shape ends it.
async fn in_background(node: Arc<Node>) {
    let mut pause = PROBE_FIRST;
    loop {
        match check_store(&node, true).await {
            Ok(()) => return open_shards(&node),
            // Trying again does not change what lies in the store: somebody has to.
            Err(StartError::Record(error)) if error.is_permanent() => {
                tracing::error!(%error, "the data is not this node's; no shard is opened, and the store is not tried again");
                node.set_probe(ProbeStatus::Failed, Some(error.to_string()));
                return;
            }
            Err(error) => {
                tracing::warn!(%error, ?pause, "store not usable yet; no shard is opened");
                node.set_probe(ProbeStatus::Pending, Some(error.to_string()));
            }
        }
        tokio::select! {
            () = node.stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        pause = (pause * 2).min(PROBE_LONGEST);
    }
}

impl From<&Config> for Limits {
    fn from(config: &Config) -> Self {
        let limits = &config.limits;
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        Self {
            memory: limits.memory,
            cpu_time: limits.cpu_time,
            wall_time: limits.wall_time,
            start_time: limits.start_time,
            stop_time: limits.stop_time,
            queue_calls: limits.queue_calls,
            queue_bytes: size(limits.queue_bytes),
            key: size(limits.key),
            value: size(limits.value),
            batch: size(limits.batch),
            open_resources: limits.open_resources,
            transaction_age: limits.transaction_age,
            log_bytes_per_second: limits.log_bytes_per_second,
            reply: size(limits.reply),
            notifications: limits.notifications,
            traps: limits.traps as usize,
            trap_window: limits.trap_window,
            query_instances: limits.query_instances,
            ..Self::default()
        }
    }
}

//! Compaction and garbage collection of a node's shards.
//!
//! Shards are opened with neither SlateDB's compactor nor its garbage collector: for each database those would poll the
//! store and hold tasks for ever, whether it is used or not. Instead the node watches each database's own status, which
//! costs no request, and acts when it shows a need:
//!
//! - **Compaction.** When a shard's L0 reaches the trigger, a compactor is started on it, polls fast until the shard is in
//!   shape again and nothing is running, and is stopped. At most [`Options::concurrency`] run at once over the node; shards
//!   wait for a place in the order in which they came to need it.
//! - **Garbage collection.** One pass at a time over the node, only over shards that changed, each `gc_interval`.
//!
//! An idle shard has two tasks here that wait for a change of its manifest, and no timer. The database has one subscription to its
//! status, which tells them of it ([`ShardDbInfo::manifest`]). A compactor does not fence the database: it has
//! an epoch of its own, which no database opened without a compactor claims. It claims exactly the epoch that follows the
//! one this owner knows, so that a node which lost its shard cannot stop the compactor of the next owner.
//!
//! All of it runs on [`Options::runtime`] (see [`runtime`]). Failures are logged and counted, and tried again later: they
//! never end a shard.

mod collection;
mod compaction;
mod plan;
mod replay;
mod runtime;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore;
use object_store::path::Path;
use slatedb::config::CompressionCodec;
use slatedb::{Db, MergeOperator};
use slatedb_common::metrics::MetricsRecorder;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use plan::{
    Action, CompactionPolicy, Footprint, Garbage, GcPolicy, LastCompaction, Look, decide,
    first_pass,
};

use crate::clock;
pub use replay::{ReplayBound, memtable_flush_due};
pub use runtime::runtime;

/// The least minimum age of an object that garbage collection deletes. A process that was suspended for longer than this
/// could write over an id that was deleted meanwhile, so it has to be well above any stall.
pub const MIN_GC_AGE: Duration = Duration::from_secs(5 * 60);

/// How a node maintains its shards.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where all of it runs: a handle of [`runtime`].
    pub runtime: Handle,
    /// Compactions at once over the node: 1 to 64, default 2.
    pub concurrency: usize,
    /// L0 SSTs of a shard that start a compaction: at least 2 and below `l0_max_ssts`, default 4.
    pub l0_trigger: usize,
    /// SlateDB's setting of that name, at which a shard's memtable flushes stall: default 8.
    pub l0_max_ssts: usize,
    /// Sorted runs of a shard that start a compaction and that it merges down to: at least 2, default 16.
    pub sorted_run_trigger: usize,
    /// Shortest pause between two compactions of one shard that is not near its stall: default 20 s.
    pub compaction_rest: Duration,
    /// How often a running compactor looks for work and results: default 250 ms. Each costs about six requests.
    pub compaction_poll: Duration,
    /// Longest time of one compaction, default 15 min. One that takes longer gives its place to the next shard; what it
    /// finished is kept.
    pub compaction_timeout: Duration,
    /// How long a compaction keeps the SSTs it replaced for the scans and snapshots that still read them: default 15 min.
    pub checkpoint_lifetime: Duration,
    /// Bytes of an SST that a compaction writes: default 64 MiB.
    pub max_sst_bytes: usize,
    /// Shortest time between two looks at a busy shard: default 250 ms. An idle shard is not looked at.
    pub look_interval: Duration,
    /// Time between two garbage collections of a busy shard: default 10 min.
    pub gc_interval: Duration,
    /// Least age of an object that is deleted: at least [`MIN_GC_AGE`], default 15 min.
    pub gc_min_age: Duration,
    /// Longest time of one garbage collection: default 5 min.
    pub gc_timeout: Duration,
    /// Whether deletions advance SlateDB's boundary files first. They need conditional updates; only without those set it
    /// to `false`, the same on each node. Default `true`.
    pub gc_boundary_files: bool,
    /// Longest wait for a single step, such as a refresh of the manifest: default 30 s.
    pub step_timeout: Duration,
    /// Longest wait for a compactor to stop: default 10 s.
    pub stop_timeout: Duration,
    /// Tries that SlateDB makes for a request after the first: default 8 (some 6 s).
    pub store_retries: u32,
}

impl Options {
    /// The defaults, on this runtime.
    #[must_use]
    pub fn new(runtime: Handle) -> Self {
        Self {
            runtime,
            concurrency: 2,
            l0_trigger: 4,
            l0_max_ssts: 8,
            sorted_run_trigger: 16,
            compaction_rest: Duration::from_secs(20),
            compaction_poll: Duration::from_millis(250),
            compaction_timeout: Duration::from_secs(15 * 60),
            checkpoint_lifetime: Duration::from_secs(15 * 60),
            max_sst_bytes: 64 * 1024 * 1024,
            look_interval: Duration::from_millis(250),
            gc_interval: Duration::from_secs(10 * 60),
            gc_min_age: Duration::from_secs(15 * 60),
            gc_timeout: Duration::from_secs(5 * 60),
            gc_boundary_files: true,
            step_timeout: Duration::from_secs(30),
            stop_timeout: Duration::from_secs(10),
            store_retries: 8,
        }
    }

    fn validate(&self) -> Result<(), InvalidOptions> {
        let range = |name, value: usize, least: usize, most: usize| {
            if (least..=most).contains(&value) {
                Ok(())
            } else {
                Err(InvalidOptions::Count {
                    name,
                    value,
                    least,
                    most,
                })
            }
        };
        range("concurrency", self.concurrency, 1, 64)?;
        range("l0_max_ssts", self.l0_max_ssts, 3, 1024)?;
        range("l0_trigger", self.l0_trigger, 2, self.l0_max_ssts - 1)?;
        range("sorted_run_trigger", self.sorted_run_trigger, 2, 1024)?;
        range("max_sst_bytes", self.max_sst_bytes, 1024 * 1024, 4 << 30)?;
        let least = |name, value: Duration, least: Duration| {
            if value >= least {
                Ok(())
            } else {
                Err(InvalidOptions::Time { name, value, least })
            }
        };
        least(
            "compaction_poll",
            self.compaction_poll,
            Duration::from_millis(10),
        )?;
        least(
            "compaction_timeout",
            self.compaction_timeout,
            Duration::from_secs(10),
        )?;
        least(
            "checkpoint_lifetime",
            self.checkpoint_lifetime,
            Duration::from_secs(60),
        )?;
        least(
            "look_interval",
            self.look_interval,
            Duration::from_millis(10),
        )?;
        least("gc_interval", self.gc_interval, Duration::from_secs(60))?;
        least("gc_min_age", self.gc_min_age, MIN_GC_AGE)?;
        least("gc_timeout", self.gc_timeout, Duration::from_secs(10))?;
        least("step_timeout", self.step_timeout, Duration::from_secs(1))?;
        least("stop_timeout", self.stop_timeout, Duration::from_secs(1))
    }
}

/// Options that are out of bounds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidOptions {
    /// A number.
    #[error("maintenance: `{name}` is {value}; give a number from {least} to {most}")]
    Count {
        /// The option.
        name: &'static str,
        /// What was given.
        value: usize,
        /// The smallest valid value.
        least: usize,
        /// The largest valid value.
        most: usize,
    },
    /// A time.
    #[error("maintenance: `{name}` is {value:?}; give at least {least:?}")]
    Time {
        /// The option.
        name: &'static str,
        /// What was given.
        value: Duration,
        /// The shortest valid value.
        least: Duration,
    },
}

/// An open shard, as maintenance sees it.
#[derive(Clone)]
pub struct ShardDbInfo {
    /// Name of the cluster, a label of the metrics.
    pub cluster: Arc<str>,
    /// Number of the shard.
    pub shard: u32,
    /// Path of its database in the store.
    pub path: Path,
    /// Its store: the one that the database was opened with, so that the kill switch stops maintenance as well.
    pub store: Arc<dyn ObjectStore>,
    /// The database, opened with `compactor_options: None` and `garbage_collector_options: None`.
    pub db: Db,
    /// The id of its newest manifest, told by whoever watches the database's status; it closes when the database has ended.
    pub manifest: watch::Receiver<u64>,
    /// The merge operator that the database was opened with.
    pub merge_operator: Option<Arc<dyn MergeOperator + Send + Sync>>,
    /// The database's `compression_codec` setting.
    pub compression: Option<CompressionCodec>,
    /// The database's `min_filter_keys` setting.
    pub min_filter_keys: u32,
    /// Where the compactor's metrics go: the recorder of the database.
    pub metrics: Option<Arc<dyn MetricsRecorder>>,
}

impl ShardDbInfo {
    /// A database with SlateDB's defaults for compression and filters, without merge operator and metrics.
    #[must_use]
    pub fn new(
        cluster: Arc<str>,
        shard: u32,
        path: Path,
        store: Arc<dyn ObjectStore>,
        db: Db,
        manifest: watch::Receiver<u64>,
    ) -> Self {
        let min_filter_keys = slatedb::Settings::default().min_filter_keys;
        Self {
            cluster,
            shard,
            path,
            store,
            db,
            manifest,
            merge_operator: None,
            compression: None,
            min_filter_keys,
            metrics: None,
        }
    }

    /// Counts one run of a kind (`compaction` or `gc`) in the metrics.
    fn count(&self, name: &'static str, succeeded: bool) {
        let outcome = if succeeded { "ok" } else { "error" };
        let labels = [
            metrics::Label::new("cluster", self.cluster.to_string()),
            metrics::Label::new("shard", self.shard.to_string()),
            metrics::Label::from_static_parts("outcome", outcome),
        ];
        metrics::counter!(name, labels.to_vec()).increment(1);
    }
}

impl fmt::Debug for ShardDbInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardDbInfo")
            .field("shard", &self.shard)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// What maintenance did for a shard since it was registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardTotals {
    /// Compactions that ended with the shard in shape.
    pub compactions: u64,
    /// Compactions that failed or took too long.
    pub failed_compactions: u64,
    /// Passes of the garbage collection.
    pub gc_passes: u64,
    /// Passes that failed or took too long.
    pub failed_gc_passes: u64,
}

/// The maintenance of a node's shards. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Maintenance {
    node: Arc<Node>,
}

/// What the shards of a node share.
#[derive(Debug)]
struct Node {
    options: Options,
    /// Tokio's semaphore serves in the order of asking, which here is the order of need.
    compactions: Semaphore,
    gc: Semaphore,
}

impl Maintenance {
    /// Maintenance with these options.
    ///
    /// # Errors
    /// When an option is out of its bounds.
    pub fn new(options: Options) -> Result<Self, InvalidOptions> {
        options.validate()?;
        Ok(Self::unchecked(options))
    }

    fn unchecked(options: Options) -> Self {
        let compactions = Semaphore::new(options.concurrency);
        Self {
            node: Arc::new(Node {
                options,
                compactions,
                gc: Semaphore::new(1),
            }),
        }
    }

    /// Takes an open shard into maintenance, until the registration is stopped or dropped. Call it from anywhere: the work
    /// runs on the options' runtime.
    ///
    /// `jitter` is a random number from 0 to 1. It spreads the first garbage collection of shards opened together over
    /// half an interval.
    #[must_use = "maintenance ends when the registration is dropped"]
    pub fn register(&self, shard: ShardDbInfo, jitter: f64) -> Registration {
        let stop = CancellationToken::new();
        let (totals, seen) = watch::channel(ShardTotals::default());
        let tending = Tending {
            node: self.node.clone(),
            shard,
            stop: stop.clone(),
            totals: Arc::new(totals),
        };
        let number = tending.shard.shard;
        let runtime = &self.node.options.runtime;
        let tasks = vec![
            runtime.spawn(compaction::tend(tending.clone())),
            runtime.spawn(collection::tend(tending, jitter)),
        ];
        // A stopping compactor may use up its whole time; the task around it gets some more.
        let patience = self.node.options.stop_timeout + Duration::from_secs(2);
        Registration {
            shard: number,
            stop,
            tasks,
            patience,
            totals: seen,
        }
    }
}

/// A shard under maintenance. Dropping it asks its tasks to stop without waiting for them.
#[derive(Debug)]
pub struct Registration {
    shard: u32,
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
    patience: Duration,
    totals: watch::Receiver<ShardTotals>,
}

impl Registration {
    /// Ends the shard's maintenance and waits for it, at most `stop_timeout` and 2 s. Call it before the database closes,
    /// so that nothing changes its manifest any more. A compaction that runs is abandoned; the next one resumes it.
    ///
    /// # Errors
    /// When something still runs after that time. It is cut off at its next await, so this only means that the last
    /// request to the store may still be under way; closing the database is safe all the same.
    pub async fn stop(mut self) -> Result<(), StopTimedOut> {
        self.stop.cancel();
        let deadline = clock::now() + self.patience;
        let mut late = false;
        for task in &mut self.tasks {
            match clock::timeout_at(deadline, &mut *task).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::error!(shard = self.shard, %error, "maintenance of a shard panicked")
                }
                Err(_) => {
                    task.abort();
                    late = true;
                }
            }
        }
        if late {
            Err(StopTimedOut {
                shard: self.shard,
                after: self.patience,
            })
        } else {
            Ok(())
        }
    }

    /// What was done so far, and a signal for each change. It closes when maintenance of the shard has ended.
    #[must_use]
    pub fn totals(&self) -> watch::Receiver<ShardTotals> {
        self.totals.clone()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Maintenance of a shard did not stop in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("maintenance of shard {shard} did not stop within {after:?} and was cut off")]
pub struct StopTimedOut {
    /// The shard.
    pub shard: u32,
    /// How long was waited.
    pub after: Duration,
}

/// What the tasks of one shard have.
#[derive(Clone, Debug)]
struct Tending {
    node: Arc<Node>,
    shard: ShardDbInfo,
    stop: CancellationToken,
    totals: Arc<watch::Sender<ShardTotals>>,
}

impl Tending {
    /// Waits until the shard's manifest changed or `wake` came, and then until `spacing` has passed. `false` when maintenance
    /// has to end.
    async fn changed(
        &self,
        manifest: &mut watch::Receiver<u64>,
        wake: Option<std::time::Instant>,
        spacing: Duration,
    ) -> bool {
        let woken = async {
            match wake {
                Some(at) => clock::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => return false,
            () = woken => return true,
            changed = manifest.changed() => if changed.is_err() { return false },
        }
        tokio::select! {
            biased;
            () = self.stop.cancelled() => false,
            () = clock::sleep(spacing) => true,
        }
    }
}

/// What the shard's manifest shows for compaction; `None` when the database is closed.
fn look(db: &Db) -> Option<Look> {
    let status = db.status();
    if status.close_reason.is_some() {
        return None;
    }
    let manifest = &status.current_manifest;
    let segments = manifest.segments();
    let l0 = segments
        .iter()
        .map(|segment| segment.l0().len())
        .max()
        .unwrap_or(0)
        .max(manifest.l0().len());
    let runs = segments
        .iter()
        .map(|segment| segment.compacted().len())
        .max()
        .unwrap_or(0);
    Some(Look {
        l0,
        sorted_runs: runs.max(manifest.compacted().len()),
    })
}

#[cfg(test)]
mod tests;

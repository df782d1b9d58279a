//! Opens and closes the database of a shard: the only file that does.
//!
//! An opening is everything that lives and ends with it: the database, its gate and flusher, the watch on its status, its
//! maintenance, and the kill switch around its store. Dropping a SlateDB handle does not stop it, so an opening is always closed.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use object_store::ObjectStore;
use object_store::path::Path;
use quarry_core::strategy::DownReason;
use slatedb::config::{CloseOptions, FlushOptions, FlushType, Settings};
use slatedb::{CloseReason, Db, ErrorKind};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::cache::NodeCache;
use super::maintenance::{Maintenance, Registration, ShardDbInfo};
use super::recorder::ShardRecorder;
use super::{ShardDb, merge, time};
use crate::clock;
use crate::gate::deadline::Deadline;
use crate::gate::flusher::{self, Flusher, causes, ended_by};
use crate::gate::{Ended, Gate};
use crate::guest::Limits;
use crate::store::kill_switch::KillSwitch;

/// How long a database that is given up may take to notice.
const ABANDON: Duration = Duration::from_secs(2);
/// How long a database that is about to close may take to put into tables what only its WAL has.
const PREPARE: Duration = Duration::from_secs(5);
/// How long a node that stops still waits for a database that is being opened, before it is cut off from its store.
const STOP_OPENING: Duration = Duration::from_secs(5);

/// What the databases of a node have in common.
pub struct Databases {
    /// The cluster's name, for metrics.
    pub cluster: Arc<str>,
    /// Where the databases are.
    pub store: Arc<dyn ObjectStore>,
    /// SlateDB's settings.
    pub settings: Settings,
    /// The merge operator's name.
    pub merge_operator: Option<Arc<str>>,
    /// The block cache that the node's shards share.
    pub cache: NodeCache,
    /// Compaction and garbage collection.
    pub maintenance: Maintenance,
    /// How writes are flushed.
    pub flush: flusher::Options,
    /// What guests are held to.
    pub limits: Arc<Limits>,
    /// Where uploads, flushes and polls run.
    pub storage: Handle,
    /// The longest that an opening may take.
    pub open_timeout: Duration,
    /// The longest that a close may take.
    pub close_timeout: Duration,
    /// Cancelled when the node stops.
    pub stop: CancellationToken,
}

/// On what terms a database is opened.
#[derive(Clone)]
pub struct Terms {
    /// The writer epoch that the store must have, as the lease says: with another one somebody else was here since, and the opening fails
    /// instead of taking the database from them. Without leases any will do.
    pub expected_epoch: Option<u64>,
    /// What ends the opening from outside.
    pub cutoff: Cutoff,
}

/// Cuts one opening off at once, from any thread, whether it is still opening, open or closing: nothing is answered any more, and nothing
/// reaches the store.
#[derive(Clone)]
pub struct Cutoff {
    deadline: Arc<Deadline>,
    kill: KillSwitch,
    gate: Arc<OnceLock<Arc<Gate>>>,
}

impl Cutoff {
    /// Cuts it off. Whoever waits for a reply learns that nobody knows what became of it.
    pub fn cut(&self, ended: Ended, why: &str) {
        self.deadline.shut();
        if let Some(gate) = self.gate.get() {
            gate.end(ended);
        }
        self.kill.kill(why);
    }

    /// Until when the node may answer for the shard.
    #[must_use]
    pub fn deadline(&self) -> &Deadline {
        &self.deadline
    }
}

/// A database that did not open.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Another writer has it, or opened it at the same time, or had it since the lease was written.
    #[error(
        "shard {shard}: another writer opened the database at the same time, or since its lease was written ({reason})"
    )]
    Fenced {
        /// The shard.
        shard: u32,
        /// SlateDB's words.
        reason: String,
    },
    /// The store did not answer in time.
    #[error(
        "shard {shard}: the database did not open within {limit:?} (shard.open_timeout); {}",
        .store.as_deref().map_or_else(|| "is the store reachable?".into(), |failure| format!("the store last failed with {failure}"))
    )]
    TimedOut {
        /// The shard.
        shard: u32,
        /// The limit.
        limit: Duration,
        /// What the store last failed with.
        store: Option<String>,
    },
    /// The node stops.
    #[error("shard {shard}: the node stopped before the database was open")]
    Stopped {
        /// The shard.
        shard: u32,
    },
    /// It failed.
    #[error("shard {shard}: the database did not open: {reason}")]
    Failed {
        /// The shard.
        shard: u32,
        /// SlateDB's words.
        reason: String,
    },
}

/// Why a close was not clean. Nothing that was acknowledged is lost by it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CloseError {
    /// It took too long, and the database was cut off from its store.
    #[error(
        "shard {shard}: the database did not close within {limit:?} (shard.close_timeout) and was cut off from its store"
    )]
    TimedOut {
        /// The shard.
        shard: u32,
        /// The limit.
        limit: Duration,
    },
    /// SlateDB reported a failure.
    #[error("shard {shard}: the database did not close cleanly: {reason}")]
    Failed {
        /// The shard.
        shard: u32,
        /// SlateDB's words.
        reason: String,
    },
}

/// The open database of a shard and all that belongs to it.
pub struct Opening {
    shard: u32,
    path: Path,
    /// What its guest writes and reads through.
    pub db: Arc<ShardDb>,
    /// The writer epoch that it claimed.
    pub writer_epoch: u64,
    /// When it was opened.
    pub opened: Instant,
    raw: Db,
    gate: Arc<Gate>,
    kill: KillSwitch,
    flusher: Flusher,
    maintenance: Registration,
    watching: JoinHandle<()>,
    down: watch::Receiver<Option<(DownReason, String)>>,
    close_timeout: Duration,
    storage: Handle,
}

impl Databases {
    /// A cutoff for one opening, of which the node is sure until `deadline`.
    #[must_use]
    pub fn cutoff(&self, deadline: Deadline) -> Cutoff {
        Cutoff {
            deadline: Arc::new(deadline),
            kill: KillSwitch::new(self.store.clone()),
            gate: Arc::default(),
        }
    }

    /// Opens the database of a shard, whose writer task runs on `shard_thread`. Costs about 17 requests to the store, and two for each
    /// WAL object that has to be replayed.
    ///
    /// An opening that began is waited for, also when the node stops meanwhile. One that takes too long, or five seconds longer than a
    /// node that stops, is cut off from its store, and ends by that.
    ///
    /// # Errors
    /// See [`OpenError`]. Nothing is left running.
    pub async fn open(
        &self,
        shard: u32,
        path: Path,
        shard_thread: Handle,
        terms: Terms,
    ) -> Result<Opening, OpenError> {
        let Cutoff {
            deadline,
            kill,
            gate: place,
        } = terms.cutoff;
        let store: Arc<dyn ObjectStore> = Arc::new(kill.clone());
        let operator = self
            .merge_operator
            .as_deref()
            .map(merge::operator)
            .transpose();
        let operator = operator.map_err(|error| OpenError::Failed {
            shard,
            reason: error.to_string(),
        })?;
        let recorder = Arc::new(ShardRecorder::new(&self.cluster, shard));
        let mut builder = Db::builder(path.clone(), store.clone())
            .with_settings(self.settings.clone())
            .with_write_runtime(shard_thread.clone())
            .with_metrics_recorder(recorder.clone());
        builder = match self.cache.cache_for(shard) {
            Some((cache, id)) => builder.with_db_cache(cache, id),
            None => builder.with_db_cache_disabled(),
        };
        if let Some(operator) = &operator {
            builder = builder.with_merge_operator(operator.clone());
        }
        if let Some(clock) = time::driven() {
            builder = builder.with_system_clock(clock);
        }
        if let Some(epoch) = terms.expected_epoch {
            builder = builder.with_expected_epoch(epoch);
        }
        // The database's tasks live on the runtime that builds it.
        let mut building = self.storage.spawn(builder.build());
        let built = tokio::select! {
            biased;
            built = &mut building => Ok(built),
            () = clock::sleep(self.open_timeout) => Err(OpenError::TimedOut {
                shard,
                limit: self.open_timeout,
                store: kill.last_failure().map(|failure| failure.to_string()),
            }),
            () = async { self.stop.cancelled().await; clock::sleep(STOP_OPENING).await } => {
                Err(OpenError::Stopped { shard })
            }
        };
        let raw = match built {
            Ok(Ok(Ok(raw))) => raw,
            Ok(Ok(Err(error))) => {
                kill.kill("the database did not open");
                let reason = causes(&error);
                return Err(match error.kind() {
                    ErrorKind::Closed(CloseReason::Fenced) => OpenError::Fenced { shard, reason },
                    _ => OpenError::Failed { shard, reason },
                });
            }
            Ok(Err(error)) => {
                kill.kill("the database did not open");
                return Err(OpenError::Failed {
                    shard,
                    reason: error.to_string(),
                });
            }
            Err(given_up) => {
                kill.kill("the database did not open in time");
                // It ends by that, and was perhaps just open.
                match clock::timeout(ABANDON, &mut building).await {
                    Ok(Ok(Ok(raw))) => {
                        let unflushed = CloseOptions { flush_type: None };
                        let closing = raw.close_with_options(unflushed);
                        _ = clock::timeout(ABANDON, closing).await;
                    }
                    Ok(_) => {}
                    Err(_) => building.abort(),
                }
                return Err(given_up);
            }
        };
        let writer_epoch = raw.manifest().writer_epoch();
        let view = match raw.snapshot() {
            Ok(view) => view,
            Err(error) => {
                kill.kill("the database ended as it opened");
                return Err(OpenError::Failed {
                    shard,
                    reason: error.to_string(),
                });
            }
        };
        let gate = Arc::new(Gate::new(view, deadline.clone()));
        if place.set(gate.clone()).is_err() {
            kill.kill("a cutoff serves one opening");
            return Err(OpenError::Failed {
                shard,
                reason: "the host used the terms of one opening for another".into(),
            });
        }
        let db = ShardDb::new(
            raw.clone(),
            writer_epoch,
            gate.clone(),
            self.limits.clone(),
            self.merge_operator.clone(),
        );
        let flusher = Flusher::spawn(
            &shard_thread,
            &self.storage,
            shard,
            raw.clone(),
            gate.clone(),
            kill.clone(),
            self.flush.clone(),
        );
        let (tell_manifest, manifest) = watch::channel(raw.manifest().id());
        let info = ShardDbInfo {
            merge_operator: operator,
            compression: self.settings.compression_codec,
            min_filter_keys: self.settings.min_filter_keys,
            metrics: Some(recorder),
            ..ShardDbInfo::new(
                self.cluster.clone(),
                shard,
                path.clone(),
                store,
                raw.clone(),
                manifest,
            )
        };
        let maintenance = self.maintenance.register(info, rand::random());
        let (tell, down) = watch::channel(None);
        let watching =
            self.storage
                .spawn(watch_status(raw.clone(), gate.clone(), tell, tell_manifest));
        let opened = clock::now();
        Ok(Opening {
            shard,
            path,
            db: Arc::new(db),
            writer_epoch,
            opened,
            raw,
            gate,
            kill,
            flusher,
            maintenance,
            watching,
            down,
            close_timeout: self.close_timeout,
            storage: self.storage.clone(),
        })
    }

    /// Asks the store who may write: whether a writer newer than `writer_epoch` opened the database at `path`.
    ///
    /// SlateDB reports a fence in other cases too (a second compactor, a store that loses replies), so it is confirmed before it
    /// is believed.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn newer_writer(
        &self,
        path: &Path,
        writer_epoch: u64,
    ) -> Result<Option<u64>, String> {
        let newest = stored_epoch(self.store.clone(), path.clone());
        let newest = clock::timeout(ABANDON * 2, newest)
            .await
            .map_err(|_| "the store did not answer in time".to_owned())??;
        Ok((newest > writer_epoch).then_some(newest))
    }
}

/// The writer epoch of the database at a path: how often it was opened. 0 where there is none yet. Costs two or three requests; the caller
/// bounds the time.
///
/// # Errors
/// When the store fails, or what lies there is no database.
pub async fn stored_epoch(store: Arc<dyn ObjectStore>, path: Path) -> Result<u64, String> {
    let admin = time::admin(path, store).build();
    let manifest = admin.read_manifest(None).await;
    let manifest = manifest.map_err(|error| causes(&error))?;
    Ok(manifest.map_or(0, |manifest| manifest.writer_epoch()))
}

impl Opening {
    /// Waits until the database has ended by itself, and says why. Safe to drop.
    pub async fn down(&self) -> (DownReason, String) {
        let mut down = self.down.clone();
        let ended = async {
            let known = down.wait_for(Option::is_some).await;
            known.map(|reason| reason.clone())
        };
        let ended = tokio::select! {
            biased;
            ended = ended => ended,
            // The gate ends with the database, which tells why a little later; or because its flusher is gone.
            () = async { self.gate.over().await; clock::sleep(ABANDON).await } => {
                let why = self.gate.ended().map_or_else(String::new, |ended| ended.to_string());
                return (DownReason::Crashed, why);
            }
        };
        ended.ok().flatten().unwrap_or((
            DownReason::Crashed,
            "the watch on the database's status ended".into(),
        ))
    }

    /// The shard's path in the store.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Requests made to the store since the database was opened.
    #[must_use]
    pub fn kill_switch(&self) -> &KillSwitch {
        &self.kill
    }

    /// Makes closing short, while the database still serves: what only the WAL has goes into tables, which takes some seven requests one
    /// after the other. What is written after that is little, and the next opening reads it from the WAL. Bounded; where it fails, that
    /// is longer, and nothing else.
    pub async fn prepare_close(&self) {
        let raw = self.raw.clone();
        let flushing = self.storage.spawn(async move {
            let options = FlushOptions {
                flush_type: FlushType::MemTable,
            };
            raw.flush_with_options(options).await
        });
        if let Ok(Ok(Err(error))) = clock::timeout(PREPARE, flushing).await {
            tracing::debug!(shard = self.shard, %error, "memtable flush failed");
        }
    }

    /// Closes the database after its guest has stopped: makes everything durable, releases who waits, and closes, within
    /// `shard.close_timeout`. What only the WAL has stays there; see [`Opening::prepare_close`].
    ///
    /// # Errors
    /// When it was not clean. The database is closed all the same, cut off from its store.
    pub async fn close(self) -> Result<(), CloseError> {
        let (shard, limit) = (self.shard, self.close_timeout);
        let kill = self.kill.clone();
        let gate = self.gate.clone();
        let storage = self.storage.clone();
        let raw = self.raw.clone();
        let closing = async move {
            // SlateDB tells waiters that it is closed before its last flush, so ours comes first.
            self.flusher.finish().await;
            self.gate.end(Ended::Stopped);
            if let Err(error) = self.maintenance.stop().await {
                tracing::warn!(shard, %error, "maintenance was cut off");
            }
            let durable = self.raw.flush().await;
            if durable.is_ok() {
                self.kill.seal();
            }
            let unflushed = CloseOptions { flush_type: None };
            let closed = self.raw.close_with_options(unflushed).await;
            self.watching.abort();
            durable.and(closed)
        };
        let mut task = storage.spawn(closing);
        let outcome = match clock::timeout(limit, &mut task).await {
            Ok(Ok(Ok(()))) => return Ok(()),
            Ok(Ok(Err(error))) => Err(CloseError::Failed {
                shard,
                reason: causes(&error),
            }),
            Ok(Err(error)) => Err(CloseError::Failed {
                shard,
                reason: error.to_string(),
            }),
            Err(_) => Err(CloseError::TimedOut { shard, limit }),
        };
        kill.kill("the shard was closed");
        gate.end(Ended::Stopped);
        task.abort();
        _ = clock::timeout(
            ABANDON,
            raw.close_with_options(CloseOptions { flush_type: None }),
        )
        .await;
        outcome
    }

    /// Gives the database up, without a flush: another writer has it, or it failed. The bucket holds everything that was
    /// acknowledged.
    pub async fn abandon(self, reason: &DownReason, why: &str) {
        self.gate.end(match reason {
            DownReason::Fenced => Ended::Fenced,
            DownReason::Lost => Ended::Expired,
            DownReason::Stopped => Ended::Stopped,
            DownReason::Crashed => Ended::Failed(why.into()),
        });
        self.kill.kill(why);
        let shard = self.shard;
        let raw = self.raw;
        let (flusher, maintenance, watching) = (self.flusher, self.maintenance, self.watching);
        let mut task = self.storage.spawn(async move {
            flusher.finish().await;
            _ = maintenance.stop().await;
            _ = raw
                .close_with_options(CloseOptions { flush_type: None })
                .await;
            watching.abort();
        });
        if clock::timeout(ABANDON * 3, &mut task).await.is_err() {
            task.abort();
            tracing::warn!(
                shard,
                "a database that was given up did not end in time; it is cut off from its store"
            );
        }
    }
}

/// The one subscription to a database's status: tells when it has ended, and why, and when it has another manifest.
async fn watch_status(
    db: Db,
    gate: Arc<Gate>,
    tell: watch::Sender<Option<(DownReason, String)>>,
    tell_manifest: watch::Sender<u64>,
) {
    let mut status = db.subscribe();
    loop {
        let (reason, manifest) = {
            let status = status.borrow_and_update();
            (status.close_reason, status.current_manifest.id())
        };
        // Each WAL object changes the status; a manifest comes once in many.
        tell_manifest.send_if_modified(|known| std::mem::replace(known, manifest) != manifest);
        if let Some(reason) = reason {
            let (down, text) = match reason {
                CloseReason::Fenced => (
                    DownReason::Fenced,
                    "another writer opened the database".to_owned(),
                ),
                CloseReason::Clean => (DownReason::Stopped, "the database was closed".to_owned()),
                _ => (DownReason::Crashed, failure(&db).await),
            };
            if reason != CloseReason::Clean {
                gate.end(match &down {
                    DownReason::Fenced => Ended::Fenced,
                    _ => Ended::Failed(text.as_str().into()),
                });
            }
            tell.send_replace(Some((down, text)));
            return;
        }
        if status.changed().await.is_err() {
            return;
        }
    }
}

/// Why a database failed: its calls give the cause.
async fn failure(db: &Db) -> String {
    match db.get(b"quarry").await {
        Err(error) => match ended_by(&error) {
            Ended::Failed(text) => text.to_string(),
            other => other.to_string(),
        },
        Ok(_) => "the database failed".into(),
    }
}

#[cfg(test)]
mod tests;

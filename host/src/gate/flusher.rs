//! The task that makes a shard's writes durable: adaptive group commit.
//!
//! While someone waits, a flush follows the last at once (or after `flush_interval`, the shortest time between two WAL objects, which
//! bounds what a busy shard costs: one PUT a flush). A write nobody waits for is flushed within `flush_after`.
//! An idle shard does nothing at all.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use slatedb::config::{FlushOptions, FlushType};
use slatedb::{CloseReason, Db, DbSnapshot, ErrorKind};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{Ended, Gate};
use crate::clock;
use crate::db::maintenance::ReplayBound;

/// How a shard's writes are flushed.
#[derive(Clone)]
pub struct Options {
    /// The shortest time between two WAL objects.
    pub flush_interval: Duration,
    /// How soon a write that nobody waits for becomes durable.
    pub flush_after: Duration,
    /// After how many WAL objects the memtable is flushed, which bounds what the next opening has to replay.
    pub memtable_flush_wal_objects: u32,
    /// Where the time of each flush goes.
    pub took: metrics::Histogram,
}

/// The flusher of one opening of a shard.
pub struct Flusher {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Flusher {
    /// Starts flushing `db` on `runtime`.
    pub fn spawn(runtime: &Handle, shard: u32, db: Db, gate: Arc<Gate>, options: Options) -> Self {
        let stop = CancellationToken::new();
        let run = Run {
            shard,
            db,
            gate,
            replay: Arc::new(Mutex::new(ReplayBound::new(
                options.memtable_flush_wal_objects,
                0,
            ))),
            options,
            last: None,
            stalled: false,
            memtable: None,
        };
        let task = runtime.spawn(run.run(stop.clone()));
        Self { stop, task }
    }

    /// Makes every write made so far durable, releases who waited for it, and ends. The caller bounds the time.
    pub async fn finish(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await
            && error.is_panic()
        {
            tracing::error!(%error, "flusher panicked");
        }
    }
}

struct Run {
    shard: u32,
    db: Db,
    gate: Arc<Gate>,
    options: Options,
    last: Option<Instant>,
    stalled: bool,
    replay: Arc<Mutex<ReplayBound>>,
    memtable: Option<JoinHandle<()>>,
}

impl Run {
    async fn run(mut self, stop: CancellationToken) {
        let _end = EndOnPanic(self.gate.clone());
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = self.due() => {}
            }
            if self.gate.ended().is_some() || !self.flush().await {
                break;
            }
        }
        if self.gate.ended().is_none() {
            self.flush().await;
        }
        if let Some(task) = self.memtable.take() {
            _ = task.await;
        }
    }

    /// Returns when a flush should begin.
    async fn due(&mut self) {
        loop {
            if self.gate.ended().is_some() {
                return;
            }
            if self.gate.wanted() > self.gate.durable_seq() {
                if self.stalled {
                    // The last flush brought nothing new: whoever waits, waits for a write that is not applied yet.
                    tokio::time::sleep(self.options.flush_after).await;
                }
                break;
            }
            if self.gate.armed.load(Ordering::Acquire) {
                // Nobody waits yet: let writes gather, until someone does.
                if tokio::time::timeout(self.options.flush_after, self.gate.kick.notified())
                    .await
                    .is_err()
                {
                    break;
                }
            } else {
                self.gate.kick.notified().await;
            }
        }
        if let Some(last) = self.last {
            let wait = self
                .options
                .flush_interval
                .saturating_sub(clock::now().saturating_duration_since(last));
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
        }
    }

    /// Flushes what is applied by now. False when the database has ended.
    async fn flush(&mut self) -> bool {
        self.gate.armed.store(false, Ordering::Release);
        std::sync::atomic::fence(Ordering::SeqCst);
        let begun = clock::now();
        self.last = Some(begun);
        let outcome = match self.db.snapshot() {
            Ok(view) => self.db.flush().await.map(|()| view),
            Err(error) => Err(error),
        };
        match outcome {
            Ok(view) => {
                self.options
                    .took
                    .record(clock::now().saturating_duration_since(begun));
                self.advance(view);
                true
            }
            Err(error) => {
                self.gate.end(ended_by(&error));
                false
            }
        }
    }

    fn advance(&mut self, view: Arc<DbSnapshot>) {
        let seq = view.seq();
        let grown = seq > self.gate.durable_seq();
        // Only whoever waits for more than there is can make flushes that bring nothing.
        self.stalled = !grown && self.gate.wanted() > seq;
        self.gate.advance(Some(view), seq);
        if grown && lock(&self.replay).wal_flushed() {
            let (db, shard, replay) = (self.db.clone(), self.shard, self.replay.clone());
            self.memtable = Some(tokio::spawn(async move {
                let flushed = db
                    .flush_with_options(FlushOptions {
                        flush_type: FlushType::MemTable,
                    })
                    .await;
                if let Err(error) = &flushed {
                    tracing::debug!(shard, %error, "memtable flush failed");
                }
                lock(&replay).memtable_flushed(flushed.is_ok());
            }));
        }
    }
}

fn lock(replay: &Mutex<ReplayBound>) -> MutexGuard<'_, ReplayBound> {
    replay.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Without its flusher a shard would serve, and nothing would ever be durable.
struct EndOnPanic(Arc<Gate>);

impl Drop for EndOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end(Ended::Failed("the flusher panicked".into()));
        }
    }
}

/// What a failed database operation says of the shard.
#[must_use]
pub fn ended_by(error: &slatedb::Error) -> Ended {
    match error.kind() {
        ErrorKind::Closed(CloseReason::Fenced) => Ended::Fenced,
        ErrorKind::Closed(CloseReason::Clean) => Ended::Stopped,
        _ => Ended::Failed(causes(error).into()),
    }
}

/// An error of a database with all that it was caused by: SlateDB's own words leave out the store's.
#[must_use]
pub fn causes(error: &slatedb::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        cause = error.source();
    }
    text
}

//! The task that makes a shard's writes durable: adaptive group commit.
//!
//! While someone waits, a flush follows the last at once, or as soon as the callers that it released are back (`gather`), or after
//! `flush_interval`, the shortest time between two WAL objects, which bounds what a busy shard costs: one PUT a flush. A write nobody
//! waits for is flushed within `flush_after`.
//! An idle shard does nothing at all.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use slatedb::config::{FlushOptions, FlushType};
use slatedb::{CloseReason, Db, DbSnapshot, ErrorKind};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::gather::Gather;
use super::{Ended, Gate};
use crate::clock;
use crate::db::maintenance::ReplayBound;
use crate::store::kill_switch::KillSwitch;

/// How long calls wait at most for a flush that is on its way to the store; it takes some 0.1 ms.
const SET_OUT_MAX: Duration = Duration::from_millis(10);

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
    /// Starts flushing `db`. Flushes begin on `shard_thread`, where the writer takes them without a hop and every call that waits in
    /// line has written; they are waited for, and release, on `storage`, where no guest can delay them.
    pub fn spawn(
        shard_thread: &Handle,
        storage: &Handle,
        shard: u32,
        db: Db,
        gate: Arc<Gate>,
        kill: KillSwitch,
        options: Options,
    ) -> Self {
        let stop = CancellationToken::new();
        let run = Run {
            shard,
            db,
            gate,
            kill,
            replay: Arc::new(Mutex::new(ReplayBound::new(
                options.memtable_flush_wal_objects,
                0,
            ))),
            options,
            storage: storage.clone(),
            last: None,
            due: clock::now(),
            gather: Gather::default(),
            stalled: false,
            memtable: None,
        };
        let task = shard_thread.spawn(run.run(stop.clone()));
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
    kill: KillSwitch,
    options: Options,
    storage: Handle,
    last: Option<Instant>,
    /// Since when someone waits for the next flush.
    due: Instant,
    gather: Gather,
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
                self.due = clock::now();
                if self.stalled {
                    // The last flush brought nothing new: whoever waits, waits for a write that is not applied yet.
                    clock::sleep(self.options.flush_after).await;
                } else {
                    self.gather().await;
                }
                break;
            }
            if self.gate.armed.load(Ordering::Acquire) {
                // Nobody waits yet: let writes gather, until someone does.
                if clock::timeout(self.options.flush_after, self.gate.kick.notified())
                    .await
                    .is_err()
                {
                    self.due = clock::now();
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
                clock::sleep(wait).await;
            }
        }
    }

    /// Waits for those whom the last flush released, if they are likely to come. Most often the last of them ends the wait; the timer,
    /// which is not finer than a millisecond, seldom.
    async fn gather(&mut self) {
        let Some((enough, time)) = self.gather.wanted(self.gate.waiting()) else {
            return;
        };
        let until = clock::now() + time;
        self.gate.lock().gathering = Some(enough);
        while self.gate.waiting() < enough && clock::now() < until && !self.gate.is_over() {
            _ = clock::timeout_at(until, self.gate.kick.notified()).await;
        }
        self.gate.lock().gathering = None;
    }

    /// Flushes what is applied by now. False when the database has ended.
    async fn flush(&mut self) -> bool {
        self.gate.armed.store(false, Ordering::Release);
        std::sync::atomic::fence(Ordering::SeqCst);
        self.last = Some(clock::now());
        let view = match self.db.snapshot() {
            Ok(view) => view,
            Err(error) => {
                self.gate.end(ended_by(&error));
                return false;
            }
        };
        let seq = view.seq();
        let grown = seq > self.gate.durable_seq();
        let mut flushing = Box::pin(flush(
            self.db.clone(),
            self.gate.clone(),
            view,
            self.options.took.clone(),
        ));
        let kill = self.kill.clone();
        let mut set_out = std::pin::pin!(kill.put_begins());
        set_out.as_mut().enable();
        // The first poll hands the flush to the writer.
        let outcome = match futures::poll!(&mut flushing) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => {
                let mut flushing = self.storage.spawn(flushing);
                let ended = {
                    let _calls_wait = SettingOut::new(&self.gate);
                    tokio::select! {
                        biased;
                        ended = &mut flushing => Some(ended),
                        _ = clock::timeout(SET_OUT_MAX, set_out) => None,
                    }
                };
                let ended = match ended {
                    Some(ended) => ended,
                    None => flushing.await,
                };
                ended.unwrap_or_else(|error| {
                    Err(Ended::Failed(if error.is_panic() {
                        "the flusher panicked".into()
                    } else {
                        format!("the flush failed: {error}").into()
                    }))
                })
            }
        };
        match outcome {
            Ok(Flushed {
                took,
                released,
                waiting,
            }) => {
                let since = clock::now().saturating_duration_since(self.due);
                self.gather.flushed(since, took, released, waiting);
            }
            Err(ended) => {
                self.gate.end(ended);
                return false;
            }
        }
        // Only whoever waits for more than there is can make flushes that bring nothing.
        self.stalled = !grown && self.gate.wanted() > seq;
        if grown && lock(&self.replay).wal_flushed() {
            self.flush_memtable();
        }
        true
    }

    fn flush_memtable(&mut self) {
        let (db, shard, replay) = (self.db.clone(), self.shard, self.replay.clone());
        self.memtable = Some(self.storage.spawn(async move {
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

/// A flush that was done: what it took, how many it released, and how many wait for the next.
struct Flushed {
    took: Duration,
    released: usize,
    waiting: usize,
}

/// Makes everything that `view` shows durable, and releases who waited for it. An error when the database has ended.
async fn flush(
    db: Db,
    gate: Arc<Gate>,
    view: Arc<DbSnapshot>,
    histogram: metrics::Histogram,
) -> Result<Flushed, Ended> {
    let begun = clock::now();
    db.flush().await.map_err(|error| ended_by(&error))?;
    let took = clock::now().saturating_duration_since(begun);
    histogram.record(took);
    let seq = view.seq();
    let (released, waiting) = gate.advance(Some(view), seq);
    Ok(Flushed {
        took,
        released,
        waiting,
    })
}

/// While this lives, no call begins.
struct SettingOut<'a>(&'a Gate);

impl<'a> SettingOut<'a> {
    fn new(gate: &'a Gate) -> Self {
        gate.setting_out.store(true, Ordering::Release);
        Self(gate)
    }
}

impl Drop for SettingOut<'_> {
    fn drop(&mut self) {
        self.0.setting_out.store(false, Ordering::Release);
        self.0.set_out.notify_waiters();
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

//! An open shard, as its callers see it: a handle that puts calls into its queue and runs its queries.
//!
//! The shard itself is a task on its shard thread ([`task`]); the handle is shared and crosses threads once for each call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use crate::call::{CallError, CallErrorKind, Durability, Read};
use crate::clock;
use crate::db::ShardDb;
use crate::guest::calls::waits::{Ticket, Waits};
use crate::guest::timers::Timers;
use crate::guest::{HttpAnswer, Limits, Module, Request, ShardFlag};

mod held;
mod migrate;
pub mod queries;
pub mod running;
pub mod sample;
pub mod slot;
pub mod swap;
pub mod task;
mod timers;

use queries::QueryPool;

/// How long a shard may be too busy to be told something.
const CONTROL_TIME: Duration = Duration::from_secs(60);

/// What came of a call, before the caller learns of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The guest's bytes.
    pub payload: Bytes,
    /// Their media type.
    pub content_type: Option<String>,
    /// The newest write that they can show.
    pub seq: u64,
    /// The revision that ran.
    pub revision: u64,
    /// Of an answer over HTTP, all but the body, which is the payload.
    pub http: Option<Box<HttpAnswer>>,
}

impl Outcome {
    /// How much it takes where it waits.
    fn bytes(&self) -> usize {
        self.payload.len() + self.http.as_ref().map_or(0, |answer| answer.bytes())
    }
}

/// Where a call's outcome goes.
type Answer = oneshot::Sender<Result<Outcome, CallError>>;

/// The answer of a call that began. Dropped without an outcome it says that nobody knows what the call did: the caller of one that
/// never began is told that it may be made again, and must not be told so of this one.
struct Begun {
    answer: Option<Answer>,
    shard: u32,
}

impl Begun {
    fn new(answer: Answer, shard: u32) -> Self {
        Self {
            answer: Some(answer),
            shard,
        }
    }

    fn send(mut self, outcome: Result<Outcome, CallError>) {
        if let Some(answer) = self.answer.take() {
            _ = answer.send(outcome);
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if let Some(answer) = self.answer.take() {
            let message = format!(
                "shard {} ended in the middle of the call; what it wrote may or may not survive",
                self.shard
            );
            _ = answer.send(Err(CallError::host(CallErrorKind::Unknown, message)));
        }
    }
}

/// The handle of an open shard. It stays usable after the shard has ended: calls then fail as never run.
pub struct ShardHandle {
    shard: u32,
    calls: mpsc::UnboundedSender<Call>,
    control: mpsc::Sender<Control>,
    queue: Arc<Queue>,
    db: Arc<ShardDb>,
    flag: Arc<ShardFlag>,
    runs: Arc<Runs>,
    queries: Arc<QueryPool>,
    waits: Arc<Waits>,
    timers: Timers,
}

/// What a shard runs, for who looks from outside.
struct Runs(AtomicU64);

impl Runs {
    fn new(module: &Arc<dyn Module>) -> Self {
        Self(module.describe().revision.into())
    }

    /// The shard runs this now.
    fn set(&self, module: &Arc<dyn Module>) {
        self.0.store(module.describe().revision, Ordering::Release);
    }
}

/// A call in a shard's queue.
struct Call {
    request: Request,
    durability: Option<Durability>,
    /// The only revision that may run it.
    revision: Option<u64>,
    answer: Answer,
    /// Of a call from another shard.
    ticket: Option<Ticket>,
    _place: Place,
}

/// What a shard is told besides calls.
pub(crate) enum Control {
    /// Run another module. The old instance goes on if the new one does not take over.
    Swap(swap::Order),
    /// Make a new instance, and forget the traps.
    Restart {
        done: oneshot::Sender<Result<(), CallError>>,
    },
    /// Run a request so many times in a row, and give each time in nanoseconds: what a call costs without its way here.
    Measure {
        request: Request,
        calls: usize,
        done: oneshot::Sender<Result<Vec<u64>, CallError>>,
    },
}

impl ShardHandle {
    /// The shard's number.
    #[must_use]
    pub fn shard(&self) -> u32 {
        self.shard
    }

    /// Its database.
    #[must_use]
    pub fn db(&self) -> &Arc<ShardDb> {
        &self.db
    }

    /// Whether it goes on.
    #[must_use]
    pub fn flag(&self) -> &Arc<ShardFlag> {
        &self.flag
    }

    /// The revision that its guest runs.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.runs.0.load(Ordering::Acquire)
    }

    /// Calls in its queue, the one that runs included, and queries that wait or run.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.calls.load(Ordering::Relaxed) + self.queries.queued()
    }

    /// Timers that are set, as far as they are in memory.
    #[must_use]
    pub fn timers(&self) -> usize {
        self.timers.pending()
    }

    /// Its instances for queries.
    pub(crate) fn queries(&self) -> &Arc<QueryPool> {
        &self.queries
    }

    /// Runs a call, and waits until its outcome may leave. The caller bounds the time: dropping this future takes a call that has not
    /// begun out of the queue, and leaves one that has to run on. `revision` is the only one that may run it, which is looked at when its turn
    /// comes; any when none.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn call(
        &self,
        request: Request,
        durability: Option<Durability>,
        revision: Option<u64>,
    ) -> Result<Outcome, CallError> {
        let place = Queue::enter(&self.queue, &request).map_err(|error| error.at(self.shard))?;
        let (ticket, refused) = match &*request.chain {
            [] => (None, None),
            chain => {
                let entered = self.waits.enter(self.shard, chain);
                let (ticket, refused) =
                    entered.map_err(|meeting| CallError::met(&meeting).at(self.shard))?;
                (Some(ticket), Some(refused))
            }
        };
        let (answer, outcome) = oneshot::channel();
        if self
            .calls
            .send(Call {
                request,
                durability,
                revision,
                answer,
                ticket,
                _place: place,
            })
            .is_err()
        {
            return Err(self.gone());
        }
        let outcome = match refused {
            None => outcome.await,
            Some(refused) => tokio::select! {
                biased;
                // It never ran. Where the other end is gone without a word, the call has begun.
                Ok(meeting) = refused => Ok(Err(CallError::met(&meeting))),
                outcome = outcome => outcome,
            },
        };
        outcome
            .unwrap_or_else(|_| Err(self.gone()))
            .map_err(|error| error.at(self.shard))
    }

    /// Runs a query; `revision` is as in [`ShardHandle::call`].
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn query(
        &self,
        request: Request,
        read: Read,
        revision: Option<u64>,
    ) -> Result<Outcome, CallError> {
        QueryPool::query(&self.queries, request, read, revision)
            .await
            .map_err(|error| error.at(self.shard))
    }

    /// Tells the shard something; fails when it has ended, or takes nothing for a long time.
    pub(crate) async fn control(&self, control: Control) -> Result<(), CallError> {
        let sent = self.control.send_timeout(control, CONTROL_TIME).await;
        sent.map_err(|_| self.gone())
    }

    fn gone(&self) -> CallError {
        CallError::closed(self.shard)
    }
}

/// The bound of a shard's queue, in calls and in bytes.
struct Queue {
    calls: AtomicUsize,
    bytes: AtomicUsize,
    limits: Arc<Limits>,
}

/// A place in a queue, given back when dropped.
struct Place {
    queue: Arc<Queue>,
    bytes: usize,
}

impl Queue {
    fn enter(queue: &Arc<Self>, request: &Request) -> Result<Place, CallError> {
        let bytes = request.bytes();
        let calls = queue.calls.fetch_add(1, Ordering::AcqRel);
        let waiting = queue.bytes.fetch_add(bytes, Ordering::AcqRel);
        let place = Place {
            queue: queue.clone(),
            bytes,
        };
        let (max_calls, max_bytes) = (queue.limits.queue_calls, queue.limits.queue_bytes);
        if calls >= max_calls {
            let message = format!(
                "{calls} calls wait in the shard's queue (limits.queue_calls {max_calls}); try again later"
            );
            return Err(CallError::host(CallErrorKind::Overloaded, message));
        }
        // A payload over the bound may still run on an empty queue: the HTTP side bounds a single one.
        if waiting > 0 && waiting + bytes > max_bytes {
            let message = format!(
                "{waiting} bytes wait in the shard's queue (limits.queue_bytes {max_bytes}); try again later"
            );
            return Err(CallError::host(CallErrorKind::Overloaded, message));
        }
        Ok(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.queue.calls.fetch_sub(1, Ordering::AcqRel);
        self.queue.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// A call whose time ran out before it began.
fn expired(request: &Request) -> Option<CallError> {
    (clock::now() >= request.deadline).then(|| {
        CallError::host(
            CallErrorKind::Timeout,
            "the call's time ran out before it began; it did not run",
        )
    })
}

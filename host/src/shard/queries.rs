//! The queries of a shard: read-only calls on further instances, in parallel with the writer and with each other.
//!
//! Instances are made when they are needed, up to `limits.query_instances`, and dropped after they were idle for a while. They run on the
//! query runtime. A query reads a snapshot of everything applied, and its reply waits for that to be durable; or it
//! reads the durable view and waits for nothing.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::sample::{Book, Tally};
use super::task::ending;
use super::{Outcome, Queue, expired};
use crate::call::{CallError, CallErrorKind, Read};
use crate::clock;
use crate::db::ReadView;
use crate::guest::{Failure, InstanceContext, Module, QueryInstance, Request};

/// An instance that was not used for so long is dropped.
const IDLE: Duration = Duration::from_secs(60);

/// A shard's instances for queries.
pub struct QueryPool {
    context: InstanceContext,
    runtime: Handle,
    queue: Arc<Queue>,
    running: Semaphore,
    book: Arc<Book>,
    state: Mutex<State>,
}

struct State {
    module: Arc<dyn Module>,
    context: InstanceContext,
    tally: Arc<Tally>,
    /// Grows with each swap, so that an instance of an older module is not taken back.
    version: u64,
    /// [`Module::crowded`] when idle instances were last looked at.
    crowded: u64,
    idle: Vec<(Instant, Box<dyn QueryInstance>)>,
}

impl QueryPool {
    pub(super) fn new(
        module: Arc<dyn Module>,
        context: InstanceContext,
        runtime: Handle,
        book: Arc<Book>,
    ) -> Self {
        let limits = context.db.limits().clone();
        let running = Semaphore::new(limits.query_instances);
        // Not the queue of the calls: queries that wait must not keep calls out.
        let queue = Arc::new(Queue {
            calls: 0.into(),
            bytes: 0.into(),
            limits,
        });
        let state = Mutex::new(State {
            crowded: module.crowded(),
            tally: book.tally(module.describe().revision),
            module,
            context: context.clone(),
            version: 0,
            idle: Vec::new(),
        });
        Self {
            context,
            runtime,
            queue,
            running,
            book,
            state,
        }
    }

    pub(super) async fn query(
        pool: &Arc<Self>,
        request: Request,
        read: Read,
        revision: Option<u64>,
    ) -> Result<Outcome, CallError> {
        let place = Queue::enter(&pool.queue, &request)?;
        let pool_of_task = pool.clone();
        // On its own task, so that a caller that goes away leaves no instance in the middle.
        let task = pool.runtime.spawn(async move {
            let outcome = pool_of_task.run(request, read, revision).await;
            drop(place);
            outcome
        });
        match task.await {
            Ok(outcome) => outcome,
            Err(error) => Err(CallError::host(
                CallErrorKind::Trap(crate::guest::TrapKind::Host),
                format!("the query failed in the host: {error}"),
            )),
        }
    }

    /// Runs queries on another module from now on.
    pub(crate) fn swap(&self, module: Arc<dyn Module>, context: InstanceContext) {
        let tally = self.book.tally(module.describe().revision);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.tally = tally;
        state.module = module;
        state.context = context;
        state.version += 1;
        let idle = std::mem::take(&mut state.idle);
        drop(state);
        drop(idle);
    }

    /// Begins no further query, and waits for those in progress.
    pub(crate) async fn stop(&self, limit: Duration) {
        let all = u32::try_from(self.context.db.limits().query_instances).unwrap_or(u32::MAX);
        // Behind everyone who waits already.
        let ended = clock::timeout(limit, self.running.acquire_many(all)).await;
        self.running.close();
        drop(ended);
    }

    /// Queries that wait or run.
    pub(super) fn queued(&self) -> usize {
        self.queue.calls.load(Ordering::Relaxed)
    }

    /// Drops instances that were idle for long, and all that are idle when others of the node found no room.
    pub(crate) fn trim(&self, now: Instant) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let crowded = state.module.crowded();
        let wanted = std::mem::replace(&mut state.crowded, crowded) != crowded;
        let (idle, kept) = std::mem::take(&mut state.idle)
            .into_iter()
            .partition(|(since, _)| wanted || now.saturating_duration_since(*since) >= IDLE);
        state.idle = kept;
        drop(state);
        drop::<Vec<_>>(idle);
    }

    async fn run(
        &self,
        request: Request,
        read: Read,
        only: Option<u64>,
    ) -> Result<Outcome, CallError> {
        let deadline = request.deadline;
        let running = clock::timeout_at(deadline, self.turn(&request)).await;
        let running = running.map_err(|_| late())??;
        if let Some(error) = expired(&request) {
            return Err(error);
        }
        if self.context.gate.deadline().passed() {
            return Err(CallError::lease_ran_out(self.context.shard));
        }
        let (module, context, tally, version, idle) = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let runs = state.module.describe().revision;
            if let Some(wanted) = only.filter(|wanted| *wanted != runs) {
                let shard = self.context.shard;
                return Err(CallError::wrong_revision(shard, runs, wanted));
            }
            (
                state.module.clone(),
                state.context.clone(),
                state.tally.clone(),
                state.version,
                state.idle.pop(),
            )
        };
        let info = module.describe();
        if !info.exports.queries {
            let message = format!(
                "the guest has no queries (module {} does not export `queries`); use call",
                info.name
            );
            return Err(CallError::host(CallErrorKind::NoQueries, message));
        }
        let (revision, db) = (info.revision, self.context.db.clone());
        let view = match read {
            Read::Applied => db.snapshot(),
            Read::Durable => db.durable_view(),
        };
        let view: ReadView =
            view.map_err(|error| CallError::host(CallErrorKind::Unassigned, error.message))?;
        let seq = view.seq();
        let ran = match idle {
            Some((_, instance)) => self.on(instance, &request, view, version).await,
            None => match module.instantiate_query(context).await {
                Ok(instance) => self.on(instance, &request, view, version).await,
                Err(failure) => Err(failure),
            },
        };
        drop(running);
        if let Some(ending) = ending(&ran) {
            tally.queried(ending);
        }
        let outcome = match ran {
            Ok(reply) => Ok(Outcome {
                payload: reply.payload,
                content_type: reply.content_type,
                seq,
                revision,
                http: reply.http,
            }),
            Err(Failure::Error(error)) => Err(CallError {
                seq: Some(seq),
                revision: Some(revision),
                ..CallError::guest(error)
            }),
            Err(Failure::Trap(trap)) => {
                tracing::warn!(shard = self.context.shard, method = %request.method, revision, %trap, "a query trapped");
                Err(CallError {
                    revision: Some(revision),
                    ..CallError::trap(&trap)
                })
            }
            // It did not run, so it shows nothing.
            Err(Failure::NoRoom(why)) => return Err(CallError::no_room(why)),
        };
        // An error shows as much as a reply.
        if read == Read::Applied && !db.gate().is_open(seq) {
            let durable = clock::timeout_at(deadline, db.gate().durable(seq)).await;
            // A query changes nothing, so it is always safe to make it again.
            durable.map_err(|_| late())?.map_err(|_| self.ended())?;
        }
        // Another node may have acknowledged writes since that this one does not see.
        if self.context.gate.deadline().passed() {
            return Err(CallError::lease_ran_out(self.context.shard));
        }
        outcome
    }

    /// Waits for room for one more query.
    async fn turn(&self, request: &Request) -> Result<SemaphorePermit<'_>, CallError> {
        let turn = async { self.running.acquire().await.map_err(|_| self.ended()) };
        if request.chain.is_empty() {
            return turn.await;
        }
        // A query of another shard's guest: where all that run here wait for other shards, one of them may wait for this one.
        let all = self.context.db.limits().query_instances;
        tokio::select! {
            biased;
            turn = turn => turn,
            () = self.context.calls.queries_wait(all) => {
                let message = format!(
                    "all {all} queries that shard {} may run at once (limits.query_instances) wait for other shards; try again later",
                    self.context.shard
                );
                Err(CallError::host(CallErrorKind::Overloaded, message))
            }
        }
    }

    async fn on(
        &self,
        mut instance: Box<dyn QueryInstance>,
        request: &Request,
        view: ReadView,
        version: u64,
    ) -> Result<crate::guest::Reply, Failure> {
        let ran = instance.query(request, view).await;
        if !matches!(ran, Err(Failure::Trap(_))) {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.version == version && state.crowded == state.module.crowded() {
                state.idle.push((clock::now(), instance));
            }
        }
        ran
    }

    fn ended(&self) -> CallError {
        CallError::host(
            CallErrorKind::Unassigned,
            format!("shard {} was closed", self.context.shard),
        )
    }
}

/// The reply of a query did not come within the caller's time.
fn late() -> CallError {
    CallError::host(CallErrorKind::Timeout, "the query did not reply in time")
}

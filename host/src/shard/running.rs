//! Starts and stops a shard: puts its parts together, and waits for its task ([`super::task`]).

use std::sync::Arc;
use std::time::Duration;

use quarry_core::traps::Ledger;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::held::Held;
use super::queries::QueryPool;
use super::sample::Samples;
use super::slot::Slot;
use super::task::{Guest, Shard};
use super::{Queue, Runs, ShardHandle};
use crate::clock;
use crate::db::ShardDb;
use crate::guest::calls::{Calls, Reach};
use crate::guest::log::GuestLog;
use crate::guest::notify::Notifier;
use crate::guest::timers::Timers;
use crate::guest::{InstanceContext, Module, ShardFlag, StopReason};
use crate::metrics;

/// How much longer than its limits a start or an end may take.
const START_GRACE: Duration = Duration::from_secs(5);

/// What a shard is started with.
pub struct Start {
    /// The cluster's name.
    pub cluster: Arc<str>,
    /// This node's name.
    pub node: Arc<str>,
    /// The shard's number.
    pub shard: u32,
    /// How many shards there are.
    pub shards: u32,
    /// The generation of its lease; 0 without leases.
    pub generation: u64,
    /// Its open database.
    pub db: Arc<ShardDb>,
    /// Its guest.
    pub module: Arc<dyn Module>,
    /// The guest's options.
    pub options: Arc<str>,
    /// Its place on the node.
    pub slot: Arc<Slot>,
    /// Where the node counts what calls come to.
    pub samples: Arc<Samples>,
    /// The thread that it runs on.
    pub shard_thread: Handle,
    /// Where its queries run.
    pub query: Handle,
    /// How it reaches other shards.
    pub reach: Reach,
}

/// A shard at work.
pub struct Running {
    shard: u32,
    handle: Arc<ShardHandle>,
    stop: oneshot::Sender<StopReason>,
    /// None once it has ended by itself.
    task: Option<JoinHandle<()>>,
    queries: Arc<QueryPool>,
}

impl Running {
    /// Starts a shard, and waits until its guest's start was tried once, with the first step of its migration. Whether its guest runs, is
    /// tried again, or has more steps to go, the shard can then be published.
    pub async fn start(start: Start) -> Self {
        let (calls, receive_calls) = mpsc::unbounded_channel();
        let (control, receive_control) = mpsc::channel(16);
        let (stop, stopped) = oneshot::channel();
        let limits = start.db.limits().clone();
        let gate = start.db.gate().clone();
        let (notifier, tags) = Notifier::new(gate.clone(), limits.notifications);
        let (timers, schedule) = Timers::new(start.db.clone(), limits.timers);
        let info = start.module.describe().clone();
        let flag = Arc::new(ShardFlag::new(gate.deadline().clone()));
        let waits = start.reach.waits.clone();
        let others = Calls::new(start.shard, start.shards, start.db.clone(), start.reach);
        let metrics = metrics::guest::of(&start.cluster, &info.name);
        let context = InstanceContext {
            cluster: start.cluster,
            node: start.node,
            shard: start.shard,
            shards: start.shards,
            generation: start.generation,
            options: start.options,
            db: start.db.clone(),
            gate: gate.clone(),
            notifier: Arc::new(notifier.next().of(&info.name)),
            timers: timers.next().of(&info),
            status: flag.clone(),
            log: Arc::new(GuestLog::new(
                start.shard,
                info.name.clone(),
                info.revision,
                limits.log_bytes_per_second,
            )),
            calls: Arc::new(others),
            metrics,
        };
        let queue = Arc::new(Queue {
            calls: 0.into(),
            bytes: 0.into(),
            limits: limits.clone(),
        });
        let queries = Arc::new(QueryPool::new(
            start.module.clone(),
            context.clone(),
            start.query,
            start.samples.queries(),
        ));
        let runs = Arc::new(Runs::new(&start.module));
        let book = start.samples.shard(start.shard);
        let handle = Arc::new(ShardHandle {
            shard: start.shard,
            calls,
            control,
            queue: queue.clone(),
            db: start.db.clone(),
            flag,
            runs: runs.clone(),
            queries: queries.clone(),
            waits,
            timers: timers.clone(),
        });
        let (started, first) = oneshot::channel();
        let shard = Shard {
            shard: start.shard,
            db: start.db,
            gate,
            module: start.module,
            context,
            notifier,
            timers,
            guest: Guest::Waiting(clock::now()),
            tags,
            schedule,
            fired_last: false,
            traps: Ledger::new(limits.traps, limits.trap_window),
            held: Held::new(limits.queue_bytes),
            born: clock::now(),
            slot: start.slot.clone(),
            runs,
            queries: queries.clone(),
            queue,
            tally: book.tally(info.revision),
            book,
            parked: 0,
            no_room: None,
            coming: None,
        };
        let task =
            start
                .shard_thread
                .spawn(shard.run(receive_calls, receive_control, stopped, started));
        // An error means that the task has ended; whoever waits for its end learns why. A component is bounded by its limits; native
        // logic may hang in its start, and must not keep the node from starting.
        let limit = limits.start_time * 2 + limits.migrate_step_time + START_GRACE;
        _ = clock::timeout(limit, first).await;
        Self {
            shard: start.shard,
            handle,
            stop,
            task: Some(task),
            queries,
        }
    }

    /// Lets calls in.
    pub fn publish(&self, slot: &Slot) {
        slot.publish(self.handle.clone());
    }

    /// The revision that its guest runs.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.handle.revision()
    }

    /// Tells the guest that another writer has its database.
    pub fn fence(&self) {
        self.handle.flag.set_fenced();
    }

    /// Waits until the task has ended by itself, which it only does by a panic of the host. Safe to drop.
    pub async fn ended(&mut self) -> String {
        let Some(task) = &mut self.task else {
            return std::future::pending().await;
        };
        let ended = task.await;
        self.task = None;
        match ended {
            Ok(()) => "the shard's task ended".into(),
            Err(error) => format!("the shard's task failed: {error}"),
        }
    }

    /// Stops the shard: accepted calls are finished (or, after a fence, refused), the guest is stopped. After `limit` the rest is cut off.
    pub async fn stop(self, reason: StopReason, limit: Duration) {
        match reason {
            StopReason::Fenced => self.handle.flag.set_fenced(),
            _ => self.handle.flag.set_stopping(),
        }
        _ = self.stop.send(reason);
        self.queries
            .stop(if reason == StopReason::Stopping {
                limit
            } else {
                Duration::ZERO
            })
            .await;
        let Some(mut task) = self.task else { return };
        match clock::timeout(limit, &mut task).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(shard = self.shard, %error, "shard task failed"),
            Err(_) => {
                task.abort();
                // The guest is gone before its database is closed.
                _ = clock::timeout(START_GRACE, &mut task).await;
                tracing::warn!(
                    shard = self.shard,
                    ?limit,
                    "guest did not stop in time and was cut off (shard.close_timeout)"
                );
            }
        }
    }
}

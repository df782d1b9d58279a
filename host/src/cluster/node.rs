//! What the parts of a node share, and how it stops.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use quarry_core::route::Local;
use quarry_core::runner::{RunnerCommand, RunnerEvent};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::deployed::Deployed;
use super::peers::Peers;
use super::status::{ProbeState, ProbeStatus, ShardReport, ShardState};
use super::wanted::Wanted;
use crate::clock;
use crate::config::Config;
use crate::db::open::Databases;
use crate::deploy::Loaded;
use crate::guest::calls::waits::Waits;
use crate::guest::outgoing::Outside;
use crate::lease::handle::Leases;
use crate::metrics::{self, BetweenMetrics};
use crate::shard::sample::Samples;
use crate::shard::slot::Slot;
use crate::store::Store;
use crate::store::probe::{self, ProbeReport};
use crate::threads::Threads;

/// How long an answer from the store is waited for by a probe at start.
pub(super) const PROBE_TIME: Duration = Duration::from_secs(30);

/// A node.
pub(super) struct Node {
    pub config: Arc<Config>,
    pub cluster: Arc<str>,
    /// This node's name.
    pub node: Arc<str>,
    pub store: Store,
    pub slots: Vec<Arc<Slot>>,
    pub changed: watch::Sender<u64>,
    pub databases: Databases,
    /// What each shard is to run.
    pub wanted: ArcSwap<Wanted>,
    /// Which shards wait for which.
    pub waits: Arc<Waits>,
    /// Counts calls between shards.
    pub between: Arc<BetweenMetrics>,
    /// The way of guests to hosts that they are granted.
    pub outside: Arc<Outside>,
    /// What calls come to, by revision.
    pub samples: Arc<Samples>,
    /// What follows the rollout record; none where the node was started with a guest of its own.
    pub deployed: Option<Deployed>,
    /// Held by whoever swaps.
    pub swapping: tokio::sync::Mutex<()>,
    pub probe: Mutex<ProbeState>,
    /// Which shards are whose, where that is fixed; none where leases say it.
    pub fixed: Option<Vec<bool>>,
    /// Whether the first round of the lease loop was made.
    pub settled: AtomicBool,
    /// All of this node's share has run at once, some time.
    pub full: AtomicBool,
    /// This node's place in its cluster.
    pub leases: Arc<Leases>,
    /// The runner's queue.
    pub runner: mpsc::UnboundedSender<RunnerEvent>,
    /// The way to other nodes, once the cluster's record was read.
    pub peers: OnceLock<Arc<Peers>>,
    pub stop: CancellationToken,
    pub tasks: TaskTracker,
    // Last, so that everything else is gone when the threads end.
    pub threads: Threads,
}

/// Stops the node when the last handle of the cluster is dropped.
pub(super) struct Alive(pub CancellationToken);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Node {
    /// The way to other nodes, where there are any.
    pub fn peers(&self) -> Option<&Peers> {
        self.peers.get().map(|peers| &**peers)
    }

    /// From now on other nodes are reached through this.
    pub fn set_peers(&self, peers: Arc<Peers>) {
        // A second one does not come: a node starts once.
        _ = self.peers.set(peers);
    }

    /// Whether a shard is this node's to run, as far as it knows.
    pub fn is_mine(&self, slot: &Slot) -> bool {
        match &self.fixed {
            Some(fixed) => fixed[slot.shard() as usize],
            None => matches!(
                slot.local(),
                Local::Opening | Local::Open { .. } | Local::Refusing
            ),
        }
    }

    /// Whether every shard that is this node's to run runs. A node that has just joined is not ready before it has its share; from then on
    /// a shard that comes does not make it unready while it opens.
    pub fn share_ready(&self) -> bool {
        let settled = self.fixed.is_some() || self.settled.load(Ordering::Acquire);
        let full = self.full.load(Ordering::Acquire);
        let arrives =
            |slot: &Slot| full && slot.state() == ShardState::Starting && !slot.attempted();
        let mut running = 0;
        let ready = settled
            && self.slots.iter().all(|slot| {
                running += u32::from(slot.is_ready());
                slot.is_ready() || !self.is_mine(slot) || arrives(slot)
            });
        let ready = ready && (full || running >= self.leases.share());
        if ready && !full {
            self.full.store(true, Ordering::Release);
        }
        ready
    }

    /// The shards that are this node's to run and do not.
    pub fn not_ready(&self) -> Vec<ShardReport> {
        let slots = self.slots.iter();
        slots
            .filter(|slot| self.is_mine(slot) && !slot.is_ready())
            .map(|slot| slot.report())
            .collect()
    }

    /// What a shard that opens begins with.
    ///
    /// # Errors
    /// Why this node has nothing for it.
    pub fn opens_with(&self, shard: u32) -> Result<Arc<Loaded>, Arc<str>> {
        let wanted = self.wanted.load();
        match &self.deployed {
            Some(deployed) => deployed.opens_with(&wanted, shard),
            None => wanted.opens_with(shard),
        }
    }

    /// Ends the pause before a shard that is down is opened again.
    ///
    /// # Errors
    /// When the node has no runner any more.
    pub fn retry(&self, shard: u32) -> Result<(), ()> {
        let retry = RunnerEvent::Command(RunnerCommand::Retry { shard });
        self.runner.send(retry).map_err(drop)
    }

    pub fn set_probe(&self, status: ProbeStatus, error: Option<String>) {
        let mut probe = self.probe.lock().unwrap_or_else(PoisonError::into_inner);
        probe.status = status;
        if error.is_some() {
            probe.last_error = error;
        }
    }

    /// Probes the store.
    pub async fn probe_now(&self, timeout: Duration) -> ProbeReport {
        let report = probe::probe(&self.store, &self.config.path, timeout).await;
        metrics::probed(&self.cluster, report.passed());
        report
    }

    /// How long the node may take to give its leases away.
    pub fn leave_time(&self) -> Duration {
        match self.fixed {
            Some(_) => Duration::ZERO,
            None => self.config.shard.close_timeout * 2 + self.config.lease.ttl,
        }
    }

    /// Stops every shard and waits for it.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.tasks.close();
        // A shard's guest and its database each have the close timeout.
        let limit = self.config.limits.start_time * 2
            + self.config.limits.migrate_step_time
            + self.config.shard.close_timeout * 3
            + self.config.shard.open_timeout
            + self.leave_time()
            + Duration::from_secs(10);
        if clock::timeout(limit, self.tasks.wait()).await.is_err() {
            let open: Vec<u32> = self
                .slots
                .iter()
                .filter(|slot| slot.handle().is_some())
                .map(|slot| slot.report().shard)
                .collect();
            tracing::error!(?open, ?limit, "shards did not stop in time");
            return;
        }
        if let Some(peers) = self.peers() {
            peers.ended().await;
        }
    }

    /// Samples what nothing else tells, until the node stops.
    pub async fn sample(self: Arc<Self>) {
        let mut pause = Duration::ZERO;
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = clock::sleep(pause) => pause = self.config.lag_interval,
            }
            if let Some(peers) = self.peers() {
                peers.metrics.parked(peers.parking.parked());
            }
            let now = clock::now();
            for slot in &self.slots {
                if let Some(handle) = slot.handle() {
                    let db = handle.db();
                    slot.metrics.lag(db.visible_seq(), db.gate().durable_seq());
                    slot.metrics.queued(handle.queued());
                    slot.metrics.timers(handle.timers());
                    handle.queries().trim(now);
                }
            }
        }
    }
}

//! The place of a shard on this node: what it is doing, why it last failed, and the handle while it is open.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwapOption;
use quarry_core::lease::record::NodeName;
use quarry_core::route::Local;
use tokio::sync::watch;

use super::ShardHandle;
use crate::clock;
use crate::cluster::status::{ShardReport, ShardState};
use crate::metrics::{CallMetrics, ShardMetrics};
use crate::store::kill_switch::KillSwitch;

/// One shard's place. Everyone who asks for the shard looks here.
pub struct Slot {
    shard: u32,
    node: Arc<str>,
    handle: ArcSwapOption<ShardHandle>,
    state: Mutex<State>,
    /// Tells of each change of any slot of the node.
    changed: watch::Sender<u64>,
    local: Mutex<Here>,
    /// The store of the newest opening.
    store: ArcSwapOption<KillSwitch>,
    /// The shard's metrics.
    pub metrics: ShardMetrics,
    /// The metrics of its calls.
    pub calls: CallMetrics,
}

/// What the runner has of the shard.
struct Here {
    local: Local,
    /// For whom it was closed, until it is opened again.
    left_for: Option<NodeName>,
}

struct State {
    state: ShardState,
    since_ms: i64,
    last_error: Option<String>,
    writer_epoch: Option<u64>,
    /// Of the newest opening.
    generation: u64,
    traps: u64,
    opens: u64,
    /// Whether its first start has been tried, with whatever success.
    attempted: bool,
    /// Whether it is open: what its guest does is of no account after that.
    live: bool,
}

impl Slot {
    /// The place of a shard that nobody tried to open yet.
    #[must_use]
    pub fn new(cluster: &str, shard: u32, node: Arc<str>, changed: watch::Sender<u64>) -> Self {
        let state = State {
            state: ShardState::Unassigned,
            since_ms: clock::wall_ms(),
            last_error: None,
            writer_epoch: None,
            generation: 0,
            traps: 0,
            opens: 0,
            attempted: false,
            live: false,
        };
        Self {
            shard,
            node,
            handle: ArcSwapOption::empty(),
            state: Mutex::new(state),
            changed,
            local: Mutex::new(Here {
                local: Local::None,
                left_for: None,
            }),
            store: ArcSwapOption::empty(),
            metrics: ShardMetrics::new(cluster, shard),
            calls: CallMetrics::new(cluster, shard),
        }
    }

    /// The shard's number.
    #[must_use]
    pub fn shard(&self) -> u32 {
        self.shard
    }

    /// What the runner has of it, and until when.
    #[must_use]
    pub fn local(&self) -> Local {
        self.lock_local().local.clone()
    }

    /// For whom it is being closed, or was when it was open last: what this node knows before any table of routes shows it.
    #[must_use]
    pub fn left_for(&self) -> Option<NodeName> {
        self.lock_local().left_for.clone()
    }

    /// The runner has this of it now.
    pub fn set_local(&self, to: Local) {
        let before = {
            let mut here = self.lock_local();
            match &to {
                Local::Closing { successor } => here.left_for.clone_from(successor),
                Local::None => {}
                Local::Opening | Local::Open { .. } | Local::Refusing => here.left_for = None,
            }
            std::mem::replace(&mut here.local, to.clone())
        };
        // A deadline that moves on wakes nobody.
        if std::mem::discriminant(&before) != std::mem::discriminant(&to) {
            self.changed.send_modify(|version| *version += 1);
        }
    }

    fn lock_local(&self) -> MutexGuard<'_, Here> {
        self.local.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shard, while it is open and its guest was started. A lock-free read.
    #[must_use]
    pub fn handle(&self) -> Option<Arc<ShardHandle>> {
        self.handle.load_full()
    }

    /// What the shard is doing.
    #[must_use]
    pub fn state(&self) -> ShardState {
        self.lock().state
    }

    /// Whether it serves calls.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.state() == ShardState::Running && self.handle.load().is_some()
    }

    /// Whether its first start has been tried.
    #[must_use]
    pub fn attempted(&self) -> bool {
        self.lock().attempted
    }

    /// Why it last failed.
    #[must_use]
    pub fn last_error(&self) -> Option<String> {
        self.lock().last_error.clone()
    }

    /// Why its writes do not become durable, while they do not.
    #[must_use]
    pub fn store_trouble(&self) -> Option<Arc<String>> {
        self.store.load().as_ref()?.trouble()
    }

    /// Everything about it.
    #[must_use]
    pub fn report(&self) -> ShardReport {
        let handle = self.handle();
        let state = self.lock();
        ShardReport {
            shard: self.shard,
            node: (state.state != ShardState::Unassigned).then(|| self.node.clone()),
            status: state.state,
            since_ms: state.since_ms,
            last_error: state.last_error.clone(),
            generation: state.generation,
            writer_epoch: state.writer_epoch,
            revision: handle.as_ref().map(|handle| handle.revision()),
            durable_seq: handle
                .as_ref()
                .map(|handle| handle.db().gate().durable_seq()),
            applied_seq: handle.as_ref().map(|handle| handle.db().visible_seq()),
            queued: handle.as_ref().map_or(0, |handle| handle.queued()),
            traps: state.traps,
            opens: state.opens,
            why: None,
            pinned: false,
        }
    }

    /// What is known of a shard that is not here, and of which nothing is known.
    #[must_use]
    pub fn blank(&self, status: ShardState) -> ShardReport {
        ShardReport {
            shard: self.shard,
            node: None,
            status,
            since_ms: clock::wall_ms(),
            last_error: None,
            generation: 0,
            writer_epoch: None,
            revision: None,
            durable_seq: None,
            applied_seq: None,
            queued: 0,
            traps: 0,
            opens: 0,
            why: None,
            pinned: false,
        }
    }

    /// The shard does something else now.
    pub fn set(&self, to: ShardState) {
        self.change(|state| state.state = to);
    }

    /// The shard failed.
    pub fn fail(&self, to: ShardState, error: String) {
        self.change(|state| {
            state.state = to;
            state.last_error = Some(error);
        });
    }

    /// Its guest does something else now; of no account once the shard is being closed.
    pub fn guest(&self, to: ShardState) {
        self.change(|state| {
            if state.live {
                state.state = to;
            }
        });
    }

    /// Its guest trapped.
    pub fn trapped(&self, to: ShardState, error: String) {
        self.change(|state| {
            if state.live {
                state.state = to;
            }
            state.traps += 1;
            state.last_error = Some(error);
        });
    }

    /// What its last failure was, in words that could not be shown before.
    pub fn explain(&self, error: String) {
        self.change(|state| state.last_error = Some(error));
    }

    /// Its first start was tried.
    pub fn set_attempted(&self) {
        self.change(|state| state.attempted = true);
    }

    /// Its database is open.
    pub fn opened(&self, writer_epoch: u64, generation: u64, store: KillSwitch) {
        self.store.store(Some(Arc::new(store)));
        self.change(|state| {
            state.writer_epoch = Some(writer_epoch);
            state.generation = generation;
            state.opens += 1;
            state.live = true;
        });
    }

    /// It can be called.
    pub fn publish(&self, handle: Arc<ShardHandle>) {
        self.handle.store(Some(handle));
        self.changed.send_modify(|version| *version += 1);
    }

    /// It cannot be called any more.
    pub fn withdraw(&self) {
        self.handle.store(None);
        self.change(|state| {
            state.writer_epoch = None;
            state.live = false;
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        let before = state.state;
        change(&mut state);
        if state.state != before {
            state.since_ms = clock::wall_ms();
        }
        drop(state);
        self.changed.send_modify(|version| *version += 1);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

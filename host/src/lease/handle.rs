//! The node's place in its cluster, as the rest of the node sees it: who has which shard, who else is there, and a way to tell the loop.
//!
//! Reading a route takes no lock and asks nobody. Everything else goes through a bounded queue to the loop, which answers at once or not
//! at all: no caller waits for the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use quarry_core::control::{Command, CommandError, NodeStatus, ShardLease};
use quarry_core::lease::record::{NodeName, SessionId};
use quarry_core::route::RouteTable;
use tokio::sync::{mpsc, oneshot, watch};

use crate::clock;
use crate::record::Secret;

/// What may wait for the loop. It works that off in microseconds.
const QUEUE: usize = 1024;
/// How long the loop may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// This node, as the others know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Me {
    /// Its name.
    pub name: NodeName,
    /// Its session; zero where nodes have none (`local`, `static`).
    pub session: SessionId,
    /// Where its internal listener is reached; empty when it has none.
    pub advertise: String,
}

/// Tells a peer that a shard was freed for it. Best effort: who does not hear of it finds it in its next round.
#[async_trait::async_trait]
pub trait Notifier: Send + Sync + 'static {
    /// Tells it. The caller bounds the time, and does not wait for it.
    async fn notify(&self, peer: &NodeName, address: &str, shard: u32);
}

/// Why the loop did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The strategy has no loop.
    #[error(
        "the strategy `{strategy}` has no leases: only with strategy = \"lease\" shards move and nodes drain"
    )]
    NoLeases {
        /// The strategy.
        strategy: String,
    },
    /// The command makes no sense now.
    #[error(transparent)]
    Refused(#[from] CommandError),
    /// The loop has not begun: the node cannot run what is deployed.
    #[error(
        "this node has not joined its cluster: it cannot run what is deployed there, as its `quarry rollout status` says"
    )]
    Outside,
    /// The loop has too much to do.
    #[error("{QUEUE} commands wait for this node already; try again later")]
    Busy,
    /// The node stops.
    #[error("this node has left its cluster")]
    Left,
    /// The loop did not answer.
    #[error("this node's lease loop did not answer within {ANSWER:?}")]
    TimedOut,
}

/// What the loop is asked.
pub(crate) enum Want {
    Command(Command, oneshot::Sender<Result<(), CommandError>>),
    Notice(u32),
    RouteMiss(u32),
    Nodes(oneshot::Sender<Vec<NodeStatus>>),
    Shards(oneshot::Sender<Vec<ShardLease>>),
}

/// The node's place in its cluster. One per node.
pub struct Leases {
    strategy: String,
    me: ArcSwap<Me>,
    secret: ArcSwapOption<Secret>,
    routes: watch::Sender<Arc<RouteTable>>,
    current: ArcSwap<RouteTable>,
    notifier: ArcSwapOption<Arc<dyn Notifier>>,
    /// How many shards are to be this node's by the last plan.
    share: AtomicU32,
    /// Whether the loop waits for guests before it begins.
    outside: AtomicBool,
    wants: Option<mpsc::Sender<Want>>,
}

impl Leases {
    /// The place of a node that has leases, and the queue of its loop.
    pub(crate) fn leased(strategy: &str, me: Me) -> (Arc<Self>, mpsc::Receiver<Want>) {
        let (wants, queue) = mpsc::channel(QUEUE);
        let leases = Self::new(strategy, me, RouteTable::default(), Some(wants));
        (Arc::new(leases), queue)
    }

    /// The place of a node where everything is fixed.
    pub(crate) fn fixed(strategy: &str, me: Me, routes: RouteTable) -> Arc<Self> {
        Arc::new(Self::new(strategy, me, routes, None))
    }

    fn new(strategy: &str, me: Me, routes: RouteTable, wants: Option<mpsc::Sender<Want>>) -> Self {
        let routes = Arc::new(routes);
        Self {
            strategy: strategy.into(),
            me: ArcSwap::from_pointee(me),
            secret: ArcSwapOption::empty(),
            current: ArcSwap::new(routes.clone()),
            routes: watch::Sender::new(routes),
            notifier: ArcSwapOption::empty(),
            share: AtomicU32::new(0),
            outside: AtomicBool::new(false),
            wants,
        }
    }

    /// Where every shard is, as this node knows. A lock-free read.
    #[must_use]
    pub fn routes(&self) -> Arc<RouteTable> {
        self.current.load_full()
    }

    /// The same, for who waits for it to change.
    #[must_use]
    pub fn watch_routes(&self) -> watch::Receiver<Arc<RouteTable>> {
        self.routes.subscribe()
    }

    /// This node, with the session that it has now.
    #[must_use]
    pub fn me(&self) -> Arc<Me> {
        self.me.load_full()
    }

    /// What the nodes of the cluster know each other by, once the cluster's record was read.
    #[must_use]
    pub fn secret(&self) -> Option<Arc<Secret>> {
        self.secret.load_full()
    }

    /// Whether leases say who has a shard.
    #[must_use]
    pub fn leased_strategy(&self) -> bool {
        self.wants.is_some()
    }

    /// Tells peers through this from now on.
    pub fn set_notifier(&self, notifier: Arc<dyn Notifier>) {
        self.notifier.store(Some(Arc::new(notifier)));
    }

    /// A peer freed a shard for this node. Dropped when the loop is busy: it finds out by itself.
    pub fn notice(&self, shard: u32) {
        self.hint(Want::Notice(shard));
    }

    /// A peer said that it does not have a shard though the routes say so. Dropped when the loop is busy.
    pub fn route_miss(&self, shard: u32) {
        self.hint(Want::RouteMiss(shard));
    }

    fn hint(&self, want: Want) {
        if let Some(wants) = &self.wants {
            _ = wants.try_send(want);
        }
    }

    /// Has this node do something: move one of its shards, take no more, take some again, give all away.
    ///
    /// # Errors
    /// When it makes no sense now, or there is no loop to do it.
    pub async fn command(&self, command: Command) -> Result<(), AskError> {
        self.ask(|answer| Want::Command(command, answer))
            .await?
            .map_err(AskError::Refused)
    }

    /// All nodes as this one knows them.
    ///
    /// # Errors
    /// When there is no loop to tell.
    pub async fn nodes(&self) -> Result<Vec<NodeStatus>, AskError> {
        self.ask(Want::Nodes).await
    }

    /// All leases as this node knows them.
    ///
    /// # Errors
    /// When there is no loop to tell.
    pub async fn shards(&self) -> Result<Vec<ShardLease>, AskError> {
        self.ask(Want::Shards).await
    }

    async fn ask<T>(&self, want: impl FnOnce(oneshot::Sender<T>) -> Want) -> Result<T, AskError> {
        let Some(wants) = &self.wants else {
            return Err(AskError::NoLeases {
                strategy: self.strategy.clone(),
            });
        };
        // Nobody would answer, and who asks for a status is not to wait for that.
        if self.outside.load(Ordering::Acquire) {
            return Err(AskError::Outside);
        }
        let (answer, answered) = oneshot::channel();
        wants.try_send(want(answer)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => AskError::Busy,
            mpsc::error::TrySendError::Closed(_) => AskError::Left,
        })?;
        match clock::timeout(ANSWER, answered).await {
            Ok(answer) => answer.map_err(|_| AskError::Left),
            Err(_) => Err(AskError::TimedOut),
        }
    }

    pub(crate) fn set_routes(&self, routes: RouteTable) {
        let routes = Arc::new(routes);
        self.current.store(routes.clone());
        self.routes.send_replace(routes);
    }

    pub(crate) fn set_session(&self, session: SessionId) {
        let me = self.me();
        if me.session != session {
            self.me.store(Arc::new(Me {
                session,
                ..Me::clone(&me)
            }));
        }
    }

    /// How many shards are to be this node's by the last plan of its loop; 0 without one.
    pub(crate) fn share(&self) -> u32 {
        self.share.load(Ordering::Acquire)
    }

    pub(crate) fn set_share(&self, share: u32) {
        self.share.store(share, Ordering::Release);
    }

    /// Says whether the loop waits for guests before it begins.
    pub(crate) fn set_outside(&self, outside: bool) {
        self.outside.store(outside, Ordering::Release);
    }

    pub(crate) fn set_secret(&self, secret: Option<Secret>) {
        self.secret.store(secret.map(Arc::new));
    }

    pub(crate) fn notifier(&self) -> Option<Arc<dyn Notifier>> {
        self.notifier.load().as_deref().cloned()
    }
}

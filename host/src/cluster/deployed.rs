//! A node whose guests are deployed through the bucket: it follows the rollout record there.
//!
//! - This file reads the record: at the start, then as often as `deploy.poll` says, every second while a rollout is in progress, and at once
//!   when a peer says that it has changed.
//! - `adopter` has the shards of this node run what the record says.
//! - `said` is what a node tells others of that.
//! - `coordinator` carries a rollout on; any node can.
//! - `outside` is what nodes hear of one that cannot run it, and has not joined them for that.
//! - `orders` is what operators want; `super::rollout` what they are told.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quarry_core::deploy::{Outcome, RolloutRecord};
use tokio::sync::{Notify, watch};

use self::adopter::Adopting;
use self::outside::Outside;
use super::node::Node;
use super::rollout::outcome_word;
use super::wanted::Wanted;
use crate::clock;
use crate::deploy::{Catalog, Error, Objects, Stored};
use crate::metrics::DeployMetrics;
use crate::transport::Ask;

pub(super) mod adopter;
pub(super) mod coordinator;
pub(super) mod orders;
pub(super) mod outside;
pub mod said;

pub(super) use adopter::{another, ready};

/// How often the record is read while a rollout is in progress.
const ACTIVE_POLL: Duration = Duration::from_secs(1);
/// The longest pause after the record could not be read.
const RETRY_POLL: Duration = Duration::from_secs(2);
/// How long a peer may take to hear that the record has changed.
const NOTICE: Duration = Duration::from_secs(1);

/// What a node has that follows the rollout record.
pub(super) struct Deployed {
    pub objects: Objects,
    pub catalog: Catalog,
    pub metrics: DeployMetrics,
    pub outside: Outside,
    followed: watch::Sender<Followed>,
    /// Somebody says that the record has changed.
    look: Notify,
    /// A shard has opened, or may be tried again.
    poke: Notify,
    adopting: Mutex<Adopting>,
    cluster: Box<str>,
    /// The newest rollout whose end this node has told, or found as it began to follow.
    told: AtomicU64,
}

/// The record as this node last saw it.
#[derive(Debug, Clone, Default)]
pub(super) struct Followed {
    /// None where there is none, or it was never read.
    pub stored: Option<Arc<Stored>>,
    /// When it was first read in this version; none before the first read.
    pub since: Option<Instant>,
    /// Why it could not be read when it was last tried.
    pub trouble: Option<Arc<str>>,
}

impl Followed {
    /// What it says; of a cluster to which nothing was ever deployed, that there is nothing.
    pub fn record(&self) -> RolloutRecord {
        let stored = self.stored.as_ref();
        stored.map_or_else(RolloutRecord::fresh, |stored| stored.record.clone())
    }

    /// How often it was written.
    pub fn counter(&self) -> u64 {
        self.stored
            .as_ref()
            .map_or(0, |stored| stored.record.counter)
    }

    fn is_active(&self) -> bool {
        let stored = self.stored.as_ref();
        stored.is_some_and(|stored| stored.record.active.is_some())
    }
}

impl Deployed {
    pub fn new(objects: Objects, catalog: Catalog, cluster: &str) -> Self {
        Self {
            objects,
            catalog,
            metrics: DeployMetrics::new(cluster),
            outside: Outside::default(),
            followed: watch::Sender::new(Followed::default()),
            look: Notify::new(),
            poke: Notify::new(),
            adopting: Mutex::default(),
            cluster: cluster.into(),
            told: AtomicU64::new(0),
        }
    }

    /// What each shard is to run before anything was read.
    pub fn unread() -> Wanted {
        Wanted::nothing("the rollout record was not read yet".into())
    }

    /// The record as it is followed now.
    pub fn followed(&self) -> Followed {
        self.followed.borrow().clone()
    }

    /// The same, for who waits for it to change.
    pub fn watch(&self) -> watch::Receiver<Followed> {
        self.followed.subscribe()
    }

    /// Looks at the record at once.
    pub fn look(&self) {
        self.look.notify_one();
    }

    /// Looks at the shards at once.
    pub fn poke(&self) {
        self.poke.notify_one();
    }

    /// This node wrote the record, or read it newer than before.
    pub fn learn(&self, stored: Stored) {
        self.followed.send_if_modified(|followed| {
            let newer = stored.record.counter > followed.counter();
            if newer {
                self.tell_end(&stored.record, followed.since.is_none());
                *followed = Followed {
                    stored: Some(Arc::new(stored.clone())),
                    since: Some(clock::now()),
                    trouble: None,
                };
            }
            newer
        });
    }

    /// Tells of the end of a rollout, whoever wrote it, once. What had ended before this node began to follow is no news.
    fn tell_end(&self, record: &RolloutRecord, first: bool) {
        let Some(ended) = &record.last else { return };
        let (cluster, rollout, revision) = (&*self.cluster, ended.number, ended.target);
        if self.told.fetch_max(rollout, Ordering::AcqRel) >= rollout || first {
            return;
        }
        self.metrics.ended(outcome_word(ended.outcome));
        let why = &*ended.why;
        match ended.outcome {
            Outcome::Adopted => {
                tracing::info!(
                    event = "deploy.adopted",
                    cluster,
                    rollout,
                    revision,
                    "every shard runs the revision"
                );
            }
            Outcome::Refused => {
                tracing::warn!(
                    event = "deploy.refused",
                    cluster,
                    rollout,
                    revision,
                    why,
                    "no shard was touched"
                );
            }
            Outcome::RolledBack => {
                tracing::warn!(
                    event = "deploy.rolled_back",
                    cluster,
                    rollout,
                    revision,
                    why,
                    "every shard runs what it ran before"
                );
            }
            Outcome::Superseded => {
                tracing::warn!(
                    event = "deploy.superseded",
                    cluster,
                    rollout,
                    revision,
                    why,
                    "another rollout took its place"
                );
            }
        }
    }

    fn adopting(&self) -> MutexGuard<'_, Adopting> {
        self.adopting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the record once, if it has changed.
    async fn read(&self) {
        let before = self.followed();
        let found = match &before.stored {
            Some(seen) => self.objects.rollout_since(seen).await,
            None => self.objects.rollout().await,
        };
        match found {
            Ok(Some(stored)) if stored.record.counter > before.counter() => self.learn(stored),
            // What this node wrote meanwhile may have been read before it was there; what is older the second time, too, was put there.
            Ok(Some(_)) => match self.objects.rollout().await {
                Ok(Some(stored)) => self.replace(stored),
                Ok(None) => {}
                Err(error) => self.failed(&error),
            },
            Ok(None) => self.unchanged(),
            Err(error) => self.failed(&error),
        }
    }

    fn unchanged(&self) {
        self.followed.send_if_modified(|followed| {
            let news = followed.since.is_none() || followed.trouble.is_some();
            followed.since.get_or_insert_with(clock::now);
            followed.trouble = None;
            news
        });
    }

    /// Somebody put another record in the place of a newer one.
    fn replace(&self, stored: Stored) {
        self.followed.send_if_modified(|followed| {
            let nonce = |stored: &Stored| (stored.record.counter, stored.record.nonce);
            let seen = followed.stored.as_deref().map(nonce);
            if seen == Some(nonce(&stored)) {
                return false;
            }
            let mut stored = stored.clone();
            let stands = followed.record().stable;
            if stored.record.stable == 0 && stands != 0 {
                // It was lost and begun anew. What shards run is still what they go back to; the next step writes that.
                tracing::error!(
                    event = "deploy.record",
                    revision = stands,
                    "the rollout record says that nothing was deployed before; shards go on with what they run"
                );
                stored.record.stable = stands;
            }
            self.tell_end(&stored.record, followed.since.is_none());
            *followed = Followed {
                stored: Some(Arc::new(stored)),
                since: Some(clock::now()),
                trouble: None,
            };
            true
        });
    }

    fn failed(&self, error: &Error) {
        let why: Arc<str> = error.to_string().into();
        self.followed.send_if_modified(|followed| {
            let news = followed.trouble.as_deref() != Some(&*why);
            if news {
                tracing::warn!(event = "deploy.record", %error, "the rollout record cannot be read; shards go on with what they run");
            }
            followed.trouble = Some(why.clone());
            news
        });
    }

    /// Follows the record until the node stops.
    async fn follow(&self, node: &Node) {
        loop {
            self.read().await;
            let followed = self.followed();
            let poll = node.config.deploy.poll;
            let pause = match (followed.is_active(), &followed.trouble) {
                (true, _) => poll.min(ACTIVE_POLL),
                (false, Some(_)) => poll.min(RETRY_POLL),
                (false, None) => poll,
            };
            tokio::select! {
                () = node.stop.cancelled() => return,
                () = self.look.notified() => {}
                () = clock::sleep(pause) => {}
            }
        }
    }
}

/// Begins to follow the record, to adopt what it says, and to carry rollouts on.
pub(super) fn begin(node: &Arc<Node>) {
    if node.deployed.is_none() {
        return;
    }
    let control = node.threads.control();
    let following = node.clone();
    let follow = async move {
        if let Some(deployed) = &following.deployed {
            deployed.follow(&following).await;
        }
    };
    node.tasks.spawn_on(follow, &control);
    node.tasks.spawn_on(adopter::adopt(node.clone()), &control);
    node.tasks
        .spawn_on(coordinator::coordinate(node.clone()), &control);
}

/// Tells all peers that the record has changed. Who does not hear of it finds out by itself.
fn notice(node: &Arc<Node>, counter: u64) {
    for (_, destination) in node.peers_alive() {
        let Some(to) = destination else { continue };
        let node = node.clone();
        let control = node.threads.control();
        let tasks = node.tasks.clone();
        let telling = async move {
            if let Some(peers) = node.peers() {
                let told = peers.transport.ask(&to, Ask::Rollout { counter }, NOTICE);
                if let Err(error) = told.await {
                    tracing::debug!(peer = to.node, %error, "a peer did not hear that the rollout record has changed");
                }
            }
        };
        tasks.spawn_on(telling, &control);
    }
}

//! How a node starts: configuration, store, probe, record, threads, shards.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use quarry_core::strategy::Strategy;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Cluster;
use super::deployed::{self, Deployed, outside};
use super::founding::Founding;
use super::node::{Alive, Node, PROBE_TIME};
use super::peers::{Bound, Peers};
use super::place::{self, Place, Waiting};
use super::status::{ProbeState, ProbeStatus, ShardState};
use super::wanted::Wanted;
use crate::clock;
use crate::config::{self, Config, Probe};
use crate::db::cache::NodeCache;
use crate::db::maintenance::{self, Maintenance};
use crate::db::open::Databases;
use crate::db::{merge, settings};
use crate::deploy::grants::grants;
use crate::deploy::{Catalog, DeployError, Loaded, Loader, Objects};
use crate::gate::flusher;
use crate::guest::outgoing::Outside;
use crate::guest::{Failure, Limits, Module};
use crate::lease::LeaseStore;
use crate::lease::driver::Progress;
use crate::metrics;
use crate::record;
use crate::shard::sample::Samples;
use crate::shard::slot::Slot;
use crate::store::{self, Store, StoreKind};
use crate::threads::{Sizes, Threads};
use crate::transport::memory;
use crate::transport::server::BindError;

/// The pauses of a probe in the background.
const PROBE_FIRST: Duration = Duration::from_secs(1);
const PROBE_LONGEST: Duration = Duration::from_secs(30);

/// Why a node did not start. Nothing is left running.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// The SlateDB settings are wrong.
    #[error(transparent)]
    Settings(#[from] settings::Error),
    /// The store is wrong, unreachable, or does not do what Quarry needs.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The data belongs to a cluster of another shape.
    #[error(transparent)]
    Record(#[from] record::Error),
    /// The store did not answer in time.
    #[error(
        "the cluster record in {store} could not be read and checked within {limit:?}: see that the store is reachable and answers"
    )]
    RecordTimeout {
        /// The store, without credentials.
        store: String,
        /// The time it had.
        limit: Duration,
    },
    /// The merge operator is unknown.
    #[error(transparent)]
    Merge(#[from] merge::Error),
    /// The guest refuses its options, or fails when asked.
    #[error("the guest `{module}` cannot run: {reason}")]
    Guest {
        /// The module's name.
        module: Arc<str>,
        /// The guest's words.
        reason: String,
    },
    /// What a cluster begins with could not be deployed to it.
    #[error("what the cluster begins with is not deployed: {0}")]
    Deploy(#[from] DeployError),
    /// The system gives no more threads.
    #[error("the node's threads did not start: {0}")]
    Threads(std::io::Error),
    /// The maintenance options are wrong.
    #[error(transparent)]
    Maintenance(#[from] maintenance::InvalidOptions),
    /// The internal listener does not listen.
    #[error(transparent)]
    Internal(#[from] BindError),
    /// Another node of this name is in the cluster.
    #[error(
        "another node of the cluster is named {name:?}{}, and it lives: give each node a name of its own (`node`, --name)",
        if address.is_empty() { String::new() } else { format!(" (at {address})") }
    )]
    NameTaken {
        /// The name.
        name: Arc<str>,
        /// Where the other is reached; empty when it does not say.
        address: String,
    },
}

impl StartError {
    /// A key whose value does not fit with others.
    pub(super) fn misfit(key: &str, message: String) -> Self {
        Self::Config(config::Error::one(key, message))
    }
}

/// How a node is started, for who wants more than [`Cluster::start`].
///
/// ```
/// # use std::sync::Arc;
/// # use quarry::config::Config;
/// # use quarry::guest::native::{self, Logic};
/// # use quarry::guest::{GuestError, InstanceContext, Reply, Request};
/// use quarry::Cluster;
/// use quarry::store::Store;
/// use quarry_core::placement::{Plan, View};
/// use quarry_core::strategy::Strategy;
///
/// /// Gives this process every other shard; somebody else has to take the rest.
/// #[derive(Debug)]
/// struct Even;
///
/// impl Strategy for Even {
///     fn name(&self) -> &str {
///         "even"
///     }
///
///     // No leases: the plan is made once, and a shard is opened where it says.
///     fn leased(&self) -> bool {
///         false
///     }
///
///     fn plan(&self, view: &View) -> Plan {
///         let me = view.nodes.keys().next().cloned();
///         let target = |shard: usize| (shard % 2 == 0).then(|| me.clone()).flatten();
///         Plan { targets: (0..view.shards.len()).map(target).collect() }
///     }
/// }
/// # struct Nothing;
/// # #[async_trait::async_trait]
/// # impl Logic for Nothing {
/// #     async fn call(&mut self, _: &InstanceContext, _: &Request) -> Result<Reply, GuestError> {
/// #         Ok(Reply::new("done"))
/// #     }
/// # }
/// # let module = native::module("main", 1, |_| Nothing);
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
///
/// let config = Config { shards: 4, ..Config::default() };
/// let store = Store::open("memory:", &Default::default()).unwrap();
/// let cluster = Cluster::builder(Arc::new(config), module).store(store).strategy(Arc::new(Even)).start().await.unwrap();
/// assert_eq!(cluster.local_shards(), [0, 2]);
/// cluster.stop().await;
/// # });
/// ```
pub struct ClusterBuilder {
    config: Arc<Config>,
    guest: Guest,
    store: Option<Store>,
    strategy: Option<Arc<dyn Strategy>>,
    leases: Option<Arc<dyn LeaseStore>>,
    network: Option<memory::Network>,
}

/// Where a node's guests come from.
enum Guest {
    /// Every shard runs this.
    Pinned(Arc<dyn Module>),
    /// The rollout record in the bucket says what each shard runs; this makes guests of what lies there.
    Deployed {
        loader: Arc<dyn Loader>,
        /// What the cluster begins with, where nothing was deployed to it.
        first: Option<Bytes>,
    },
}

impl ClusterBuilder {
    fn new(config: Arc<Config>, guest: Guest) -> Self {
        Self {
            config,
            guest,
            store: None,
            strategy: None,
            leases: None,
            network: None,
        }
    }

    /// With a component that becomes the first revision of a cluster to which nothing was deployed yet, with the configuration's
    /// `module.name` and `module.options`. Of several nodes that start so at once one wins. Where something was deployed, this changes
    /// nothing, and a warning says so where that is something else. It has no effect on a node with a guest of its own.
    #[must_use]
    pub fn first(mut self, component: Bytes) -> Self {
        if let Guest::Deployed { first, .. } = &mut self.guest {
            *first = Some(component);
        }
        self
    }

    /// On a store that is open already (`store` and `store_options` of the configuration are not looked at): one in memory that several
    /// nodes share, or one of the caller's own.
    #[must_use]
    pub fn store(mut self, store: Store) -> Self {
        self.store = Some(store);
        self
    }

    /// With a strategy of the caller's own instead of the one that the configuration names. With [`Strategy::leased`], all nodes of the
    /// cluster must have the same.
    #[must_use]
    pub fn strategy(mut self, strategy: Arc<dyn Strategy>) -> Self {
        self.strategy = Some(strategy);
        self
    }

    /// With leases that lie elsewhere than in the store of the data.
    #[must_use]
    pub fn leases(mut self, leases: Arc<dyn LeaseStore>) -> Self {
        self.leases = Some(leases);
        self
    }

    /// Reaches other nodes of this process without sockets: for tests of several nodes in one process.
    #[must_use]
    pub fn network(mut self, network: memory::Network) -> Self {
        self.network = Some(network);
        self
    }

    /// Starts the node; see [`Cluster::start`].
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start(self) -> Result<Cluster, StartError> {
        let config = self.config;
        config.validate()?;
        let strategy = match self.strategy {
            Some(strategy) => strategy,
            None => place::strategy(&config)?,
        };
        // Before anything is done that a node whose address is taken should not do.
        let bound = Bound::new(&config, strategy.leased(), self.network)?;
        let threads = threads(&config, !matches!(bound, Bound::Nowhere))?;
        let (store, for_leases) = match self.store {
            Some(store) => (store.clone(), store),
            None => {
                let store = Store::open_on(
                    &config.store,
                    &config.store_options,
                    Some(threads.storage()),
                )?;
                if strategy.leased() && store.kind() == StoreKind::Memory {
                    let message = "memory: is this process's own, and leases in it are seen by no other node: name a store that all nodes share, or use strategy = \"local\"";
                    return Err(StartError::misfit("store", message.into()));
                }
                let (url, options) = (&config.store, &config.store_options);
                let leases = store.for_leases(url, options, threads.lease())?;
                (store, leases)
            }
        };
        // Before anything that has metrics is made: handles made earlier count nothing.
        metrics::install();
        let leases = match self.leases {
            Some(leases) => leases,
            None => place::lease_store(&config, &for_leases),
        };
        let place = Place::new(&config, strategy, leases, bound.advertise(&config))?;
        Cluster::run(store, threads, config, self.guest, place, bound).await
    }
}

impl Cluster {
    /// Starts a node: checks the store and the cluster's record, then opens the shards that are its own, and returns once each was tried:
    /// all with the strategy `local`; with `lease` those that it could claim in its first round. Shards that did not open are tried again
    /// in the background; see [`Cluster::await_ready`]. With `probe = "background"` it returns at once, and the shards open when the
    /// store has passed.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start(config: Arc<Config>, module: Arc<dyn Module>) -> Result<Self, StartError> {
        Self::builder(config, module).start().await
    }

    /// As [`Cluster::start`], on a store that is open already; see [`ClusterBuilder::store`].
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start_on(
        store: Store,
        config: Arc<Config>,
        module: Arc<dyn Module>,
    ) -> Result<Self, StartError> {
        Self::builder(config, module).store(store).start().await
    }

    /// Starts a node with parts of the caller's own.
    #[must_use]
    pub fn builder(config: Arc<Config>, module: Arc<dyn Module>) -> ClusterBuilder {
        ClusterBuilder::new(config, Guest::Pinned(module))
    }

    /// A node whose shards run what is deployed to the cluster: what each runs is what the rollout record in the bucket says, which
    /// [`Cluster::deploy`] changes. Until something is deployed the node is there, and each call is answered with the error `not-deployed`.
    /// All nodes of a cluster are started so, or none.
    ///
    /// It takes no shards before it can run what the record says; [`Cluster::rollout`] tells why, and it goes on trying.
    #[must_use]
    pub fn deployed(config: Arc<Config>, loader: Arc<dyn Loader>) -> ClusterBuilder {
        let first = None;
        ClusterBuilder::new(config, Guest::Deployed { loader, first })
    }

    async fn run(
        store: Store,
        threads: Threads,
        config: Arc<Config>,
        guest: Guest,
        place: Place,
        bound: Bound,
    ) -> Result<Self, StartError> {
        let settings = settings::effective(config.settings.clone())?;
        if let Some(name) = &config.merge_operator {
            merge::operator(name)?;
        }
        let cluster: Arc<str> = config.cluster.as_str().into();
        let name: Arc<str> = config.node.as_str().into();
        let (wanted, deployed, founding) = match guest {
            Guest::Pinned(module) => {
                let options: Arc<str> = serde_json::Value::Object(config.module.options.clone())
                    .to_string()
                    .into();
                validate(&module, &options).await?;
                (
                    Wanted::everywhere(Arc::new(Loaded { module, options })),
                    None,
                    None,
                )
            }
            Guest::Deployed { loader, first } => {
                let founding = first.map(|component| Founding::new(component, loader.clone()));
                let objects = Objects::new(&store, &config.path);
                let on = threads.query();
                let catalog = Catalog::new(objects.clone(), loader, config.clone(), on);
                let deployed = Deployed::new(objects, catalog, &cluster);
                (Deployed::unread(), Some(deployed), founding)
            }
        };
        let mut tending = maintenance::Options::new(threads.compaction());
        tending.l0_max_ssts = settings.l0_max_ssts;
        // Below both bounds at which flushes stall.
        let stall = settings.l0_max_ssts.min(settings.l0_max_ssts_per_key);
        tending.l0_trigger = tending.l0_trigger.min(stall.saturating_sub(1));
        let stop = CancellationToken::new();
        let databases = Databases {
            cluster: cluster.clone(),
            store: store.objects(),
            settings,
            merge_operator: config.merge_operator.as_deref().map(Into::into),
            cache: NodeCache::new(config.cache.capacity),
            maintenance: Maintenance::new(tending)?,
            flush: flusher::Options {
                flush_interval: config.shard.flush_interval,
                flush_after: config.shard.flush_after,
                memtable_flush_wal_objects: u32::try_from(config.shard.memtable_flush_wal_objects)
                    .unwrap_or(u32::MAX),
                took: metrics::flushes(&cluster),
            },
            limits: Arc::new(Limits::from(&*config)),
            storage: threads.storage(),
            open_timeout: config.shard.open_timeout,
            close_timeout: config.shard.close_timeout,
            stop: stop.clone(),
        };
        let (changed, _) = watch::channel(0);
        let slots = (0..config.shards)
            .map(|shard| Arc::new(Slot::new(&cluster, shard, name.clone(), changed.clone())))
            .collect();
        let (leases, fixed, runner, waiting) = place.split();
        let node = Arc::new(Node {
            fixed,
            settled: AtomicBool::new(false),
            full: AtomicBool::new(false),
            leases,
            runner,
            peers: std::sync::OnceLock::new(),
            waits: Arc::default(),
            between: Arc::new(metrics::BetweenMetrics::new(&cluster)),
            outside: Outside::new(
                threads.web(),
                config.limits.http_connect_time,
                metrics::OutgoingMetrics::new(&cluster),
            ),
            probe: Mutex::new(ProbeState {
                status: ProbeStatus::Pending,
                last_error: None,
            }),
            wanted: ArcSwap::from_pointee(wanted),
            deployed,
            samples: Arc::new(Samples::new(config.threads.shard)),
            swapping: tokio::sync::Mutex::new(()),
            tasks: TaskTracker::new(),
            stop: stop.clone(),
            config,
            cluster,
            node: name,
            store,
            slots,
            changed,
            databases,
            threads,
        });
        let cluster = Self {
            node: node.clone(),
            _alive: Arc::new(Alive(stop)),
        };
        match node.config.probe {
            Probe::Background => {
                node.tasks.spawn_on(
                    in_background(node.clone(), waiting, bound, founding),
                    &node.threads.control(),
                );
            }
            probe => {
                check_store(&node, probe == Probe::Before).await?;
                if let Some(founding) = &founding {
                    founding.carry_out(&node).await?;
                }
                Peers::start(&node, bound).await?;
                deployed::begin(&node);
                if let Err(why) = deployed::ready(&node).await {
                    let later = take_shards_later(node.clone(), why, waiting);
                    node.tasks.spawn_on(later, &node.threads.control());
                    return Ok(cluster);
                }
                match open_shards(&node, waiting) {
                    Some(progress) => first_round(&node, progress).await?,
                    None => first_tries(&node).await,
                }
            }
        }
        Ok(cluster)
    }
}

fn threads(config: &Config, others: bool) -> Result<Threads, StartError> {
    let sizes = Sizes {
        shard: config.threads.shard,
        storage: config.threads.storage,
        query: config.threads.query,
        compaction: config.threads.compaction,
        peers: if others { config.threads.peers } else { 0 },
    };
    Threads::start(sizes).map_err(StartError::Threads)
}

/// Whether the guest takes its options.
pub(super) async fn validate(module: &Arc<dyn Module>, options: &str) -> Result<(), StartError> {
    let info = module.describe();
    if !info.exports.options {
        return Ok(());
    }
    module.validate(options).await.map_err(|failure| {
        let reason = match failure {
            Failure::Error(error) => format!("it refuses its options {options}: {}", error.message),
            Failure::Trap(trap) => format!("it failed to check its options: {trap}"),
            Failure::NoRoom(why) => format!("its options were not checked: {why}"),
        };
        StartError::Guest {
            module: info.name.clone(),
            reason,
        }
    })
}

/// Probes the store, and makes sure that the data is this cluster's.
async fn check_store(node: &Arc<Node>, probe: bool) -> Result<(), StartError> {
    if probe {
        let report = node.probe_now(PROBE_TIME).await;
        if let Err(error) = report.into_result() {
            node.set_probe(ProbeStatus::Failed, Some(error.to_string()));
            return Err(error.into());
        }
        node.set_probe(ProbeStatus::Passed, None);
        tracing::info!(store = %node.store, "store probed");
    } else {
        node.set_probe(ProbeStatus::Skipped, None);
    }
    let wanted = record::Wanted {
        shards: node.config.shards,
        merge_operator: node.config.merge_operator.clone(),
        lease_layout: node
            .leases
            .leased_strategy()
            .then(|| node.config.lease.layout.as_str()),
    };
    let checked = record::ensure(&node.store, &node.config.path, &wanted);
    match clock::timeout(PROBE_TIME, checked).await {
        Ok(checked) => {
            node.leases.set_secret(checked?.secret);
            Ok(())
        }
        Err(_) => Err(StartError::RecordTimeout {
            store: node.store.to_string(),
            limit: PROBE_TIME,
        }),
    }
}

/// Gives how the first round of the lease loop goes, where there is one.
fn open_shards(node: &Arc<Node>, waiting: Waiting) -> Option<watch::Receiver<Progress>> {
    let progress = waiting.begin(node);
    node.tasks
        .spawn_on(node.clone().sample(), &node.threads.control());
    progress
}

/// Opens shards once this node has guests for them.
async fn take_shards_later(node: Arc<Node>, why: Arc<str>, waiting: Waiting) {
    node.leases.set_outside(true);
    let mut why = Err(why);
    while let Err(reason) = why {
        tracing::error!(
            event = "deploy.waits",
            why = &*reason,
            "this node takes no shards: it cannot run what the rollout record says. It goes on trying"
        );
        if let Some(fixed) = &node.fixed {
            let mine = node.slots.iter().zip(fixed).filter(|(_, mine)| **mine);
            for (slot, _) in mine {
                slot.fail(ShardState::Crashed, reason.to_string());
                slot.set_attempted();
            }
        }
        tokio::select! {
            () = node.stop.cancelled() => return,
            () = deployed::another(&node, &reason) => {}
            () = outside::tell(&node, waiting.leases(), &reason) => {}
        }
        why = tokio::select! {
            () = node.stop.cancelled() => return,
            ready = deployed::ready(&node) => ready,
        };
    }
    node.leases.set_outside(false);
    _ = open_shards(&node, waiting);
}

/// Returns once the open of every shard that is this node's was tried.
async fn first_tries(node: &Arc<Node>) {
    let mut changed = node.changed.subscribe();
    let tried = || {
        let mut mine = node.slots.iter().filter(|slot| node.is_mine(slot));
        mine.all(|slot| slot.attempted())
    };
    tokio::select! {
        _ = changed.wait_for(|_| tried()) => {}
        () = node.stop.cancelled() => {}
    }
}

/// Returns once the first round was made, or has taken so long that it had better go on in the background.
async fn first_round(
    node: &Arc<Node>,
    mut progress: watch::Receiver<Progress>,
) -> Result<(), StartError> {
    let limit = node.config.lease.ttl * 3 + node.config.shard.open_timeout;
    let made = progress.wait_for(|progress| *progress != Progress::Starting);
    let made = clock::timeout(limit, made).await.map(|made| {
        // An error means that the loop has ended already, because the node stops.
        made.map_or(Progress::Ready, |progress| progress.clone())
    });
    match made {
        Ok(Progress::NameTaken { address }) => {
            let name = node.node.clone();
            node.stop().await;
            Err(StartError::NameTaken { name, address })
        }
        Ok(_) => {
            node.settled.store(true, Ordering::Release);
            // Each is open by now, or failed; what is open is let to serve by its own task.
            _ = clock::timeout(limit, first_tries(node)).await;
            Ok(())
        }
        Err(_) => {
            tracing::warn!(
                ?limit,
                "the first round of leases is not done yet; it goes on in the background"
            );
            Ok(())
        }
    }
}

/// Tries the store until it passes, then opens the shards. Data of another shape ends it.
async fn in_background(
    node: Arc<Node>,
    waiting: Waiting,
    bound: Bound,
    founding: Option<Founding>,
) {
    let mut pause = PROBE_FIRST;
    let prepare = async || {
        check_store(&node, true).await?;
        match &founding {
            Some(founding) => founding.carry_out(&node).await,
            None => Ok(()),
        }
    };
    loop {
        let mut prepared = prepare().await;
        if let Err(error @ StartError::Guest { .. }) = &prepared {
            // Another one may be deployed.
            tracing::error!(%error, "the cluster does not begin with this module");
            prepared = Ok(());
        }
        match prepared {
            Ok(()) => {
                if let Err(error) = Peers::start(&node, bound).await {
                    tracing::error!(%error, "calls are not forwarded to other nodes");
                }
                deployed::begin(&node);
                match deployed::ready(&node).await {
                    // How the first round goes is told by the status and the log.
                    Ok(()) => _ = open_shards(&node, waiting),
                    Err(why) => take_shards_later(node, why, waiting).await,
                }
                return;
            }
            // Trying again does not change what lies in the store: somebody has to.
            Err(StartError::Record(error)) if error.is_permanent() => {
                tracing::error!(%error, "the data is not this node's; no shard is opened, and the store is not tried again");
                node.set_probe(ProbeStatus::Failed, Some(error.to_string()));
                return;
            }
            Err(error) => {
                tracing::warn!(%error, ?pause, "store not usable yet; no shard is opened");
                node.set_probe(ProbeStatus::Pending, Some(error.to_string()));
            }
        }
        tokio::select! {
            () = node.stop.cancelled() => return,
            () = clock::sleep(pause) => {}
        }
        pause = (pause * 2).min(PROBE_LONGEST);
    }
}

impl From<&Config> for Limits {
    fn from(config: &Config) -> Self {
        let limits = &config.limits;
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        Self {
            memory: limits.memory,
            cpu_time: limits.cpu_time,
            wall_time: limits.wall_time,
            start_time: limits.start_time,
            stop_time: limits.stop_time,
            drain: limits.drain,
            handoff_time: limits.handoff_time,
            handoff_bytes: size(limits.handoff_bytes),
            migrate_step_time: limits.migrate_step_time,
            migrate_time: limits.migrate_time,
            queue_calls: limits.queue_calls,
            queue_bytes: size(limits.queue_bytes),
            key: size(limits.key),
            value: size(limits.value),
            batch: size(limits.batch),
            open_resources: limits.open_resources,
            transaction_age: limits.transaction_age,
            log_bytes_per_second: limits.log_bytes_per_second,
            reply: size(limits.reply),
            notifications: limits.notifications,
            timers: limits.timers,
            traps: limits.traps as usize,
            trap_window: limits.trap_window,
            query_instances: limits.query_instances,
            call_depth: limits.call_depth,
            http_headers: size(limits.http_headers),
            http_requests: limits.http_requests,
            http_request_body: size(limits.http_request_body),
            http_response_body: size(limits.http_response_body),
            grants: grants(&config.module.grants),
            ..Self::default()
        }
    }
}

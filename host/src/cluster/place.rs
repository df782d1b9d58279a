//! Which shards are this node's, by its strategy: the strategy itself, the fixed routes of those without leases, and the loop of those with.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use quarry_core::control::{Control, ControlOptions, OptionsError};
use quarry_core::lease::layout::LayoutOptions;
use quarry_core::lease::op::Renewal;
use quarry_core::lease::record::{NodeName, SessionId};
use quarry_core::placement::{PlanNode, PlanShard, Role, View};
use quarry_core::route::{NodeRoute, Route, RouteState, RouteTable};
use quarry_core::rules::Rules;
use quarry_core::runner::{Runner, RunnerCommand, RunnerEvent, RunnerOptions};
use quarry_core::strategy::{Lease, Local, Static, Strategy};
use quarry_core::time::Moment;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::node::Node;
use super::runner::Hands;
use super::start::StartError;
use crate::clock;
use crate::config::{self, Config, Layout};
use crate::lease::LeaseStore;
use crate::lease::driver::{Driver, Progress};
use crate::lease::events::Events;
use crate::lease::handle::{Leases, Me, Want};
use crate::lease::layout::StoredLeases;
use crate::lease::objects::LeaseObjects;
use crate::store::Store;

/// What is set up before a node exists, and runs once it does.
pub(super) struct Place {
    pub leases: Arc<Leases>,
    pub fixed: Option<Vec<bool>>,
    pub runner: mpsc::UnboundedSender<RunnerEvent>,
    waiting: Waiting,
}

/// What waits for the store to be checked.
pub(super) struct Waiting {
    strategy: Arc<dyn Strategy>,
    inbox: mpsc::UnboundedReceiver<RunnerEvent>,
    /// Of a strategy with leases: the loop, where they lie, and its queue.
    leased: Option<(Control, Arc<dyn LeaseStore>, mpsc::Receiver<Want>)>,
}

/// The strategy that the configuration names.
pub(super) fn strategy(config: &Config) -> Result<Arc<dyn Strategy>, StartError> {
    Ok(match config.strategy {
        config::Strategy::Local => Arc::new(Local { me: me(config)? }),
        config::Strategy::Lease => Arc::new(Lease),
        config::Strategy::Static => {
            let owners = config
                .static_owners()
                .map_err(|(key, problem)| StartError::misfit(key, problem))?;
            let owners = owners.iter().map(|name| node_name("static.nodes", name));
            let fixed = Static::new(owners.collect::<Result<_, _>>()?);
            Arc::new(fixed.map_err(|error| StartError::misfit("static.nodes", error.to_string()))?)
        }
    })
}

/// Where the leases of a cluster lie, by its configuration.
pub(super) fn lease_store(config: &Config, store: &Store) -> Arc<dyn LeaseStore> {
    let objects = LeaseObjects::new(store, &config.path, config.shards, &config.cluster);
    let options = LayoutOptions {
        renewal: match config.lease.layout {
            Layout::Session => Renewal::Session,
            Layout::Shard => Renewal::Lease,
        },
        shards: config.shards,
        rules: Rules::default(),
    };
    Arc::new(StoredLeases::new(options, objects))
}

impl Place {
    /// A node's place, by a strategy. `advertise` is where its internal listener is reached, empty when it has none.
    pub fn new(
        config: &Config,
        strategy: Arc<dyn Strategy>,
        store: Arc<dyn LeaseStore>,
        advertise: String,
    ) -> Result<Self, StartError> {
        let (runner, inbox) = mpsc::unbounded_channel();
        let mut me = Me {
            name: me(config)?,
            session: SessionId::new(0),
            advertise,
        };
        let (leases, fixed, leased) = if strategy.leased() {
            let options = ControlOptions {
                advertise: me.advertise.clone(),
                zone: config.lease.zone.clone().unwrap_or_default(),
                renewal: store.renewal(),
                lease_ttl: config.lease.ttl,
                interval: config.lease.interval,
                margin: config.lease.margin,
                max_concurrency: u32::try_from(config.shard.max_concurrency).unwrap_or(u32::MAX),
                ..ControlOptions::new(me.name.clone(), &config.cluster, config.shards)
            };
            let now = clock::boot_now();
            let control = Control::new(options, strategy.clone(), rand::random(), now)?;
            me.session = control.session();
            let (leases, wants) = Leases::leased(strategy.name(), me);
            (leases, None, Some((control, store, wants)))
        } else {
            let routes = fixed_routes(config, &*strategy, &me)?;
            let owned =
                |route: &Option<Route>| route.as_ref().is_some_and(|route| route.owner == me.name);
            let fixed = routes.shards.iter().map(owned).collect();
            let leases = Leases::fixed(strategy.name(), me.clone(), routes);
            (leases, Some(fixed), None)
        };
        Ok(Self {
            leases,
            fixed,
            runner,
            waiting: Waiting {
                strategy,
                inbox,
                leased,
            },
        })
    }

    /// The part that waits.
    pub fn split(
        self,
    ) -> (
        Arc<Leases>,
        Option<Vec<bool>>,
        mpsc::UnboundedSender<RunnerEvent>,
        Waiting,
    ) {
        (self.leases, self.fixed, self.runner, self.waiting)
    }
}

impl Waiting {
    /// Where the leases lie; none of a strategy without.
    pub fn leases(&self) -> Option<&Arc<dyn LeaseStore>> {
        self.leased.as_ref().map(|(_, store, _)| store)
    }

    /// Begins to open shards; gives how the loop's first round goes, where there is a loop.
    pub fn begin(self, node: &Arc<Node>) -> Option<watch::Receiver<Progress>> {
        let options = RunnerOptions {
            max_concurrency: u32::try_from(node.config.shard.max_concurrency).unwrap_or(u32::MAX),
            rules: Rules::default(),
        };
        let runner = Runner::new(options, self.strategy, rand::random());
        let (tell_loop, reports) = mpsc::unbounded_channel();
        let reported = self.leased.is_some().then_some(tell_loop);
        let queue = (node.runner.clone(), self.inbox);
        let finish = CancellationToken::new();
        let hands = Hands::new(node.clone(), runner, queue, reported, finish.clone());
        let thread = node.threads.lease();
        node.tasks.spawn_on(hands.run(), &thread);
        let Some((control, store, wants)) = self.leased else {
            begin_fixed(node, finish);
            return None;
        };
        let progress = watch::Sender::new(Progress::Starting);
        let watched = progress.subscribe();
        let driver = Driver {
            control,
            store,
            runner: node.runner.clone(),
            reports,
            leases: node.leases.clone(),
            wants,
            events: Events::new(node.cluster.clone(), node.node.clone()),
            progress,
            stop: node.stop.clone(),
            leave: node.leave_time(),
            finish,
        };
        let (owner, changes) = (node.clone(), watched.clone());
        node.tasks.spawn_on(
            async move {
                tokio::join!(driver.run(), settle(&owner, changes));
            },
            &thread,
        );
        Some(watched)
    }
}

/// Notes when the first round was made, and tells who waits whenever the routes change.
async fn settle(node: &Node, mut progress: watch::Receiver<Progress>) {
    let mut routes = node.leases.watch_routes();
    // Ends with the loop, which has the sender.
    loop {
        tokio::select! {
            changed = progress.changed() => {
                if changed.is_err() {
                    return;
                }
                if *progress.borrow() == Progress::Ready {
                    node.settled.store(true, Ordering::Release);
                }
            }
            _ = routes.changed() => {}
        }
        node.changed.send_modify(|version| *version += 1);
    }
}

/// Opens what is this node's for good, and stops it with the node.
fn begin_fixed(node: &Arc<Node>, finish: CancellationToken) {
    let tell = |command| _ = node.runner.send(RunnerEvent::Command(command));
    let fixed = node.fixed.iter().flatten();
    for (shard, _) in fixed.enumerate().filter(|(_, mine)| **mine) {
        tell(RunnerCommand::Open {
            shard: u32::try_from(shard).unwrap_or(u32::MAX),
            generation: 0,
            writer_epoch: None,
            deadline: Moment::NEVER,
        });
    }
    let stop = node.stop.clone();
    let end = async move {
        stop.cancelled().await;
        finish.cancel();
    };
    node.tasks.spawn_on(end, &node.threads.lease());
}

/// The routes of a strategy without leases: its plan for the nodes that the configuration lists, for ever.
fn fixed_routes(
    config: &Config,
    strategy: &dyn Strategy,
    me: &Me,
) -> Result<RouteTable, StartError> {
    let listed = config
        .static_nodes()
        .map_err(|(key, problem)| StartError::misfit(key, problem))?;
    let mut nodes = BTreeMap::new();
    for node in listed {
        let name = node_name("static.nodes", &node.name)?;
        nodes.insert(name, node.address.unwrap_or_default());
    }
    nodes.insert(me.name.clone(), me.advertise.clone());
    let plain = |_: &String| PlanNode {
        role: Role::Open,
        zone: String::new(),
    };
    let view = View {
        nodes: nodes
            .iter()
            .map(|(name, address)| (name.clone(), plain(address)))
            .collect(),
        shards: vec![PlanShard::default(); config.shards as usize],
    };
    let mut targets = strategy.plan(&view).targets;
    targets.resize(config.shards as usize, None);
    let session = SessionId::new(0);
    let route = |owner: NodeName| Route {
        owner,
        session,
        generation: 0,
        state: RouteState::Open,
        until: Moment::NEVER,
    };
    let node = |(name, address)| {
        let node = NodeRoute {
            session,
            address,
            until: Moment::NEVER,
        };
        (name, node)
    };
    Ok(RouteTable {
        shards: targets
            .into_iter()
            .map(|target| target.map(route))
            .collect(),
        nodes: nodes.into_iter().map(node).collect(),
        me: Some((me.name.clone(), session)),
    })
}

fn me(config: &Config) -> Result<NodeName, StartError> {
    node_name("node", &config.node)
}

fn node_name(key: &'static str, name: &str) -> Result<NodeName, StartError> {
    NodeName::new(name).map_err(|error| StartError::misfit(key, error.to_string()))
}

impl From<OptionsError> for StartError {
    fn from(error: OptionsError) -> Self {
        let key = match error {
            OptionsError::Ttl { .. } => "lease.ttl",
            OptionsError::Margin { .. } => "lease.margin",
            OptionsError::Interval { .. } => "lease.interval",
            OptionsError::Shards { .. } => "shards",
            OptionsError::Concurrency { .. } => "shard.max_concurrency",
            OptionsError::Text(_) => "cluster",
        };
        Self::misfit(key, error.to_string())
    }
}

//! The other nodes: how this one reaches them, and what it does for them.

use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use quarry_core::control::{self, CommandError};
use quarry_core::lease::record::NodeName;
use quarry_core::route::{Local, RouteState};
use quarry_core::time::Moment;
use tokio_util::sync::CancellationToken;

use super::node::Node;
use super::parking::Parking;
use super::routing::{self, News};
use super::status::{NodeReport, ShardState};
use crate::call::{CallError, CallErrorKind};
use crate::clock;
use crate::config::{Config, Strategy};
use crate::lease::handle::{AskError, Notifier};
use crate::metrics::PeerMetrics;
use crate::transport::server::{BindError, Listener};
use crate::transport::{
    Answer, Ask, Command, Destination, Forward, Http2, Identity, Limits, NotOwner, Secret, Service,
    Told, Transport, memory,
};

/// How long requests of peers that are in progress may take when the node has stopped.
const DRAIN: Duration = Duration::from_secs(1);
/// How long a peer may take to hear that a shard was freed for it.
const NOTICE: Duration = Duration::from_secs(1);
/// The longest that a peer's question may wait here.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Where this node can be reached by others, before it knows who it is.
pub(super) enum Bound {
    /// Nowhere: all shards are here.
    Nowhere,
    /// At a listener.
    Tcp(Listener),
    /// On a network within this process.
    Memory(memory::Network),
}

/// The way to other nodes.
pub(super) struct Peers {
    pub transport: Arc<dyn Transport>,
    pub parking: Parking,
    pub metrics: PeerMetrics,
    /// Cancelled once the listener has ended.
    ended: CancellationToken,
}

impl Bound {
    /// Takes the internal address where there can be other nodes. Within a Tokio runtime.
    ///
    /// # Errors
    /// When the address is not to be had.
    pub fn new(
        config: &Config,
        leased: bool,
        network: Option<memory::Network>,
    ) -> Result<Self, BindError> {
        if !leased && config.strategy != Strategy::Static {
            return Ok(Self::Nowhere);
        }
        if let Some(network) = network {
            return Ok(Self::Memory(network));
        }
        let mut listen = config.internal.listen;
        if listen.port() == 0
            && config.strategy == Strategy::Static
            && let Some(listed) = listed(config).and_then(|address| address.parse().ok())
        {
            // The list says already where the others look for this node.
            listen = listed;
        }
        Listener::bind(listen).map(Self::Tcp)
    }

    /// The address that other nodes are told; empty where there is none.
    pub fn advertise(&self, config: &Config) -> String {
        match self {
            Self::Nowhere => String::new(),
            Self::Memory(_) => memory::Network::address(&config.node),
            Self::Tcp(listener) => match &config.internal.advertise {
                Some(address) => address.clone(),
                None => listed(config).unwrap_or_else(|| listener.local_addr().to_string()),
            },
        }
    }
}

/// This node's address in the fixed list.
fn listed(config: &Config) -> Option<String> {
    let nodes = config.static_nodes().ok()?;
    let own = nodes.into_iter().find(|node| node.name == config.node)?;
    own.address
}

impl Peers {
    /// Opens the way to the other nodes, and the door for them. The cluster's record has been read, so its secret is known.
    ///
    /// # Errors
    /// When the listener does not listen.
    pub async fn start(node: &Arc<Node>, bound: Bound) -> Result<(), BindError> {
        let Some(secret) = node.leases.secret() else {
            if !matches!(bound, Bound::Nowhere) {
                tracing::warn!(
                    "the cluster's record has no secret: calls are not forwarded to other nodes"
                );
            }
            return Ok(());
        };
        let leases = node.leases.clone();
        let identity = Arc::new(Identity {
            cluster: node.cluster.to_string(),
            shards: node.config.shards,
            node: node.node.to_string(),
            session: Box::new(move || leases.me().session.to_string()),
            secret: Secret::new(secret.bytes().to_vec()),
        });
        let service = Arc::downgrade(node) as Weak<dyn Service>;
        let ended = CancellationToken::new();
        let transport: Arc<dyn Transport> = match bound {
            Bound::Nowhere => return Ok(()),
            Bound::Memory(network) => {
                ended.cancel();
                network.join(identity, service, node.threads.peers())
            }
            Bound::Tcp(listener) => {
                let (limits, on) = (Limits::from(&*node.config), node.threads.peers());
                let server = listener
                    .serve(identity.clone(), service, limits, &on)
                    .await?;
                // It answers until the last shard has closed: what is asked meanwhile is refused, with the new owner.
                let (stop, tasks, last) = (node.stop.clone(), node.tasks.clone(), ended.clone());
                let stopping = async move {
                    stop.cancelled().await;
                    tasks.close();
                    tasks.wait().await;
                    server.stop(DRAIN).await;
                    last.cancel();
                };
                node.threads.control().spawn(stopping);
                Arc::new(Http2::new(identity, limits, on))
            }
        };
        let peers = Arc::new(Self {
            transport,
            parking: Parking::new(&node.node),
            metrics: PeerMetrics::new(&node.cluster),
            ended,
        });
        node.set_peers(peers);
        let notices = Notices(Arc::downgrade(node));
        node.leases.set_notifier(Arc::new(notices));
        Ok(())
    }

    /// Waits until no peer is served any more.
    pub async fn ended(&self) {
        self.ended.cancelled().await;
    }
}

/// Tells peers that shards were freed for them.
struct Notices(Weak<Node>);

#[async_trait]
impl Notifier for Notices {
    async fn notify(&self, peer: &NodeName, _: &str, shard: u32) {
        let Some(node) = self.0.upgrade() else { return };
        let (Some(peers), Some(to)) = (node.peers(), node.destination(peer)) else {
            return;
        };
        if let Err(error) = peers
            .transport
            .ask(&to, Ask::Notice { shard }, NOTICE)
            .await
        {
            tracing::debug!(shard, %peer, %error, "a peer did not hear that a shard was freed for it");
        }
    }
}

#[async_trait]
impl Service for Node {
    async fn run(&self, forward: Forward) -> Result<Answer, NotOwner> {
        let shard = forward.shard;
        if self.slots.get(shard as usize).is_none() {
            return Ok(Err(self.no_such_shard(shard)));
        }
        let (method, how) = (forward.request.method.clone(), forward.run.how);
        let begun = clock::now();
        let answer = routing::forwarded(self, forward).await;
        if let Ok(answer) = &answer {
            self.count(shard, &method, how, answer, begun);
        }
        answer
    }

    async fn answer(&self, ask: Ask) -> Told {
        match ask {
            Ask::Report => Told::Report(Box::new(self.report())),
            Ask::Place {
                shard,
                wait_ms,
                above,
            } => {
                let wait = Duration::from_millis(wait_ms).min(WAIT_MAX);
                self.place(shard, wait, above).await
            }
            Ask::Notice { shard } => {
                self.leases.notice(shard);
                Told::Done
            }
            Ask::Command(command) => match self.command(command).await {
                Ok(()) => Told::Done,
                Err(error) => Told::failed(error),
            },
            Ask::Shard { shard } => match self.slots.get(shard as usize) {
                Some(slot) if slot.state() != ShardState::Unassigned => {
                    Told::Shard(Box::new(self.report_of(shard).await))
                }
                Some(_) => Told::NotOwner(self.not_owner(shard)),
                None => Told::failed(self.no_such_shard(shard)),
            },
            Ask::Restart { shard } => match self.restart(shard).await {
                Ok(()) => Told::Shard(Box::new(self.report_of(shard).await)),
                Err(error) => self.failed(shard, error),
            },
            Ask::DurableSeq { shard } => match self.durable_seq(shard) {
                Ok(seq) => Told::Seq { seq },
                Err(error) => self.failed(shard, error),
            },
            Ask::Deployed { number, target } => match self.said(number, target) {
                Some(said) => Told::Deployed(Box::new(said)),
                None => Told::failed(self.pinned()),
            },
            Ask::Rollout { counter } => {
                self.told_of_rollout(counter);
                Told::Done
            }
            Ask::Outside { node, why } => {
                if let Some(deployed) = &self.deployed {
                    deployed.outside.heard(&node, &why);
                }
                Told::Done
            }
            Ask::Durable {
                shard,
                seq,
                wait_ms,
            } => {
                let wait = Duration::from_millis(wait_ms).min(WAIT_MAX);
                match clock::timeout(wait, self.durable(shard, seq)).await {
                    Ok(Ok(())) => Told::Done,
                    Ok(Err(error)) => self.failed(shard, error),
                    Err(_) => Told::NotYet,
                }
            }
        }
    }
}

impl Node {
    /// What this node says of itself to another.
    pub(super) fn report(&self) -> NodeReport {
        let slots = self.slots.iter();
        NodeReport {
            node: self.node.clone(),
            probe: self
                .probe
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
            shards: slots
                .filter(|slot| slot.state() != ShardState::Unassigned)
                .map(|slot| slot.report())
                .collect(),
        }
    }

    /// Whether a shard is served here; waits for that to become so, unless another node is known to have got it meanwhile.
    async fn place(&self, shard: u32, wait: Duration, above: u64) -> Told {
        let (Some(slot), Some(peers)) = (self.slots.get(shard as usize), self.peers()) else {
            return Told::failed(self.no_such_shard(shard));
        };
        let end = clock::boot_now() + wait;
        let mut news = News::of(self, peers);
        loop {
            if let (Some(handle), Local::Open { until }) = (slot.handle(), slot.local())
                && !handle.db().gate().deadline().passed()
            {
                let left = until.since(clock::boot_now()).as_millis();
                return Told::Owner {
                    generation: slot.report().generation,
                    for_ms: u64::try_from(left).unwrap_or(u64::MAX),
                };
            }
            // What is about to close does not come back.
            let going = matches!(slot.local(), Local::Closing { .. });
            let gone = self.closing_for(shard).is_some();
            let passed = self.passed_by(shard, above);
            if going || gone || passed || !news.until(end).await {
                return Told::NotOwner(self.not_owner(shard));
            }
        }
    }

    /// Has the loop of this node do something.
    pub(super) async fn command(&self, command: Command) -> Result<(), CallError> {
        let command = match command {
            Command::Move { shard, to } => control::Command::Move {
                shard,
                to: to.parse().map_err(|error| {
                    CallError::host(CallErrorKind::Invalid, format!("`{to}`: {error}"))
                })?,
            },
            Command::Cordon => control::Command::Cordon,
            Command::Uncordon => control::Command::Uncordon,
            Command::Drain => {
                let members = self.members().await;
                if members.leased.is_some() && members.takers().all(|taker| *taker == *self.node) {
                    let message = format!(
                        "no node but `{}` takes shards: drained, it would leave them without an owner. Start another node, or `quarry node uncordon` one, first",
                        self.node
                    );
                    return Err(CallError::host(CallErrorKind::Refused, message));
                }
                control::Command::Drain
            }
        };
        self.leases.command(command).await.map_err(|error| {
            let kind = match error {
                AskError::Refused(CommandError::NotHeld { .. }) => CallErrorKind::NotOwner,
                _ => CallErrorKind::Refused,
            };
            CallError::host(kind, error.to_string())
        })
    }

    /// A failure of a question about a shard: one that is not here is no failure of the shard.
    fn failed(&self, shard: u32, error: CallError) -> Told {
        match error.kind {
            CallErrorKind::Unassigned | CallErrorKind::NotOwner => {
                Told::NotOwner(self.not_owner(shard))
            }
            _ => Told::failed(error),
        }
    }

    /// Whom this node knows to have a shard that is not here.
    pub(super) fn not_owner(&self, shard: u32) -> NotOwner {
        let routes = self.leases.routes();
        let route = routes.shards.get(shard as usize).and_then(Option::as_ref);
        let owner = self
            .successor(shard)
            .or_else(|| self.elsewhere_by_table(shard));
        NotOwner {
            generation: route.map_or(0, |route| route.generation),
            owner,
        }
    }

    /// For whom a shard is being closed here, or was just now.
    pub(super) fn closing_for(&self, shard: u32) -> Option<Destination> {
        let slot = self.slots.get(shard as usize)?;
        let left = slot.left_for()?;
        let closing = matches!(slot.local(), Local::Closing { .. });
        // Once it has closed, the table of routes shows it a little later, and may then show more.
        let routes = self.leases.routes();
        let route = routes.shards.get(shard as usize).and_then(Option::as_ref);
        let behind = route.is_none_or(|route| *route.owner.as_str() == *self.node);
        (closing || behind)
            .then(|| self.destination(&left))
            .flatten()
    }

    /// Who is about to get a shard.
    pub(super) fn successor(&self, shard: u32) -> Option<Destination> {
        if let Some(successor) = self.closing_for(shard) {
            return Some(successor);
        }
        let routes = self.leases.routes();
        let route = routes.shards.get(shard as usize)?.as_ref()?;
        if route.state != RouteState::Moving || *route.owner.as_str() == *self.node {
            return None;
        }
        self.destination(&route.owner)
    }

    /// The other node that has a shard, as the table says.
    pub(super) fn elsewhere_by_table(&self, shard: u32) -> Option<Destination> {
        let routes = self.leases.routes();
        let route = routes.shards.get(shard as usize)?.as_ref()?;
        if *route.owner.as_str() == *self.node {
            return None;
        }
        self.destination(&route.owner)
    }

    /// The generation of a shard's lease, as the table says.
    pub(super) fn generation_by_table(&self, shard: u32) -> u64 {
        let routes = self.leases.routes();
        let route = routes.shards.get(shard as usize).and_then(Option::as_ref);
        route.map_or(0, |route| route.generation)
    }

    /// Whether another node got a shard by a lease above this generation, as the table says.
    fn passed_by(&self, shard: u32, above: u64) -> bool {
        let routes = self.leases.routes();
        let route = routes.shards.get(shard as usize).and_then(Option::as_ref);
        route.is_some_and(|route| {
            route.generation > above
                && route.state == RouteState::Open
                && *route.owner.as_str() != *self.node
        })
    }

    /// Until when a node may have a shard, as the table says now. None when it is in another session by now.
    pub(super) fn route_until(&self, shard: u32, to: &Destination) -> Option<Moment> {
        let routes = self.leases.routes();
        let mut nodes = routes.nodes.iter();
        let (name, node) = nodes.find(|(name, _)| name.as_str() == to.node)?;
        if node.session.to_string() != to.session {
            return None;
        }
        let route = routes.shards.get(shard as usize).and_then(Option::as_ref);
        let own = route.filter(|route| route.owner == *name);
        Some(own.map_or(node.until, |route| node.until.min(route.until)))
    }

    /// Where a node is reached, if that is known.
    pub(super) fn destination(&self, name: &NodeName) -> Option<Destination> {
        let routes = self.leases.routes();
        let node = routes.nodes.get(name)?;
        (!node.address.is_empty()).then(|| Destination {
            node: name.to_string(),
            session: node.session.to_string(),
            address: node.address.clone(),
        })
    }

    pub(super) fn no_such_shard(&self, shard: u32) -> CallError {
        let shards = self.config.shards;
        let message = format!(
            "there is no shard {shard}: the cluster has {shards}, from 0 to {}",
            shards - 1
        );
        CallError::host(CallErrorKind::Invalid, message)
    }
}

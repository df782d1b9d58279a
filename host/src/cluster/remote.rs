//! What a cluster says of itself, and what an operator can do to it, from any of its nodes.
//!
//! Other nodes are asked at the same time and within one timeout. What a node does not answer is told as such, with the reason, and
//! never makes the whole answer fail.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use quarry_core::control::ShardLease;
use quarry_core::route::{Local, RouteTable};
use tokio::sync::oneshot;

use super::node::Node;
use super::routing::News;
use super::status::{
    ClusterStatus, Location, NodeReport, NodeView, ProbeState, ShardReport, ShardState,
};
use super::{Cluster, NotReady};
use crate::call::{CallError, CallErrorKind};
use crate::clock;
use crate::shard::Control;
use crate::transport::{Ask, Command, Destination, Failure, Told};

mod members;

use members::Members;

/// How often a wait for other nodes asks them again, where nothing tells that they have changed.
const AGAIN: Duration = Duration::from_millis(200);
/// The longest that one look of such a wait may take.
const LOOK: Duration = Duration::from_secs(5);
/// How long a node may wait for a write to be durable before it is asked again.
const DURABLE: Duration = Duration::from_secs(30);
/// How much longer a node may take to answer than it is to wait.
const GRACE: Duration = Duration::from_secs(2);
/// How long a shard may take to restart.
const RESTART: Duration = Duration::from_secs(120);

impl Cluster {
    /// How every shard of the cluster is: those of other nodes as their owners say. Never reads the store.
    ///
    /// # Errors
    /// None: what does not answer within the timeout is [`ShardState::Unavailable`], with the reason.
    pub async fn status(&self, timeout: Duration) -> Result<ClusterStatus, CallError> {
        Ok(self.node.status(timeout).await)
    }

    /// The nodes of the cluster, this one included, by name.
    ///
    /// # Errors
    /// When the node stops, or is too busy to say.
    pub async fn nodes(&self) -> Result<Vec<NodeView>, CallError> {
        Ok(self.node.members().await.views(&self.node))
    }

    /// The shards that are this node's to run and do not; [`Cluster::ready`] tells whether there are any.
    #[must_use]
    pub fn not_ready(&self) -> Vec<ShardReport> {
        self.node.not_ready()
    }

    /// The probe of the store at this node's start.
    #[must_use]
    pub fn probe_state(&self) -> ProbeState {
        let probe = self.node.probe.lock();
        probe.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The store, without credentials.
    #[must_use]
    pub fn store(&self) -> String {
        self.node.store.to_string()
    }

    /// Waits until every shard of the cluster runs on its owner; without a timeout for as long as it takes.
    ///
    /// # Errors
    /// When the time is up or the node stops, with the shards that do not run and why.
    pub async fn await_ready(&self, timeout: Option<Duration>) -> Result<(), NotReady> {
        let wait = async {
            loop {
                if self.node.all_run(LOOK).await {
                    return;
                }
                self.node.changes().await;
            }
        };
        let end = async {
            match timeout {
                Some(timeout) => clock::sleep(timeout).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = wait => return Ok(()),
            () = end => {}
            () = self.node.stop.cancelled() => {}
        }
        let status = self.node.status(Duration::from_millis(500)).await;
        let shards = status.shards.into_values();
        Err(NotReady {
            shards: shards
                .filter(|report| report.status != ShardState::Running)
                .collect(),
        })
    }

    /// How a shard is, as its owner says.
    ///
    /// # Errors
    /// [`CallErrorKind::Invalid`] for a number out of range.
    pub async fn shard(&self, shard: u32, timeout: Duration) -> Result<ShardReport, CallError> {
        self.check_shard(shard)?;
        let mut report = match self.node.elsewhere(shard) {
            None => self.node.report_of(shard).await,
            Some(to) => match self.node.ask(&to, Ask::Shard { shard }, timeout).await {
                Ok(Told::Shard(report)) => *report,
                Ok(Told::NotOwner(_)) => self.node.absent(shard, &to.node),
                Ok(other) => self
                    .node
                    .unavailable(shard, &to.node, other.into_error(&to.node)),
                Err(error) => self.node.unavailable(shard, &to.node, error),
            },
        };
        if let Some(lease) = self.node.lease(shard).await {
            report.add(&lease);
        }
        Ok(report)
    }

    /// The newest write up to which every write of a shard is durable, wherever the shard is.
    ///
    /// # Errors
    /// [`CallErrorKind::Unassigned`], [`CallErrorKind::NotOwner`] or [`CallErrorKind::Unreachable`] when no node that has it answers.
    pub async fn durable_seq(&self, shard: u32) -> Result<u64, CallError> {
        self.check_shard(shard)?;
        match self.node.elsewhere(shard) {
            None => self.node.durable_seq(shard),
            Some(to) => match self.node.ask(&to, Ask::DurableSeq { shard }, LOOK).await? {
                Told::Seq { seq } => Ok(seq),
                other => Err(other.into_error(&to.node).at(shard)),
            },
        }
    }

    /// Waits until every write of a shard up to `seq` is durable, wherever the shard is. Who asks its owner in the order of seq is told in
    /// the order of seq.
    ///
    /// # Errors
    /// [`CallErrorKind::Unknown`] when the shard ends first, [`CallErrorKind::Invalid`] for a seq that was not given out yet,
    /// [`CallErrorKind::Unassigned`], [`CallErrorKind::NotOwner`] or [`CallErrorKind::Unreachable`] when no node that has it answers.
    pub async fn notify_when_durable(&self, shard: u32, seq: u64) -> Result<(), CallError> {
        self.check_shard(shard)?;
        loop {
            let Some(to) = self.node.elsewhere(shard) else {
                return self.node.durable(shard, seq).await;
            };
            let ask = Ask::Durable {
                shard,
                seq,
                wait_ms: u64::try_from(DURABLE.as_millis()).unwrap_or(u64::MAX),
            };
            match self.node.ask(&to, ask, DURABLE + GRACE).await? {
                Told::Done => return Ok(()),
                Told::NotYet => {}
                other => return Err(other.into_error(&to.node).at(shard)),
            }
        }
    }

    /// Makes a new instance of a shard's guest, and lifts a quarantine, wherever the shard is. One that is down is opened at once.
    ///
    /// # Errors
    /// When the guest does not start, or no node that has the shard answers.
    pub async fn restart_shard(&self, shard: u32) -> Result<(), CallError> {
        self.check_shard(shard)?;
        match self.node.elsewhere(shard) {
            None => self.node.restart(shard).await,
            Some(to) => match self.node.ask(&to, Ask::Restart { shard }, RESTART).await? {
                Told::Shard(_) => Ok(()),
                other => Err(other.into_error(&to.node).at(shard)),
            },
        }
    }

    /// Moves a shard to a node, where it stays. Returns once its owner has taken the order; [`Cluster::shard`] tells when it has moved.
    ///
    /// # Errors
    /// [`CallErrorKind::Invalid`] for a shard or a node that there is not, [`CallErrorKind::Refused`] when the owner cannot do it.
    pub async fn move_shard(
        &self,
        shard: u32,
        to: &str,
        timeout: Duration,
    ) -> Result<(), CallError> {
        self.check_shard(shard)?;
        let members = self.node.members().await;
        members.check(to)?;
        let end = clock::boot_now() + timeout;
        loop {
            let mut changed = self.node.leases.watch_routes();
            let ordered = self.order_move(shard, to, timeout).await;
            let error = match ordered {
                Ok(()) => return Ok(()),
                Err(error) => error.at(shard),
            };
            // The table is behind, and whoever it names does not hold the shard: nobody was given the order.
            let behind = matches!(
                error.kind,
                CallErrorKind::NotOwner | CallErrorKind::Unassigned
            );
            if !behind || clock::boot_now() + AGAIN >= end {
                return Err(error);
            }
            self.node.leases.route_miss(shard);
            _ = clock::timeout(AGAIN, changed.changed()).await;
        }
    }

    /// Gives the order to whoever has the shard by the table. Where that is the very node that is to have it, it is asked: it may have
    /// got the shard by itself meanwhile, or may have given it away again.
    async fn order_move(&self, shard: u32, to: &str, timeout: Duration) -> Result<(), CallError> {
        let owner = self.node.owner(shard);
        let owner = owner.ok_or_else(|| self.node.unassigned(shard))?;
        let command = Command::Move {
            shard,
            to: to.to_owned(),
        };
        if *owner != *to {
            return self.order(&owner, command, timeout).await;
        }
        if *owner == *self.node.node {
            let local = self.node.slots[shard as usize].local();
            let here = matches!(local, Local::Opening | Local::Open { .. } | Local::Refusing);
            return here
                .then_some(())
                .ok_or_else(|| self.node.unassigned(shard));
        }
        let there = self.node.elsewhere_by_table(shard);
        let there = there.ok_or_else(|| self.node.unassigned(shard))?;
        match self.node.ask(&there, Ask::Shard { shard }, timeout).await? {
            Told::Shard(_) => Ok(()),
            other => Err(other.into_error(&there.node)),
        }
    }

    /// Has a node take no further shards (cordon), take some again (uncordon), or hand all over and take none (drain). Returns once the
    /// node has taken the order; [`Cluster::nodes`] tells how far it is.
    ///
    /// # Errors
    /// [`CallErrorKind::Invalid`] for a node that there is not, [`CallErrorKind::Refused`] when it cannot do it.
    pub async fn order(
        &self,
        node: &str,
        command: Command,
        timeout: Duration,
    ) -> Result<(), CallError> {
        let members = self.node.members().await;
        members.check(node)?;
        if *node == *self.node.node {
            return self.node.command(command).await;
        }
        let to = members.destination(node).ok_or_else(|| {
            let message = format!(
                "node `{node}` is {}, so it takes no orders",
                members.state(node)
            );
            CallError::host(CallErrorKind::Refused, message)
        })?;
        let drains = matches!(command, Command::Drain);
        match self.node.ask(&to, Ask::Command(command), timeout).await? {
            Told::Done => {}
            other => return Err(other.into_error(node)),
        }
        if drains {
            // Who empties one node after the other is to be told when it comes to the last: so this node has to know before it answers.
            let known = async {
                while self.node.members().await.takes(node) {
                    clock::sleep(AGAIN).await;
                }
            };
            _ = clock::timeout(timeout.min(LOOK), known).await;
        }
        Ok(())
    }
}

impl ShardReport {
    /// What the shard's lease says beside what its owner does; nothing when the owner is newer.
    fn add(&mut self, lease: &ShardLease) {
        if lease.generation < self.generation {
            return;
        }
        self.why = (!lease.why.is_empty()).then(|| lease.why.clone());
        self.generation = self.generation.max(lease.generation);
        self.pinned = lease.pinned;
    }
}

impl Node {
    /// Asks a peer.
    pub(super) async fn ask(
        &self,
        to: &Destination,
        ask: Ask,
        within: Duration,
    ) -> Result<Told, CallError> {
        let Some(peers) = self.peers() else {
            let message = format!(
                "node `{}` is not reached: this node has no way to others",
                to.node
            );
            return Err(CallError::host(CallErrorKind::Unreachable, message));
        };
        let asked = peers.transport.ask(to, ask, within).await;
        asked.map_err(|failure| match failure {
            Failure::NeverSent(why) => CallError::host(CallErrorKind::Unreachable, why),
            Failure::Sent(why) => CallError::host(CallErrorKind::Timeout, why),
            Failure::NotOwner(_) => CallError::host(CallErrorKind::NotOwner, failure.to_string()),
        })
    }

    /// The node that has a shard, if it is another one that is reached.
    fn elsewhere(&self, shard: u32) -> Option<Destination> {
        let slot = &self.slots[shard as usize];
        if slot.handle().is_some() || matches!(slot.local(), Local::Opening | Local::Refusing) {
            return None;
        }
        self.not_owner(shard).owner
    }

    /// The name of the node that has a shard.
    fn owner(&self, shard: u32) -> Option<String> {
        let local = self.slots[shard as usize].local();
        if matches!(local, Local::Opening | Local::Open { .. } | Local::Refusing) {
            return Some(self.node.to_string());
        }
        let routes = self.leases.routes();
        let route = routes.shards.get(shard as usize)?.as_ref()?;
        Some(route.owner.to_string())
    }

    /// Where a shard is, as this node sees it.
    pub(super) fn locate(&self, shard: u32) -> Location {
        if self.slots[shard as usize].handle().is_some() {
            return Location::Local;
        }
        match self.owner(shard) {
            Some(node) if *node != *self.node => Location::Remote { node: node.into() },
            _ => Location::Unassigned,
        }
    }

    /// Whether every shard of the cluster runs. Cheap where one that is here does not.
    async fn all_run(&self, within: Duration) -> bool {
        let ready = |slot: &Arc<crate::shard::slot::Slot>| slot.is_ready();
        if self.slots.iter().all(ready) {
            return true;
        }
        if self.peers().is_none() {
            return false;
        }
        self.status(within).await.ready
    }

    /// Returns when something has changed, or after a while.
    async fn changes(&self) {
        match self.peers() {
            Some(peers) => {
                let mut news = News::of(self, peers);
                _ = news.until(clock::boot_now() + AGAIN).await;
            }
            None => _ = self.changed.subscribe().changed().await,
        }
    }

    /// How the cluster is; see [`Cluster::status`].
    pub(super) async fn status(&self, timeout: Duration) -> ClusterStatus {
        let routes = self.leases.routes();
        let (members, reports) = tokio::join!(self.members(), self.reports(&routes, timeout));
        let leases = self.leases.shards().await.unwrap_or_default();
        let leases: BTreeMap<u32, ShardLease> = leases
            .into_iter()
            .map(|lease| (lease.shard, lease))
            .collect();
        let shards: BTreeMap<u32, ShardReport> = (0..self.config.shards)
            .map(|shard| {
                let mut report = self.told(shard, &routes, &reports);
                if let Some(lease) = leases.get(&shard) {
                    report.add(lease);
                }
                (shard, report)
            })
            .collect();
        let mut nodes = members.views(self);
        for view in &mut nodes {
            if let Some(Err(error)) = reports.get(&*view.node) {
                view.error = Some(error.message.clone());
            }
        }
        ClusterStatus {
            cluster: self.cluster.clone(),
            node: self.node.clone(),
            ready: shards
                .values()
                .all(|report| report.status == ShardState::Running),
            store: self.store.to_string(),
            probe: self
                .probe
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
            module: self.wanted.load().module(),
            nodes,
            shards,
        }
    }

    /// What the other nodes that have shards say, asked at the same time.
    async fn reports(
        &self,
        routes: &RouteTable,
        within: Duration,
    ) -> BTreeMap<String, Result<NodeReport, CallError>> {
        let owners: BTreeSet<_> = routes
            .shards
            .iter()
            .flatten()
            .map(|route| &route.owner)
            .filter(|owner| *owner.as_str() != *self.node)
            .collect();
        let asked = owners.into_iter().map(|owner| async move {
            let told = match self.destination(owner) {
                Some(to) => match self.ask(&to, Ask::Report, within).await {
                    Ok(Told::Report(report)) => Ok(*report),
                    Ok(other) => Err(other.into_error(&to.node)),
                    Err(error) => Err(error),
                },
                None => Err(CallError::host(
                    CallErrorKind::Unreachable,
                    format!("node `{owner}` advertises no address (`internal.advertise`)"),
                )),
            };
            (owner.to_string(), told)
        });
        join_all(asked).await.into_iter().collect()
    }

    /// How a shard is, of all that was told.
    fn told(
        &self,
        shard: u32,
        routes: &RouteTable,
        reports: &BTreeMap<String, Result<NodeReport, CallError>>,
    ) -> ShardReport {
        let own = self.slots[shard as usize].report();
        let route = routes.shards.get(shard as usize).and_then(Option::as_ref);
        let owner = route.map(|route| route.owner.as_str());
        // What closes here is told by its next owner, once there is one.
        let mine = own.status != ShardState::Unassigned
            && (own.status != ShardState::Stopping
                || owner.is_none_or(|owner| *owner == *self.node));
        let Some(owner) = owner.filter(|owner| !mine && **owner != *self.node) else {
            return own;
        };
        let report = match reports.get(owner) {
            Some(Ok(report)) => {
                let mut shards = report.shards.iter();
                let report = shards.find(|report| report.shard == shard).cloned();
                report.unwrap_or_else(|| self.absent(shard, owner))
            }
            Some(Err(error)) => self.unavailable(shard, owner, error.clone()),
            None => self.absent(shard, owner),
        };
        ShardReport {
            generation: report
                .generation
                .max(route.map_or(0, |route| route.generation)),
            ..report
        }
    }

    /// A shard whose lease is a node's that does not have it yet, or no more.
    fn absent(&self, shard: u32, owner: &str) -> ShardReport {
        ShardReport {
            node: Some(owner.into()),
            last_error: Some(format!(
                "node `{owner}`, which has its lease, does not have it open"
            )),
            ..self.slots[shard as usize].blank(ShardState::Unassigned)
        }
    }

    /// A shard whose owner does not answer.
    fn unavailable(&self, shard: u32, owner: &str, error: CallError) -> ShardReport {
        ShardReport {
            node: Some(owner.into()),
            last_error: Some(error.message),
            ..self.slots[shard as usize].blank(ShardState::Unavailable)
        }
    }

    /// How a shard is here, with what its lease says.
    pub(super) async fn report_of(&self, shard: u32) -> ShardReport {
        let mut report = self.slots[shard as usize].report();
        if let Some(lease) = self.lease(shard).await {
            report.add(&lease);
        }
        report
    }

    /// A shard's lease as this node knows it.
    async fn lease(&self, shard: u32) -> Option<ShardLease> {
        let leases = self.leases.shards().await.ok()?;
        leases.into_iter().find(|lease| lease.shard == shard)
    }

    /// The nodes that this one knows.
    pub(super) async fn members(&self) -> Members {
        Members {
            leased: self.leases.nodes().await.ok(),
            routes: self.leases.routes(),
        }
    }

    /// As [`Cluster::durable_seq`], here.
    pub(super) fn durable_seq(&self, shard: u32) -> Result<u64, CallError> {
        let handle = self
            .slots
            .get(shard as usize)
            .and_then(|slot| slot.handle());
        let handle = handle.ok_or_else(|| self.not_here(shard))?;
        Ok(handle.db().gate().durable_seq())
    }

    /// As [`Cluster::notify_when_durable`], here.
    pub(super) async fn durable(&self, shard: u32, seq: u64) -> Result<(), CallError> {
        let handle = self
            .slots
            .get(shard as usize)
            .and_then(|slot| slot.handle());
        let handle = handle.ok_or_else(|| self.not_here(shard))?;
        let db = handle.db();
        let newest = db.visible_seq();
        if !db.knows(seq) {
            let message = format!(
                "seq {seq} of shard {shard} belongs to an earlier opening of the shard; if it was not durable then, it is lost"
            );
            return Err(CallError::host(CallErrorKind::Unknown, message).at(shard));
        }
        if seq > newest {
            let message = format!(
                "seq {seq} of shard {shard} was not given out yet; the newest write is {newest}"
            );
            return Err(CallError::host(CallErrorKind::Invalid, message).at(shard));
        }
        db.gate()
            .durable(seq)
            .await
            .map_err(|ended| CallError::ended(&ended).at(shard))
    }

    /// As [`Cluster::restart_shard`], here.
    pub(super) async fn restart(&self, shard: u32) -> Result<(), CallError> {
        let slot = self.slots.get(shard as usize);
        let slot = slot.ok_or_else(|| self.no_such_shard(shard))?;
        let Some(handle) = slot.handle() else {
            let elsewhere = self.leases.leased_strategy() && matches!(slot.local(), Local::None);
            if self.stop.is_cancelled() || elsewhere {
                return Err(self.unassigned(shard));
            }
            return self.retry(shard).map_err(|()| self.unassigned(shard));
        };
        let (done, restarted) = oneshot::channel();
        handle.control(Control::Restart { done }).await?;
        restarted
            .await
            .unwrap_or_else(|_| Err(self.unassigned(shard)))
    }

    fn not_here(&self, shard: u32) -> CallError {
        match self.slots.get(shard as usize) {
            Some(_) => self.unassigned(shard),
            None => self.no_such_shard(shard),
        }
    }
}

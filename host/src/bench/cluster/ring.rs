//! The nodes that are measured, each with a hand on its own way to the store they share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::Error;
use crate::Cluster;
use crate::call::{CallError, CallOptions, CallReply, Durability, Target};
use crate::clock;
use crate::cluster::status::ShardState;
use crate::config::{Config, Layout, Probe, Strategy};
use crate::guest::Module;
use crate::store::Store;
use crate::store::faults::{Fault, FaultStore, Faults, Op, Rule};

/// How long a cluster may take to settle, beside three times its lease.
const SETTLE: Duration = Duration::from_secs(120);
/// The pause between two looks at it.
const LOOK: Duration = Duration::from_millis(20);

/// A cluster to be.
pub(super) struct Ring {
    store: Store,
    config: Config,
    module: Arc<dyn Module>,
    latency: Duration,
}

/// A node.
pub(super) struct Member {
    pub name: String,
    pub cluster: Cluster,
    faults: Faults,
    /// Sees all requests too, and marks those of leases.
    leases: Faults,
    latency: Duration,
}

/// Requests of a node to the store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Requests {
    /// Of leases.
    pub leases: u64,
    /// Of databases.
    pub data: u64,
}

impl Ring {
    pub fn new(shards: u32, module: Arc<dyn Module>, latency: Duration) -> Self {
        let store = Store::open("memory:", &BTreeMap::new());
        let config = Config {
            cluster: "bench".into(),
            shards,
            strategy: Strategy::Lease,
            // Each join is measured, and not what a store can do.
            probe: Probe::Off,
            ..Config::default()
        };
        Self {
            store: store.expect("memory: takes no options"),
            config,
            module,
            latency,
        }
    }

    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.config.lease.ttl = ttl;
        self
    }

    pub fn layout(mut self, layout: Layout) -> Self {
        self.config.lease.layout = layout;
        self
    }

    /// Whether a lease is renewed with its node, and not by itself.
    pub fn renews_nodes(&self) -> bool {
        self.config.lease.layout == Layout::Session
    }

    pub fn layout_name(&self) -> &'static str {
        match self.config.lease.layout {
            Layout::Session => "session",
            Layout::Shard => "shard",
        }
    }

    pub fn shards(&self) -> u32 {
        self.config.shards
    }

    /// How long a lease lasts.
    pub fn lease(&self) -> Duration {
        self.config.lease.ttl
    }

    /// How often it is renewed.
    pub fn interval(&self) -> Duration {
        self.config.lease.ttl / 3
    }

    /// Starts a node whose requests to the store take their time from the first.
    pub async fn start(&self, name: &str) -> Result<Member, Error> {
        self.start_with(name, self.latency).await
    }

    /// Starts so many nodes at once on a quick store, waits until they have settled, and makes the store slow.
    pub async fn start_all(&self, count: usize) -> Result<Vec<Member>, Error> {
        let names: Vec<_> = (1..=count).map(|number| format!("node-{number}")).collect();
        let starts = names
            .iter()
            .map(|name| self.start_with(name, Duration::ZERO));
        let mut members = futures::future::try_join_all(starts).await?;
        self.settled(&members.iter().collect::<Vec<_>>()).await?;
        for member in &mut members {
            member.latency = self.latency;
            member.heal();
        }
        Ok(members)
    }

    async fn start_with(&self, name: &str, latency: Duration) -> Result<Member, Error> {
        let mut config = self.config.clone();
        config.node = name.to_owned();
        let mut hands = None;
        let store = self.store.wrap(|objects| {
            let counted = FaultStore::new(objects, 0);
            counted
                .faults()
                .add(Rule::new(Fault::Nothing).path("_quarry"));
            let leases = counted.faults();
            let slow = FaultStore::new(Arc::new(counted), 0);
            hands = Some((slow.faults(), leases));
            Arc::new(slow)
        });
        let (faults, leases) = hands.expect("wrapped");
        faults.add(Rule::new(Fault::Latency(latency)));
        let cluster = Cluster::start_on(store, Arc::new(config), self.module.clone()).await;
        Ok(Member {
            name: name.to_owned(),
            cluster: cluster.map_err(|error| Error(error.to_string()))?,
            faults,
            leases,
            latency,
        })
    }

    /// Waits until the nodes share all shards evenly, each of them serves its own, and knows whose the others are.
    pub async fn settled(&self, members: &[&Member]) -> Result<(), Error> {
        let limit = self.lease() * 3 + SETTLE;
        let end = clock::now() + limit;
        while !self.is_settled(members) {
            if clock::now() > end {
                let loads: Vec<_> = members
                    .iter()
                    .map(|member| format!("{} has {}", member.name, member.serves().len()))
                    .collect();
                return Err(Error(format!(
                    "{} shards were not shared evenly within {limit:?}: {}",
                    self.shards(),
                    loads.join(", ")
                )));
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    fn is_settled(&self, members: &[&Member]) -> bool {
        let loads: Vec<usize> = members.iter().map(|member| member.serves().len()).collect();
        let even = loads.iter().max().zip(loads.iter().min());
        let all: usize = loads.iter().sum();
        all == self.shards() as usize
            && even.is_some_and(|(most, least)| most - least <= 1)
            && members.iter().all(|member| {
                let routes = member.cluster.leases().routes();
                routes.shards.iter().flatten().count() == self.shards() as usize
                    && routes.shards.iter().flatten().all(|route| {
                        let name = route.owner.as_str();
                        members.iter().any(|member| member.name == name)
                    })
            })
    }
}

impl Member {
    /// The shards that it serves.
    pub fn serves(&self) -> Vec<u32> {
        let runs = |shard: &u32| {
            let report = self.cluster.shard_report(*shard);
            report.is_ok_and(|report| report.status == ShardState::Running)
        };
        (0..self.cluster.shards()).filter(runs).collect()
    }

    /// How often it opened a shard so far.
    pub fn opens(&self) -> u64 {
        let opens = |shard| {
            self.cluster
                .shard_report(shard)
                .map_or(0, |report| report.opens)
        };
        (0..self.cluster.shards()).map(opens).sum()
    }

    /// Its requests to the store so far.
    pub fn requests(&self) -> Requests {
        let ops = [Op::Put, Op::Get, Op::Delete, Op::List, Op::Copy];
        let leases = self.leases.struck();
        let all: u64 = ops.iter().map(|op| self.leases.calls(*op)).sum();
        Requests {
            leases,
            data: all.saturating_sub(leases),
        }
    }

    /// From now on the store does not answer it.
    pub fn cut(&self) {
        self.faults.add(Rule::new(Fault::Hang));
    }

    /// The store answers it again.
    pub fn heal(&self) {
        self.faults.clear();
        self.faults.add(Rule::new(Fault::Latency(self.latency)));
    }

    /// Counts up on a shard, wherever it is, through this node.
    pub async fn increment(&self, shard: u32, within: Duration) -> Result<CallReply, CallError> {
        self.call(shard, "increment", Durability::Durable, within)
            .await
    }

    pub async fn call(
        &self,
        shard: u32,
        method: &str,
        durability: Durability,
        within: Duration,
    ) -> Result<CallReply, CallError> {
        let options = CallOptions {
            durability: Some(durability),
            timeout: Some(within),
            ..CallOptions::default()
        };
        let target = Target::Shard(shard);
        self.cluster
            .call(target, method, Bytes::new(), options)
            .await
    }
}

/// Stops nodes, all at once.
pub(super) async fn stop(members: Vec<Member>) {
    futures::future::join_all(members.iter().map(|member| member.cluster.stop())).await;
}

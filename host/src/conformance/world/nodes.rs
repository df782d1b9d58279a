//! The nodes of a world: the one to which calls go, those that lost their store, and one that joins.

use std::sync::Arc;

use super::{Ended, STOP, World};
use crate::Cluster;
use crate::cluster::status::Location;
use crate::config::Config;
use crate::store::faults::{Fault, FaultStore, Faults, Rule};

/// The name of the node to which calls go.
pub(super) const FIRST: &str = "conformance";
/// The name of one that joins.
const SECOND: &str = "conformance-2";

/// A node, and the hand on its store.
pub(super) struct Node {
    pub(super) cluster: Cluster,
    pub(super) faults: Faults,
}

impl World<'_> {
    /// The node, started where it does not run.
    pub(super) async fn node(&mut self) -> Result<&Node, Ended> {
        if self.node.is_none() {
            let node = self.start(self.config.clone()).await;
            self.node = Some(node.map_err(|error| format!("the node did not start: {error}"))?);
        }
        self.node
            .as_ref()
            .ok_or_else(|| Ended::Failed("there is no node".into()))
    }

    /// Stops the node, and starts it again on its store.
    pub(super) async fn reopen(&mut self) -> Result<(), Ended> {
        self.node().await?;
        if let Some(node) = self.node.take() {
            node.cluster.stop().await;
        }
        self.node().await.map(drop)
    }

    /// Takes the store from the node for good, and starts another one.
    pub(super) async fn take_over(&mut self) -> Result<(), Ended> {
        self.node().await?;
        if let Some(node) = self.node.take() {
            node.faults.add(Rule::new(Fault::FailBefore));
            self.others.push(node);
        }
        self.node().await.map(drop)
    }

    /// Moves shard 0 to the node that has it not.
    pub(super) async fn move_shard(&mut self) -> Result<(), Ended> {
        let first = self.node().await?.cluster.clone();
        let joins = Config {
            node: SECOND.into(),
            ..self.config.clone()
        };
        let joined = self.start(joins).await;
        let joined = joined.map_err(|error| format!("the node did not join: {error}"))?;
        let second = joined.cluster.clone();
        self.others.push(joined);
        // The join itself moves one of the two.
        while first.local_shards().len() != 1 || second.local_shards().len() != 1 {
            let shown = format!("{:?} and {:?}", first.local_shards(), second.local_shards());
            self.look(format!("the nodes have the shards {shown}"))
                .await;
        }
        let to = match first.local_shards().contains(&0) {
            true => SECOND,
            false => FIRST,
        };
        let ordered = first.move_shard(0, to, STOP).await;
        ordered.map_err(|error| format!("the order to move: {error}"))?;
        loop {
            let at = first.lookup(0).map_err(|error| error.to_string())?;
            let there = match &at {
                Location::Local => to == FIRST,
                Location::Remote { node } => **node == *to,
                Location::Unassigned => false,
            };
            if there {
                return Ok(());
            }
            self.look(format!("the shard is {at:?}, on its way to {to}"))
                .await;
        }
    }

    async fn start(&self, config: Config) -> Result<Node, String> {
        let module = self.subject.revision(&config, self.revision).await?;
        let mut faults = None;
        let store = self.store.wrap(|objects| {
            let store = FaultStore::new(objects, 0);
            faults = Some(store.faults());
            Arc::new(store)
        });
        let builder = Cluster::builder(Arc::new(config), module);
        let cluster = builder.store(store).network(self.network.clone()).start();
        let cluster = cluster.await.map_err(|error| error.to_string())?;
        let node = Node {
            cluster,
            faults: faults.expect("wrapped"),
        };
        if let Err(error) = node.cluster.await_ready(Some(STOP)).await {
            node.cluster.stop().await;
            return Err(error.to_string());
        }
        Ok(node)
    }
}

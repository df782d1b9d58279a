//! Several nodes in this process over one store in memory, each with a hand on its own way to the store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStoreExt;
use quarry::Cluster;
use quarry::call::{CallError, CallOptions, CallReply, QueryOptions, Target};
use quarry::cluster::StartError;
use quarry::config::{Config, Strategy};
use quarry::guest::Module;
use quarry::store::Store;
use quarry::store::faults::{FaultStore, Faults};

use super::native::{self, config};
use super::process::until;

/// The shortest that there is.
pub const TTL: Duration = Duration::from_secs(1);

/// A store that several nodes share.
pub struct Ring {
    pub store: Store,
    pub shards: u32,
}

/// A node and its way to the store.
pub struct Member {
    pub name: String,
    pub cluster: Cluster,
    pub faults: Faults,
}

impl Ring {
    pub fn new(shards: u32) -> Self {
        Self {
            store: Store::open("memory:", &BTreeMap::new()).expect("a store in memory"),
            shards,
        }
    }

    pub fn config(&self, name: &str) -> Config {
        let mut config = Config {
            strategy: Strategy::Lease,
            shards: self.shards,
            node: name.into(),
            cluster: "ring".into(),
            ..config()
        };
        config.lease.ttl = TTL;
        config.threads.storage = 1;
        config.shard.close_timeout = Duration::from_secs(5);
        config
    }

    pub async fn start(&self, name: &str) -> Member {
        self.start_with(self.config(name)).await.expect("a node")
    }

    pub async fn start_with(&self, config: Config) -> Result<Member, StartError> {
        self.start_module(config, native::module()).await
    }

    /// A node that runs a guest of its own.
    pub async fn start_module(
        &self,
        config: Config,
        module: Arc<dyn Module>,
    ) -> Result<Member, StartError> {
        let mut faults = None;
        let store = self.store.wrap(|objects| {
            let wrapped = FaultStore::new(objects, 0);
            faults = Some(wrapped.faults());
            Arc::new(wrapped)
        });
        let name = config.node.clone();
        let cluster = Cluster::start_on(store, Arc::new(config), module).await?;
        Ok(Member {
            name,
            cluster,
            faults: faults.expect("wrapped"),
        })
    }

    /// Overwrites an object below `_quarry/`; none removes it.
    pub async fn put(&self, name: &str, body: Option<&str>) {
        let at = self.store.path(&format!("_quarry/{name}"));
        match body {
            Some(body) => drop(
                self.store
                    .objects()
                    .put(&at, body.to_owned().into())
                    .await
                    .expect("put"),
            ),
            None => self.store.objects().delete(&at).await.expect("delete"),
        }
    }

    /// An object below `_quarry/`, which is JSON.
    pub async fn get(&self, name: &str) -> serde_json::Value {
        let found = self.try_get(name).await;
        found.unwrap_or_else(|| panic!("{name} is not there, or no JSON"))
    }

    /// The same, where it is.
    pub async fn try_get(&self, name: &str) -> Option<serde_json::Value> {
        let at = self.store.path(&format!("_quarry/{name}"));
        let found = self.store.objects().get(&at).await.ok()?;
        let body = found.bytes().await.ok()?;
        serde_json::from_slice(&body).ok()
    }
}

impl Member {
    /// The shards that it serves.
    pub fn serves(&self) -> Vec<u32> {
        (0..self.cluster.shards())
            .filter(|shard| {
                self.cluster
                    .shard_report(*shard)
                    .is_ok_and(|report| report.status.as_str() == "running")
            })
            .collect()
    }

    pub async fn call(
        &self,
        shard: u32,
        method: &str,
        payload: &str,
    ) -> Result<CallReply, CallError> {
        let options = CallOptions {
            timeout: Some(Duration::from_secs(10)),
            ..CallOptions::default()
        };
        let payload = payload.to_owned().into();
        self.cluster
            .call(Target::Shard(shard), method, payload, options)
            .await
    }

    pub async fn query(&self, shard: u32, method: &str) -> Result<CallReply, CallError> {
        let options = QueryOptions::default();
        let payload = bytes::Bytes::new();
        self.cluster
            .query(Target::Shard(shard), method, payload, options)
            .await
    }
}

/// Waits until every shard is served by exactly one of these nodes, and each has a fair share. Gives who has what.
pub async fn settled(members: &[&Member]) -> BTreeMap<u32, String> {
    until("every shard has one owner, and shares are fair", || {
        shares(members)
    })
    .await
}

/// Who has what, where every shard is served by exactly one of these nodes, and each has a fair share.
pub fn shares(members: &[&Member]) -> Option<BTreeMap<u32, String>> {
    let shards = members[0].cluster.shards();
    let mut owners = BTreeMap::new();
    let mut shares = Vec::new();
    for member in members {
        let serves = member.serves();
        shares.push(serves.len());
        for shard in serves {
            if owners.insert(shard, member.name.clone()).is_some() {
                return None;
            }
        }
    }
    let fair = shares.iter().max()? - shares.iter().min()? <= 1;
    (owners.len() == shards as usize && fair).then_some(owners)
}

/// The shards whose owner differs.
pub fn moved(before: &BTreeMap<u32, String>, after: &BTreeMap<u32, String>) -> BTreeSet<u32> {
    let differs = |shard: &&u32| before.get(shard) != after.get(shard);
    before.keys().filter(differs).copied().collect()
}

/// The member that serves a shard.
pub fn owner<'a>(members: &[&'a Member], shard: u32) -> &'a Member {
    members
        .iter()
        .find(|member| member.serves().contains(&shard))
        .unwrap_or_else(|| panic!("nobody serves shard {shard}"))
}

//! A cluster in this process to which things are deployed, and clients that keep count of what they were told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use object_store::ObjectStoreExt;
use quarry::Cluster;
use quarry::call::{CallError, CallOptions, CallReply, Target};
use quarry::cluster::rollout::{EndedView, RolloutStatus};
use quarry::config::{Config, Strategy};
use quarry::deploy::operate::{DeployError, Ordered, RolloutOptions};
use quarry::deploy::{Draft, Library, Loader, Objects};
use quarry::store::faults::{Fault, FaultStore, Faults, Rule};
use quarry::transport::memory::Network;
use quarry_core::deploy::{Digest, ModuleSpec, Plan};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::logic;
use crate::support::process::{DEADLINE, until};
use crate::support::ring::Ring;

/// Leases that a busy machine does not lose.
const TTL: Duration = Duration::from_secs(4);

pub struct World {
    pub ring: Ring,
    pub network: Network,
    pub nodes: BTreeMap<String, Node>,
    pub loader: Arc<dyn Loader>,
    /// What a configuration is changed to.
    pub change: fn(&mut Config),
}

pub struct Node {
    pub cluster: Cluster,
    pub faults: Faults,
}

impl World {
    /// Nodes of these names, with leases; with one of them alone, without.
    pub async fn start(shards: u32, names: &[&str]) -> Self {
        Self::with(shards, names, logic::loader(), |_| {}).await
    }

    pub async fn with(
        shards: u32,
        names: &[&str],
        loader: Arc<dyn Loader>,
        change: fn(&mut Config),
    ) -> Self {
        let mut world = Self {
            ring: Ring::new(shards),
            network: Network::new(),
            nodes: BTreeMap::new(),
            loader,
            change,
        };
        for name in names {
            if names.len() == 1 {
                world.join_alone(name).await;
            } else {
                world.join(name).await;
            }
        }
        world.spread().await;
        world
    }

    pub fn config(&self, name: &str) -> Config {
        let mut config = self.ring.config(name);
        config.lease.ttl = TTL;
        config.lease.interval = Some(Duration::from_millis(300));
        config.shard.close_timeout = Duration::from_secs(5);
        (self.change)(&mut config);
        config
    }

    pub async fn join(&mut self, name: &str) {
        self.join_with(self.config(name)).await;
    }

    /// Starts a node that has all shards, without leases.
    pub async fn join_alone(&mut self, name: &str) {
        let mut config = self.config(name);
        config.strategy = Strategy::Local;
        config.lease = quarry::config::Lease::default();
        self.join_with(config).await;
    }

    async fn join_with(&mut self, config: Config) {
        let name = config.node.clone();
        let wrapped = FaultStore::new(self.ring.store.objects(), 0);
        let faults = wrapped.faults();
        let cluster = Cluster::deployed(Arc::new(config), self.loader.clone())
            .store(self.ring.store.wrap(|_| Arc::new(wrapped)))
            .network(self.network.clone())
            .start()
            .await
            .unwrap_or_else(|error| panic!("{name} does not start: {error}"));
        self.nodes.insert(name, Node { cluster, faults });
    }

    /// Waits until every shard is served by one node, and shares are fair.
    pub async fn spread(&self) {
        let shards = self.ring.shards as usize;
        until("every shard is served, and shares are fair", || {
            let counts: Vec<usize> = self
                .nodes
                .values()
                .map(|node| node.serves().len())
                .collect();
            let fair = counts.iter().max()? - counts.iter().min()? <= 1;
            (counts.iter().sum::<usize>() == shards && fair).then_some(())
        })
        .await;
    }

    pub fn objects(&self) -> Objects {
        Objects::new(&self.ring.store, "")
    }

    /// Any node.
    pub fn door(&self) -> &Cluster {
        let node = self.nodes.values().next().expect("a node");
        &node.cluster
    }

    /// Ends a node where it stands, with nothing written any more.
    pub async fn crash(&mut self, name: &str) {
        let node = self.nodes.remove(name).expect("a node");
        node.faults.add(Rule::new(Fault::FailBefore));
        for other in self.nodes.keys() {
            self.network.cut(name, other);
            self.network.cut(other, name);
        }
        let stop = node.cluster.stop();
        tokio::time::timeout(DEADLINE, stop).await.expect("a stop");
        self.network.heal();
    }

    /// Deploys what these bytes are, in the way of the options, and waits for the end of the rollout, which it gives.
    pub async fn deploy(&self, bytes: Bytes, options: &RolloutOptions) -> EndedView {
        let number = self.order(bytes, options).await;
        self.ended(number).await
    }

    /// Deploys native logic to all shards at once, which has to work.
    pub async fn adopt(&self, logic: &str) -> u64 {
        let ended = self.deploy(Library::bytes(logic), &all()).await;
        assert_eq!((ended.outcome, &*ended.why), ("adopted", ""), "{logic}");
        ended.target
    }

    /// Orders a rollout, and gives its number.
    pub async fn order(&self, bytes: Bytes, options: &RolloutOptions) -> u64 {
        let draft = self.draft(bytes, "{}").await;
        let ordered = self.door().deploy(draft, options).await.expect("an order");
        match ordered {
            Ordered::Begun { rollout, .. } => rollout,
            other => panic!("it did not begin: {other:?}"),
        }
    }

    pub async fn try_order(
        &self,
        via: &Cluster,
        bytes: Bytes,
        options: &RolloutOptions,
    ) -> Result<Ordered, DeployError> {
        let draft = self.draft(bytes, "{}").await;
        via.deploy(draft, options).await
    }

    /// A revision of one module whose component is in the bucket.
    pub async fn draft(&self, bytes: Bytes, options: &str) -> Draft {
        let size = bytes.len() as u64;
        let (digest, _) = self.objects().put_module(bytes).await.expect("stored");
        Draft {
            modules: vec![ModuleSpec {
                name: "main".into(),
                digest,
                size,
                options: options.into(),
                limits: BTreeMap::new(),
                grants: std::collections::BTreeSet::new(),
                prefix: String::new(),
            }],
            author: "test".into(),
            note: String::new(),
        }
    }

    /// Waits for the end of a rollout.
    pub async fn ended(&self, number: u64) -> EndedView {
        let status = self
            .status("the rollout ends", |status| {
                status.active.is_none()
                    && status
                        .last
                        .as_ref()
                        .is_some_and(|last| last.rollout == number)
            })
            .await;
        status.last.expect("it ended")
    }

    /// Waits until it is in this phase.
    pub async fn phase(&self, phase: &str) -> RolloutStatus {
        self.status(phase, |status| {
            status
                .active
                .as_ref()
                .is_some_and(|active| active.phase == phase)
        })
        .await
    }

    /// Waits for a status.
    pub async fn status(&self, what: &str, fits: impl Fn(&RolloutStatus) -> bool) -> RolloutStatus {
        let door = self.door();
        let begun = Instant::now();
        loop {
            let status = door.rollout().await.expect("a node that follows");
            if fits(&status) {
                return status;
            }
            assert!(
                begun.elapsed() < DEADLINE,
                "not in time: {what}: {status:#?}"
            );
            let wait = Duration::from_millis(100);
            door.rollout_changed(status.counter, wait)
                .await
                .expect("it follows");
        }
    }

    /// Waits until every shard is served by this revision.
    pub async fn all_run(&self, revision: u64) {
        self.status(&format!("all run {revision}"), |status| {
            let shards = &status.shards;
            shards.len() == self.ring.shards as usize
                && shards
                    .iter()
                    .all(|shard| shard.adopted && shard.revision == Some(revision))
        })
        .await;
    }

    /// Overwrites the object of a module.
    pub async fn tamper(&self, digest: &Digest, with: &[u8]) {
        let at = self
            .ring
            .store
            .path(&format!("_quarry/{}", digest.object()));
        let body = Bytes::copy_from_slice(with);
        self.ring
            .store
            .objects()
            .put(&at, body.into())
            .await
            .expect("put");
    }

    pub fn load(&self, callers: usize) -> Load {
        let doors = self.nodes.values().map(|node| node.cluster.clone());
        Load::start(doors.collect(), callers, "add")
    }

    pub async fn stop(self) {
        for node in self.nodes.values() {
            node.cluster.stop().await;
        }
    }
}

impl Node {
    pub fn serves(&self) -> Vec<u32> {
        let serving = |shard: &u32| {
            let report = self.cluster.shard_report(*shard);
            report.is_ok_and(|report| report.status.as_str() == "running")
        };
        (0..self.cluster.shards()).filter(serving).collect()
    }
}

pub fn all() -> RolloutOptions {
    RolloutOptions {
        by: "test".into(),
        step_timeout: Duration::from_secs(60),
        ..RolloutOptions::default()
    }
}

pub fn plan(plan: Plan) -> RolloutOptions {
    RolloutOptions { plan, ..all() }
}

pub async fn call(via: &Cluster, target: Target, method: &str) -> Result<CallReply, CallError> {
    let options = CallOptions {
        timeout: Some(Duration::from_secs(25)),
        ..CallOptions::default()
    };
    via.call(target, method, Bytes::new(), options).await
}

/// Callers with keys of their own, that call until they are told to stop.
pub struct Load {
    stop: watch::Sender<bool>,
    callers: Vec<JoinHandle<Told>>,
    made: watch::Receiver<u64>,
    doors: Vec<Cluster>,
    method: &'static str,
}

/// What one caller, or all, were told.
#[derive(Default)]
pub struct Told {
    /// Additions that were acknowledged, by key.
    pub added: BTreeMap<String, u64>,
    /// Calls by revision.
    pub by: BTreeMap<u64, u64>,
    pub failed: Vec<CallError>,
}

impl Load {
    pub fn start(doors: Vec<Cluster>, callers: usize, method: &'static str) -> Self {
        let stop = watch::Sender::new(false);
        let (count, made) = watch::channel(0_u64);
        let caller = |n: usize| {
            let (doors, stopped, count) = (doors.clone(), stop.subscribe(), count.clone());
            async move {
                let key = format!("caller-{n}");
                let mut told = Told::default();
                told.added.insert(key.clone(), 0);
                let mut at = n;
                while !*stopped.borrow() {
                    at += 1;
                    let door = &doors[at % doors.len()];
                    match call(door, Target::key(key.clone()), method).await {
                        Ok(reply) => {
                            *told.added.get_mut(&key).expect("its key") += 1;
                            *told.by.entry(reply.revision).or_default() += 1;
                        }
                        Err(error) => told.failed.push(error),
                    }
                    count.send_modify(|count| *count += 1);
                }
                told
            }
        };
        let callers = (0..callers).map(|n| tokio::spawn(caller(n))).collect();
        Self {
            stop,
            callers,
            made,
            doors,
            method,
        }
    }

    /// Waits until so many further calls have ended.
    pub async fn progress(&mut self, calls: u64) {
        let goal = *self.made.borrow() + calls;
        let made = self.made.wait_for(|made| *made >= goal);
        tokio::time::timeout(DEADLINE, made)
            .await
            .expect("calls go on")
            .expect("callers");
    }

    /// Stops, and gives what all were told. What they added is there, once each.
    pub async fn stop(self) -> Told {
        self.stop.send_replace(true);
        let mut all = Told::default();
        for caller in self.callers {
            let told = tokio::time::timeout(DEADLINE, caller).await;
            let told = told.expect("it ends").expect("a caller");
            all.added.extend(told.added);
            for (revision, calls) in told.by {
                *all.by.entry(revision).or_default() += calls;
            }
            all.failed.extend(told.failed);
        }
        for (key, added) in &all.added {
            let reply = call(&self.doors[0], Target::key(key.clone()), self.method).await;
            let count = String::from_utf8_lossy(&reply.expect("a call").payload).into_owned();
            assert_eq!(count, (added + 1).to_string(), "additions to {key}");
        }
        all
    }
}

impl Told {
    /// No call failed, but for those that the guests of these revisions failed.
    pub fn assert_fine_but(&self, revisions: &[u64]) {
        let theirs = |error: &CallError| {
            let revision = error.revision;
            revision.is_some_and(|revision| revisions.contains(&revision))
        };
        let others: Vec<_> = self.failed.iter().filter(|error| !theirs(error)).collect();
        assert!(
            others.is_empty(),
            "{} failed: {:?}",
            others.len(),
            others[0]
        );
    }
}

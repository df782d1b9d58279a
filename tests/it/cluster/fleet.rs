//! Three processes of one cluster under load, and what must hold whatever is done to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use quarry::client::Client;
use quarry_core::hash::shard_for;
use serde_json::Value;

use super::load::{Load, Work};
use crate::support::process::{DEADLINE, Node, Setup, Signal, until};

pub const NAMES: [&str; 3] = ["n1", "n2", "n3"];
pub const SHARDS: u32 = 6;
/// How many of them are each node's.
pub const SHARE: usize = SHARDS as usize / NAMES.len();
/// Until a shard whose owner died is somebody's again: its lease runs out, somebody looks, and opens it. A test machine that builds and runs
/// other things may take its time for that.
pub const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(3 + 1 + 12);

/// Who has a shard, under which generation.
pub type Owners = BTreeMap<u32, (String, u64)>;

pub struct Fleet {
    setups: Vec<Setup>,
    /// None while it is down.
    nodes: Vec<Option<Node>>,
    pub doors: Doors,
}

/// The nodes that clients use.
#[derive(Clone)]
pub struct Doors(Arc<Inner>);

struct Inner {
    open: Mutex<Vec<Option<Client>>>,
    /// Calls through each that are in progress.
    in_use: Vec<AtomicUsize>,
    /// Whether any call may fail now.
    lenient: AtomicBool,
    /// Whose calls may fail now.
    excused: Mutex<Option<Excused>>,
}

/// A node that is being killed or stopped, and the shards that it has.
struct Excused {
    node: usize,
    shards: BTreeSet<u32>,
}

/// A node that a client is using.
pub struct Door {
    pub client: Client,
    node: usize,
    doors: Doors,
}

impl Drop for Door {
    fn drop(&mut self) {
        self.doors.0.in_use[self.node].fetch_sub(1, Ordering::SeqCst);
    }
}

impl Door {
    /// Whether a call through it with this key may fail now.
    pub fn may_fail(&self, key: &str) -> bool {
        let inner = &self.doors.0;
        let excused = inner.excused.lock().unwrap_or_else(PoisonError::into_inner);
        let excuses = |excused: &Excused| {
            excused.node == self.node || excused.shards.contains(&shard_for(key.as_bytes(), SHARDS))
        };
        inner.lenient.load(Ordering::SeqCst) || excused.as_ref().is_some_and(excuses)
    }
}

impl Doors {
    fn new(nodes: usize) -> Self {
        Self(Arc::new(Inner {
            open: Mutex::new(vec![None; nodes]),
            in_use: (0..nodes).map(|_| AtomicUsize::new(0)).collect(),
            lenient: AtomicBool::new(false),
            excused: Mutex::new(None),
        }))
    }

    fn set(&self, node: usize, client: Option<Client>) {
        self.lock()[node] = client;
    }

    /// The node of this number, or the next one that is there.
    pub fn door(&self, first: usize) -> Door {
        let open = self.lock();
        let nodes = (0..open.len()).map(|node| (first + node) % open.len());
        let found = nodes
            .filter_map(|node| Some((node, open[node].clone()?)))
            .next();
        let (node, client) = found.expect("a node");
        // Under the lock: once a door is shut, nobody comes who is not counted.
        self.0.in_use[node].fetch_add(1, Ordering::SeqCst);
        Door {
            client,
            node,
            doors: self.clone(),
        }
    }

    fn set_excused(&self, excused: Option<Excused>) {
        *self
            .0
            .excused
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = excused;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Option<Client>>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The arguments of a node of a cluster with short leases.
pub fn configured(setup: Setup, name: &str) -> Setup {
    leased(setup, name, "3s")
}

/// The arguments of a node with leases of this length.
pub fn leased(setup: Setup, name: &str, ttl: &str) -> Setup {
    setup.named(name).with(&[
        "--strategy",
        "lease",
        "--lease-ttl",
        ttl,
        "--set",
        "call.timeout=20s",
        "--set",
        "call.park=15s",
    ])
}

impl Fleet {
    /// Starts a node of each setup, and waits until they share the shards.
    pub async fn start(setups: Vec<Setup>) -> Self {
        let all = setups.len();
        Self::start_some(setups, all).await
    }

    /// The same of the first few; the others may rise later.
    pub async fn start_some(setups: Vec<Setup>, first: usize) -> Self {
        let mut fleet = Self {
            nodes: setups.iter().map(|_| None).collect(),
            doors: Doors::new(setups.len()),
            setups,
        };
        for node in 0..first {
            fleet.rise(node).await;
        }
        fleet.settled().await;
        fleet
    }

    /// The nodes that are up.
    pub fn up(&self) -> Vec<usize> {
        let up = |node: &usize| self.nodes[*node].is_some();
        (0..self.nodes.len()).filter(up).collect()
    }

    pub async fn rise(&mut self, node: usize) {
        let started = self.setups[node].start().await;
        self.doors.set(node, Some(started.client.clone()));
        self.nodes[node] = Some(started);
    }

    pub fn node(&self, node: usize) -> &Node {
        self.nodes[node].as_ref().expect("it runs")
    }

    /// Kill -9: its clients learn of it by themselves.
    pub async fn kill(&mut self, node: usize) {
        let victim = self.nodes[node].take().expect("it runs");
        victim.kill().await;
        self.doors.set(node, None);
    }

    /// A clean stop, as behind a load balancer: calls through this node go elsewhere first, since a node that stops closes connections
    /// on which nothing happens, and HTTP cannot tell that from a request that crosses with it. What others forward to it goes on.
    pub async fn stop(&mut self, node: usize) {
        self.doors.set(node, None);
        until("its clients have gone elsewhere", || {
            (self.doors.0.in_use[node].load(Ordering::SeqCst) == 0).then_some(())
        })
        .await;
        self.nodes[node].take().expect("it runs").stop().await;
    }

    pub fn signal(&self, node: usize, signal: Signal) {
        self.node(node).process.signal(signal);
    }

    /// Whether calls may fail from now on.
    pub fn lenient(&self, lenient: bool) {
        self.doors.0.lenient.store(lenient, Ordering::SeqCst);
    }

    /// From now on, the calls of a node may fail: those through it, and those to the shards that it has.
    pub fn excuse(&self, node: usize, shards: &[u32]) {
        let shards = shards.iter().copied().collect();
        self.doors.set_excused(Some(Excused { node, shards }));
    }

    /// From now on, no call may fail.
    pub fn excuse_nobody(&self) {
        self.doors.set_excused(None);
    }

    /// Waits until these nodes have all shards, says how long that took, and who has them.
    pub async fn owned_by(&self, nodes: &[usize], within: Duration) -> Owners {
        let began = Instant::now();
        let names: Vec<_> = nodes.iter().map(|node| NAMES[*node]).collect();
        loop {
            let mut last = Value::Null;
            // All of them see it so.
            let mut seen = Vec::new();
            for node in nodes {
                if let Ok(status) = self.node(*node).client.status().await {
                    seen.extend(owners(&status, &names));
                    last = status;
                }
            }
            if seen.len() == nodes.len() && seen.iter().all(|owners| *owners == seen[0]) {
                eprintln!("{names:?} have all shards after {:.1?}", began.elapsed());
                return seen.swap_remove(0);
            }
            assert!(
                began.elapsed() < within,
                "{names:?} do not have all shards after {within:?}: {last:#}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until all nodes have all shards in fair shares.
    pub async fn settled(&self) -> Owners {
        let all = self.up();
        let began = Instant::now();
        loop {
            let owners = self.owned_by(&all, DEADLINE).await;
            let share = |node: &usize| {
                owners
                    .values()
                    .filter(|(name, _)| name == NAMES[*node])
                    .count()
            };
            let shares: Vec<_> = all.iter().map(share).collect();
            if shares.iter().max().unwrap_or(&0) - shares.iter().min().unwrap_or(&0) <= 1 {
                return owners;
            }
            assert!(began.elapsed() < DEADLINE, "shares stay unfair: {owners:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until no node serves any shard.
    pub async fn fenced(&self) {
        let began = Instant::now();
        for node in self.nodes.iter().flatten() {
            loop {
                let status = node.client.status().await.expect("a status");
                let shards = status["shards"].as_object().expect("shards");
                if shards.values().all(|shard| shard["status"] != "running") {
                    break;
                }
                assert!(
                    began.elapsed() < DEADLINE,
                    "shards run on without a store: {status:#}"
                );
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        eprintln!("no shard runs after {:.1?}", began.elapsed());
    }

    /// Ends the load, checks what it left behind through every node, and stops all.
    pub async fn end<W: Work>(mut self, load: Load<W>) {
        let works = load.end().await;
        for node in 0..self.nodes.len() {
            for work in &works {
                work.check(&self.node(node).client).await;
            }
        }
        for node in 0..self.nodes.len() {
            self.stop(node).await;
        }
    }
}

/// Who has what, if every shard runs on one of these nodes.
fn owners(status: &Value, names: &[&str]) -> Option<Owners> {
    let mut owners = Owners::new();
    for (shard, report) in status["shards"].as_object()? {
        let node = report["node"].as_str()?;
        if report["status"] != "running" || !names.contains(&node) {
            return None;
        }
        let generation = report["generation"].as_u64()?;
        owners.insert(shard.parse().ok()?, (node.to_owned(), generation));
    }
    (owners.len() == SHARDS as usize).then_some(owners)
}

/// What changed hands, or was opened anew under another generation.
pub fn changed(before: &Owners, after: &Owners) -> Vec<u32> {
    let differs = |shard: &&u32| before[*shard] != after[*shard];
    before.keys().filter(differs).copied().collect()
}

/// The shards of a node.
pub fn of(owners: &Owners, node: usize) -> Vec<u32> {
    let its = |(shard, (name, _)): (&u32, &(String, u64))| (name == NAMES[node]).then_some(*shard);
    owners.iter().filter_map(its).collect()
}

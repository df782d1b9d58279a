//! A cluster of whole nodes over one store in memory, clients that use registers and banks through all of them, and what they saw.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quarry::call::{CallOptions, Target};
use quarry::clock::driven::NodeClock;
use quarry::store::Store;
use quarry::store::faults::FaultStore;
use quarry::transport::memory::Network;
use quarry::{Cluster, clock};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::cluster::ledger::{
    self, ACCOUNTS, BALANCE, Bank, BankOp, Order, Register, RegisterOp, Sent, done,
};
use crate::cluster::linear::{Done, History, Model, check};
use crate::support::ring::{Member, Ring, shares};

pub const SHARDS: u32 = 6;
const CLIENTS: u64 = 4;
const REGISTERS: usize = 8;
const BANKS: usize = 4;
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// When a client turns to another call, since the node does not even say that the time is over.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);
/// How often it is looked for what is waited for.
const LOOK: Duration = Duration::from_millis(20);

/// Where a node lives.
#[derive(Clone)]
pub struct Home {
    pub name: &'static str,
    /// What starts it and calls it.
    pub on: Handle,
    /// Its clock, where time is driven.
    pub clock: Option<NodeClock>,
}

/// How fast things go.
#[derive(Clone, Copy)]
pub struct Pace {
    pub ttl: Duration,
    /// The longest that anything may take.
    pub limit: Duration,
    /// The longest pause of a client between two calls.
    pub think: Duration,
}

pub struct World {
    pub ring: Ring,
    pub network: Network,
    pub homes: Vec<Home>,
    /// In the order of their homes.
    pub members: Vec<Member>,
    pub random: StdRng,
    pub pace: Pace,
    store: Store,
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<Seen>>,
    seed: u64,
}

/// What clients share with the test.
struct Shared {
    doors: Mutex<BTreeMap<&'static str, (Handle, Cluster)>>,
    order: Order,
    over: AtomicBool,
    /// The longest pause between two calls, in milliseconds.
    think: AtomicU64,
}

impl World {
    /// Starts a node in each home, and the clients.
    pub async fn start(
        homes: Vec<Home>,
        pace: Pace,
        seed: u64,
        wrap: impl FnOnce(&Store) -> Store,
    ) -> Self {
        let ring = Ring::new(SHARDS);
        let mut world = Self {
            store: wrap(&ring.store),
            ring,
            network: Network::new(),
            homes,
            members: Vec::new(),
            random: StdRng::seed_from_u64(seed),
            pace,
            shared: Arc::new(Shared {
                doors: Mutex::default(),
                order: Order::default(),
                over: AtomicBool::new(false),
                think: AtomicU64::default(),
            }),
            clients: Vec::new(),
            seed,
        };
        world.think(pace.think);
        for home in world.homes.clone() {
            let member = world.node(&home).await;
            world.members.push(member);
        }
        world
            .settled(&world.members.iter().collect::<Vec<_>>())
            .await;
        world.clients = (0..CLIENTS).map(|client| world.client(client)).collect();
        world
    }

    /// Starts a node and opens its door.
    pub async fn node(&mut self, home: &Home) -> Member {
        let mut config = self.ring.config(home.name);
        config.lease.ttl = self.pace.ttl;
        config.shard.close_timeout = Duration::from_secs(1);
        config.threads.compaction = 1;
        config.threads.peers = 1;
        let wrapped = FaultStore::new(self.store.objects(), self.random.random());
        let faults = wrapped.faults();
        let builder = Cluster::builder(Arc::new(config), ledger::module())
            .store(self.store.wrap(|_| Arc::new(wrapped)))
            .network(self.network.clone());
        let started = home.on.spawn(builder.start()).await.expect("no panic");
        let cluster = started.unwrap_or_else(|error| {
            panic!("{} does not start: {error}; seed {}", home.name, self.seed)
        });
        let door = (home.on.clone(), cluster.clone());
        self.shared.doors().insert(home.name, door);
        Member {
            name: home.name.into(),
            cluster,
            faults,
        }
    }

    /// Shuts the door of a node to clients, and stops it.
    pub async fn stop(&self, home: &Home, member: &Member) {
        self.shared.doors().remove(home.name);
        let cluster = member.cluster.clone();
        let stopping = home.on.spawn(async move { cluster.stop().await });
        let stopped = clock::timeout(self.pace.limit, stopping).await;
        stopped.expect("it stops in time").expect("no panic");
    }

    /// The members but one.
    pub fn others(&self, but: usize) -> Vec<&Member> {
        let all = self.members.iter().enumerate();
        all.filter(|(at, _)| *at != but).map(|(_, m)| m).collect()
    }

    /// Waits for something.
    pub async fn until<T>(&self, what: &str, look: impl Fn() -> Option<T>) -> T {
        let looking = async {
            loop {
                if let Some(found) = look() {
                    return found;
                }
                clock::sleep(LOOK).await;
            }
        };
        let found = clock::timeout(self.pace.limit, looking).await;
        found.unwrap_or_else(|_| {
            let serve: Vec<_> = self.members.iter().map(|m| (&m.name, m.serves())).collect();
            panic!(
                "not within {:?}: {what}; seed {}; {serve:?}",
                self.pace.limit, self.seed
            )
        })
    }

    /// Waits until every shard is served by exactly one of these, and each has a fair share.
    pub async fn settled(&self, members: &[&Member]) {
        let what = "every shard has one owner, and shares are fair";
        self.until(what, || shares(members)).await;
    }

    /// Waits until clients have called so often.
    pub async fn progress(&self, calls: u64) {
        let goal = self.shared.order.tick() + calls * 2;
        let on = || (self.shared.order.tick() >= goal).then_some(());
        self.until("clients go on", on).await;
    }

    /// The longest pause of clients from now on.
    pub fn think(&self, longest: Duration) {
        let millis = u64::try_from(longest.as_millis()).expect("short");
        self.shared.think.store(millis, Ordering::SeqCst);
    }

    /// The generation of each lease.
    pub async fn generations(&self) -> Vec<u64> {
        let mut generations = Vec::new();
        for shard in 0..SHARDS {
            let lease = self.ring.get(&format!("leases/{shard:03}.json")).await;
            generations.push(lease["generation"].as_u64().expect("a generation"));
        }
        generations
    }

    /// Ends the clients, reads everything through every node, stops the nodes, and checks what was seen.
    pub async fn finish(mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        let mut seen = Seen::default();
        for client in std::mem::take(&mut self.clients) {
            let ended = clock::timeout(self.pace.limit, client).await;
            seen.merge(ended.expect("the client ends").expect("a client"));
        }
        self.read_all(&mut seen).await;
        for (home, member) in self.homes.iter().zip(&self.members) {
            self.stop(home, member).await;
        }
        seen.check(self.seed);
    }

    /// Starts a client, which gives what it has seen when it is over.
    fn client(&self, number: u64) -> JoinHandle<Seen> {
        let shared = self.shared.clone();
        let mut random = StdRng::seed_from_u64(self.seed.wrapping_add(number + 1));
        tokio::spawn(async move {
            let mut seen = Seen::default();
            let mut count = 0_u64;
            while !shared.over.load(Ordering::SeqCst) {
                let think = shared.think.load(Ordering::SeqCst);
                if think > 0 {
                    clock::sleep(Duration::from_millis(random.random_range(0..think))).await;
                }
                let door = shared.door(&mut random);
                if random.random_bool(0.5) {
                    let key = random.random_range(0..REGISTERS);
                    count += 1;
                    let op = if random.random_bool(0.5) {
                        RegisterOp::Put(format!("{number}-{count}"))
                    } else {
                        RegisterOp::Get
                    };
                    let call = shared.call(&door, &register(key), op).await;
                    seen.registers.entry(key).or_default().extend(call);
                } else {
                    let key = random.random_range(0..BANKS);
                    let op = if random.random_bool(0.7) {
                        // Amounts that tell apart which of several transfers of unknown outcome were made.
                        BankOp::Transfer(
                            random.random_range(0..ACCOUNTS),
                            random.random_range(0..ACCOUNTS),
                            random.random_range(1..BALANCE),
                        )
                    } else {
                        BankOp::Balances
                    };
                    let call = shared.call(&door, &bank(key), op).await;
                    seen.banks.entry(key).or_default().extend(call);
                }
            }
            seen
        })
    }

    /// Reads everything, through a node that has it and through one that has not.
    async fn read_all(&self, seen: &mut Seen) {
        for (home, member) in self.homes.iter().zip(&self.members) {
            let via = &(home.on.clone(), member.cluster.clone());
            for key in 0..REGISTERS {
                let call = self.shared.call(via, &register(key), RegisterOp::Get).await;
                let calls = seen.registers.entry(key).or_default();
                calls.push(call.expect("it runs"));
            }
            for key in 0..BANKS {
                let call = self.shared.call(via, &bank(key), BankOp::Balances).await;
                let call = call.expect("it runs");
                let sum: u64 = call.ended.iter().flat_map(|(_, all)| all).sum();
                assert_eq!(sum, BALANCE * ACCOUNTS as u64, "seed {}", self.seed);
                seen.banks.entry(key).or_default().push(call);
            }
        }
    }
}

impl Shared {
    fn doors(&self) -> MutexGuard<'_, BTreeMap<&'static str, (Handle, Cluster)>> {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Any node's.
    fn door(&self, random: &mut StdRng) -> (Handle, Cluster) {
        let doors = self.doors();
        let at = random.random_range(0..doors.len());
        doors.values().nth(at).expect("a door").clone()
    }

    /// Makes a call on the threads of the node; none when it certainly did not run.
    async fn call<O: Sent>(
        &self,
        (on, via): &(Handle, Cluster),
        key: &str,
        op: O,
    ) -> Option<Done<O, O::Answer>> {
        let options = CallOptions {
            timeout: Some(CALL_TIMEOUT),
            ..CallOptions::default()
        };
        let began = self.order.tick();
        let (via, target) = (via.clone(), Target::key(key.to_owned()));
        let (method, payload) = (op.method(), op.payload().into());
        let calling = on.spawn(async move { via.call(target, method, payload, options).await });
        match clock::timeout(CLIENT_TIMEOUT, calling).await {
            Ok(reply) => done(&self.order, began, op, reply.expect("no panic")),
            // It goes on, and nobody will know what became of it.
            Err(_) => Some(Done {
                op,
                began,
                ended: None,
            }),
        }
    }
}

fn register(key: usize) -> String {
    format!("register-{key}")
}

fn bank(key: usize) -> String {
    format!("bank-{key}")
}

/// What clients have seen of each object.
#[derive(Default)]
struct Seen {
    registers: BTreeMap<usize, History<Register>>,
    banks: BTreeMap<usize, History<Bank>>,
}

impl Seen {
    fn merge(&mut self, other: Self) {
        for (key, calls) in other.registers {
            self.registers.entry(key).or_default().extend(calls);
        }
        for (key, calls) in other.banks {
            self.banks.entry(key).or_default().extend(calls);
        }
    }

    fn check(self, seed: u64) {
        for (key, history) in self.registers {
            linearizable::<Register>(&String::new(), history, &register(key), seed);
        }
        for (key, history) in self.banks {
            linearizable::<Bank>(&vec![BALANCE; ACCOUNTS], history, &bank(key), seed);
        }
    }
}

fn linearizable<M: Model>(start: &M::State, mut history: History<M>, name: &str, seed: u64) {
    history.sort_by_key(|call| call.began);
    let unknown = history.iter().filter(|call| call.ended.is_none()).count();
    let calls = history.len();
    eprintln!("{name}: {calls} calls, {unknown} of unknown outcome");
    assert!(calls > unknown + 50, "{name}: the run shows nothing");
    check::<M>(start, &history)
        .unwrap_or_else(|refused| panic!("{name} is not linearizable; seed {seed}: {refused:?}"));
}

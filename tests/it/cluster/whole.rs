//! Whole nodes in this process over one store in memory: they are broken in every way in turn, in a seeded order, while clients use
//! registers and banks through all of them. What was acknowledged must be linearizable.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use quarry::Cluster;
use quarry::call::{CallOptions, Target};
use quarry::store::faults::{Fault, FaultStore, Faults, Op, Rule};
use quarry::transport::memory::Network;
use quarry_core::control::Command;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinHandle;

use super::ledger::{
    self, ACCOUNTS, BALANCE, Bank, BankOp, Order, Register, RegisterOp, Sent, done,
};
use super::linear::{Done, History, Model, check};
use super::{alone, seed};
use crate::support::process::{DEADLINE, until};
use crate::support::ring::{Member, Ring, settled};

const NAMES: [&str; 3] = ["a", "b", "c"];
const SHARDS: u32 = 6;
const CLIENTS: u64 = 4;
const REGISTERS: usize = 8;
const BANKS: usize = 4;
const CALL_TIMEOUT: Duration = Duration::from_secs(3);

/// What is done to the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    /// A node ends where it stands, with nothing written any more, and starts again under its name.
    Crash,
    /// A node leaves, and starts again.
    Leave,
    /// No node reaches the store, until all have given up their shards.
    Outage,
    /// Some requests to the store fail, before or after their effect, and some take long.
    Flaky,
    /// One node does not reach the store, and its peers reach it.
    CutOff,
    /// One node's leases hang, and its databases go on.
    LeasesHang,
    /// One node and its peers do not reach each other, and all reach the store.
    Apart,
    /// One node takes the requests of its peers and does not answer.
    Mute,
    /// An operator moves a shard.
    Move,
    /// An operator drains a node, and has it back.
    Drain,
    /// Somebody deletes and overwrites what lies in the folder of leases.
    Vandal,
}

const DEEDS: [Deed; 11] = [
    Deed::Crash,
    Deed::Leave,
    Deed::Outage,
    Deed::Flaky,
    Deed::CutOff,
    Deed::LeasesHang,
    Deed::Apart,
    Deed::Mute,
    Deed::Move,
    Deed::Drain,
    Deed::Vandal,
];

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_is_linearizable_whatever_breaks() {
    let _alone = alone().await;
    let seed = seed();
    let mut world = World::start(seed).await;
    let clients: Vec<_> = (0..CLIENTS).map(|client| world.client(client)).collect();
    let mut deeds = DEEDS;
    deeds.shuffle(&mut world.random);
    for deed in deeds {
        let began = Instant::now();
        world.progress(50).await;
        world.carry_out(deed).await;
        world.heal();
        settled(&world.members.iter().collect::<Vec<_>>()).await;
        eprintln!("{deed:?} and back took {:.1?}", began.elapsed());
    }
    world.progress(200).await;
    world.shared.over.store(true, Ordering::SeqCst);
    let mut seen = Seen::default();
    for client in clients {
        let ended = tokio::time::timeout(DEADLINE, client).await;
        seen.merge(ended.expect("the client ends").expect("a client"));
    }
    world.read_all(&mut seen).await;
    seen.check(seed);
    for member in &world.members {
        member.cluster.stop().await;
    }
}

/// What clients share with the test.
struct Shared {
    doors: Mutex<BTreeMap<String, Cluster>>,
    order: Order,
    over: AtomicBool,
}

impl Shared {
    fn doors(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Cluster>> {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Any node's.
    fn door(&self, random: &mut StdRng) -> Cluster {
        let doors = self.doors();
        let at = random.random_range(0..doors.len());
        doors.values().nth(at).expect("a door").clone()
    }

    /// Makes a call; none when it certainly did not run.
    async fn call<O: Sent>(&self, via: &Cluster, key: &str, op: O) -> Option<Done<O, O::Answer>> {
        let options = CallOptions {
            timeout: Some(CALL_TIMEOUT),
            ..CallOptions::default()
        };
        let began = self.order.tick();
        let target = Target::key(key.to_owned());
        let reply = via
            .call(target, op.method(), op.payload().into(), options)
            .await;
        done(&self.order, began, op, reply)
    }
}

struct World {
    ring: Ring,
    network: Network,
    members: Vec<Member>,
    shared: Arc<Shared>,
    random: StdRng,
    seed: u64,
}

impl World {
    async fn start(seed: u64) -> Self {
        let mut world = Self {
            ring: Ring::new(SHARDS),
            network: Network::new(),
            members: Vec::new(),
            shared: Arc::new(Shared {
                doors: Mutex::default(),
                order: Order::default(),
                over: AtomicBool::new(false),
            }),
            random: StdRng::seed_from_u64(seed),
            seed,
        };
        for name in NAMES {
            let member = world.node(name).await;
            world.members.push(member);
        }
        settled(&world.members.iter().collect::<Vec<_>>()).await;
        world
    }

    /// Starts a node and opens its door.
    async fn node(&mut self, name: &str) -> Member {
        let mut config = self.ring.config(name);
        config.shard.close_timeout = Duration::from_secs(1);
        let wrapped = FaultStore::new(self.ring.store.objects(), self.random.random());
        let faults: Faults = wrapped.faults();
        let cluster = Cluster::builder(Arc::new(config), ledger::module())
            .store(self.ring.store.wrap(|_| Arc::new(wrapped)))
            .network(self.network.clone())
            .start()
            .await
            .unwrap_or_else(|error| panic!("{name} does not start: {error}; seed {}", self.seed));
        self.shared.doors().insert(name.into(), cluster.clone());
        Member {
            name: name.into(),
            cluster,
            faults,
        }
    }

    /// Waits until clients have called so often.
    async fn progress(&self, calls: u64) {
        let goal = self.shared.order.tick() + calls * 2;
        until("clients go on", || {
            (self.shared.order.tick() >= goal).then_some(())
        })
        .await;
    }

    async fn carry_out(&mut self, deed: Deed) {
        let victim = self.random.random_range(0..self.members.len());
        let name = self.members[victim].name.clone();
        eprintln!("{deed:?} of {name}");
        let others: Vec<&Member> = self.members.iter().filter(|m| m.name != name).collect();
        let member = &self.members[victim];
        match deed {
            Deed::Crash | Deed::Leave => {
                if deed == Deed::Crash {
                    member.faults.add(Rule::new(Fault::FailBefore));
                    self.isolate(&name);
                }
                self.shared.doors().remove(&name);
                let stop = member.cluster.stop();
                tokio::time::timeout(DEADLINE, stop).await.expect("a stop");
                settled(&others).await;
                self.network.heal();
                self.members[victim] = self.node(&name).await;
            }
            Deed::Outage => {
                for member in &self.members {
                    member.faults.add(Rule::new(Fault::FailBefore));
                }
                let closed = || self.members.iter().all(|m| m.serves().is_empty());
                until("all gave up", || closed().then_some(())).await;
            }
            Deed::Flaky => {
                for member in &self.members {
                    for fault in [
                        Fault::FailBefore,
                        Fault::FailAfter,
                        Fault::Latency(Duration::from_millis(100)),
                    ] {
                        member.faults.add(Rule::new(fault).probability(0.1));
                    }
                }
                until("some requests failed", || {
                    let struck = self.members.iter().map(|m| m.faults.struck()).min();
                    (struck? >= 30).then_some(())
                })
                .await;
            }
            Deed::CutOff => {
                member.faults.add(Rule::new(Fault::FailBefore));
                settled(&others).await;
                assert!(member.serves().is_empty(), "it stopped before");
            }
            Deed::LeasesHang => {
                member.faults.add(Rule::new(Fault::Hang).path("_quarry/"));
                settled(&others).await;
                assert!(member.serves().is_empty(), "it stopped before");
            }
            Deed::Apart => {
                self.isolate(&name);
                let puts = member.faults.calls(Op::Put);
                until("some rounds", || {
                    (member.faults.calls(Op::Put) > puts + 10).then_some(())
                })
                .await;
            }
            Deed::Mute => {
                self.network.pause(&name);
                let sent = self.network.requests();
                until("some wait for it", || {
                    (self.network.requests() > sent + 20).then_some(())
                })
                .await;
            }
            Deed::Move => {
                let (shard, to) = (member.serves()[0], others[0]);
                let command = Command::Move {
                    shard,
                    to: to.name.parse().expect("a name"),
                };
                // Until it knows of the other.
                let began = Instant::now();
                while let Err(error) = member.cluster.leases().command(command.clone()).await {
                    assert!(began.elapsed() < DEADLINE, "{error}");
                }
                until("it has moved", || {
                    to.serves().contains(&shard).then_some(())
                })
                .await;
            }
            Deed::Drain => {
                let leases = member.cluster.leases();
                leases.command(Command::Drain).await.expect("drain");
                settled(&others).await;
                leases.command(Command::Uncordon).await.expect("uncordon");
            }
            Deed::Vandal => {
                self.ring.put("leases/000.json", Some("")).await;
                let huge = "[".repeat(1_000_000);
                self.ring.put("leases/001.json", Some(&huge)).await;
                self.ring.put("leases/002.json", None).await;
                self.ring
                    .put("leases/003.json", Some("{\"version\":9}"))
                    .await;
                let node = format!("nodes/{name}.json");
                let body = self.random.random_bool(0.5).then_some("garbage");
                self.ring.put(&node, body).await;
                self.whole_again().await;
            }
        }
    }

    /// Waits until every lease is somebody's again.
    async fn whole_again(&self) {
        let owned = async |shard| {
            let lease = self.ring.try_get(&format!("leases/{shard:03}.json")).await;
            lease.is_some_and(|lease| lease["state"] == "owned")
        };
        let began = Instant::now();
        for shard in 0..SHARDS {
            while !owned(shard).await {
                assert!(began.elapsed() < DEADLINE, "lease {shard} is not repaired");
                tokio::task::yield_now().await;
            }
        }
    }

    fn isolate(&self, name: &str) {
        for other in NAMES {
            self.network.cut(name, other);
            self.network.cut(other, name);
        }
    }

    fn heal(&self) {
        self.network.heal();
        for member in &self.members {
            self.network.resume(&member.name);
            member.faults.clear();
        }
    }

    /// Starts a client, which gives what it has seen when it is over.
    fn client(&self, number: u64) -> JoinHandle<Seen> {
        let shared = self.shared.clone();
        let mut random = StdRng::seed_from_u64(self.seed.wrapping_add(number + 1));
        tokio::spawn(async move {
            let mut seen = Seen::default();
            let mut count = 0_u64;
            while !shared.over.load(Ordering::SeqCst) {
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
        for member in &self.members {
            let via = &member.cluster;
            for key in 0..REGISTERS {
                let call = self.shared.call(via, &register(key), RegisterOp::Get).await;
                seen.registers
                    .entry(key)
                    .or_default()
                    .push(call.expect("it runs"));
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

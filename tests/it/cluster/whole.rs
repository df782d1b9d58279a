//! Whole nodes in this process over one store in memory: they are broken in every way in turn, in a seeded order, while clients use
//! registers and banks through all of them. What was acknowledged must be linearizable.
//!
//! On driven time they have leases as long as in a deployment, and clocks that jump and threads that stop, and live for half an hour or more, twice. On the
//! machine's time they race: clients do not pause, and nothing waits for anything to come to rest.

mod world;

use std::sync::Arc;
use std::time::{Duration, Instant};

use quarry::clock;
use quarry::clock::driven::{NodeClock, Time};
use quarry::store::faults::{Fault, Op, Rule};
use quarry_core::control::Command;
use rand::RngExt;
use rand::seq::SliceRandom;
use tokio::runtime::{Handle, Runtime};

use super::{alone, seed};
use crate::support::driven::DrivenStore;
use crate::support::ring::Member;
use world::{Home, Pace, SHARDS, World};

const NAMES: [&str; 3] = ["a", "b", "c"];
/// Seeds of one run on driven time, from the seed of the run on.
const LIVES: u64 = 2;
/// Time moves in steps of this.
const GRAIN: Duration = Duration::from_millis(100);
const DAY: Duration = Duration::from_secs(86_400);
const MINUTE: Duration = Duration::from_secs(60);

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
    /// All threads of a node stop until the others have its shards, and go on where they were.
    Pause,
    /// A machine sleeps for a day, in which its threads see nothing pass.
    Sleep,
    /// Somebody sets a machine's wall clock a day forward or back.
    WallClock,
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

/// Those that need a clock for each node.
const CLOCK_DEEDS: [Deed; 3] = [Deed::Pause, Deed::Sleep, Deed::WallClock];

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_is_linearizable_whatever_breaks() {
    let _alone = alone().await;
    let seed = seed();
    let pace = Pace {
        ttl: Duration::from_secs(1),
        limit: crate::support::process::DEADLINE,
        think: Duration::ZERO,
    };
    let home = |name| Home {
        name,
        on: Handle::current(),
        clock: None,
    };
    let homes = NAMES.map(home).to_vec();
    let mut world = World::start(homes, pace, seed, Clone::clone).await;
    let mut deeds = DEEDS;
    deeds.shuffle(&mut world.random);
    for deed in deeds {
        world.progress(50).await;
        world.suffer(deed).await;
    }
    world.progress(200).await;
    world.finish().await;
}

#[test]
fn an_hour_of_everything_that_breaks_leaves_what_was_acknowledged_linearizable() {
    let _alone = futures::executor::block_on(alone());
    let first = seed();
    for seed in first..first.saturating_add(LIVES) {
        eprintln!("QUARRY_TEST_SEED={seed} begins with this life");
        let machine = Instant::now();
        let time = Time::new(GRAIN);
        let (_runtimes, homes) = homes(&time);
        let here = time.clock().runtime().expect("threads");
        let life = life(time.clone(), homes, seed);
        time.run(&here, life);
        eprintln!("{:?} in {:.1?}", time.elapsed(), machine.elapsed());
        assert!(time.elapsed() > MINUTE * 25, "a short life");
    }
}

/// A home of its own for each node. The runtimes end with the test.
fn homes(time: &Time) -> (Vec<Runtime>, Vec<Home>) {
    NAMES
        .map(|name| {
            let clock = time.clock();
            let runtime = clock.runtime().expect("threads");
            let home = Home {
                name,
                on: runtime.handle().clone(),
                clock: Some(clock),
            };
            (runtime, home)
        })
        .into_iter()
        .unzip()
}

/// One life of a cluster, with the leases of a deployment.
async fn life(time: Time, homes: Vec<Home>, seed: u64) {
    let pace = Pace {
        ttl: Duration::from_secs(15),
        limit: MINUTE * 15,
        think: Duration::from_secs(1),
    };
    let store = |store: &quarry::store::Store| {
        store.wrap(|objects| Arc::new(DrivenStore::new(objects, time.clone(), seed)))
    };
    let mut world = World::start(homes, pace, seed, store).await;
    let mut deeds = [&DEEDS[..], &CLOCK_DEEDS].concat();
    deeds.shuffle(&mut world.random);
    for deed in deeds {
        world.calm().await;
        world.progress(20).await;
        world.suffer(deed).await;
    }
    world.progress(100).await;
    world.finish().await;
}

impl World {
    /// Some of the time in which nothing happens. No lease changes hands, however slow the machine is that this runs on.
    async fn calm(&mut self) {
        self.think(MINUTE);
        clock::sleep(self.pace.ttl * 3).await;
        let before = self.generations().await;
        let time = MINUTE * self.random.random_range(1..3);
        clock::sleep(time).await;
        assert_eq!(self.generations().await, before, "leases changed in calm");
        self.think(self.pace.think);
    }

    /// Something is done to the cluster, and it recovers.
    async fn suffer(&mut self, deed: Deed) {
        let victim = self.random.random_range(0..self.members.len());
        let began = clock::now();
        eprintln!("{deed:?} of {}", NAMES[victim]);
        self.carry_out(deed, victim).await;
        self.heal();
        self.settled(&self.members.iter().collect::<Vec<_>>()).await;
        eprintln!("{deed:?} and back took {:.1?}", clock::now() - began);
    }

    async fn carry_out(&mut self, deed: Deed, victim: usize) {
        let home = self.homes[victim].clone();
        let others = self.others(victim);
        let member = &self.members[victim];
        match deed {
            Deed::Crash | Deed::Leave => {
                if deed == Deed::Crash {
                    member.faults.add(Rule::new(Fault::FailBefore));
                    self.isolate(home.name);
                }
                self.stop(&home, member).await;
                self.settled(&others).await;
                self.network.heal();
                self.members[victim] = self.node(&home).await;
            }
            Deed::Outage => {
                for member in &self.members {
                    member.faults.add(Rule::new(Fault::FailBefore));
                }
                let closed = || self.members.iter().all(|m| m.serves().is_empty());
                self.until("all gave up", || closed().then_some(())).await;
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
                self.until("some requests failed", || {
                    let struck = self.members.iter().map(|m| m.faults.struck()).min();
                    (struck? >= 30).then_some(())
                })
                .await;
            }
            Deed::CutOff => {
                member.faults.add(Rule::new(Fault::FailBefore));
                self.settled(&others).await;
                assert!(member.serves().is_empty(), "it stopped before");
            }
            Deed::LeasesHang => {
                member.faults.add(Rule::new(Fault::Hang).path("_quarry/"));
                self.settled(&others).await;
                assert!(member.serves().is_empty(), "it stopped before");
            }
            Deed::Apart => {
                self.isolate(home.name);
                let puts = member.faults.calls(Op::Put);
                self.until("some rounds", || {
                    (member.faults.calls(Op::Put) > puts + 10).then_some(())
                })
                .await;
            }
            Deed::Mute => {
                self.network.pause(home.name);
                let sent = self.network.requests();
                self.until("some wait for it", || {
                    (self.network.requests() > sent + 20).then_some(())
                })
                .await;
            }
            Deed::Move => self.move_one(member, others[0]).await,
            Deed::Drain => {
                let leases = member.cluster.leases();
                leases.command(Command::Drain).await.expect("drain");
                self.settled(&others).await;
                leases.command(Command::Uncordon).await.expect("uncordon");
            }
            Deed::Vandal => {
                let garbage = self.random.random_bool(0.5);
                self.vandalize(home.name, garbage).await;
            }
            Deed::Pause => {
                let paused = clock_of(&home).pause();
                self.settled(&others).await;
                // What it knows is old by now.
                self.think(self.pace.think / 4);
                self.progress(200).await;
                drop(paused);
                self.progress(50).await;
            }
            Deed::Sleep => self.sleep_a_day(&home, member).await,
            Deed::WallClock => {
                let back = self.random.random_bool(0.5);
                self.set_wall_clock(&home, back).await;
            }
        }
    }

    async fn move_one(&self, from: &Member, to: &Member) {
        let shard = from.serves()[0];
        let command = Command::Move {
            shard,
            to: to.name.parse().expect("a name"),
        };
        // Until it knows of the other.
        let began = clock::now();
        while let Err(error) = from.cluster.leases().command(command.clone()).await {
            assert!(clock::now() - began < self.pace.limit, "{error}");
            clock::sleep(Duration::from_millis(1)).await;
        }
        self.until("it has moved", || {
            to.serves().contains(&shard).then_some(())
        })
        .await;
    }

    async fn vandalize(&self, name: &str, garbage: bool) {
        let huge = "[".repeat(1_000_000);
        for (lease, body) in [
            ("leases/000.json", Some("")),
            ("leases/001.json", Some(huge.as_str())),
            ("leases/002.json", None),
            ("leases/003.json", Some("{\"version\":9}")),
        ] {
            self.ring.put(lease, body).await;
        }
        let body = garbage.then_some("garbage");
        self.ring.put(&format!("nodes/{name}.json"), body).await;
        // Until every lease is somebody's again.
        let owned = async |shard| {
            let lease = self.ring.try_get(&format!("leases/{shard:03}.json")).await;
            lease.is_some_and(|lease| lease["state"] == "owned")
        };
        let began = clock::now();
        for shard in 0..SHARDS {
            while !owned(shard).await {
                let took = clock::now() - began;
                assert!(took < self.pace.limit, "lease {shard} is not repaired");
                clock::sleep(Duration::from_millis(1)).await;
            }
        }
    }

    /// Whatever the machine had is over, as it learns by the one clock that counts sleep. It has the shards again at once: the others
    /// saw none of the day, and nobody else may take them.
    async fn sleep_a_day(&self, home: &Home, member: &Member) {
        let (had, before) = (member.serves(), self.generations().await);
        clock_of(home).slept(DAY);
        let began = clock::now();
        let gave_up = async || {
            let after = self.generations().await;
            had.iter()
                .map(|shard| *shard as usize)
                .all(|shard| after[shard] > before[shard])
        };
        while !gave_up().await {
            let took = clock::now() - began;
            assert!(took < self.pace.limit, "it still has what it had");
            clock::sleep(self.pace.ttl / 5).await;
        }
    }

    /// Nothing comes of it.
    async fn set_wall_clock(&self, home: &Home, back: bool) {
        let day = i64::try_from(DAY.as_millis()).expect("small");
        clock::sleep(self.pace.ttl * 3).await;
        let before = self.generations().await;
        clock_of(home).set_wall(if back { -day } else { day });
        self.progress(50).await;
        clock::sleep(self.pace.ttl * 3).await;
        assert_eq!(self.generations().await, before, "leases changed hands");
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
}

fn clock_of(home: &Home) -> &NodeClock {
    home.clock.as_ref().expect("its time is driven")
}

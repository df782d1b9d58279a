//! Several whole nodes in one process, with a fixed list instead of leases, whose routes and runners the tests move by hand.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use quarry_core::lease::record::NodeName;
use quarry_core::route::{Local, RouteState, RouteTable};
use quarry_core::runner::{RunnerCommand, RunnerEvent, StopReason};

use super::*;
use crate::call::{CallOptions, QueryOptions, Target};
use crate::cluster::Cluster;
use crate::cluster::status::{Location, ShardState};
use crate::config::{Config, Strategy};
use crate::db::ReadView;
use crate::guest::native::{self, Logic};
use crate::guest::{GuestError, InstanceContext, Reply};
use crate::store::Store;
use crate::transport::{self, Command, NotOwner, Service, Told, memory};

const LONG: Duration = Duration::from_secs(30);
const SHARDS: u32 = 4;

/// Counts per key, and does what else a test wants.
struct Counter;

/// Calls of `hold` wait while this is true.
static HELD: std::sync::LazyLock<watch::Sender<bool>> =
    std::sync::LazyLock::new(|| watch::Sender::new(false));
static HOLDING: AtomicU64 = AtomicU64::new(0);

#[async_trait]
impl Logic for Counter {
    async fn call(
        &mut self,
        context: &InstanceContext,
        request: &Request,
    ) -> Result<Reply, GuestError> {
        let key = request.key.clone().unwrap_or(Bytes::from_static(b"shard"));
        match request.method.as_str() {
            "add" => {
                let db = &context.db;
                let count = match db.view().get(&key).await? {
                    Some(value) => u64::from_le_bytes(value[..].try_into().expect("8 bytes")) + 1,
                    None => 1,
                };
                db.put(key, count.to_le_bytes().to_vec().into()).await?;
                let mut reply = Reply::new(count.to_string());
                reply.content_type = Some("text/plain".into());
                Ok(reply)
            }
            "headers" => Ok(Reply::new(format!("{:?} {:?}", request.headers, key))),
            "hold" => {
                HOLDING.fetch_add(1, Ordering::AcqRel);
                _ = HELD.subscribe().wait_for(|held| !held).await;
                Ok(Reply::new("held"))
            }
            "panic" => panic!("on demand"),
            method => Err(GuestError::new("unknown-method", method)),
        }
    }

    async fn query(&mut self, request: &Request, view: &ReadView) -> Result<Reply, GuestError> {
        let key = request.key.clone().unwrap_or_default();
        let value = view.get(&key).await?.unwrap_or_default();
        Ok(Reply::new(value))
    }
}

/// Nodes on one store and one network.
struct Rig {
    network: memory::Network,
    nodes: Vec<Cluster>,
}

impl Rig {
    /// Starts the nodes of these names; each may be configured further.
    async fn start(names: &[&str], configure: impl Fn(&mut Config)) -> Self {
        let store = Store::open("memory:", &Default::default()).expect("a store");
        let network = memory::Network::new();
        let mut nodes = Vec::new();
        for name in names {
            let mut config = Config {
                shards: SHARDS,
                node: (*name).into(),
                cluster: "routing".into(),
                strategy: Strategy::Static,
                ..Config::default()
            };
            config.fixed.nodes = names
                .iter()
                .map(|name| format!("{name}={}", memory::Network::address(name)))
                .collect();
            config.threads.shard = 1;
            config.threads.query = 1;
            config.call.park = Duration::from_secs(20);
            configure(&mut config);
            let module = native::module("main", 1, |_| Counter);
            let node = Cluster::builder(Arc::new(config), module)
                .store(store.clone())
                .network(network.clone())
                .start()
                .await
                .expect("started");
            nodes.push(node);
        }
        Self { network, nodes }
    }

    fn node(&self, name: &str) -> &Cluster {
        let mut nodes = self.nodes.iter();
        nodes.find(|node| **node.node() == *name).expect("a node")
    }

    /// Has a node believe something else.
    fn believe(&self, name: &str, change: impl FnOnce(&mut RouteTable)) {
        let leases = self.node(name).leases();
        let mut routes = RouteTable::clone(&leases.routes());
        change(&mut routes);
        leases.set_routes(routes);
    }

    fn tell(&self, name: &str, command: RunnerCommand) {
        let runner = &self.node(name).node.runner;
        runner.send(RunnerEvent::Command(command)).expect("it runs");
    }

    /// Waits until a node has a shard as it should.
    async fn until(&self, name: &str, shard: u32, what: impl Fn(&Local) -> bool) {
        let node = &self.node(name).node;
        let mut changed = node.changed.subscribe();
        let slot = &node.slots[shard as usize];
        let waited = changed.wait_for(|_| what(&slot.local()));
        tokio::time::timeout(LONG, waited)
            .await
            .expect("in time")
            .expect("the node is there");
    }

    /// Moves a shard as a lease would: the old owner closes it and names the new one, which then opens it. Nobody else is told.
    async fn shift(&self, shard: u32, from: &str, to: &str, generation: u64) {
        let successor = to.parse().expect("a name");
        self.tell(
            from,
            RunnerCommand::Stop {
                shard,
                reason: StopReason::Released,
                successor: Some(successor),
            },
        );
        self.until(from, shard, |local| *local == Local::None).await;
        self.believe(from, |routes| {
            let route = routes.shards[shard as usize].as_mut().expect("a route");
            route.owner = to.parse().expect("a name");
            route.generation = generation;
            route.state = RouteState::Moving;
        });
        self.tell(
            to,
            RunnerCommand::Open {
                shard,
                generation,
                writer_epoch: None,
                deadline: Moment::NEVER,
            },
        );
        self.until(to, shard, |local| matches!(local, Local::Open { .. }))
            .await;
    }

    async fn stop(&self) {
        for node in &self.nodes {
            node.stop().await;
        }
    }
}

async fn call(node: &Cluster, shard: u32, method: &str) -> Answer {
    let options = CallOptions {
        timeout: Some(LONG),
        ..CallOptions::default()
    };
    node.call(Target::Shard(shard), method, Bytes::new(), options)
        .await
}

#[tokio::test]
async fn every_node_gives_the_same_answer() {
    let rig = Rig::start(&["a", "b"], |_| {}).await;
    let mut keys = (0..100).map(|n| format!("key-{n}"));
    for owner in ["a", "b"] {
        let key = keys
            .find(|key| {
                rig.node(owner)
                    .local_shards()
                    .contains(&rig.nodes[0].shard_for(key.as_bytes()))
            })
            .expect("a key");
        let target = || Target::key(key.clone());
        let shard = rig.nodes[0].shard_for(key.as_bytes());
        for (count, via) in ["a", "b", "a", "b"].into_iter().enumerate() {
            let via = rig.node(via);
            let reply = via
                .call(target(), "add", Bytes::new(), CallOptions::default())
                .await
                .expect("a reply");
            assert_eq!(reply.payload, (count + 1).to_string());
            assert_eq!(
                (&*reply.node, reply.shard, reply.revision),
                (owner, shard, 1)
            );
            assert_eq!(reply.content_type.as_deref(), Some("text/plain"));
            // Acknowledged means durable, on the owner; and both are told the same of it.
            assert!(via.durable_seq(shard).await.expect("a seq") >= reply.seq);
            via.notify_when_durable(shard, reply.seq)
                .await
                .expect("durable");
            let error = via.notify_when_durable(shard, reply.seq + 999).await;
            assert_eq!(
                error.expect_err("not given out").kind,
                CallErrorKind::Invalid
            );
        }
        let mut replies = Vec::new();
        for via in &rig.nodes {
            let options = CallOptions {
                headers: vec![("x-user".into(), "ann".into())],
                ..CallOptions::default()
            };
            let headers = via.call(target(), "headers", Bytes::new(), options).await;
            let unknown = via.call(target(), "no-such", Bytes::new(), CallOptions::default());
            let trap = via.call(target(), "panic", Bytes::new(), CallOptions::default());
            let query = via.query(target(), "get", Bytes::new(), QueryOptions::default());
            replies.push((headers, unknown.await, trap.await, query.await));
        }
        assert_eq!(replies[0], replies[1], "{owner}");
        let (headers, unknown, trap, query) = &replies[0];
        assert!(
            headers
                .as_ref()
                .expect("a reply")
                .payload
                .starts_with(b"[(\"x-user\"")
        );
        assert_eq!(
            unknown.as_ref().expect_err("unknown").code,
            "unknown-method"
        );
        assert_eq!(trap.as_ref().expect_err("a trap").code, "guest-trap");
        assert_eq!(query.as_ref().expect("a reply").payload.len(), 8);
        assert_eq!(rig.nodes[0].lookup(shard), rig.node("a").lookup(shard));
    }
    let other = rig.node("a").lookup(1).expect("a shard");
    assert_eq!(other, Location::Remote { node: "b".into() });
    rig.stop().await;
}

#[tokio::test]
async fn a_request_goes_one_hop_and_never_two() {
    let rig = Rig::start(&["a", "b"], |config| {
        config.call.park = Duration::from_millis(300);
    })
    .await;
    // Each believes that the other has shard 0, and nobody has.
    rig.tell(
        "a",
        RunnerCommand::Stop {
            shard: 0,
            reason: StopReason::Released,
            successor: None,
        },
    );
    rig.until("a", 0, |local| *local == Local::None).await;
    let b = "b".parse().expect("a name");
    rig.believe("a", |routes| {
        routes.shards[0].as_mut().expect("a route").owner = b;
    });
    for via in ["a", "b"] {
        let before = rig.network.requests();
        let error = call(rig.node(via), 0, "add")
            .await
            .expect_err("nobody has it");
        assert_eq!(error.kind, CallErrorKind::NotOwner, "{error}");
        assert!(error.never_ran() && error.retryable);
        // Sent once, refused, and not sent back by the other.
        assert_eq!(rig.network.requests() - before, 1);
    }
    rig.stop().await;
}

#[tokio::test]
async fn a_planned_move_under_load_fails_no_call() {
    let rig = Arc::new(Rig::start(&["a", "b", "c"], |_| {}).await);
    let (stop, acknowledged) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let load: Vec<_> = ["a", "b", "c"]
        .into_iter()
        .flat_map(|via| [via; 4])
        .map(|via| {
            let (rig, stop, acknowledged) = (rig.clone(), stop.clone(), acknowledged.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::Acquire) {
                    let reply = call(rig.node(via), 0, "add").await;
                    reply.unwrap_or_else(|error| panic!("via {via}: {} {error}", error.code));
                    acknowledged.fetch_add(1, Ordering::AcqRel);
                }
            })
        })
        .collect();
    for (generation, (from, to)) in (1..).zip([("a", "b"), ("b", "c"), ("c", "a")]) {
        rig.shift(0, from, to, generation).await;
        // The owner changed, and every node finds it.
        for via in ["a", "b", "c"] {
            let reply = call(rig.node(via), 0, "add").await.expect("a reply");
            acknowledged.fetch_add(1, Ordering::AcqRel);
            assert_eq!(&*reply.node, to, "via {via}");
        }
    }
    stop.store(true, Ordering::Release);
    for task in load {
        task.await.expect("no call failed");
    }
    let reply = call(rig.node("b"), 0, "add").await.expect("a reply");
    let count = acknowledged.load(Ordering::Acquire) + 1;
    assert_eq!(reply.payload, count.to_string(), "each ran once");
    rig.stop().await;
}

/// Its table of routes shows it only a little later, and calls come at that very time.
#[tokio::test]
async fn who_has_just_closed_a_shard_says_at_once_for_whom() {
    let rig = Rig::start(&["a", "b"], |_| {}).await;
    let stop = RunnerCommand::Stop {
        shard: 0,
        reason: StopReason::Released,
        successor: Some("b".parse().expect("a name")),
    };
    rig.tell("a", stop);
    rig.until("a", 0, |local| *local == Local::None).await;
    let node = &rig.node("a").node;
    let named = |refusal: NotOwner| refusal.owner.map(|owner| owner.node);
    assert_eq!(named(node.not_owner(0)).as_deref(), Some("b"));
    let ask = transport::Ask::Place {
        shard: 0,
        wait_ms: 30_000,
        above: 0,
    };
    let asked = node.answer(ask);
    let told = tokio::time::timeout(Duration::from_secs(10), asked).await;
    let Told::NotOwner(refusal) = told.expect("it does not wait for the shard to come back") else {
        panic!("a does not have it any more");
    };
    assert_eq!(named(refusal).as_deref(), Some("b"));
    // A table that knows better wins, and so does the shard once it is back.
    rig.believe("a", |routes| {
        let route = routes.shards[0].as_mut().expect("a route");
        route.owner = "c".parse().expect("a name");
    });
    assert_eq!(named(node.not_owner(0)), None, "nobody knows where c is");
    rig.tell(
        "a",
        RunnerCommand::Open {
            shard: 0,
            generation: 3,
            writer_epoch: None,
            deadline: Moment::NEVER,
        },
    );
    rig.until("a", 0, |local| matches!(local, Local::Open { .. }))
        .await;
    assert_eq!(node.slots[0].left_for(), None);
    rig.stop().await;
}

/// A node that cannot read the leases any more, or has not yet, knows of nobody.
#[tokio::test]
async fn who_knows_no_owner_asks_the_other_nodes() {
    let rig = Rig::start(&["a", "b", "c"], |_| {}).await;
    rig.shift(0, "a", "b", 7).await;
    rig.believe("c", |routes| routes.shards[0] = None);
    let reply = call(rig.node("c"), 0, "add").await.expect("b has it");
    assert_eq!(*reply.node, *"b");
    // Nor does one that does not answer keep it from that.
    rig.believe("c", |routes| {
        let a: NodeName = "a".parse().expect("a name");
        let of_a = routes.shards[3].clone().expect("a's");
        let route = routes.shards[0].insert(of_a);
        route.state = RouteState::Moving;
        let a = routes.nodes.get_mut(&a).expect("a node");
        a.address = memory::Network::address("nobody");
    });
    rig.node("c").node.peers().expect("peers").parking.refused(
        0,
        7,
        NotOwner {
            generation: 7,
            owner: None,
        },
        "b",
    );
    let reply = call(rig.node("c"), 0, "add").await.expect("b has it");
    assert_eq!(*reply.node, *"b");
    rig.stop().await;
}

/// It was to get the shard, and another got it meanwhile: who asks is told at once, instead of after the wait.
#[tokio::test]
async fn who_was_passed_by_says_so() {
    let rig = Rig::start(&["a", "b"], |_| {}).await;
    let node = rig.node("b").node.clone();
    let ask = |above| transport::Ask::Place {
        shard: 0,
        wait_ms: 30_000,
        above,
    };
    rig.believe("b", |routes| {
        let route = routes.shards[0].as_mut().expect("a route");
        route.generation = 5;
    });
    let asking = {
        let node = node.clone();
        let ask = ask(5);
        tokio::spawn(async move { node.answer(ask).await })
    };
    let told = node.answer(ask(4));
    let told = tokio::time::timeout(LONG, told).await.expect("at once");
    assert!(matches!(told, Told::NotOwner(_)), "{told:?}");
    assert!(!asking.is_finished(), "nothing newer is known");
    rig.believe("b", |routes| {
        let route = routes.shards[0].as_mut().expect("a route");
        route.generation = 6;
    });
    let told = tokio::time::timeout(Duration::from_secs(10), asking).await;
    let told = told.expect("it waits no longer").expect("joined");
    assert!(matches!(told, Told::NotOwner(_)), "{told:?}");
    rig.stop().await;
}

#[tokio::test]
async fn waiting_is_bounded_in_time_and_number() {
    let rig = Rig::start(&["a", "b"], |config| {
        config.call.park = Duration::from_millis(400);
        config.call.max_parked = 2;
    })
    .await;
    for name in ["a", "b"] {
        rig.believe(name, |routes| routes.shards[0] = None);
    }
    let stop = |name, shard| {
        let reason = StopReason::Released;
        let successor = None;
        rig.tell(
            name,
            RunnerCommand::Stop {
                shard,
                reason,
                successor,
            },
        );
    };
    stop("a", 0);
    rig.until("a", 0, |local| *local == Local::None).await;
    let begun = clock::now();
    let calls = (0..3).map(|_| call(rig.node("b"), 0, "add"));
    let mut kinds: Vec<_> = futures::future::join_all(calls)
        .await
        .into_iter()
        .map(|answer| answer.expect_err("nobody has it").code)
        .collect();
    kinds.sort();
    assert_eq!(kinds, ["overloaded", "unassigned", "unassigned"]);
    let took = clock::now().saturating_duration_since(begun);
    assert!(
        took >= Duration::from_millis(400) && took < LONG / 2,
        "{took:?}"
    );
    // A call's own time is shorter: it says that nothing ran.
    let options = CallOptions {
        timeout: Some(Duration::from_millis(50)),
        ..CallOptions::default()
    };
    let error = rig
        .node("b")
        .call(Target::Shard(0), "add", Bytes::new(), options)
        .await
        .expect_err("nobody has it");
    assert_eq!(error.kind, CallErrorKind::Unassigned, "{error}");
    rig.stop().await;
}

#[tokio::test]
async fn a_paused_owner_keeps_a_caller_no_longer_than_its_route_lasts() {
    let rig = Rig::start(&["a", "b"], |_| {}).await;
    rig.network.pause("b");
    let until = clock::boot_now() + Duration::from_millis(300);
    rig.believe("a", |routes| {
        let b = "b".parse().expect("a name");
        routes.nodes.get_mut(&b).expect("a node").until = until;
    });
    let error = call(rig.node("a"), 1, "add").await.expect_err("no answer");
    assert!(clock::boot_now() >= until && clock::boot_now() < until + LONG / 2);
    assert_eq!(error.kind, CallErrorKind::Unknown, "{error}");
    assert!(!error.retryable && !error.never_ran());
    assert!(error.message.contains("node `b`"), "{error}");
    assert_eq!(rig.network.requests(), 1, "it is never sent again");
    // The route has ended: nothing more is sent along it, the caller waits for a new owner.
    let waiting = call(rig.node("a"), 1, "add");
    tokio::pin!(waiting);
    let early = tokio::time::timeout(Duration::from_millis(100), &mut waiting).await;
    assert!(early.is_err(), "{early:?}");
    assert_eq!(rig.network.requests(), 1);
    // Whoever takes over ends the wait.
    rig.tell(
        "a",
        RunnerCommand::Open {
            shard: 1,
            generation: 1,
            writer_epoch: None,
            deadline: Moment::NEVER,
        },
    );
    let reply = tokio::time::timeout(LONG, waiting).await.expect("in time");
    assert_eq!(&*reply.expect("a reply").node, "a");
    rig.network.resume("b");
    rig.stop().await;
}

#[tokio::test]
async fn a_lease_that_is_renewed_lets_a_long_call_go_on() {
    let rig = Rig::start(&["a", "b"], |_| {}).await;
    let lasts = |until: Moment| {
        rig.believe("a", |routes| {
            let b = "b".parse().expect("a name");
            routes.nodes.get_mut(&b).expect("a node").until = until;
        });
    };
    rig.network.pause("b");
    let begun = clock::boot_now();
    lasts(begun + Duration::from_millis(200));
    let waiting = call(rig.node("a"), 1, "add");
    tokio::pin!(waiting);
    let early = tokio::time::timeout(Duration::from_millis(100), &mut waiting).await;
    assert!(early.is_err(), "{early:?}");
    // As each round of the lease loop does.
    lasts(begun + LONG);
    let still = tokio::time::timeout(Duration::from_millis(300), &mut waiting).await;
    assert!(
        still.is_err(),
        "it waits past the end that the lease had at first: {still:?}"
    );
    rig.network.resume("b");
    let reply = tokio::time::timeout(LONG, waiting).await.expect("in time");
    assert_eq!(&*reply.expect("a reply").node, "b");
    assert_eq!(rig.network.requests(), 1);
    rig.stop().await;
}

#[tokio::test]
async fn an_owner_that_is_not_reached_is_tried_again_and_then_named() {
    let rig = Rig::start(&["a", "b"], |config| {
        config.call.retry_delay = Duration::from_millis(5);
    })
    .await;
    rig.network.cut("a", "b");
    let error = call(rig.node("a"), 1, "add").await.expect_err("cut");
    assert_eq!(error.kind, CallErrorKind::Unreachable, "{error}");
    assert!(error.retryable && error.never_ran());
    assert_eq!(rig.network.requests(), 0);
    // One whose lease ends soon may have died: the call waits for its successor.
    let until = clock::boot_now() + Duration::from_millis(300);
    rig.believe("a", |routes| {
        let b = "b".parse().expect("a name");
        routes.nodes.get_mut(&b).expect("a node").until = until;
    });
    let waiting = call(rig.node("a"), 1, "add");
    tokio::pin!(waiting);
    let early = tokio::time::timeout(Duration::from_millis(500), &mut waiting).await;
    assert!(early.is_err(), "{early:?}");
    rig.network.heal();
    rig.believe("a", |routes| {
        let b = "b".parse().expect("a name");
        routes.nodes.get_mut(&b).expect("a node").until = Moment::NEVER;
    });
    let reply = tokio::time::timeout(LONG, waiting).await.expect("in time");
    assert_eq!(&*reply.expect("a reply").node, "b");
    rig.stop().await;
}

#[tokio::test]
async fn the_callers_time_goes_with_the_call() {
    let rig = Rig::start(&["a", "b"], |_| {}).await;
    HELD.send_replace(true);
    let options = CallOptions {
        timeout: Some(Duration::from_millis(200)),
        ..CallOptions::default()
    };
    let target = Target::Shard(1);
    let held = rig.node("a").call(target, "hold", Bytes::new(), options);
    let error = held.await.expect_err("it is held");
    assert_eq!(error.kind, CallErrorKind::Timeout, "{error}");
    assert_eq!(HOLDING.load(Ordering::Acquire), 1, "it ran on the owner");
    HELD.send_replace(false);
    call(rig.node("a"), 1, "add")
        .await
        .expect("the shard goes on");
    rig.stop().await;
}

#[tokio::test]
async fn what_other_nodes_say_is_part_of_the_status() {
    let rig = Rig::start(&["a", "b"], |_| {}).await;
    let status = rig.node("a").status(LONG).await.expect("a status");
    assert!(status.ready, "{status:?}");
    let owners: Vec<_> = status
        .shards
        .values()
        .map(|report| report.node.as_deref().expect("an owner"))
        .collect();
    assert_eq!(owners, ["a", "b", "a", "b"]);
    assert_eq!(status.nodes.len(), 2);
    rig.node("a")
        .await_ready(Some(LONG))
        .await
        .expect("all run");
    let far = rig.node("a").shard(1, LONG).await.expect("a report");
    assert_eq!(
        (far.node.as_deref(), far.status),
        (Some("b"), ShardState::Running)
    );
    rig.node("a")
        .restart_shard(1)
        .await
        .expect("restarted there");
    // A node that does not answer: its shards are unavailable, with the reason; nothing else is, and it takes no longer than it may.
    rig.network.pause("b");
    let begun = clock::now();
    let status = rig
        .node("a")
        .status(Duration::from_millis(200))
        .await
        .expect("a status");
    assert!(clock::now().saturating_duration_since(begun) < LONG / 3);
    assert!(!status.ready);
    for (shard, report) in &status.shards {
        let expected = match shard % 2 {
            0 => ShardState::Running,
            _ => ShardState::Unavailable,
        };
        assert_eq!(report.status, expected, "{report:?}");
        if shard % 2 == 1 {
            let error = report.last_error.as_deref().expect("a reason");
            assert!(error.contains("node `b` did not answer"), "{error}");
        }
    }
    let late = rig.node("a").await_ready(Some(Duration::from_millis(100)));
    let shards = late.await.expect_err("b does not answer").shards;
    assert_eq!(
        shards.iter().map(|report| report.shard).collect::<Vec<_>>(),
        [1, 3]
    );
    assert!(rig.node("a").ready(), "this node's own share runs");
    rig.network.resume("b");
    rig.stop().await;
}

/// A table that is behind says that the shard is where it is to go: nobody would be given the order.
#[tokio::test]
async fn a_move_is_not_done_because_an_old_table_says_so() {
    let rig = Rig::start(&["a", "b", "c"], |_| {}).await;
    let a = rig.node("a");
    // By the fixed list shard 1 is b's, and b confirms it.
    a.move_shard(1, "b", LONG).await.expect("it is there");
    rig.believe("a", |routes| {
        let route = routes.shards[1].as_mut().expect("a route");
        route.owner = "c".parse().expect("a name");
    });
    let brief = Duration::from_millis(500);
    let error = a.move_shard(1, "c", brief).await.expect_err("b has it");
    assert_eq!(error.kind, CallErrorKind::NotOwner, "{error}");
    rig.stop().await;
}

#[tokio::test]
async fn orders_name_what_is_valid() {
    let rig = Rig::start(&["a", "b"], |_| {}).await;
    let a = rig.node("a");
    for (error, kind, part) in [
        (
            a.order("x", Command::Drain, LONG).await,
            CallErrorKind::Invalid,
            "there is no node `x`; the nodes of this cluster are a, b",
        ),
        (
            a.move_shard(9, "b", LONG).await,
            CallErrorKind::Invalid,
            "from 0 to 3",
        ),
        (
            a.move_shard(0, "x", LONG).await,
            CallErrorKind::Invalid,
            "are a, b",
        ),
        (
            a.move_shard(0, "b", LONG).await,
            CallErrorKind::Refused,
            "only with strategy = \"lease\"",
        ),
    ] {
        let error = error.expect_err(part);
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.message.contains(part), "{error}");
    }
    rig.stop().await;
}

#[test]
fn an_owner_that_is_not_reached_is_waited_for_until_it_surely_lives() {
    let at = |seconds: u64| Moment::from_nanos(seconds * 1_000_000_000);
    let mut stuck = Stuck {
        end: at(10),
        renewed: false,
    };
    // When it is, when its lease ends as far as is known then, and until when it is waited for.
    for (now, until, end) in [
        (5, 10, 10),
        // Renewed before the end: that may be its last before it died, and is looked at when the first has ended.
        (6, 13, 10),
        (10, 13, 13),
        (12, 16, 13),
        // A second time: it lives, and the end that has passed says so.
        (13, 16, 13),
        (15, 19, 13),
    ] {
        assert_eq!(stuck.until(at(until), at(now)), at(end), "at {now} s");
    }
}

#[tokio::test]
async fn a_call_for_one_revision_runs_by_that_one_or_not_at_all() {
    let rig = Rig::start(&["a", "b"], |_| {}).await;
    let shard = 0;
    let mut keys = (0..100).map(|n| format!("key-{n}"));
    let of_shard = |key: &String| rig.nodes[0].shard_for(key.as_bytes()) == shard;
    let key = keys.find(of_shard).expect("a key");
    let added = async || {
        let (target, any) = (Target::key(key.clone()), CallOptions::default());
        let reply = rig.node("a").call(target, "add", Bytes::new(), any).await;
        reply.expect("a reply").payload
    };
    assert_eq!(added().await, "1");
    for (via, expected) in [("a", "2"), ("b", "3")] {
        let via = rig.node(via);
        let only = |revision| CallOptions {
            timeout: Some(LONG),
            revision: Some(revision),
            ..CallOptions::default()
        };
        let target = || Target::key(key.clone());
        let refused = via.call(target(), "add", Bytes::new(), only(7)).await;
        let of_query = QueryOptions {
            revision: Some(7),
            ..QueryOptions::default()
        };
        let query = via.query(target(), "get", Bytes::new(), of_query).await;
        for error in [refused.expect_err("another"), query.expect_err("another")] {
            assert_eq!(error.kind, CallErrorKind::WrongRevision, "{error}");
            assert_eq!((error.shard, error.revision), (Some(shard), Some(1)));
            assert!(error.never_ran() && !error.retryable);
            assert!(error.message.contains("runs revision 1"), "{error}");
        }
        let reply = via.call(target(), "add", Bytes::new(), only(1)).await;
        assert_eq!(reply.expect("its revision").payload, expected);
        let of_query = QueryOptions {
            revision: Some(1),
            ..QueryOptions::default()
        };
        let query = via.query(target(), "get", Bytes::new(), of_query).await;
        assert_eq!(query.expect("its revision").revision, 1);
    }
    assert_eq!(added().await, "4", "what was refused did not run");
    rig.stop().await;
}

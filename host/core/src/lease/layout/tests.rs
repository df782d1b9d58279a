use super::*;
use crate::lease::op::{ClaimLost, LeaseSeen, Outcome, Owners};
use crate::lease::record::{LeaseRecord, NodeState, PROTOCOL, SessionId};
use crate::tests::store::{Fault, Store};

const SHARDS: u32 = 4;

struct Node {
    layout: Layout,
    info: NodeInfo,
    ops: u64,
}

impl Node {
    fn new(name: &str, session: u128) -> Self {
        let options = LayoutOptions {
            renewal: Renewal::Session,
            shards: SHARDS,
            rules: Rules::default(),
        };
        let info = NodeInfo {
            protocol: PROTOCOL,
            cluster: "demo".into(),
            name: name.parse().unwrap(),
            session: SessionId::new(session),
            state: NodeState::Live,
            shards: 0,
            ttl_ms: 15_000,
            advertise: format!("http://{name}"),
            zone: String::new(),
            cordoned: false,
            blind: false,
            software: "test".into(),
        };
        Self {
            layout: Layout::new(options, session),
            info,
            ops: 0,
        }
    }

    fn joined(name: &str, session: u128, store: &mut Store) -> Self {
        let mut node = Self::new(name, session);
        assert!(matches!(node.setup(store, None), Outcome::Won(_)));
        node
    }

    fn run(&mut self, store: &mut Store, op: LeaseOp) -> OpResult {
        self.ops += 1;
        store.run(&mut self.layout, self.ops, op)
    }

    fn setup(&mut self, store: &mut Store, over: Option<Tag>) -> Outcome<NodeSeen, NodeSeen> {
        let me = self.info.clone();
        match self.run(store, LeaseOp::Setup { me, over }) {
            OpResult::Setup(outcome) => outcome,
            other => panic!("{other:?}"),
        }
    }

    fn beat(&mut self, store: &mut Store) -> Outcome<NodeSeen, NodeSeen> {
        let me = self.info.clone();
        match self.run(
            store,
            LeaseOp::Heartbeat {
                me,
                news: false,
                repair: true,
            },
        ) {
            OpResult::Heartbeat(outcome) => outcome,
            other => panic!("{other:?}"),
        }
    }

    fn nodes(&mut self, store: &mut Store) -> Vec<NodeSeen> {
        match self.run(store, LeaseOp::Nodes { all: false }) {
            OpResult::Nodes(Ok(nodes)) => nodes.nodes,
            other => panic!("{other:?}"),
        }
    }

    fn owners(&mut self, store: &mut Store) -> Owners {
        match self.run(store, LeaseOp::Owners { all: false }) {
            OpResult::Owners(owners) => owners,
            other => panic!("{other:?}"),
        }
    }

    fn read(&mut self, store: &mut Store, shard: u32) -> LeaseSeen {
        match self.run(store, LeaseOp::Read { shard }) {
            OpResult::Read(Ok(seen)) => seen,
            other => panic!("{other:?}"),
        }
    }

    fn claim(&mut self, store: &mut Store, seen: LeaseSeen) -> Outcome<LeaseSeen, ClaimLost> {
        match self.run(store, claim(seen, 0, None)) {
            OpResult::Claim(outcome) => outcome,
            other => panic!("{other:?}"),
        }
    }

    fn release(&mut self, store: &mut Store, lease: LeaseSeen) -> Outcome<LeaseSeen, LeaseSeen> {
        let op = LeaseOp::Release {
            lease,
            writer_epoch: Some(9),
            successor: Some("b".parse().unwrap()),
            pinned: true,
            why: "test".into(),
        };
        match self.run(store, op) {
            OpResult::Release(outcome) => outcome,
            other => panic!("{other:?}"),
        }
    }

    fn tombstone(&mut self, store: &mut Store, node: &NodeSeen) -> Outcome<NodeSeen, NodeSeen> {
        let op = LeaseOp::Tombstone {
            node: node.name.clone(),
            session: node
                .record
                .as_ref()
                .map_or(SessionId::new(5), |record| record.info.session),
            tag: node.tag.clone(),
        };
        match self.run(store, op) {
            OpResult::Tombstone(outcome) => outcome,
            other => panic!("{other:?}"),
        }
    }
}

fn claim(seen: LeaseSeen, above: u64, at_most: Option<u64>) -> LeaseOp {
    LeaseOp::Claim {
        seen,
        above,
        at_most,
        ask_epoch: false,
        why: "test".into(),
    }
}

fn won<W: std::fmt::Debug, L: std::fmt::Debug>(outcome: Outcome<W, L>) -> W {
    match outcome {
        Outcome::Won(won) => won,
        other => panic!("{other:?}"),
    }
}

fn lost<W: std::fmt::Debug, L: std::fmt::Debug>(outcome: Outcome<W, L>) -> L {
    match outcome {
        Outcome::Lost(lost) => lost,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_round_costs_one_put_and_one_list() {
    let mut store = Store::new(SHARDS);
    let mut a = Node::joined("a", 1, &mut store);
    let mut b = Node::joined("b", 2, &mut store);
    for shard in 0..SHARDS {
        let seen = a.read(&mut store, shard);
        won(a.claim(&mut store, seen));
    }
    for round in 0..5 {
        store.counts = [0; 4];
        won(a.beat(&mut store));
        won(b.beat(&mut store));
        assert_eq!(b.nodes(&mut store).len(), 2);
        let owners = b.owners(&mut store);
        assert_eq!(owners.changed.len(), if round == 0 { 4 } else { 0 });
        if round > 0 {
            assert_eq!(store.counts, [0, 1, 2, 0], "round {round}");
        }
    }
    // A change of what a node says shows in its size, and is read.
    a.info.state = NodeState::Draining;
    won(a.beat(&mut store));
    store.counts = [0; 4];
    let nodes = b.nodes(&mut store);
    assert_eq!(
        nodes[0].record.as_ref().unwrap().info.state,
        NodeState::Draining
    );
    assert_eq!(store.counts, [1, 1, 0, 0]);
}

#[test]
fn a_name_is_taken_over_only_when_its_session_ended_or_stayed() {
    let mut store = Store::new(SHARDS);
    let mut old = Node::joined("a", 1, &mut store);
    let mut new = Node::new("a", 2);
    let seen = lost(new.setup(&mut store, None));
    assert_eq!(
        seen.record.as_ref().unwrap().info.session,
        SessionId::new(1)
    );
    won(old.beat(&mut store));
    // It moved meanwhile.
    lost(new.setup(&mut store, seen.tag));
    let seen = lost(new.setup(&mut store, None));
    won(new.setup(&mut store, seen.tag));
    // The old one hears of it, however often it asks.
    for _ in 0..2 {
        let seen = lost(old.beat(&mut store));
        assert_eq!(seen.record.unwrap().info.session, SessionId::new(2));
    }
    // One that left, and one that was ended, are replaced at once; peers see each, because sizes differ.
    let mut peer = Node::joined("p", 9, &mut store);
    let me = new.info.clone();
    assert!(matches!(
        new.run(&mut store, LeaseOp::Leave { me }),
        OpResult::Leave(Outcome::Won(_))
    ));
    assert_eq!(
        peer.nodes(&mut store)[0]
            .record
            .as_ref()
            .unwrap()
            .info
            .state,
        NodeState::Left
    );
    let mut third = Node::joined("a", 3, &mut store);
    let nodes = peer.nodes(&mut store);
    assert_eq!(
        nodes[0].record.as_ref().unwrap().info.session,
        SessionId::new(3)
    );
    let dead = won(peer.tombstone(&mut store, &nodes[0]));
    assert_eq!(dead.record.unwrap().info.state, NodeState::Dead);
    lost(third.beat(&mut store));
    Node::joined("a", 4, &mut store);
    assert_eq!(
        peer.nodes(&mut store)[0]
            .record
            .as_ref()
            .unwrap()
            .info
            .session,
        SessionId::new(4)
    );
}

#[test]
fn a_tombstone_needs_the_very_tag_that_stayed() {
    let mut store = Store::new(SHARDS);
    let mut a = Node::joined("a", 1, &mut store);
    let mut b = Node::joined("b", 2, &mut store);
    let seen = b.nodes(&mut store)[0].clone();
    won(a.beat(&mut store));
    lost(b.tombstone(&mut store, &seen));
    won(a.beat(&mut store));
    // One that vanished is ended by creating its tombstone; or it comes back first.
    let key = Key::Node("a".parse().unwrap()).object_name(SHARDS);
    for back in [true, false] {
        store.objects.remove(&key);
        let missing = NodeSeen {
            tag: None,
            ..seen.clone()
        };
        if back {
            won(a.beat(&mut store));
            lost(b.tombstone(&mut store, &missing));
        } else {
            won(b.tombstone(&mut store, &missing));
            lost(a.beat(&mut store));
        }
    }
}

#[test]
fn a_damaged_session_is_repaired_by_its_node() {
    let mut store = Store::new(SHARDS);
    let mut a = Node::joined("a", 1, &mut store);
    let mut b = Node::joined("b", 2, &mut store);
    let key = Key::Node("a".parse().unwrap()).object_name(SHARDS);
    for garbage in [&b""[..], b"{", b"{\"version\":2}", &[b'x'; 9000]] {
        store.objects.insert(key.clone(), garbage.to_vec());
        assert!(b.nodes(&mut store)[0].record.is_err());
        won(a.beat(&mut store));
        let seen = b.nodes(&mut store)[0].clone();
        assert_eq!(seen.record.unwrap().info.session, SessionId::new(1));
    }
    // Not once a peer may have ended it, and the tombstone been lost.
    for body in [Some(b"{".to_vec()), None] {
        match body {
            Some(body) => store.objects.insert(key.clone(), body),
            None => store.objects.remove(&key),
        };
        let before = store.objects.get(&key).cloned();
        let me = a.info.clone();
        let late = LeaseOp::Heartbeat {
            me,
            news: false,
            repair: false,
        };
        let result = a.run(&mut store, late);
        assert!(
            matches!(result, OpResult::Heartbeat(Outcome::Lost(_))),
            "{result:?}"
        );
        assert_eq!(store.objects.get(&key), before.as_ref());
    }
}

#[test]
fn a_lease_is_claimed_against_what_was_seen() {
    let mut store = Store::new(SHARDS);
    let mut a = Node::joined("a", 1, &mut store);
    let mut b = Node::joined("b", 2, &mut store);
    let seen = b.read(&mut store, 1);
    assert!(seen.vanished());
    let held = won(a.claim(&mut store, seen.clone()));
    assert_eq!(
        (held.record.generation, held.record.writer_epoch),
        (1, Some(0))
    );
    match lost(b.claim(&mut store, seen)) {
        ClaimLost::Changed(now) => assert_eq!(now.record.owner.unwrap().session, SessionId::new(1)),
        ClaimLost::Opened { .. } => panic!(),
    }
    // A freed lease tells the epoch, so the database is not asked.
    let free = won(a.release(&mut store, held.clone()));
    assert_eq!(free.record.successor, Some("b".parse().unwrap()));
    store.counts = [0; 4];
    let held = won(b.claim(&mut store, free));
    assert_eq!(store.counts, [0, 0, 1, 0]);
    assert_eq!(
        (held.record.generation, held.record.writer_epoch),
        (10, Some(9))
    );
    assert!(held.record.pinned && held.record.successor.is_none());
    // That of a dead owner is asked for.
    store.epochs.insert(1, 30);
    let held = won(a.claim(&mut store, held));
    assert_eq!(
        (held.record.generation, held.record.writer_epoch),
        (31, Some(30))
    );
}

#[test]
fn generations_stay_above_everything() {
    for (record, vanished, above, epoch, generation) in [
        (0, false, 0, 0, 1),
        (5, false, 0, 0, 6),
        (5, false, 0, 8, 9),
        (5, false, 20, 8, 21),
        (0, true, 0, 0, 1),
        (0, true, 7, 0, 8),
        (0, true, 7, 3, 4 << 20),
        (0, true, 5 << 20, 3, (5 << 20) + 1),
        ((1 << 53) - 1, false, 0, 6, 7),
        (0, true, (1 << 53) - 1, 6, 7 << 20),
    ] {
        let mut store = Store::new(SHARDS);
        let mut a = Node::joined("a", 1, &mut store);
        let record = LeaseRecord {
            generation: record,
            ..LeaseRecord::vacant(2)
        };
        let body = if vanished {
            b"{}".to_vec()
        } else {
            record.encode()
        };
        store
            .objects
            .insert(Key::Lease(2).object_name(SHARDS), body);
        store.epochs.insert(2, epoch);
        let seen = a.read(&mut store, 2);
        let result = a.run(&mut store, claim(seen, above, None));
        let OpResult::Claim(outcome) = result else {
            panic!()
        };
        assert_eq!(
            won(outcome).record.generation,
            generation,
            "{record:?} {above} {epoch}"
        );
    }
}

#[test]
fn a_vanished_lease_of_an_opened_database_is_held_back_on_demand() {
    let mut store = Store::new(SHARDS);
    let mut a = Node::joined("a", 1, &mut store);
    for (epoch, held_back) in [(0, false), (3, true)] {
        store.epochs.insert(epoch as u32, epoch);
        let seen = a.read(&mut store, epoch as u32);
        match a.run(&mut store, claim(seen, 0, Some(2))) {
            OpResult::Claim(Outcome::Won(_)) => assert!(!held_back),
            OpResult::Claim(Outcome::Lost(ClaimLost::Opened { writer_epoch })) => {
                assert!(held_back && writer_epoch == epoch);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Every write, under every fault: what the node believes is what stands there, or it says that it does not know.
#[test]
fn outcomes_are_honest_under_every_fault() {
    use Fault::{AfterEffect, BeforeEffect, NotSent, Repeated, Spurious};
    for fault in [AfterEffect, BeforeEffect, NotSent, Repeated, Spurious] {
        for deaf in [false, true] {
            for write in [
                "setup",
                "heartbeat",
                "claim",
                "renew",
                "release",
                "tombstone",
                "leave",
            ] {
                let mut store = Store::new(SHARDS);
                let mut a = Node::new("a", 1);
                let mut peer = Node::joined("p", 7, &mut store);
                let mut held = LeaseSeen::missing(0);
                if write != "setup" {
                    won(a.setup(&mut store, None));
                    if write != "claim" {
                        held = won(a.claim(&mut store, held));
                    }
                }
                let seen = peer.nodes(&mut store).into_iter().next().unwrap();
                let me = a.info.clone();
                let op = match write {
                    "setup" => LeaseOp::Setup { me, over: None },
                    "heartbeat" => LeaseOp::Heartbeat {
                        me,
                        news: false,
                        repair: true,
                    },
                    "claim" => claim(held, 0, None),
                    "renew" => LeaseOp::Renew { lease: held },
                    "release" => LeaseOp::Release {
                        lease: held,
                        writer_epoch: None,
                        successor: None,
                        pinned: false,
                        why: String::new(),
                    },
                    "tombstone" => LeaseOp::Tombstone {
                        node: seen.name.clone(),
                        session: seen.record.as_ref().unwrap().info.session,
                        tag: seen.tag,
                    },
                    _ => LeaseOp::Leave { me },
                };
                store.faults.push_back(Some(fault));
                // Setup and tombstone read first, and must be able to.
                store.deaf = deaf && !matches!(write, "setup" | "tombstone" | "claim");
                let actor = if write == "tombstone" {
                    &mut peer
                } else {
                    &mut a
                };
                let result = actor.run(&mut store, op);
                let what = format!("{write} {fault:?} deaf {deaf}: {result:?}");
                let (won, known) = match &result {
                    OpResult::Setup(o)
                    | OpResult::Heartbeat(o)
                    | OpResult::Leave(o)
                    | OpResult::Tombstone(o) => {
                        if let Outcome::Won(seen) = o {
                            let key = Key::Node(seen.name.clone());
                            assert_eq!(
                                Store::tag(store.body(&key).unwrap()),
                                seen.tag.clone().unwrap(),
                                "{what}"
                            );
                        }
                        (
                            matches!(o, Outcome::Won(_)),
                            !matches!(o, Outcome::Unknown(_)),
                        )
                    }
                    OpResult::Renew(o) | OpResult::Release(o) => {
                        if let Outcome::Won(seen) = o {
                            let there = Store::tag(store.body(&Key::Lease(0)).unwrap());
                            assert_eq!(there, seen.tag.clone().unwrap(), "{what}");
                        }
                        (
                            matches!(o, Outcome::Won(_)),
                            !matches!(o, Outcome::Unknown(_)),
                        )
                    }
                    OpResult::Claim(o) => (
                        matches!(o, Outcome::Won(_)),
                        !matches!(o, Outcome::Unknown(_)),
                    ),
                    other => panic!("{other:?}"),
                };
                // Never lost: nobody else wrote.
                assert!(won || !known, "{what}");
                let applied = matches!(fault, AfterEffect | Repeated);
                if !store.deaf && applied {
                    assert!(won, "{what}");
                }
                if store.deaf {
                    assert!(!won, "{what}");
                }
                // And once the store works, a second attempt tells.
                store.deaf = false;
                if matches!(write, "heartbeat") {
                    assert!(matches!(a.beat(&mut store), Outcome::Won(_)), "{what}");
                }
            }
        }
    }
}

#[test]
fn leases_that_change_are_told_once_and_again_after_a_failure() {
    let mut store = Store::new(SHARDS);
    let mut a = Node::joined("a", 1, &mut store);
    let mut b = Node::joined("b", 2, &mut store);
    let told = |owners: Owners| -> Vec<(u32, bool)> {
        let mut told: Vec<(u32, bool)> = owners
            .changed
            .iter()
            .map(|seen| (seen.record.shard, seen.vanished()))
            .collect();
        told.sort_unstable();
        told
    };
    b.nodes(&mut store);
    assert_eq!(
        told(b.owners(&mut store)),
        [(0, true), (1, true), (2, true), (3, true)]
    );
    let seen = a.read(&mut store, 2);
    let held = won(a.claim(&mut store, seen));
    b.nodes(&mut store);
    assert_eq!(told(b.owners(&mut store)), [(2, false)]);
    // A failure between the listing and the reading loses nothing.
    won(a.release(&mut store, held));
    b.nodes(&mut store);
    store.deaf = true;
    assert!(b.owners(&mut store).failed.is_some());
    store.deaf = false;
    assert_eq!(told(b.owners(&mut store)), [(2, false)]);
    // Deleted, and damaged.
    store.objects.remove(&Key::Lease(2).object_name(SHARDS));
    b.nodes(&mut store);
    assert_eq!(told(b.owners(&mut store)), [(2, true)]);
    store
        .objects
        .insert(Key::Lease(2).object_name(SHARDS), b"garbage".to_vec());
    b.nodes(&mut store);
    assert_eq!(told(b.owners(&mut store)), [(2, true)]);
    b.nodes(&mut store);
    assert_eq!(told(b.owners(&mut store)), []);
    // What was damaged is repaired by a compare-and-set on the damage.
    let seen = b.read(&mut store, 2);
    assert!(seen.corrupt.is_some());
    won(b.claim(&mut store, seen));
}

#[test]
fn garbage_in_the_folders_is_counted_and_costs_listings_only() {
    let mut store = Store::new(SHARDS);
    for n in 0..10_000 {
        store
            .objects
            .insert(format!("leases/garbage-{n:05}"), Vec::new());
    }
    let mut a = Node::joined("a", 1, &mut store);
    let mut b = Node::joined("b", 2, &mut store);
    let seen = a.read(&mut store, 0);
    won(a.claim(&mut store, seen));
    for round in 0..3 {
        store.counts = [0; 4];
        assert_eq!(b.nodes(&mut store).len(), 2);
        let owners = b.owners(&mut store);
        assert_eq!(owners.failed, None);
        assert_eq!(
            owners.changed.len(),
            if round == 0 { 4 } else { 0 },
            "{round}"
        );
        if round > 0 {
            assert_eq!(store.counts, [0, 1, 0, 0], "nodes alone are listed");
        }
    }
    // News of a peer leads to the leases.
    let seen = a.read(&mut store, 3);
    won(a.claim(&mut store, seen));
    let me = a.info.clone();
    a.run(
        &mut store,
        LeaseOp::Heartbeat {
            me,
            news: true,
            repair: true,
        },
    );
    b.nodes(&mut store);
    assert_eq!(b.owners(&mut store).changed.len(), 1);
}

/// Nobody deletes the records of those that left, and names may be used once and never again.
#[test]
fn sessions_that_are_over_keep_nobody_from_being_seen() {
    let mut store = Store::new(SHARDS);
    for n in 0..1200 {
        let mut gone = Node::joined(&format!("a-pod-{n}"), n + 10, &mut store);
        let me = gone.info.clone();
        gone.run(&mut store, LeaseOp::Leave { me });
    }
    Node::joined("z", 1, &mut store);
    let mut node = Node::joined("b", 2, &mut store);
    let seen = node.nodes(&mut store);
    assert_eq!(seen.len(), 1202);
    let lives = |seen: &&NodeSeen| {
        let record = seen.record.as_ref();
        record.is_ok_and(|record| !record.info.state.is_over())
    };
    assert_eq!(seen.iter().filter(lives).count(), 2);
    // And they are read once.
    let before = store.counts;
    node.nodes(&mut store);
    let cost = [store.counts[0] - before[0], store.counts[1] - before[1]];
    assert_eq!(cost, [0, 2], "two pages of a listing");
    // One of them comes back.
    let mut back = Node::new("a-pod-7", 5000);
    let tag = seen.iter().find(|seen| seen.name.as_str() == "a-pod-7");
    let over = tag.and_then(|seen| seen.tag.clone());
    assert!(matches!(back.setup(&mut store, over), Outcome::Won(_)));
    assert_eq!(node.nodes(&mut store).iter().filter(lives).count(), 3);
}

#[test]
fn an_operation_that_is_given_up_is_unknown_and_its_late_reply_goes_nowhere() {
    let mut store = Store::new(SHARDS);
    let mut a = Node::joined("a", 1, &mut store);
    let op = claim(LeaseSeen::missing(0), 0, None);
    let Step::Ask(asks) = a.layout.begin(OpId(100), op, 0) else {
        panic!()
    };
    assert!(matches!(
        a.layout.abandon(OpId(100)),
        OpResult::Claim(Outcome::Unknown(_))
    ));
    let late = a
        .layout
        .reply(OpId(100), asks[0].id, ObjectReply::WriterEpoch(0));
    assert_eq!(late, Step::Ask(Vec::new()));
    // A heartbeat that was given up is looked into by the next one.
    let me = a.info.clone();
    let Step::Ask(asks) = a.layout.begin(
        OpId(101),
        LeaseOp::Heartbeat {
            me,
            news: false,
            repair: true,
        },
        0,
    ) else {
        panic!()
    };
    a.layout.abandon(OpId(101));
    store.carry_out(asks[0].request.clone());
    won(a.beat(&mut store));
}

/// Nodes race for leases while writes fail in every way: a lease that somebody believes to hold is held, and generations only grow.
#[test]
fn any_race_has_one_winner() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let mut store = Store::new(SHARDS);
        let mut nodes: Vec<Node> = (0..3_u128)
            .map(|n| Node::joined(&format!("n{n}"), n + 1, &mut store))
            .collect();
        let mut known: Vec<LeaseSeen> = (0..3).map(|_| LeaseSeen::missing(0)).collect();
        let mut newest = 0;
        for _ in 0..40 {
            let n = usize::try_from(rng.next_u64() % 3).unwrap();
            let fault = match rng.next_u64() % 10 {
                0 => Some(Fault::AfterEffect),
                1 => Some(Fault::BeforeEffect),
                2 => Some(Fault::Repeated),
                3 => Some(Fault::Spurious),
                _ => None,
            };
            store.faults = [fault].into();
            let (node, seen) = (&mut nodes[n], known[n].clone());
            if rng.next_u64().is_multiple_of(3) {
                store.faults.clear();
                known[n] = node.read(&mut store, 0);
                continue;
            }
            let mine = seen
                .record
                .owner
                .as_ref()
                .is_some_and(|owner| owner.name == node.info.name);
            let written = if mine && rng.next_u64().is_multiple_of(2) {
                match node.release(&mut store, seen) {
                    Outcome::Won(free) => Some(free),
                    Outcome::Lost(_) | Outcome::Unknown(_) => None,
                }
            } else {
                match node.claim(&mut store, seen) {
                    Outcome::Won(held) => {
                        assert!(
                            held.record.generation > newest,
                            "seed {seed}: {held:?} after {newest}"
                        );
                        newest = held.record.generation;
                        Some(held)
                    }
                    Outcome::Lost(ClaimLost::Changed(now)) => {
                        assert_ne!(now.tag, known[n].tag, "seed {seed}");
                        None
                    }
                    Outcome::Lost(ClaimLost::Opened { .. }) => panic!("seed {seed}"),
                    Outcome::Unknown(_) => None,
                }
            };
            let there = LeaseRecord::decode(0, store.body(&Key::Lease(0)).map_or(&b""[..], |b| b));
            newest = newest.max(there.as_ref().map_or(0, |there| there.generation));
            if let Some(written) = written {
                assert_eq!(there, Ok(written.record.clone()), "seed {seed}");
                known[n] = written;
            }
        }
    }
}

#[test]
fn a_read_of_nodes_that_was_given_up_goes_on_where_it_stopped() {
    let mut store = Store::new(SHARDS);
    Node::joined("z", 1, &mut store);
    for n in 0..300 {
        let name = format!("nodes/ghost{n}.json");
        store.objects.insert(name, format!("{n}").into_bytes());
    }
    let mut layout = Node::new("a", 2).layout;
    // Each time a hundred requests are answered before the deadline.
    let mut rounds = 0;
    let nodes = 'read: loop {
        rounds += 1;
        assert!(rounds < 6, "it begins anew each time");
        let id = OpId(rounds);
        let mut step = layout.begin(id, LeaseOp::Nodes { all: true }, 0);
        let mut asks = std::collections::VecDeque::new();
        for _ in 0..100 {
            match step {
                Step::Done(OpResult::Nodes(nodes)) => break 'read nodes.expect("read"),
                Step::Done(other) => panic!("{other:?}"),
                Step::Ask(more) => asks.extend(more),
            }
            let ask: Ask = asks.pop_front().expect("requests in flight");
            step = layout.reply(id, ask.id, store.carry_out(ask.request));
        }
        assert!(matches!(layout.abandon(id), OpResult::Nodes(Err(_))));
    };
    let readable = nodes.nodes.iter().filter(|node| node.record.is_ok());
    assert_eq!((nodes.nodes.len(), readable.count()), (301, 1));
}

#[test]
fn a_nodes_body_that_is_too_long_is_read_once() {
    let mut store = Store::new(SHARDS);
    let name = "nodes/ghost.json".to_owned();
    store.objects.insert(name, vec![b'x'; 20_000]);
    let mut layout = Node::new("a", 2).layout;
    for (round, gets) in [(1, 1), (2, 0), (3, 0)] {
        store.counts = [0; 4];
        let all = round == 3;
        let read = store.run(&mut layout, round, LeaseOp::Nodes { all });
        assert!(matches!(read, OpResult::Nodes(Ok(_))));
        assert_eq!(store.counts[0], gets, "round {round}");
    }
}

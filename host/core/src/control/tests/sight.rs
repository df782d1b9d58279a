//! Nodes that do not see all that there is.

use super::*;
use crate::lease::object::Tag;
use crate::lease::op::{LeaseSeen, Outcome};

/// A read that a notice began may be answered after a look has shown that somebody else claimed the shard.
#[test]
fn a_read_that_is_older_than_what_is_known_leads_to_no_claim() {
    for renewal in BOTH {
        let mut cluster = settled(&["a", "b"], 4, renewal);
        let shard = *cluster.node("a").serving.keys().next().unwrap();
        let now = cluster.now;
        let control = &mut cluster.node("b").control;
        let known = control.known[shard as usize].clone().unwrap();
        let mut freed = known.seen.clone();
        freed.tag = Some(Tag::e_tag("older"));
        freed.record.owner = None;
        freed.record.successor = Some(name("b"));
        freed.record.counter = 0;
        control.one_read(shard, Ok(freed), known.event, now);
        control.pump(now);
        let claims = control.flying(|what| *what == What::Claim(shard));
        assert_eq!((claims, control.wanted.len()), (0, 0), "{renewal:?}");
    }
}

#[test]
fn a_node_that_can_only_write_keeps_its_shards_and_is_given_no_others() {
    for renewal in BOTH {
        let mut cluster = settled(&["a", "b", "c"], 9, renewal);
        cluster.node("b").blind = true;
        cluster.run(secs(17));
        let before = cluster.generations();
        cluster.crash("c");
        // Its peers do not leave shards to it, so they need no patience.
        let took = cluster.until_served(secs(60));
        let most = secs(15) + secs(5) + Duration::from_millis(700);
        assert!(took <= most, "{renewal:?}: {took:?}");
        cluster.run(secs(60));
        assert_eq!(cluster.shares(), [6, 3], "{renewal:?}");
        let moved = |cluster: &Cluster| {
            let pairs = cluster.generations().into_iter().zip(before.clone());
            pairs.map(|(after, before)| after - before).sum::<u64>()
        };
        assert_eq!(moved(&cluster), 3, "{renewal:?}");
        // It says so, and nothing can be moved to it.
        let now = cluster.now;
        let a = &mut cluster.node("a").control;
        let nodes = a.nodes(now);
        let b = nodes.iter().find(|node| node.record.info.name == name("b"));
        let problem = b.and_then(|node| node.problem.clone());
        assert!(problem.is_some_and(|problem| problem.contains("not read")));
        let shard = *a.holds.keys().next().unwrap();
        let to = name("b");
        let effects = a.handle(Event::Command(Command::Move { shard, to }), now);
        assert!(matches!(effects.first(), Some(Effect::Refused(_))));
        // Once it sees again it gets its share.
        cluster.node("b").blind = false;
        cluster.run(secs(15));
        assert_eq!(cluster.shares(), [5, 4], "{renewal:?}");
        assert_eq!(moved(&cluster), 4, "{renewal:?}");
    }
}

/// With more objects than a page of a listing has, leases are only listed when a peer has news.
#[test]
fn an_owner_hears_of_a_lease_that_vanished_before_anybody_may_claim_it() {
    for body in [None, Some(b"{}".to_vec())] {
        let mut cluster = settled(&["a", "b"], 4, Renewal::Session);
        for number in 0..1500 {
            let name = format!("leases/old-{number}");
            cluster.store.objects.insert(name, Vec::new());
        }
        cluster.run(secs(400));
        let shard = *cluster.node("a").serving.keys().next().unwrap();
        let generation = cluster.lease(shard).generation;
        let key = Key::Lease(shard).object_name(4);
        match body {
            None => cluster.store.objects.remove(&key),
            Some(body) => cluster.store.objects.insert(key, body),
        };
        // The other one looks at it by chance.
        cluster.event("b", Event::RouteMiss { shard });
        cluster.run(secs(11));
        assert_eq!(cluster.lease(shard).generation, generation);
        cluster.run(secs(60));
        assert_eq!(cluster.lease(shard).generation, generation);
        assert_eq!(cluster.shares(), [2, 2]);
    }
}

#[test]
fn a_second_node_of_a_name_does_not_take_it_because_its_record_is_gone() {
    let cluster = settled(&["a"], 2, Renewal::Session);
    // It is driven by hand, since a cluster knows its nodes by their names.
    let mut other = Cluster::new(2, Renewal::Session, 99);
    (other.now, other.store) = (cluster.now, cluster.store.clone());
    other.start("a");
    other.run(secs(1));
    other
        .store
        .objects
        .remove(&Key::Node(name("a")).object_name(2));
    // The first one has a TTL, from when the second one sees that, to write it again.
    other.run(secs(14));
    assert!(
        matches!(
            &other.node("a").events[..],
            [LeaseEvent::NameTaken { .. }, ..]
        ),
        "{:?}",
        other.node("a").events
    );
    assert_eq!(other.served(), 0);
    other.run(secs(10));
    assert_eq!(other.served(), 2, "{:?}", other.node("a").events);
}

/// A lease as somebody rewrote it.
fn rewritten(control: &Control, shard: u32, successor: Option<&str>) -> LeaseSeen {
    let mut seen = control.known[shard as usize].clone().unwrap().seen;
    seen.tag = Some(Tag::e_tag(&format!("freed-{shard}")));
    seen.record.owner = None;
    seen.record.successor = successor.map(name);
    seen.record.counter += 1;
    seen
}

/// What it frees is seen before its record says that it drains.
#[test]
fn a_node_that_gave_shards_away_gets_none_before_it_was_looked_at_again() {
    for renewal in BOTH {
        let mut cluster = settled(&["a", "b"], 6, renewal);
        let theirs: Vec<u32> = cluster.node("a").serving.keys().copied().collect();
        let now = cluster.now;
        let control = &mut cluster.node("b").control;
        control.events += 1;
        for shard in &theirs[..2] {
            let seen = rewritten(control, *shard, Some("b"));
            control.learn(seen, control.events, now);
        }
        control.look.at = now + secs(5);
        control.assign(now);
        let keeps = |hold: &Hold| hold.wish == Wish::Keep;
        assert!(control.holds.values().all(keeps), "{renewal:?}");
        assert_eq!(control.look.at, now + secs(5) / 20, "{renewal:?}");
        // It had room all the same.
        control.peers.map.get_mut(&name("a")).unwrap().asked = control.events + 1;
        control.assign(now);
        assert!(!control.holds.values().all(keeps), "{renewal:?}");
    }
}

#[test]
fn a_node_that_drains_says_so_before_it_frees_anything() {
    for renewal in BOTH {
        let mut cluster = settled(&["a", "b"], 6, renewal);
        let theirs: Vec<u32> = cluster.node("a").serving.keys().copied().collect();
        // Its shards close faster than the store answers.
        cluster.latency = Duration::from_millis(200);
        cluster.command("a", Command::Drain);
        cluster.run(Duration::from_millis(250));
        assert_eq!(cluster.node("a").serving.len(), 0, "{renewal:?}");
        let held = |shard: &u32| cluster.lease(*shard).owner.is_some();
        assert!(theirs.iter().all(held), "{renewal:?}");
        cluster.run(secs(2));
        assert_eq!(cluster.shares(), [0, 6], "{renewal:?}");
    }
}

#[test]
fn a_shard_that_is_left_to_a_peer_is_looked_at_soon() {
    let mut cluster = settled(&["a", "b"], 5, Renewal::Session);
    let (few, many) = if cluster.shares()[0] < 3 {
        ("a", "b")
    } else {
        ("b", "a")
    };
    let shard = *cluster.node(few).serving.keys().next().unwrap();
    let now = cluster.now;
    let control = &mut cluster.node(many).control;
    control.events += 1;
    let seen = rewritten(control, shard, None);
    control.learn(seen, control.events, now);
    control.look.at = now + secs(5);
    control.assign(now);
    assert_eq!(control.wanted.len(), 0);
    assert_eq!(control.look.at, now + secs(5) / 4);
    // Not for ever: then anybody may take it, and if nobody does, nobody can.
    control.unowned.insert(shard, now);
    control.avoid.insert(shard, now + secs(100));
    control.look.at = now + secs(65);
    control.assign(now + secs(60));
    assert_eq!(control.look.at, now + secs(65));
}

/// After an outage, peers have the time that an attempt to renew takes, whenever in it they expire.
#[test]
fn nobody_is_ended_right_after_an_outage() {
    for quarters in 36..68 {
        let mut cluster = settled(&["a", "b", "c"], 6, Renewal::Session);
        for node in cluster.nodes.values_mut() {
            node.cut = true;
        }
        cluster.run(secs(quarters) / 4);
        cluster.node("a").cut = false;
        cluster.node("c").cut = false;
        cluster.run(secs(5));
        cluster.node("b").cut = false;
        cluster.run(secs(30));
        let ended = |event: &LeaseEvent| matches!(event, LeaseEvent::Tombstoned { .. });
        let events = cluster.nodes.values().flat_map(|node| &node.events);
        assert_eq!(events.filter(|event| ended(event)).count(), 0, "{quarters}");
        assert_eq!(cluster.shares(), [2, 2, 2], "{quarters}");
    }
}

/// A renewal that came late stands there with the counter of the one after it.
#[test]
fn counters_of_a_lease_grow_over_writes_that_came_late() {
    let mut cluster = settled(&["a", "b"], 4, Renewal::Lease);
    let shard = *cluster.node("a").serving.keys().next().unwrap();
    let now = cluster.now;
    let control = &mut cluster.node("a").control;
    let mut stands = control.holds[&shard].lease.clone();
    stands.tag = Some(Tag::e_tag("late"));
    stands.record.counter += 1;
    let counter = stands.record.counter;
    control.renewed(shard, Outcome::Lost(stands), now, now);
    assert_eq!(control.holds[&shard].lease.record.counter, counter);
    // Whoever reads two versions of one counter cannot tell which is older.
    let control = &mut cluster.node("b").control;
    let known = control.known[shard as usize].clone().unwrap();
    let mut other = known.seen.clone();
    other.tag = Some(Tag::e_tag("other"));
    control.reread.clear();
    control.learn(other, known.event, now);
    assert!(control.reread.contains(&shard));
}

#[test]
fn a_node_that_comes_back_to_no_record_waits_for_one_to_show() {
    let mut cluster = settled(&["a"], 2, Renewal::Session);
    let key = Key::Node(name("a")).object_name(2);
    cluster.node("a").paused = cluster.now + secs(20);
    cluster.run(secs(19));
    cluster.store.objects.remove(&key);
    cluster.run(secs(14));
    let lost = |event: &LeaseEvent| matches!(event, LeaseEvent::SessionLost { .. });
    assert!(cluster.node("a").events.iter().any(lost));
    assert_eq!(cluster.store.body(&Key::Node(name("a"))), None);
    cluster.run(secs(10));
    assert_eq!(cluster.shares(), [2]);
}

/// With little time left, whoever waited on after that would begin the next one too late.
#[test]
fn a_heartbeat_that_hung_is_followed_by_another_at_once() {
    let mut cluster = settled(&["a"], 2, Renewal::Session);
    let now = cluster.now;
    let control = &mut cluster.node("a").control;
    for (took, pause) in [
        (secs(0), secs(5) / 8),
        (secs(5) / 16, secs(5) / 16),
        (secs(5) / 8, secs(0)),
        (secs(1), secs(0)),
    ] {
        control.beat.failures = 3;
        control.beaten(Outcome::Unknown("it hung".into()), 0, now - took, now);
        assert_eq!(control.beat.at, now + pause, "{took:?}");
    }
}

/// What is being claimed is one's own for a plan: else it gives another one in its place, and in the end both are there.
#[test]
fn a_plan_counts_what_is_being_claimed() {
    let mut cluster = settled(&["a", "b", "c"], 9, Renewal::Lease);
    let theirs: Vec<u32> = cluster.node("c").serving.keys().copied().collect();
    let now = cluster.now;
    let control = &mut cluster.node("a").control;
    // It has expired.
    control.peers.map.get_mut(&name("c")).unwrap().since = Moment::ORIGIN;
    for shard in &theirs {
        let known = control.known[*shard as usize].as_mut().unwrap();
        known.since = Moment::ORIGIN;
    }
    control.assign(now);
    let wanted: Vec<u32> = control.wanted.iter().map(|wanted| wanted.shard).collect();
    assert_eq!(wanted, theirs[..2]);
    // Another view gave it the third of them a moment ago.
    let event = control.known[theirs[2] as usize].as_ref().unwrap().event;
    control.wanted = VecDeque::from([Wanted {
        shard: theirs[2],
        at_most: None,
        event,
    }]);
    control.pump(now);
    assert_eq!(control.flying(|what| *what == What::Claim(theirs[2])), 1);
    control.assign(now);
    let more = control.wanted.iter().map(|wanted| wanted.shard);
    assert_eq!(more.filter(|shard| *shard != theirs[2]).count(), 1);
    assert_eq!(control.share, 5);
}

/// The layout tells of a change once: what a read was to find out is found out by another one, if it fails.
#[test]
fn a_lease_whose_reading_failed_is_read_again() {
    for renewal in BOTH {
        let mut cluster = settled(&["a", "b"], 4, renewal);
        let shard = *cluster.node("a").serving.keys().next().unwrap();
        let now = cluster.now;
        let control = &mut cluster.node("b").control;
        control.reread.insert(shard);
        control.read_again(now);
        assert!(control.reread.is_empty(), "{renewal:?}");
        let asked = control.events;
        control.busy.clear();
        control.one_read(shard, Err("no answer".into()), asked, now);
        control.read_again(now);
        assert!(control.reread.contains(&shard), "not at once: {renewal:?}");
        control.read_again(now + secs(1));
        assert!(control.reread.is_empty(), "{renewal:?}");
    }
}

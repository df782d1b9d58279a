use std::time::Duration;

use super::*;

fn at(s: u64) -> Moment {
    Moment::ORIGIN + Duration::from_secs(s)
}

fn name(name: &str) -> NodeName {
    name.parse().expect("a name")
}

/// Node `a` is this one. Shard 0 is on `a`, 1 on `b` until 20 s, 2 on `c` whose session is another by now, 3 is free, 4 moves to `b`,
/// 5 to `a`, 6 is on `d`, which has no address, 7 on `b` under a lease that ends at 5 s.
fn table() -> RouteTable {
    let session = |n| SessionId::new(n);
    let route = |owner: &str, s, state, until| {
        Some(Route {
            owner: name(owner),
            session: session(s),
            generation: 9,
            state,
            until,
        })
    };
    let node = |s, address: &str, until| NodeRoute {
        session: session(s),
        address: address.into(),
        until,
    };
    use RouteState::{Moving, Open};
    RouteTable {
        me: Some((name("a"), session(1))),
        shards: vec![
            route("a", 1, Open, Moment::NEVER),
            route("b", 2, Open, Moment::NEVER),
            route("c", 3, Open, Moment::NEVER),
            None,
            route("b", 2, Moving, Moment::NEVER),
            route("a", 1, Moving, Moment::NEVER),
            route("d", 4, Open, Moment::NEVER),
            route("b", 2, Open, at(5)),
        ],
        nodes: [
            (name("a"), node(1, "http://a", Moment::NEVER)),
            (name("b"), node(2, "http://b", at(20))),
            (name("c"), node(33, "http://c", at(20))),
            (name("d"), node(4, "", at(20))),
        ]
        .into(),
    }
}

fn ask(shard: u32, forwarded: bool) -> Ask {
    Ask {
        shard,
        forwarded,
        refused_by: None,
        deadline: at(100),
        since: at(10),
        park: Duration::from_secs(5),
    }
}

/// A decision in short.
fn short(decision: &Decision) -> String {
    match decision {
        Decision::Local { until } => format!("local {until:?}"),
        Decision::Forward { node, until, .. } => format!("to {node} {until:?}"),
        Decision::Park { until } => format!("park {until:?}"),
        Decision::Refuse(Refusal::NoSuchShard { .. }) => "no such shard".into(),
        Decision::Refuse(Refusal::Unassigned { .. }) => "unassigned".into(),
        Decision::Refuse(Refusal::NotOwner { owner, .. }) => {
            format!(
                "not owner {}",
                owner.as_ref().map_or("-", |owner| owner.as_str())
            )
        }
        Decision::Refuse(Refusal::NoAddress { .. }) => "no address".into(),
    }
}

#[test]
fn decisions() {
    let open = |s| Local::Open { until: at(s) };
    let closing = |to: Option<&str>| Local::Closing {
        successor: to.map(name),
    };
    for (shard, forwarded, local, now, expected) in [
        // What is here runs here, until its deadline.
        (0, false, open(12), 10, "local 12s"),
        (0, true, open(12), 10, "local 12s"),
        (0, false, open(12), 12, "park 15s"),
        (0, true, open(12), 12, "park 15s"),
        (1, false, open(12), 10, "local 12s"),
        // What opens is waited for.
        (0, false, Local::Opening, 10, "park 15s"),
        (0, true, Local::Opening, 14, "park 15s"),
        (0, false, Local::Opening, 15, "unassigned"),
        (0, false, Local::None, 10, "park 15s"),
        (0, true, Local::None, 10, "park 15s"),
        (5, true, Local::None, 10, "park 15s"),
        (5, false, Local::None, 10, "park 15s"),
        (0, false, Local::Refusing, 10, "not owner a"),
        // Others get it while their session lives.
        (1, false, Local::None, 10, "to b 20s"),
        (1, false, Local::None, 19, "to b 20s"),
        (1, false, Local::None, 20, "unassigned"),
        (7, false, Local::None, 4, "to b 5s"),
        (7, false, Local::None, 12, "park 15s"),
        // One hop, never two.
        (1, true, Local::None, 10, "not owner b"),
        (2, true, Local::None, 10, "not owner c"),
        (3, true, Local::None, 10, "not owner -"),
        (4, true, Local::None, 10, "not owner b"),
        (1, true, closing(Some("b")), 10, "not owner b"),
        (0, true, closing(None), 10, "not owner a"),
        // Moves, and owners that are gone, are waited for.
        (2, false, Local::None, 10, "park 15s"),
        (3, false, Local::None, 10, "park 15s"),
        (3, false, Local::None, 15, "unassigned"),
        (4, false, Local::None, 10, "park 15s"),
        (0, false, closing(Some("b")), 10, "park 15s"),
        (1, false, closing(Some("b")), 10, "to b 20s"),
        (1, false, closing(Some("c")), 10, "park 15s"),
        (6, false, Local::None, 10, "no address"),
        (8, false, Local::None, 10, "no such shard"),
        (u32::MAX, true, open(99), 10, "no such shard"),
    ] {
        let decision = route(
            &ask(shard, forwarded),
            &table(),
            &local,
            at(now),
            Rules::default(),
        );
        assert_eq!(
            short(&decision),
            expected,
            "{shard} {forwarded} {local:?} at {now}"
        );
    }
}

#[test]
fn nobody_waits_past_its_own_deadline_or_asks_the_same_owner_again() {
    let mut call = ask(3, false);
    call.deadline = at(12);
    let decide = |call: &Ask| {
        short(&route(
            call,
            &table(),
            &Local::None,
            at(11),
            Rules::default(),
        ))
    };
    assert_eq!(decide(&call), "park 12s");
    call.shard = 1;
    assert_eq!(decide(&call), "to b 20s");
    call.refused_by = Some((name("b"), 9));
    assert_eq!(decide(&call), "park 12s");
    call.refused_by = Some((name("b"), 8));
    assert_eq!(decide(&call), "to b 20s");
}

/// Whatever the table, the local state and the moment: no route is used past its end, nothing that was forwarded is forwarded again,
/// and nothing runs here past its deadline.
#[test]
fn any_decision_keeps_the_rules() {
    for seed in 0..4000 {
        let mut rng = crate::rng::Rng::new(seed);
        let mut below = |n: u64| rng.next_u64() % n;
        let now = at(below(40));
        let local = match below(5) {
            0 => Local::None,
            1 => Local::Opening,
            2 => Local::Open {
                until: at(below(40)),
            },
            3 => Local::Refusing,
            _ => Local::Closing {
                successor: (below(2) == 0).then(|| name("b")),
            },
        };
        let mut call = ask(u32::try_from(below(9)).unwrap(), below(2) == 0);
        (call.since, call.deadline) = (at(below(40)), at(below(60)));
        let table = table();
        let decision = route(&call, &table, &local, now, Rules::default());
        let context = format!("seed {seed}: {call:?} {local:?} at {now:?}: {decision:?}");
        match decision {
            Decision::Local { until } => assert!(until > now, "{context}"),
            Decision::Forward { node, until, .. } => {
                assert!(
                    !call.forwarded && until > now && node != name("a"),
                    "{context}"
                );
                assert!(until <= table.nodes[&node].until, "{context}");
            }
            Decision::Park { until } => {
                assert!(until > now && until <= call.deadline, "{context}");
                assert!(until <= call.since + call.park, "{context}");
            }
            Decision::Refuse(_) => {}
        }
    }
}

#[test]
fn broken_rules_show() {
    let decide = |shard, forwarded, now, mutation| {
        let rules = Rules::without(mutation);
        short(&route(
            &ask(shard, forwarded),
            &table(),
            &Local::None,
            at(now),
            rules,
        ))
    };
    assert_eq!(
        decide(1, false, 25, Mutation::RoutePastDeadline),
        "to b 20s"
    );
    assert_eq!(decide(1, true, 11, Mutation::ForwardTwice), "to b 20s");
}

//! What the coordinator makes of what nodes say.

use quarry_core::deploy::{Command, Plan, Selection, command};
use quarry_core::lease::record::{Nonce, SessionId};
use quarry_core::route::{Route, RouteState};
use quarry_core::time::Moment;

use super::*;
use crate::cluster::said::{CheckSaid, ShardSaid, SwapsSaid};

const COUNTER: u64 = 5;

fn name(name: &str) -> NodeName {
    name.parse().expect("a name")
}

/// Shard 0 is a's by the table, shard 1 is b's, and shard 2 nobody's.
fn routes() -> RouteTable {
    let route = |owner: &str| Route {
        owner: name(owner),
        session: SessionId::new(1),
        generation: 1,
        state: RouteState::Open,
        until: Moment::NEVER,
    };
    RouteTable {
        shards: vec![Some(route("a")), Some(route("b")), None],
        ..RouteTable::default()
    }
}

fn record(phase: Phase) -> RolloutRecord {
    let fresh = RolloutRecord {
        counter: COUNTER,
        stable: 1,
        ..RolloutRecord::fresh()
    };
    let order = Command::Deploy {
        target: 2,
        by: "ann".into(),
        order: Nonce::new(7),
        plan: Plan::All,
        first: Selection::None,
        gates: quarry_core::deploy::Gates::default(),
        step_timeout_ms: 1000,
        bake_ms: 0,
    };
    let mut record = command(&fresh, order).expect("idle");
    record.active.as_mut().expect("active").phase = phase;
    record
}

fn says(node: &str, counter: u64, shards: &[(u32, u64, u64, ShardDoes)]) -> NodeSaid {
    NodeSaid {
        node: node.into(),
        counter,
        check: CheckSaid::Fine,
        shards: shards
            .iter()
            .map(|(shard, generation, revision, does)| ShardSaid {
                shard: *shard,
                generation: *generation,
                revision: Some(*revision),
                does: does.clone(),
            })
            .collect(),
        migration_ms: 0,
        calls: Vec::new(),
        swaps: SwapsSaid::default(),
        trouble: None,
    }
}

fn down(why: &str) -> ShardDoes {
    ShardDoes::Down { why: why.into() }
}

fn seen_by(phase: Phase, said: Vec<(&str, Result<NodeSaid, CallError>)>) -> Vec<ShardSeen> {
    let record = record(phase);
    let said = said.into_iter().map(|(node, said)| (name(node), said));
    let active = record.active.as_ref().expect("active");
    shards(&routes(), 3, &record, active, &said.collect())
}

#[test]
fn the_newest_lease_says_how_a_shard_is() {
    let a = says(
        "a",
        COUNTER,
        &[
            (0, 2, 2, ShardDoes::Runs),
            (1, 1, 1, ShardDoes::Runs),
            (9, 1, 1, ShardDoes::Runs),
        ],
    );
    let b = says(
        "b",
        COUNTER,
        &[(1, 2, 2, down("opens")), (0, 2, 1, down("closes"))],
    );
    let seen = seen_by(Phase::Rolling, vec![("a", Ok(a)), ("b", Ok(b))]);
    assert_eq!(
        seen,
        [
            ShardSeen::Runs(2),
            ShardSeen::Down("opens".into()),
            ShardSeen::Unowned,
        ],
        "of one lease, the one that serves; a shard that there is not is nobody's"
    );
}

#[test]
fn who_is_behind_or_silent_says_nothing() {
    let behind = says("a", COUNTER - 1, &[(0, 2, 2, ShardDoes::Runs)]);
    let silent = CallError::host(CallErrorKind::Timeout, "late");
    let seen = seen_by(Phase::Rolling, vec![("a", Ok(behind)), ("b", Err(silent))]);
    let expected = [ShardSeen::Silent, ShardSeen::Silent, ShardSeen::Unowned];
    assert_eq!(seen, expected);
}

#[test]
fn a_node_with_a_guest_of_its_own_stops_a_rollout_and_not_the_way_back() {
    let pinned = || CallError::host(CallErrorKind::Refused, "its own");
    for (phase, expected) in [
        (
            Phase::Rolling,
            ShardSeen::Failed {
                revision: 2,
                why: "its own".into(),
            },
        ),
        (Phase::Back, ShardSeen::Unowned),
    ] {
        let seen = seen_by(phase, vec![("b", Err(pinned()))]);
        assert_eq!(seen[1], expected, "{phase:?}");
    }
}

#[test]
fn what_is_down_keeps_no_rollout_from_going_back() {
    let swaps = |to| ShardDoes::Swaps { to };
    // The revision that shard 0 has, and what it does; whether it has gone back.
    for (revision, does, back) in [
        (1, down("crashed"), true),
        (2, down("crashed"), false),
        (1, swaps(2), false),
        (2, swaps(1), false),
        (3, swaps(1), true),
    ] {
        let said = says("a", COUNTER, &[(0, 2, revision, does.clone())]);
        let seen = &seen_by(Phase::Back, vec![("a", Ok(said.clone()))])[0];
        assert_eq!(*seen == ShardSeen::Unowned, back, "{does:?}");
        let seen = &seen_by(Phase::Rolling, vec![("a", Ok(said))])[0];
        assert!(matches!(seen, ShardSeen::Down(_)), "{seen:?}");
    }
}

#[test]
fn counts_of_all_nodes_are_one() {
    let counted = |revision, calls| {
        let counts = Counts {
            calls,
            errors: 1,
            ..Counts::default()
        };
        (revision, counts)
    };
    let with = |calls| NodeSaid {
        calls,
        ..says("a", COUNTER, &[])
    };
    let said: Said = [
        (name("a"), Ok(with(vec![counted(1, 5), counted(2, 7)]))),
        (name("b"), Ok(with(vec![counted(1, u64::MAX)]))),
        (
            name("c"),
            Err(CallError::host(CallErrorKind::Timeout, "late")),
        ),
    ]
    .into();
    let of = |revision| {
        let counts = calls(&said, revision);
        (counts.calls, counts.errors)
    };
    assert_eq!((of(1), of(2), of(3)), ((u64::MAX, 2), (7, 1), (0, 0)));
}

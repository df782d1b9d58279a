//! Records, commands and steps as tables.

mod model;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::*;
use crate::lease::record::{Nonce, RecordError};

const SHARDS: u32 = 8;
const SOON: Duration = Duration::ZERO;
const LATE: Duration = Duration::from_secs(60);

fn spec() -> ModuleSpec {
    ModuleSpec {
        name: "main".into(),
        digest: Digest::new([0xab; 32]),
        size: 1000,
        options: r#"{"greeting":"\"hello\""}"#.into(),
        limits: BTreeMap::from([("memory".into(), "64MiB".into())]),
        grants: BTreeSet::from(["http:example.com".into()]),
        prefix: "users/".into(),
    }
}

fn revision(number: u64) -> Revision {
    Revision {
        number,
        modules: vec![spec()],
        author: "ann".into(),
        created_ms: 5,
        note: "faster, \"and\" smaller".into(),
    }
}

fn deploy(target: u64, plan: Plan) -> Command {
    Command::Deploy {
        target,
        by: "ann".into(),
        order: Nonce::new(u128::from(target) << 64),
        plan,
        first: match plan {
            Plan::Chosen => Selection::parse("1-2,5", SHARDS).expect("shards"),
            _ => Selection::None,
        },
        gates: Gates::default(),
        step_timeout_ms: 60_000,
        bake_ms: 0,
    }
}

/// A record in which every shard runs revision 1.
fn stable() -> RolloutRecord {
    RolloutRecord {
        stable: 1,
        number: 1,
        ..RolloutRecord::fresh()
    }
}

fn rolling(plan: Plan) -> RolloutRecord {
    let checking = command(&stable(), deploy(2, plan)).expect("idle");
    let seen = seen(&checking, &[("a", Check::Fine)]);
    advance(&checking, &seen, SOON).expect("checked")
}

/// Every shard runs what the record says.
fn seen(record: &RolloutRecord, nodes: &[(&str, Check)]) -> Seen {
    Seen {
        nodes: nodes
            .iter()
            .map(|(name, check)| (name.parse().expect("a name"), check.clone()))
            .collect(),
        shards: (0..SHARDS)
            .map(|shard| ShardSeen::Runs(record.revision_of(shard, SHARDS)))
            .collect(),
        ..Seen::default()
    }
}

fn active(record: &RolloutRecord) -> &Active {
    record.active.as_ref().expect("a rollout")
}

fn last(record: &RolloutRecord) -> (Outcome, &str) {
    assert_eq!(record.active, None);
    let last = record.last.as_ref().expect("an end");
    (last.outcome, &last.why)
}

#[test]
fn bodies_come_back_as_they_were() {
    let mut held = rolling(Plan::Chosen);
    held.counter = 7;
    held.nonce = Nonce::new(9);
    held.last = Some(Ended {
        number: 1,
        target: 1,
        order: Nonce::new(8),
        outcome: Outcome::Refused,
        why: "node a cannot run it".into(),
    });
    let waves = rolling(Plan::Waves(25));
    let first = RolloutRecord::begin_with(3);
    for record in [RolloutRecord::fresh(), first, stable(), held, waves] {
        let body = record.encode().expect("fine");
        assert_eq!(RolloutRecord::decode(&body).expect("fine"), record);
    }
    let revision = revision(3);
    let body = revision.encode().expect("fine");
    assert_eq!(Revision::decode(3, &body).expect("fine"), revision);
    assert_eq!(Revision::number_of("revisions/3.json"), Some(3));
    for other in [
        "revisions/0.json",
        "revisions/03.json",
        "revisions/x.json",
        "nodes/3.json",
    ] {
        assert_eq!(Revision::number_of(other), None, "{other}");
    }
    let digest = Digest::new([0x0f; 32]);
    assert_eq!(
        digest.to_string().parse::<Digest>().expect("digits"),
        digest
    );
    assert_eq!(digest.object(), format!("modules/{}.wasm", "0f".repeat(32)));
    assert!("0F".repeat(32).parse::<Digest>().is_err());
}

/// Whose rollout it is, is told by the order and by nothing else, for as long as the record knows of it.
#[test]
fn an_order_is_known_by_its_own_number() {
    let [mine, yours] = [2_u64, 3].map(|target| Nonce::new(u128::from(target) << 64));
    let checking = command(&stable(), deploy(2, Plan::All)).expect("idle");
    assert_eq!(checking.rollout_of(mine), Some((2, 2)));
    assert_eq!(
        checking.rollout_of(yours),
        None,
        "though of the same person"
    );
    let refused = [("a", Check::Refused("it is no good".into()))];
    let ended = advance(&checking, &seen(&checking, &refused), SOON).expect("it ends");
    assert_eq!(ended.rollout_of(mine), Some((2, 2)), "it has ended");
    let next = command(&ended, deploy(3, Plan::All)).expect("idle");
    assert_eq!(next.rollout_of(yours), Some((3, 3)));
    assert_eq!(next.rollout_of(mine), Some((2, 2)));
    let by = "bob".into();
    let going = command(&next, Command::Abort { by }).expect("it can be");
    let another = command(&going, deploy(4, Plan::All)).expect("it takes its place");
    assert_eq!(another.rollout_of(yours), Some((3, 3)), "it is superseded");
    assert_eq!(another.rollout_of(mine), None, "that is forgotten");
    // What earlier versions wrote knows of none, and nobody's order is found in it.
    let body = String::from_utf8(another.encode().expect("fine")).expect("text");
    let plain = |order: Nonce| format!("\"order\":\"{order}\",");
    let fourth = Nonce::new(4 << 64);
    let old = body.replace(&plain(fourth), "").replace(&plain(yours), "");
    assert!(!old.contains("order\":"), "{old}");
    let old = RolloutRecord::decode(old.as_bytes()).expect("it reads");
    assert_eq!(active(&old).order, Nonce::new(0));
    for order in [Nonce::new(0), yours, fourth] {
        assert_eq!(old.rollout_of(order), None);
    }
}

#[test]
fn hostile_bodies_are_named() {
    let rollout = |change: &dyn Fn(&mut serde_json::Value)| {
        let body = rolling(Plan::Waves(25)).encode().expect("fine");
        let mut value = serde_json::from_slice(&body).expect("JSON");
        change(&mut value);
        RolloutRecord::decode(value.to_string().as_bytes())
            .expect_err("refused")
            .to_string()
    };
    for (field, value, part) in [
        ("version", 9.into(), "this build reads version 1"),
        ("counter", (-1).into(), "`counter`"),
        ("nonce", "x".into(), "`nonce`"),
        ("stable", "1".into(), "`stable`"),
        ("number", 0.into(), "`number`"),
        ("active", 5.into(), "active is not a record"),
    ] {
        let error = rollout(&|body| body[field] = serde_json::Value::clone(&value));
        assert!(error.contains(part), "{field}: {error}");
    }
    for (field, value, part) in [
        ("target", 0.into(), "from 1"),
        ("percent", 0.into(), "1 to 100"),
        ("percent", 101.into(), "1 to 100"),
        (
            "plan",
            "fast".into(),
            "valid are all, waves, canary, chosen",
        ),
        ("phase", "done".into(), "checking, rolling, held, back"),
        ("selection", "3-1".into(), "ranges such as 0-3,7"),
        ("selection", "first -1".into(), "ranges such as 0-3,7"),
        ("by", "x".repeat(257).into(), "`by`"),
        ("errors_percent", 101.into(), "0 to 100"),
        ("paused", "yes".into(), "true and false"),
    ] {
        let error = rollout(&|body| body["active"][field] = serde_json::Value::clone(&value));
        assert!(error.contains(part), "{field}: {error}");
    }
    let long = vec![b' '; MAX_ROLLOUT_BYTES + 1];
    assert!(matches!(
        RolloutRecord::decode(&long),
        Err(RecordError::TooLong { .. })
    ));

    let revision = |change: &dyn Fn(&mut serde_json::Value)| {
        let body = revision(3).encode().expect("fine");
        let mut value = serde_json::from_slice(&body).expect("JSON");
        change(&mut value);
        Revision::decode(3, value.to_string().as_bytes())
            .expect_err("refused")
            .to_string()
    };
    let many = |count: usize| vec![serde_json::json!({}); count].into();
    for (field, value, part) in [
        ("number", 4.into(), "the object's name says 3"),
        ("modules", serde_json::json!([]), "1 to 16 modules"),
        ("modules", many(17), "at most 16"),
        (
            "modules",
            serde_json::json!([5]),
            "module 0 is not a record",
        ),
        ("author", "a\n".into(), "`author`"),
        ("note", "n".repeat(MAX_NOTE + 1).into(), "`note`"),
    ] {
        let error = revision(&|body| body[field] = serde_json::Value::clone(&value));
        assert!(error.contains(part), "{field}: {error}");
    }
    for (field, value, part) in [
        ("name", "Main".into(), "lower-case letters"),
        ("name", "".into(), "lower-case letters"),
        ("digest", "abc".into(), "64 lower-case hex digits"),
        ("options", "o".repeat(MAX_OPTIONS + 1).into(), "`options`"),
        ("limits", serde_json::json!([]), "an object"),
        (
            "limits",
            serde_json::json!({"memory": 5}),
            "each limit's value is a text",
        ),
        ("grants", serde_json::json!([5]), "each grant is a text"),
        ("size", "big".into(), "`size`"),
    ] {
        let error = revision(&|body| body["modules"][0][field] = serde_json::Value::clone(&value));
        assert!(error.contains(part), "{field}: {error}");
    }
    let twice = revision(&|body| {
        let module = body["modules"][0].clone();
        body["modules"] = serde_json::json!([module, module]);
    });
    assert!(twice.contains("a name of its own"), "{twice}");
}

#[test]
fn shards_are_chosen_as_they_are_written() {
    for (text, shards, written) in [
        ("0", vec![0], "0"),
        ("0-3", vec![0, 1, 2, 3], "0-3"),
        ("7, 0-1,2", vec![0, 1, 2, 7], "0-2,7"),
        ("3-5,4-6", vec![3, 4, 5, 6], "3-6"),
    ] {
        let selection = Selection::parse(text, SHARDS).expect(text);
        assert_eq!(selection.of(SHARDS, 1), shards);
        assert_eq!(selection.to_string(), written);
        assert_eq!(selection.count(SHARDS) as usize, shards.len());
    }
    for text in [
        "",
        "8",
        "0-8",
        "3-1",
        "a",
        "-1",
        "1-",
        "1,,2",
        "0x1",
        "99999999999",
    ] {
        let error = Selection::parse(text, SHARDS).expect_err(text).to_string();
        assert!(error.contains("below 8"), "{error}");
    }
    let many: Vec<String> = (0..MAX_RANGES + 1).map(|n| (2 * n).to_string()).collect();
    assert!(Selection::parse(&many.join(","), 1000).is_err());
    // So many of them are always the same in one rollout, grow, and differ from rollout to rollout.
    let first = |count, order| Selection::First(count).of(64, order);
    for order in 1..20 {
        let chosen = first(16, order);
        assert_eq!(chosen.len(), 16);
        let contains = |shard: &u32| Selection::First(16).contains(*shard, 64, order);
        assert_eq!((0..64).filter(contains).collect::<Vec<_>>(), chosen);
        assert!(chosen.iter().all(|shard| first(17, order).contains(shard)));
        assert_ne!(chosen, first(16, order + 1));
    }
    assert_eq!(first(100, 1).len(), 64);
}

#[test]
fn commands_fit_the_state_or_are_refused() {
    let busy = rolling(Plan::Canary(10));
    let refused =
        |record: &RolloutRecord, order| command(record, order).expect_err("refused").to_string();
    for (record, order, part) in [
        (
            &busy,
            deploy(3, Plan::All),
            "rollout 2, of revision 2 by ann, is in progress",
        ),
        (&stable(), deploy(1, Plan::All), "what every shard runs"),
        (&stable(), Command::Pause, "no rollout is in progress"),
        (
            &busy,
            Command::Promote,
            "rollout 2 is not held: it is rolling",
        ),
    ] {
        let error = refused(record, order);
        assert!(error.contains(part), "{error}");
    }
    let nothing = Command::Deploy {
        target: 2,
        by: "ann".into(),
        order: Nonce::new(1),
        plan: Plan::Chosen,
        first: Selection::None,
        gates: Gates::default(),
        step_timeout_ms: 1,
        bake_ms: 0,
    };
    assert_eq!(command(&stable(), nothing), Err(Refused::NothingChosen));
    let by = || Command::Abort { by: "bob".into() };
    let going = command(&busy, by()).expect("it can be");
    assert_eq!(active(&going).phase, Phase::Back);
    assert!(refused(&going, by()).contains("goes back already: aborted by bob"));
    // What ran before may not start any more: another revision is a way on, though not the one that is gone back to.
    assert!(refused(&going, deploy(1, Plan::All)).contains("goes back already"));
    for target in [2, 3] {
        let on = command(&going, deploy(target, Plan::All)).expect("a way on");
        assert_eq!((on.number, on.stable), (3, 1));
        assert_eq!(
            (active(&on).target, active(&on).phase),
            (target, Phase::Checking)
        );
        let last = on.last.expect("an end");
        assert_eq!((last.number, last.target), (2, 2));
        assert_eq!(last.outcome, Outcome::Superseded);
        assert!(last.why.contains("aborted by bob") && last.why.contains("rollout 3 by ann"));
    }
    // Where nothing runs, all shards take the first revision at once.
    let first = command(&RolloutRecord::fresh(), deploy(1, Plan::Canary(10))).expect("idle");
    assert_eq!(active(&first).plan, Plan::All);
}

#[test]
fn nothing_runs_before_every_node_can_run_it() {
    for plan in [Plan::All, Plan::Chosen] {
        let checking = command(&stable(), deploy(2, plan)).expect("idle");
        for shard in 0..SHARDS {
            assert_eq!(checking.revision_of(shard, SHARDS), 1);
        }
        for check in [Check::Silent, Check::Busy] {
            let seen = seen(&checking, &[("a", Check::Fine), ("b", check)]);
            assert_eq!(advance(&checking, &seen, SOON), None);
            let ended = advance(&checking, &seen, LATE).expect("late");
            let (outcome, why) = last(&ended);
            assert_eq!(outcome, Outcome::Refused);
            assert!(why.contains("node b did not say"), "{why}");
            assert_eq!((ended.stable, ended.previous), (1, 0));
        }
        let no = Check::Refused("it imports wasi:http".into());
        let refused = seen(&checking, &[("a", Check::Busy), ("b", no)]);
        let ended = advance(&checking, &refused, SOON).expect("refused");
        assert_eq!(
            last(&ended),
            (
                Outcome::Refused,
                "node b cannot run it: it imports wasi:http"
            )
        );
        // Nobody is no proof.
        assert_eq!(advance(&checking, &seen(&checking, &[]), SOON), None);
    }
}

#[test]
fn a_rollout_goes_its_way() {
    // The number of shards that run the target after each step, and whether an operator has to say so in between.
    for (plan, steps) in [
        (Plan::All, &[(8, false)][..]),
        (
            Plan::Waves(25),
            &[(2, false), (4, false), (6, false), (8, false)],
        ),
        (Plan::Waves(60), &[(5, false), (8, false)]),
        (Plan::Canary(1), &[(1, true), (8, false)]),
        (Plan::Chosen, &[(3, true), (8, false)]),
    ] {
        let mut record = rolling(plan);
        for (count, held) in steps {
            let new = (0..SHARDS).filter(|shard| record.revision_of(*shard, SHARDS) == 2);
            assert_eq!(new.count(), *count, "{plan:?}");
            // Not before each of them has taken it.
            let mut partly = seen(&record, &[]);
            let chosen = active(&record).selection.of(SHARDS, record.number)[0];
            for state in [
                ShardSeen::Runs(1),
                ShardSeen::Unowned,
                ShardSeen::Silent,
                ShardSeen::Down("swaps".into()),
            ] {
                partly.shards[chosen as usize] = state;
                assert_eq!(advance(&record, &partly, SOON), None, "{plan:?}");
                let late = advance(&record, &partly, LATE).expect("late");
                assert_eq!(active(&late).phase, Phase::Back);
                assert!(active(&late).why.contains(&format!("shard {chosen} (")));
            }
            record = advance(&record, &seen(&record, &[]), SOON).expect("a step");
            if *held {
                assert_eq!(active(&record).phase, Phase::Held, "{plan:?}");
                assert_eq!(advance(&record, &seen(&record, &[]), LATE), None);
                record = command(&record, Command::Promote).expect("it is held");
            }
        }
        assert_eq!(last(&record), (Outcome::Adopted, ""), "{plan:?}");
        assert_eq!((record.stable, record.previous), (2, 1));
    }
}

#[test]
fn a_step_is_watched_before_the_next() {
    let mut record = rolling(Plan::Waves(50));
    record.active.as_mut().expect("a rollout").bake_ms = 10_000;
    let seen = seen(&record, &[]);
    assert_eq!(advance(&record, &seen, Duration::from_secs(9)), None);
    assert!(advance(&record, &seen, Duration::from_secs(10)).is_some());
    // An operator who stops it has time, too; what fails goes back all the same.
    let paused = command(&record, Command::Pause).expect("it rolls");
    assert_eq!(advance(&paused, &seen, LATE), None);
    let mut failing = seen.clone();
    failing.shards[0] = ShardSeen::Failed {
        revision: 2,
        why: "it trapped".into(),
    };
    let back = advance(&paused, &failing, SOON).expect("it fails");
    assert_eq!(active(&back).phase, Phase::Back);
    let resumed = command(&paused, Command::Resume).expect("it is paused");
    assert!(advance(&resumed, &seen, LATE).is_some());
}

#[test]
fn gates_stop_what_does_worse() {
    let sample = |calls, errors, traps, p99_us| Sample {
        calls,
        errors,
        traps,
        p99_us,
    };
    let gates = Gates {
        traps: 2,
        errors_percent: 1,
        latency_percent: 150,
        least_calls: 100,
    };
    for (old, new, stopped) in [
        (sample(1000, 10, 0, 100), sample(1000, 10, 0, 100), None),
        (sample(1000, 10, 0, 100), sample(1000, 20, 2, 150), None),
        (
            sample(1000, 0, 0, 100),
            sample(1000, 0, 3, 100),
            Some("it trapped 3 times"),
        ),
        (
            sample(1000, 10, 0, 100),
            sample(1000, 21, 0, 100),
            Some("21 of 1000 calls failed"),
        ),
        (
            sample(1000, 0, 0, 100),
            sample(100, 5, 0, 100),
            Some("5 of 100 calls failed"),
        ),
        (sample(1000, 0, 0, 100), sample(99, 99, 0, 900), None),
        (sample(99, 0, 0, 100), sample(1000, 999, 0, 900), None),
        (
            sample(1000, 0, 0, 100),
            sample(1000, 0, 0, 151),
            Some("takes 151 us"),
        ),
    ] {
        let mut record = rolling(Plan::Canary(10));
        record.active.as_mut().expect("a rollout").gates = gates;
        let mut seen = seen(&record, &[]);
        (seen.old, seen.new) = (old, new);
        let next = advance(&record, &seen, SOON).expect("a step");
        let why = &active(&next).why;
        match stopped {
            None => assert_eq!(active(&next).phase, Phase::Held, "{new:?}: {why}"),
            Some(part) => assert!(why.contains(part), "{new:?}: {why}"),
        }
        // While it is held, too.
        let mut held = record.clone();
        held.active.as_mut().expect("a rollout").phase = Phase::Held;
        assert_eq!(advance(&held, &seen, SOON).is_some(), stopped.is_some());
    }
}

#[test]
fn it_has_gone_back_once_no_shard_runs_it() {
    let by = "bob".into();
    let back = command(&rolling(Plan::All), Command::Abort { by }).expect("it rolls");
    let mut seen = seen(&back, &[]);
    for state in [
        ShardSeen::Runs(2),
        ShardSeen::Silent,
        // It runs the target, and did not take the older one.
        ShardSeen::Failed {
            revision: 1,
            why: String::new(),
        },
        ShardSeen::Down("swaps".into()),
        ShardSeen::Failed {
            revision: 2,
            why: String::new(),
        },
    ] {
        seen.shards[3] = state;
        assert_eq!(advance(&back, &seen, LATE), None, "it never gives up");
    }
    for state in [ShardSeen::Runs(1), ShardSeen::Unowned] {
        seen.shards[3] = state;
        // Whoever does not answer may have taken a shard that nobody else knows of.
        let b = || "b".parse().expect("a name");
        seen.nodes.insert(b(), Check::Silent);
        assert_eq!(advance(&back, &seen, LATE), None);
        seen.nodes.insert(b(), Check::Busy);
        let ended = advance(&back, &seen, SOON).expect("gone");
        assert_eq!(last(&ended), (Outcome::RolledBack, "aborted by bob"));
        assert_eq!(ended.stable, 1);
    }
}

/// A migration within its limits, and shards that come one after the other, are no reason to go back.
#[test]
fn a_step_may_take_longer_while_it_gets_on() {
    let record = rolling(Plan::All);
    let step = Duration::from_millis(active(&record).step_timeout_ms);
    let mut seen = seen(&record, &[("a", Check::Fine)]);
    seen.shards[3] = ShardSeen::Runs(1);
    let allowed = Duration::from_secs(600);
    for (allowed, waited, goes_back) in [
        (Duration::ZERO, step, true),
        (allowed, step, false),
        (allowed, step + allowed - Duration::from_millis(1), false),
        (allowed, step + allowed, true),
        (Duration::MAX, step * 1000, false),
    ] {
        seen.allowed = allowed;
        let next = advance(&record, &seen, waited);
        let back = next.is_some_and(|next| active(&next).phase == Phase::Back);
        assert_eq!(back, goes_back, "{allowed:?} {waited:?}");
    }
}

#[test]
fn what_an_earlier_rollout_left_goes_back_before_the_next_ends() {
    let by = "bob".into();
    let going = command(&rolling(Plan::All), Command::Abort { by }).expect("it rolls");
    let on = command(&going, deploy(3, Plan::All)).expect("a way on");
    let mut seen = seen(&on, &[("a", Check::Refused("no".into()))]);
    assert_eq!(
        last(&advance(&on, &seen, SOON).expect("refused")).0,
        Outcome::Refused
    );
    seen.shards[3] = ShardSeen::Runs(2);
    let back = advance(&on, &seen, SOON).expect("refused");
    assert_eq!(active(&back).phase, Phase::Back);
    assert_eq!(advance(&back, &seen, LATE), None, "shard 3 is not back");
    seen.shards[3] = ShardSeen::Runs(1);
    let ended = advance(&back, &seen, SOON).expect("gone");
    let (outcome, why) = last(&ended);
    assert_eq!(outcome, Outcome::RolledBack);
    assert!(why.contains("node a cannot run it: no"), "{why}");
}

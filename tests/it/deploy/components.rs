//! Components that are no good: each is refused or rolled back, and no call fails by the one that serves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quarry::call::{CallErrorKind, Target};
use quarry::cluster::rollout::EndedView;
use quarry::deploy::Draft;
use quarry::deploy::operate::{Ordered, RolloutOptions};
use quarry::guest::TrapKind;
use quarry_core::deploy::{Gates, Plan, Selection};

use super::bad::lenient;
use super::world::{Load, World, all, call, plan};
use crate::support::guests;
use crate::support::process::until;
use crate::support::store::within;

/// A world of components in which this one serves.
async fn serving(guest: &str, shards: u32) -> World {
    let world = World::with(shards, &["a"], Arc::new(guests::runtime()), |config| {
        config.limits.cpu_time = Duration::from_millis(100);
    })
    .await;
    let ended = world.deploy(guests::component(guest), &all()).await;
    assert_eq!((ended.outcome, &*ended.why), ("adopted", ""));
    world
}

/// Deploys a component with options, and waits for the end.
async fn deployed(world: &World, guest: &str, options: &str) -> EndedView {
    let draft = drafted(world, guest, options).await;
    let number = ordered(world, draft, &all()).await;
    world.ended(number).await
}

/// A component with options. One that hangs has less time for it than others: what spins has to come to its own limit first.
async fn drafted(world: &World, guest: &str, options: &str) -> Draft {
    let mut draft = world.draft(guests::component(guest), options).await;
    if options.contains("hang") {
        let times = ["start_time", "handoff_time", "migrate_step_time"];
        let limits = times.map(|limit| (limit.to_owned(), "500ms".to_owned()));
        draft.modules[0].limits = limits.into();
    }
    draft
}

/// A canary of one shard, that goes back after the first trap.
fn one_shard(shard: &str) -> RolloutOptions {
    RolloutOptions {
        first: Selection::parse(shard, 4).expect("a shard"),
        gates: Gates {
            traps: 0,
            ..lenient()
        },
        ..plan(Plan::Chosen)
    }
}

async fn ordered(world: &World, draft: Draft, options: &RolloutOptions) -> u64 {
    match world.door().deploy(draft, options).await.expect("an order") {
        Ordered::Begun { rollout, .. } => rollout,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn components_that_cannot_run_anywhere_touch_no_shard() {
    let world = serving("counter", 4).await;
    let load = Load::start(vec![world.door().clone()], 4, "increment");
    let lifecycle = || guests::component("lifecycle");
    let mut truncated = guests::component("counter");
    truncated.truncate(truncated.len() / 2);
    for (bytes, options, says) in [
        (
            Bytes::from_static(b"nonsense"),
            "{}",
            "this is not WebAssembly",
        ),
        (truncated, "{}", "not a valid component"),
        (guests::text("core-module.wat"), "{}", "a core module"),
        (
            guests::text("foreign-world.wat"),
            "{}",
            "not a Quarry guest",
        ),
        (
            guests::text("unknown-import.wat"),
            "{}",
            "which is not offered",
        ),
        (guests::text("newer-function.wat"), "{}", "flush-everything"),
        (
            lifecycle(),
            r#"{"validate":"refuse"}"#,
            "it refuses its options",
        ),
        (
            lifecycle(),
            r#"{"validate":"panic"}"#,
            "it failed to check its options",
        ),
        (lifecycle(), r#"{"validate":"spin"}"#, "limits.cpu_time"),
        (lifecycle(), r#"{"mine":1}"#, "it refuses its options"),
    ] {
        let draft = world.draft(bytes, options).await;
        let number = ordered(&world, draft, &all()).await;
        let ended = world.ended(number).await;
        assert_eq!(ended.outcome, "refused", "{says}: {}", ended.why);
        assert!(
            ended.why.contains("node a cannot run it: "),
            "{}",
            ended.why
        );
        assert!(ended.why.contains(says), "{says}: {}", ended.why);
        let status = world.door().rollout().await.expect("a status");
        assert_eq!((status.adopted, status.swaps.made), (4, 0), "{says}");
    }
    load.stop().await.assert_fine_but(&[]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn components_that_fail_go_back_by_themselves() {
    let world = serving("counter", 4).await;
    let load = Load::start(vec![world.door().clone()], 4, "increment");
    for (start, says) in [
        ("panic", "start panicked on purpose"),
        ("error", "start failed on purpose"),
        ("spin", "limits.cpu_time"),
    ] {
        let options = format!(r#"{{"start":"{start}"}}"#);
        let ended = deployed(&world, "lifecycle", &options).await;
        assert_eq!(ended.outcome, "rolled-back", "{start}: {}", ended.why);
        assert!(ended.why.contains(says), "{start}: {}", ended.why);
    }
    // Those that serve for a while, on one shard, with less memory than others.
    let mut bad = Vec::new();
    for (method, kind) in [
        ("spin", CallErrorKind::Trap(TrapKind::CpuTime)),
        ("allocate", CallErrorKind::Trap(TrapKind::Memory)),
        ("leak-memory", CallErrorKind::Trap(TrapKind::Memory)),
        ("trap", CallErrorKind::Trap(TrapKind::Aborted)),
    ] {
        let mut draft = world.draft(guests::component("misbehave"), "{}").await;
        draft.modules[0].limits = BTreeMap::from([("memory".into(), "16MiB".into())]);
        let number = ordered(&world, draft, &one_shard("2")).await;
        let held = world.phase("held").await;
        bad.push(held.active.expect("active").target);
        // What leaks serves for a while.
        let error = loop {
            match call(world.door(), Target::Shard(2), method).await {
                Ok(_) => assert_eq!(method, "leak-memory"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind, kind, "{error}");
        if kind == CallErrorKind::Trap(TrapKind::Memory) {
            assert!(error.message.contains("16777216 bytes"), "{error}");
        }
        let ended = world.ended(number).await;
        assert_eq!(ended.outcome, "rolled-back");
        assert!(ended.why.contains("it trapped 1 times"), "{}", ended.why);
    }
    world.all_run(1).await;
    load.stop().await.assert_fine_but(&bad);
    world.stop().await;
}

/// It counts in memory and in the database, so that a count that one of both lost shows.
#[tokio::test(flavor = "multi_thread")]
async fn components_that_do_not_take_the_memory_go_back_by_themselves() {
    let world = serving("handoff", 4).await;
    let mut load = Load::start(vec![world.door().clone()], 4, "count-through");
    for (step, how, says) in [
        ("start", "hang", "limits.start_time"),
        ("resume", "error", "resume failed on purpose"),
        ("resume", "panic", "resume panicked on purpose"),
        ("resume", "spin", "limits.cpu_time"),
        ("resume", "hang", "limits.handoff_time"),
    ] {
        load.progress(20).await;
        let options = format!(r#"{{"step":"{step}","how":"{how}"}}"#);
        let ended = deployed(&world, "handoff", &options).await;
        assert_eq!(ended.outcome, "rolled-back", "{how}: {}", ended.why);
        assert!(ended.why.contains(says), "{how}: {}", ended.why);
        world.all_run(1).await;
    }
    // One that takes it, and hangs when it is to hand it over again: what goes back goes without it.
    let options = r#"{"step":"suspend","how":"hang"}"#;
    let draft = drafted(&world, "handoff", options).await;
    let number = ordered(&world, draft, &one_shard("1")).await;
    let held = world.phase("held").await;
    let bad = held.active.expect("active").target;
    load.progress(20).await;
    let trap = call(world.door(), Target::Shard(1), "panic").await;
    trap.expect_err("it traps");
    let ended = world.ended(number).await;
    assert_eq!(ended.outcome, "rolled-back", "{}", ended.why);
    assert!(ended.why.contains("it trapped 1 times"), "{}", ended.why);
    world.all_run(1).await;
    load.progress(20).await;
    load.stop().await.assert_fine_but(&[bad]);
    world.stop().await;
}

/// A revision says itself how long its swaps wait for the call in progress.
#[tokio::test(flavor = "multi_thread")]
async fn a_component_that_cannot_wait_for_a_call_goes_back() {
    let world = serving("handoff", 4).await;
    let lingering = tokio::spawn({
        let door = world.door().clone();
        async move { call(&door, Target::Shard(1), "linger").await }
    });
    let queued = || {
        let report = world.door().shard_report(1).expect("a report");
        (report.queued > 0).then_some(())
    };
    until("the call is with its shard", queued).await;
    let mut load = Load::start(vec![world.door().clone()], 4, "count-through");
    let mut draft = world
        .draft(guests::component("handoff"), r#"{"new":1}"#)
        .await;
    draft.modules[0].limits = BTreeMap::from([("drain".into(), "100ms".into())]);
    let number = ordered(&world, draft, &all()).await;
    let ended = world.ended(number).await;
    assert_eq!(ended.outcome, "rolled-back", "{}", ended.why);
    for part in ["shard 1", "limits.drain", "100ms"] {
        assert!(ended.why.contains(part), "{part}: {}", ended.why);
    }
    let reply = within(lingering).await.expect("a caller");
    assert_eq!(reply.expect("it goes on to its end").revision, 1);
    world.all_run(1).await;
    load.progress(20).await;
    load.stop().await.assert_fine_but(&[]);
    world.stop().await;
}

/// Steps that were made stay, and the one that serves reads what they wrote.
#[tokio::test(flavor = "multi_thread")]
async fn components_that_fail_to_migrate_go_back_by_themselves() {
    /// A step rewrites ten of them: three, and one with nothing left to write.
    const ROWS: u64 = 25;
    let world = serving("migrate", 1).await;
    let mut load = Load::start(vec![world.door().clone()], 2, "add");
    let mut filled = 0;
    for (step, how, says) in [
        ("1", "error", "migrate failed on purpose"),
        ("2", "panic", "migrate panicked on purpose"),
        ("3", "spin", "limits.cpu_time"),
        ("\"last\"", "hang", "limits.migrate_step_time"),
        ("\"last\"", "error", "migrate failed on purpose"),
    ] {
        // In the old form again.
        filled += 1;
        for row in 0..ROWS {
            let key = Target::key(format!("row-{row:02}"));
            let reply = call(world.door(), key, "add").await.expect("a call");
            assert_eq!(reply.payload, filled.to_string(), "row {row}");
        }
        load.progress(20).await;
        let options = format!(r#"{{"step":{step},"how":"{how}"}}"#);
        let ended = deployed(&world, "migrate", &options).await;
        assert_eq!(ended.outcome, "rolled-back", "{step} {how}: {}", ended.why);
        for part in [says, "of the migration"] {
            assert!(ended.why.contains(part), "{step} {how}: {}", ended.why);
        }
        if let Ok(step) = step.parse::<u32>() {
            let part = format!("step {step} of the migration");
            assert!(ended.why.contains(&part), "{step} {how}: {}", ended.why);
        }
        world.all_run(1).await;
    }
    load.progress(20).await;
    load.stop().await.assert_fine_but(&[]);
    world.stop().await;
}

//! Revisions in Rust that are no good: each is refused or rolled back, and no call fails by the one that serves.

use std::time::Duration;

use quarry::call::{CallErrorKind, Target};
use quarry::deploy::Library;
use quarry::deploy::operate::RolloutOptions;
use quarry_core::deploy::{Command, Gates, Plan};

use super::logic;
use super::world::{World, all, call, plan};
use crate::support::store::within;

/// A canary of a quarter of the shards, stopped by these gates alone.
fn canary(gates: Gates) -> RolloutOptions {
    RolloutOptions {
        gates,
        ..plan(Plan::Canary(25))
    }
}

pub fn lenient() -> Gates {
    Gates {
        traps: 1_000_000,
        errors_percent: 100,
        latency_percent: 0,
        least_calls: 100,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_in_a_swap_or_at_work_goes_back_by_itself() {
    let world = World::with(8, &["a"], logic::loader(), |config| {
        config.limits.handoff_time = Duration::from_millis(100);
    })
    .await;
    world.adopt("memory-1").await;
    let traps = Gates {
        traps: 0,
        ..lenient()
    };
    let errors = Gates {
        errors_percent: 1,
        ..lenient()
    };
    let latency = Gates {
        latency_percent: 300,
        least_calls: 30,
        ..lenient()
    };
    let mut load = world.load(6);
    let mut bad = Vec::new();
    for (logic, options, says) in [
        (
            "start-fails",
            all(),
            "did not take it: the new revision did not start",
        ),
        ("start-traps", all(), "start panicked on purpose"),
        (
            "start-fails",
            plan(Plan::Waves(50)),
            "start failed on purpose",
        ),
        ("resume-fails", all(), "resume failed on purpose"),
        ("resume-traps", all(), "handoff.resume"),
        ("migrate-fails", all(), "migrate failed on purpose"),
        ("tenth-traps", canary(traps), "it trapped "),
        ("five-percent", canary(errors), " calls failed, and 0 of "),
        (
            "slow",
            canary(latency),
            "the slowest percent of its calls takes ",
        ),
    ] {
        load.progress(20).await;
        let ended = world.deploy(Library::bytes(logic), &options).await;
        assert_eq!(ended.outcome, "rolled-back", "{logic}: {}", ended.why);
        assert!(ended.why.contains(says), "{logic}: {}", ended.why);
        bad.push(ended.target);
        world.all_run(1).await;
        let status = world.door().rollout().await.expect("a status");
        assert_eq!((status.stable, status.trouble), (1, None), "{logic}");
    }
    load.progress(20).await;
    load.stop().await.assert_fine_but(&bad);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_hangs_when_it_is_to_hand_over_is_left_without_its_memory() {
    let world = World::with(4, &["a"], logic::loader(), |config| {
        config.limits.handoff_time = Duration::from_millis(100);
    })
    .await;
    world.adopt("memory-1").await;
    let mut load = world.load(4);
    let number = world
        .order(Library::bytes("suspend-hangs"), &canary(lenient()))
        .await;
    world.phase("held").await;
    load.progress(20).await;
    let by = "bob".to_owned();
    let aborted = world.door().rollout_command(Command::Abort { by }).await;
    aborted.expect("aborted");
    assert_eq!(world.ended(number).await.outcome, "rolled-back");
    world.all_run(1).await;
    load.progress(20).await;
    load.stop().await.assert_fine_but(&[]);
    world.stop().await;
}

/// Whatever keeps a shard from its target, the rollout goes back by itself once its step has taken too long, and the shard serves again.
#[tokio::test(flavor = "multi_thread")]
async fn a_swap_that_does_not_end_is_gone_back_from_by_itself() {
    let world = World::with(1, &["a"], logic::loader(), |config| {
        config.limits.start_time = Duration::from_secs(3);
        config.limits.handoff_time = Duration::from_secs(3);
    })
    .await;
    let soon = RolloutOptions {
        step_timeout: Duration::from_secs(1),
        ..all()
    };
    for (serves, next) in [("plain-1", "start-hangs"), ("suspend-hangs", "memory-1")] {
        world.adopt(serves).await;
        let before = world.door().rollout().await.expect("a status").stable;
        let ended = world.deploy(Library::bytes(next), &soon).await;
        assert_eq!(ended.outcome, "rolled-back", "{next}: {}", ended.why);
        let says = format!("within 1s, shard 0 (swaps to revision {})", ended.target);
        assert!(ended.why.contains(&says), "{next}: {}", ended.why);
        world.all_run(before).await;
        let reply = call(world.door(), Target::Shard(0), "add").await;
        assert_eq!(reply.expect("it serves").revision, before, "{next}");
    }
    world.stop().await;
}

/// What is in progress on a shard is not cut short. The shard does not take the revision, which counts as any step that fails.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_outlasts_its_drain_goes_on_and_the_rollout_goes_back() {
    let world = World::with(4, &["a"], logic::loader(), |config| {
        config.limits.drain = Duration::from_millis(200);
    })
    .await;
    world.adopt("plain-3").await;
    let mut load = world.load(4);
    for (serves, next) in [("plain-1", "plain-2"), ("memory-1", "memory-2")] {
        let before = world.adopt(serves).await;
        load.progress(20).await;
        let held = tokio::spawn({
            let door = world.door().clone();
            async move { call(&door, Target::Shard(2), "hold").await }
        });
        let mut holding = logic::HOLDING.subscribe();
        let begun = within(holding.wait_for(|holding| *holding)).await;
        drop(begun.expect("it has begun"));
        let ended = world.deploy(Library::bytes(next), &all()).await;
        assert_eq!(ended.outcome, "rolled-back", "{next}: {}", ended.why);
        for part in ["shard 2", "limits.drain", "200ms"] {
            assert!(ended.why.contains(part), "{next}: {part}: {}", ended.why);
        }
        world.all_run(before).await;
        assert!(!held.is_finished(), "{next}: it was not cut short");
        logic::HOLDING.send_replace(false);
        let reply = within(held).await.expect("a caller").expect("a reply");
        assert_eq!((&*reply.payload, reply.revision), (&b"held"[..], before));
        load.progress(20).await;
        world.adopt(next).await;
    }
    load.stop().await.assert_fine_but(&[]);
    world.stop().await;
}

/// One that goes back for long does not stand in the way of the next, and its end is told as what it is.
#[tokio::test(flavor = "multi_thread")]
async fn another_rollout_takes_the_place_of_one_that_goes_back() {
    let world = World::with(1, &["a"], logic::loader(), |config| {
        config.limits.start_time = Duration::from_secs(3);
    })
    .await;
    world.adopt("plain-1").await;
    let soon = RolloutOptions {
        step_timeout: Duration::from_secs(1),
        ..all()
    };
    let first = world.order(Library::bytes("start-hangs"), &soon).await;
    world.phase("back").await;
    let second = world.order(Library::bytes("plain-2"), &all()).await;
    let status = world.door().rollout().await.expect("a status");
    let last = status.last.expect("the first has ended");
    assert_eq!((last.rollout, last.outcome), (first, "superseded"));
    assert!(
        last.why.contains(&format!("rollout {second} by test")),
        "{}",
        last.why
    );
    let ended = world.ended(second).await;
    assert_eq!((ended.outcome, &*ended.why), ("adopted", ""));
    world.all_run(ended.target).await;
    world.stop().await;
}

/// A migration is bounded by its own limit, which is longer than the step here.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_does_not_cut_a_migration_short() {
    let world = World::with(1, &["a"], logic::loader(), |config| {
        config.limits.migrate_time = Duration::from_secs(2);
        config.limits.migrate_step_time = Duration::from_millis(100);
    })
    .await;
    world.adopt("plain-1").await;
    let soon = RolloutOptions {
        step_timeout: Duration::from_secs(1),
        ..all()
    };
    let ended = world.deploy(Library::bytes("migrates-on"), &soon).await;
    assert_eq!(ended.outcome, "rolled-back");
    assert!(ended.why.contains("limits.migrate_time"), "{}", ended.why);
    world.all_run(1).await;
    world.stop().await;
}

/// A migration may take minutes. Whoever ends its rollout does not wait for that, nor does the next one.
#[tokio::test(flavor = "multi_thread")]
async fn an_abort_ends_a_migration_on_its_way() {
    let world = World::start(2, &["a"]).await;
    world.adopt("plain-1").await;
    let mut load = world.load(4);
    let number = world.order(Library::bytes("migrates-on"), &all()).await;
    let migrates = async {
        while call(world.door(), Target::key("migrates"), "get")
            .await
            .expect("no call fails")
            .payload
            .is_empty()
        {}
    };
    within(migrates).await;
    load.progress(20).await;
    let by = "bob".to_owned();
    let aborted = world.door().rollout_command(Command::Abort { by }).await;
    aborted.expect("aborted");
    assert_eq!(world.ended(number).await.outcome, "rolled-back");
    world.all_run(1).await;
    world.adopt("plain-2").await;
    load.progress(20).await;
    load.stop().await.assert_fine_but(&[]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swap_heals_what_is_quarantined() {
    let world = World::with(2, &["a"], logic::loader(), |config| {
        config.limits.traps = 0;
    })
    .await;
    // Without a rollout that watches, nothing is rolled back.
    world.adopt("tenth-traps").await;
    for n in 1..10 {
        let reply = call(world.door(), Target::Shard(0), "add").await;
        assert!(reply.is_ok(), "call {n}: {reply:?}");
    }
    call(world.door(), Target::Shard(0), "add")
        .await
        .expect_err("the tenth");
    let refused = call(world.door(), Target::Shard(0), "add").await;
    assert_eq!(
        refused.expect_err("refused").kind,
        CallErrorKind::Quarantined
    );
    world.adopt("plain-2").await;
    let reply = call(world.door(), Target::Shard(0), "add")
        .await
        .expect("healed");
    assert_eq!(reply.payload, "10");
    world.stop().await;
}

//! Rollouts that go well: first deploy, swap under load, waves, canaries, pauses, the way back.

use std::time::{Duration, Instant};

use quarry::call::Target;
use quarry::deploy::Library;
use quarry::deploy::operate::Ordered;
use quarry::deploy::placeholder::NOT_DEPLOYED;
use quarry_core::deploy::{Command, Plan, Selection};

use super::world::{World, all, call, plan};
use crate::cluster::alone;

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_says_that_nothing_is_deployed_until_something_is() {
    let world = World::start(4, &["a"]).await;
    assert!(world.door().ready(), "a node without a guest is fine");
    let error = call(world.door(), Target::Shard(1), "add")
        .await
        .expect_err("nothing");
    assert_eq!(error.code, NOT_DEPLOYED);
    assert!(error.message.contains("quarry deploy"), "{error}");
    let revision = world.adopt("plain-1").await;
    assert_eq!(revision, 1);
    let reply = call(world.door(), Target::Shard(1), "add")
        .await
        .expect("a call");
    assert_eq!((&reply.payload[..], reply.revision), (&b"1"[..], 1));
    // The same again changes nothing.
    let same = world
        .try_order(world.door(), Library::bytes("plain-1"), &all())
        .await;
    assert_eq!(same.expect("an answer"), Ordered::Unchanged { revision });
    // Other options are another revision, which the guest gets.
    let draft = world.draft(Library::bytes("plain-1"), r#"{"a":1}"#).await;
    let begun = world.door().deploy(draft, &all()).await.expect("an order");
    let Ordered::Begun {
        rollout,
        revision: 2,
    } = begun
    else {
        panic!("{begun:?}");
    };
    assert_eq!(world.ended(rollout).await.outcome, "adopted");
    let reply = call(world.door(), Target::Shard(1), "options")
        .await
        .expect("a call");
    assert_eq!(reply.payload, r#"{"a":1}"#);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_start_again_run_what_was_deployed() {
    let mut world = World::start(2, &["a"]).await;
    let first = world.adopt("plain-1").await;
    call(world.door(), Target::Shard(0), "add")
        .await
        .expect("a call");
    let node = world.nodes.remove("a").expect("it");
    node.cluster.stop().await;
    world.join_alone("a").await;
    let reply = call(world.door(), Target::Shard(0), "add")
        .await
        .expect("a call");
    assert_eq!((&reply.payload[..], reply.revision), (&b"2"[..], first));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_fails_while_revisions_come_and_go() {
    let _alone = alone().await;
    let world = World::start(8, &["a", "b"]).await;
    world.adopt("memory-1").await;
    let mut load = world.load(8);
    load.progress(100).await;
    for logic in ["memory-2", "plain-1", "memory-1", "memory-2"] {
        let begun = Instant::now();
        let revision = world.adopt(logic).await;
        world.all_run(revision).await;
        eprintln!("{logic} was adopted in {:.1?}", begun.elapsed());
        load.progress(100).await;
    }
    let status = world.door().rollout().await.expect("a status");
    assert_eq!((status.adopted, status.swaps.made), (8, 8), "{status:#?}");
    assert_eq!(status.swaps.calls_failed, 0);
    assert!(status.swaps.pause_p50_us <= status.swaps.pause_max_us);
    let told = load.stop().await;
    told.assert_fine_but(&[]);
    assert_eq!(told.by.keys().copied().collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_goes_along_with_a_rollout() {
    let world = World::start(2, &["a"]).await;
    world.adopt("memory-1").await;
    let remember = async |expected: &str| {
        let reply = call(world.door(), Target::Shard(0), "remember").await;
        assert_eq!(reply.expect("a call").payload, expected);
    };
    remember("1").await;
    world.adopt("memory-2").await;
    remember("2").await;
    // What the old revision does not hand over by its own fault keeps no new one away.
    world.adopt("suspend-fails").await;
    remember("3").await;
    world.adopt("memory-1").await;
    remember("1").await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_goes_in_waves() {
    let _alone = alone().await;
    let world = World::start(8, &["a", "b"]).await;
    world.adopt("plain-1").await;
    let mut load = world.load(4);
    let mut options = plan(Plan::Waves(30));
    options.bake = Duration::from_millis(300);
    let number = world.order(Library::bytes("plain-2"), &options).await;
    let mut steps = Vec::new();
    let mut counter = 0;
    loop {
        let record = world.door().rollout_record().expect("it follows");
        let Some(active) = record.active.filter(|_| record.number == number) else {
            break;
        };
        let selected = active.selection.count(8);
        if steps.last() != Some(&selected) {
            steps.push(selected);
        }
        let wait = Duration::from_secs(20);
        let next = world.door().rollout_changed(record.counter, wait).await;
        let next = next.expect("it follows");
        assert_ne!(next, counter, "it goes on");
        counter = next;
    }
    assert_eq!(
        steps,
        [0, 3, 6, 8],
        "none while it is checked, and then in waves"
    );
    assert_eq!(world.ended(number).await.outcome, "adopted");
    load.progress(20).await;
    load.stop().await.assert_fine_but(&[]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_waits_for_its_promotion_and_a_joining_node_runs_what_it_should() {
    let _alone = alone().await;
    let mut world = World::start(8, &["a", "b"]).await;
    world.adopt("plain-1").await;
    let mut load = world.load(4);
    let options = plan(Plan::Canary(25));
    let number = world.order(Library::bytes("plain-2"), &options).await;
    let held = world.phase("held").await;
    let on = |status: &quarry::cluster::rollout::RolloutStatus, revision| {
        let shards = status.shards.iter();
        shards
            .filter(|shard| shard.revision == Some(revision))
            .count()
    };
    assert_eq!((on(&held, 1), on(&held, 2)), (6, 2));
    assert_eq!(held.adopted, 8, "each runs what it is to run");
    world.join("c").await;
    world.spread().await;
    let spread = world
        .status("it is as before on three nodes", |status| {
            status.adopted == 8 && status.nodes.len() == 3
        })
        .await;
    assert_eq!((on(&spread, 1), on(&spread, 2)), (6, 2));
    // A shard of the canary that moves takes its revision along.
    let canary = spread
        .shards
        .iter()
        .find(|shard| shard.wanted == 2)
        .expect("one");
    let from = canary.node.clone().expect("an owner");
    let to = ["a", "b", "c"]
        .into_iter()
        .find(|name| **name != *from)
        .expect("another");
    let moved = world
        .door()
        .move_shard(canary.shard, to, Duration::from_secs(10))
        .await;
    moved.expect("moved");
    let shard = canary.shard as usize;
    world
        .status("it has moved", |status| {
            let shard = &status.shards[shard];
            shard.node.as_deref() == Some(to) && shard.revision == Some(2) && shard.adopted
        })
        .await;
    load.progress(50).await;
    world
        .door()
        .rollout_command(Command::Promote)
        .await
        .expect("promoted");
    assert_eq!(world.ended(number).await.outcome, "adopted");
    world.all_run(2).await;
    load.stop().await.assert_fine_but(&[]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_pauses_resumes_and_aborts() {
    let world = World::start(8, &["a"]).await;
    world.adopt("plain-1").await;
    let mut load = world.load(4);
    let mut options = plan(Plan::Chosen);
    options.first = Selection::parse("2-3", 8).expect("shards");
    world.order(Library::bytes("plain-2"), &options).await;
    let held = world.phase("held").await;
    for shard in &held.shards {
        let expected = if [2, 3].contains(&shard.shard) { 2 } else { 1 };
        assert_eq!(shard.revision, Some(expected), "{}", shard.shard);
    }
    let paused = world
        .door()
        .rollout_command(Command::Pause)
        .await
        .expect("paused");
    assert!(paused.record.active.expect("active").paused);
    let resumed = world
        .door()
        .rollout_command(Command::Resume)
        .await
        .expect("resumed");
    assert!(!resumed.record.active.expect("active").paused);
    load.progress(50).await;
    let by = "bob".to_owned();
    world
        .door()
        .rollout_command(Command::Abort { by })
        .await
        .expect("aborted");
    let ended = world.ended(2).await;
    assert_eq!(
        (ended.outcome, &*ended.why),
        ("rolled-back", "aborted by bob")
    );
    world.all_run(1).await;
    load.progress(50).await;
    load.stop().await.assert_fine_but(&[]);
    // Back to what was before is a rollout as any other.
    world.adopt("plain-3").await;
    let back = world.door().roll_back(&all()).await.expect("an order");
    let Ordered::Begun {
        rollout,
        revision: 1,
    } = back
    else {
        panic!("{back:?}");
    };
    assert_eq!(world.ended(rollout).await.outcome, "adopted");
    world.all_run(1).await;
    world.stop().await;
}

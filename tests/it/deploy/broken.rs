//! Rollouts while nodes crash, join and are cut off, and while what lies in the bucket is broken.

use std::sync::Arc;
use std::time::Duration;

use quarry::Cluster;
use quarry::call::Target;
use quarry::deploy::Library;
use quarry::deploy::operate::{DeployError, Ordered, RolloutOptions};
use quarry::lease::handle::AskError;
use quarry_core::deploy::{Command, Plan, Refused};

use super::logic;
use super::world::{World, all, call, plan};
use crate::cluster::alone;
use crate::support::native;
use crate::support::process::{DEADLINE, until};

#[tokio::test(flavor = "multi_thread")]
async fn another_node_carries_on_what_one_that_died_began() {
    let _alone = alone().await;
    let mut world = World::start(9, &["a", "b", "c"]).await;
    world.adopt("plain-1").await;
    let mut options = plan(Plan::Waves(30));
    options.bake = Duration::from_millis(500);
    let number = world.order(Library::bytes("plain-2"), &options).await;
    world
        .status("the first wave", |status| {
            status
                .active
                .as_ref()
                .is_some_and(|active| active.selected == 3)
        })
        .await;
    // The first by name carries it on, until it dies.
    world.crash("a").await;
    assert_eq!(world.ended(number).await.outcome, "adopted");
    world.all_run(2).await;
    world.join("a").await;
    world.spread().await;
    world.all_run(2).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_cannot_load_what_is_deployed_takes_no_shards() {
    let _alone = alone().await;
    let mut world = World::start(6, &["a", "b"]).await;
    world.adopt("plain-1").await;
    let mut load = world.load(4);
    let module = Library::bytes("plain-1");
    let digest = quarry::deploy::objects::digest(&module);
    let mut wrong = module.to_vec();
    wrong[0] ^= 1;
    world.tamper(&digest, &wrong).await;
    world.join("c").await;
    let joined = &world.nodes["c"].cluster;
    let trouble = joined.rollout().await.expect("it follows").trouble;
    let trouble = trouble.expect("it cannot run it");
    assert!(
        trouble.contains("was changed after it was uploaded"),
        "{trouble}"
    );
    assert!(!joined.ready());
    assert_eq!(joined.leases().nodes().await, Err(AskError::Outside));
    let error = call(joined, Target::Shard(0), "add").await;
    assert!(
        error.is_err_and(|error| error.never_ran()),
        "it knows no owner"
    );
    load.progress(50).await;
    assert_eq!(world.nodes["c"].serves(), [0_u32; 0]);
    // It can be stopped, too.
    world.join("d").await;
    let waiting = world.nodes.remove("d").expect("it");
    let stop = waiting.cluster.stop();
    tokio::time::timeout(Duration::from_secs(20), stop)
        .await
        .expect("it stops");
    // The next revision is one that it can run.
    world.adopt("plain-2").await;
    world.spread().await;
    world.all_run(2).await;
    load.stop().await.assert_fine_but(&[]);
    world.stop().await;
}

/// It has joined nobody, so that it has to tell the others itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_comes_in_a_rollout_and_cannot_run_it_is_known_to_the_others() {
    let _alone = alone().await;
    let mut world = World::start(6, &["a", "b"]).await;
    world.adopt("plain-1").await;
    let mut load = world.load(4);
    let number = world
        .order(Library::bytes("plain-2"), &plan(Plan::Canary(50)))
        .await;
    world.phase("held").await;
    // An older program.
    world.loader = Arc::new(logic::only("plain-1"));
    world.join("c").await;
    let why = world.nodes["c"]
        .cluster
        .rollout()
        .await
        .expect("it follows");
    let why = why.trouble.expect("it cannot run the target");
    assert!(why.contains("no native logic named \"plain-2\""), "{why}");
    for door in ["a", "b"] {
        let cluster = &world.nodes[door].cluster;
        let begun = std::time::Instant::now();
        let listed = loop {
            let status = cluster.rollout().await.expect("it follows");
            let mut nodes = status.nodes.into_iter();
            if let Some(node) = nodes.find(|node| *node.node == *"c") {
                break node;
            }
            assert!(begun.elapsed() < DEADLINE, "{door} does not list it");
            cluster
                .rollout_changed(status.counter, Duration::from_millis(100))
                .await
                .expect("it follows");
        };
        assert_eq!(listed.check, "refused", "{door}");
        let said = listed.why.expect("a reason");
        assert!(said.contains(&why), "{door}: {said}");
        assert_eq!(listed.counter, None, "{door}: it has no part in it");
    }
    // It keeps nobody from anything.
    let promoted = world.door().rollout_command(Command::Promote).await;
    promoted.expect("held");
    assert_eq!(world.ended(number).await.outcome, "adopted");
    assert_eq!(world.nodes["c"].serves(), [0_u32; 0]);
    load.progress(20).await;
    load.stop().await.assert_fine_but(&[]);
    // Once it has joined, it answers for itself.
    world.adopt("plain-1").await;
    world
        .status("it is one of them", |status| {
            let mut nodes = status.nodes.iter().filter(|node| *node.node == *"c");
            nodes.next().is_some_and(|node| node.counter.is_some()) && nodes.next().is_none()
        })
        .await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_deployments_at_once_one_wins_and_the_other_is_told() {
    let _alone = alone().await;
    let world = World::start(4, &["a", "b"]).await;
    world.adopt("plain-1").await;
    let [a, b] = ["a", "b"].map(|name| &world.nodes[name].cluster);
    let options = all();
    let (first, second) = tokio::join!(
        world.try_order(a, Library::bytes("plain-2"), &options),
        world.try_order(b, Library::bytes("plain-3"), &options),
    );
    let (won, lost) = match (first, second) {
        (Ok(won), Err(lost)) | (Err(lost), Ok(won)) => (won, lost),
        other => panic!("{other:?}"),
    };
    let Ordered::Begun { rollout, revision } = won else {
        panic!("{won:?}");
    };
    assert!(
        matches!(&lost, DeployError::Refused(Refused::Busy { number, .. }) if *number == rollout),
        "{lost}"
    );
    assert_eq!(world.ended(rollout).await.outcome, "adopted");
    world.all_run(revision).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_does_not_answer_keeps_a_revision_from_every_shard() {
    let _alone = alone().await;
    let world = World::start(4, &["a", "b"]).await;
    world.adopt("plain-1").await;
    world.network.cut("a", "b");
    world.network.cut("b", "a");
    let options = RolloutOptions {
        step_timeout: Duration::from_secs(3),
        ..all()
    };
    let ended = world.deploy(Library::bytes("plain-2"), &options).await;
    assert_eq!(ended.outcome, "refused", "{}", ended.why);
    assert!(
        ended.why.contains("did not say that it can run it"),
        "{}",
        ended.why
    );
    world.network.heal();
    let again = world.adopt("plain-2").await;
    world.all_run(again).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_with_a_guest_of_their_own_are_told_of() {
    let _alone = alone().await;
    let world = World::start(4, &["a"]).await;
    assert!(
        world.door().swap(native::module()).await.is_err(),
        "it follows"
    );
    world.stop().await;
    let world = World::start(4, &["a", "b"]).await;
    world.adopt("plain-1").await;
    let pinned = Cluster::builder(Arc::new(world.config("z")), native::module())
        .store(world.ring.store.clone())
        .network(world.network.clone())
        .start()
        .await
        .expect("a node");
    assert!(matches!(
        pinned
            .deploy(world.draft(Library::bytes("plain-2"), "{}").await, &all())
            .await,
        Err(DeployError::Pinned)
    ));
    world
        .status("it is known", |status| {
            let mut nodes = status.nodes.iter();
            nodes.any(|node| *node.node == *"z" && node.check == "refused")
        })
        .await;
    let ended = world.deploy(Library::bytes("plain-2"), &all()).await;
    assert_eq!(ended.outcome, "refused", "{}", ended.why);
    assert!(
        ended.why.contains("node z cannot run it: "),
        "{}",
        ended.why
    );
    pinned.stop().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_is_broken_or_gone_leaves_shards_as_they_are() {
    let world = World::with(4, &["a"], logic::loader(), |config| {
        config.deploy.poll = Duration::from_millis(100);
    })
    .await;
    world.adopt("plain-1").await;
    let load = world.load(4);
    for (body, says) in [
        (Some(r#"{"version":9}"#), "version"),
        (Some("garbage"), "rollout.json"),
        (None, "vanished"),
    ] {
        world.ring.put("rollout.json", body).await;
        let status = world
            .status(says, |status| {
                let trouble = status.trouble.as_ref();
                trouble.is_some_and(|trouble| trouble.contains(says))
            })
            .await;
        assert_eq!((status.stable, status.adopted), (1, 4), "{says}");
        if body.is_some() {
            let error = world
                .try_order(world.door(), Library::bytes("plain-2"), &all())
                .await;
            assert!(matches!(error, Err(DeployError::Bucket(_))), "{error:?}");
        }
    }
    // Deployed again, it goes on from what shards run.
    let revision = world.adopt("plain-2").await;
    world.all_run(revision).await;
    let status = world.door().rollout().await.expect("a status");
    assert_eq!((status.stable, status.previous), (revision, 1));
    load.stop().await.assert_fine_but(&[]);
    world.stop().await;
}

/// Those that run go on with what they know; one that starts knows nothing, and would serve nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_starts_over_a_record_of_another_version_takes_no_shards() {
    let _alone = alone().await;
    let mut world = World::start(6, &["a", "b"]).await;
    world.adopt("plain-1").await;
    let mut load = world.load(4);
    let right = world.ring.get("rollout.json").await;
    world
        .ring
        .put("rollout.json", Some(r#"{"version":9}"#))
        .await;
    world.join("c").await;
    let joined = &world.nodes["c"].cluster;
    let trouble = joined.rollout().await.expect("it follows").trouble;
    let trouble = trouble.expect("it cannot read it");
    assert!(
        trouble.contains("has version 9; this build reads version 1"),
        "{trouble}"
    );
    assert!(!joined.ready());
    assert_eq!(joined.leases().nodes().await, Err(AskError::Outside));
    load.progress(50).await;
    assert_eq!(world.nodes["c"].serves(), [0_u32; 0]);
    let right = right.to_string();
    world.ring.put("rollout.json", Some(&right)).await;
    world.spread().await;
    world.all_run(1).await;
    load.stop().await.assert_fine_but(&[]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_store_nodes_go_on_and_follow_once_it_is_back() {
    use quarry::store::faults::{Fault, Op, Rule};
    let world = World::with(2, &["a"], logic::loader(), |config| {
        config.deploy.poll = Duration::from_millis(100);
    })
    .await;
    world.adopt("plain-1").await;
    let faults = &world.nodes["a"].faults;
    let broken = Rule::new(Fault::FailBefore).path("_quarry/").on(Op::Get);
    faults.add(broken);
    let status = world
        .status("it says so", |status| status.trouble.is_some())
        .await;
    assert_eq!(status.adopted, 2);
    call(world.door(), Target::Shard(0), "add")
        .await
        .expect("it serves");
    faults.clear();
    until("it follows", || {
        let record = world.door().rollout_record().ok()?;
        (record.stable == 1).then_some(())
    })
    .await;
    world.adopt("plain-2").await;
    world.stop().await;
}

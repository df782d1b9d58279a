//! Several nodes share the shards by leases: who joins, leaves or dies, what an outage does, and what strangers leave in the bucket.

use std::sync::Arc;
use std::time::Duration;

use quarry::Cluster;
use quarry::cluster::StartError;
use quarry::config::{Layout, Strategy};
use quarry::lease::memory::MemoryLeases;
use quarry::lease::objects::LeaseObjects;
use quarry_core::control::{Command, CommandError};

use crate::support::native;
use crate::support::process::until;
use crate::support::ring::{Member, Ring, TTL, moved, owner, settled};
use crate::support::store::within;

mod hostile;
mod outages;

const LAYOUTS: [Layout; 2] = [Layout::Session, Layout::Shard];

async fn write(members: &[&Member], shard: u32, value: &str) {
    let reply = owner(members, shard).call(shard, "put", value).await;
    reply.expect("put");
}

async fn read(members: &[&Member], shard: u32) -> String {
    let reply = owner(members, shard).call(shard, "get", "").await;
    String::from_utf8(reply.expect("get").payload.to_vec()).expect("text")
}

/// How many shards a node that has just joined serves the moment it says that it is ready: its whole share, and not before.
async fn served_when_ready(member: &Member) -> usize {
    within(async {
        while !member.cluster.ready() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    member.serves().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_join_and_leave_with_the_fewest_moves_and_nothing_is_lost() {
    for layout in LAYOUTS {
        let ring = Ring::new(8);
        let start = async |name| {
            let mut config = ring.config(name);
            config.lease.layout = layout;
            // Moves are counted, so a machine that is busy for a moment must cost nobody a lease.
            config.lease.ttl = TTL * 3;
            ring.start_with(config).await.expect("a node")
        };
        let a = start("a").await;
        // The start returned once its share was tried, which is everything.
        assert_eq!(a.serves().len(), 8, "{layout:?}");
        assert!(a.cluster.ready());
        for shard in 0..8 {
            write(&[&a], shard, &format!("of {shard}")).await;
        }
        let one = settled(&[&a]).await;
        let b = start("b").await;
        assert_eq!(served_when_ready(&b).await, 4, "{layout:?}");
        let two = settled(&[&a, &b]).await;
        assert_eq!(moved(&one, &two).len(), 4, "{layout:?}");
        let c = start("c").await;
        assert_eq!(served_when_ready(&c).await, 2, "{layout:?}");
        let three = settled(&[&a, &b, &c]).await;
        assert_eq!(
            moved(&two, &three).len(),
            2,
            "{layout:?}: {two:?} {three:?}"
        );
        for shard in 0..8 {
            assert_eq!(read(&[&a, &b, &c], shard).await, format!("of {shard}"));
            let report = owner(&[&a, &b, &c], shard)
                .cluster
                .shard_report(shard)
                .expect("a report");
            assert!(report.generation > 0, "{report:?}");
        }
        // Who leaves hands its shards over, to whom it is fair as far as it knows; nobody waits for a lease to expire.
        let knows = || {
            let routes = b.cluster.leases().routes();
            let owner = |shard: u32| {
                routes.shards[shard as usize]
                    .as_ref()
                    .map(|route| route.owner.to_string())
            };
            three
                .iter()
                .all(|(shard, name)| owner(*shard).as_ref() == Some(name))
                .then_some(())
        };
        until("it has seen who has what", knows).await;
        let held = b.serves();
        b.cluster.stop().await;
        for shard in &held {
            let lease = ring.get(&format!("leases/{shard:03}.json")).await;
            assert_ne!(lease["owner"]["name"], "b", "{lease}");
        }
        assert_eq!(ring.get("nodes/b.json").await["state"], "left");
        let after = settled(&[&a, &c]).await;
        let moves = moved(&three, &after);
        assert_eq!(moves, held.into_iter().collect(), "{layout:?}");
        for shard in 0..8 {
            assert_eq!(read(&[&a, &c], shard).await, format!("of {shard}"));
        }
        a.cluster.stop().await;
        let last = settled(&[&c]).await;
        assert_eq!(last.len(), 8);
        c.cluster.stop().await;
        assert_eq!(ring.get("leases/000.json").await["state"], "free");
        // All over again, from what lies there.
        let d = start("d").await;
        assert_eq!(read(&[&d], 3).await, "of 3");
        d.cluster.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_cannot_have_one_name() {
    let ring = Ring::new(2);
    let mut config = ring.config("a");
    config.internal.advertise = Some("10.0.0.5:7071".into());
    let first = ring.start_with(config).await.expect("a node");
    let refused = ring
        .start_with(ring.config("a"))
        .await
        .err()
        .expect("refused");
    assert!(
        matches!(&refused, StartError::NameTaken { address, .. } if address == "10.0.0.5:7071"),
        "{refused}"
    );
    let text = refused.to_string();
    assert!(
        text.contains("\"a\"") && text.contains("10.0.0.5:7071"),
        "{text}"
    );
    settled(&[&first]).await;
    first.call(0, "put", "still here").await.expect("put");
    first.cluster.stop().await;
    // Its name is free then.
    let second = ring.start("a").await;
    second.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_another_shape_are_refused() {
    let ring = Ring::new(2);
    let a = ring.start("a").await;
    let mut config = ring.config("b");
    config.shards = 3;
    let refused = ring
        .start_with(config)
        .await
        .err()
        .expect("refused")
        .to_string();
    assert!(
        refused.contains("has 2 shards") && refused.contains("configured with 3"),
        "{refused}"
    );
    let mut config = ring.config("b");
    config.lease.interval = Some(Duration::from_secs(1));
    let refused = ring
        .start_with(config)
        .await
        .err()
        .expect("refused")
        .to_string();
    assert!(refused.contains("lease.interval"), "{refused}");
    settled(&[&a]).await;
    a.cluster.stop().await;
}

/// A node of a cluster of another name, on the same data: it takes nothing, and says why, until it is alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_another_cluster_takes_nothing() {
    let ring = Ring::new(4);
    let a = ring.start("a").await;
    settled(&[&a]).await;
    write(&[&a], 2, "kept").await;
    let mut config = ring.config("b");
    config.cluster = "another".into();
    let b = ring.start_with(config).await.expect("a node");
    assert!(b.serves().is_empty());
    let nodes = b.cluster.leases().nodes().await.expect("nodes");
    let problems: Vec<_> = nodes
        .iter()
        .filter_map(|node| node.problem.clone())
        .collect();
    assert!(
        problems.len() == 1 && problems[0].contains("\"ring\""),
        "{problems:?}"
    );
    assert_eq!(settled(&[&a]).await.len(), 4);
    assert_eq!(read(&[&a], 2).await, "kept");
    a.cluster.stop().await;
    settled(&[&b]).await;
    assert_eq!(read(&[&b], 2).await, "kept");
    b.cluster.stop().await;
}

/// Who drops the last handle leaves as cleanly as who stops.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_dropped_leaves() {
    let ring = Ring::new(2);
    let (a, b) = (ring.start("a").await, ring.start("b").await);
    settled(&[&a, &b]).await;
    drop(a);
    settled(&[&b]).await;
    until("the node has left", || {
        let node = futures::executor::block_on(ring.try_get("nodes/a.json"))?;
        (node["state"] == "left").then_some(())
    })
    .await;
    b.cluster.stop().await;
}

/// Whatever the number of shards: one write and one listing a round, and nothing is read while nothing changes.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_node_costs_two_requests_a_round() {
    let ring = Ring::new(40);
    let mut config = ring.config("a");
    config.cluster = "economy".into();
    let a = ring.start_with(config).await.expect("a node");
    let exporter = quarry::metrics::install();
    let requests = |method: &str| -> u64 {
        let text = exporter.render().expect("metrics");
        let line =
            format!("quarry_lease_requests_total{{cluster=\"economy\",method=\"{method}\"}} ");
        let count = text.lines().find_map(|found| found.strip_prefix(&line));
        count.map_or(0, |count| count.parse().expect("a count"))
    };
    let wait = async |puts| until("some rounds", || (requests("put") >= puts).then_some(())).await;
    // The round in which it joined is over.
    wait(requests("put") + 2).await;
    let before = ["put", "list", "get", "writer-epoch"].map(requests);
    wait(before[0] + 9).await;
    let after = ["put", "list", "get", "writer-epoch"].map(requests);
    let cost: Vec<u64> = after
        .iter()
        .zip(before)
        .map(|(after, before)| after - before)
        .collect();
    // Each at its own pace, so that one may be a round ahead.
    assert!(cost[1].abs_diff(cost[0]) <= 2, "{cost:?}");
    assert_eq!(cost[2..], [0, 0], "{cost:?}");
    a.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_moves_shards_and_empties_nodes() {
    let ring = Ring::new(4);
    let (a, b) = (ring.start("a").await, ring.start("b").await);
    settled(&[&a, &b]).await;
    let shard = a.serves()[0];
    write(&[&a], shard, "moved").await;
    let leases = a.cluster.leases();
    let to = |name: &str| name.parse().expect("a name");
    within(leases.command(Command::Move { shard, to: to("b") }))
        .await
        .expect("a move");
    until("the shard has moved", || {
        b.serves().contains(&shard).then_some(())
    })
    .await;
    assert_eq!(read(&[&b], shard).await, "moved");
    // It knows who has it once it has looked.
    within(async {
        loop {
            let again = leases.command(Command::Move { shard, to: to("b") });
            let refused = again.await.expect_err("not its own").to_string();
            if refused.contains("by b") {
                break;
            }
            assert!(refused.contains("not held by this node"), "{refused}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let held = a.serves()[0];
    let refused = leases
        .command(Command::Move {
            shard: held,
            to: to("nobody"),
        })
        .await
        .expect_err("nobody");
    assert!(
        matches!(
            &refused,
            quarry::lease::handle::AskError::Refused(CommandError::NoTarget { .. })
        ),
        "{refused}"
    );
    within(leases.command(Command::Drain)).await.expect("drain");
    settled(&[&b]).await;
    assert!(a.serves().is_empty());
    let nodes = b.cluster.leases().nodes().await.expect("nodes");
    assert_eq!(nodes.len(), 2, "who drains stays: {nodes:?}");
    within(leases.command(Command::Uncordon))
        .await
        .expect("uncordon");
    settled(&[&a, &b]).await;
    a.cluster.stop().await;
    b.cluster.stop().await;
    let refused = leases
        .command(Command::Cordon)
        .await
        .expect_err("it has left");
    assert!(refused.to_string().contains("left"), "{refused}");
}

/// Leases that lie elsewhere: the data is in the store, and so are the writer epochs.
#[tokio::test(flavor = "multi_thread")]
async fn leases_may_lie_in_another_place() {
    let ring = Ring::new(4);
    let objects = LeaseObjects::new(&ring.store, "", 4, "ring");
    let world = MemoryLeases::world(4).over(objects);
    let start = async |name: &str| {
        let leases = Arc::new(world.another());
        let cluster = Cluster::builder(Arc::new(ring.config(name)), native::module())
            .store(ring.store.clone())
            .leases(leases.clone())
            .start()
            .await
            .expect("a node");
        let member = Member {
            name: name.into(),
            cluster,
            faults: quarry::store::faults::FaultStore::new(ring.store.objects(), 0).faults(),
        };
        (member, leases)
    };
    let (a, cut) = start("a").await;
    let (b, _) = start("b").await;
    settled(&[&a, &b]).await;
    write(&[&a, &b], 1, "one").await;
    cut.partition(true);
    settled(&[&b]).await;
    assert_eq!(read(&[&b], 1).await, "one");
    cut.partition(false);
    settled(&[&a, &b]).await;
    a.cluster.stop().await;
    b.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fixed_list_opens_its_own_and_knows_the_others() {
    let ring = Ring::new(4);
    let config = |name: &str| {
        let mut config = ring.config(name);
        config.strategy = Strategy::Static;
        config.fixed.nodes = vec!["a=127.0.0.1:7071".into(), "b=127.0.0.1:7072".into()];
        config.fixed.map = [("a", "0-2"), ("b", "3")]
            .map(|(name, shards)| (name.into(), shards.into()))
            .into();
        config
    };
    let a = ring.start_with(config("a")).await.expect("a node");
    let b = ring.start_with(config("b")).await.expect("a node");
    assert_eq!((a.serves(), b.serves()), (vec![0, 1, 2], vec![3]));
    let routes = a.cluster.leases().routes();
    let route = routes.shards[3].as_ref().expect("a route");
    assert_eq!(route.owner.as_str(), "b");
    assert_eq!(routes.nodes[&route.owner].address, "127.0.0.1:7072");
    let refused = a
        .cluster
        .leases()
        .command(Command::Drain)
        .await
        .expect_err("no leases");
    assert!(refused.to_string().contains("static"), "{refused}");
    a.cluster.stop().await;
    assert_eq!(b.serves(), [3], "nothing fails over");
    b.cluster.stop().await;
    let mut other = config("c");
    other.node = "c".into();
    let refused = ring
        .start_with(other)
        .await
        .err()
        .expect("refused")
        .to_string();
    assert!(
        refused.contains("`node`") && refused.contains("a, b"),
        "{refused}"
    );
}

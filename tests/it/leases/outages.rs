//! Nodes that die, are cut off or come back, stores that fail, and leases that somebody destroyed.

use std::time::Duration;

use quarry::call::CallErrorKind;
use quarry::store::faults::{Fault, Op, Rule};
use tokio::time::Instant;

use super::{LAYOUTS, read, write};
use crate::support::process::until;
use crate::support::ring::{Member, Ring, TTL, moved, settled};

#[tokio::test(flavor = "multi_thread")]
async fn the_shards_of_a_node_that_dies_are_taken_over() {
    for layout in LAYOUTS {
        let ring = Ring::new(6);
        let start = async |name| {
            let mut config = ring.config(name);
            config.lease.layout = layout;
            ring.start_with(config).await.expect("a node")
        };
        let (a, b) = (start("a").await, start("b").await);
        let before = settled(&[&a, &b]).await;
        for shard in 0..6 {
            write(&[&a, &b], shard, &format!("of {shard}")).await;
        }
        let held = a.serves();
        let generations: Vec<u64> = held
            .iter()
            .map(|shard| a.cluster.shard_report(*shard).expect("a report").generation)
            .collect();
        // It reaches nothing any more, and is not told to stop.
        a.faults.add(Rule::new(Fault::FailBefore));
        let after = settled(&[&b]).await;
        assert_eq!(moved(&before, &after), held.iter().copied().collect());
        assert!(a.serves().is_empty(), "it stopped before anybody took over");
        for shard in 0..6 {
            assert_eq!(read(&[&b], shard).await, format!("of {shard}"));
        }
        for (shard, generation) in held.iter().zip(generations) {
            let report = b.cluster.shard_report(*shard).expect("a report");
            assert!(report.generation > generation, "{layout:?}: {report:?}");
        }
        // It comes back, as a new session that inherits nothing, and gets its share.
        a.faults.clear();
        let again = settled(&[&a, &b]).await;
        assert!(moved(&after, &again).len() <= 3, "{layout:?}");
        for shard in 0..6 {
            assert_eq!(read(&[&a, &b], shard).await, format!("of {shard}"));
        }
        a.cluster.stop().await;
        b.cluster.stop().await;
    }
}

/// Promise P3: a node that cannot renew answers nothing past its deadline, though its databases still work.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_cannot_renew_stops_answering_before_anybody_takes_over() {
    let ring = Ring::new(2);
    let a = ring.start("a").await;
    write(&[&a], 0, "kept").await;
    // Only its leases: data goes on as ever.
    a.faults.add(Rule::new(Fault::Hang).path("_quarry/"));
    let began = Instant::now();
    let refused = loop {
        match a.call(0, "get", "").await {
            Ok(_) => assert!(began.elapsed() < TTL * 3, "it goes on and on"),
            Err(error) => break error,
        }
    };
    assert!(
        matches!(
            refused.kind,
            CallErrorKind::Unassigned | CallErrorKind::NotOwner | CallErrorKind::Unknown
        ),
        "{refused}"
    );
    assert!(a.query(0, "get").await.is_err());
    until("every shard is closed", || {
        a.serves().is_empty().then_some(())
    })
    .await;
    let b = ring.start("b").await;
    settled(&[&b]).await;
    assert_eq!(read(&[&b], 0).await, "kept");
    assert!(a.call(0, "put", "late").await.is_err());
    assert_eq!(read(&[&b], 0).await, "kept");
    a.faults.clear();
    settled(&[&a, &b]).await;
    a.cluster.stop().await;
    b.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_store_stops_all_and_ends_by_itself() {
    let ring = Ring::new(4);
    let (a, b) = (ring.start("a").await, ring.start("b").await);
    settled(&[&a, &b]).await;
    for shard in 0..4 {
        write(&[&a, &b], shard, &format!("of {shard}")).await;
    }
    for member in [&a, &b] {
        member.faults.add(Rule::new(Fault::FailBefore));
    }
    until("both nodes stopped their shards", || {
        (a.serves().is_empty() && b.serves().is_empty()).then_some(())
    })
    .await;
    assert!(a.call(0, "get", "").await.is_err());
    for member in [&a, &b] {
        member.faults.clear();
    }
    settled(&[&a, &b]).await;
    for shard in 0..4 {
        assert_eq!(read(&[&a, &b], shard).await, format!("of {shard}"));
    }
    a.cluster.stop().await;
    b.cluster.stop().await;
}

/// A short outage is no reason to stop anything.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_fails_once_is_made_again_in_time() {
    let ring = Ring::new(4);
    let a = ring.start("a").await;
    let opens = |member: &Member| -> u64 {
        let reports = (0..4).map(|shard| member.cluster.shard_report(shard).expect("a report"));
        reports.map(|report| report.opens).sum()
    };
    for _ in 0..3 {
        let puts = a.faults.calls(Op::Put);
        a.faults.add(
            Rule::new(Fault::FailBefore)
                .on(Op::Put)
                .path("nodes/")
                .times(1),
        );
        a.faults.add(
            Rule::new(Fault::FailAfter)
                .on(Op::Put)
                .path("nodes/")
                .times(1),
        );
        until("it has renewed again", || {
            (a.faults.calls(Op::Put) > puts + 4).then_some(())
        })
        .await;
    }
    assert_eq!((opens(&a), a.serves().len()), (4, 4));
    a.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_that_are_deleted_or_overwritten_are_repaired() {
    for layout in LAYOUTS {
        let ring = Ring::new(4);
        let start = async |name| {
            let mut config = ring.config(name);
            config.lease.layout = layout;
            ring.start_with(config).await.expect("a node")
        };
        let (a, b) = (start("a").await, start("b").await);
        settled(&[&a, &b]).await;
        for shard in 0..4 {
            write(&[&a, &b], shard, &format!("of {shard}")).await;
        }
        ring.put("leases/000.json", Some("")).await;
        ring.put("leases/001.json", Some(&"[".repeat(100_000)))
            .await;
        ring.put("leases/002.json", None).await;
        ring.put("leases/003.json", Some("{\"version\":9}")).await;
        ring.put("nodes/a.json", None).await;
        ring.put("nodes/b.json", Some("garbage")).await;
        ring.put("nodes/..%2Fx.json", Some("garbage")).await;
        until("leases and nodes are whole again", || {
            let whole = async {
                for name in ["a", "b"] {
                    let node = ring.try_get(&format!("nodes/{name}.json")).await?;
                    (node["state"] == "live").then_some(())?;
                }
                for shard in 0..4 {
                    let lease = ring.try_get(&format!("leases/{shard:03}.json")).await?;
                    (lease["state"] == "owned").then_some(())?;
                }
                Some(())
            };
            futures::executor::block_on(whole)
        })
        .await;
        settled(&[&a, &b]).await;
        for shard in 0..4 {
            assert_eq!(
                read(&[&a, &b], shard).await,
                format!("of {shard}"),
                "{layout:?}"
            );
        }
        a.cluster.stop().await;
        b.cluster.stop().await;
    }
}

/// A node that died and starts again under its name: its former session is not its own, and is waited for.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_starts_again_waits_for_its_former_session() {
    let ring = Ring::new(2);
    let a = ring.start("a").await;
    write(&[&a], 1, "kept").await;
    let former = a.cluster.leases().me().session;
    let generation = a.cluster.shard_report(1).expect("a report").generation;
    a.faults.add(Rule::new(Fault::FailBefore));
    let again = ring.start("a").await;
    assert!(a.serves().is_empty(), "the former session ran out first");
    assert_ne!(again.cluster.leases().me().session, former);
    settled(&[&again]).await;
    let report = again.cluster.shard_report(1).expect("a report");
    assert!(report.generation > generation, "{report:?}");
    assert_eq!(read(&[&again], 1).await, "kept");
    // The former comes back to life, and finds its name taken.
    a.faults.clear();
    tokio::time::timeout(Duration::from_secs(30), a.cluster.stop())
        .await
        .expect("it stops");
    settled(&[&again]).await;
    again.cluster.stop().await;
}

/// A node that cannot reach its store stops in bounded time, and others take over when its leases expire.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_without_a_store_is_bounded() {
    let ring = Ring::new(2);
    let mut config = ring.config("a");
    config.shard.close_timeout = Duration::from_secs(1);
    let a = ring.start_with(config).await.expect("a node");
    write(&[&a], 0, "kept").await;
    a.faults.add(Rule::new(Fault::FailBefore));
    tokio::time::timeout(Duration::from_secs(60), a.cluster.stop())
        .await
        .expect("it stops all the same");
    assert!(a.serves().is_empty());
    let b = ring.start("b").await;
    settled(&[&b]).await;
    assert_eq!(read(&[&b], 0).await, "kept");
    b.cluster.stop().await;
}

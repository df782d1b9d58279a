//! Leases that somebody rewrote with care, and a store that no longer does what it did at the start.

use std::collections::BTreeMap;

use quarry::store::faults::{Fault, Op, Rule};
use serde_json::{Value, json};

use super::{read, write};
use crate::support::process::until;
use crate::support::ring::{Member, Ring, settled};

/// The generation under which each shard is served.
fn generations(members: &[&Member]) -> BTreeMap<u32, u64> {
    let mut found = BTreeMap::new();
    for member in members {
        for shard in member.serves() {
            let report = member.cluster.shard_report(shard).expect("a report");
            found.insert(shard, report.generation);
        }
    }
    found
}

/// Bodies that are well formed, and wrong.
#[tokio::test(flavor = "multi_thread")]
async fn leases_of_nobody_and_of_the_past_are_taken_back() {
    let ring = Ring::new(4);
    let (a, b) = (ring.start("a").await, ring.start("b").await);
    settled(&[&a, &b]).await;
    let name = |shard: u32| format!("leases/{shard:03}.json");
    let mut past = Vec::new();
    for shard in 0..4 {
        past.push(ring.get(&name(shard)).await);
    }
    // So that there is a past.
    b.cluster.stop().await;
    settled(&[&a]).await;
    let b = ring.start("b").await;
    settled(&[&a, &b]).await;
    for shard in 0..4 {
        write(&[&a, &b], shard, &format!("of {shard}")).await;
    }
    let before = generations(&[&a, &b]);
    let ghost = json!({"name": "ghost", "session": "f".repeat(32)});
    let (mut unknown, mut backwards) = (ring.get(&name(0)).await, ring.get(&name(1)).await);
    unknown["owner"] = ghost.clone();
    backwards["generation"] = 0.into();
    let mut planted = [unknown, backwards, past.swap_remove(2), past.swap_remove(2)];
    // Of a node that is there, in a session that it never had.
    planted[3]["owner"] = json!({"name": "a", "session": "e".repeat(32)});
    for (shard, body) in (0..).zip(&planted) {
        ring.put(&name(shard), Some(&body.to_string())).await;
    }
    // Every lease is of a session that lives again, above all that was.
    let repaired = async || {
        for shard in 0..4_u32 {
            let lease = ring.try_get(&name(shard)).await?;
            let owner = lease["owner"]["name"].as_str()?;
            let node = ring.try_get(&format!("nodes/{owner}.json")).await?;
            let lives = node["session"] == lease["owner"]["session"] && node["state"] == "live";
            let above = lease["generation"].as_u64()? >= before[&shard];
            (lease["state"] == "owned" && lives && above).then_some(())?;
        }
        Some(())
    };
    until("leases are taken back", || {
        futures::executor::block_on(repaired())
    })
    .await;
    settled(&[&a, &b]).await;
    for (shard, generation) in generations(&[&a, &b]) {
        assert!(generation >= before[&shard], "shard {shard}: {generation}");
    }
    for shard in 0..4 {
        assert_eq!(read(&[&a, &b], shard).await, format!("of {shard}"));
        write(&[&a, &b], shard, "after").await;
    }
    a.cluster.stop().await;
    b.cluster.stop().await;
}

/// Nodes that somebody made up: they live as long as a lease, get shares, and lose them.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_nobody_runs_expire() {
    let ring = Ring::new(4);
    let a = ring.start("a").await;
    write(&[&a], 0, "kept").await;
    let body: Value = ring.get("nodes/a.json").await;
    for number in 0..20 {
        let mut forged = body.clone();
        forged["name"] = format!("ghost-{number}").into();
        forged["session"] = format!("{number:032x}").into();
        let at = format!("nodes/ghost-{number}.json");
        ring.put(&at, Some(&forged.to_string())).await;
    }
    // More nodes that end at once than live: that takes a round more, and no longer.
    until("they are known, and ended", || {
        let dead = async {
            for number in 0..20 {
                let node = ring.try_get(&format!("nodes/ghost-{number}.json")).await?;
                (node["state"] == "dead").then_some(())?;
            }
            Some(())
        };
        futures::executor::block_on(dead)
    })
    .await;
    settled(&[&a]).await;
    assert_eq!(read(&[&a], 0).await, "kept");
    a.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_begins_to_refuse_conditional_writes_stops_who_cannot_renew() {
    for fault in [Fault::RefuseIfMatch, Fault::PermissionDenied] {
        let ring = Ring::new(4);
        let (a, b) = (ring.start("a").await, ring.start("b").await);
        settled(&[&a, &b]).await;
        for shard in 0..4 {
            write(&[&a, &b], shard, &format!("of {shard}")).await;
        }
        let refuse = |member: &Member| {
            member
                .faults
                .add(Rule::new(fault).on(Op::Put).path("_quarry/"));
        };
        refuse(&b);
        settled(&[&a]).await;
        assert!(b.serves().is_empty(), "{fault:?}: it stopped before");
        refuse(&a);
        until("nobody serves what it cannot renew", || {
            a.serves().is_empty().then_some(())
        })
        .await;
        let error = a.call(0, "get", "").await.expect_err("nobody has it");
        assert!(error.never_ran() && error.retryable, "{fault:?}: {error:?}");
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
}

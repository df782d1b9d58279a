//! Calls between shards of several nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use super::stage::{Stage, beside, call};
use crate::support::ring::{Member, Ring, settled};
use crate::support::store::within;

/// Two nodes with a shard each, and who has which.
async fn pair(stage: &Stage) -> (Member, Member) {
    let ring = Ring::new(2);
    let mut members = Vec::new();
    for name in ["n1", "n2"] {
        let mut config = ring.config(name);
        config.lease.ttl = Duration::from_secs(10);
        let member = ring.start_module(config, stage.module()).await;
        members.push(member.expect("a node"));
    }
    let shares: BTreeMap<u32, String> = settled(&members.iter().collect::<Vec<_>>()).await;
    let second = members.pop().expect("two");
    let first = members.pop().expect("two");
    // The one that has shard 0 comes first.
    if shares[&0] == first.name {
        (first, second)
    } else {
        (second, first)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_of_another_node_is_asked_as_one_of_this() {
    let stage = Stage::new();
    let (first, second) = pair(&stage).await;
    for node in [&first, &second] {
        call(&node.cluster, 0, "ask", "1 count")
            .await
            .expect("a reply");
    }
    let counted = call(&second.cluster, 1, "counted", "").await;
    assert_eq!(counted.expect("a reply").payload, "2");
    let error = call(&first.cluster, 0, "ask", "1 fail")
        .await
        .expect_err("overdraft");
    assert_eq!(
        (error.code.as_str(), error.message.as_str()),
        ("overdraft", "no money")
    );
    assert!(error.retryable);
    // The chain goes along: it would come back.
    let error = call(&first.cluster, 0, "ask", "1 ask 0 count")
        .await
        .expect_err("a circle");
    assert_eq!(
        (error.code.as_str(), error.retryable),
        ("call-cycle", false)
    );
    assert!(error.message.contains("0 -> 1 -> 0"), "{error}");
    for node in [first, second] {
        node.cluster.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_chains_that_meet_over_nodes_do_not_wait() {
    let stage = Stage::new();
    let (first, second) = pair(&stage).await;
    let both = [
        beside(&first.cluster, 0, "meet", "1 count"),
        beside(&second.cluster, 1, "meet", "0 count"),
    ];
    stage.someone_waits(2).await;
    stage.open();
    let mut refused = 0;
    for call in both {
        if let Err(error) = call.await.expect("join") {
            assert_eq!((error.code.as_str(), error.retryable), ("call-cycle", true));
            refused += 1;
        }
    }
    assert!(
        refused > 0,
        "one at the least; each node knows its own wait"
    );
    for node in [first, second] {
        node.cluster.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_moves_meanwhile_is_followed() {
    let stage = Stage::new();
    let (first, second) = pair(&stage).await;
    let asked = beside(&first.cluster, 0, "meet", "1 count");
    stage.someone_waits(1).await;
    // Its shard goes to the other node, and the call after it.
    within(second.cluster.stop()).await;
    stage.open();
    let reply = asked.await.expect("join").expect("the new owner ran it");
    assert_eq!(reply.payload, "1");
    assert_eq!(
        call(&first.cluster, 1, "counted", "")
            .await
            .expect("a reply")
            .payload,
        "1"
    );
    first.cluster.stop().await;
}

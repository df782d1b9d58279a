//! Checks of what others may have left in the bucket.

use quarry_core::lease::op::Outcome;
use quarry_core::lease::record::MAX_BYTES;

use super::{Node, Object, Worlds};

/// Bodies that are nothing, and the reason.
fn bodies(kind: &str) -> Vec<(&'static str, Vec<u8>)> {
    let nonce = "0123456789abcdef0123456789abcdef";
    let lease = |field: &str, value: &str| {
        let mut body = serde_json::json!({
            "version": 1, "shard": 0, "state": "owned", "owner": {"name": "nobody", "session": nonce}, "generation": 3,
            "writer_epoch": 2, "counter": 1, "nonce": nonce, "successor": null, "pinned": false, "since_ms": 1, "why": "x",
        });
        body[field] = serde_json::from_str(value).expect("JSON");
        body.to_string().into_bytes()
    };
    let mut all = vec![
        ("empty", Vec::new()),
        ("not JSON", b"{\"version\":1".to_vec()),
        ("no object", b"[1,2,3]".to_vec()),
        ("not UTF-8", vec![0xff; 100]),
        ("huge", vec![b' '; 3 * MAX_BYTES]),
        ("very huge", vec![b'['; 4 << 20]),
        ("another version", b"{\"version\":2}".to_vec()),
        ("no version", b"{}".to_vec()),
    ];
    if kind == "lease" {
        all.extend([
            ("of another shard", lease("shard", "1")),
            ("of an unknown state", lease("state", "\"rented\"")),
            (
                "with path characters in a name",
                lease(
                    "owner",
                    "{\"name\":\"../../x\",\"session\":\"0123456789abcdef0123456789abcdef\"}",
                ),
            ),
            ("with a generation below zero", lease("generation", "-1")),
            (
                "with a generation beyond all numbers",
                lease("generation", "18446744073709551615"),
            ),
            ("with a text as a number", lease("counter", "\"1\"")),
        ]);
    }
    all
}

pub(super) async fn a_lease_that_cannot_be_read_is_repaired_by_a_claim(worlds: &dyn Worlds) {
    let bucket = worlds.world(1).await;
    let a = Node::joined(&*bucket, "a").await;
    for (what, body) in bodies("lease") {
        bucket.put(Object::Lease(0), Some(body)).await;
        let seen = a.read(0).await;
        assert!(
            seen.corrupt.is_some() && seen.tag.is_some() && seen.record.owner.is_none(),
            "a lease that is {what} counts as vacant, with its tag: {seen:?}"
        );
        let owners = a.owners(true).await.changed;
        assert!(
            owners.is_empty() || owners == std::slice::from_ref(&seen),
            "{what}: {owners:?}"
        );
        let lease = a.claim(&seen).await;
        assert!(a.owns(&lease), "{what}");
        assert_eq!(
            a.read(0).await,
            lease,
            "a lease that was {what} is repaired"
        );
    }
    // It can be read, and its owner is nobody that anyone knows: that is for the loop to judge, by its time.
    let nonce = "0123456789abcdef0123456789abcdef";
    let unknown = serde_json::json!({
        "version": 1, "shard": 0, "state": "owned", "owner": {"name": "nobody", "session": nonce}, "generation": 7,
        "writer_epoch": 2, "counter": 1, "nonce": nonce, "successor": null, "pinned": false, "since_ms": 1, "why": "x",
        "from a later build": true,
    });
    bucket
        .put(Object::Lease(0), Some(unknown.to_string().into_bytes()))
        .await;
    let seen = a.read(0).await;
    assert_eq!(
        (seen.corrupt.clone(), seen.record.generation),
        (None, 7),
        "{seen:?}"
    );
    let lease = a.claim(&seen).await;
    assert!(lease.record.generation > 7);
    // A generation that goes back is only a number: the next claim goes on from what the claimant knows.
    let back = serde_json::json!({
        "version": 1, "shard": 0, "state": "free", "owner": null, "generation": 1,
        "writer_epoch": 2, "counter": 1, "nonce": nonce, "successor": null, "pinned": false, "since_ms": 1, "why": "x",
    });
    bucket
        .put(Object::Lease(0), Some(back.to_string().into_bytes()))
        .await;
    assert!(matches!(
        a.release(&lease, None, None).await,
        Outcome::Lost(_)
    ));
    let seen = a.read(0).await;
    let claim = super::Claim {
        above: lease.record.generation,
        ..super::Claim::of(&seen)
    };
    match a.try_claim(claim).await {
        quarry_core::lease::op::OpResult::Claim(Outcome::Won(next)) => {
            assert!(next.record.generation > lease.record.generation);
        }
        other => super::wrong("a claim of a lease whose generation went back", &other),
    }
}

pub(super) async fn a_node_that_cannot_be_read_harms_nobody_else(worlds: &dyn Worlds) {
    let bucket = worlds.world(1).await;
    let a = Node::joined(&*bucket, "a").await;
    for (what, body) in bodies("node") {
        let b = Node::new(&*bucket, "b");
        bucket
            .put(Object::Node(b.info.name.clone()), Some(body.clone()))
            .await;
        let nodes = a.nodes().await.nodes;
        assert!(
            nodes
                .iter()
                .any(|node| node.name == a.info.name && node.record.is_ok()),
            "beside a node that is {what}: {nodes:?}"
        );
        let broken = nodes.iter().find(|node| node.name == b.info.name);
        assert!(
            broken.is_none_or(|node| node.record.is_err()),
            "{what}: {broken:?}"
        );
        // Its name is taken by whoever waited.
        let Outcome::Lost(stands) = b.setup(None).await else {
            panic!("a record that is {what} was overwritten at once");
        };
        assert!(
            matches!(b.setup(stands.tag).await, Outcome::Won(_)),
            "a record that is {what} and stays is replaced"
        );
        // Damaged under a session that may be over, for all its node knows, it stays as it is.
        bucket
            .put(Object::Node(b.info.name.clone()), Some(body.clone()))
            .await;
        assert!(
            matches!(b.beat(false, false).await, Outcome::Lost(_)),
            "a session past its deadline does not come back over a record that is {what}"
        );
        // Damaged under a session that goes on, it is repaired by the next heartbeat.
        bucket
            .put(Object::Node(b.info.name.clone()), Some(body))
            .await;
        assert!(
            matches!(b.heartbeat(false).await, Outcome::Won(_)),
            "a session survives that its record is {what}"
        );
        assert!(a.sees(&b.info.name).await.record.is_ok(), "{what}");
        bucket.put(Object::Node(b.info.name.clone()), None).await;
    }
}

pub(super) async fn strange_objects_are_passed_over(worlds: &dyn Worlds) {
    let bucket = worlds.world(4).await;
    for name in [
        "leases/999.json",
        "leases/0.json",
        "leases/000.json.bak",
        "leases/+01.json",
        "leases/deep/000.json",
        "nodes/a.json.tmp",
        "nodes/.hidden.json",
        "nodes/deep/a.json",
        "nodes/with space.json",
        "other/000.json",
        "stray",
    ] {
        bucket
            .put(Object::Other(name.into()), Some(b"garbage".to_vec()))
            .await;
    }
    let a = Node::joined(&*bucket, "a").await;
    let b = Node::joined(&*bucket, "b").await;
    let held = a.claim(&a.read(0).await).await;
    assert!(matches!(a.heartbeat(true).await, Outcome::Won(_)));
    let names: Vec<_> = b
        .nodes()
        .await
        .nodes
        .into_iter()
        .map(|node| node.name.to_string())
        .collect();
    assert_eq!(names, ["a", "b"]);
    let owners = b.owners(true).await.changed;
    assert_eq!(owners.len(), 4);
    assert!(owners.contains(&held));
}

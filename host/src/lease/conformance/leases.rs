//! Checks of the leases of shards.

use std::collections::BTreeSet;

use quarry_core::lease::op::{ClaimLost, LeaseOp, LeaseSeen, OpResult, Outcome, Renewal};

use super::{Claim, Node, Object, Worlds, wrong};

pub(super) async fn of_many_claimants_one_wins(worlds: &dyn Worlds) {
    let bucket = worlds.world(2).await;
    let mut nodes = Vec::new();
    for n in 0..8 {
        nodes.push(Node::joined(&*bucket, &format!("node-{n}")).await);
    }
    for shard in 0..2 {
        for node in &nodes {
            let seen = node.read(shard).await;
            assert_eq!(seen, LeaseSeen::missing(shard), "a new lease is vacant");
        }
        let seen = LeaseSeen::missing(shard);
        let claims = nodes.iter().map(|node| node.try_claim(Claim::of(&seen)));
        let results = futures::future::join_all(claims).await;
        let mut winner = None;
        for (node, result) in nodes.iter().zip(&results) {
            match result {
                OpResult::Claim(Outcome::Won(lease)) => {
                    assert!(node.owns(lease) && winner.is_none(), "{results:?}");
                    assert_eq!(
                        (lease.record.generation, lease.record.writer_epoch),
                        (1, Some(0))
                    );
                    winner = Some(lease.clone());
                }
                OpResult::Claim(Outcome::Lost(ClaimLost::Changed(stands))) => {
                    assert!(stands.record.owner.is_some(), "{stands:?}");
                }
                other => wrong("a claim in a race", other),
            }
        }
        let winner = winner.expect("one of them wins");
        for node in &nodes {
            assert_eq!(node.read(shard).await, winner, "all see the same winner");
        }
    }
}

pub(super) async fn a_lease_goes_from_owner_to_owner(worlds: &dyn Worlds) {
    let bucket = worlds.world(4).await;
    let a = Node::joined(&*bucket, "a").await;
    let b = Node::joined(&*bucket, "b").await;
    let held = a.claim(&a.read(3).await).await;
    let stale = b.read(3).await;
    assert!(a.owns(&stale));
    let Outcome::Won(free) = a.release(&held, Some(7), Some(&b.info.name)).await else {
        panic!("an owner cannot free its lease");
    };
    assert_eq!(free.record.owner, None);
    assert_eq!(free.record.successor.as_ref(), Some(&b.info.name));
    assert!(
        matches!(a.release(&held, Some(7), None).await, Outcome::Lost(_)),
        "a lease is freed once"
    );
    assert!(
        matches!(
            b.try_claim(Claim::of(&stale)).await,
            OpResult::Claim(Outcome::Lost(ClaimLost::Changed(_)))
        ),
        "a lease is not claimed as it was before"
    );
    let taken = b.claim(&b.read(3).await).await;
    assert!(
        b.owns(&taken) && taken.record.generation > held.record.generation,
        "{taken:?}"
    );
    assert_eq!(
        (taken.record.writer_epoch, &taken.record.successor),
        (Some(7), &None),
        "the writer epoch is the one that the last owner left"
    );
    assert!(
        matches!(a.release(&free, Some(9), None).await, Outcome::Lost(_)),
        "who freed a lease has no say in it any more"
    );
    assert_eq!(a.read(3).await, taken);
    // From an owner that is gone: the lease stands as it was, and the database is asked.
    if bucket.set_writer_epoch(3, 8).await {
        let again = a.claim(&a.read(3).await).await;
        assert!(a.owns(&again) && again.record.generation > taken.record.generation);
        assert_eq!(again.record.writer_epoch, Some(8));
    }
}

pub(super) async fn a_renewal_shows(worlds: &dyn Worlds) {
    let bucket = worlds.world(4).await;
    let a = Node::joined(&*bucket, "a").await;
    if a.store.renewal() == Renewal::Session {
        return;
    }
    let b = Node::joined(&*bucket, "b").await;
    let mut held = a.claim(&a.read(0).await).await;
    for _ in 0..3 {
        let before = b.read(0).await;
        let OpResult::Renew(Outcome::Won(renewed)) = a
            .run(LeaseOp::Renew {
                lease: held.clone(),
            })
            .await
        else {
            panic!("an owner cannot renew its lease");
        };
        assert_ne!(b.read(0).await.tag, before.tag, "a renewal is seen");
        assert_eq!(renewed.record.generation, held.record.generation);
        held = renewed;
    }
    let taken = b.claim(&b.read(0).await).await;
    match a.run(LeaseOp::Renew { lease: held }).await {
        OpResult::Renew(Outcome::Lost(stands)) => assert_eq!(stands, taken),
        other => wrong("a renewal of a lease that was taken", &other),
    }
}

pub(super) async fn changes_are_told_once(worlds: &dyn Worlds) {
    let bucket = worlds.world(12).await;
    let a = Node::joined(&*bucket, "a").await;
    let b = Node::joined(&*bucket, "b").await;
    let shards = |owners: &[LeaseSeen]| -> BTreeSet<u32> {
        owners.iter().map(|seen| seen.record.shard).collect()
    };
    b.nodes().await;
    let first = b.owners(false).await;
    assert_eq!(
        shards(&first.changed),
        (0..12).collect(),
        "first all are told, the missing too"
    );
    let held = a.claim(&a.read(2).await).await;
    let other = a.claim(&a.read(9).await).await;
    assert!(matches!(a.heartbeat(true).await, Outcome::Won(_)));
    b.nodes().await;
    let told = b.owners(false).await;
    assert_eq!(
        shards(&told.changed),
        [2, 9].into(),
        "then what has changed"
    );
    assert!(told.changed.contains(&held) && told.changed.contains(&other));
    b.nodes().await;
    assert_eq!(b.owners(false).await.changed, [], "and nothing twice");
    // Somebody removes a lease behind everyone's back.
    bucket.put(Object::Lease(2), None).await;
    b.nodes().await;
    let told = b.owners(true).await;
    assert_eq!(told.changed, [LeaseSeen::missing(2)]);
    // What this node wrote itself is no news to it.
    let mine = b.claim(&told.changed[0]).await;
    b.nodes().await;
    let told = b.owners(true).await;
    assert!(
        told.changed.is_empty() || told.changed == [mine],
        "{told:?}"
    );
}

pub(super) async fn generations_stay_above_the_database(worlds: &dyn Worlds) {
    let bucket = worlds.world(4).await;
    let a = Node::joined(&*bucket, "a").await;
    let high = Claim {
        above: 41,
        ..Claim::of(&a.read(1).await)
    };
    let OpResult::Claim(Outcome::Won(lease)) = a.try_claim(high).await else {
        panic!("a vacant lease cannot be claimed");
    };
    assert!(lease.record.generation > 41, "above any that was seen");
    if !bucket.set_writer_epoch(0, 5).await {
        return;
    }
    for most in [0, 4] {
        let careful = Claim {
            at_most: Some(most),
            ..Claim::of(&a.read(0).await)
        };
        match a.try_claim(careful).await {
            OpResult::Claim(Outcome::Lost(ClaimLost::Opened { writer_epoch: 5 })) => {}
            other => wrong(
                "a claim of a lease that vanished from under an open database",
                &other,
            ),
        }
    }
    let lease = a.claim(&a.read(0).await).await;
    assert!(lease.record.generation > 5, "above the writer epoch");
    assert_eq!(lease.record.writer_epoch, Some(5));
    let Outcome::Won(free) = a.release(&lease, Some(6), None).await else {
        panic!("an owner cannot free its lease");
    };
    // The lease says 6, the database says otherwise.
    assert!(bucket.set_writer_epoch(0, 9).await);
    let asked = Claim {
        ask_epoch: true,
        ..Claim::of(&free)
    };
    match a.try_claim(asked).await {
        OpResult::Claim(Outcome::Won(lease)) => {
            assert_eq!(lease.record.writer_epoch, Some(9));
            assert!(lease.record.generation > free.record.generation.max(9));
        }
        other => wrong("a claim that asks the database", &other),
    }
}

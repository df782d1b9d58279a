//! Checks of the records of nodes.

use quarry_core::lease::op::Outcome;
use quarry_core::lease::record::{NodeState, SessionId};

use super::{Node, Object, Worlds};

pub(super) async fn a_name_belongs_to_one_session(worlds: &dyn Worlds) {
    let bucket = worlds.world(4).await;
    let first = Node::joined(&*bucket, "a").await;
    // Repeated, since the reply may have been lost.
    assert!(
        matches!(first.setup(None).await, Outcome::Won(_)),
        "a session that begins again is its own"
    );
    let second = Node::new(&*bucket, "a");
    let Outcome::Lost(seen) = second.setup(None).await else {
        panic!("a second session took the name of one that lives");
    };
    let record = seen.record.as_ref().expect("the first session's record");
    assert_eq!(record.info.session, first.info.session);
    // It stayed, as far as the second node knows; but it did not.
    assert!(matches!(first.heartbeat(false).await, Outcome::Won(_)));
    let Outcome::Lost(now) = second.setup(seen.tag.clone()).await else {
        panic!("a session was replaced whose record had changed");
    };
    assert!(
        matches!(second.setup(now.tag).await, Outcome::Won(_)),
        "one whose record stayed is replaced"
    );
    let Outcome::Lost(now) = first.heartbeat(false).await else {
        panic!("a session that was replaced goes on");
    };
    let record = now.record.expect("the second session's record");
    assert_eq!(record.info.session, second.info.session);
    assert!(
        matches!(first.leave().await, Outcome::Lost(_)),
        "a session that was replaced ends no other"
    );
    // Who left makes room at once.
    assert!(matches!(second.leave().await, Outcome::Won(_)));
    let third = Node::new(&*bucket, "a");
    assert!(matches!(third.setup(None).await, Outcome::Won(_)));
    // Where a record is gone, its session may live: who saw it waits for it, who saw none does not.
    bucket
        .put(Object::Node(third.info.name.clone()), None)
        .await;
    let fourth = Node::new(&*bucket, "a");
    assert!(
        matches!(fourth.setup(seen.tag.clone()).await, Outcome::Lost(_)),
        "a name was taken because its record is gone"
    );
    assert!(matches!(fourth.setup(None).await, Outcome::Won(_)));
    // Of many that want a name at once, one gets it.
    let many: Vec<_> = (0..8).map(|_| Node::new(&*bucket, "b")).collect();
    let setups = futures::future::join_all(many.iter().map(|node| node.setup(None))).await;
    let won = setups
        .iter()
        .filter(|outcome| matches!(outcome, Outcome::Won(_)));
    assert_eq!(won.count(), 1, "{setups:?}");
}

pub(super) async fn a_heartbeat_shows_and_only_its_own_session_makes_one(worlds: &dyn Worlds) {
    let bucket = worlds.world(4).await;
    let mut a = Node::joined(&*bucket, "a").await;
    let b = Node::joined(&*bucket, "b").await;
    let mut last = b.sees(&a.info.name).await.tag;
    for _ in 0..3 {
        assert!(matches!(a.heartbeat(false).await, Outcome::Won(_)));
        let now = b.sees(&a.info.name).await.tag;
        assert_ne!(now, last, "a heartbeat that says the same is seen");
        last = now;
    }
    let stays = b.sees(&a.info.name).await.tag;
    assert_eq!(stays, last, "who makes no heartbeat is seen to make none");
    a.info.cordoned = true;
    a.info.shards = 3;
    assert!(matches!(a.heartbeat(false).await, Outcome::Won(_)));
    let seen = b.sees(&a.info.name).await;
    let record = seen.record.expect("a record");
    assert_eq!(
        (record.info.cordoned, record.info.shards),
        (true, 3),
        "what a node says of itself is seen"
    );
    let names: Vec<_> = b
        .nodes()
        .await
        .nodes
        .into_iter()
        .map(|node| node.name.to_string())
        .collect();
    assert_eq!(names, ["a", "b"], "all nodes, in the order of their names");
}

pub(super) async fn a_session_ends_once_and_only_as_it_was_seen(worlds: &dyn Worlds) {
    let bucket = worlds.world(4).await;
    let a = Node::joined(&*bucket, "a").await;
    let b = Node::joined(&*bucket, "b").await;
    let c = Node::joined(&*bucket, "c").await;
    let stale = b.sees(&a.info.name).await;
    assert!(matches!(a.heartbeat(false).await, Outcome::Won(_)));
    assert!(
        matches!(b.tombstone(&stale, a.info.session).await, Outcome::Lost(_)),
        "a session is not ended whose record has changed"
    );
    let seen = b.sees(&a.info.name).await;
    let other = SessionId::new(rand::random());
    assert!(
        matches!(b.tombstone(&seen, other).await, Outcome::Lost(_)),
        "a session is not ended instead of another"
    );
    let same = c.sees(&a.info.name).await;
    let (one, two) = tokio::join!(
        b.tombstone(&seen, a.info.session),
        c.tombstone(&same, a.info.session)
    );
    let won = [&one, &two]
        .into_iter()
        .filter(|outcome| matches!(outcome, Outcome::Won(_)));
    assert_eq!(won.count(), 1, "{one:?} {two:?}");
    let record = c.sees(&a.info.name).await.record.expect("a record");
    assert_eq!(record.info.state, NodeState::Dead);
    assert!(
        matches!(a.heartbeat(false).await, Outcome::Lost(_)),
        "a session that was ended does not go on"
    );
    assert!(matches!(a.leave().await, Outcome::Lost(_)));
    let again = Node::new(&*bucket, "a");
    assert!(
        matches!(again.setup(None).await, Outcome::Won(_)),
        "a node whose session was ended joins anew at once"
    );
    assert!(matches!(a.heartbeat(false).await, Outcome::Lost(_)));
    // Somebody removed the record, and its node is gone, too.
    let mut seen = c.sees(&b.info.name).await;
    bucket.put(Object::Node(b.info.name.clone()), None).await;
    assert!(
        matches!(c.tombstone(&seen, b.info.session).await, Outcome::Lost(_)),
        "a record that is gone is not the one that stayed"
    );
    seen.tag = None;
    assert!(matches!(
        c.tombstone(&seen, b.info.session).await,
        Outcome::Won(_)
    ));
    assert!(
        matches!(b.heartbeat(false).await, Outcome::Lost(_)),
        "a session is ended whose record is gone"
    );
}

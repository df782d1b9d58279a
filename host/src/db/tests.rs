//! What a guest may have the database hold and do, over a real one in memory.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use slatedb::object_store::memory::InMemory;

use super::*;
use crate::clock;
use crate::gate::deadline::Deadline;

/// A shard's database without a merge operator.
pub(crate) async fn shard_db(limits: Limits) -> Arc<ShardDb> {
    let db = Db::builder("shard", Arc::new(InMemory::new()))
        .build()
        .await
        .expect("a database");
    let gate = Arc::new(Gate::new(
        db.snapshot().expect("a snapshot"),
        Arc::new(Deadline::never()),
    ));
    Arc::new(ShardDb::new(db, 1, gate, Arc::new(limits), None))
}

fn removals(count: usize) -> Vec<Op> {
    vec![Op::Remove { key: "k".into() }; count]
}

#[tokio::test]
async fn the_values_of_many_keys_are_bounded_together() {
    let limits = Limits {
        value: 1_000,
        batch: 3_000,
        get_many: 8,
        ..Limits::default()
    };
    let db = shard_db(limits).await;
    db.put("a".into(), vec![7; 1_000].into())
        .await
        .expect("put");
    let transaction = db.begin(Isolation::Serializable).expect("begin");
    for view in [
        db.view(),
        db.snapshot().expect("a snapshot"),
        transaction.view().expect("a view"),
    ] {
        let many = async |keys: &[&'static str]| {
            let keys: Vec<Bytes> = keys.iter().map(|key| Bytes::from(*key)).collect();
            view.get_many(&keys).await
        };
        let found = many(&["a", "none", "a", "a"]).await.expect("within");
        let lengths: Vec<_> = found
            .into_iter()
            .map(|value| value.map(|value| value.len()))
            .collect();
        assert_eq!(lengths, [Some(1_000), None, Some(1_000), Some(1_000)]);
        for (keys, says) in [
            (&["a"; 4][..], "limits.batch, 3000 bytes"),
            (&["none"; 9], "9 keys"),
        ] {
            let error = many(keys).await.expect_err("over");
            assert_eq!(error.code, "limit");
            assert!(error.message.contains(says), "{error}");
        }
    }
}

#[tokio::test]
async fn operations_count_beside_their_bytes() {
    let limits = Limits {
        batch: 10 * (OP_OVERHEAD_BYTES + 1),
        ..Limits::default()
    };
    let db = shard_db(limits).await;
    db.write(removals(10)).await.expect("within");
    let error = db.write(removals(11)).await.expect_err("over");
    assert!(
        error.code == "limit" && error.message.contains("limits.batch"),
        "{error}"
    );
    let mut transaction = db.begin(Isolation::Snapshot).expect("begin");
    for op in removals(10) {
        transaction.write(op).expect("within");
    }
    let error = transaction.write(removals(1).remove(0)).expect_err("over");
    assert!(
        error.code == "limit" && error.message.contains("limits.batch"),
        "{error}"
    );
}

#[tokio::test]
async fn operations_are_counted() {
    let db = shard_db(Limits::default()).await;
    let error = db
        .write(removals(BATCH_MAX_OPS + 1))
        .await
        .expect_err("over");
    assert!(
        error.code == "limit" && error.message.contains("65537 operations"),
        "{error}"
    );
    let mut transaction = db.begin(Isolation::Snapshot).expect("begin");
    for op in removals(BATCH_MAX_OPS) {
        transaction.write(op).expect("within");
    }
    let error = transaction.write(removals(1).remove(0)).expect_err("over");
    assert!(
        error.code == "limit" && error.message.contains("65537 operations"),
        "{error}"
    );
}

/// A scan over rows in memory never waits for anything.
#[tokio::test]
async fn a_scan_over_expired_rows_lets_its_neighbours_run() {
    const ROWS: u32 = 5_000;
    let db = shard_db(Limits::default()).await;
    let ops = (0..ROWS).map(|n| Op::Put {
        key: n.to_be_bytes().to_vec().into(),
        value: "x".into(),
        ttl_ms: Some(1),
    });
    db.write(ops.collect()).await.expect("write");
    let deadline = Instant::now() + Duration::from_secs(20);
    while db.view().get(&[0; 4]).await.expect("get").is_some() {
        assert!(Instant::now() < deadline, "it does not expire");
        tokio::task::yield_now().await;
    }
    let mut cursor = db
        .view()
        .scan(&KeyRange::Prefix(Bytes::new()), Order::Ascending)
        .await
        .expect("scan");
    let (turns, ended) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let neighbour = tokio::spawn({
        let (turns, ended) = (turns.clone(), ended.clone());
        async move {
            while !ended.load(Ordering::Relaxed) {
                turns.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        }
    });
    let before = turns.load(Ordering::Relaxed);
    assert_eq!(cursor.next(10).await.expect("a page"), []);
    let during = turns.load(Ordering::Relaxed) - before;
    ended.store(true, Ordering::Relaxed);
    neighbour.await.expect("the neighbour");
    assert!(during >= 20, "{during} turns");
}

#[tokio::test]
async fn a_transaction_that_is_too_old_says_so_every_time() {
    let limits = Limits {
        transaction_age: Duration::from_secs(10),
        ..Limits::default()
    };
    let db = shard_db(limits).await;
    let mut transaction = db.begin(Isolation::Snapshot).expect("begin");
    let view = transaction.view().expect("a view");
    assert!(!transaction.expire(clock::now()));
    assert!(transaction.expire(clock::now() + Duration::from_secs(11)));
    for _ in 0..2 {
        let error = transaction.write(Op::put("a", "b")).expect_err("too old");
        assert_eq!(error.code, "limit");
        let error = view.get(b"a").await.expect_err("too old");
        assert!(error.message.contains("limits.transaction_age"), "{error}");
    }
    assert_eq!(
        transaction.commit().await.expect_err("too old").code,
        "limit"
    );
}

/// A guest that computes or waits for long, and writes outside of the transaction that it left open.
#[tokio::test]
async fn a_transaction_that_nobody_uses_ends_by_itself() {
    let limits = Limits {
        transaction_age: Duration::from_millis(20),
        ..Limits::default()
    };
    let db = shard_db(limits).await;
    let mut transaction = db.begin(Isolation::Serializable).expect("begin");
    transaction.write(Op::put("a", "b")).expect("young enough");
    let view = transaction.view().expect("a view");
    let deadline = Instant::now() + Duration::from_secs(20);
    while transaction.is_open() {
        assert!(Instant::now() < deadline, "it is kept for ever");
        tokio::task::yield_now().await;
    }
    for error in [
        transaction.write(Op::put("a", "c")).expect_err("too old"),
        view.get(b"a").await.map(drop).expect_err("too old"),
        transaction.commit().await.expect_err("too old"),
    ] {
        assert!(error.message.contains("limits.transaction_age"), "{error}");
    }
    assert_eq!(db.view().get(b"a").await.expect("get"), None);
}

/// Seqs of an opening begin at its epoch, whatever becomes of the first write.
#[tokio::test]
async fn a_first_write_that_is_refused_or_dropped_passes_its_seq_on() {
    let db = shard_db(Limits::default()).await;
    let first = first_seq(1);
    assert_eq!(first, 1 << 40);
    let begin = || {
        let seqnum = db.write_options().seqnum;
        (seqnum, Writing::begin(&db.shared, seqnum))
    };
    // The future of the write is dropped on the way: nobody knows whether it took its seq, so nobody else gets it.
    let (seqnum, writing) = begin();
    drop(writing);
    assert_eq!(seqnum, first);
    // It is refused: SlateDB counts its seq all the same.
    let (seqnum, writing) = begin();
    let refused = writing.end(Err(conflict().await)).expect_err("refused");
    assert_eq!((seqnum, refused.code.as_str()), (first + 1, "conflict"));
    // It wrote nothing.
    let (seqnum, writing) = begin();
    assert_eq!(writing.end(Ok(None)), Ok(None));
    assert_eq!(seqnum, first + 2);
    let seq = db.put("a".into(), "b".into()).await.expect("put");
    assert_eq!(seq, first + 3);
    // Once there is one, SlateDB counts on by itself.
    assert_eq!(db.write_options().seqnum, 0);
    let next = db.put("a".into(), "c".into()).await.expect("put");
    assert_eq!(next, first + 4);
    assert_eq!(db.visible_seq(), next);
}

/// What SlateDB says to a transaction whose key was written meanwhile.
async fn conflict() -> slatedb::Error {
    let db = Db::builder("other", Arc::new(InMemory::new()))
        .build()
        .await
        .expect("a database");
    let transaction = db.begin(slatedb::IsolationLevel::Snapshot).expect("begin");
    transaction.put(b"a", b"1").expect("put");
    db.put(b"a", b"2").await.expect("put");
    transaction.commit().await.map(drop).expect_err("conflict")
}

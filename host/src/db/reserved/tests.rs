//! Over a real database in memory: what is stored beside, and what guests see.

use std::sync::Arc;

use super::*;
use crate::db::tests::shard_db;
use crate::db::{Isolation, KeyRange, Op, Order};
use crate::guest::Limits;

const KIND: u8 = b't';

/// A database with the keys `a`, `\xff` seven times and beyond, and records.
async fn filled() -> Arc<ShardDb> {
    let db = shard_db(Limits::default()).await;
    for key in [&b"a"[..], b"b/1", &[0xff; 7]] {
        db.put(Bytes::copy_from_slice(key), "guest".into())
            .await
            .expect("put");
    }
    for rest in [&b""[..], b"x", b"y"] {
        db.put_record(KIND, rest, "host".into())
            .await
            .expect("a record");
    }
    db.put_record(KIND + 1, b"z", "other".into())
        .await
        .expect("a record");
    db
}

async fn keys(view: &ReadView, range: &KeyRange, order: Order) -> Vec<Vec<u8>> {
    let mut cursor = view.scan(range, order).await.expect("a cursor");
    let page = cursor.next(100).await.expect("a page");
    page.into_iter().map(|entry| entry.key.into()).collect()
}

fn between(start: Option<&[u8]>, end: Option<&[u8]>) -> KeyRange {
    let bound = |key: Option<&[u8]>| key.map(Bytes::copy_from_slice);
    KeyRange::Between {
        start: bound(start),
        end: bound(end),
    }
}

#[tokio::test]
async fn no_read_of_a_guest_shows_a_record() {
    let db = filled().await;
    let transaction = db.begin(Isolation::Serializable).expect("begin");
    let eight = [0xff; 8];
    let all: [&[u8]; 3] = [b"a", b"b/1", &[0xff; 7]];
    let cases: [(KeyRange, &[&[u8]]); 9] = [
        (between(None, None), &all),
        (KeyRange::Prefix(Bytes::new()), &all),
        (between(Some(b"b"), None), &all[1..]),
        (between(None, Some(&[0xff; 9])), &all),
        (between(Some(&eight), None), &[]),
        (between(Some(&[0xff; 8]), Some(&[0xff; 9])), &[]),
        (KeyRange::Prefix(vec![0xff; 8].into()), &[]),
        (KeyRange::Prefix(vec![0xff; 3].into()), &all[2..]),
        (KeyRange::Prefix(record(KIND, b"")), &[]),
    ];
    let live = db.view();
    let snapshot = db.snapshot().expect("a snapshot");
    let within = transaction.view().expect("a view");
    for view in [&live, &snapshot, &within] {
        for (range, expected) in &cases {
            assert_eq!(
                keys(view, range, Order::Ascending).await,
                *expected,
                "{range:?}"
            );
            let mut down = expected.to_vec();
            down.reverse();
            assert_eq!(
                keys(view, range, Order::Descending).await,
                down,
                "{range:?}"
            );
        }
        for key in [record(KIND, b"x"), Bytes::from_static(&RESERVED)] {
            let error = view.get(&key).await.expect_err("refused");
            assert_eq!(error.code, "invalid-key");
            assert!(error.message.contains("eight bytes 255"), "{error}");
            let many = view.get_many(&[key]).await;
            assert_eq!(many.expect_err("refused").code, "invalid-key");
        }
    }
}

#[tokio::test]
async fn no_write_of_a_guest_reaches_a_record() {
    let db = filled().await;
    let key = record(KIND, b"x");
    let ops = [
        Op::put(key.clone(), "guest"),
        Op::Remove { key: key.clone() },
        Op::Put {
            key: key.clone(),
            value: "guest".into(),
            ttl_ms: Some(1),
        },
    ];
    let mut transaction = db.begin(Isolation::Snapshot).expect("begin");
    for op in ops {
        let batch = vec![Op::put("a", "half"), op.clone()];
        assert_eq!(
            db.write(batch).await.expect_err("refused").code,
            "invalid-key"
        );
        let error = transaction.write(op).expect_err("refused");
        assert_eq!(error.code, "invalid-key");
    }
    assert_eq!(db.view().get(b"a").await, Ok(Some("guest".into())));
    let stored = db.view().record(KIND, b"x").await;
    assert_eq!(stored, Ok(Some("host".into())));
}

/// A prefix that ends in bytes 255 does not lead there either.
#[tokio::test]
async fn modules_with_a_prefix_stay_apart_from_records() {
    let db = filled().await;
    let cases: [(&[u8], &[u8], bool); 8] = [
        (b"b/", b"1", true),
        (b"b/", &[0xff; 7], true),
        (b"b/", &[0xff; 8], false),
        (&[0xff], &[0xff; 6], true),
        (&[0xff], &[0xff; 7], false),
        (&[0xff; 6], b"\xff\xfet", true),
        (&[0xff; 8], b"x", false),
        (b"", &[0xff; 8], false),
    ];
    for (prefix, key, good) in cases {
        let module = db.within(Bytes::copy_from_slice(prefix));
        let put = module.put(Bytes::copy_from_slice(key), "1".into()).await;
        let got = module.view().get(key).await;
        assert_eq!(
            (put.is_ok(), got.is_ok()),
            (good, good),
            "{prefix:?} {key:?}"
        );
        let all = keys(&module.view(), &between(None, None), Order::Ascending).await;
        assert_eq!(
            all.iter().any(|found| found == key),
            good,
            "{prefix:?} {key:?}"
        );
        assert!(
            all.iter().all(|key| check(key, prefix).is_ok()),
            "{prefix:?}: {all:?}"
        );
    }
    let mut left = db.records(KIND).await.expect("a cursor");
    let left = left.next(100).await.expect("a page");
    let left: Vec<_> = left.iter().map(|entry| &entry.key[..]).collect();
    assert_eq!(left, [&b""[..], b"x", b"y"]);
}

#[tokio::test]
async fn records_are_put_read_and_removed() {
    let db = filled().await;
    // Whatever the view is confined to.
    let module = db.within("b/".into());
    for view in [db.view(), module.view()] {
        assert_eq!(view.record(KIND, b"x").await, Ok(Some("host".into())));
        assert_eq!(view.record(KIND, b"no").await, Ok(None));
    }
    let before = db.visible_seq();
    let seq = module.remove_record(KIND, b"x").await.expect("removed");
    assert!(seq > before && db.visible_seq() == seq);
    assert_eq!(db.view().record(KIND, b"x").await, Ok(None));
}

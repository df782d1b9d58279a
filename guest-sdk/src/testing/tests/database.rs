//! The database.

use std::time::Duration;

use super::super::*;
use super::code;
use crate::codec::Json;
use crate::db::{self, Isolation, Order};

#[test]
fn keys_values_and_batches_have_limits() {
    let limits = Limits {
        key: 8,
        value: 16,
        batch: 40 + 2 * 64,
        ..Limits::default()
    };
    let mut host = Host::builder().limits(limits).start::<NoGuest>().unwrap();
    host.run(|| {
        assert_eq!(code(db::put("", "v")), "invalid-key");
        assert_eq!(code(db::get::<String>("")), "invalid-key");
        assert_eq!(code(db::remove("123456789")), "invalid-key");
        assert_eq!(code(db::put("k", [0u8; 17])), "invalid-value");
        db::put("12345678", [0u8; 16])?;

        let mut batch = db::Batch::new();
        batch
            .put("a", [0u8; 16])
            .put("b", [0u8; 16])
            .put("c", [0u8; 16]);
        assert_eq!(code(batch.write()), "limit");
        assert_eq!(db::get::<Vec<u8>>("a")?, None, "a batch is all or none");
        assert_eq!(code(db::Batch::new().write()), "invalid-argument");

        let tx = db::begin(Isolation::Snapshot)?;
        tx.put("a", [0u8; 16])?;
        tx.put("b", [0u8; 16])?;
        assert_eq!(code(tx.put("c", [0u8; 16])), "limit");
        let mut many = db::Batch::new();
        many.put("a", "").put("b", "").put("c", "");
        assert_eq!(
            code(many.write()),
            "limit",
            "operations count by themselves"
        );
        assert_eq!(code(db::get_many::<Vec<u8>>(0..1_025u32)), "limit");
        Ok(())
    })
    .unwrap();
}

#[test]
fn values_of_many_keys_are_bounded_together() {
    let limits = Limits {
        value: 100,
        batch: 300,
        ..Limits::default()
    };
    let mut host = Host::builder().limits(limits).start::<NoGuest>().unwrap();
    host.run(|| {
        db::put("k", [0u8; 100])?;
        db::get_many::<Vec<u8>>(["k"; 3])?;
        assert_eq!(code(db::get_many::<Vec<u8>>(["k"; 4])), "limit");
        let snapshot = db::snapshot()?;
        assert_eq!(code(snapshot.get_many::<Vec<u8>>(["k"; 4])), "limit");
        let tx = db::begin(Isolation::Snapshot)?;
        assert_eq!(code(tx.get_many::<Vec<u8>>(["k"; 4])), "limit");
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_batch_and_a_transaction_have_so_many_operations() {
    Host::bare()
        .run(|| {
            let mut batch = db::Batch::new();
            let tx = db::begin(Isolation::Snapshot)?;
            for _ in 0..65_536 {
                batch.remove("k");
                tx.remove("k")?;
            }
            assert_eq!(code(tx.remove("k")), "limit");
            batch.remove("k");
            assert_eq!(code(batch.write()), "limit");
            Ok(())
        })
        .unwrap();
}

#[test]
fn open_transactions_share_a_budget() {
    let limits = Limits {
        batch: 200,
        ..Limits::default()
    };
    let mut host = Host::builder().limits(limits).start::<NoGuest>().unwrap();
    host.run(|| {
        let [first, second, third] = [
            db::begin(Isolation::Snapshot)?,
            db::begin(Isolation::Snapshot)?,
            db::begin(Isolation::Serializable)?,
        ];
        first.put("a", [0u8; 135])?;
        second.put("b", [0u8; 135])?;
        assert_eq!(code(third.put("c", "")), "limit");
        assert_eq!(code(third.get::<Vec<u8>>("c")), "limit");
        assert_eq!(code(second.scan(.., Order::Ascending)), "limit");
        first.commit()?;
        third.get::<Vec<u8>>("c")?;
        drop(third);
        let cursor = second.scan(.., Order::Ascending)?;
        let fourth = db::begin(Isolation::Snapshot)?;
        assert_eq!(code(fourth.put("c", "")), "limit");
        drop(cursor);
        fourth.put("c", "")?;
        Ok(())
    })
    .unwrap();
    host.run(|| db::begin(Isolation::Snapshot)?.put("c", [0u8; 100]))
        .unwrap();
}

#[test]
fn append_is_bounded_as_any_value() {
    let limits = Limits {
        value: 3,
        ..Limits::default()
    };
    let mut host = Host::builder()
        .limits(limits)
        .merge_operator(MergeOperator::Append)
        .start::<NoGuest>()
        .unwrap();
    host.run(|| {
        db::merge("k", "ab")?;
        db::merge("k", "c")?;
        assert_eq!(code(db::merge("k", "d")), "invalid-value");
        assert_eq!(code(db::merge("other", "abcd")), "invalid-value");
        Ok(())
    })
    .unwrap();
}

#[test]
fn the_default_limits_are_those_of_the_host() {
    Host::bare()
        .run(|| {
            db::put([1u8; 65_535], "longest")?;
            assert_eq!(code(db::put([1u8; 65_536], "too long")), "invalid-key");
            db::put("largest", vec![0u8; 16 << 20])?;
            assert_eq!(
                code(db::put("too large", vec![0u8; (16 << 20) + 1])),
                "invalid-value"
            );
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_batch_is_one_write_and_its_later_operations_win() {
    let mut host = Host::builder()
        .merge_operator(MergeOperator::Append)
        .start::<NoGuest>()
        .unwrap();
    host.run(|| {
        db::put("gone", "x")?;
        let mut batch = db::Batch::new();
        batch
            .put("a", "1")
            .put("a", "2")
            .remove("gone")
            .put("b", "3")
            .merge("b", "4")
            .merge("c", "5");
        let seq = batch.write()?;
        assert_eq!(
            db::get_many::<String>(["a", "gone", "b", "c"])?,
            [
                Some("2".to_owned()),
                None,
                Some("34".to_owned()),
                Some("5".to_owned())
            ]
        );
        assert_eq!(db::get_versioned::<String>("a")?.unwrap().seq, seq);
        assert_eq!(db::get_versioned::<String>("c")?.unwrap().seq, seq);
        Ok(())
    })
    .unwrap();
}

#[test]
fn merges_need_an_operator_that_takes_the_operand() {
    assert_eq!(
        code(Host::bare().run(|| db::merge("a", 1u64))),
        "no-merge-operator"
    );
    let mut host = Host::builder()
        .merge_operator(MergeOperator::U64Add)
        .start::<NoGuest>()
        .unwrap();
    host.run(|| {
        db::merge("a", 1u64)?;
        db::merge("a", 41u64)?;
        assert_eq!(db::get::<u64>("a")?, Some(42));
        assert_eq!(code(db::merge("a", "one")), "invalid-value");
        assert_eq!(db::get::<u64>("a")?, Some(42));
        Ok(())
    })
    .unwrap();
}

#[test]
fn scans_page_through_both_directions() {
    Host::bare()
        .run(|| {
            for n in 0..1_000u32 {
                db::put((1u8, n), n)?;
            }
            db::put("other", "x")?;
            let up: Vec<(u8, u32)> = db::scan_prefix([1u8], Order::Ascending)?
                .typed::<(u8, u32), u32>()
                .map(|e| e.unwrap().0)
                .collect();
            assert_eq!(up.len(), 1_000);
            assert!(up.is_sorted());
            let down: Vec<u32> = db::scan((1u8, 10u32)..=(1u8, 20u32), Order::Descending)?
                .page_len(3)
                .typed::<(u8, u32), u32>()
                .map(|e| e.unwrap().1)
                .collect();
            assert_eq!(down, (10..=20).rev().collect::<Vec<_>>());
            let error = db::scan(.., Order::Descending)?
                .typed::<String, Json<bool>>()
                .next()
                .unwrap();
            assert_eq!(code(error), "invalid-data");
            Ok(())
        })
        .unwrap();
}

#[test]
fn pages_end_before_they_grow_over_4_mib() {
    Host::bare()
        .run(|| {
            for n in 0..5u8 {
                db::put([n], vec![0u8; 3 << 20])?;
            }
            let mut cursor = crate::sys::scan(None, None, Order::Ascending)?;
            for _ in 0..5 {
                assert_eq!(cursor.next(10)?.len(), 1);
            }
            assert_eq!(cursor.next(10)?.len(), 0);
            assert_eq!(code(cursor.next(0)), "invalid-argument");
            Ok(())
        })
        .unwrap();
}

#[test]
fn cursors_and_snapshots_do_not_see_later_writes() {
    Host::bare()
        .run(|| {
            let seq = db::put("a", 1u64)?;
            let snapshot = db::snapshot()?;
            let cursor = db::scan(.., Order::Ascending)?;
            db::put("a", 2u64)?;
            db::put("b", 2u64)?;
            assert_eq!(snapshot.seq(), seq);
            assert_eq!(snapshot.get::<u64>("a")?, Some(1));
            assert_eq!(snapshot.get_many::<u64>(["a", "b"])?, [Some(1), None]);
            assert_eq!(snapshot.scan(.., Order::Descending)?.count(), 1);
            assert_eq!(snapshot.scan_prefix("b", Order::Ascending)?.count(), 0);
            assert_eq!(cursor.count(), 1);
            Ok(())
        })
        .unwrap();
}

#[test]
fn what_a_call_leaves_open_is_closed() {
    let mut host = Host::bare();
    let (mut cursor, snapshot, tx) = host
        .run(|| {
            db::put("a", 1u64)?;
            Ok((
                db::scan(.., Order::Ascending)?,
                db::snapshot()?,
                db::begin(Isolation::Snapshot)?,
            ))
        })
        .unwrap();
    host.run(|| {
        assert_eq!(code(cursor.next().unwrap()), "closed");
        assert!(cursor.next().is_none());
        assert_eq!(code(snapshot.get::<u64>("a")), "closed");
        assert_eq!(code(tx.put("a", 2u64)), "closed");
        Ok(())
    })
    .unwrap();
    assert_eq!(code(db::get::<u64>("a")), "closed", "outside of a call");
}

#[test]
fn up_to_64_resources_are_open() {
    let mut host = Host::bare();
    for _ in 0..2 {
        host.run(|| {
            let mut open: Vec<_> = (0..62)
                .map(|_| db::scan(.., Order::Ascending).unwrap())
                .collect();
            let snapshot = db::snapshot()?;
            let _tx = db::begin(Isolation::Snapshot)?;
            assert_eq!(code(db::snapshot()), "limit");
            assert_eq!(code(snapshot.scan(.., Order::Ascending)), "limit");
            open.pop();
            db::snapshot()?;
            Ok(())
        })
        .unwrap();
    }
}

#[test]
fn transactions_conflict_as_their_isolation_says() {
    type Body = fn(&db::Transaction) -> Result<()>;
    let cases: [(&str, Isolation, Body, bool); 8] = [
        (
            "writes what was written",
            Isolation::Snapshot,
            |tx| tx.put("other", 1u64),
            true,
        ),
        (
            "removes what was written",
            Isolation::Snapshot,
            |tx| tx.remove("other"),
            true,
        ),
        (
            "writes another key",
            Isolation::Snapshot,
            |tx| tx.put("mine", 1u64),
            false,
        ),
        (
            "reads what was written",
            Isolation::Snapshot,
            |tx| tx.get::<u64>("other").map(drop),
            false,
        ),
        (
            "reads what was written",
            Isolation::Serializable,
            |tx| tx.get::<u64>("other").map(drop),
            true,
        ),
        (
            "scans what was written",
            Isolation::Serializable,
            |tx| tx.scan_prefix("o", Order::Ascending).map(drop),
            true,
        ),
        (
            "scans a range beside it",
            Isolation::Serializable,
            |tx| tx.scan("p".., Order::Ascending).map(drop),
            false,
        ),
        (
            "reads another key",
            Isolation::Serializable,
            |tx| tx.get::<u64>("mine").map(drop),
            false,
        ),
    ];
    for (name, isolation, body, conflicts) in cases {
        Host::bare()
            .run(|| {
                db::put("other", 0u64)?;
                let tx = db::begin(isolation)?;
                body(&tx)?;
                tx.put("always", 1u64)?;
                db::put("other", 2u64)?;
                let outcome = tx.commit();
                assert_eq!(
                    outcome.as_ref().is_err_and(Error::is_conflict),
                    conflicts,
                    "{name}, {isolation:?}: {outcome:?}"
                );
                assert_eq!(
                    db::get::<u64>("always")?.is_none(),
                    conflicts,
                    "{name}, {isolation:?}"
                );
                assert_eq!(code(tx.commit()), "closed");
                Ok(())
            })
            .unwrap();
    }
}

#[test]
fn transactions_see_their_own_writes_and_nobody_elses() {
    let mut host = Host::builder()
        .merge_operator(MergeOperator::U64Add)
        .start::<NoGuest>()
        .unwrap();
    host.run(|| {
        db::put("a", 1u64)?;
        db::put("b", 2u64)?;
        let tx = db::begin(Isolation::Snapshot)?;
        tx.merge("a", 10u64)?;
        tx.merge("a", 100u64)?;
        tx.remove("b")?;
        tx.put_for("c", 3u64, Duration::from_secs(1))?;
        db::put("d", 4u64)?;
        assert_eq!(
            tx.get_many::<u64>(["a", "b", "c", "d"])?,
            [Some(111), None, Some(3), None]
        );
        let seen: Vec<_> = tx
            .scan(.., Order::Descending)?
            .typed::<String, u64>()
            .map(Result::unwrap)
            .collect();
        assert_eq!(seen, [("c".to_owned(), 3), ("a".to_owned(), 111)]);
        assert_eq!(db::get::<u64>("a")?, Some(1));
        let seq = tx.commit()?;
        assert_eq!(db::get_versioned::<u64>("a")?.map(|found| found.seq), seq);
        assert_eq!(
            db::begin(Isolation::Snapshot)?.commit()?,
            None,
            "nothing was written"
        );
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_transaction_is_retried_a_bounded_number_of_times() {
    Host::bare()
        .run(|| {
            let mut attempts = 0;
            db::transaction(Isolation::Snapshot, |tx| {
                attempts += 1;
                tx.put("a", attempts)?;
                if attempts < 3 {
                    db::put("a", 0u32)?;
                }
                Ok(())
            })?;
            assert_eq!((attempts, db::get::<u32>("a")?), (3, Some(3)));

            let mut attempts = 0;
            let outcome = db::transaction(Isolation::Snapshot, |tx| {
                attempts += 1;
                tx.put("a", 0u32)?;
                db::put("a", 1u32)
            });
            assert_eq!(
                (attempts, code(outcome)),
                (db::MAX_ATTEMPTS, "conflict".to_owned())
            );

            let outcome = db::transaction(Isolation::Snapshot, |tx| {
                tx.put("a", 9u32)?;
                Err::<(), _>(Error::new("mine", "no"))
            });
            assert_eq!(
                (code(outcome), db::get::<u32>("a")?),
                ("mine".to_owned(), Some(1))
            );
            Ok(())
        })
        .unwrap();
}

/// Steps of a clock between the parts of a call: only a test that holds the world can do that.
fn advance(time: Duration) {
    with_world(|world| world.now_ms = world.after(time)).unwrap();
}

#[test]
fn transactions_grow_old() {
    Host::bare()
        .run(|| {
            let tx = db::begin(Isolation::Snapshot)?;
            tx.put("a", 1u64)?;
            advance(Duration::from_secs(10));
            tx.put("a", 2u64)?;
            advance(Duration::from_millis(1));
            assert_eq!(code(tx.put("a", 3u64)), "limit");
            assert_eq!(code(tx.commit()), "limit");
            assert_eq!(db::get::<u64>("a")?, None);
            Ok(())
        })
        .unwrap();
}

#[test]
fn values_expire() {
    let mut host = Host::bare();
    host.run(|| {
        db::put_for("a", "short", Duration::from_secs(60))?;
        db::put("b", "for ever")?;
        assert_eq!(
            code(db::put_for("c", "x", Duration::ZERO)),
            "invalid-argument"
        );
        assert_eq!(
            code(db::put_for("c", "x", Duration::MAX)),
            "invalid-argument"
        );
        let found = db::get_versioned::<String>("a")?.unwrap();
        assert_eq!(
            found.expires_at,
            Some(found.created_at + Duration::from_secs(60))
        );
        assert_eq!(db::get_versioned::<String>("b")?.unwrap().expires_at, None);
        Ok(())
    })
    .unwrap();
    for (step, left) in [(59_999, 2), (1, 1)] {
        host.advance(Duration::from_millis(step));
        host.run(|| {
            assert_eq!(db::scan(.., Order::Ascending)?.count(), left);
            assert_eq!(db::get::<String>("a")?.is_some(), left == 2);
            Ok(())
        })
        .unwrap();
    }
}

#[test]
fn scans_check_their_bounds() {
    Host::bare()
        .run(|| {
            db::put("a", "x")?;
            let long = vec![b'a'; 65_536];
            assert_eq!(
                code(db::scan_prefix(&long, Order::Ascending)),
                "invalid-key"
            );
            assert_eq!(code(db::scan(..&long, Order::Ascending)), "invalid-key");
            assert_eq!(db::scan_prefix("", Order::Ascending)?.count(), 1);
            assert_eq!(db::scan("".., Order::Ascending)?.count(), 1);
            assert_eq!(db::scan(.."", Order::Ascending)?.count(), 0);
            assert_eq!(db::scan("b".."a", Order::Ascending)?.count(), 0);
            Ok(())
        })
        .unwrap();
}

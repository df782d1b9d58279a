//! Cursors, snapshots and transactions that are not given back, or used too late.

use quarry_guest::db::{Cursor, Isolation, Order, Snapshot, Transaction};
use quarry_guest::prelude::*;

use crate::number_or;

/// What outlives its call.
#[derive(Default)]
pub struct Leaked {
    cursors: Vec<Cursor>,
    snapshots: Vec<Snapshot>,
    transactions: Vec<Transaction>,
}

/// The reply of a method of this module.
pub fn run(call: &Call, leaked: &mut Leaked) -> Option<Result<Reply>> {
    Some(match call.method() {
        "leak-cursors" => leak(call, &mut leaked.cursors, || db::scan(.., Order::Ascending)),
        "leak-snapshots" => leak(call, &mut leaked.snapshots, db::snapshot),
        "leak-transactions" => leak(call, &mut leaked.transactions, || {
            let tx = db::begin(Isolation::Serializable)?;
            tx.put("leaked", "must never be seen")?;
            Ok(tx)
        }),
        "use-leaked" => use_leaked(leaked),
        "drop-leaked" => {
            *leaked = Leaked::default();
            Ok(Reply::empty())
        }
        "too-many-cursors" => too_many_cursors(),
        "use-closed-transaction" => use_closed_transaction(),
        "old-transaction" => old_transaction(call),
        _ => return None,
    })
}

/// Opens as many as the payload says (10 unless it does) and keeps them; replies with how many are kept.
fn leak<T>(call: &Call, kept: &mut Vec<T>, open: impl Fn() -> Result<T>) -> Result<Reply> {
    for _ in 0..number_or(call, 10)? {
        kept.push(open()?);
    }
    Ok(Reply::text(kept.len()))
}

/// Uses what an earlier call left open: the codes of the errors, or `ok`.
fn use_leaked(leaked: &mut Leaked) -> Result<Reply> {
    let cursor = leaked
        .cursors
        .last_mut()
        .map(|cursor| cursor.next().transpose().map(drop));
    let snapshot = leaked
        .snapshots
        .last()
        .map(|snapshot| snapshot.get::<Vec<u8>>("a").map(drop));
    let transaction = leaked.transactions.last().map(|tx| tx.commit().map(drop));
    let outcomes: Vec<_> = [cursor, snapshot, transaction]
        .into_iter()
        .map(|outcome| match outcome {
            None => "none".to_owned(),
            Some(Ok(())) => "ok".to_owned(),
            Some(Err(error)) => error.code().to_owned(),
        })
        .collect();
    Ok(Reply::text(outcomes.join(" ")))
}

/// Opens cursors until one is refused, or 10,000 are open.
fn too_many_cursors() -> Result<Reply> {
    let cursors = (0..10_000)
        .map(|_| db::scan(.., Order::Ascending))
        .collect::<Result<Vec<_>>>()?;
    Ok(Reply::text(cursors.len()))
}

/// Uses a transaction after its commit.
fn use_closed_transaction() -> Result<Reply> {
    let tx = db::begin(Isolation::Snapshot)?;
    tx.put("use-closed-transaction", "x")?;
    tx.commit()?;
    tx.put("use-closed-transaction", "y")?;
    Ok(Reply::text("it was still open"))
}

/// Commits a transaction after as many milliseconds of scans as the payload says (11,000 unless it does).
fn old_transaction(call: &Call) -> Result<Reply> {
    let age = std::time::Duration::from_millis(number_or(call, 11_000)?);
    let tx = db::begin(Isolation::Snapshot)?;
    tx.put("old-transaction", "x")?;
    let start = std::time::Instant::now();
    while start.elapsed() < age {
        db::get::<Vec<u8>>("old-transaction")?;
    }
    tx.commit()?;
    Ok(Reply::text("committed"))
}

//! Transactions.

use std::time::Duration;

use super::{Cursor, KeyRange, Order, Seq, decoded, decoded_many, encoded, milliseconds};
use crate::codec::{FromValue, Key, Value};
use crate::error::Result;
use crate::sys;

/// How often [`transaction`] begins before it gives the conflict to its caller.
pub const MAX_ATTEMPTS: u32 = 10;

/// What counts as a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Another write to a key that the transaction writes.
    Snapshot,
    /// That, and another write to a key or a range that the transaction read.
    Serializable,
}

/// Runs `body` in a transaction and commits it. On a conflict it begins again, up to [`MAX_ATTEMPTS`] times in all; so
/// `body` must not do anything that cannot be done twice. An error of `body` changes nothing and is given back.
///
/// ```
/// use quarry_guest::{Error, db, db::Isolation, testing};
///
/// # testing::Host::bare().run(|| {
/// db::put("a", 10u64)?;
/// db::put("b", 0u64)?;
/// let left = db::transaction(Isolation::Serializable, |tx| {
///     let from: u64 = tx.get("a")?.unwrap_or(0);
///     let to: u64 = tx.get("b")?.unwrap_or(0);
///     let left = from.checked_sub(7).ok_or_else(|| Error::new("overdraft", format!("only {from} there")))?;
///     tx.put("a", left)?;
///     tx.put("b", to + 7)?;
///     Ok(left)
/// })?;
/// assert_eq!(left, 3);
/// # Ok(())
/// # }).unwrap();
/// ```
///
/// Use [`begin`] where the seq of the commit is wanted.
pub fn transaction<T>(
    isolation: Isolation,
    mut body: impl FnMut(&Transaction) -> Result<T>,
) -> Result<T> {
    let mut attempt = 1;
    loop {
        let transaction = begin(isolation)?;
        let outcome = body(&transaction).and_then(|value| {
            transaction.commit()?;
            Ok(value)
        });
        match outcome {
            Err(error) if error.is_conflict() && attempt < MAX_ATTEMPTS => attempt += 1,
            outcome => return outcome,
        }
    }
}

/// Begins a transaction.
pub fn begin(isolation: Isolation) -> Result<Transaction> {
    sys::begin(isolation).map(Transaction)
}

/// The database as it was at [`begin`], with the transaction's own writes on top. Dropped without a commit it changes
/// nothing. It ends with the call that opened it, and then fails with `closed`; 10 s after it began it fails with `limit`.
#[derive(Debug)]
pub struct Transaction(sys::Transaction);

impl Transaction {
    /// As [`db::get`](super::get).
    pub fn get<V: FromValue>(&self, key: impl Key) -> Result<Option<V>> {
        decoded(self.0.get(&key.to_key())?)
    }

    /// As [`db::get_many`](super::get_many).
    pub fn get_many<V: FromValue>(
        &self,
        keys: impl IntoIterator<Item = impl Key>,
    ) -> Result<Vec<Option<V>>> {
        decoded_many(self.0.get_many(&encoded(keys))?)
    }

    /// As [`db::put`](super::put); it has no seq before the commit.
    pub fn put(&self, key: impl Key, value: impl Value) -> Result<()> {
        self.0.put(&key.to_key(), &value.to_value()?)
    }

    /// As [`db::put_for`](super::put_for).
    pub fn put_for(&self, key: impl Key, value: impl Value, ttl: Duration) -> Result<()> {
        self.0
            .put_for(&key.to_key(), &value.to_value()?, milliseconds(ttl)?)
    }

    /// As [`db::remove`](super::remove).
    pub fn remove(&self, key: impl Key) -> Result<()> {
        self.0.remove(&key.to_key())
    }

    /// As [`db::merge`](super::merge).
    pub fn merge(&self, key: impl Key, operand: impl Value) -> Result<()> {
        self.0.merge(&key.to_key(), &operand.to_value()?)
    }

    /// As [`db::scan`](super::scan), with the transaction's own writes.
    pub fn scan(&self, range: impl KeyRange, order: Order) -> Result<Cursor> {
        let (start, end) = range.bounds();
        self.0.scan(start, end, order).map(Cursor::new)
    }

    /// As [`db::scan_prefix`](super::scan_prefix), with the transaction's own writes.
    pub fn scan_prefix(&self, prefix: impl Key, order: Order) -> Result<Cursor> {
        self.0.scan_prefix(&prefix.to_key(), order).map(Cursor::new)
    }

    /// Applies the writes, all or none. None when nothing was written. `conflict` (retryable) when another write came
    /// between: begin again. The transaction is over either way, and a further use of it fails with `closed`.
    pub fn commit(&self) -> Result<Option<Seq>> {
        self.0.commit()
    }
}

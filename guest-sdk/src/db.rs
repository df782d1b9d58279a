//! The shard's database: ordered keys and values.
//!
//! A write is visible at once and durable later; replies wait for that by themselves. The functions take and give back
//! any type of [`codec`](crate::codec).
//!
//! Limits (defaults; a revision can change them): keys are 1 byte to 64 KiB less one, values up to 16 MiB, a batch or a
//! transaction up to 32 MiB of keys and values, and 64 cursors, snapshots and transactions together may be open in a call.
//! A key that is empty or too long fails with `invalid-key`, a value that is too long with `invalid-value`, whatever
//! else is over a limit with `limit`. In a query every write fails with `read-only`.
//!
//! ```
//! use quarry_guest::{codec::Json, db, db::Order, testing};
//!
//! # testing::Host::bare().run(|| {
//! db::put("user/1", Json(["Ada", "Lovelace"]))?;
//! db::put("user/2", Json(["Alan", "Turing"]))?;
//! let first: Option<Json<[String; 2]>> = db::get("user/1")?;
//! assert_eq!(first.unwrap().0[0], "Ada");
//!
//! for user in db::scan_prefix("user/", Order::Descending)?.typed::<String, Json<[String; 2]>>() {
//!     let (key, Json([_, family])) = user?;
//!     println!("{key}: {family}");
//! }
//! # Ok(())
//! # }).unwrap();
//! ```

mod batch;
mod cursor;
mod range;
mod snapshot;
mod transaction;

use std::fmt;
use std::time::{Duration, SystemTime};

pub use batch::Batch;
pub use cursor::{Cursor, Typed};
pub use range::KeyRange;
pub use snapshot::{Snapshot, snapshot};
pub use transaction::{Isolation, MAX_ATTEMPTS, Transaction, begin, transaction};

use crate::codec::{FromKey, FromValue, Key, Value};
use crate::error::{Error, Result};
use crate::sys;

/// The number of a write to this shard: higher is later. Unique for the life of the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A key and its value, as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
}

impl Entry {
    /// The key as `K`. Fails with `invalid-data` where it is of another form.
    pub fn key<K: FromKey>(&self) -> Result<K> {
        K::from_key(&self.key)
    }

    /// The value as `V`. Fails with `invalid-data` where it is of another form.
    pub fn into_value<V: FromValue>(self) -> Result<V> {
        V::from_value(self.value)
    }
}

/// A value and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned<V> {
    /// The value.
    pub value: V,
    /// The write that stored it.
    pub seq: Seq,
    /// When it was stored.
    pub created_at: SystemTime,
    /// When it expires; none for never.
    pub expires_at: Option<SystemTime>,
}

/// The direction of a scan, by key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The lowest key first.
    #[default]
    Ascending,
    /// The highest key first.
    Descending,
}

/// The value of a key, or none. An expired value reads as none.
pub fn get<V: FromValue>(key: impl Key) -> Result<Option<V>> {
    decoded(sys::get(&key.to_key())?)
}

/// The value of a key with its seq and times, or none.
pub fn get_versioned<V: FromValue>(key: impl Key) -> Result<Option<Versioned<V>>> {
    let Some(found) = sys::get_versioned(&key.to_key())? else {
        return Ok(None);
    };
    Ok(Some(Versioned {
        value: V::from_value(found.value)?,
        seq: Seq(found.seq),
        created_at: time(found.created_at_ms),
        expires_at: found.expires_at_ms.map(time),
    }))
}

/// The values of up to 1,024 keys, in the order of `keys`, read concurrently.
pub fn get_many<V: FromValue>(keys: impl IntoIterator<Item = impl Key>) -> Result<Vec<Option<V>>> {
    decoded_many(sys::get_many(&encoded(keys))?)
}

/// Stores a value. An empty value is a value.
pub fn put(key: impl Key, value: impl Value) -> Result<Seq> {
    sys::put(&key.to_key(), &value.to_value()?)
}

/// Stores a value that expires after `ttl` (at least a millisecond; parts of one are dropped).
pub fn put_for(key: impl Key, value: impl Value, ttl: Duration) -> Result<Seq> {
    sys::put_for(&key.to_key(), &value.to_value()?, milliseconds(ttl)?)
}

/// Deletes a key, whether it exists or not.
pub fn remove(key: impl Key) -> Result<Seq> {
    sys::remove(&key.to_key())
}

/// Hands an operand to the cluster's merge operator (configuration `merge_operator`). Fails with `no-merge-operator`
/// where the cluster has none, and with `invalid-value` when the operator does not take the operand.
pub fn merge(key: impl Key, operand: impl Value) -> Result<Seq> {
    sys::merge(&key.to_key(), &operand.to_value()?)
}

/// Reads a range of keys: `..`, `"a".."b"`, `"a"..="b"`, `1u32..`. The cursor sees the database as it was when it was
/// opened. A range that ends before it starts is empty.
pub fn scan(range: impl KeyRange, order: Order) -> Result<Cursor> {
    let (start, end) = range.bounds();
    sys::scan(start, end, order).map(Cursor::new)
}

/// Reads the keys that start with `prefix`; an empty one is every key.
pub fn scan_prefix(prefix: impl Key, order: Order) -> Result<Cursor> {
    sys::scan_prefix(&prefix.to_key(), order).map(Cursor::new)
}

fn decoded<V: FromValue>(value: Option<Vec<u8>>) -> Result<Option<V>> {
    value.map(V::from_value).transpose()
}

fn decoded_many<V: FromValue>(values: Vec<Option<Vec<u8>>>) -> Result<Vec<Option<V>>> {
    values.into_iter().map(decoded).collect()
}

fn encoded(keys: impl IntoIterator<Item = impl Key>) -> Vec<Vec<u8>> {
    keys.into_iter()
        .map(|key| key.to_key().into_owned())
        .collect()
}

fn milliseconds(ttl: Duration) -> Result<u64> {
    u64::try_from(ttl.as_millis()).map_err(|_| {
        Error::new(
            "invalid-argument",
            format!("a ttl of {ttl:?} has more milliseconds than a u64 holds"),
        )
    })
}

fn time(ms: i64) -> SystemTime {
    let length = Duration::from_millis(ms.unsigned_abs());
    let time = if ms < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(length)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(length)
    };
    // A time that this platform cannot hold is as good as its oldest: nothing stores one.
    time.unwrap_or(SystemTime::UNIX_EPOCH)
}

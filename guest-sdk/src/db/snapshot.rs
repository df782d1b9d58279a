//! The database at one moment.

use super::{Cursor, KeyRange, Order, Seq, decoded, decoded_many, encoded};
use crate::codec::{FromValue, Key};
use crate::error::Result;
use crate::sys;

/// A view that later writes do not change. Ends with the call that opened it: used later it fails with `closed`.
#[derive(Debug)]
pub struct Snapshot(sys::Snapshot);

/// Opens a view that later writes do not change.
pub fn snapshot() -> Result<Snapshot> {
    sys::open_snapshot().map(Snapshot)
}

impl Snapshot {
    /// The last write that the snapshot shows.
    pub fn seq(&self) -> Seq {
        self.0.seq()
    }

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

    /// As [`db::scan`](super::scan).
    pub fn scan(&self, range: impl KeyRange, order: Order) -> Result<Cursor> {
        let (start, end) = range.bounds();
        self.0.scan(start, end, order).map(Cursor::new)
    }

    /// As [`db::scan_prefix`](super::scan_prefix).
    pub fn scan_prefix(&self, prefix: impl Key, order: Order) -> Result<Cursor> {
        self.0.scan_prefix(&prefix.to_key(), order).map(Cursor::new)
    }
}

//! The keys that are the host's own: those that begin with eight bytes 255, after all others. Guests can neither give nor see them: such a
//! key is refused, and every scan ends before them.
//!
//! A record is a plain value, put and removed whole, which never expires. Its key is the eight bytes, a byte that says what it is
//! (`t`: a timer), and what that has to say.

use std::ops::Bound;

use bytes::Bytes;
use slatedb::WriteBatch;
use slatedb::config::{PutOptions, ScanOptions, Ttl};

use super::{Cursor, Error, ReadView, ShardDb};
use crate::guest::GuestError;

/// How the keys begin that are the host's.
const RESERVED: [u8; 8] = [0xff; 8];

/// Checks that a key is no record of the host's, as it is given or as it is stored under a prefix.
pub(super) fn check(key: &[u8], prefix: &[u8]) -> Result<(), Error> {
    let as_stored = || {
        prefix.first() == Some(&0xff) && {
            let mut first = prefix.iter().chain(key).take(RESERVED.len());
            prefix.len() + key.len() >= RESERVED.len() && first.all(|byte| *byte == 0xff)
        }
    };
    if key.starts_with(&RESERVED) || as_stored() {
        return Err(GuestError::new(
            "invalid-key",
            "a key cannot begin with eight bytes 255: such keys are kept for the host's own records, as those of timers",
        ));
    }
    Ok(())
}

/// The key before which every scan ends, of the keys under a prefix.
pub(super) fn ceiling(prefix: &Bytes) -> Bytes {
    let all = Bytes::from_static(&RESERVED);
    if prefix.is_empty() {
        return all;
    }
    all.min(super::joined(prefix, &Bytes::from_static(&RESERVED)))
}

/// The key of a record of a kind.
fn record(kind: u8, rest: &[u8]) -> Bytes {
    [&RESERVED[..], &[kind], rest].concat().into()
}

impl ShardDb {
    /// Stores a record.
    ///
    /// # Errors
    /// That the database has ended.
    pub(crate) async fn put_record(
        &self,
        kind: u8,
        rest: &[u8],
        value: Bytes,
    ) -> Result<u64, Error> {
        let mut batch = WriteBatch::new();
        // Whatever the database's settings say of values that do not say themselves.
        let options = PutOptions { ttl: Ttl::NoExpiry };
        batch.put_bytes_with_options(record(kind, rest), value, &options);
        self.commit(batch).await
    }

    /// Removes a record.
    ///
    /// # Errors
    /// That the database has ended.
    pub(crate) async fn remove_record(&self, kind: u8, rest: &[u8]) -> Result<u64, Error> {
        let mut batch = WriteBatch::new();
        batch.delete(record(kind, rest));
        self.commit(batch).await
    }

    /// All records of a kind, as they are now. The keys that the cursor shows are what comes after the kind.
    ///
    /// # Errors
    /// That the database has ended.
    pub(crate) async fn records(&self, kind: u8) -> Result<Cursor, Error> {
        let bounds = (
            Bound::Included(record(kind, &[])),
            kind.checked_add(1)
                .map_or(Bound::Unbounded, |next| Bound::Excluded(record(next, &[]))),
        );
        let hidden = RESERVED.len() + 1;
        let options = ScanOptions::default();
        self.view().cursor(bounds, &options, hidden).await
    }
}

impl ReadView {
    /// The value of a record.
    ///
    /// # Errors
    /// That the database has ended.
    pub(crate) async fn record(&self, kind: u8, rest: &[u8]) -> Result<Option<Bytes>, Error> {
        let row = self.row(&record(kind, rest)).await?;
        Ok(row.map(|row| row.value))
    }
}

#[cfg(test)]
mod tests;

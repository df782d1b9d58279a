//! Reading a shard: single keys, many keys, scans, over the live database, a snapshot or a transaction.

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use slatedb::config::{ReadOptions, ScanOptions};
use slatedb::{Db, DbIterator, DbSnapshot, IterationOrder, KeyValue};

use super::transaction::Reads;
use super::{Error, check_key_within, check_length_within, db_error, joined, reserved};
use crate::clock;
use crate::guest::{GuestError, Limits};

/// Keys of one `get-many` that are read at once; their values are held beside those that count against `limits.batch`.
const GET_MANY_CONCURRENCY: usize = 8;
/// What a scan reads ahead of its cursor, in bytes. SlateDB's own default is one 4 KiB block a request.
const READ_AHEAD_BYTES: usize = 64 << 10;
/// The most entries of a page.
pub const PAGE_MAX_ENTRIES: u32 = 10_000;

/// Something to read from.
#[derive(Clone)]
pub struct ReadView {
    source: Source,
    limits: Arc<Limits>,
    /// The beginning of all keys, which whoever reads neither sees nor gives.
    prefix: Bytes,
}

#[derive(Clone)]
enum Source {
    Live(Db),
    Snapshot(Arc<DbSnapshot>),
    Transaction(Reads),
    Closed,
}

/// A key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Bytes,
    /// The value.
    pub value: Bytes,
}

/// A stored value and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versioned {
    /// The value.
    pub value: Bytes,
    /// The write that stored it.
    pub seq: u64,
    /// When it was stored, in milliseconds since the Unix epoch.
    pub created_at_ms: i64,
    /// When it expires, in milliseconds since the Unix epoch.
    pub expires_at_ms: Option<i64>,
}

/// A range of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyRange {
    /// From `start` (inclusive) to `end` (exclusive); none is open.
    Between {
        /// The first key.
        start: Option<Bytes>,
        /// The key after the last.
        end: Option<Bytes>,
    },
    /// The keys that start with these bytes; none of them means every key.
    Prefix(Bytes),
}

/// The direction of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// From the lowest key.
    Ascending,
    /// From the highest key.
    Descending,
}

impl ReadView {
    pub(super) fn live(db: Db, limits: Arc<Limits>) -> Self {
        Self {
            source: Source::Live(db),
            limits,
            prefix: Bytes::new(),
        }
    }

    pub(super) fn snapshot(snapshot: Arc<DbSnapshot>, limits: Arc<Limits>) -> Self {
        Self {
            source: Source::Snapshot(snapshot),
            limits,
            prefix: Bytes::new(),
        }
    }

    pub(super) fn transaction(reads: Reads, limits: Arc<Limits>) -> Self {
        Self {
            source: Source::Transaction(reads),
            limits,
            prefix: Bytes::new(),
        }
    }

    /// A view of nothing: every read fails with `closed`.
    #[must_use]
    pub fn closed(limits: Arc<Limits>) -> Self {
        Self {
            source: Source::Closed,
            limits,
            prefix: Bytes::new(),
        }
    }

    /// The same, confined to the keys under a further prefix.
    #[must_use]
    pub fn within(mut self, prefix: &Bytes) -> Self {
        self.prefix = joined(&self.prefix, prefix);
        self
    }

    /// The last write that a snapshot shows; 0 for a view that follows writes.
    #[must_use]
    pub fn seq(&self) -> u64 {
        match &self.source {
            Source::Snapshot(snapshot) => snapshot.seq(),
            _ => 0,
        }
    }

    /// The value of a key. An expired one reads as none.
    ///
    /// # Errors
    /// `invalid-key`, or that the database has ended.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        Ok(self.lookup(key).await?.map(|row| row.value))
    }

    /// The value of a key with its seq and times.
    ///
    /// # Errors
    /// As [`ReadView::get`].
    pub async fn get_versioned(&self, key: &[u8]) -> Result<Option<Versioned>, Error> {
        Ok(self.lookup(key).await?.map(|row| Versioned {
            value: row.value,
            seq: row.seq,
            created_at_ms: row.create_ts,
            expires_at_ms: row.expire_ts,
        }))
    }

    /// The values of many keys, in their order; read concurrently.
    ///
    /// # Errors
    /// `limit` for more keys than [`Limits::get_many`] or more bytes of values than [`Limits::batch`], else as [`ReadView::get`].
    pub async fn get_many(&self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>, Error> {
        self.check_keys(keys.len())?;
        // Not `map` with a closure: rustc cannot tell that such a stream is `Send` for callers that box it.
        let mut reads = Vec::with_capacity(keys.len());
        for key in keys {
            reads.push(self.get(key));
        }
        let mut reads = stream::iter(reads).buffered(GET_MANY_CONCURRENCY);
        let mut values = Vec::with_capacity(keys.len());
        let (mut size, limit) = (0, self.limits.batch);
        while let Some(value) = reads.try_next().await? {
            size += value.as_ref().map_or(0, Bytes::len);
            if size > limit {
                return Err(GuestError::new(
                    "limit",
                    format!(
                        "the values of these {} keys have more bytes together than one get-many gives (limits.batch, {limit} bytes); ask for fewer",
                        keys.len()
                    ),
                ));
            }
            values.push(value.map(|value| own(&value)));
            tokio::task::consume_budget().await;
        }
        Ok(values)
    }

    /// Checks how many keys a `get-many` has; before the work of making them ready.
    ///
    /// # Errors
    /// `limit` for more keys than [`Limits::get_many`].
    pub fn check_keys(&self, keys: usize) -> Result<(), Error> {
        let limit = self.limits.get_many;
        if keys > limit {
            return Err(GuestError::new(
                "limit",
                format!("{keys} keys are more than one get-many takes ({limit}); ask in several"),
            ));
        }
        Ok(())
    }

    /// Opens a cursor over a range, as it is now.
    ///
    /// # Errors
    /// `invalid-key` for a bound over `limits.key`, or that the database has ended.
    pub async fn scan(&self, range: &KeyRange, order: Order) -> Result<Cursor, Error> {
        let options = ScanOptions {
            read_ahead_bytes: READ_AHEAD_BYTES,
            max_fetch_tasks: 2,
            cache_blocks: true,
            order: match order {
                Order::Ascending => IterationOrder::Ascending,
                Order::Descending => IterationOrder::Descending,
            },
            ..ScanOptions::default()
        };
        let Some((start, end)) = self.bounds(range)? else {
            return Ok(Cursor {
                iter: None,
                held: None,
                page: self.limits.page,
                prefix: 0,
            });
        };
        self.cursor((start, end), &options, self.prefix.len()).await
    }

    /// A cursor over what is stored between two keys, which shows them without their first `prefix` bytes.
    pub(super) async fn cursor(
        &self,
        bounds: Bounds,
        options: &ScanOptions,
        prefix: usize,
    ) -> Result<Cursor, Error> {
        let iter = match &self.source {
            Source::Live(db) => db.scan_with_options(bounds, options).await,
            Source::Snapshot(snapshot) => snapshot.scan_with_options(bounds, options).await,
            Source::Transaction(reads) => reads.get()?.scan_with_options(bounds, options).await,
            Source::Closed => return Err(no_database()),
        };
        Cursor::new(iter, self.limits.page, prefix)
    }

    async fn lookup(&self, key: &[u8]) -> Result<Option<KeyValue>, Error> {
        check_key_within(key, &self.prefix, &self.limits)?;
        if self.prefix.is_empty() {
            return self.row(key).await;
        }
        self.row(&[&self.prefix[..], key].concat()).await
    }

    /// What is stored under a key, whoever's it is.
    pub(super) async fn row(&self, key: &[u8]) -> Result<Option<KeyValue>, Error> {
        let options = ReadOptions::default();
        let row = match &self.source {
            Source::Live(db) => db.get_key_value_with_options(key, &options).await,
            Source::Snapshot(snapshot) => snapshot.get_key_value_with_options(key, &options).await,
            Source::Transaction(reads) => {
                reads.get()?.get_key_value_with_options(key, &options).await
            }
            Source::Closed => return Err(no_database()),
        };
        Ok(row.map_err(|error| db_error(&error))?.filter(lives))
    }

    /// The bounds of a range for SlateDB, which end before the records of the host; none for a range that holds no key.
    fn bounds(&self, range: &KeyRange) -> Result<Option<Bounds>, Error> {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let Some((start, end)) = self.asked(range)? else {
            return Ok(None);
        };
        let ceiling = reserved::ceiling(&self.prefix);
        let end = end.map_or_else(|| ceiling.clone(), |end| end.min(ceiling.clone()));
        if start >= end {
            return Ok(None);
        }
        let start = Some(start).filter(|start| !start.is_empty());
        Ok(Some((start.map_or(Unbounded, Included), Excluded(end))))
    }

    /// The first key of a range as it is stored, and the one after the last; none for a range that holds no key.
    fn asked(&self, range: &KeyRange) -> Result<Option<(Bytes, Option<Bytes>)>, Error> {
        let bound = |key: &Bytes| {
            if key.is_empty() {
                Ok(())
            } else {
                check_length_within(key, &self.prefix, &self.limits)
            }
        };
        let under = |key: &Bytes| joined(&self.prefix, key);
        Ok(match range {
            KeyRange::Prefix(prefix) => {
                bound(prefix)?;
                let prefix = under(prefix);
                let end = after_prefix(&prefix);
                Some((prefix, end))
            }
            KeyRange::Between { start, end } => {
                for key in [start, end].into_iter().flatten() {
                    bound(key)?;
                }
                let start = start.clone().filter(|key| !key.is_empty());
                match (&start, end) {
                    (_, Some(end)) if end.is_empty() => None,
                    (Some(start), Some(end)) if start >= end => None,
                    _ => {
                        let first = under(&start.unwrap_or_default());
                        let last = match end {
                            Some(end) => Some(under(end)),
                            None => after_prefix(&self.prefix),
                        };
                        Some((first, last))
                    }
                }
            }
        })
    }
}

/// A range as SlateDB takes it.
pub(super) type Bounds = (std::ops::Bound<Bytes>, std::ops::Bound<Bytes>);

/// A position in a scan.
pub struct Cursor {
    iter: Option<DbIterator>,
    held: Option<Entry>,
    page: usize,
    /// Bytes of each key that are not shown.
    prefix: usize,
}

impl Cursor {
    fn new(
        iter: Result<DbIterator, slatedb::Error>,
        page: usize,
        prefix: usize,
    ) -> Result<Self, Error> {
        let iter = iter.map_err(|error| db_error(&error))?;
        Ok(Self {
            iter: Some(iter),
            held: None,
            page,
            prefix,
        })
    }

    /// Up to `max` further entries (1 to 10,000), fewer when a page would grow over `limits.page`; empty at the end only.
    ///
    /// # Errors
    /// `invalid-argument` for 0, or that the database has ended.
    pub async fn next(&mut self, max: u32) -> Result<Vec<Entry>, Error> {
        if max == 0 {
            return Err(GuestError::new(
                "invalid-argument",
                "a page holds at least 1 entry",
            ));
        }
        let max = max.min(PAGE_MAX_ENTRIES) as usize;
        let mut page = Vec::new();
        let mut size = 0;
        while page.len() < max {
            let Some(entry) = self.pull().await? else {
                break;
            };
            size += entry.key.len() + entry.value.len();
            if size > self.page && !page.is_empty() {
                self.held = Some(entry);
                break;
            }
            page.push(entry);
        }
        Ok(page)
    }

    /// Bytes of the entry that was read and did not fit on the last page.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held
            .as_ref()
            .map_or(0, |entry| entry.key.len() + entry.value.len())
    }

    async fn pull(&mut self) -> Result<Option<Entry>, Error> {
        if let Some(entry) = self.held.take() {
            return Ok(Some(entry));
        }
        let Some(iter) = &mut self.iter else {
            return Ok(None);
        };
        loop {
            // Rows in memory are read without waiting, and expired ones can be many: the others on this thread get their turn.
            tokio::task::consume_budget().await;
            match iter.next().await {
                Ok(Some(row)) if lives(&row) => {
                    return Ok(Some(Entry {
                        key: own(&row.key.slice(self.prefix..)),
                        value: own(&row.value),
                    }));
                }
                Ok(Some(_)) => {}
                Ok(None) => {
                    self.iter = None;
                    return Ok(None);
                }
                Err(error) => {
                    self.iter = None;
                    return Err(db_error(&error));
                }
            }
        }
    }
}

/// A copy. What SlateDB gives is a part of a block, and a small value among large ones would keep all of that in memory.
fn own(bytes: &Bytes) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

/// SlateDB drops expired rows at compaction only; readers have to look.
fn lives(row: &KeyValue) -> bool {
    row.expire_ts.is_none_or(|at| at > clock::wall_ms())
}

/// The lowest key after all keys with this prefix; none when there is no such key.
fn after_prefix(prefix: &[u8]) -> Option<Bytes> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end.into())
}

fn no_database() -> Error {
    GuestError::new("closed", "no database is open here")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_after_a_prefix() {
        for (prefix, end) in [
            (&b"a"[..], Some(&b"b"[..])),
            (b"a\xff", Some(b"b")),
            (b"\xff\xff", None),
            (b"", None),
            (b"a\x00", Some(b"a\x01")),
        ] {
            assert_eq!(after_prefix(prefix).as_deref(), end, "{prefix:?}");
        }
    }
}

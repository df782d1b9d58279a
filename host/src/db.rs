//! The one open database of a shard, with the limits that guests are held to.
//!
//! [`open`] is the only place that opens and closes SlateDB. [`ShardDb`] is what a guest writes through: it checks every key, value and
//! batch before SlateDB sees them, numbers writes so that a seq is unique for the life of the data, and knows the newest write that a
//! reader can have seen. [`ReadView`] and [`Transaction`] are what a guest reads through.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use slatedb::config::{MergeOptions, PutOptions, Ttl, WriteOptions};
use slatedb::{Db, ErrorKind, WriteBatch, WriteHandle};

use crate::gate::Gate;
use crate::guest::{GuestError, Limits};

pub mod cache;
pub mod maintenance;
pub mod merge;
pub mod open;
pub mod read;
pub mod recorder;
mod reserved;
pub mod settings;
mod time;
pub mod transaction;

pub use read::{Cursor, Entry, KeyRange, Order, ReadView, Versioned};
pub use transaction::{Isolation, Transaction};

/// The most operations of a batch or a transaction. Each takes memory beyond its bytes, and time of the writer.
pub const BATCH_MAX_OPS: usize = 65_536;
/// What an operation counts against `limits.batch` beside its key and value, in bytes: about what it takes in memory.
pub const OP_OVERHEAD_BYTES: usize = 64;

/// A failed operation, as a guest sees it: the codes are those of the WIT.
pub type Error = GuestError;

/// A shard's open database.
///
/// Every write returns its seq: higher is later, and unique for the life of the data. A write is visible when it returns and durable
/// later; [`Gate`] tells when. Dropping the future of a write leaves open whether it was applied.
///
/// A module that is confined to a key prefix has one of its own ([`ShardDb::within`]), which shows and reaches only what lies under it.
/// None of them shows or reaches the records that the host keeps beside (`reserved.rs`).
pub struct ShardDb {
    shared: Arc<Shared>,
    /// The beginning of all keys; empty for the whole database.
    prefix: Bytes,
}

/// What all views of one opening share.
struct Shared {
    db: Db,
    gate: Arc<Gate>,
    limits: Arc<Limits>,
    merge_operator: Option<Arc<str>>,
    /// The seq that the first write of this opening takes; 0 once it is taken. See [`first_seq`].
    first_seq: AtomicU64,
    /// The newest write that was recovered, and the seq from which this opening counts.
    recovered: u64,
    first: u64,
    last_seq: AtomicU64,
    /// Writes that began and did not return; how many of those were dropped on the way; and of how many of these the writer has
    /// decided since. The last two only grow.
    pending: AtomicUsize,
    abandoned: AtomicUsize,
    decided: AtomicUsize,
}

/// One operation of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Stores a value, for `ttl_ms` milliseconds where given.
    Put {
        /// The key.
        key: Bytes,
        /// The value.
        value: Bytes,
        /// Its life, in milliseconds.
        ttl_ms: Option<u64>,
    },
    /// Deletes a key.
    Remove {
        /// The key.
        key: Bytes,
    },
    /// Hands an operand to the merge operator.
    Merge {
        /// The key.
        key: Bytes,
        /// The operand.
        operand: Bytes,
    },
}

/// The seq at which an opening with this writer epoch starts to count.
///
/// SlateDB counts on from the last seq that it recovers, so a seq that was handed out and never became durable would be handed out
/// again by the next owner. With the epoch in its upper bits a seq belongs to one opening: 2^24 openings of 2^40 writes each.
#[must_use]
pub fn first_seq(writer_epoch: u64) -> u64 {
    writer_epoch << EPOCH_SHIFT
}

/// How many bits of a seq count the writes of an opening.
const EPOCH_SHIFT: u32 = 40;

impl ShardDb {
    /// Wraps a database opened with `writer_epoch`.
    #[must_use]
    pub fn new(
        db: Db,
        writer_epoch: u64,
        gate: Arc<Gate>,
        limits: Arc<Limits>,
        merge_operator: Option<Arc<str>>,
    ) -> Self {
        let last_seq = gate.durable_seq();
        let first = first_seq(writer_epoch);
        let shared = Shared {
            db,
            gate,
            limits,
            merge_operator,
            first_seq: AtomicU64::new(if first > last_seq { first } else { 0 }),
            recovered: last_seq,
            first,
            last_seq: AtomicU64::new(last_seq),
            pending: AtomicUsize::new(0),
            abandoned: AtomicUsize::new(0),
            decided: AtomicUsize::new(0),
        };
        Self {
            shared: Arc::new(shared),
            prefix: Bytes::new(),
        }
    }

    /// The same database, confined to the keys that begin with `prefix`, which its user neither sees nor gives.
    #[must_use]
    pub fn within(&self, prefix: Bytes) -> Self {
        Self {
            shared: self.shared.clone(),
            prefix: joined(&self.prefix, &prefix),
        }
    }

    /// The limits that this shard's guest is held to.
    #[must_use]
    pub fn limits(&self) -> &Arc<Limits> {
        &self.shared.limits
    }

    /// When this shard's writes become durable.
    #[must_use]
    pub fn gate(&self) -> &Arc<Gate> {
        &self.shared.gate
    }

    /// The newest write that a reader can have seen by now.
    #[must_use]
    pub fn visible_seq(&self) -> u64 {
        // In this order: a write that ends in between has stored its seq before it left `pending`.
        let decided = self.shared.decided.load(Ordering::Acquire);
        let pending = self.shared.pending.load(Ordering::Acquire);
        let last = self.shared.last_seq.load(Ordering::Acquire);
        if pending == decided {
            return last;
        }
        // A write whose future was dropped may be applied without our having seen its seq.
        self.shared
            .db
            .snapshot()
            .map_or(last, |view| last.max(view.seq()))
    }

    /// Whether this opening can say of a seq when it is durable: it handed it out, or recovered the data of the opening that did. A seq
    /// of an earlier opening that was never durable is lost, however far the seqs have come since.
    #[must_use]
    pub fn knows(&self, seq: u64) -> bool {
        seq >= self.shared.first
            || (seq <= self.shared.recovered
                && seq >> EPOCH_SHIFT == self.shared.recovered >> EPOCH_SHIFT)
    }

    /// A view of the database as it is now, following later writes.
    #[must_use]
    pub fn view(&self) -> ReadView {
        ReadView::live(self.shared.db.clone(), self.shared.limits.clone()).within(&self.prefix)
    }

    /// A view that later writes do not change.
    ///
    /// # Errors
    /// `closed`, `fenced` or `unavailable` when the database has ended.
    pub fn snapshot(&self) -> Result<ReadView, Error> {
        let snapshot = self
            .shared
            .db
            .snapshot()
            .map_err(|error| db_error(&error))?;
        Ok(ReadView::snapshot(snapshot, self.shared.limits.clone()).within(&self.prefix))
    }

    /// The newest view of which everything is durable; it waits for nothing.
    ///
    /// # Errors
    /// `closed` when the shard has ended.
    pub fn durable_view(&self) -> Result<ReadView, Error> {
        let view = self
            .shared
            .gate
            .durable_view()
            .ok_or_else(|| GuestError::retryable("closed", "the shard has ended"))?;
        Ok(ReadView::snapshot(view, self.shared.limits.clone()).within(&self.prefix))
    }

    /// Begins a transaction. Called on a runtime, whose timer ends it at its age.
    ///
    /// # Errors
    /// `closed`, `fenced` or `unavailable` when the database has ended.
    pub fn begin(self: &Arc<Self>, isolation: Isolation) -> Result<Transaction, Error> {
        let transaction = self
            .shared
            .db
            .begin(isolation.into())
            .map_err(|error| db_error(&error))?;
        Ok(Transaction::new(self.clone(), transaction, isolation))
    }

    /// Stores a value; an empty one is a value.
    ///
    /// # Errors
    /// `invalid-key`, `invalid-value`, or that the database has ended.
    pub async fn put(&self, key: Bytes, value: Bytes) -> Result<u64, Error> {
        self.apply([Op::Put {
            key,
            value,
            ttl_ms: None,
        }])
        .await
    }

    /// Deletes a key, whether it exists or not.
    ///
    /// # Errors
    /// `invalid-key`, or that the database has ended.
    pub async fn remove(&self, key: Bytes) -> Result<u64, Error> {
        self.apply([Op::Remove { key }]).await
    }

    /// Applies all operations or none, with one seq. Later operations on a key win.
    ///
    /// # Errors
    /// `invalid-argument` for no operations or a TTL of 0, `invalid-key`, `invalid-value`, `limit` for a batch over `limits.batch` or
    /// of more than [`BATCH_MAX_OPS`] operations, `no-merge-operator`, or that the database has ended.
    pub async fn write(&self, ops: Vec<Op>) -> Result<u64, Error> {
        if ops.is_empty() {
            return Err(GuestError::new(
                "invalid-argument",
                "a batch needs at least one operation",
            ));
        }
        check_ops(ops.len())?;
        self.apply(ops).await
    }

    /// Checks and applies operations: at least one, and not too many.
    async fn apply(&self, ops: impl AsRef<[Op]> + IntoIterator<Item = Op>) -> Result<u64, Error> {
        let mut size = 0;
        for op in ops.as_ref() {
            size += self.check(op)?;
        }
        self.check_batch(size)?;
        if self.appends() {
            // Boxed, so that what it takes is not a part of every write.
            Box::pin(self.check_appended(&self.view(), ops.as_ref())).await?;
        }
        self.commit(batch(ops, &self.prefix)).await
    }

    /// Applies a batch that was checked.
    async fn commit(&self, batch: WriteBatch) -> Result<u64, Error> {
        let options = self.write_options();
        let writing = Writing::begin(&self.shared, options.seqnum);
        let outcome = self.shared.db.write_with_options(batch, &options).await;
        writing
            .end(outcome.map(Some))
            .map(Option::unwrap_or_default)
    }

    /// Checks one operation, and gives its size as [`Op::size`] does.
    fn check(&self, op: &Op) -> Result<usize, Error> {
        let (key, value) = match op {
            Op::Put { key, value, ttl_ms } => {
                if *ttl_ms == Some(0) {
                    return Err(GuestError::new(
                        "invalid-argument",
                        "a TTL is at least 1 ms; remove the key instead",
                    ));
                }
                (key, value.len())
            }
            Op::Remove { key } => (key, 0),
            Op::Merge { key, operand } => {
                let Some(name) = &self.shared.merge_operator else {
                    return Err(GuestError::new(
                        "no-merge-operator",
                        "this cluster has no merge operator; `merge_operator` has to be set before its first start",
                    ));
                };
                merge::check_operand(name, operand)
                    .map_err(|message| GuestError::new("invalid-value", message))?;
                (key, operand.len())
            }
        };
        check_key_within(key, &self.prefix, &self.shared.limits)?;
        if value > self.shared.limits.value {
            let limit = self.shared.limits.value;
            return Err(GuestError::new(
                "invalid-value",
                format!("a value of {value} bytes is over limits.value ({limit} bytes)"),
            ));
        }
        Ok(self.prefix.len() + op.size())
    }

    /// Whether the merge operator is `append`: the only one whose results are longer than its operands.
    fn appends(&self) -> bool {
        self.shared.merge_operator.as_deref() == Some("append")
    }

    /// Bounds what `append` lets grow.
    async fn check_appended(&self, view: &ReadView, ops: &[Op]) -> Result<(), Error> {
        let mut sizes: BTreeMap<&Bytes, usize> = BTreeMap::new();
        for op in ops {
            match op {
                Op::Put { key, value, .. } => _ = sizes.insert(key, value.len()),
                Op::Remove { key } => _ = sizes.insert(key, 0),
                Op::Merge { key, operand } => {
                    let before = match sizes.get(key) {
                        Some(size) => *size,
                        None => view.get(key).await?.map_or(0, |value| value.len()),
                    };
                    let size = before + operand.len();
                    let limit = self.shared.limits.value;
                    if size > limit {
                        let message = format!(
                            "the value would grow to {size} bytes, over limits.value ({limit} bytes)"
                        );
                        return Err(GuestError::new("invalid-value", message));
                    }
                    sizes.insert(key, size);
                }
            }
        }
        Ok(())
    }

    fn check_batch(&self, size: usize) -> Result<(), Error> {
        let limit = self.shared.limits.batch;
        if size > limit {
            return Err(GuestError::new(
                "limit",
                format!(
                    "a batch of {size} bytes ({OP_OVERHEAD_BYTES} for each operation among them) is over limits.batch ({limit} bytes)"
                ),
            ));
        }
        Ok(())
    }

    fn write_options(&self) -> WriteOptions {
        if self.shared.first_seq.load(Ordering::Relaxed) == 0 {
            return WriteOptions::default();
        }
        WriteOptions {
            seqnum: self.shared.first_seq.swap(0, Ordering::AcqRel),
        }
    }
}

/// A write that began. Dropped without an end, it may or may not be applied.
struct Writing<'a> {
    db: &'a Shared,
    /// The first seq of the opening, where this write was to take it.
    seqnum: u64,
    /// Writes that were abandoned before this one began: the writer has decided them once this one returns.
    abandoned: usize,
    ended: bool,
}

impl<'a> Writing<'a> {
    fn begin(db: &'a Shared, seqnum: u64) -> Self {
        db.pending.fetch_add(1, Ordering::AcqRel);
        Self {
            db,
            seqnum,
            abandoned: db.abandoned.load(Ordering::Acquire),
            ended: false,
        }
    }

    fn end(
        mut self,
        outcome: Result<Option<WriteHandle>, slatedb::Error>,
    ) -> Result<Option<u64>, Error> {
        self.ended = true;
        let db = self.db;
        let outcome = match outcome {
            Ok(Some(handle)) => {
                let seq = handle.seqnum();
                db.last_seq.fetch_max(seq, Ordering::AcqRel);
                db.gate.applied();
                db.decided.fetch_max(self.abandoned, Ordering::AcqRel);
                Ok(Some(seq))
            }
            Ok(None) => {
                self.pass_on_first_seq();
                Ok(None)
            }
            Err(error) => {
                self.pass_on_first_seq();
                Err(db_error(&error))
            }
        };
        db.pending.fetch_sub(1, Ordering::AcqRel);
        outcome
    }

    /// A write that was to take the first seq did not, or nobody knows: the next write takes the one after it. Not the same: SlateDB
    /// counts a seq as taken before it looks whether the write is good.
    fn pass_on_first_seq(&self) {
        if self.seqnum > 0 && self.db.last_seq.load(Ordering::Acquire) < self.seqnum {
            self.db.first_seq.store(self.seqnum + 1, Ordering::Release);
        }
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.pass_on_first_seq();
            self.db.abandoned.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// Operations as SlateDB takes them.
fn batch(ops: impl IntoIterator<Item = Op>, prefix: &Bytes) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for op in ops {
        match op.within(prefix) {
            Op::Put { key, value, ttl_ms } => {
                batch.put_bytes_with_options(key, value, &PutOptions { ttl: ttl(ttl_ms) })
            }
            Op::Remove { key } => batch.delete(key),
            Op::Merge { key, operand } => {
                batch.merge_with_options(key, operand, &MergeOptions::default())
            }
        }
    }
    batch
}

/// A key under a prefix.
fn joined(prefix: &Bytes, key: &Bytes) -> Bytes {
    if prefix.is_empty() {
        return key.clone();
    }
    [&prefix[..], &key[..]].concat().into()
}

/// Checks how many operations a batch or a transaction has.
///
/// # Errors
/// `limit` for more than [`BATCH_MAX_OPS`].
pub fn check_ops(ops: usize) -> Result<(), Error> {
    if ops > BATCH_MAX_OPS {
        return Err(GuestError::new(
            "limit",
            format!(
                "{ops} operations are more than a batch or a transaction takes ({BATCH_MAX_OPS}); write in several"
            ),
        ));
    }
    Ok(())
}

/// Checks a key against `limits.key`, and that it is no record of the host. SlateDB panics on an empty key.
///
/// # Errors
/// `invalid-key`.
pub fn check_key(key: &[u8], limits: &Limits) -> Result<(), Error> {
    check_key_within(key, &[], limits)
}

/// As [`check_key`], of a key that is stored under a prefix.
fn check_key_within(key: &[u8], prefix: &[u8], limits: &Limits) -> Result<(), Error> {
    if key.is_empty() {
        return Err(GuestError::new("invalid-key", "a key cannot be empty"));
    }
    reserved::check(key, prefix)?;
    check_length_within(key, prefix, limits)
}

/// Checks the length of a key, or of a bound of a range, that is stored under a prefix.
fn check_length_within(key: &[u8], prefix: &[u8], limits: &Limits) -> Result<(), Error> {
    let (size, limit) = (prefix.len() + key.len(), limits.key);
    if size > limit {
        let prefix = match prefix.len() {
            0 => String::new(),
            prefix => format!(", {prefix} of them the prefix of its module,"),
        };
        return Err(GuestError::new(
            "invalid-key",
            format!("a key of {size} bytes{prefix} is over limits.key ({limit} bytes)"),
        ));
    }
    Ok(())
}

/// What a failed SlateDB operation is to a guest.
#[must_use]
pub fn db_error(error: &slatedb::Error) -> Error {
    use slatedb::CloseReason::{Clean, Fenced};
    match error.kind() {
        ErrorKind::Transaction => GuestError::retryable(
            "conflict",
            "another write came between; begin the transaction again",
        ),
        ErrorKind::Closed(Fenced) => {
            GuestError::retryable("fenced", "another writer opened this shard's database")
        }
        ErrorKind::Closed(Clean) => GuestError::retryable("closed", "the shard is being stopped"),
        ErrorKind::Closed(_) => GuestError::retryable(
            "closed",
            "the shard's database has failed and is being reopened",
        ),
        ErrorKind::Unavailable => {
            GuestError::retryable("unavailable", format!("the store does not answer: {error}"))
        }
        ErrorKind::Invalid => GuestError::new("invalid-argument", error.to_string()),
        _ => GuestError::new("internal", error.to_string()),
    }
}

fn ttl(ttl_ms: Option<u64>) -> Ttl {
    ttl_ms.map_or(Ttl::Default, Ttl::ExpireAfterMillis)
}

#[cfg(test)]
pub(crate) mod tests;

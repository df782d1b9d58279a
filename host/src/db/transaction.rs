//! A transaction: reads of the database as it was, its own writes on top, all or nothing.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use slatedb::config::{MergeOptions, PutOptions};
use slatedb::{DbTransaction, IsolationLevel};
use tokio_util::task::AbortOnDropHandle;

use super::{
    Error, KeyRange, OP_OVERHEAD_BYTES, Op, ReadView, ShardDb, Writing, check_key_within,
    check_ops, db_error, joined, ttl,
};
use crate::clock;
use crate::guest::GuestError;

/// What a transaction is guarded against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// Two writes of one key.
    Snapshot,
    /// Reads that changed, too.
    Serializable,
}

impl From<Isolation> for IsolationLevel {
    fn from(isolation: Isolation) -> Self {
        match isolation {
            Isolation::Snapshot => Self::Snapshot,
            Isolation::Serializable => Self::SerializableSnapshot,
        }
    }
}

/// A transaction. Dropped without a commit it changes nothing. An open one makes SlateDB keep every later write set in memory,
/// so its age is bounded by `limits.transaction_age`, at which it is ended
/// by itself.
pub struct Transaction {
    db: Arc<ShardDb>,
    reads: Reads,
    isolation: Isolation,
    begun: Instant,
    size: usize,
    ops: usize,
    /// Merges, kept only where the operator lets values grow: they are bounded at the commit.
    merges: Vec<Op>,
    _timer: AbortOnDropHandle<()>,
}

/// What a transaction and the cursors over it share.
#[derive(Clone)]
pub(super) struct Reads(Arc<std::sync::Mutex<Slot>>);

enum Slot {
    Open(Arc<DbTransaction>),
    /// It was committed, or failed to.
    Over,
    /// It was ended for its age, which is this limit.
    TooOld(Duration),
}

impl Reads {
    /// Ends the transaction at its age, whether anybody uses it by then or not: a guest that does something else for long must not
    /// have the database keep every later write set.
    async fn age(slot: Weak<std::sync::Mutex<Slot>>, limit: Duration) {
        clock::sleep(limit).await;
        if let Some(slot) = slot.upgrade() {
            Self(slot).take(Slot::TooOld(limit));
        }
    }

    pub(super) fn get(&self) -> Result<Arc<DbTransaction>, Error> {
        let guard = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        match &*guard {
            Slot::Open(transaction) => Ok(transaction.clone()),
            Slot::Over => Err(GuestError::new(
                "closed",
                "the transaction is over; begin another",
            )),
            Slot::TooOld(limit) => Err(GuestError::new(
                "limit",
                format!("the transaction is older than limits.transaction_age ({limit:?})"),
            )),
        }
    }

    /// Ends an open transaction.
    fn take(&self, then: Slot) -> Option<Arc<DbTransaction>> {
        let mut guard = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        match &*guard {
            Slot::Open(_) => match std::mem::replace(&mut *guard, then) {
                Slot::Open(transaction) => Some(transaction),
                Slot::Over | Slot::TooOld(_) => None,
            },
            Slot::Over | Slot::TooOld(_) => None,
        }
    }
}

impl Transaction {
    pub(super) fn new(db: Arc<ShardDb>, transaction: DbTransaction, isolation: Isolation) -> Self {
        let slot = Slot::Open(Arc::new(transaction));
        let reads = Reads(Arc::new(std::sync::Mutex::new(slot)));
        let age = Reads::age(Arc::downgrade(&reads.0), db.shared.limits.transaction_age);
        Self {
            _timer: AbortOnDropHandle::new(tokio::spawn(age)),
            db,
            reads,
            isolation,
            begun: clock::now(),
            size: 0,
            ops: 0,
            merges: Vec::new(),
        }
    }

    /// Reads within the transaction.
    ///
    /// # Errors
    /// `closed` when it is over, `limit` when it is too old.
    pub fn view(&self) -> Result<ReadView, Error> {
        self.open()?;
        let view = ReadView::transaction(self.reads.clone(), self.db.shared.limits.clone());
        Ok(view.within(&self.db.prefix))
    }

    /// Bytes of the writes so far, as [`Op::size`] counts them.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// When it began.
    #[must_use]
    pub fn begun(&self) -> Instant {
        self.begun
    }

    /// Whether the database keeps anything for it. Ends nothing.
    #[cfg(test)]
    pub(super) fn is_open(&self) -> bool {
        self.reads.get().is_ok()
    }

    /// Ends it when it is too old at `now`: it holds nothing from then on, and its uses fail with `limit`.
    pub fn expire(&self, now: Instant) -> bool {
        let limit = self.db.shared.limits.transaction_age;
        let old = now.saturating_duration_since(self.begun) > limit;
        if old {
            self.reads.take(Slot::TooOld(limit));
        }
        old
    }

    /// Bytes that the database keeps for as long as the transaction is open when it reads these keys: a serializable one remembers
    /// what it read.
    ///
    /// # Errors
    /// `invalid-key`.
    pub fn cost_of_keys<'a>(
        &self,
        keys: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<usize, Error> {
        let mut cost = 0;
        if self.isolation == Isolation::Serializable {
            for key in keys {
                check_key_within(key, &self.db.prefix, &self.db.shared.limits)?;
                cost += self.db.prefix.len() + key.len() + OP_OVERHEAD_BYTES;
            }
        }
        Ok(cost)
    }

    /// As [`Transaction::cost_of_keys`], for a scan. A bound that is too long is left to the scan to refuse.
    #[must_use]
    pub fn cost_of_range(&self, range: &KeyRange) -> usize {
        if self.isolation != Isolation::Serializable {
            return 0;
        }
        let bounds = match range {
            KeyRange::Between { start, end } => {
                start.as_ref().map_or(0, Bytes::len) + end.as_ref().map_or(0, Bytes::len)
            }
            KeyRange::Prefix(prefix) => 2 * prefix.len(),
        };
        let bounds = bounds + 2 * self.db.prefix.len();
        bounds.min(2 * self.db.shared.limits.key) + OP_OVERHEAD_BYTES
    }

    /// Adds a write.
    ///
    /// # Errors
    /// As [`ShardDb::write`]; `closed` when the transaction is over, `limit` when it is too old, too large, or has too many writes.
    pub fn write(&mut self, op: Op) -> Result<(), Error> {
        let transaction = self.open()?;
        self.size = self.check(&op)?;
        self.ops += 1;
        if matches!(op, Op::Merge { .. })
            && self.db.shared.merge_operator.as_deref() == Some("append")
        {
            self.merges.push(op.clone());
        }
        match op.within(&self.db.prefix) {
            Op::Put { key, value, ttl_ms } => {
                transaction.put_with_options(key, value, &PutOptions { ttl: ttl(ttl_ms) })
            }
            Op::Remove { key } => transaction.delete(key),
            Op::Merge { key, operand } => {
                transaction.merge_with_options(key, operand, &MergeOptions::default())
            }
        }
        .map_err(|error| db_error(&error))
    }

    /// Checks a write, and gives the size of all with it.
    ///
    /// # Errors
    /// As [`Transaction::write`].
    pub fn check(&self, op: &Op) -> Result<usize, Error> {
        self.open()?;
        let size = self.size + self.db.check(op)?;
        self.db.check_batch(size)?;
        check_ops(self.ops + 1)?;
        Ok(size)
    }

    /// Applies the writes. None when there are none. The transaction is over either way.
    ///
    /// # Errors
    /// `conflict` (retryable) when another write came between, `closed` when it is over, `limit` when it is too old.
    pub async fn commit(&mut self) -> Result<Option<u64>, Error> {
        self.open()?;
        for op in std::mem::take(&mut self.merges) {
            // The transaction's own view has its merges applied already.
            let Op::Merge { key, .. } = op else { continue };
            let (view, limit) = (self.view()?, self.db.shared.limits.value);
            let size = view.get(&key).await?.map_or(0, |value| value.len());
            if size > limit {
                self.reads.take(Slot::Over);
                let message = format!(
                    "the value would grow to {size} bytes, over limits.value ({limit} bytes); nothing was written"
                );
                return Err(GuestError::new("invalid-value", message));
            }
        }
        let transaction = self.open()?;
        self.reads.take(Slot::Over);
        // A read in progress holds the transaction; a guest runs one thing at a time, so none is.
        let transaction = Arc::try_unwrap(transaction).map_err(|_| {
            GuestError::new(
                "invalid-argument",
                "a read of the transaction is in progress",
            )
        })?;
        let db = self.db.clone();
        let options = if self.size == 0 {
            slatedb::config::WriteOptions::default()
        } else {
            db.write_options()
        };
        let writing = Writing::begin(&db.shared, options.seqnum);
        let outcome = transaction.commit_with_options(&options).await;
        writing.end(outcome)
    }

    fn open(&self) -> Result<Arc<DbTransaction>, Error> {
        self.expire(clock::now());
        self.reads.get()
    }
}

impl Op {
    /// What it counts against `limits.batch`: the bytes of its key and value, and [`OP_OVERHEAD_BYTES`].
    #[must_use]
    pub fn size(&self) -> usize {
        let bytes = match self {
            Self::Put { key, value, .. } => key.len() + value.len(),
            Self::Remove { key } => key.len(),
            Self::Merge { key, operand } => key.len() + operand.len(),
        };
        bytes + OP_OVERHEAD_BYTES
    }

    /// The same with its key under a prefix.
    pub(super) fn within(self, prefix: &Bytes) -> Self {
        if prefix.is_empty() {
            return self;
        }
        match self {
            Self::Put { key, value, ttl_ms } => Self::Put {
                key: joined(prefix, &key),
                value,
                ttl_ms,
            },
            Self::Remove { key } => Self::Remove {
                key: joined(prefix, &key),
            },
            Self::Merge { key, operand } => Self::Merge {
                key: joined(prefix, &key),
                operand,
            },
        }
    }

    /// A put without a TTL.
    pub fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self::Put {
            key: key.into(),
            value: value.into(),
            ttl_ms: None,
        }
    }
}

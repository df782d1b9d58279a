//! A transaction: reads of the database as it was, its own writes on top, all or nothing.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use slatedb::config::{MergeOptions, PutOptions};
use slatedb::{DbTransaction, IsolationLevel};

use super::{Error, Op, ReadView, ShardDb, Writing, db_error, ttl};
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
/// so its age is bounded by `limits.transaction_age`.
pub struct Transaction {
    db: Arc<ShardDb>,
    reads: Reads,
    begun: Instant,
    size: usize,
    /// Merges, kept only where the operator lets values grow: they are bounded at the commit.
    merges: Vec<Op>,
}

/// What a transaction and the cursors over it share; empty once the transaction is over.
#[derive(Clone)]
pub(super) struct Reads(Arc<std::sync::Mutex<Option<Arc<DbTransaction>>>>);

impl Reads {
    pub(super) fn get(&self) -> Result<Arc<DbTransaction>, Error> {
        let guard = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        guard
            .clone()
            .ok_or_else(|| GuestError::new("closed", "the transaction is over; begin another"))
    }

    fn take(&self) -> Option<Arc<DbTransaction>> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .take()
    }
}

impl Transaction {
    pub(super) fn new(db: Arc<ShardDb>, transaction: DbTransaction) -> Self {
        let reads = Reads(Arc::new(std::sync::Mutex::new(Some(Arc::new(transaction)))));
        Self {
            db,
            reads,
            begun: clock::now(),
            size: 0,
            merges: Vec::new(),
        }
    }

    /// Reads within the transaction.
    ///
    /// # Errors
    /// `closed` when it is over, `limit` when it is too old.
    pub fn view(&self) -> Result<ReadView, Error> {
        self.open()?;
        Ok(ReadView::transaction(
            self.reads.clone(),
            self.db.limits.clone(),
        ))
    }

    /// Adds a write.
    ///
    /// # Errors
    /// As [`ShardDb::write`]; `closed` when the transaction is over, `limit` when it is too old or too large.
    pub fn write(&mut self, op: Op) -> Result<(), Error> {
        let transaction = self.open()?;
        let size = self.size + self.db.check(&op)?;
        self.db.check_batch(size)?;
        self.size = size;
        if matches!(op, Op::Merge { .. }) && self.db.merge_operator.as_deref() == Some("append") {
            self.merges.push(op.clone());
        }
        match op {
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

    /// Applies the writes. None when there are none. The transaction is over either way.
    ///
    /// # Errors
    /// `conflict` (retryable) when another write came between, `closed` when it is over, `limit` when it is too old.
    pub async fn commit(&mut self) -> Result<Option<u64>, Error> {
        self.open()?;
        for op in std::mem::take(&mut self.merges) {
            // The transaction's own view has its merges applied already.
            let Op::Merge { key, .. } = op else { continue };
            let (view, limit) = (self.view()?, self.db.limits.value);
            let size = view.get(&key).await?.map_or(0, |value| value.len());
            if size > limit {
                self.reads.take();
                let message = format!(
                    "the value would grow to {size} bytes, over limits.value ({limit} bytes); nothing was written"
                );
                return Err(GuestError::new("invalid-value", message));
            }
        }
        let Some(transaction) = self.reads.take() else {
            return Err(GuestError::new(
                "closed",
                "the transaction is over; begin another",
            ));
        };
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
        let writing = Writing::begin(&db, options.seqnum);
        let outcome = transaction.commit_with_options(&options).await;
        writing.end(outcome)
    }

    fn open(&self) -> Result<Arc<DbTransaction>, Error> {
        let transaction = self.reads.get()?;
        let limit = self.db.limits.transaction_age;
        if clock::now().saturating_duration_since(self.begun) > limit {
            self.reads.take();
            return Err(GuestError::new(
                "limit",
                format!("the transaction is older than limits.transaction_age ({limit:?})"),
            ));
        }
        Ok(transaction)
    }
}

impl Op {
    /// A put without a TTL.
    pub fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self::Put {
            key: key.into(),
            value: value.into(),
            ttl_ms: None,
        }
    }
}

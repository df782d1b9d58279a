//! Transactions of the test double.

use std::collections::BTreeMap;

use super::world::{Held, OP_OVERHEAD_BYTES, World};
use super::{Span, Stage, Write};
use crate::db::{Isolation, Seq};
use crate::error::{Error, Result};

/// A transaction that is under way.
#[derive(Debug)]
pub(crate) struct TransactionState {
    isolation: Isolation,
    /// The write that it began after.
    view: u64,
    began_at_ms: i64,
    stage: Stage,
    reads: Vec<Vec<u8>>,
    ranges: Vec<Span>,
    over: bool,
}

impl TransactionState {
    pub(crate) fn new(world: &World, isolation: Isolation) -> Self {
        TransactionState {
            isolation,
            view: world.store.last_seq(),
            began_at_ms: world.now_ms,
            stage: Stage::default(),
            reads: Vec::new(),
            ranges: Vec::new(),
            over: false,
        }
    }

    /// Fails with `closed` once the transaction is over, and with `limit` once it is too old.
    pub(crate) fn check_open(&self, world: &World) -> Result<()> {
        let limit = world.settings.limits.transaction_age;
        if self.over {
            Err(Error::new(
                "closed",
                "the transaction is over; begin another",
            ))
        } else if u128::from(world.now_ms.abs_diff(self.began_at_ms)) > limit.as_millis() {
            let why = format!("the transaction is older than limits.transaction_age ({limit:?})");
            Err(Error::new("limit", why))
        } else {
            Ok(())
        }
    }

    /// Counts keys that are about to be read: a serializable transaction remembers them.
    pub(crate) fn charge_reads(
        &self,
        world: &mut World,
        held: &mut Held,
        keys: &[Vec<u8>],
    ) -> Result<()> {
        if self.isolation != Isolation::Serializable {
            return Ok(());
        }
        let bytes = keys.iter().map(|key| key.len() + OP_OVERHEAD_BYTES).sum();
        world.charge(held, bytes)
    }

    /// As [`TransactionState::charge_reads`], for a scan.
    pub(crate) fn charge_range(
        &self,
        world: &mut World,
        held: &mut Held,
        span: &Span,
    ) -> Result<()> {
        if self.isolation != Isolation::Serializable {
            return Ok(());
        }
        world.charge(held, span.size() + OP_OVERHEAD_BYTES)
    }

    /// Bytes of the writes so far.
    pub(crate) fn size(&self) -> usize {
        self.stage.bytes
    }

    pub(crate) fn get(&mut self, world: &World, key: &[u8]) -> Option<Vec<u8>> {
        if let Some(change) = self.stage.changes.get(key) {
            return change.live(world.now_ms).map(<[u8]>::to_vec);
        }
        self.reads.push(key.to_vec());
        world
            .store
            .get(key, self.view, world.now_ms)
            .map(<[u8]>::to_vec)
    }

    pub(crate) fn scan(&mut self, world: &World, span: Span) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut entries = world.store.scan(&span, self.view, world.now_ms);
        self.stage.overlay(&span, &mut entries, world.now_ms);
        self.ranges.push(span);
        entries
    }

    pub(crate) fn write(
        &mut self,
        world: &mut World,
        held: &mut Held,
        write: &Write<'_>,
        ttl_ms: Option<u64>,
    ) -> Result<()> {
        let size = world.check_write(write, ttl_ms)?;
        world.check_batch(self.stage.bytes + size)?;
        world.check_ops(self.stage.ops + 1)?;
        world.charge(held, size)?;
        let existing = world.store.get(write.key, self.view, world.now_ms);
        self.stage.add(
            write,
            existing,
            world.settings.merge_operator,
            world.settings.limits.value,
            world.now_ms,
        )
    }

    /// Applies the writes unless another write came between. The transaction is over either way.
    pub(crate) fn commit(&mut self, world: &mut World) -> Result<Option<Seq>> {
        self.over = true;
        let changes = std::mem::take(&mut self.stage.changes);
        if changes.is_empty() {
            return Ok(None);
        }
        let written = changes
            .keys()
            .any(|key| world.store.changed(key, self.view));
        let read = self.isolation == Isolation::Serializable
            && (self
                .reads
                .iter()
                .any(|key| world.store.changed(key, self.view))
                || self
                    .ranges
                    .iter()
                    .any(|span| world.store.range_changed(span, self.view)));
        if written || read {
            let what = if written {
                "a key that it writes"
            } else {
                "what it read"
            };
            let why = format!("another write changed {what}: begin the transaction again");
            return Err(Error::new("conflict", why).retryable());
        }
        Ok(Some(world.commit(changes)))
    }
}

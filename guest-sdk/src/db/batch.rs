//! Writes that are applied together.

use std::time::Duration;

use super::{Seq, milliseconds};
use crate::codec::{Key, Value};
use crate::error::{Error, Result};
use crate::sys::{self, Op, OpKind};

/// Operations that are applied all or none, with one seq. Later operations on a key win.
///
/// ```
/// use quarry_guest::{db, testing};
///
/// # testing::Host::bare().run(|| {
/// let mut batch = db::Batch::new();
/// batch.put("name", "Ada").put("visits", 1u64).remove("draft");
/// batch.write()?;
/// assert_eq!(db::get::<u64>("visits")?, Some(1));
/// # Ok(())
/// # }).unwrap();
/// ```
#[derive(Debug, Default)]
pub struct Batch {
    ops: Vec<Op>,
    failed: Option<Error>,
}

impl Batch {
    /// A batch without operations.
    pub fn new() -> Self {
        Batch::default()
    }

    /// Stores a value. A value that has no bytes fails in [`write`](Batch::write).
    pub fn put(&mut self, key: impl Key, value: impl Value) -> &mut Self {
        self.push(OpKind::Put, key, value, Ok(None))
    }

    /// Stores a value that expires after `ttl` (at least a millisecond).
    pub fn put_for(&mut self, key: impl Key, value: impl Value, ttl: Duration) -> &mut Self {
        self.push(OpKind::Put, key, value, milliseconds(ttl).map(Some))
    }

    /// Deletes a key, whether it exists or not.
    pub fn remove(&mut self, key: impl Key) -> &mut Self {
        self.push(OpKind::Remove, key, (), Ok(None))
    }

    /// Hands an operand to the merge operator.
    pub fn merge(&mut self, key: impl Key, operand: impl Value) -> &mut Self {
        self.push(OpKind::Merge, key, operand, Ok(None))
    }

    /// How many operations there are.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether there is no operation.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Applies the batch. Fails with what an operation failed with, and with `invalid-argument` when there is none.
    pub fn write(self) -> Result<Seq> {
        match self.failed {
            Some(error) => Err(error),
            None => sys::write(self.ops),
        }
    }

    fn push(
        &mut self,
        kind: OpKind,
        key: impl Key,
        value: impl Value,
        ttl_ms: Result<Option<u64>>,
    ) -> &mut Self {
        let key = key.to_key().into_owned();
        match value
            .to_value()
            .and_then(|value| Ok((value.into_owned(), ttl_ms?)))
        {
            Ok((value, ttl_ms)) => self.ops.push(Op {
                kind,
                key,
                value,
                ttl_ms,
            }),
            Err(error) => {
                self.failed.get_or_insert(error);
            }
        }
        self
    }
}

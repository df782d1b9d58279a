//! When writes become durable.
//!
//! A reply waits by itself until the writes that it may show are durable. This module is for a guest that wants to do
//! something of its own at that moment.

use crate::db::Seq;
use crate::error::Result;
use crate::sys;

/// The newest write up to which every write is durable.
pub fn durable_seq() -> Seq {
    sys::durable_seq()
}

/// Asks that [`Guest::durable`](crate::Guest::durable) gets `tag` once every write up to `seq` is durable.
///
/// It comes in the order of `seq`, once, and never if the shard stops first. A `seq` that is durable already is told at
/// once. Up to 65,536 may be outstanding, then `limit`. Fails with `invalid-argument` where `seq` was not yet given
/// out, and where [`export!`](crate::export) does not name `durable_events`.
pub fn notify_when_durable(seq: Seq, tag: u64) -> Result<()> {
    sys::notify_when_durable(seq, tag)
}

//! Leases in the store, as the host carries them: the seam behind which they lie, and what lies behind it.
//!
//! What is done when, and what follows from it, is decided in `quarry_core::control`; here are the means. A [`LeaseStore`] carries out one
//! operation at a time on the records of nodes and shards. Three come with Quarry: the layouts `session` and `shard` over any object
//! store ([`layout::StoredLeases`]), and one in this process's memory that fails on demand ([`memory::MemoryLeases`]). All pass one suite,
//! [`conformance`].

use std::time::Duration;

use async_trait::async_trait;
use quarry_core::lease::op::{LeaseOp, OpResult, Renewal};

pub mod conformance;
pub(crate) mod driver;
pub(crate) mod events;
pub mod handle;
pub mod layout;
pub mod memory;

pub mod objects;

/// Where leases are kept, as one node sees it.
///
/// [`LeaseOp`] says what each operation means, [`OpResult`] how it can end: the variant that comes back is the operation's. The rules that
/// everything rests on:
///
/// - A write is conditional on what was seen, and of any number of writers that saw the same, one wins.
/// - *Won* and *Lost* are only said of what a reply or a read has proved. Everything else is *unknown*, also a write that was refused
///   after its reply had been lost, until it is known whose record stands there: each write has a nonce of its own.
/// - A record that was written again looks changed to every reader, even where it says the same.
/// - What lies there is hostile: too long, not JSON, of another version. A lease that cannot be read counts as vacant, with its tag, so that
///   a claim repairs it; a node that cannot be read is told as an error, and is nobody.
///
/// Several operations can be in progress at once; not two on one shard, and not two that write this node's session.
#[async_trait]
pub trait LeaseStore: Send + Sync + 'static {
    /// What keeps a lease alive here.
    fn renewal(&self) -> Renewal;

    /// Carries out an operation within `limit`. What is not known by then is unknown.
    async fn run(&self, op: LeaseOp, limit: Duration) -> OpResult;
}

#[cfg(test)]
mod tests;

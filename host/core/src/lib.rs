//! The pure decisions of Quarry: no clock, no I/O, no async, no randomness. Time and random numbers come in as arguments, so that a
//! table can test every rule and a seed can replay every run.
//!
//! - [`hash`]: which shard a key belongs to, for ever.
//! - [`backoff`]: how long to wait before a shard is opened again.
//! - [`pool`]: how many instances queries may have.
//! - [`retry`]: whether a call that failed may be made again, and when.
//! - [`traps`]: whether a guest that failed is restarted or quarantined.
//! - [`strategy`]: what becomes of a shard that went down.

pub mod backoff;
pub mod hash;
pub mod pool;
pub mod retry;
pub mod strategy;
pub mod traps;

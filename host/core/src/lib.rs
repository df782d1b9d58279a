//! The pure decisions of Quarry: no clock, no I/O, no async, no randomness. Time and random numbers come in as arguments, so that a
//! table can test every rule and a seed can replay every run.
//!
//! - [`deploy`]: which revision each shard is to run, and how a rollout goes on.
//! - [`hash`]: which shard a key belongs to, for ever.
//! - [`backoff`]: how long to wait before a shard is opened again.
//! - [`pool`]: how many instances queries may have.
//! - [`retry`]: whether a call that failed may be made again, and when.
//! - [`route`]: where a call goes.
//! - [`chain`]: which calls between shards may be made.
//! - [`timers`]: when a timer that failed is tried again.
//! - [`traps`]: whether a guest that failed is restarted or quarantined.
//! - [`strategy`]: which shards a node is to have, and what becomes of one that went down.
//! - [`placement`]: fair shares.
//! - [`lease`]: who may open a shard, as it stands in the bucket.
//! - [`control`]: the loop that keeps, claims, moves and frees leases.
//! - [`runner`]: opens and closes shards in order, and stops them at their deadline.
//! - [`time`], [`rng`]: moments and seeded numbers.
//! - [`rules`]: ways to break all that on purpose, for the simulator.

pub mod backoff;
pub mod chain;
pub mod control;
pub mod deploy;
pub mod hash;
pub mod lease;
pub mod placement;
pub mod pool;
pub mod retry;
pub mod rng;
pub mod route;
pub mod rules;
pub mod runner;
pub mod strategy;
pub mod time;
pub mod timers;
pub mod traps;

#[cfg(test)]
mod tests;

//! Leases: who may open a shard, as it stands in the bucket.
//!
//! - [`record`]: the bodies of a node's session and of a shard's lease, and what they may hold.
//! - [`object`]: what a store is asked and answers.
//! - [`op`]: the operations that the loop ([`crate::control`]) is built on, and their outcomes.
//! - [`layout`]: those operations as machines over a store, in two layouts.

pub mod layout;
pub mod object;
pub mod op;
pub mod record;

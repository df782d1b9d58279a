//! Which revision each shard runs, carried out: what lies in the bucket, and what nodes and operators do with it.
//!
//! The decisions are the core's ([`quarry_core::deploy`]). All state is in the bucket, under `<path>/_quarry/`:
//!
//! - `objects`: the components, revisions and the rollout record there, bounded and verified.

pub mod objects;

pub use objects::{Draft, Error, ModuleObject, Objects, Stored, Written};

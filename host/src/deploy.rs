//! Which revision each shard runs, carried out: what lies in the bucket, and what nodes and operators do with it.
//!
//! The decisions are the core's ([`quarry_core::deploy`]). All state is in the bucket, under `<path>/_quarry/`:
//!
//! - `objects`: the components, revisions and the rollout record there, bounded and verified;
//! - `loader`: makes guests of what lies there;
//! - `limits`: what a revision may use;
//! - `catalog`: the revisions that a node has made ready;
//! - `placeholder`: what shards run before anything was deployed.

mod catalog;
pub mod limits;
mod loaded;
mod loader;
pub mod objects;
pub mod placeholder;

pub use objects::{Draft, Error, ModuleObject, Objects, Stored, Written};

pub(crate) use catalog::Catalog;
pub(crate) use loaded::{Loaded, Source};
pub use loader::{Library, Loader};

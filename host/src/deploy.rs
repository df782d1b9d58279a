//! Which revision each shard runs, carried out: what lies in the bucket, and what nodes and operators do with it.
//!
//! The decisions are the core's ([`quarry_core::deploy`]). All state is in the bucket, under `<path>/_quarry/`:
//!
//! - `objects`: the components, revisions and the rollout record there, bounded and verified;
//! - `loader`: makes guests of what lies there;
//! - `limits`: how much a revision may use; `grants`: what it may use beyond its shard;
//! - `catalog`: the revisions that a node has made ready;
//! - `placeholder`: what shards run before anything was deployed;
//! - `operate`: what an operator does with what lies in the bucket;
//! - `wire`: the same as JSON.

mod catalog;
pub mod grants;
pub mod limits;
mod loaded;
mod loader;
pub mod objects;
pub mod operate;
pub mod placeholder;
pub mod wire;

pub use objects::{Draft, Error, ModuleObject, Objects, Stored, Written};

pub(crate) use catalog::Catalog;
pub(crate) use loaded::{Loaded, Source};
pub use loader::{Library, Loader};
pub use operate::{DeployError, Founded, Ordered, Pruned, RolloutOptions};

//! Which revision each shard is to run, as it stands in the bucket, and how a rollout goes on.
//!
//! - `revision`: what a deployment is made of (`_quarry/revisions/<n>.json`), immutable;
//! - `selection`: the shards that run the new revision already;
//! - `record`: the state of the rollout (`_quarry/rollout.json`), which changes by compare-and-set alone;
//! - `command`: what an operator may want of it;
//! - `advance`: the next step, from the record and from what the nodes say.
//!
//! All that a rollout is stands in the record, so any node can carry on what another began. Whoever coordinates reads the record, asks the
//! nodes, and writes what [`advance`] says; when two do, one write wins, and the other reads again.

mod advance;
mod command;
mod record;
mod revision;
mod selection;

pub use advance::{Check, Sample, Seen, ShardSeen, advance};
pub use command::{Command, Refused, command};
pub use record::{
    Active, Ended, Gates, MAX_ROLLOUT_BYTES, Outcome, Phase, Plan, ROLLOUT, RolloutRecord,
};
pub use revision::{
    Digest, MAX_GRANTS, MAX_LIMITS, MAX_MODULES, MAX_NOTE, MAX_OPTIONS, MAX_REVISION_BYTES,
    ModuleSpec, Revision, is_module_name,
};
pub use selection::{MAX_RANGES, NoSelection, Selection, ShardRange};

#[cfg(test)]
mod tests;

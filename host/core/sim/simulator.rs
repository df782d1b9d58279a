//! The simulator of the core: a whole cluster of loops, runners and routers, with clocks, a store, databases and callers that are
//! models, in one thread and one queue of events. A seed decides everything, prints and replays a run.
//!
//! - [`setup`] is what a seed expands to, [`world`] is the run: a phase of faults, then a quiet one in which everything must settle,
//!   stay still, and take single clean changes within their bounds.
//! - [`store`], [`database`], [`clock`] are the models; [`queue`] and [`rng`] carry them.
//! - [`history`] judges what callers saw; `world/checks.rs` judges every write and every opening; `world/quiet.rs` what must come
//!   true in time.
//! - [`teeth`] breaks one rule at a time, and says who has to notice.

#![allow(
    dead_code,
    reason = "the test and the example each use a part of what they share"
)]

pub mod clock;
pub mod database;
pub mod history;
pub mod queue;
pub mod rng;
pub mod setup;
pub mod store;
pub mod teeth;
pub mod world;

use quarry_core::rules::{Mutation, Rules};
use setup::{Climate, Setup};
use world::{Outcome, World};

/// Runs a seed to its end, or to its first violation.
pub fn run(seed: u64, climate: Climate, mutation: Option<Mutation>, trace: bool) -> Outcome {
    let rules = mutation.map_or_else(Rules::default, Rules::without);
    World::new(Setup::new(seed).in_climate(climate), rules, trace).run()
}

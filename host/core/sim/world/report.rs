//! What a run comes to.

use quarry_core::rules::Mutation;

use super::super::queue::{SECOND, Time};
use super::super::setup::{Climate, Setup};

/// A promise that was broken.
#[derive(Debug, Clone)]
pub struct Violation {
    /// The oracle that noticed, by its name in the list of invariants.
    pub oracle: &'static str,
    pub words: String,
    pub at: Time,
}

/// Counters of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Figures {
    pub events: u64,
    pub simulated: Time,
    /// Nanoseconds that nodes ran, all nodes together.
    pub node_time: Time,
    pub requests: u64,
    pub claims: u64,
    pub claims_lost: u64,
    pub opens: u64,
    pub calls: u64,
    pub calls_done: u64,
    pub calls_unknown: u64,
    pub strikes: u64,
    pub probes: u64,
    pub moves: u64,
    pub moves_least: u64,
    pub late: u64,
    pub self_fenced: u64,
    pub sessions_lost: u64,
    pub tombstones: u64,
    pub mass_expiries: u64,
    pub orders: u64,
    pub rollouts: u64,
    pub adopted: u64,
    pub rolled_back: u64,
    pub swaps: u64,
    pub steady_rounds: u64,
    pub steady_requests: u64,
}

impl Figures {
    /// Adds another run's.
    pub fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.simulated += other.simulated;
        self.node_time += other.node_time;
        self.requests += other.requests;
        self.claims += other.claims;
        self.claims_lost += other.claims_lost;
        self.opens += other.opens;
        self.calls += other.calls;
        self.calls_done += other.calls_done;
        self.calls_unknown += other.calls_unknown;
        self.strikes += other.strikes;
        self.probes += other.probes;
        self.moves += other.moves;
        self.moves_least += other.moves_least;
        self.late += other.late;
        self.self_fenced += other.self_fenced;
        self.sessions_lost += other.sessions_lost;
        self.tombstones += other.tombstones;
        self.mass_expiries += other.mass_expiries;
        self.orders += other.orders;
        self.rollouts += other.rollouts;
        self.adopted += other.adopted;
        self.rolled_back += other.rolled_back;
        self.swaps += other.swaps;
        self.steady_rounds += other.steady_rounds;
        self.steady_requests += other.steady_requests;
    }

    /// Hours that nodes ran.
    pub fn node_hours(&self) -> f64 {
        self.node_time as f64 / SECOND as f64 / 3600.0
    }
}

/// A run that ended.
#[derive(Debug)]
pub struct Outcome {
    pub setup: Setup,
    pub violation: Option<Violation>,
    pub figures: Figures,
}

impl Outcome {
    /// Everything that is needed to look into a violation.
    pub fn describe(&self, climate: Climate, mutation: Option<Mutation>) -> String {
        let Some(violation) = &self.violation else {
            return format!("seed {} passed", self.setup.seed);
        };
        let mutation = mutation.map_or_else(String::new, |name| format!(" --mutation {name:?}"));
        let climate = if climate == Climate::Usual {
            String::new()
        } else {
            format!(" --climate {climate:?}")
        };
        format!(
            "seed {seed} broke {oracle} after {at:.3} s: {words}\nreplay: cargo run --release -p quarry-core --example sim -- --seed {seed} --trace{climate}{mutation}\noptions: {setup:#?}",
            seed = self.setup.seed,
            oracle = violation.oracle,
            at = violation.at as f64 / SECOND as f64,
            words = violation.words,
            setup = self.setup,
        )
    }
}

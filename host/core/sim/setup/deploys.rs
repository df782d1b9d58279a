//! What a seed decides of rollouts: the revisions there are, how they fare, and how often operators want what.

use super::super::queue::{MILLI, SECOND, Time};
use super::super::rng::Rng;

/// Rollouts of a run.
#[derive(Debug, Clone)]
pub struct Deploys {
    /// Whether there are any: half of the runs go without, and stay as quick as they were.
    pub on: bool,
    /// The mean time between two orders of operators.
    pub gap: Time,
    /// The usual time to fetch and compile a revision, and to swap a shard.
    pub compile: Time,
    pub swap: Time,
    /// How many shards of a node swap at once.
    pub at_once: usize,
    /// How often a node reads the record while no rollout is in progress.
    pub poll: Time,
    pub step_timeout: Time,
    pub bake: Time,
    /// The revisions, from 1.
    pub guests: Vec<Guest>,
}

/// How a revision fares.
#[derive(Debug, Clone, Default)]
pub struct Guest {
    /// One of so many nodes refuses it; 0 for none.
    pub refused: u64,
    /// The shard on which it never starts.
    pub fails_on: Option<u32>,
    /// How often it does not start, while faults last.
    pub fails: f64,
    /// The share of its calls that fail with an error, and that trap.
    pub errors: f64,
    pub traps: f64,
}

impl Deploys {
    /// Those of a seed: drawn apart from all else, so that they move nothing else.
    pub fn new(seed: u64, shards: u32, ttl: Time) -> Self {
        let mut rng = Rng::new(seed, 6);
        let on = rng.chance(0.5);
        // The first one, and a second, are good: what runs first has to run somewhere, and something has to be adopted in the end.
        let mut guests = vec![Guest::default(); 2];
        for _ in 0..4 {
            guests.push(match rng.range(0, 7) {
                0 => Guest {
                    refused: rng.range(1, 4),
                    ..Guest::default()
                },
                1 => Guest {
                    fails_on: u32::try_from(rng.range(0, u64::from(shards))).ok(),
                    ..Guest::default()
                },
                2 => Guest {
                    fails: 0.1,
                    ..Guest::default()
                },
                3 => Guest {
                    errors: 0.5,
                    ..Guest::default()
                },
                4 => Guest {
                    traps: 0.1,
                    ..Guest::default()
                },
                _ => Guest::default(),
            });
        }
        Self {
            on,
            gap: rng.range(ttl / 2, 3 * ttl),
            compile: rng.range(50 * MILLI, 3 * SECOND),
            swap: rng.range(2 * MILLI, 500 * MILLI),
            at_once: *rng.pick(&[1, 4, 16]),
            poll: *rng.pick(&[2, 5, 10]) * SECOND,
            step_timeout: *rng.pick(&[10, 20, 40]) * SECOND,
            bake: *rng.pick(&[0, 0, 2, 5]) * SECOND,
            guests,
        }
    }

    /// A revision; those that were never made are like the first.
    pub fn guest(&self, revision: u64) -> Guest {
        let index = usize::try_from(revision.saturating_sub(1)).unwrap_or(0);
        self.guests.get(index).cloned().unwrap_or_default()
    }
}

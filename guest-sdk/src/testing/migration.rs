//! The steps of a migration, under the limits that the host has for them.

use std::time::{Duration, Instant};

use super::Limits;
use crate::error::{Error, Result};

/// A migration that goes on.
pub(super) struct Migration {
    step_time: Duration,
    time: Duration,
    begun: Instant,
    steps: u64,
}

impl Migration {
    pub(super) fn new(limits: &Limits) -> Self {
        Migration {
            step_time: limits.migrate_step_time,
            time: limits.migrate_time,
            begun: Instant::now(),
            steps: 0,
        }
    }

    /// Runs a step; true when it was the last. The host cuts one that takes too long off; here it is told once it is over.
    pub(super) fn next(&mut self, step: impl FnOnce() -> Result<bool>) -> Result<bool> {
        let now = Instant::now();
        self.steps += 1;
        let stepped = step();
        let (took, elapsed) = (now.elapsed(), self.begun.elapsed());
        let late = |why: String| Err(Error::new("limit", why));
        if took > self.step_time {
            let (steps, limit) = (self.steps, self.step_time);
            return late(format!(
                "step {steps} of the migration took {took:.1?}, over limits.migrate_step_time ({limit:?})"
            ));
        }
        let done = stepped?;
        if !done && elapsed >= self.time {
            let (steps, limit) = (self.steps, self.time);
            return late(format!(
                "the migration is not done after {steps} steps and {elapsed:.1?} (limits.migrate_time {limit:?})"
            ));
        }
        Ok(done)
    }
}

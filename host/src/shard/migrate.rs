//! A migration: a revision brings the stored data to what it serves, one step of its instance after another, before it serves a call.
//!
//! A step is an exclusive piece of work of the shard's task, as a call is. In a swap the steps have at most half of the time, and calls of the
//! older revision the rest ([`Due`]); a shard that opens has nothing else to do. Between two steps the shard can be stopped, restarted
//! or swapped. What the steps wrote stays, however it ends: the next migration goes on from there.

use std::time::{Duration, Instant};

use super::swap::Coming;
use super::task::{Guest, Shard};
use crate::clock;
use crate::guest::{Failure, Instance, Limits, Trap, TrapKind};

/// How much longer than its limit a step may take; a component never does.
const STEP_GRACE: Duration = Duration::from_secs(5);

/// An instance that was started, and is not to serve before its migration is done.
pub(super) struct Migration {
    instance: Box<dyn Instance>,
    /// The revision that the shard runs meanwhile; 0 where it runs none.
    from: u64,
    /// `limits.migrate_step_time`.
    step_time: Duration,
    /// `limits.migrate_time`.
    time: Duration,
    /// Steps that began.
    steps: u64,
    /// When the first one began.
    begun: Option<Instant>,
    /// When the next one is due, though calls wait.
    next: Instant,
}

impl Migration {
    pub(super) fn new(instance: Box<dyn Instance>, from: u64, limits: &Limits) -> Self {
        Self {
            instance,
            from,
            step_time: limits.migrate_step_time,
            time: limits.migrate_time,
            steps: 0,
            begun: None,
            next: clock::now(),
        }
    }

    /// Runs the next step, within its limits; true when it was the last. After an error the instance is not to be used any more.
    pub(super) async fn step(&mut self) -> Result<bool, Failure> {
        let now = clock::now();
        let begun = *self.begun.get_or_insert(now);
        self.steps += 1;
        // A component is bounded by its limits. Native logic may hang, and must not take the shard along.
        let limit = self.step_time + STEP_GRACE;
        let stepped = clock::timeout(limit, self.instance.migrate(self.from)).await;
        let ended = clock::now();
        let elapsed = ended.saturating_duration_since(begun);
        let done = stepped
            .unwrap_or_else(|_| {
                let words =
                    format!("it lasted longer than limits.migrate_step_time and {STEP_GRACE:?}");
                Err(Failure::Trap(Trap::new(TrapKind::WallTime, words)))
            })
            .map_err(|failure| self.at_step(failure, elapsed))?;
        if done {
            return Ok(true);
        }
        if elapsed >= self.time {
            let (steps, time) = (self.steps, self.time);
            let words = format!(
                "the migration is not done after {steps} steps and {elapsed:.1?} (limits.migrate_time {time:?}); what they wrote stays, and the next try goes on from there"
            );
            return Err(Failure::Trap(Trap::new(TrapKind::WallTime, words)));
        }
        self.next = ended + ended.saturating_duration_since(now);
        Ok(false)
    }

    /// When the next step is due, though calls wait.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// The instance, once a step was the last.
    pub(super) fn into_instance(self) -> Box<dyn Instance> {
        self.instance
    }

    /// Says of a migration that is done what it came to.
    pub(super) fn tell(&self, shard: u32, revision: u64) {
        let elapsed = self
            .begun
            .map(|begun| clock::now().saturating_duration_since(begun));
        let (from, steps) = (self.from, self.steps);
        // One step says that there was nothing to do.
        if steps > 1 {
            tracing::info!(shard, revision, from, steps, ?elapsed, "data migrated");
        }
    }

    fn at_step(&self, failure: Failure, elapsed: Duration) -> Failure {
        let at = format!(
            "step {} of the migration, {elapsed:.1?} after its beginning: ",
            self.steps
        );
        match failure {
            Failure::Error(mut error) => {
                error.message.insert_str(0, &at);
                Failure::Error(error)
            }
            Failure::Trap(mut trap) => {
                trap.message.insert_str(0, &at);
                Failure::Trap(trap)
            }
            Failure::NoRoom(why) => Failure::NoRoom(why),
        }
    }
}

/// When the shard's task is to run a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// There is none to run.
    Never,
    /// When there is nothing else to do.
    Idle,
    /// As [`Due::Idle`], and before any call from this time on.
    At(Instant),
}

impl Due {
    pub(super) fn is_some(self) -> bool {
        self != Self::Never
    }

    /// Waits until a step goes before calls, for ever where none does. Safe to drop.
    pub(super) async fn before_calls(self) {
        match self {
            Self::At(at) if clock::now() < at => clock::sleep_until(at).await,
            // Others of the thread get their turn, however short the steps are.
            Self::At(_) => tokio::task::consume_budget().await,
            Self::Never | Self::Idle => std::future::pending().await,
        }
    }
}

impl Shard {
    /// When the next step is to run. None does once the shard has ended: the word to stop is on its way.
    pub(super) fn step_due(&self) -> Due {
        let due = match (
            self.coming.as_ref().and_then(Coming::migration),
            &self.guest,
        ) {
            (Some(migration), _) => Due::At(migration.next()),
            (None, Guest::Migrating(..)) => Due::Idle,
            (None, _) => return Due::Never,
        };
        if self.gate.is_over() || self.gate.deadline().passed() {
            return Due::Never;
        }
        due
    }

    /// Runs a step: of a swap, or, in the time that is for calls, of the guest that the shard opens with. Where both migrate, each has half of
    /// the time: the one may heal a shard whose guest does not get there, the other serves between the steps of a swap.
    pub(super) async fn step(&mut self, idle: bool) {
        let swaps = self.coming.as_ref().and_then(Coming::migration).is_some();
        let migration = match &mut self.guest {
            Guest::Migrating(migration, _) if idle || !swaps => migration,
            _ => return self.step_swap().await,
        };
        let stepped = migration.step().await;
        if stepped == Ok(false) {
            return;
        }
        // In its place is what a failure makes of it.
        let guest = std::mem::replace(&mut self.guest, Guest::Waiting(clock::now()));
        let Guest::Migrating(migration, restarted) = guest else {
            return;
        };
        match stepped {
            Ok(_) => {
                migration.tell(self.shard, self.module.describe().revision);
                self.serve(migration.into_instance());
            }
            Err(failure) => self.not_started_for(failure, "migration"),
        }
        if let Some(restarted) = restarted {
            self.tell_restarted(restarted);
        }
    }
}

#[cfg(test)]
mod tests;

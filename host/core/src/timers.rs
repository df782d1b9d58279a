//! When a durable timer that failed is tried again.

use std::time::Duration;

/// How a timer failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The guest answered with an error, or the host could not read what the timer holds.
    Error,
    /// The guest trapped.
    Trap,
}

impl Failure {
    /// The first pause after it, and the longest.
    const fn pauses(self) -> (Duration, Duration) {
        match self {
            Self::Error => ERROR,
            Self::Trap => TRAP,
        }
    }
}

/// The first pause after a failure, and the longest.
const ERROR: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Longer than what the pauses of a trapping guest come to within `limits.trap_window`, so that one timer alone quarantines no shard.
const TRAP: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(600));

/// How often a timer failed since it last went well, or was set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backoff {
    errors: u32,
    traps: u32,
}

impl Backoff {
    /// As it was after so many failures of each kind.
    #[must_use]
    pub const fn of(errors: u32, traps: u32) -> Self {
        Self { errors, traps }
    }

    /// How often it failed with an error.
    #[must_use]
    pub const fn errors(&self) -> u32 {
        self.errors
    }

    /// How often it trapped.
    #[must_use]
    pub const fn traps(&self) -> u32 {
        self.traps
    }

    /// Whether this was the longest pause after such a failure. What comes next is then the same, whether it is counted or not.
    #[must_use]
    pub fn is_longest(failure: Failure, pause: Duration) -> bool {
        let (_, longest) = failure.pauses();
        pause >= longest
    }

    /// The pause after one more failure. Each kind of failure doubles its own pauses.
    pub fn failed(&mut self, failure: Failure) -> Duration {
        let (first, longest) = failure.pauses();
        let count = match failure {
            Failure::Error => &mut self.errors,
            Failure::Trap => &mut self.traps,
        };
        let pause = first.saturating_mul(1 << (*count).min(16)).min(longest);
        *count = count.saturating_add(1);
        pause
    }

    /// How often it failed.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.errors.saturating_add(self.traps)
    }
}

#[cfg(test)]
mod tests {
    use super::Failure::{Error, Trap};
    use super::*;
    use crate::traps::{Ledger, Verdict};

    #[test]
    fn pauses_double_up_to_the_longest_of_their_kind() {
        let cases: [(&[Failure], &[u64]); 4] = [
            (&[Error; 9], &[1, 2, 4, 8, 16, 32, 60, 60, 60]),
            (&[Trap; 7], &[20, 40, 80, 160, 320, 600, 600]),
            (&[Error, Trap, Error, Trap, Error], &[1, 20, 2, 40, 4]),
            (&[], &[]),
        ];
        for (failures, seconds) in cases {
            let mut backoff = Backoff::default();
            let pauses: Vec<u64> = failures
                .iter()
                .map(|failure| backoff.failed(*failure).as_secs())
                .collect();
            assert_eq!(pauses, seconds, "{failures:?}");
            assert_eq!(backoff.failures() as usize, failures.len());
        }
    }

    /// Of a count that is kept as long as pauses grow nothing is missing.
    #[test]
    fn pauses_go_on_after_the_last_count_that_mattered() {
        for failure in [Error, Trap] {
            let (mut counted, mut kept) = (Backoff::default(), Backoff::default());
            let mut stored = 0;
            for nth in 0..20 {
                let pause = counted.failed(failure);
                assert_eq!(kept.failed(failure), pause, "{failure:?} {nth}");
                // It is read again before each.
                kept = match Backoff::is_longest(failure, pause) {
                    true if failure == Error => Backoff::of(stored, 0),
                    true => Backoff::of(0, stored),
                    false => {
                        stored += 1;
                        assert_eq!(stored, kept.errors() + kept.traps());
                        kept
                    }
                };
            }
            assert!(stored <= 6, "{failure:?}: {stored} counts were kept");
        }
    }

    #[test]
    fn a_long_life_of_failures_ends_in_no_overflow() {
        let mut backoff = Backoff {
            errors: u32::MAX,
            traps: u32::MAX,
        };
        assert_eq!(backoff.failed(Error), ERROR.1);
        assert_eq!(backoff.failed(Trap), TRAP.1);
        assert_eq!(backoff.failures(), u32::MAX);
    }

    /// Under the default limits of traps.
    #[test]
    fn one_timer_that_always_traps_does_not_quarantine_its_shard() {
        let mut backoff = Backoff::default();
        let mut ledger = Ledger::new(5, Duration::from_secs(60));
        let mut now = Duration::ZERO;
        for _ in 0..100 {
            assert!(
                matches!(ledger.trapped(now), Verdict::Restart(_)),
                "{now:?}"
            );
            now += backoff.failed(Trap);
        }
    }
}

//! Pauses between attempts: they double from 1 s to 60 s, with jitter, and start over after a long uptime.

use std::time::Duration;

/// The first pause.
pub const FIRST: Duration = Duration::from_secs(1);
/// The longest pause.
pub const LONGEST: Duration = Duration::from_secs(60);
/// An uptime after which the pauses start over.
pub const LONG_UPTIME: Duration = Duration::from_secs(60);

/// How often something failed in a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The pause after one more failure, which came after `uptime`. `random` is from 0 (inclusive) to 1 (exclusive); it
    /// spreads the pause over its upper half, so that shards that failed together do not come back together.
    pub fn failed(&mut self, uptime: Duration, random: f64) -> Duration {
        if uptime >= LONG_UPTIME {
            self.failures = 0;
        }
        let pause = FIRST
            .saturating_mul(1 << self.failures.min(16))
            .min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        pause.mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u64> = (0..8)
            .map(|_| backoff.failed(Duration::ZERO, 1.0).as_secs())
            .collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
    }

    #[test]
    fn jitter_takes_the_upper_half() {
        for (random, ms) in [
            (0.0, 500),
            (0.5, 750),
            (1.0, 1000),
            (7.0, 1000),
            (-1.0, 500),
        ] {
            assert_eq!(
                Backoff::default()
                    .failed(Duration::ZERO, random)
                    .as_millis(),
                ms,
                "{random}"
            );
        }
    }

    #[test]
    fn a_long_uptime_starts_over() {
        let mut backoff = Backoff { failures: 5 };
        assert_eq!(backoff.failed(Duration::from_secs(59), 1.0).as_secs(), 32);
        assert_eq!(backoff.failed(LONG_UPTIME, 1.0).as_secs(), 1);
        assert_eq!(backoff.failed(Duration::ZERO, 1.0).as_secs(), 2);
    }
}

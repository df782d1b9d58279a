//! Whether a guest that trapped is restarted or quarantined.

use std::collections::VecDeque;
use std::time::Duration;

/// The longest pause before a restart.
const LONGEST: Duration = Duration::from_secs(5);

/// The traps of one shard's guest. Times are since any fixed moment, and do not go back.
#[derive(Debug, Clone)]
pub struct Ledger {
    allowed: usize,
    window: Duration,
    recent: VecDeque<Duration>,
}

/// What becomes of a guest that trapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Make another instance after a pause.
    Restart(Duration),
    /// It failed too often: refuse calls until someone restarts or swaps it.
    Quarantine,
}

impl Ledger {
    /// A ledger that bears `allowed` traps within `window`.
    #[must_use]
    pub fn new(allowed: usize, window: Duration) -> Self {
        Self {
            allowed,
            window,
            recent: VecDeque::new(),
        }
    }

    /// Takes a trap at `now`. The first restart of a window is at once, the pauses then double from 100 ms.
    pub fn trapped(&mut self, now: Duration) -> Verdict {
        while self
            .recent
            .front()
            .is_some_and(|then| now.saturating_sub(*then) >= self.window)
        {
            self.recent.pop_front();
        }
        self.recent.push_back(now);
        let count = self.recent.len();
        if count > self.allowed {
            return Verdict::Quarantine;
        }
        if count == 1 {
            return Verdict::Restart(Duration::ZERO);
        }
        let doublings = u32::try_from(count - 2).unwrap_or(u32::MAX).min(16);
        Verdict::Restart(
            Duration::from_millis(100)
                .saturating_mul(1 << doublings)
                .min(LONGEST),
        )
    }

    /// Forgets every trap: someone restarted or swapped the guest.
    pub fn clear(&mut self) {
        self.recent.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sixth_trap_in_a_minute_quarantines() {
        let mut ledger = Ledger::new(5, Duration::from_secs(60));
        let ms = |ms| Verdict::Restart(Duration::from_millis(ms));
        let verdicts: Vec<Verdict> = (0..6)
            .map(|s| ledger.trapped(Duration::from_secs(s)))
            .collect();
        assert_eq!(
            verdicts,
            [
                ms(0),
                ms(100),
                ms(200),
                ms(400),
                ms(800),
                Verdict::Quarantine
            ]
        );
        ledger.clear();
        assert_eq!(ledger.trapped(Duration::from_secs(7)), ms(0));
    }

    #[test]
    fn traps_that_are_far_apart_do_not_add_up() {
        let mut ledger = Ledger::new(1, Duration::from_secs(60));
        for minute in 0..100 {
            assert_eq!(
                ledger.trapped(Duration::from_secs(60 * minute)),
                Verdict::Restart(Duration::ZERO)
            );
        }
    }

    #[test]
    fn no_trap_at_all_may_be_borne() {
        assert_eq!(
            Ledger::new(0, Duration::from_secs(1)).trapped(Duration::ZERO),
            Verdict::Quarantine
        );
    }
}

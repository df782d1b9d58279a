//! How long a flush waits for the callers that the last one released.
//!
//! Callers that call again as soon as they have their reply come back in a burst. A flush that begins with the first of them leaves
//! the others waiting for the next, so each reply costs two flushes of time and the store twice the requests. So a flush waits for
//! about as many as are known to be there, for as long as a flush takes at most; where few come, it soon stops trying.

use std::time::Duration;

/// The longest wait, however slow the store.
const MAX: Duration = Duration::from_millis(10);
/// One in so many may be missing: a caller that left, or is slow, does not hold up the others.
const MISSING: usize = 8;
/// A wait that did not bring enough was worth it when there are so many times as many after it as before. Callers that come at
/// random, and not because they were released, about double in the time of a flush.
const WORTH: usize = 3;
/// Flushes without a try after tries that failed, at most. Each failure doubles them.
const PAUSE_MAX: u32 = 64;

/// What is known of the callers.
#[derive(Debug, Default)]
pub(super) struct Gather {
    /// Who waited when the last flush ended, those that it released among them.
    callers: usize,
    /// What the last flush took.
    took: Duration,
    /// Flushes until the next try, and how many it was last time.
    pause: u32,
    paused: u32,
}

impl Gather {
    /// A flush ended: it took so long, released so many, and so many wait for the next.
    pub(super) fn flushed(&mut self, took: Duration, released: usize, waiting: usize) {
        self.took = took;
        self.callers = released.saturating_add(waiting);
        self.pause = self.pause.saturating_sub(1);
    }

    /// For how many the next flush waits, and for how long at most; none where it begins at once.
    pub(super) fn wanted(&self, waiting: usize) -> Option<(usize, Duration)> {
        let enough = self.callers - self.callers / MISSING;
        (self.pause == 0 && waiting < enough).then(|| (enough, self.took.min(MAX)))
    }

    /// A wait for `enough` ended: so many waited before it and after it.
    pub(super) fn waited(&mut self, enough: usize, before: usize, after: usize) {
        // In a steady stream that no reply drives, half of the callers wait already when a flush ends: for them it was in vain.
        let came = after >= enough && before.saturating_mul(2) <= enough;
        self.paused = if came || after >= before.saturating_mul(WORTH) {
            0
        } else {
            (self.paused * 2).clamp(1, PAUSE_MAX)
        };
        self.pause = self.paused;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLUSH: Duration = Duration::from_millis(4);

    #[test]
    fn waits_for_most_of_who_is_there() {
        for (released, waiting, wanted) in [
            (0, 0, None),
            (1, 0, Some(1)),
            (1, 1, Some(2)),
            (60, 4, Some(56)),
            (8, 56, None),
            (9, 55, Some(56)),
        ] {
            let mut gather = Gather::default();
            gather.flushed(FLUSH, released, waiting);
            let found = gather.wanted(waiting);
            assert_eq!(
                found,
                wanted.map(|enough| (enough, FLUSH)),
                "{released} released, {waiting} waiting"
            );
        }
    }

    #[test]
    fn a_slow_store_is_no_reason_to_wait_long() {
        let mut gather = Gather::default();
        gather.flushed(Duration::from_secs(5), 2, 0);
        assert_eq!(gather.wanted(0), Some((2, MAX)));
    }

    #[test]
    fn who_does_not_come_is_waited_for_ever_more_rarely() {
        let mut gather = Gather::default();
        let mut tries = Vec::new();
        for flush in 0..200 {
            gather.flushed(FLUSH, 10, 0);
            if let Some((enough, _)) = gather.wanted(3) {
                tries.push(flush);
                gather.waited(enough, 3, 6);
            }
        }
        assert_eq!(tries, [0, 1, 3, 7, 15, 31, 63, 127, 191]);
    }

    #[test]
    fn it_goes_on_where_waiting_was_worth_it() {
        for (before, after, again) in [
            (1, 9, true),
            (4, 9, true),
            (5, 9, false),
            (2, 6, true),
            (2, 5, false),
        ] {
            let mut gather = Gather::default();
            gather.flushed(FLUSH, 10, 0);
            let (enough, _) = gather.wanted(before).expect("a wait");
            gather.waited(enough, before, after);
            gather.pause += 1;
            gather.flushed(FLUSH, 10, 0);
            assert_eq!(gather.wanted(1).is_some(), again, "{before} to {after}");
        }
    }
}

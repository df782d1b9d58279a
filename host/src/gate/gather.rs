//! How long a flush waits for the callers that the last one released.
//!
//! Callers that call again as soon as they have their reply come back in a burst. A flush that begins with the first of them leaves
//! the others waiting for the next, so each reply costs two flushes of time and the store twice the requests. A flush that waits for them
//! serves all at once. Callers that come whenever they like would only wait longer for it.
//!
//! Which of the two is the case cannot be told by counting, so it is tried: both ways are compared by the time that replies wait at the
//! gate, in rounds of some flushes, and the better one is kept. The other is tried again now and then, ever more rarely while it stays
//! the worse.

use std::time::Duration;

/// The longest wait, however slow the store.
const MAX: Duration = Duration::from_millis(10);
/// The longest wait, in flushes.
const FLUSHES: u32 = 3;
/// One in so many may be missing: a caller that left, or is slow, does not hold up the others.
const MISSING: usize = 8;
/// Flushes that are judged together.
const ROUND: u32 = 16;
/// A try that is so many times as slow ends early.
const HOPELESS: u32 = 2;
/// Rounds between two tries of the other way, at most; each that fails doubles them.
const PAUSE_MAX: u32 = 64;
/// By so many percent of the time another way has to be better. What differs by less is noise.
const BETTER: u32 = 4;

/// What is known of the callers, and the way that is taken.
#[derive(Debug)]
pub(super) struct Gather {
    /// Who waited when the last flush ended, those that it released among them.
    callers: usize,
    /// What a flush takes, about.
    took: Duration,
    /// Whether flushes wait, and whether they do so (or do not) only to try it.
    waits: bool,
    trying: bool,
    round: Round,
    /// How long replies waited in the last round of the way that is kept, and in the try that followed it.
    kept: Option<Duration>,
    tried: Option<Duration>,
    /// Rounds until the next try, and how many there were before the last.
    left: u32,
    pause: u32,
}

/// The flushes since the last decision.
#[derive(Debug, Default, Clone, Copy)]
struct Round {
    flushes: u32,
    /// Replies times the time that each waited.
    waited: Duration,
    released: u32,
}

impl Default for Gather {
    fn default() -> Self {
        Self {
            callers: 0,
            took: Duration::ZERO,
            waits: false,
            trying: false,
            round: Round::default(),
            kept: None,
            tried: None,
            left: 1,
            pause: 1,
        }
    }
}

impl Gather {
    /// A flush ended: it took so long, and `since` the first reply waited for it; it released so many, and so many wait for the next.
    pub(super) fn flushed(
        &mut self,
        since: Duration,
        took: Duration,
        released: usize,
        waiting: usize,
    ) {
        self.took = (self.took * 7 + took) / 8;
        self.callers = released.saturating_add(waiting);
        // Whoever waits now has waited for a part of it only; that part is about the same either way.
        let callers = u32::try_from(self.callers).unwrap_or(u32::MAX);
        self.round.flushes += 1;
        self.round.waited = self
            .round
            .waited
            .saturating_add(since.saturating_mul(callers));
        self.round.released = self
            .round
            .released
            .saturating_add(u32::try_from(released).unwrap_or(u32::MAX));
        let waited = self.round.waited / self.round.released.max(1);
        let hopeless = self.trying
            && self.round.flushes >= ROUND / 4
            && self.kept.is_some_and(|kept| waited > kept * HOPELESS);
        if self.round.flushes >= ROUND || hopeless {
            self.round = Round::default();
            self.judge(waited);
        }
    }

    /// For how many the next flush waits, and for how long at most; none where it begins at once.
    pub(super) fn wanted(&self, waiting: usize) -> Option<(usize, Duration)> {
        let enough = self.callers - self.callers / MISSING;
        let waits = self.waits != self.trying;
        (waits && waiting < enough).then(|| (enough, (self.took * FLUSHES).min(MAX)))
    }

    /// A round ended, in which replies waited so long. A try is judged by the rounds before and after it: load comes and goes.
    fn judge(&mut self, waited: Duration) {
        if self.trying {
            self.trying = false;
            self.tried = Some(waited);
            return;
        }
        let (before, tried) = (self.kept.replace(waited), self.tried.take());
        if let (Some(before), Some(tried)) = (before, tried) {
            let better = |than: Duration| tried.saturating_mul(100) < than * (100 - BETTER);
            if better(before) && better(waited) {
                self.waits = !self.waits;
                self.kept = None;
                self.pause = 1;
            } else {
                self.pause = (self.pause * 2).min(PAUSE_MAX);
            }
            self.left = self.pause;
            return;
        }
        // Where one reply at a time waits there is nothing to gather.
        self.left = self.left.saturating_sub(1);
        self.trying = self.left == 0 && self.callers > 1;
    }
}

#[cfg(test)]
mod tests;

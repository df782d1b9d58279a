//! Until when a node may answer for a shard: the end of its lease, less the margin.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock;

/// Never reached: there are no leases.
const NEVER: u64 = u64::MAX;

/// A moment that moves on with each renewal of a lease, shared by whoever moves it and everyone who asks. On the clock that counts sleep
/// ([`clock::boot_nanos`]). Takes no lock.
#[derive(Debug)]
pub struct Deadline(AtomicU64);

impl Deadline {
    /// One that never passes: the shard needs no lease.
    #[must_use]
    pub fn never() -> Self {
        Self(NEVER.into())
    }

    /// One at a moment of [`clock::boot_nanos`].
    #[must_use]
    pub fn at(nanos: u64) -> Self {
        Self(nanos.into())
    }

    /// Moves it on; never back, and no more once it was shut.
    pub fn extend(&self, nanos: u64) {
        let later = |now| (now != 0 && now < nanos).then_some(nanos);
        // An error means that there is nothing to move.
        _ = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, later);
    }

    /// Makes it passed, for good.
    pub fn shut(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Whether it has passed. Reads the clock, unless it never passes.
    #[must_use]
    pub fn passed(&self) -> bool {
        match self.0.load(Ordering::Acquire) {
            NEVER => false,
            0 => true,
            nanos => clock::boot_nanos() >= nanos,
        }
    }

    /// What is left until it; zero once it has passed, none when it never does.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        match self.0.load(Ordering::Acquire) {
            NEVER => None,
            nanos => Some(Duration::from_nanos(
                nanos.saturating_sub(clock::boot_nanos()),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_moves_on_and_never_back_and_ends_for_good() {
        let now = clock::boot_nanos();
        let hour = 3_600_000_000_000;
        let deadline = Deadline::at(now);
        assert!(deadline.passed());
        assert_eq!(deadline.left(), Some(Duration::ZERO));
        deadline.extend(now + hour);
        deadline.extend(now + 1);
        assert!(!deadline.passed());
        assert!(deadline.left().expect("an end") > Duration::from_secs(3000));
        deadline.shut();
        deadline.extend(now + hour);
        assert!(deadline.passed(), "no renewal revives it");
        let never = Deadline::never();
        never.extend(1);
        assert!(!never.passed() && never.left().is_none());
        never.shut();
        assert!(never.passed());
    }
}

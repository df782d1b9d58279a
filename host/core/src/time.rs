//! Moments on a node's own clock. The core never reads a clock: whoever drives it says what time it is.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A moment on one node's clock, in nanoseconds since an arbitrary origin.
///
/// The clock never steps, is not set by anybody, and goes on while the machine sleeps (`CLOCK_BOOTTIME` on Linux): it is never the
/// wall clock. Moments of two nodes, or of two boots, cannot be compared. Sums and differences saturate, so that [`Moment::NEVER`]
/// stays after everything.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The origin of the clock.
    pub const ORIGIN: Self = Self(0);
    /// A moment that does not come: the deadline of what has none.
    pub const NEVER: Self = Self(u64::MAX);

    /// The moment so many nanoseconds after the clock's origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this moment; none when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;

    fn sub(self, time: Duration) -> Self {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(nanos))
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NEVER {
            return f.write_str("never");
        }
        write!(f, "{:?}", Duration::from_nanos(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_differences_saturate() {
        let second = Duration::from_secs(1);
        let at = Moment::from_nanos(5_000_000_000);
        for (left, right) in [
            (at + second, Moment::from_nanos(6_000_000_000)),
            (at - second, Moment::from_nanos(4_000_000_000)),
            (at - Duration::from_secs(9), Moment::ORIGIN),
            (Moment::NEVER + second, Moment::NEVER),
            (at + Duration::MAX, Moment::NEVER),
        ] {
            assert_eq!(left, right);
        }
        assert_eq!((at + second).since(at), second);
        assert_eq!(at.since(at + second), Duration::ZERO);
    }
}

//! The only place that reads time. Durations are measured on the monotonic clock; the wall clock is for stamps that people
//! and guests read, and decides nothing.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A moment on this process's monotonic clock.
#[must_use]
pub fn now() -> Instant {
    Instant::now()
}

/// Milliseconds since the Unix epoch.
#[must_use]
pub fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}

/// CPU time that the calling thread has used so far.
#[must_use]
pub fn thread_cpu() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    #[expect(unsafe_code, reason = "the standard library does not read this clock")]
    // SAFETY: `time` is a valid place for a timespec, and the clock exists on every Linux and macOS.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    if failed != 0 {
        return Duration::ZERO;
    }
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

//! The only place that reads time, and that waits for it. Durations are measured on the monotonic clock; the wall clock is for stamps that
//! people and guests read, and decides nothing.
//!
//! All of it is the machine's time, unless the calling thread has a [`driven`] clock, which tests give to nodes. Until a process has one,
//! that costs a load of a flag.

mod timers;

pub mod driven;

use quarry_core::time::Moment;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub use timers::{Elapsed, Sleep, Timeout, sleep, sleep_until, timeout, timeout_at};

/// A moment on this process's monotonic clock.
#[must_use]
pub fn now() -> Instant {
    driven::here().map_or_else(Instant::now, |clock| clock.now())
}

/// Nanoseconds on a clock that counts while the machine sleeps, and that nobody can set; it begins anywhere. Lease deadlines are on it: a
/// machine that slept past the end of its lease must not believe that it still has it.
#[must_use]
pub fn boot_nanos() -> u64 {
    match driven::here() {
        Some(clock) => clock.boot_nanos(),
        None => machine_boot_nanos(),
    }
}

fn machine_boot_nanos() -> u64 {
    // On macOS this one goes on during sleep, and there is no other.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: libc::clockid_t = libc::CLOCK_BOOTTIME;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    #[expect(unsafe_code, reason = "the standard library does not read this clock")]
    // SAFETY: `time` is a valid place for a timespec.
    let failed = unsafe { libc::clock_gettime(CLOCK, &raw mut time) };
    // Only a kernel from before 2011 lacks it; then no deadline can be kept, and every one counts as passed.
    if failed != 0 {
        return u64::MAX;
    }
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Now, on the clock of lease deadlines ([`boot_nanos`]).
#[must_use]
pub fn boot_now() -> Moment {
    Moment::from_nanos(boot_nanos())
}

/// The longest sleep on the way to a moment: timers stand still while the machine sleeps, and deadlines do not.
const NAP: Duration = Duration::from_secs(1);

/// Returns at a moment on the clock of lease deadlines; never without one. Safe to drop.
pub async fn until(moment: Option<Moment>) {
    let Some(moment) = moment else {
        return std::future::pending().await;
    };
    loop {
        let left = moment.since(boot_now());
        if left.is_zero() {
            return;
        }
        sleep(left.min(NAP)).await;
    }
}

/// Milliseconds since the Unix epoch.
#[must_use]
pub fn wall_ms() -> i64 {
    match driven::here() {
        Some(clock) => clock.wall_ms(),
        None => machine_wall_ms(),
    }
}

fn machine_wall_ms() -> i64 {
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

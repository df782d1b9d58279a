//! The thread that ticks: every millisecond it moves wasmtime's `epoch_tick`, at which running guests yield.
//!
//! It stops ticking while no guest runs, so that an idle node is idle.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use wasmtime::Engine;

/// The time between two ticks.
pub(super) const TICK: Duration = Duration::from_millis(1);
/// Ticks without a guest after which the ticker rests. A guest that runs says so at each tick, so this is never one that runs.
const REST_AFTER_TICKS: u32 = 100;
/// How long the ticker rests at most before it looks by itself.
const REST: Duration = Duration::from_secs(1);

/// The count of ticks, which guests read as a clock that costs nothing.
pub(super) struct Ticks {
    count: AtomicU64,
    /// Whether a guest ran since the last tick.
    active: AtomicBool,
    resting: AtomicBool,
    stopped: AtomicBool,
    thread: std::sync::OnceLock<Thread>,
}

impl Ticks {
    /// The number of ticks so far.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Says that a guest runs, so that the ticker ticks.
    pub(super) fn wake(&self) {
        if self.active.load(Ordering::Relaxed) {
            return;
        }
        // In this order, and the ticker the other way round: one of the two sees what the other did.
        self.active.store(true, Ordering::SeqCst);
        if self.resting.load(Ordering::SeqCst)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Whether the ticker rests.
    #[cfg(test)]
    fn rests(&self) -> bool {
        self.resting.load(Ordering::SeqCst)
    }
}

/// The thread itself; it ends when this is dropped.
pub(super) struct Ticker {
    ticks: Arc<Ticks>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    pub(super) fn start(engine: Engine) -> std::io::Result<Self> {
        let ticks = Arc::new(Ticks {
            count: AtomicU64::new(1),
            active: AtomicBool::new(false),
            resting: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            thread: std::sync::OnceLock::new(),
        });
        let run = ticks.clone();
        let thread = std::thread::Builder::new().name("quarry-ticker".into()).spawn(move || tick(&run, &engine))?;
        ticks.thread.get_or_init(|| thread.thread().clone());
        Ok(Self { ticks, thread: Some(thread) })
    }

    pub(super) fn ticks(&self) -> &Arc<Ticks> {
        &self.ticks
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.ticks.stopped.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            _ = thread.join();
        }
    }
}

fn tick(ticks: &Ticks, engine: &Engine) {
    let mut idle = 0;
    while !ticks.stopped.load(Ordering::SeqCst) {
        std::thread::sleep(TICK);
        ticks.count.fetch_add(1, Ordering::Relaxed);
        engine.increment_epoch();
        if ticks.active.swap(false, Ordering::SeqCst) {
            idle = 0;
            continue;
        }
        idle += 1;
        if idle > REST_AFTER_TICKS {
            ticks.resting.store(true, Ordering::SeqCst);
            if !ticks.active.load(Ordering::SeqCst) && !ticks.stopped.load(Ordering::SeqCst) {
                std::thread::park_timeout(REST);
            }
            ticks.resting.store(false, Ordering::SeqCst);
            idle = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    /// Waits for a condition that other threads bring about, and fails after 10 s.
    fn until(what: &str, condition: impl Fn() -> bool) {
        let begun = clock::now();
        while !condition() {
            assert!(clock::now().saturating_duration_since(begun) < Duration::from_secs(10), "{what}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_ticker_rests_while_no_guest_runs_and_wakes_for_one() {
        let ticker = Ticker::start(Engine::default()).expect("started");
        let ticks = ticker.ticks().clone();
        until("it rests", || ticks.rests());
        ticks.wake();
        let count = ticks.count();
        until("it ticks again", || ticks.count() > count + 2);
        until("it rests again", || ticks.rests());
        drop(ticker);
        assert!(ticks.stopped.load(Ordering::SeqCst));
    }
}

//! Measures a call's time, and stops it when it is over a limit: CPU time at the ticks, wall time by a timer.
//!
//! What a call costs that ends within a tick and does not wait: reading two counters, no clock and no timer. A call counts the ticks that fell
//! into its slices (the times from one poll to the next pause); a slice pauses at its second tick, so it counts two at most. A
//! call that has paused so is measured by the CPU clock of its thread from then on, so that neither the time it waits nor what the
//! machine takes away counts against it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use wasmtime::UpdateDeadline;

use super::ticker::{TICK, Ticks};
use crate::clock;

/// Ticks that a slice must have seen before it pauses. With one, a call of some microseconds would pause, which costs more than itself,
/// whenever a tick happens to fall into it; with two, a guest pauses after one to two milliseconds.
const YIELD_TICKS: u64 = 2;

/// The CPU time of the call in progress. Shared by the one who polls the call and the tick callback inside of it; both run on
/// the thread that polls, so the atomics are there for the compiler alone.
pub(super) struct Meter {
    ticks: Arc<Ticks>,
    /// In nanoseconds.
    limit: u64,
    /// CPU time of the slices that ended, in nanoseconds.
    used: AtomicU64,
    /// The tick at which the present slice began.
    slice_tick: AtomicU64,
    /// The thread's CPU time at which the present slice began, in nanoseconds; 0 when it was not read.
    slice_cpu: AtomicU64,
    /// Whether the CPU clock is read.
    precise: AtomicBool,
}

/// The call used more CPU time than it may.
#[derive(Debug, thiserror::Error)]
#[error("the call used more CPU time than it may")]
pub(super) struct CpuTimeUsedUp;

impl Meter {
    pub(super) fn new(ticks: Arc<Ticks>, limit: Duration) -> Self {
        Self {
            ticks,
            limit: nanos(limit),
            used: AtomicU64::new(0),
            slice_tick: AtomicU64::new(0),
            slice_cpu: AtomicU64::new(0),
            precise: AtomicBool::new(false),
        }
    }

    /// Begins a call, measured by the CPU clock from the start or not.
    pub(super) fn begin(&self, precise: bool) {
        self.used.store(0, Relaxed);
        self.precise.store(precise, Relaxed);
    }

    /// Begins a slice.
    fn resume(&self) {
        self.ticks.wake();
        self.slice_tick.store(self.ticks.count(), Relaxed);
        let cpu = if self.precise.load(Relaxed) {
            nanos(clock::thread_cpu())
        } else {
            0
        };
        self.slice_cpu.store(cpu, Relaxed);
    }

    /// Ends a slice.
    fn pause(&self) {
        let slice = self.slice();
        if slice > 0 {
            self.used
                .store(self.used.load(Relaxed).saturating_add(slice), Relaxed);
        }
    }

    /// The length of the present slice so far, in nanoseconds.
    fn slice(&self) -> u64 {
        match self.slice_cpu.load(Relaxed) {
            0 => {
                (self.ticks.count() - self.slice_tick.load(Relaxed)).min(YIELD_TICKS) * nanos(TICK)
            }
            begun => nanos(clock::thread_cpu()).saturating_sub(begun),
        }
    }

    /// A tick reached the guest: it pauses for its neighbours, or ends.
    pub(super) fn tick(&self) -> wasmtime::Result<UpdateDeadline> {
        if self.ticks.count() - self.slice_tick.load(Relaxed) < YIELD_TICKS {
            // The tick fell into a pause, or the guest has just begun to run: it goes on to the next tick.
            return Ok(UpdateDeadline::Continue(1));
        }
        let slice = self.slice();
        if self.used.load(Relaxed).saturating_add(slice) > self.limit {
            return Err(CpuTimeUsedUp.into());
        }
        if self.slice_cpu.load(Relaxed) != 0 && slice < YIELD_TICKS * nanos(TICK) {
            // The machine ran others meanwhile. The guest has not had its slice, and a pause would cost it another turn of its neighbours.
            return Ok(UpdateDeadline::Continue(1));
        }
        self.precise.store(true, Relaxed);
        // Tokio's own yield lets timers and other threads in first; a plain wake would let a guest that spins keep them out.
        Ok(UpdateDeadline::YieldCustom(
            1,
            Box::pin(tokio::task::yield_now()),
        ))
    }
}

/// Runs the calls of an instance under its limits.
pub(super) struct Watch {
    meter: Arc<Meter>,
    /// The calls that follow are measured by the CPU clock from their start. That costs a call some hundred nanoseconds, and keeps one for which
    /// others wait from pausing whenever the machine takes its thread away.
    pub(super) urgent: bool,
    /// One timer for all calls: a call that waits leaves it for the next, and it is moved only when it fires too early.
    timer: Option<Pin<Box<clock::Sleep>>>,
}

/// The call lasted longer than it may.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WallTimeUsedUp;

impl Watch {
    pub(super) fn new(meter: Arc<Meter>) -> Self {
        Self {
            meter,
            urgent: false,
            timer: None,
        }
    }

    /// Runs `call` for `limit` at most, counted from its first pause, which is within a tick of its beginning. It is pinned by the
    /// caller: taken by value it would be moved, and have its place twice.
    pub(super) async fn run<T>(
        &mut self,
        limit: Duration,
        mut call: Pin<&mut impl Future<Output = T>>,
    ) -> Result<T, WallTimeUsedUp> {
        self.meter.begin(self.urgent);
        let mut deadline = None;
        std::future::poll_fn(|cx| {
            self.meter.resume();
            let polled = call.as_mut().poll(cx);
            self.meter.pause();
            match polled {
                Poll::Ready(output) => Poll::Ready(Ok(output)),
                Poll::Pending => {
                    self.poll_timer(*deadline.get_or_insert_with(|| clock::now() + limit), cx)
                }
            }
        })
        .await
    }

    fn poll_timer<T>(
        &mut self,
        deadline: Instant,
        cx: &mut Context<'_>,
    ) -> Poll<Result<T, WallTimeUsedUp>> {
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(clock::sleep_until(deadline)));
        if timer.deadline() > deadline {
            timer.as_mut().reset(deadline);
        }
        while timer.as_mut().poll(cx).is_ready() {
            if clock::now() >= deadline {
                return Poll::Ready(Err(WallTimeUsedUp));
            }
            timer.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

//! Time that a test drives: for whole nodes in one process, which live hours in seconds.
//!
//! A [`Time`] is shared by some nodes and whoever watches them. Each node has a [`NodeClock`] of its own, since clocks may disagree and
//! nodes stand still: its wall clock can be set, its boot clock can jump as after a sleep of the machine, and the node can be paused.
//!
//! **A clock belongs to threads.** What runs on a thread of [`NodeClock::runtime`] has that clock, and so have the threads that it starts for
//! a node. So a node whose `Cluster` is started there has it whole, SlateDB included; no function takes a clock, and everything else in
//! the process keeps the machine's time. Calls have to be made there as well: a node's handles read the time where they are used.
//!
//! **Time moves only when nothing else does.** [`Time::run`] moves it to the next timer once every runtime of every node has nothing left to
//! do, and in steps of a grain, so that timers close to each other share one. A runtime is asked by a task that goes through its queue;
//! with two rounds of that in which no thread woke up for anything else, nothing runs. On a machine that is slow or busy that answer comes
//! later, and so does time: it does not run ahead of the work. What can slip through is a chain of wake-ups over several threads of
//! which each falls just behind the question; each step then still waits for its next two links.
//!
//! Not seen is what waits outside Tokio's workers: sockets, blocking threads, guests that compile. So nodes on a driven clock reach each
//! other over a [`memory::Network`](crate::transport::memory::Network), have their store in memory, and native guests.

mod rounds;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

use rounds::{Brake, Round, Watched};

/// Whether there was ever a driven clock in this process. The machine's time stays as cheap as without them.
static ANY: AtomicBool = AtomicBool::new(false);

thread_local! {
    static HERE: RefCell<Option<NodeClock>> = const { RefCell::new(None) };
}

/// The driven clock of the calling thread.
#[inline]
pub(crate) fn here() -> Option<NodeClock> {
    if ANY.load(Ordering::Relaxed) {
        of_thread()
    } else {
        None
    }
}

#[cold]
fn of_thread() -> Option<NodeClock> {
    // A thread that ends has none any more.
    HERE.try_with(|here| here.borrow().clone()).unwrap_or(None)
}

/// The clock of the thread that starts a node, for the threads that it starts for it.
#[derive(Clone)]
pub(crate) struct Heritage(Option<NodeClock>);

impl Heritage {
    /// What the calling thread passes on.
    pub(crate) fn here() -> Self {
        Self(here())
    }

    /// Gives it to the calling thread, for good.
    pub(crate) fn take(&self) {
        if let Some(clock) = &self.0 {
            HERE.with(|here| *here.borrow_mut() = Some(clock.clone()));
        }
    }

    /// Says that a runtime is the node's, so that time waits for it.
    pub(crate) fn watch(&self, name: &str, runtime: &Handle) {
        if let Some(clock) = &self.0 {
            clock.watch(name, runtime);
        }
    }
}

/// Time that moves when nothing else does. Clones are the same.
#[derive(Clone)]
pub struct Time(Arc<Shared>);

struct Shared {
    grain: u64,
    /// What the machine's clocks showed at the beginning.
    began: Instant,
    boot: u64,
    wall: i64,
    /// Since then.
    nanos: AtomicU64,
    timers: Mutex<Timers>,
    runtimes: Mutex<Vec<Arc<Watched>>>,
}

#[derive(Default)]
struct Timers {
    next: u64,
    waiting: BTreeMap<(u64, u64), Waker>,
}

impl Time {
    /// Time that begins now. Timers within one grain go off together, each late by less than that: the coarser, the faster time goes.
    #[must_use]
    pub fn new(grain: Duration) -> Self {
        ANY.store(true, Ordering::Relaxed);
        Self(Arc::new(Shared {
            grain: nanos(grain).max(1),
            began: Instant::now(),
            boot: super::machine_boot_nanos(),
            wall: super::machine_wall_ms(),
            nanos: AtomicU64::new(0),
            timers: Mutex::default(),
            runtimes: Mutex::default(),
        }))
    }

    /// How much has passed.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.0.nanos.load(Ordering::Acquire))
    }

    /// A clock for a node, or for who watches.
    #[must_use]
    pub fn clock(&self) -> NodeClock {
        NodeClock(Arc::new(Own {
            time: self.clone(),
            boot_ahead: AtomicU64::new(0),
            wall_ahead: AtomicI64::new(0),
            brake: Brake::default(),
        }))
    }

    /// Runs a future on a runtime of one of its clocks, and drives time on the calling thread until that ends.
    ///
    /// # Panics
    /// When the future panics; and when nothing came to rest, or nothing waited for time, for two minutes of the machine's.
    pub fn run<F>(&self, runtime: &Runtime, future: F) -> F::Output
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let main = runtime.spawn(future);
        while self.settle(&main) {
            self.advance();
        }
        match runtime.block_on(main) {
            Ok(output) => output,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    /// Waits until nothing runs and something waits for time; `false` when the task has ended.
    fn settle<T>(&self, main: &JoinHandle<T>) -> bool {
        let mut waited = Duration::ZERO;
        let mut quiet = 0;
        while quiet < rounds::QUIET || self.timers().waiting.is_empty() {
            if main.is_finished() {
                return false;
            }
            let mut runtimes = self.runtimes();
            runtimes.retain(|runtime| !runtime.gone());
            let asked = runtimes.clone();
            drop(runtimes);
            let began = Instant::now();
            let round = rounds::round(&asked);
            quiet = match round {
                Round::Quiet => quiet + 1,
                Round::Busy(..) => 0,
            };
            // A process that was stopped did not wait.
            waited += began.elapsed().min(rounds::COUNTED);
            assert!(
                waited < rounds::PATIENCE,
                "driven time stands still at {:?}: {round}",
                self.elapsed()
            );
        }
        !main.is_finished()
    }

    /// Moves time to the next timer, and lets go all that are due, in their order.
    fn advance(&self) {
        let mut timers = self.timers();
        let Some(((next, _), _)) = timers.waiting.first_key_value() else {
            return;
        };
        let now = next.div_ceil(self.0.grain).saturating_mul(self.0.grain);
        let later = timers.waiting.split_off(&(now.saturating_add(1), 0));
        let due = std::mem::replace(&mut timers.waiting, later);
        self.0.nanos.fetch_max(now, Ordering::AcqRel);
        drop(timers);
        due.into_values().for_each(Waker::wake);
    }

    fn timers(&self) -> MutexGuard<'_, Timers> {
        let timers = self.0.timers.lock();
        timers.unwrap_or_else(PoisonError::into_inner)
    }

    fn runtimes(&self) -> MutexGuard<'_, Vec<Arc<Watched>>> {
        let runtimes = self.0.runtimes.lock();
        runtimes.unwrap_or_else(PoisonError::into_inner)
    }
}

/// The clocks of one node. Clones are the same.
#[derive(Clone)]
pub struct NodeClock(Arc<Own>);

struct Own {
    time: Time,
    boot_ahead: AtomicU64,
    wall_ahead: AtomicI64,
    brake: Brake,
}

impl NodeClock {
    /// A runtime on whose threads everything has this clock, nodes that are started there included.
    ///
    /// # Errors
    /// When the system gives no more threads.
    pub fn runtime(&self) -> io::Result<Runtime> {
        let heritage = Heritage(Some(self.clone()));
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("quarry-driven")
            .on_thread_start({
                let heritage = heritage.clone();
                move || heritage.take()
            })
            .enable_all()
            .build()?;
        heritage.watch("quarry-driven", runtime.handle());
        Ok(runtime)
    }

    /// Sets the wall clock forward, or back where negative.
    pub fn set_wall(&self, by_ms: i64) {
        self.0.wall_ahead.fetch_add(by_ms, Ordering::AcqRel);
    }

    /// Moves on the clock that counts sleep, and no other: the machine slept for so long.
    pub fn slept(&self, time: Duration) {
        self.0.boot_ahead.fetch_add(nanos(time), Ordering::AcqRel);
    }

    /// Stops all threads of the node, each between two polls, while time goes on for the others; until the guard is dropped. Returns once
    /// they stand. Only for threads of other clocks: on its own it would never return.
    ///
    /// # Panics
    /// When a thread does not come to a stop within two minutes of the machine's time.
    #[must_use = "the node goes on when the guard is dropped"]
    pub fn pause(&self) -> Paused {
        let runtimes: Vec<_> = {
            let all = self.0.time.runtimes();
            all.iter()
                .filter(|runtime| Arc::ptr_eq(&runtime.clock.0, &self.0))
                .cloned()
                .collect()
        };
        self.0.brake.pull(&runtimes);
        Paused(self.clone())
    }

    fn watch(&self, name: &str, runtime: &Handle) {
        let watched = Watched::new(self.clone(), name, runtime.clone());
        self.0.time.runtimes().push(Arc::new(watched));
    }

    pub(super) fn now(&self) -> Instant {
        self.0.time.0.began + self.0.time.elapsed()
    }

    pub(super) fn boot_nanos(&self) -> u64 {
        let ahead = self.0.boot_ahead.load(Ordering::Acquire);
        self.0.time.0.boot + nanos(self.0.time.elapsed()) + ahead
    }

    pub(super) fn wall_ms(&self) -> i64 {
        self.steady_wall_ms() + self.0.wall_ahead.load(Ordering::Acquire)
    }

    /// Milliseconds since the Unix epoch as if nobody had set the wall clock.
    pub(crate) fn steady_wall_ms(&self) -> i64 {
        let elapsed = self.0.time.elapsed().as_millis();
        self.0.time.0.wall + i64::try_from(elapsed).unwrap_or(i64::MAX)
    }

    pub(super) fn alarm(&self, moment: Instant) -> Alarm {
        let mut alarm = self.alarm_in(Duration::ZERO);
        alarm.reset(moment);
        alarm
    }

    pub(super) fn alarm_in(&self, time: Duration) -> Alarm {
        Alarm {
            at: nanos(self.0.time.elapsed()).saturating_add(nanos(time)),
            time: self.0.time.clone(),
            waiting: None,
        }
    }

    /// Waits for so long on this clock, on whatever thread.
    pub(crate) fn sleep(&self, time: Duration) -> impl Future<Output = ()> + Send + use<> {
        let mut alarm = self.alarm_in(time);
        std::future::poll_fn(move |context| alarm.poll(context))
    }
}

impl fmt::Debug for NodeClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeClock(at {:?})", self.0.time.elapsed())
    }
}

/// A node that stands still; it goes on when this is dropped.
pub struct Paused(NodeClock);

impl Drop for Paused {
    fn drop(&mut self) {
        self.0.0.brake.release();
    }
}

/// A timer of a driven clock.
pub struct Alarm {
    time: Time,
    at: u64,
    /// Its number among the timers.
    waiting: Option<u64>,
}

impl Alarm {
    pub(super) fn moment(&self) -> Instant {
        let began = self.time.0.began;
        let moment = began.checked_add(Duration::from_nanos(self.at));
        moment.unwrap_or(began)
    }

    pub(super) fn reset(&mut self, moment: Instant) {
        self.forget();
        let began = self.time.0.began;
        self.at = nanos(moment.saturating_duration_since(began));
    }

    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut timers = self.time.timers();
        // Under the lock, as time moves.
        if self.time.0.nanos.load(Ordering::Acquire) >= self.at {
            drop(timers);
            self.forget();
            return Poll::Ready(());
        }
        let number = *self.waiting.get_or_insert_with(|| {
            timers.next += 1;
            timers.next
        });
        let waker = context.waker().clone();
        let before = timers.waiting.insert((self.at, number), waker);
        drop(timers);
        // Not under the lock: it may be the last of a task that has timers.
        drop(before);
        Poll::Pending
    }

    fn forget(&mut self) {
        if let Some(number) = self.waiting.take() {
            let mut timers = self.time.timers();
            let waker = timers.waiting.remove(&(self.at, number));
            drop(timers);
            drop(waker);
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.forget();
    }
}

impl fmt::Debug for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Alarm(at {:?})", Duration::from_nanos(self.at))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;

//! Whether the runtimes of nodes have anything left to do, and how a node is made to stand still.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use super::NodeClock;

/// Rounds without work in a row after which nothing runs.
pub(super) const QUIET: u32 = 2;
/// How long nodes may take to come to rest, on the machine's time.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// What one round counts as at most.
pub(super) const COUNTED: Duration = Duration::from_secs(5);
/// How often it is looked whether a runtime that does not answer was paused.
const LOOK: Duration = Duration::from_millis(5);
/// How long work is waited for before anything is asked: most is done by then.
const SOON: Duration = Duration::from_millis(2);
/// Pauses between looks whether a thread rests, from the first to the longest.
const PAUSE: Duration = Duration::from_micros(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// A runtime of a node.
pub(super) struct Watched {
    pub(super) clock: NodeClock,
    name: String,
    handle: Handle,
    gone: AtomicBool,
}

impl Watched {
    pub(super) fn new(clock: NodeClock, name: &str, handle: Handle) -> Self {
        Self {
            clock,
            name: name.to_owned(),
            handle,
            gone: AtomicBool::new(false),
        }
    }

    /// Whether it has ended.
    pub(super) fn gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Whether there is nothing to wait for.
    fn stands(&self) -> bool {
        self.gone() || self.clock.0.brake.pulled()
    }

    /// How often its threads went to rest and woke up.
    fn turns(&self) -> Vec<u64> {
        let metrics = self.handle.metrics();
        (0..metrics.num_workers())
            .map(|worker| metrics.worker_park_unpark_count(worker))
            .collect()
    }

    /// Whether all its threads rest. Tokio counts each rest and each waking up, from 0 on, so a thread that rests has an odd number.
    fn rests(&self) -> bool {
        self.handle.metrics().global_queue_depth() == 0
            && self.turns().iter().all(|turns| turns % 2 == 1)
    }

    /// Waits until all its threads rest, or there is nothing to wait for; `false` when they do not until then.
    fn rest_by(&self, end: Instant) -> bool {
        let mut pause = PAUSE;
        let mut look = Instant::now() + LOOK;
        while !self.stands() && !self.rests() {
            let now = Instant::now();
            if now > end {
                return false;
            }
            if now > look {
                // The threads of one that has ended meanwhile never rest.
                self.wait(&self.ask(), now + LOOK);
                look = Instant::now() + LOOK;
            }
            std::thread::park_timeout(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        true
    }

    /// Sends a task through its queue.
    fn ask(&self) -> Receiver<()> {
        let (answer, answered) = mpsc::sync_channel(1);
        self.handle.spawn(async move { _ = answer.send(()) });
        answered
    }

    /// Waits for the answer: until then, all that was to do at the question has been done.
    fn wait(&self, answered: &Receiver<()>, end: Instant) {
        while let Err(why) = answered.recv_timeout(LOOK) {
            match why {
                // The task was dropped.
                RecvTimeoutError::Disconnected => self.gone.store(true, Ordering::Release),
                RecvTimeoutError::Timeout => {}
            }
            if self.stands() || Instant::now() > end {
                return;
            }
        }
    }
}

/// What a round found.
pub(super) enum Round {
    /// Nothing to do but to answer.
    Quiet,
    /// A runtime that did something else.
    Busy(Arc<Watched>, &'static str),
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quiet => f.write_str("nothing runs, and nothing waits for time"),
            Self::Busy(one, how) => {
                let tasks = one.handle.metrics().num_alive_tasks();
                write!(f, "{} works on, with {tasks} tasks: {how}", one.name)
            }
        }
    }
}

/// One round of questions to all.
pub(super) fn round(runtimes: &[Arc<Watched>]) -> Round {
    let now = Instant::now();
    let (soon, end) = (now + SOON, now + PATIENCE);
    let asked: Vec<_> = runtimes.iter().filter(|one| !one.stands()).collect();
    for one in &asked {
        one.rest_by(soon);
    }
    let before: Vec<_> = asked
        .iter()
        .map(|one| one.rests().then(|| one.turns()))
        .collect();
    let questions: Vec<_> = asked.iter().map(|one| one.ask()).collect();
    for (one, question) in asked.iter().zip(&questions) {
        one.wait(question, end);
    }
    for (one, before) in asked.into_iter().zip(before) {
        let busy = |how| Round::Busy(one.clone(), how);
        if !one.rest_by(end) {
            return busy("it does not rest");
        }
        if one.stands() {
            continue;
        }
        let Some(before) = before else {
            return busy("it did not rest before");
        };
        // For the question each thread may have woken up once.
        let once = |(before, after): (&u64, u64)| after <= before + 2;
        if !before.iter().zip(one.turns()).all(once) {
            return busy("it woke up for more than the question");
        }
    }
    Round::Quiet
}

/// Makes the threads of a node stand still.
#[derive(Default)]
pub(super) struct Brake(Arc<Pedal>);

#[derive(Default)]
struct Pedal {
    pulled: Mutex<bool>,
    released: Condvar,
}

impl Brake {
    fn pulled(&self) -> bool {
        *self.0.pulled()
    }

    /// Returns once all threads stand.
    pub(super) fn pull(&self, runtimes: &[Arc<Watched>]) {
        let end = Instant::now() + PATIENCE;
        *self.0.pulled() = true;
        let mut standing = Vec::new();
        for runtime in runtimes {
            // Each takes a thread.
            for _ in 0..runtime.handle.metrics().num_workers() {
                let (stands, has_stopped) = mpsc::sync_channel(1);
                let pedal = self.0.clone();
                runtime.handle.spawn(async move {
                    _ = stands.send(());
                    pedal.wait();
                });
                standing.push(has_stopped);
            }
        }
        for has_stopped in standing {
            // A runtime that has ended stands, too.
            let left = end.saturating_duration_since(Instant::now());
            let stopped = has_stopped.recv_timeout(left);
            assert!(
                stopped != Err(RecvTimeoutError::Timeout),
                "a thread of the node does not stop"
            );
        }
    }

    pub(super) fn release(&self) {
        *self.0.pulled() = false;
        self.0.released.notify_all();
    }
}

impl Pedal {
    fn pulled(&self) -> MutexGuard<'_, bool> {
        self.pulled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks the calling thread until the brake is released.
    fn wait(&self) {
        let released = self.released.wait_while(self.pulled(), |pulled| *pulled);
        drop(released);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::driven::Time;

    #[test]
    fn a_runtime_that_ends_while_it_is_watched_is_not_waited_for() {
        let clock = Time::new(Duration::from_millis(10)).clock();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .expect("a runtime");
        let watched = Watched::new(clock, "node", runtime.handle().clone());
        let end = Instant::now() + Duration::from_secs(10);
        assert!(watched.rest_by(end), "it has nothing to do");
        runtime.shutdown_timeout(Duration::from_secs(10));
        assert!(!watched.rests(), "its thread woke up to end");
        let end = Instant::now() + Duration::from_secs(10);
        assert!(watched.rest_by(end) && watched.gone());
    }
}

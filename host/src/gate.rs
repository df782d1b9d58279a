//! The output gate of a shard: nothing that shows a write leaves before the write is durable (promise P1).
//!
//! The gate knows one number, the *frontier*: every write up to it is durable. It moves with the *durable view*, a snapshot of the
//! database that was taken before a flush began and became durable with it. So a query that reads only what is durable
//! sees, at the least, every write that was ever acknowledged.
//!
//! Nor does anything leave once the node's [`Deadline`] for the shard has passed (promise P3): another node may own it then.
//!
//! Who waits is released lowest seq first. The flusher ([`flusher`]) is the only one that moves the frontier: it flushes when
//! someone waits and no flush is in progress, so that writes gather while one is (group commit).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use slatedb::DbSnapshot;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub mod deadline;
pub mod flusher;
mod gather;

use deadline::Deadline;

/// Why a gate will release nobody any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// The shard was stopped; everything that was durable by then was released before.
    #[error("the shard stopped before the write was durable; it may or may not survive")]
    Stopped,
    /// Another writer opened the database: what was not durable is lost.
    #[error(
        "the shard was taken over by another writer before the write was durable; it may or may not survive"
    )]
    Fenced,
    /// This node's lease on the shard may have ended before the write was durable, or before that could be told.
    #[error(
        "this node's lease on the shard ran out before the reply could leave; the write may or may not survive"
    )]
    Expired,
    /// The database failed.
    #[error(
        "the shard's database failed before the write was durable; it may or may not survive: {0}"
    )]
    Failed(Arc<str>),
}

/// What runs once a write is durable, or never will be known to be. It must be quick and must not call the gate.
pub type Waiter = Box<dyn FnOnce(Result<(), Ended>) + Send>;

/// The output gate of one opening of a shard.
pub struct Gate {
    frontier: AtomicU64,
    /// Whether the gate has ended, for those who do not want the lock.
    over: AtomicBool,
    /// Whether the flusher was told of writes since its last flush began.
    armed: AtomicBool,
    kick: Notify,
    /// Whether a flush is on its way to the store, and no call is to begin.
    setting_out: AtomicBool,
    set_out: Notify,
    /// Cancelled when the gate ends.
    end: CancellationToken,
    deadline: Arc<Deadline>,
    state: Mutex<State>,
}

struct State {
    waiters: BTreeMap<(u64, u64), Waiter>,
    order: u64,
    /// The newest seq that someone waits for.
    wanted: u64,
    /// The flusher waits until so many wait; whoever comes before is not told to it.
    gathering: Option<usize>,
    /// The flusher is calling waiters; whoever is durable already has to queue behind them.
    releasing: bool,
    view: Option<Arc<DbSnapshot>>,
    ended: Option<Ended>,
}

impl Gate {
    /// A gate for a database in which everything that `view` shows is durable, on a node that may answer until `deadline`.
    #[must_use]
    pub fn new(view: Arc<DbSnapshot>, deadline: Arc<Deadline>) -> Self {
        Self::at(view.seq(), Some(view), deadline)
    }

    fn at(frontier: u64, view: Option<Arc<DbSnapshot>>, deadline: Arc<Deadline>) -> Self {
        Self {
            frontier: AtomicU64::new(frontier),
            over: AtomicBool::new(false),
            armed: AtomicBool::new(false),
            kick: Notify::new(),
            setting_out: AtomicBool::new(false),
            set_out: Notify::new(),
            end: CancellationToken::new(),
            deadline,
            state: Mutex::new(State {
                waiters: BTreeMap::new(),
                order: 0,
                wanted: 0,
                gathering: None,
                releasing: false,
                view,
                ended: None,
            }),
        }
    }

    /// The newest write up to which every write is durable.
    #[must_use]
    pub fn durable_seq(&self) -> u64 {
        self.frontier.load(Ordering::Acquire)
    }

    /// Whether a reply that shows writes up to `seq` may leave now. Takes no lock. False once the gate has ended or its
    /// deadline has passed: a shard that was taken over may not even answer from what is durable, since there may be newer.
    #[must_use]
    pub fn is_open(&self, seq: u64) -> bool {
        seq <= self.durable_seq() && self.may_answer()
    }

    /// Whether this node may answer for the shard at all, even from what it wrote long ago. Takes no lock.
    #[must_use]
    pub fn may_answer(&self) -> bool {
        !self.is_over() && !self.deadline.passed()
    }

    /// Until when this node may answer for the shard.
    #[must_use]
    pub fn deadline(&self) -> &Arc<Deadline> {
        &self.deadline
    }

    /// The newest view of the database of which everything is durable; none once the shard has ended.
    #[must_use]
    pub fn durable_view(&self) -> Option<Arc<DbSnapshot>> {
        self.lock().view.clone()
    }

    /// Tells the flusher that there are writes that should become durable soon, though nobody waits for them yet.
    pub fn applied(&self) {
        // The flusher disarms and then looks at what is written; here it is the other way round. One of the two sees the other.
        fence(Ordering::SeqCst);
        if !self.armed.load(Ordering::Relaxed) && !self.armed.swap(true, Ordering::AcqRel) {
            self.kick.notify_one();
        }
    }

    /// Returns at once but for the moment in which a flush is on its way to the store: SlateDB puts what is written then into a WAL object
    /// of its own, and whoever waits for the flush waits for both. Bounded by the flusher. Safe to drop.
    pub async fn set_out(&self) {
        while self.setting_out.load(Ordering::Acquire) {
            let mut set_out = std::pin::pin!(self.set_out.notified());
            set_out.as_mut().enable();
            if self.setting_out.load(Ordering::Acquire) {
                set_out.await;
            }
        }
    }

    /// Runs `waiter` once every write up to `seq` is durable, at once where it is. Waiters run in the order of `seq`, and
    /// in the order of asking among equals. When the shard ends or the deadline passes first, `waiter` gets the reason.
    pub fn when_durable(&self, seq: u64, waiter: Waiter) {
        self.enqueue(seq, waiter);
    }

    /// As [`Gate::when_durable`]; gives the place in the queue, where the waiter did not run at once.
    fn enqueue(&self, seq: u64, waiter: Waiter) -> Option<(u64, u64)> {
        let mut state = self.lock();
        if let Some(ended) = state.ended.clone() {
            drop(state);
            waiter(Err(ended));
            return None;
        }
        if seq <= self.durable_seq() && !state.releasing {
            // Under the lock, so that whoever asks later is not told before.
            waiter(self.in_time());
            return None;
        }
        let place = (seq, state.order);
        state.order += 1;
        state.waiters.insert(place, waiter);
        let wake = match state.gathering {
            Some(enough) => state.waiters.len() >= enough,
            None => seq > state.wanted,
        };
        state.wanted = state.wanted.max(seq);
        drop(state);
        if wake {
            self.kick.notify_one();
        }
        Some(place)
    }

    /// Waits until every write up to `seq` is durable. Dropping the future leaves nothing behind.
    ///
    /// # Errors
    /// When the shard ends first.
    pub async fn durable(&self, seq: u64) -> Result<(), Ended> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let place = self.enqueue(seq, Box::new(move |outcome| _ = sender.send(outcome)));
        let _leave = Leave { gate: self, place };
        receiver.await.unwrap_or(Err(Ended::Stopped))
    }

    /// Waits until the gate has ended.
    pub async fn over(&self) {
        self.end.cancelled().await;
    }

    /// Whether the gate has ended. Takes no lock.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.lock().waiters.len()
    }

    /// Moves the frontier to a view that has become durable, and releases whoever waited for it: how many, and how many still wait.
    fn advance(&self, view: Option<Arc<DbSnapshot>>, seq: u64) -> (usize, usize) {
        let mut released = 0;
        let mut state = self.lock();
        if state.ended.is_some() {
            return (released, 0);
        }
        self.frontier.fetch_max(seq, Ordering::AcqRel);
        if view.is_some() {
            state.view = view;
        }
        state.releasing = true;
        loop {
            let later = state.waiters.split_off(&(seq.saturating_add(1), 0));
            let durable = std::mem::replace(&mut state.waiters, later);
            if durable.is_empty() {
                state.releasing = false;
                return (released, state.waiters.len());
            }
            drop(state);
            released += durable.len();
            let outcome = self.in_time();
            for waiter in durable.into_values() {
                waiter(outcome.clone());
            }
            state = self.lock();
        }
    }

    /// Ends the gate: whoever still waits gets the reason, and nobody is released any more. The first reason stays.
    pub fn end(&self, reason: Ended) {
        let mut state = self.lock();
        if state.ended.is_some() {
            return;
        }
        state.ended = Some(reason.clone());
        self.over.store(true, Ordering::Release);
        self.end.cancel();
        state.view = None;
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        for waiter in waiters.into_values() {
            waiter(Err(reason.clone()));
        }
        self.kick.notify_one();
    }

    /// What may be told of a write that is durable.
    fn in_time(&self) -> Result<(), Ended> {
        if self.deadline.passed() {
            return Err(Ended::Expired);
        }
        Ok(())
    }

    /// Why the gate has ended, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        self.lock().ended.clone()
    }

    fn wanted(&self) -> u64 {
        self.lock().wanted
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a waiter back whose owner does not wait any more.
struct Leave<'a> {
    gate: &'a Gate,
    place: Option<(u64, u64)>,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let waiter = self.gate.lock().waiters.remove(&place);
            drop(waiter);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn at(frontier: u64) -> Gate {
        Gate::at(frontier, None, Arc::new(Deadline::never()))
    }

    fn ask(gate: &Gate, seq: u64, heard: &mpsc::Sender<(u64, bool)>) {
        let heard = heard.clone();
        gate.when_durable(
            seq,
            Box::new(move |outcome| heard.send((seq, outcome.is_ok())).expect("heard")),
        );
    }

    #[test]
    fn waiters_are_released_lowest_seq_first_and_once() {
        let gate = at(10);
        let (sender, heard) = mpsc::channel();
        for seq in [14, 11, 13, 12, 10] {
            ask(&gate, seq, &sender);
        }
        assert_eq!(
            heard.try_iter().collect::<Vec<_>>(),
            [(10, true)],
            "what is durable is told at once"
        );
        gate.advance(None, 13);
        assert_eq!(
            heard.try_iter().collect::<Vec<_>>(),
            [(11, true), (12, true), (13, true)]
        );
        gate.advance(None, 13);
        assert!(heard.try_iter().next().is_none());
        assert_eq!(gate.waiting(), 1);
    }

    #[test]
    fn equals_are_released_in_the_order_of_asking() {
        let gate = at(0);
        let (sender, heard) = mpsc::channel();
        for (seq, name) in [(2, "c"), (1, "a"), (2, "d"), (1, "b")] {
            let sender = sender.clone();
            gate.when_durable(seq, Box::new(move |_| sender.send(name).expect("heard")));
        }
        gate.advance(None, 2);
        assert_eq!(heard.try_iter().collect::<String>(), "abcd");
    }

    #[test]
    fn after_the_end_nobody_is_released() {
        let gate = at(1);
        let (sender, heard) = mpsc::channel();
        ask(&gate, 2, &sender);
        gate.end(Ended::Fenced);
        gate.advance(None, 5);
        ask(&gate, 3, &sender);
        assert_eq!(
            heard.try_iter().collect::<Vec<_>>(),
            [(2, false), (3, false)]
        );
        gate.end(Ended::Stopped);
        assert_eq!(gate.ended(), Some(Ended::Fenced), "the first reason stays");
    }

    #[test]
    fn after_the_deadline_nothing_leaves_however_durable() {
        let deadline = Arc::new(Deadline::never());
        let gate = Gate::at(5, None, deadline.clone());
        let (sender, heard) = mpsc::channel();
        ask(&gate, 5, &sender);
        ask(&gate, 6, &sender);
        assert!(gate.is_open(5) && gate.may_answer());
        deadline.shut();
        assert!(!gate.is_open(5) && !gate.may_answer() && !gate.is_over());
        gate.advance(None, 7);
        ask(&gate, 7, &sender);
        assert_eq!(
            heard.try_iter().collect::<Vec<_>>(),
            [(5, true), (6, false), (7, false)]
        );
        assert_eq!(gate.durable_seq(), 7, "what is durable is durable");
    }

    #[tokio::test]
    async fn who_gives_up_leaves_nothing_behind() {
        let gate = at(0);
        {
            let waiting = std::pin::pin!(gate.durable(1));
            assert!(futures::FutureExt::now_or_never(waiting).is_none());
        }
        assert_eq!(gate.waiting(), 0);
    }

    #[test]
    fn who_asks_during_a_release_queues_behind_it() {
        let gate = Arc::new(at(0));
        let (sender, heard) = mpsc::channel();
        // The waiter for 1 makes another thread ask for 1 again, before 2 was released.
        let (inner, from) = (gate.clone(), sender.clone());
        gate.when_durable(
            1,
            Box::new(move |_| {
                let asked = std::thread::spawn(move || ask(&inner, 1, &from));
                asked.join().expect("asked");
            }),
        );
        ask(&gate, 2, &sender);
        gate.advance(None, 2);
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [(2, true), (1, true)]);
    }
}

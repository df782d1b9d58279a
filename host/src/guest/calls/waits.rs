//! Which shards of a node wait for which, and the calls from other shards that wait in their queues.
//!
//! A call from another shard that can never be run is found when the second of two things happens: it comes to a shard that waits, or its
//! shard begins to wait. Both look here, under one lock; the core decides. What is known here are the waits of this node's own shards.
//! Circles of two chains are always found, since each wait is known at the node of the shard where the other chain arrives; those of three
//! and more chains are where they run over this node alone, and end with the deadline elsewhere.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quarry_core::chain::{self, Meeting};
use tokio::sync::oneshot;

/// See the module.
#[derive(Debug, Default)]
pub struct Waits {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Numbers waits and calls.
    next: u64,
    /// The newest wait of each shard that waits, and for whom.
    waiting: BTreeMap<u32, (u64, u32)>,
    /// Calls from other shards, by the shard in whose queue they are.
    queued: BTreeMap<u32, BTreeMap<u64, Queued>>,
}

#[derive(Debug)]
struct Queued {
    chain: Vec<u32>,
    refuse: oneshot::Sender<Meeting>,
}

/// A shard that waits for another; no more when dropped.
#[derive(Debug)]
#[must_use = "the wait ends when it is dropped"]
pub struct Waiting {
    waits: Arc<Waits>,
    from: u32,
    number: u64,
}

/// A call from another shard in a queue; gone from it when dropped.
#[derive(Debug)]
pub struct Ticket {
    waits: Arc<Waits>,
    shard: u32,
    number: u64,
}

impl Waits {
    /// Shard `from` waits for shard `to` from now on. Calls in its queue that `to` waits for are refused: they were never to run.
    pub fn begin(self: &Arc<Self>, from: u32, to: u32) -> Waiting {
        let mut state = self.lock();
        let number = state.number();
        state.waiting.insert(from, (number, to));
        for (call, meeting) in state.met(from) {
            let Some(queued) = state.remove(from, call) else {
                continue;
            };
            state.answered(&queued.chain, from);
            // An error means that its caller has given up.
            _ = queued.refuse.send(meeting);
        }
        Waiting {
            waits: self.clone(),
            from,
            number,
        }
    }

    /// A call that the shards of `chain` wait for comes into the queue of a shard. The receiver gets the reason where it is refused there.
    ///
    /// # Errors
    /// When it could never be run.
    pub fn enter(
        self: &Arc<Self>,
        shard: u32,
        chain: &[u32],
    ) -> Result<(Ticket, oneshot::Receiver<Meeting>), Meeting> {
        let mut state = self.lock();
        if let Some(meeting) = chain::meets(chain, shard, |shard| state.waits_for(shard)) {
            state.answered(chain, shard);
            return Err(meeting);
        }
        let number = state.number();
        let (refuse, refused) = oneshot::channel();
        let chain = chain.to_vec();
        let queued = state.queued.entry(shard).or_default();
        queued.insert(number, Queued { chain, refuse });
        let ticket = Ticket {
            waits: self.clone(),
            shard,
            number,
        };
        Ok((ticket, refused))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ticket {
    /// Takes the call out of the queue, to run it. False where it was refused.
    #[must_use]
    pub fn take(self) -> bool {
        self.waits.lock().remove(self.shard, self.number).is_some()
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn waits_for(&self, shard: u32) -> Option<u32> {
        self.waiting.get(&shard).map(|(_, to)| *to)
    }

    /// The calls in a shard's queue that can never be run.
    fn met(&self, shard: u32) -> Vec<(u64, Meeting)> {
        let queued = self.queued.get(&shard).into_iter().flatten();
        let meeting = |(number, queued): (&u64, &Queued)| {
            let meeting = chain::meets(&queued.chain, shard, |shard| self.waits_for(shard))?;
            Some((*number, meeting))
        };
        queued.filter_map(meeting).collect()
    }

    /// A call to a shard was refused: its caller does not wait any more, so that what is asked of that is not refused as well.
    fn answered(&mut self, chain: &[u32], by: u32) {
        if let Some(caller) = chain.last()
            && self.waits_for(*caller) == Some(by)
        {
            self.waiting.remove(caller);
        }
    }

    fn remove(&mut self, shard: u32, number: u64) -> Option<Queued> {
        let queued = self.queued.get_mut(&shard)?;
        let removed = queued.remove(&number);
        if queued.is_empty() {
            self.queued.remove(&shard);
        }
        removed
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.waits.lock();
        let current = state.waiting.get(&self.from);
        if current.is_some_and(|(number, _)| *number == self.number) {
            state.waiting.remove(&self.from);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.waits.lock().remove(self.shard, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_to_a_shard_that_waits_for_its_chain_is_refused_at_once() {
        let waits = Arc::new(Waits::default());
        let (ticket, _) = waits.enter(1, &[0]).expect("nobody waits");
        assert!(ticket.take());
        let waiting = waits.begin(1, 0);
        let meeting = waits.enter(1, &[7, 0]).expect_err("1 waits for 0");
        assert_eq!((meeting.chain, meeting.path), (vec![7, 0], vec![1, 0]));
        waits.enter(1, &[2]).expect("2 does not wait for 1");
        drop(waiting);
        waits.enter(1, &[7, 0]).expect("1 waits no more");
        assert!(waits.lock().waiting.is_empty() && waits.lock().queued.is_empty());
    }

    #[test]
    fn a_call_in_the_queue_is_refused_when_its_shard_begins_to_wait() {
        let waits = Arc::new(Waits::default());
        let first = waits.begin(0, 1);
        let (ticket, mut refused) = waits.enter(1, &[0]).expect("1 does not wait yet");
        let (other, mut kept) = waits.enter(1, &[3]).expect("nor for 3");
        let second = waits.begin(1, 0);
        assert_eq!(refused.try_recv().expect("refused").path, vec![1, 0]);
        assert!(!ticket.take(), "it never runs");
        assert!(kept.try_recv().is_err());
        assert!(other.take());
        // Of the two, one is refused, and not the other.
        waits.enter(0, &[1]).expect("0 has its answer");
        drop((first, second));
        assert!(waits.lock().waiting.is_empty() && waits.lock().queued.is_empty());
    }

    #[test]
    fn three_chains_in_a_ring_are_found_on_one_node() {
        let waits = Arc::new(Waits::default());
        let ring = [waits.begin(0, 1), waits.begin(1, 2), waits.begin(2, 0)];
        let meeting = waits.enter(1, &[0]).expect_err("a ring");
        assert_eq!(meeting.path, [1, 2, 0]);
        drop(ring);
    }

    #[test]
    fn an_older_wait_that_ends_late_takes_nothing_along() {
        let waits = Arc::new(Waits::default());
        let older = waits.begin(1, 5);
        let newer = waits.begin(1, 0);
        drop(older);
        waits.enter(1, &[0]).expect_err("1 waits for 0 still");
        drop(newer);
    }
}

//! What is to happen, in order of time; what is to happen at the same time happens in the order it was scheduled.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A moment of the world, in nanoseconds since the run began. Nodes never see it: each has a clock of its own.
pub type Time = u64;

pub const MICRO: Time = 1_000;
pub const MILLI: Time = 1_000_000;
pub const SECOND: Time = 1_000_000_000;

/// The queue of a run.
#[derive(Debug)]
pub struct Queue<E> {
    heap: BinaryHeap<Reverse<Slot<E>>>,
    next: u64,
    now: Time,
}

impl<E> Queue<E> {
    pub fn new() -> Self {
        Self {
            heap: BinaryHeap::new(),
            next: 0,
            now: 0,
        }
    }

    /// The time of the event that was taken last.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Schedules `event`; a time that has passed means now.
    pub fn at(&mut self, time: Time, event: E) {
        let time = time.max(self.now);
        self.heap.push(Reverse(Slot {
            time,
            order: self.next,
            event,
        }));
        self.next += 1;
    }

    /// Schedules `event` after a delay.
    pub fn after(&mut self, delay: Time, event: E) {
        self.at(self.now.saturating_add(delay), event);
    }

    /// The next event at or before `until`; when there is none the time becomes `until`.
    pub fn take(&mut self, until: Time) -> Option<E> {
        match self.heap.peek() {
            Some(Reverse(slot)) if slot.time <= until => {
                let Reverse(slot) = self.heap.pop()?;
                self.now = slot.time;
                Some(slot.event)
            }
            _ => {
                self.now = self.now.max(until);
                None
            }
        }
    }

    /// How many events were ever scheduled.
    pub fn scheduled(&self) -> u64 {
        self.next
    }
}

#[derive(Debug)]
struct Slot<E> {
    time: Time,
    order: u64,
    event: E,
}

impl<E> PartialEq for Slot<E> {
    fn eq(&self, other: &Self) -> bool {
        (self.time, self.order) == (other.time, other.order)
    }
}

impl<E> Eq for Slot<E> {}

impl<E> PartialOrd for Slot<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Slot<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.time, self.order).cmp(&(other.time, other.order))
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_the_order_they_were_scheduled() {
        let mut queue = Queue::new();
        for (time, name) in [(5, "c"), (3, "a"), (5, "d"), (3, "b"), (9, "e")] {
            queue.at(time, name);
        }
        let mut seen = Vec::new();
        while let Some(name) = queue.take(5) {
            seen.push((queue.now(), name));
        }
        assert_eq!(seen, [(3, "a"), (3, "b"), (5, "c"), (5, "d")]);
        queue.at(1, "late means now");
        assert_eq!(queue.take(9), Some("late means now"));
        assert_eq!((queue.take(8), queue.now()), (None, 8));
    }
}

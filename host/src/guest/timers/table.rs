//! The timers of a shard in memory: which there are, and which is due next. Time comes in as an argument; nothing here waits or writes.
//!
//! Durable timers are due on the wall clock, and volatile ones and those that are tried again on the monotonic one, so there are two queues.
//! Of a durable timer the name and the time are kept, and its payload is read when it fires.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quarry_core::timers::{Backoff, Failure};

/// How often it is looked at the wall clock on the way to a time on it: somebody may set it, and the machine may sleep.
const NAP: Duration = Duration::from_secs(60);

/// Now, on both clocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    pub(super) clock: Instant,
    /// Milliseconds since the Unix epoch.
    pub(super) wall_ms: u64,
}

/// A timer that fires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Firing {
    pub(super) id: u64,
    pub(super) module: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) due_ms: u64,
    /// Of a volatile one; that of a durable one has to be read.
    pub(super) payload: Option<Bytes>,
    /// How long after it was due.
    pub(super) late: Duration,
}

/// A volatile timer that is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Volatile {
    pub(super) at: Instant,
    pub(super) due_ms: u64,
    pub(super) payload: Bytes,
}

#[derive(Debug)]
struct Timer {
    module: Arc<str>,
    name: Arc<str>,
    due_ms: u64,
    kind: Kind,
    queue: Queue,
    backoff: Backoff,
}

#[derive(Debug)]
enum Kind {
    Volatile(Bytes),
    Durable,
}

/// Where a timer waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Queue {
    /// Nowhere: it fires now, or the guest does not take its timers.
    None,
    Wall,
    Clock(Instant),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Table {
    timers: HashMap<u64, Timer>,
    names: BTreeMap<Arc<str>, BTreeMap<Arc<str>, u64>>,
    by_wall: BTreeSet<(u64, u64)>,
    by_clock: BTreeSet<(Instant, u64)>,
    next_id: u64,
    /// Bytes of the names and payloads of volatile timers.
    bytes: usize,
    /// The modules that take their timers.
    takers: Vec<Arc<str>>,
}

impl Table {
    /// How many timers there are.
    pub(super) fn len(&self) -> usize {
        self.timers.len()
    }

    /// Bytes of the names and payloads of volatile timers.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// When a timer is due; none where there is none.
    pub(super) fn due_ms(&self, module: &str, name: &str) -> Option<u64> {
        Some(self.find(module, name)?.1.due_ms)
    }

    /// Whether there is a durable one of this name.
    pub(super) fn is_durable(&self, module: &str, name: &str) -> bool {
        matches!(self.find(module, name), Some((_, timer)) if matches!(timer.kind, Kind::Durable))
    }

    /// Sets a volatile timer, in place of any of this name.
    pub(super) fn set(&mut self, module: &Arc<str>, name: &str, volatile: Volatile) {
        let queue = Queue::Clock(volatile.at);
        let kind = Kind::Volatile(volatile.payload);
        self.insert(module, name, volatile.due_ms, kind, queue);
    }

    /// Sets a durable timer, in place of any of this name.
    pub(super) fn set_durable(&mut self, module: &Arc<str>, name: &str, due_ms: u64) {
        self.insert(module, name, due_ms, Kind::Durable, Queue::Wall);
    }

    /// As [`Table::set_durable`], of a timer that failed before the shard opened. It is tried at once where it is due.
    pub(super) fn set_failed(
        &mut self,
        module: &Arc<str>,
        name: &str,
        due_ms: u64,
        backoff: Backoff,
    ) {
        self.set_durable(module, name, due_ms);
        let id = self.find(module, name).map(|(id, _)| id);
        if let Some(timer) = id.and_then(|id| self.timers.get_mut(&id)) {
            timer.backoff = backoff;
        }
    }

    /// How often the timer that fired failed; none where it was set anew or cancelled.
    pub(super) fn backoff(&self, id: u64) -> Option<Backoff> {
        self.timers.get(&id).map(|timer| timer.backoff)
    }

    /// Removes a timer; false where there is none.
    pub(super) fn remove(&mut self, module: &str, name: &str) -> bool {
        let found = self.find(module, name).map(|(id, _)| id);
        found.is_some_and(|id| self.forget(id))
    }

    /// Removes the timer that fired, unless it was set anew.
    pub(super) fn forget(&mut self, id: u64) -> bool {
        self.dequeue(id);
        let Some(timer) = self.timers.remove(&id) else {
            return false;
        };
        if let Kind::Volatile(payload) = &timer.kind {
            self.bytes -= timer.name.len() + payload.len();
        }
        if let Some(names) = self.names.get_mut(&timer.module) {
            names.remove(&timer.name);
            if names.is_empty() {
                self.names.remove(&timer.module);
            }
        }
        true
    }

    /// Whether the timer that fires is still there, and not set anew.
    pub(super) fn has(&self, id: u64) -> bool {
        self.timers.contains_key(&id)
    }

    /// A timer that fired and failed is tried again, unless it was set anew or cancelled: how often it failed, and when it is.
    pub(super) fn failed(
        &mut self,
        id: u64,
        failure: Failure,
        now: Instant,
    ) -> Option<(u32, Duration)> {
        let timer = self.timers.get_mut(&id)?;
        let pause = timer.backoff.failed(failure);
        let failures = timer.backoff.failures();
        self.enqueue(id, Queue::Clock(now + pause));
        Some((failures, pause))
    }

    /// The modules of the guest that runs, as far as they take their timers. Volatile ones of others are gone; durable ones wait.
    pub(super) fn serve(&mut self, takers: Vec<Arc<str>>) {
        self.takers = takers;
        let ids: Vec<u64> = self.timers.keys().copied().collect();
        for id in ids {
            let Some(timer) = self.timers.get(&id) else {
                continue;
            };
            match (&timer.kind, self.takes(&timer.module), timer.queue) {
                (Kind::Volatile(_), false, _) => _ = self.forget(id),
                (Kind::Durable, false, _) => self.dequeue(id),
                (Kind::Durable, true, Queue::None) => self.enqueue(id, Queue::Wall),
                _ => {}
            }
        }
    }

    /// What failed so far is forgotten, and tried at once.
    pub(super) fn begin_anew(&mut self) {
        let ids: Vec<u64> = self.timers.keys().copied().collect();
        for id in ids {
            let Some(timer) = self.timers.get_mut(&id) else {
                continue;
            };
            if matches!(timer.kind, Kind::Durable) {
                timer.backoff = Backoff::default();
                if matches!(timer.queue, Queue::Clock(_)) {
                    self.enqueue(id, Queue::Wall);
                }
            }
        }
    }

    /// The memory of the guest is gone, and with it the volatile timers.
    pub(super) fn forget_volatile(&mut self) {
        let volatile =
            |(id, timer): (&u64, &Timer)| matches!(timer.kind, Kind::Volatile(_)).then_some(*id);
        let ids: Vec<u64> = self.timers.iter().filter_map(volatile).collect();
        for id in ids {
            self.forget(id);
        }
    }

    /// When it is to be looked at next: now or earlier where a timer is due.
    pub(super) fn next(&self, now: Now) -> Option<Instant> {
        let by_clock = self.by_clock.first().map(|(at, _)| *at);
        let by_wall = self.by_wall.first().map(|(due_ms, _)| {
            let left = Duration::from_millis(due_ms.saturating_sub(now.wall_ms));
            now.clock + left.min(NAP)
        });
        match (by_clock, by_wall) {
            (Some(clock), Some(wall)) => Some(clock.min(wall)),
            (one, other) => one.or(other),
        }
    }

    /// Takes the timer that has been due for the longest. A volatile one is gone with that.
    pub(super) fn take_due(&mut self, now: Now) -> Option<Firing> {
        let by_clock = self.by_clock.first().and_then(|(at, id)| {
            let late = now.clock.checked_duration_since(*at)?;
            Some((late, *id))
        });
        let by_wall = self.by_wall.first().and_then(|(due_ms, id)| {
            let late = now.wall_ms.checked_sub(*due_ms)?;
            Some((Duration::from_millis(late), *id))
        });
        let (late, id) = match (by_clock, by_wall) {
            (Some(clock), Some(wall)) if clock.0 > wall.0 => clock,
            (one, other) => other.or(one)?,
        };
        let timer = self.timers.get(&id)?;
        let firing = Firing {
            id,
            module: timer.module.clone(),
            name: timer.name.clone(),
            due_ms: timer.due_ms,
            payload: match &timer.kind {
                Kind::Volatile(payload) => Some(payload.clone()),
                Kind::Durable => None,
            },
            late,
        };
        if firing.payload.is_some() {
            self.forget(id);
        } else {
            self.dequeue(id);
        }
        Some(firing)
    }

    fn find(&self, module: &str, name: &str) -> Option<(u64, &Timer)> {
        let id = *self.names.get(module)?.get(name)?;
        Some((id, self.timers.get(&id)?))
    }

    fn takes(&self, module: &str) -> bool {
        self.takers.iter().any(|taker| &**taker == module)
    }

    fn insert(&mut self, module: &Arc<str>, name: &str, due_ms: u64, kind: Kind, queue: Queue) {
        self.remove(module, name);
        let id = self.next_id;
        self.next_id += 1;
        let name: Arc<str> = name.into();
        if let Kind::Volatile(payload) = &kind {
            self.bytes += name.len() + payload.len();
        }
        let names = self.names.entry(module.clone()).or_default();
        names.insert(name.clone(), id);
        let timer = Timer {
            module: module.clone(),
            name,
            due_ms,
            kind,
            queue: Queue::None,
            backoff: Backoff::default(),
        };
        self.timers.insert(id, timer);
        if self.takes(module) {
            self.enqueue(id, queue);
        }
    }

    fn enqueue(&mut self, id: u64, queue: Queue) {
        self.dequeue(id);
        let Some(timer) = self.timers.get_mut(&id) else {
            return;
        };
        timer.queue = queue;
        match queue {
            Queue::None => {}
            Queue::Wall => _ = self.by_wall.insert((timer.due_ms, id)),
            Queue::Clock(at) => _ = self.by_clock.insert((at, id)),
        }
    }

    fn dequeue(&mut self, id: u64) {
        let Some(timer) = self.timers.get_mut(&id) else {
            return;
        };
        match std::mem::replace(&mut timer.queue, Queue::None) {
            Queue::None => {}
            Queue::Wall => _ = self.by_wall.remove(&(timer.due_ms, id)),
            Queue::Clock(at) => _ = self.by_clock.remove(&(at, id)),
        }
    }
}

#[cfg(test)]
mod tests;

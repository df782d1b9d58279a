//! Timers of the test double: volatile ones in memory, durable ones as records in the store, in the form and under the limits of the host.

use std::collections::BTreeMap;

use log::Level;

use super::store::{Change, RESERVED};
use super::{LogLine, World};
use crate::db::Seq;
use crate::error::{Error, Result};
use crate::guest::Exports;
use crate::timers::Timer;

const NAME_MAX_BYTES: usize = 256;
const PAYLOAD_MAX_BYTES: usize = 64 << 10;
const DELAY_MAX_MS: u64 = 3_650 * 86_400_000;
/// Names and payloads of all volatile timers.
const VOLATILE_MAX_BYTES: usize = 16 << 20;
/// What a record is of, and the form of its value.
const KIND: u8 = b't';
const VERSION: u8 = 1;
/// The longest pause after an error, in milliseconds.
const PAUSE_MAX_MS: i64 = 60_000;

/// What is not in the store.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    /// Whether the guest exports `timer-events`.
    pub(super) taken: bool,
    volatile: BTreeMap<String, Volatile>,
    /// Durable ones that failed, by name.
    failed: BTreeMap<String, Failed>,
    /// Counts those that are set.
    order: u64,
    /// What the instance wants that is to take over in a swap; none is a timer that is to be gone.
    pub(super) early: Option<BTreeMap<String, Option<Volatile>>>,
    /// That instance runs.
    pub(super) is_early: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Volatile {
    due_ms: i64,
    order: u64,
    payload: Vec<u8>,
}

#[derive(Debug)]
struct Failed {
    /// The write that set the timer which failed.
    seq: u64,
    errors: u32,
    again_ms: i64,
}

/// A timer that fires.
#[derive(Debug)]
pub(super) struct Due {
    name: String,
    payload: Vec<u8>,
    due_ms: i64,
    /// The write that set it, of a durable one.
    seq: Option<u64>,
}

impl Due {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn timer(&self) -> Timer {
        let due_ms = u64::try_from(self.due_ms).unwrap_or(0);
        Timer::new(self.name.clone(), self.payload.clone(), due_ms)
    }
}

impl Timers {
    pub(super) fn new(exports: Exports) -> Self {
        Timers {
            taken: exports.timer_events,
            ..Timers::default()
        }
    }

    /// The shard closes, and what is in memory is gone. What failed is tried at once where it opens, and its pauses go on.
    pub(super) fn forget(&mut self) {
        self.volatile.clear();
        for failed in self.failed.values_mut() {
            failed.again_ms = 0;
        }
        self.early = None;
    }

    /// Those that the running instance can see, and sets.
    fn early(&mut self) -> Option<&mut BTreeMap<String, Option<Volatile>>> {
        self.early.as_mut().filter(|_| self.is_early)
    }

    fn bytes(&self) -> usize {
        let early = self.early.iter().flatten();
        let early = early.filter_map(|(name, timer)| Some((name, timer.as_ref()?)));
        let all = self.volatile.iter().chain(early);
        all.map(|(name, timer)| name.len() + timer.payload.len())
            .sum()
    }
}

impl World {
    pub(crate) fn set_timer(&mut self, name: &str, after_ms: u64, payload: &[u8]) -> Result<()> {
        self.check_new_timer(name, after_ms, payload)?;
        let bytes = self.timers.bytes() + name.len() + payload.len();
        if bytes > VOLATILE_MAX_BYTES {
            let why = format!(
                "the names and payloads of the shard's volatile timers would have {bytes} bytes, and may have {VOLATILE_MAX_BYTES}; set durable ones, whose payloads are stored"
            );
            return Err(Error::new("limit", why).retryable());
        }
        self.timers.order += 1;
        let timer = Volatile {
            due_ms: self.due_after(after_ms),
            order: self.timers.order,
            payload: payload.to_vec(),
        };
        if let Some(early) = self.timers.early() {
            early.insert(name.to_owned(), Some(timer));
            return Ok(());
        }
        self.remove_durable(name);
        self.timers.volatile.insert(name.to_owned(), timer);
        Ok(())
    }

    pub(crate) fn set_durable_timer(
        &mut self,
        name: &str,
        after_ms: u64,
        payload: &[u8],
    ) -> Result<Seq> {
        self.check_new_timer(name, after_ms, payload)?;
        let due_ms = u64::try_from(self.due_after(after_ms)).unwrap_or(0);
        let value = [&[VERSION], &due_ms.to_be_bytes()[..], payload].concat();
        let change = Change::Put {
            value,
            expires_at_ms: None,
        };
        let seq = self.commit(BTreeMap::from([(self.timer_key(name), change)]));
        self.timers.volatile.remove(name);
        self.timers.failed.remove(name);
        if let Some(early) = self.timers.early() {
            early.remove(name);
        }
        Ok(seq)
    }

    pub(crate) fn cancel_timer(&mut self, name: &str) -> Result<bool> {
        self.check_timer(name)?;
        self.check_timers_writable()?;
        let durable = self.remove_durable(name);
        let there = self.timers.volatile.contains_key(name);
        if let Some(early) = self.timers.early() {
            return Ok(durable
                | match early.insert(name.to_owned(), None) {
                    Some(before) => before.is_some(),
                    None => there,
                });
        }
        Ok(durable | self.timers.volatile.remove(name).is_some())
    }

    pub(crate) fn timer_due_ms(&mut self, name: &str) -> Result<Option<u64>> {
        self.check_timer(name)?;
        let view = self.view()?;
        let due_ms = match self.timers.early().and_then(|early| early.get(name)) {
            Some(early) => early.as_ref().map(|timer| timer.due_ms),
            None => match self.durable_timer(name, view) {
                Some(due) => Some(due.due_ms),
                None => self.timers.volatile.get(name).map(|timer| timer.due_ms),
            },
        };
        Ok(due_ms.map(|due_ms| u64::try_from(due_ms).unwrap_or(0)))
    }

    /// When the next timer fires, which may be in the past.
    pub(super) fn next_timer_ms(&self) -> Option<i64> {
        Some(self.next_timer()?.0)
    }

    /// The timer that has been due for the longest. A volatile one is gone with that.
    pub(super) fn take_due_timer(&mut self) -> Option<Due> {
        let (at, due) = self.next_timer().filter(|(at, _)| *at <= self.now_ms)?;
        debug_assert!(at >= due.due_ms, "a timer is never early");
        if due.seq.is_none() {
            self.timers.volatile.remove(&due.name);
        }
        Some(due)
    }

    /// What came of a timer that fired.
    pub(super) fn fired(&mut self, due: Due, outcome: Result<()>) {
        let now_ms = self.now_ms;
        let durable = self.durable_timer(&due.name, self.store.last_seq());
        // Not one that was set anew.
        let still = due.seq.filter(|_| durable.and_then(|it| it.seq) == due.seq);
        let Err(error) = outcome else {
            if still.is_some() {
                self.remove_durable(&due.name);
            }
            return;
        };
        if let Some(seq) = still {
            let failed = self
                .timers
                .failed
                .entry(due.name.clone())
                .or_insert(Failed {
                    seq,
                    errors: 0,
                    again_ms: now_ms,
                });
            let pause = (1_000_i64 << failed.errors.min(16)).min(PAUSE_MAX_MS);
            failed.errors = failed.errors.saturating_add(1);
            failed.again_ms = now_ms + pause;
        }
        let fields = [("timer".to_owned(), due.name)];
        let line = LogLine::new(Level::Warn, &format!("timer failed: {error}"), &fields);
        self.logs.push(line);
    }

    /// Another guest runs the shard: what it set before counts now, and what failed is tried at once.
    pub(super) fn adopt_timers(&mut self, taken: bool) {
        self.timers.failed.clear();
        if !taken {
            self.timers.volatile.clear();
        }
        for (name, timer) in self.timers.early.take().into_iter().flatten() {
            match timer {
                None => _ = self.timers.volatile.remove(&name),
                Some(timer) => {
                    self.remove_durable(&name);
                    self.timers.volatile.insert(name, timer);
                }
            }
        }
    }

    fn next_timer(&self) -> Option<(i64, Due)> {
        if !self.timers.taken || !self.runs() {
            return None;
        }
        let volatile = self.timers.volatile.iter().map(|(name, timer)| {
            let due = Due {
                name: name.clone(),
                payload: timer.payload.clone(),
                due_ms: timer.due_ms,
                seq: None,
            };
            (timer.due_ms, timer.order, due)
        });
        let durable = self.durable_timers(self.store.last_seq()).map(|due| {
            let failed = self.timers.failed.get(&due.name);
            let failed = failed.filter(|failed| Some(failed.seq) == due.seq);
            let at = failed.map_or(due.due_ms, |failed| failed.again_ms.max(due.due_ms));
            (at, 0, due)
        });
        let all = volatile.chain(durable);
        let (at, _, due) = all.min_by_key(|(at, order, _)| (*at, *order))?;
        Some((at, due))
    }

    fn durable_timers(&self, view: u64) -> impl Iterator<Item = Due> {
        let prefix = self.timer_key("");
        self.store
            .records(view)
            .filter_map(move |(key, value, seq)| {
                let name = key.strip_prefix(&*prefix)?;
                let (due_ms, payload) = value.strip_prefix(&[VERSION])?.split_first_chunk()?;
                Some(Due {
                    name: String::from_utf8(name.to_vec()).ok()?,
                    payload: payload.to_vec(),
                    due_ms: i64::try_from(u64::from_be_bytes(*due_ms)).ok()?,
                    seq: Some(seq),
                })
            })
    }

    fn durable_timer(&self, name: &str, view: u64) -> Option<Due> {
        self.durable_timers(view).find(|due| due.name == name)
    }

    /// Removes the record of a timer; false where there is none.
    fn remove_durable(&mut self, name: &str) -> bool {
        let there = self.durable_timer(name, self.store.last_seq()).is_some();
        if there {
            self.commit(BTreeMap::from([(self.timer_key(name), Change::Remove)]));
            self.timers.failed.remove(name);
        }
        there
    }

    fn timer_key(&self, name: &str) -> Vec<u8> {
        [&RESERVED[..], &[KIND], b"main\0", name.as_bytes()].concat()
    }

    fn due_after(&self, after_ms: u64) -> i64 {
        let after_ms = i64::try_from(after_ms).unwrap_or(i64::MAX);
        self.now_ms.saturating_add(after_ms)
    }

    fn check_new_timer(&self, name: &str, after_ms: u64, payload: &[u8]) -> Result<()> {
        self.check_timer(name)?;
        self.check_timers_writable()?;
        let size = payload.len();
        if size > PAYLOAD_MAX_BYTES {
            return Err(invalid(format!(
                "the payload of timer `{name}` has {size} bytes, and may have {PAYLOAD_MAX_BYTES}; store it under a key"
            )));
        }
        if after_ms > DELAY_MAX_MS {
            return Err(invalid(format!(
                "timer `{name}` would be due in {after_ms} ms, and a timer is due in at most {DELAY_MAX_MS} ms (ten years)"
            )));
        }
        let durable: Vec<_> = self.durable_timers(self.store.last_seq()).collect();
        let early = self.timers.early.iter().flatten();
        let mut names: Vec<&str> = durable.iter().map(|due| &*due.name).collect();
        names.extend(self.timers.volatile.keys().map(|name| &**name));
        names.extend(early.map(|(name, _)| &**name));
        let (count, limit) = (names.len(), self.settings.limits.timers);
        if count >= limit && !names.contains(&name) {
            let why = format!("the shard has {count} timers, and may have {limit} (limits.timers)");
            return Err(Error::new("limit", why).retryable());
        }
        Ok(())
    }

    fn check_timer(&self, name: &str) -> Result<()> {
        self.view()?;
        if !self.timers.taken {
            let why = "this guest does not export `timer-events`, so there is nobody whom a timer could tell; name timer_events in export!";
            return Err(invalid(why.to_owned()));
        }
        if name.is_empty() || name.len() > NAME_MAX_BYTES {
            let size = name.len();
            return Err(invalid(format!(
                "the name of a timer has {size} bytes, and has to have 1 to {NAME_MAX_BYTES}"
            )));
        }
        Ok(())
    }

    fn check_timers_writable(&self) -> Result<()> {
        let read_only = |_| {
            let why = "a query can ask when a timer is due, and neither set nor cancel one; make it a call";
            Error::new("read-only", why)
        };
        self.check_writable().map_err(read_only)
    }
}

fn invalid(why: String) -> Error {
    Error::new("invalid-argument", why)
}

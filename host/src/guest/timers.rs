//! Timers: what a guest asks for ([`Timers`]), and what its shard makes of it ([`Schedule`]).
//!
//! A volatile timer lives in memory, as what the guest has there does. A durable one is a record in the shard's database (`record.rs`), put
//! and removed by ordinary writes. Its name and time are kept in memory as well (`table.rs`), and are read there when the shard opens:
//! beside the first calls, whose own wishes for timers wait for that.
//!
//! Whatever changes a timer does so in its turn, on a task of its own: a call that is cut off in the middle of a write leaves no timer of
//! which memory and database say different things.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::task::AtomicWaker;
use quarry_core::timers::Backoff;
use tokio::sync::{Semaphore, watch};

use self::table::{Now, Table, Volatile};
use super::{GuestError, ModuleInfo};
use crate::clock;
use crate::db::{ReadView, ShardDb};

mod record;
mod schedule;
mod table;

pub use schedule::{Due, Schedule};

/// The longest name of a timer, in bytes.
pub const NAME_MAX_BYTES: usize = 256;
/// The largest payload of a timer, in bytes.
pub const PAYLOAD_MAX_BYTES: usize = 64 << 10;
/// The longest time until a timer is due: ten years.
pub const DELAY_MAX: Duration = Duration::from_secs(3_650 * 86_400);
/// Names and payloads of the volatile timers of a shard together, in bytes.
pub const VOLATILE_MAX_BYTES: usize = 16 << 20;
/// Timers of a shard, whatever `limits.timers` says. A shard that opens has as many in memory as it once was allowed to set.
pub const TIMERS_MAX: usize = 100_000;

/// A timer that fires, as the guest gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timer {
    /// The module that set it.
    pub module: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// What it was set with.
    pub payload: Bytes,
    /// When it was due, in milliseconds since the Unix epoch.
    pub due_ms: u64,
}

/// The timers of one module of a shard, as an instance of it sets them. Each name has one timer, volatile or durable.
///
/// What a new instance asks for before it runs the shard (a volatile timer, in its start) counts once it does.
#[derive(Clone)]
pub struct Timers {
    shared: Arc<Shared>,
    instance: u64,
    module: Arc<str>,
    /// Whether the module exports `timer-events`.
    fires: bool,
}

struct Shared {
    /// The whole database.
    db: Arc<ShardDb>,
    /// `limits.timers`.
    limit: usize,
    instances: AtomicU64,
    state: Mutex<State>,
    /// Changes come one after the other.
    turn: Semaphore,
    loading: watch::Sender<Loading>,
    /// Counts changes of what is due when.
    version: AtomicU64,
    waker: AtomicWaker,
}

#[derive(Default)]
struct State {
    table: Table,
    /// The instance that runs the shard.
    running: Option<u64>,
    /// The one that may take over, and what it wants to have then.
    coming: Option<(u64, Early)>,
}

/// By module and name. None is a volatile timer that is to be gone.
type Early = BTreeMap<(Arc<str>, Arc<str>), Option<Volatile>>;

/// How far the timers of the database are in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Loading {
    Begins,
    Done,
    /// The database has ended.
    Failed(GuestError),
}

impl Timers {
    /// The timers of a shard, of at most `limit`, and what fires them. `db` is the whole database.
    #[must_use]
    pub fn new(db: Arc<ShardDb>, limit: usize) -> (Self, Schedule) {
        let shared = Arc::new(Shared {
            db,
            limit: limit.min(TIMERS_MAX),
            instances: AtomicU64::new(0),
            state: Mutex::default(),
            turn: Semaphore::new(1),
            loading: watch::Sender::new(Loading::Begins),
            version: AtomicU64::new(0),
            waker: AtomicWaker::new(),
        });
        let timers = Self {
            shared: shared.clone(),
            instance: 0,
            module: "".into(),
            fires: false,
        };
        (timers, Schedule::new(shared))
    }

    /// Those of a further instance.
    #[must_use]
    pub fn next(&self) -> Self {
        Self {
            instance: self.shared.instances.fetch_add(1, Ordering::AcqRel) + 1,
            ..self.clone()
        }
    }

    /// Those of a module of the instance. They belong to the module of that name, whichever revision it is of.
    #[must_use]
    pub fn of(&self, module: &ModuleInfo) -> Self {
        Self {
            module: module.name.clone(),
            fires: module.exports.timer_events,
            ..self.clone()
        }
    }

    /// Sets a volatile timer, which fires once, `after` from now. It is kept over a swap to a revision that takes timers, and forgotten when
    /// the shard closes or moves, and when the instance traps.
    ///
    /// # Errors
    /// `invalid-argument` for a name that is empty or over [`NAME_MAX_BYTES`], a payload over [`PAYLOAD_MAX_BYTES`], or a time over
    /// [`DELAY_MAX`], and where the module takes no timers; `limit` for more than `limits.timers`, and for more than
    /// [`VOLATILE_MAX_BYTES`]; or that the database has ended.
    pub async fn set(&self, name: &str, after: Duration, payload: Bytes) -> Result<(), GuestError> {
        self.check_new(name, after, payload.len())?;
        let volatile = Volatile {
            at: clock::now() + after,
            due_ms: wall_ms().saturating_add(whole_ms(after)),
            payload,
        };
        // Without a write there is nothing to be cut off in.
        if let Ok(_turn) = self.shared.turn.try_acquire()
            && self.shared.is_loaded()
            && !self.shared.lock().table.is_durable(&self.module, name)
        {
            return self.set_now(name, &volatile);
        }
        let wish = Wish::Set(name.into(), volatile);
        self.carry_out(wish).await.map(drop)
    }

    /// Sets a durable timer, and gives the seq of the write. It fires at least once, `after` from now by the wall clock of the node that
    /// has the shard then, and again until the guest takes it without an error or a trap. How often it failed is stored with it.
    ///
    /// # Errors
    /// As [`Timers::set`], but for the bytes.
    pub async fn set_durable(
        &self,
        name: &str,
        after: Duration,
        payload: Bytes,
    ) -> Result<u64, GuestError> {
        self.check_new(name, after, payload.len())?;
        let wish = Wish::SetDurable(name.into(), due_ms(after), payload);
        let done = self.carry_out(wish).await?;
        Ok(done.seq)
    }

    /// Removes a timer; false where there is none of that name.
    ///
    /// # Errors
    /// As [`Timers::set`], as far as it is about the name.
    pub async fn cancel(&self, name: &str) -> Result<bool, GuestError> {
        self.check(name)?;
        let done = self.carry_out(Wish::Cancel(name.into())).await?;
        Ok(done.was_there)
    }

    /// When a timer is due, in milliseconds since the Unix epoch; none where there is none of that name.
    ///
    /// # Errors
    /// As [`Timers::cancel`].
    pub async fn due_ms(&self, name: &str) -> Result<Option<u64>, GuestError> {
        self.check(name)?;
        if !self.shared.is_loaded() {
            self.shared.loaded().await?;
        }
        let state = self.shared.lock();
        Ok(match state.early(self, name) {
            Some(early) => early.as_ref().map(|volatile| volatile.due_ms),
            None => state.table.due_ms(&self.module, name),
        })
    }

    /// As [`Timers::due_ms`], for a query: of the durable timers it sees what its view shows.
    ///
    /// # Errors
    /// As [`Timers::cancel`].
    pub async fn due_ms_in(&self, view: &ReadView, name: &str) -> Result<Option<u64>, GuestError> {
        self.check(name)?;
        let key = record::key(&self.module, name);
        if let Some(value) = view.record(record::KIND, &key).await?
            && let Ok(stored) = record::parse_value(value)
        {
            return Ok(Some(stored.due_ms));
        }
        let state = self.shared.lock();
        let volatile = !state.table.is_durable(&self.module, name);
        Ok(state.table.due_ms(&self.module, name).filter(|_| volatile))
    }

    /// How many timers the shard has, of all modules, as far as they are in memory.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.shared.lock().table.len()
    }

    /// Does what is wished in its turn. Once begun it is carried out, whether anybody still waits for it or not.
    async fn carry_out(&self, wish: Wish) -> Result<Done, GuestError> {
        let timers = self.clone();
        let task = tokio::spawn(async move {
            let _turn = timers.shared.turn.acquire().await;
            timers.shared.loaded().await?;
            timers.change(&wish).await
        });
        task.await.unwrap_or_else(|error| {
            let message = format!("the host failed to change a timer: {error}");
            Err(GuestError::new("internal", message))
        })
    }

    async fn change(&self, wish: &Wish) -> Result<Done, GuestError> {
        let shared = &self.shared;
        match wish {
            Wish::Set(name, volatile) => {
                let in_the_way = {
                    let state = shared.lock();
                    shared.check_volatile(&state, self, name, volatile)?;
                    state.running == Some(self.instance)
                        && state.table.is_durable(&self.module, name)
                };
                if in_the_way {
                    self.remove_record(name).await?;
                }
                self.set_now(name, volatile)?;
                Ok(Done::default())
            }
            Wish::SetDurable(name, due_ms, payload) => {
                shared.check_room(&shared.lock(), self, name)?;
                let key = record::key(&self.module, name);
                let value = record::value(*due_ms, Backoff::default(), payload);
                let seq = shared.db.put_record(record::KIND, &key, value).await?;
                let mut state = shared.lock();
                state.not_early(self, name);
                state.table.set_durable(&self.module, name, *due_ms);
                drop(state);
                shared.changed();
                Ok(Done {
                    seq,
                    was_there: true,
                })
            }
            Wish::Cancel(name) => {
                let durable = shared.lock().table.is_durable(&self.module, name);
                if durable {
                    self.remove_record(name).await?;
                }
                let was_there = shared.lock().cancel(self, name) || durable;
                shared.changed();
                Ok(Done { seq: 0, was_there })
            }
        }
    }

    /// Sets a volatile timer, where no durable one is in its way.
    fn set_now(&self, name: &str, volatile: &Volatile) -> Result<(), GuestError> {
        let mut state = self.shared.lock();
        self.shared.check_volatile(&state, self, name, volatile)?;
        state.set(self, name, volatile.clone())?;
        drop(state);
        self.shared.changed();
        Ok(())
    }

    async fn remove_record(&self, name: &str) -> Result<(), GuestError> {
        let key = record::key(&self.module, name);
        self.shared.db.remove_record(record::KIND, &key).await?;
        self.shared.lock().table.remove(&self.module, name);
        Ok(())
    }

    fn check_new(&self, name: &str, after: Duration, payload: usize) -> Result<(), GuestError> {
        self.check(name)?;
        if payload > PAYLOAD_MAX_BYTES {
            return Err(invalid(format!(
                "the payload of timer `{name}` has {payload} bytes, and may have {PAYLOAD_MAX_BYTES}; store it under a key"
            )));
        }
        if after > DELAY_MAX {
            let (after, most) = (after.as_millis(), DELAY_MAX.as_millis());
            return Err(invalid(format!(
                "timer `{name}` would be due in {after} ms, and a timer is due in at most {most} ms (ten years)"
            )));
        }
        Ok(())
    }

    fn check(&self, name: &str) -> Result<(), GuestError> {
        if !self.fires {
            return Err(invalid(
                "this guest does not export `timer-events`, so there is nobody whom a timer could tell; export it".into(),
            ));
        }
        if self.module.contains('\0') {
            let module = &self.module;
            return Err(invalid(format!(
                "the module's name {module:?} has a zero byte, which ends it in the keys of timers"
            )));
        }
        if name.is_empty() || name.len() > NAME_MAX_BYTES {
            let size = name.len();
            return Err(invalid(format!(
                "the name of a timer has {size} bytes, and has to have 1 to {NAME_MAX_BYTES}"
            )));
        }
        Ok(())
    }
}

/// What an instance wants of a timer.
enum Wish {
    Set(Arc<str>, Volatile),
    SetDurable(Arc<str>, u64, Bytes),
    Cancel(Arc<str>),
}

/// What came of it.
#[derive(Default)]
struct Done {
    seq: u64,
    was_there: bool,
}

impl State {
    /// What an instance that does not run the shard yet wants to have of this name; none where it said nothing.
    fn early(&self, timers: &Timers, name: &str) -> Option<&Option<Volatile>> {
        let (instance, early) = self.coming.as_ref()?;
        // A search by parts of a key would need one that is borrowed; there are few.
        let found = early
            .iter()
            .find(|((module, known), _)| *module == timers.module && **known == *name);
        (*instance == timers.instance).then_some(found?.1)
    }

    fn early_bytes(&self) -> usize {
        let early = self.coming.iter().flat_map(|(_, early)| early);
        early
            .map(|((_, name), volatile)| {
                name.len() + volatile.as_ref().map_or(0, |it| it.payload.len())
            })
            .sum()
    }

    fn not_early(&mut self, timers: &Timers, name: &str) {
        if let Some((instance, early)) = &mut self.coming
            && *instance == timers.instance
        {
            early.remove(&(timers.module.clone(), name.into()));
        }
    }

    fn set(&mut self, timers: &Timers, name: &str, volatile: Volatile) -> Result<(), GuestError> {
        if self.running == Some(timers.instance) {
            self.table.set(&timers.module, name, volatile);
            return Ok(());
        }
        match &mut self.coming {
            Some((instance, early)) if *instance == timers.instance => {
                early.insert((timers.module.clone(), name.into()), Some(volatile));
                Ok(())
            }
            // It was replaced, and what it had in memory is gone.
            _ => Err(GuestError::retryable(
                "closed",
                "the instance that sets the timer has ended",
            )),
        }
    }

    fn cancel(&mut self, timers: &Timers, name: &str) -> bool {
        let there = self.table.due_ms(&timers.module, name).is_some();
        if self.running == Some(timers.instance) {
            return self.table.remove(&timers.module, name);
        }
        let Some((instance, early)) = &mut self.coming else {
            return false;
        };
        if *instance != timers.instance {
            return false;
        }
        let key = (timers.module.clone(), name.into());
        match early.insert(key, None) {
            Some(before) => before.is_some(),
            None => there,
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is due when has changed.
    fn changed(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
        self.waker.wake();
    }

    fn is_loaded(&self) -> bool {
        *self.loading.borrow() == Loading::Done
    }

    /// Waits until the timers of the database are in memory.
    async fn loaded(&self) -> Result<(), GuestError> {
        let mut loading = self.loading.subscribe();
        let loaded = loading.wait_for(|loading| *loading != Loading::Begins);
        match loaded.await.as_deref() {
            Ok(Loading::Failed(error)) => Err(error.clone()),
            Ok(_) => Ok(()),
            Err(_) => Err(GuestError::retryable("closed", "the shard has ended")),
        }
    }

    /// Whether there is room for one more timer, if it is one more.
    fn check_room(&self, state: &State, timers: &Timers, name: &str) -> Result<(), GuestError> {
        let early = state.coming.as_ref().map_or(0, |(_, early)| early.len());
        let count = state.table.len() + early;
        let known = state.table.due_ms(&timers.module, name).is_some()
            || state.early(timers, name).is_some();
        if known || count < self.limit {
            return Ok(());
        }
        Err(GuestError::retryable(
            "limit",
            format!(
                "the shard has {count} timers, and may have {} (limits.timers)",
                self.limit
            ),
        ))
    }

    /// As [`Shared::check_room`], and whether there is room for the bytes of a volatile one.
    fn check_volatile(
        &self,
        state: &State,
        timers: &Timers,
        name: &str,
        volatile: &Volatile,
    ) -> Result<(), GuestError> {
        self.check_room(state, timers, name)?;
        let of_this = name.len() + volatile.payload.len();
        let bytes = state.table.bytes() + state.early_bytes() + of_this;
        if bytes <= VOLATILE_MAX_BYTES {
            return Ok(());
        }
        let message = format!(
            "the names and payloads of the shard's volatile timers would have {bytes} bytes, and may have {VOLATILE_MAX_BYTES}; set durable ones, whose payloads are stored"
        );
        Err(GuestError::retryable("limit", message))
    }
}

fn now() -> Now {
    Now {
        clock: clock::now(),
        wall_ms: wall_ms(),
    }
}

fn wall_ms() -> u64 {
    u64::try_from(clock::wall_ms()).unwrap_or(0)
}

/// When a durable timer is due. The clock does not show how much of its millisecond has passed, and no timer comes early for that.
fn due_ms(after: Duration) -> u64 {
    let begun = u64::from(!after.is_zero());
    wall_ms()
        .saturating_add(whole_ms(after))
        .saturating_add(begun)
}

fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

fn invalid(message: String) -> GuestError {
    GuestError::new("invalid-argument", message)
}

#[cfg(test)]
mod tests;

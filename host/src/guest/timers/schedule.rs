//! The timers of a shard as its task sees them: it waits for the next one, fires it, and says what came of that.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quarry_core::timers::{Backoff, Failure};
use tokio_util::task::AbortOnDropHandle;

use super::record::{self, Unreadable};
use super::table::Firing;
use super::{Loading, Shared, TIMERS_MAX, Timer, Timers, Wish, now};
use crate::clock;
use crate::guest::GuestError;

/// The first pause after timers could not be read, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Timers that are read at once.
const PAGE: u32 = 1_000;

/// What a shard's task has of its timers. Made by [`Timers::new`].
pub struct Schedule {
    shared: Arc<Shared>,
    /// Whether the guest takes timers at all.
    on: bool,
    loader: Option<AbortOnDropHandle<()>>,
    /// The version of the table that `next` is of.
    seen: Option<u64>,
    next: Option<Instant>,
    /// One for all timers.
    alarm: Option<Pin<Box<clock::Sleep>>>,
}

/// A timer that is to fire now. To be given back by [`Schedule::fired`] or [`Schedule::failed`].
#[derive(Debug)]
pub struct Due {
    /// The timer.
    pub timer: Timer,
    /// Whether it is durable.
    pub durable: bool,
    /// How long after it was due.
    pub late: Duration,
    id: u64,
}

impl Schedule {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            on: false,
            loader: None,
            seen: None,
            next: None,
            alarm: None,
        }
    }

    /// An instance is on its way to run the shard, instead of any that was. What it sets in memory is kept for it.
    pub fn expect(&mut self, timers: &Timers, takers: &[Arc<str>]) {
        if !takers.is_empty() {
            self.load();
        }
        self.shared.lock().coming = Some((timers.instance, BTreeMap::new()));
    }

    /// The instance that was on its way does not run the shard.
    pub fn dismiss(&mut self) {
        self.shared.lock().coming = None;
    }

    /// An instance runs the shard; `takers` are its modules that take timers. Volatile timers of other modules are gone, and durable ones
    /// wait for a revision that takes them.
    pub fn adopt(&mut self, timers: &Timers, takers: Vec<Arc<str>>) {
        self.on = !takers.is_empty();
        let mut state = self.shared.lock();
        state.running = Some(timers.instance);
        state.table.serve(takers);
        let early = state
            .coming
            .take_if(|(instance, _)| *instance == timers.instance);
        let mut in_the_way = Vec::new();
        for ((module, name), wish) in early.into_iter().flat_map(|(_, early)| early) {
            match wish {
                None => _ = state.table.remove(&module, &name),
                Some(volatile) if state.table.is_durable(&module, &name) => {
                    in_the_way.push((module, name, volatile));
                }
                Some(volatile) => state.table.set(&module, &name, volatile),
            }
        }
        drop(state);
        for (module, name, volatile) in in_the_way {
            let timers = Timers {
                module,
                ..timers.clone()
            };
            tokio::spawn(async move {
                if let Err(error) = timers.carry_out(Wish::Set(name.clone(), volatile)).await {
                    tracing::warn!(timer = &*name, %error, "timer of a new instance not set");
                }
            });
        }
        self.shared.changed();
    }

    /// The memory of the instance is gone, and the volatile timers with it.
    pub fn forget(&mut self) {
        let mut state = self.shared.lock();
        state.running = None;
        state.coming = None;
        state.table.forget_volatile();
        drop(state);
        self.shared.changed();
    }

    /// Another guest, or one that was restarted by hand: what failed is tried at once.
    pub fn begin_anew(&mut self) {
        self.shared.lock().table.begin_anew();
        self.shared.changed();
    }

    /// Whether there can be a timer to wait for. Costs a look at a flag.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Waits until a timer is due. Ready again and again until it was taken.
    pub fn poll_due(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !self.on {
            return Poll::Pending;
        }
        // Before the look at the version: a change after it wakes.
        self.shared.waker.register(context.waker());
        loop {
            let version = self.shared.version.load(Ordering::Acquire);
            if self.seen != Some(version) {
                self.seen = Some(version);
                self.next = self.shared.lock().table.next(now());
                if let Some(next) = self.next {
                    match &mut self.alarm {
                        Some(alarm) => alarm.as_mut().reset(next),
                        None => self.alarm = Some(Box::pin(clock::sleep_until(next))),
                    }
                }
            }
            let (Some(_), Some(alarm)) = (self.next, &mut self.alarm) else {
                return Poll::Pending;
            };
            ready!(alarm.as_mut().poll(context));
            let now = now();
            let next = self.shared.lock().table.next(now);
            if next.is_some_and(|next| next <= now.clock) {
                return Poll::Ready(());
            }
            // It was only a look at the wall clock on the way.
            self.seen = None;
        }
    }

    /// Puts off what is due, for what is not to fire now.
    pub fn put_off(&mut self, pause: Duration) {
        let later = clock::now() + pause;
        self.next = Some(later);
        if let Some(alarm) = &mut self.alarm {
            alarm.as_mut().reset(later);
        }
    }

    /// Takes the timer that has been due for the longest, with its payload. None where there is none, or its record cannot be read: it is
    /// tried again then.
    pub async fn take(&mut self, within: Duration) -> Option<Due> {
        let firing = self.shared.lock().table.take_due(now());
        self.shared.changed();
        let firing = firing?;
        let durable = firing.payload.is_none();
        let payload = match &firing.payload {
            Some(payload) => payload.clone(),
            None => match self.payload(&firing, within).await {
                Ok(payload) => payload?,
                Err(error) => {
                    let again = self.put_back(firing.id, Failure::Error);
                    tracing::warn!(
                        event = "guest.timer_failed",
                        module = &*firing.module,
                        timer = &*firing.name,
                        %error,
                        ?again,
                        "the payload of a timer cannot be read"
                    );
                    return None;
                }
            },
        };
        Some(Due {
            timer: Timer {
                module: firing.module,
                name: firing.name,
                payload,
                due_ms: firing.due_ms,
            },
            durable,
            late: firing.late,
            id: firing.id,
        })
    }

    /// The guest took a timer: a durable one is removed, unless it was set anew or cancelled meanwhile. It waits for that, for as long as
    /// a call may last.
    pub async fn fired(&mut self, due: Due, within: Duration) {
        if !due.durable {
            return;
        }
        let shared = self.shared.clone();
        let removing = tokio::spawn(async move {
            let _turn = shared.turn.acquire().await;
            if !shared.lock().table.has(due.id) {
                return;
            }
            let key = record::key(&due.timer.module, &due.timer.name);
            let removed = shared.db.remove_record(record::KIND, &key).await;
            match removed {
                Ok(_) => _ = shared.lock().table.forget(due.id),
                // It fires again, here or where the shard is then.
                Err(error) => {
                    let now = clock::now();
                    let failed = shared.lock().table.failed(due.id, Failure::Error, now);
                    tracing::warn!(timer = &*due.timer.name, %error, ?failed, "a timer that fired cannot be removed");
                }
            }
            shared.changed();
        });
        // What takes longer goes on by itself.
        _ = clock::timeout(within, removing).await;
    }

    /// The guest did not take a timer: how often that was so in a row, and when a durable one is tried again. None where it is not: it is
    /// volatile, was set anew or was cancelled.
    ///
    /// The count is stored behind the failure, so that another opening of the shard goes on with its pauses, and only as long as they grow:
    /// some ten writes, however long it fails. It waits for that, for as long as a call may last.
    pub async fn failed(
        &mut self,
        due: &Due,
        failure: Failure,
        within: Duration,
    ) -> Option<(u32, Duration)> {
        let (failures, pause) = self.put_back(due.id, failure)?;
        if !Backoff::is_longest(failure, pause) {
            let storing = store_failures(self.shared.clone(), due.id, due.timer.clone());
            // What takes longer goes on by itself.
            _ = clock::timeout(within, tokio::spawn(storing)).await;
        }
        Some((failures, pause))
    }

    fn put_back(&mut self, id: u64, failure: Failure) -> Option<(u32, Duration)> {
        let again = self.shared.lock().table.failed(id, failure, clock::now());
        self.shared.changed();
        again
    }

    /// The payload of a durable timer; none where the record has gone.
    async fn payload(
        &self,
        firing: &Firing,
        within: Duration,
    ) -> Result<Option<Bytes>, GuestError> {
        let key = record::key(&firing.module, &firing.name);
        let view = self.shared.db.view();
        let reading = clock::timeout(within, view.record(record::KIND, &key));
        let value = reading.await.map_err(|_| {
            let message = format!("reading it took longer than limits.wall_time ({within:?})");
            GuestError::retryable("unavailable", message)
        })??;
        let Some(value) = value else {
            // Nobody removes it but by way of the table.
            self.shared.lock().table.forget(firing.id);
            return Ok(None);
        };
        match record::parse_value(value) {
            Ok(stored) => Ok(Some(stored.payload)),
            Err(error) => Err(GuestError::new("invalid-data", error.to_string())),
        }
    }

    /// Begins to read the timers of the database, once.
    fn load(&mut self) {
        if self.loader.is_none() {
            let loading = load(self.shared.clone());
            self.loader = Some(AbortOnDropHandle::new(tokio::spawn(loading)));
        }
    }
}

impl Drop for Schedule {
    /// Nobody reads them any more, for whoever still waits for that.
    fn drop(&mut self) {
        let ended = GuestError::retryable("closed", "the shard has ended");
        self.shared.loading.send_if_modified(|loading| {
            let waited_for = *loading == Loading::Begins;
            if waited_for {
                *loading = Loading::Failed(ended);
            }
            waited_for
        });
    }
}

/// Stores with a timer how often it failed, unless it was set anew or cancelled meanwhile.
async fn store_failures(shared: Arc<Shared>, id: u64, timer: Timer) {
    let _turn = shared.turn.acquire().await;
    let Some(backoff) = shared.lock().table.backoff(id) else {
        return;
    };
    let key = record::key(&timer.module, &timer.name);
    let value = record::value(timer.due_ms, backoff, &timer.payload);
    if let Err(error) = shared.db.put_record(record::KIND, &key, value).await {
        tracing::warn!(timer = &*timer.name, %error, "how often a timer failed cannot be stored");
    }
}

/// Reads the timers of the database into memory, however often it has to try.
async fn load(shared: Arc<Shared>) {
    let mut pause = PAUSE.0;
    loop {
        let error = match read(&shared).await {
            Ok(()) => {
                shared.loading.send_replace(Loading::Done);
                shared.changed();
                return;
            }
            Err(error) => error,
        };
        if shared.db.gate().is_over() || matches!(error.code.as_str(), "closed" | "fenced") {
            shared.loading.send_replace(Loading::Failed(error));
            return;
        }
        tracing::warn!(%error, ?pause, "timers of a shard cannot be read; it is tried again");
        clock::sleep(pause).await;
        pause = (pause * 2).min(PAUSE.1);
    }
}

async fn read(shared: &Shared) -> Result<(), GuestError> {
    let mut cursor = shared.db.records(record::KIND).await?;
    let mut found: Vec<Found> = Vec::new();
    loop {
        let page = cursor.next(PAGE).await?;
        if page.is_empty() {
            break;
        }
        for entry in page {
            match parse(&entry.key, entry.value, found.last()) {
                Ok(timer) => found.push(timer),
                // It may be a later version's, so it stays where it is.
                Err(error) => {
                    let key = String::from_utf8_lossy(&entry.key).into_owned();
                    tracing::error!(key, %error, "a timer in the database cannot be read, and does not fire");
                }
            }
        }
        if found.len() >= TIMERS_MAX {
            found.truncate(TIMERS_MAX);
            tracing::error!(
                timers = TIMERS_MAX,
                "the database has more timers than a shard can have; the others wait for its next opening"
            );
            break;
        }
    }
    let mut state = shared.lock();
    for Found {
        module,
        name,
        due_ms,
        backoff,
    } in found
    {
        state.table.set_failed(&module, &name, due_ms, backoff);
    }
    Ok(())
}

/// A timer in the database.
struct Found {
    module: Arc<str>,
    name: Arc<str>,
    due_ms: u64,
    backoff: Backoff,
}

/// A timer as it is stored. Its module's name is shared with the one before it.
fn parse(key: &[u8], value: Bytes, before: Option<&Found>) -> Result<Found, Unreadable> {
    let (module, name) = record::parse_key(key)?;
    let stored = record::parse_value(value)?;
    let module = match before {
        Some(before) if *before.module == *module => before.module.clone(),
        _ => module.into(),
    };
    Ok(Found {
        module,
        name: name.into(),
        due_ms: stored.due_ms,
        backoff: stored.backoff,
    })
}

//! What a guest finds around it: the data, the clock, and the call that runs.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use log::LevelFilter;

use super::store::{Change, RESERVED, Store, Write};
use super::timers::Timers;
use super::{Limits, LogLine, MergeOperator, Metrics, Others};
use crate::context::Status;
use crate::db::Seq;
use crate::error::{Error, Result};
use crate::guest::Exports;
use crate::sys::OpKind;

/// 2026-01-01T00:00:00Z, in milliseconds.
const FIRST_MOMENT_MS: i64 = 1_767_225_600_000;
/// The most operations of a batch or a transaction.
pub(crate) const BATCH_MAX_OPS: usize = 65_536;
/// What an operation, or a key that a serializable transaction read, counts beside its bytes.
pub(crate) const OP_OVERHEAD_BYTES: usize = 64;
/// How long a caller waits unless it says otherwise.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What a [`Builder`](super::Builder) sets.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) cluster: String,
    pub(crate) shard: u32,
    pub(crate) shard_count: u32,
    pub(crate) node: String,
    pub(crate) revision: u64,
    pub(crate) options: String,
    pub(crate) merge_operator: Option<MergeOperator>,
    pub(crate) limits: Limits,
    pub(crate) log_level: LevelFilter,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            cluster: "test".to_owned(),
            shard: 0,
            shard_count: 1,
            node: "test-node".to_owned(),
            revision: 1,
            options: "{}".to_owned(),
            merge_operator: None,
            limits: Limits::default(),
            log_level: LevelFilter::Trace,
        }
    }
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) settings: Settings,
    pub(crate) store: Store,
    pub(crate) status: Status,
    pub(crate) now_ms: i64,
    pub(crate) logs: Vec<LogLine>,
    pub(crate) others: Others,
    pub(crate) metrics: Metrics,
    takes_tags: bool,
    pub(super) timers: Timers,
    durable: u64,
    /// Tags by the seq that they wait for and the order in which they came.
    tags: BTreeMap<(u64, u64), u64>,
    next_tag: u64,
    scope: Scope,
    next_scope: u64,
}

/// What runs: cursors, snapshots and transactions belong to it and end with it.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    id: u64,
    kind: ScopeKind,
    open: usize,
    /// What the open transactions and cursors hold, in bytes.
    bytes: usize,
    deadline_at_ms: Option<i64>,
    headers: Vec<(String, String)>,
    last_write: Option<Seq>,
}

#[derive(Clone, Copy, Debug, Default)]
enum ScopeKind {
    /// A call, a timer, a start, a stop, or a durable event.
    #[default]
    Writing,
    /// A query: reads as of a write.
    Reading { view: u64 },
    /// A check of options, where no database is open.
    Validation,
}

impl Scope {
    pub(crate) fn lifecycle() -> Self {
        Scope::default()
    }

    /// Of a timer that fires at this moment: it has `limits.wall_time` (30 s), as a call has.
    pub(crate) fn timer(now_ms: i64) -> Self {
        Scope {
            deadline_at_ms: Some(now_ms.saturating_add(30_000)),
            ..Scope::default()
        }
    }

    pub(crate) fn validation() -> Self {
        Scope {
            kind: ScopeKind::Validation,
            ..Scope::default()
        }
    }
}

thread_local! {
    /// The world of the guest code that runs on this thread.
    static CURRENT: RefCell<Option<Rc<RefCell<World>>>> = const { RefCell::new(None) };
}

/// Runs `body` with the world of the guest that runs on this thread.
pub(crate) fn with_world<T>(body: impl FnOnce(&mut World) -> T) -> Option<T> {
    let world = CURRENT.with_borrow(Clone::clone)?;
    let mut world = world.borrow_mut();
    Some(body(&mut world))
}

impl World {
    pub(crate) fn new(settings: Settings, exports: Exports) -> Self {
        World {
            settings,
            store: Store::default(),
            status: Status::Running,
            now_ms: FIRST_MOMENT_MS,
            logs: Vec::new(),
            others: Others::default(),
            metrics: Metrics::default(),
            takes_tags: exports.durable_events,
            timers: Timers::new(exports),
            durable: 0,
            tags: BTreeMap::new(),
            next_tag: 0,
            scope: Scope::default(),
            next_scope: 1,
        }
    }

    /// Runs guest code in a scope, and says what it wrote last.
    pub(crate) fn enter<T>(
        world: &Rc<RefCell<World>>,
        scope: Scope,
        body: impl FnOnce() -> T,
    ) -> (T, Option<Seq>) {
        /// Puts things back also when the guest panics, so that the next test on this thread finds none of it.
        struct Restore(Option<Rc<RefCell<World>>>);
        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.set(self.0.take());
            }
        }
        {
            let mut world = world.borrow_mut();
            let id = world.next_scope;
            world.next_scope += 1;
            world.scope = Scope { id, ..scope };
        }
        let restore = Restore(CURRENT.replace(Some(Rc::clone(world))));
        let outcome = body();
        drop(restore);
        // A scope with a new number: what the call left open is closed.
        let mut world = world.borrow_mut();
        let id = world.next_scope;
        world.next_scope += 1;
        let ended = std::mem::replace(
            &mut world.scope,
            Scope {
                id,
                ..Scope::default()
            },
        );
        (outcome, ended.last_write)
    }

    pub(crate) fn call_scope(
        &self,
        timeout: Option<Duration>,
        headers: Vec<(String, String)>,
    ) -> Scope {
        Scope {
            deadline_at_ms: Some(
                self.now_ms
                    .saturating_add(milliseconds(timeout.unwrap_or(TIMEOUT))),
            ),
            headers: headers
                .into_iter()
                .filter(|(name, _)| is_passed_on(name))
                .collect(),
            ..Scope::default()
        }
    }

    pub(crate) fn query_scope(
        &self,
        timeout: Option<Duration>,
        headers: Vec<(String, String)>,
        durable: bool,
    ) -> Scope {
        let view = if durable {
            self.durable
        } else {
            self.store.last_seq()
        };
        Scope {
            kind: ScopeKind::Reading { view },
            ..self.call_scope(timeout, headers)
        }
    }

    /// Code of a guest of this revision, with these exports, runs from now on.
    pub(crate) fn runs_as(&mut self, revision: u64, exports: Exports) {
        self.settings.revision = revision;
        self.takes_tags = exports.durable_events;
        self.timers.taken = exports.timer_events;
    }

    /// The moment after so much time.
    pub(crate) fn after(&self, time: Duration) -> i64 {
        self.now_ms.saturating_add(milliseconds(time))
    }

    /// Whether the shard goes on.
    pub(crate) fn runs(&self) -> bool {
        self.status == Status::Running
    }

    // The call in progress.

    pub(crate) fn deadline_ms(&self) -> Option<u64> {
        let left = self.scope.deadline_at_ms?.saturating_sub(self.now_ms);
        Some(u64::try_from(left).unwrap_or(0))
    }

    /// Whether a call, a timer or a query is in progress.
    pub(crate) fn is_in_call(&self) -> bool {
        self.scope.deadline_at_ms.is_some()
    }

    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let found = self
            .scope
            .headers
            .iter()
            .find(|(header, _)| header.eq_ignore_ascii_case(name))?;
        Some(found.1.clone())
    }

    pub(crate) fn scope_id(&self) -> u64 {
        self.scope.id
    }

    /// Counts a cursor, snapshot or transaction as open.
    pub(crate) fn hold(&mut self) -> Result<Held> {
        let limit = self.settings.limits.open_resources;
        if self.scope.open >= limit {
            let why = format!(
                "{limit} cursors, snapshots and transactions are open in this call (limits.open_resources); drop some first"
            );
            return Err(Error::new("limit", why));
        }
        self.scope.open += 1;
        Ok(Held {
            scope: self.scope.id,
            bytes: 0,
        })
    }

    /// Counts more bytes as held by something open, within twice `limits.batch` for all together.
    pub(crate) fn charge(&mut self, held: &mut Held, bytes: usize) -> Result<()> {
        self.check_bytes(bytes)?;
        self.scope.bytes += bytes;
        held.bytes += bytes;
        Ok(())
    }

    /// Checks that so many more bytes may be held.
    pub(crate) fn check_bytes(&self, bytes: usize) -> Result<()> {
        let limit = self.settings.limits.batch.saturating_mul(2);
        let size = self.scope.bytes + bytes;
        if size > limit {
            let why = format!(
                "the transactions and cursors that are open in this call would hold {size} bytes, over twice limits.batch ({limit} bytes); commit or drop some first"
            );
            return Err(Error::new("limit", why));
        }
        Ok(())
    }

    /// Counts something open as holding nothing any more.
    pub(crate) fn discharge(&mut self, held: &mut Held) {
        self.scope.bytes -= std::mem::take(&mut held.bytes);
    }

    // The database.

    /// The newest write that reads see. Fails where no database is open.
    pub(crate) fn view(&self) -> Result<u64> {
        if self.status == Status::Fenced {
            return Err(
                Error::new("fenced", "another writer opened this shard's database").retryable(),
            );
        }
        match self.scope.kind {
            ScopeKind::Writing => Ok(self.store.last_seq()),
            ScopeKind::Reading { view } => Ok(view),
            ScopeKind::Validation => Err(Error::new(
                "closed",
                "no database is open while options are checked",
            )),
        }
    }

    /// Fails where writes are not allowed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.view()?;
        match self.scope.kind {
            ScopeKind::Reading { .. } => Err(Error::new(
                "read-only",
                "a query cannot write: make a call instead",
            )),
            _ => Ok(()),
        }
    }

    pub(crate) fn check_key(&self, key: &[u8]) -> Result<()> {
        if key.is_empty() {
            return Err(Error::new("invalid-key", "a key cannot be empty"));
        }
        if key.starts_with(&RESERVED) {
            let why = "a key cannot begin with eight bytes 255: such keys are kept for the host's own records, as those of timers";
            return Err(Error::new("invalid-key", why));
        }
        self.check_bound(Some(key))
    }

    /// Checks where a scan begins or ends.
    pub(crate) fn check_bound(&self, key: Option<&[u8]>) -> Result<()> {
        let (size, limit) = (key.map_or(0, <[u8]>::len), self.settings.limits.key);
        if size > limit {
            let why = format!("a key of {size} bytes is over limits.key ({limit} bytes)");
            return Err(Error::new("invalid-key", why));
        }
        Ok(())
    }

    /// Checks an operation on a key, and gives its size: key, value, and 64 bytes.
    pub(crate) fn check_write(&self, write: &Write<'_>, ttl_ms: Option<u64>) -> Result<usize> {
        if ttl_ms == Some(0) {
            let why = "a TTL is at least 1 ms; remove the key instead";
            return Err(Error::new("invalid-argument", why));
        }
        if write.kind == OpKind::Merge {
            let operator = self.settings.merge_operator.ok_or_else(|| {
                let why = "this cluster has no merge operator; `merge_operator` has to be set before its first start";
                Error::new("no-merge-operator", why)
            })?;
            operator.check_operand(write.value)?;
        }
        self.check_key(write.key)?;
        let (size, limit) = (write.value.len(), self.settings.limits.value);
        if size > limit {
            let why = format!("a value of {size} bytes is over limits.value ({limit} bytes)");
            return Err(Error::new("invalid-value", why));
        }
        Ok(write.key.len() + size + OP_OVERHEAD_BYTES)
    }

    /// Checks how many operations a batch or a transaction has.
    pub(crate) fn check_ops(&self, ops: usize) -> Result<()> {
        if ops > BATCH_MAX_OPS {
            let why = format!(
                "{ops} operations are more than a batch or a transaction takes ({BATCH_MAX_OPS}); write in several"
            );
            return Err(Error::new("limit", why));
        }
        Ok(())
    }

    pub(crate) fn check_batch(&self, size: usize) -> Result<()> {
        let limit = self.settings.limits.batch;
        if size > limit {
            let why = format!(
                "a batch of {size} bytes ({OP_OVERHEAD_BYTES} for each operation among them) is over limits.batch ({limit} bytes)"
            );
            return Err(Error::new("limit", why));
        }
        Ok(())
    }

    pub(crate) fn check_keys(&self, keys: &[Vec<u8>]) -> Result<()> {
        let limit = self.settings.limits.get_many;
        if keys.len() > limit {
            let why = format!(
                "{} keys are more than one get-many takes ({limit}); ask in several",
                keys.len()
            );
            return Err(Error::new("limit", why));
        }
        Ok(())
    }

    /// Checks what a `get_many` found.
    pub(crate) fn check_values(&self, values: &[Option<Vec<u8>>]) -> Result<()> {
        let limit = self.settings.limits.batch;
        let size: usize = values.iter().flatten().map(Vec::len).sum();
        if size > limit {
            let why = format!(
                "the values of these {} keys have more bytes together than one get-many gives (limits.batch, {limit} bytes); ask for fewer",
                values.len()
            );
            return Err(Error::new("limit", why));
        }
        Ok(())
    }

    /// When a value with this time to live expires.
    pub(crate) fn expiry(&self, ttl_ms: Option<u64>) -> Option<i64> {
        ttl_ms.map(|ttl| {
            self.now_ms
                .saturating_add(i64::try_from(ttl).unwrap_or(i64::MAX))
        })
    }

    pub(crate) fn commit(&mut self, changes: BTreeMap<Vec<u8>, Change>) -> Seq {
        let seq = Seq(self.store.commit(changes, self.now_ms));
        self.scope.last_write = Some(seq);
        seq
    }

    // Durability.

    pub(crate) fn durable_seq(&self) -> Seq {
        Seq(self.durable)
    }

    pub(crate) fn make_durable(&mut self, seq: Seq) {
        self.durable = self.durable.max(seq.0.min(self.store.last_seq()));
    }

    pub(crate) fn lose_what_is_not_durable(&mut self) {
        self.store.forget_after(self.durable);
        self.drop_tags();
        self.timers.forget();
    }

    pub(crate) fn drop_tags(&mut self) {
        self.tags.clear();
    }

    pub(crate) fn notify(&mut self, seq: Seq, tag: u64) -> Result<()> {
        self.check_writable()?;
        if !self.takes_tags {
            let why = "this guest does not export `durable-events`, so there is nobody to tell; name durable_events in export!";
            return Err(Error::new("invalid-argument", why));
        }
        if seq.0 > self.store.last_seq() {
            let why = format!(
                "seq {seq} was not given out yet: the last one is {}",
                self.store.last_seq()
            );
            return Err(Error::new("invalid-argument", why));
        }
        let limit = self.settings.limits.notifications;
        if self.tags.len() >= limit {
            let why = format!("{limit} notifications are outstanding (limits.notifications)");
            return Err(Error::new("limit", why).retryable());
        }
        self.tags.insert((seq.0, self.next_tag), tag);
        self.next_tag += 1;
        Ok(())
    }

    /// The tags whose writes are durable, lowest seq first.
    pub(crate) fn take_durable_tags(&mut self) -> Vec<u64> {
        let later = self.tags.split_off(&(self.durable + 1, 0));
        std::mem::replace(&mut self.tags, later)
            .into_values()
            .collect()
    }
}

/// An open cursor, snapshot or transaction, for as long as its scope lasts.
#[derive(Debug)]
pub(crate) struct Held {
    scope: u64,
    bytes: usize,
}

impl Held {
    /// Fails with `closed` once the call that opened it is over.
    pub(crate) fn check_open(&self, world: &World) -> Result<()> {
        if world.scope_id() == self.scope {
            return Ok(());
        }
        Err(Error::new(
            "closed",
            "the call that opened this is over: cursors, snapshots and transactions end with it",
        ))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        with_world(|world| {
            if world.scope.id == self.scope {
                world.scope.open -= 1;
                world.scope.bytes -= self.bytes;
            }
        });
    }
}

/// Whether the host hands a header (in lower case) to the guest.
fn is_passed_on(name: &str) -> bool {
    matches!(
        name,
        "content-type" | "accept" | "traceparent" | "tracestate" | "idempotency-key"
    ) || name.starts_with("x-")
}

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

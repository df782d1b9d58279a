//! What a guest finds around it: the data, the clock, and the call that runs.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use log::{Level, LevelFilter};

use super::MergeOperator;
use super::store::{Change, Store};
use crate::context::Status;
use crate::db::Seq;
use crate::error::{Error, Result};

/// 2026-01-01T00:00:00Z, in milliseconds.
const FIRST_MOMENT_MS: i64 = 1_767_225_600_000;
/// How long a caller waits unless it says otherwise.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Tags that may wait for durability.
const MAX_TAGS: usize = 65_536;
/// What may be cut off a log line, as the host does.
const MAX_MESSAGE_BYTES: usize = 16 * 1024;
const MAX_FIELD_BYTES: usize = 1024;
const MAX_FIELDS: usize = 32;

/// The limits of a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest key, in bytes. At most 65,535.
    pub key_bytes: usize,
    /// The longest value, in bytes.
    pub value_bytes: usize,
    /// The most bytes of keys and values in a batch or a transaction.
    pub batch_bytes: usize,
    /// The most cursors, snapshots and transactions that are open in a call.
    pub open_resources: usize,
    /// How long a transaction may take.
    pub transaction_age: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            key_bytes: 65_535,
            value_bytes: 16 << 20,
            batch_bytes: 32 << 20,
            open_resources: 64,
            transaction_age: Duration::from_secs(10),
        }
    }
}

/// A line that the guest logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Its level.
    pub level: Level,
    /// Its text, up to 16 KiB.
    pub message: String,
    /// Its fields: up to 32 of up to 1 KiB.
    pub fields: Vec<(String, String)>,
}

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
    takes_tags: bool,
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
    deadline_at_ms: Option<i64>,
    headers: Vec<(String, String)>,
    last_write: Option<Seq>,
}

#[derive(Clone, Copy, Debug, Default)]
enum ScopeKind {
    /// A call, a start, a stop, or a durable event.
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
    pub(crate) fn new(settings: Settings, takes_tags: bool) -> Self {
        World {
            settings,
            store: Store::default(),
            status: Status::Running,
            now_ms: FIRST_MOMENT_MS,
            logs: Vec::new(),
            takes_tags,
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

    pub(crate) fn advance(&mut self, time: Duration) {
        self.now_ms = self.now_ms.saturating_add(milliseconds(time));
    }

    // The call in progress.

    pub(crate) fn deadline_ms(&self) -> Option<u64> {
        let left = self.scope.deadline_at_ms?.saturating_sub(self.now_ms);
        Some(u64::try_from(left).unwrap_or(0))
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
                "{limit} cursors, snapshots and transactions are open, as many as limits.open_resources allows: close some"
            );
            return Err(Error::new("limit", why));
        }
        self.scope.open += 1;
        Ok(Held {
            scope: self.scope.id,
        })
    }

    // The database.

    /// The newest write that reads see. Fails where no database is open.
    pub(crate) fn view(&self) -> Result<u64> {
        if self.status == Status::Fenced {
            return Err(Error::new("fenced", "another writer took this shard over"));
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
        let limit = self.settings.limits.key_bytes;
        if key.is_empty() {
            Err(Error::new("invalid-key", "a key has at least 1 byte"))
        } else if key.len() > limit {
            let why = format!(
                "the key has {} bytes, and limits.key_bytes is {limit}",
                key.len()
            );
            Err(Error::new("invalid-key", why))
        } else {
            Ok(())
        }
    }

    pub(crate) fn check_value(&self, value: &[u8]) -> Result<()> {
        let limit = self.settings.limits.value_bytes;
        if value.len() > limit {
            let why = format!(
                "the value has {} bytes, and limits.value_bytes is {limit}",
                value.len()
            );
            return Err(Error::new("invalid-value", why));
        }
        Ok(())
    }

    pub(crate) fn check_batch_bytes(&self, bytes: usize) -> Result<()> {
        let limit = self.settings.limits.batch_bytes;
        if bytes > limit {
            let why = format!(
                "the batch has {bytes} bytes of keys and values, and limits.batch_bytes is {limit}"
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
    }

    pub(crate) fn drop_tags(&mut self) {
        self.tags.clear();
    }

    pub(crate) fn notify(&mut self, seq: Seq, tag: u64) -> Result<()> {
        self.check_writable()?;
        if !self.takes_tags {
            let why = "the guest does not export durable-events, so nothing can be told: name durable_events in export!";
            return Err(Error::new("invalid-argument", why));
        }
        if seq.0 > self.store.last_seq() {
            let why = format!(
                "seq {seq} was not given out yet: the last one is {}",
                self.store.last_seq()
            );
            return Err(Error::new("invalid-argument", why));
        }
        if self.tags.len() >= MAX_TAGS {
            return Err(Error::new(
                "limit",
                format!("{MAX_TAGS} durability notifications are outstanding"),
            ));
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

    // The log.

    pub(crate) fn log(&mut self, level: Level, message: &str, fields: &[(String, String)]) {
        let fields = fields.iter().take(MAX_FIELDS);
        self.logs.push(LogLine {
            level,
            message: cut(message, MAX_MESSAGE_BYTES),
            fields: fields
                .map(|(name, value)| (cut(name, MAX_FIELD_BYTES), cut(value, MAX_FIELD_BYTES)))
                .collect(),
        });
    }
}

/// An open cursor, snapshot or transaction, for as long as its scope lasts.
#[derive(Debug)]
pub(crate) struct Held {
    scope: u64,
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

fn cut(text: &str, bytes: usize) -> String {
    text[..text.floor_char_boundary(bytes)].to_owned()
}

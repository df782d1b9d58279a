//! The host, played by the test double.

use std::cell::RefCell;
use std::vec;

use log::Level;
use xxhash_rust::xxh64::xxh64;

use super::{Op, OpKind, Stored};
use crate::context::Status;
use crate::db::{Entry, Isolation, Order, Seq};
use crate::error::{Error, Result};
use crate::testing::{
    Asked, Held, LogLine, Span, Stage, TransactionState, Value, World, Write, entries, with_world,
};

/// Entries of a page.
const MAX_PAGE: u32 = 10_000;

fn database<T>(body: impl FnOnce(&mut World) -> Result<T>) -> Result<T> {
    with_world(body).unwrap_or_else(|| {
        let why = "no host runs here: use `db` in a handler, or within `testing::Host::run`";
        Err(Error::new("closed", why))
    })
}

/// Something of the host that is there whether a database is or not.
fn context<T>(body: impl FnOnce(&mut World) -> T) -> T {
    with_world(body)
        .expect("no host runs here: use this in a handler, or within `testing::Host::run`")
}

pub(crate) fn get(key: &[u8]) -> Result<Option<Vec<u8>>> {
    database(|world| {
        let view = world.view()?;
        read(world, key, view)
    })
}

pub(crate) fn get_versioned(key: &[u8]) -> Result<Option<Stored>> {
    database(|world| {
        let view = world.view()?;
        world.check_key(key)?;
        Ok(world.store.get_stored(key, view, world.now_ms))
    })
}

pub(crate) fn get_many(keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>> {
    database(|world| {
        let view = world.view()?;
        read_many(world, keys, view)
    })
}

pub(crate) fn put(key: &[u8], value: &[u8]) -> Result<Seq> {
    write_one(OpKind::Put, key, value, None)
}

pub(crate) fn put_for(key: &[u8], value: &[u8], ttl_ms: u64) -> Result<Seq> {
    write_one(OpKind::Put, key, value, Some(ttl_ms))
}

pub(crate) fn remove(key: &[u8]) -> Result<Seq> {
    write_one(OpKind::Remove, key, &[], None)
}

pub(crate) fn merge(key: &[u8], operand: &[u8]) -> Result<Seq> {
    write_one(OpKind::Merge, key, operand, None)
}

fn write_one(kind: OpKind, key: &[u8], value: &[u8], ttl_ms: Option<u64>) -> Result<Seq> {
    write(vec![Op {
        kind,
        key: key.to_vec(),
        value: value.to_vec(),
        ttl_ms,
    }])
}

pub(crate) fn write(ops: Vec<Op>) -> Result<Seq> {
    database(|world| {
        world.check_writable()?;
        if ops.is_empty() {
            return Err(Error::new(
                "invalid-argument",
                "a batch needs at least one operation",
            ));
        }
        world.check_ops(ops.len())?;
        let mut stage = Stage::default();
        for op in &ops {
            let (value, ttl_ms) = match op.kind {
                OpKind::Put => (&op.value[..], op.ttl_ms),
                OpKind::Merge => (&op.value[..], None),
                OpKind::Remove => (&[][..], None),
            };
            let expires_at_ms = world.expiry(ttl_ms);
            let write = Write {
                kind: op.kind,
                key: &op.key,
                value,
                expires_at_ms,
            };
            let size = world.check_write(&write, ttl_ms)?;
            world.check_batch(stage.bytes + size)?;
            let existing = world
                .store
                .get(&op.key, world.store.last_seq(), world.now_ms);
            stage.add(
                &write,
                existing,
                world.settings.merge_operator,
                world.settings.limits.value,
                world.now_ms,
            )?;
        }
        Ok(world.commit(stage.changes))
    })
}

pub(crate) fn scan(start: Option<Vec<u8>>, end: Option<Vec<u8>>, order: Order) -> Result<Cursor> {
    scan_span(Span::new(start, end), order)
}

pub(crate) fn scan_prefix(prefix: &[u8], order: Order) -> Result<Cursor> {
    scan_span(Span::prefix(prefix), order)
}

fn scan_span(span: Span, order: Order) -> Result<Cursor> {
    database(|world| {
        let view = world.view()?;
        Cursor::at(world, &span, view, order)
    })
}

/// The entries of a scan: read when it was opened, which is the moment that it shows.
#[derive(Debug)]
pub(crate) struct Cursor {
    held: Held,
    entries: vec::IntoIter<Entry>,
}

impl Cursor {
    fn at(world: &mut World, span: &Span, view: u64, order: Order) -> Result<Self> {
        span.check(world)?;
        let held = world.hold()?;
        let found = world.store.scan(span, view, world.now_ms);
        Ok(Cursor {
            held,
            entries: entries(found, order == Order::Descending).into_iter(),
        })
    }

    pub(crate) fn next(&mut self, max: u32) -> Result<Vec<Entry>> {
        database(|world| {
            world.view()?;
            self.held.check_open(world)?;
            if max == 0 {
                return Err(Error::new(
                    "invalid-argument",
                    "a page holds at least 1 entry",
                ));
            }
            let mut page = Vec::new();
            let mut bytes = 0;
            while page.len() < max.min(MAX_PAGE) as usize
                && let Some(entry) = self.entries.as_slice().first()
            {
                bytes += entry.key.len() + entry.value.len();
                if bytes > world.settings.limits.page && !page.is_empty() {
                    break;
                }
                page.extend(self.entries.next());
            }
            Ok(page)
        })
    }
}

pub(crate) fn open_snapshot() -> Result<Snapshot> {
    database(|world| {
        let view = world.view()?;
        Ok(Snapshot {
            held: world.hold()?,
            view,
        })
    })
}

#[derive(Debug)]
pub(crate) struct Snapshot {
    held: Held,
    view: u64,
}

impl Snapshot {
    pub(crate) fn seq(&self) -> Seq {
        Seq(self.view)
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.database(|world| read(world, key, self.view))
    }

    pub(crate) fn get_many(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>> {
        self.database(|world| read_many(world, keys, self.view))
    }

    pub(crate) fn scan(
        &self,
        start: Option<Vec<u8>>,
        end: Option<Vec<u8>>,
        order: Order,
    ) -> Result<Cursor> {
        self.database(|world| Cursor::at(world, &Span::new(start, end), self.view, order))
    }

    pub(crate) fn scan_prefix(&self, prefix: &[u8], order: Order) -> Result<Cursor> {
        self.database(|world| Cursor::at(world, &Span::prefix(prefix), self.view, order))
    }

    fn database<T>(&self, body: impl FnOnce(&mut World) -> Result<T>) -> Result<T> {
        database(|world| {
            world.view()?;
            self.held.check_open(world)?;
            body(world)
        })
    }
}

pub(crate) fn begin(isolation: Isolation) -> Result<Transaction> {
    database(|world| {
        world.check_writable()?;
        Ok(Transaction {
            held: RefCell::new(world.hold()?),
            state: RefCell::new(TransactionState::new(world, isolation)),
        })
    })
}

#[derive(Debug)]
pub(crate) struct Transaction {
    held: RefCell<Held>,
    state: RefCell<TransactionState>,
}

impl Transaction {
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.database(|world, held, state| {
            world.check_key(key)?;
            state.charge_reads(world, held, &[key.to_vec()])?;
            Ok(state.get(world, key))
        })
    }

    pub(crate) fn get_many(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>> {
        self.database(|world, held, state| {
            world.check_keys(keys)?;
            for key in keys {
                world.check_key(key)?;
            }
            state.charge_reads(world, held, keys)?;
            let values: Vec<_> = keys.iter().map(|key| state.get(world, key)).collect();
            world.check_values(&values)?;
            Ok(values)
        })
    }

    pub(crate) fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(OpKind::Put, key, value, None)
    }

    pub(crate) fn put_for(&self, key: &[u8], value: &[u8], ttl_ms: u64) -> Result<()> {
        self.write(OpKind::Put, key, value, Some(ttl_ms))
    }

    pub(crate) fn remove(&self, key: &[u8]) -> Result<()> {
        self.write(OpKind::Remove, key, &[], None)
    }

    pub(crate) fn merge(&self, key: &[u8], operand: &[u8]) -> Result<()> {
        self.write(OpKind::Merge, key, operand, None)
    }

    pub(crate) fn scan(
        &self,
        start: Option<Vec<u8>>,
        end: Option<Vec<u8>>,
        order: Order,
    ) -> Result<Cursor> {
        self.scan_span(Span::new(start, end), order)
    }

    pub(crate) fn scan_prefix(&self, prefix: &[u8], order: Order) -> Result<Cursor> {
        self.scan_span(Span::prefix(prefix), order)
    }

    pub(crate) fn commit(&self) -> Result<Option<Seq>> {
        self.database(|world, held, state| {
            let outcome = state.commit(world);
            world.discharge(held);
            outcome
        })
    }

    fn write(&self, kind: OpKind, key: &[u8], value: &[u8], ttl_ms: Option<u64>) -> Result<()> {
        self.database(|world, held, state| {
            let write = Write {
                kind,
                key,
                value,
                expires_at_ms: world.expiry(ttl_ms),
            };
            state.write(world, held, &write, ttl_ms)
        })
    }

    fn scan_span(&self, span: Span, order: Order) -> Result<Cursor> {
        self.database(|world, held, state| {
            span.check(world)?;
            state.charge_range(world, held, &span)?;
            // It shows the transaction's writes, and so keeps them.
            world.check_bytes(state.size())?;
            let mut held = world.hold()?;
            world.charge(&mut held, state.size())?;
            let found = state.scan(world, span);
            Ok(Cursor {
                held,
                entries: entries(found, order == Order::Descending).into_iter(),
            })
        })
    }

    fn database<T>(
        &self,
        body: impl FnOnce(&mut World, &mut Held, &mut TransactionState) -> Result<T>,
    ) -> Result<T> {
        database(|world| {
            world.check_writable()?;
            let mut held = self.held.borrow_mut();
            held.check_open(world)?;
            let mut state = self.state.borrow_mut();
            state.check_open(world)?;
            body(world, &mut held, &mut state)
        })
    }
}

fn read_many(world: &World, keys: &[Vec<u8>], view: u64) -> Result<Vec<Option<Vec<u8>>>> {
    world.check_keys(keys)?;
    let values = keys
        .iter()
        .map(|key| read(world, key, view))
        .collect::<Result<Vec<_>>>()?;
    world.check_values(&values)?;
    Ok(values)
}

fn read(world: &World, key: &[u8], view: u64) -> Result<Option<Vec<u8>>> {
    world.check_key(key)?;
    Ok(world.store.get(key, view, world.now_ms).map(<[u8]>::to_vec))
}

pub(crate) fn durable_seq() -> Seq {
    context(|world| world.durable_seq())
}

pub(crate) fn notify_when_durable(seq: Seq, tag: u64) -> Result<()> {
    database(|world| world.notify(seq, tag))
}

pub(crate) fn set_timer(name: &str, after_ms: u64, payload: &[u8]) -> Result<()> {
    database(|world| world.set_timer(name, after_ms, payload))
}

pub(crate) fn set_durable_timer(name: &str, after_ms: u64, payload: &[u8]) -> Result<Seq> {
    database(|world| world.set_durable_timer(name, after_ms, payload))
}

pub(crate) fn cancel_timer(name: &str) -> Result<bool> {
    database(|world| world.cancel_timer(name))
}

pub(crate) fn timer_due_ms(name: &str) -> Result<Option<u64>> {
    database(|world| world.timer_due_ms(name))
}

pub(crate) fn cluster() -> String {
    context(|world| world.settings.cluster.clone())
}

pub(crate) fn shard() -> u32 {
    context(|world| world.settings.shard)
}

pub(crate) fn shard_count() -> u32 {
    context(|world| world.settings.shard_count)
}

pub(crate) fn shard_for(key: &[u8]) -> u32 {
    let count = u64::from(shard_count());
    u32::try_from(xxh64(key, 0) % count).expect("a remainder is below a u32 count")
}

pub(crate) fn node() -> String {
    context(|world| world.settings.node.clone())
}

/// The test double has no leases.
pub(crate) fn generation() -> u64 {
    0
}

pub(crate) fn owned_for_ms() -> u64 {
    u64::MAX
}

pub(crate) fn module() -> String {
    "main".to_owned()
}

pub(crate) fn revision() -> u64 {
    context(|world| world.settings.revision)
}

pub(crate) fn options() -> String {
    context(|world| world.settings.options.clone())
}

pub(crate) fn status() -> Status {
    context(|world| world.status)
}

pub(crate) fn deadline_ms() -> Option<u64> {
    with_world(|world| world.deadline_ms()).flatten()
}

pub(crate) fn traceparent() -> Option<String> {
    header("traceparent")
}

pub(crate) fn header(name: &str) -> Option<String> {
    with_world(|world| world.header(name)).flatten()
}

pub(crate) fn call_shard(
    shard: u32,
    method: &str,
    key: Option<&[u8]>,
    payload: &[u8],
) -> Result<Vec<u8>> {
    ask(false, shard, method, key, payload)
}

pub(crate) fn call_key(key: &[u8], method: &str, payload: &[u8]) -> Result<Vec<u8>> {
    ask(false, shard_for(key), method, Some(key), payload)
}

pub(crate) fn query_shard(
    shard: u32,
    method: &str,
    key: Option<&[u8]>,
    payload: &[u8],
) -> Result<Vec<u8>> {
    ask(true, shard, method, key, payload)
}

pub(crate) fn query_key(key: &[u8], method: &str, payload: &[u8]) -> Result<Vec<u8>> {
    ask(true, shard_for(key), method, Some(key), payload)
}

fn ask(
    query: bool,
    shard: u32,
    method: &str,
    key: Option<&[u8]>,
    payload: &[u8],
) -> Result<Vec<u8>> {
    let asked = Asked {
        query,
        shard,
        key: key.map(<[u8]>::to_vec),
        method: method.to_owned(),
        payload: payload.to_vec(),
    };
    let others = database(|world| {
        world.check_asked(&asked)?;
        Ok(world.others.clone())
    })?;
    // The test's own code; the guest's world is free meanwhile.
    others.answer(&asked)
}

pub(crate) fn describe_metric(name: &str, help: &str) {
    with_world(|world| world.metrics.describe(name, help));
}

pub(crate) fn add_to_counter(name: &str, labels: &[(String, String)], by: u64) {
    with_world(|world| world.metrics.use_one(name, labels, Value::Counter(by)));
}

pub(crate) fn set_gauge(name: &str, labels: &[(String, String)], value: f64) {
    with_world(|world| world.metrics.use_one(name, labels, Value::Gauge(value)));
}

pub(crate) fn observe_histogram(name: &str, labels: &[(String, String)], value: f64) {
    with_world(|world| {
        let value = Value::Histogram(vec![value]);
        world.metrics.use_one(name, labels, value);
    });
}

pub(crate) fn log_enabled(level: Level) -> bool {
    with_world(|world| level <= world.settings.log_level).unwrap_or(false)
}

pub(crate) fn log(level: Level, message: &str, fields: &[(String, String)]) {
    with_world(|world| world.logs.push(LogLine::new(level, message, fields)));
}

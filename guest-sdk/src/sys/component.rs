//! The host, through the component's imports.

use log::Level;

use super::{Op, OpKind, Stored};
use crate::bindings::handler::quarry::shard::{
    cluster as cluster_calls, current_call, db, durability, log as host_log, metrics, shard,
    timers, types,
};
use crate::context::Status;
use crate::db::{Entry, Isolation, Order, Seq};
use crate::error::{Error, Result};

impl From<types::Error> for Error {
    fn from(error: types::Error) -> Self {
        Error::from_parts(error.code, error.message, error.retryable)
    }
}

impl From<Error> for types::Error {
    fn from(error: Error) -> Self {
        let (code, message, retryable) = error.into_parts();
        types::Error {
            code,
            message,
            retryable,
        }
    }
}

pub(crate) fn get(key: &[u8]) -> Result<Option<Vec<u8>>> {
    Ok(db::get(key)?)
}

pub(crate) fn get_versioned(key: &[u8]) -> Result<Option<Stored>> {
    Ok(db::get_versioned(key)?.map(|found| Stored {
        value: found.value,
        seq: found.seq,
        created_at_ms: found.created_at_ms,
        expires_at_ms: found.expires_at_ms,
    }))
}

pub(crate) fn get_many(keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>> {
    Ok(db::get_many(keys)?)
}

pub(crate) fn put(key: &[u8], value: &[u8]) -> Result<Seq> {
    Ok(Seq(db::put(key, value)?))
}

pub(crate) fn put_for(key: &[u8], value: &[u8], ttl_ms: u64) -> Result<Seq> {
    Ok(Seq(db::put_for(key, value, ttl_ms)?))
}

pub(crate) fn remove(key: &[u8]) -> Result<Seq> {
    Ok(Seq(db::remove(key)?))
}

pub(crate) fn merge(key: &[u8], operand: &[u8]) -> Result<Seq> {
    Ok(Seq(db::merge(key, operand)?))
}

pub(crate) fn write(ops: Vec<Op>) -> Result<Seq> {
    let ops: Vec<db::Op> = ops
        .into_iter()
        .map(|op| db::Op {
            kind: match op.kind {
                OpKind::Put => db::OpKind::Put,
                OpKind::Remove => db::OpKind::Remove,
                OpKind::Merge => db::OpKind::Merge,
            },
            key: op.key,
            value: op.value,
            ttl_ms: op.ttl_ms,
        })
        .collect();
    Ok(Seq(db::write(&ops)?))
}

pub(crate) fn scan(start: Option<Vec<u8>>, end: Option<Vec<u8>>, order: Order) -> Result<Cursor> {
    Ok(Cursor(db::scan(
        &db::KeyRange { start, end },
        order.into(),
    )?))
}

pub(crate) fn scan_prefix(prefix: &[u8], order: Order) -> Result<Cursor> {
    Ok(Cursor(db::scan_prefix(prefix, order.into())?))
}

#[derive(Debug)]
pub(crate) struct Cursor(db::Cursor);

impl Cursor {
    pub(crate) fn next(&mut self, max: u32) -> Result<Vec<Entry>> {
        let page = self.0.next(max)?;
        Ok(page
            .into_iter()
            .map(|entry| Entry {
                key: entry.key,
                value: entry.value,
            })
            .collect())
    }
}

pub(crate) fn open_snapshot() -> Result<Snapshot> {
    Ok(Snapshot(db::open_snapshot()?))
}

#[derive(Debug)]
pub(crate) struct Snapshot(db::Snapshot);

impl Snapshot {
    pub(crate) fn seq(&self) -> Seq {
        Seq(self.0.seq())
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.0.get(key)?)
    }

    pub(crate) fn get_many(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>> {
        Ok(self.0.get_many(keys)?)
    }

    pub(crate) fn scan(
        &self,
        start: Option<Vec<u8>>,
        end: Option<Vec<u8>>,
        order: Order,
    ) -> Result<Cursor> {
        Ok(Cursor(
            self.0.scan(&db::KeyRange { start, end }, order.into())?,
        ))
    }

    pub(crate) fn scan_prefix(&self, prefix: &[u8], order: Order) -> Result<Cursor> {
        Ok(Cursor(self.0.scan_prefix(prefix, order.into())?))
    }
}

pub(crate) fn begin(isolation: Isolation) -> Result<Transaction> {
    let level = match isolation {
        Isolation::Snapshot => db::IsolationLevel::SnapshotIsolation,
        Isolation::Serializable => db::IsolationLevel::Serializable,
    };
    Ok(Transaction(db::begin(level)?))
}

#[derive(Debug)]
pub(crate) struct Transaction(db::Transaction);

impl Transaction {
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.0.get(key)?)
    }

    pub(crate) fn get_many(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>> {
        Ok(self.0.get_many(keys)?)
    }

    pub(crate) fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.0.put(key, value)?)
    }

    pub(crate) fn put_for(&self, key: &[u8], value: &[u8], ttl_ms: u64) -> Result<()> {
        Ok(self.0.put_for(key, value, ttl_ms)?)
    }

    pub(crate) fn remove(&self, key: &[u8]) -> Result<()> {
        Ok(self.0.remove(key)?)
    }

    pub(crate) fn merge(&self, key: &[u8], operand: &[u8]) -> Result<()> {
        Ok(self.0.merge(key, operand)?)
    }

    pub(crate) fn scan(
        &self,
        start: Option<Vec<u8>>,
        end: Option<Vec<u8>>,
        order: Order,
    ) -> Result<Cursor> {
        Ok(Cursor(
            self.0.scan(&db::KeyRange { start, end }, order.into())?,
        ))
    }

    pub(crate) fn scan_prefix(&self, prefix: &[u8], order: Order) -> Result<Cursor> {
        Ok(Cursor(self.0.scan_prefix(prefix, order.into())?))
    }

    pub(crate) fn commit(&self) -> Result<Option<Seq>> {
        Ok(self.0.commit()?.map(Seq))
    }
}

impl From<Order> for db::Order {
    fn from(order: Order) -> Self {
        match order {
            Order::Ascending => db::Order::Ascending,
            Order::Descending => db::Order::Descending,
        }
    }
}

pub(crate) fn durable_seq() -> Seq {
    Seq(durability::durable_seq())
}

pub(crate) fn notify_when_durable(seq: Seq, tag: u64) -> Result<()> {
    Ok(durability::notify_when_durable(seq.0, tag)?)
}

pub(crate) fn set_timer(name: &str, after_ms: u64, payload: &[u8]) -> Result<()> {
    Ok(timers::set(name, after_ms, payload)?)
}

pub(crate) fn set_durable_timer(name: &str, after_ms: u64, payload: &[u8]) -> Result<Seq> {
    Ok(Seq(timers::set_durable(name, after_ms, payload)?))
}

pub(crate) fn cancel_timer(name: &str) -> Result<bool> {
    Ok(timers::cancel(name)?)
}

pub(crate) fn timer_due_ms(name: &str) -> Result<Option<u64>> {
    Ok(timers::due_ms(name)?)
}

pub(crate) use shard::{
    cluster, count as shard_count, generation, module, node, number as shard, options,
};
pub(crate) use shard::{owned_for_ms, revision, shard_for};

pub(crate) fn status() -> Status {
    match shard::status() {
        shard::ShardStatus::Running => Status::Running,
        shard::ShardStatus::Stopping => Status::Stopping,
        shard::ShardStatus::Fenced => Status::Fenced,
    }
}

pub(crate) use current_call::{deadline_ms, header, traceparent};

pub(crate) fn call_shard(
    shard: u32,
    method: &str,
    key: Option<&[u8]>,
    payload: &[u8],
) -> Result<Vec<u8>> {
    Ok(cluster_calls::call(shard, method, key, payload)?)
}

pub(crate) fn call_key(key: &[u8], method: &str, payload: &[u8]) -> Result<Vec<u8>> {
    Ok(cluster_calls::call_key(key, method, payload)?)
}

pub(crate) fn query_shard(
    shard: u32,
    method: &str,
    key: Option<&[u8]>,
    payload: &[u8],
) -> Result<Vec<u8>> {
    Ok(cluster_calls::query(shard, method, key, payload)?)
}

pub(crate) fn query_key(key: &[u8], method: &str, payload: &[u8]) -> Result<Vec<u8>> {
    Ok(cluster_calls::query_key(key, method, payload)?)
}

pub(crate) use metrics::{
    add as add_to_counter, describe as describe_metric, observe as observe_histogram,
    set as set_gauge,
};

pub(crate) fn log_enabled(level: Level) -> bool {
    host_log::enabled(host_level(level))
}

pub(crate) fn log(level: Level, message: &str, fields: &[(String, String)]) {
    host_log::write(host_level(level), message, fields);
}

fn host_level(level: Level) -> host_log::Level {
    match level {
        Level::Error => host_log::Level::Error,
        Level::Warn => host_log::Level::Warn,
        Level::Info => host_log::Level::Info,
        Level::Debug => host_log::Level::Debug,
        Level::Trace => host_log::Level::Trace,
    }
}

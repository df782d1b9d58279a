//! The imported interface `db`, over the shard's database.
//!
//! Keys and values come in as vectors of their own and go on as [`Bytes`] without a copy. A value that is read is copied once, out
//! of SlateDB's block or memtable.

use std::sync::Arc;

use bytes::Bytes;
use wasmtime::component::Resource;

use super::bindings::db::{
    Entry, Host, HostCursor, HostSnapshot, HostTransaction, IsolationLevel, KeyRange, Op, OpKind,
    Order, Versioned,
};
use super::bindings::types::Error;
use super::state::State;
use crate::db::{self, Cursor, Isolation, ReadView, ShardDb, Transaction};

type Seq = u64;
type Values = Vec<Option<Vec<u8>>>;

impl Host for State {
    async fn get(&mut self, key: Vec<u8>) -> Result<Option<Vec<u8>>, Error> {
        get(&self.data.reads, &key).await
    }

    async fn get_versioned(&mut self, key: Vec<u8>) -> Result<Option<Versioned>, Error> {
        let row = self.data.reads.get_versioned(&key).await?;
        Ok(row.map(|row| Versioned {
            value: row.value.into(),
            seq: row.seq,
            created_at_ms: row.created_at_ms,
            expires_at_ms: row.expires_at_ms,
        }))
    }

    async fn get_many(&mut self, keys: Vec<Vec<u8>>) -> Result<Values, Error> {
        get_many(&self.data.reads, keys).await
    }

    async fn put(&mut self, key: Vec<u8>, value: Vec<u8>) -> Result<Seq, Error> {
        Ok(self.writes()?.put(key.into(), value.into()).await?)
    }

    async fn put_for(&mut self, key: Vec<u8>, value: Vec<u8>, ttl_ms: u64) -> Result<Seq, Error> {
        let op = db::Op::Put {
            key: key.into(),
            value: value.into(),
            ttl_ms: Some(ttl_ms),
        };
        Ok(self.writes()?.write(vec![op]).await?)
    }

    async fn remove(&mut self, key: Vec<u8>) -> Result<Seq, Error> {
        Ok(self.writes()?.remove(key.into()).await?)
    }

    async fn merge(&mut self, key: Vec<u8>, operand: Vec<u8>) -> Result<Seq, Error> {
        let op = db::Op::Merge {
            key: key.into(),
            operand: operand.into(),
        };
        Ok(self.writes()?.write(vec![op]).await?)
    }

    async fn write(&mut self, ops: Vec<Op>) -> Result<Seq, Error> {
        db::check_ops(ops.len())?;
        let db = self.writes()?;
        Ok(db.write(ops.into_iter().map(Into::into).collect()).await?)
    }

    async fn scan(&mut self, range: KeyRange, order: Order) -> Result<Resource<Cursor>, Error> {
        self.resources.check_room()?;
        let cursor = self.data.reads.scan(&range.into(), order.into()).await?;
        Ok(Resource::new_own(self.resources.add_cursor(cursor)))
    }

    async fn scan_prefix(
        &mut self,
        prefix: Vec<u8>,
        order: Order,
    ) -> Result<Resource<Cursor>, Error> {
        self.resources.check_room()?;
        let cursor = self
            .data
            .reads
            .scan(&db::KeyRange::Prefix(prefix.into()), order.into())
            .await?;
        Ok(Resource::new_own(self.resources.add_cursor(cursor)))
    }

    fn open_snapshot(&mut self) -> Result<Resource<ReadView>, Error> {
        self.resources.check_room()?;
        let view = self.data.snapshot()?;
        Ok(Resource::new_own(self.resources.add_snapshot(view)))
    }

    fn begin(&mut self, isolation: IsolationLevel) -> Result<Resource<Transaction>, Error> {
        let isolation = match isolation {
            IsolationLevel::SnapshotIsolation => Isolation::Snapshot,
            IsolationLevel::Serializable => Isolation::Serializable,
        };
        self.data.db()?;
        self.resources.check_room()?;
        let transaction = self.data.db()?.begin(isolation)?;
        Ok(Resource::new_own(
            self.resources.add_transaction(transaction),
        ))
    }
}

impl HostCursor for State {
    async fn next(&mut self, cursor: Resource<Cursor>, max: u32) -> Result<Vec<Entry>, Error> {
        let page = self.resources.page(cursor.rep(), max).await?;
        Ok(page
            .into_iter()
            .map(|entry| Entry {
                key: entry.key.into(),
                value: entry.value.into(),
            })
            .collect())
    }

    fn drop(&mut self, cursor: Resource<Cursor>) -> wasmtime::Result<()> {
        self.resources.close(cursor.rep());
        Ok(())
    }
}

impl HostSnapshot for State {
    fn seq(&mut self, snapshot: Resource<ReadView>) -> Seq {
        // The function has no error to give: a snapshot that was closed shows nothing, as the first seq.
        self.resources
            .snapshot(snapshot.rep())
            .map_or(0, ReadView::seq)
    }

    async fn get(
        &mut self,
        snapshot: Resource<ReadView>,
        key: Vec<u8>,
    ) -> Result<Option<Vec<u8>>, Error> {
        get(self.resources.snapshot(snapshot.rep())?, &key).await
    }

    async fn get_many(
        &mut self,
        snapshot: Resource<ReadView>,
        keys: Vec<Vec<u8>>,
    ) -> Result<Values, Error> {
        get_many(self.resources.snapshot(snapshot.rep())?, keys).await
    }

    async fn scan(
        &mut self,
        snapshot: Resource<ReadView>,
        range: KeyRange,
        order: Order,
    ) -> Result<Resource<Cursor>, Error> {
        self.resources.check_room()?;
        let cursor = self
            .resources
            .snapshot(snapshot.rep())?
            .scan(&range.into(), order.into())
            .await?;
        Ok(Resource::new_own(self.resources.add_cursor(cursor)))
    }

    async fn scan_prefix(
        &mut self,
        snapshot: Resource<ReadView>,
        prefix: Vec<u8>,
        order: Order,
    ) -> Result<Resource<Cursor>, Error> {
        self.resources.check_room()?;
        let range = db::KeyRange::Prefix(prefix.into());
        let cursor = self
            .resources
            .snapshot(snapshot.rep())?
            .scan(&range, order.into())
            .await?;
        Ok(Resource::new_own(self.resources.add_cursor(cursor)))
    }

    fn drop(&mut self, snapshot: Resource<ReadView>) -> wasmtime::Result<()> {
        self.resources.close(snapshot.rep());
        Ok(())
    }
}

impl HostTransaction for State {
    async fn get(
        &mut self,
        transaction: Resource<Transaction>,
        key: Vec<u8>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let view = self.resources.read_keys(transaction.rep(), [&*key])?;
        get(&view, &key).await
    }

    async fn get_many(
        &mut self,
        transaction: Resource<Transaction>,
        keys: Vec<Vec<u8>>,
    ) -> Result<Values, Error> {
        self.data.reads.check_keys(keys.len())?;
        let view = self
            .resources
            .read_keys(transaction.rep(), keys.iter().map(|key| &**key))?;
        get_many(&view, keys).await
    }

    fn put(
        &mut self,
        transaction: Resource<Transaction>,
        key: Vec<u8>,
        value: Vec<u8>,
    ) -> Result<(), Error> {
        let op = db::Op::Put {
            key: key.into(),
            value: value.into(),
            ttl_ms: None,
        };
        Ok(self.resources.write(transaction.rep(), op)?)
    }

    fn put_for(
        &mut self,
        transaction: Resource<Transaction>,
        key: Vec<u8>,
        value: Vec<u8>,
        ttl_ms: u64,
    ) -> Result<(), Error> {
        let op = db::Op::Put {
            key: key.into(),
            value: value.into(),
            ttl_ms: Some(ttl_ms),
        };
        Ok(self.resources.write(transaction.rep(), op)?)
    }

    fn remove(&mut self, transaction: Resource<Transaction>, key: Vec<u8>) -> Result<(), Error> {
        let op = db::Op::Remove { key: key.into() };
        Ok(self.resources.write(transaction.rep(), op)?)
    }

    fn merge(
        &mut self,
        transaction: Resource<Transaction>,
        key: Vec<u8>,
        operand: Vec<u8>,
    ) -> Result<(), Error> {
        let op = db::Op::Merge {
            key: key.into(),
            operand: operand.into(),
        };
        Ok(self.resources.write(transaction.rep(), op)?)
    }

    async fn scan(
        &mut self,
        transaction: Resource<Transaction>,
        range: KeyRange,
        order: Order,
    ) -> Result<Resource<Cursor>, Error> {
        self.scan_transaction(transaction.rep(), range.into(), order)
            .await
    }

    async fn scan_prefix(
        &mut self,
        transaction: Resource<Transaction>,
        prefix: Vec<u8>,
        order: Order,
    ) -> Result<Resource<Cursor>, Error> {
        self.scan_transaction(
            transaction.rep(),
            db::KeyRange::Prefix(prefix.into()),
            order,
        )
        .await
    }

    async fn commit(&mut self, transaction: Resource<Transaction>) -> Result<Option<Seq>, Error> {
        Ok(self.resources.commit(transaction.rep()).await?)
    }

    fn drop(&mut self, transaction: Resource<Transaction>) -> wasmtime::Result<()> {
        self.resources.close(transaction.rep());
        Ok(())
    }
}

impl State {
    /// The database, for writing. An open transaction keeps every later write in memory, so old ones end first.
    fn writes(&mut self) -> Result<&Arc<ShardDb>, Error> {
        self.resources.sweep();
        Ok(self.data.db()?)
    }

    async fn scan_transaction(
        &mut self,
        handle: u32,
        range: db::KeyRange,
        order: Order,
    ) -> Result<Resource<Cursor>, Error> {
        let cursor = self.resources.scan(handle, &range, order.into()).await?;
        Ok(Resource::new_own(cursor))
    }
}

async fn get(view: &ReadView, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    Ok(view.get(key).await?.map(Into::into))
}

async fn get_many(view: &ReadView, keys: Vec<Vec<u8>>) -> Result<Values, Error> {
    view.check_keys(keys.len())?;
    let keys: Vec<Bytes> = keys.into_iter().map(Into::into).collect();
    let values = view.get_many(&keys).await?;
    Ok(values
        .into_iter()
        .map(|value| value.map(Into::into))
        .collect())
}

impl From<Op> for db::Op {
    fn from(op: Op) -> Self {
        let key = op.key.into();
        match op.kind {
            OpKind::Put => Self::Put {
                key,
                value: op.value.into(),
                ttl_ms: op.ttl_ms,
            },
            OpKind::Remove => Self::Remove { key },
            OpKind::Merge => Self::Merge {
                key,
                operand: op.value.into(),
            },
        }
    }
}

impl From<KeyRange> for db::KeyRange {
    fn from(range: KeyRange) -> Self {
        Self::Between {
            start: range.start.map(Into::into),
            end: range.end.map(Into::into),
        }
    }
}

impl From<Order> for db::Order {
    fn from(order: Order) -> Self {
        match order {
            Order::Ascending => Self::Ascending,
            Order::Descending => Self::Descending,
        }
    }
}

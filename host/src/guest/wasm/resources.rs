//! What a call has open: cursors, snapshots and transactions.
//!
//! They belong to the call: whatever a guest leaves open is closed when the call returns, since some languages drop late. A guest
//! may keep a handle for longer; handles are never given out twice in 2^32, so an old one finds nothing and reads as `closed`.

use std::time::Instant;

use crate::clock;
use crate::db::{self, Cursor, Error, KeyRange, Op, ReadView, Transaction};
use crate::guest::{GuestError, Limits};

/// Handles that a guest may keep of what is closed already; each takes a place in the instance's table.
const HANDLES_MAX: usize = 65_536;

/// The open things of a call, in the order of opening.
pub(super) struct Resources {
    open: Vec<Entry>,
    next: u32,
    /// Handles that the guest has and did not drop.
    handles: usize,
    /// Sum of the entries' bytes.
    bytes: usize,
    /// When the oldest open transaction began.
    earliest: Option<Instant>,
    limits: Bounds,
}

/// The limits that matter here.
struct Bounds {
    open: usize,
    /// Twice `limits.batch`.
    bytes: usize,
    transaction_age: std::time::Duration,
}

struct Entry {
    handle: u32,
    /// What the host keeps for it: a transaction's writes and what it remembers of its reads; the writes that a cursor over a
    /// transaction shows, and an entry that it read ahead.
    bytes: usize,
    open: Open,
}

enum Open {
    Cursor(Box<Cursor>),
    Snapshot(ReadView),
    Transaction(Transaction),
}

impl Resources {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            open: Vec::new(),
            next: 0,
            handles: 0,
            bytes: 0,
            earliest: None,
            limits: Bounds {
                open: limits.open_resources,
                bytes: limits.batch.saturating_mul(2),
                transaction_age: limits.transaction_age,
            },
        }
    }

    /// Closes everything.
    pub(super) fn close_all(&mut self) {
        if !self.open.is_empty() {
            self.open.clear();
            self.bytes = 0;
            self.earliest = None;
        }
    }

    /// Checks that one more may be opened; before the work of opening it.
    pub(super) fn check_room(&mut self) -> Result<(), Error> {
        self.sweep();
        let limit = self.limits.open;
        if self.open.len() >= limit {
            return Err(GuestError::new(
                "limit",
                format!(
                    "{limit} cursors, snapshots and transactions are open in this call (limits.open_resources); drop some first"
                ),
            ));
        }
        if self.handles >= HANDLES_MAX {
            return Err(GuestError::new(
                "limit",
                format!(
                    "the guest keeps {HANDLES_MAX} cursors, snapshots and transactions, most of calls that are over; drop them"
                ),
            ));
        }
        Ok(())
    }

    /// Ends the transactions that are too old, so that one which nobody uses holds nothing for longer. Cheap: time is read only
    /// while a transaction is open.
    pub(super) fn sweep(&mut self) {
        let Some(earliest) = self.earliest else {
            return;
        };
        let now = clock::now();
        if now.saturating_duration_since(earliest) <= self.limits.transaction_age {
            return;
        }
        self.earliest = None;
        for entry in &mut self.open {
            let Open::Transaction(transaction) = &entry.open else {
                continue;
            };
            if transaction.expire(now) {
                self.bytes -= std::mem::take(&mut entry.bytes);
            } else {
                let begun = transaction.begun();
                self.earliest = Some(self.earliest.map_or(begun, |earliest| earliest.min(begun)));
            }
        }
    }

    pub(super) fn add_cursor(&mut self, cursor: Cursor) -> u32 {
        self.add(Open::Cursor(Box::new(cursor)), 0)
    }

    pub(super) fn add_snapshot(&mut self, view: ReadView) -> u32 {
        self.add(Open::Snapshot(view), 0)
    }

    pub(super) fn add_transaction(&mut self, transaction: Transaction) -> u32 {
        let begun = transaction.begun();
        self.earliest = Some(self.earliest.map_or(begun, |earliest| earliest.min(begun)));
        self.add(Open::Transaction(transaction), 0)
    }

    /// The next page of a cursor.
    pub(super) async fn page(&mut self, handle: u32, max: u32) -> Result<Vec<db::Entry>, Error> {
        let limit = self.limits.bytes;
        let others = self.bytes;
        let entry = self.get(handle);
        let Some(Entry {
            open: Open::Cursor(cursor),
            bytes,
            ..
        }) = entry
        else {
            return Err(closed("cursor"));
        };
        // What an entry takes is known once it is read, so together they can be over by one entry, and then no cursor goes on but
        // those that give back what they hold.
        let before = cursor.held();
        if others - before > limit {
            return Err(over(others - before, limit));
        }
        let page = cursor.next(max).await;
        let after = cursor.held();
        *bytes = *bytes - before + after;
        self.bytes = others - before + after;
        page
    }

    pub(super) fn snapshot(&mut self, handle: u32) -> Result<&ReadView, Error> {
        match self.get(handle) {
            Some(Entry {
                open: Open::Snapshot(view),
                ..
            }) => Ok(view),
            _ => Err(closed("snapshot")),
        }
    }

    /// Reads keys within a transaction.
    pub(super) fn read_keys<'a>(
        &mut self,
        handle: u32,
        keys: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<ReadView, Error> {
        let (transaction, _) = self.transaction(handle)?;
        let view = transaction.view()?;
        let cost = transaction.cost_of_keys(keys)?;
        self.charge(handle, cost)?;
        Ok(view)
    }

    /// Opens a cursor within a transaction. It shows the transaction's writes, as they were when it was opened, and so keeps them.
    pub(super) async fn scan(
        &mut self,
        handle: u32,
        range: &KeyRange,
        order: db::Order,
    ) -> Result<u32, Error> {
        self.check_room()?;
        let (transaction, _) = self.transaction(handle)?;
        let view = transaction.view()?;
        let cost = transaction.cost_of_range(range);
        let size = transaction.size();
        self.check_bytes(cost + size)?;
        let cursor = view.scan(range, order).await?;
        self.charge(handle, cost)?;
        self.bytes += size;
        Ok(self.add(Open::Cursor(Box::new(cursor)), size))
    }

    /// Adds a write to a transaction.
    pub(super) fn write(&mut self, handle: u32, op: Op) -> Result<(), Error> {
        let size = op.size();
        let (transaction, _) = self.transaction(handle)?;
        // Its own limits first: they say more.
        transaction.check(&op)?;
        self.check_bytes(size)?;
        let (transaction, bytes) = self.transaction(handle)?;
        transaction.write(op)?;
        *bytes += size;
        self.bytes += size;
        Ok(())
    }

    /// Commits a transaction, which is over then.
    pub(super) async fn commit(&mut self, handle: u32) -> Result<Option<u64>, Error> {
        let (transaction, bytes) = self.transaction(handle)?;
        let outcome = transaction.commit().await;
        self.bytes -= std::mem::take(bytes);
        outcome
    }

    /// Closes one; nothing happens when its call closed it before.
    pub(super) fn close(&mut self, handle: u32) {
        self.handles = self.handles.saturating_sub(1);
        if let Some(at) = self.open.iter().rposition(|entry| entry.handle == handle) {
            let entry = self.open.remove(at);
            self.bytes -= entry.bytes;
        }
    }

    fn add(&mut self, open: Open, bytes: usize) -> u32 {
        let handle = self.next;
        self.next = self.next.wrapping_add(1);
        self.handles += 1;
        self.open.push(Entry {
            handle,
            bytes,
            open,
        });
        handle
    }

    fn charge(&mut self, handle: u32, bytes: usize) -> Result<(), Error> {
        self.check_bytes(bytes)?;
        if let Some(entry) = self.get(handle) {
            entry.bytes += bytes;
            self.bytes += bytes;
        }
        Ok(())
    }

    fn check_bytes(&self, more: usize) -> Result<(), Error> {
        let (size, limit) = (self.bytes.saturating_add(more), self.limits.bytes);
        if size > limit {
            return Err(over(size, limit));
        }
        Ok(())
    }

    fn transaction(&mut self, handle: u32) -> Result<(&mut Transaction, &mut usize), Error> {
        match self.get(handle) {
            Some(Entry {
                open: Open::Transaction(transaction),
                bytes,
                ..
            }) => Ok((transaction, bytes)),
            _ => Err(closed("transaction")),
        }
    }

    fn get(&mut self, handle: u32) -> Option<&mut Entry> {
        self.sweep();
        // The newest is used most, and there are few.
        self.open
            .iter_mut()
            .rev()
            .find(|entry| entry.handle == handle)
    }
}

fn over(size: usize, limit: usize) -> Error {
    GuestError::new(
        "limit",
        format!(
            "the transactions and cursors that are open in this call would hold {size} bytes, over twice limits.batch ({limit} bytes); commit or drop some first"
        ),
    )
}

fn closed(what: &str) -> Error {
    GuestError::new(
        "closed",
        format!("the {what} was closed when the call that opened it returned; open another"),
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::db::tests::shard_db;
    use crate::db::{Isolation, Order, ShardDb};

    fn limits() -> Limits {
        Limits {
            value: 1_000,
            batch: 2_000,
            page: 100,
            ..Limits::default()
        }
    }

    fn begin(resources: &mut Resources, db: &Arc<ShardDb>, isolation: Isolation) -> u32 {
        resources.check_room().expect("room");
        resources.add_transaction(db.begin(isolation).expect("begin"))
    }

    fn op(size: usize) -> Op {
        Op::put(vec![0; 36], vec![0; size - 100])
    }

    #[track_caller]
    fn refused<T>(outcome: Result<T, Error>) {
        let error = outcome.map(drop).expect_err("it is over");
        assert_eq!(error.code, "limit");
        assert!(
            error.message.contains("twice limits.batch (4000 bytes)"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn transactions_share_a_budget() {
        let db = shard_db(limits()).await;
        let mut resources = Resources::new(&limits());
        let [first, second, third] =
            [(); 3].map(|()| begin(&mut resources, &db, Isolation::Snapshot));
        for handle in [first, second] {
            resources.write(handle, op(1_000)).expect("within");
            resources.write(handle, op(1_000)).expect("within");
        }
        refused(resources.write(third, op(100)));
        resources.close(first);
        resources
            .write(third, op(1_000))
            .expect("there is room again");
        resources.write(third, op(1_000)).expect("within");
        // A cursor over a transaction keeps its writes.
        let all = KeyRange::Prefix(Default::default());
        refused(resources.scan(third, &all, Order::Ascending).await);
        resources.commit(second).await.expect("commit");
        resources
            .scan(third, &all, Order::Ascending)
            .await
            .expect("the commit made room");
        let fourth = begin(&mut resources, &db, Isolation::Snapshot);
        refused(resources.write(fourth, op(100)));
        resources.close_all();
        assert_eq!(resources.bytes, 0);
    }

    #[tokio::test]
    async fn what_a_serializable_transaction_read_counts() {
        let db = shard_db(limits()).await;
        let mut resources = Resources::new(&limits());
        let key = [1_u8; 936];
        for (isolation, reads) in [(Isolation::Snapshot, 100), (Isolation::Serializable, 4)] {
            let handle = begin(&mut resources, &db, isolation);
            for _ in 0..reads {
                resources.read_keys(handle, [&key[..]]).expect("within");
            }
            if isolation == Isolation::Serializable {
                refused(resources.read_keys(handle, [&key[..]]));
                let range = KeyRange::Prefix(Default::default());
                refused(resources.scan(handle, &range, Order::Ascending).await);
            }
        }
    }

    #[tokio::test]
    async fn entries_that_cursors_hold_count() {
        let db = shard_db(limits()).await;
        for key in ["a", "b"] {
            db.put(key.into(), vec![0; 999].into()).await.expect("put");
        }
        let mut resources = Resources::new(&limits());
        let range = KeyRange::Prefix(Default::default());
        let open = async |resources: &mut Resources| {
            let cursor = db.view().scan(&range, Order::Ascending).await;
            resources.add_cursor(cursor.expect("a cursor"))
        };
        let mut cursors = Vec::new();
        for _ in 0..5 {
            let cursor = open(&mut resources).await;
            assert_eq!(resources.page(cursor, 10).await.expect("a page").len(), 1);
            cursors.push(cursor);
        }
        assert_eq!(resources.bytes, 5_000);
        let sixth = open(&mut resources).await;
        refused(resources.page(sixth, 10).await);
        assert_eq!(
            resources.page(cursors[0], 10).await.expect("a page").len(),
            1,
            "what gives back is let"
        );
        resources
            .page(sixth, 10)
            .await
            .expect("there is room again");
    }

    #[tokio::test]
    async fn a_transaction_that_nobody_uses_ends_for_its_age() {
        let limits = Limits {
            transaction_age: Duration::ZERO,
            ..limits()
        };
        let db = shard_db(limits.clone()).await;
        let mut resources = Resources::new(&Limits {
            transaction_age: Duration::from_secs(3_600),
            ..limits
        });
        let handle = begin(&mut resources, &db, Isolation::Snapshot);
        resources.open[0].bytes = 100;
        resources.bytes = 100;
        resources.sweep();
        assert_eq!(resources.bytes, 100, "it is not old yet");
        resources.limits.transaction_age = Duration::ZERO;
        while resources.earliest.is_some() {
            resources.sweep();
        }
        assert_eq!(resources.bytes, 0, "it holds nothing any more");
        let error = resources.write(handle, op(100)).expect_err("too old");
        assert!(error.message.contains("limits.transaction_age"), "{error}");
    }

    #[test]
    fn handles_that_are_kept_are_bounded() {
        let mut resources = Resources::new(&limits());
        for _ in 0..HANDLES_MAX {
            resources.check_room().expect("room");
            resources.add_snapshot(ReadView::closed(Arc::default()));
            resources.close_all();
        }
        assert_eq!(resources.check_room().expect_err("full").code, "limit");
        resources.close(0);
        resources.check_room().expect("room again");
    }
}

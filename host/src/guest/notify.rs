//! Durability notifications of a guest: it asks with a seq and a tag, and gets the tag once that seq is durable.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::mpsc;

use super::GuestError;
use crate::db::ShardDb;
use crate::gate::Gate;

/// Takes a guest's wishes and hands the tags to its shard, in the order of seq, each once, only for durable writes.
///
/// Tags belong to the memory of the instance that asked: after a trap they are dropped. A swap keeps them.
pub struct Notifier {
    gate: Arc<Gate>,
    limit: usize,
    outstanding: Arc<AtomicUsize>,
    instance: Arc<AtomicU64>,
    sink: mpsc::UnboundedSender<u64>,
}

impl Notifier {
    /// A notifier of at most `limit` outstanding wishes, and where its tags come out.
    #[must_use]
    pub fn new(gate: Arc<Gate>, limit: usize) -> (Self, Tags) {
        let (sink, receiver) = mpsc::unbounded_channel();
        let outstanding = Arc::new(AtomicUsize::new(0));
        let tags = Tags {
            receiver,
            outstanding: outstanding.clone(),
        };
        (
            Self {
                gate,
                limit,
                outstanding,
                instance: Arc::new(AtomicU64::new(0)),
                sink,
            },
            tags,
        )
    }

    /// Asks for `tag` once every write up to `seq` is durable.
    ///
    /// # Errors
    /// `invalid-argument` for a seq that was not given out yet, `limit` when too many wishes are outstanding.
    pub fn when_durable(&self, db: &ShardDb, seq: u64, tag: u64) -> Result<(), GuestError> {
        let newest = db.visible_seq();
        if seq > newest {
            return Err(GuestError::new(
                "invalid-argument",
                format!("seq {seq} was not given out yet; the newest write is {newest}"),
            ));
        }
        if self.outstanding.fetch_add(1, Ordering::AcqRel) >= self.limit {
            self.outstanding.fetch_sub(1, Ordering::AcqRel);
            return Err(GuestError::retryable(
                "limit",
                format!(
                    "{} notifications are outstanding (limits.notifications)",
                    self.limit
                ),
            ));
        }
        let (sink, outstanding, instance) = (
            self.sink.clone(),
            self.outstanding.clone(),
            self.instance.clone(),
        );
        let asked_by = instance.load(Ordering::Acquire);
        self.gate.when_durable(
            seq,
            Box::new(move |outcome| {
                let wanted = outcome.is_ok() && instance.load(Ordering::Acquire) == asked_by;
                if !wanted || sink.send(tag).is_err() {
                    outstanding.fetch_sub(1, Ordering::AcqRel);
                }
            }),
        );
        Ok(())
    }

    /// The instance is gone, and its wishes with it.
    pub fn forget(&self) {
        self.instance.fetch_add(1, Ordering::AcqRel);
    }
}

/// Where a shard takes its guest's durable tags from.
pub struct Tags {
    receiver: mpsc::UnboundedReceiver<u64>,
    outstanding: Arc<AtomicUsize>,
}

impl Tags {
    /// Waits for tags, and takes up to `max`. Safe to drop.
    pub async fn next(&mut self, max: usize) -> Vec<u64> {
        let mut tags = Vec::new();
        let count = self.receiver.recv_many(&mut tags, max).await;
        if count == 0 {
            // The notifier is gone; there will be no more.
            std::future::pending::<()>().await;
        }
        self.outstanding.fetch_sub(count, Ordering::AcqRel);
        tags
    }

    /// Drops what is there: its instance is gone.
    pub fn clear(&mut self) {
        while self.receiver.try_recv().is_ok() {
            self.outstanding.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

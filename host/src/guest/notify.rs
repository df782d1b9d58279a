//! Durability notifications of a guest: it asks with a seq and a tag, and gets the tag once that seq is durable.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::mpsc;
use xxhash_rust::xxh64::xxh64;

use super::GuestError;
use crate::db::ShardDb;
use crate::gate::Gate;

/// Takes the wishes of one instance and hands its tags to its shard, in the order of seq, each once, only for durable writes.
///
/// Tags belong to the memory of the instance that asked: after a trap they are dropped, and those of an instance that did not start
/// are never given to another. A swap keeps them: those of the old instance, and those for which the new one asked before it took over.
pub struct Notifier {
    shared: Arc<Shared>,
    instance: u64,
    module: u64,
}

/// A tag that became durable, and the module that asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    module: u64,
    tag: u64,
}

impl Tag {
    /// Those of the module that has this notifier.
    #[must_use]
    pub fn of(tags: &[Self], notifier: &Notifier) -> Vec<u64> {
        let own = tags.iter().filter(|tag| tag.is_of(notifier));
        own.map(|tag| tag.tag).collect()
    }

    /// Whether the module that has this notifier asked for it.
    #[must_use]
    pub fn is_of(self, notifier: &Notifier) -> bool {
        self.module == notifier.module
    }
}

struct Shared {
    gate: Arc<Gate>,
    limit: usize,
    outstanding: Arc<AtomicUsize>,
    instances: AtomicU64,
    sink: mpsc::UnboundedSender<(u64, Tag)>,
}

impl Notifier {
    /// A notifier of at most `limit` outstanding wishes of all instances together, and where their tags come out.
    #[must_use]
    pub fn new(gate: Arc<Gate>, limit: usize) -> (Self, Tags) {
        let (sink, receiver) = mpsc::unbounded_channel();
        let outstanding = Arc::new(AtomicUsize::new(0));
        let tags = Tags {
            receiver,
            outstanding: outstanding.clone(),
            heirs: BTreeSet::new(),
            coming: None,
            early: VecDeque::new(),
        };
        let shared = Shared {
            gate,
            limit,
            outstanding,
            instances: AtomicU64::new(0),
            sink,
        };
        let notifier = Self {
            shared: Arc::new(shared),
            instance: 0,
            module: 0,
        };
        (notifier, tags)
    }

    /// The notifier of a further instance.
    #[must_use]
    pub fn next(&self) -> Self {
        let instance = self.shared.instances.fetch_add(1, Ordering::AcqRel) + 1;
        Self {
            shared: self.shared.clone(),
            instance,
            module: self.module,
        }
    }

    /// The same for one module of the instance. Its tags come to the module of that name, whichever revision that is of by then.
    #[must_use]
    pub fn of(&self, module: &str) -> Self {
        Self {
            shared: self.shared.clone(),
            instance: self.instance,
            module: xxh64(module.as_bytes(), 0),
        }
    }

    /// Asks for `tag` once every write up to `seq` is durable.
    ///
    /// # Errors
    /// `invalid-argument` for a seq that was not given out by this opening of the shard or one that it knows of, `limit` when too
    /// many wishes are outstanding.
    pub fn when_durable(&self, db: &ShardDb, seq: u64, tag: u64) -> Result<(), GuestError> {
        let newest = db.visible_seq();
        if seq > newest {
            return Err(GuestError::new(
                "invalid-argument",
                format!("seq {seq} was not given out yet; the newest write is {newest}"),
            ));
        }
        if !db.knows(seq) {
            return Err(GuestError::new(
                "invalid-argument",
                format!(
                    "seq {seq} belongs to an earlier opening of the shard; if it was not durable then, it is lost"
                ),
            ));
        }
        let shared = &self.shared;
        if shared.outstanding.fetch_add(1, Ordering::AcqRel) >= shared.limit {
            shared.outstanding.fetch_sub(1, Ordering::AcqRel);
            return Err(GuestError::retryable(
                "limit",
                format!(
                    "{} notifications are outstanding (limits.notifications)",
                    shared.limit
                ),
            ));
        }
        let (sink, outstanding, instance) = (
            shared.sink.clone(),
            shared.outstanding.clone(),
            self.instance,
        );
        let tag = Tag {
            module: self.module,
            tag,
        };
        shared.gate.when_durable(
            seq,
            Box::new(move |outcome| {
                if outcome.is_err() || sink.send((instance, tag)).is_err() {
                    outstanding.fetch_sub(1, Ordering::AcqRel);
                }
            }),
        );
        Ok(())
    }
}

/// Where a shard takes its guest's durable tags from.
pub struct Tags {
    receiver: mpsc::UnboundedReceiver<(u64, Tag)>,
    outstanding: Arc<AtomicUsize>,
    /// The instances whose tags go to the one that runs: itself, and those that it was swapped for.
    heirs: BTreeSet<u64>,
    /// The instance that may take over, and its tags that came before it did. They count as outstanding.
    coming: Option<(u64, Vec<Tag>)>,
    /// Those of the instance that runs by now. They count as outstanding.
    early: VecDeque<Tag>,
}

impl Tags {
    /// Waits for tags, and takes up to `max`. Safe to drop.
    pub async fn next(&mut self, max: usize) -> Vec<Tag> {
        if !self.early.is_empty() {
            let count = self.early.len().min(max);
            self.give_back(count);
            return self.early.drain(..count).collect();
        }
        loop {
            let mut tags = Vec::new();
            let count = self.receiver.recv_many(&mut tags, max).await;
            if count == 0 {
                // The notifier is gone; there will be no more.
                std::future::pending::<()>().await;
            }
            let (mut wanted, mut kept) = (Vec::new(), 0);
            for (instance, tag) in tags {
                match &mut self.coming {
                    _ if self.heirs.contains(&instance) => wanted.push(tag),
                    Some((coming, early)) if *coming == instance => {
                        early.push(tag);
                        kept += 1;
                    }
                    _ => {}
                }
            }
            self.give_back(count - kept);
            if !wanted.is_empty() {
                return wanted;
            }
        }
    }

    /// An instance is on its way to take over, instead of any that was before. Its tags are kept for it.
    pub fn expect(&mut self, notifier: &Notifier) {
        self.dismiss();
        self.coming = Some((notifier.instance, Vec::new()));
    }

    /// The instance that was on its way does not take over.
    pub fn dismiss(&mut self) {
        if let Some((_, early)) = self.coming.take() {
            self.give_back(early.len());
        }
    }

    /// An instance runs, and gets its tags.
    pub fn adopt(&mut self, notifier: &Notifier) {
        self.heirs.insert(notifier.instance);
        match self.coming.take() {
            Some((instance, early)) if instance == notifier.instance => self.early.extend(early),
            other => self.coming = other,
        }
    }

    /// The instance is gone, and its wishes with it.
    pub fn forget(&mut self) {
        self.heirs.clear();
        let early = std::mem::take(&mut self.early);
        self.give_back(early.len());
    }

    fn give_back(&self, count: usize) {
        self.outstanding.fetch_sub(count, Ordering::AcqRel);
    }

    /// Wishes that were not told yet, of all instances together.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding.load(Ordering::Acquire)
    }

    /// Takes what is there, unread.
    pub(crate) fn clear(&mut self) {
        while self.receiver.try_recv().is_ok() {
            self.outstanding.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;
    use crate::gate::deadline::Deadline;
    use crate::guest::Limits;

    struct Bench {
        db: ShardDb,
        root: Notifier,
        tags: Tags,
    }

    async fn bench(limit: usize) -> Bench {
        let store = Arc::new(slatedb::object_store::memory::InMemory::new());
        let db = slatedb::Db::builder("shard", store).build().await;
        let db = db.expect("a database");
        let snapshot = db.snapshot().expect("a snapshot");
        let gate = Arc::new(Gate::new(snapshot, Arc::new(Deadline::never())));
        let db = ShardDb::new(db, 1, gate.clone(), Arc::new(Limits::default()), None);
        let (root, tags) = Notifier::new(gate, limit);
        Bench { db, root, tags }
    }

    impl Bench {
        /// Asks with the newest write that is durable, so that the tag is told at once.
        fn ask(&self, notifier: &Notifier, tag: u64) -> Result<(), String> {
            let seq = self.db.visible_seq();
            let asked = notifier.when_durable(&self.db, seq, tag);
            asked.map_err(|error| error.code)
        }

        fn taken(&mut self, max: usize) -> Vec<u64> {
            let tags = self.tags.next(max).now_or_never().unwrap_or_default();
            Tag::of(&tags, &self.root)
        }
    }

    #[tokio::test]
    async fn what_the_next_instance_asks_for_early_is_kept_for_it() {
        let mut bench = bench(100).await;
        let (old, new, failed) = (bench.root.next(), bench.root.next(), bench.root.next());
        bench.tags.adopt(&old);
        bench.tags.expect(&failed);
        bench.ask(&failed, 9).expect("room");
        assert!(bench.taken(10).is_empty());
        bench.tags.expect(&new);
        for tag in [20, 21, 22] {
            bench.ask(&new, tag).expect("room");
        }
        bench.ask(&old, 10).expect("room");
        assert_eq!(bench.taken(10), [10]);
        bench.tags.adopt(&new);
        bench.ask(&old, 11).expect("room");
        bench.ask(&new, 23).expect("room");
        assert_eq!(bench.taken(2), [20, 21]);
        assert_eq!(bench.taken(2), [22]);
        assert_eq!(bench.taken(10), [11, 23]);
        assert!(
            bench.taken(10).is_empty(),
            "nobody gets those of the failed"
        );
    }

    #[tokio::test]
    async fn what_is_kept_is_bounded_and_given_back() {
        let mut bench = bench(2).await;
        let old = bench.root.next();
        for end in ["dismissed", "another is expected", "took over and trapped"] {
            bench.tags.adopt(&old);
            let new = bench.root.next();
            bench.tags.expect(&new);
            for tag in [1, 2] {
                bench.ask(&new, tag).expect(end);
                assert!(bench.taken(10).is_empty());
            }
            assert_eq!(bench.ask(&new, 3), Err("limit".into()), "{end}");
            match end {
                "dismissed" => bench.tags.dismiss(),
                "another is expected" => bench.tags.expect(&bench.root.next()),
                _ => {
                    bench.tags.adopt(&new);
                    bench.tags.forget();
                    bench.tags.adopt(&old);
                }
            }
            for tag in [4, 5] {
                bench.ask(&old, tag).expect(end);
            }
            assert_eq!(bench.taken(10), [4, 5], "{end}");
        }
    }
}

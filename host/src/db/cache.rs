//! The block cache of a node, shared by all its shards.

use std::fmt;
use std::sync::Arc;

use slatedb::db_cache::foyer::{FoyerCache, FoyerCacheOptions};
use slatedb::db_cache::{DbCache, SplitCache};

/// The part of the capacity that is kept for metadata, as one in this many bytes. Every read of an SST goes through its
/// index and filter, so those have a cache of their own which a scan over many blocks cannot wash out. One in five is
/// SlateDB's own proportion.
const METADATA_SHARE: u64 = 5;

/// The least capacity of one of a cache's parts. Foyer divides a cache into parts, each under a lock of its own, and takes
/// an entry that is larger than its part by evicting everything else there: parts have to stay well above the largest
/// index or filter.
const LEAST_PART_BYTES: u64 = 8 * 1024 * 1024;

/// More parts than this do not make a cache faster.
const MOST_PARTS: u64 = 64;

/// One cache for the SSTs of all shards of a node, bounded by bytes.
///
/// Four fifths hold blocks of data (as read from the store, decompressed), one fifth indexes, filters and statistics.
/// Entries are weighed by their size, evicted by use (w-TinyLFU), and told apart by shard, so that busy shards take the
/// room of idle ones. Memory is taken as it fills. A closed shard's entries stay until they are evicted, and serve again
/// when the shard comes back: SSTs never change. Cheap to clone.
#[derive(Clone)]
pub struct NodeCache {
    capacity_bytes: u64,
    cache: Option<Arc<dyn DbCache>>,
}

impl NodeCache {
    /// A cache of this many bytes; 0 = no cache. The bound holds for what entries weigh; their keys and the cache's own
    /// books come on top (about 200 bytes an entry, so 5 % with blocks of 4 KiB).
    #[must_use]
    pub fn new(capacity_bytes: u64) -> Self {
        let Some(split) = Split::of(capacity_bytes) else {
            return Self {
                capacity_bytes: 0,
                cache: None,
            };
        };
        let cache = SplitCache::new()
            .with_block_cache(Some(foyer(split.blocks)))
            .with_meta_cache(Some(foyer(split.metadata)))
            .build();
        Self {
            capacity_bytes,
            cache: Some(Arc::new(cache)),
        }
    }

    /// What to pass to `DbBuilder::with_db_cache` for a shard: the cache, and the id of the shard's entries in it. The id
    /// is the shard's number, so it is the same at each opening. `None` when there is no cache: then call
    /// `with_db_cache_disabled`, since a builder that is told nothing makes a cache of 640 MiB for each database.
    ///
    /// One `NodeCache` serves one cluster: the shards of two would have the same ids.
    #[must_use]
    pub fn cache_for(&self, shard: u32) -> Option<(Arc<dyn DbCache>, u64)> {
        self.cache.clone().map(|cache| (cache, u64::from(shard)))
    }

    /// The bytes that the cache may hold; 0 = no cache.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }
}

impl fmt::Debug for NodeCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeCache")
            .field("capacity_bytes", &self.capacity_bytes)
            .finish_non_exhaustive()
    }
}

/// How a capacity is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Split {
    blocks: u64,
    metadata: u64,
}

impl Split {
    /// `None` for no cache.
    fn of(capacity_bytes: u64) -> Option<Self> {
        if capacity_bytes == 0 {
            return None;
        }
        let metadata = capacity_bytes / METADATA_SHARE;
        Some(Self {
            blocks: capacity_bytes - metadata,
            metadata,
        })
    }
}

fn foyer(capacity: u64) -> Arc<dyn DbCache> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let options = FoyerCacheOptions {
        max_capacity: capacity,
        shards: parts(capacity, cores),
    };
    Arc::new(FoyerCache::new_with_opts(options))
}

/// The parts of a cache: a few for each core, none smaller than [`LEAST_PART_BYTES`].
fn parts(capacity: u64, cores: u64) -> usize {
    let parts = (cores * 4)
        .min(MOST_PARTS)
        .min(capacity / LEAST_PART_BYTES)
        .max(1);
    usize::try_from(parts).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::TryStreamExt;
    use object_store::memory::InMemory;
    use object_store::path::Path;
    use object_store::{ObjectStore, ObjectStoreExt};
    use slatedb::Db;
    use slatedb::config::Settings;

    use super::*;

    const MIB: u64 = 1024 * 1024;

    #[test]
    fn the_capacity_is_divided_without_loss() {
        let cases = [
            (0, None),
            (1, Some((1, 0))),
            (10, Some((8, 2))),
            (640 * MIB, Some((512 * MIB, 128 * MIB))),
        ];
        for (capacity, parts) in cases {
            let split = Split::of(capacity).map(|split| (split.blocks, split.metadata));
            assert_eq!(split, parts, "{capacity}");
        }
    }

    #[test]
    fn parts_are_few_enough_to_hold_the_largest_entries() {
        let cases = [
            (0, 8, 1),
            (MIB, 8, 1),
            (16 * MIB, 8, 2),
            (512 * MIB, 2, 8),
            (512 * MIB, 64, 64),
            (u64::MAX, 1_000, 64),
        ];
        for (capacity, cores, expected) in cases {
            assert_eq!(
                parts(capacity, cores),
                expected,
                "{capacity} bytes, {cores} cores"
            );
        }
    }

    #[test]
    fn no_capacity_is_no_cache() {
        let cache = NodeCache::new(0);
        assert!(cache.cache_for(0).is_none());
        assert_eq!(cache.capacity_bytes(), 0);
    }

    #[test]
    fn a_shard_keeps_its_id() {
        let cache = NodeCache::new(MIB);
        let ids = [0, 7, u32::MAX].map(|shard| cache.clone().cache_for(shard).expect("a cache").1);
        assert_eq!(ids, [0, 7, u64::from(u32::MAX)]);
    }

    fn settings() -> Settings {
        Settings {
            compactor_options: None,
            garbage_collector_options: None,
            ..Settings::default()
        }
    }

    /// A database at `path` with one SST in which `key` is `value`.
    async fn with_one_sst(store: &Arc<InMemory>, path: &str, value: &str) {
        let db = Db::builder(path, store.clone())
            .with_settings(settings())
            .build()
            .await
            .expect("opens");
        db.put(b"key", value.as_bytes()).await.expect("writes");
        db.close().await.expect("closes");
    }

    async fn files(store: &Arc<InMemory>, prefix: &str) -> Vec<Path> {
        let listed: Vec<_> = store
            .list(Some(&Path::from(prefix)))
            .try_collect()
            .await
            .expect("lists");
        listed.into_iter().map(|object| object.location).collect()
    }

    /// Reads `key` at `path` through the cache's entries of that `id`.
    async fn read(
        store: &Arc<InMemory>,
        path: &str,
        cache: Arc<dyn DbCache>,
        id: u64,
    ) -> Option<Bytes> {
        let db = Db::builder(path, store.clone())
            .with_settings(settings())
            .with_db_cache(cache, id)
            .build()
            .await
            .expect("opens");
        let value = db.get(b"key").await.expect("reads");
        db.close().await.expect("closes");
        value
    }

    /// Two databases whose SSTs have the same id and different content: the only thing that can keep their blocks apart
    /// is the id of the cache's entries.
    #[tokio::test]
    async fn shards_share_the_cache_without_mixing_entries() {
        let store = Arc::new(InMemory::new());
        with_one_sst(&store, "one", "first").await;
        with_one_sst(&store, "other", "other").await;
        for from in files(&store, "one").await {
            let to = Path::from(from.as_ref().replacen("one", "two", 1));
            store.copy(&from, &to).await.expect("copies");
        }
        let other = files(&store, "other/compacted").await;
        let two = files(&store, "two/compacted").await;
        assert_eq!((other.len(), two.len()), (1, 1), "one SST each");
        store.copy(&other[0], &two[0]).await.expect("copies");

        let cache = NodeCache::new(8 * MIB);
        let (one_cache, one) = cache.cache_for(1).expect("a cache");
        let (two_cache, two) = cache.cache_for(2).expect("a cache");
        assert!(Arc::ptr_eq(&one_cache, &two_cache));
        for _ in 0..2 {
            let read_one = read(&store, "one", one_cache.clone(), one).await;
            let read_two = read(&store, "two", two_cache.clone(), two).await;
            assert_eq!(
                (read_one.as_deref(), read_two.as_deref()),
                (Some(&b"first"[..]), Some(&b"other"[..]))
            );
        }
        // With one id for both, the second is given the block of the first. This is what the ids are for, and it shows
        // that entries outlive the closing of a database.
        let mixed = read(&store, "two", one_cache, one).await;
        assert_eq!(mixed.as_deref(), Some(&b"first"[..]));
    }

    #[tokio::test]
    async fn databases_work_without_a_cache() {
        let store = Arc::new(InMemory::new());
        with_one_sst(&store, "one", "first").await;
        assert!(NodeCache::new(0).cache_for(1).is_none());
        let db = Db::builder("one", store)
            .with_settings(settings())
            .with_db_cache_disabled()
            .build()
            .await;
        let db = db.expect("opens");
        assert_eq!(
            db.get(b"key").await.expect("reads").as_deref(),
            Some(&b"first"[..])
        );
        db.close().await.expect("closes");
    }
}

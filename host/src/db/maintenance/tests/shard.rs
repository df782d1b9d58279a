//! A shard in memory for the tests of maintenance, and its store.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::TryStreamExt;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result as StoreResult,
};
use slatedb::config::{FlushOptions, FlushType, Settings};
use slatedb::{Db, MergeOperator, MergeOperatorError};
use tokio::sync::watch;
use tokio::time::timeout;

use super::super::ShardDbInfo;
use super::DEADLINE;

/// Memory that counts its requests and can be told to refuse them.
#[derive(Debug, Default)]
pub(super) struct Watched {
    pub(super) inner: InMemory,
    pub(super) requests: AtomicU64,
    pub(super) refuses: AtomicBool,
}

impl Watched {
    fn request(&self) -> StoreResult<()> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        if self.refuses.load(Ordering::SeqCst) {
            Err(object_store::Error::NotImplemented {
                operation: "any".into(),
                implementer: "Watched".into(),
            })
        } else {
            Ok(())
        }
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watched")
    }
}

#[async_trait]
impl ObjectStore for Watched {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> StoreResult<PutResult> {
        self.request()?;
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> StoreResult<Box<dyn MultipartUpload>> {
        self.request()?;
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> StoreResult<GetResult> {
        self.request()?;
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> StoreResult<Vec<Bytes>> {
        self.request()?;
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, StoreResult<Path>>,
    ) -> BoxStream<'static, StoreResult<Path>> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, StoreResult<ObjectMeta>> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> StoreResult<ListResult> {
        self.request()?;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> StoreResult<()> {
        self.request()?;
        self.inner.copy_opts(from, to, options).await
    }
}

/// Appends operands, so that their order shows.
struct Append;

impl MergeOperator for Append {
    fn merge(
        &self,
        _: &Bytes,
        existing: Option<Bytes>,
        operand: Bytes,
    ) -> Result<Bytes, MergeOperatorError> {
        Ok([existing.unwrap_or_default(), operand].concat().into())
    }
}

/// The lean profile, with memtables of a few kilobytes.
fn settings() -> Settings {
    Settings {
        flush_interval: None,
        manifest_poll_interval: Duration::from_secs(3600),
        compactor_options: None,
        garbage_collector_options: None,
        l0_sst_size_bytes: 64 * 1024,
        max_unflushed_bytes: 256 * 1024,
        l0_flush_parallelism: 1,
        object_store_max_retries: Some(2),
        ..Settings::default()
    }
}

/// An open shard in memory.
pub(super) struct Shard {
    pub(super) store: Arc<Watched>,
    path: String,
    pub(super) db: Db,
}

impl Shard {
    pub(super) async fn open(number: u32) -> Self {
        Self::open_on(Arc::new(Watched::default()), number).await
    }

    pub(super) async fn open_on(store: Arc<Watched>, number: u32) -> Self {
        let path = format!("shard-{number:03}");
        let db = Db::builder(path.as_str(), store.clone())
            .with_settings(settings())
            .with_merge_operator(Arc::new(Append))
            .build()
            .await
            .expect("opens");
        Self { store, path, db }
    }

    pub(super) fn info(&self, number: u32) -> ShardDbInfo {
        let path = Path::from(self.path.as_str());
        let info = ShardDbInfo::new(
            "main".into(),
            number,
            path,
            self.store.clone(),
            self.db.clone(),
            self.manifest(),
        );
        ShardDbInfo {
            merge_operator: Some(Arc::new(Append)),
            ..info
        }
    }

    /// What an opening tells maintenance.
    fn manifest(&self) -> watch::Receiver<u64> {
        let mut status = self.db.subscribe();
        let (tell, told) = watch::channel(self.db.manifest().id());
        tokio::spawn(async move {
            while status.borrow().close_reason.is_none() && status.changed().await.is_ok() {
                tell.send_replace(status.borrow().current_manifest.id());
            }
        });
        told
    }

    /// Flushes what was written to an L0 SST of its own.
    pub(super) async fn flush_memtable(&self) {
        let flush = self.db.flush_with_options(FlushOptions {
            flush_type: FlushType::MemTable,
        });
        timeout(DEADLINE, flush)
            .await
            .expect("a flush waits only as long as a compaction takes")
            .expect("flushes");
    }

    pub(super) async fn fill_l0(&self, ssts: usize) {
        for number in 0..ssts {
            self.db
                .put(format!("key-{number}"), b"value")
                .await
                .expect("writes");
            self.flush_memtable().await;
        }
        assert_eq!(self.db.manifest().l0().len(), ssts);
    }

    pub(super) async fn files(&self, directory: &str) -> Vec<ObjectMeta> {
        let prefix = Path::from(format!("{}/{directory}", self.path));
        self.store
            .inner
            .list(Some(&prefix))
            .try_collect()
            .await
            .expect("lists")
    }

    /// The newest manifest in the store, whatever this database knows.
    pub(super) async fn stored_manifest(&self) -> slatedb::VersionedManifest {
        let admin =
            slatedb::admin::AdminBuilder::new(self.path.as_str(), self.store.clone()).build();
        admin
            .read_manifest(None)
            .await
            .expect("reads")
            .expect("is there")
    }
}

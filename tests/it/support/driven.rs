//! A store in memory for driven time. Its requests take some of that, so that calls overlap. Objects have the driven time at which they were
//! written: by the machine's, SlateDB's garbage collection would take new ones for old.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use quarry::clock;
use quarry::clock::driven::Time;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// What a request takes, in milliseconds.
const LATENCY: std::ops::Range<u64> = 20..250;

#[derive(Clone)]
pub struct DrivenStore {
    inner: Arc<dyn ObjectStore>,
    time: Time,
    began: Instant,
    written: Arc<Mutex<HashMap<Path, Stamp>>>,
    random: Arc<Mutex<StdRng>>,
}

/// When an object was written, since the beginning: by the driven clock and by the machine's.
#[derive(Clone, Copy)]
struct Stamp {
    driven: Duration,
    machine: Duration,
}

impl DrivenStore {
    /// The seed is that of how long requests take.
    pub fn new(inner: Arc<dyn ObjectStore>, time: Time, seed: u64) -> Self {
        Self {
            inner,
            time,
            began: Instant::now(),
            written: Arc::default(),
            random: Arc::new(Mutex::new(StdRng::seed_from_u64(seed))),
        }
    }

    /// Makes a request, which takes effect early or late in its time.
    async fn request<T>(&self, request: impl Future<Output = T> + Send) -> T {
        let (takes, late) = {
            let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
            let takes = Duration::from_millis(random.random_range(LATENCY));
            (takes, random.random_bool(0.5))
        };
        if late {
            clock::sleep(takes).await;
            return request.await;
        }
        let result = request.await;
        clock::sleep(takes).await;
        result
    }

    fn written(&self) -> MutexGuard<'_, HashMap<Path, Stamp>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before the object is there, so that nobody sees it with another stamp.
    fn stamp(&self, location: &Path) {
        let stamp = Stamp {
            driven: self.time.elapsed(),
            machine: self.began.elapsed(),
        };
        self.written().insert(location.clone(), stamp);
    }

    fn seen(&self, mut meta: ObjectMeta) -> ObjectMeta {
        if let Some(stamp) = self.written().get(&meta.location) {
            meta.last_modified += stamp.driven;
            meta.last_modified -= stamp.machine;
        }
        meta
    }
}

impl fmt::Debug for DrivenStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DrivenStore({})", self.inner)
    }
}

impl fmt::Display for DrivenStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[async_trait]
impl ObjectStore for DrivenStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.request(async {
            self.stamp(location);
            self.inner.put_opts(location, payload, options).await
        })
        .await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.stamp(location);
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let get = self.inner.get_opts(location, options);
        let mut result = self.request(get).await?;
        result.meta = self.seen(result.meta);
        Ok(result)
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let store = self.clone();
        let found = self.inner.list(prefix);
        found
            .map(move |meta| meta.map(|meta| store.seen(meta)))
            .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let list = self.inner.list_with_delimiter(prefix);
        let mut result = self.request(list).await?;
        let objects = result.objects.into_iter();
        result.objects = objects.map(|meta| self.seen(meta)).collect();
        Ok(result)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.stamp(to);
        self.inner.copy_opts(from, to, options).await
    }
}

//! A store that holds WAL objects back until it is told to let them go.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use quarry::store::Store;
use tokio::sync::watch;

/// The hand that holds.
#[derive(Clone)]
pub struct Held {
    inner: Store,
    holding: watch::Sender<bool>,
    waiting: watch::Sender<usize>,
}

impl Held {
    pub fn new() -> Self {
        let inner = Store::open("memory:", &Default::default()).expect("a store in memory");
        Self {
            inner,
            holding: watch::Sender::new(false),
            waiting: watch::Sender::new(0),
        }
    }

    /// The store that is held.
    pub fn store(&self) -> Store {
        self.inner.wrap(|objects| {
            Arc::new(Holding {
                objects,
                held: self.clone(),
            })
        })
    }

    /// The same store, never held.
    pub fn inner(&self) -> Store {
        self.inner.clone()
    }

    pub fn hold(&self) {
        self.holding.send_replace(true);
    }

    pub fn release(&self) {
        self.holding.send_replace(false);
    }

    pub async fn someone_waits(&self) {
        self.waiting
            .subscribe()
            .wait_for(|count| *count > 0)
            .await
            .expect("the store is there");
    }
}

#[derive(Debug)]
struct Holding {
    objects: Arc<dyn ObjectStore>,
    held: Held,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Held")
    }
}

impl std::fmt::Display for Holding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Holding")
    }
}

#[async_trait]
impl ObjectStore for Holding {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        if location.as_ref().contains("/wal/") && *self.held.holding.borrow() {
            self.held.waiting.send_modify(|count| *count += 1);
            let mut holding = self.held.holding.subscribe();
            holding
                .wait_for(|holding| !holding)
                .await
                .expect("the hand is there");
        }
        self.objects.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.objects.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.objects.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.objects.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.objects.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.objects.copy_opts(from, to, options).await
    }
}

/// Waits with a deadline.
pub async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(20), future)
        .await
        .expect("nothing came of it within 20 s")
}

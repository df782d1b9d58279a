//! Where tests keep their data, and a store that holds WAL objects back until it is told to let them go.
//!
//! `QUARRY_TEST_STORE` says where: `local` (the default) in memory and in folders, `s3` on the server that `.ci/s3-server with` runs
//! around the tests, each below a prefix of its own. Tests of a store of a kind name that kind instead.

use std::collections::BTreeMap;
use std::path::Path as Folder;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use quarry::store::Store;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The store of a test.
#[derive(Clone)]
pub struct Place {
    pub url: String,
    pub options: BTreeMap<String, String>,
}

impl Place {
    /// An empty one, for one test and perhaps one process.
    pub fn fresh() -> Self {
        Self::on_s3().unwrap_or_else(|| Self::of("memory:".into()))
    }

    /// An empty one that outlives a process, below a folder where it needs one.
    pub fn lasting(folder: &Folder) -> Self {
        Self::on_s3().unwrap_or_else(|| Self::of(format!("file://{}", folder.display())))
    }

    fn of(url: String) -> Self {
        Self {
            url,
            options: BTreeMap::new(),
        }
    }

    fn on_s3() -> Option<Self> {
        match std::env::var("QUARRY_TEST_STORE").as_deref() {
            Err(_) | Ok("" | "local") => return None,
            Ok("s3") => {}
            Ok(other) => panic!("QUARRY_TEST_STORE is {other:?}; it can be local or s3"),
        }
        let port = std::env::var("QUARRY_TEST_S3_PORT")
            .expect("QUARRY_TEST_STORE=s3 needs a server: run it by `.ci/s3-server with`");
        Some(Self {
            url: format!("s3://quarry/test-{:016x}", rand::random::<u64>()),
            options: s3_options(&port),
        })
    }

    /// Opens it.
    pub fn open(&self) -> Store {
        Store::open(&self.url, &self.options).expect("a store")
    }

    /// The arguments of the program.
    pub fn arguments(&self) -> Vec<String> {
        let store = ["--store".to_owned(), self.url.clone()];
        let options = self.options.iter();
        let options = options
            .flat_map(|(name, value)| ["--store-option".to_owned(), format!("{name}={value}")]);
        store.into_iter().chain(options).collect()
    }
}

/// How the clients of `.ci/s3-server` are set up.
pub fn s3_options(port: impl std::fmt::Display) -> BTreeMap<String, String> {
    [
        ("aws_endpoint", format!("http://127.0.0.1:{port}")),
        ("aws_allow_http", "true".into()),
        ("aws_region", "us-east-1".into()),
        ("aws_access_key_id", "quarry".into()),
        ("aws_secret_access_key", "quarry-secret".into()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// An empty store.
pub fn fresh() -> Store {
    Place::fresh().open()
}

/// The hand that holds.
#[derive(Clone)]
pub struct Held {
    inner: Store,
    holding: watch::Sender<bool>,
    waiting: watch::Sender<usize>,
}

impl Held {
    pub fn new() -> Self {
        Self {
            inner: fresh(),
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

/// A task whose first step is taken here and now, so that several enter a queue in the order in which they are written down: tasks alone
/// would race for their places.
pub fn begun<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let mut future = Box::pin(future);
    // The task polls it again at once, with a waker of its own.
    match future.as_mut().now_or_never() {
        Some(output) => tokio::spawn(async { output }),
        None => tokio::spawn(future),
    }
}

//! A switch around a store that ends all work on it at once.
//!
//! SlateDB retries what the store refuses, and its `close` waits for what is in progress. When a lease is lost, or a
//! database has to go while its store hangs, the switch makes every call fail at once with an error that nothing retries:
//! calls to come, calls in flight, streams and uploads. A put into a folder that is on its way to the disk ends with the disk's answer; whoever
//! waits for its task has a deadline of its own. It also counts requests, by operation.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
    UploadPart,
};
use slatedb_common::retry::{NonRetryable, should_retry};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio_util::sync::CancellationToken;

/// The store was switched off. It is the source of every error after [`KillSwitch::kill`].
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "the store was switched off for this user of it: {reason} (a request then in flight may still take effect)"
)]
pub struct Killed {
    /// Why, as given to [`KillSwitch::kill`].
    pub reason: String,
}

/// How many requests went through a switch, by operation. A retry counts again; a request after the kill does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Requests {
    /// Whole objects written, by put.
    pub put: u64,
    /// Uploads in parts begun.
    pub upload: u64,
    /// Parts sent.
    pub part: u64,
    /// Uploads completed or aborted.
    pub finish: u64,
    /// Objects read, whole or in part.
    pub get: u64,
    /// Objects asked for their metadata alone.
    pub head: u64,
    /// Objects deleted.
    pub delete: u64,
    /// Listings begun.
    pub list: u64,
    /// Objects copied or renamed.
    pub copy: u64,
}

impl Requests {
    /// All operations together.
    #[must_use]
    pub fn total(&self) -> u64 {
        let Self {
            put,
            upload,
            part,
            finish,
            get,
            head,
            delete,
            list,
            copy,
        } = *self;
        [put, upload, part, finish, get, head, delete, list, copy]
            .iter()
            .sum()
    }
}

/// A store with a switch. Clones share the switch and the counters.
#[derive(Clone)]
pub struct KillSwitch {
    inner: Arc<dyn ObjectStore>,
    state: Arc<State>,
}

impl KillSwitch {
    /// Puts a switch around a store.
    #[must_use]
    pub fn new(inner: Arc<dyn ObjectStore>) -> Self {
        Self {
            inner,
            state: Arc::default(),
        }
    }

    /// Switches the store off for good. The first reason given is the one that errors show; a second kill changes nothing.
    pub fn kill(&self, reason: impl Into<String>) {
        let _ = self.state.reason.set(reason.into());
        self.state.token.cancel();
    }

    /// Takes the store away from a database that has made everything durable and has only to close: from now on its reads find nothing,
    /// and its writes succeed without an effect. What SlateDB writes to close says nothing new, takes it four requests one after the
    /// other, and the next owner of the shard would wait for them.
    pub fn seal(&self) {
        self.state.sealed.store(true, Ordering::Release);
    }

    /// Whether the store was switched off.
    #[must_use]
    pub fn is_killed(&self) -> bool {
        self.state.token.is_cancelled()
    }

    /// Why the last write failed, unless one has succeeded since: what keeps writes from becoming durable.
    #[must_use]
    pub fn trouble(&self) -> Option<Arc<String>> {
        self.state.trouble.load_full()
    }

    /// Why a request last failed that is worth another try, if any did.
    #[must_use]
    pub fn last_failure(&self) -> Option<Arc<String>> {
        self.state.failure.load_full()
    }

    /// Ends when the next put begins, counted from this call on.
    pub fn put_begins(&self) -> Notified<'_> {
        self.state.put_begins.notified()
    }

    /// The number of requests so far.
    #[must_use]
    pub fn requests(&self) -> Requests {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = &self.state.counts;
        Requests {
            put: read(&counts.put),
            upload: read(&counts.upload),
            part: read(&counts.part),
            finish: read(&counts.finish),
            get: read(&counts.get),
            head: read(&counts.head),
            delete: read(&counts.delete),
            list: read(&counts.list),
            copy: read(&counts.copy),
        }
    }
}

impl fmt::Debug for KillSwitch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "KillSwitch({}, killed: {})",
            self.inner,
            self.is_killed()
        )
    }
}

impl fmt::Display for KillSwitch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KillSwitch({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for KillSwitch {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        if self.state.is_sealed() {
            return Ok(PutResult {
                e_tag: None,
                version: None,
                extensions: Default::default(),
            });
        }
        self.state.put_begins.notify_waiters();
        let put = self.inner.put_opts(location, payload, options);
        let outcome = self.state.run(|counts| &counts.put, put).await;
        self.state.wrote(&outcome);
        outcome
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let start = self.inner.put_multipart_opts(location, options);
        let inner = self.state.run(|counts| &counts.upload, start).await?;
        Ok(Box::new(Upload {
            inner,
            state: Arc::clone(&self.state),
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if self.state.is_sealed() {
            return Err(object_store::Error::NotFound {
                path: location.to_string(),
                source: "the database has closed".into(),
            });
        }
        let head = options.head;
        let get = self.inner.get_opts(location, options);
        let mut result = self
            .state
            .run(|counts| if head { &counts.head } else { &counts.get }, get)
            .await?;
        if let GetResultPayload::Stream(body) = result.payload {
            result.payload = GetResultPayload::Stream(self.state.guard(body));
        }
        Ok(result)
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.state
            .run(
                |counts| &counts.get,
                self.inner.get_ranges(location, ranges),
            )
            .await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let state = Arc::clone(&self.state);
        // What is killed takes no further path from the caller either.
        let counted = locations.map(move |location| {
            location.and_then(|path| state.count(|c| &c.delete).map(|()| path))
        });
        self.state.guard(self.inner.delete_stream(counted.boxed()))
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.state.count(|counts| &counts.list) {
            Ok(()) => self.state.guard(self.inner.list(prefix)),
            Err(error) => stream::iter([Err(error)]).boxed(),
        }
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.state.count(|counts| &counts.list) {
            Ok(()) => self
                .state
                .guard(self.inner.list_with_offset(prefix, offset)),
            Err(error) => stream::iter([Err(error)]).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.state
            .run(
                |counts| &counts.list,
                self.inner.list_with_delimiter(prefix),
            )
            .await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.state
            .run(
                |counts| &counts.copy,
                self.inner.copy_opts(from, to, options),
            )
            .await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.state
            .run(
                |counts| &counts.copy,
                self.inner.rename_opts(from, to, options),
            )
            .await
    }
}

#[derive(Default)]
struct State {
    token: CancellationToken,
    sealed: AtomicBool,
    put_begins: Notify,
    reason: OnceLock<String>,
    counts: Counts,
    /// Why the last write failed.
    trouble: ArcSwapOption<String>,
    /// Why any request last failed.
    failure: ArcSwapOption<String>,
}

#[derive(Default)]
struct Counts {
    put: AtomicU64,
    upload: AtomicU64,
    part: AtomicU64,
    finish: AtomicU64,
    get: AtomicU64,
    head: AtomicU64,
    delete: AtomicU64,
    list: AtomicU64,
    copy: AtomicU64,
}

impl State {
    /// A kill is stronger.
    fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Acquire) && !self.token.is_cancelled()
    }

    fn error(&self) -> object_store::Error {
        let killed = Killed {
            reason: self.reason.get().cloned().unwrap_or_default(),
        };
        object_store::Error::Generic {
            store: "kill switch",
            source: Box::new(NonRetryable(Box::new(killed))),
        }
    }

    /// Counts a request, unless the switch is off.
    fn count(&self, counter: impl FnOnce(&Counts) -> &AtomicU64) -> Result<()> {
        if self.token.is_cancelled() {
            return Err(self.error());
        }
        counter(&self.counts).fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Keeps why a write failed, and says so once. A condition that does not hold is an answer, not a failure.
    fn wrote<T>(&self, outcome: &Result<T>) {
        match outcome {
            Err(error) if should_retry(error) => {
                let before = self.trouble.swap(Some(Arc::new(error.to_string())));
                if before.is_none() {
                    tracing::warn!(%error, "the store fails to write; it is tried again");
                }
            }
            // Switched off: nobody writes any more.
            Err(error) if NonRetryable::find(error).is_some() => {}
            _ => {
                if self.trouble.load().is_some() && self.trouble.swap(None).is_some() {
                    tracing::info!("the store writes again");
                }
            }
        }
    }

    /// Keeps why a request failed.
    fn note<T>(&self, outcome: &Result<T>) {
        if let Err(error) = outcome
            && should_retry(error)
        {
            self.failure.store(Some(Arc::new(error.to_string())));
        }
    }

    /// Runs a call until it ends or the switch is flipped.
    async fn run<T>(
        &self,
        counter: impl FnOnce(&Counts) -> &AtomicU64,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.count(counter)?;
        let Some(outcome) = self.token.run_until_cancelled(call).await else {
            return Err(self.error());
        };
        self.note(&outcome);
        outcome
    }

    /// Ends a stream with the error when the switch is flipped.
    fn guard<T: Send + 'static>(
        self: &Arc<Self>,
        items: BoxStream<'static, Result<T>>,
    ) -> BoxStream<'static, Result<T>> {
        let state = Arc::clone(self);
        stream::unfold(Some(items), move |items| {
            let state = Arc::clone(&state);
            async move {
                let mut items = items?;
                match state.token.run_until_cancelled(items.next()).await {
                    Some(item) => item.map(|item| {
                        state.note(&item);
                        (item, Some(items))
                    }),
                    None => Some((Err(state.error()), None)),
                }
            }
        })
        .boxed()
    }
}

struct Upload {
    inner: Box<dyn MultipartUpload>,
    state: Arc<State>,
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upload({:?})", self.inner)
    }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let part = self.inner.put_part(data);
        let state = Arc::clone(&self.state);
        async move { state.run(|counts| &counts.part, part).await }.boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let outcome = self
            .state
            .run(|counts| &counts.finish, self.inner.complete())
            .await;
        self.state.wrote(&outcome);
        outcome
    }

    async fn abort(&mut self) -> Result<()> {
        self.state
            .run(|counts| &counts.finish, self.inner.abort())
            .await
    }
}

#[cfg(test)]
mod tests;

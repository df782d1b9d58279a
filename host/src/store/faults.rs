//! A test double: a store that misbehaves on command.
//!
//! It wraps any store and is driven by a [`Faults`] handle that tests hold and change while calls are in progress. It is
//! always compiled, so that integration tests, drills and embedders can use it; nothing in production code makes one.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result, UploadPart,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::watch;

use crate::clock;

/// An operation that a fault can be tied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// A whole object written, whatever its condition, or an upload in parts (its start, parts and end).
    Put,
    /// An object, a part of it or its metadata read.
    Get,
    /// An object deleted.
    Delete,
    /// A listing.
    List,
    /// An object copied or renamed.
    Copy,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing. The call counts as struck: this tells how many there were of a kind.
    Nothing,
    /// The call takes this much longer. The other faults still apply after it.
    Latency(Duration),
    /// The call fails and nothing happened.
    FailBefore,
    /// The call takes effect, and then its reply is lost.
    FailAfter,
    /// The call gets no answer until [`Faults::clear`], and then fails.
    Hang,
    /// The credentials lack the right.
    PermissionDenied,
    /// Writes are refused, reads work.
    ReadOnly,
    /// Writes are refused for want of space.
    DiskFull,
    /// A create of what exists succeeds and replaces it.
    SecondCreateAccepted,
    /// An update replaces the object whatever its etag is.
    IgnoreIfMatch,
    /// An update is refused whatever its etag is.
    RefuseIfMatch,
    /// A conditional read returns the body although it has not changed.
    IgnoreIfNoneMatch,
    /// Attributes are accepted and forgotten.
    DropAttributes,
    /// A read returns other bytes than were written.
    CorruptReads,
    /// A listing shows nothing.
    StaleList,
    /// A delete succeeds and the object stays.
    KeepDeleted,
}

/// A fault and when it strikes.
#[derive(Clone, Debug)]
pub struct Rule {
    fault: Fault,
    op: Option<Op>,
    path: String,
    probability: f64,
    left: Option<u64>,
}

impl Rule {
    /// A fault that strikes every call until the rules are cleared.
    #[must_use]
    pub fn new(fault: Fault) -> Self {
        Self {
            fault,
            op: None,
            path: String::new(),
            probability: 1.0,
            left: None,
        }
    }

    /// Only on this operation.
    #[must_use]
    pub fn on(mut self, op: Op) -> Self {
        self.op = Some(op);
        self
    }

    /// Only on paths that contain this text.
    #[must_use]
    pub fn path(mut self, contains: impl Into<String>) -> Self {
        self.path = contains.into();
        self
    }

    /// Only with this probability (0 to 1), drawn from the seed of the [`FaultStore`].
    #[must_use]
    pub fn probability(mut self, probability: f64) -> Self {
        self.probability = probability.clamp(0.0, 1.0);
        self
    }

    /// Only this often, then never again.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.left = Some(times);
        self
    }
}

/// The handle that drives the faults of a store. Clones drive the same store.
#[derive(Clone)]
pub struct Faults(Arc<Shared>);

struct Shared {
    rules: Mutex<(Vec<Rule>, StdRng)>,
    /// Counts the clears; whoever hangs waits for the next one.
    cleared: watch::Sender<u64>,
    calls: [AtomicU64; 5],
    struck: AtomicU64,
    hanging: watch::Sender<u64>,
}

impl Faults {
    /// Adds a rule. Rules apply together.
    pub fn add(&self, rule: Rule) {
        self.0
            .rules
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .0
            .push(rule);
    }

    /// Removes all rules and lets go of hanging calls.
    pub fn clear(&self) {
        self.0
            .rules
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .0
            .clear();
        self.0.cleared.send_modify(|clears| *clears += 1);
    }

    /// How many calls of this kind arrived, whatever became of them.
    #[must_use]
    pub fn calls(&self, op: Op) -> u64 {
        self.0.calls[op as usize].load(Ordering::Relaxed)
    }

    /// How often a rule struck.
    #[must_use]
    pub fn struck(&self) -> u64 {
        self.0.struck.load(Ordering::Relaxed)
    }

    /// Waits until at least this many calls hang at the same time. The caller sets the deadline.
    pub async fn hanging(&self, calls: u64) {
        let mut hanging = self.0.hanging.subscribe();
        // The sender lives in `self`, so this ends only with the condition met.
        let _ = hanging.wait_for(|now| *now >= calls).await;
    }

    fn strikes(&self, op: Op, path: &str) -> Vec<Fault> {
        self.0.calls[op as usize].fetch_add(1, Ordering::Relaxed);
        let mut rules = self.0.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let (rules, random) = &mut *rules;
        let mut faults = Vec::new();
        for rule in rules.iter_mut() {
            let meant = rule.op.is_none_or(|meant| meant == op)
                && path.contains(&rule.path)
                && rule.left != Some(0);
            if meant && random.random_bool(rule.probability) {
                rule.left = rule.left.map(|left| left - 1);
                faults.push(rule.fault);
            }
        }
        self.0
            .struck
            .fetch_add(faults.len() as u64, Ordering::Relaxed);
        faults
    }

    /// Does what happens before a call; `Err` when there is to be no call.
    async fn before(&self, op: Op, path: &str) -> Result<Vec<Fault>> {
        let faults = self.strikes(op, path);
        let writes = matches!(op, Op::Put | Op::Delete | Op::Copy);
        for fault in &faults {
            match fault {
                Fault::Latency(time) => clock::sleep(*time).await,
                Fault::Hang => {
                    self.hang().await;
                    return Err(broken(path, "the connection was closed after a hang"));
                }
                Fault::FailBefore => return Err(broken(path, "the request was not sent")),
                Fault::PermissionDenied => {
                    let source = "403 AccessDenied (injected)".into();
                    return Err(object_store::Error::PermissionDenied {
                        path: path.to_owned(),
                        source,
                    });
                }
                Fault::ReadOnly if writes => return Err(broken(path, "read-only file system")),
                Fault::DiskFull if op == Op::Put => {
                    return Err(broken(path, "no space left on device"));
                }
                _ => {}
            }
        }
        Ok(faults)
    }

    async fn hang(&self) {
        let mut cleared = self.0.cleared.subscribe();
        cleared.mark_unchanged();
        let _count = Hanging::new(&self.0.hanging);
        let _ = cleared.changed().await;
    }
}

/// Counts a hanging call, also when its future is dropped.
struct Hanging<'a>(&'a watch::Sender<u64>);

impl<'a> Hanging<'a> {
    fn new(count: &'a watch::Sender<u64>) -> Self {
        count.send_modify(|hanging| *hanging += 1);
        Self(count)
    }
}

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        self.0
            .send_modify(|hanging| *hanging = hanging.saturating_sub(1));
    }
}

/// The misbehaving store.
#[derive(Clone)]
pub struct FaultStore {
    inner: Arc<dyn ObjectStore>,
    faults: Faults,
}

impl FaultStore {
    /// Wraps a store. Probabilities are drawn from the seed: tests print it when they fail.
    #[must_use]
    pub fn new(inner: Arc<dyn ObjectStore>, seed: u64) -> Self {
        let faults = Faults(Arc::new(Shared {
            rules: Mutex::new((Vec::new(), StdRng::seed_from_u64(seed))),
            cleared: watch::Sender::new(0),
            calls: Default::default(),
            struck: AtomicU64::new(0),
            hanging: watch::Sender::new(0),
        }));
        Self { inner, faults }
    }

    /// The handle that drives it.
    #[must_use]
    pub fn faults(&self) -> Faults {
        self.faults.clone()
    }

    async fn delete_one(&self, location: Path) -> Result<Path> {
        let faults = self.faults.before(Op::Delete, location.as_ref()).await?;
        if !faults.contains(&Fault::KeepDeleted) {
            self.inner.delete(&location).await?;
        }
        after(&faults, &location, location.clone())
    }
}

impl fmt::Debug for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultStore({})", self.inner)
    }
}

impl fmt::Display for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[async_trait]
impl ObjectStore for FaultStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        mut options: PutOptions,
    ) -> Result<PutResult> {
        let faults = self.faults.before(Op::Put, location.as_ref()).await?;
        let has = |fault| faults.contains(&fault);
        match options.mode {
            PutMode::Create if has(Fault::SecondCreateAccepted) => {
                options.mode = PutMode::Overwrite
            }
            PutMode::Update(_) if has(Fault::IgnoreIfMatch) => options.mode = PutMode::Overwrite,
            PutMode::Update(_) if has(Fault::RefuseIfMatch) => {
                let source = "412 PreconditionFailed (injected)".into();
                return Err(object_store::Error::Precondition {
                    path: location.to_string(),
                    source,
                });
            }
            _ => {}
        }
        if has(Fault::DropAttributes) {
            options.attributes = Attributes::new();
        }
        let result = self.inner.put_opts(location, payload, options).await?;
        after(&faults, location, result)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let faults = self.faults.before(Op::Put, location.as_ref()).await?;
        let inner = self.inner.put_multipart_opts(location, options).await?;
        let upload = Upload {
            inner,
            faults: self.faults.clone(),
            location: location.clone(),
        };
        after(
            &faults,
            location,
            Box::new(upload) as Box<dyn MultipartUpload>,
        )
    }

    async fn get_opts(&self, location: &Path, mut options: GetOptions) -> Result<GetResult> {
        let faults = self.faults.before(Op::Get, location.as_ref()).await?;
        if faults.contains(&Fault::IgnoreIfNoneMatch) {
            options.if_none_match = None;
        }
        let mut result = self.inner.get_opts(location, options).await?;
        if faults.contains(&Fault::CorruptReads) {
            let length = usize::try_from(result.range.end - result.range.start).unwrap_or(0);
            let body = stream::iter([Ok(bytes::Bytes::from(vec![0; length]))]).boxed();
            result.payload = object_store::GetResultPayload::Stream(body);
        }
        after(&faults, location, result)
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        locations
            .then(move |location| {
                let store = store.clone();
                async move { store.delete_one(location?).await }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (store, prefix) = (self.clone(), prefix.cloned());
        stream::once(async move {
            let path = prefix.clone().unwrap_or_default();
            let faults = store.faults.before(Op::List, path.as_ref()).await?;
            after(&faults, &path, ())?;
            let items = store.inner.list(prefix.as_ref());
            let items = if faults.contains(&Fault::StaleList) {
                stream::empty().boxed()
            } else {
                items
            };
            Ok::<_, object_store::Error>(items)
        })
        .try_flatten()
        .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let path = prefix.cloned().unwrap_or_default();
        let faults = self.faults.before(Op::List, path.as_ref()).await?;
        let mut result = self.inner.list_with_delimiter(prefix).await?;
        if faults.contains(&Fault::StaleList) {
            result.common_prefixes.clear();
            result.objects.clear();
        }
        after(&faults, &path, result)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let faults = self.faults.before(Op::Copy, to.as_ref()).await?;
        self.inner.copy_opts(from, to, options).await?;
        after(&faults, to, ())
    }
}

struct Upload {
    inner: Box<dyn MultipartUpload>,
    faults: Faults,
    location: Path,
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upload({})", self.location)
    }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let part = self.inner.put_part(data);
        let (faults, location) = (self.faults.clone(), self.location.clone());
        async move {
            let struck = faults.before(Op::Put, location.as_ref()).await?;
            part.await?;
            after(&struck, &location, ())
        }
        .boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let struck = self.faults.before(Op::Put, self.location.as_ref()).await?;
        let result = self.inner.complete().await?;
        after(&struck, &self.location, result)
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}

fn after<T>(faults: &[Fault], path: &Path, result: T) -> Result<T> {
    if faults.contains(&Fault::FailAfter) {
        return Err(broken(
            path.as_ref(),
            "the reply was lost after the request took effect",
        ));
    }
    Ok(result)
}

fn broken(path: &str, what: &str) -> object_store::Error {
    object_store::Error::Generic {
        store: "fault store",
        source: format!("{path}: {what} (injected)").into(),
    }
}

#[cfg(test)]
mod tests;

//! Carries out what the core asks of the store, one request at a time. It decides nothing: it translates.
//!
//! Every answer of a store is turned into one of the few that the core knows, and what cannot be told for sure (a write whose reply is
//! lost, a refusal after a resend) becomes "may have been applied": the core then looks at what lies there.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Error, GetResult, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, UpdateVersion,
};
use quarry_core::lease::object::{Condition, Entry, Key, ObjectReply, ObjectRequest, PAGE, Tag};
use quarry_core::lease::record::MAX_BYTES;

use crate::cluster::database_path;
use crate::db::open::stored_epoch;
use crate::metrics::lease_requests;
use crate::store::{Store, StoreKind};

/// The objects of one cluster's leases. Clones share connections.
#[derive(Clone)]
pub struct LeaseObjects {
    objects: Arc<dyn ObjectStore>,
    /// `_quarry/`, where it lies in the store.
    folder: Path,
    /// The path of the cluster's databases within the store.
    prefix: Path,
    path: Arc<str>,
    shards: u32,
    /// Whether a listing comes in the order of its names.
    ordered: bool,
    requests: Requests,
}

/// Counters by the kind of request.
#[derive(Clone)]
struct Requests {
    get: metrics::Counter,
    put: metrics::Counter,
    list: metrics::Counter,
    writer_epoch: metrics::Counter,
}

impl LeaseObjects {
    /// The leases of a cluster with so many shards at `path` in a store. The cluster's name is for metrics.
    #[must_use]
    pub fn new(store: &Store, path: &str, shards: u32, cluster: &str) -> Self {
        let counter = |method| lease_requests(cluster, method);
        Self {
            objects: store.objects(),
            folder: store.path(&format!("{path}/_quarry")),
            prefix: store.prefix().clone(),
            path: path.into(),
            shards,
            ordered: !matches!(store.kind(), StoreKind::File),
            requests: Requests {
                get: counter("get"),
                put: counter("put"),
                list: counter("list"),
                writer_epoch: counter("writer-epoch"),
            },
        }
    }

    /// Makes one request. Without an end of its own: the caller bounds it, and a write that was cut off may have been applied.
    pub async fn ask(&self, request: ObjectRequest) -> ObjectReply {
        let requests = &self.requests;
        let counter = match &request {
            ObjectRequest::Get(_) => &requests.get,
            ObjectRequest::List { .. } => &requests.list,
            ObjectRequest::Put { .. } => &requests.put,
            ObjectRequest::WriterEpoch { .. } => &requests.writer_epoch,
        };
        counter.increment(1);
        match request {
            ObjectRequest::Get(key) => self.get(&key).await,
            ObjectRequest::List { after, limit } => self.list(&after, limit).await,
            ObjectRequest::Put {
                key,
                body,
                condition,
            } => self.put(&key, body, condition).await,
            ObjectRequest::WriterEpoch { shard } => self.writer_epoch(shard).await,
        }
    }

    fn at(&self, key: &Key) -> Path {
        below(&self.folder, &key.object_name(self.shards))
    }

    async fn get(&self, key: &Key) -> ObjectReply {
        let read = async {
            let found = self.objects.get(&self.at(key)).await?;
            let tag = tag(found.meta.e_tag.clone(), found.meta.version.clone());
            let body = bounded(found).await?;
            Ok(ObjectReply::Found { tag, body })
        };
        match read.await {
            Ok(found) => found,
            Err(Error::NotFound { .. }) => ObjectReply::Missing,
            Err(error) => failed(false, &error),
        }
    }

    async fn put(&self, key: &Key, body: Vec<u8>, condition: Condition) -> ObjectReply {
        let mode = match condition {
            Condition::Create => PutMode::Create,
            Condition::Match(tag) => PutMode::Update(UpdateVersion {
                e_tag: tag.e_tag.map(Into::into),
                version: tag.version.map(Into::into),
            }),
            Condition::Always => {
                return ObjectReply::Failed {
                    maybe_applied: false,
                    message: "a lease is never written without a condition".into(),
                };
            }
        };
        let at = self.at(key);
        let written = self
            .objects
            .put_opts(&at, body.into(), PutOptions::from(mode));
        match written.await {
            Ok(written) => ObjectReply::Written(tag(written.e_tag, written.version)),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => ObjectReply::Conflict,
            Err(Error::NotFound { .. }) => ObjectReply::Missing,
            Err(error) => {
                let never = matches!(
                    error,
                    Error::NotSupported { .. }
                        | Error::NotImplemented { .. }
                        | Error::InvalidPath { .. }
                );
                failed(!never, &error)
            }
        }
    }

    async fn list(&self, after: &str, limit: u32) -> ObjectReply {
        let limit = limit.min(PAGE) as usize;
        let mut found = if after.is_empty() {
            self.objects.list(Some(&self.folder))
        } else {
            let offset = below(&self.folder, &offset(after));
            self.objects.list_with_offset(Some(&self.folder), &offset)
        };
        // By name, and never more than one over the limit, however many there are.
        let mut names: BTreeMap<String, ObjectMeta> = BTreeMap::new();
        loop {
            let meta = match found.try_next().await {
                Ok(Some(meta)) => meta,
                Ok(None) => break,
                Err(Error::NotFound { .. }) => break,
                Err(error) => return failed(false, &error),
            };
            let Some(name) = self.name(&meta.location) else {
                continue;
            };
            if name.as_str() > after {
                names.insert(name, meta);
            }
            if self.ordered && names.len() >= limit {
                // The page is full: whether anything comes behind is for the next one to say, which costs nothing where nothing does.
                break;
            }
            if names.len() > limit + 1 {
                names.pop_last();
            }
        }
        let more = names.len() > limit || (self.ordered && names.len() == limit);
        let entries = names.into_iter().take(limit).map(|(name, meta)| Entry {
            name,
            tag: meta.e_tag.as_deref().map(Tag::e_tag),
            size: meta.size,
        });
        ObjectReply::Listed {
            entries: entries.collect(),
            more,
        }
    }

    async fn writer_epoch(&self, shard: u32) -> ObjectReply {
        let path = database_path(&self.path, shard, self.shards);
        match stored_epoch(self.objects.clone(), below(&self.prefix, &path)).await {
            Ok(epoch) => ObjectReply::WriterEpoch(epoch),
            Err(message) => ObjectReply::Failed {
                maybe_applied: false,
                message,
            },
        }
    }

    /// The name of an object below the folder.
    fn name(&self, location: &Path) -> Option<String> {
        let rest = location.as_ref().strip_prefix(self.folder.as_ref())?;
        rest.strip_prefix('/').map(str::to_owned)
    }
}

/// A body, or its beginning where it is too long for any record.
async fn bounded(found: GetResult) -> object_store::Result<Vec<u8>> {
    let mut body = Vec::new();
    let mut pieces = found.into_stream();
    while let Some(piece) = pieces.next().await {
        let room = MAX_BYTES + 1 - body.len();
        let piece = piece?;
        body.extend_from_slice(&piece[..piece.len().min(room)]);
        if body.len() > MAX_BYTES {
            break;
        }
    }
    Ok(body)
}

/// Where a listing begins that is to come after a name. A path cannot end in `/`, and without it SeaweedFS passes over the whole folder; the
/// least name that may lie in it does as well.
fn offset(after: &str) -> String {
    match after.strip_suffix('/') {
        Some(folder) => format!("{folder}/!"),
        None => after.to_owned(),
    }
}

fn below(folder: &Path, child: &str) -> Path {
    folder.parts().chain(Path::from(child).parts()).collect()
}

fn tag(e_tag: Option<String>, version: Option<String>) -> Tag {
    Tag {
        e_tag: e_tag.map(Into::into),
        version: version.map(Into::into),
    }
}

fn failed(maybe_applied: bool, error: &Error) -> ObjectReply {
    ObjectReply::Failed {
        maybe_applied,
        message: error.to_string(),
    }
}

//! The cluster record, `<path>/_quarry/cluster.json`: what the data is bound to for life.
//!
//! The first node creates it, and every node checks it before it opens a shard. The shard count and the hash decide which
//! shard holds a key, and the merge operator what the stored operands mean: a node with other ideas would corrupt data.

use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, UpdateVersion};
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::store::Store;

mod secret;

pub use secret::Secret;

/// The format that this build writes, and the newest that it reads.
pub const VERSION: u32 = 2;
/// The hash that assigns keys to shards.
pub const HASH: &str = "xxh64";
/// The largest record that is read.
pub const MAX_BYTES: u64 = 64 * 1024;
/// The most shards that a cluster can have.
pub const MAX_SHARDS: u32 = 65_536;

/// The longest text in a record.
const MAX_TEXT: usize = 128;
/// How often a create of unknown outcome is looked into.
const ATTEMPTS: u32 = 3;
/// The pause before it is looked into again.
const PAUSE: Duration = Duration::from_millis(200);

/// What a node is configured with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The number of shards, 1 to [`MAX_SHARDS`].
    pub shards: u32,
    /// The name of the merge operator, if there is to be one.
    pub merge_operator: Option<String>,
    /// How leases lie in the store (`lease.layout`); none where there are no leases.
    pub lease_layout: Option<&'static str>,
}

/// What lies in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterRecord {
    /// The format, [`VERSION`].
    pub version: u32,
    /// The number of shards.
    pub shards: u32,
    /// The hash that assigns keys to shards, [`HASH`].
    pub hash: String,
    /// The name of the merge operator, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge_operator: Option<String>,
    /// When it was created, in milliseconds since 1970 by the creator's wall clock. For people; decides nothing.
    pub created_at_ms: i64,
    /// Grows with each rewrite.
    pub counter: u64,
    /// Random; tells the creator's own record from another's.
    pub nonce: String,
    /// By which the nodes of the cluster know each other. Records of version 1 have none, until a newer build reads them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Secret>,
    /// How the leases of its nodes lie in the store, since the first of them. Nodes that differ would take each other for dead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_layout: Option<String>,
}

/// Why a node cannot work on the data.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configured number of shards is out of range.
    #[error("a cluster cannot have {shards} shards; valid are 1 to {MAX_SHARDS}")]
    ShardsOutOfRange {
        /// The number configured.
        shards: u32,
    },
    /// The configured name cannot be kept.
    #[error("the merge operator's name has {length} bytes; valid are 1 to {MAX_TEXT}")]
    OperatorName {
        /// Its length.
        length: usize,
    },
    /// The data has another number of shards.
    #[error(
        "the data at {location} has {found} shards, and this node is configured with {wanted}. The number is fixed when the data is created: set it to {found}, or use another path for a new cluster"
    )]
    Shards {
        /// The record, with its store.
        location: String,
        /// The number in the record.
        found: u32,
        /// The number configured.
        wanted: u32,
    },
    /// The data has another merge operator, or none, or one that is not configured.
    #[error(
        "the data at {location} was created with {}, and this node is configured with {}. The operator gives stored operands their meaning, so it is fixed when the data is created: configure {}, or use another path for a new cluster",
        operator(found),
        operator(wanted),
        operator(found)
    )]
    MergeOperator {
        /// The record, with its store.
        location: String,
        /// The operator in the record.
        found: Option<String>,
        /// The operator configured.
        wanted: Option<String>,
    },
    /// The nodes of the cluster keep their leases in another way.
    #[error(
        "the nodes on {location} keep their leases with lease.layout = {found:?}, and this node is configured with {wanted:?}: nodes that differ would take each other for dead. Configure {found:?}; to change it, stop all nodes and take `lease_layout` out of the record"
    )]
    Layout {
        /// The record, with its store.
        location: String,
        /// The layout in the record.
        found: String,
        /// The layout configured.
        wanted: &'static str,
    },
    /// Keys are assigned to shards in another way.
    #[error(
        "the data at {location} assigns keys to shards by {found:?}; this build knows {HASH:?} alone"
    )]
    Hash {
        /// The record, with its store.
        location: String,
        /// The hash in the record.
        found: String,
    },
    /// A newer build wrote the record.
    #[error(
        "the data at {location} has format version {found}; this build reads up to {VERSION}. Use a newer build of Quarry"
    )]
    Newer {
        /// The record, with its store.
        location: String,
        /// The version in the record.
        found: u64,
    },
    /// The record makes no sense.
    #[error(
        "{location} is not a valid cluster record: {problem}. Restore it from a backup; do not delete it while there is data under the path"
    )]
    Invalid {
        /// The record, with its store.
        location: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The store failed.
    #[error("cannot {action} {location}: {source}")]
    Store {
        /// What was tried.
        action: &'static str,
        /// The record, with its store.
        location: String,
        /// What the store said.
        source: object_store::Error,
    },
}

impl Error {
    /// Whether trying again cannot help: only a failure of the store passes by itself.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        !matches!(self, Self::Store { .. })
    }
}

/// Creates the record under `<path>/_quarry/`, or checks the one that is there. Of any number of nodes that create it at
/// once one wins, and the others check what it wrote.
///
/// A record of an older version is brought up to this one, which gives it a secret, and one that knows no layout of leases gets that of the
/// first node that has some.
///
/// Costs one read, and one conditional put when there is no record yet or it is an older one. It takes as long as the store does: callers set
/// the deadline.
///
/// # Errors
///
/// When the record in the store does not agree with `wanted`, is invalid or newer, or the store fails.
pub async fn ensure(store: &Store, path: &str, wanted: &Wanted) -> Result<ClusterRecord, Error> {
    check_wanted(wanted)?;
    let place = Place::new(store, path);
    let mine = ClusterRecord {
        version: VERSION,
        shards: wanted.shards,
        hash: HASH.to_owned(),
        merge_operator: wanted.merge_operator.clone(),
        created_at_ms: crate::clock::wall_ms(),
        counter: 1,
        nonce: nonce(),
        secret: Some(Secret::random()),
        lease_layout: wanted.lease_layout.map(str::to_owned),
    };
    let mut attempt = 1;
    loop {
        let (record, mode) = match place.read_tagged().await? {
            Some((found, tag)) => {
                let found = place.check(found, wanted)?;
                let says = found.lease_layout.is_some() || wanted.lease_layout.is_none();
                if found.secret.is_some() && says {
                    return Ok(found);
                }
                (found.renewed(wanted), PutMode::Update(tag))
            }
            None => (mine.clone(), PutMode::Create),
        };
        match place.write(&record, mode).await {
            Ok(()) => return Ok(record),
            // Somebody else was first; or it was ourselves, and the reply to the first sending was lost. Either way what
            // is there now is the record, and the nonce tells whose it is.
            Err(
                object_store::Error::AlreadyExists { .. }
                | object_store::Error::Precondition { .. }
                | object_store::Error::NotFound { .. },
            ) if attempt < ATTEMPTS => {}
            // The write may have taken effect, or not: reading tells.
            Err(source) if attempt < ATTEMPTS && slatedb_common::retry::should_retry(&source) => {
                tracing::debug!(location = %place, %source, attempt, "writing the cluster record has an unknown outcome");
                clock::sleep(PAUSE).await;
            }
            Err(source) => return Err(place.error("write", source)),
        }
        attempt += 1;
    }
}

/// Reads the record, if there is one, without comparing it with a configuration.
///
/// # Errors
///
/// When it is invalid or newer, or the store fails.
pub async fn read(store: &Store, path: &str) -> Result<Option<ClusterRecord>, Error> {
    let found = Place::new(store, path).read_tagged().await?;
    Ok(found.map(|(record, _)| record))
}

impl ClusterRecord {
    /// The same record in the newest version.
    fn renewed(&self, wanted: &Wanted) -> Self {
        let mut record = Self {
            version: VERSION,
            counter: self.counter.saturating_add(1),
            nonce: nonce(),
            ..self.clone()
        };
        record.secret.get_or_insert_with(Secret::random);
        if let (None, Some(layout)) = (&record.lease_layout, wanted.lease_layout) {
            record.lease_layout = Some(layout.to_owned());
        }
        record
    }
}

fn nonce() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// Where the record lies.
struct Place<'a> {
    store: &'a Store,
    key: Path,
}

impl std::fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.key, self.store)
    }
}

impl<'a> Place<'a> {
    fn new(store: &'a Store, path: &str) -> Self {
        Self {
            store,
            key: store.path(&format!("{path}/_quarry/cluster.json")),
        }
    }

    async fn write(&self, record: &ClusterRecord, mode: PutMode) -> object_store::Result<()> {
        let body =
            serde_json::to_vec_pretty(record).map_err(|error| object_store::Error::Generic {
                store: "record",
                source: error.into(),
            })?;
        self.store
            .objects()
            .put_opts(&self.key, body.into(), PutOptions::from(mode))
            .await
            .map(|_| ())
    }

    /// The record, and the version of the object that it was read from.
    async fn read_tagged(&self) -> Result<Option<(ClusterRecord, UpdateVersion)>, Error> {
        let result = match self.store.objects().get(&self.key).await {
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            result => result.map_err(|source| self.error("read", source))?,
        };
        let size = result.meta.size;
        let tag = UpdateVersion {
            e_tag: result.meta.e_tag.clone(),
            version: result.meta.version.clone(),
        };
        if size > MAX_BYTES {
            return Err(self.invalid(format!(
                "it has {size} bytes, more than the limit of {MAX_BYTES}"
            )));
        }
        // The size is the store's word; the body is bounded all the same.
        let mut body = Vec::new();
        let mut pieces = result.into_stream();
        while let Some(piece) = pieces
            .try_next()
            .await
            .map_err(|source| self.error("read", source))?
        {
            body.extend_from_slice(&piece);
            if body.len() as u64 > MAX_BYTES {
                return Err(self.invalid(format!(
                    "its body is longer than the limit of {MAX_BYTES} bytes"
                )));
            }
        }
        let record = self.parse(&Bytes::from(body))?;
        Ok(Some((record, tag)))
    }

    fn parse(&self, body: &[u8]) -> Result<ClusterRecord, Error> {
        /// A newer format may have other fields, but it has this one.
        #[derive(Deserialize)]
        struct Version {
            version: u64,
        }
        let Version { version } =
            serde_json::from_slice(body).map_err(|error| self.invalid(error.to_string()))?;
        if version > u64::from(VERSION) {
            return Err(Error::Newer {
                location: self.to_string(),
                found: version,
            });
        }
        let record: ClusterRecord =
            serde_json::from_slice(body).map_err(|error| self.invalid(error.to_string()))?;
        let texts = [
            Some(&record.hash),
            record.merge_operator.as_ref(),
            record.lease_layout.as_ref(),
            Some(&record.nonce),
        ];
        if let Some(text) = texts
            .into_iter()
            .flatten()
            .find(|text| text.is_empty() || text.len() > MAX_TEXT)
        {
            return Err(self.invalid(format!(
                "a text in it has {} bytes; valid are 1 to {MAX_TEXT}",
                text.len()
            )));
        }
        if record.version == 0 {
            return Err(self.invalid("version 0 does not exist".to_owned()));
        }
        if !(1..=MAX_SHARDS).contains(&record.shards) {
            return Err(self.invalid(format!(
                "{} shards; valid are 1 to {MAX_SHARDS}",
                record.shards
            )));
        }
        Ok(record)
    }

    fn check(&self, found: ClusterRecord, wanted: &Wanted) -> Result<ClusterRecord, Error> {
        let location = self.to_string();
        if found.hash != HASH {
            return Err(Error::Hash {
                location,
                found: found.hash,
            });
        }
        if found.shards != wanted.shards {
            return Err(Error::Shards {
                location,
                found: found.shards,
                wanted: wanted.shards,
            });
        }
        if found.merge_operator != wanted.merge_operator {
            let wanted = wanted.merge_operator.clone();
            return Err(Error::MergeOperator {
                location,
                found: found.merge_operator,
                wanted,
            });
        }
        match (&found.lease_layout, wanted.lease_layout) {
            (Some(layout), Some(wanted)) if layout != wanted => Err(Error::Layout {
                location,
                found: layout.clone(),
                wanted,
            }),
            _ => Ok(found),
        }
    }

    fn invalid(&self, problem: String) -> Error {
        Error::Invalid {
            location: self.to_string(),
            problem,
        }
    }

    fn error(&self, action: &'static str, source: object_store::Error) -> Error {
        Error::Store {
            action,
            location: self.to_string(),
            source,
        }
    }
}

fn check_wanted(wanted: &Wanted) -> Result<(), Error> {
    if !(1..=MAX_SHARDS).contains(&wanted.shards) {
        return Err(Error::ShardsOutOfRange {
            shards: wanted.shards,
        });
    }
    match &wanted.merge_operator {
        Some(name) if name.is_empty() || name.len() > MAX_TEXT => {
            Err(Error::OperatorName { length: name.len() })
        }
        _ => Ok(()),
    }
}

fn operator(name: &Option<String>) -> String {
    name.as_ref().map_or_else(
        || "no merge operator".to_owned(),
        |name| format!("merge operator {name:?}"),
    )
}

#[cfg(test)]
mod tests;

//! Why something in the bucket could not be read or written.

use std::time::Duration;

use quarry_core::deploy::Digest;
use quarry_core::lease::record::RecordError;

/// Why something in the bucket could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such revision.
    #[error(
        "there is no revision {number} in {store}; `quarry revisions` lists those that there are"
    )]
    NoRevision {
        /// Its number.
        number: u64,
        /// The store.
        store: String,
    },
    /// There is no such component.
    #[error(
        "there is no module {digest} in {store}; `quarry deploy` of the same file uploads it again"
    )]
    NoModule {
        /// The digest of the component.
        digest: Digest,
        /// The store.
        store: String,
    },
    /// The rollout record was there before.
    #[error(
        "the rollout record has vanished from {store}; shards go on with what they run. Restore it from a backup, or deploy again"
    )]
    Vanished {
        /// The store.
        store: String,
    },
    /// A value may not go into a body. Nothing was written.
    #[error(transparent)]
    Invalid(RecordError),
    /// A body makes no sense, or is of another version.
    #[error("{source} (in {store})")]
    Record {
        /// What is wrong with it.
        source: RecordError,
        /// The store.
        store: String,
    },
    /// An object has another size than its component.
    #[error(
        "module {digest} in {store} has {found} bytes and not {expected}: it was uploaded in part, or overwritten. `quarry deploy` of the same file uploads it again"
    )]
    Incomplete {
        /// The digest of the component.
        digest: Digest,
        /// The size of the object.
        found: u64,
        /// The size of the component.
        expected: u64,
        /// The store.
        store: String,
    },
    /// An object has other bytes than its component.
    #[error(
        "module {digest} in {store} has the content of another one, {found}: it was changed after it was uploaded, and is not run. `quarry deploy` of the original file uploads it again"
    )]
    Tampered {
        /// The digest in the object's name.
        digest: Digest,
        /// The digest of its bytes.
        found: Digest,
        /// The store.
        store: String,
    },
    /// A component is empty, or too large.
    #[error("a module has 1 to {most} bytes, and this one has {size}")]
    Size {
        /// Its size.
        size: u64,
        /// The most that is stored.
        most: u64,
    },
    /// More objects than are looked at.
    #[error(
        "there are more than {most} objects under {folder} in {store}; `quarry revisions prune` removes what is old"
    )]
    TooMany {
        /// The folder.
        folder: &'static str,
        /// The most that are looked at.
        most: usize,
        /// The store.
        store: String,
    },
    /// Others took each number first.
    #[error(
        "others took the numbers {first} to {last} for their revisions meanwhile: too many deploy at once; try again"
    )]
    Contended {
        /// The first number tried.
        first: u64,
        /// The last.
        last: u64,
    },
    /// A write may have taken effect or not, and that could not be found out.
    #[error(
        "cannot tell whether {object} was written to {store}: {why}. Look at it again before another try"
    )]
    Unknown {
        /// The object, below `_quarry/`.
        object: String,
        /// The store.
        store: String,
        /// What happened last.
        why: String,
    },
    /// The store did not answer.
    #[error("{store} did not {action} {object} within {limit:?}")]
    Late {
        /// What was tried.
        action: &'static str,
        /// The object, below `_quarry/`.
        object: String,
        /// The store.
        store: String,
        /// How long it was waited for.
        limit: Duration,
    },
    /// The store failed.
    #[error("{store} cannot {action} {object}: {source}")]
    Store {
        /// What was tried.
        action: &'static str,
        /// The object, below `_quarry/`.
        object: String,
        /// The store.
        store: String,
        /// What the store said.
        source: Box<object_store::Error>,
    },
}

impl Error {
    /// Whether it may pass by itself, so that trying again later makes sense. The others stay until somebody repairs what is in the bucket.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Late { .. } | Self::Unknown { .. } | Self::Contended { .. } => true,
            Self::Store { source, .. } => slatedb_common::retry::should_retry(source),
            _ => false,
        }
    }
}

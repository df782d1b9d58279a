//! The components, revisions and the rollout record of a cluster, as they lie in its bucket.
//!
//! What is read is bounded and verified, and what is written is conditional: whatever else happens, a revision never changes, of two who
//! write the rollout record at once one wins, and a component is what its name says. Each request has an end. A read, a delete and the
//! right bytes of a component are sent again after a failure that passes; a write whose outcome is unknown is looked for, by its counter and
//! nonce or by its content, before it is sent again on the same condition.

use std::sync::Arc;
use std::time::Duration;

use object_store::path::Path;
use object_store::{ObjectStore, PutMode, UpdateVersion};
use quarry_core::deploy::{
    Digest, MAX_REVISION_BYTES, MAX_ROLLOUT_BYTES, ModuleSpec, ROLLOUT, Revision, RolloutRecord,
};
use quarry_core::lease::record::{Nonce, RecordError};
use serde::Serialize;

use self::request::{ATTEMPTS, Found, Put, Unlike, pause};
use crate::clock;
use crate::store::Store;

mod error;
mod modules;
mod request;

pub use error::Error;
pub use modules::digest;

/// The largest component that is stored or loaded.
pub const MAX_MODULE_BYTES: u64 = 256 << 20;
/// The most revisions, and the most components, that a cluster has.
pub const MAX_OBJECTS: usize = 10_000;

/// How long a request for a small object may take.
const REQUEST: Duration = Duration::from_secs(15);
/// And a listing.
const LISTING: Duration = Duration::from_secs(60);
/// How many numbers are tried for a new revision.
const NUMBERS: u64 = 32;

/// The objects of one cluster. Clones share connections.
#[derive(Clone)]
pub struct Objects {
    objects: Arc<dyn ObjectStore>,
    /// `_quarry/`, where it lies in the store.
    folder: Path,
    /// The store's name, without anything secret.
    store: Arc<str>,
}

/// The rollout record, and the version of the object that it was read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// What it says.
    pub record: RolloutRecord,
    /// The condition for the next write.
    pub version: UpdateVersion,
}

/// How a write of the rollout record ended.
#[expect(
    clippy::large_enum_variant,
    reason = "each is moved a few times and kept nowhere in numbers"
)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// This is what stands there now.
    Won(Stored),
    /// It has changed since it was read: read it again.
    Lost,
}

/// A revision to be. Its number, and when it was made, are found out as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// Its modules, in the order in which they are started.
    pub modules: Vec<ModuleSpec>,
    /// Who makes it, at most 256 bytes.
    pub author: String,
    /// Why, at most [`quarry_core::deploy::MAX_NOTE`] bytes.
    pub note: String,
}

/// A component's object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ModuleObject {
    /// The digest in its name.
    pub digest: Digest,
    /// Its size in bytes.
    pub size: u64,
    /// When it was stored, in milliseconds since 1970 by the store's clock. For people, and so that what was just uploaded is not pruned.
    pub stored_ms: u64,
}

impl Objects {
    /// The objects of the cluster at `path` in a store.
    #[must_use]
    pub fn new(store: &Store, path: &str) -> Self {
        Self {
            objects: store.objects(),
            folder: store.path(&format!("{path}/_quarry")),
            store: store.to_string().into(),
        }
    }

    /// The store's name, for people.
    #[must_use]
    pub fn store_name(&self) -> &str {
        &self.store
    }

    /// The rollout record; none before the first rollout.
    ///
    /// # Errors
    /// [`Error::Record`] where it is unreadable or of another version, or a failure of the store.
    pub async fn rollout(&self) -> Result<Option<Stored>, Error> {
        let found = self.small(ROLLOUT, MAX_ROLLOUT_BYTES).await?;
        found.map(|found| self.stored(&found)).transpose()
    }

    /// The rollout record, if it is another one than was seen. Costs a request without a body where it is not.
    ///
    /// # Errors
    /// As [`Objects::rollout`], and [`Error::Vanished`] where there is none any more.
    pub async fn rollout_since(&self, seen: &Stored) -> Result<Option<Stored>, Error> {
        let fits = |size| self.fits(ROLLOUT, size, MAX_ROLLOUT_BYTES);
        let unlike = Some(&seen.version);
        match self.get(ROLLOUT, REQUEST, unlike, fits).await? {
            // Stores that do not look at the condition send it all the same.
            Unlike::Found(found) => {
                let stored = self.stored(&found)?;
                Ok((stored != *seen).then_some(stored))
            }
            Unlike::Same => Ok(None),
            Unlike::Missing => Err(Error::Vanished {
                store: self.store.to_string(),
            }),
        }
    }

    /// Writes the record on the condition that it is still what was seen, or that there is none. Gives it the next counter, a nonce and the
    /// time. Where the outcome is unknown, it is looked for by counter and nonce.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a value in it does not keep its bounds, [`Error::Unknown`] when it cannot be told whether it was written, or
    /// a failure of the store.
    pub async fn write_rollout(
        &self,
        seen: Option<&Stored>,
        mut next: RolloutRecord,
    ) -> Result<Written, Error> {
        next.counter = seen.map_or(0, |seen| seen.record.counter).saturating_add(1);
        next.nonce = Nonce::new(rand::random());
        next.at_ms = wall_ms();
        let body = next.encode().map_err(Error::Invalid)?;
        short_enough(ROLLOUT, &body, MAX_ROLLOUT_BYTES)?;
        let mut attempt = 1;
        loop {
            let mode = seen.map_or(PutMode::Create, |seen| {
                PutMode::Update(seen.version.clone())
            });
            let sent = self.put(ROLLOUT, body.clone(), mode, REQUEST).await?;
            let why = match sent {
                Put::Written(version) => {
                    let record = next;
                    return Ok(Written::Won(Stored { record, version }));
                }
                Put::Refused => None,
                Put::Unknown(error) => Some(error.to_string()),
            };
            let now = match self.rollout().await {
                Ok(now) => now,
                // Somebody wrote it, and not this.
                Err(Error::Record { .. }) if why.is_none() => return Ok(Written::Lost),
                Err(error) => return Err(self.unknown(ROLLOUT, &error)),
            };
            match (now, why) {
                (Some(now), _) if now.record.nonce == next.nonce => return Ok(Written::Won(now)),
                (now, Some(why)) if now.as_ref() == seen => {
                    if attempt == ATTEMPTS {
                        return Err(self.unknown(ROLLOUT, &why));
                    }
                    pause(attempt).await;
                    attempt += 1;
                }
                _ => return Ok(Written::Lost),
            }
        }
    }

    /// A revision.
    ///
    /// # Errors
    /// [`Error::NoRevision`], [`Error::Record`] where it is unreadable, or a failure of the store.
    pub async fn revision(&self, number: u64) -> Result<Revision, Error> {
        let found = self.found_revision(number).await?;
        found.ok_or_else(|| Error::NoRevision {
            number,
            store: self.store.to_string(),
        })
    }

    /// The numbers of all revisions, in rising order.
    ///
    /// # Errors
    /// [`Error::TooMany`] with more than [`MAX_OBJECTS`], or a failure of the store.
    pub async fn revisions(&self) -> Result<Vec<u64>, Error> {
        let found = self.list("revisions").await?;
        let mut numbers: Vec<u64> = found
            .iter()
            .filter_map(|(name, _)| Revision::number_of(name))
            .collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Stores a revision under the next number after the highest. Of several who do so at once, each gets a number of its own.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a value that does not keep its bounds, [`Error::TooMany`], [`Error::Contended`], [`Error::Unknown`], or a
    /// failure of the store.
    pub async fn create_revision(&self, draft: Draft) -> Result<Revision, Error> {
        super::grants::check(&draft.modules).map_err(Error::Invalid)?;
        let taken = self.revisions().await?;
        if taken.len() >= MAX_OBJECTS {
            return Err(Error::TooMany {
                folder: "revisions",
                most: MAX_OBJECTS - 1,
                store: self.store.to_string(),
            });
        }
        let first = taken.last().copied().unwrap_or(0).saturating_add(1);
        let last = first.saturating_add(NUMBERS);
        for number in first..last {
            if let Some(revision) = self.create_as(number, &draft).await? {
                return Ok(revision);
            }
        }
        let last = last - 1;
        Err(Error::Contended { first, last })
    }

    /// Stores the first revision of a cluster, or answers the one that is there: of several nodes that start at once, one wins.
    ///
    /// # Errors
    /// As [`Objects::create_revision`], and [`Error::Record`] where the one that is there is unreadable.
    pub async fn first_revision(&self, draft: &Draft) -> Result<Revision, Error> {
        match self.create_as(1, draft).await? {
            Some(revision) => Ok(revision),
            None => self.revision(1).await,
        }
    }

    /// Removes a revision; one that is not there is removed already. The caller knows that nothing runs it, and leaves the newest, so that
    /// no number comes twice.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn delete_revision(&self, number: u64) -> Result<(), Error> {
        self.delete(&Revision::object(number)).await
    }

    /// Stores a revision under a number; none where another one has it.
    async fn create_as(&self, number: u64, draft: &Draft) -> Result<Option<Revision>, Error> {
        let revision = Revision {
            number,
            modules: draft.modules.clone(),
            author: draft.author.clone(),
            created_ms: wall_ms(),
            note: draft.note.clone(),
        };
        let object = Revision::object(number);
        let body = revision.encode().map_err(Error::Invalid)?;
        short_enough(&object, &body, MAX_REVISION_BYTES)?;
        let mut attempt = 1;
        loop {
            let put = self.put(&object, body.clone(), PutMode::Create, REQUEST);
            let why = match put.await? {
                Put::Written(_) => return Ok(Some(revision)),
                Put::Refused => "it is there, and gone again".to_owned(),
                Put::Unknown(error) => error.to_string(),
            };
            match self.found_revision(number).await {
                // Nobody else makes the same one in the same millisecond; and if so, it is the same.
                Ok(Some(found)) if found == revision => return Ok(Some(revision)),
                Ok(Some(_)) | Err(Error::Record { .. }) => return Ok(None),
                Ok(None) if attempt < ATTEMPTS => {}
                Ok(None) => return Err(self.unknown(&object, &why)),
                Err(error) => return Err(self.unknown(&object, &error)),
            }
            pause(attempt).await;
            attempt += 1;
        }
    }

    async fn found_revision(&self, number: u64) -> Result<Option<Revision>, Error> {
        let found = self
            .small(&Revision::object(number), MAX_REVISION_BYTES)
            .await?;
        found
            .map(|found| Revision::decode(number, &found.body))
            .transpose()
            .map_err(|source| self.record(source))
    }

    fn stored(&self, found: &Found) -> Result<Stored, Error> {
        let record = RolloutRecord::decode(&found.body).map_err(|source| self.record(source))?;
        Ok(Stored {
            record,
            version: found.version.clone(),
        })
    }

    fn record(&self, source: RecordError) -> Error {
        let store = self.store.to_string();
        Error::Record { source, store }
    }

    fn unknown(&self, object: &str, why: &dyn std::fmt::Display) -> Error {
        Error::Unknown {
            object: object.to_owned(),
            store: self.store.to_string(),
            why: why.to_string(),
        }
    }

    fn at(&self, object: &str) -> Path {
        self.folder
            .parts()
            .chain(Path::from(object).parts())
            .collect()
    }

    /// The name of an object below `_quarry/`.
    fn name(&self, location: &Path) -> Option<String> {
        let rest = location.as_ref().strip_prefix(self.folder.as_ref())?;
        rest.strip_prefix('/').map(str::to_owned)
    }
}

/// What could not be read back is not written.
fn short_enough(object: &str, body: &[u8], most: usize) -> Result<(), Error> {
    if body.len() <= most {
        return Ok(());
    }
    let (object, size) = (object.to_owned(), body.len() as u64);
    Err(Error::Invalid(RecordError::TooLong { object, size, most }))
}

fn wall_ms() -> u64 {
    u64::try_from(clock::wall_ms()).unwrap_or_default()
}

#[cfg(test)]
mod tests;

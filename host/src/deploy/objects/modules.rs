//! Components in the bucket, by the digest of their bytes. The right bytes under a digest are always safe to write.

use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutMode};
use quarry_core::deploy::Digest;
use sha2::{Digest as _, Sha256};

use super::request::{ATTEMPTS, Put, Unlike, is_missing, pause};
use super::{Error, MAX_MODULE_BYTES, ModuleObject, Objects, REQUEST};

/// How long a component may take to be sent or fetched.
const TRANSFER: Duration = Duration::from_secs(300);
/// A component larger than this is sent in parts of this size, so that each request is short.
const PART: usize = 8 << 20;

impl Objects {
    /// A component of this digest and size, verified.
    ///
    /// # Errors
    /// [`Error::NoModule`], [`Error::Incomplete`] where the object has another size, [`Error::Tampered`] where it has other bytes,
    /// [`Error::Size`] for a size over [`MAX_MODULE_BYTES`], or a failure of the store.
    pub async fn module(&self, digest: &Digest, size: u64) -> Result<Bytes, Error> {
        in_bounds(size)?;
        let store = || self.store.to_string();
        let incomplete = |found| Error::Incomplete {
            digest: *digest,
            found,
            expected: size,
            store: store(),
        };
        let wanted = |found| {
            if found == size {
                Ok(())
            } else {
                Err(incomplete(found))
            }
        };
        let object = digest.object();
        let body = match self.get(&object, TRANSFER, None, wanted).await? {
            Unlike::Found(found) => found.body,
            Unlike::Same | Unlike::Missing => {
                return Err(Error::NoModule {
                    digest: *digest,
                    store: store(),
                });
            }
        };
        if body.len() as u64 != size {
            return Err(incomplete(body.len() as u64));
        }
        let (found, body) = hashed(body).await;
        if found != *digest {
            return Err(Error::Tampered {
                digest: *digest,
                found,
                store: store(),
            });
        }
        Ok(body)
    }

    /// The size of a component's object, if there is one. Costs one request without a body, and verifies nothing else.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn module_size(&self, digest: &Digest) -> Result<Option<u64>, Error> {
        let (object, at) = (digest.object(), self.at(&digest.object()));
        let head = || self.objects.head(&at);
        match self.again("look at", &object, REQUEST, head).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(Error::Store { source, .. }) if is_missing(&source) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Stores a component, unless it is there. An object of its name with other content is replaced. Answers its digest, and whether it
    /// was sent.
    ///
    /// # Errors
    /// [`Error::Size`] for one that is empty or over [`MAX_MODULE_BYTES`], or a failure of the store.
    pub async fn put_module(&self, component: Bytes) -> Result<(Digest, bool), Error> {
        let size = component.len() as u64;
        in_bounds(size)?;
        let (digest, component) = hashed(component).await;
        let mut attempt = 1;
        loop {
            let mode = match self.module(&digest, size).await {
                Ok(_) => return Ok((digest, attempt > 1)),
                Err(Error::NoModule { .. }) => PutMode::Create,
                Err(error @ (Error::Incomplete { .. } | Error::Tampered { .. })) => {
                    tracing::warn!(%error, "a module in the store is replaced by its right content");
                    PutMode::Overwrite
                }
                Err(error) => return Err(error),
            };
            let why = match self.send(&digest.object(), component.clone(), mode).await? {
                Put::Written(_) => return Ok((digest, true)),
                Put::Refused => "others write it at the same time".to_owned(),
                Put::Unknown(error) => error.to_string(),
            };
            if attempt == ATTEMPTS {
                return Err(Error::Unknown {
                    object: digest.object(),
                    store: self.store.to_string(),
                    why,
                });
            }
            pause(attempt).await;
            attempt += 1;
        }
    }

    /// All components, in the order of their digests. Strange objects among them are passed over.
    ///
    /// # Errors
    /// [`Error::TooMany`] with more than [`super::MAX_OBJECTS`], or a failure of the store.
    pub async fn modules(&self) -> Result<Vec<ModuleObject>, Error> {
        let metas = self.list("modules").await?;
        let mut modules: Vec<_> = metas
            .into_iter()
            .filter_map(|(name, meta)| {
                let digest = name.strip_prefix("modules/")?.strip_suffix(".wasm")?;
                Some(ModuleObject {
                    digest: digest.parse().ok()?,
                    size: meta.size,
                    stored_ms: u64::try_from(meta.last_modified.timestamp_millis()).unwrap_or(0),
                })
            })
            .collect();
        modules.sort_by_key(|module| module.digest);
        Ok(modules)
    }

    /// Removes a component; one that is not there is removed already. The caller knows that no revision needs it.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn delete_module(&self, digest: &Digest) -> Result<(), Error> {
        self.delete(&digest.object()).await
    }

    async fn send(&self, object: &str, component: Bytes, mode: PutMode) -> Result<Put, Error> {
        if component.len() <= PART {
            return self.put(object, component, mode, TRANSFER).await;
        }
        // In parts no condition can be set, and none is needed: nothing is seen before the last part, and then it is all there.
        match self
            .within("write", object, TRANSFER, self.in_parts(object, component))
            .await
        {
            Ok(done) => Ok(Put::Written(object_store::UpdateVersion {
                e_tag: done.e_tag,
                version: done.version,
            })),
            Err(error) if error.is_transient() => Ok(Put::Unknown(error)),
            Err(error) => Err(error),
        }
    }

    async fn in_parts(
        &self,
        object: &str,
        component: Bytes,
    ) -> object_store::Result<object_store::PutResult> {
        let mut upload = self.objects.put_multipart(&self.at(object)).await?;
        let sent = async {
            for start in (0..component.len()).step_by(PART) {
                let end = component.len().min(start + PART);
                upload.put_part(component.slice(start..end).into()).await?;
            }
            upload.complete().await
        };
        match sent.await {
            Ok(done) => Ok(done),
            Err(error) => {
                // So that the store keeps no parts of it. It is not worth an error of its own.
                let _ = upload.abort().await;
                Err(error)
            }
        }
    }
}

fn in_bounds(size: u64) -> Result<(), Error> {
    if (1..=MAX_MODULE_BYTES).contains(&size) {
        return Ok(());
    }
    let most = MAX_MODULE_BYTES;
    Err(Error::Size { size, most })
}

/// The digest of a component. 256 MiB take a good tenth of a second, which no other task of a runtime is to wait for.
async fn hashed(bytes: Bytes) -> (Digest, Bytes) {
    if bytes.len() <= 1 << 20 {
        return (digest(&bytes), bytes);
    }
    let copy = bytes.clone();
    match tokio::task::spawn_blocking(move || digest(&copy)).await {
        Ok(digest) => (digest, bytes),
        // The runtime ends: whoever asked is about to end, too.
        Err(_) => (digest(&bytes), bytes),
    }
}

/// The digest of a component.
#[must_use]
pub fn digest(component: &[u8]) -> Digest {
    Digest::new(Sha256::digest(component).into())
}

impl Objects {
    /// What lies in a folder, by its name below `_quarry/`.
    pub(super) async fn list(
        &self,
        folder: &'static str,
    ) -> Result<Vec<(String, object_store::ObjectMeta)>, Error> {
        let prefix = self.at(folder);
        let read = || async {
            let mut found = Vec::new();
            let mut metas = self.objects.list(Some(&prefix));
            while let Some(meta) = metas.try_next().await? {
                if let Some(name) = self.name(&meta.location) {
                    found.push((name, meta));
                }
                if found.len() > super::MAX_OBJECTS {
                    break;
                }
            }
            Ok(found)
        };
        let found = match self.again("list", folder, super::LISTING, read).await {
            // A folder that was never written to, on a disk.
            Err(Error::Store { source, .. }) if is_missing(&source) => Vec::new(),
            found => found?,
        };
        if found.len() > super::MAX_OBJECTS {
            return Err(Error::TooMany {
                folder,
                most: super::MAX_OBJECTS,
                store: self.store.to_string(),
            });
        }
        Ok(found)
    }

    pub(super) async fn delete(&self, object: &str) -> Result<(), Error> {
        let at = self.at(object);
        let delete = || self.objects.delete(&at);
        match self.again("delete", object, REQUEST, delete).await {
            Err(Error::Store { source, .. }) if is_missing(&source) => Ok(()),
            ended => ended,
        }
    }
}

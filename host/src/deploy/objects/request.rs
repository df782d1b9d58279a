//! Single requests to the store: each with an end, a bound on what is read, and a second try where that is safe.

use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::{GetOptions, ObjectStore, PutMode, PutOptions, PutPayload, UpdateVersion};
use quarry_core::lease::record::RecordError;

use super::{Error, Objects};

/// How often a request that failed is sent in all.
pub(super) const ATTEMPTS: u32 = 3;
/// The pause before it is sent again, times the number of the attempt.
const PAUSE: Duration = Duration::from_millis(200);

/// An object's version and its body.
pub(super) struct Found {
    pub version: UpdateVersion,
    pub body: Bytes,
}

/// What became of a read on the condition that the object has changed.
pub(super) enum Unlike {
    Found(Found),
    Same,
    Missing,
}

/// What became of one conditional write.
pub(super) enum Put {
    /// It was carried out.
    Written(UpdateVersion),
    /// The store says that the condition does not hold. It may say so of a write of ours whose reply was lost, and that was sent again
    /// underneath.
    Refused,
    /// Nobody knows.
    Unknown(Error),
}

impl Objects {
    /// An object, if it is another than `unlike`. `wanted` looks at its size before the body is read, which is never longer than that size.
    pub(super) async fn get(
        &self,
        object: &str,
        limit: Duration,
        unlike: Option<&UpdateVersion>,
        wanted: impl Fn(u64) -> Result<(), Error>,
    ) -> Result<Unlike, Error> {
        let at = self.at(object);
        let tag = unlike.and_then(|version| version.e_tag.clone());
        let read = || async {
            let options = GetOptions::new().with_if_none_match(tag.clone());
            let found = self.objects.get_opts(&at, options).await?;
            let version = UpdateVersion {
                e_tag: found.meta.e_tag.clone(),
                version: found.meta.version.clone(),
            };
            let size = found.meta.size;
            if let Err(refused) = wanted(size) {
                return Ok(Err(refused));
            }
            let room = usize::try_from(size).unwrap_or(usize::MAX);
            // The size is the store's word: what is not there is not made room for.
            let mut body = Vec::with_capacity(room.min(1 << 20));
            let mut pieces = found.into_stream();
            while let Some(piece) = pieces.try_next().await? {
                body.extend_from_slice(&piece[..piece.len().min(room - body.len())]);
            }
            Ok(Ok(Found {
                version,
                body: body.into(),
            }))
        };
        match self.again("read", object, limit, read).await {
            Ok(found) => found.map(Unlike::Found),
            Err(Error::Store { source, .. }) if is_missing(&source) => Ok(Unlike::Missing),
            Err(Error::Store { source, .. })
                if matches!(*source, object_store::Error::NotModified { .. }) =>
            {
                Ok(Unlike::Same)
            }
            Err(error) => Err(error),
        }
    }

    /// A JSON body of at most so many bytes.
    pub(super) async fn small(&self, object: &str, most: usize) -> Result<Option<Found>, Error> {
        let fits = |size| self.fits(object, size, most);
        match self.get(object, super::REQUEST, None, fits).await? {
            Unlike::Found(found) => Ok(Some(found)),
            Unlike::Same | Unlike::Missing => Ok(None),
        }
    }

    /// Whether a JSON body of this size is read.
    pub(super) fn fits(&self, object: &str, size: u64, most: usize) -> Result<(), Error> {
        if size <= most as u64 {
            return Ok(());
        }
        let object = object.to_owned();
        Err(self.record(RecordError::TooLong { object, size, most }))
    }

    /// Sends a conditional write once.
    pub(super) async fn put(
        &self,
        object: &str,
        body: impl Into<PutPayload>,
        mode: PutMode,
        limit: Duration,
    ) -> Result<Put, Error> {
        let at = self.at(object);
        let sent = self
            .objects
            .put_opts(&at, body.into(), PutOptions::from(mode));
        match self.within("write", object, limit, sent).await {
            Ok(done) => Ok(Put::Written(UpdateVersion {
                e_tag: done.e_tag,
                version: done.version,
            })),
            Err(Error::Store { source, .. })
                if matches!(
                    *source,
                    object_store::Error::AlreadyExists { .. }
                        | object_store::Error::Precondition { .. }
                        | object_store::Error::NotFound { .. }
                ) =>
            {
                Ok(Put::Refused)
            }
            Err(error) if error.is_transient() => Ok(Put::Unknown(error)),
            Err(error) => Err(error),
        }
    }

    /// Repeats what may be repeated, while the failure is one that passes.
    pub(super) async fn again<T, F>(
        &self,
        action: &'static str,
        object: &str,
        limit: Duration,
        request: impl Fn() -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        let mut attempt = 1;
        loop {
            match self.within(action, object, limit, request()).await {
                Err(error) if error.is_transient() && attempt < ATTEMPTS => {
                    tracing::debug!(%error, attempt, "a request is sent again");
                    pause(attempt).await;
                    attempt += 1;
                }
                ended => return ended,
            }
        }
    }

    /// Gives a request an end.
    pub(super) async fn within<T>(
        &self,
        action: &'static str,
        object: &str,
        limit: Duration,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, Error> {
        let (object, store) = (object.to_owned(), self.store.to_string());
        match tokio::time::timeout(limit, request).await {
            Ok(ended) => ended.map_err(|source| Error::Store {
                action,
                object,
                store,
                source: Box::new(source),
            }),
            Err(_) => Err(Error::Late {
                action,
                object,
                store,
                limit,
            }),
        }
    }
}

/// Before another attempt.
pub(super) async fn pause(attempt: u32) {
    tokio::time::sleep(PAUSE * attempt).await;
}

pub(super) fn is_missing(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::NotFound { .. })
}

//! Uploads in parts: written at their offsets into one temporary file, which becomes the object when it is complete.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt;
use object_store::{MultipartUpload, PutMode, PutPayload, PutResult, Result, UploadPart};

use super::staged::Staged;
use super::{Folder, Target, blocking, failed};

/// An upload in progress. Dropping it, or aborting it, leaves nothing behind.
#[derive(Debug)]
pub(super) struct Upload {
    folder: Arc<Folder>,
    target: Target,
    staged: Option<Arc<Staged>>,
    offset: u64,
}

impl Upload {
    pub(super) fn start(folder: Arc<Folder>, target: Target) -> Result<Self> {
        let staged = Staged::create(&folder.scratch)
            .map_err(|error| failed("write", &target.file, error))?;
        Ok(Self {
            folder,
            target,
            staged: Some(Arc::new(staged)),
            offset: 0,
        })
    }

    fn ended(&self) -> object_store::Error {
        let text =
            "the upload was completed or aborted before, or a part of it is still being written";
        failed("write", &self.target.file, io::Error::other(text))
    }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let offset = self.offset;
        self.offset += data.content_length() as u64;
        let (staged, file) = (
            self.staged.clone().ok_or_else(|| self.ended()),
            self.target.file.clone(),
        );
        let write = move || {
            staged?
                .write_at(&data, offset)
                .map_err(|error| failed("write", &file, error))
        };
        blocking(write).boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        // Parts hold a reference while they are written: what is not ours alone is not complete.
        let staged = self
            .staged
            .take()
            .and_then(Arc::into_inner)
            .ok_or_else(|| self.ended())?;
        let (folder, target) = (Arc::clone(&self.folder), self.target.clone());
        blocking(move || folder.publish(staged, &target, &PutMode::Overwrite)).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.staged.take().map(drop).ok_or_else(|| self.ended())
    }
}

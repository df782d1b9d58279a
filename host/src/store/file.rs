//! The store behind `file:`: a folder on a local disk that keeps the promises of a bucket.
//!
//! `object_store`'s `LocalFileSystem` does the reading. Writing is done here, because a database and its leases need more:
//!
//! - **Conditional update.** [`PutMode::Update`] compares the etag and replaces the file under an OS file lock, so that any
//!   number of processes on one machine can share the folder. [`PutMode::Create`] is one hard link, which no two can win.
//! - **Durability.** A write has reached the disk, with its directory entry, before it is answered. It costs two flushes: the
//!   data before it becomes visible, and the directory after. An object is never seen half-written, also after power loss.
//! - **Etags that change.** They come from inode, modification time and size. Each write gets a time of its own (in
//!   microseconds, and later than that of the file it replaces), so identical bytes written again have another etag.
//!
//! Attributes and tags are accepted and dropped: refusing them makes SlateDB send each conditional put twice, and what it
//! keeps in them (proof that a put whose reply was lost is its own) cannot be lost between a process and its disk.
//!
//! Not promised: a delete is not flushed, so power loss can bring a deleted object back. Temporary files and locks live in
//! `.local#0` in the folder, which is never listed. All of the folder has to be on one file system.

use std::collections::HashSet;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path as FsPath, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyMode, CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions,
    Result,
};

mod lock;
mod staged;
mod upload;

use crate::threads;
use staged::{Staged, etag, etag_micros};

/// The folder for temporary files and locks. A name that ends in `#` and digits cannot be listed or addressed as an object.
const SCRATCH: &str = ".local#0";
/// A temporary file untouched for this long belongs to a process that died.
const STALE_AFTER: Duration = Duration::from_secs(3600);
/// How many folders are remembered as durable before the memory of them starts afresh.
const MAX_KNOWN_FOLDERS: usize = 65_536;
/// How many deletes of one stream are in progress at once.
const DELETES: usize = 8;

/// Why a folder cannot serve as a store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused something that the store needs.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or folder that it was tried on.
        path: PathBuf,
        /// The reason given by the operating system.
        source: io::Error,
    },
    /// The path exists and is something else.
    #[error("{} is not a folder; a file: store needs one of its own", .0.display())]
    NotAFolder(PathBuf),
    /// Creating an object only if it is absent needs hard links.
    #[error(
        "the file system of {} has no hard links ({source}), which a store needs to create an object only if it is absent; use a folder on a local disk (ext4, XFS, Btrfs, APFS, ...)",
        path.display()
    )]
    NoHardLinks {
        /// The folder of the store.
        path: PathBuf,
        /// The reason given by the operating system.
        source: io::Error,
    },
    /// Etags would repeat.
    #[error(
        "the file system of {} does not keep file times to the microsecond, which a store needs to tell two versions of an object apart; use a folder on a local disk (ext4, XFS, Btrfs, APFS, ...)",
        .0.display()
    )]
    CoarseTimes(PathBuf),
}

/// A folder as an object store. See the module's page for what it promises. Cheap to clone.
#[derive(Clone)]
pub struct FileStore {
    local: LocalFileSystem,
    folder: Arc<Folder>,
}

impl FileStore {
    /// Opens a folder, creating it (and its parents) if it is absent, and removes temporary files that dead processes left.
    ///
    /// # Errors
    ///
    /// When the folder cannot be created, written to or locked, or its file system lacks hard links or fine file times.
    /// Each error names the folder and the reason.
    pub fn open(root: &FsPath) -> std::result::Result<Self, Error> {
        let folder = Folder::open(root)?;
        let local = LocalFileSystem::new_with_prefix(&folder.root)
            .map_err(|error| refused("open", &folder.root, io::Error::other(error)))?;
        Ok(Self {
            local,
            folder: Arc::new(folder),
        })
    }

    /// The folder, as an absolute path without symbolic links.
    #[must_use]
    pub fn root(&self) -> &FsPath {
        &self.folder.root
    }

    fn target(&self, location: &Path) -> Result<Target> {
        Ok(Target {
            file: self.local.path_to_filesystem(location)?,
            location: location.clone(),
        })
    }
}

impl fmt::Debug for FileStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileStore({})", self.folder.root.display())
    }
}

impl fmt::Display for FileStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[async_trait]
impl ObjectStore for FileStore {
    /// A dropped call may still take effect: the disk's part of it cannot be called back.
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let target = self.target(location)?;
        let folder = Arc::clone(&self.folder);
        let put = move || folder.put(&target, &payload, &options.mode);
        if threads::may_block() {
            // Saves two changes of threads, for which whoever waits for a flush would wait, too.
            return tokio::task::block_in_place(put);
        }
        blocking(put).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let target = self.target(location)?;
        let folder = Arc::clone(&self.folder);
        blocking(move || {
            Ok(Box::new(upload::Upload::start(folder, target)?) as Box<dyn MultipartUpload>)
        })
        .await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.local.get_opts(location, options).await
    }

    async fn get_ranges(
        &self,
        location: &Path,
        ranges: &[std::ops::Range<u64>],
    ) -> Result<Vec<bytes::Bytes>> {
        self.local.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        let delete = move |location: Result<Path>| {
            let store = store.clone();
            async move {
                let target = store.target(&location?)?;
                blocking(move || store.folder.delete(&target).map(|()| target.location)).await
            }
        };
        locations.map(delete).buffered(DELETES).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.local.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.local.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let mut result = self.local.list_with_delimiter(prefix).await?;
        result
            .common_prefixes
            .retain(|prefix| prefix.filename() != Some(SCRATCH));
        Ok(result)
    }

    /// Copies the bytes: a second link to one file would share its etag.
    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let (from, to) = (self.target(from)?, self.target(to)?);
        let folder = Arc::clone(&self.folder);
        blocking(move || folder.copy(&from, &to, options.mode)).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        let mode = match options.target_mode {
            object_store::RenameTargetMode::Overwrite => CopyMode::Overwrite,
            object_store::RenameTargetMode::Create => CopyMode::Create,
        };
        let (from, to) = (self.target(from)?, self.target(to)?);
        let folder = Arc::clone(&self.folder);
        blocking(move || {
            folder.copy(&from, &to, mode)?;
            folder.delete(&from)
        })
        .await
    }
}

/// An object and the file that holds it.
#[derive(Clone, Debug)]
struct Target {
    location: Path,
    file: PathBuf,
}

impl Target {
    fn folder(&self) -> &FsPath {
        self.file.parent().unwrap_or(&self.file)
    }

    fn stale(&self, detail: String) -> object_store::Error {
        object_store::Error::Precondition {
            path: self.location.to_string(),
            source: detail.into(),
        }
    }
}

/// The folder, with everything that works on it and blocks.
#[derive(Debug)]
struct Folder {
    root: PathBuf,
    scratch: PathBuf,
    /// Folders whose own directory entries are known to have reached the disk.
    known: Mutex<HashSet<PathBuf>>,
}

impl Folder {
    fn open(root: &FsPath) -> std::result::Result<Self, Error> {
        fs::create_dir_all(root).map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => Error::NotAFolder(root.to_path_buf()),
            _ => refused("create the folder", root, source),
        })?;
        let root = fs::canonicalize(root).map_err(|source| refused("open", root, source))?;
        let scratch = root.join(SCRATCH);
        fs::create_dir_all(&scratch)
            .map_err(|source| refused("create the folder", &scratch, source))?;
        // The folder itself may be new. That its parent may not be opened by us is no reason to refuse it.
        if let Some(parent) = root.parent() {
            let _ = sync_folder(parent);
        }
        let folder = Self {
            root,
            scratch,
            known: Mutex::new(HashSet::new()),
        };
        staged::remove_stale(&folder.scratch)?;
        staged::check_file_system(&folder.root, &folder.scratch)?;
        lock::of_object(&folder.scratch, "")
            .map_err(|source| refused("lock a file in", &folder.scratch, source))?;
        Ok(folder)
    }

    fn put(&self, target: &Target, payload: &PutPayload, mode: &PutMode) -> Result<PutResult> {
        if let PutMode::Update(version) = mode {
            // The one who is late learns it for the price of a stat. The check that counts is made under the lock.
            check(target, version.e_tag.as_deref())?;
        }
        let staged = Staged::write(&self.scratch, payload)
            .map_err(|error| failed("write", &target.file, error))?;
        self.publish(staged, target, mode)
    }

    /// Makes a staged file the object: flushed, then visible, then its directory entry flushed.
    fn publish(&self, staged: Staged, target: &Target, mode: &PutMode) -> Result<PutResult> {
        staged
            .sync()
            .map_err(|error| failed("flush", &target.file, error))?;
        self.ensure_folder(target.folder())?;
        let e_tag = match mode {
            PutMode::Create => {
                let e_tag = staged
                    .etag()
                    .map_err(|error| failed("read", &target.file, error))?;
                self.retry_without_folder(target, || fs::hard_link(staged.path(), &target.file))
                    .map_err(|source| match source.kind() {
                        io::ErrorKind::AlreadyExists => object_store::Error::AlreadyExists {
                            path: target.location.to_string(),
                            source: source.into(),
                        },
                        _ => failed("create", &target.file, source),
                    })?;
                // Before the flush of the folder, which then carries both in one commit of the journal.
                drop(staged);
                e_tag
            }
            PutMode::Overwrite | PutMode::Update(_) => {
                let _lock = self.lock(&target.location)?;
                let old = match mode {
                    PutMode::Update(version) => Some(check(target, version.e_tag.as_deref())?),
                    _ => metadata(target)?,
                };
                let e_tag = staged
                    .outdate(old.as_ref().map(etag_micros))
                    .and_then(|()| staged.etag())
                    .map_err(|error| failed("stamp", &target.file, error))?;
                self.retry_without_folder(target, || staged.rename(&target.file))
                    .map_err(|error| failed("replace", &target.file, error))?;
                e_tag
            }
        };
        sync_folder(target.folder())
            .map_err(|error| failed("flush the folder of", &target.file, error))?;
        Ok(PutResult {
            e_tag: Some(e_tag),
            version: None,
            extensions: Default::default(),
        })
    }

    fn copy(&self, from: &Target, to: &Target, mode: CopyMode) -> Result<()> {
        let mut source =
            File::open(&from.file).map_err(|error| failed("read", &from.file, error))?;
        let staged = Staged::copy(&self.scratch, &mut source)
            .map_err(|error| failed("copy to", &to.file, error))?;
        let mode = match mode {
            CopyMode::Overwrite => PutMode::Overwrite,
            CopyMode::Create => PutMode::Create,
        };
        self.publish(staged, to, &mode).map(|_| ())
    }

    fn delete(&self, target: &Target) -> Result<()> {
        // An update must not bring back what was deleted between its check and its rename.
        let _lock = self.lock(&target.location)?;
        fs::remove_file(&target.file).map_err(|error| failed("delete", &target.file, error))?;
        // Each probe has a folder of its own, which nothing uses again. It goes with the last file in it.
        if target.location.as_ref().contains("_quarry/probe/") {
            let _ = fs::remove_dir(target.folder());
        }
        Ok(())
    }

    /// Waits for the lock that this object shares with a few others; it is free again when the file is dropped.
    fn lock(&self, location: &Path) -> Result<File> {
        lock::of_object(&self.scratch, location.as_ref())
            .map_err(|error| failed("lock", &self.scratch, error))
    }

    /// Creates a folder and flushes the entries of it and of all above it, once per process: a folder made by someone else
    /// a moment ago may not have reached the disk yet.
    fn ensure_folder(&self, folder: &FsPath) -> Result<()> {
        if self
            .known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(folder)
        {
            return Ok(());
        }
        fs::create_dir_all(folder).map_err(|error| failed("create the folder", folder, error))?;
        for above in folder
            .ancestors()
            .take_while(|above| above.starts_with(&self.root))
        {
            sync_folder(above).map_err(|error| failed("flush the folder", above, error))?;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_KNOWN_FOLDERS {
            known.clear();
        }
        known.insert(folder.to_path_buf());
        Ok(())
    }

    /// Tries again once when the folder was removed behind our back.
    fn retry_without_folder(
        &self,
        target: &Target,
        mut act: impl FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        match act() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.known
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .remove(target.folder());
                self.ensure_folder(target.folder())
                    .map_err(io::Error::other)?;
                act()
            }
            done => done,
        }
    }
}

/// The file's present metadata, if its etag is the one that the caller saw.
fn check(target: &Target, expected: Option<&str>) -> Result<fs::Metadata> {
    let Some(expected) = expected else {
        return Err(object_store::Error::Generic {
            store: "file",
            source: format!(
                "an update of {} names no etag to compare with",
                target.location
            )
            .into(),
        });
    };
    let Some(metadata) = metadata(target)? else {
        return Err(target.stale(format!(
            "expected etag {expected}, but there is no such object"
        )));
    };
    let found = etag(&metadata);
    if found != expected {
        return Err(target.stale(format!("expected etag {expected}, found {found}")));
    }
    Ok(metadata)
}

fn metadata(target: &Target) -> Result<Option<fs::Metadata>> {
    match fs::metadata(&target.file) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", &target.file, error)),
    }
}

fn sync_folder(folder: &FsPath) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Disk work belongs on threads that may block; outside a runtime the caller's own thread is one.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => runtime.spawn_blocking(work).await?,
        Err(_) => work(),
    }
}

/// An error of one call, which names the file and the reason ("No space left on device", "Permission denied", ...).
fn failed(action: &'static str, path: &FsPath, source: io::Error) -> object_store::Error {
    let kind = source.kind();
    let name = path.display().to_string();
    let source = Box::new(refused(action, path, source));
    match kind {
        io::ErrorKind::NotFound => object_store::Error::NotFound { path: name, source },
        io::ErrorKind::PermissionDenied => {
            object_store::Error::PermissionDenied { path: name, source }
        }
        _ => object_store::Error::Generic {
            store: "file",
            source,
        },
    }
}

fn refused(action: &'static str, path: &FsPath, source: io::Error) -> Error {
    Error::Io {
        action,
        path: path.to_path_buf(),
        source,
    }
}

#[cfg(test)]
mod tests;

//! Files on their way to becoming objects: written under a temporary name, stamped, flushed, then linked or renamed.

use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use object_store::PutPayload;

use super::{Error, STALE_AFTER, refused};

/// Payloads up to this size in several pieces are joined and written by one call.
const JOIN_BELOW: usize = 256 * 1024;

/// A temporary file. It is removed when dropped, unless it was renamed.
#[derive(Debug)]
pub(super) struct Staged {
    file: File,
    path: PathBuf,
    renamed: AtomicBool,
}

impl Staged {
    pub(super) fn create(scratch: &Path) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        loop {
            let (n, salt) = (NEXT.fetch_add(1, Ordering::Relaxed), rand::random::<u32>());
            let path = scratch.join(format!("{:x}-{n:x}-{salt:08x}#0", std::process::id()));
            match File::options()
                .read(true)
                .write(true)
                .create_new(true)
                .open(&path)
            {
                Ok(file) => {
                    return Ok(Self {
                        file,
                        path,
                        renamed: AtomicBool::new(false),
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn write(scratch: &Path, payload: &PutPayload) -> io::Result<Self> {
        let mut staged = Self::create(scratch)?;
        let mut pieces = payload.iter();
        match (pieces.next(), pieces.next()) {
            (None, _) => {}
            (Some(only), None) => staged.file.write_all(only)?,
            _ if payload.content_length() <= JOIN_BELOW => {
                let joined: Vec<u8> = payload
                    .iter()
                    .flat_map(|piece| piece.iter().copied())
                    .collect();
                staged.file.write_all(&joined)?;
            }
            _ => payload
                .iter()
                .try_for_each(|piece| staged.file.write_all(piece))?,
        }
        Ok(staged)
    }

    pub(super) fn copy(scratch: &Path, source: &mut File) -> io::Result<Self> {
        let mut staged = Self::create(scratch)?;
        io::copy(source, &mut staged.file)?;
        Ok(staged)
    }

    pub(super) fn write_at(&self, payload: &PutPayload, mut offset: u64) -> io::Result<()> {
        for piece in payload {
            self.file.write_all_at(piece, offset)?;
            offset += piece.len() as u64;
        }
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Stamps the file with a time of its own and flushes it. The stamp comes first, so that one flush carries both.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.set_modified(at_micros(unique_micros()))?;
        self.file.sync_data()
    }

    /// Makes sure that the stamp is later than that of the file about to be replaced: the clock may have stepped back, or
    /// the other file comes from another process.
    pub(super) fn outdate(&self, old: Option<u64>) -> io::Result<()> {
        let Some(old) = old else { return Ok(()) };
        if etag_micros(&self.file.metadata()?) <= old {
            self.file.set_modified(at_micros(old.saturating_add(1)))?;
            self.file.sync_all()?;
        }
        Ok(())
    }

    pub(super) fn etag(&self) -> io::Result<String> {
        Ok(etag(&self.file.metadata()?))
    }

    pub(super) fn rename(&self, to: &Path) -> io::Result<()> {
        fs::rename(&self.path, to)?;
        self.renamed.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !*self.renamed.get_mut() {
            // Left over if this fails; the next open of the store removes it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Exactly the etag that `LocalFileSystem` shows when it reads or lists the file (a test compares them).
pub(super) fn etag(metadata: &Metadata) -> String {
    format!(
        "\"{:x}-{:x}-{:x}\"",
        metadata.ino(),
        etag_micros(metadata),
        metadata.len()
    )
}

/// The part of the etag that is ours to choose: the modification time in microseconds since 1970.
pub(super) fn etag_micros(metadata: &Metadata) -> u64 {
    let since = metadata
        .modified()
        .ok()
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| {
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    })
}

/// Removes temporary files whose process died long ago.
pub(super) fn remove_stale(scratch: &Path) -> Result<(), Error> {
    let entries =
        fs::read_dir(scratch).map_err(|source| refused("read the folder", scratch, source))?;
    let now = u64::try_from(crate::clock::wall_ms()).unwrap_or(0);
    for entry in entries {
        let entry = entry.map_err(|source| refused("read the folder", scratch, source))?;
        let name = entry.file_name();
        let temporary = name
            .to_str()
            // The second is a link that the check below made.
            .is_some_and(|name| {
                (name.ends_with("#0") || name.ends_with("#01")) && !name.starts_with("lock-")
            });
        // Another process may remove it first.
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        let age = Duration::from_millis(now.saturating_sub(etag_micros(&metadata) / 1000));
        if temporary && metadata.is_file() && age > STALE_AFTER {
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

/// Tries what the store relies on: hard links, and file times to the microsecond.
pub(super) fn check_file_system(root: &Path, scratch: &Path) -> Result<(), Error> {
    let staged =
        Staged::create(scratch).map_err(|source| refused("create a file in", scratch, source))?;
    let odd = unique_micros() | 1;
    staged
        .file
        .set_modified(at_micros(odd))
        .map_err(|source| refused("set the time of a file in", scratch, source))?;
    let metadata = staged
        .file
        .metadata()
        .map_err(|source| refused("read a file in", scratch, source))?;
    if etag_micros(&metadata) != odd {
        return Err(Error::CoarseTimes(root.to_path_buf()));
    }
    let mut link = staged.path.clone().into_os_string();
    link.push("1");
    fs::hard_link(&staged.path, &link).map_err(|source| Error::NoHardLinks {
        path: root.to_path_buf(),
        source,
    })?;
    fs::remove_file(&link).map_err(|source| refused("delete a file in", scratch, source))
}

fn at_micros(micros: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(micros)
}

/// About now, and never twice the same in this process.
fn unique_micros() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = u64::try_from(crate::clock::wall_ms())
        .unwrap_or(0)
        .saturating_mul(1000);
    let next = |last: u64| now.max(last.saturating_add(1));
    match LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
        Some(next(last))
    }) {
        Ok(last) | Err(last) => next(last),
    }
}

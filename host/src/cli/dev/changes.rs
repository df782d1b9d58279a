//! The changes of a project that make `quarry dev` build again.
//!
//! Folders are watched one by one, not as trees: what a build writes (`target`) and what tools keep (folders that begin with a dot)
//! would be thousands. After each change the folders are looked up anew, as one that was made, or made again, has no watch yet.

use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;

use crate::cli::Error;

/// Files that always count.
const MANIFESTS: [&str; 2] = ["quarry.toml", "Cargo.toml"];
/// Folders that are watched, at most.
const FOLDERS_MAX: usize = 4096;

/// Tells of changes. Several that were not waited for are one.
pub(super) struct Changes {
    watcher: RecommendedWatcher,
    dir: PathBuf,
    project: Arc<Mutex<Project>>,
    told: mpsc::Receiver<()>,
}

impl Changes {
    /// Watches the `entries` of a project, files and folders relative to `dir`, which need not exist yet.
    pub fn watch(dir: &Path, entries: &[String]) -> Result<Self, Error> {
        let failed = |reason: String| {
            Error::Failed(format!(
                "changes in {} cannot be watched: {reason}",
                dir.display()
            ))
        };
        let dir = dir
            .canonicalize()
            .map_err(|error| failed(error.to_string()))?;
        let project = Arc::new(Mutex::new(Project::new(dir.clone(), entries)));
        // One place is enough: it says that something changed, however often.
        let (tell, told) = mpsc::channel(1);
        let belongs = project.clone();
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let real = event.is_ok_and(|event| {
                // Events were lost: anything may have changed.
                event.need_rescan()
                    || (!matches!(event.kind, EventKind::Access(_))
                        && event.paths.iter().any(|path| lock(&belongs).has(path)))
            });
            if real {
                _ = tell.try_send(());
            }
        })
        .map_err(|error| failed(error.to_string()))?;
        let mut changes = Self {
            watcher,
            dir: dir.clone(),
            project,
            told,
        };
        changes
            .watcher
            .watch(&dir, RecursiveMode::NonRecursive)
            .map_err(|error| failed(error.to_string()))?;
        changes.arm();
        Ok(changes)
    }

    /// Waits for a change. Cancel safe.
    pub async fn next(&mut self) -> Option<()> {
        let told = self.told.recv().await;
        // Before anything is built: what changes from here on is told.
        self.arm();
        told
    }

    /// Watches these entries from now on.
    pub fn follow(&mut self, entries: &[String]) {
        let project = Project::new(self.dir.clone(), entries);
        let is_new = *lock(&self.project) != project;
        if is_new {
            *lock(&self.project) = project;
            self.arm();
        }
    }

    /// Watches what is there now. A folder that vanishes meanwhile is no failure.
    fn arm(&mut self) {
        let folders = lock(&self.project).folders();
        if folders.len() == FOLDERS_MAX {
            tracing::warn!(
                "only {FOLDERS_MAX} folders of the project are watched; `module.watch` says which belong to it"
            );
        }
        for folder in folders {
            if let Err(error) = self.watcher.watch(&folder, RecursiveMode::NonRecursive) {
                tracing::debug!(folder = %folder.display(), %error, "a folder is not watched");
            }
        }
    }
}

/// What belongs to a project.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Project {
    dir: PathBuf,
    entries: Vec<PathBuf>,
}

impl Project {
    fn new(dir: PathBuf, entries: &[String]) -> Self {
        let entries = entries.iter().map(|entry| plain(&dir.join(entry)));
        let manifests = MANIFESTS.iter().map(|name| dir.join(name));
        let entries = entries.chain(manifests).collect();
        Self { dir, entries }
    }

    /// Whether a change of this path is one of the project: it lies in an entry, or on the way to one that is missing.
    fn has(&self, path: &Path) -> bool {
        self.entries.iter().any(|entry| {
            path.strip_prefix(entry)
                .is_ok_and(|inside| !inside.iter().any(is_ignored))
                || (path != self.dir
                    && path != entry
                    && entry.starts_with(path)
                    && path.starts_with(&self.dir))
        })
    }

    /// The folders to watch, those of the entries and on the way to them, at most [`FOLDERS_MAX`].
    fn folders(&self) -> Vec<PathBuf> {
        let mut folders = Vec::new();
        for entry in &self.entries {
            // A file is watched through its folder: editors put a new file in its place. So is what does not exist yet.
            let above = entry.ancestors().skip(1).find(|above| above.is_dir());
            folders.extend(above.map(Path::to_owned));
            let mut open = vec![entry.clone()];
            while let Some(folder) = open.pop() {
                if folders.len() >= FOLDERS_MAX {
                    break;
                }
                // Links are followed no further than from the entry itself: they may lead in circles.
                let Ok(inside) = std::fs::read_dir(&folder) else {
                    continue;
                };
                folders.push(folder);
                open.extend(
                    inside
                        .flatten()
                        .filter(|item| {
                            item.file_type().is_ok_and(|kind| kind.is_dir())
                                && !is_ignored(item.file_name())
                        })
                        .map(|item| item.path())
                        .take(FOLDERS_MAX),
                );
            }
        }
        folders.sort_unstable();
        folders.dedup();
        folders.truncate(FOLDERS_MAX);
        folders
    }
}

fn lock(project: &Mutex<Project>) -> MutexGuard<'_, Project> {
    project.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What builds and tools make, below an entry.
fn is_ignored(name: impl AsRef<std::ffi::OsStr>) -> bool {
    let name = name.as_ref();
    let made = ["target", "node_modules", "__pycache__"];
    made.iter().any(|made| name == *made) || name.as_encoded_bytes().starts_with(b".")
}

/// The path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => _ = plain.pop(),
            part => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_path_belongs_to_the_project_or_not() {
        let entries = ["src", "crates/a/src", "../shared", "wit"].map(String::from);
        let project = Project::new("/p/g".into(), &entries);
        for (path, belongs) in [
            ("/p/g/src", true),
            ("/p/g/src/lib.rs", true),
            ("/p/g/src/deep/er.rs", true),
            ("/p/g/src/.lib.rs.swp", false),
            ("/p/g/src/target/x", false),
            ("/p/g/src/__pycache__/app.pyc", false),
            ("/p/g/quarry.toml", true),
            ("/p/g/Cargo.toml", true),
            ("/p/g/Cargo.lock", false),
            ("/p/g/target/debug", false),
            ("/p/g/crates", true),
            ("/p/g/crates/b", false),
            ("/p/g/crates/a/src/x.rs", true),
            ("/p/shared/x.rs", true),
            ("/p/g", false),
            ("/p", false),
        ] {
            assert_eq!(project.has(Path::new(path)), belongs, "{path}");
        }
        let all = Project::new("/p/g".into(), &[".".into()]);
        for (path, belongs) in [
            ("/p/g/any/thing", true),
            ("/p/g/target/x", false),
            ("/p/g/node_modules/x/package.json", false),
            ("/p/g/.git/index", false),
        ] {
            assert_eq!(all.has(Path::new(path)), belongs, "{path}");
        }
    }

    #[tokio::test]
    async fn what_is_made_later_or_renamed_in_place_is_told() {
        let home = tempfile::tempdir().expect("folder");
        let dir = home.path();
        fs::create_dir_all(dir.join("target/deep")).expect("made");
        let mut changes = Changes::watch(dir, &["src".into(), "lib/wit".into()]).expect("watched");
        let steps: [(&str, &dyn Fn()); 5] = [
            ("a folder that was not there", &|| {
                fs::create_dir(dir.join("src")).expect("made");
            }),
            ("a file in it", &|| {
                fs::write(dir.join("src/lib.rs"), "a").expect("written");
            }),
            ("a manifest saved by rename", &|| {
                fs::write(dir.join("target/new"), "a").expect("written");
                fs::rename(dir.join("target/new"), dir.join("quarry.toml")).expect("renamed");
            }),
            ("the folder above an entry", &|| {
                fs::create_dir(dir.join("lib")).expect("made");
            }),
            ("the folder made again", &|| {
                fs::remove_dir_all(dir.join("src")).expect("removed");
                fs::create_dir(dir.join("src")).expect("made");
            }),
        ];
        for (what, step) in steps {
            step();
            let told = tokio::time::timeout(Duration::from_secs(20), changes.next()).await;
            assert_eq!(told, Ok(Some(())), "{what}");
            // One step tells more than once; until it is quiet the next one is not looked at.
            let quiet = Duration::from_millis(200);
            while tokio::time::timeout(quiet, changes.next()).await.is_ok() {}
        }
        let folders = lock(&changes.project).folders();
        assert!(
            folders.iter().any(|folder| folder.ends_with("src")),
            "{folders:?}"
        );
        assert!(
            !folders.iter().any(|folder| folder.ends_with("target")),
            "{folders:?}"
        );
    }
}

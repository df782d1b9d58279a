use std::os::unix::fs::PermissionsExt;
use std::time::SystemTime;

use futures::{FutureExt, TryStreamExt};
use object_store::{ObjectStoreExt, UpdateVersion};

use super::*;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("folder")
}

fn open(folder: &tempfile::TempDir) -> FileStore {
    FileStore::open(folder.path()).expect("store")
}

async fn read(store: &FileStore, path: &str) -> Vec<u8> {
    store
        .get(&Path::from(path))
        .await
        .expect("get")
        .bytes()
        .await
        .expect("body")
        .to_vec()
}

fn scratch_files(store: &FileStore) -> Vec<String> {
    let entries = fs::read_dir(store.root().join(SCRATCH)).expect("scratch");
    let names = entries.map(|entry| {
        entry
            .expect("entry")
            .file_name()
            .into_string()
            .expect("utf-8")
    });
    names.filter(|name| !name.starts_with("lock-")).collect()
}

#[tokio::test]
async fn conditional_puts() {
    let folder = folder();
    let store = open(&folder);
    let path = Path::from("db/manifest/1");
    let missing = PutMode::Update(UpdateVersion {
        e_tag: Some("\"x\"".into()),
        version: None,
    });
    let error = store
        .put_opts(&path, "0".into(), missing.into())
        .await
        .expect_err("missing");
    assert!(
        matches!(error, object_store::Error::Precondition { .. }),
        "{error}"
    );

    let first = store
        .put_opts(&path, "1".into(), PutMode::Create.into())
        .await
        .expect("create");
    let error = store
        .put_opts(&path, "2".into(), PutMode::Create.into())
        .await
        .expect_err("create again");
    assert!(
        matches!(error, object_store::Error::AlreadyExists { .. }),
        "{error}"
    );

    let right = PutMode::Update(first.clone().into());
    let second = store
        .put_opts(&path, "2".into(), right.clone().into())
        .await
        .expect("update");
    let error = store
        .put_opts(&path, "3".into(), right.into())
        .await
        .expect_err("stale");
    assert!(
        matches!(error, object_store::Error::Precondition { .. }),
        "{error}"
    );
    assert_eq!(read(&store, "db/manifest/1").await, b"2");
    assert_ne!(first.e_tag, second.e_tag);

    let none = PutMode::Update(UpdateVersion {
        e_tag: None,
        version: None,
    });
    let error = store
        .put_opts(&path, "3".into(), none.into())
        .await
        .expect_err("no etag")
        .to_string();
    assert!(error.contains("db/manifest/1 names no etag"), "{error}");
    assert_eq!(scratch_files(&store), Vec::<String>::new());
}

/// What a put returns, a get and a listing show: one etag, or updates would never match.
#[tokio::test]
async fn etags_agree_and_change_with_each_write() {
    let folder = folder();
    let store = open(&folder);
    let path = Path::from("a");
    let mut seen = HashSet::new();
    let mut last = store
        .put_opts(&path, "same".into(), PutMode::Create.into())
        .await
        .expect("create");
    for round in 0..200 {
        let e_tag = last.e_tag.clone().expect("etag");
        assert!(
            seen.insert(e_tag.clone()),
            "round {round}: {e_tag} came back for identical bytes"
        );
        let got = store.get(&path).await.expect("get").meta.e_tag;
        let listed: Vec<_> = store.list(None).try_collect().await.expect("list");
        assert_eq!(
            (got.as_ref(), listed[0].e_tag.as_ref()),
            (Some(&e_tag), Some(&e_tag))
        );
        let mode = if round % 2 == 0 {
            PutMode::Overwrite
        } else {
            PutMode::Update(last.into())
        };
        last = store
            .put_opts(&path, "same".into(), mode.into())
            .await
            .expect("put");
    }
}

/// The clock of whoever wrote before may be ahead of ours.
#[tokio::test]
async fn an_etag_is_later_than_the_one_it_replaces() {
    let folder = folder();
    let store = open(&folder);
    let path = Path::from("a");
    store.put(&path, "1".into()).await.expect("put");
    let ahead = SystemTime::now() + Duration::from_secs(3600);
    File::options()
        .write(true)
        .open(folder.path().join("a"))
        .expect("open")
        .set_modified(ahead)
        .expect("time");
    let old = etag_micros(&fs::metadata(folder.path().join("a")).expect("metadata"));
    let e_tag = store.head(&path).await.expect("head").e_tag;
    let mode = PutMode::Update(UpdateVersion {
        e_tag,
        version: None,
    });
    let result = store
        .put_opts(&path, "2".into(), mode.into())
        .await
        .expect("update");
    let metadata = fs::metadata(folder.path().join("a")).expect("metadata");
    assert!(etag_micros(&metadata) > old);
    assert_eq!(result.e_tag, Some(etag(&metadata)));
}

/// As two processes do, two adapters share nothing but the folder.
#[test]
fn racing_updates_and_creates_have_one_winner() {
    let folder = folder();
    let stores = [open(&folder), open(&folder)];
    let path = Path::from("leases/000.json");
    let put = |store: &FileStore, body: String, mode: PutMode| {
        // Outside a runtime the work is done on the calling thread.
        store
            .put_opts(&path, body.into_bytes().into(), mode.into())
            .now_or_never()
            .expect("never waits")
    };
    let mut version: UpdateVersion = put(&stores[0], "0".into(), PutMode::Create)
        .expect("create")
        .into();
    for round in 0..40 {
        let barrier = std::sync::Barrier::new(4);
        let results: Vec<_> = std::thread::scope(|scope| {
            let racers: Vec<_> = (0..4)
                .map(|racer| {
                    let (store, barrier) = (&stores[racer % 2], &barrier);
                    let (version, put) = (version.clone(), &put);
                    scope.spawn(move || {
                        barrier.wait();
                        put(
                            store,
                            format!("round {round} racer {racer}"),
                            PutMode::Update(version),
                        )
                    })
                })
                .collect();
            racers
                .into_iter()
                .map(|racer| racer.join().expect("racer"))
                .collect()
        });
        let winners: Vec<usize> = (0..4).filter(|racer| results[*racer].is_ok()).collect();
        assert_eq!(winners.len(), 1, "round {round}: {results:?}");
        let stale = |result: &&Result<PutResult>| {
            matches!(result, Err(object_store::Error::Precondition { .. }))
        };
        assert_eq!(
            results.iter().filter(stale).count(),
            3,
            "round {round}: {results:?}"
        );
        let kept = fs::read_to_string(folder.path().join("leases/000.json")).expect("read");
        assert_eq!(kept, format!("round {round} racer {}", winners[0]));
        version = results.into_iter().flatten().next().expect("winner").into();
    }
}

#[tokio::test]
async fn temporary_files_are_hidden_and_removed_when_old() {
    let folder = folder();
    let store = open(&folder);
    store
        .put(&Path::from("a/b"), "x".into())
        .await
        .expect("put");
    let scratch = folder.path().join(SCRATCH);
    let (fresh, old) = (scratch.join("1-1-fresh#0"), scratch.join("1-1-old#0"));
    for file in [&fresh, &old] {
        fs::write(file, "torn").expect("write");
    }
    let link = scratch.join("1-1-old#01");
    fs::hard_link(&old, &link).expect("link");
    let long_ago = SystemTime::now() - STALE_AFTER - Duration::from_secs(60);
    File::options()
        .write(true)
        .open(&old)
        .expect("open")
        .set_modified(long_ago)
        .expect("time");

    let listed: Vec<_> = store
        .list(None)
        .map_ok(|object| object.location)
        .try_collect()
        .await
        .expect("list");
    assert_eq!(listed, [Path::from("a/b")]);
    let top = store.list_with_delimiter(None).await.expect("list");
    assert_eq!(
        (top.common_prefixes, top.objects.len()),
        (vec![Path::from("a")], 0)
    );
    let temporary = Path::parse(".local#0/1-1-fresh#0").expect("path");
    store
        .get(&temporary)
        .await
        .expect_err("a temporary file is no object");

    let store = open(&folder);
    assert_eq!(scratch_files(&store), ["1-1-fresh#0"]);
    assert!(fresh.exists() && !old.exists() && !link.exists());
}

#[tokio::test]
async fn uploads_in_parts() {
    let folder = folder();
    let store = open(&folder);
    let path = Path::from("compacted/1.sst");
    let mut attributes = object_store::Attributes::new();
    attributes.insert(object_store::Attribute::Metadata("k".into()), "v".into());
    let options = PutMultipartOptions {
        attributes,
        ..Default::default()
    };
    let mut upload = store
        .put_multipart_opts(&path, options)
        .await
        .expect("upload");
    let (one, two) = (
        upload.put_part("one ".into()),
        upload.put_part(PutPayload::from_iter(
            ["t", "w", "o"].map(String::from).map(bytes::Bytes::from),
        )),
    );
    two.await.expect("second part first");
    one.await.expect("first part");
    assert!(
        store.head(&path).await.is_err(),
        "not visible before it is complete"
    );
    let result = upload.complete().await.expect("complete");
    assert_eq!(read(&store, "compacted/1.sst").await, b"one two");
    assert_eq!(store.head(&path).await.expect("head").e_tag, result.e_tag);
    upload.complete().await.expect_err("completed before");
    upload
        .put_part("late".into())
        .await
        .expect_err("completed before");

    let mut upload = store.put_multipart(&path).await.expect("upload");
    upload.put_part("other".into()).await.expect("part");
    upload.abort().await.expect("abort");
    let mut dropped = store.put_multipart(&path).await.expect("upload");
    dropped.put_part("other".into()).await.expect("part");
    drop(dropped);
    assert_eq!(read(&store, "compacted/1.sst").await, b"one two");
    assert_eq!(scratch_files(&store), Vec::<String>::new());
}

#[tokio::test]
async fn copies_renames_and_deletes() {
    let folder = folder();
    let store = open(&folder);
    let (a, b, c) = (Path::from("x/a"), Path::from("y/b"), Path::from("c"));
    let first = store.put(&a, "body".into()).await.expect("put");
    store.copy(&a, &b).await.expect("copy");
    let copied = store.head(&b).await.expect("head");
    assert_ne!(copied.e_tag, first.e_tag, "a copy is a version of its own");
    let error = store.copy_if_not_exists(&a, &b).await.expect_err("exists");
    assert!(
        matches!(error, object_store::Error::AlreadyExists { .. }),
        "{error}"
    );
    store.rename(&a, &c).await.expect("rename");
    assert_eq!(
        (read(&store, "y/b").await, read(&store, "c").await),
        (b"body".to_vec(), b"body".to_vec())
    );
    for gone in [&a, &Path::from("never")] {
        let error = store.delete(gone).await.expect_err("gone");
        assert!(
            matches!(error, object_store::Error::NotFound { .. }),
            "{error}"
        );
    }
    let both = futures::stream::iter([Ok(b), Ok(c)]).boxed();
    assert_eq!(
        store
            .delete_stream(both)
            .try_collect::<Vec<_>>()
            .await
            .expect("delete")
            .len(),
        2
    );
    assert_eq!(store.list(None).count().await, 0);
    let error = store
        .copy(&a, &Path::from("d"))
        .await
        .expect_err("missing source");
    assert!(
        matches!(error, object_store::Error::NotFound { .. }),
        "{error}"
    );
}

#[tokio::test]
async fn a_folder_removed_behind_our_back_is_made_again() {
    let folder = folder();
    let store = open(&folder);
    store
        .put(&Path::from("a/b/1"), "x".into())
        .await
        .expect("put");
    fs::remove_dir_all(folder.path().join("a")).expect("remove");
    store
        .put_opts(&Path::from("a/b/1"), "y".into(), PutMode::Create.into())
        .await
        .expect("create");
    fs::remove_dir_all(folder.path().join("a")).expect("remove");
    store
        .put(&Path::from("a/b/1"), "z".into())
        .await
        .expect("overwrite");
    assert_eq!(read(&store, "a/b/1").await, b"z");
}

#[tokio::test]
async fn payloads_in_pieces_arrive_whole() {
    let folder = folder();
    let store = open(&folder);
    for size in [0, 1, 1000, JOINED + 1] {
        let pieces = [vec![1; size], vec![2; size], vec![], vec![3; size]];
        let payload = PutPayload::from_iter(pieces.iter().cloned().map(bytes::Bytes::from));
        store.put(&Path::from("a"), payload).await.expect("put");
        assert!(read(&store, "a").await == pieces.concat(), "{size}");
    }
}

const JOINED: usize = 256 * 1024;

#[test]
fn a_folder_that_cannot_be_used_is_named_with_the_reason() {
    let folder = folder();
    let file = folder.path().join("file");
    fs::write(&file, "x").expect("write");
    let error = FileStore::open(&file).expect_err("a file").to_string();
    assert!(error.contains("file is not a folder"), "{error}");
    let error = FileStore::open(&file.join("below"))
        .expect_err("below a file")
        .to_string();
    assert!(
        error.contains("file/below") && error.contains("Not a directory"),
        "{error}"
    );
    FileStore::open(&folder.path().join("new/and/deep")).expect("created");
    assert!(folder.path().join("new/and/deep").is_dir());
}

#[tokio::test]
async fn an_error_names_the_file_and_the_reason() {
    let folder = folder();
    let store = open(&folder);
    store.put(&Path::from("a"), "x".into()).await.expect("put");
    // A file where a folder has to be is refused to everybody, root too.
    let error = store
        .put(&Path::from("a/b"), "x".into())
        .await
        .expect_err("below a file")
        .to_string();
    assert!(
        error.contains(&format!("{}", folder.path().join("a").display())),
        "{error}"
    );
    let full = io::Error::from_raw_os_error(libc::ENOSPC);
    let error = failed("write", FsPath::new("/data/a"), full).to_string();
    assert!(
        error.contains("cannot write /data/a: No space left on device"),
        "{error}"
    );
    let denied = failed(
        "write",
        FsPath::new("/data/a"),
        io::Error::from_raw_os_error(libc::EACCES),
    );
    assert!(
        matches!(denied, object_store::Error::PermissionDenied { .. }),
        "{denied}"
    );
    assert!(
        denied
            .to_string()
            .contains("cannot write /data/a: Permission denied"),
        "{denied}"
    );

    let locked = folder.path().join("locked");
    fs::create_dir(&locked).expect("create");
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o500)).expect("mode");
    let result = store.put(&Path::from("locked/a"), "x".into()).await;
    // Root writes everywhere; anybody else is told.
    if fs::write(locked.join("try"), "x").is_err() {
        let error = result.expect_err("denied").to_string();
        assert!(
            error.contains("locked/a") && error.contains("Permission denied"),
            "{error}"
        );
    }
}

#[test]
fn a_lock_held_elsewhere_is_waited_for() {
    let folder = folder();
    let (here, there) = (open(&folder), open(&folder));
    let path = Path::from("a");
    let held = there.folder.lock(&path).expect("lock");
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| here.folder.lock(&path).map(drop));
        assert!(
            here.folder.lock(&Path::from("b")).is_ok(),
            "another lock is free"
        );
        assert!(!waiter.is_finished());
        drop(held);
        waiter.join().expect("waiter").expect("locked");
    });
}

/// SlateDB sends attributes with each conditional put, and sends it again where they are refused.
#[tokio::test]
async fn a_database_lives_in_a_folder_and_sends_each_wal_object_once() {
    let folder = folder();
    let store = crate::store::kill_switch::KillSwitch::new(Arc::new(open(&folder)));
    let build = || {
        let db = slatedb::Db::builder("shard-000", Arc::new(store.clone()) as Arc<dyn ObjectStore>);
        db.with_settings(crate::db::settings::profile()).build()
    };
    let db = build().await.expect("open");
    for n in 0..10u8 {
        let before = store.requests().put;
        db.put(b"key", [n]).await.expect("put");
        db.flush().await.expect("flush");
        assert_eq!(store.requests().put - before, 1, "write {n}");
    }
    // Not closed: the next owner fences this one and replays its log.
    let next = build().await.expect("reopen");
    assert_eq!(
        next.get(b"key").await.expect("get").as_deref(),
        Some(&[9][..])
    );
    db.put(b"key", b"late").await.expect("accepted");
    let error = db.flush().await.expect_err("fenced");
    assert!(
        matches!(
            error.kind(),
            slatedb::ErrorKind::Closed(slatedb::CloseReason::Fenced)
        ),
        "{error}"
    );
    next.close().await.expect("close");
}

/// `cargo test -p quarry --lib -- --ignored --nocapture file::tests::bench` compares the durable put of 200 bytes.
#[test]
#[ignore = "a measurement, not a check"]
fn bench_small_puts() {
    let folder = folder();
    let ours: Arc<dyn ObjectStore> = Arc::new(open(&folder));
    let theirs = LocalFileSystem::new_with_prefix(folder.path())
        .expect("store")
        .with_fsync(true);
    let theirs: Arc<dyn ObjectStore> = Arc::new(theirs);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("runtime");
    for round in 0..3 {
        for (name, store) in [
            ("LocalFileSystem with fsync", &theirs),
            ("FileStore", &ours),
        ] {
            for mode in [PutMode::Create, PutMode::Overwrite] {
                let store = Arc::clone(store);
                let (label, prefix) = (
                    format!("{mode:?}"),
                    format!("bench/{}-{round}-{mode:?}", name.len()),
                );
                let put = async move {
                    let mut took = Vec::new();
                    for n in 0..300 {
                        let start = crate::clock::now();
                        let path = Path::from(format!("{prefix}-{n}"));
                        store
                            .put_opts(&path, vec![7; 200].into(), mode.clone().into())
                            .await
                            .expect("put");
                        took.push(start.elapsed());
                    }
                    took.sort();
                    took
                };
                let took = runtime.block_on(runtime.spawn(put)).expect("task");
                println!(
                    "{name:28} {label:10} min {:?} p10 {:?} p50 {:?} p90 {:?}",
                    took[0], took[30], took[150], took[270]
                );
            }
        }
    }
}

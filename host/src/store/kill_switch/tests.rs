use std::collections::HashSet;
use std::time::Duration;

use futures::TryStreamExt;
use object_store::memory::InMemory;
use object_store::{ObjectStoreExt, PutMode};
use slatedb_common::retry::should_retry;

use super::*;
use crate::store::faults::{Fault, FaultStore, Faults, Rule};

const DEADLINE: Duration = Duration::from_secs(10);

fn switched() -> (KillSwitch, Faults) {
    let store = FaultStore::new(Arc::new(InMemory::new()), 0);
    let faults = store.faults();
    (KillSwitch::new(Arc::new(store)), faults)
}

fn assert_killed<T>(result: Result<T>, what: &str) {
    let error = result
        .err()
        .unwrap_or_else(|| panic!("{what} worked after the kill"));
    assert!(!should_retry(&error), "{what}: {error}");
    assert!(error.to_string().contains("lease lost"), "{what}: {error}");
}

#[tokio::test]
async fn after_the_kill_every_call_fails_and_nothing_reaches_the_store() {
    let (store, faults) = switched();
    let path = Path::from("a");
    store.put(&path, "x".into()).await.expect("put");
    let mut upload = store.put_multipart(&path).await.expect("upload");
    let listing = store.list(None);
    let body = store.get(&path).await.expect("get");
    store.kill("lease lost");
    store.kill("a later reason");
    assert!(store.is_killed());
    let before: u64 = [0, 1, 2, 3, 4].map(|op| faults.calls(OPS[op])).iter().sum();
    let counted = store.requests();

    assert_killed(store.put(&path, "y".into()).await, "put");
    assert_killed(
        store
            .put_opts(&path, "y".into(), PutMode::Create.into())
            .await,
        "create",
    );
    assert_killed(store.put_multipart(&path).await, "multipart");
    assert_killed(upload.put_part("part".into()).await, "part");
    assert_killed(upload.complete().await, "complete");
    assert_killed(upload.abort().await, "abort");
    assert_killed(store.get(&path).await, "get");
    assert_killed(store.head(&path).await, "head");
    assert_killed(store.get_range(&path, 0..1).await, "range");
    assert_killed(store.get_ranges(&path, &[0..1, 2..3]).await, "ranges");
    assert_killed(body.bytes().await, "a body begun before");
    assert_killed(
        listing.try_collect::<Vec<_>>().await,
        "a listing begun before",
    );
    assert_killed(store.list(None).try_collect::<Vec<_>>().await, "list");
    assert_killed(
        store
            .list_with_offset(None, &path)
            .try_collect::<Vec<_>>()
            .await,
        "list with offset",
    );
    assert_killed(store.list_with_delimiter(None).await, "list with delimiter");
    assert_killed(store.delete(&path).await, "delete");
    assert_killed(store.copy(&path, &Path::from("b")).await, "copy");
    assert_killed(store.rename(&path, &Path::from("b")).await, "rename");

    let after: u64 = [0, 1, 2, 3, 4].map(|op| faults.calls(OPS[op])).iter().sum();
    assert_eq!(before, after, "a call reached the store after the kill");
    assert_eq!(store.requests(), counted, "a refused call was counted");
}

const OPS: [crate::store::faults::Op; 5] = {
    use crate::store::faults::Op;
    [Op::Put, Op::Get, Op::Delete, Op::List, Op::Copy]
};

#[tokio::test]
async fn calls_in_flight_end_at_once() {
    let (store, faults) = switched();
    let path = Path::from("a");
    store.put(&path, "x".into()).await.expect("put");
    let mut upload = store.put_multipart(&path).await.expect("upload");
    faults.add(Rule::new(Fault::Hang));
    let part = upload.put_part("part".into());
    let paths = futures::stream::iter([Ok(path.clone())]).boxed();
    let (list, delete) = (store.list(None), store.delete_stream(paths));
    let calls = async {
        tokio::join!(
            store.put(&path, "y".into()),
            store.get(&path),
            list.try_collect::<Vec<_>>(),
            delete.try_collect::<Vec<_>>(),
            part,
            store.copy(&path, &path),
        )
    };
    let killer = async {
        faults.hanging(6).await;
        store.kill("lease lost");
    };
    let (results, ()) = tokio::time::timeout(DEADLINE, async { tokio::join!(calls, killer) })
        .await
        .expect("in time");
    assert_killed(results.0, "put");
    assert_killed(results.1, "get");
    assert_killed(results.2, "list");
    assert_killed(results.3, "delete");
    assert_killed(results.4, "part");
    assert_killed(results.5, "copy");
}

#[tokio::test]
async fn requests_are_counted_by_operation() {
    let (store, _) = switched();
    let path = Path::from("a");
    store.put(&path, "x".into()).await.expect("put");
    store
        .put_opts(&path, "x".into(), PutMode::Create.into())
        .await
        .expect_err("exists");
    let mut upload = store.put_multipart(&Path::from("b")).await.expect("upload");
    upload.put_part("1".into()).await.expect("part");
    upload.complete().await.expect("complete");
    store
        .get(&path)
        .await
        .expect("get")
        .bytes()
        .await
        .expect("body");
    store.head(&path).await.expect("head");
    store
        .list(None)
        .try_collect::<Vec<_>>()
        .await
        .expect("list");
    store.copy(&path, &Path::from("c")).await.expect("copy");
    let paths = ["a", "b", "c"].map(|path| Ok(Path::from(path)));
    let deleted: Vec<_> = store
        .delete_stream(futures::stream::iter(paths).boxed())
        .try_collect()
        .await
        .expect("delete");
    assert_eq!(deleted.iter().collect::<HashSet<_>>().len(), 3);
    let expected = Requests {
        put: 2,
        upload: 1,
        part: 1,
        finish: 1,
        get: 1,
        head: 1,
        delete: 3,
        list: 1,
        copy: 1,
    };
    assert_eq!(store.requests(), expected);
    assert_eq!(store.requests().total(), 12);
    assert_eq!(
        store.clone().requests(),
        expected,
        "clones share the counters"
    );
}

/// What the switch is for: a database whose store hangs closes at once.
#[tokio::test]
async fn a_database_with_a_hanging_store_ends() {
    let (store, faults) = switched();
    let settings = crate::db::settings::profile();
    let db = slatedb::Db::builder("db", Arc::new(store.clone()) as Arc<dyn ObjectStore>)
        .with_settings(settings);
    let db = tokio::time::timeout(DEADLINE, db.build())
        .await
        .expect("in time")
        .expect("open");
    faults.add(Rule::new(Fault::Hang));
    let write = db.put(b"k", b"v").await.expect("accepted");
    let flush = tokio::spawn({
        let db = db.clone();
        async move { db.flush().await }
    });
    tokio::time::timeout(DEADLINE, faults.hanging(1))
        .await
        .expect("the flush hangs");
    store.kill("lease lost");
    tokio::time::timeout(DEADLINE, flush)
        .await
        .expect("the flush ends")
        .expect("task")
        .expect_err("not durable");
    tokio::time::timeout(DEADLINE, write.await_durable())
        .await
        .expect("the waiter ends")
        .expect_err("not durable");
    let _ = tokio::time::timeout(DEADLINE, db.close())
        .await
        .expect("the close ends");
}

#[tokio::test]
async fn after_the_seal_nothing_reaches_the_store_and_nobody_is_told() {
    let (store, faults) = switched();
    let path = Path::from("a");
    store.put(&path, "x".into()).await.expect("put");
    store.seal();
    let before: u64 = OPS.iter().map(|op| faults.calls(*op)).sum();
    let counted = store.requests();
    let create = PutMode::Create.into();
    store
        .put_opts(&path, "y".into(), create)
        .await
        .expect("it seems to work");
    for read in [
        store.get(&path).await.map(drop),
        store.head(&path).await.map(drop),
    ] {
        let error = read.expect_err("nothing is there");
        assert!(
            matches!(error, object_store::Error::NotFound { .. }),
            "{error}"
        );
    }
    let after: u64 = OPS.iter().map(|op| faults.calls(*op)).sum();
    assert_eq!((before, counted), (after, store.requests()));
    assert!(!store.is_killed());
    store.kill("lease lost");
    assert_killed(store.put(&path, "y".into()).await, "put");
    assert_killed(store.get(&path).await, "get");
}

use object_store::memory::InMemory;

use super::*;

fn store(seed: u64) -> (FaultStore, Faults) {
    let store = FaultStore::new(Arc::new(InMemory::new()), seed);
    let faults = store.faults();
    (store, faults)
}

#[tokio::test]
async fn failing_before_and_after_differ_in_their_effect() {
    let (store, faults) = store(0);
    let path = Path::from("a");
    faults.add(Rule::new(Fault::FailBefore).on(Op::Put).times(1));
    store.put(&path, "1".into()).await.expect_err("before");
    assert!(matches!(
        store.head(&path).await,
        Err(object_store::Error::NotFound { .. })
    ));
    faults.add(Rule::new(Fault::FailAfter).on(Op::Put).times(1));
    store.put(&path, "2".into()).await.expect_err("after");
    store.head(&path).await.expect("took effect");
    faults.add(Rule::new(Fault::FailAfter).on(Op::Delete).times(1));
    store.delete(&path).await.expect_err("after");
    assert!(matches!(
        store.head(&path).await,
        Err(object_store::Error::NotFound { .. })
    ));
    assert_eq!(
        (
            faults.struck(),
            faults.calls(Op::Put),
            faults.calls(Op::Delete)
        ),
        (3, 2, 1)
    );
}

#[tokio::test]
async fn rules_strike_their_operation_and_path_alone() {
    let (store, faults) = store(0);
    faults.add(
        Rule::new(Fault::PermissionDenied)
            .on(Op::Get)
            .path("leases"),
    );
    faults.add(Rule::new(Fault::ReadOnly).path("locked"));
    faults.add(Rule::new(Fault::DiskFull).path("full"));
    for (name, writable, readable) in [
        ("leases/1", true, false),
        ("locked", false, true),
        ("full", false, true),
        ("free", true, true),
    ] {
        let path = Path::from(name);
        assert_eq!(
            store.put(&path, "x".into()).await.is_ok(),
            writable,
            "{name}"
        );
        let denied = matches!(
            store.get(&path).await,
            Err(object_store::Error::PermissionDenied { .. })
        );
        assert_eq!(!denied, readable, "{name}");
    }
    faults.clear();
    store
        .put(&Path::from("locked"), "x".into())
        .await
        .expect("cleared");
}

#[tokio::test]
async fn the_same_seed_strikes_the_same_calls() {
    let mut runs = Vec::new();
    for seed in [7, 7, 8] {
        let (store, faults) = store(seed);
        faults.add(Rule::new(Fault::FailBefore).probability(0.5));
        let mut results = Vec::new();
        for n in 0..64 {
            results.push(
                store
                    .put(&Path::from(format!("{n}")), "x".into())
                    .await
                    .is_ok(),
            );
        }
        runs.push(results);
    }
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0], runs[2]);
}

#[tokio::test]
async fn a_hang_ends_when_the_rules_are_cleared() {
    let (store, faults) = store(0);
    faults.add(Rule::new(Fault::Hang));
    let path = Path::from("a");
    let clear = async {
        faults.hanging(2).await;
        faults.clear();
    };
    let both = async { tokio::join!(store.put(&path, "x".into()), store.head(&path), clear) };
    let (put, head, ()) = tokio::time::timeout(Duration::from_secs(10), both)
        .await
        .expect("in time");
    assert!(put.is_err() && head.is_err());
    store.put(&path, "x".into()).await.expect("as before");
}

#[tokio::test(start_paused = true)]
async fn latency_delays_and_the_call_goes_on() {
    let (store, faults) = store(0);
    faults.add(Rule::new(Fault::Latency(Duration::from_secs(5))).on(Op::Put));
    let start = tokio::time::Instant::now();
    store.put(&Path::from("a"), "x".into()).await.expect("late");
    assert_eq!(start.elapsed(), Duration::from_secs(5));
}

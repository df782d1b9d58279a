use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::store::faults::{Fault, FaultStore, Faults, Op, Rule};

const DEADLINE: Duration = Duration::from_secs(10);

const CHECKS: [&str; 10] = [
    "create",
    "second create",
    "racing creates",
    "read back",
    "conditional read",
    "attributes",
    "update",
    "stale update",
    "list",
    "delete",
];

fn memory() -> Store {
    Store::open("memory:///some/prefix", &BTreeMap::new()).expect("memory")
}

fn faulty() -> (Store, Store, Faults) {
    let plain = memory();
    let mut faults = None;
    let store = plain.wrap(|objects| {
        let wrapped = FaultStore::new(objects, 0);
        faults = Some(wrapped.faults());
        Arc::new(wrapped)
    });
    (store, plain, faults.expect("wrapped"))
}

async fn left_over(store: &Store) -> Vec<Path> {
    store
        .objects()
        .list(None)
        .map_ok(|object| object.location)
        .try_collect()
        .await
        .expect("list")
}

#[tokio::test]
async fn sound_stores_pass_and_are_left_clean() {
    let folder = tempfile::tempdir().expect("folder");
    let url = format!("file://{}", folder.path().display());
    for store in [memory(), Store::open(&url, &BTreeMap::new()).expect("file")] {
        let report = probe(&store, "app", DEADLINE).await;
        assert!(report.passed(), "{report:?}");
        assert_eq!(
            report
                .checks
                .iter()
                .map(|check| check.name)
                .collect::<Vec<_>>(),
            CHECKS
        );
        assert!(
            report
                .checks
                .iter()
                .all(|check| check.outcome == Outcome::Passed),
            "{report:?}"
        );
        assert_eq!(left_over(&store).await, Vec::<Path>::new());
        if let Ok(folders) = std::fs::read_dir(folder.path().join("app/_quarry/probe")) {
            assert_eq!(folders.count(), 0, "an empty folder was left");
        }
        let json = serde_json::to_value(&report).expect("json");
        assert_eq!(json["checks"][0]["outcome"], "passed");
        assert!(
            json["checks"][0]["took_us"].is_u64() && json["store"].is_string(),
            "{json}"
        );
        report.into_result().expect("passed");
    }
}

#[tokio::test]
async fn every_misbehaviour_names_its_check_and_the_store() {
    for (fault, op, check, texts) in [
        (
            Fault::FailBefore,
            Some(Op::Put),
            "create",
            &["not sent", "credentials allow put"][..],
        ),
        (
            Fault::PermissionDenied,
            None,
            "create",
            &["AccessDenied", "credentials"],
        ),
        (Fault::ReadOnly, None, "create", &["read-only"]),
        (Fault::DiskFull, None, "create", &["no space left"]),
        (
            Fault::SecondCreateAccepted,
            None,
            "second create",
            &["accepted", "If-None-Match"],
        ),
        (
            Fault::CorruptReads,
            None,
            "racing creates",
            &["not the one whose body was kept"],
        ),
        (
            Fault::IgnoreIfNoneMatch,
            None,
            "conditional read",
            &["had not changed"],
        ),
        (
            Fault::RefuseIfMatch,
            None,
            "update",
            &["present etag", "refused", "If-Match"],
        ),
        (
            Fault::IgnoreIfMatch,
            None,
            "stale update",
            &["stale etag", "accepted", "If-Match"],
        ),
        (
            Fault::StaleList,
            None,
            "list",
            &["does not show", "listings"],
        ),
        (Fault::KeepDeleted, None, "delete", &["can still be read"]),
    ] {
        let (store, _, faults) = faulty();
        let rule = Rule::new(fault);
        faults.add(match op {
            Some(op) => rule.on(op),
            None => rule,
        });
        let report = probe(&store, "app", DEADLINE).await;
        assert!(!report.passed());
        let error = report.into_result().expect_err("failed").to_string();
        let named = format!(
            "the store memory:///some/prefix is at fault, not Quarry: its check {check:?} failed"
        );
        assert!(error.contains(&named), "{fault:?}: {error}");
        for text in texts {
            assert!(error.contains(text), "{fault:?}: {error:?} lacks {text:?}");
        }
    }
}

#[tokio::test]
async fn reads_that_differ_fail_the_read_back() {
    let (store, _, faults) = faulty();
    faults.add(Rule::new(Fault::CorruptReads).path("object"));
    let report = probe(&store, "app", DEADLINE).await;
    let failed: Vec<_> = report
        .checks
        .iter()
        .filter(|check| check.outcome == Outcome::Failed)
        .map(|check| check.name)
        .collect();
    assert_eq!(failed, ["read back"]);
}

/// Creates one by one are refused, and only two that overlap both win.
#[tokio::test]
async fn a_race_alone_is_found() {
    let (store, _, faults) = faulty();
    faults.add(Rule::new(Fault::SecondCreateAccepted).path("race"));
    let report = probe(&store, "app", DEADLINE).await;
    let failed: Vec<_> = report
        .checks
        .iter()
        .filter(|check| check.outcome == Outcome::Failed)
        .collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(
        (failed[0].name, failed[0].detail.as_str()),
        (
            "racing creates",
            "of 8 creates at once 8 succeeded instead of 1"
        )
    );
}

#[tokio::test]
async fn lost_attributes_are_a_warning() {
    let (store, _, faults) = faulty();
    faults.add(Rule::new(Fault::DropAttributes));
    let report = probe(&store, "app", DEADLINE).await;
    assert!(report.passed(), "{report:?}");
    let warned: Vec<_> = report
        .checks
        .iter()
        .filter(|check| check.outcome == Outcome::Warned)
        .map(|check| check.name)
        .collect();
    assert_eq!(warned, ["attributes"]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_fails_within_the_deadline() {
    for (path, check, objects) in [("object", "create", 0), ("race", "racing creates", 0)] {
        let (store, plain, faults) = faulty();
        faults.add(Rule::new(Fault::Hang).on(Op::Put).path(path));
        let start = tokio::time::Instant::now();
        let report = probe(&store, "app", DEADLINE).await;
        assert!(
            start.elapsed() <= DEADLINE + CLEAN_UP,
            "{:?}",
            start.elapsed()
        );
        let error = report.into_result().expect_err("failed").to_string();
        assert!(
            error.contains(&format!("{check:?}")) && error.contains("no answer within the 10s"),
            "{error}"
        );
        assert_eq!(left_over(&plain).await.len(), objects);
    }
}

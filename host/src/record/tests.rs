use std::collections::BTreeMap;

use object_store::PutPayload;

use super::*;
use crate::store::faults::{Fault, FaultStore, Faults, Op, Rule};

fn memory() -> Store {
    Store::open("memory:", &BTreeMap::new()).expect("memory")
}

fn faulty(store: &Store) -> (Store, Faults) {
    let mut faults = None;
    let store = store.wrap(|objects| {
        let wrapped = FaultStore::new(objects, 0);
        faults = Some(wrapped.faults());
        std::sync::Arc::new(wrapped)
    });
    (store, faults.expect("wrapped"))
}

fn wanted(shards: u32, operator: Option<&str>) -> Wanted {
    Wanted {
        shards,
        merge_operator: operator.map(str::to_owned),
        lease_layout: None,
    }
}

/// Nodes that keep their leases in different ways would take each other for dead.
#[tokio::test]
async fn the_first_node_with_leases_says_how_they_lie() {
    let store = memory();
    let with = |layout| Wanted {
        lease_layout: layout,
        ..wanted(4, None)
    };
    let created = ensure(&store, "app", &with(None)).await.expect("create");
    assert_eq!(created.lease_layout, None);
    let first = ensure(&store, "app", &with(Some("session"))).await;
    let first = first.expect("the first");
    assert_eq!(first.lease_layout.as_deref(), Some("session"));
    assert_eq!(first.secret, created.secret, "nothing else changes");
    for fine in [None, Some("session")] {
        let found = ensure(&store, "app", &with(fine)).await.expect("agrees");
        assert_eq!(found, first);
    }
    let error = ensure(&store, "app", &with(Some("shard"))).await;
    let error = error.expect_err("another layout");
    assert!(matches!(error, Error::Layout { .. }) && error.is_permanent());
    let text = error.to_string();
    assert!(
        text.contains("\"session\"")
            && text.contains("\"shard\"")
            && text.contains("stop all nodes"),
        "{text}"
    );
}

async fn put(store: &Store, body: impl Into<PutPayload>) {
    store
        .objects()
        .put(&store.path("app/_quarry/cluster.json"), body.into())
        .await
        .expect("put");
}

#[tokio::test]
async fn the_first_creates_and_the_others_agree() {
    let store = memory();
    assert_eq!(read(&store, "app").await.expect("read"), None);
    let created = ensure(&store, "app", &wanted(64, Some("u64-add")))
        .await
        .expect("create");
    assert_eq!(
        (
            created.version,
            created.shards,
            created.hash.as_str(),
            created.counter
        ),
        (2, 64, "xxh64", 1)
    );
    let found = ensure(&store, "app", &wanted(64, Some("u64-add")))
        .await
        .expect("agree");
    assert_eq!(found, created);
    assert_eq!(read(&store, "app").await.expect("read"), Some(created));
    // Another path is another cluster.
    assert_eq!(
        ensure(&store, "other", &wanted(8, None))
            .await
            .expect("create")
            .shards,
        8
    );
}

#[tokio::test]
async fn of_many_creators_one_wins() {
    let store = memory();
    let wanted = wanted(4, None);
    let all = futures::future::join_all((0..16).map(|_| ensure(&store, "", &wanted))).await;
    let nonces: Vec<String> = all
        .into_iter()
        .map(|record| record.expect("one record").nonce)
        .collect();
    assert!(nonces.iter().all(|nonce| *nonce == nonces[0]), "{nonces:?}");
}

#[tokio::test]
async fn mismatches_say_both_values_and_what_to_do() {
    for (created, node, texts) in [
        (
            wanted(64, None),
            wanted(32, None),
            &[
                "has 64 shards",
                "configured with 32",
                "set it to 64",
                "app/_quarry/cluster.json",
            ][..],
        ),
        (
            wanted(4, Some("append")),
            wanted(4, Some("u64-add")),
            &[
                "merge operator \"append\"",
                "merge operator \"u64-add\"",
                "configure merge operator \"append\"",
            ],
        ),
        (
            wanted(4, None),
            wanted(4, Some("u64-add")),
            &[
                "created with no merge operator",
                "\"u64-add\"",
                "configure no merge operator",
            ],
        ),
        (
            wanted(4, Some("u64-add")),
            wanted(4, None),
            &[
                "configured with no merge operator",
                "configure merge operator \"u64-add\"",
            ],
        ),
    ] {
        let store = memory();
        let before = ensure(&store, "app", &created).await.expect("create");
        let error = ensure(&store, "app", &node)
            .await
            .expect_err("mismatch")
            .to_string();
        for text in texts {
            assert!(error.contains(text), "{error:?} lacks {text:?}");
        }
        assert_eq!(read(&store, "app").await.expect("read"), Some(before));
    }
}

#[tokio::test]
async fn configurations_are_bounded() {
    let store = memory();
    let long = "x".repeat(129);
    for (wanted, text) in [
        (wanted(0, None), "0 shards; valid are 1 to 65536"),
        (wanted(65_537, None), "65537 shards"),
        (wanted(1, Some("")), "0 bytes"),
        (wanted(1, Some(&long)), "129 bytes"),
    ] {
        let error = ensure(&store, "app", &wanted)
            .await
            .expect_err("refused")
            .to_string();
        assert!(error.contains(text), "{error}");
        assert_eq!(read(&store, "app").await.expect("read"), None);
    }
}

#[tokio::test]
async fn hostile_records_are_errors() {
    let valid =
        r#""version":1,"shards":4,"hash":"xxh64","created_at_ms":0,"counter":1,"nonce":"n""#;
    for (body, text) in [
        (String::new(), "not a valid cluster record"),
        ("[]".to_owned(), "not a valid cluster record"),
        ("{\"version\":1}".to_owned(), "missing field"),
        (format!("{{{valid},\"extra\":1}}"), "unknown field `extra`"),
        (format!("{{{valid}}} trailing"), "trailing"),
        (format!("{{{}}}", valid.replace("4", "-4")), "invalid value"),
        (format!("{{{}}}", valid.replace("4,", "0,")), "0 shards"),
        (
            format!("{{{}}}", valid.replace("4,", "4000000,")),
            "4000000 shards",
        ),
        (format!("{{{}}}", valid.replace("\"n\"", "\"\"")), "0 bytes"),
        (
            format!("{{{}}}", valid.replace("\"version\":1", "\"version\":0")),
            "version 0",
        ),
        (
            format!("{{{}}}", valid.replace("xxh64", "sha512")),
            "by \"sha512\"",
        ),
        (
            "{\"version\":3,\"anything\":[1]}".to_owned(),
            "format version 3; this build reads up to 2",
        ),
        (
            "{\"version\":18446744073709551615}".to_owned(),
            "format version 18446744073709551615",
        ),
        (
            format!("{{{valid}}}{}", " ".repeat(70_000)),
            "more than the limit of 65536",
        ),
        (
            format!("{{{valid},\"secret\":\"5ecre7\"}}"),
            "not 64 hex digits",
        ),
        ("[".repeat(60_000), "not a valid cluster record"),
    ] {
        let store = memory();
        put(&store, body.clone()).await;
        let error = ensure(&store, "app", &wanted(4, None))
            .await
            .expect_err("refused")
            .to_string();
        let shown: String = body.chars().take(100).collect();
        assert!(error.contains(text), "{shown}: {error:?} lacks {text:?}");
    }
}

#[tokio::test]
async fn an_older_record_gets_one_secret_whoever_is_first() {
    let store = memory();
    let old =
        r#"{"version":1,"shards":4,"hash":"xxh64","created_at_ms":7,"counter":1,"nonce":"n"}"#;
    put(&store, old).await;
    assert_eq!(
        read(&store, "app")
            .await
            .expect("read")
            .expect("there")
            .secret,
        None
    );
    let wanted = wanted(4, None);
    let all = futures::future::join_all((0..16).map(|_| ensure(&store, "app", &wanted))).await;
    let all: Vec<_> = all.into_iter().map(|record| record.expect("one")).collect();
    assert!(
        all.iter()
            .all(|record| *record == all[0] && record.secret.is_some()),
        "{all:?}"
    );
    let record = &all[0];
    assert_eq!(
        (record.version, record.created_at_ms, record.counter),
        (2, 7, 2)
    );
    let secret = serde_json::to_string(record.secret.as_ref().expect("a secret")).expect("json");
    assert!(!format!("{record:?}").contains(secret.trim_matches('"')));
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_is_reconciled() {
    let plain = memory();
    let (store, faults) = faulty(&plain);
    faults.add(Rule::new(Fault::FailAfter).on(Op::Put).times(1));
    let record = ensure(&store, "app", &wanted(4, None))
        .await
        .expect("created, though the reply was lost");
    assert_eq!(read(&plain, "app").await.expect("read"), Some(record));
    assert_eq!(
        faults.calls(Op::Put),
        1,
        "what took effect must not be sent again"
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_never_arrived_is_sent_again_and_bounded() {
    let (store, faults) = faulty(&memory());
    faults.add(Rule::new(Fault::FailBefore).on(Op::Put).times(1));
    ensure(&store, "app", &wanted(4, None))
        .await
        .expect("second attempt");

    let (store, faults) = faulty(&memory());
    faults.add(Rule::new(Fault::FailBefore).on(Op::Put));
    let error = ensure(&store, "app", &wanted(4, None))
        .await
        .expect_err("never arrives")
        .to_string();
    assert!(
        error.contains("cannot write app/_quarry/cluster.json (memory:)"),
        "{error}"
    );
    assert_eq!(faults.calls(Op::Put), 3);
}

#[tokio::test]
async fn a_store_that_cannot_be_read_is_named() {
    let (store, faults) = faulty(&memory());
    faults.add(Rule::new(Fault::PermissionDenied).on(Op::Get));
    let error = ensure(&store, "app", &wanted(4, None))
        .await
        .expect_err("denied")
        .to_string();
    assert!(
        error.contains("cannot read app/_quarry/cluster.json") && error.contains("AccessDenied"),
        "{error}"
    );
    assert_eq!(faults.calls(Op::Put), 0);
}

use std::collections::{BTreeMap, BTreeSet};

use object_store::ObjectStoreExt;
use quarry_core::deploy::{Command, Gates, MAX_OPTIONS, Plan, Selection, command};
use quarry_core::lease::record::Nonce;

use bytes::Bytes;

use super::*;
use crate::store::faults::{Fault, FaultStore, Faults, Op, Rule};

/// A store, the faults in front of it, and the folder that it is in, if it is in one.
struct Place {
    store: Store,
    faults: Faults,
    _folder: Option<tempfile::TempDir>,
}

impl Place {
    fn objects(&self) -> Objects {
        Objects::new(&self.store, "app")
    }

    async fn put(&self, object: &str, body: impl Into<Vec<u8>>) {
        let at = self.objects().at(object);
        let body: Vec<u8> = body.into();
        let done = self.store.objects().put(&at, body.into()).await;
        done.expect("written");
    }
}

/// One of each kind that needs no server.
fn places() -> [(&'static str, Place); 2] {
    let folder = tempfile::tempdir().expect("folder");
    let url = format!("file://{}", folder.path().display());
    [
        ("memory", place("memory:", None)),
        ("file", place(&url, Some(folder))),
    ]
}

fn memory() -> Place {
    place("memory:", None)
}

fn place(url: &str, folder: Option<tempfile::TempDir>) -> Place {
    let store = Store::open(url, &BTreeMap::new()).expect("store");
    let mut faults = None;
    let store = store.wrap(|inner| {
        let wrapped = FaultStore::new(inner, 7);
        faults = Some(wrapped.faults());
        Arc::new(wrapped)
    });
    Place {
        store,
        faults: faults.expect("wrapped"),
        _folder: folder,
    }
}

fn draft(component: &[u8]) -> Draft {
    Draft {
        modules: vec![ModuleSpec {
            name: "main".into(),
            digest: digest(component),
            size: component.len() as u64,
            options: String::new(),
            limits: BTreeMap::new(),
            grants: BTreeSet::new(),
            prefix: String::new(),
        }],
        author: "tester".into(),
        note: "a try".into(),
    }
}

fn deploy(record: &RolloutRecord, target: u64) -> RolloutRecord {
    let order = Command::Deploy {
        target,
        by: "tester".into(),
        order: Nonce::new(7),
        plan: Plan::All,
        first: Selection::None,
        gates: Gates::default(),
        step_timeout_ms: 1000,
        bake_ms: 0,
    };
    command(record, order).expect("ordered")
}

fn won(written: Written) -> Stored {
    match written {
        Written::Won(stored) => stored,
        Written::Lost => panic!("lost"),
    }
}

#[tokio::test]
async fn the_record_changes_by_compare_and_set_alone() {
    for (kind, place) in places() {
        let (a, b) = (place.objects(), place.objects());
        assert_eq!(a.rollout().await.expect("read"), None, "{kind}");

        let next = deploy(&RolloutRecord::fresh(), 1);
        let first = won(a.write_rollout(None, next.clone()).await.expect("written"));
        assert_eq!(first.record.counter, 1, "{kind}");
        let late = b.write_rollout(None, next).await.expect("answered");
        assert_eq!(late, Written::Lost, "{kind}: a second create");

        let read = b.rollout().await.expect("read").expect("a record");
        assert_eq!(read, first, "{kind}: the reply's version is that of a read");
        assert_eq!(b.rollout_since(&read).await.expect("read"), None, "{kind}");

        let paused = command(&read.record, Command::Pause).expect("paused");
        let second = won(a
            .write_rollout(Some(&read), paused.clone())
            .await
            .expect("written"));
        assert_eq!(second.record.counter, 2, "{kind}");
        assert_ne!(second.record.nonce, first.record.nonce, "{kind}");
        let late = b
            .write_rollout(Some(&read), paused)
            .await
            .expect("answered");
        assert_eq!(late, Written::Lost, "{kind}: a stale update");
        let newer = b.rollout_since(&read).await.expect("read");
        assert_eq!(newer, Some(second.clone()), "{kind}");

        let at = a.at(ROLLOUT);
        place.store.objects().delete(&at).await.expect("deleted");
        let gone = b.rollout_since(&second).await.expect_err("gone");
        assert!(matches!(gone, Error::Vanished { .. }), "{kind}: {gone}");
        let restored = b.write_rollout(Some(&second), second.record.clone()).await;
        assert_eq!(restored.expect("answered"), Written::Lost, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_of_unknown_outcome_is_looked_for() {
    for (what, rule, wins) in [
        ("its reply is lost", Rule::new(Fault::FailAfter), true),
        ("it is never sent", Rule::new(Fault::FailBefore), true),
        ("it hangs", Rule::new(Fault::Latency(REQUEST * 2)), true),
        ("it is refused", Rule::new(Fault::RefuseIfMatch), false),
    ] {
        let place = memory();
        let objects = place.objects();
        let next = deploy(&RolloutRecord::fresh(), 1);
        let seen = won(objects.write_rollout(None, next).await.expect("written"));
        place.faults.add(rule.on(Op::Put).path(ROLLOUT).times(1));
        let paused = command(&seen.record, Command::Pause).expect("paused");
        let written = objects.write_rollout(Some(&seen), paused).await;
        let written = written.unwrap_or_else(|error| panic!("{what}: {error}"));
        let now = objects.rollout().await.expect("read").expect("a record");
        if wins {
            assert_eq!(won(written), now, "{what}");
            assert_eq!(now.record.counter, 2, "{what}");
        } else {
            assert_eq!((written, now), (Written::Lost, seen), "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_found_out_is_said() {
    let place = memory();
    let objects = place.objects();
    place.faults.add(Rule::new(Fault::FailAfter).path(ROLLOUT));
    let next = deploy(&RolloutRecord::fresh(), 1);
    let error = objects
        .write_rollout(None, next)
        .await
        .expect_err("unknown");
    assert!(matches!(error, Error::Unknown { .. }), "{error}");
    assert!(error.is_transient());
    assert_eq!(
        place.faults.calls(Op::Put),
        1,
        "it is sent again only once it is known that it is not there"
    );

    place.faults.clear();
    place.faults.add(Rule::new(Fault::FailBefore).on(Op::Put));
    let error = objects.create_revision(draft(b"x")).await;
    let error = error.expect_err("never written");
    assert!(matches!(error, Error::Unknown { .. }), "{error}");

    place.faults.clear();
    place
        .faults
        .add(Rule::new(Fault::Latency(REQUEST * 2)).on(Op::Get));
    let error = objects.revision(1).await.expect_err("late");
    assert!(matches!(error, Error::Late { .. }), "{error}");
    assert_eq!(
        error.to_string(),
        "memory: did not read revisions/1.json within 15s"
    );

    place.faults.clear();
    place
        .faults
        .add(Rule::new(Fault::FailBefore).on(Op::Get).times(2));
    let error = objects.revision(1).await.expect_err("no revision");
    assert!(
        matches!(error, Error::NoRevision { number: 1, .. }),
        "{error}"
    );
}

#[tokio::test]
async fn each_revision_gets_a_number_of_its_own() {
    for (kind, place) in places() {
        let objects = place.objects();
        assert_eq!(
            objects.revisions().await.expect("listed"),
            [0u64; 0],
            "{kind}"
        );
        let many = (0..8u8).map(|number| objects.create_revision(draft(&[number])));
        let made = futures::future::try_join_all(many).await.expect("made");
        let mut numbers: Vec<u64> = made.iter().map(|revision| revision.number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8], "{kind}");
        assert_eq!(
            objects.revisions().await.expect("listed"),
            numbers,
            "{kind}"
        );
        for revision in made {
            let read = objects.revision(revision.number).await.expect("read");
            assert_eq!(read, revision, "{kind}");
        }

        objects.delete_revision(3).await.expect("deleted");
        objects.delete_revision(3).await.expect("deleted before");
        let next = objects.create_revision(draft(b"next")).await.expect("made");
        assert_eq!(next.number, 9, "{kind}: a gap is not filled");
        place.put("revisions/010.json", "of nobody").await;
        place.put("revisions/x.json", "of nobody").await;
        let next = objects.create_revision(draft(b"next")).await.expect("made");
        assert_eq!(next.number, 10, "{kind}: strange names are passed over");
    }
}

#[tokio::test(start_paused = true)]
async fn a_revision_of_unknown_outcome_is_not_made_twice() {
    for fault in [Fault::FailAfter, Fault::FailBefore] {
        let place = memory();
        let objects = place.objects();
        place.faults.add(Rule::new(fault).on(Op::Put).times(1));
        let made = objects.create_revision(draft(b"x")).await.expect("made");
        assert_eq!(made.number, 1, "{fault:?}");
        let numbers = objects.revisions().await.expect("listed");
        assert_eq!(numbers, [1], "{fault:?}");
    }
}

#[tokio::test]
async fn of_many_first_revisions_one_wins() {
    for (kind, place) in places() {
        let objects = place.objects();
        let drafts: Vec<Draft> = (0..4u8).map(|number| draft(&[number])).collect();
        let many = drafts.iter().map(|draft| objects.first_revision(draft));
        let made = futures::future::try_join_all(many).await.expect("made");
        let same = made.iter().all(|revision| *revision == made[0]);
        assert!(same && made[0].number == 1, "{kind}: {made:?}");
        assert_eq!(objects.revisions().await.expect("listed"), [1], "{kind}");
    }
}

#[tokio::test]
async fn components_are_what_their_names_say() {
    for (kind, place) in places() {
        let objects = place.objects();
        // One that goes in one piece, and one that goes in parts.
        for size in [10, (8 << 20) + 3] {
            let component = Bytes::from(vec![7; size]);
            let size = component.len() as u64;
            let name = digest(&component);
            let error = objects.module(&name, size).await.expect_err("not there");
            assert!(matches!(error, Error::NoModule { .. }), "{kind}: {error}");
            assert_eq!(
                objects.module_size(&name).await.expect("read"),
                None,
                "{kind}"
            );

            let put = objects.put_module(component.clone()).await;
            assert_eq!(put.expect("stored"), (name, true), "{kind}");
            let again = objects.put_module(component.clone()).await;
            assert_eq!(again.expect("stored"), (name, false), "{kind}");
            let read = objects.module(&name, size).await.expect("read");
            assert_eq!(read, component, "{kind}");
            assert_eq!(
                objects.module_size(&name).await.expect("read"),
                Some(size),
                "{kind}"
            );

            let mut changed = component.to_vec();
            changed[3] ^= 1;
            let half = component.slice(..5).to_vec();
            let longer = [component.as_ref(), b"x"].concat();
            for (body, tampered) in [(changed, true), (half, false), (longer, false)] {
                place.put(&name.object(), body).await;
                let error = objects.module(&name, size).await.expect_err("bad");
                let right = match &error {
                    Error::Tampered { .. } => tampered,
                    Error::Incomplete { expected, .. } => !tampered && *expected == size,
                    _ => false,
                };
                assert!(right && !error.is_transient(), "{kind}: {error}");
                let repaired = objects.put_module(component.clone()).await;
                assert_eq!(repaired.expect("stored"), (name, true), "{kind}");
                objects.module(&name, size).await.expect("right again");
            }
        }
        let listed = objects.modules().await.expect("listed");
        let sizes: BTreeSet<u64> = listed.iter().map(|module| module.size).collect();
        assert_eq!(sizes, BTreeSet::from([10, (8 << 20) + 3]), "{kind}");
        assert!(listed.iter().all(|module| module.stored_ms > 0), "{kind}");
        for module in listed {
            objects
                .delete_module(&module.digest)
                .await
                .expect("deleted");
            objects
                .delete_module(&module.digest)
                .await
                .expect("deleted before");
        }
        assert_eq!(objects.modules().await.expect("listed"), [], "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn components_get_there_in_spite_of_faults() {
    for size in [10, (8 << 20) + 3] {
        for (op, fault) in [
            (Op::Put, Fault::FailBefore),
            (Op::Put, Fault::FailAfter),
            (Op::Get, Fault::FailBefore),
            (Op::Get, Fault::CorruptReads),
        ] {
            let place = memory();
            place.faults.add(Rule::new(fault).on(op).times(1));
            let component = Bytes::from(vec![1; size]);
            let (name, _) = place
                .objects()
                .put_module(component)
                .await
                .unwrap_or_else(|error| panic!("{size} {op:?} {fault:?}: {error}"));
            let read = place.objects().module(&name, size as u64).await;
            read.unwrap_or_else(|error| panic!("{size} {op:?} {fault:?}: {error}"));
        }
    }
}

#[tokio::test]
async fn sizes_have_bounds() {
    let place = memory();
    let objects = place.objects();
    let name = digest(b"x");
    for size in [0, MAX_MODULE_BYTES + 1] {
        let error = objects.module(&name, size).await.expect_err("refused");
        assert!(matches!(error, Error::Size { .. }), "{error}");
    }
    let error = objects.put_module(Bytes::new()).await.expect_err("refused");
    assert_eq!(
        error.to_string(),
        "a module has 1 to 268435456 bytes, and this one has 0"
    );
    assert_eq!(place.faults.calls(Op::Get), 0);
}

#[tokio::test]
async fn hostile_bodies_get_an_error_that_names_them() {
    let place = memory();
    let objects = place.objects();
    let newer = r#"{"version":2,"counter":1}"#.to_owned();
    for (object, body, says) in [
        (
            ROLLOUT,
            newer.clone(),
            "rollout.json has version 2; this build reads version 1",
        ),
        (
            ROLLOUT,
            "{".into(),
            "rollout.json is not a record of this kind",
        ),
        (
            ROLLOUT,
            " ".repeat(MAX_ROLLOUT_BYTES + 9),
            "rollout.json has 65545 bytes; a body has at most 65536",
        ),
        ("revisions/1.json", newer, "revisions/1.json has version 2"),
        ("revisions/1.json", "[]".into(), "revisions/1.json"),
        (
            "revisions/1.json",
            " ".repeat(MAX_REVISION_BYTES + 1),
            "revisions/1.json has 2097153 bytes",
        ),
    ] {
        place.put(object, body).await;
        let error = match object {
            ROLLOUT => objects.rollout().await.map(|_| ()),
            _ => objects.revision(1).await.map(|_| ()),
        };
        let error = error.expect_err(says);
        assert!(matches!(error, Error::Record { .. }), "{error}");
        assert!(error.to_string().starts_with(says), "{error}");
        assert!(error.to_string().contains("memory:"), "{error}");
    }

    // A record that is not understood is not written over.
    let next = deploy(&RolloutRecord::fresh(), 1);
    place.put(ROLLOUT, r#"{"version":2}"#).await;
    let written = objects.write_rollout(None, next).await;
    assert_eq!(written.expect("answered"), Written::Lost);

    // Nor is a revision whose number it has, and what may not be in one is refused before anything is sent.
    let made = objects.create_revision(draft(b"x")).await.expect("made");
    assert_eq!(made.number, 2);
    let mut large = draft(b"x");
    large.modules[0].options = "o".repeat(MAX_OPTIONS + 1);
    let puts = place.faults.calls(Op::Put);
    let error = objects.create_revision(large).await.expect_err("refused");
    assert!(
        error.to_string().contains("valid are at most 65536 bytes"),
        "{error}"
    );
    assert_eq!(place.faults.calls(Op::Put), puts);
}

#[tokio::test]
async fn a_store_without_conditional_reads_is_borne() {
    let place = memory();
    let objects = place.objects();
    let next = deploy(&RolloutRecord::fresh(), 1);
    let seen = won(objects.write_rollout(None, next).await.expect("written"));
    place.faults.add(Rule::new(Fault::IgnoreIfNoneMatch));
    assert_eq!(objects.rollout_since(&seen).await.expect("read"), None);
}

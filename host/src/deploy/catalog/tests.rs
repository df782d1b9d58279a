//! What of the bucket a node can run, and what it says of the rest.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use object_store::ObjectStoreExt;
use quarry_core::deploy::Digest;

use super::*;
use crate::deploy::{Draft, Library};
use crate::guest::Module;
use crate::guest::native::{self, Logic};
use crate::guest::{GuestError, InstanceContext, Reply, Request};
use crate::store::Store;
use crate::store::faults::{Fault, FaultStore, Faults, Rule};

const WAIT: Duration = Duration::from_secs(20);

struct Nothing;

#[async_trait]
impl Logic for Nothing {
    async fn call(&mut self, _: &InstanceContext, _: &Request) -> Result<Reply, GuestError> {
        Ok(Reply::default())
    }
}

/// Counts how often something was made ready.
struct Counted(Library, Arc<AtomicUsize>);

#[async_trait]
impl Loader for Counted {
    async fn load(
        &self,
        bytes: Bytes,
        name: &str,
        revision: u64,
        limits: Arc<Limits>,
    ) -> Result<Arc<dyn Module>, String> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.load(bytes, name, revision, limits).await
    }
}

struct World {
    store: Store,
    faults: Faults,
    objects: Objects,
    catalog: Catalog,
    loads: Arc<AtomicUsize>,
}

impl World {
    fn new() -> Self {
        let mut faults = None;
        let store = Store::open("memory:", &BTreeMap::new()).expect("a store");
        let store = store.wrap(|objects| {
            let wrapped = FaultStore::new(objects, 0);
            faults = Some(wrapped.faults());
            Arc::new(wrapped)
        });
        let objects = Objects::new(&store, "");
        let loads = Arc::new(AtomicUsize::new(0));
        let library = Library::new()
            .with("good", |name, revision| {
                native::module(name, revision, |_| Nothing)
            })
            .with("lies", |name, revision| {
                native::module(name, revision + 1, |_| Nothing)
            });
        let catalog = Catalog::new(
            objects.clone(),
            Arc::new(Counted(library, loads.clone())),
            Arc::new(Config::default()),
            Handle::current(),
        );
        Self {
            store,
            faults: faults.expect("wrapped"),
            objects,
            catalog,
            loads,
        }
    }

    /// A revision of this logic, changed before it is stored.
    async fn revision(&self, logic: &str, change: impl FnOnce(&mut Draft)) -> (u64, Digest) {
        let bytes = Library::bytes(logic);
        let size = bytes.len() as u64;
        let (digest, _) = self.objects.put_module(bytes).await.expect("stored");
        let mut draft = Draft {
            modules: vec![ModuleSpec {
                name: "main".into(),
                digest,
                size,
                options: "{}".into(),
                limits: BTreeMap::new(),
                grants: BTreeSet::new(),
                prefix: String::new(),
            }],
            author: "ann".into(),
            note: String::new(),
        };
        change(&mut draft);
        let revision = self.objects.create_revision(draft).await.expect("stored");
        (revision.number, digest)
    }

    /// Waits until a revision is ready or refused.
    async fn settled(&self, number: u64) -> Check {
        let mut changes = self.catalog.changes();
        let settled = async {
            loop {
                let check = self.catalog.check(number);
                if check != Check::Busy {
                    return check;
                }
                changes.changed().await.expect("a catalog");
            }
        };
        tokio::time::timeout(WAIT, settled).await.expect("in time")
    }

    fn want(&self, numbers: &[u64]) {
        self.catalog.want(&numbers.iter().copied().collect());
    }
}

#[tokio::test]
async fn a_revision_is_made_ready_once_and_dropped_when_nobody_wants_it() {
    let world = World::new();
    let (number, _) = world.revision("good", |_| {}).await;
    assert_eq!(world.catalog.check(number), Check::Busy, "nobody wants it");
    world.want(&[0, number]);
    world.want(&[number, 0]);
    assert_eq!(world.settled(number).await, Check::Fine);
    assert_eq!(world.settled(0).await, Check::Fine);
    assert_eq!(world.loads.load(Ordering::SeqCst), 1);
    let loaded = world.catalog.source(number).loaded.expect("ready");
    assert_eq!(loaded.revision(), number);
    world.want(&[0]);
    assert!(world.catalog.source(number).loaded.is_err());
    world.want(&[number]);
    assert_eq!(world.settled(number).await, Check::Fine);
    assert_eq!(world.loads.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn several_modules_and_one_within_its_keys_are_put_together() {
    let world = World::new();
    let (several, _) = world
        .revision("good", |draft| {
            let second = ModuleSpec {
                name: "second".into(),
                ..draft.modules[0].clone()
            };
            draft.modules.push(second);
        })
        .await;
    let (confined, _) = world
        .revision("good", |draft| draft.modules[0].prefix = "a/".into())
        .await;
    world.want(&[several, confined]);
    for (number, digests) in [(several, "native+native"), (confined, "native")] {
        assert_eq!(world.settled(number).await, Check::Fine);
        let loaded = world.catalog.source(number).loaded.expect("ready");
        let info = loaded.module.describe();
        assert_eq!((info.revision, &*info.digest), (number, digests));
    }
}

#[tokio::test]
async fn what_cannot_run_here_is_refused_with_the_reason() {
    let world = World::new();
    let mut cases = Vec::new();
    type Change = (&'static str, fn(&mut Draft));
    let changes: [Change; 5] = [
        ("module `second`: its options are no JSON object", |draft| {
            let second = ModuleSpec {
                name: "second".into(),
                options: "[1]".into(),
                ..draft.modules[0].clone()
            };
            draft.modules.push(second);
        }),
        ("no JSON object", |draft| {
            draft.modules[0].options = "[1]".into();
        }),
        ("limit `memory`", |draft| {
            draft.modules[0].limits.insert("memory".into(), "1B".into());
        }),
        ("and not 7: it was uploaded in part", |draft| {
            draft.modules[0].size = 7;
        }),
        ("there is no module 0101", |draft| {
            draft.modules[0].digest = Digest::new([1; 32]);
        }),
    ];
    for (says, change) in changes {
        cases.push((world.revision("good", change).await.0, says));
    }
    cases.push((world.revision("other", |_| {}).await.0, "no native logic"));
    cases.push((
        world.revision("lies", |_| {}).await.0,
        "a module of revision",
    ));
    cases.push((99, "there is no revision 99"));
    let all: Vec<u64> = cases.iter().map(|(number, _)| *number).collect();
    world.want(&all);
    for (number, says) in cases {
        let Check::Refused(why) = world.settled(number).await else {
            panic!("revision {number} is not refused: {says}");
        };
        assert!(why.contains(says), "{why} does not say {says}");
        let shown = world.catalog.source(number).loaded.err().expect("refused");
        assert!(
            shown.contains(&format!("cannot run revision {number}")) && shown.contains(&why),
            "{shown}"
        );
    }
}

#[tokio::test]
async fn what_was_tampered_with_runs_once_it_is_repaired() {
    let world = World::new();
    let (number, digest) = world.revision("good", |_| {}).await;
    let at = world.store.path(&format!("_quarry/{}", digest.object()));
    let right = Library::bytes("good");
    let mut wrong = right.to_vec();
    wrong[0] ^= 1;
    let put = |bytes: Bytes| {
        let (objects, at) = (world.store.objects(), at.clone());
        async move { objects.put(&at, bytes.into()).await.expect("put") }
    };
    put(wrong.into()).await;
    world.want(&[number]);
    let Check::Refused(why) = world.settled(number).await else {
        panic!("it was tampered with");
    };
    assert!(why.contains("was changed after it was uploaded"), "{why}");
    put(right).await;
    world.catalog.afresh(number);
    assert_eq!(world.settled(number).await, Check::Fine);
    world.catalog.afresh(number);
    assert_eq!(world.catalog.check(number), Check::Fine, "it stays ready");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_is_tried_again() {
    let world = World::new();
    let (number, _) = world.revision("good", |_| {}).await;
    world.faults.add(Rule::new(Fault::FailBefore));
    world.want(&[number]);
    let mut changes = world.catalog.changes();
    changes.changed().await.expect("it failed once");
    assert_eq!(world.catalog.check(number), Check::Busy, "it may pass");
    let why = world
        .catalog
        .source(number)
        .loaded
        .err()
        .expect("not ready");
    assert!(why.contains("not ready on this node yet: "), "{why}");
    world.faults.clear();
    assert_eq!(world.settled(number).await, Check::Fine);
}

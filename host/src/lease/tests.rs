use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use object_store::ObjectStoreExt;
use quarry_core::lease::layout::LayoutOptions;
use quarry_core::lease::op::{LeaseOp, LeaseSeen, OpResult, Outcome, Renewal};
use quarry_core::rules::Rules;
use tempfile::TempDir;

use super::conformance::{self, Bucket, Object, Worlds};
use super::layout::StoredLeases;
use super::memory::{Fault, MemoryLeases};
use super::objects::LeaseObjects;
use super::*;
use crate::cluster::database_path;
use crate::db::open::stored_epoch;
use crate::store::Store;
use crate::store::faults::{self, FaultStore, Faults, Rule};

const LAYOUTS: [Renewal; 2] = [Renewal::Session, Renewal::Lease];
const LIMIT: Duration = Duration::from_secs(5);

struct Memory;

#[async_trait]
impl Worlds for Memory {
    async fn world(&self, shards: u32) -> Box<dyn Bucket> {
        Box::new(InMemory(MemoryLeases::world(shards)))
    }
}

struct InMemory(MemoryLeases);

#[async_trait]
impl Bucket for InMemory {
    fn node(&self) -> Arc<dyn LeaseStore> {
        Arc::new(self.0.another())
    }

    async fn put(&self, object: Object, body: Option<Vec<u8>>) {
        match object {
            Object::Node(name) => self.0.put_node(&name, body.as_deref()),
            Object::Lease(shard) => self.0.put_lease(shard, body.as_deref()),
            // There is no room for strangers.
            Object::Other(_) => {}
        }
    }

    async fn set_writer_epoch(&self, shard: u32, epoch: u64) -> bool {
        self.0.set_writer_epoch(shard, epoch);
        true
    }
}

/// Worlds in a store, each under a path of its own; each node opens the store for itself.
struct Stored<O> {
    renewal: Renewal,
    open: O,
    worlds: AtomicU32,
}

impl<O: Fn() -> Store> Stored<O> {
    fn new(renewal: Renewal, open: O) -> Self {
        Self {
            renewal,
            open,
            worlds: 0.into(),
        }
    }

    fn bucket(&self, shards: u32) -> InStore<&O> {
        let number = self.worlds.fetch_add(1, Ordering::Relaxed);
        InStore {
            renewal: self.renewal,
            open: &self.open,
            path: format!("world-{number}"),
            shards,
        }
    }
}

struct InStore<O> {
    renewal: Renewal,
    open: O,
    path: String,
    shards: u32,
}

impl<O: Fn() -> Store> InStore<O> {
    fn at(&self, store: &Store, object: &Object) -> object_store::path::Path {
        use quarry_core::lease::object::Key;
        let name = match object {
            Object::Node(name) => Key::Node(name.clone()).object_name(self.shards),
            Object::Lease(shard) => Key::Lease(*shard).object_name(self.shards),
            Object::Other(name) => name.clone(),
        };
        store.path(&format!("{}/_quarry/{name}", self.path))
    }

    fn leases(&self, store: &Store) -> StoredLeases {
        let options = LayoutOptions {
            renewal: self.renewal,
            shards: self.shards,
            rules: Rules::default(),
        };
        let objects = LeaseObjects::new(store, &self.path, self.shards, "conformance");
        StoredLeases::new(options, objects)
    }
}

#[async_trait]
impl<O: Fn() -> Store + Send + Sync> Worlds for Stored<O> {
    async fn world(&self, shards: u32) -> Box<dyn Bucket> {
        let InStore { renewal, path, .. } = self.bucket(shards);
        let store = (self.open)();
        // A box may not borrow; a store that was opened may be opened again only by the closure, so it is cloned for memory.
        let open: Box<dyn Fn() -> Store + Send + Sync> = match store.kind() {
            crate::store::StoreKind::File => {
                let url = store.to_string();
                Box::new(move || Store::open(&url, &BTreeMap::new()).expect("the same folder"))
            }
            _ => Box::new(move || store.clone()),
        };
        Box::new(InStore {
            renewal,
            open,
            path,
            shards,
        })
    }
}

#[async_trait]
impl<O: Fn() -> Store + Send + Sync> Bucket for InStore<O> {
    fn node(&self) -> Arc<dyn LeaseStore> {
        Arc::new(self.leases(&(self.open)()))
    }

    async fn put(&self, object: Object, body: Option<Vec<u8>>) {
        let store = (self.open)();
        let at = self.at(&store, &object);
        match body {
            Some(body) => drop(store.objects().put(&at, body.into()).await.expect("put")),
            None => store.objects().delete(&at).await.expect("delete"),
        }
    }

    async fn set_writer_epoch(&self, shard: u32, epoch: u64) -> bool {
        let store = (self.open)();
        let path = store.path(&database_path(&self.path, shard, self.shards));
        loop {
            let stored = stored_epoch(store.objects(), path.clone()).await;
            if stored.expect("the database") >= epoch {
                return true;
            }
            let settings = slatedb::config::Settings {
                compactor_options: None,
                garbage_collector_options: None,
                ..Default::default()
            };
            let db = slatedb::Db::builder(path.clone(), store.objects())
                .with_settings(settings)
                .build()
                .await
                .expect("the database");
            db.close().await.expect("closed");
        }
    }
}

fn memory() -> Store {
    Store::open("memory:", &BTreeMap::new()).expect("a store in memory")
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_in_memory_conform() {
    conformance::run(&Memory).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn layouts_in_a_store_in_memory_conform() {
    for renewal in LAYOUTS {
        let store = memory();
        conformance::run(&Stored::new(renewal, move || store.clone())).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn layouts_in_a_folder_with_several_handles_conform() {
    for renewal in LAYOUTS {
        let folder = TempDir::new().expect("a folder");
        let url = format!("file://{}", folder.path().display());
        let open = move || Store::open(&url, &BTreeMap::new()).expect("a store");
        conformance::run(&Stored::new(renewal, open)).await;
    }
}

fn joined(name: &str) -> LeaseOp {
    use quarry_core::lease::record::{NodeInfo, NodeState, PROTOCOL, SessionId};
    LeaseOp::Setup {
        me: NodeInfo {
            protocol: PROTOCOL,
            cluster: "c".into(),
            name: name.parse().expect("a name"),
            session: SessionId::new(rand::random()),
            state: NodeState::Live,
            shards: 0,
            ttl_ms: 1000,
            advertise: String::new(),
            zone: String::new(),
            cordoned: false,
            blind: false,
            software: String::new(),
        },
        over: None,
    }
}

fn claim(shard: u32) -> LeaseOp {
    LeaseOp::Claim {
        seen: LeaseSeen::missing(shard),
        above: 0,
        at_most: None,
        ask_epoch: false,
        why: "a test".into(),
    }
}

fn faulty(store: &Store) -> (Store, Faults) {
    let mut faults = None;
    let store = store.wrap(|objects| {
        let wrapped = FaultStore::new(objects, 0);
        faults = Some(wrapped.faults());
        Arc::new(wrapped)
    });
    (store, faults.expect("wrapped"))
}

/// A write whose reply is lost is looked into, and is won where its nonce stands there.
#[tokio::test]
async fn a_lost_reply_is_reconciled_by_the_nonce() {
    for renewal in LAYOUTS {
        let (store, faults) = faulty(&memory());
        let worlds = Stored::new(renewal, move || store.clone());
        let bucket = worlds.bucket(2);
        let leases = bucket.leases(&(worlds.open)());
        let lost = || {
            faults.add(
                Rule::new(faults::Fault::FailAfter)
                    .on(faults::Op::Put)
                    .times(1),
            )
        };
        lost();
        let setup = leases.run(joined("a"), LIMIT).await;
        assert!(
            matches!(setup, OpResult::Setup(Outcome::Won(_))),
            "{setup:?}"
        );
        lost();
        let won = leases.run(claim(1), LIMIT).await;
        assert!(matches!(won, OpResult::Claim(Outcome::Won(_))), "{won:?}");
        // It surely did not arrive, but nobody can know that: it stays unknown, and never counts as lost.
        faults.add(
            Rule::new(faults::Fault::FailBefore)
                .on(faults::Op::Put)
                .times(1),
        );
        let unknown = leases.run(claim(0), LIMIT).await;
        assert!(
            matches!(unknown, OpResult::Claim(Outcome::Unknown(_))),
            "{unknown:?}"
        );
    }
}

/// A store that hangs costs an operation its limit and no more, and nothing of it stays behind.
#[tokio::test(start_paused = true)]
async fn a_hanging_store_is_given_up_at_the_limit() {
    let (store, faults) = faulty(&memory());
    let worlds = Stored::new(Renewal::Session, move || store.clone());
    let bucket = worlds.bucket(2);
    let leases = bucket.leases(&(worlds.open)());
    faults.add(Rule::new(faults::Fault::Hang));
    let began = tokio::time::Instant::now();
    for op in [
        joined("a"),
        LeaseOp::Nodes { all: false },
        LeaseOp::Owners { all: true },
    ] {
        let name = op.name();
        let result = leases.run(op, LIMIT).await;
        let unknown = matches!(
            &result,
            OpResult::Setup(Outcome::Unknown(_)) | OpResult::Nodes(Err(_))
        ) || matches!(&result, OpResult::Owners(owners) if owners.failed.is_some());
        assert!(unknown, "{name}: {result:?}");
    }
    assert_eq!(began.elapsed(), LIMIT * 3);
    faults.clear();
    let setup = leases.run(joined("b"), LIMIT).await;
    assert!(
        matches!(setup, OpResult::Setup(Outcome::Won(_))),
        "{setup:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn faults_in_memory_come_on_demand() {
    let a = MemoryLeases::world(2);
    assert!(matches!(
        a.run(joined("a"), LIMIT).await,
        OpResult::Setup(Outcome::Won(_))
    ));
    let stands = async || match a.run(LeaseOp::Read { shard: 0 }, LIMIT).await {
        OpResult::Read(Ok(seen)) => seen.record.generation,
        other => panic!("{other:?}"),
    };
    let unknown = async || match a.run(claim(0), LIMIT).await {
        OpResult::Claim(Outcome::Unknown(why)) => why,
        other => panic!("{other:?}"),
    };
    for (fault, part, after) in [
        (Fault::FailBefore, "on demand", 0),
        (Fault::Hang, "no answer within 5s", 0),
        (
            Fault::Delay(Duration::from_secs(9)),
            "no answer within 5s",
            0,
        ),
        (Fault::FailAfter, "after the effect", 1),
    ] {
        a.fail(fault);
        let why = unknown().await;
        assert!(why.contains(part), "{fault:?}: {why}");
        assert_eq!(stands().await, after, "{fault:?}");
    }
    a.partition(true);
    assert!(matches!(
        a.run(LeaseOp::Nodes { all: false }, LIMIT).await,
        OpResult::Nodes(Err(_))
    ));
    a.partition(false);
    assert!(matches!(
        a.run(LeaseOp::Nodes { all: false }, LIMIT).await,
        OpResult::Nodes(Ok(_))
    ));
}

/// Ten thousand objects that do not belong there: they are counted, not followed, and cost a listing.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_garbage_objects_are_borne() {
    for renewal in LAYOUTS {
        let store = memory();
        let worlds = Stored::new(renewal, {
            let store = store.clone();
            move || store.clone()
        });
        let bucket = worlds.bucket(4);
        for n in 0..5_000 {
            for name in [format!("leases/x{n}.json"), format!("nodes/x{n}.json")] {
                let at = bucket.at(&store, &Object::Other(name));
                store
                    .objects()
                    .put(&at, "garbage".into())
                    .await
                    .expect("put");
            }
        }
        let (counted, faults) = faulty(&store);
        let leases = bucket.leases(&counted);
        assert!(matches!(
            leases.run(joined("a"), LIMIT * 6).await,
            OpResult::Setup(Outcome::Won(_))
        ));
        let lease = leases.run(claim(3), LIMIT * 6).await;
        assert!(
            matches!(lease, OpResult::Claim(Outcome::Won(_))),
            "{lease:?}"
        );
        let nodes = match leases.run(LeaseOp::Nodes { all: false }, LIMIT * 6).await {
            OpResult::Nodes(Ok(nodes)) => nodes,
            other => panic!("{other:?}"),
        };
        let readable = nodes
            .nodes
            .iter()
            .filter(|node| node.record.is_ok())
            .count();
        assert_eq!(readable, 1);
        let owners = match leases.run(LeaseOp::Owners { all: true }, LIMIT * 6).await {
            OpResult::Owners(owners) => owners,
            other => panic!("{other:?}"),
        };
        assert_eq!(owners.failed, None);
        let owned: Vec<_> = owners
            .changed
            .iter()
            .filter(|seen| seen.record.owner.is_some())
            .collect();
        assert!(
            owners.changed.len() <= 4 && owned.len() <= 1,
            "{}",
            owners.changed.len()
        );
        // The bodies were read once; from now on a round is a few pages.
        let before = faults.calls(faults::Op::Get);
        let again = leases.run(LeaseOp::Nodes { all: false }, LIMIT * 6).await;
        assert!(matches!(again, OpResult::Nodes(Ok(_))), "{again:?}");
        let reads = faults.calls(faults::Op::Get) - before;
        assert!(reads <= 4, "{reads} bodies were read again");
    }
}

//! What every [`LeaseStore`] has to do, as one suite of checks. Whoever writes a store of leases runs it over theirs:
//!
//! ```
//! use std::sync::Arc;
//!
//! use async_trait::async_trait;
//! use quarry::lease::LeaseStore;
//! use quarry::lease::conformance::{self, Bucket, Object, Worlds};
//! use quarry::lease::memory::MemoryLeases;
//!
//! struct Memory;
//!
//! struct One(MemoryLeases);
//!
//! #[async_trait]
//! impl Worlds for Memory {
//!     async fn world(&self, shards: u32) -> Box<dyn Bucket> {
//!         Box::new(One(MemoryLeases::world(shards)))
//!     }
//! }
//!
//! #[async_trait]
//! impl Bucket for One {
//!     fn node(&self) -> Arc<dyn LeaseStore> {
//!         Arc::new(self.0.another())
//!     }
//!
//!     async fn put(&self, object: Object, body: Option<Vec<u8>>) {
//!         match object {
//!             Object::Node(name) => self.0.put_node(&name, body.as_deref()),
//!             Object::Lease(shard) => self.0.put_lease(shard, body.as_deref()),
//!             Object::Other(_) => {}
//!         }
//!     }
//!
//!     async fn set_writer_epoch(&self, shard: u32, epoch: u64) -> bool {
//!         self.0.set_writer_epoch(shard, epoch);
//!         true
//!     }
//! }
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! conformance::run(&Memory).await;
//! # });
//! ```

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use quarry_core::lease::object::Tag;
use quarry_core::lease::op::{LeaseOp, LeaseSeen, NodeSeen, Nodes, OpResult, Outcome, Owners};
use quarry_core::lease::record::{NodeInfo, NodeName, NodeState, PROTOCOL, SessionId};

use super::LeaseStore;

mod hostile;
mod leases;
mod sessions;

/// How long an operation of a check may take.
const LIMIT: Duration = Duration::from_secs(30);

/// Makes worlds to check in.
#[async_trait]
pub trait Worlds: Sync {
    /// A new world with so many shards, in which nothing was ever written.
    async fn world(&self, shards: u32) -> Box<dyn Bucket>;
}

/// A world: where leases lie, from outside.
#[async_trait]
pub trait Bucket: Send + Sync {
    /// A node of it, which has read nothing yet; one that shares nothing with the others but the world.
    fn node(&self) -> Arc<dyn LeaseStore>;

    /// Overwrites an object with whatever bytes; none removes it.
    async fn put(&self, object: Object, body: Option<Vec<u8>>);

    /// Makes a shard's database look as if it had been opened so many times. False where that cannot be done; what rests on it is then
    /// not checked.
    async fn set_writer_epoch(&self, shard: u32, epoch: u64) -> bool;
}

/// An object of a world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object {
    /// A node's record.
    Node(NodeName),
    /// A shard's lease.
    Lease(u32),
    /// Something that does not belong there, by its name below `_quarry/`.
    Other(String),
}

/// Checks a store.
///
/// # Panics
/// When it does not do what it must; the text says what.
pub async fn run(worlds: &dyn Worlds) {
    sessions::a_name_belongs_to_one_session(worlds).await;
    sessions::a_heartbeat_shows_and_only_its_own_session_makes_one(worlds).await;
    sessions::a_session_ends_once_and_only_as_it_was_seen(worlds).await;
    leases::of_many_claimants_one_wins(worlds).await;
    leases::a_lease_goes_from_owner_to_owner(worlds).await;
    leases::a_renewal_shows(worlds).await;
    leases::changes_are_told_once(worlds).await;
    leases::generations_stay_above_the_database(worlds).await;
    hostile::a_lease_that_cannot_be_read_is_repaired_by_a_claim(worlds).await;
    hostile::a_node_that_cannot_be_read_harms_nobody_else(worlds).await;
    hostile::strange_objects_are_passed_over(worlds).await;
}

/// A node in a check.
struct Node {
    store: Arc<dyn LeaseStore>,
    info: NodeInfo,
}

impl Node {
    /// A node with a session that is not written yet.
    fn new(bucket: &dyn Bucket, name: &str) -> Self {
        Self {
            store: bucket.node(),
            info: NodeInfo {
                protocol: PROTOCOL,
                cluster: "conformance".into(),
                name: NodeName::new(name).expect("a name"),
                session: SessionId::new(rand::random()),
                state: NodeState::Live,
                shards: 0,
                ttl_ms: 15_000,
                advertise: "127.0.0.1:7071".into(),
                zone: String::new(),
                cordoned: false,
                blind: false,
                software: "conformance".into(),
            },
        }
    }

    /// A node that has joined.
    async fn joined(bucket: &dyn Bucket, name: &str) -> Self {
        let node = Self::new(bucket, name);
        let Outcome::Won(seen) = node.setup(None).await else {
            panic!("the first session of {name} is not begun");
        };
        assert!(seen.tag.is_some(), "a record that was written has a tag");
        node
    }

    async fn run(&self, op: LeaseOp) -> OpResult {
        self.store.run(op, LIMIT).await
    }

    async fn setup(&self, over: Option<Tag>) -> Outcome<NodeSeen, NodeSeen> {
        let me = self.info.clone();
        match self.run(LeaseOp::Setup { me, over }).await {
            OpResult::Setup(outcome) => outcome,
            other => wrong("setup", &other),
        }
    }

    async fn heartbeat(&self, news: bool) -> Outcome<NodeSeen, NodeSeen> {
        self.beat(news, true).await
    }

    /// With `repair`, a record that is missing or unreadable is written anew.
    async fn beat(&self, news: bool, repair: bool) -> Outcome<NodeSeen, NodeSeen> {
        let me = self.info.clone();
        match self.run(LeaseOp::Heartbeat { me, news, repair }).await {
            OpResult::Heartbeat(outcome) => outcome,
            other => wrong("heartbeat", &other),
        }
    }

    async fn leave(&self) -> Outcome<NodeSeen, NodeSeen> {
        let me = self.info.clone();
        match self.run(LeaseOp::Leave { me }).await {
            OpResult::Leave(outcome) => outcome,
            other => wrong("leave", &other),
        }
    }

    async fn tombstone(&self, node: &NodeSeen, session: SessionId) -> Outcome<NodeSeen, NodeSeen> {
        let op = LeaseOp::Tombstone {
            node: node.name.clone(),
            session,
            tag: node.tag.clone(),
        };
        match self.run(op).await {
            OpResult::Tombstone(outcome) => outcome,
            other => wrong("tombstone", &other),
        }
    }

    async fn nodes(&self) -> Nodes {
        match self.run(LeaseOp::Nodes { all: false }).await {
            OpResult::Nodes(Ok(nodes)) => nodes,
            other => wrong("nodes", &other),
        }
    }

    /// What this node sees of another.
    async fn sees(&self, name: &NodeName) -> NodeSeen {
        let nodes = self.nodes().await.nodes;
        let seen = nodes.into_iter().find(|node| node.name == *name);
        seen.unwrap_or_else(|| panic!("{name} is not among the nodes"))
    }

    async fn owners(&self, all: bool) -> Owners {
        match self.run(LeaseOp::Owners { all }).await {
            OpResult::Owners(owners) if owners.failed.is_none() => owners,
            other => wrong("owners", &other),
        }
    }

    async fn read(&self, shard: u32) -> LeaseSeen {
        match self.run(LeaseOp::Read { shard }).await {
            OpResult::Read(Ok(seen)) => seen,
            other => wrong("read", &other),
        }
    }

    async fn try_claim(&self, claim: Claim) -> OpResult {
        self.run(LeaseOp::Claim {
            seen: claim.seen,
            above: claim.above,
            at_most: claim.at_most,
            ask_epoch: claim.ask_epoch,
            why: "a check".into(),
        })
        .await
    }

    async fn claim(&self, seen: &LeaseSeen) -> LeaseSeen {
        match self.try_claim(Claim::of(seen)).await {
            OpResult::Claim(Outcome::Won(seen)) => seen,
            other => wrong("claim of a lease that nobody else wants", &other),
        }
    }

    async fn release(
        &self,
        lease: &LeaseSeen,
        writer_epoch: Option<u64>,
        successor: Option<&NodeName>,
    ) -> Outcome<LeaseSeen, LeaseSeen> {
        let op = LeaseOp::Release {
            lease: lease.clone(),
            writer_epoch,
            successor: successor.cloned(),
            pinned: false,
            why: "a check".into(),
        };
        match self.run(op).await {
            OpResult::Release(outcome) => outcome,
            other => wrong("release", &other),
        }
    }

    fn owns(&self, lease: &LeaseSeen) -> bool {
        let owner = lease.record.owner.as_ref();
        owner
            .is_some_and(|owner| owner.name == self.info.name && owner.session == self.info.session)
    }
}

/// How a lease is claimed.
struct Claim {
    seen: LeaseSeen,
    above: u64,
    at_most: Option<u64>,
    ask_epoch: bool,
}

impl Claim {
    fn of(seen: &LeaseSeen) -> Self {
        Self {
            seen: seen.clone(),
            above: 0,
            at_most: None,
            ask_epoch: false,
        }
    }
}

fn wrong(what: &str, result: &OpResult) -> ! {
    panic!("{what} ended with {result:?}")
}

//! The operations on leases as machines over a store: an operation goes in, requests come out, replies go in, an outcome comes out.
//!
//! A write is conditional, and its body has a nonce of its own. When the store refuses it or nobody knows what became of it, the object
//! is read back: its nonce tells whose write it was. What is still not known then is unknown.
//!
//! - `node`: the session's record (setup, heartbeat, leave, tombstone);
//! - `shard`: a shard's lease (read, claim, renew, release);
//! - `list`: all nodes, and the leases that changed.

mod list;
mod node;
mod shard;

use std::collections::BTreeMap;

use list::{NodesJob, OwnersJob};
use node::NodeJob;
use shard::LeaseJob;

use super::object::{Condition, Key, ObjectReply, ObjectRequest, Tag};
use super::op::{LeaseOp, NodeSeen, OpId, OpResult, Renewal};
use super::record::{NodeInfo, NodeName, NodeRecord, Nonce, RecordError};
use crate::rng::Rng;
use crate::rules::{Mutation, Rules};

/// Names a request of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AskId(pub u32);

/// A request of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// Its name within the operation; comes back with the reply.
    pub id: AskId,
    /// The request.
    pub request: ObjectRequest,
}

/// What comes next in an operation.
#[expect(
    clippy::large_enum_variant,
    reason = "each is moved a few times and kept nowhere in numbers"
)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// These requests, all at once; none when replies to earlier ones are still awaited.
    Ask(Vec<Ask>),
    /// The operation has ended. Replies that are still to come go nowhere.
    Done(OpResult),
}

/// What a layout has to know.
#[derive(Debug, Clone)]
pub struct LayoutOptions {
    /// What keeps a lease alive.
    pub renewal: Renewal,
    /// The number of shards, 1 to [`super::record::MAX_SHARDS`].
    pub shards: u32,
    /// For the simulator only.
    pub rules: Rules,
}

/// A layout of leases in a store. One serves one node, over all its sessions.
#[derive(Debug)]
pub struct Layout {
    shared: Shared,
    jobs: BTreeMap<OpId, Running>,
}

/// An operation in flight.
#[derive(Debug)]
struct Running {
    op: LeaseOp,
    job: Job,
}

#[derive(Debug)]
enum Job {
    Node(NodeJob),
    Lease(LeaseJob),
    Nodes(NodesJob),
    Owners(OwnersJob),
}

impl Layout {
    /// A layout that has read nothing. `seed` is to be random: nonces come from it.
    #[must_use]
    pub fn new(options: LayoutOptions, seed: u128) -> Self {
        Self {
            shared: Shared {
                options,
                rng: Rng::new(seed),
                me: None,
                own: Own::default(),
                nodes: list::NodeCache::default(),
                leases: list::LeaseCache::default(),
            },
            jobs: BTreeMap::new(),
        }
    }

    /// Begins an operation. `wall_ms` is the wall clock in milliseconds since 1970; it goes into bodies for people and decides nothing.
    pub fn begin(&mut self, id: OpId, op: LeaseOp, wall_ms: u64) -> Step {
        let shared = &mut self.shared;
        let (job, step) = match op.clone() {
            LeaseOp::Nodes { all } => wrap(NodesJob::begin(shared, all), Job::Nodes),
            LeaseOp::Owners { all } => wrap(OwnersJob::begin(shared, all), Job::Owners),
            LeaseOp::Setup { me, .. } | LeaseOp::Heartbeat { me, .. } | LeaseOp::Leave { me } => {
                wrap(NodeJob::begin(shared, op.clone(), me.name), Job::Node)
            }
            LeaseOp::Tombstone { node, .. } => {
                wrap(NodeJob::begin(shared, op.clone(), node), Job::Node)
            }
            LeaseOp::Read { .. }
            | LeaseOp::Claim { .. }
            | LeaseOp::Renew { .. }
            | LeaseOp::Release { .. } => {
                wrap(LeaseJob::begin(shared, op.clone(), wall_ms), Job::Lease)
            }
        };
        if matches!(step, Step::Ask(_)) {
            self.jobs.insert(id, Running { op, job });
        }
        step
    }

    /// Takes a reply. One that belongs to no request in flight changes nothing.
    pub fn reply(&mut self, id: OpId, ask: AskId, reply: ObjectReply) -> Step {
        let Some(running) = self.jobs.get_mut(&id) else {
            return Step::Ask(Vec::new());
        };
        let shared = &mut self.shared;
        let step = match &mut running.job {
            Job::Node(job) => job.reply(shared, ask, reply),
            Job::Lease(job) => job.reply(shared, ask, reply),
            Job::Nodes(job) => job.reply(shared, ask, reply),
            Job::Owners(job) => job.reply(shared, ask, reply),
        };
        if matches!(step, Step::Done(_)) {
            self.jobs.remove(&id);
        }
        step
    }

    /// Gives an operation up, at its deadline: its outcome as far as it is known.
    pub fn abandon(&mut self, id: OpId) -> OpResult {
        let why = "it did not end within its deadline".to_owned();
        let Some(running) = self.jobs.remove(&id) else {
            return OpResult::Nodes(Err(format!("operation {} is not in flight", id.0)));
        };
        match running.job {
            Job::Node(job) => {
                job.abandon(&mut self.shared);
                running.op.unknown(why)
            }
            Job::Owners(job) => OpResult::Owners(job.so_far(&mut self.shared, why)),
            Job::Lease(_) | Job::Nodes(_) => running.op.unknown(why),
        }
    }
}

fn wrap<J>((job, step): (J, Step), job_of: impl Fn(J) -> Job) -> (Job, Step) {
    (job_of(job), step)
}

/// What all operations share.
#[derive(Debug)]
struct Shared {
    options: LayoutOptions,
    rng: Rng,
    /// The session that was last begun.
    me: Option<NodeInfo>,
    own: Own,
    nodes: list::NodeCache,
    leases: list::LeaseCache,
}

/// The own session's record.
#[derive(Debug, Default)]
struct Own {
    /// Its tag as this node wrote it; none when that is not sure.
    tag: Option<Tag>,
    /// What was last written.
    info: Option<NodeInfo>,
    counter: u64,
    changes: u64,
}

impl Shared {
    fn rules(&self) -> Rules {
        self.options.rules
    }

    /// A nonce that no body has had.
    fn nonce(&mut self) -> Nonce {
        let fresh = Nonce::new(self.rng.next_u128());
        let stale =
            self.rules().broken(Mutation::NoNonce) || self.rules().broken(Mutation::NoCounter);
        if stale { Nonce::new(0) } else { fresh }
    }

    /// The counter after this one.
    fn counter(&self, counter: u64) -> u64 {
        if self.rules().broken(Mutation::NoCounter) {
            counter
        } else {
            counter + 1
        }
    }
}

/// The condition that an object is still what was seen.
fn unchanged(tag: Option<&Tag>) -> Condition {
    tag.map_or(Condition::Create, |tag| Condition::Match(tag.clone()))
}

/// A single request of an operation that has one at a time.
fn ask(id: u32, request: ObjectRequest) -> Step {
    let id = AskId(id);
    Step::Ask(vec![Ask { id, request }])
}

/// A node's object as a read showed it.
fn node_seen(name: &NodeName, found: Option<(Tag, &[u8])>) -> NodeSeen {
    let (tag, record) = match found {
        Some((tag, body)) => (Some(tag), NodeRecord::decode(name, body)),
        None => {
            let object = Key::Node(name.clone()).object_name(1);
            let why = "there is no such object".into();
            (None, Err(RecordError::Malformed { object, why }))
        }
    };
    NodeSeen {
        name: name.clone(),
        tag,
        record,
    }
}

#[cfg(test)]
mod tests;

//! The operations on leases as machines over a store: an operation goes in, requests come out, replies go in, an outcome comes out.

use std::collections::BTreeMap;

use super::object::{ObjectReply, ObjectRequest};
use super::op::{LeaseOp, OpId, OpResult, Renewal};
use crate::rng::Rng;
use crate::rules::Rules;

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
    options: LayoutOptions,
    rng: Rng,
    ops: BTreeMap<OpId, LeaseOp>,
}

impl Layout {
    /// A layout that has read nothing. `seed` is to be random: nonces come from it.
    #[must_use]
    pub fn new(options: LayoutOptions, seed: u128) -> Self {
        Self {
            options,
            rng: Rng::new(seed),
            ops: BTreeMap::new(),
        }
    }

    /// Begins an operation. `wall_ms` is the wall clock in milliseconds since 1970; it goes into bodies for people and decides nothing.
    pub fn begin(&mut self, id: OpId, op: LeaseOp, wall_ms: u64) -> Step {
        let _ = (wall_ms, &self.options, self.rng.next_u64());
        self.ops.insert(id, op);
        Step::Ask(Vec::new())
    }

    /// Takes a reply. One that belongs to no request in flight changes nothing.
    pub fn reply(&mut self, id: OpId, ask: AskId, reply: ObjectReply) -> Step {
        let _ = (id, ask, reply);
        Step::Ask(Vec::new())
    }

    /// Gives an operation up, at its deadline: its outcome as far as it is known.
    pub fn abandon(&mut self, id: OpId) -> OpResult {
        self.ops
            .remove(&id)
            .map_or(OpResult::Nodes(Err(String::new())), |op| {
                op.unknown(String::new())
            })
    }
}

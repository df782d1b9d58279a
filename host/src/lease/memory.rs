//! Leases in this process's memory: for tests, and as the plainest example of a [`LeaseStore`].
//!
//! All nodes of a [`MemoryLeases::world`] see the same records. Each has faults of its own that come on demand: see [`Fault`].

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use quarry_core::lease::object::{ObjectReply, ObjectRequest, Tag};
use quarry_core::lease::op::{
    ClaimLost, LeaseOp, LeaseSeen, NodeSeen, Nodes, OpResult, Outcome, Owners, Renewal,
};
use quarry_core::lease::record::{
    LeaseRecord, MAX_GENERATION, NodeInfo, NodeName, NodeRecord, NodeState, Nonce, Owner, PROTOCOL,
    RecordError, SessionId,
};

use super::LeaseStore;
use super::objects::LeaseObjects;
use crate::clock;

/// What goes wrong with an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails, and nothing happened.
    FailBefore,
    /// It takes effect, and nobody learns of it.
    FailAfter,
    /// It takes effect this much later.
    Delay(Duration),
    /// It never ends.
    Hang,
}

/// What all nodes see.
#[derive(Debug)]
struct World {
    shards: u32,
    version: u64,
    nodes: BTreeMap<NodeName, (Tag, Result<NodeRecord, RecordError>)>,
    leases: BTreeMap<u32, (Tag, Result<LeaseRecord, RecordError>)>,
    epochs: BTreeMap<u32, u64>,
}

/// One node's view of leases in memory.
pub struct MemoryLeases {
    world: Arc<Mutex<World>>,
    /// Asked for the writer epochs of databases, where there are databases.
    databases: Option<LeaseObjects>,
    mine: Mutex<Mine>,
}

/// What one node knows, and what goes wrong for it.
#[derive(Debug, Default)]
struct Mine {
    me: Option<NodeInfo>,
    /// The tags of the leases that it was told of.
    told: BTreeMap<u32, Option<Tag>>,
    faults: VecDeque<Fault>,
    cut_off: bool,
}

impl MemoryLeases {
    /// The only node, so far, of a world of its own with so many shards. The writer epochs of its databases are what
    /// [`MemoryLeases::set_writer_epoch`] says.
    #[must_use]
    pub fn world(shards: u32) -> Self {
        Self {
            world: Arc::new(Mutex::new(World {
                shards,
                version: 0,
                nodes: BTreeMap::new(),
                leases: BTreeMap::new(),
                epochs: BTreeMap::new(),
            })),
            databases: None,
            mine: Mutex::default(),
        }
    }

    /// Another node of the same world, which has read nothing yet.
    #[must_use]
    pub fn another(&self) -> Self {
        Self {
            world: self.world.clone(),
            databases: self.databases.clone(),
            mine: Mutex::default(),
        }
    }

    /// Asks these databases for their writer epochs.
    #[must_use]
    pub fn over(self, databases: LeaseObjects) -> Self {
        Self {
            databases: Some(databases),
            ..self
        }
    }

    /// This goes wrong with the next operation for which nothing else does yet.
    pub fn fail(&self, fault: Fault) {
        lock(&self.mine).faults.push_back(fault);
    }

    /// Cuts this node off, or lets it back: while it is, every operation fails and nothing happens.
    pub fn partition(&self, cut_off: bool) {
        lock(&self.mine).cut_off = cut_off;
    }

    /// The writer epoch of a shard's database.
    pub fn set_writer_epoch(&self, shard: u32, epoch: u64) {
        lock(&self.world).epochs.insert(shard, epoch);
    }

    /// Overwrites a node's record with whatever bytes; none removes it.
    pub fn put_node(&self, name: &NodeName, body: Option<&[u8]>) {
        let mut world = lock(&self.world);
        let tag = world.tag();
        match body {
            Some(body) => {
                let record = NodeRecord::decode(name, body);
                world.nodes.insert(name.clone(), (tag, record));
            }
            None => drop(world.nodes.remove(name)),
        }
    }

    /// Overwrites a shard's lease with whatever bytes; none removes it.
    pub fn put_lease(&self, shard: u32, body: Option<&[u8]>) {
        let mut world = lock(&self.world);
        let tag = world.tag();
        match body {
            Some(body) => {
                let record = LeaseRecord::decode(shard, body);
                world.leases.insert(shard, (tag, record));
            }
            None => drop(world.leases.remove(&shard)),
        }
    }

    async fn carry_out(&self, op: &LeaseOp) -> OpResult {
        let epoch = match op {
            LeaseOp::Claim {
                seen, ask_epoch, ..
            } => match self.writer_epoch(seen, *ask_epoch).await {
                Ok(epoch) => epoch,
                Err(why) => return op.unknown(why),
            },
            _ => 0,
        };
        let (mut world, mut mine) = (lock(&self.world), lock(&self.mine));
        match op {
            LeaseOp::Setup { me, over } => {
                mine.me = Some(me.clone());
                OpResult::Setup(world.setup(me, over.as_ref()))
            }
            LeaseOp::Heartbeat { me, news, repair } => {
                OpResult::Heartbeat(world.keep(me, *news, *repair))
            }
            LeaseOp::Leave { me } => {
                let me = NodeInfo {
                    state: NodeState::Left,
                    ..me.clone()
                };
                OpResult::Leave(world.keep(&me, true, true))
            }
            LeaseOp::Tombstone { node, session, tag } => {
                OpResult::Tombstone(world.tombstone(node, *session, tag.as_ref(), &mine))
            }
            LeaseOp::Nodes { .. } => OpResult::Nodes(Ok(world.all_nodes())),
            LeaseOp::Owners { .. } => OpResult::Owners(world.owners(&mut mine.told)),
            LeaseOp::Read { shard } => {
                let seen = world.lease(*shard);
                mine.told.insert(*shard, seen.tag.clone());
                OpResult::Read(Ok(seen))
            }
            LeaseOp::Claim { .. } | LeaseOp::Renew { .. } | LeaseOp::Release { .. } => {
                let Some(me) = &mine.me else {
                    return op.unknown("this node has no session".into());
                };
                let me = Owner {
                    name: me.name.clone(),
                    session: me.session,
                };
                let (shard, result) = world.change(op, me, epoch);
                mine.told.insert(shard, world.lease(shard).tag);
                result
            }
        }
    }

    async fn writer_epoch(&self, seen: &LeaseSeen, ask: bool) -> Result<u64, String> {
        let told = seen.record.writer_epoch;
        let free = seen.record.owner.is_none() && !seen.vanished() && !ask;
        if let Some(epoch) = told.filter(|_| free) {
            return Ok(epoch);
        }
        let shard = seen.record.shard;
        let Some(databases) = &self.databases else {
            return Ok(lock(&self.world).epochs.get(&shard).copied().unwrap_or(0));
        };
        match databases.ask(ObjectRequest::WriterEpoch { shard }).await {
            ObjectReply::WriterEpoch(epoch) => Ok(epoch),
            ObjectReply::Failed { message, .. } => Err(message),
            other => Err(format!("an answer to something else: {other:?}")),
        }
    }
}

#[async_trait]
impl LeaseStore for MemoryLeases {
    fn renewal(&self) -> Renewal {
        Renewal::Session
    }

    async fn run(&self, op: LeaseOp, limit: Duration) -> OpResult {
        let fault = {
            let mut mine = lock(&self.mine);
            if mine.cut_off {
                Some(Fault::FailBefore)
            } else {
                mine.faults.pop_front()
            }
        };
        let reads = matches!(
            op,
            LeaseOp::Nodes { .. } | LeaseOp::Owners { .. } | LeaseOp::Read { .. }
        );
        let run = async {
            match fault {
                None => self.carry_out(&op).await,
                // What was told and not heard would be told never again.
                Some(Fault::FailAfter) if reads => op.unknown("failed on demand".into()),
                Some(Fault::FailBefore) => op.unknown("failed on demand".into()),
                Some(Fault::FailAfter) => {
                    drop(self.carry_out(&op).await);
                    op.unknown("failed on demand, after the effect".into())
                }
                Some(Fault::Delay(time)) => {
                    clock::sleep(time).await;
                    self.carry_out(&op).await
                }
                Some(Fault::Hang) => std::future::pending().await,
            }
        };
        match clock::timeout(limit, run).await {
            Ok(result) => result,
            Err(_) => op.unknown(format!("no answer within {limit:?}")),
        }
    }
}

impl World {
    fn tag(&mut self) -> Tag {
        self.version += 1;
        Tag::e_tag(&self.version.to_string())
    }

    fn node(&self, name: &NodeName) -> NodeSeen {
        match self.nodes.get(name) {
            Some((tag, record)) => NodeSeen {
                name: name.clone(),
                tag: Some(tag.clone()),
                record: record.clone(),
            },
            None => NodeSeen {
                name: name.clone(),
                tag: None,
                record: Err(RecordError::Malformed {
                    object: format!("nodes/{name}.json"),
                    why: "there is no such object".into(),
                }),
            },
        }
    }

    fn put(&mut self, info: NodeInfo, news: bool) -> NodeSeen {
        let tag = self.tag();
        let before = self.nodes.get(&info.name);
        let before = before.and_then(|(_, record)| record.as_ref().ok());
        let changed = before.is_none_or(|before| before.info != info) || news;
        let (counter, changes) = before.map_or((0, 0), |before| (before.counter, before.changes));
        let name = info.name.clone();
        let record = NodeRecord {
            info,
            counter: counter + 1,
            nonce: Nonce::new(rand::random()),
            changes: changes + u64::from(changed),
        };
        self.nodes.insert(name.clone(), (tag, Ok(record)));
        self.node(&name)
    }

    fn setup(&mut self, me: &NodeInfo, over: Option<&Tag>) -> Outcome<NodeSeen, NodeSeen> {
        let seen = self.node(&me.name);
        let stayed = match (&seen.tag, over) {
            (None, over) => over.is_none(),
            (Some(tag), Some(over)) => over.same(tag),
            _ => false,
        };
        let free = match &seen.record {
            Ok(record) if record.info.session == me.session => !record.info.state.is_over(),
            Ok(record) => record.info.state.is_over() || stayed,
            Err(_) => stayed,
        };
        if free {
            Outcome::Won(self.put(me.clone(), true))
        } else {
            Outcome::Lost(seen)
        }
    }

    /// Over the own session only; a record that is missing or cannot be read is written anew where it is to be repaired.
    fn keep(&mut self, me: &NodeInfo, news: bool, repair: bool) -> Outcome<NodeSeen, NodeSeen> {
        let seen = self.node(&me.name);
        match &seen.record {
            Err(_) if !repair => Outcome::Lost(seen),
            Ok(record) if record.info.session != me.session || record.info.state.is_over() => {
                Outcome::Lost(seen)
            }
            _ => Outcome::Won(self.put(me.clone(), news)),
        }
    }

    /// Over the very record that stayed, or over none where it is gone.
    fn tombstone(
        &mut self,
        name: &NodeName,
        session: SessionId,
        stayed: Option<&Tag>,
        mine: &Mine,
    ) -> Outcome<NodeSeen, NodeSeen> {
        let seen = self.node(name);
        let over =
            |record: &NodeRecord| record.info.session != session || record.info.state.is_over();
        if seen.tag.as_ref() != stayed || seen.record.as_ref().is_ok_and(over) {
            return Outcome::Lost(seen);
        }
        let dead = match seen.record {
            Ok(record) => record.info,
            Err(_) => NodeInfo {
                protocol: PROTOCOL,
                cluster: mine
                    .me
                    .as_ref()
                    .map(|me| me.cluster.clone())
                    .unwrap_or_default(),
                name: name.clone(),
                session,
                state: NodeState::Dead,
                shards: 0,
                ttl_ms: 0,
                advertise: String::new(),
                zone: String::new(),
                cordoned: false,
                blind: false,
                software: String::new(),
            },
        };
        let info = NodeInfo {
            state: NodeState::Dead,
            ..dead
        };
        Outcome::Won(self.put(info, true))
    }

    fn all_nodes(&self) -> Nodes {
        Nodes {
            nodes: self.nodes.keys().map(|name| self.node(name)).collect(),
            strangers: 0,
        }
    }

    fn lease(&self, shard: u32) -> LeaseSeen {
        match self.leases.get(&shard) {
            None => LeaseSeen::missing(shard),
            Some((tag, Ok(record))) => LeaseSeen {
                tag: Some(tag.clone()),
                record: record.clone(),
                corrupt: None,
            },
            Some((tag, Err(error))) => LeaseSeen {
                tag: Some(tag.clone()),
                record: LeaseRecord::vacant(shard),
                corrupt: Some(error.clone()),
            },
        }
    }

    fn owners(&self, told: &mut BTreeMap<u32, Option<Tag>>) -> Owners {
        let mut changed = Vec::new();
        for shard in 0..self.shards {
            let seen = self.lease(shard);
            if told.get(&shard) != Some(&seen.tag) {
                told.insert(shard, seen.tag.clone());
                changed.push(seen);
            }
        }
        Owners {
            changed,
            failed: None,
        }
    }

    /// Claims, renews or releases, if the lease is still what was seen.
    fn change(&mut self, op: &LeaseOp, me: Owner, epoch: u64) -> (u32, OpResult) {
        let now_ms = u64::try_from(clock::wall_ms()).unwrap_or_default();
        let (seen, record) = match op {
            LeaseOp::Claim {
                seen, above, why, ..
            } => {
                let record = LeaseRecord {
                    owner: Some(me),
                    generation: generation(seen, *above, epoch),
                    writer_epoch: Some(epoch),
                    successor: None,
                    since_ms: now_ms,
                    why: why.clone(),
                    ..seen.record.clone()
                };
                (seen, record)
            }
            LeaseOp::Release {
                lease,
                writer_epoch,
                successor,
                pinned,
                why,
            } => {
                let record = LeaseRecord {
                    owner: None,
                    writer_epoch: *writer_epoch,
                    successor: successor.clone(),
                    pinned: *pinned,
                    since_ms: now_ms,
                    why: why.clone(),
                    ..lease.record.clone()
                };
                (lease, record)
            }
            LeaseOp::Renew { lease } => (lease, lease.record.clone()),
            other => return (0, other.unknown("it changes no lease".into())),
        };
        let shard = seen.record.shard;
        let opened = match op {
            LeaseOp::Claim { at_most, .. } => at_most.is_some_and(|most| epoch > most),
            _ => false,
        };
        let now = self.lease(shard);
        let won = now.tag == seen.tag && !opened;
        if won {
            let tag = self.tag();
            let record = LeaseRecord {
                counter: record.counter + 1,
                nonce: Nonce::new(rand::random()),
                ..record
            };
            self.leases.insert(shard, (tag, Ok(record)));
        }
        let stands = self.lease(shard);
        let result = match op {
            LeaseOp::Claim { .. } if won => OpResult::Claim(Outcome::Won(stands)),
            LeaseOp::Claim { .. } if opened => OpResult::Claim(Outcome::Lost(ClaimLost::Opened {
                writer_epoch: epoch,
            })),
            LeaseOp::Claim { .. } => OpResult::Claim(Outcome::Lost(ClaimLost::Changed(stands))),
            LeaseOp::Renew { .. } if won => OpResult::Renew(Outcome::Won(stands)),
            LeaseOp::Renew { .. } => OpResult::Renew(Outcome::Lost(stands)),
            _ if won => OpResult::Release(Outcome::Won(stands)),
            _ => OpResult::Release(Outcome::Lost(stands)),
        };
        (shard, result)
    }
}

/// Above the lease's own generation, above any that was seen, and above the database's writer epoch: far above where the lease is gone and
/// may have been ahead. A number at the end of the range is a body's invention.
fn generation(seen: &LeaseSeen, above: u64, epoch: u64) -> u64 {
    let sane = |number: u64| Some(number).filter(|number| number + 1 < MAX_GENERATION);
    let numbers = [seen.record.generation, above, epoch].map(|number| sane(number).unwrap_or(0));
    let next = numbers.into_iter().max().unwrap_or(0) + 1;
    if seen.vanished() && epoch > 0 {
        return next.max((numbers[2] + 1) << 20);
    }
    next
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

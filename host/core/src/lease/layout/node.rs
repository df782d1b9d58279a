//! A node's session record: begin a session, keep it alive, end it; and end that of a peer.

use super::{AskId, Shared, Step, ask, node_seen, unchanged};
use crate::lease::object::{Condition, Key, ObjectReply, ObjectRequest, Tag};
use crate::lease::op::{LeaseOp, NodeSeen, OpResult, Outcome};
use crate::lease::record::{NodeInfo, NodeName, NodeRecord, NodeState, Nonce, PROTOCOL, SessionId};
use crate::rules::Mutation;

/// How often a write is repeated against what was read back.
const ATTEMPTS: u32 = 3;

/// An operation on one node's record.
#[derive(Debug)]
pub(super) struct NodeJob {
    op: LeaseOp,
    name: NodeName,
    /// The tag that the last write was conditional on.
    over: Option<Tag>,
    /// The record that is being written, if a write is in flight or in doubt.
    writing: Option<NodeRecord>,
    /// The nonces of this operation's writes: any of them proves that a write was ours.
    nonces: Vec<Nonce>,
    attempts: u32,
    asked: u32,
    reading: bool,
}

impl NodeJob {
    pub(super) fn begin(shared: &mut Shared, op: LeaseOp, name: NodeName) -> (Self, Step) {
        if let LeaseOp::Setup { me, .. } = &op {
            shared.me = Some(me.clone());
            // Without a predecessor, a size that peers have hardly seen.
            shared.own = super::Own {
                changes: shared.rng.next_u64() % 1024,
                ..super::Own::default()
            };
        }
        let mut job = Self {
            op,
            name,
            over: None,
            writing: None,
            nonces: Vec::new(),
            attempts: 0,
            asked: 0,
            reading: false,
        };
        let step = match (&job.op, shared.own.tag.clone()) {
            (LeaseOp::Heartbeat { .. } | LeaseOp::Leave { .. }, Some(tag)) => {
                job.rewrite(shared, Some(tag), None)
            }
            _ => job.read(),
        };
        (job, step)
    }

    pub(super) fn reply(&mut self, shared: &mut Shared, id: AskId, reply: ObjectReply) -> Step {
        if id.0 != self.asked {
            return Step::Ask(Vec::new());
        }
        if self.reading {
            return match reply {
                ObjectReply::Found { tag, body } => {
                    let seen = node_seen(&self.name, Some((tag, &body)));
                    self.look(shared, seen)
                }
                ObjectReply::Missing => self.look(shared, node_seen(&self.name, None)),
                ObjectReply::Failed { message, .. } => self.unknown(shared, message),
                other => self.unknown(shared, format!("the store answered {other:?} to a read")),
            };
        }
        match reply {
            ObjectReply::Written(tag) => self.won(shared, tag),
            ObjectReply::Conflict | ObjectReply::Missing => self.read(),
            ObjectReply::Failed {
                maybe_applied,
                message,
            } => {
                if shared.rules().broken(Mutation::UnknownIsWon) {
                    let tag = shared.own.tag.clone();
                    return self.won(shared, tag.unwrap_or(Tag::e_tag("?")));
                }
                if shared.rules().broken(Mutation::UnknownIsLost) {
                    let seen = node_seen(&self.name, None);
                    return self.lost(shared, seen);
                }
                if maybe_applied {
                    return self.read();
                }
                // It surely was not written: the tag is as good as it was.
                if !matches!(self.op, LeaseOp::Tombstone { .. }) {
                    shared.own.tag = self.over.take();
                }
                Step::Done(self.op.unknown(message))
            }
            other => self.unknown(shared, format!("the store answered {other:?} to a write")),
        }
    }

    /// At the deadline: whether the last write was carried out is not known.
    pub(super) fn abandon(self, shared: &mut Shared) {
        if !matches!(self.op, LeaseOp::Tombstone { .. }) {
            shared.own.tag = None;
        }
    }

    /// A read showed the record: it is ours, it may be written, or it is somebody else's.
    fn look(&mut self, shared: &mut Shared, seen: NodeSeen) -> Step {
        if let (Some(tag), Ok(record), Some(_)) = (&seen.tag, &seen.record, &self.writing)
            && self.nonces.contains(&record.nonce)
        {
            let tag = tag.clone();
            self.writing = Some(record.clone());
            return self.won(shared, tag);
        }
        if self.attempts >= ATTEMPTS {
            let why = format!("{} attempts to write it met other writes", self.attempts);
            return self.unknown(shared, why);
        }
        match self.op.clone() {
            LeaseOp::Setup { me, over } => self.setup(shared, me.session, over.as_ref(), seen),
            LeaseOp::Tombstone { session, tag, .. } => {
                self.tombstone(shared, session, tag.as_ref(), seen)
            }
            _ => self.keep(shared, seen),
        }
    }

    /// Setup: over nothing (unless a session was seen there), over a session that has ended, or over one that did not change for a TTL.
    fn setup(
        &mut self,
        shared: &mut Shared,
        session: SessionId,
        over: Option<&Tag>,
        seen: NodeSeen,
    ) -> Step {
        let waits = over.is_some() && !shared.rules().broken(Mutation::SetupOverMissing);
        let Some(tag) = seen.tag.clone() else {
            return if waits {
                self.lost(shared, seen)
            } else {
                self.rewrite(shared, None, None)
            };
        };
        let stayed = over.is_some_and(|over| over.same(&tag));
        let free = match &seen.record {
            // An earlier attempt of this very setup came through.
            Ok(record) if record.info.session == session => !record.info.state.is_over(),
            Ok(record) => record.info.state.is_over() || stayed,
            Err(_) => stayed,
        };
        let free = free || shared.rules().broken(Mutation::SetupOverLive);
        if free {
            return self.rewrite(shared, Some(tag), Some(&seen));
        }
        self.lost(shared, seen)
    }

    /// Heartbeat and leave: over the own session only, however its record was damaged.
    fn keep(&mut self, shared: &mut Shared, seen: NodeSeen) -> Step {
        let session = shared.me.as_ref().map(|me| me.session);
        let repair = !matches!(self.op, LeaseOp::Heartbeat { repair: false, .. });
        match &seen.record {
            Err(_) if !repair => self.lost(shared, seen),
            Ok(record) if Some(record.info.session) != session || record.info.state.is_over() => {
                self.lost(shared, seen)
            }
            _ => self.rewrite(shared, seen.tag.clone(), Some(&seen)),
        }
    }

    /// Tombstone: over the very record that stayed.
    fn tombstone(
        &mut self,
        shared: &mut Shared,
        session: SessionId,
        stayed: Option<&Tag>,
        seen: NodeSeen,
    ) -> Step {
        let same = match (&seen.tag, stayed) {
            (Some(now), Some(then)) => now.same(then),
            (None, None) => true,
            _ => false,
        };
        let ended =
            |record: &NodeRecord| record.info.session != session || record.info.state.is_over();
        let over = seen.record.as_ref().is_ok_and(ended);
        if over || !(same || shared.rules().broken(Mutation::TombstoneAnyTag)) {
            return self.lost(shared, seen);
        }
        let record = match &seen.record {
            Ok(record) => NodeRecord {
                info: NodeInfo {
                    state: NodeState::Dead,
                    ..record.info.clone()
                },
                ..record.clone()
            },
            Err(_) => NodeRecord {
                info: NodeInfo {
                    protocol: PROTOCOL,
                    cluster: shared
                        .me
                        .as_ref()
                        .map(|me| me.cluster.clone())
                        .unwrap_or_default(),
                    name: self.name.clone(),
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
                counter: 0,
                nonce: Nonce::new(0),
                changes: 0,
            },
        };
        self.write(shared, seen.tag, record)
    }

    /// Writes the own record; `seen` is what stands there when that is not what was last written.
    fn rewrite(&mut self, shared: &mut Shared, tag: Option<Tag>, seen: Option<&NodeSeen>) -> Step {
        let (info, news) = match &self.op {
            LeaseOp::Setup { me, .. } => (me.clone(), true),
            LeaseOp::Heartbeat { me, news, .. } => (me.clone(), *news),
            LeaseOp::Leave { me } => (
                NodeInfo {
                    state: NodeState::Left,
                    ..me.clone()
                },
                true,
            ),
            _ => return self.read(),
        };
        let own = &mut shared.own;
        if let Some(Ok(record)) = seen.map(|seen| &seen.record) {
            own.counter = own.counter.max(record.counter);
            own.changes = own.changes.max(record.changes);
        }
        // A body of another size tells peers to look, so what replaces an unreadable one counts as a change, too.
        let damaged = seen.is_some_and(|seen| seen.record.is_err());
        if own.info.as_ref() != Some(&info) || news || damaged {
            own.changes += 1;
        }
        own.info = Some(info.clone());
        let record = NodeRecord {
            info,
            counter: own.counter,
            nonce: Nonce::new(0),
            changes: own.changes,
        };
        self.write(shared, tag, record)
    }

    fn write(&mut self, shared: &mut Shared, tag: Option<Tag>, record: NodeRecord) -> Step {
        let record = NodeRecord {
            counter: shared.counter(record.counter),
            nonce: shared.nonce(),
            changes: record.changes + u64::from(matches!(self.op, LeaseOp::Tombstone { .. })),
            ..record
        };
        let body = match record.encode() {
            Ok(body) => body,
            Err(error) => return self.unknown(shared, error.to_string()),
        };
        if !matches!(self.op, LeaseOp::Tombstone { .. }) {
            shared.own.counter = record.counter;
            // Until the reply is there, nobody knows what stands there.
            shared.own.tag = None;
        }
        self.over.clone_from(&tag);
        self.nonces.push(record.nonce);
        self.writing = Some(record);
        self.attempts += 1;
        self.reading = false;
        let blind = shared.rules().broken(Mutation::TombstoneAnyTag)
            && matches!(self.op, LeaseOp::Tombstone { .. });
        let condition = if blind {
            Condition::Always
        } else {
            unchanged(tag.as_ref())
        };
        let key = Key::Node(self.name.clone());
        self.ask(ObjectRequest::Put {
            key,
            body,
            condition,
        })
    }

    fn read(&mut self) -> Step {
        self.reading = true;
        self.ask(ObjectRequest::Get(Key::Node(self.name.clone())))
    }

    fn won(&mut self, shared: &mut Shared, tag: Tag) -> Step {
        let Some(record) = self.writing.take() else {
            return self.unknown(shared, "nothing was written".into());
        };
        if !matches!(self.op, LeaseOp::Tombstone { .. }) {
            shared.own.tag = Some(tag.clone());
        }
        let seen = NodeSeen {
            name: self.name.clone(),
            tag: Some(tag),
            record: Ok(record),
        };
        Step::Done(self.result(Outcome::Won(seen)))
    }

    fn lost(&self, shared: &mut Shared, seen: NodeSeen) -> Step {
        if !matches!(self.op, LeaseOp::Tombstone { .. }) {
            shared.own.tag = None;
        }
        Step::Done(self.result(Outcome::Lost(seen)))
    }

    fn unknown(&self, shared: &mut Shared, why: String) -> Step {
        if !matches!(self.op, LeaseOp::Tombstone { .. }) {
            shared.own.tag = None;
        }
        Step::Done(self.op.unknown(why))
    }

    fn result(&self, outcome: Outcome<NodeSeen, NodeSeen>) -> OpResult {
        match self.op {
            LeaseOp::Setup { .. } => OpResult::Setup(outcome),
            LeaseOp::Tombstone { .. } => OpResult::Tombstone(outcome),
            LeaseOp::Leave { .. } => OpResult::Leave(outcome),
            _ => OpResult::Heartbeat(outcome),
        }
    }

    fn ask(&mut self, request: ObjectRequest) -> Step {
        self.asked += 1;
        ask(self.asked, request)
    }
}

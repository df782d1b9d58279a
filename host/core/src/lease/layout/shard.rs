//! One shard's lease: read it, claim it, renew it, free it.

use super::{AskId, Shared, Step, ask, unchanged};
use crate::lease::object::{Condition, Key, ObjectReply, ObjectRequest, Tag};
use crate::lease::op::{ClaimLost, LeaseOp, LeaseSeen, OpResult, Outcome};
use crate::lease::record::{LeaseRecord, MAX_GENERATION, Owner};
use crate::rules::Mutation;

/// An operation on one lease.
#[derive(Debug)]
pub(super) struct LeaseJob {
    op: LeaseOp,
    /// The session that it is carried out for, whatever begins meanwhile.
    me: Option<Owner>,
    shard: u32,
    /// The lease that the write is conditional on; for a read, nothing in particular.
    seen: LeaseSeen,
    wall_ms: u64,
    phase: Phase,
    asked: u32,
}

#[derive(Debug)]
enum Phase {
    /// The lease is read, and that is all.
    Read,
    /// The database is asked for its writer epoch.
    Epoch,
    /// The lease is written.
    Write(LeaseRecord),
    /// The lease is read back, to see whose write stands there.
    Check(LeaseRecord),
}

impl LeaseJob {
    pub(super) fn begin(shared: &mut Shared, op: LeaseOp, wall_ms: u64) -> (Self, Step) {
        let seen = match &op {
            LeaseOp::Claim { seen, .. } => seen.clone(),
            LeaseOp::Renew { lease } | LeaseOp::Release { lease, .. } => lease.clone(),
            LeaseOp::Read { shard } => LeaseSeen::missing(*shard),
            _ => LeaseSeen::missing(0),
        };
        let me = shared.me.as_ref().map(|me| Owner {
            name: me.name.clone(),
            session: me.session,
        });
        let mut job = Self {
            shard: seen.record.shard,
            op,
            me,
            seen,
            wall_ms,
            phase: Phase::Read,
            asked: 0,
        };
        let step = job.first(shared);
        (job, step)
    }

    fn first(&mut self, shared: &mut Shared) -> Step {
        let Some(me) = self.me.clone() else {
            if matches!(self.op, LeaseOp::Read { .. }) {
                return self.read();
            }
            return Step::Done(self.op.unknown("this node has no session".into()));
        };
        match self.op.clone() {
            LeaseOp::Claim { ask_epoch, .. } => {
                let record = &self.seen.record;
                let told = record
                    .writer_epoch
                    .filter(|_| record.owner.is_none() && !ask_epoch);
                match told.filter(|_| !self.seen.vanished()) {
                    Some(epoch) => self.claim(shared, epoch),
                    None => {
                        self.phase = Phase::Epoch;
                        self.ask(ObjectRequest::WriterEpoch { shard: self.shard })
                    }
                }
            }
            LeaseOp::Renew { lease } => {
                let owner = Some(me);
                self.write(
                    shared,
                    LeaseRecord {
                        owner,
                        ..lease.record
                    },
                )
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
                    writer_epoch,
                    successor,
                    pinned,
                    since_ms: self.wall_ms,
                    why,
                    ..lease.record
                };
                self.write(shared, record)
            }
            _ => self.read(),
        }
    }

    pub(super) fn reply(&mut self, shared: &mut Shared, id: AskId, reply: ObjectReply) -> Step {
        if id.0 != self.asked {
            return Step::Ask(Vec::new());
        }
        match (&self.phase, reply) {
            (Phase::Epoch, ObjectReply::WriterEpoch(writer_epoch)) => {
                let most = match self.op {
                    LeaseOp::Claim { at_most, .. } => at_most.unwrap_or(u64::MAX),
                    _ => u64::MAX,
                };
                if writer_epoch > most {
                    let lost = ClaimLost::Opened { writer_epoch };
                    return Step::Done(OpResult::Claim(Outcome::Lost(lost)));
                }
                self.claim(shared, writer_epoch)
            }
            (Phase::Write(record), ObjectReply::Written(tag)) => {
                let record = record.clone();
                self.won(shared, tag, record)
            }
            (Phase::Write(record), ObjectReply::Conflict | ObjectReply::Missing) => {
                let record = record.clone();
                self.check(record)
            }
            (
                Phase::Write(record),
                ObjectReply::Failed {
                    maybe_applied,
                    message,
                },
            ) => {
                let record = record.clone();
                if shared.rules().broken(Mutation::UnknownIsWon) {
                    return self.won(
                        shared,
                        self.seen.tag.clone().unwrap_or(Tag::e_tag("?")),
                        record,
                    );
                }
                if shared.rules().broken(Mutation::UnknownIsLost) {
                    return self.lost(shared, self.seen.clone());
                }
                if maybe_applied {
                    return self.check(record);
                }
                Step::Done(self.op.unknown(message))
            }
            (Phase::Read | Phase::Check(_), ObjectReply::Found { tag, body }) => {
                let seen = lease_seen(self.shard, Some((tag, &body)));
                self.seen_again(shared, seen)
            }
            (Phase::Read | Phase::Check(_), ObjectReply::Missing) => {
                self.seen_again(shared, LeaseSeen::missing(self.shard))
            }
            (_, ObjectReply::Failed { message, .. }) => {
                shared.leases.forget(self.shard);
                Step::Done(self.op.unknown(message))
            }
            (phase, reply) => {
                let why = format!(
                    "the store answered {reply:?} in {phase:?}, which is no answer to that"
                );
                Step::Done(self.op.unknown(why))
            }
        }
    }

    /// What a read showed: the answer to a read, or whose write stands there.
    fn seen_again(&mut self, shared: &mut Shared, seen: LeaseSeen) -> Step {
        match &self.phase {
            Phase::Check(written)
                if seen.tag.is_some()
                    && seen.record.nonce == written.nonce
                    && seen.corrupt.is_none() =>
            {
                let record = written.clone();
                match seen.tag {
                    Some(tag) => self.won(shared, tag, record),
                    None => self.read(),
                }
            }
            Phase::Check(_) => {
                let unchanged = match (&seen.tag, &self.seen.tag) {
                    (Some(now), Some(then)) => now.same(then),
                    (None, None) => true,
                    _ => false,
                };
                if unchanged {
                    shared.leases.forget(self.shard);
                    let why = "the write did not show; it may yet come".into();
                    return Step::Done(self.op.unknown(why));
                }
                self.lost(shared, seen)
            }
            _ => {
                shared.leases.told(self.shard, seen.tag.clone());
                Step::Done(OpResult::Read(Ok(seen)))
            }
        }
    }

    /// Writes the lease with this session as its owner.
    fn claim(&mut self, shared: &mut Shared, writer_epoch: u64) -> Step {
        let LeaseOp::Claim { above, why, .. } = &self.op else {
            return self.read();
        };
        let old = &self.seen.record;
        let record = LeaseRecord {
            owner: self.me.clone(),
            generation: generation(shared, &self.seen, *above, writer_epoch),
            writer_epoch: Some(writer_epoch),
            successor: None,
            // Who takes it over from one that died is nobody's choice.
            pinned: old.pinned && old.owner.is_none(),
            since_ms: self.wall_ms,
            why: why.clone(),
            ..old.clone()
        };
        self.write(shared, record)
    }

    fn write(&mut self, shared: &mut Shared, record: LeaseRecord) -> Step {
        let record = LeaseRecord {
            counter: shared.counter(record.counter),
            nonce: shared.nonce(),
            ..record
        };
        let body = record.encode();
        self.phase = Phase::Write(record);
        let any = shared.rules().broken(Mutation::ClaimWithoutCas)
            && matches!(self.op, LeaseOp::Claim { .. });
        self.ask(ObjectRequest::Put {
            key: Key::Lease(self.shard),
            body,
            condition: if any {
                Condition::Always
            } else {
                unchanged(self.seen.tag.as_ref())
            },
        })
    }

    fn read(&mut self) -> Step {
        self.ask(ObjectRequest::Get(Key::Lease(self.shard)))
    }

    fn check(&mut self, record: LeaseRecord) -> Step {
        self.phase = Phase::Check(record);
        self.read()
    }

    fn won(&self, shared: &mut Shared, tag: Tag, record: LeaseRecord) -> Step {
        shared.leases.told(self.shard, Some(tag.clone()));
        let written = LeaseSeen {
            tag: Some(tag),
            record,
            corrupt: None,
        };
        Step::Done(match self.op {
            LeaseOp::Claim { .. } => OpResult::Claim(Outcome::Won(written)),
            LeaseOp::Renew { .. } => OpResult::Renew(Outcome::Won(written)),
            _ => OpResult::Release(Outcome::Won(written)),
        })
    }

    fn lost(&self, shared: &mut Shared, seen: LeaseSeen) -> Step {
        shared.leases.told(self.shard, seen.tag.clone());
        Step::Done(match self.op {
            LeaseOp::Claim { .. } => OpResult::Claim(Outcome::Lost(ClaimLost::Changed(seen))),
            LeaseOp::Renew { .. } => OpResult::Renew(Outcome::Lost(seen)),
            _ => OpResult::Release(Outcome::Lost(seen)),
        })
    }

    fn ask(&mut self, request: ObjectRequest) -> Step {
        self.asked += 1;
        ask(self.asked, request)
    }
}

/// The generation of a new claim: above the lease's own, above any that this node has seen, and above the database's writer epoch.
///
/// The lease counts claims and the database counts opens, so a lease that vanished may have been ahead of the epoch. Then the number
/// starts in a range of its own for each epoch: generations under which a database was opened never repeat, however often leases are
/// lost.
fn generation(shared: &Shared, seen: &LeaseSeen, above: u64, writer_epoch: u64) -> u64 {
    if shared.rules().broken(Mutation::GenerationReused) {
        return seen.record.generation.max(1);
    }
    if shared.rules().broken(Mutation::GenerationIgnoresEpoch) {
        return seen.record.generation + 1;
    }
    // A body can hold any number: one at the end of the range must not lock the shard for ever.
    let sane = |number: u64| {
        if number + 1 < MAX_GENERATION {
            number
        } else {
            0
        }
    };
    let floor = sane(seen.record.generation)
        .max(sane(writer_epoch))
        .max(sane(above));
    if seen.vanished() && writer_epoch > 0 {
        return (floor + 1).max((sane(writer_epoch) + 1) << 20);
    }
    floor + 1
}

/// A lease's object as a read showed it.
pub(super) fn lease_seen(shard: u32, found: Option<(Tag, &[u8])>) -> LeaseSeen {
    let Some((tag, body)) = found else {
        return LeaseSeen::missing(shard);
    };
    match LeaseRecord::decode(shard, body) {
        Ok(record) => LeaseSeen {
            tag: Some(tag),
            record,
            corrupt: None,
        },
        Err(error) => LeaseSeen {
            tag: Some(tag),
            record: LeaseRecord::vacant(shard),
            corrupt: Some(error),
        },
    }
}

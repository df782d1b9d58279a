//! Rollouts in a world: nodes that follow the record and adopt what it says, those that carry it on, and operators. What decides is
//! `quarry_core::deploy`; what is modelled is what a host does with it.
//!
//! - This file is the record in the store: requests for it take as long, and end as badly, as any other.
//! - `adopter` has the shards of a node run what the record says, `coordinator` carries a rollout on, `operators` order and wait.
//! - `checks` judges all that.
//!
//! All chances are drawn from a stream of their own: whatever rollouts do moves nothing of leases.

mod adopter;
mod checks;
mod coordinator;
mod operators;

use std::collections::BTreeMap;

use quarry_core::deploy::{ROLLOUT, RolloutRecord};
use quarry_core::lease::record::Nonce;
use quarry_core::rules::Mutation;

use super::super::queue::Time;
use super::super::rng::Rng;
use super::super::store::{Answer, Condition, Way, fate};
use super::World;
use super::event::Event;
use super::process::ProcessId;
pub use adopter::Adopter;
use checks::Chronicle;
use coordinator::Said;
use operators::Operator;

/// What rollouts have of a world.
#[derive(Debug)]
pub struct Rollouts {
    rng: Rng,
    next: u64,
    accesses: BTreeMap<u64, Access>,
    operators: Vec<Operator>,
    chronicle: Chronicle,
}

/// What happens in rollouts.
#[derive(Debug, Clone)]
pub enum Work {
    /// A node looks at the record; at its shards; at the rollout.
    Poll,
    Adopt,
    Look,
    /// A node has fetched and compiled a revision, or found that it cannot run it.
    Loaded(u64),
    /// A shard's swap is done, under this handle.
    Swapped(u32, u64),
    /// Somebody asks how far a node is with a target; the answer; its time is up.
    Ask {
        from: ProcessId,
        round: u64,
        target: u64,
    },
    Said {
        from: ProcessId,
        round: u64,
        said: Said,
    },
    RoundEnds(u64),
    /// A peer says that the record has changed.
    Notice(u64),
    /// A request for the record takes effect; its answer comes, or its time is up.
    Effect(u64),
    Answer(u64),
    Timeout(u64),
    /// An operator begins something, goes on, dies.
    Order,
    Operator(usize),
    Dies(usize),
}

/// Who asks for the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    Node(ProcessId),
    Operator(usize),
}

/// A request for the record, on its way.
#[derive(Debug)]
struct Access {
    who: Who,
    write: Option<Write>,
    answer: Option<Answer>,
    reply: Option<Reply>,
}

/// A version of the record that somebody wants to write over the one that was read.
#[derive(Debug, Clone)]
struct Write {
    record: RolloutRecord,
    over: Option<u64>,
    /// What a step rests on; none for an operator's command.
    rests: Option<coordinator::Rests>,
}

/// What the store says.
#[derive(Debug, Clone)]
pub enum Reply {
    /// The record and its tag.
    Found(Option<(u64, RolloutRecord)>),
    /// It stands there under this tag.
    Written(u64, RolloutRecord),
    /// It had changed, or an own write came through twice.
    Conflict,
    /// Nobody knows.
    Failed,
}

impl Rollouts {
    pub fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed, 5),
            next: 0,
            accesses: BTreeMap::new(),
            operators: Vec::new(),
            chronicle: Chronicle::default(),
        }
    }

    fn id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl World {
    /// Something happens in a rollout.
    pub(super) fn rollout(&mut self, process: Option<ProcessId>, work: Work) {
        match (process, work) {
            (Some(process), Work::Poll) => self.poll_record(process),
            (Some(process), Work::Adopt) => self.adopt(process),
            (Some(process), Work::Look) => self.look_at_rollout(process),
            (Some(process), Work::Loaded(revision)) => self.loaded(process, revision),
            (Some(process), Work::Swapped(shard, handle)) => self.swapped(process, shard, handle),
            (
                Some(process),
                Work::Ask {
                    from,
                    round,
                    target,
                },
            ) => self.asked(process, from, round, target),
            (Some(process), Work::Said { from, round, said }) => {
                self.told(process, from, round, said);
            }
            (Some(process), Work::RoundEnds(round)) => self.conclude(process, round),
            (Some(process), Work::Notice(counter)) => self.noticed_record(process, counter),
            (_, Work::Effect(id)) => self.access_effect(id),
            (_, Work::Answer(id)) => self.access_answer(id),
            (_, Work::Timeout(id)) => self.access_ends(id, Reply::Failed),
            (_, Work::Order) => self.order(),
            (_, Work::Operator(operator)) => self.operate(operator),
            (_, Work::Dies(operator)) => self.operator_dies(operator),
            (None, _) => {}
        }
    }

    fn rollout_after(&mut self, process: Option<ProcessId>, delay: Time, work: Work) {
        self.queue.after(delay, Event::Rollout(process, work));
    }

    fn read_record(&mut self, who: Who) -> u64 {
        self.access(who, None)
    }

    /// Writes a version of the record; it gets the next counter and a nonce.
    fn write_record(
        &mut self,
        who: Who,
        over: Option<(u64, &RolloutRecord)>,
        mut record: RolloutRecord,
        rests: Option<coordinator::Rests>,
    ) -> u64 {
        record.counter = over.map_or(0, |(_, record)| record.counter) + 1;
        let rng = &mut self.rollouts.rng;
        record.nonce = Nonce::new(u128::from(rng.bits()) << 64 | u128::from(rng.bits()));
        let over = over.map(|(tag, _)| tag);
        self.access(
            who,
            Some(Write {
                record,
                over,
                rests,
            }),
        )
    }

    fn access(&mut self, who: Who, write: Option<Write>) -> u64 {
        let id = self.rollouts.id();
        let (process, way) = match who {
            Who::Node(process) => (Some(process), self.processes[process].way),
            // They come through a way of their own, and the whole store may be away.
            Who::Operator(_) => {
                let away = |of: fn(&Way) -> bool| self.processes.iter().any(|p| of(&p.way));
                let way = Way {
                    outage: away(|way| way.outage),
                    slow: away(|way| way.slow),
                    ..Way::default()
                };
                (None, way)
            }
        };
        let fate = fate(
            &mut self.rollouts.rng,
            &self.setup,
            way,
            write.is_some(),
            self.hostile,
        );
        if let Some(after) = fate.effect {
            self.rollout_after(None, after, Work::Effect(id));
            if write.is_some() {
                self.rollouts.chronicle.aftermath = self
                    .rollouts
                    .chronicle
                    .aftermath
                    .max(self.queue.now() + after);
            }
        }
        if let Some((after, _)) = fate.answer {
            self.rollout_after(process, after, Work::Answer(id));
        }
        self.rollout_after(process, self.setup.ttl / 5, Work::Timeout(id));
        let answer = fate.answer.map(|(_, answer)| answer);
        self.rollouts.accesses.insert(
            id,
            Access {
                who,
                write,
                answer,
                reply: None,
            },
        );
        id
    }

    /// A request takes effect, whoever still waits for it.
    fn access_effect(&mut self, id: u64) {
        let write = self
            .rollouts
            .accesses
            .get(&id)
            .map(|access| access.write.clone());
        let Some(write) = write else {
            return;
        };
        let before = self
            .store
            .get(ROLLOUT)
            .map(|object| (object.tag, decoded(&object.body)));
        let reply = match write {
            None => Reply::Found(before),
            Some(write) => {
                let condition = match write.over {
                    _ if self.rules.broken(Mutation::RolloutWithoutCas) => Condition::Always,
                    None => Condition::Create,
                    Some(tag) => Condition::Match(tag),
                };
                let body = write.record.encode().expect("a record within its bounds");
                match self.store.put(ROLLOUT, body, condition) {
                    Err(()) => Reply::Conflict,
                    Ok(tag) => {
                        let before = before.map(|(_, record)| record);
                        self.record_written(before, &write);
                        Reply::Written(tag, write.record)
                    }
                }
            }
        };
        if let Some(access) = self.rollouts.accesses.get_mut(&id) {
            access.reply = Some(reply);
        }
    }

    fn access_answer(&mut self, id: u64) {
        let Some(access) = self.rollouts.accesses.get(&id) else {
            return;
        };
        let reply = match access.answer {
            Some(Answer::Honest) => access.reply.clone(),
            Some(Answer::Conflict) if access.write.is_some() => Some(Reply::Conflict),
            _ => Some(Reply::Failed),
        };
        if let Some(reply) = reply {
            self.access_ends(id, reply);
        }
    }

    /// Whoever asked hears a reply, once; the request may still take effect.
    fn access_ends(&mut self, id: u64, reply: Reply) {
        let Some(who) = self.rollouts.accesses.get(&id).map(|access| access.who) else {
            return;
        };
        match who {
            Who::Node(process) => self.node_heard(process, id, reply),
            Who::Operator(operator) => self.operator_heard(operator, id, reply),
        }
    }

    /// A node hears of the record.
    fn node_heard(&mut self, process: ProcessId, id: u64, reply: Reply) {
        let adopter = &mut self.processes[process].adopter;
        if adopter.reading == Some(id) {
            adopter.reading = None;
            match reply {
                Reply::Found(found) => self.follow(process, found),
                _ => self.poll_after(process, super::super::queue::SECOND),
            }
        } else if adopter.writing == Some(id) {
            adopter.writing = None;
            match reply {
                Reply::Written(tag, record) => {
                    let counter = record.counter;
                    self.follow(process, Some((tag, record)));
                    self.tell_of_record(process, counter);
                }
                // Somebody else was first, or nobody knows: what stands there says it.
                _ => self.poll_record(process),
            }
        }
    }
}

fn decoded(body: &[u8]) -> RolloutRecord {
    RolloutRecord::decode(body).expect("a record that was encoded")
}

//! A store in memory that carries requests out one by one, and fails as it is told.

use std::collections::{BTreeMap, VecDeque};

use crate::lease::layout::{Ask, Layout, Step};
use crate::lease::object::{Condition, Entry, Key, ObjectReply, ObjectRequest, Tag};
use crate::lease::op::{LeaseOp, OpId, OpResult};
use crate::lease::record::MAX_BYTES;

/// How the next write fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is carried out, and nobody hears of it.
    AfterEffect,
    /// It is not carried out, and nobody knows.
    BeforeEffect,
    /// It is surely not carried out.
    NotSent,
    /// It is carried out, repeated below, and the repetition is refused.
    Repeated,
    /// It is refused though its condition holds.
    Spurious,
}

/// A store whose tags are hashes of bodies, as on S3.
#[derive(Debug, Default, Clone)]
pub(crate) struct Store {
    pub(crate) objects: BTreeMap<String, Vec<u8>>,
    pub(crate) epochs: BTreeMap<u32, u64>,
    pub(crate) shards: u32,
    /// Faults of the next writes; none for one that works.
    pub(crate) faults: VecDeque<Option<Fault>>,
    /// Reads and listings fail.
    pub(crate) deaf: bool,
    /// Counts of requests: get, list, put, epoch.
    pub(crate) counts: [u32; 4],
}

impl Store {
    pub(crate) fn new(shards: u32) -> Self {
        Self {
            shards,
            ..Self::default()
        }
    }

    pub(crate) fn tag(body: &[u8]) -> Tag {
        Tag::e_tag(&format!("{:016x}", xxhash_rust::xxh64::xxh64(body, 0)))
    }

    pub(crate) fn body(&self, key: &Key) -> Option<&Vec<u8>> {
        self.objects.get(&key.object_name(self.shards))
    }

    pub(crate) fn carry_out(&mut self, request: ObjectRequest) -> ObjectReply {
        let failed = |maybe_applied| ObjectReply::Failed {
            maybe_applied,
            message: "a fault".into(),
        };
        match request {
            ObjectRequest::Get(key) => {
                self.counts[0] += 1;
                match self.body(&key) {
                    _ if self.deaf => failed(false),
                    None => ObjectReply::Missing,
                    Some(body) => ObjectReply::Found {
                        tag: Self::tag(body),
                        body: body.iter().copied().take(MAX_BYTES + 1).collect(),
                    },
                }
            }
            ObjectRequest::List { after, limit } => {
                self.counts[1] += 1;
                if self.deaf {
                    return failed(false);
                }
                let mut names = self
                    .objects
                    .range(after.clone()..)
                    .filter(|(name, _)| **name != after);
                let entry = |(name, body): (&String, &Vec<u8>)| Entry {
                    name: name.clone(),
                    tag: Some(Self::tag(body)),
                    size: body.len() as u64,
                };
                let entries = names.by_ref().take(limit as usize).map(entry).collect();
                let more = names.next().is_some();
                ObjectReply::Listed { entries, more }
            }
            ObjectRequest::WriterEpoch { shard } => {
                self.counts[3] += 1;
                if self.deaf {
                    return failed(false);
                }
                ObjectReply::WriterEpoch(self.epochs.get(&shard).copied().unwrap_or(0))
            }
            ObjectRequest::Put {
                key,
                body,
                condition,
            } => {
                self.counts[2] += 1;
                let there = self.body(&key).map(|body| Self::tag(body));
                let holds = match &condition {
                    Condition::Create => there.is_none(),
                    Condition::Match(tag) => there.is_some_and(|there| there.same(tag)),
                    Condition::Always => true,
                };
                let fault = self.faults.pop_front().flatten();
                let carried_out =
                    matches!(fault, None | Some(Fault::AfterEffect | Fault::Repeated));
                let tag = Self::tag(&body);
                if holds && carried_out {
                    self.objects.insert(key.object_name(self.shards), body);
                }
                match fault {
                    None if holds => ObjectReply::Written(tag),
                    None | Some(Fault::Repeated | Fault::Spurious) => ObjectReply::Conflict,
                    Some(Fault::NotSent) => failed(false),
                    Some(Fault::AfterEffect | Fault::BeforeEffect) => failed(true),
                }
            }
        }
    }

    /// Carries a whole operation out.
    pub(crate) fn run(&mut self, layout: &mut Layout, id: u64, op: LeaseOp) -> OpResult {
        let id = OpId(id);
        let mut asks: VecDeque<Ask> = VecDeque::new();
        let mut step = layout.begin(id, op, 1_000_000);
        for _ in 0..100_000 {
            match step {
                Step::Done(result) => return result,
                Step::Ask(more) => asks.extend(more),
            }
            // The last first: replies come in any order.
            let ask = asks
                .pop_back()
                .expect("an operation that waits has requests in flight");
            step = layout.reply(id, ask.id, self.carry_out(ask.request));
        }
        panic!("the operation does not end");
    }
}

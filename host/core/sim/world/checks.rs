//! The safety oracles. They know the world as it is: which write took effect when, and what each process has open. What a process
//! believes counts for nothing here; it is what is judged.

mod gates;

use std::collections::BTreeMap;

use quarry_core::control::LeaseEvent;
use quarry_core::lease::object::{Key, Tag};
use quarry_core::lease::record::{LeaseRecord, NodeName, NodeRecord, NodeState, SessionId};
use quarry_core::time::Moment;

use super::super::queue::Time;
use super::super::setup::LayoutName;
use super::super::store::{Object, Way};
use super::process::{Process, ProcessId};
use super::{World, shown};

/// What is true of sessions and leases.
#[derive(Debug)]
pub struct Facts {
    pub shards: Vec<ShardFacts>,
    sessions: BTreeMap<SessionId, SessionFacts>,
    /// The tags that a record had before, and when they were replaced.
    replaced: BTreeMap<Key, Vec<(Tag, Time)>>,
    /// When an object that was missing or unreadable was last written.
    pub restored: BTreeMap<Key, Time>,
    /// When the last outage of the whole store ended.
    pub outage_ended: Option<Time>,
    /// When the last one began.
    pub outage_began: Time,
}

/// What is true of a shard.
#[derive(Debug, Clone, Default)]
pub struct ShardFacts {
    /// The highest generation that was ever written as owned.
    claimed: u64,
    /// The highest generation whose opening put its fence.
    fenced: u64,
    /// The session that claimed last, and how often that changed.
    pub owner: Option<SessionId>,
    pub changes: u64,
    /// Since when its lease is not to be trusted, because somebody deleted or spoiled an object it rests on.
    pub spoiled: Option<Time>,
    /// When somebody last deleted or spoiled the lease itself.
    pub deleted: Option<Time>,
}

#[derive(Debug)]
struct SessionFacts {
    process: ProcessId,
    /// When the newest write of its record that took effect was sent, by its own clock.
    proof: Option<Moment>,
    /// When that took effect.
    renewed: Time,
    /// Its claims: generation, and when the newest write was sent.
    leases: BTreeMap<u32, (u64, Moment)>,
}

impl Facts {
    pub fn new(shards: usize) -> Self {
        Self {
            shards: vec![ShardFacts::default(); shards],
            sessions: BTreeMap::new(),
            replaced: BTreeMap::new(),
            restored: BTreeMap::new(),
            outage_ended: None,
            outage_began: 0,
        }
    }

    fn session(&mut self, session: SessionId, process: ProcessId) -> &mut SessionFacts {
        self.sessions
            .entry(session)
            .or_insert_with(|| SessionFacts {
                process,
                proof: None,
                renewed: 0,
                leases: BTreeMap::new(),
            })
    }
}

impl World {
    /// A write took effect.
    pub(super) fn applied(
        &mut self,
        process: ProcessId,
        sent: Moment,
        key: &Key,
        before: Option<&Object>,
        body: &[u8],
    ) {
        if self.trace {
            self.trace(|| {
                let text = String::from_utf8_lossy(body);
                format!("{} wrote {key:?}: {}", shown(process), text.trim_end())
            });
        }
        if let Some(before) = before {
            let now = self.queue.now();
            let old = self.facts.replaced.entry(key.clone()).or_default();
            old.push((Tag::e_tag(&format!("\"{:x}\"", before.tag)), now));
            if old.len() > 12 {
                old.remove(0);
            }
        }
        let whole = |object: &Object| match key {
            Key::Node(name) => NodeRecord::decode(name, &object.body).is_ok(),
            Key::Lease(shard) => LeaseRecord::decode(*shard, &object.body).is_ok(),
        };
        if !before.is_some_and(whole) {
            let now = self.queue.now();
            self.facts.restored.insert(key.clone(), now);
        }
        match key {
            Key::Node(name) => {
                let old = before.and_then(|object| NodeRecord::decode(name, &object.body).ok());
                match NodeRecord::decode(name, body) {
                    Ok(new) => self.node_written(process, sent, old.as_ref(), &new),
                    Err(error) => self.fail(
                        "format",
                        format!(
                            "{} wrote a body that it cannot read: {error}",
                            shown(process)
                        ),
                    ),
                }
            }
            Key::Lease(shard) => {
                let old = before.and_then(|object| LeaseRecord::decode(*shard, &object.body).ok());
                match LeaseRecord::decode(*shard, body) {
                    Ok(new) => self.lease_written(process, sent, old.as_ref(), &new),
                    Err(error) => self.fail(
                        "format",
                        format!(
                            "{} wrote a body that it cannot read: {error}",
                            shown(process)
                        ),
                    ),
                }
            }
        }
    }

    fn node_written(
        &mut self,
        process: ProcessId,
        sent: Moment,
        old: Option<&NodeRecord>,
        new: &NodeRecord,
    ) {
        let session = new.info.session;
        if let Some(old) = old
            && old.info.session != session
            && !old.info.state.is_over()
        {
            self.session_ended(
                process,
                &old.info.name.clone(),
                old.info.session,
                "replaced",
            );
        }
        if new.info.state == NodeState::Dead {
            if old.is_some_and(|old| old.info.session == session && !old.info.state.is_over()) {
                self.session_ended(process, &new.info.name, session, "ended");
            }
            return;
        }
        if old.is_some_and(|old| old.info.session == session && old.info.state.is_over()) {
            self.fail(
                "S13",
                format!(
                    "{} revived session {session} of {}, which is over",
                    shown(process),
                    new.info.name
                ),
            );
        }
        let now = self.queue.now();
        let facts = self.facts.session(session, process);
        facts.proof = facts.proof.max(Some(sent));
        facts.renewed = now;
    }

    /// Whether a process is a node of the cluster now: its session was renewed within a TTL.
    pub(super) fn ready(&self, process: &Process) -> bool {
        let facts = self.facts.sessions.get(&process.control.session());
        facts.is_some_and(|facts| {
            facts.proof.is_some() && self.queue.now() < facts.renewed + self.setup.ttl
        })
    }

    /// A session that was not over was ended by somebody else: whatever it holds must have stopped.
    fn session_ended(&mut self, by: ProcessId, name: &NodeName, session: SessionId, how: &str) {
        let Some(victim) = self.facts.sessions.get(&session).map(|facts| facts.process) else {
            return;
        };
        let now = self.queue.now();
        // Where each lease is renewed by itself, a session that ended takes nothing with it.
        if victim != by
            && self.setup.layout == LayoutName::Session
            && let Some(shard) = self.live_gates(victim).first()
        {
            let left = self.slack(victim, *shard);
            self.fail(
                "S4",
                format!(
                    "{} {how} the session of {name} ({}), whose shard {shard} could still answer for {left:?}",
                    shown(by),
                    shown(victim)
                ),
            );
        }
        // A store that was away for all made all look dead.
        let target = &self.processes[victim];
        let well =
            target.running() && !target.paused && !target.stalled && target.way == Way::default();
        if victim != by
            && well
            && how == "ended"
            && self
                .facts
                .outage_ended
                .is_some_and(|ended| now - ended < self.setup.interval)
        {
            self.fail(
                "L8",
                format!(
                    "{} ended the session of {name} ({}), which runs, right after an outage of the store",
                    shown(by),
                    shown(victim)
                ),
            );
        }
    }

    fn lease_written(
        &mut self,
        process: ProcessId,
        sent: Moment,
        old: Option<&LeaseRecord>,
        new: &LeaseRecord,
    ) {
        let shard = new.shard;
        let Some(owner) = &new.owner else {
            return self.lease_freed(process, old, new);
        };
        let session = self.processes[process].control.session();
        if self.processes[process].running()
            && owner.session != session
            && old.is_none_or(|old| old.owner != new.owner)
        {
            let known = self
                .facts
                .sessions
                .get(&owner.session)
                .is_some_and(|facts| facts.process == process);
            if !known {
                self.fail(
                    "S13",
                    format!(
                        "{} wrote a lease of shard {shard} in the name of {owner:?}",
                        shown(process)
                    ),
                );
            }
        }
        let facts = &self.facts.shards[shard as usize];
        // Renewed, or written again as it was after somebody spoiled it.
        let again = self
            .facts
            .sessions
            .get(&owner.session)
            .and_then(|facts| facts.leases.get(&shard))
            .is_some_and(|(generation, _)| {
                *generation == new.generation && facts.claimed == new.generation
            });
        let before =
            old.filter(|old| old.owner.as_ref() == Some(owner) && old.generation == new.generation);
        if before.is_none() && !again {
            // Whoever restores a lease that was spoiled while an own claim was in doubt may not know that the claim came through.
            let restored = facts.owner == Some(owner.session)
                && facts
                    .spoiled
                    .is_some_and(|at| self.queue.now() < at + 2 * self.setup.ttl);
            // Without its lease, a database tells which generations were opened, not which were claimed.
            let anew = old.is_none() && facts.deleted.is_some();
            let highest = if anew { facts.fenced } else { facts.claimed };
            if new.generation <= highest && !restored {
                let words = format!(
                    "{} claimed shard {shard} with generation {}",
                    shown(process),
                    new.generation
                );
                self.fail("S5", format!("{words}, but {highest} was claimed before"));
            }
            let others: Vec<ProcessId> = (0..self.processes.len())
                .filter(|other| *other != process)
                .collect();
            for other in others {
                if self.live_gates(other).contains(&shard) {
                    let left = self.slack(other, shard);
                    self.fail(
                        "S4",
                        format!(
                            "{} claimed shard {shard} while {} could still answer for {left:?}",
                            shown(process),
                            shown(other)
                        ),
                    );
                }
            }
            let facts = &mut self.facts.shards[shard as usize];
            facts.claimed = highest.max(new.generation);
            if facts.owner != Some(owner.session) {
                facts.owner = Some(owner.session);
                facts.changes += 1;
            }
        }
        let facts = self.facts.session(owner.session, process);
        let lease = facts.leases.entry(shard).or_insert((new.generation, sent));
        *lease = (
            new.generation,
            if lease.0 == new.generation {
                lease.1.max(sent)
            } else {
                sent
            },
        );
    }

    fn lease_freed(&mut self, process: ProcessId, old: Option<&LeaseRecord>, new: &LeaseRecord) {
        let shard = new.shard;
        let Some(owner) = old.and_then(|old| old.owner.as_ref()) else {
            return;
        };
        let holder = self
            .facts
            .sessions
            .get(&owner.session)
            .map(|facts| facts.process);
        if holder != Some(process) {
            self.fail(
                "S7",
                format!(
                    "{} freed shard {shard}, which {owner:?} held",
                    shown(process)
                ),
            );
        }
        let target = &self.processes[process];
        let generation = old.map_or(0, |old| old.generation);
        if let Some(site) = target.sites.get(&shard)
            && site.generation == generation
            && target.running()
        {
            let stage = site.stage;
            self.fail(
                "S7",
                format!(
                    "{} freed shard {shard} while its database was {stage:?}",
                    shown(process)
                ),
            );
        }
    }

    pub(super) fn emitted(&mut self, process: ProcessId, event: &LeaseEvent) {
        match event {
            LeaseEvent::Joined { .. } => self.processes[process].waits = false,
            LeaseEvent::ObserverLate { .. } => self.figures.late += 1,
            LeaseEvent::SelfFenced { .. } => self.figures.self_fenced += 1,
            LeaseEvent::SessionLost { .. } => self.figures.sessions_lost += 1,
            LeaseEvent::Tombstoned { .. } => self.figures.tombstones += 1,
            LeaseEvent::MassExpiry { .. } => self.figures.mass_expiries += 1,
            _ => {}
        }
    }

    /// The whole run: what callers saw, shard by shard.
    pub(super) fn check_histories(&mut self) {
        for shard in 0..self.databases.len() {
            let log = self.databases[shard].log();
            if let Err(words) = super::super::history::check(&self.calls.histories[shard], log) {
                let oracle = if words.starts_with("S2") {
                    "S2"
                } else {
                    "linearizability"
                };
                return self.fail(oracle, format!("shard {shard}: {words}"));
            }
            let written = |value: u64| {
                log.iter()
                    .any(|slot| slot.content == super::super::database::Content::Write(value))
            };
            let ran = self
                .calls
                .refused
                .iter()
                .find(|(of, value)| *of as usize == shard && written(*value))
                .copied();
            if let Some((_, value)) = ran {
                return self.fail(
                    "S12",
                    format!(
                        "call {value} of shard {shard} was reported as refused, and is in the log"
                    ),
                );
            }
        }
    }
}

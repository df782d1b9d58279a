//! The oracles of openings, gates and calls.

use std::time::Duration;

use quarry_core::lease::object::{Key, Tag};
use quarry_core::lease::op::{LeaseOp, OpId};
use quarry_core::lease::record::LeaseRecord;
use quarry_core::time::Moment;

use super::super::super::queue::MILLI;
use super::super::super::setup::LayoutName;
use super::super::calls::Call;
use super::super::process::{ProcessId, Stage, Ticket};
use super::super::{World, shown};

impl World {
    /// The shards that a process could answer for at this moment.
    pub fn live_gates(&self, process: ProcessId) -> Vec<u32> {
        let target = &self.processes[process];
        if !target.running() {
            return Vec::new();
        }
        let now = self.local(process);
        let live = target
            .sites
            .iter()
            .filter(|(_, site)| site.open_gate() && now < site.deadline);
        live.map(|(shard, _)| *shard).collect()
    }

    pub fn slack(&self, process: ProcessId, shard: u32) -> Duration {
        let now = self.local(process);
        self.processes[process]
            .sites
            .get(&shard)
            .map_or(Duration::ZERO, |site| site.deadline.since(now))
    }

    /// An operation begins.
    pub fn check_op(&mut self, process: ProcessId, op: &LeaseOp) {
        let target = &self.processes[process];
        match op {
            LeaseOp::Claim { seen, .. }
                if (target.draining || target.leaving)
                    && seen
                        .record
                        .owner
                        .as_ref()
                        .is_none_or(|owner| owner.session != target.control.session()) =>
            {
                self.fail(
                    "L5",
                    format!("{} drains, and claims: {op:?}", shown(process)),
                );
            }
            LeaseOp::Claim { seen, .. } => {
                let session = target.control.session();
                let foreign = seen
                    .record
                    .owner
                    .as_ref()
                    .is_some_and(|owner| owner.session != session);
                if foreign && self.setup.layout == LayoutName::Shard {
                    self.check_fresh(process, &Key::Lease(seen.record.shard), seen.tag.as_ref());
                }
            }
            LeaseOp::Tombstone { node, tag, .. } => {
                self.check_fresh(process, &Key::Node(node.clone()), tag.as_ref());
            }
            LeaseOp::Renew { lease } if self.setup.layout == LayoutName::Shard => {
                let LeaseRecord {
                    shard, generation, ..
                } = lease.record;
                // A lease that somebody spoiled is written again as it was.
                let spoiled = self.facts.shards[shard as usize].spoiled;
                let spared = spoiled.is_some_and(|at| self.queue.now() < at + 3 * self.setup.ttl);
                if target.closed.get(&shard) == Some(&generation) && !spared {
                    self.fail(
                        "S11",
                        format!(
                            "{} renews shard {shard}, though its runner said that it closed it",
                            shown(process)
                        ),
                    );
                }
            }
            _ => {}
        }
    }

    /// At most one operation at a time writes a lease.
    pub fn check_single(&mut self, process: ProcessId, id: OpId, op: &LeaseOp) {
        let shard = match op {
            LeaseOp::Claim { seen, .. } => seen.record.shard,
            LeaseOp::Renew { lease } | LeaseOp::Release { lease, .. } => lease.record.shard,
            _ => return,
        };
        if self.processes[process]
            .writing
            .values()
            .any(|other| *other == shard)
        {
            self.fail(
                "S8",
                format!(
                    "{} has two writes of the lease of shard {shard} on their way",
                    shown(process)
                ),
            );
        }
        self.processes[process].writing.insert(id, shard);
    }

    /// Who attacks a peer's record must have looked at it lately: one that stood still itself cannot tell who did.
    fn check_fresh(&mut self, process: ProcessId, key: &Key, tag: Option<&Tag>) {
        let Some(tag) = tag else {
            return;
        };
        let now = self.queue.now();
        let stale = self
            .facts
            .replaced
            .get(key)
            .and_then(|old| old.iter().rev().find(|(other, _)| other.same(tag)))
            .map(|(_, at)| now - at);
        // A look is two operations, of an interval each at the most. What it shows may have been replaced as soon as it began, and holds
        // until the next look ends, which begins when it has ended, or fails, and then nobody is attacked.
        let looks = 4 * self.setup.interval;
        let bound = looks + looks / 50 + 10 * MILLI;
        if let Some(stale) = stale
            && stale > bound
        {
            let stale = Duration::from_nanos(stale);
            self.fail(
                "L8",
                format!("{} takes the owner of {key:?} for dead by a version that was replaced {stale:?} ago", shown(process)),
            );
        }
    }

    /// A database is about to be opened.
    pub fn check_open(
        &mut self,
        process: ProcessId,
        shard: u32,
        generation: u64,
        writer_epoch: Option<u64>,
        deadline: Moment,
    ) {
        if writer_epoch.is_none() {
            self.fail(
                "S6",
                format!(
                    "{} opens shard {shard} whatever its writer epoch",
                    shown(process)
                ),
            );
        }
        let now = self.local(process);
        if let Some(site) = self.processes[process].sites.get(&shard) {
            let stage = site.stage;
            self.fail(
                "S8",
                format!(
                    "{} opens shard {shard}, which is {stage:?} there",
                    shown(process)
                ),
            );
        }
        let opening = self.processes[process]
            .sites
            .values()
            .filter(|site| site.stage == Stage::Opening)
            .count();
        if opening >= self.setup.max_concurrency {
            self.fail(
                "S8",
                format!(
                    "{} opens shard {shard} besides {opening} others",
                    shown(process)
                ),
            );
        }
        if now >= deadline {
            self.fail(
                "S9",
                format!(
                    "{} opens shard {shard} {:?} after its deadline",
                    shown(process),
                    now.since(deadline)
                ),
            );
        }
        self.check_deadline(process, shard, generation, deadline);
    }

    /// A deadline must rest on a write that took effect, of the session that holds the lease.
    pub fn check_deadline(
        &mut self,
        process: ProcessId,
        shard: u32,
        generation: u64,
        deadline: Moment,
    ) {
        let layout = self.setup.layout;
        let best = self
            .facts
            .sessions
            .values()
            .filter(|facts| facts.process == process)
            .filter_map(|facts| {
                let (held, sent) = facts.leases.get(&shard)?;
                if *held != generation {
                    return None;
                }
                match layout {
                    LayoutName::Session => facts.proof,
                    LayoutName::Shard => Some(*sent),
                }
            })
            .max();
        let Some(best) = best else {
            return self.fail(
                "S11",
                format!(
                    "{} acts on generation {generation} of shard {shard}, which it never claimed",
                    shown(process)
                ),
            );
        };
        let proven = best + Duration::from_nanos(self.setup.ttl - self.setup.margin);
        if deadline > proven {
            self.fail(
                "S4",
                format!(
                    "{} has a deadline for shard {shard} that is {:?} later than its newest renewal proves",
                    shown(process),
                    deadline.since(proven)
                ),
            );
        }
    }

    /// A deadline is about to be moved on: nothing that is past its own comes back.
    pub fn check_revival(&mut self, process: ProcessId, shard: u32) {
        let now = self.local(process);
        let site = self.processes[process].sites.get(&shard);
        if site.is_some_and(|site| now >= site.deadline) {
            self.fail(
                "S3",
                format!(
                    "{} revives shard {shard}, which was past its deadline",
                    shown(process)
                ),
            );
        }
    }

    /// A database that was opened is about to be served.
    pub fn check_serve(
        &mut self,
        process: ProcessId,
        shard: u32,
        generation: u64,
        deadline: Moment,
    ) {
        let now = self.local(process);
        match self.processes[process].sites.get(&shard) {
            Some(site) if site.stage == Stage::Open && site.generation == generation => {
                if now >= deadline || now >= site.deadline.max(deadline) {
                    self.fail(
                        "S9",
                        format!(
                            "{} serves shard {shard} {:?} after its deadline",
                            shown(process),
                            now.since(deadline)
                        ),
                    );
                }
            }
            other => {
                let stage = other.map(|site| site.stage);
                self.fail(
                    "S8",
                    format!(
                        "{} serves shard {shard}, which is {stage:?}",
                        shown(process)
                    ),
                );
            }
        }
        self.check_deadline(process, shard, generation, deadline);
    }

    /// Two gates of one shard must never be open at once.
    pub fn check_alone(&mut self, process: ProcessId, shard: u32) {
        if !self.live_gates(process).contains(&shard) {
            return;
        }
        for other in 0..self.processes.len() {
            if other != process && self.live_gates(other).contains(&shard) {
                self.fail(
                    "S1",
                    format!(
                        "{} and {} both answer for shard {shard}",
                        shown(process),
                        shown(other)
                    ),
                );
            }
        }
    }

    /// A close is about to begin.
    pub fn check_close(&mut self, process: ProcessId, shard: u32) {
        let now = self.local(process);
        match self.processes[process].sites.get(&shard) {
            None => self.fail(
                "S8",
                format!("{} closes shard {shard}, which is not open", shown(process)),
            ),
            Some(site) if site.stage != Stage::Open => {
                let stage = site.stage;
                self.fail(
                    "S8",
                    format!(
                        "{} closes shard {shard}, which is {stage:?}",
                        shown(process)
                    ),
                );
            }
            Some(site) if site.open_gate() && now >= site.deadline => {
                self.fail("S3", format!("{} closes shard {shard}, which is past its deadline, without cutting it off", shown(process)));
            }
            Some(_) => {}
        }
    }

    /// A fence was put: nothing older may ever open behind it.
    pub fn check_fence(&mut self, process: ProcessId, shard: u32, generation: u64) {
        let facts = &mut self.facts.shards[shard as usize];
        if generation < facts.fenced {
            let newer = facts.fenced;
            return self.fail(
                "S6",
                format!("{} opened shard {shard} under generation {generation}, after generation {newer} had", shown(process)),
            );
        }
        facts.fenced = generation;
    }

    /// Whatever is past its deadline must have been cut off, unless its process stood still until just now.
    pub fn check_deadlines(&mut self, process: ProcessId) {
        let now = self.local(process);
        let target = &self.processes[process];
        if self.queue.now() < target.resumed + 20 * MILLI {
            return;
        }
        let late = target
            .sites
            .iter()
            .find(|(_, site)| !site.killed && now > site.deadline + Duration::from_millis(1))
            .map(|(shard, site)| (*shard, site.deadline));
        if let Some((shard, deadline)) = late {
            let late = now.since(deadline);
            self.fail(
                "L7",
                format!(
                    "{} still has shard {shard} {late:?} after its deadline",
                    shown(process)
                ),
            );
        }
    }

    /// An answer leaves.
    pub fn check_release(&mut self, process: ProcessId, shard: u32) {
        let others: Vec<ProcessId> = (0..self.processes.len())
            .filter(|other| *other != process)
            .collect();
        for other in others {
            if self.live_gates(other).contains(&shard) {
                self.fail(
                    "S3",
                    format!(
                        "{} answers for shard {shard}, as {} could",
                        shown(process),
                        shown(other)
                    ),
                );
            }
        }
    }

    /// A call is about to be forwarded.
    pub fn check_forward(&mut self, process: ProcessId, ticket: Ticket, until: Moment) {
        if ticket.from.is_some() {
            self.fail(
                "S12",
                format!(
                    "call {} was forwarded to {} and is forwarded again",
                    ticket.call,
                    shown(process)
                ),
            );
        }
        let now = self.local(process);
        if until <= now {
            self.fail(
                "S12",
                format!(
                    "call {} uses a route that ended {:?} ago",
                    ticket.call,
                    now.since(until)
                ),
            );
        }
        let most = now + Duration::from_nanos(self.setup.ttl);
        if until > most {
            self.fail(
                "S12",
                format!(
                    "call {} uses a route for {:?}, longer than any lease lives",
                    ticket.call,
                    until.since(now)
                ),
            );
        }
    }

    /// A call has ended: a peer that does not answer keeps nobody longer than its lease can live.
    pub fn check_wait(&mut self, id: u64, call: &Call) {
        let Some((to, since)) = call.away else {
            return;
        };
        let waited = self.queue.now() - since;
        if waited > self.setup.ttl + self.setup.ttl / 50 + 10 * MILLI {
            self.fail(
                "S12",
                format!(
                    "call {id} waited {:?} for {}",
                    Duration::from_nanos(waited),
                    shown(to)
                ),
            );
        }
    }

    /// A node says that it has left: nothing may be open there.
    pub fn check_left(&mut self, process: ProcessId) {
        if !self.processes[process].sites.is_empty() {
            let shards: Vec<u32> = self.processes[process].sites.keys().copied().collect();
            self.fail(
                "S7",
                format!("{} has left with shards {shards:?} open", shown(process)),
            );
        }
    }
}

//! The shards of leases that are held: the runner opens and closes them, and tells what became of them.

use std::time::Duration;

use super::{Control, Effect, Freeing, LeaseEvent, Phase, Run, Wish};
use crate::lease::record::NodeName;
use crate::placement::Role;
use crate::runner::{ClosedWhy, RunnerCommand, RunnerReport};
use crate::time::Moment;

/// How long a shard that failed here is left to others.
const AVOID: Duration = Duration::from_secs(60);

impl Control {
    /// Has the runner open a shard under the lease that is held.
    pub(super) fn open(&mut self, shard: u32, now: Moment) {
        let deadline = self.deadline(shard);
        let Some(hold) = self.holds.get(&shard) else {
            return;
        };
        let record = &hold.lease.record;
        let generation = record.generation;
        let run = Run {
            generation,
            accepted: false,
            open: false,
            stopping: false,
            sent: now,
        };
        self.effects.push(Effect::Runner(RunnerCommand::Open {
            shard,
            generation,
            writer_epoch: Some(record.writer_epoch.unwrap_or(0)),
            deadline,
        }));
        self.runs.insert(shard, run);
    }

    pub(super) fn report(&mut self, report: RunnerReport, now: Moment) {
        let (shard, told) = match &report {
            RunnerReport::Accepted { shard, generation }
            | RunnerReport::Opened {
                shard, generation, ..
            }
            | RunnerReport::Down {
                shard, generation, ..
            }
            | RunnerReport::SelfFenced { shard, generation }
            | RunnerReport::Closed {
                shard, generation, ..
            } => (*shard, *generation),
        };
        let Some(run) = self
            .runs
            .get_mut(&shard)
            .filter(|run| run.generation == told)
        else {
            return;
        };
        match report {
            RunnerReport::Accepted { .. } => run.accepted = true,
            RunnerReport::Opened { .. } => {
                (run.accepted, run.open) = (true, true);
                if let Some(hold) = self.holds.get_mut(&shard) {
                    (hold.setbacks, hold.doubtful) = (0, false);
                }
            }
            RunnerReport::Down { .. } => run.open = false,
            RunnerReport::SelfFenced { generation, .. } => {
                run.open = false;
                self.emit(LeaseEvent::SelfFenced { shard, generation });
            }
            RunnerReport::Closed {
                writer_epoch, why, ..
            } => {
                self.runs.remove(&shard);
                self.closed(shard, writer_epoch, why, now);
            }
        }
    }

    /// A shard is not with the runner any more; if its lease is still held, something has to become of it.
    fn closed(&mut self, shard: u32, writer_epoch: Option<u64>, why: ClosedWhy, now: Moment) {
        let interval = self.timing.interval;
        let Some(hold) = self.holds.get_mut(&shard) else {
            return;
        };
        hold.epoch = writer_epoch;
        hold.retry = now;
        if hold.wish != Wish::Keep {
            return;
        }
        match why {
            ClosedWhy::Stopped => {}
            // Whoever opened the database between the look at it and the claim reads now that it has lost the lease.
            ClosedWhy::Fenced if hold.doubtful => hold.retry = now + self.timing.ttl,
            ClosedWhy::Expired | ClosedWhy::Fenced => {
                // The first time at once; who is fenced again and again fights with somebody.
                hold.setbacks += 1;
                if hold.setbacks > 1 {
                    let doublings = (hold.setbacks - 2).min(4);
                    hold.retry = now + (interval / 4).saturating_mul(1 << doublings);
                }
            }
            ClosedWhy::GaveUp => {
                let successor = self.least_loaded(now);
                if let Some(hold) = self.holds.get_mut(&shard) {
                    if let Some(successor) = successor.clone() {
                        self.avoid.insert(shard, now + AVOID);
                        hold.wish = Wish::Free(Freeing {
                            successor: Some(successor),
                            pinned: true,
                            why: "it failed on its node",
                        });
                    } else {
                        hold.retry = now + AVOID / 2;
                    }
                }
                self.emit(LeaseEvent::GaveUp { shard, successor });
            }
        }
    }

    /// The peer that takes shards and has least of them.
    fn least_loaded(&self, now: Moment) -> Option<NodeName> {
        if !matches!(self.phase, Phase::Member) {
            return None;
        }
        let open = self.peers.map.iter().filter(|(_, peer)| {
            peer.may_live(self.timing, now) && peer.role(&self.options.cluster) == Role::Open
        });
        let load = |name: &NodeName| {
            let holds = |known: &&super::Known| {
                let owner = known.seen.record.owner.as_ref();
                owner.is_some_and(|owner| owner.name == *name)
            };
            self.known.iter().flatten().filter(holds).count()
        };
        let least = open.min_by_key(|(name, _)| (load(name), (*name).clone()));
        least.map(|(name, _)| name.clone())
    }
}

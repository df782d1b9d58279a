//! Opens and closes the shards of a node, in order for each, and keeps their deadlines. It never talks to the store of leases, so it
//! works when that hangs.
//!
//! Per shard, opens and closes alternate: a close waits for the open it follows, and an open for the close. At its deadline a shard is
//! cut off first and closed then; one that still waits is not opened, and one whose open comes through too late is not served.

mod entry;
mod event;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use entry::{Entry, Open, State, Stop, Then};
pub use event::{
    ClosedWhy, HostEffect, HostEvent, How, OpenFailure, RunnerCommand, RunnerEvent, RunnerReport,
    StopReason, Which,
};

use crate::backoff::{Backoff, LONG_UPTIME};
use crate::rng::Rng;
use crate::route::Local;
use crate::rules::{Mutation, Rules};
use crate::strategy::{Down, DownReason, Next, Strategy};
use crate::time::Moment;

/// How a runner works.
#[derive(Debug, Clone, Copy)]
pub struct RunnerOptions {
    /// How many shards are opened at once, at least 1.
    pub max_concurrency: u32,
    /// For the simulator only.
    pub rules: Rules,
}

/// The runner. See the module.
#[derive(Debug)]
pub struct Runner {
    options: RunnerOptions,
    strategy: Arc<dyn Strategy>,
    rng: Rng,
    shards: BTreeMap<u32, Entry>,
    /// The shards that wait to be opened, in their order.
    queue: VecDeque<u32>,
    effects: Vec<HostEffect>,
}

impl Runner {
    /// A runner that has no shard. `seed` spreads pauses.
    #[must_use]
    pub fn new(options: RunnerOptions, strategy: Arc<dyn Strategy>, seed: u128) -> Self {
        Self {
            options,
            strategy,
            rng: Rng::new(seed),
            shards: BTreeMap::new(),
            queue: VecDeque::new(),
            effects: Vec::new(),
        }
    }

    /// Takes an event: what the host has to do, in order. Deadlines that have passed come first.
    pub fn handle(&mut self, event: RunnerEvent, now: Moment) -> Vec<HostEffect> {
        // What has ended needs no cutting off.
        let ended = matches!(
            event,
            RunnerEvent::Host(HostEvent::OpenFailed { .. } | HostEvent::Closed { .. })
        );
        if !ended {
            self.expire(now);
        }
        match event {
            RunnerEvent::Command(command) => self.command(command, now),
            RunnerEvent::Host(event) => self.host(event, now),
            RunnerEvent::Wake => {}
        }
        self.expire(now);
        self.start(now);
        std::mem::take(&mut self.effects)
    }

    /// When it wants a [`RunnerEvent::Wake`].
    #[must_use]
    pub fn wake_at(&self) -> Option<Moment> {
        let rules = self.options.rules;
        let due = |entry: &Entry| {
            let waits = matches!(entry.state, State::Queued);
            let ignored = rules.broken(Mutation::NoSelfFence)
                || (waits && rules.broken(Mutation::OpenAfterDeadline));
            let deadline = if entry.fenced || ignored {
                Moment::NEVER
            } else {
                entry.open.deadline
            };
            match entry.state {
                State::Pausing { until } => deadline.min(until),
                _ => deadline,
            }
        };
        self.shards
            .values()
            .map(due)
            .min()
            .filter(|due| *due < Moment::NEVER)
    }

    /// What it has of a shard, for routing.
    #[must_use]
    pub fn local(&self, shard: u32) -> Local {
        let Some(entry) = self.shards.get(&shard) else {
            return Local::None;
        };
        match &entry.state {
            State::Running { .. } => Local::Open {
                until: entry.open.deadline,
            },
            State::Closing {
                then: Then::Finish(_),
            } if entry.next.is_none() => Local::Closing {
                successor: entry.stop.as_ref().and_then(|stop| stop.successor.clone()),
            },
            _ => Local::Opening,
        }
    }

    fn command(&mut self, command: RunnerCommand, now: Moment) {
        match command {
            RunnerCommand::Open {
                shard,
                generation,
                writer_epoch,
                deadline,
            } => self.open(
                shard,
                Open {
                    generation,
                    writer_epoch,
                    deadline,
                },
            ),
            RunnerCommand::Extend { which, deadline } => self.extend(which, deadline, now),
            RunnerCommand::Stop {
                shard,
                reason,
                successor,
            } => self.stop(shard, &Stop { reason, successor }),
            RunnerCommand::StopAll { reason } => {
                let shards: Vec<u32> = self.shards.keys().copied().collect();
                for shard in shards {
                    let successor = None;
                    self.stop(shard, &Stop { reason, successor });
                }
            }
        }
    }

    fn open(&mut self, shard: u32, open: Open) {
        let generation = open.generation;
        self.report(RunnerReport::Accepted { shard, generation });
        match self.shards.get_mut(&shard) {
            None => self.queue(shard, open),
            Some(entry) if entry.open.generation == generation => {
                entry.open.deadline = entry.open.deadline.max(open.deadline);
            }
            Some(_) => {
                let stop = Stop {
                    reason: StopReason::Released,
                    successor: None,
                };
                self.forget_next(shard);
                if let Some(entry) = self.shards.get_mut(&shard) {
                    entry.next = Some(open);
                }
                self.stop_entry(shard, &stop);
            }
        }
    }

    fn queue(&mut self, shard: u32, open: Open) {
        let entry = Entry {
            open,
            state: State::Queued,
            fenced: false,
            stop: None,
            next: None,
            backoff: Backoff::default(),
            failures: 0,
        };
        self.shards.insert(shard, entry);
        self.queue.push_back(shard);
    }

    fn extend(&mut self, which: Which, deadline: Moment, now: Moment) {
        let revives = self.options.rules.broken(Mutation::ExtendRevives);
        let range = match which {
            Which::All => 0..=u32::MAX,
            Which::Shard(shard) => shard..=shard,
        };
        for (shard, entry) in self.shards.range_mut(range) {
            if let Some(next) = &mut entry.next {
                next.deadline = next.deadline.max(deadline);
            }
            let past = entry.fenced || entry.open.deadline <= now;
            if deadline <= entry.open.deadline || (past && !revives) {
                continue;
            }
            entry.open.deadline = deadline;
            if !matches!(entry.state, State::Queued | State::Pausing { .. }) {
                let (shard, generation) = (*shard, entry.open.generation);
                self.effects.push(HostEffect::Deadline {
                    shard,
                    generation,
                    deadline,
                });
            }
        }
    }

    /// The loop wants a shard to stop, and nothing to be opened in its place.
    fn stop(&mut self, shard: u32, stop: &Stop) {
        self.forget_next(shard);
        self.stop_entry(shard, stop);
    }

    fn forget_next(&mut self, shard: u32) {
        let next = self
            .shards
            .get_mut(&shard)
            .and_then(|entry| entry.next.take());
        if let Some(next) = next {
            self.report(RunnerReport::Closed {
                shard,
                generation: next.generation,
                writer_epoch: None,
                why: ClosedWhy::Stopped,
            });
        }
    }

    fn stop_entry(&mut self, shard: u32, stop: &Stop) {
        let Some(entry) = self.shards.get_mut(&shard) else {
            return;
        };
        let cut = stop.reason != StopReason::Released;
        match &mut entry.state {
            State::Queued | State::Pausing { .. } => self.finish(shard, None, ClosedWhy::Stopped),
            State::Opening => {
                entry.stop = Some(stop.clone());
                if cut {
                    self.fence(shard, stop.reason);
                }
                if self.options.rules.broken(Mutation::StopBeforeOpen) {
                    self.close(shard, How::Clean, Then::Finish(ClosedWhy::Stopped));
                }
            }
            State::Running { .. } => {
                entry.stop = Some(stop.clone());
                if cut {
                    self.fence(shard, stop.reason);
                }
                let how = if cut { How::Abandon } else { How::Clean };
                self.close(shard, how, Then::Finish(ClosedWhy::Stopped));
            }
            State::Closing { then } => {
                if matches!(then, Then::Ask { .. }) {
                    *then = Then::Finish(ClosedWhy::Stopped);
                    entry.stop = Some(stop.clone());
                }
                if cut {
                    self.fence(shard, stop.reason);
                }
            }
        }
    }

    fn host(&mut self, event: HostEvent, now: Moment) {
        let (shard, generation) = match &event {
            HostEvent::Opened {
                shard, generation, ..
            }
            | HostEvent::OpenFailed {
                shard, generation, ..
            }
            | HostEvent::Down {
                shard, generation, ..
            }
            | HostEvent::Closed {
                shard, generation, ..
            } => (*shard, *generation),
        };
        let known = self
            .shards
            .get_mut(&shard)
            .filter(|entry| entry.open.generation == generation);
        let Some(entry) = known else {
            return;
        };
        match (event, &entry.state) {
            (HostEvent::Opened { writer_epoch, .. }, State::Opening) => {
                entry.open.writer_epoch = Some(writer_epoch);
                self.opened(shard, writer_epoch, now);
            }
            (HostEvent::OpenFailed { kind, error, .. }, State::Opening) => {
                let reason = match kind {
                    OpenFailure::Fenced => DownReason::Fenced,
                    OpenFailure::Failed | OpenFailure::TimedOut => DownReason::Crashed,
                };
                if entry.fenced || entry.stop.is_some() {
                    let why = if entry.stop.is_some() {
                        ClosedWhy::Stopped
                    } else {
                        ClosedWhy::Expired
                    };
                    self.finish(shard, None, why);
                    return;
                }
                self.count(shard, &reason, error, now, now);
                self.after(shard, reason, now, now);
            }
            (HostEvent::Down { reason, error, .. }, State::Running { since }) => {
                let since = *since;
                // A database that closed by itself is no less down than one that failed.
                let reason = if reason == DownReason::Stopped {
                    DownReason::Crashed
                } else {
                    reason
                };
                self.count(shard, &reason, error, since, now);
                if reason != DownReason::Crashed {
                    self.fence(shard, StopReason::Lost);
                }
                self.close(shard, How::Abandon, Then::Ask { reason, since });
            }
            (HostEvent::Closed { clean, .. }, State::Closing { then }) => match then.clone() {
                Then::Finish(why) => {
                    let clean = clean && !entry.fenced;
                    let epoch = entry.open.writer_epoch.filter(|_| clean);
                    self.finish(shard, epoch, why);
                }
                Then::Ask { reason, since } => self.after(shard, reason, since, now),
            },
            // What a host may not tell in this state changes nothing.
            _ => {}
        }
    }

    fn opened(&mut self, shard: u32, writer_epoch: u64, now: Moment) {
        let Some(entry) = self.shards.get_mut(&shard) else {
            return;
        };
        let Open {
            generation,
            deadline,
            ..
        } = entry.open;
        let late = entry.fenced || deadline <= now;
        let how = if late { How::Abandon } else { How::Clean };
        if entry.stop.is_some() {
            return self.close(shard, how, Then::Finish(ClosedWhy::Stopped));
        }
        if late && !self.options.rules.broken(Mutation::ServeLateOpen) {
            return self.close(shard, how, Then::Finish(ClosedWhy::Expired));
        }
        entry.state = State::Running { since: now };
        self.effects.push(HostEffect::Serve {
            shard,
            generation,
            deadline,
        });
        self.report(RunnerReport::Opened {
            shard,
            generation,
            writer_epoch,
        });
    }

    /// One more failure of a shard that ran since then.
    fn count(
        &mut self,
        shard: u32,
        reason: &DownReason,
        error: String,
        since: Moment,
        now: Moment,
    ) {
        let Some(entry) = self.shards.get_mut(&shard) else {
            return;
        };
        if now.since(since) >= LONG_UPTIME {
            entry.failures = 0;
        }
        entry.failures += 1;
        let (generation, failures) = (entry.open.generation, entry.failures);
        self.report(RunnerReport::Down {
            shard,
            generation,
            reason: reason.clone(),
            failures,
            error,
        });
    }

    /// A shard that went down has closed: it is opened again or given back. One that was fenced needs its lease looked at first.
    fn after(&mut self, shard: u32, reason: DownReason, since: Moment, now: Moment) {
        let random = self.rng.next_f64();
        let Some(entry) = self.shards.get_mut(&shard) else {
            return;
        };
        if reason == DownReason::Fenced && self.strategy.leased() {
            return self.finish(shard, None, ClosedWhy::Fenced);
        }
        let down = Down {
            shard,
            reason,
            failures: entry.failures,
            uptime: now.since(since),
            random,
        };
        match self.strategy.down(&down, &mut entry.backoff) {
            Next::Reopen(pause) if entry.open.deadline > now => {
                entry.fenced = false;
                entry.state = State::Pausing { until: now + pause };
            }
            Next::Reopen(_) => self.finish(shard, None, ClosedWhy::Expired),
            Next::StayDown | Next::GiveBack => self.finish(shard, None, ClosedWhy::GaveUp),
        }
    }

    /// Cuts off what is past its deadline.
    fn expire(&mut self, now: Moment) {
        if self.options.rules.broken(Mutation::NoSelfFence) {
            return;
        }
        let past = |entry: &Entry| entry.open.deadline <= now && !entry.fenced;
        let past = self.shards.iter().filter(|(_, entry)| past(entry));
        let shards: Vec<u32> = past.map(|(shard, _)| *shard).collect();
        for shard in shards {
            let Some(entry) = self.shards.get_mut(&shard) else {
                continue;
            };
            let generation = entry.open.generation;
            match &mut entry.state {
                State::Queued if self.options.rules.broken(Mutation::OpenAfterDeadline) => {}
                State::Queued | State::Pausing { .. } => {
                    self.finish(shard, None, ClosedWhy::Expired);
                }
                State::Opening => {
                    self.fence(shard, StopReason::Expired);
                    self.report(RunnerReport::SelfFenced { shard, generation });
                }
                State::Running { .. } => {
                    self.fence(shard, StopReason::Expired);
                    self.report(RunnerReport::SelfFenced { shard, generation });
                    self.close(shard, How::Abandon, Then::Finish(ClosedWhy::Expired));
                }
                State::Closing { then } => {
                    *then = Then::Finish(ClosedWhy::Expired);
                    self.fence(shard, StopReason::Expired);
                    self.report(RunnerReport::SelfFenced { shard, generation });
                }
            }
        }
    }

    /// Starts what waits, as far as there is room.
    fn start(&mut self, now: Moment) {
        for (shard, entry) in &mut self.shards {
            if matches!(entry.state, State::Pausing { until } if until <= now) {
                entry.state = State::Queued;
                self.queue.push_back(*shard);
            }
        }
        let opening = |entry: &&Entry| matches!(entry.state, State::Opening);
        let mut opening = self.shards.values().filter(opening).count();
        let most = if self.options.rules.broken(Mutation::NoMaxConcurrency) {
            usize::MAX
        } else {
            self.options.max_concurrency.max(1) as usize
        };
        while opening < most {
            let Some(shard) = self.queue.pop_front() else {
                break;
            };
            let waiting = self
                .shards
                .get_mut(&shard)
                .filter(|entry| matches!(entry.state, State::Queued));
            let Some(entry) = waiting else {
                continue;
            };
            if entry.open.deadline <= now && !self.options.rules.broken(Mutation::OpenAfterDeadline)
            {
                self.finish(shard, None, ClosedWhy::Expired);
                continue;
            }
            entry.state = State::Opening;
            opening += 1;
            let any = self.options.rules.broken(Mutation::LastOpenerWins);
            self.effects.push(HostEffect::Open {
                shard,
                generation: entry.open.generation,
                writer_epoch: entry
                    .open
                    .writer_epoch
                    .filter(|_| !any && self.strategy.leased()),
                deadline: entry.open.deadline,
            });
        }
    }

    fn fence(&mut self, shard: u32, reason: StopReason) {
        let Some(entry) = self.shards.get_mut(&shard).filter(|entry| !entry.fenced) else {
            return;
        };
        entry.fenced = true;
        if !self.options.rules.broken(Mutation::CloseWithoutFence) {
            let generation = entry.open.generation;
            self.effects.push(HostEffect::Fence {
                shard,
                generation,
                reason,
            });
        }
    }

    fn close(&mut self, shard: u32, how: How, then: Then) {
        let Some(entry) = self.shards.get_mut(&shard) else {
            return;
        };
        entry.state = State::Closing { then };
        let flush = self.options.rules.broken(Mutation::CloseWithoutFence);
        self.effects.push(HostEffect::Close {
            shard,
            generation: entry.open.generation,
            how: if flush { How::Clean } else { how },
            successor: entry.stop.as_ref().and_then(|stop| stop.successor.clone()),
        });
    }

    /// Nothing is left of a shard: the loop is told, and what was to follow follows.
    fn finish(&mut self, shard: u32, writer_epoch: Option<u64>, why: ClosedWhy) {
        let Some(entry) = self.shards.remove(&shard) else {
            return;
        };
        self.queue.retain(|queued| *queued != shard);
        self.report(RunnerReport::Closed {
            shard,
            generation: entry.open.generation,
            writer_epoch,
            why,
        });
        if let Some(next) = entry.next {
            self.queue(shard, next);
        }
    }

    fn report(&mut self, report: RunnerReport) {
        self.effects.push(HostEffect::Report(report));
    }
}

#[cfg(test)]
mod tests;

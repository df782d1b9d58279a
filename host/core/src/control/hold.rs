//! The leases that this node holds: claim, open, renew, close, free.

use super::{Control, Effect, Fate, Freeing, Hold, Known, LeaseEvent, WINDOW, Wanted, What, Wish};
use crate::lease::op::{ClaimLost, LeaseOp, LeaseSeen, Outcome, Renewal};
use crate::lease::record::{NodeRecord, NodeState, Owner};
use crate::placement::Role;
use crate::rules::Mutation;
use crate::runner::{RunnerCommand, StopReason, Which};
use crate::time::Moment;

impl Hold {
    pub(super) fn new(lease: LeaseSeen) -> Self {
        Self {
            lease,
            until: Moment::ORIGIN,
            renewed: Moment::ORIGIN,
            failures: 0,
            epoch: None,
            wish: Wish::Keep,
            retry: Moment::ORIGIN,
            setbacks: 0,
            damaged: false,
            doubtful: false,
        }
    }

    /// The next write goes over what stands there, which may be an own one that came late: its counter is above that, too.
    fn follow(&mut self, seen: &LeaseSeen) {
        self.lease.tag.clone_from(&seen.tag);
        let counter = &mut self.lease.record.counter;
        *counter = (*counter).max(seen.record.counter);
    }
}

impl Control {
    /// When a shard has to have stopped.
    pub(super) fn deadline(&self, shard: u32) -> Moment {
        match self.options.renewal {
            Renewal::Session => self.until,
            Renewal::Lease => self
                .holds
                .get(&shard)
                .map_or(Moment::ORIGIN, |hold| hold.until),
        }
    }

    /// When something is due about a lease.
    pub(super) fn holds_due(&self) -> impl Iterator<Item = Moment> + '_ {
        let pending = self
            .holds
            .iter()
            .filter(|(shard, _)| !self.busy.contains_key(shard));
        pending.filter_map(|(shard, hold)| {
            let run = self.runs.get(shard);
            let renew = self.renewal_due(*shard, hold);
            let next = match (&hold.wish, run) {
                (Wish::Keep, Some(run)) if !run.accepted => Some(run.sent + self.timing.interval),
                (Wish::Keep, None) if self.broken(Mutation::RenewIdle) => None,
                (_, None) => Some(hold.retry),
                _ => None,
            };
            [renew, next].into_iter().flatten().min()
        })
    }

    /// When a lease is to be renewed by itself; never in a layout that renews sessions, unless it has vanished.
    fn renewal_due(&self, shard: u32, hold: &Hold) -> Option<Moment> {
        if hold.damaged {
            return Some(hold.retry);
        }
        let runs = self.runs.get(&shard).is_some_and(|run| run.accepted);
        let renews = runs || self.broken(Mutation::RenewIdle);
        let each = self.options.renewal == Renewal::Lease;
        (each && renews).then(|| hold.renewed + self.pace(hold.failures))
    }

    /// Does what is due about each lease that is held.
    pub(super) fn tend(&mut self, now: Moment) {
        let settled = |shard: &u32, hold: &Hold| {
            let runs = self.runs.get(shard).is_some_and(|run| run.accepted);
            let renew = self.renewal_due(*shard, hold).is_some_and(|due| now >= due);
            hold.wish == Wish::Keep && runs && !renew
        };
        let due = self
            .holds
            .iter()
            .filter(|(shard, hold)| !settled(shard, hold));
        let shards: Vec<u32> = due.map(|(shard, _)| *shard).collect();
        for shard in shards {
            self.tend_one(shard, now);
        }
    }

    fn tend_one(&mut self, shard: u32, now: Moment) {
        let Some(hold) = self.holds.get(&shard).cloned() else {
            return;
        };
        if let (Wish::Free(freeing), Some(run)) = (&hold.wish, self.runs.get_mut(&shard))
            && !run.stopping
        {
            run.stopping = true;
            self.effects.push(Effect::Runner(RunnerCommand::Stop {
                shard,
                reason: StopReason::Released,
                successor: freeing.successor.clone(),
            }));
        }
        if self.busy.contains_key(&shard) {
            return;
        }
        let late = self.deadline(shard) <= now && !self.broken(Mutation::RepairLate);
        if hold.damaged && late {
            // Others may have held it since: it is not this node's to restore.
            return self.lose(shard, None);
        }
        let renew = self.renewal_due(shard, &hold).is_some_and(|due| now >= due);
        if renew && self.flying(|what| matches!(what, What::Renew(_))) < WINDOW {
            return self.renew(shard, &hold, now);
        }
        let run = self.runs.get(&shard).copied();
        // Peers are to hear first that this node gives all away: who sees what it freed would take it for one that has room.
        let told = |own: &NodeRecord| own.info.state == NodeState::Draining;
        let first = self.role() == Role::Leaves
            && self.beat.failures == 0
            && !self.own.as_ref().is_none_or(told);
        match (&hold.wish, run) {
            (Wish::Free(_), None) if first => {}
            (Wish::Free(freeing), None) if now >= hold.retry => self.free(shard, &hold, freeing),
            (Wish::Free(freeing), Some(_)) if self.broken(Mutation::FreeBeforeClose) => {
                self.free(shard, &hold, freeing);
            }
            (Wish::Keep, Some(run)) if !run.accepted && now >= run.sent + self.timing.interval => {
                self.open(shard, now);
            }
            // It ended here, though its lease did not: it is claimed anew, which shows whether that is so.
            (Wish::Keep, None) if now >= hold.retry && !self.broken(Mutation::RenewIdle) => {
                let opening = self.flying(|what| matches!(what, What::Claim(_)));
                if self.until > now && opening < self.options.max_concurrency as usize {
                    self.claim(shard, hold.lease, None, "it is opened again", now);
                }
            }
            _ => {}
        }
    }

    fn renew(&mut self, shard: u32, hold: &Hold, now: Moment) {
        let until = self.deadline(shard);
        let lease = hold.lease.clone();
        let deadline = self.budget(until, now);
        if let Some(hold) = self.holds.get_mut(&shard) {
            hold.renewed = now;
        }
        self.spawn(LeaseOp::Renew { lease }, What::Renew(shard), deadline);
    }

    pub(super) fn renewed(
        &mut self,
        shard: u32,
        outcome: Outcome<LeaseSeen, LeaseSeen>,
        sent: Moment,
        now: Moment,
    ) {
        self.written.insert(shard, self.events);
        let lasts = self.lasts(sent, now);
        let retry = now + self.pace(3);
        let each = self.options.renewal == Renewal::Lease;
        let me = self.me();
        let Some(hold) = self.holds.get_mut(&shard) else {
            return;
        };
        match outcome {
            Outcome::Won(lease) => {
                hold.lease = lease.clone();
                hold.failures = 0;
                hold.damaged = false;
                hold.until = hold.until.max(lasts);
                let deadline = hold.until;
                self.news |= !each;
                self.note(lease, now);
                if each {
                    let which = Which::Shard(shard);
                    self.effects
                        .push(Effect::Runner(RunnerCommand::Extend { which, deadline }));
                }
            }
            Outcome::Lost(seen) if seen.vanished() || is_mine(&seen, hold, &me) => {
                // An earlier renewal came through late, or the lease vanished: once more, over what stands there.
                hold.damaged |= seen.vanished();
                hold.follow(&seen);
                hold.renewed = Moment::ORIGIN;
                hold.retry = retry;
                self.note(seen, now);
            }
            Outcome::Lost(seen) => {
                self.note(seen, now);
                self.compare(shard, now);
            }
            Outcome::Unknown(error) => {
                hold.failures += 1;
                hold.retry = retry;
                let left = self.deadline(shard).since(now);
                self.emit(LeaseEvent::RenewFailed { error, left });
            }
        }
    }

    /// A read showed a lease that is held here: it may have been lost, or have vanished.
    pub(super) fn compare(&mut self, shard: u32, now: Moment) {
        let me = self.me();
        let Some(known) = self.known.get(shard as usize).and_then(Option::as_ref) else {
            return;
        };
        let Some(hold) = self.holds.get_mut(&shard) else {
            return;
        };
        let seen = &known.seen;
        if is_mine(seen, hold, &me) {
            hold.lease = seen.clone();
        } else if seen.vanished() {
            // It was deleted or damaged. It is written again as it was.
            hold.lease.tag.clone_from(&seen.tag);
            hold.damaged = true;
            hold.retry = now;
        } else {
            let owner = seen.record.owner.clone();
            self.lose(shard, owner);
        }
    }

    fn lose(&mut self, shard: u32, owner: Option<Owner>) {
        self.holds.remove(&shard);
        self.routes_changed = true;
        self.emit(LeaseEvent::Lost { shard, owner });
        if let Some(run) = self.runs.get_mut(&shard) {
            run.stopping = true;
            self.effects.push(Effect::Runner(RunnerCommand::Stop {
                shard,
                reason: StopReason::Lost,
                successor: None,
            }));
        }
    }

    /// Claims what is wanted, a bounded number at a time.
    pub(super) fn pump(&mut self, now: Moment) {
        let takes = self.role() == Role::Open || self.broken(Mutation::DrainingClaims);
        while takes
            && self.until > now
            && self.flying(|what| matches!(what, What::Claim(_)))
                < self.options.max_concurrency as usize
        {
            let Some(Wanted {
                shard,
                at_most,
                event,
            }) = self.wanted.pop_front()
            else {
                break;
            };
            let twice = self.broken(Mutation::TwoClaims);
            let taken = self.holds.contains_key(&shard) || self.runs.contains_key(&shard);
            if taken || (self.busy.contains_key(&shard) && !twice) {
                continue;
            }
            // What was found to be free may have got an owner while it waited here.
            let known = self.known.get(shard as usize).and_then(Option::as_ref);
            let lives = |known: &&Known| matches!(self.fate(known, now), Fate::Lives | Fate::Mine);
            let Some(known) = known.filter(|known| known.event == event && !lives(known)) else {
                continue;
            };
            let seen = known.seen.clone();
            let why = match &seen.record.owner {
                Some(owner) => format!("its owner {} ended", owner.name),
                None if seen.tag.is_none() => "it had no lease".into(),
                None if seen.vanished() => "its lease was unreadable".into(),
                // Why it was freed says more than that it was.
                None if seen.record.successor.as_ref() == Some(&self.options.name)
                    && !seen.record.why.is_empty() =>
                {
                    seen.record.why.clone()
                }
                None => "it was free".into(),
            };
            self.claim(shard, seen.clone(), at_most, &why, now);
            if twice {
                self.claim(shard, seen, at_most, &why, now);
            }
        }
    }

    fn claim(&mut self, shard: u32, seen: LeaseSeen, at_most: Option<u64>, why: &str, now: Moment) {
        let op = LeaseOp::Claim {
            seen,
            above: self.highest.get(&shard).copied().unwrap_or(0),
            at_most,
            ask_epoch: false,
            why: why.into(),
        };
        let deadline = self.timing.interval.min(self.until.since(now));
        self.spawn(op, What::Claim(shard), deadline);
    }

    pub(super) fn claimed(
        &mut self,
        shard: u32,
        outcome: Outcome<LeaseSeen, ClaimLost>,
        current: bool,
        sent: Moment,
        now: Moment,
    ) {
        self.written.insert(shard, self.events);
        match outcome {
            Outcome::Won(lease) if current => {
                let from = self.known.get(shard as usize).and_then(Option::as_ref);
                let doubtful = from.is_some_and(|known| known.seen.vanished());
                let from = from.and_then(|known| known.seen.record.owner.clone());
                let generation = lease.record.generation;
                let until = self.lasts(sent, now);
                let setbacks = self.holds.get(&shard).map_or(0, |hold| hold.setbacks);
                let wish = self
                    .holds
                    .get(&shard)
                    .map_or(Wish::Keep, |hold| hold.wish.clone());
                let hold = Hold {
                    until,
                    renewed: sent,
                    setbacks,
                    wish,
                    doubtful,
                    ..Hold::new(lease.clone())
                };
                self.holds.insert(shard, hold);
                self.note(lease, now);
                self.unowned.remove(&shard);
                self.news = true;
                let event = LeaseEvent::Claimed {
                    shard,
                    generation,
                    from,
                };
                self.emit(event);
                if self.broken(Mutation::ClaimExtends) {
                    self.until = self.until.max(until);
                }
                if self.leaving || self.draining {
                    self.assign(now);
                }
                let keep = self
                    .holds
                    .get(&shard)
                    .is_some_and(|hold| hold.wish == Wish::Keep);
                if keep && self.deadline(shard) > now {
                    self.open(shard, now);
                }
            }
            Outcome::Won(_) => {}
            Outcome::Lost(ClaimLost::Changed(seen)) => {
                let owner = seen.record.owner.clone();
                let held = self.holds.contains_key(&shard);
                self.note(seen, now);
                if held {
                    self.compare(shard, now);
                } else if current {
                    self.emit(LeaseEvent::ClaimLost { shard, owner });
                }
            }
            Outcome::Lost(ClaimLost::Opened { writer_epoch }) => {
                if let Some(known) = self.known.get_mut(shard as usize).and_then(Option::as_mut) {
                    // Its owner, if it lives, has a TTL from here to restore the lease.
                    if known.opened.is_some() {
                        known.since = now;
                    }
                    known.opened = Some(writer_epoch);
                    if known.told.is_none() {
                        self.alarm(now);
                    }
                }
            }
            Outcome::Unknown(error) => {
                let retry = now + self.pace(2);
                self.look.at = self.look.at.min(retry);
                if let Some(hold) = self.holds.get_mut(&shard) {
                    hold.retry = retry;
                }
                if let Some(known) = self.known.get_mut(shard as usize).and_then(Option::as_mut) {
                    known.not_before = retry;
                }
                self.emit(LeaseEvent::Unknown {
                    op: "claim",
                    shard: Some(shard),
                    error,
                });
            }
        }
    }

    fn free(&mut self, shard: u32, hold: &Hold, freeing: &Freeing) {
        if self.flying(|what| matches!(what, What::Release(_))) >= WINDOW {
            return;
        }
        let named = !self.broken(Mutation::NoSuccessor);
        let op = LeaseOp::Release {
            lease: hold.lease.clone(),
            writer_epoch: hold.epoch,
            successor: freeing.successor.clone().filter(|_| named),
            pinned: freeing.pinned,
            why: freeing.why.into(),
        };
        self.spawn(op, What::Release(shard), self.timing.interval);
    }

    pub(super) fn released(
        &mut self,
        shard: u32,
        outcome: Outcome<LeaseSeen, LeaseSeen>,
        now: Moment,
    ) {
        self.written.insert(shard, self.events);
        let Some(hold) = self.holds.get_mut(&shard) else {
            return;
        };
        let held = hold.lease.record.generation;
        let me = Owner {
            name: self.options.name.clone(),
            session: self.session,
        };
        match outcome {
            Outcome::Unknown(error) => {
                hold.retry = now + self.timing.interval / 4;
                self.emit(LeaseEvent::Unknown {
                    op: "release",
                    shard: Some(shard),
                    error,
                });
            }
            Outcome::Lost(seen) if seen.vanished() || is_mine(&seen, hold, &me) => {
                // An own renewal came late, or the lease vanished: once more, over what stands there.
                hold.follow(&seen);
                hold.retry = now + self.timing.interval / 4;
                self.note(seen, now);
            }
            // An earlier attempt to free it came through.
            Outcome::Lost(seen)
                if seen.record.owner.is_none() && seen.record.generation == held =>
            {
                self.freed(shard, held, seen, now);
            }
            Outcome::Lost(seen) => {
                let owner = seen.record.owner.clone();
                self.note(seen, now);
                self.lose(shard, owner);
            }
            Outcome::Won(lease) => self.freed(shard, held, lease, now),
        }
    }

    fn freed(&mut self, shard: u32, generation: u64, lease: LeaseSeen, now: Moment) {
        let successor = lease.record.successor.clone();
        self.holds.remove(&shard);
        self.note(lease, now);
        self.news = true;
        // Those who are to take it get time for it.
        let again = now + self.timing.interval * 2;
        if let Some(known) = self.known.get_mut(shard as usize).and_then(Option::as_mut) {
            known.not_before = again;
        }
        let event = LeaseEvent::Released {
            shard,
            generation,
            successor: successor.clone(),
        };
        self.emit(event);
        if let Some(successor) = successor {
            self.notify(successor.clone(), shard);
            self.told.insert(shard, (successor, 0));
        }
        if self.broken(Mutation::ReclaimReleased)
            && let Some(known) = self.known.get(shard as usize).and_then(Option::as_ref)
        {
            let (at_most, event) = (None, known.event);
            self.wanted.push_back(Wanted {
                shard,
                at_most,
                event,
            });
        }
    }
}

/// Whether a lease is the one that is held, renewed or not.
fn is_mine(seen: &LeaseSeen, hold: &Hold, me: &Owner) -> bool {
    !seen.vanished()
        && seen.record.owner.as_ref() == Some(me)
        && seen.record.generation == hold.lease.record.generation
}

//! The session: join, stay, lose it, leave.

use std::time::Duration;

use super::event::{Command, CommandError};
use super::state::{Freeing, Wish};
use super::{Control, Effect, Joining, LeaseEvent, Phase, What};
use crate::lease::object::Tag;
use crate::lease::op::{LeaseOp, NodeSeen, Outcome, Renewal};
use crate::lease::record::{NodeInfo, NodeState, PROTOCOL, SessionId};
use crate::placement::Role;
use crate::rules::Mutation;
use crate::runner::{RunnerCommand, StopReason, Which};
use crate::time::Moment;

/// A session that changed so often since it was first seen lives: one change may be a write of a dead process that came late.
const ALIVE: u32 = 2;

impl Control {
    /// What this node says of itself.
    pub(super) fn info(&self) -> NodeInfo {
        let draining = self.draining || self.leaving;
        NodeInfo {
            protocol: PROTOCOL,
            cluster: self.options.cluster.clone(),
            name: self.options.name.clone(),
            session: self.session,
            state: if draining {
                NodeState::Draining
            } else {
                NodeState::Live
            },
            shards: u32::try_from(self.holds.len()).unwrap_or(u32::MAX),
            ttl_ms: u64::try_from(self.timing.ttl.as_millis()).unwrap_or(u64::MAX),
            advertise: self.options.advertise.clone(),
            zone: self.options.zone.clone(),
            cordoned: self.cordoned,
            blind: self.unsighted && !self.broken(Mutation::HideBlindness),
            software: self.options.software.clone(),
        }
    }

    /// What a plan makes of this node.
    pub(super) fn role(&self) -> Role {
        if self.draining || self.leaving {
            Role::Leaves
        } else if self.cordoned {
            Role::Keeps
        } else {
            Role::Open
        }
    }

    pub(super) fn join(&mut self, now: Moment) {
        let Phase::Joining(joining) = &mut self.phase else {
            return;
        };
        if joining.flying {
            return;
        }
        if self.leaving {
            if self.runs.is_empty() {
                self.end();
            }
            return;
        }
        if now < joining.at {
            return;
        }
        let ttl = self.timing.ttl;
        // Another session whose record is missing by now has a TTL, too, to write it again.
        let over = joining.other.as_ref().and_then(|(tag, since, _)| {
            if now >= *since + ttl {
                tag.clone()
            } else {
                Some(Tag::NOTHING)
            }
        });
        joining.flying = true;
        let me = self.info();
        let op = LeaseOp::Setup { me, over };
        self.spawn(op, What::Setup, self.timing.interval);
    }

    pub(super) fn joined(
        &mut self,
        outcome: Outcome<NodeSeen, NodeSeen>,
        asked: u64,
        sent: Moment,
        now: Moment,
    ) {
        let (ttl, interval) = (self.timing.ttl, self.timing.interval);
        let Phase::Joining(joining) = &mut self.phase else {
            return;
        };
        joining.flying = false;
        match outcome {
            Outcome::Won(seen) => {
                self.phase = Phase::Member;
                self.own = seen.record.ok();
                self.until = Moment::ORIGIN;
                self.renew_session(asked, sent, now);
                self.beat.at = sent + interval;
                self.beat.failures = 0;
                self.look.at = now;
                self.look.failures = 0;
                self.whole = true;
                let session = self.session;
                self.emit(LeaseEvent::Joined { session });
            }
            Outcome::Lost(seen) => {
                let ours = |info: &NodeInfo| info.session == self.session;
                if seen.record.as_ref().is_ok_and(|record| ours(&record.info)) {
                    // It was ended before it began.
                    self.session = SessionId::new(self.rng.next_u128());
                    joining.at = now + interval / 2;
                    return;
                }
                let same = match (&joining.other, &seen.tag) {
                    (Some((Some(old), _, _)), Some(new)) => old.same(new),
                    (Some((None, _, _)), None) => true,
                    _ => false,
                };
                let before = joining.other.take();
                let changes = before.as_ref().map_or(0, |(_, _, n)| n + u32::from(!same));
                let since = before
                    .as_ref()
                    .filter(|_| same)
                    .map_or(now, |(_, since, _)| *since);
                joining.at = (now + interval).min((since + ttl).max(now));
                joining.other = Some((seen.tag, since, changes));
                if before.is_none_or(|(_, _, n)| n < ALIVE && changes >= ALIVE) {
                    let (session, address) = match seen.record {
                        Ok(record) => (Some(record.info.session), record.info.advertise),
                        Err(_) => (None, String::new()),
                    };
                    self.emit(LeaseEvent::NameTaken {
                        session,
                        address,
                        alive: changes >= ALIVE,
                    });
                }
            }
            Outcome::Unknown(error) => {
                joining.at = now + interval / 2;
                if let Some((None, since, _)) = &mut joining.other {
                    // A record that is missing looks as it did before, though it may have come and gone while nobody looked.
                    *since = now;
                }
                self.emit(LeaseEvent::Unknown {
                    op: "setup",
                    shard: None,
                    error,
                });
            }
        }
    }

    /// A renewal of the session was won: what was sent then lasts a TTL, less the margin.
    fn renew_session(&mut self, asked: u64, sent: Moment, now: Moment) {
        self.until = self.until.max(self.lasts(sent, now));
        self.renewed = sent;
        self.proof = asked;
        if self.options.renewal == Renewal::Session {
            self.effects.push(Effect::Runner(RunnerCommand::Extend {
                which: Which::All,
                deadline: self.until,
            }));
        }
    }

    /// Until when a renewal lasts that was sent then and answered now.
    pub(super) fn lasts(&self, sent: Moment, now: Moment) -> Moment {
        let from = if self.broken(Mutation::DeadlineFromReply) {
            now
        } else {
            sent
        };
        let margin = if self.broken(Mutation::NoMargin) {
            Duration::ZERO
        } else {
            self.timing.margin
        };
        from + self.timing.ttl - margin
    }

    /// The time for an attempt to renew what lasts until then: half of what is left, so that another one fits.
    pub(super) fn budget(&self, until: Moment, now: Moment) -> Duration {
        let interval = self.timing.interval;
        let left = until.since(now);
        if left.is_zero() {
            interval
        } else {
            (left / 2).clamp(interval / 8, interval)
        }
    }

    /// The pause after so many failures in a row.
    pub(super) fn pace(&self, failures: u32) -> Duration {
        if self.broken(Mutation::SlowRetry) && failures > 0 {
            return self.timing.interval * 2;
        }
        self.timing.interval / (1 << failures.min(3))
    }

    pub(super) fn heartbeat(&mut self, now: Moment) {
        if self.beat.flying.is_some() || self.leave.flying.is_some() || now < self.beat.at {
            return;
        }
        let me = self.info();
        let news = std::mem::take(&mut self.news);
        self.telling = news;
        let deadline = self.budget(self.until, now);
        let repair = self.until > now || self.broken(Mutation::RepairLate);
        let op = LeaseOp::Heartbeat { me, news, repair };
        self.beat.flying = Some(self.spawn(op, What::Heartbeat, deadline));
    }

    pub(super) fn beaten(
        &mut self,
        outcome: Outcome<NodeSeen, NodeSeen>,
        asked: u64,
        sent: Moment,
        now: Moment,
    ) {
        self.beat.flying = None;
        match outcome {
            Outcome::Won(seen) => {
                self.own = seen.record.ok();
                self.beat.failures = 0;
                self.beat.at = sent + self.timing.interval;
                let now_says = self.info();
                let told = |told: &NodeInfo| {
                    (told.state, told.cordoned, told.blind)
                        == (now_says.state, now_says.cordoned, now_says.blind)
                };
                if !self.own.as_ref().is_none_or(|own| told(&own.info)) {
                    // It was asked to drain, or lost its sight, while this was under way.
                    self.beat.at = now;
                }
                self.renew_session(asked, sent, now);
                if self.telling {
                    self.alarmed(asked, now);
                }
            }
            Outcome::Lost(_) if self.broken(Mutation::IgnoreLostSession) => {
                self.beat.at = sent + self.timing.interval;
                self.renew_session(asked, sent, now);
            }
            Outcome::Lost(seen) => {
                // Where there is no record, nobody can tell whether there is a session: it has a TTL to show.
                let gone = seen.record.is_err().then(|| seen.tag.clone());
                let why = match seen.record {
                    Ok(record) if record.info.session == self.session => {
                        "a peer ended it, because it was not renewed for a TTL".into()
                    }
                    Ok(record) => format!(
                        "session {} has this name now, at {:?}; are there two nodes named {}?",
                        record.info.session, record.info.advertise, self.options.name
                    ),
                    Err(error) => error.to_string(),
                };
                self.session_lost(why, now);
                if let (Some(tag), Phase::Joining(joining)) = (gone, &mut self.phase) {
                    joining.other = Some((tag, now, 0));
                }
            }
            Outcome::Unknown(error) => {
                self.news = true;
                self.beat.failures += 1;
                // Counted from the sending: an attempt that hung has taken its pause already, and near the deadline there is no time for
                // another one.
                let pause = if self.broken(Mutation::PauseAfterHang) {
                    self.pace(3) / 2
                } else {
                    Duration::ZERO
                };
                self.beat.at = (sent + self.pace(self.beat.failures)).max(now + pause);
                let left = self.until.since(now);
                self.emit(LeaseEvent::RenewFailed { error, left });
            }
        }
    }

    /// Whatever this session held is not its own any more: all stops, and a new one begins.
    fn session_lost(&mut self, why: String, now: Moment) {
        let session = self.session;
        self.emit(LeaseEvent::SessionLost { session, why });
        let reason = StopReason::Lost;
        self.effects
            .push(Effect::Runner(RunnerCommand::StopAll { reason }));
        for run in self.runs.values_mut() {
            run.stopping = true;
        }
        self.holds.clear();
        self.wanted.clear();
        self.told.clear();
        self.until = Moment::ORIGIN;
        self.session = SessionId::new(self.rng.next_u128());
        self.beat.flying = None;
        self.leave.flying = None;
        self.routes_changed = true;
        self.phase = Phase::Joining(Joining {
            at: now,
            flying: false,
            other: None,
        });
    }

    pub(super) fn command(&mut self, command: Command, now: Moment) {
        if self.leaving {
            if command != Command::Leave {
                self.effects.push(Effect::Refused(CommandError::Leaving));
            }
            return;
        }
        match command {
            Command::Move { shard, to } => return self.move_shard(shard, to, now),
            Command::Cordon => self.cordoned = true,
            Command::Uncordon => (self.cordoned, self.draining) = (false, false),
            Command::Drain => self.draining = true,
            Command::Leave => self.leaving = true,
        }
        self.beat.at = self.beat.at.min(now);
        self.look.at = self.look.at.min(now);
        if matches!(self.phase, Phase::Member) && self.role() == Role::Leaves {
            self.wanted.clear();
            self.assign(now);
        }
    }

    fn move_shard(&mut self, shard: u32, to: crate::lease::record::NodeName, now: Moment) {
        let known = self.known.get(shard as usize).and_then(Option::as_ref);
        let owner = known.and_then(|known| known.seen.record.owner.as_ref());
        let owner = owner.map(|owner| owner.name.clone());
        let Some(hold) = self.holds.get_mut(&shard) else {
            let refused = CommandError::NotHeld { shard, owner };
            self.effects.push(Effect::Refused(refused));
            return;
        };
        let takes = |peer: &super::peers::Peer| {
            peer.may_live(self.timing, now) && peer.role(&self.options.cluster) == Role::Open
        };
        let peer = self.peers.map.get(&to);
        if peer.is_some_and(takes) && to != self.options.name {
            hold.wish = Wish::Free(Freeing {
                successor: Some(to),
                pinned: true,
                why: "moved by an operator",
            });
            return;
        }
        let why = match peer {
            _ if to == self.options.name => "this node has it already",
            None => "there is no such node",
            Some(peer) if !peer.may_live(self.timing, now) => "it does not run",
            Some(_) => "it takes no shards",
        };
        let open = self
            .peers
            .map
            .iter()
            .filter(|(name, peer)| takes(peer) && **name != self.options.name);
        let refused = CommandError::NoTarget {
            shard,
            why: why.into(),
            nodes: open.map(|(name, _)| name.clone()).take(20).collect(),
            to,
        };
        self.effects.push(Effect::Refused(refused));
    }

    /// Ends the session once everything was given away, or once nothing can be kept any more.
    pub(super) fn try_leave(&mut self, now: Moment) {
        if !self.leaving || self.leave.flying.is_some() {
            return;
        }
        if self.until <= now && self.runs.is_empty() {
            // The store is away: what was held expires by itself.
            return self.end();
        }
        if !self.is_empty() || self.beat.flying.is_some() || now < self.leave.at {
            return;
        }
        let me = self.info();
        let deadline = self.budget(self.until, now);
        self.leave.flying = Some(self.spawn(LeaseOp::Leave { me }, What::Leave, deadline));
    }

    pub(super) fn leave_done(&mut self, outcome: Outcome<NodeSeen, NodeSeen>, now: Moment) {
        self.leave.flying = None;
        match outcome {
            Outcome::Won(_) | Outcome::Lost(_) => {
                let session = self.session;
                self.emit(LeaseEvent::Left { session });
                self.end();
            }
            Outcome::Unknown(error) => {
                self.leave.failures += 1;
                self.leave.at = now + self.pace(self.leave.failures);
                self.emit(LeaseEvent::Unknown {
                    op: "leave",
                    shard: None,
                    error,
                });
            }
        }
    }

    fn end(&mut self) {
        self.phase = Phase::Left;
        self.effects.push(Effect::Left);
    }
}

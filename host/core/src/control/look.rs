//! Reading nodes and leases, and keeping in mind what was read.

use super::peers::News;
use super::{Control, Effect, Known, LeaseEvent, Phase, WINDOW, Wanted, What};
use crate::lease::op::{LeaseOp, LeaseSeen, Nodes, Owners, Renewal};
use crate::lease::record::NodeName;
use crate::placement::Role;
use crate::rules::Mutation;
use crate::time::Moment;

/// Every so many looks everything is read, whatever sizes and tags say.
const WHOLE: u64 = 60;
/// How often a successor is told of a shard that was freed for it.
const TELL: u32 = 5;

impl Control {
    /// Begins a look at nodes and leases when it is due, or when a peer expires.
    pub(super) fn start_look(&mut self, now: Moment) {
        let due = self
            .look
            .at
            .min(self.next_expiry().unwrap_or(Moment::NEVER));
        if self.look.flying.is_some() || now < due {
            return;
        }
        self.looks += 1;
        self.looked = now;
        self.whole |= self.looks.is_multiple_of(WHOLE);
        self.look.at = now + self.timing.interval;
        let op = LeaseOp::Nodes { all: self.whole };
        self.look.flying = Some(self.spawn(op, What::Nodes, self.timing.interval));
    }

    /// When the next peer expires, or the brake of one that has expired is off; a look that began at or after that moment has seen to it.
    pub(super) fn next_expiry(&self) -> Option<Moment> {
        let next = self
            .peers
            .map
            .values()
            .filter(|peer| !peer.is_over())
            .map(|peer| {
                let expires = peer.expires(self.timing);
                peer.brake.map_or(expires, |brake| brake.max(expires))
            });
        next.filter(|next| *next > self.looked).min()
    }

    fn look_failed(&mut self, error: String, now: Moment) {
        self.look.failures += 1;
        self.look.at = self.look.at.min(now + self.pace(self.look.failures));
        self.whole = true;
        // While heartbeats fail, too, peers see that without being told.
        let long = now.since(self.sighted) > self.timing.interval * 2;
        if long && self.beat.failures == 0 && !self.unsighted {
            self.unsighted = true;
            self.beat.at = self.beat.at.min(now);
        }
        self.emit(LeaseEvent::ReadFailed { error });
    }

    pub(super) fn nodes_read(&mut self, nodes: Result<Nodes, String>, asked: u64, now: Moment) {
        self.look.flying = None;
        let nodes = match nodes {
            Ok(nodes) => nodes,
            Err(error) => {
                self.look_failed(error, now);
                if self.broken(Mutation::ClaimThoughReadFailed) {
                    self.assign(now);
                }
                return;
            }
        };
        let peers = nodes
            .nodes
            .into_iter()
            .filter(|node| node.name != self.options.name)
            .collect();
        let cluster = self.options.cluster.clone();
        let (changed, news) = self.peers.observe(peers, &cluster, now, asked);
        if now.since(self.sighted) > self.timing.interval * 2 {
            // A record that is missing looks as it did before, though it may have come and gone while nobody looked.
            self.peers.doubt(now);
        }
        self.news_of_peers(news);
        self.nodes_asked = asked;
        self.routes_changed = true;
        let all = self.whole || changed || self.options.renewal == Renewal::Lease;
        self.look.flying =
            Some(self.spawn(LeaseOp::Owners { all }, What::Owners, self.timing.interval));
    }

    fn news_of_peers(&mut self, news: Vec<News>) {
        for news in news {
            self.emit(match news {
                News::Unreadable(node, error) => LeaseEvent::NodeUnreadable { node, error },
                News::Foreign(node, why) => LeaseEvent::NodeForeign { node, why },
            });
        }
    }

    pub(super) fn owners_read(&mut self, owners: Owners, asked: u64, now: Moment) {
        self.look.flying = None;
        // What changed, and what is missing, is judged by the listing of the nodes' read before it.
        let asked = asked.min(self.nodes_asked);
        for seen in owners.changed {
            self.learn(seen, asked, now);
        }
        if let Some(error) = owners.failed {
            self.look_failed(error, now);
            if !self.broken(Mutation::ClaimThoughReadFailed) {
                self.wanted.clear();
                return;
            }
        } else {
            self.look.failures = 0;
            self.whole = false;
            let long = now.since(self.sighted) > self.timing.interval * 2;
            self.sighted = now;
            if long {
                self.regained = now;
                for peer in self.peers.map.values_mut() {
                    peer.brake = None;
                }
                // What is missing looks as it did before, though it may have come and gone while nobody looked.
                let vanished = self.known.iter_mut().flatten();
                for known in vanished.filter(|known| known.seen.vanished()) {
                    known.since = now;
                }
            }
            if std::mem::take(&mut self.unsighted) {
                self.beat.at = self.beat.at.min(now);
            }
        }
        if matches!(self.phase, Phase::Member) {
            self.assign(now);
            self.tell_again();
        }
    }

    /// Reads again what a read showed that may have been older than what is known.
    pub(super) fn read_again(&mut self, now: Moment) {
        for shard in self.reread.clone() {
            let recent = self.reads.get(&shard).copied();
            if self.not_lately(recent, now) && self.read_one(shard) {
                self.reads.insert(shard, now);
                self.reread.remove(&shard);
            }
        }
    }

    /// Reads one lease because a peer does not have it; not too often. What this node holds it knows, and to free it must not wait for a
    /// read.
    pub(super) fn missed(&mut self, shard: u32, now: Moment) {
        let recent = self.reads.get(&shard).copied();
        let held = self.holds.contains_key(&shard);
        if !held && self.not_lately(recent, now) && self.read_one(shard) {
            self.reads.insert(shard, now);
        }
    }

    /// Reads one lease because a peer freed it for this node; also when calls have looked for the shard a moment ago, which they do all the
    /// time while it moves.
    pub(super) fn noticed(&mut self, shard: u32, now: Moment) {
        let recent = self.notices.get(&shard).copied();
        if !self.not_lately(recent, now) {
            return;
        }
        let reading = self.flying(|what| *what == What::Read(shard)) > 0;
        if reading {
            self.unread.insert(shard);
        }
        if reading || self.read_one(shard) {
            self.notices.insert(shard, now);
        }
    }

    fn not_lately(&self, last: Option<Moment>, now: Moment) -> bool {
        last.is_none_or(|last| now >= last + self.timing.interval / 10)
    }

    /// Says whether it began to.
    fn read_one(&mut self, shard: u32) -> bool {
        let many = self.flying(|what| matches!(what, What::Read(_))) >= WINDOW;
        let member = matches!(self.phase, Phase::Member);
        if many || !member || shard >= self.options.shards || self.busy.contains_key(&shard) {
            return false;
        }
        self.spawn(
            LeaseOp::Read { shard },
            What::Read(shard),
            self.timing.interval,
        );
        true
    }

    pub(super) fn one_read(
        &mut self,
        shard: u32,
        read: Result<LeaseSeen, String>,
        asked: u64,
        now: Moment,
    ) {
        let freed = self.unread.remove(&shard);
        let seen = match read {
            Ok(seen) => seen,
            Err(error) => {
                // A listing may have told of what is new already, and does not do so twice.
                self.reread.insert(shard);
                return self.emit(LeaseEvent::ReadFailed { error });
            }
        };
        self.learn(seen, asked, now);
        // What it showed may be older than what is known by now: somebody may have claimed it.
        let for_me = |known: &&Known| {
            known.seen.record.owner.is_none()
                && known.seen.record.successor.as_ref() == Some(&self.options.name)
                && !known.seen.vanished()
        };
        let known = self.known.get(shard as usize).and_then(Option::as_ref);
        if let Some(known) = known.filter(for_me)
            && self.role() == Role::Open
            && !self.holds.contains_key(&shard)
        {
            self.wanted.push_front(Wanted {
                shard,
                at_most: None,
                event: known.event,
            });
        } else if freed {
            self.read_one(shard);
        }
    }

    /// Takes a lease as a read showed it. A read that began before this node's own last write of the lease ended may be older than
    /// that, or than what another read showed since: then only a higher counter is believed. What may be news all the same is read again.
    pub(super) fn learn(&mut self, seen: LeaseSeen, asked: u64, now: Moment) {
        let shard = seen.record.shard;
        let Some(known) = self.known.get(shard as usize) else {
            return;
        };
        let flight = self.busy.get(&shard).and_then(|id| self.flights.get(id));
        let writing = flight.is_some_and(|flight| !matches!(flight.what, What::Read(_)));
        let doubtful = writing
            || self
                .written
                .get(&shard)
                .is_some_and(|written| asked <= *written)
            || known.as_ref().is_some_and(|known| asked <= known.event);
        let newer = known.as_ref().is_some_and(|known| {
            let (old, new) = (&known.seen, &seen);
            !old.vanished() && !new.vanished() && new.record.counter > old.record.counter
        });
        if doubtful && !newer {
            let older = known.as_ref().is_none_or(|known| {
                let (old, new) = (&known.seen, &seen);
                let same = (&old.tag, old.vanished()) == (&new.tag, new.vanished());
                let counted = !old.vanished() && !new.vanished();
                let order = |seen: &LeaseSeen| (seen.record.generation, seen.record.counter);
                same || (counted && order(new) < order(old))
            });
            if !older {
                self.reread.insert(shard);
                // It may have changed: whether its owner is silent is counted anew.
                if let Some(known) = self.known.get_mut(shard as usize).and_then(Option::as_mut) {
                    known.since = now;
                }
            }
            return;
        }
        self.note(seen, now);
        if !writing {
            self.compare(shard, now);
        }
    }

    /// Keeps a lease in mind.
    pub(super) fn note(&mut self, seen: LeaseSeen, now: Moment) {
        let shard = seen.record.shard;
        let highest = self.highest.entry(shard).or_default();
        *highest = (*highest).max(seen.record.generation);
        let Some(slot) = self.known.get_mut(shard as usize) else {
            return;
        };
        let same = slot
            .as_ref()
            .is_some_and(|known| match (&known.seen.tag, &seen.tag) {
                (Some(old), Some(new)) => old.same(new),
                (None, None) => true,
                _ => false,
            });
        let before = slot.take();
        let owner = |seen: &LeaseSeen| seen.record.owner.as_ref().map(|owner| owner.name.clone());
        let gave = before.as_ref().and_then(|known| owner(&known.seen));
        if let Some(gave) = gave.filter(|gave| owner(&seen).as_ref() != Some(gave)) {
            self.gave.insert(gave, self.events);
        }
        let vanished = seen.vanished()
            && before.as_ref().map_or(seen.corrupt.is_some(), |known| {
                !same && !known.seen.vanished()
            });
        let why = seen
            .corrupt
            .as_ref()
            .map_or("it is missing".into(), ToString::to_string);
        *slot = Some(match before {
            Some(known) if same => Known { seen, ..known },
            before => Known {
                seen,
                since: now,
                event: self.events,
                told: None,
                opened: None,
                not_before: before.map_or(now, |known| known.not_before),
            },
        });
        self.routes_changed = true;
        if vanished {
            self.alarm(now);
            self.emit(LeaseEvent::LeaseVanished { shard, why });
        }
    }

    /// Has all peers look at the leases, where one heartbeat renews them all: in a bucket of many objects an owner would not see that one
    /// of its own has vanished for up to [`WHOLE`] rounds.
    pub(super) fn alarm(&mut self, now: Moment) {
        if self.options.renewal == Renewal::Session && !self.broken(Mutation::HideVanished) {
            self.news = true;
            self.beat.at = self.beat.at.min(now);
        }
    }

    /// Peers were told to look at the leases, by a heartbeat that was begun at the event `asked`.
    pub(super) fn alarmed(&mut self, asked: u64, now: Moment) {
        for known in self.known.iter_mut().flatten() {
            if known.told.is_none() && known.seen.vanished() && asked >= known.event {
                known.told = Some(now);
            }
        }
    }

    fn tell_again(&mut self) {
        let mut told = std::mem::take(&mut self.told);
        told.retain(|shard, (successor, times)| {
            let known = self.known.get(*shard as usize).and_then(Option::as_ref);
            let waits = known.is_some_and(|known| {
                let record = &known.seen.record;
                record.owner.is_none() && record.successor.as_ref() == Some(successor)
            });
            if waits {
                *times += 1;
                self.notify(successor.clone(), *shard);
            }
            waits && *times < TELL
        });
        self.told = told;
    }

    pub(super) fn notify(&mut self, peer: NodeName, shard: u32) {
        let record = self
            .peers
            .map
            .get(&peer)
            .and_then(|peer| peer.record.as_ref());
        let address = record
            .map(|record| record.info.advertise.clone())
            .unwrap_or_default();
        self.effects.push(Effect::Notify {
            peer,
            address,
            shard,
        });
    }
}

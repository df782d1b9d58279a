//! Who is to have what, and what this node has to do for it: which sessions to end, what to free, what to claim.

use std::collections::{BTreeMap, BTreeSet};

use super::{Control, Fate, Freeing, Hold, Known, LeaseEvent, Phase, Wanted, What, Wish};
use crate::lease::op::{LeaseOp, NodeSeen, Outcome, Renewal};
use crate::lease::record::{NodeName, Owner};
use crate::placement::{self, PlanNode, PlanShard, Role, View};
use crate::rules::Mutation;
use crate::time::Moment;

impl Control {
    /// Whether the owner in a lease may still run.
    pub(super) fn fate(&self, known: &Known, now: Moment) -> Fate {
        let Some(owner) = &known.seen.record.owner else {
            return Fate::Free;
        };
        if *owner == self.me() {
            return Fate::Mine;
        }
        if self.options.renewal == Renewal::Lease {
            let brake = self.peers.map.get(&owner.name).and_then(|peer| peer.brake);
            let braked = brake.is_some_and(|brake| now < brake);
            let lives = now < known.since + self.ttl_of(&owner.name) || braked;
            return if lives { Fate::Lives } else { Fate::Over };
        }
        // A session that is not in its record any more has ended for good, if the record was read after the lease: it had begun before.
        let ended = |asked: u64| {
            if asked > known.event {
                Fate::Over
            } else {
                Fate::Unsure
            }
        };
        if owner.name == self.options.name {
            return ended(self.proof);
        }
        let Some(peer) = self.peers.map.get(&owner.name) else {
            return Fate::Lives;
        };
        match peer.session() {
            Some(session) if session != owner.session => ended(peer.asked),
            _ if peer.is_over() => Fate::Over,
            _ if now < peer.expires(self.timing) => Fate::Lives,
            // A record that is missing may have been missing before this session began: only the lease tells how long it has been there.
            None if now < known.since + self.timing.ttl => Fate::Lives,
            _ => Fate::Expired(owner.clone()),
        }
    }

    /// How long what a peer wrote last holds.
    fn ttl_of(&self, peer: &NodeName) -> std::time::Duration {
        let peer = self.peers.map.get(peer);
        peer.map_or(self.timing.ttl, |peer| peer.ttl(self.timing))
    }

    /// The longest TTL of anybody: of whom a lease was, that has vanished, nobody knows.
    fn longest_ttl(&self) -> std::time::Duration {
        let peers = self.peers.map.values();
        let longest = peers.map(|peer| peer.ttl(self.timing)).max();
        longest.unwrap_or(self.timing.ttl)
    }

    /// Decides who is to have what, and what this node has to do for it: which sessions to end, what to free, what to claim.
    pub(super) fn assign(&mut self, now: Moment) {
        self.watch_owners(now);
        self.brake(now);
        let fates: Vec<Option<Fate>> = self
            .known
            .iter()
            .map(|known| Some(self.fate(known.as_ref()?, now)))
            .collect();
        if fates.contains(&Some(Fate::Unsure)) && self.look.failures == 0 && self.beat.failures == 0
        {
            // What is not sure is known after one more heartbeat and one more look.
            let soon = now + self.timing.interval / 20;
            self.look.at = self.look.at.min(soon);
            self.beat.at = self.beat.at.min(soon);
        }
        let view = self.view(&fates, now);
        let plan = placement::broken(&view, self.options.rules)
            .unwrap_or_else(|| self.strategy.plan(&view));
        let target = |shard: usize| plan.targets.get(shard).and_then(Option::as_ref);

        let mine = |target: &&Option<NodeName>| target.as_ref() == Some(&self.options.name);
        let share = plan.targets.iter().filter(mine).count();
        self.share = u32::try_from(share).unwrap_or(u32::MAX);
        let mut wanted = Vec::new();
        let mut to_end = BTreeSet::new();
        let mut left = false;
        for (shard, fate) in fates.iter().enumerate() {
            let (Some(fate), Ok(number)) = (fate, u32::try_from(shard)) else {
                continue;
            };
            let target = target(shard);
            if self.holds.contains_key(&number) {
                self.unowned.remove(&number);
                self.keep_or_free(number, target, now);
                continue;
            }
            if *fate == Fate::Mine {
                self.stray(number, target);
                continue;
            }
            if matches!(fate, Fate::Lives | Fate::Unsure) {
                self.unowned.remove(&number);
                self.inherit(number, now);
                continue;
            }
            let since = *self.unowned.entry(number).or_insert(now);
            let waited = now.since(since) > self.patience(&view);
            let late = waited && !self.broken(Mutation::CapIsHard);
            if !self.may_claim(number, target, late, now) {
                left |= !waited;
                continue;
            }
            match fate {
                Fate::Expired(owner) if !self.broken(Mutation::NoTombstone) => {
                    to_end.insert(owner.clone());
                }
                _ => wanted.push(number),
            }
        }
        if left {
            // Who is to take it may plan otherwise, for it looked when others had taken their part: that is seen soon.
            self.look.at = self.look.at.min(now + self.timing.interval / 4);
        }
        to_end.extend(self.silent_peers(now));
        for owner in to_end {
            self.end_session(&owner, now);
        }
        self.wanted = wanted
            .into_iter()
            .filter_map(|shard| self.how_to_claim(shard, now))
            .collect();
    }

    /// Owners that leases name and that have no record are watched, too: they expire like others. Those that are gone and named by no
    /// lease are forgotten.
    fn watch_owners(&mut self, now: Moment) {
        let mut named = BTreeSet::new();
        for known in self.known.iter().flatten() {
            let owner = known.seen.record.owner.as_ref();
            if let Some(owner) = owner.filter(|owner| owner.name != self.options.name) {
                self.peers.watch(&owner.name, now);
                named.insert(&owner.name);
            }
        }
        let timing = self.timing;
        self.peers.map.retain(|name, peer| {
            peer.tag.is_some() || peer.may_live(timing, now) || named.contains(name)
        });
        let peers = &self.peers.map;
        self.gave.retain(|name, _| peers.contains_key(name));
    }

    fn view(&self, fates: &[Option<Fate>], now: Moment) -> View {
        let cluster = &self.options.cluster;
        let mut nodes: BTreeMap<NodeName, PlanNode> = BTreeMap::new();
        for (name, peer) in &self.peers.map {
            if peer.may_live(self.timing, now) {
                let zone = peer.record.as_ref().map(|record| record.info.zone.clone());
                let role = peer.role(cluster);
                nodes.insert(
                    name.clone(),
                    PlanNode {
                        role,
                        zone: zone.unwrap_or_default(),
                    },
                );
            }
        }
        let (role, zone) = (self.role(), self.options.zone.clone());
        nodes.insert(self.options.name.clone(), PlanNode { role, zone });
        let shard = |(shard, fate): (usize, &Option<Fate>)| {
            let known = self.known.get(shard).and_then(Option::as_ref);
            let record = known.map(|known| &known.seen.record);
            let hold = u32::try_from(shard)
                .ok()
                .and_then(|shard| self.holds.get(&shard));
            let owner = match (hold.map(|hold| &hold.wish), fate) {
                (
                    Some(Wish::Free(Freeing {
                        successor: Some(to),
                        ..
                    })),
                    _,
                ) if nodes.contains_key(to) => Some(to.clone()),
                (Some(_), _) | (None, Some(Fate::Mine)) => Some(self.options.name.clone()),
                // Else a plan made meanwhile would give this node another one in its place, and it would end up with both.
                (None, Some(Fate::Free | Fate::Over | Fate::Expired(_)))
                    if self.is_claiming(shard) =>
                {
                    Some(self.options.name.clone())
                }
                (None, Some(Fate::Lives | Fate::Unsure)) => record
                    .and_then(|record| record.owner.as_ref())
                    .map(|owner| owner.name.clone()),
                (None, Some(Fate::Free)) => known.and_then(|known| self.heir(known, &nodes, now)),
                _ => None,
            };
            PlanShard {
                owner,
                pinned: record.is_some_and(|record| record.pinned),
            }
        };
        let shards = fates.iter().enumerate().map(shard).collect();
        View { nodes, shards }
    }

    /// Whether a claim of this shard is under way.
    fn is_claiming(&self, shard: usize) -> bool {
        let id = u32::try_from(shard)
            .ok()
            .and_then(|shard| self.busy.get(&shard));
        let flight = id.and_then(|id| self.flights.get(id));
        flight.is_some_and(|flight| {
            matches!(flight.what, What::Claim(_)) && flight.session == self.session
        }) && !self.broken(Mutation::ForgetClaims)
    }

    /// The node that a free lease is left to, for one interval.
    fn heir(
        &self,
        known: &Known,
        nodes: &BTreeMap<NodeName, PlanNode>,
        now: Moment,
    ) -> Option<NodeName> {
        let successor = known.seen.record.successor.as_ref()?;
        let takes = nodes
            .get(successor)
            .is_some_and(|node| node.role == Role::Open);
        let left = now < known.since + self.timing.interval || *successor == self.options.name;
        (takes && left).then(|| successor.clone())
    }

    /// How long a shard without an owner waits for its planned one before this node takes it: those with least to carry first.
    fn patience(&self, view: &View) -> std::time::Duration {
        let mut loads: BTreeMap<&NodeName, usize> = BTreeMap::new();
        for (name, node) in &view.nodes {
            if node.role == Role::Open {
                loads.insert(name, 0);
            }
        }
        for owner in view.shards.iter().filter_map(|shard| shard.owner.as_ref()) {
            if let Some(load) = loads.get_mut(owner) {
                *load += 1;
            }
        }
        let mine = loads.get(&self.options.name).copied().unwrap_or(0);
        let before = loads
            .iter()
            .filter(|(name, load)| (**load, **name) < (mine, &self.options.name))
            .count();
        let rank = u32::try_from(before.min(4)).unwrap_or(4);
        self.timing.interval * 2 + self.timing.interval / 2 * rank
    }

    /// Many that expire at once are more likely to be hindered by one cause than dead: they get one more round.
    fn brake(&mut self, now: Moment) {
        let timing = self.timing;
        let fresh = |peer: &super::peers::Peer| {
            !peer.is_over() && !peer.may_live(timing, now) && peer.brake.is_none()
        };
        let count = self.peers.map.values().filter(|peer| fresh(peer)).count();
        let alive = self
            .peers
            .map
            .values()
            .filter(|peer| peer.may_live(timing, now))
            .count();
        let nodes = 1 + alive + count;
        // Whoever could not look for a while was most likely not alone: peers that live come back at the same time, an attempt to renew
        // later at the most. One has an interval at the most, and the next follows within a sixteenth.
        let back = self.regained + timing.interval + timing.interval / 4;
        let many = count * 2 > nodes;
        let braked = !self.broken(Mutation::NoMassBrake) && (many || now < back);
        for peer in self.peers.map.values_mut().filter(|peer| fresh(peer)) {
            peer.brake = Some(match braked {
                true if many => back.max(now + timing.interval),
                true => back,
                false => peer.expires(timing),
            });
        }
        if braked && count > 0 {
            self.emit(LeaseEvent::MassExpiry {
                expired: count,
                nodes,
            });
        }
    }

    /// Peers that expired. One that holds nothing is ended as well: a node that comes later would count it among the living for a TTL,
    /// and give shards to it.
    fn silent_peers(&self, now: Moment) -> Vec<Owner> {
        if self.broken(Mutation::NoTombstone) {
            return Vec::new();
        }
        let (timing, cluster) = (self.timing, &self.options.cluster);
        let silent = self.peers.map.iter().filter(|(_, peer)| {
            !peer.is_over() && !peer.may_live(timing, now) && peer.foreign(cluster).is_none()
        });
        let owner = |(name, peer): (&NodeName, &super::peers::Peer)| {
            let (name, session) = (name.clone(), peer.session()?);
            Some(Owner { name, session })
        };
        silent.filter_map(owner).collect()
    }

    /// Ends an expired session by compare-and-set on the version that stayed.
    fn end_session(&mut self, owner: &Owner, now: Moment) {
        let Some(peer) = self.peers.map.get(&owner.name) else {
            return;
        };
        let flying = self.flying(|what| *what == What::Tombstone(owner.name.clone())) > 0;
        // Whoever could not look cannot tell who is silent.
        let blind = self.look.failures > 0 && !self.broken(Mutation::ClaimThoughReadFailed);
        if flying || blind || peer.brake.is_none_or(|brake| now < brake) {
            return;
        }
        let op = LeaseOp::Tombstone {
            node: owner.name.clone(),
            session: owner.session,
            tag: peer.tag.clone(),
        };
        self.spawn(
            op,
            What::Tombstone(owner.name.clone()),
            self.timing.interval,
        );
    }

    pub(super) fn tombstoned(
        &mut self,
        node: NodeName,
        outcome: Outcome<NodeSeen, NodeSeen>,
        asked: u64,
        now: Moment,
    ) {
        let cluster = self.options.cluster.clone();
        let mut news = Vec::new();
        match outcome {
            Outcome::Won(seen) => {
                let session = seen.record.as_ref().ok().map(|record| record.info.session);
                self.peers.see(seen, &cluster, now, asked, &mut news);
                self.peers.ended(&node, self.events);
                if let Some(session) = session {
                    self.emit(LeaseEvent::Tombstoned { node, session });
                }
                self.news = true;
            }
            // It was read just now: it lives, or somebody else ended it.
            Outcome::Lost(seen) => {
                self.peers.see(seen, &cluster, now, asked, &mut news);
                self.peers.ended(&node, self.events);
            }
            Outcome::Unknown(error) => {
                self.look.at = self.look.at.min(now + self.pace(1));
                return self.emit(LeaseEvent::Unknown {
                    op: "tombstone",
                    shard: None,
                    error,
                });
            }
        }
        self.routes_changed = true;
        if matches!(self.phase, Phase::Member) && self.look.failures == 0 {
            self.assign(now);
        }
    }

    /// What becomes of a shard that is held here.
    fn keep_or_free(&mut self, shard: u32, target: Option<&NodeName>, now: Moment) {
        let me = self.options.name.clone();
        let (leaving, draining) = (self.leaving, self.draining);
        let keeps = |hold: &Hold| hold.wish == Wish::Keep;
        if !self.holds.get(&shard).is_some_and(keeps) {
            return;
        }
        let other = target.filter(|target| **target != me);
        if other.is_some_and(|other| self.is_outdated(other)) && self.role() != Role::Leaves {
            self.look.at = self.look.at.min(now + self.timing.interval / 20);
            return;
        }
        let Some(hold) = self.holds.get_mut(&shard) else {
            return;
        };
        if other.is_some() || leaving {
            hold.wish = Wish::Free(Freeing {
                successor: other.cloned(),
                pinned: false,
                why: match (leaving, draining) {
                    (true, _) => "its node left",
                    (_, true) => "its node was drained",
                    _ => "balance",
                },
            });
        }
    }

    /// Whether a node gave a shard away after its record was read: it may drain by now, and seem to have room because of that.
    fn is_outdated(&self, node: &NodeName) -> bool {
        let asked = self.peers.map.get(node).map_or(0, |peer| peer.asked);
        self.gave.get(node).is_some_and(|gave| asked <= *gave)
    }

    /// A lease names this session, and this node does not hold it: a write came late. It is claimed properly, or freed.
    fn stray(&mut self, shard: u32, target: Option<&NodeName>) {
        let idle = !self.busy.contains_key(&shard) && !self.runs.contains_key(&shard);
        let Some(known) = self.known.get(shard as usize).and_then(Option::as_ref) else {
            return;
        };
        if !idle || self.broken(Mutation::IgnoreStray) {
            return;
        }
        let keep = target == Some(&self.options.name) && !self.leaving;
        let mut hold = Hold::new(known.seen.clone());
        if !keep {
            hold.wish = Wish::Free(Freeing {
                successor: target.cloned(),
                pinned: false,
                why: "it was claimed by mistake",
            });
        }
        self.holds.insert(shard, hold);
        self.emit(LeaseEvent::Stray { shard });
    }

    /// Breaks the rule that a session inherits nothing. For the simulator only.
    fn inherit(&mut self, shard: u32, now: Moment) {
        let known = self.known.get(shard as usize).and_then(Option::as_ref);
        let mine = |known: &&Known| {
            known
                .seen
                .record
                .owner
                .as_ref()
                .is_some_and(|owner| owner.name == self.options.name)
        };
        if !self.broken(Mutation::InheritSession) || self.runs.contains_key(&shard) {
            return;
        }
        if let Some(known) = known.filter(mine) {
            let hold = Hold::new(known.seen.clone());
            self.holds.insert(shard, hold);
            self.open(shard, now);
        }
    }

    /// Whether this node is to claim a shard that has no owner.
    fn may_claim(&self, shard: u32, target: Option<&NodeName>, late: bool, now: Moment) -> bool {
        let Some(known) = self.known.get(shard as usize).and_then(Option::as_ref) else {
            return false;
        };
        let takes = self.role() == Role::Open || self.broken(Mutation::DrainingClaims);
        let running = self.runs.contains_key(&shard);
        let avoided = self.avoid.get(&shard).is_some_and(|until| now < *until);
        if !takes || running || avoided || now < known.not_before {
            return false;
        }
        let record = &known.seen.record;
        let heir = record.successor.as_ref().filter(|_| record.owner.is_none());
        let me = Some(&self.options.name);
        let broken = heir.is_some() && self.broken(Mutation::IgnoreSuccessor);
        target == me || heir == me || late || broken || self.broken(Mutation::DrainingClaims)
    }

    /// How to claim it: a lease that vanished may have an owner that lives, and who has a TTL to restore it, from when peers were told to
    /// look. Whoever opened the database meanwhile is alive, whatever the lease looks like.
    fn how_to_claim(&mut self, shard: u32, now: Moment) -> Option<Wanted> {
        let known = self.known.get(shard as usize).and_then(Option::as_ref)?;
        let event = known.event;
        let wanted = |at_most| Wanted {
            shard,
            at_most,
            event,
        };
        if !known.seen.vanished() || self.broken(Mutation::ClaimVanishedAtOnce) {
            return Some(wanted(None));
        }
        let first = known.opened.is_none().then(|| wanted(Some(0)));
        if self.nodes_asked <= known.event {
            self.look.at = self.look.at.min(now + self.timing.interval / 20);
            return first;
        }
        if !self
            .peers
            .map
            .values()
            .any(|peer| peer.may_live(self.timing, now))
        {
            return Some(wanted(None));
        }
        let silent = self.options.renewal == Renewal::Lease || self.broken(Mutation::HideVanished);
        let told = known.told.or(silent.then_some(known.since));
        let (Some(epoch), Some(told)) = (known.opened, told) else {
            return first;
        };
        let until = told.max(known.since) + self.longest_ttl();
        if now < until {
            self.look.at = self.look.at.min(until);
            return first;
        }
        Some(wanted(Some(epoch)))
    }
}

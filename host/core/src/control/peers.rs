//! What a node has seen of its peers, and since when.

use std::collections::BTreeMap;
use std::time::Duration;

use super::options::{MAX_TTL, Timing};
use crate::lease::object::Tag;
use crate::lease::op::NodeSeen;
use crate::lease::record::{NodeName, NodeRecord, PROTOCOL, SessionId};
use crate::placement::Role;
use crate::time::Moment;

/// A peer.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    /// The tag of its record as it was last seen; none when there is none.
    pub(super) tag: Option<Tag>,
    /// Its record, if it is readable now.
    pub(super) record: Option<NodeRecord>,
    /// What is wrong with it otherwise.
    pub(super) problem: Option<String>,
    /// When this version was first seen.
    pub(super) since: Moment,
    /// The event at which the read began that last showed it.
    pub(super) asked: u64,
    /// The event at which a write of this node to its record ended: what a read shows that began before may be older.
    pub(super) fresh: u64,
    /// Since it expired: when it may be ended.
    pub(super) brake: Option<Moment>,
}

/// All peers.
#[derive(Debug, Default)]
pub(super) struct Peers {
    pub(super) map: BTreeMap<NodeName, Peer>,
}

impl Peer {
    fn missing(now: Moment, asked: u64) -> Self {
        Self {
            tag: None,
            record: None,
            problem: Some("its record is missing".into()),
            since: now,
            asked,
            fresh: 0,
            brake: None,
        }
    }

    /// When its session expires unless it is seen to change.
    pub(super) fn expires(&self, timing: Timing) -> Moment {
        self.since + self.ttl(timing)
    }

    /// How long what it wrote last holds. Both sides may count with TTLs of their own: the longer one counts.
    pub(super) fn ttl(&self, timing: Timing) -> Duration {
        timing.ttl.max(self.own_ttl().unwrap_or_default())
    }

    /// For how long it may be taken for the owner: it stops by its own TTL, and others may take over by theirs.
    pub(super) fn route_ttl(&self, timing: Timing) -> Duration {
        timing.ttl.min(self.own_ttl().unwrap_or(MAX_TTL))
    }

    fn own_ttl(&self) -> Option<Duration> {
        let record = self.record.as_ref()?;
        Some(Duration::from_millis(record.info.ttl_ms).min(MAX_TTL))
    }

    /// Whether its session has ended for good, by its own word or a peer's.
    pub(super) fn is_over(&self) -> bool {
        self.record
            .as_ref()
            .is_some_and(|record| record.info.state.is_over())
    }

    /// Whether it may still run: it is not over and has not expired.
    pub(super) fn may_live(&self, timing: Timing, now: Moment) -> bool {
        !self.is_over() && now < self.expires(timing)
    }

    pub(super) fn session(&self) -> Option<SessionId> {
        self.record.as_ref().map(|record| record.info.session)
    }

    /// What a plan makes of it, while it may live.
    pub(super) fn role(&self, cluster: &str) -> Role {
        use crate::lease::record::NodeState::Draining;
        match &self.record {
            Some(record) if self.foreign(cluster).is_none() => match record.info.state {
                Draining => Role::Leaves,
                _ if record.info.cordoned || record.info.blind => Role::Keeps,
                _ => Role::Open,
            },
            _ => Role::Keeps,
        }
    }

    /// Why it is none of this cluster's nodes.
    pub(super) fn foreign(&self, cluster: &str) -> Option<String> {
        let info = &self.record.as_ref()?.info;
        if info.protocol != PROTOCOL {
            let theirs = info.protocol;
            return Some(format!(
                "it speaks protocol {theirs}; this node speaks {PROTOCOL}"
            ));
        }
        (info.cluster != cluster).then(|| format!("it belongs to cluster {:?}", info.cluster))
    }
}

/// Something about a peer that is new.
#[derive(Debug)]
pub(super) enum News {
    Unreadable(NodeName, String),
    Foreign(NodeName, String),
}

impl Peers {
    /// Takes a complete reading that began at the event `asked`. True when someone came, went, or changed what a plan makes of it.
    pub(super) fn observe(
        &mut self,
        seen: Vec<NodeSeen>,
        cluster: &str,
        now: Moment,
        asked: u64,
    ) -> (bool, Vec<News>) {
        let mut news = Vec::new();
        let mut changed = false;
        let mut gone: BTreeMap<NodeName, ()> =
            self.map.keys().map(|name| (name.clone(), ())).collect();
        for node in seen {
            gone.remove(&node.name);
            changed |= self.see(node, cluster, now, asked, &mut news);
        }
        for name in gone.into_keys() {
            if let Some(peer) = self.map.get_mut(&name).filter(|peer| asked > peer.fresh) {
                changed |= peer.tag.is_some();
                if peer.tag.is_some() {
                    *peer = Peer::missing(now, asked);
                }
                peer.asked = asked;
            }
        }
        (changed, news)
    }

    /// Takes one node as it was read.
    pub(super) fn see(
        &mut self,
        node: NodeSeen,
        cluster: &str,
        now: Moment,
        asked: u64,
        news: &mut Vec<News>,
    ) -> bool {
        let before = self.map.get(&node.name);
        if before.is_some_and(|peer| asked <= peer.fresh) {
            return false;
        }
        let same = match (before.map(|peer| &peer.tag), &node.tag) {
            (Some(Some(old)), Some(new)) => old.same(new),
            (Some(None), None) => true,
            _ => false,
        };
        let (record, problem) = match node.record {
            Ok(record) => (Some(record), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let peer = Peer {
            tag: node.tag,
            record,
            problem,
            since: before.filter(|_| same).map_or(now, |peer| peer.since),
            asked,
            fresh: before.map_or(0, |peer| peer.fresh),
            brake: before.filter(|_| same).and_then(|peer| peer.brake),
        };
        let told = before.and_then(|peer| peer.problem.clone().or(peer.foreign(cluster)));
        let foreign = peer.foreign(cluster);
        match (&peer.problem, &foreign) {
            (Some(problem), _) if told.as_ref() != Some(problem) => {
                news.push(News::Unreadable(node.name.clone(), problem.clone()));
            }
            (None, Some(why)) if told.as_ref() != Some(why) => {
                news.push(News::Foreign(node.name.clone(), why.clone()));
            }
            _ => {}
        }
        let what = |peer: &Peer| (peer.session(), peer.is_over(), peer.role(cluster));
        let changed = before.map(what) != Some(what(&peer));
        self.map.insert(node.name, peer);
        changed
    }

    /// Starts counting anew for those that no tag tells apart from what they were.
    pub(super) fn doubt(&mut self, now: Moment) {
        for peer in self.map.values_mut().filter(|peer| peer.record.is_none()) {
            peer.since = now;
            peer.brake = None;
        }
    }

    /// An attempt to end a node's session ended at this event: a listing from before shows less than is known.
    pub(super) fn ended(&mut self, name: &NodeName, event: u64) {
        if let Some(peer) = self.map.get_mut(name) {
            peer.fresh = event;
        }
    }

    /// Begins to watch a node that a lease names and that has no record.
    pub(super) fn watch(&mut self, name: &NodeName, now: Moment) {
        if !self.map.contains_key(name) {
            self.map.insert(name.clone(), Peer::missing(now, 0));
        }
    }

    /// Starts counting anew: what was not seen may have changed.
    pub(super) fn restart(&mut self, now: Moment) {
        for peer in self.map.values_mut() {
            peer.since = now;
            peer.brake = None;
        }
    }
}

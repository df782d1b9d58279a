//! Where calls go, from what was read.

use std::time::Duration;

use super::{Control, Effect, Fate};
use crate::lease::op::Renewal;
use crate::placement::Role;
use crate::route::{NodeRoute, Route, RouteState, RouteTable};
use crate::time::Moment;

/// The time between two tables, for each shard in them.
const SPACING: Duration = Duration::from_micros(10);

impl Control {
    /// Tells the routes, if they have changed; not too often, for a table of many shards takes its time.
    pub(super) fn route(&mut self, now: Moment) {
        if !self.routes_changed || now < self.routes_at {
            return;
        }
        self.routes_changed = false;
        self.routes_at = now + Duration::from_millis(2) + SPACING * self.options.shards;
        let table = self.table(now);
        if table != self.routes {
            self.routes = table.clone();
            self.effects.push(Effect::Routes(table));
        }
    }

    fn table(&self, now: Moment) -> RouteTable {
        let peers = self.peers.map.iter().filter_map(|(name, peer)| {
            let record = peer.record.as_ref().filter(|_| !peer.is_over())?;
            let route = NodeRoute {
                session: record.info.session,
                address: record.info.advertise.clone(),
                until: peer.since + peer.route_ttl(self.timing),
            };
            peer.foreign(&self.options.cluster)
                .is_none()
                .then(|| (name.clone(), route))
        });
        let mut nodes: std::collections::BTreeMap<_, _> = peers.collect();
        let me = NodeRoute {
            session: self.session,
            address: self.options.advertise.clone(),
            // What runs here is known better than from this table.
            until: Moment::NEVER,
        };
        nodes.insert(self.options.name.clone(), me);
        let shard = |known: &Option<super::Known>| {
            let known = known.as_ref()?;
            let record = &known.seen.record;
            let until = match self.options.renewal {
                Renewal::Session => Moment::NEVER,
                Renewal::Lease => known.since + self.timing.ttl,
            };
            let (owner, session, state) = match self.fate(known, now) {
                Fate::Over => return None,
                Fate::Free => {
                    let heir = record.successor.as_ref()?;
                    let peer = self.peers.map.get(heir);
                    let open = peer.map_or(*heir == self.options.name, |peer| {
                        peer.role(&self.options.cluster) == Role::Open
                    });
                    let node = nodes.get(heir).filter(|_| open)?;
                    (heir.clone(), node.session, RouteState::Moving)
                }
                // One that has expired keeps its route, which ends with its node's.
                Fate::Mine | Fate::Lives | Fate::Unsure | Fate::Expired(_) => {
                    let owner = record.owner.clone()?;
                    (owner.name, owner.session, RouteState::Open)
                }
            };
            Some(Route {
                owner,
                session,
                generation: record.generation,
                state,
                until: if state == RouteState::Moving {
                    Moment::NEVER
                } else {
                    until
                },
            })
        };
        RouteTable {
            me: Some((self.options.name.clone(), self.session)),
            shards: self.known.iter().map(shard).collect(),
            nodes,
        }
    }
}

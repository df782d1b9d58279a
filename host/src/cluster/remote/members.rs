//! The nodes of a cluster, as one of them knows them.

use std::sync::Arc;

use quarry_core::control::NodeStatus as Member;
use quarry_core::lease::record::NodeState;
use quarry_core::route::RouteTable;

use crate::call::{CallError, CallErrorKind};
use crate::cluster::node::Node;
use crate::cluster::status::NodeView;
use crate::transport::Destination;

/// The nodes of a cluster, as one of them knows them.
pub(in crate::cluster) struct Members {
    /// With leases.
    pub(in crate::cluster) leased: Option<Vec<Member>>,
    /// What is known without.
    pub(super) routes: Arc<RouteTable>,
}

impl Members {
    fn names(&self) -> Vec<String> {
        match &self.leased {
            Some(members) => members
                .iter()
                .map(|member| member.record.info.name.to_string())
                .collect(),
            None => self.routes.nodes.keys().map(ToString::to_string).collect(),
        }
    }

    /// Refuses the name of a node that there is not.
    pub(super) fn check(&self, name: &str) -> Result<(), CallError> {
        let names = self.names();
        if names.iter().any(|known| known == name) {
            return Ok(());
        }
        let name: String = name.chars().take(64).collect();
        let message = format!(
            "there is no node `{}`; the nodes of this cluster are {}",
            name.escape_debug(),
            names.join(", ")
        );
        Err(CallError::host(CallErrorKind::Invalid, message))
    }

    /// Where a node is reached that lives.
    pub(super) fn destination(&self, name: &str) -> Option<Destination> {
        let members = self.leased.as_ref()?;
        let member = members
            .iter()
            .find(|member| member.record.info.name.as_str() == name)
            .filter(|member| member.alive && !member.record.info.advertise.is_empty())?;
        Some(Destination {
            node: name.to_owned(),
            session: member.record.info.session.to_string(),
            address: member.record.info.advertise.clone(),
        })
    }

    /// Whether a node takes shards.
    pub(super) fn takes(&self, name: &str) -> bool {
        let mut takers = self.takers();
        takers.any(|taker| taker == name)
    }

    /// The nodes that take shards.
    pub(in crate::cluster) fn takers(&self) -> impl Iterator<Item = &str> {
        let takes = |member: &&Member| {
            let info = &member.record.info;
            member.alive && info.state == NodeState::Live && !info.cordoned
        };
        let members = self.leased.iter().flatten();
        members
            .filter(takes)
            .map(|member| member.record.info.name.as_str())
    }

    pub(super) fn state(&self, name: &str) -> &'static str {
        let members = self.leased.iter().flatten();
        let mut members = members.filter(|member| member.record.info.name.as_str() == name);
        match members.next() {
            Some(member) if member.alive => "without an address (`internal.advertise`)",
            Some(member) => state(member),
            None => "not one that has leases",
        }
    }

    pub(super) fn views(&self, node: &Node) -> Vec<NodeView> {
        let me = node.leases.me();
        let owned = |name: &str| {
            let routes = self.routes.shards.iter().flatten();
            routes.filter(|route| route.owner.as_str() == name).count()
        };
        let Some(members) = &self.leased else {
            let nodes = self.routes.nodes.iter();
            return nodes
                .map(|(name, at)| NodeView {
                    node: name.as_str().into(),
                    state: "fixed".into(),
                    this: *name.as_str() == *node.node,
                    shards: owned(name.as_str()),
                    address: at.address.clone(),
                    session: None,
                    zone: None,
                    cordoned: false,
                    software: None,
                    seen_ms: None,
                    error: None,
                })
                .collect();
        };
        members
            .iter()
            .map(|member| {
                let info = &member.record.info;
                NodeView {
                    node: info.name.as_str().into(),
                    state: state(member).into(),
                    this: info.name == me.name,
                    shards: member.held as usize,
                    address: info.advertise.clone(),
                    session: Some(info.session.to_string()),
                    zone: (!info.zone.is_empty()).then(|| info.zone.clone()),
                    cordoned: info.cordoned,
                    software: Some(info.software.clone()),
                    seen_ms: u64::try_from(member.unchanged.as_millis()).ok(),
                    error: member.problem.clone(),
                }
            })
            .collect()
    }
}

/// The word for how a node is.
fn state(member: &Member) -> &'static str {
    match member.record.info.state {
        NodeState::Left => "left",
        NodeState::Dead => "dead",
        NodeState::Live | NodeState::Draining if !member.alive => "expired",
        NodeState::Draining => "draining",
        NodeState::Live => "live",
    }
}

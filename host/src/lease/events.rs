//! What the loop tells people: an event in the log with a stable name, and a metric.

use std::sync::Arc;

use quarry_core::control::{Gauges, LeaseEvent};

use crate::metrics::LeaseMetrics;

/// Tells of one node's leases.
pub(crate) struct Events {
    cluster: Arc<str>,
    node: Arc<str>,
    metrics: LeaseMetrics,
}

impl Events {
    pub fn new(cluster: Arc<str>, node: Arc<str>) -> Self {
        Self {
            metrics: LeaseMetrics::new(&cluster),
            cluster,
            node,
        }
    }

    pub fn gauges(&self, gauges: &Gauges) {
        self.metrics.gauges(gauges);
    }

    pub fn emit(&self, event: &LeaseEvent) {
        let (cluster, node) = (&*self.cluster, &*self.node);
        match event {
            LeaseEvent::Joined { session } => {
                tracing::info!(event = "lease.joined", cluster, node, %session, "the node has joined its cluster");
            }
            LeaseEvent::NameTaken {
                session,
                address,
                alive,
            } => {
                let session = session.map(|session| session.to_string());
                tracing::error!(
                    event = "lease.name_taken",
                    cluster,
                    node,
                    other = session,
                    address,
                    alive,
                    "another node has this name; this one waits until the other is gone"
                );
            }
            LeaseEvent::Left { session } => {
                tracing::info!(event = "lease.left", cluster, node, %session, "the node has left its cluster");
            }
            LeaseEvent::SessionLost { session, why } => {
                self.metrics.session_lost();
                tracing::error!(event = "lease.session_lost", cluster, node, %session, why, "the node's session was ended; its shards stop, and it joins anew");
            }
            LeaseEvent::Claimed {
                shard,
                generation,
                from,
            } => {
                self.metrics.claimed(true);
                let from = from.as_ref().map(|owner| owner.name.to_string());
                tracing::info!(
                    event = "lease.claim",
                    cluster,
                    node,
                    shard,
                    generation,
                    from,
                    "lease claimed"
                );
            }
            LeaseEvent::ClaimLost { shard, owner } => {
                self.metrics.claimed(false);
                let owner = owner.as_ref().map(|owner| owner.name.to_string());
                tracing::info!(
                    event = "lease.claim_lost",
                    cluster,
                    node,
                    shard,
                    owner,
                    "another node was faster at a lease"
                );
            }
            LeaseEvent::Released {
                shard,
                generation,
                successor,
            } => {
                self.metrics.released();
                let successor = successor.as_ref().map(ToString::to_string);
                tracing::info!(
                    event = "lease.release",
                    cluster,
                    node,
                    shard,
                    generation,
                    successor,
                    "lease freed"
                );
            }
            LeaseEvent::Lost { shard, owner } => {
                self.metrics.lost();
                let owner = owner.as_ref().map(|owner| owner.name.to_string());
                tracing::error!(
                    event = "lease.lost",
                    cluster,
                    node,
                    shard,
                    owner,
                    "lease lost"
                );
            }
            LeaseEvent::SelfFenced { shard, generation } => {
                self.metrics.self_fenced();
                tracing::error!(
                    event = "lease.self_fence",
                    cluster,
                    node,
                    shard,
                    generation,
                    "shard cut off: its lease could not be renewed in time"
                );
            }
            LeaseEvent::RenewFailed { error, left } => {
                self.metrics.renew_failed();
                tracing::warn!(
                    event = "lease.renew_failed",
                    cluster,
                    node,
                    error,
                    ?left,
                    "leases not renewed; tried again"
                );
            }
            LeaseEvent::ReadFailed { error } => {
                self.metrics.read_failed();
                tracing::warn!(
                    event = "lease.read_failed",
                    cluster,
                    node,
                    error,
                    "leases not read; nothing is claimed now"
                );
            }
            LeaseEvent::Unknown { op, shard, error } => {
                tracing::warn!(
                    event = "lease.unknown",
                    cluster,
                    node,
                    op,
                    shard,
                    error,
                    "a lease write has an unknown outcome, and is looked into"
                );
            }
            LeaseEvent::Tombstoned {
                node: peer,
                session,
            } => {
                tracing::warn!(event = "lease.tombstoned", cluster, node, %peer, %session, "a node's session had expired and was ended; its shards are taken over");
            }
            LeaseEvent::ObserverLate { by } => {
                tracing::warn!(
                    event = "lease.observer_late",
                    cluster,
                    node,
                    ?by,
                    "this node was late itself, and judges nobody in this round"
                );
            }
            LeaseEvent::MassExpiry { expired, nodes } => {
                tracing::warn!(
                    event = "lease.mass_expiry",
                    cluster,
                    node,
                    expired,
                    nodes,
                    "many nodes expired at once; they get one more round"
                );
            }
            LeaseEvent::NodeUnreadable { node: peer, error } => {
                tracing::error!(event = "lease.node_unreadable", cluster, node, %peer, error, "a node's record cannot be read");
            }
            LeaseEvent::NodeForeign { node: peer, why } => {
                tracing::error!(event = "lease.node_foreign", cluster, node, %peer, why, "a node does not belong to this cluster");
            }
            LeaseEvent::LeaseVanished { shard, why } => {
                tracing::error!(
                    event = "lease.vanished",
                    cluster,
                    node,
                    shard,
                    why,
                    "a lease is missing or cannot be read; it is written anew"
                );
            }
            LeaseEvent::Stray { shard } => {
                tracing::warn!(
                    event = "lease.stray",
                    cluster,
                    node,
                    shard,
                    "a lease names this node, which does not hold it; a write came late"
                );
            }
            LeaseEvent::GaveUp { shard, successor } => {
                let successor = successor.as_ref().map(ToString::to_string);
                tracing::error!(
                    event = "lease.gave_up",
                    cluster,
                    node,
                    shard,
                    successor,
                    "shard failed too often on this node"
                );
            }
        }
    }
}

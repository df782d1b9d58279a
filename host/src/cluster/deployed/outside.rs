//! Nodes outside. One that cannot run what the record says takes no shards and begins no session, so that the others know nothing of it. It
//! tells them itself what keeps it, for whoever looks how a rollout goes from any node. Nothing is decided by that.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use quarry_core::lease::op::{LeaseOp, NodeSeen, OpResult};
use quarry_core::lease::record::{NodeName, NodeState};

use crate::clock;
use crate::cluster::node::Node;
use crate::cluster::rollout::NodeRollout;
use crate::lease::LeaseStore;
use crate::transport::{Ask, Destination};

/// The pause between two rounds in which the others are told.
const PAUSE: Duration = Duration::from_secs(5);
/// How long it is believed.
const KEPT: Duration = Duration::from_secs(16);
/// How long the sessions of the others may take to be read.
const READ: Duration = Duration::from_secs(10);
/// How long one of them may take to hear it.
const NOTICE: Duration = Duration::from_secs(1);
/// How many are told at once.
const AT_ONCE: usize = 16;
/// Nodes outside that are remembered; further ones are not.
const NODES_MAX: usize = 64;
/// Characters of a reason that are remembered.
const WHY_MAX: usize = 1024;

/// What this node heard of others that are outside.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Outside(Mutex<BTreeMap<NodeName, Waits>>);

#[derive(Debug)]
struct Waits {
    why: String,
    until: Instant,
}

impl Outside {
    /// A node says that it is outside, and why. A name that is none is passed over.
    pub(in crate::cluster) fn heard(&self, node: &str, why: &str) {
        if let Ok(node) = node.parse() {
            self.heard_at(node, why, clock::now());
        }
    }

    /// The nodes that said so lately, but for those of `but`.
    pub(in crate::cluster) fn listed(&self, but: impl Fn(&NodeName) -> bool) -> Vec<NodeRollout> {
        self.all(clock::now())
            .into_iter()
            .filter(|(node, _)| !but(node))
            .map(|(node, why)| NodeRollout {
                node: node.as_str().into(),
                check: "refused",
                why: Some(format!("it takes no shards: {why}")),
                counter: None,
            })
            .collect()
    }

    fn heard_at(&self, node: NodeName, why: &str, now: Instant) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, waits| waits.until > now);
        if all.len() < NODES_MAX || all.contains_key(&node) {
            let why = why.chars().take(WHY_MAX).collect();
            let until = now + KEPT;
            all.insert(node, Waits { why, until });
        }
    }

    fn all(&self, now: Instant) -> Vec<(NodeName, String)> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, waits| waits.until > now);
        let all = all.iter();
        all.map(|(node, waits)| (node.clone(), waits.why.clone()))
            .collect()
    }
}

/// Tells the others again and again that this node is outside. Never ends; safe to drop.
pub(in crate::cluster) async fn tell(node: &Node, leases: Option<&Arc<dyn LeaseStore>>, why: &str) {
    let Some(leases) = leases else {
        // The others have it in a fixed list, and ask it themselves.
        return std::future::pending().await;
    };
    loop {
        // Those that are there, and those that ended without a word.
        if let OpResult::Nodes(Ok(found)) = leases.run(LeaseOp::Nodes { all: true }, READ).await {
            let told = stream::iter(found.nodes.iter().filter_map(reached))
                .map(|to| tell_one(node, to, why))
                .buffer_unordered(AT_ONCE);
            told.collect::<()>().await;
        }
        clock::sleep(PAUSE).await;
    }
}

async fn tell_one(node: &Node, to: Destination, why: &str) {
    let Some(peers) = node.peers() else { return };
    let ask = Ask::Outside {
        node: node.node.to_string(),
        why: why.to_owned(),
    };
    if let Err(error) = peers.transport.ask(&to, ask, NOTICE).await {
        tracing::debug!(peer = to.node, %error, "a peer did not hear that this node takes no shards");
    }
}

/// Where a node is reached that may live.
fn reached(seen: &NodeSeen) -> Option<Destination> {
    let info = &seen.record.as_ref().ok()?.info;
    let lives = matches!(info.state, NodeState::Live | NodeState::Draining);
    (lives && !info.advertise.is_empty()).then(|| Destination {
        node: info.name.to_string(),
        session: info.session.to_string(),
        address: info.advertise.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_heard_is_believed_for_a_while_and_bounded() {
        let outside = Outside::default();
        let began = clock::now();
        let name = |n: usize| -> NodeName { format!("node-{n}").parse().expect("a name") };
        outside.heard_at(name(0), "first", began);
        outside.heard_at(name(1), &"x".repeat(2 * WHY_MAX), began + PAUSE);
        outside.heard_at(name(0), "second", began + PAUSE);
        let all = outside.all(began + KEPT);
        assert_eq!(all.len(), 2, "the first was heard again");
        assert_eq!(all[0], (name(0), "second".to_owned()));
        assert_eq!(all[1].1.len(), WHY_MAX);
        let later = began + PAUSE + KEPT;
        assert!(outside.all(later).is_empty(), "they went silent");
        for n in 0..NODES_MAX + 9 {
            outside.heard_at(name(n), "many", later);
        }
        assert_eq!(outside.all(later).len(), NODES_MAX);
        outside.heard_at(name(0), "again", later);
        assert!(outside.all(later).contains(&(name(0), "again".to_owned())));
    }

    #[test]
    fn what_is_listed_is_of_others_that_have_names() {
        let outside = Outside::default();
        outside.heard("c", "it cannot");
        outside.heard("d", "it cannot either");
        outside.heard("no name\n", "it is none");
        let listed = outside.listed(|node| node.as_str() == "d");
        let expected = NodeRollout {
            node: "c".into(),
            check: "refused",
            why: Some("it takes no shards: it cannot".into()),
            counter: None,
        };
        assert_eq!(listed, [expected]);
    }
}

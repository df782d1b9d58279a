//! Looks for the owner of a shard for as long as calls wait for it.
//!
//! Whoever is said to have the shard, or to get it, is asked first, and may wait with its answer until it has it. Where nobody is, or where
//! that led nowhere, the other nodes are asked in turn who has it: so a node that cannot read the leases finds the owners all the same.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::super::node::Node;
use super::super::peers::Peers;
use super::super::routing::News;
use super::Parking;
use crate::clock;
use crate::transport::{Ask, Destination, Told};

/// How long a node that was asked may wait until it has the shard.
const ASKED: Duration = Duration::from_secs(1);
/// How much longer its answer may take.
const GRACE: Duration = Duration::from_secs(1);
/// The pause between two questions.
const PAUSE: Duration = Duration::from_millis(50);
/// The longest time for which an owner's word is taken.
const WORD: Duration = Duration::from_secs(60);

/// What to ask next, and whom.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Question {
    /// It is said to have the shard, or to get it. It answers when it has, or when it knows of a lease above this generation.
    Owner { to: Destination, above: u64 },
    /// It may know who has it.
    Anybody { to: Destination },
}

/// One task for all calls that wait for a shard.
pub(super) async fn seek(node: Weak<Node>, shard: u32) {
    let mut turn = 0;
    // Whether the last question led nowhere.
    let mut lost = false;
    loop {
        let Some(node) = node.upgrade() else { return };
        let Some(peers) = node.peers() else { return };
        if peers.parking.is_found(shard, node.stop.is_cancelled()) {
            return;
        }
        node.leases.route_miss(shard);
        let mut news = News::of(&node, peers);
        let said = question(&node, peers, shard);
        let question = said.filter(|_| !lost).or_else(|| {
            turn += 1;
            anybody(&node, turn)
        });
        lost = match question {
            Some(question) => !ask(&node, peers, shard, question, &mut news).await,
            None => false,
        };
        drop(node);
        clock::sleep(PAUSE).await;
    }
}

/// Says whether the question led on: to the owner, or to whom to ask next.
async fn ask(
    node: &Arc<Node>,
    peers: &Peers,
    shard: u32,
    question: Question,
    news: &mut News,
) -> bool {
    let sent = clock::boot_now();
    let (to, wait, above) = match &question {
        Question::Owner { to, above } => (to, ASKED, *above),
        Question::Anybody { to } => (to, Duration::ZERO, 0),
    };
    let place = Ask::Place {
        shard,
        wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
        above,
    };
    let answer = peers.transport.ask(to, place, wait + GRACE);
    let told = tokio::select! {
        biased;
        told = answer => told,
        // While one waits for its answer, another may have become the one to ask.
        () = better(node, peers, shard, &question, news), if wait > Duration::ZERO => return true,
    };
    let parking = &peers.parking;
    match (told, &question) {
        (Ok(Told::Owner { generation, for_ms }), _) => {
            let until = sent + Duration::from_millis(for_ms).min(WORD);
            parking.found(shard, to.clone(), generation, until);
            true
        }
        (Ok(Told::NotOwner(refusal)), Question::Owner { .. }) => {
            let leads = parking.leading_on(refusal.clone(), &to.node).is_some();
            parking.pointed(shard, refusal, &to.node);
            leads
        }
        // Whatever it said: the next to ask is whom it named, if it named anybody.
        (Ok(Told::NotOwner(refusal)), Question::Anybody { .. }) => {
            parking.heard(shard, refusal, &to.node);
            true
        }
        (Ok(_) | Err(_), _) => {
            parking.unhinted(shard, to);
            false
        }
    }
}

/// Waits until there is somebody else to ask.
async fn better(node: &Arc<Node>, peers: &Peers, shard: u32, asked: &Question, news: &mut News) {
    loop {
        news.changed().await;
        if question(node, peers, shard).is_some_and(|question| question != *asked) {
            return;
        }
    }
}

/// Whom to ask, if anybody is said to have the shard or to get it.
fn question(node: &Arc<Node>, peers: &Peers, shard: u32) -> Option<Question> {
    let (hint, refused) = peers.parking.hint(shard);
    // What was said last counts before a table that may be behind.
    let to = node
        .closing_for(shard)
        .or(hint)
        .or_else(|| node.successor(shard))
        .or_else(|| node.elsewhere_by_table(shard))
        .filter(|to| to.node != peers.parking.me)?;
    let above = refused.max(node.generation_by_table(shard));
    Some(Question::Owner { to, above })
}

/// One of the other nodes, each in its turn.
fn anybody(node: &Arc<Node>, turn: usize) -> Option<Question> {
    let routes = node.leases.routes();
    let others: Vec<_> = routes
        .nodes
        .keys()
        .filter(|name| *name.as_str() != *node.node)
        .collect();
    let name = others.get(turn % others.len().max(1))?;
    let to = node.destination(name)?;
    Some(Question::Anybody { to })
}

impl Parking {
    /// Whether nobody waits for the shard any more; then the task that looks for it ends. What was learned is kept while it holds.
    fn is_found(&self, shard: u32, stopping: bool) -> bool {
        let mut lots = self.lots();
        let Some(lot) = lots.get_mut(&shard) else {
            return true;
        };
        if lot.parked > 0 && !stopping {
            return false;
        }
        lot.seeking = false;
        let now = clock::boot_now();
        let known = lot.refused.is_some_and(|refused| now < refused.until)
            || lot.owner.as_ref().is_some_and(|owner| now < owner.until);
        if !known {
            lots.remove(&shard);
        }
        true
    }

    /// Who is said to have the shard, and up to which generation routes to it were refused.
    fn hint(&self, shard: u32) -> (Option<Destination>, u64) {
        let lots = self.lots();
        let lot = lots.get(&shard);
        let refused = lot.and_then(|lot| lot.refused);
        (
            lot.and_then(|lot| lot.hint.clone()),
            refused.map_or(0, |refused| refused.generation),
        )
    }
}

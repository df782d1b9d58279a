//! Which shards a node is to have, and what becomes of one that went down. A strategy decides; it does nothing itself.
//!
//! Three come with Quarry: [`Local`] (all shards here), [`Static`] (a fixed map, no failover) and [`Lease`] (fair shares of the nodes
//! that live, guarded by leases). Another one implements [`Strategy`]. It cannot do harm to data: whatever it plans, a shard is only
//! opened under a lease that was won, and SlateDB fences whoever comes late. A bad plan costs moves, or leaves shards closed.
//!
//! # A strategy of one's own
//!
//! Nodes whose name begins with `big-` are to get three quarters of the shards, as long as there are such nodes and others:
//!
//! ```
//! use quarry_core::placement::{Plan, Role, View};
//! use quarry_core::strategy::{Lease, Strategy};
//!
//! #[derive(Debug)]
//! struct Weighted;
//!
//! impl Strategy for Weighted {
//!     fn name(&self) -> &str {
//!         "weighted"
//!     }
//!
//!     fn plan(&self, view: &View) -> Plan {
//!         let open: Vec<_> = view.nodes.iter().filter(|(_, node)| node.role == Role::Open).map(|(name, _)| name).collect();
//!         let (big, small): (Vec<_>, Vec<_>) = open.into_iter().partition(|name| name.as_str().starts_with("big-"));
//!         if big.is_empty() || small.is_empty() {
//!             return Lease.plan(view);
//!         }
//!         // The plan depends on the view alone and on no order but that of names: all nodes come to the same one.
//!         let cut = view.shards.len() * 3 / 4;
//!         let target = |shard: usize| {
//!             let (nodes, nth) = if shard < cut { (&big, shard) } else { (&small, shard - cut) };
//!             Some(nodes[nth % nodes.len()].clone())
//!         };
//!         Plan { targets: (0..view.shards.len()).map(target).collect() }
//!     }
//! }
//!
//! # use quarry_core::lease::record::NodeName;
//! # use quarry_core::placement::{PlanNode, PlanShard};
//! let name = |name: &str| name.parse::<NodeName>().unwrap();
//! let node = || PlanNode { role: Role::Open, zone: String::new() };
//! let view = View {
//!     nodes: [(name("big-1"), node()), (name("tiny"), node())].into(),
//!     shards: vec![PlanShard::default(); 8],
//! };
//! let plan = Weighted.plan(&view);
//! assert_eq!(plan.targets.iter().filter(|target| **target == Some(name("big-1"))).count(), 6);
//! // What a plan leaves open is the default's: shards that fail are opened again after a pause, and given back in the end.
//! ```

use std::fmt::Debug;
use std::time::Duration;

use crate::backoff::Backoff;
use crate::lease::record::NodeName;
use crate::placement::{self, Plan, View};

/// After so many failures in a row a shard is given back, so that another node may try.
pub const FAILURES: u32 = 3;

/// Why a shard's database is no longer open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DownReason {
    /// It was closed on purpose.
    Stopped,
    /// Another writer opened it.
    Fenced,
    /// Its lease was lost.
    Lost,
    /// It failed, or could not be opened.
    Crashed,
}

/// What to do about a shard that went down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Leave it closed.
    StayDown,
    /// Open it again after a pause.
    Reopen(Duration),
    /// Give its lease back. Without leases it stays down.
    GiveBack,
}

/// A shard that went down.
#[derive(Debug, Clone, PartialEq)]
pub struct Down {
    /// The shard.
    pub shard: u32,
    /// Why.
    pub reason: DownReason,
    /// How often it went down or did not open, in a row: 1 for the first time. A long uptime starts over.
    pub failures: u32,
    /// How long it ran.
    pub uptime: Duration,
    /// From 0 (inclusive) to 1 (exclusive), for jitter.
    pub random: f64,
}

/// A placement strategy. See the module for an example.
///
/// Its functions are pure: the same arguments give the same answer on every node, at any time. They are called on the control thread
/// and must be quick. That a plan names nodes that are not in the view, or has too few entries, is borne: such shards have no target.
pub trait Strategy: Debug + Send + Sync {
    /// Its name in the configuration.
    fn name(&self) -> &str;

    /// Whether leases in the bucket guard who has a shard. Without them a shard is opened where the plan says, whoever else runs, and
    /// a shard of a node that is gone stays closed.
    fn leased(&self) -> bool {
        true
    }

    /// Which node should have which shard.
    fn plan(&self, view: &View) -> Plan {
        placement::plan(view)
    }

    /// What becomes of a shard that went down. The default opens it again after growing pauses, and gives it back after [`FAILURES`].
    fn down(&self, down: &Down, backoff: &mut Backoff) -> Next {
        match down.reason {
            DownReason::Stopped => Next::StayDown,
            _ if self.leased() && down.failures >= FAILURES => Next::GiveBack,
            _ => local(&down.reason, backoff, down.uptime, down.random),
        }
    }
}

/// All shards are here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Local {
    /// This node.
    pub me: NodeName,
}

impl Strategy for Local {
    fn name(&self) -> &'static str {
        "local"
    }

    fn leased(&self) -> bool {
        false
    }

    fn plan(&self, view: &View) -> Plan {
        Plan {
            targets: vec![Some(self.me.clone()); view.shards.len()],
        }
    }
}

/// Each shard has its fixed node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Static {
    nodes: Vec<NodeName>,
}

impl Static {
    /// Shard `n` belongs to the node at `n` modulo the length of the list: a list of all nodes deals them out in turn, a list as long
    /// as there are shards is an explicit map.
    ///
    /// # Errors
    /// When the list is empty.
    pub fn new(nodes: Vec<NodeName>) -> Result<Self, NoNodes> {
        if nodes.is_empty() {
            return Err(NoNodes);
        }
        Ok(Self { nodes })
    }
}

/// A fixed map without nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the static strategy has no nodes; list at least one")]
pub struct NoNodes;

impl Strategy for Static {
    fn name(&self) -> &'static str {
        "static"
    }

    fn leased(&self) -> bool {
        false
    }

    fn plan(&self, view: &View) -> Plan {
        let targets =
            (0..view.shards.len()).map(|shard| Some(self.nodes[shard % self.nodes.len()].clone()));
        Plan {
            targets: targets.collect(),
        }
    }
}

/// Fair shares of the nodes that live, guarded by leases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lease;

impl Strategy for Lease {
    fn name(&self) -> &'static str {
        "lease"
    }
}

/// Opens a shard again after a pause, unless it was stopped. `uptime` is how long the shard ran, `random` is from 0 to 1.
///
/// A fence means that a second process opened the same data. To take it back at once would make the two fence each other for ever, so a
/// fence counts as a failure like any other, and the pauses grow.
pub fn local(reason: &DownReason, backoff: &mut Backoff, uptime: Duration, random: f64) -> Next {
    match reason {
        DownReason::Stopped => Next::StayDown,
        DownReason::Fenced | DownReason::Lost | DownReason::Crashed => {
            Next::Reopen(backoff.failed(uptime, random))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::PlanShard;

    #[test]
    fn a_shard_is_reopened_unless_it_was_stopped() {
        for (reason, next) in [
            (DownReason::Stopped, Next::StayDown),
            (DownReason::Fenced, Next::Reopen(Duration::from_secs(1))),
            (DownReason::Lost, Next::Reopen(Duration::from_secs(1))),
            (DownReason::Crashed, Next::Reopen(Duration::from_secs(1))),
        ] {
            assert_eq!(
                local(&reason, &mut Backoff::default(), Duration::ZERO, 1.0),
                next,
                "{reason:?}"
            );
        }
    }

    #[test]
    fn only_a_leased_shard_is_given_back() {
        let name = |name: &str| name.parse::<NodeName>().expect("a name");
        let fixed = Static::new(vec![name("a"), name("b")]).expect("nodes");
        let strategies: [(&dyn Strategy, [bool; 4]); 3] = [
            (&Lease, [false, false, true, true]),
            (&fixed, [false; 4]),
            (&Local { me: name("a") }, [false; 4]),
        ];
        for (strategy, given) in strategies {
            let mut backoff = Backoff::default();
            for (failures, given) in (1..).zip(given) {
                let down = Down {
                    shard: 0,
                    reason: DownReason::Crashed,
                    failures,
                    uptime: Duration::ZERO,
                    random: 0.5,
                };
                let next = strategy.down(&down, &mut backoff);
                assert_eq!(next == Next::GiveBack, given, "{strategy:?} {failures}");
            }
        }
    }

    #[test]
    fn fixed_plans() {
        let name = |name: &str| name.parse::<NodeName>().expect("a name");
        let view = View {
            nodes: [].into(),
            shards: vec![PlanShard::default(); 5],
        };
        let fixed = Static::new(vec![name("a"), name("b")]).expect("nodes");
        let names = |plan: Plan| -> String {
            plan.targets
                .iter()
                .map(|target| target.as_ref().map_or("-", |name| name.as_str()))
                .collect()
        };
        assert_eq!(names(fixed.plan(&view)), "ababa");
        assert_eq!(names(Local { me: name("c") }.plan(&view)), "ccccc");
        assert_eq!(Static::new(Vec::new()), Err(NoNodes));
    }
}

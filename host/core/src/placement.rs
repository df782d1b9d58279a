//! Which node should have which shard: a pure function of who is there and who has what.

use std::collections::BTreeMap;

use crate::lease::record::NodeName;

/// What a plan makes of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// It takes part: it gets its share.
    Open,
    /// It keeps what it has and gets no more (cordoned).
    Keeps,
    /// It gives away all that it has (draining).
    Leaves,
}

/// A node that is alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanNode {
    /// What the plan makes of it.
    pub role: Role,
    /// Where it stands; empty when that is not known. A tie-break for shards that have no owner.
    pub zone: String,
}

/// A shard as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlanShard {
    /// The node that has it or is to take it; none, or one that is not in the view, when it is free.
    pub owner: Option<NodeName>,
    /// An operator put it there: it leaves last.
    pub pinned: bool,
}

/// Who is there, and who has what.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct View {
    /// The nodes that are alive.
    pub nodes: BTreeMap<NodeName, PlanNode>,
    /// All shards; the index is the shard's number.
    pub shards: Vec<PlanShard>,
}

/// Who should have what.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// The node for each shard; the index is the shard's number. None when no node takes part.
    pub targets: Vec<Option<NodeName>>,
}

impl Plan {
    /// How many shards change from a node that has them to another.
    #[must_use]
    pub fn moves(&self, view: &View) -> usize {
        let moved = |(shard, target): (&PlanShard, &Option<NodeName>)| {
            let owner = shard.owner.as_ref();
            owner.is_some_and(|owner| view.nodes.contains_key(owner)) && owner != target.as_ref()
        };
        view.shards
            .iter()
            .zip(&self.targets)
            .filter(|pair| moved(*pair))
            .count()
    }
}

/// Plans. See the module.
#[must_use]
pub fn plan(view: &View) -> Plan {
    Plan {
        targets: view
            .shards
            .iter()
            .map(|shard| shard.owner.clone())
            .collect(),
    }
}

//! Which node should have which shard: a pure function of who is there and who has what.
//!
//! Shares differ by at most one, and a plan moves no shard that it need not move: those that have most keep the larger shares.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::lease::record::NodeName;
use crate::rules::{Mutation, Rules};

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
    /// Where it stands; empty when that is not known. The default plan does not look at it: with one owner a shard there is nothing to
    /// spread over zones.
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

impl View {
    /// The node that has a shard, if it is alive.
    fn owner(&self, shard: &PlanShard) -> Option<(&NodeName, Role)> {
        let (name, node) = self.nodes.get_key_value(shard.owner.as_ref()?)?;
        Some((name, node.role))
    }
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
        let pairs = view.shards.iter().zip(&self.targets);
        let moved = |(shard, target): &(&PlanShard, &Option<NodeName>)| {
            let owner = view.owner(shard);
            owner.is_some_and(|(owner, _)| Some(owner) != target.as_ref())
        };
        pairs.filter(moved).count()
    }
}

/// Plans. The nodes that take part ([`Role::Open`]) share all shards but those that cordoned nodes keep: each gets the same number,
/// and those that have more already keep one more where it does not come out even (by name, and after them others by name). A node gives up
/// what is above its share, never a pinned shard before another, and those without an owner go to whoever has least.
///
/// The planned view has the same plan again. A view in which a part of the plan was carried out has plans of the same shares, and the very
/// same plan when nodes have claimed the first shards of what it gives them: so whoever looks while others are at it plans as they did. A
/// shard of a draining node stays there when nobody takes part.
#[must_use]
pub fn plan(view: &View) -> Plan {
    let mut targets: Vec<Option<NodeName>> = vec![None; view.shards.len()];
    let mut held: BTreeMap<&NodeName, Vec<usize>> = view
        .nodes
        .iter()
        .filter(|(_, node)| node.role == Role::Open)
        .map(|(name, _)| (name, Vec::new()))
        .collect();
    let mut homeless = Vec::new();
    for (index, shard) in view.shards.iter().enumerate() {
        match view.owner(shard) {
            Some((owner, Role::Open)) => held.entry(owner).or_default().push(index),
            Some((owner, Role::Keeps)) => targets[index] = Some(owner.clone()),
            Some((owner, Role::Leaves)) => {
                targets[index] = Some(owner.clone());
                homeless.push(index);
            }
            None => homeless.push(index),
        }
    }
    if held.is_empty() {
        return Plan { targets };
    }
    let shared = homeless.len() + held.values().map(Vec::len).sum::<usize>();
    let (floor, larger) = (shared / held.len(), shared % held.len());
    let mut order: Vec<(&NodeName, Vec<usize>)> = held.into_iter().collect();
    order.sort_by_key(|(name, shards)| (shards.len() <= floor, *name));

    let mut room = Vec::new();
    for (rank, (name, mut shards)) in order.into_iter().enumerate() {
        let share = floor + usize::from(rank < larger);
        shards.sort_by_key(|index| (!view.shards[*index].pinned, *index));
        homeless.extend(shards.iter().skip(share));
        for index in shards.iter().take(share) {
            targets[*index] = Some(name.clone());
        }
        room.push((name, share.saturating_sub(shards.len())));
    }
    // In the order of numbers to whoever has most room left, so that neighbours spread; first those that nobody has.
    homeless.sort_unstable_by_key(|index| (view.owner(&view.shards[*index]).is_some(), *index));
    for index in homeless {
        let roomiest = room
            .iter_mut()
            .max_by_key(|(name, left)| (*left, Reverse(*name)));
        let Some((name, left)) = roomiest.filter(|(_, left)| *left > 0) else {
            break;
        };
        *left -= 1;
        targets[index] = Some((*name).clone());
    }
    Plan { targets }
}

/// A plan that breaks a rule on purpose; none unless one of placement's is broken. For the simulator only.
pub(crate) fn broken(view: &View, rules: Rules) -> Option<Plan> {
    if rules.broken(Mutation::NotSticky) {
        let mut afresh = view.clone();
        for shard in &mut afresh.shards {
            shard.owner = None;
        }
        return Some(plan(&afresh));
    }
    if !rules.broken(Mutation::CeilOnly) {
        return None;
    }
    let open = view
        .nodes
        .iter()
        .filter(|(_, node)| node.role == Role::Open);
    let mut room: BTreeMap<&NodeName, usize> = open.map(|(name, _)| (name, 0)).collect();
    let ceil = view.shards.len().div_ceil(room.len().max(1));
    room.values_mut().for_each(|room| *room = ceil);
    let mut take = |name: &NodeName| {
        let room = room.get_mut(name).filter(|room| **room > 0)?;
        *room -= 1;
        Some(name.clone())
    };
    let keep = |shard: &PlanShard| shard.owner.as_ref().and_then(&mut take);
    let mut targets: Vec<Option<NodeName>> = view.shards.iter().map(keep).collect();
    for target in targets.iter_mut().filter(|target| target.is_none()) {
        *target = view.nodes.keys().find_map(&mut take);
    }
    Some(Plan { targets })
}

#[cfg(test)]
mod tests;

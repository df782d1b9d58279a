use super::*;
use crate::rng::Rng;

fn name(name: &str) -> NodeName {
    name.parse().expect("a name")
}

/// Nodes as `name` (open), `name-` (leaves) or `name=` (keeps); shards by their owner's letter, upper case when pinned, `.` for none.
fn view(nodes: &str, shards: &str) -> View {
    let node = |text: &str| {
        let role = match text.chars().last() {
            Some('-') => Role::Leaves,
            Some('=') => Role::Keeps,
            _ => Role::Open,
        };
        let zone = String::new();
        (
            name(text.trim_end_matches(['-', '='])),
            PlanNode { role, zone },
        )
    };
    let shard = |c: char| PlanShard {
        owner: (c != '.').then(|| name(&c.to_ascii_lowercase().to_string())),
        pinned: c.is_ascii_uppercase(),
    };
    View {
        nodes: nodes.split_whitespace().map(node).collect(),
        shards: shards.chars().map(shard).collect(),
    }
}

fn letters(plan: &Plan) -> String {
    let letter =
        |target: &Option<NodeName>| target.as_ref().map_or(".", |name| name.as_str()).to_owned();
    plan.targets.iter().map(letter).collect()
}

#[test]
fn plans() {
    for (nodes, before, after) in [
        ("", "....", "...."),
        ("a", "....", "aaaa"),
        ("a b", "....", "abab"),
        ("a b", "aaaa", "aabb"),
        ("a b c", "aaaa", "aabc"),
        // One more goes to whoever has most; a node that is gone has nothing.
        ("a b", "aab", "aab"),
        ("a b", "bba", "bba"),
        ("a b", "xxb", "aab"),
        ("a b c", "aabbx", "aabbc"),
        // More nodes than shards.
        ("a b c", "c.", "ca"),
        // A newcomer takes only what is above the shares.
        ("a b c", "aaabbb", "aacbbc"),
        ("a b c d", "aabbcc", "aabbcd"),
        // Pinned shards leave last.
        ("a b", "AAaa", "aabb"),
        ("a b", "aaAA", "bbaa"),
        ("a b", "AAAA", "aabb"),
        // Draining nodes give all away, but only to somebody.
        ("a- b", "aabb", "bbbb"),
        ("a- b c", "aaab", "cbcb"),
        ("a-", "aa.", "aa."),
        // Cordoned ones keep what they have and get no more.
        ("a= b", "aa..", "aabb"),
        ("a= b c", "aaaabb....", "aaaabbccbc"),
        ("a= b=", "ab..", "ab.."),
        ("a= b-", "abb", "abb"),
    ] {
        let plan = plan(&view(nodes, before));
        assert_eq!(letters(&plan), after, "{nodes}: {before}");
    }
}

/// A view with up to 9 nodes of all roles and up to 60 shards, some of them of nodes that are gone.
fn any(rng: &mut Rng) -> View {
    let mut below = |n: u64| rng.next_u64() % n;
    let alive = below(9);
    let mut nodes = BTreeMap::new();
    for n in 0..alive {
        let role = match below(8) {
            0 => Role::Leaves,
            1 => Role::Keeps,
            _ => Role::Open,
        };
        let zone = String::new();
        nodes.insert(name(&format!("n{n}")), PlanNode { role, zone });
    }
    let skewed = below(2) == 0;
    let shards = (0..below(61)).map(|_| {
        let n = if skewed { below(2) } else { below(alive + 2) };
        PlanShard {
            owner: (below(5) > 0).then(|| name(&format!("n{n}"))),
            pinned: below(6) == 0,
        }
    });
    View {
        shards: shards.collect(),
        nodes,
    }
}

fn planned(view: &View, plan: &Plan) -> View {
    let shard = |(shard, target): (&PlanShard, &Option<NodeName>)| PlanShard {
        owner: target.clone(),
        ..shard.clone()
    };
    View {
        nodes: view.nodes.clone(),
        shards: view.shards.iter().zip(&plan.targets).map(shard).collect(),
    }
}

/// The fewest moves that lead to fair shares: what is above them, where the larger shares go to those that have most; and all that
/// draining nodes have.
fn fewest_moves(view: &View) -> usize {
    let count = |role: Role| -> Vec<usize> {
        let of = |owner: &NodeName| {
            view.shards
                .iter()
                .filter(|s| s.owner.as_ref() == Some(owner))
                .count()
        };
        view.nodes
            .iter()
            .filter(|(_, node)| node.role == role)
            .map(|(name, _)| of(name))
            .collect()
    };
    let mut open = count(Role::Open);
    if open.is_empty() {
        return 0;
    }
    let shared = view.shards.len() - count(Role::Keeps).iter().sum::<usize>();
    // By trial: any choice of who gets the larger shares, not only the one that the plan makes.
    open.sort_unstable();
    let (floor, larger) = (shared / open.len(), shared % open.len());
    let mut fewest = usize::MAX;
    for chosen in 0..1_u32 << open.len() {
        if chosen.count_ones() as usize == larger {
            let share = |n: usize| floor + usize::from(chosen >> n & 1 == 1);
            let moves = open
                .iter()
                .enumerate()
                .map(|(n, have)| have.saturating_sub(share(n)))
                .sum();
            fewest = fewest.min(moves);
        }
    }
    fewest + count(Role::Leaves).iter().sum::<usize>()
}

#[test]
fn any_plan_is_fair_minimal_and_settled() {
    for seed in 0..4000 {
        let view = any(&mut Rng::new(seed));
        let first = plan(&view);
        assert_eq!(first.targets.len(), view.shards.len(), "seed {seed}");
        assert_eq!(plan(&view), first, "seed {seed}: not deterministic");
        assert_eq!(
            first.moves(&view),
            fewest_moves(&view),
            "seed {seed}: {view:?} {first:?}"
        );

        let open: Vec<&NodeName> = view
            .nodes
            .iter()
            .filter(|(_, node)| node.role == Role::Open)
            .map(|(name, _)| name)
            .collect();
        let counts: Vec<usize> = open
            .iter()
            .map(|name| {
                first
                    .targets
                    .iter()
                    .filter(|target| target.as_ref() == Some(name))
                    .count()
            })
            .collect();
        if let (Some(most), Some(least)) = (counts.iter().max(), counts.iter().min()) {
            assert!(most - least <= 1, "seed {seed}: {counts:?}");
            assert!(first.targets.iter().all(Option::is_some), "seed {seed}");
        }
        for (shard, target) in view.shards.iter().zip(&first.targets) {
            let role = target
                .as_ref()
                .and_then(|target| view.nodes.get(target))
                .map(|node| node.role);
            match role {
                Some(Role::Keeps) => {
                    assert_eq!(&shard.owner, target, "seed {seed}: a cordoned node got one")
                }
                Some(Role::Leaves) => {
                    assert!(open.is_empty(), "seed {seed}: a draining node keeps one")
                }
                Some(Role::Open) => {}
                None => assert!(open.is_empty(), "seed {seed}: a target that is not there"),
            }
        }
        let after = planned(&view, &first);
        assert_eq!(
            plan(&after),
            first,
            "seed {seed}: the planned view moves again"
        );
        assert_eq!(plan(&after).moves(&after), 0, "seed {seed}");
    }
}

/// Nodes claim what a plan gives them one by one, and look while others do.
#[test]
fn who_looks_while_others_claim_plans_as_they_did() {
    for seed in 0..4000 {
        let mut rng = Rng::new(seed);
        let mut view = any(&mut rng);
        let first = plan(&view);
        let mut claims: BTreeMap<&NodeName, u64> = BTreeMap::new();
        for (shard, target) in view.shards.iter_mut().zip(&first.targets) {
            let free = !shard
                .owner
                .as_ref()
                .is_some_and(|owner| view.nodes.contains_key(owner));
            if let Some(target) = target.as_ref().filter(|_| free) {
                let left = claims.entry(target).or_insert_with(|| rng.next_u64() % 8);
                if *left > 0 {
                    *left -= 1;
                    shard.owner = Some(target.clone());
                }
            }
        }
        assert_eq!(plan(&view), first, "seed {seed}: {view:?}");
        // Whatever part of it was carried out, each node has the same share.
        for (shard, target) in view.shards.iter_mut().zip(&first.targets) {
            if rng.next_u64().is_multiple_of(2) {
                shard.owner.clone_from(target);
            }
        }
        let count = |plan: &Plan| {
            let mut counts: BTreeMap<NodeName, usize> = BTreeMap::new();
            for target in plan.targets.iter().flatten() {
                *counts.entry(target.clone()).or_default() += 1;
            }
            counts
        };
        assert_eq!(count(&plan(&view)), count(&first), "seed {seed}: {view:?}");
    }
}

#[test]
fn any_change_of_one_node_moves_only_its_share() {
    for seed in 0..1000 {
        let mut rng = Rng::new(seed);
        let mut view = any(&mut rng);
        for node in view.nodes.values_mut() {
            node.role = Role::Open;
        }
        view = planned(&view, &plan(&view));
        let before = view.nodes.len();
        // A newcomer takes its share and nothing else moves.
        view.nodes.insert(
            name("new"),
            PlanNode {
                role: Role::Open,
                zone: String::new(),
            },
        );
        let joined = plan(&view);
        let got = joined
            .targets
            .iter()
            .filter(|target| **target == Some(name("new")))
            .count();
        if before > 0 {
            assert_eq!(joined.moves(&view), got, "seed {seed}");
            assert_eq!(got, view.shards.len() / (before + 1), "seed {seed}");
        }
        // When it leaves again, only what it had moves.
        view = planned(&view, &joined);
        view.nodes.remove(&name("new"));
        assert_eq!(plan(&view).moves(&view), 0, "seed {seed}");
    }
}

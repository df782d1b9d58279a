//! What moves when a node joins and when it leaves, against the fewest moves that there can be.

use std::time::Duration;

use super::figure::{Figure, Times, Unit};
use super::ring::{self, Member, Ring};
use super::{Error, Part};
use crate::clock;

const NODES: usize = 3;

pub(super) async fn measure(
    ring: &Ring,
    rounds: u32,
    progress: &impl Fn(&str),
    found: &mut impl FnMut(Figure),
) -> Result<(), Error> {
    let members = ring.start_all(NODES).await?;
    let (mut joins, mut leaves) = (Changes::default(), Changes::default());
    for round in 1..=rounds {
        progress(&format!("  round {round} of {rounds}"));
        let mut loads: Vec<usize> = loads(&members);
        loads.push(0);
        let (opened, begun) = (opens(&members), clock::now());
        let joined = ring.start("node-new").await?;
        let all: Vec<&Member> = members.iter().chain([&joined]).collect();
        ring.settled(&all).await?;
        joins.times.push(clock::now() - begun);
        joins.moves += opens(&members) + joined.opens() - opened;
        joins.fewest += fewest(&loads);

        let (opened, begun) = (opens(&members), clock::now());
        leaves.fewest += joined.serves().len();
        joined.cluster.stop().await;
        ring.settled(&members.iter().collect::<Vec<_>>()).await?;
        leaves.times.push(clock::now() - begun);
        leaves.moves += opens(&members) - opened;
    }
    let peers = "bounded-load rendezvous: tests allow up to 50 % more; consistent hashing ~S/N, with variance";
    for (what, changes) in [("a join", joins), ("a leave", leaves)] {
        let name = format!("moves of {what}, {rounds} rounds");
        let moves = Figure::new(Part::Members, name, changes.moves as f64, Unit::Count);
        found(moves.at_most(changes.fewest as f64).peers(peers));
        let longest = Times::of(changes.times).max();
        let even = Figure::time(Part::Members, format!("{what}, until even, max"), longest);
        found(even.at_most(ring.interval().as_secs_f64() * 2e3));
    }
    ring::stop(members).await;
    Ok(())
}

/// What changes of one kind came to.
#[derive(Default)]
struct Changes {
    moves: u64,
    fewest: usize,
    times: Vec<Duration>,
}

fn loads(members: &[Member]) -> Vec<usize> {
    members.iter().map(|member| member.serves().len()).collect()
}

fn opens(members: &[Member]) -> u64 {
    members.iter().map(Member::opens).sum()
}

/// The fewest moves that make loads even.
fn fewest(loads: &[usize]) -> usize {
    let mut loads = loads.to_vec();
    // Those that have most keep one more.
    loads.sort_unstable_by(|one, other| other.cmp(one));
    let (all, nodes) = (loads.iter().sum::<usize>(), loads.len().max(1));
    let (floor, more) = (all / nodes, all % nodes);
    let over =
        |(rank, load): (usize, &usize)| load.saturating_sub(floor + usize::from(rank < more));
    loads.iter().enumerate().map(over).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fewest_moves() {
        for (loads, moves) in [
            (&[][..], 0),
            (&[5], 0),
            (&[3, 2], 0),
            (&[2, 3], 0),
            (&[4, 0], 2),
            (&[5, 0], 2),
            (&[22, 21, 21, 0], 16),
            (&[21, 22, 21, 0], 16),
            (&[10, 0, 0], 6),
            (&[3, 3, 0, 0], 2),
        ] {
            assert_eq!(fewest(loads), moves, "{loads:?}");
        }
    }
}

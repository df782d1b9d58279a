//! Which calls between shards may be made: none that could never be answered.
//!
//! A shard runs one call at a time, so one that waits for a call of its own runs no other. A call carries the shards that wait for it, its
//! *chain*, outermost first. Where it would come back to one of them, it is refused before it is sent ([`extend`]). Where two chains meet,
//! each of which waits for a shard of the other, no chain shows it; the shard at which they meet does ([`meets`]). Queries run beside calls,
//! so they close no circle; their chain only bounds how deep they go.

use std::fmt;

/// The longest chain that is carried, whatever `limits.call_depth` says.
pub const CHAIN_MAX: usize = 64;

/// What is asked of another shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A call.
    Call,
    /// A query.
    Query,
}

/// Why a shard may not ask another.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The shard that is asked waits for the call.
    #[error("the call would come back to shard {to}, which waits for it: {}", Path(.chain, Some(*.to)))]
    Cycle {
        /// The shards that wait, outermost first.
        chain: Vec<u32>,
        /// The one that would be called.
        to: u32,
    },
    /// Too many shards wait for each other already.
    #[error("{} shards would wait for each other, over limits.call_depth ({depth}): {}", .chain.len(), Path(.chain, Some(*.to)))]
    Depth {
        /// The shards that would wait, outermost first.
        chain: Vec<u32>,
        /// The one that would be asked.
        to: u32,
        /// The limit.
        depth: usize,
    },
}

/// Two chains that wait for each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("two calls met, each of which waits for the other: {} waits for this call, and {} waits for that", Path(.chain, None), Path(.path, None))]
pub struct Meeting {
    /// The shards that wait for the call that is refused, outermost first.
    pub chain: Vec<u32>,
    /// The shard that would run it, the one that this waits for, and so on, to one of the chain.
    pub path: Vec<u32>,
}

/// The chain of what shard `from` asks of shard `to`, in the middle of a call or query that the shards of `chain` wait for.
///
/// # Errors
/// When it must not be asked.
pub fn extend(
    chain: &[u32],
    from: u32,
    to: u32,
    kind: Kind,
    depth: usize,
) -> Result<Vec<u32>, Refusal> {
    let mut extended = Vec::with_capacity(chain.len() + 1);
    extended.extend_from_slice(chain);
    extended.push(from);
    if kind == Kind::Call && extended.contains(&to) {
        return Err(Refusal::Cycle {
            chain: extended,
            to,
        });
    }
    let depth = depth.min(CHAIN_MAX);
    if extended.len() > depth {
        return Err(Refusal::Depth {
            chain: extended,
            to,
            depth,
        });
    }
    Ok(extended)
}

/// Whether a call that the shards of `chain` wait for can never be run by `shard`, because that waits for one of them itself. `waits_for`
/// says whom a shard waits for, as far as that is known here.
pub fn meets(chain: &[u32], shard: u32, waits_for: impl Fn(u32) -> Option<u32>) -> Option<Meeting> {
    let mut path = vec![shard];
    let mut at = shard;
    // Among others there may be a circle that has not been refused yet.
    while path.len() <= CHAIN_MAX {
        at = waits_for(at)?;
        path.push(at);
        if chain.contains(&at) {
            return Some(Meeting {
                chain: chain.to_vec(),
                path,
            });
        }
    }
    None
}

/// Shards, each of which waits for the next.
struct Path<'a>(&'a [u32], Option<u32>);

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, shard) in self.0.iter().chain(self.1.as_ref()).enumerate() {
            let arrow = if at == 0 { "" } else { " -> " };
            write!(f, "{arrow}{shard}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_never_comes_back_and_never_goes_too_deep() {
        use Kind::{Call, Query};
        let long: Vec<u32> = (0..15).collect();
        let too_long: Vec<u32> = (0..16).collect();
        for (chain, from, to, kind, says) in [
            (&[][..], 0, 1, Call, Ok(vec![0])),
            (&[7, 3], 0, 1, Call, Ok(vec![7, 3, 0])),
            (&[], 0, 0, Call, Err("which waits for it: 0 -> 0")),
            (
                &[0],
                1,
                0,
                Call,
                Err("shard 0, which waits for it: 0 -> 1 -> 0"),
            ),
            (&[0], 1, 1, Call, Err("0 -> 1 -> 1")),
            (&[5, 0, 1], 2, 0, Call, Err("5 -> 0 -> 1 -> 2 -> 0")),
            // Queries run beside calls.
            (&[], 0, 0, Query, Ok(vec![0])),
            (&[0], 1, 0, Query, Ok(vec![0, 1])),
            (&long, 15, 16, Call, Ok((0..16).collect())),
            (
                &too_long,
                16,
                17,
                Call,
                Err("17 shards would wait for each other, over limits.call_depth (16)"),
            ),
            (&too_long, 16, 16, Query, Err("limits.call_depth (16)")),
            // What is wrong first is said.
            (&too_long, 16, 3, Call, Err("would come back to shard 3")),
        ] {
            let extended = extend(chain, from, to, kind, 16);
            match (&extended, &says) {
                (Ok(extended), Ok(expected)) => assert_eq!(extended, expected),
                (Err(refusal), Err(says)) => {
                    assert!(refusal.to_string().contains(says), "{refusal}");
                }
                _ => panic!("{chain:?} {from} -> {to} {kind:?}: {extended:?}, not {says:?}"),
            }
        }
        let most: Vec<u32> = (0..64).collect();
        assert!(extend(&most, 64, 65, Kind::Call, usize::MAX).is_err());
    }

    #[test]
    fn two_chains_that_wait_for_each_other_are_found() {
        for (name, chain, shard, waits, path) in [
            ("nobody waits", &[0][..], 1, &[][..], None),
            ("it waits for another", &[0], 1, &[(1, 2)], None),
            ("face to face", &[0], 1, &[(0, 1), (1, 0)], Some(vec![1, 0])),
            (
                "for one further out",
                &[5, 0],
                1,
                &[(1, 5)],
                Some(vec![1, 5]),
            ),
            (
                "three in a ring",
                &[0],
                1,
                &[(0, 1), (1, 2), (2, 0)],
                Some(vec![1, 2, 0]),
            ),
            ("a ring of others", &[0], 1, &[(1, 2), (2, 3), (3, 2)], None),
            ("the caller alone waits", &[0], 1, &[(0, 1)], None),
        ] {
            let waits_for = |shard| {
                let edge = waits.iter().find(|(from, _)| *from == shard);
                edge.map(|(_, to)| *to)
            };
            let met = meets(chain, shard, waits_for);
            assert_eq!(met.as_ref().map(|met| &met.path), path.as_ref(), "{name}");
        }
        let met = meets(&[4, 0], 1, |shard| (shard == 1).then_some(4)).expect("a meeting");
        assert_eq!(
            met.to_string(),
            "two calls met, each of which waits for the other: 4 -> 0 waits for this call, and 1 -> 4 waits for that"
        );
    }
}

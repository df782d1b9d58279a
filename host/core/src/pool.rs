//! Who gets the instances that a node has room for.
//!
//! A shard without an instance serves nothing, while a query that finds none can be made again. So queries have a share of the room,
//! and what is left of it is kept for the shards' own instances.

use std::time::Duration;

/// What queries have even where shards would want all of the room for a swap.
const QUERIES_LEAST: u32 = 64;
/// The first pause of a shard that found no room.
const FIRST: Duration = Duration::from_millis(100);
/// The longest.
const LONGEST: Duration = Duration::from_secs(5);

/// Instances that all queries of a node may have at once, of `instances` that it has room for.
///
/// `writers` are the instances that run calls: shards times modules. Each has one place for sure, and a second one beside it while it is
/// swapped, as long as that leaves queries half of what is over (or 64).
#[must_use]
pub fn query_share(instances: u32, writers: u32) -> u32 {
    let over = instances.saturating_sub(writers);
    let least = over.div_ceil(2).min(QUERIES_LEAST);
    over.saturating_sub(writers).max(least)
}

/// The pause before a shard looks for room again, which it did not find `before` times in a row: 100 ms, doubled up to 5 s.
#[must_use]
pub fn pause(before: u32) -> Duration {
    FIRST.saturating_mul(1 << before.min(16)).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_never_have_the_room_of_shards() {
        for (instances, writers, queries) in [
            (0, 0, 0),
            (10, 0, 10),
            // Two shards and nothing over: no query can run, and no shard is kept from starting.
            (2, 2, 0),
            (1, 2, 0),
            (3, 2, 1),
            (4, 2, 1),
            (6, 2, 2),
            (8, 2, 4),
            // The default: two a shard, and 64.
            (2 * 16 + 64, 16, 64),
            (2 * 5_968 + 64, 5_968, 64),
            (2 * 5_968, 5_968, 64),
            (12_000, 11_990, 5),
            (u32::MAX, u32::MAX, 0),
            (u32::MAX, 1, u32::MAX - 2),
        ] {
            assert_eq!(
                query_share(instances, writers),
                queries,
                "{instances} {writers}"
            );
        }
        for writers in 0..64 {
            for instances in 0..256 {
                let queries = query_share(instances, writers);
                assert!(queries <= instances.saturating_sub(writers));
                assert!(queries <= query_share(instances + 1, writers));
            }
        }
    }

    #[test]
    fn pauses_double_up_to_five_seconds() {
        let pauses: Vec<u128> = [0, 1, 2, 5, 6, u32::MAX]
            .map(|before| pause(before).as_millis())
            .to_vec();
        assert_eq!(pauses, [100, 200, 400, 3_200, 5_000, 5_000]);
    }
}

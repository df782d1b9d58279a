//! The key-to-shard hash. It is fixed for the life of the data: `xxh64(key, seed 0) mod shards`.

use xxhash_rust::xxh64::xxh64;

/// The hash's name in the cluster record.
pub const NAME: &str = "xxh64";

/// The shard that a key belongs to.
///
/// # Panics
/// When `shards` is 0; a cluster has at least one.
#[must_use]
pub fn shard_for(key: &[u8], shards: u32) -> u32 {
    assert!(shards > 0, "a cluster has at least one shard");
    let shard = xxh64(key, 0) % u64::from(shards);
    u32::try_from(shard).expect("a remainder of a u32 fits one")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published vectors of XXH64 with seed 0, and the shards that follow. Changing one of these loses every key of every cluster.
    #[test]
    fn the_hash_is_pinned() {
        for (key, hash) in [
            (&b""[..], 0xef46_db37_51d8_e999_u64),
            (b"a", 0xd24e_c4f1_a98c_6e5b),
            (b"abc", 0x44bc_2cf5_ad77_0999),
        ] {
            assert_eq!(xxh64(key, 0), hash, "{key:?}");
            for shards in [1, 3, 16, 64, 1000] {
                assert_eq!(u64::from(shard_for(key, shards)), hash % u64::from(shards));
            }
        }
    }

    #[test]
    fn keys_spread_evenly() {
        let mut counts = [0_u32; 16];
        for n in 0..16_000_u32 {
            counts[shard_for(format!("key-{n}").as_bytes(), 16) as usize] += 1;
        }
        assert!(
            counts.iter().all(|count| (850..1150).contains(count)),
            "{counts:?}"
        );
    }
}

//! The generator behind every choice of a run: small, seeded, and the same on every machine and for ever, so that a seed replays a run.

/// xoshiro256**, seeded through splitmix64.
#[derive(Debug, Clone)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// The generator of `seed` and `stream`: streams of one seed are independent, so that one more draw in one part of the world moves
    /// nothing in another.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut mix = seed ^ stream.wrapping_mul(0xA076_1D64_78BD_642F);
        let mut next = || {
            mix = mix.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = mix;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^ (z >> 31)
        };
        Self {
            state: [next(), next(), next(), next()],
        }
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// From `low` (inclusive) to `high` (exclusive); `low` when the range is empty.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        if high <= low {
            return low;
        }
        let span = high - low;
        low + u64::try_from((u128::from(self.bits()) * u128::from(span)) >> 64).unwrap_or(0)
    }

    /// From 0 (inclusive) to 1 (exclusive).
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit a double")]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        p > 0.0 && self.unit() < p
    }

    /// One of `items`, which must not be empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.index(items.len())]
    }

    /// An index below `len`.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.range(0, len as u64)).unwrap_or(0)
    }

    /// The index of one of `weights`, each as likely as its weight; none when they are all 0.
    pub fn weighted(&mut self, weights: &[f64]) -> Option<usize> {
        let total: f64 = weights.iter().sum();
        if total <= 0.0 {
            return None;
        }
        let mut at = self.unit() * total;
        for (index, weight) in weights.iter().enumerate() {
            if at < *weight {
                return Some(index);
            }
            at -= weight;
        }
        weights.iter().rposition(|weight| *weight > 0.0)
    }

    /// An exponential time with this mean.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "times of a run are far below 2^53 ns"
    )]
    pub fn exponential(&mut self, mean: u64) -> u64 {
        let u = 1.0 - self.unit();
        (-u.ln() * mean as f64) as u64
    }

    /// A delay with a heavy tail (Pareto, shape 1.6) and about this median, at most `most`.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "times of a run are far below 2^53 ns"
    )]
    pub fn heavy(&mut self, median: u64, most: u64) -> u64 {
        let u = 1.0 - self.unit();
        let scale = median as f64 / 2f64.powf(1.0 / 1.6);
        ((scale / u.powf(1.0 / 1.6)) as u64).min(most)
    }

    /// The items in a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for index in (1..items.len()).rev() {
            items.swap(index, self.index(index + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_replay_stay_in_range_and_streams_differ() {
        let draw = |seed, stream| {
            let mut rng = Rng::new(seed, stream);
            [rng.bits(), rng.range(0, 1 << 60), rng.exponential(1 << 40)]
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
        let mut rng = Rng::new(7, 7);
        for _ in 0..10_000 {
            assert!((5..9).contains(&rng.range(5, 9)));
            assert!((0.0..1.0).contains(&rng.unit()));
            assert!(rng.heavy(10, 1000) <= 1000);
            assert_eq!(rng.weighted(&[0.0, 1.0, 0.0]), Some(1));
        }
        assert_eq!(
            (rng.range(3, 3), rng.weighted(&[0.0]), rng.chance(0.0)),
            (3, None, false)
        );
        let mut items: Vec<u32> = (0..100).collect();
        rng.shuffle(&mut items);
        assert!(!items.is_sorted());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}

//! A machine's clocks. The boot-time clock runs at a rate of its own, from an origin of its own, through every pause; the wall clock
//! steps when an operator or a time server says so, and nothing that decides may look at it (a mutation does, to show why).

use super::queue::Time;
use super::rng::Rng;

/// The clocks of one machine.
#[derive(Debug, Clone)]
pub struct Clock {
    origin: u64,
    /// How much faster than the world, in parts per million; negative is slower.
    drift: i64,
    wall_step: i64,
}

impl Clock {
    /// A clock that runs up to `bound` parts per million too fast or too slow.
    pub fn new(rng: &mut Rng, bound: u64) -> Self {
        // The bounds themselves are the interesting rates.
        let drift = match rng.range(0, 4) {
            0 => bound.cast_signed(),
            1 => -bound.cast_signed(),
            _ => rng.range(0, 2 * bound + 1).cast_signed() - bound.cast_signed(),
        };
        Self {
            // Far from 0, so that a step back never meets the beginning of time.
            origin: rng.range(1 << 50, 1 << 52),
            drift,
            wall_step: 0,
        }
    }

    /// What the boot-time clock reads at a moment of the world.
    pub fn boot(&self, at: Time) -> u64 {
        self.origin + scale(at, 1_000_000 + self.drift, 1_000_000)
    }

    /// The first moment of the world at which the boot-time clock reads `reading` or more.
    pub fn world(&self, reading: u64) -> Time {
        let passed = reading.saturating_sub(self.origin);
        let mut at = scale(passed, 1_000_000, 1_000_000 + self.drift);
        while self.boot(at) < reading {
            at += 1;
        }
        at
    }

    /// What the wall clock reads, in the same unit and from the same origin.
    pub fn wall(&self, at: Time) -> u64 {
        self.boot(at).saturating_add_signed(self.wall_step)
    }

    /// The first moment of the world at which the wall clock reads `reading` or more, unless it steps.
    pub fn wall_world(&self, reading: u64) -> Time {
        self.world(reading.saturating_add_signed(-self.wall_step))
    }

    /// Moves the wall clock.
    pub fn step(&mut self, by: i64) {
        self.wall_step = self.wall_step.saturating_add(by);
    }
}

fn scale(value: u64, by: i64, over: i64) -> u64 {
    let scaled = i128::from(value) * i128::from(by) / i128::from(over);
    u64::try_from(scaled).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::queue::SECOND;
    use super::*;

    #[test]
    fn readings_and_moments_convert_both_ways_and_only_the_wall_steps() {
        for seed in 0..200 {
            let mut clock = Clock::new(&mut Rng::new(seed, 0), 10_000);
            for at in [0, 1, 999, SECOND, 3601 * SECOND + 7] {
                let reading = clock.boot(at);
                assert!(clock.world(reading) <= at, "seed {seed}");
                assert!(clock.boot(clock.world(reading)) >= reading, "seed {seed}");
                assert!(
                    clock.world(reading + 1) > at || clock.boot(at + 1) == reading,
                    "seed {seed}"
                );
            }
            let passed = clock.boot(100 * SECOND) - clock.boot(0);
            assert!(
                (99 * SECOND..=101 * SECOND).contains(&passed),
                "seed {seed}: {passed}"
            );
            let before = (clock.boot(SECOND), clock.wall(SECOND));
            clock.step(-(5 * SECOND).cast_signed());
            assert_eq!(
                (clock.boot(SECOND), clock.wall(SECOND) + 5 * SECOND),
                before
            );
        }
    }
}

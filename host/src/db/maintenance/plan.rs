//! The decisions of maintenance, as pure functions of what was seen and of the time that is passed in: when a shard is
//! compacted, and when its garbage is collected. No clock, no I/O, no randomness.

use std::time::{Duration, Instant};

/// When a shard is compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionPolicy {
    /// Compact when this many L0 SSTs wait.
    pub l0_trigger: usize,
    /// The database stalls its memtable flushes, and soon its writes, at this many L0 SSTs.
    pub l0_max_ssts: usize,
    /// Compact when this many sorted runs have to be searched by a read.
    pub sorted_run_trigger: usize,
    /// Shortest pause between two compactions of one shard, so that a steady writer shares a compactor start (about six
    /// objects) among several memtables. A shard that comes near `l0_max_ssts` does not pause.
    pub rest: Duration,
    /// Pause after the first failure; it doubles with each further one.
    pub retry_base: Duration,
    /// Longest pause after failures.
    pub retry_cap: Duration,
}

/// What a look at a shard's manifest shows: the longest tree of it, when it has segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// L0 SSTs.
    pub l0: usize,
    /// Sorted runs.
    pub sorted_runs: usize,
}

/// How the last compaction of a shard ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastCompaction {
    /// When it ended.
    pub ended: Instant,
    /// Failures in a row up to and with this one; 0 = it succeeded.
    pub failures: u32,
    /// Sorted runs that it left.
    pub sorted_runs: usize,
}

/// What to do with a shard now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing until its manifest changes.
    Idle,
    /// Compact it.
    Compact,
    /// It needs a compaction, but not before this instant.
    Wait(Instant),
}

/// Decides about one shard.
#[must_use]
pub fn decide(
    look: Look,
    last: Option<LastCompaction>,
    now: Instant,
    policy: &CompactionPolicy,
) -> Action {
    // A compaction that left this many runs found nothing to merge: another one would not either.
    let many_runs = look.sorted_runs >= policy.sorted_run_trigger
        && last.is_none_or(|last| last.sorted_runs != look.sorted_runs);
    // A failed compaction left its runs unmerged all the same, so there the count says nothing.
    let failed = last.is_some_and(|last| last.failures > 0);
    let unmerged = failed && look.sorted_runs >= policy.sorted_run_trigger;
    if look.l0 < policy.l0_trigger && !many_runs && !unmerged {
        return Action::Idle;
    }
    let Some(last) = last else {
        return Action::Compact;
    };
    let urgent = is_urgent(look, policy);
    let pause = match (last.failures, urgent) {
        (0, true) => Duration::ZERO,
        (0, false) => policy.rest,
        // A shard near its stall is worth a try even at a store that fails, but not a busy loop.
        (failures, true) => back_off(failures, policy).min(policy.retry_base * 4),
        (failures, false) => back_off(failures, policy),
    };
    let at = last.ended + pause;
    if at > now {
        Action::Wait(at)
    } else {
        Action::Compact
    }
}

/// Whether the shard is so near its stall that it does not rest.
fn is_urgent(look: Look, policy: &CompactionPolicy) -> bool {
    look.l0 >= policy.l0_trigger.max(policy.l0_max_ssts.saturating_sub(2))
}

fn back_off(failures: u32, policy: &CompactionPolicy) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    (policy.retry_base * 2_u32.pow(doublings)).min(policy.retry_cap)
}

/// When a shard's garbage is collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcPolicy {
    /// Time from a change to the pass that follows it, and so the shortest time between two passes over a busy shard.
    pub interval: Duration,
    /// What a change leaves behind can be deleted this long after it (the objects' minimum age, and the checkpoint with
    /// which a compaction protects its inputs).
    pub settle: Duration,
}

/// The part of a manifest whose change leaves objects behind: a memtable flush frees WAL objects, a compaction frees SSTs,
/// an owner or compactor start frees manifests. Checkpoints are left out, since a pass over the garbage changes those.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Epoch of the writer.
    pub writer_epoch: u64,
    /// Epoch of the compactor.
    pub compactor_epoch: u64,
    /// WAL objects up to this one are no longer needed.
    pub replay_after_wal_id: u64,
    /// L0 SSTs.
    pub l0: usize,
    /// Sorted runs.
    pub sorted_runs: usize,
}

/// What is known about one shard's garbage.
///
/// A busy shard is passed over every `interval`. A shard that falls quiet gets one last pass when all that its last change
/// left has settled, and then none until it changes again.
#[derive(Clone, Copy, Debug)]
pub struct Garbage {
    footprint: Footprint,
    /// Newest change that no pass has settled.
    changed: Option<Instant>,
    /// Oldest change that no pass has followed, with the wait from it to that pass.
    waiting: Option<(Instant, Duration)>,
}

impl Garbage {
    /// A shard that was just opened. What its last owner left counts as a change; `first` is the wait to the first pass
    /// (spread it, so that a node which takes over many shards does not pass over them all at once).
    #[must_use]
    pub fn opened(footprint: Footprint, now: Instant, first: Duration) -> Self {
        Self {
            footprint,
            changed: Some(now),
            waiting: Some((now, first)),
        }
    }

    /// Takes in a look at the shard.
    pub fn note(&mut self, footprint: Footprint, now: Instant, policy: &GcPolicy) {
        if footprint == self.footprint {
            return;
        }
        self.footprint = footprint;
        self.changed = Some(now);
        self.waiting.get_or_insert((now, policy.interval));
    }

    /// When the next pass is due; `None` when there is nothing to collect.
    #[must_use]
    pub fn due(&self, policy: &GcPolicy) -> Option<Instant> {
        let changed = self.changed?;
        Some(match self.waiting {
            Some((since, wait)) => since + wait,
            None => changed + policy.settle,
        })
    }

    /// A pass that began at `started` went through.
    pub fn passed(&mut self, started: Instant, policy: &GcPolicy) {
        if self
            .changed
            .is_some_and(|changed| changed + policy.settle <= started)
        {
            self.changed = None;
        }
        self.waiting = None;
    }

    /// A pass failed: it is tried again after an interval.
    pub fn failed(&mut self, now: Instant, policy: &GcPolicy) {
        self.waiting = Some((now, policy.interval));
    }
}

/// The wait from the opening of a shard to its first pass: between a half and the whole interval. `jitter` is a random
/// number from 0 to 1; anything else is taken as the nearest of those.
#[must_use]
pub fn first_pass(interval: Duration, jitter: f64) -> Duration {
    let jitter = if jitter.is_nan() {
        0.0
    } else {
        jitter.clamp(0.0, 1.0)
    };
    interval.mul_f64(0.5 + jitter / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: CompactionPolicy = CompactionPolicy {
        l0_trigger: 4,
        l0_max_ssts: 8,
        sorted_run_trigger: 16,
        rest: Duration::from_secs(20),
        retry_base: Duration::from_secs(1),
        retry_cap: Duration::from_secs(60),
    };

    #[test]
    fn a_shard_is_compacted_when_it_needs_it() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let ended = |failures, sorted_runs| {
            Some(LastCompaction {
                ended: at(100),
                failures,
                sorted_runs,
            })
        };
        // name, (l0, runs), last compaction (ended at 100 s), now, action
        let cases = [
            ("nothing there", (0, 0), None, 0, Action::Idle),
            ("below the trigger", (3, 15), None, 0, Action::Idle),
            ("at the trigger", (4, 0), None, 0, Action::Compact),
            ("many runs", (0, 16), None, 0, Action::Compact),
            (
                "as many runs as were left",
                (0, 16),
                ended(0, 16),
                500,
                Action::Idle,
            ),
            (
                "more runs than were left",
                (0, 17),
                ended(0, 16),
                500,
                Action::Compact,
            ),
            (
                "many runs after a failure",
                (0, 16),
                ended(1, 16),
                500,
                Action::Compact,
            ),
            ("rests", (4, 1), ended(0, 1), 110, Action::Wait(at(120))),
            (
                "rests until its nearness to the stall",
                (5, 1),
                ended(0, 1),
                119,
                Action::Wait(at(120)),
            ),
            ("near the stall", (6, 1), ended(0, 1), 100, Action::Compact),
            ("at the stall", (8, 1), ended(0, 1), 100, Action::Compact),
            ("has rested", (4, 1), ended(0, 1), 120, Action::Compact),
            (
                "failed once",
                (4, 1),
                ended(1, 1),
                100,
                Action::Wait(at(101)),
            ),
            (
                "failed once, later",
                (4, 1),
                ended(1, 1),
                101,
                Action::Compact,
            ),
            (
                "failed four times",
                (4, 1),
                ended(4, 1),
                100,
                Action::Wait(at(108)),
            ),
            (
                "failed for long",
                (4, 1),
                ended(u32::MAX, 1),
                100,
                Action::Wait(at(160)),
            ),
            (
                "failed for long, near the stall",
                (6, 1),
                ended(u32::MAX, 1),
                100,
                Action::Wait(at(104)),
            ),
            (
                "failed, need is gone",
                (1, 1),
                ended(3, 1),
                100,
                Action::Idle,
            ),
        ];
        for (name, (l0, sorted_runs), last, now, action) in cases {
            assert_eq!(
                decide(Look { l0, sorted_runs }, last, at(now), &POLICY),
                action,
                "{name}"
            );
        }
    }

    #[test]
    fn a_trigger_above_the_stall_margin_still_counts_as_urgent_only_from_the_trigger_on() {
        let policy = CompactionPolicy {
            l0_trigger: 7,
            ..POLICY
        };
        let start = Instant::now();
        let last = Some(LastCompaction {
            ended: start,
            failures: 0,
            sorted_runs: 0,
        });
        assert_eq!(
            decide(
                Look {
                    l0: 6,
                    sorted_runs: 0
                },
                last,
                start,
                &policy
            ),
            Action::Idle
        );
        assert_eq!(
            decide(
                Look {
                    l0: 7,
                    sorted_runs: 0
                },
                last,
                start,
                &policy
            ),
            Action::Compact
        );
    }

    const GC: GcPolicy = GcPolicy {
        interval: Duration::from_secs(600),
        settle: Duration::from_secs(900),
    };

    fn footprint(replay_after_wal_id: u64) -> Footprint {
        Footprint {
            writer_epoch: 1,
            compactor_epoch: 0,
            replay_after_wal_id,
            l0: 0,
            sorted_runs: 0,
        }
    }

    #[test]
    fn an_idle_shard_is_passed_over_twice_after_it_opened_and_never_again() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut garbage = Garbage::opened(footprint(0), at(0), Duration::from_secs(300));
        assert_eq!(garbage.due(&GC), Some(at(300)));
        garbage.passed(at(300), &GC);
        garbage.note(footprint(0), at(310), &GC);
        assert_eq!(
            garbage.due(&GC),
            Some(at(900)),
            "what the opening left has settled then"
        );
        garbage.passed(at(900), &GC);
        assert_eq!(garbage.due(&GC), None);
        garbage.note(footprint(0), at(5_000), &GC);
        assert_eq!(garbage.due(&GC), None);
    }

    #[test]
    fn a_busy_shard_is_passed_over_each_interval_and_once_more_when_it_falls_quiet() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut garbage = Garbage::opened(footprint(0), at(0), Duration::from_secs(300));
        garbage.passed(at(300), &GC);
        garbage.note(footprint(1), at(400), &GC);
        garbage.note(footprint(2), at(900), &GC);
        assert_eq!(
            garbage.due(&GC),
            Some(at(1_000)),
            "counted from the first change after the pass"
        );
        garbage.passed(at(1_000), &GC);
        assert_eq!(
            garbage.due(&GC),
            Some(at(1_800)),
            "the last change was at 900"
        );
        garbage.note(footprint(3), at(1_790), &GC);
        assert_eq!(
            garbage.due(&GC),
            Some(at(2_390)),
            "a new change puts the last pass off"
        );
        garbage.passed(at(2_390), &GC);
        garbage.passed(at(2_690), &GC);
        assert_eq!(garbage.due(&GC), None);
    }

    #[test]
    fn a_failed_pass_is_tried_again_after_an_interval() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut garbage = Garbage::opened(footprint(0), at(0), Duration::ZERO);
        garbage.failed(at(10), &GC);
        assert_eq!(garbage.due(&GC), Some(at(610)));
        garbage.passed(at(1_000), &GC);
        assert_eq!(garbage.due(&GC), None);
    }

    #[test]
    fn the_first_pass_is_spread_over_half_an_interval() {
        let interval = Duration::from_secs(600);
        for (jitter, seconds) in [
            (0.0, 300),
            (0.5, 450),
            (1.0, 600),
            (-3.0, 300),
            (7.0, 600),
            (f64::NAN, 300),
        ] {
            assert_eq!(
                first_pass(interval, jitter),
                Duration::from_secs(seconds),
                "{jitter}"
            );
        }
    }
}

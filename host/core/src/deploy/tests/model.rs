//! Rollouts at random, with several coordinators that see the world late.

use super::*;
use crate::rng::Rng;

/// The world that coordinators look at: what each shard runs, and what it cannot run.
struct World {
    record: RolloutRecord,
    runs: Vec<u64>,
    failed: BTreeMap<u32, u64>,
    /// Revisions that fail on a shard.
    broken: BTreeSet<(u64, u32)>,
    /// Revisions that a node refuses.
    refused: BTreeSet<u64>,
}

impl World {
    /// A shard does as the record says, or fails to.
    fn follow(&mut self, shard: u32) {
        let wanted = self.record.revision_of(shard, SHARDS);
        let runs = &mut self.runs[shard as usize];
        if wanted == 0 || *runs == wanted {
            self.failed.remove(&shard);
        } else if self.broken.contains(&(wanted, shard)) {
            self.failed.insert(shard, wanted);
        } else {
            *runs = wanted;
            self.failed.remove(&shard);
        }
    }

    fn look(&self) -> Seen {
        let target = self
            .record
            .active
            .as_ref()
            .map_or(0, |active| active.target);
        let check = if self.refused.contains(&target) {
            Check::Refused("no".into())
        } else {
            Check::Fine
        };
        let shard = |shard: u32| match self.failed.get(&shard) {
            Some(revision) => ShardSeen::Failed {
                revision: *revision,
                why: "broken".into(),
            },
            None => ShardSeen::Runs(self.runs[shard as usize]),
        };
        Seen {
            nodes: BTreeMap::from([("a".parse().expect("a name"), check)]),
            shards: (0..SHARDS).map(shard).collect(),
            ..Seen::default()
        }
    }

    /// A compare-and-set on the version that was read.
    fn write(&mut self, read: &RolloutRecord, next: RolloutRecord) {
        if read.counter != self.record.counter {
            return;
        }
        let ended = self.record.active.is_some() && next.active.is_none();
        if let (true, Some(last)) = (ended, &next.last) {
            match last.outcome {
                Outcome::Adopted => {
                    assert!(
                        self.runs.iter().all(|runs| *runs == last.target),
                        "adopted by all"
                    );
                    assert_eq!(next.stable, last.target);
                }
                Outcome::RolledBack | Outcome::Refused | Outcome::Superseded => {
                    assert_eq!(next.stable, self.record.stable);
                    let strays = self.runs.iter().filter(|runs| **runs == last.target);
                    assert_eq!(strays.count(), 0, "no shard runs it");
                }
            }
        }
        let counter = self.record.counter + 1;
        self.record = RolloutRecord { counter, ..next };
    }
}

/// Coordinators that see the world at different times and write at others, operators who change their minds, and shards on which some
/// revisions fail: whatever ends, ended as it says, and once nobody interferes it does end.
#[test]
fn any_rollout_ends_as_its_record_says() {
    for seed in 0..2000 {
        let mut rng = Rng::new(seed);
        let mut draw = |below: u64| rng.next_u64() % below;
        let mut world = World {
            record: stable(),
            runs: vec![1; SHARDS as usize],
            failed: BTreeMap::new(),
            broken: BTreeSet::new(),
            refused: BTreeSet::new(),
        };
        for revision in 2..6 {
            if draw(3) == 0 {
                let shard = u32::try_from(draw(u64::from(SHARDS))).expect("small");
                world.broken.insert((revision, shard));
            }
            if draw(5) == 0 {
                world.refused.insert(revision);
            }
        }
        // What each coordinator read and saw.
        let mut views: Vec<Option<(RolloutRecord, Seen)>> = vec![None; 3];
        for step in 0..400 {
            let quiet = step >= 300;
            match draw(if quiet { 8 } else { 10 }) {
                0..=3 => {
                    let shard = u32::try_from(draw(u64::from(SHARDS))).expect("small");
                    world.follow(shard);
                }
                4 | 5 => {
                    let at = usize::try_from(draw(3)).expect("small");
                    // The record first: what is seen is newer, never older.
                    views[at] = Some((world.record.clone(), Seen::default()));
                }
                6 => {
                    let at = usize::try_from(draw(3)).expect("small");
                    let seen = world.look();
                    if let Some((record, view)) = &mut views[at]
                        && record.counter == world.record.counter
                    {
                        *view = seen;
                    }
                }
                7 => {
                    let at = usize::try_from(draw(3)).expect("small");
                    if let Some((record, seen)) = views[at].take()
                        && !seen.shards.is_empty()
                        && let Some(next) = advance(&record, &seen, SOON)
                    {
                        world.write(&record, next);
                    }
                }
                _ => {
                    let by = || "bob".to_owned();
                    let plan = [Plan::All, Plan::Waves(30), Plan::Canary(20), Plan::Chosen];
                    let order = match draw(5) {
                        0 | 1 => {
                            deploy(1 + draw(5), plan[usize::try_from(draw(4)).expect("small")])
                        }
                        2 => Command::Promote,
                        3 => Command::Abort { by: by() },
                        _ if draw(2) == 0 => Command::Pause,
                        _ => Command::Resume,
                    };
                    let read = world.record.clone();
                    if let Ok(next) = command(&read, order) {
                        world.write(&read, next);
                    }
                }
            }
        }
        for _ in 0..200 {
            for shard in 0..SHARDS {
                world.follow(shard);
            }
            for order in [Command::Resume, Command::Promote] {
                let read = world.record.clone();
                if let Ok(next) = command(&read, order) {
                    world.write(&read, next);
                }
            }
            let read = world.record.clone();
            if let Some(next) = advance(&read, &world.look(), SOON) {
                world.write(&read, next);
            }
        }
        let record = &world.record;
        assert_eq!(record.active, None, "seed {seed}: it does not end");
        assert!(
            world.runs.iter().all(|runs| *runs == record.stable),
            "seed {seed}: {:?} under {record:?}",
            world.runs
        );
    }
}

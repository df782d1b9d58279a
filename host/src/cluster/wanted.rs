//! What each shard of a node is to run.

use std::sync::Arc;

use quarry_core::deploy::RolloutRecord;

use crate::deploy::{Loaded, Source, placeholder};
use crate::guest::ModuleInfo;

/// Which revision each shard is to run. It never changes; a node exchanges it as a whole.
pub(super) struct Wanted {
    /// What a shard runs that no rollout has reached.
    stable: Source,
    /// What the others run, and for each shard whether it is one of them.
    target: Option<(Source, Vec<bool>)>,
}

impl Wanted {
    /// The same for every shard.
    pub(super) fn everywhere(loaded: Arc<Loaded>) -> Self {
        Self {
            stable: Source {
                revision: loaded.revision(),
                loaded: Ok(loaded),
            },
            target: None,
        }
    }

    /// Nothing for any shard.
    pub(super) fn nothing(why: Arc<str>) -> Self {
        Self {
            stable: Source {
                revision: placeholder::REVISION,
                loaded: Err(why),
            },
            target: None,
        }
    }

    /// What a record says, with what this node has of its revisions.
    pub(super) fn of(record: &RolloutRecord, shards: u32, source: impl Fn(u64) -> Source) -> Self {
        let target = record.reaching().map(|active| {
            let mut chosen = vec![false; shards as usize];
            for shard in active.selection.of(shards, record.number) {
                chosen[shard as usize] = true;
            }
            (source(active.target), chosen)
        });
        Self {
            stable: source(record.stable),
            target,
        }
    }

    /// What a shard is to run.
    pub(super) fn source(&self, shard: u32) -> &Source {
        match &self.target {
            Some((target, chosen)) if chosen.get(shard as usize).is_some_and(|chosen| *chosen) => {
                target
            }
            _ => &self.stable,
        }
    }

    /// What a shard that opens begins with: what it is to run, or else what it would run if there were no rollout.
    pub(super) fn opens_with(&self, shard: u32) -> Result<Arc<Loaded>, Arc<str>> {
        let source = self.source(shard);
        match (&source.loaded, &self.stable.loaded) {
            (Ok(loaded), _) | (Err(_), Ok(loaded)) => Ok(loaded.clone()),
            (Err(why), Err(_)) => Err(why.clone()),
        }
    }

    /// What a shard runs that no rollout has reached.
    pub(super) fn stable(&self) -> &Source {
        &self.stable
    }

    /// The module of that, where this node has it.
    pub(super) fn module(&self) -> Option<ModuleInfo> {
        let loaded = self.stable.loaded.as_ref().ok()?;
        Some(loaded.module.describe().clone())
    }
}

#[cfg(test)]
mod tests {
    use quarry_core::deploy::{Active, Gates, Phase, Plan, Selection};
    use quarry_core::lease::record::Nonce;

    use super::*;
    use crate::guest::native::{self, Logic};
    use crate::guest::{GuestError, InstanceContext, Reply, Request};

    struct Nothing;

    #[async_trait::async_trait]
    impl Logic for Nothing {
        async fn call(&mut self, _: &InstanceContext, _: &Request) -> Result<Reply, GuestError> {
            Ok(Reply::default())
        }
    }

    fn source(revision: u64, there: bool) -> Source {
        let loaded = Arc::new(Loaded {
            module: native::module("main", revision, |_| Nothing),
            options: "{}".into(),
        });
        Source {
            revision,
            loaded: if there {
                Ok(loaded)
            } else {
                Err(format!("no {revision}").into())
            },
        }
    }

    #[test]
    fn a_shard_runs_what_the_record_says_and_opens_with_what_there_is() {
        let active = |phase| Active {
            target: 2,
            by: "ann".into(),
            order: Nonce::new(7),
            plan: Plan::Chosen,
            gates: Gates::default(),
            step_timeout_ms: 1000,
            bake_ms: 0,
            phase,
            paused: false,
            selection: Selection::parse("1", 3).expect("shards"),
            why: String::new(),
        };
        let record = |phase| RolloutRecord {
            number: 1,
            stable: 1,
            active: Some(active(phase)),
            ..RolloutRecord::fresh()
        };
        // Phase, which revisions are there; what shard 0 and shard 1 are to run, and open with (0 for nothing).
        for (phase, there, wanted, opens) in [
            (Phase::Checking, [1, 2], [1, 1], [1, 1]),
            (Phase::Rolling, [1, 2], [1, 2], [1, 2]),
            (Phase::Held, [1, 2], [1, 2], [1, 2]),
            (Phase::Back, [1, 2], [1, 1], [1, 1]),
            (Phase::Rolling, [1, 0], [1, 2], [1, 1]),
            (Phase::Rolling, [0, 2], [1, 2], [0, 2]),
            (Phase::Rolling, [0, 0], [1, 2], [0, 0]),
        ] {
            let of = Wanted::of(&record(phase), 3, |number| {
                source(number, there.contains(&number))
            });
            let wants = [0, 1].map(|shard| of.source(shard).revision);
            let with = [0, 1].map(|shard| {
                let opened = of.opens_with(shard);
                opened.map_or(0, |loaded| loaded.revision())
            });
            assert_eq!((wants, with), (wanted, opens), "{phase:?} {there:?}");
        }
    }

    #[test]
    fn why_a_shard_cannot_open_is_about_the_revision_that_it_is_to_run() {
        let wanted = Wanted::of(
            &RolloutRecord {
                stable: 4,
                ..RolloutRecord::fresh()
            },
            1,
            |number| source(number, false),
        );
        assert_eq!(
            wanted.opens_with(0).err().as_deref(),
            Some("no 4"),
            "the reason of the source"
        );
        assert_eq!(wanted.module(), None);
    }
}

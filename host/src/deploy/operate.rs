//! What an operator does with the revisions of a cluster. All of it happens in the bucket, so that any node can do it, and so can a program
//! beside the nodes; the nodes carry it out.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use quarry_core::deploy::{
    Command, Digest, Gates, ModuleSpec, NoSelection, Phase, Plan, Refused, Revision, RolloutRecord,
    Selection, command,
};
use quarry_core::lease::record::Nonce;
use serde::Serialize;

use super::objects::{Draft, Error, Objects, Stored, Written};
use crate::clock;

/// How often an order is put to a record that changes under it.
const TRIES: usize = 8;
/// How many objects are read at once.
const READS: usize = 16;
/// A component that was stored less than this ago is not pruned: its revision may be about to be recorded.
const YOUNG: Duration = Duration::from_secs(3600);
/// How long a step of a rollout may take, at most and where nobody says.
pub const MAX_STEP: Duration = Duration::from_secs(24 * 3600);
/// See [`MAX_STEP`].
pub const STEP_TIMEOUT: Duration = Duration::from_secs(300);

/// How a revision is rolled out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RolloutOptions {
    /// Who wants it, at most 256 bytes.
    pub by: String,
    /// Which order it is, where that is to be known: the same order given again begins nothing anew, for as long as the record knows of its
    /// rollout (while it is in progress, and until another one has ended). A fresh number where there is none.
    pub order: Option<Nonce>,
    /// How it goes on.
    pub plan: Plan,
    /// The shards that go first; none unless the plan is [`Plan::Chosen`].
    pub first: Selection,
    /// What stops it.
    pub gates: Gates,
    /// How long a step may take, 1 s to [`MAX_STEP`].
    pub step_timeout: Duration,
    /// How long each step is watched before the next, at most [`MAX_STEP`].
    pub bake: Duration,
}

impl Default for RolloutOptions {
    fn default() -> Self {
        Self {
            by: String::new(),
            order: None,
            plan: Plan::All,
            first: Selection::None,
            gates: Gates::default(),
            step_timeout: STEP_TIMEOUT,
            bake: Duration::ZERO,
        }
    }
}

/// What came of a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Ordered {
    /// A rollout begins.
    Begun {
        /// Its number.
        rollout: u64,
        /// The revision.
        revision: u64,
    },
    /// The same is being rolled out already.
    Running {
        /// The number of that rollout.
        rollout: u64,
        /// Its revision.
        revision: u64,
    },
    /// Every shard runs the same already: nothing was done.
    Unchanged {
        /// The revision that they run.
        revision: u64,
    },
}

/// What became of the first module of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Founded {
    /// The cluster begins with it.
    New {
        /// Its revision.
        revision: u64,
    },
    /// The cluster runs just this already.
    Same {
        /// Its revision.
        revision: u64,
    },
    /// The cluster runs something else, and goes on with that.
    Other {
        /// What it runs; what is being rolled out while there is nothing that is.
        revision: u64,
    },
}

/// What was pruned.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Pruned {
    /// The revisions that were removed.
    pub revisions: Vec<u64>,
    /// The components that no other revision needs, removed with them.
    pub modules: Vec<Digest>,
    /// The revisions that are left.
    pub kept: Vec<u64>,
}

/// Why an order was not given.
#[derive(Debug, thiserror::Error)]
pub enum DeployError {
    /// What lies in the bucket does not allow it, or the store failed.
    #[error(transparent)]
    Bucket(#[from] Error),
    /// It makes no sense now.
    #[error("{0}")]
    Refused(Refused),
    /// The shards that are to go first are none.
    #[error(transparent)]
    Shards(#[from] NoSelection),
    /// A value is out of its bounds.
    #[error("{name} = {value}: {valid}")]
    Value {
        /// What was given.
        name: &'static str,
        /// Its value, cut.
        value: String,
        /// What is valid.
        valid: String,
    },
    /// A revision cannot be pruned.
    #[error("revision {number} is not pruned: {why}")]
    Needed {
        /// Its number.
        number: u64,
        /// What it is needed for.
        why: &'static str,
    },
    /// There is nothing to go back to.
    #[error("there is no revision to go back to: {0}")]
    NoWayBack(&'static str),
    /// The record changed each time before the order was in it.
    #[error("the rollout record changed {TRIES} times while this was put into it; try again")]
    Changing,
    /// This node runs what it was started with.
    #[error(
        "this node runs the module that it was started with, and follows no rollouts: `quarry serve` starts nodes that do"
    )]
    Pinned,
}

impl DeployError {
    /// A stable word for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Bucket(error) => match error {
                Error::NoRevision { .. } => "no-revision",
                Error::NoModule { .. } => "no-module",
                Error::Invalid(_) => "invalid-request",
                Error::Record { .. } | Error::Vanished { .. } => "corrupt-record",
                Error::Incomplete { .. } => "module-incomplete",
                Error::Tampered { .. } => "module-tampered",
                Error::Size { .. } => "module-size",
                Error::TooMany { .. } => "too-many",
                Error::Contended { .. } => "contended",
                Error::Unknown { .. } => "outcome-unknown",
                Error::Late { .. } | Error::Store { .. } => "store-failed",
            },
            Self::Refused(refused) => match refused {
                Refused::Busy { .. } => "rollout-busy",
                Refused::Same { .. } => "unchanged",
                Refused::Idle => "rollout-idle",
                Refused::NotHeld { .. } => "rollout-not-held",
                Refused::GoesBack { .. } => "rollout-goes-back",
                Refused::NothingChosen => "invalid-request",
            },
            Self::Shards(_) | Self::Value { .. } => "invalid-request",
            Self::Needed { .. } => "revision-needed",
            Self::NoWayBack(_) => "no-way-back",
            Self::Changing => "contended",
            Self::Pinned => "pinned",
        }
    }

    /// Whether it was refused for what was asked, or for what is deployed: the store works, and what lies there is whole.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        !matches!(
            self.code(),
            "store-failed" | "contended" | "outcome-unknown" | "corrupt-record"
        )
    }

    /// Whether it may pass by itself.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Bucket(error) => error.is_transient(),
            Self::Changing => true,
            _ => false,
        }
    }
}

impl Objects {
    /// Records a revision and orders its rollout, unless it would change nothing. Its components are in the bucket.
    ///
    /// # Errors
    /// When another rollout is in progress, a component is missing or has another size, a value is out of its bounds, or the store fails.
    pub async fn deploy(
        &self,
        draft: Draft,
        options: &RolloutOptions,
    ) -> Result<Ordered, DeployError> {
        options.check()?;
        let order = options.number();
        let seen = self.rollout().await?;
        if let Some(begun) = seen.as_ref().and_then(|seen| begun(&seen.record, order)) {
            return Ok(begun);
        }
        if let Some(same) = self.same(seen.as_ref(), &draft).await? {
            return Ok(same);
        }
        let record = seen.map_or_else(RolloutRecord::fresh, |seen| seen.record);
        // Before anything is written: a revision for nothing would be left over.
        let next =
            command(&record, options.order(u64::MAX, order)).map_err(DeployError::Refused)?;
        next.encode().map_err(Error::Invalid)?;
        self.has_modules(&draft.modules).await?;
        let revision = self.create_revision(draft).await?;
        self.begin(revision.number, options, order).await
    }

    /// Orders the rollout of a revision that was recorded before; to go back to an older one is the same.
    ///
    /// # Errors
    /// As [`Objects::deploy`], and when there is no such revision.
    pub async fn roll_out(
        &self,
        target: u64,
        options: &RolloutOptions,
    ) -> Result<Ordered, DeployError> {
        options.check()?;
        let revision = self.revision(target).await?;
        self.has_modules(&revision.modules).await?;
        self.begin(target, options, options.number()).await
    }

    /// Goes back: a rollout in progress is aborted, and otherwise the revision before is rolled out.
    ///
    /// # Errors
    /// As [`Objects::roll_out`], and where there is none to go back to.
    pub async fn roll_back(&self, options: &RolloutOptions) -> Result<Ordered, DeployError> {
        let Some(seen) = self.rollout().await? else {
            return Err(DeployError::NoWayBack("nothing was deployed yet"));
        };
        let record = seen.record;
        if let Some(active) = &record.active {
            let by = options.by.clone();
            let running = Ordered::Running {
                rollout: record.number,
                revision: active.target,
            };
            return match self.order(Command::Abort { by }).await {
                // Gone back already is what was wanted.
                Ok(_) | Err(DeployError::Refused(Refused::GoesBack { .. })) => Ok(running),
                Err(error) => Err(error),
            };
        }
        match record.previous {
            0 => Err(DeployError::NoWayBack(
                "the cluster never ran another one; name a revision, as `quarry revisions` lists them",
            )),
            previous => self.roll_out(previous, options).await,
        }
    }

    /// Puts an order of an operator into the rollout record. Answers what stands there then. One to roll out that is there already, or was,
    /// is not put there again: it may be this one, whose outcome was not seen.
    ///
    /// # Errors
    /// When it makes no sense now, or the store fails.
    pub async fn order(&self, order: Command) -> Result<Stored, DeployError> {
        for _ in 0..TRIES {
            let seen = self.rollout().await?;
            let fresh = RolloutRecord::fresh();
            let record = seen.as_ref().map_or(&fresh, |seen| &seen.record);
            if let (Some(seen), Command::Deploy { order, .. }) = (&seen, &order)
                && seen.record.rollout_of(*order).is_some()
            {
                return Ok(seen.clone());
            }
            let next = command(record, order.clone()).map_err(DeployError::Refused)?;
            if let Written::Won(stored) = self.write_rollout(seen.as_ref(), next).await? {
                return Ok(stored);
            }
        }
        Err(DeployError::Changing)
    }

    /// Makes a component the first revision of a cluster that has none, which every shard then runs from its start. Of several nodes that do
    /// so at once one wins.
    ///
    /// # Errors
    /// When a value is out of its bounds, what lies in the bucket is unreadable, or the store fails.
    pub async fn found(&self, component: Bytes, draft: Draft) -> Result<Founded, DeployError> {
        for _ in 0..TRIES {
            if let Some(seen) = self.rollout().await? {
                return self.compare(&seen.record, &draft).await;
            }
            self.put_module(component.clone()).await?;
            let first = self.first_revision(&draft).await?;
            let record = RolloutRecord::begin_with(first.number);
            if let Written::Won(_) = self.write_rollout(None, record).await? {
                // It may be another node's, or one that was recorded before.
                let revision = first.number;
                return Ok(if first.modules == draft.modules {
                    Founded::New { revision }
                } else {
                    Founded::Other { revision }
                });
            }
        }
        Err(DeployError::Changing)
    }

    /// Removes old revisions, and the components that no other one needs. What is running, what it would go back to, and the newest `keep`
    /// stay.
    ///
    /// # Errors
    /// For a `keep` of 0, a revision that cannot be read, or when the store fails. What was removed before that stays so.
    pub async fn prune(&self, keep: usize) -> Result<Pruned, DeployError> {
        if keep == 0 {
            let valid = "the newest revision always stays, so that no number comes twice: valid is 1 or more";
            return Err(value("keep", "0", valid));
        }
        let all = self.revisions().await?;
        let needed = self.needed().await?;
        let old = &all[..all.len().saturating_sub(keep)];
        let old = old.iter().filter(|number| needed.why(**number).is_none());
        let old: Vec<u64> = old.copied().collect();
        self.remove(&old, false).await
    }

    /// Removes one revision, and the components that no other one needs.
    ///
    /// # Errors
    /// As [`Objects::prune`], when there is no such revision, and for one that is needed.
    pub async fn prune_revision(&self, number: u64) -> Result<Pruned, DeployError> {
        let all = self.revisions().await?;
        if !all.contains(&number) {
            // For its error.
            self.revision(number).await?;
        }
        if all.last() == Some(&number) {
            let why = "it is the newest, and its number must not come twice";
            return Err(DeployError::Needed { number, why });
        }
        self.remove(&[number], true).await
    }

    /// Removes revisions, unless they are needed; `strict` makes an error of that.
    async fn remove(&self, numbers: &[u64], strict: bool) -> Result<Pruned, DeployError> {
        let mut left: BTreeSet<u64> = self.revisions().await?.into_iter().collect();
        let stay: Vec<u64> = left
            .iter()
            .filter(|number| !numbers.contains(number))
            .copied()
            .collect();
        let mut wanted = self.wanted(stay).await?;
        let mut pruned = Pruned::default();
        for number in numbers {
            // Each time: a rollout may have begun.
            if let Some(why) = self.needed().await?.why(*number) {
                if strict {
                    let number = *number;
                    return Err(DeployError::Needed { number, why });
                }
                continue;
            }
            self.delete_revision(*number).await?;
            left.remove(number);
            pruned.revisions.push(*number);
        }
        // Those that others recorded meanwhile, and those that came to be needed.
        wanted.extend(self.wanted(self.revisions().await?).await?);
        let now = u64::try_from(clock::wall_ms()).unwrap_or_default();
        let young = |stored: u64| u128::from(now.saturating_sub(stored)) < YOUNG.as_millis();
        for module in self.modules().await? {
            if !wanted.contains(&module.digest) && !young(module.stored_ms) {
                self.delete_module(&module.digest).await?;
                pruned.modules.push(module.digest);
            }
        }
        pruned.kept = left.into_iter().collect();
        Ok(pruned)
    }

    /// The components of these revisions.
    async fn wanted(&self, numbers: Vec<u64>) -> Result<BTreeSet<Digest>, DeployError> {
        let read = numbers.into_iter().map(|number| self.revision(number));
        let revisions: Vec<Revision> = stream::iter(read).buffered(READS).try_collect().await?;
        let modules = revisions.iter().flat_map(|revision| &revision.modules);
        Ok(modules.map(|module| module.digest).collect())
    }

    async fn needed(&self) -> Result<Needed, DeployError> {
        let record = self.rollout().await?.map(|seen| seen.record);
        Ok(Needed(record.unwrap_or_else(RolloutRecord::fresh)))
    }

    async fn begin(
        &self,
        target: u64,
        options: &RolloutOptions,
        order: Nonce,
    ) -> Result<Ordered, DeployError> {
        let revision = target;
        match self.order(options.order(target, order)).await {
            // Its rollout, whatever became of it meanwhile.
            Ok(stored) => begun(&stored.record, order).ok_or(DeployError::Changing),
            Err(DeployError::Refused(Refused::Same { revision })) => {
                Ok(Ordered::Unchanged { revision })
            }
            // Another one ordered the same.
            Err(DeployError::Refused(Refused::Busy { number, target, .. }))
                if target == revision =>
            {
                let rollout = number;
                Ok(Ordered::Running { rollout, revision })
            }
            Err(error) => Err(error),
        }
    }

    /// What is to be answered where the same runs already, or is about to.
    async fn same(
        &self,
        seen: Option<&Stored>,
        draft: &Draft,
    ) -> Result<Option<Ordered>, DeployError> {
        let Some(record) = seen.map(|seen| &seen.record) else {
            return Ok(None);
        };
        if let Some(active) = &record.active {
            if active.phase == Phase::Back {
                return Ok(None);
            }
            let (rollout, revision) = (record.number, active.target);
            let same = self.runs(revision, draft).await?;
            return Ok(same.then_some(Ordered::Running { rollout, revision }));
        }
        let revision = record.stable;
        let same = revision != 0 && self.runs(revision, draft).await?;
        Ok(same.then_some(Ordered::Unchanged { revision }))
    }

    async fn compare(&self, record: &RolloutRecord, draft: &Draft) -> Result<Founded, DeployError> {
        let target = record.active.as_ref().map_or(0, |active| active.target);
        let revision = if record.stable == 0 {
            target
        } else {
            record.stable
        };
        if revision == 0 {
            return Ok(Founded::Other { revision });
        }
        Ok(if self.runs(revision, draft).await? {
            Founded::Same { revision }
        } else {
            Founded::Other { revision }
        })
    }

    /// Whether a revision is just this. One that is lost, or unreadable, is another one: it must not keep anything from being deployed.
    async fn runs(&self, revision: u64, draft: &Draft) -> Result<bool, Error> {
        match self.revision(revision).await {
            Ok(found) => Ok(found.modules == draft.modules),
            Err(Error::NoRevision { .. } | Error::Record { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Checks that the components of a revision are in the bucket. What is in them, each node checks.
    async fn has_modules(&self, modules: &[ModuleSpec]) -> Result<(), DeployError> {
        for module in modules {
            let (digest, expected) = (module.digest, module.size);
            let store = self.store_name().to_owned();
            match self.module_size(&digest).await? {
                Some(found) if found == expected => {}
                Some(found) => {
                    return Err(Error::Incomplete {
                        digest,
                        found,
                        expected,
                        store,
                    }
                    .into());
                }
                None => return Err(Error::NoModule { digest, store }.into()),
            }
        }
        Ok(())
    }
}

impl RolloutOptions {
    /// Checks what has bounds.
    fn check(&self) -> Result<(), DeployError> {
        let percent = match self.plan {
            Plan::Waves(percent) => Some(("wave", percent)),
            Plan::Canary(percent) => Some(("canary", percent)),
            Plan::All | Plan::Chosen => None,
        };
        if let Some((name, percent)) = percent
            && !(1..=100).contains(&percent)
        {
            return Err(value(name, percent, "valid are 1 to 100 percent"));
        }
        let errors = self.gates.errors_percent;
        if errors > 100 {
            return Err(value("errors_percent", errors, "valid are 0 to 100"));
        }
        if !(Duration::from_secs(1)..=MAX_STEP).contains(&self.step_timeout) {
            let given = format!("{:?}", self.step_timeout);
            return Err(value("step_timeout", given, "valid are 1s to 24h"));
        }
        if self.bake > MAX_STEP {
            let given = format!("{:?}", self.bake);
            return Err(value("bake", given, "valid are 0 to 24h"));
        }
        Ok(())
    }

    /// The number of the order.
    fn number(&self) -> Nonce {
        self.order.unwrap_or_else(|| Nonce::new(rand::random()))
    }

    fn order(&self, target: u64, order: Nonce) -> Command {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Command::Deploy {
            target,
            by: self.by.clone(),
            order,
            plan: self.plan,
            first: self.first.clone(),
            gates: self.gates,
            step_timeout_ms: ms(self.step_timeout),
            bake_ms: ms(self.bake),
        }
    }
}

/// What must not be pruned.
struct Needed(RolloutRecord);

impl Needed {
    fn why(&self, number: u64) -> Option<&'static str> {
        let Self(record) = self;
        let target = record.active.as_ref().map(|active| active.target);
        if record.stable == number {
            Some("shards run it")
        } else if target == Some(number) {
            Some("it is being rolled out")
        } else if record.previous == number {
            Some("it is what a rollback goes back to")
        } else {
            None
        }
    }
}

/// What an order began.
fn begun(record: &RolloutRecord, order: Nonce) -> Option<Ordered> {
    let (rollout, revision) = record.rollout_of(order)?;
    Some(Ordered::Begun { rollout, revision })
}

fn value(name: &'static str, value: impl ToString, valid: &str) -> DeployError {
    DeployError::Value {
        name,
        value: value.to_string().chars().take(80).collect(),
        valid: valid.to_owned(),
    }
}

#[cfg(test)]
mod tests;

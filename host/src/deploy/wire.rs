//! Deployments as JSON: what is asked for over HTTP, and what comes back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use quarry_core::deploy::{
    Gates, MAX_MODULES, ModuleSpec, Plan, Revision, RolloutRecord, Selection,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::grants::{BadGrant, Grant};
use super::objects::{Draft, Error, Objects};
use super::operate::{DeployError, RolloutOptions};
use crate::config::units::Span;

/// The most revisions of one answer.
pub const MAX_LISTED: usize = 100;
/// How many of them are read at once.
const READS: usize = 16;

/// A revision to be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DraftBody {
    /// Its modules, in the order in which they are started.
    pub modules: Vec<ModuleBody>,
    /// Who makes it.
    #[serde(default)]
    pub author: String,
    /// Why.
    #[serde(default)]
    pub note: String,
}

/// A module of a revision to be. Its component is in the bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModuleBody {
    /// Its name in calls.
    #[serde(default = "main")]
    pub name: String,
    /// The SHA-256 of its component, in hex.
    pub digest: String,
    /// Options for the guest.
    #[serde(default)]
    pub options: Map<String, Value>,
    /// Limits that differ from the nodes' own.
    #[serde(default)]
    pub limits: BTreeMap<String, String>,
    /// What it may use beyond its shard.
    #[serde(default)]
    pub grants: BTreeSet<String>,
    /// The beginning of all keys that it sees.
    #[serde(default)]
    pub prefix: String,
}

fn main() -> String {
    "main".into()
}

/// An order to roll out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderBody {
    /// A revision that is recorded already; or else there is a draft, or `back`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<u64>,
    /// A revision to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft: Option<DraftBody>,
    /// To the revision before; a rollout in progress is aborted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub back: bool,
    /// Who wants it.
    #[serde(default)]
    pub by: String,
    /// Which order it is: 32 lower-case hex digits that whoever gives it draws at random, so that it can be given again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    /// How it goes on.
    #[serde(default)]
    pub plan: PlanWord,
    /// Of waves and canary: how many of the shards, 1 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
    /// Of a choice: the shards that go first, like `0-3,7`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards: Option<String>,
    /// What stops it.
    #[serde(default)]
    pub gates: GatesBody,
    /// How long a step may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_timeout: Option<Span>,
    /// How long each step is watched before the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bake: Option<Span>,
}

/// See [`Plan`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlanWord {
    /// All shards at once.
    #[default]
    All,
    /// So many percent of the shards more in each step.
    Waves,
    /// So many percent of the shards, and the rest once an operator says so.
    Canary,
    /// Some shards, and the rest once an operator says so.
    Chosen,
}

/// See [`Gates`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GatesBody {
    /// Traps that are borne.
    pub traps: u64,
    /// By how many percent of the calls more may fail.
    pub errors_percent: u8,
    /// How many times as long the slowest percent may take, in percent; 0 for any.
    pub latency_percent: u32,
    /// Fewer calls say nothing of errors and latency.
    pub least_calls: u64,
}

impl Default for GatesBody {
    fn default() -> Self {
        let gates = Gates::default();
        Self {
            traps: gates.traps,
            errors_percent: gates.errors_percent,
            latency_percent: gates.latency_percent,
            least_calls: gates.least_calls,
        }
    }
}

/// What an order rolls out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// This revision.
    Revision(u64),
    /// A revision to be.
    Draft(DraftBody),
    /// The one before.
    Back,
}

impl OrderBody {
    /// What it orders, in a cluster of so many shards.
    ///
    /// # Errors
    /// When parts of it do not go together, or name shards that do not exist.
    pub fn read(self, shards: u32) -> Result<(What, RolloutOptions), DeployError> {
        let what = match (self.target, self.draft, self.back) {
            (Some(target), None, false) => What::Revision(target),
            (None, Some(draft), false) => What::Draft(draft),
            (None, None, true) => What::Back,
            _ => {
                let valid = "give exactly one of `target`, `draft` and `back`";
                return Err(wrong("target", &self.target, valid));
            }
        };
        let percent = |valid| match (self.percent, &self.shards) {
            (Some(percent), None) => Ok(percent),
            _ => Err(wrong("percent", &self.percent, valid)),
        };
        let (plan, first) = match self.plan {
            PlanWord::Waves => {
                let percent = percent("waves need `percent`, 1 to 100, and no `shards`")?;
                (Plan::Waves(percent), Selection::None)
            }
            PlanWord::Canary => {
                let percent = percent("a canary needs `percent`, 1 to 100, and no `shards`")?;
                (Plan::Canary(percent), Selection::None)
            }
            PlanWord::Chosen => match (&self.shards, self.percent) {
                (Some(text), None) => (Plan::Chosen, Selection::parse(text, shards)?),
                _ => {
                    let valid = "a choice needs `shards`, like 0-3,7, and no `percent`";
                    return Err(wrong("shards", &self.shards, valid));
                }
            },
            PlanWord::All if self.percent.is_none() && self.shards.is_none() => {
                (Plan::All, Selection::None)
            }
            PlanWord::All => {
                let valid = "the plan `all` has neither `percent` nor `shards`; `waves` and `canary` have the one, `chosen` has the other";
                return Err(wrong("plan", &"all", valid));
            }
        };
        let GatesBody {
            traps,
            errors_percent,
            latency_percent,
            least_calls,
        } = self.gates;
        let order = self.order.as_ref().map(|order| {
            let valid = "valid are 32 lower-case hex digits, drawn at random for each order";
            order.parse().map_err(|_| wrong("order", order, valid))
        });
        let default = RolloutOptions::default();
        let options = RolloutOptions {
            by: self.by,
            order: order.transpose()?,
            plan,
            first,
            gates: Gates {
                traps,
                errors_percent,
                latency_percent,
                least_calls,
            },
            step_timeout: self
                .step_timeout
                .map_or(default.step_timeout, |Span(time)| time),
            bake: self.bake.map_or(Duration::ZERO, |Span(time)| time),
        };
        Ok((what, options))
    }
}

impl DraftBody {
    /// As it is to be recorded: with the sizes of its components, which are in the bucket.
    ///
    /// # Errors
    /// When a value is out of its bounds, a component is missing, or the store fails.
    pub async fn read(self, objects: &Objects) -> Result<Draft, DeployError> {
        if self.modules.len() > MAX_MODULES {
            let count = self.modules.len();
            return Err(wrong("modules", &count, "valid are 1 to 16 modules"));
        }
        let mut modules = Vec::new();
        for module in self.modules {
            for grant in &module.grants {
                grant
                    .parse::<Grant>()
                    .map_err(|BadGrant { why, .. }| wrong("grants", grant, &why))?;
            }
            let digest = module
                .digest
                .strip_prefix("sha256:")
                .unwrap_or(&module.digest);
            let digest = digest.parse().map_err(|_| {
                let valid =
                    "valid are 64 lower-case hex digits, as `POST /v1/modules` answers them";
                wrong("digest", &module.digest, valid)
            })?;
            let size = objects.module_size(&digest).await?;
            let size = size.ok_or_else(|| Error::NoModule {
                digest,
                store: objects.store_name().to_owned(),
            })?;
            modules.push(ModuleSpec {
                name: module.name,
                digest,
                size,
                options: Value::Object(module.options).to_string(),
                limits: module.limits,
                grants: module.grants,
                prefix: module.prefix,
            });
        }
        Ok(Draft {
            modules,
            author: self.author,
            note: self.note,
        })
    }
}

/// A revision, and what the cluster does with it.
#[must_use]
pub fn revision(revision: &Revision, record: &RolloutRecord) -> Value {
    let modules = revision.modules.iter().map(|module| {
        let text = || Value::String(module.options.clone());
        json!({
            "name": module.name, "digest": module.digest, "size": module.size,
            "options": serde_json::from_str(&module.options).unwrap_or_else(|_| text()),
            "limits": module.limits, "grants": module.grants, "prefix": module.prefix,
        })
    });
    let target = record.active.as_ref().map(|active| active.target);
    let state = match revision.number {
        number if number == record.stable => Some("stable"),
        number if Some(number) == target => Some("target"),
        number if number == record.previous => Some("previous"),
        _ => None,
    };
    json!({
        "revision": revision.number, "state": state, "modules": modules.collect::<Vec<_>>(), "author": revision.author,
        "created_ms": revision.created_ms, "note": revision.note,
    })
}

/// A revision, and what the cluster does with it now.
///
/// # Errors
/// When the store fails, or the rollout record is unreadable.
pub async fn revision_of(objects: &Objects, found: &Revision) -> Result<Value, DeployError> {
    let record = objects.rollout().await?;
    let record = record.map_or_else(RolloutRecord::fresh, |seen| seen.record);
    Ok(revision(found, &record))
}

/// The newest revisions below a number, the newest first. One that cannot be read is listed with the reason.
///
/// # Errors
/// When the store fails, or the rollout record is unreadable.
pub async fn revisions(
    objects: &Objects,
    below: Option<u64>,
    limit: usize,
) -> Result<Value, DeployError> {
    let record = objects.rollout().await?;
    let record = record.map_or_else(RolloutRecord::fresh, |seen| seen.record);
    let mut numbers = objects.revisions().await?;
    numbers.retain(|number| below.is_none_or(|below| *number < below));
    let limit = limit.clamp(1, MAX_LISTED);
    let more = numbers.len() > limit;
    let newest = numbers.into_iter().rev().take(limit);
    let read = newest.map(|number| {
        let record = &record;
        async move {
            match objects.revision(number).await {
                Ok(found) => Ok(revision(&found, record)),
                Err(error @ (Error::Record { .. } | Error::NoRevision { .. })) => {
                    Ok(json!({"revision": number, "error": error.to_string()}))
                }
                Err(error) => Err(error),
            }
        }
    });
    let listed: Vec<Value> = stream::iter(read).buffered(READS).try_collect().await?;
    Ok(json!({"revisions": listed, "more": more}))
}

/// The components in the bucket.
///
/// # Errors
/// When the store fails.
pub async fn modules(objects: &Objects) -> Result<Value, DeployError> {
    Ok(json!({"modules": objects.modules().await?}))
}

/// The rollout record as operators are told of it, without what only nodes know.
#[must_use]
pub fn record(record: &RolloutRecord) -> Value {
    let active = record.active.as_ref().map(|active| {
        let (plan, percent) = plan_words(active.plan);
        json!({
            "target": active.target, "by": active.by, "order": active.order, "plan": plan, "percent": percent, "phase": active.phase,
            "paused": active.paused, "selection": active.selection.to_string(), "why": active.why,
        })
    });
    let last = record.last.as_ref().map(|last| {
        json!({"rollout": last.number, "target": last.target, "order": last.order, "outcome": last.outcome, "why": last.why})
    });
    json!({
        "counter": record.counter, "rollout": record.number, "stable": record.stable, "previous": record.previous,
        "active": active, "last": last,
    })
}

/// The same where nothing was ever deployed.
#[must_use]
pub fn no_record() -> Value {
    record(&RolloutRecord::fresh())
}

/// The words for a plan.
fn plan_words(plan: Plan) -> (PlanWord, Option<u8>) {
    match plan {
        Plan::All => (PlanWord::All, None),
        Plan::Waves(percent) => (PlanWord::Waves, Some(percent)),
        Plan::Canary(percent) => (PlanWord::Canary, Some(percent)),
        Plan::Chosen => (PlanWord::Chosen, None),
    }
}

fn wrong(name: &'static str, given: &impl Serialize, valid: &str) -> DeployError {
    let value = serde_json::to_string(given).unwrap_or_default();
    DeployError::Value {
        name,
        value: value.chars().take(80).collect(),
        valid: valid.to_owned(),
    }
}

#[cfg(test)]
mod tests;

//! The body of `_quarry/rollout.json`: which revision each shard is to run, and how far a rollout is.

use serde::{Deserialize, Serialize};

use super::selection::Selection;
use crate::lease::record::fields::{Fields, clean, plain};
use crate::lease::record::{Nonce, RecordError, VERSION};

/// Where it lies, below `_quarry/`.
pub const ROLLOUT: &str = "rollout.json";
/// The longest body that is read.
pub const MAX_ROLLOUT_BYTES: usize = 64 << 10;
/// The longest name of who ordered a rollout.
const MAX_BY: usize = 256;
/// The longest reason; a longer one is cut.
const MAX_WHY: usize = 256;

/// The state of all rollouts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RolloutRecord {
    /// Grows with each rewrite.
    pub counter: u64,
    /// Fresh in each rewrite.
    pub nonce: Nonce,
    /// When it was written, in milliseconds since 1970 by the writer's wall clock. For people; decides nothing.
    pub at_ms: u64,
    /// The number of the newest rollout; 0 before the first.
    pub number: u64,
    /// The revision that a shard runs which no rollout has reached; 0 when there is none.
    pub stable: u64,
    /// The revision that was stable before; 0 when there was none.
    pub previous: u64,
    /// The rollout in progress.
    pub active: Option<Active>,
    /// How the one before ended.
    pub last: Option<Ended>,
}

/// A rollout in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Active {
    /// The revision that is rolled out.
    pub target: u64,
    /// Who ordered it, at most 256 bytes.
    pub by: String,
    /// Which order it was: two of one person at one moment have different ones. 0 in a record that knows none.
    pub order: Nonce,
    /// How it goes on.
    pub plan: Plan,
    /// What stops it.
    pub gates: Gates,
    /// How long a step may take, and how long it is watched before the next, in milliseconds.
    pub step_timeout_ms: u64,
    /// See `step_timeout_ms`.
    pub bake_ms: u64,
    /// How far it is.
    pub phase: Phase,
    /// An operator stopped it: no further shard is reached. What fails is rolled back all the same.
    pub paused: bool,
    /// The shards that are to run the target.
    pub selection: Selection,
    /// Why it is rolled back; empty while it is not.
    pub why: String,
}

/// How a rollout goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// All shards at once.
    All,
    /// So many percent of the shards more in each step, 1 to 100.
    Waves(u8),
    /// So many percent of the shards, 1 to 100, and the rest once an operator says so.
    Canary(u8),
    /// The shards of the first selection, and the rest once an operator says so.
    Chosen,
}

/// What stops a rollout by itself, beside a shard on which the target does not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gates {
    /// Traps of the target, of all shards together, that are still borne.
    pub traps: u64,
    /// By how many percent of the calls more may fail than under the older revision, 0 to 100.
    pub errors_percent: u8,
    /// How many times as long the slowest percent of the calls may take, in percent; 0 for any.
    pub latency_percent: u32,
    /// Fewer calls than these, under either revision, say nothing of errors and latency.
    pub least_calls: u64,
}

impl Default for Gates {
    fn default() -> Self {
        Self {
            traps: 0,
            errors_percent: 1,
            latency_percent: 0,
            least_calls: 100,
        }
    }
}

/// How far a rollout is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Every node compiles and checks the target. No shard runs it.
    Checking,
    /// The shards of the selection take it.
    Rolling,
    /// They have, and an operator decides.
    Held,
    /// It failed, or was aborted: the shards go back.
    Back,
}

/// How a rollout ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Every shard runs the target.
    Adopted,
    /// Every shard runs what it ran before.
    RolledBack,
    /// Not every node can run the target: no shard was touched.
    Refused,
    /// Another rollout began before every shard had gone back.
    Superseded,
}

/// A rollout that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Its number.
    pub number: u64,
    /// What was rolled out.
    pub target: u64,
    /// See [`Active::order`].
    pub order: Nonce,
    /// How it ended.
    pub outcome: Outcome,
    /// Why, for people; empty when there is nothing to say.
    pub why: String,
}

impl RolloutRecord {
    /// Before the first rollout.
    #[must_use]
    pub const fn fresh() -> Self {
        Self {
            counter: 0,
            nonce: Nonce::new(0),
            at_ms: 0,
            number: 0,
            stable: 0,
            previous: 0,
            active: None,
            last: None,
        }
    }

    /// The rollout in progress, while shards are to run its target.
    #[must_use]
    pub fn reaching(&self) -> Option<&Active> {
        let active = self.active.as_ref();
        active.filter(|active| matches!(active.phase, Phase::Rolling | Phase::Held))
    }

    /// The rollout that an order began, by its number, and its revision; none where it is neither in progress nor the last that ended.
    #[must_use]
    pub fn rollout_of(&self, order: Nonce) -> Option<(u64, u64)> {
        let active = self.active.iter();
        let active = active.map(|active| (active.order, self.number, active.target));
        let last = self.last.iter();
        let last = last.map(|last| (last.order, last.number, last.target));
        let mut all = active.chain(last);
        let (_, number, target) = all.find(|(of, ..)| *of == order && order != Nonce::new(0))?;
        Some((number, target))
    }

    /// Of a cluster that begins with a revision, which no shard ever ran without.
    #[must_use]
    pub fn begin_with(revision: u64) -> Self {
        Self {
            number: 1,
            stable: revision,
            last: Some(Ended {
                number: 1,
                target: revision,
                order: Nonce::new(0),
                outcome: Outcome::Adopted,
                why: String::new(),
            }),
            ..Self::fresh()
        }
    }

    /// The revision that a shard is to run; 0 for none.
    #[must_use]
    pub fn revision_of(&self, shard: u32, shards: u32) -> u64 {
        let chosen = |active: &&Active| active.selection.contains(shard, shards, self.number);
        let active = self.reaching().filter(chosen);
        active.map_or(self.stable, |active| active.target)
    }

    /// The body.
    ///
    /// # Errors
    /// [`RecordError::Field`] when the name of who ordered it does not keep its bounds.
    pub fn encode(&self) -> Result<Vec<u8>, RecordError> {
        let active = match &self.active {
            None => None,
            Some(active) => {
                plain(ROLLOUT, "by", &active.by, MAX_BY)?;
                Some(active.to_json())
            }
        };
        let last = self.last.as_ref().map(|last| {
            serde_json::json!({
                "number": last.number, "target": last.target, "order": last.order, "outcome": last.outcome, "why": clean(&last.why),
            })
        });
        let json = serde_json::json!({
            "version": VERSION, "counter": self.counter, "nonce": self.nonce, "at_ms": self.at_ms, "number": self.number,
            "stable": self.stable, "previous": self.previous, "active": active, "last": last,
        });
        Ok(json.to_string().into_bytes())
    }

    /// Reads the body.
    ///
    /// # Errors
    /// A [`RecordError`] that names the field and the value.
    pub fn decode(body: &[u8]) -> Result<Self, RecordError> {
        let fields = Fields::parse_up_to(MAX_ROLLOUT_BYTES, ROLLOUT.into(), body)?;
        let part = |field: &'static str| {
            let value = fields.optional(field);
            value
                .map(|value| Fields::within(format!("{ROLLOUT}, {field}"), value))
                .transpose()
        };
        let record = Self {
            counter: fields.number("counter")?,
            nonce: fields.id("nonce")?,
            at_ms: fields.number("at_ms")?,
            number: fields.number("number")?,
            stable: fields.number("stable")?,
            previous: fields.number("previous")?,
            active: part("active")?
                .map(|fields| Active::of(&fields))
                .transpose()?,
            last: part("last")?.map(|fields| Ended::of(&fields)).transpose()?,
        };
        if record.active.is_some() && record.number == 0 {
            let valid = "the first rollout has the number 1".into();
            return Err(fields.wrong("number", &0, valid));
        }
        Ok(record)
    }
}

impl Active {
    fn to_json(&self) -> serde_json::Value {
        let (plan, percent) = match self.plan {
            Plan::All => ("all", 100),
            Plan::Waves(percent) => ("waves", percent),
            Plan::Canary(percent) => ("canary", percent),
            Plan::Chosen => ("chosen", 100),
        };
        serde_json::json!({
            "target": self.target, "by": self.by, "order": self.order, "plan": plan, "percent": percent, "traps": self.gates.traps,
            "errors_percent": self.gates.errors_percent, "latency_percent": self.gates.latency_percent,
            "least_calls": self.gates.least_calls, "step_timeout_ms": self.step_timeout_ms, "bake_ms": self.bake_ms,
            "phase": self.phase, "paused": self.paused, "selection": self.selection.to_string(), "why": clean(&self.why),
        })
    }

    fn of(fields: &Fields) -> Result<Self, RecordError> {
        let percent = |field: &'static str, least: u64| {
            let number = fields.number(field)?;
            u8::try_from(number)
                .ok()
                .filter(|percent| (least..=100).contains(&u64::from(*percent)))
                .ok_or_else(|| fields.wrong(field, &number, format!("valid are {least} to 100")))
        };
        let size = percent("percent", 1)?;
        let plan = fields.word(
            "plan",
            &[
                ("all", Plan::All),
                ("waves", Plan::Waves(size)),
                ("canary", Plan::Canary(size)),
                ("chosen", Plan::Chosen),
            ],
        )?;
        let text = fields.text("selection", 8 << 10)?;
        let selection = Selection::read(&text).ok_or_else(|| {
            let valid = "valid are none, all, `first N`, and ranges such as 0-3,7".into();
            fields.wrong("selection", &text, valid)
        })?;
        let target = fields.number("target")?;
        if target == 0 {
            return Err(fields.wrong("target", &0, "revisions are numbered from 1".into()));
        }
        Ok(Self {
            target,
            by: fields.text("by", MAX_BY)?,
            order: order(fields)?,
            plan,
            gates: Gates {
                traps: fields.number("traps")?,
                errors_percent: percent("errors_percent", 0)?,
                latency_percent: fields.small("latency_percent")?,
                least_calls: fields.number("least_calls")?,
            },
            step_timeout_ms: fields.number("step_timeout_ms")?,
            bake_ms: fields.number("bake_ms")?,
            phase: fields.word(
                "phase",
                &[
                    ("checking", Phase::Checking),
                    ("rolling", Phase::Rolling),
                    ("held", Phase::Held),
                    ("back", Phase::Back),
                ],
            )?,
            paused: fields.flag("paused")?,
            selection,
            why: fields.text("why", MAX_WHY)?,
        })
    }
}

impl Ended {
    fn of(fields: &Fields) -> Result<Self, RecordError> {
        Ok(Self {
            number: fields.number("number")?,
            target: fields.number("target")?,
            order: order(fields)?,
            outcome: fields.word(
                "outcome",
                &[
                    ("adopted", Outcome::Adopted),
                    ("rolled-back", Outcome::RolledBack),
                    ("refused", Outcome::Refused),
                    ("superseded", Outcome::Superseded),
                ],
            )?,
            why: fields.text("why", MAX_WHY)?,
        })
    }
}

/// Records of earlier versions know of no orders.
fn order(fields: &Fields) -> Result<Nonce, RecordError> {
    let known = fields.optional("order").is_some();
    if known {
        fields.id("order")
    } else {
        Ok(Nonce::new(0))
    }
}

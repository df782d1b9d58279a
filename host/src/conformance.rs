//! The conformance suite: cases over the whole WIT that a guest in any language passes by doing what `tests/conformance/README.md` says.
//!
//! A case is a description (`case.rs`): scripts that the guest runs, what each step has to give, and what happens to its node meanwhile. The
//! tables are in `cases/`; `world.rs` carries a case out on a node of its own, in this process, on a store in memory. Time is the machine's.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use crate::clock;
use crate::config::Config;
use crate::guest::wasm::{self, Inspection, Runtime};
use crate::guest::{Limits, Module};
use crate::metrics;

mod calls;
mod case;
mod cases;
mod expect;
mod form;
mod lines;
mod script;
mod words;
mod world;

pub use case::Group;
pub use lines::Lines;

use case::Case;
use world::{Ended, World};

/// The optional exports that cases may need, by the names of their interfaces.
#[cfg(test)]
const EXPORTS: [&str; 7] = [
    "queries",
    "lifecycle",
    "options",
    "durable-events",
    "timer-events",
    "handoff",
    "migration",
];

/// What is tested.
pub struct Subject {
    runtime: Arc<Runtime>,
    component: Bytes,
    inspection: Inspection,
    /// Keeps what was compiled.
    _compiled: Arc<dyn Module>,
}

/// Which cases run, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// Only these groups; all where empty.
    pub only: Vec<Group>,
    /// Only cases whose title has one of these texts; all where empty.
    pub matching: Vec<String>,
    /// How long a case may take.
    pub timeout: Duration,
    /// Options of the guest in every case, beside those that a case gives it.
    pub options: serde_json::Map<String, serde_json::Value>,
    /// Where the guest's log goes; without it the cases that look at lines fail.
    pub lines: Option<Lines>,
}

/// How a case went.
#[derive(Debug, Clone, Serialize)]
pub struct CaseReport {
    /// What it is about.
    pub group: Group,
    /// What has to hold.
    pub name: &'static str,
    /// Whether it did.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// How long it took, in milliseconds.
    pub took_ms: f64,
}

/// What came of a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// As it has to be.
    Passed,
    /// The guest leaves out what the case needs.
    Absent {
        /// The export or the command.
        what: String,
    },
    /// Not as it has to be.
    Failed {
        /// Where, what was expected, and what was found.
        why: String,
    },
}

/// How the suite went.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Every case that was wanted, in order.
    pub cases: Vec<CaseReport>,
    /// How long all of them took, in milliseconds.
    pub took_ms: f64,
}

impl Report {
    /// How many cases passed, are absent, and failed.
    #[must_use]
    pub fn counts(&self) -> [usize; 3] {
        let mut counts = [0; 3];
        for case in &self.cases {
            counts[match case.outcome {
                Outcome::Passed => 0,
                Outcome::Absent { .. } => 1,
                Outcome::Failed { .. } => 2,
            }] += 1;
        }
        counts
    }
}

impl Subject {
    /// Checks and compiles a component.
    ///
    /// # Errors
    /// Why it cannot be a guest.
    pub async fn load(runtime: Arc<Runtime>, component: Bytes) -> Result<Self, wasm::Error> {
        let limits = Arc::new(Limits::default());
        let compiled = runtime
            .load(component.clone(), "main".into(), 0, limits)
            .await?;
        Ok(Self {
            inspection: wasm::inspect(&component)?,
            runtime,
            component,
            _compiled: compiled,
        })
    }

    /// A revision of it, under a node's limits.
    async fn revision(&self, config: &Config, revision: u64) -> Result<Arc<dyn Module>, String> {
        let limits = Arc::new(Limits::from(config));
        let name = config.module.name.as_str().into();
        let loaded = self
            .runtime
            .load(self.component.clone(), name, revision, limits);
        Ok(loaded.await.map_err(|error| error.to_string())?)
    }

    /// Whether it has an optional export.
    fn exports(&self, export: &str) -> bool {
        let exports = &self.inspection.exports;
        match export {
            "queries" => exports.queries,
            "lifecycle" => exports.lifecycle,
            "options" => exports.options,
            "durable-events" => exports.durable_events,
            "handoff" => exports.handoff,
            "timer-events" => exports.timer_events,
            "migration" => exports.migration,
            _ => false,
        }
    }
}

impl Options {
    fn wanted(&self) -> Vec<Case> {
        let cases = cases::all().into_iter();
        cases.filter(|case| self.want(case)).collect()
    }

    fn want(&self, case: &Case) -> bool {
        let title = case.title();
        (self.only.is_empty() || self.only.contains(&case.group))
            && (self.matching.is_empty() || self.matching.iter().any(|text| title.contains(text)))
    }
}

/// A payload of the method `run` that reads a key, and writes it.
#[must_use]
pub fn get_and_put() -> Bytes {
    let steps = [words::get("bench"), words::put("bench", "12345678")];
    script::script(&steps, &script::Memo::new()).into()
}

/// The titles of all cases that are wanted.
#[must_use]
pub fn titles(options: &Options) -> Vec<String> {
    let wanted = options.wanted();
    wanted.iter().map(Case::title).collect()
}

/// Runs the suite. `progress` hears of each case when it has ended: its number, how many there are, and how it went.
pub async fn run(
    subject: &Subject,
    options: &Options,
    progress: impl FnMut(usize, usize, &CaseReport),
) -> Report {
    carry_out(subject, options, options.wanted(), progress).await
}

/// Runs each case once for each thing that it expects, with that turned into its opposite: no run may pass. It shows that the suite looks at
/// what a guest does, in the guest's own language. A case that passes here is one that expects nothing there.
pub async fn run_turned(
    subject: &Subject,
    options: &Options,
    progress: impl FnMut(usize, usize, &CaseReport),
) -> Report {
    let turned = options.wanted().iter().flat_map(Case::turned).collect();
    carry_out(subject, options, turned, progress).await
}

async fn carry_out(
    subject: &Subject,
    options: &Options,
    wanted: Vec<Case>,
    mut progress: impl FnMut(usize, usize, &CaseReport),
) -> Report {
    metrics::install();
    let begun = clock::now();
    let mut reports = Vec::with_capacity(wanted.len());
    for (at, case) in wanted.iter().enumerate() {
        let begun = clock::now();
        let outcome = one(subject, options, case).await;
        let report = CaseReport {
            group: case.group,
            name: case.name,
            outcome,
            took_ms: millis(begun),
        };
        progress(at + 1, wanted.len(), &report);
        reports.push(report);
    }
    Report {
        cases: reports,
        took_ms: millis(begun),
    }
}

async fn one(subject: &Subject, options: &Options, case: &Case) -> Outcome {
    let missing = case.needs.iter().find(|export| !subject.exports(export));
    if let Some(missing) = missing {
        let what = format!("the export `{missing}`");
        return Outcome::Absent { what };
    }
    let mut world = World::new(subject, options, case);
    let ended = clock::timeout(options.timeout, world.run(case)).await;
    world.end().await;
    match ended {
        Ok(Ok(())) => Outcome::Passed,
        Ok(Err(Ended::Unsupported(what))) => Outcome::Absent { what },
        Ok(Err(Ended::Failed(why))) => Outcome::Failed { why },
        Err(_) => Outcome::Failed {
            why: format!(
                "it took longer than {:?} (--timeout): {}",
                options.timeout,
                world.doing()
            ),
        },
    }
}

fn millis(begun: std::time::Instant) -> f64 {
    clock::now().saturating_duration_since(begun).as_secs_f64() * 1e3
}

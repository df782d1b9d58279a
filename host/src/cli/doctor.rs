//! `quarry doctor`: what a store honours of what Quarry needs.

use std::fmt::Write as _;
use std::time::Duration;

use super::args::Doctor;
use super::{Error, Exit, Output};
use crate::config::Config;
use crate::store::Store;
use crate::store::probe::{self, Outcome, ProbeReport};

/// How long all checks together may take.
const DEADLINE: Duration = Duration::from_secs(60);

/// Probes the store, in the configured path.
pub(super) async fn run(args: &Doctor, out: Output) -> Result<Exit, Error> {
    let config = Config::load(&args.settings.sources())?.config;
    let store = Store::open(&config.store, &config.store_options)
        .map_err(|error| Error::Usage(error.to_string()))?;
    let report = tokio::select! {
        // The signal first: it is watched for before anything is written.
        biased;
        _ = tokio::signal::ctrl_c() => return Err(Error::Interrupted),
        report = probe::probe(&store, &config.path, DEADLINE) => report,
    };
    if out.json {
        out.json(&report)?;
    } else {
        out.bytes(text(&report).as_bytes())?;
    }
    report
        .into_result()
        .map_err(|error| Error::Failed(error.to_string()))?;
    Ok(Exit::Done)
}

fn text(report: &ProbeReport) -> String {
    let mut text = format!("{}\n", report.store);
    for check in &report.checks {
        let sign = match check.outcome {
            Outcome::Passed => "ok",
            Outcome::Warned => "warn",
            Outcome::Failed => "FAIL",
        };
        let ms = check.took.as_secs_f64() * 1000.0;
        _ = writeln!(
            text,
            "  {sign:4}  {:18} {ms:8.1} ms  {}",
            check.name, check.detail
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::probe::Check;

    #[test]
    fn a_line_a_check() {
        let check = |name, outcome| Check {
            name,
            outcome,
            detail: "seen".into(),
            took: Duration::from_micros(1500),
        };
        let report = ProbeReport {
            store: "memory:".into(),
            checks: vec![
                check("create", Outcome::Passed),
                check("stale update", Outcome::Failed),
            ],
        };
        let expected = "memory:\n  ok    create                  1.5 ms  seen\n  FAIL  stale update            1.5 ms  seen\n";
        assert_eq!(text(&report), expected);
    }

    #[tokio::test]
    async fn a_store_in_memory_is_well() {
        let store = Store::open("memory:", &std::collections::BTreeMap::new()).expect("store");
        let report = probe::probe(&store, "", DEADLINE).await;
        assert!(report.passed(), "{report:?}");
        assert!(text(&report).lines().count() > 5);
    }
}

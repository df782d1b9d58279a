//! `quarry doctor`: what a store honours of what Quarry needs.

use std::fmt::Write as _;
use std::time::Duration;

use super::args::Doctor;
use super::{Error, Exit, Output};
use crate::config::Config;
use crate::store::Store;
use crate::store::probe::{self, Check, Outcome, ProbeReport};

/// How long all checks together may take.
const DEADLINE: Duration = Duration::from_secs(60);
/// Where machines in a cloud get credentials from.
const METADATA: &str = "169.254.169.254";

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
    // What the store's library asks when it has nothing else, and what nobody connects with missing credentials.
    let failed = |check: &&Check| check.outcome == Outcome::Failed;
    let mut failures = report.checks.iter().filter(failed);
    if failures.any(|check| check.detail.contains(METADATA)) {
        text.push_str("No credentials were found, so the machine's metadata service was asked for some: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY\n(or the store options aws_access_key_id and aws_secret_access_key), or give the machine a role.\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn missing_credentials_are_named() {
        let report = |outcome| ProbeReport {
            store: "s3://bucket".into(),
            checks: vec![Check {
                name: "create",
                outcome,
                detail: "Error performing PUT http://169.254.169.254/latest/api/token".into(),
                took: Duration::ZERO,
            }],
        };
        assert!(text(&report(Outcome::Failed)).contains("set AWS_ACCESS_KEY_ID"));
        assert!(!text(&report(Outcome::Passed)).contains("AWS_ACCESS_KEY_ID"));
    }

    #[tokio::test]
    async fn a_store_in_memory_is_well() {
        let store = Store::open("memory:", &std::collections::BTreeMap::new()).expect("store");
        let report = probe::probe(&store, "", DEADLINE).await;
        assert!(report.passed(), "{report:?}");
        assert!(text(&report).lines().count() > 5);
    }
}

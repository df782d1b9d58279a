//! `quarry conformance`: whether a guest in some language and the host agree on the whole WIT.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::args::{self, Assignment};
use super::output::{self, Column};
use super::running::{self, Signals};
use super::{Error, Exit, Output, verify};
use crate::bench::guests::{self, Figures, Guest};
use crate::config::Config;
use crate::conformance::{self, CaseReport, Lines, Options, Outcome, Report, Subject};

/// How long each guest's throughput is measured in a turn.
const TURN: Duration = Duration::from_millis(500);

const CASES: [Column; 4] = [
    ("GROUP", |case| output::cell(&case["group"])),
    ("CASE", |case| output::cell(&case["name"])),
    ("OUTCOME", |case| output::cell(&case["outcome"])),
    ("MS", |case| {
        format!("{:.0}", case["took_ms"].as_f64().unwrap_or_default())
    }),
];

const FIGURES: [Column; 9] = [
    ("GUEST", |guest| output::cell(&guest["name"])),
    ("SIZE KB", |guest| shown(guest, "size", 1e3, 0)),
    ("COMPILE MS", |guest| shown(guest, "compile_ms", 1.0, 0)),
    ("START US", |guest| shown(guest, "start_us", 1.0, 0)),
    ("MEMORY KIB", |guest| shown(guest, "memory_kib", 1.0, 0)),
    ("TOUCHED KIB", |guest| shown(guest, "touched_kib", 1.0, 0)),
    ("EMPTY US", |guest| shown(guest, "empty_us", 1.0, 2)),
    ("GET+PUT US", |guest| shown(guest, "get_and_put_us", 1.0, 1)),
    ("CALLS/S", |guest| shown(guest, "per_second", 1.0, 0)),
];

pub(super) async fn run(args: &args::Conformance, out: Output) -> Result<Exit, Error> {
    let options = Options {
        only: args.only.clone(),
        matching: args.case.clone(),
        timeout: args.timeout.0,
        options: options(&args.option),
        lines: None,
    };
    let titles = conformance::titles(&options);
    if titles.is_empty() {
        let message = "no case is left: `quarry conformance FILE --list` names all of them";
        return Err(Error::Usage(message.into()));
    }
    if args.list {
        return list(&titles, out);
    }
    let mut signals = Signals::watch()?;
    let tested = tested(args, options, out);
    tokio::select! {
        exit = tested => exit,
        _ = signals.next() => Err(Error::Interrupted),
    }
}

async fn tested(
    args: &args::Conformance,
    mut options: Options,
    out: Output,
) -> Result<Exit, Error> {
    let (path, _) = verify::target(&args.target, out).await?;
    let component = running::read(&path)?;
    let mut others = Vec::new();
    for path in &args.against {
        others.push(guest(path, running::read(path)?));
    }
    // Whatever else this process would log is told by the case.
    let lines = Lines::catch().map_err(|error| Error::Failed(error.to_string()))?;
    options.lines = Some(lines);
    let runtime = running::engine(&Config::default())?;
    let subject = Subject::load(runtime, component.clone()).await;
    let subject = subject.map_err(|error| Error::Failed(format!("{}: {error}", path.display())))?;
    let note = |at, of, case: &CaseReport| out.note(&progress(at, of, case));
    if args.turned {
        let report = conformance::run_turned(&subject, &options, note).await;
        print(&report, &[], out)?;
        let [passed, ..] = report.counts();
        return Ok(if passed == 0 {
            Exit::Done
        } else {
            Exit::Failed
        });
    }
    let report = conformance::run(&subject, &options, note).await;
    let of_some = !options.only.is_empty() || !options.matching.is_empty();
    let figures = if args.no_figures || (of_some && others.is_empty()) {
        Vec::new()
    } else {
        let mut guests = vec![guest(&path, component)];
        guests.extend(others);
        let measured = guests::measure(&guests, TURN, |text| out.note(text)).await;
        measured.map_err(|error| Error::Failed(error.to_string()))?
    };
    print(&report, &figures, out)?;
    let [_, absent, failed] = report.counts();
    let good = failed == 0 && (absent == 0 || !args.strict);
    Ok(if good { Exit::Done } else { Exit::Failed })
}

fn list(titles: &[String], out: Output) -> Result<Exit, Error> {
    if out.json {
        out.json(&titles)?;
    } else {
        for title in titles {
            out.line(title)?;
        }
    }
    Ok(Exit::Done)
}

fn print(report: &Report, figures: &[Figures], out: Output) -> Result<(), Error> {
    let [passed, absent, failed] = report.counts();
    if out.json {
        return out.json(&json!({
            "passed": passed,
            "absent": absent,
            "failed": failed,
            "took_ms": report.took_ms,
            "cases": report.cases,
            "figures": figures,
        }));
    }
    let rows = report.cases.iter().map(|case| json!(case));
    out.bytes(output::table(&CASES, &rows.collect::<Vec<_>>()).as_bytes())?;
    for case in &report.cases {
        let title = format!("{}: {}", case.group.name(), case.name);
        match &case.outcome {
            Outcome::Passed => {}
            Outcome::Absent { what } => out.line(&format!("absent  {title}: {what}"))?,
            Outcome::Failed { why } => out.line(&format!("FAILED  {title}\n        {why}"))?,
        }
    }
    out.line(&format!(
        "{} cases in {:.1} s: {passed} passed, {absent} absent, {failed} failed",
        report.cases.len(),
        report.took_ms / 1e3
    ))?;
    if !figures.is_empty() {
        let rows = figures.iter().map(|guest| json!(guest));
        let table = output::table(&FIGURES, &rows.collect::<Vec<_>>());
        out.bytes(format!("\n{table}").as_bytes())?;
    }
    Ok(())
}

fn progress(at: usize, of: usize, case: &CaseReport) -> String {
    let outcome = match case.outcome {
        Outcome::Passed => "passed",
        Outcome::Absent { .. } => "absent",
        Outcome::Failed { .. } => "FAILED",
    };
    let title = format!("{}: {}", case.group.name(), case.name);
    format!("{at}/{of} {outcome} {:.0} ms  {title}", case.took_ms)
}

fn guest(path: &Path, component: Bytes) -> Guest {
    Guest {
        name: path.file_stem().map_or_else(
            || path.display().to_string(),
            |name| name.to_string_lossy().into_owned(),
        ),
        component,
        get_and_put: conformance::get_and_put(),
    }
}

/// Options as JSON where they are some, else as text.
fn options(given: &[Assignment]) -> Map<String, Value> {
    let read = |option: &Assignment| {
        let value = serde_json::from_str(&option.value);
        let value = value.unwrap_or_else(|_| Value::String(option.value.clone()));
        (option.name.clone(), value)
    };
    given.iter().map(read).collect()
}

fn shown(guest: &Value, field: &str, unit: f64, digits: usize) -> String {
    let value = guest[field].as_f64();
    value.map_or_else(|| "-".into(), |value| format!("{:.digits$}", value / unit))
}

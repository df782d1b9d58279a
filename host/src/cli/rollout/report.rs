//! How a rollout goes, and how it ended, in words and as JSON.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::output::{self, Column};
use super::wait::Ended;

/// Shards that are listed one by one, at most: those that do not run what they are to run.
const LISTED: usize = 20;

const NODES: [Column; 3] = [
    ("NODE", |node| output::cell(&node["node"])),
    ("CAN RUN IT", |node| output::cell(&node["check"])),
    ("WHY NOT", |node| output::cell(&node["why"])),
];

const SHARDS: [Column; 5] = [
    ("SHARD", |shard| output::cell(&shard["shard"])),
    ("NODE", |shard| output::cell(&shard["node"])),
    ("REVISION", |shard| output::cell(&shard["revision"])),
    ("IS TO RUN", |shard| output::cell(&shard["wanted"])),
    ("PROBLEM", |shard| output::cell(&shard["why"])),
];

/// A rollout in progress, or the last one, for a person.
pub(super) fn status(status: &Value) -> String {
    let mut text = String::new();
    let active = &status["active"];
    if status["rollout"] == 0 {
        text.push_str("nothing was deployed yet: `quarry deploy FILE` does\n");
    } else if active.is_null() {
        let last = &status["last"];
        let why = reason(&last["why"]);
        _ = writeln!(
            text,
            "rollout {} of revision {}: {}{why}",
            last["rollout"],
            last["target"],
            output::cell(&last["outcome"])
        );
    } else {
        let paused = if active["paused"] == true {
            ", paused"
        } else {
            ""
        };
        _ = writeln!(
            text,
            "rollout {} of revision {} by {}: {}{paused}{}",
            status["rollout"],
            active["target"],
            output::cell(&active["by"]),
            output::cell(&active["phase"]),
            reason(&active["why"])
        );
        let percent = active["percent"].as_u64();
        let percent = percent.map(|percent| format!(" of {percent}%"));
        _ = writeln!(
            text,
            "  plan      {}{}, shards: {}",
            output::cell(&active["plan"]),
            percent.unwrap_or_default(),
            output::cell(&active["selection"])
        );
    }
    _ = writeln!(
        text,
        "  revision  {} is stable, {} was before",
        revision(&status["stable"]),
        revision(&status["previous"])
    );
    let Some(shards) = status["shards"].as_array() else {
        text.push_str("  (as the bucket has it; a node tells of its shards, too)\n");
        return text;
    };
    _ = writeln!(
        text,
        "  shards    {} of {} run what they are to run",
        status["adopted"],
        shards.len()
    );
    if let Some(swaps) = swaps(status) {
        _ = writeln!(text, "  swaps     {swaps}");
    }
    for calls in status["calls"].as_array().into_iter().flatten() {
        let slowest = calls["p99_us"]
            .as_u64()
            .map(|us| format!(", p99 {}", ms(us)));
        _ = writeln!(
            text,
            "  calls     by revision {}: {}, {} errors, {} traps{}",
            calls["revision"],
            calls["calls"],
            calls["errors"],
            calls["traps"],
            slowest.unwrap_or_default()
        );
    }
    if let Some(trouble) = status["trouble"].as_str() {
        _ = writeln!(text, "  trouble   {trouble}");
    }
    let nodes: Vec<Value> = status["nodes"].as_array().cloned().unwrap_or_default();
    if !active.is_null() && !nodes.is_empty() {
        text.push('\n');
        text.push_str(&output::table(&NODES, &nodes));
    }
    let open = shards.iter().filter(|shard| shard["adopted"] != true);
    let open: Vec<Value> = open.cloned().collect();
    if !open.is_empty() {
        let shown = &open[..open.len().min(LISTED)];
        text.push('\n');
        text.push_str(&output::table(&SHARDS, shown));
        if open.len() > shown.len() {
            _ = writeln!(text, "and {} more", open.len() - shown.len());
        }
    }
    text
}

/// The end of a rollout as JSON.
pub(super) fn outcome(rollout: u64, ended: &Ended) -> Value {
    let status = &ended.status;
    let target = [&status["active"]["target"], &status["last"]["target"]];
    let target = target.into_iter().find(|target| !target.is_null());
    json!({
        "outcome": ended.end.word(), "rollout": rollout, "revision": target, "why": ended.why,
        "stable": status["stable"], "shards": status["shards"].as_array().map(Vec::len), "adopted": status["adopted"],
        "swaps": status["swaps"], "took_ms": u64::try_from(ended.took.as_millis()).unwrap_or(u64::MAX),
    })
}

/// Every shard runs it.
pub(super) fn adopted(ended: &Ended) -> String {
    let status = &ended.status;
    let revision = &status["last"]["target"];
    let Some(shards) = status["shards"].as_array() else {
        return format!("revision {revision} is adopted by every shard");
    };
    let count = shards.len();
    let swaps = swaps(status);
    let swaps = swaps.map(|swaps| format!(" ({swaps})")).unwrap_or_default();
    format!(
        "revision {revision} is adopted by every shard, {count} of {count}, after {}{swaps}",
        took(ended.took)
    )
}

/// What shards run after a rollout that went back.
pub(super) fn runs(status: &Value) -> String {
    match status["stable"].as_u64() {
        None | Some(0) => "nothing is deployed".into(),
        Some(stable) => format!("every shard runs revision {stable}"),
    }
}

/// Pauses, and the calls that met one.
fn swaps(status: &Value) -> Option<String> {
    let swaps = &status["swaps"];
    let number = |field: &str| swaps[field].as_u64().unwrap_or_default();
    (number("made") > 0).then(|| {
        format!(
            "{} swaps, pause p50 {}, p99 {}, max {}; {} calls waited, {} failed",
            number("made"),
            ms(number("pause_p50_us")),
            ms(number("pause_p99_us")),
            ms(number("pause_max_us")),
            number("calls_parked"),
            number("calls_failed")
        )
    })
}

fn ms(us: u64) -> String {
    format!("{:.1} ms", Duration::from_micros(us).as_secs_f64() * 1000.0)
}

fn took(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{} ms", time.as_millis())
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}

fn revision(number: &Value) -> String {
    match number.as_u64() {
        None | Some(0) => "none".into(),
        Some(number) => number.to_string(),
    }
}

fn reason(why: &Value) -> String {
    match why.as_str() {
        None | Some("") => String::new(),
        Some(why) => format!(" ({why})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::rollout::wait::End;

    fn shown() -> Value {
        json!({
            "counter": 9, "rollout": 3, "stable": 2, "previous": 1,
            "active": {"target": 4, "by": "ann@box", "plan": "canary", "percent": 5, "phase": "rolling", "paused": true, "selection": "first 1", "selected": 1, "why": ""},
            "last": {"rollout": 2, "target": 2, "outcome": "adopted", "why": ""},
            "nodes": [{"node": "a", "check": "fine", "why": null}],
            "shards": [{"shard": 0, "node": "a", "revision": 2, "wanted": 4, "adopted": false, "why": "swaps"}, {"shard": 1, "node": "a", "revision": 2, "wanted": 2, "adopted": true, "why": null}],
            "adopted": 1,
            "swaps": {"made": 2, "pause_p50_us": 400, "pause_p99_us": 900, "pause_max_us": 1500, "calls_parked": 3, "calls_failed": 0},
            "calls": [{"revision": 2, "calls": 10, "errors": 1, "traps": 0, "p99_us": null}],
            "trouble": null,
        })
    }

    #[test]
    fn a_rollout_for_a_person() {
        let expected = "\
rollout 3 of revision 4 by ann@box: rolling, paused
  plan      canary of 5%, shards: first 1
  revision  2 is stable, 1 was before
  shards    1 of 2 run what they are to run
  swaps     2 swaps, pause p50 0.4 ms, p99 0.9 ms, max 1.5 ms; 3 calls waited, 0 failed
  calls     by revision 2: 10, 1 errors, 0 traps

NODE  CAN RUN IT  WHY NOT
a     fine        -

SHARD  NODE  REVISION  IS TO RUN  PROBLEM
0      a     2         4          swaps
";
        assert_eq!(status(&shown()), expected);
        let record = crate::deploy::wire::no_record();
        let fresh = status(&record);
        assert!(fresh.starts_with("nothing was deployed yet"), "{fresh}");
        assert!(fresh.contains("none is stable"), "{fresh}");
    }

    #[test]
    fn an_end_says_shards_pauses_and_calls() {
        let mut status = shown();
        status["active"] = Value::Null;
        let ended = Ended {
            end: End::Adopted,
            why: String::new(),
            status,
            took: Duration::from_millis(1234),
        };
        assert_eq!(
            adopted(&ended),
            "revision 2 is adopted by every shard, 2 of 2, after 1.2 s (2 swaps, pause p50 0.4 ms, p99 0.9 ms, max 1.5 ms; 3 calls waited, 0 failed)"
        );
        let json = outcome(2, &ended);
        assert_eq!(
            (&json["outcome"], &json["revision"]),
            (&"adopted".into(), &2.into())
        );
        assert_eq!(json["swaps"]["calls_failed"], 0);
    }
}

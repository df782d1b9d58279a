//! Waits for the end of a rollout: what each look at it means, and how far it is, shown meanwhile.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;

use super::super::way::Way;
use super::super::{Error, Exit, Output};
use crate::clock;

/// The longest wait for one answer: shards come to run the target without a change of the record.
const LOOK: Duration = Duration::from_millis(300);
/// The pause after an answer that did not come.
const PAUSE: Duration = Duration::from_millis(500);
/// Nodes that are named, at most.
const NAMED: usize = 4;

/// What is wanted of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Goal {
    /// That every shard runs its target.
    Forth,
    /// That none does.
    Back,
}

/// The rollout that is waited for.
#[derive(Debug, Clone)]
pub(in crate::cli) struct Mine {
    /// Its number.
    pub rollout: u64,
    /// Which order began it, where that is known. A number can come again, where the record was lost and begun anew.
    pub order: Option<String>,
}

impl Mine {
    /// Whether a rollout of this number in a status is this one.
    fn is(&self, shown: &Value) -> bool {
        match (&self.order, shown["order"].as_str()) {
            (Some(mine), Some(shown)) => mine == shown,
            _ => true,
        }
    }
}

/// How the wait for a rollout ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum End {
    /// Every shard runs it.
    Adopted,
    /// Every shard runs what it ran before.
    RolledBack,
    /// Not every node can run it; no shard was touched.
    Refused,
    /// It waits for an operator.
    Held,
    /// Another one has begun since.
    Superseded,
    /// The time is up, and it goes on.
    TimedOut,
    /// Ctrl-C, and it goes on.
    Interrupted,
}

/// The end of the wait, why, and how the cluster was then.
#[derive(Debug)]
pub(in crate::cli) struct Ended {
    pub end: End,
    pub why: String,
    pub status: Value,
    pub took: Duration,
}

/// What a look at a rollout says.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Ended(End, String),
    /// It goes on: how far it is in words, and in shards.
    Going(String, u64, u64),
}

impl End {
    /// The exit of the program.
    pub fn exit(self, goal: Goal) -> Exit {
        match self {
            Self::Adopted => Exit::Done,
            Self::RolledBack | Self::Refused if goal == Goal::Back => Exit::Done,
            Self::RolledBack => Exit::RolledBack,
            Self::Refused => Exit::Refused,
            Self::Held => Exit::Begun,
            Self::Superseded => Exit::Superseded,
            Self::TimedOut => Exit::TimedOut,
            Self::Interrupted => Exit::Interrupted,
        }
    }

    /// The word for it in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Adopted => "adopted",
            Self::RolledBack => "rolled-back",
            Self::Refused => "refused",
            Self::Held => "held",
            Self::Superseded => "superseded",
            Self::TimedOut => "timed-out",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Waits until a rollout has ended, is held, or the time is up. An answer that does not come is waited for again: the node may be about to
/// restart, and the others carry the rollout on.
pub(in crate::cli) async fn wait(
    way: &Way,
    mine: &Mine,
    within: Duration,
    goal: Goal,
    out: Output,
) -> Result<Ended, Error> {
    let judge = |status: &Value| judge(status, mine, goal);
    looks(way, Some(within), out, judge, |_| Ok(())).await
}

/// Waits until a rollout has ended, however long it takes, also while it is held. With `--json` each change is told.
pub(in crate::cli) async fn watch(way: &Way, mine: &Mine, out: Output) -> Result<Ended, Error> {
    let judge = |status: &Value| match judge(status, mine, Goal::Forth) {
        Seen::Ended(End::Held, why) => Seen::Going(format!("held: {why}"), 0, 0),
        other => other,
    };
    let tell = |status: &Value| {
        if out.json {
            out.event(status)?;
        }
        Ok(())
    };
    looks(way, None, out, judge, tell).await
}

async fn looks(
    way: &Way,
    within: Option<Duration>,
    out: Output,
    judge: impl Fn(&Value) -> Seen,
    tell: impl Fn(&Value) -> Result<(), Error>,
) -> Result<Ended, Error> {
    let begun = clock::now();
    let mut progress = Progress::new(out);
    let (mut counter, mut status, mut said) = (u64::MAX, Value::Null, String::new());
    let mut told = None;
    let signal = tokio::signal::ctrl_c();
    tokio::pin!(signal);
    let (end, why) = loop {
        let look = async {
            // The first answer is that of now.
            let wait = if counter == u64::MAX {
                Duration::ZERO
            } else {
                LOOK
            };
            way.changed(counter, wait).await
        };
        let answer = tokio::select! {
            biased;
            _ = &mut signal => break (End::Interrupted, said),
            answer = look => answer,
        };
        match answer {
            Ok(found) => {
                counter = found["counter"].as_u64().unwrap_or_default();
                status = found;
                let key = (counter, status["adopted"].as_u64());
                if told.replace(key) != Some(key) {
                    tell(&status)?;
                }
                match judge(&status) {
                    Seen::Ended(end, why) => break (end, why),
                    Seen::Going(text, done, all) => {
                        progress.show(&text, done, all);
                        said = text;
                    }
                }
            }
            Err(error) if passes(&error) => {
                said = error.to_string();
                progress.show(&said, 0, 0);
                tokio::select! {
                    biased;
                    _ = &mut signal => break (End::Interrupted, said),
                    () = tokio::time::sleep(PAUSE) => {}
                }
            }
            Err(error) => return Err(error),
        }
        let waited = clock::now().saturating_duration_since(begun);
        if within.is_some_and(|within| waited >= within) {
            break (End::TimedOut, said);
        }
    };
    progress.finish();
    let took = clock::now().saturating_duration_since(begun);
    Ok(Ended {
        end,
        why,
        status,
        took,
    })
}

/// Whether a look that failed is to be made again.
fn passes(error: &Error) -> bool {
    match error {
        Error::Unreachable(_) => true,
        Error::Refused(crate::client::Error::Refused(refusal)) => refusal.retryable,
        Error::Refused(error) => error.is_connection(),
        Error::Deploy(error) => error.is_transient(),
        _ => false,
    }
}

/// What the state of the cluster says of a rollout.
fn judge(status: &Value, mine: &Mine, goal: Goal) -> Seen {
    let rollout = mine.rollout;
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let newest = number(&status["rollout"]);
    let (last, active) = (&status["last"], &status["active"]);
    let taken = |shown: &Value| {
        let by = shown["by"].as_str().unwrap_or("another order");
        let why = format!(
            "the number {rollout} is that of another rollout ({by}): the record was begun anew"
        );
        Seen::Ended(End::Superseded, why)
    };
    if number(&last["rollout"]) == rollout {
        if !mine.is(last) {
            return taken(last);
        }
        let why = last["why"].as_str().unwrap_or_default().to_owned();
        let end = match last["outcome"].as_str() {
            Some("adopted") => End::Adopted,
            Some("refused") => End::Refused,
            Some("superseded") => End::Superseded,
            _ => End::RolledBack,
        };
        return Seen::Ended(end, why);
    }
    if newest > rollout {
        let why = format!("rollout {newest} has begun since");
        return Seen::Ended(End::Superseded, why);
    }
    if newest < rollout || active.is_null() {
        return Seen::Going("the node has not seen it yet".into(), 0, 0);
    }
    if !mine.is(active) {
        return taken(active);
    }
    let target = number(&active["target"]);
    let selected = number(&active["selected"]);
    let shards = status["shards"].as_array().map_or(&[][..], Vec::as_slice);
    let run = |shard: &&Value| shard["adopted"] == true && number(&shard["revision"]) == target;
    let there = shards.iter().filter(run).count() as u64;
    let all = shards.len() as u64;
    let paused = if active["paused"] == true {
        ", paused by an operator"
    } else {
        ""
    };
    match active["phase"].as_str() {
        Some("checking") => {
            let open = waited_for(status);
            let text = format!("every node checks revision {target}{paused}{open}");
            Seen::Going(text, 0, all)
        }
        Some("held") if goal == Goal::Forth => {
            let what = active["selection"].as_str().unwrap_or("some");
            let why = format!("{selected} of {all} shards ({what}) run revision {target}");
            Seen::Ended(End::Held, why)
        }
        Some("back") => {
            let why = active["why"].as_str().unwrap_or_default();
            let left = shards
                .iter()
                .filter(|shard| number(&shard["revision"]) == target);
            let left = left.count() as u64;
            let text = format!("going back ({why}): {left} shards run revision {target} yet");
            Seen::Going(text, all.saturating_sub(left), all)
        }
        _ => {
            let text =
                format!("{there} of {all} shards run revision {target}, {selected} are to{paused}");
            Seen::Going(text, there, all)
        }
    }
}

/// The nodes that have not said that they can run it.
fn waited_for(status: &Value) -> String {
    let nodes = status["nodes"].as_array().into_iter().flatten();
    let open: Vec<&str> = nodes
        .filter(|node| node["check"] != "fine")
        .filter_map(|node| node["node"].as_str())
        .collect();
    match open.len() {
        0 => String::new(),
        count if count > NAMED => format!(", {count} nodes are not ready yet"),
        _ => format!(", not ready yet: {}", open.join(", ")),
    }
}

/// How far it is: a bar for a person who watches, a line for each change otherwise.
struct Progress {
    bar: Option<ProgressBar>,
    out: Output,
    said: String,
}

impl Progress {
    fn new(out: Output) -> Self {
        let watched = !out.json && std::io::stderr().is_terminal();
        let bar = watched.then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
            let style = ProgressStyle::with_template("{bar:32} {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Self {
            bar,
            out,
            said: String::new(),
        }
    }

    fn show(&mut self, text: &str, done: u64, all: u64) {
        if let Some(bar) = &self.bar {
            if all > 0 {
                bar.set_length(all);
                bar.set_position(done);
            }
            bar.set_message(text.to_owned());
            bar.tick();
            return;
        }
        if text != self.said && !self.out.json {
            self.out.note(text);
        }
        text.clone_into(&mut self.said);
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What somebody waits for who does not know by which order it began.
    fn any(rollout: u64) -> Mine {
        Mine {
            rollout,
            order: None,
        }
    }

    /// Two orders of one person are told apart, also under one number.
    #[test]
    fn a_rollout_is_mine_by_its_order() {
        let shown = |active: bool| {
            let mut status = status("rolling", false);
            status["active"]["order"] = json!("aa");
            if !active {
                status["active"] = Value::Null;
                status["last"] = json!({"rollout": 3, "target": 2, "order": "aa", "outcome": "adopted", "why": ""});
            }
            status
        };
        for active in [true, false] {
            let judged = |order: Option<&str>| {
                let order = order.map(str::to_owned);
                judge(&shown(active), &Mine { rollout: 3, order }, Goal::Forth)
            };
            match judged(Some("bb")) {
                Seen::Ended(End::Superseded, why) => assert!(why.contains("another"), "{why}"),
                other => panic!("{active}: {other:?}"),
            }
            for mine in [Some("aa"), None] {
                let seen = judged(mine);
                let fits = match active {
                    true => matches!(seen, Seen::Going(..)),
                    false => matches!(seen, Seen::Ended(End::Adopted, _)),
                };
                assert!(fits, "{mine:?}: {seen:?}");
            }
        }
    }

    fn status(phase: &str, paused: bool) -> Value {
        json!({
            "counter": 7, "rollout": 3, "stable": 1, "previous": 0,
            "active": {"target": 2, "phase": phase, "paused": paused, "selection": "first 1", "selected": 1, "why": "it trapped"},
            "last": {"rollout": 2, "target": 1, "outcome": "adopted", "why": ""},
            "nodes": [{"node": "a", "check": "fine"}, {"node": "b", "check": "busy"}],
            "shards": [{"shard": 0, "revision": 2, "adopted": true}, {"shard": 1, "revision": 1, "adopted": true}],
        })
    }

    #[test]
    fn a_look_says_how_far_it_is() {
        for (phase, paused, says, done) in [
            (
                "checking",
                false,
                "every node checks revision 2, not ready yet: b",
                0,
            ),
            (
                "rolling",
                false,
                "1 of 2 shards run revision 2, 1 are to",
                1,
            ),
            ("rolling", true, "paused by an operator", 1),
            (
                "back",
                false,
                "going back (it trapped): 1 shards run revision 2 yet",
                1,
            ),
        ] {
            match judge(&status(phase, paused), &any(3), Goal::Forth) {
                Seen::Going(text, is, all) => {
                    assert!(text.contains(says), "{text}");
                    assert_eq!((is, all), (done, 2), "{phase}");
                }
                other => panic!("{phase}: {other:?}"),
            }
        }
        let unseen = judge(&status("rolling", false), &any(4), Goal::Forth);
        assert!(matches!(unseen, Seen::Going(..)), "{unseen:?}");
    }

    #[test]
    fn each_end_has_an_exit_of_its_own() {
        let ended = |outcome: &str| {
            let mut status = status("rolling", false);
            status["active"] = Value::Null;
            status["last"] =
                json!({"rollout": 3, "target": 2, "outcome": outcome, "why": "because"});
            status
        };
        for (status, rollout, goal, end, exit) in [
            (ended("adopted"), 3, Goal::Forth, End::Adopted, Exit::Done),
            (
                ended("rolled-back"),
                3,
                Goal::Forth,
                End::RolledBack,
                Exit::RolledBack,
            ),
            (
                ended("rolled-back"),
                3,
                Goal::Back,
                End::RolledBack,
                Exit::Done,
            ),
            (
                ended("superseded"),
                3,
                Goal::Forth,
                End::Superseded,
                Exit::Superseded,
            ),
            (
                ended("refused"),
                3,
                Goal::Forth,
                End::Refused,
                Exit::Refused,
            ),
            (ended("refused"), 3, Goal::Back, End::Refused, Exit::Done),
            (
                status("held", false),
                3,
                Goal::Forth,
                End::Held,
                Exit::Begun,
            ),
            (
                status("rolling", false),
                1,
                Goal::Forth,
                End::Superseded,
                Exit::Superseded,
            ),
        ] {
            match judge(&status, &any(rollout), goal) {
                Seen::Ended(is, _) => assert_eq!((is, is.exit(goal)), (end, exit)),
                going => panic!("{end:?}: {going:?}"),
            }
        }
        for (end, exit) in [
            (End::TimedOut, Exit::TimedOut),
            (End::Interrupted, Exit::Interrupted),
        ] {
            assert_eq!(end.exit(Goal::Forth), exit);
        }
        let held = judge(&status("held", false), &any(3), Goal::Back);
        assert!(matches!(held, Seen::Going(..)), "{held:?}");
    }
}

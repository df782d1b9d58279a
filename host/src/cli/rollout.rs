//! `quarry rollout` and `quarry rollback`: how a rollout goes, and what an operator wants of it.

use std::time::Duration;

use serde_json::{Value, json};

use super::args::{Await, Rollback, RolloutVerb};
use super::way::{Step, Way, interruptible, who};
use super::{Error, Exit, Output};
use crate::config::units::Span;
use crate::deploy::wire::OrderBody;

mod report;
pub(super) mod wait;

use wait::{End, Ended, Goal};

/// How long the end of a rollout is waited for, where nobody says.
const PATIENCE: Duration = Duration::from_secs(600);

/// Goes back.
pub(super) async fn back(args: &Rollback, out: Output) -> Result<Exit, Error> {
    let order = OrderBody {
        target: args.revision,
        back: args.revision.is_none(),
        by: who(),
        ..OrderBody::default()
    };
    let (way, ordered) = interruptible(async {
        let way = Way::open(&args.place).await?;
        let ordered = way.order(order).await?;
        Ok((way, ordered))
    })
    .await?;
    // Without a number, what is in progress is taken back instead.
    let goal = if ordered["outcome"] == "running" && args.revision.is_none() {
        Goal::Back
    } else {
        Goal::Forth
    };
    follow(&way, &ordered, args.wait, goal, out).await
}

/// Shows, or orders.
pub(super) async fn run(verb: RolloutVerb, out: Output) -> Result<Exit, Error> {
    match verb {
        RolloutVerb::Status { watch, place } => {
            let way = interruptible(Way::open(&place)).await?;
            if watch {
                return watched(&way, out).await;
            }
            let status = interruptible(way.status()).await?;
            if out.json {
                out.json(&status)?;
            } else {
                out.bytes(report::status(&status).as_bytes())?;
            }
            Ok(Exit::Done)
        }
        RolloutVerb::Promote { wait, place } => {
            let (way, ordered) = step(&place, Step::Promote).await?;
            follow(&way, &ordered, wait, Goal::Forth, out).await
        }
        RolloutVerb::Abort { wait, place } => {
            let (way, ordered) = step(&place, Step::Abort(who())).await?;
            follow(&way, &ordered, wait, Goal::Back, out).await
        }
        RolloutVerb::Pause { place } => {
            let (_, ordered) = step(&place, Step::Pause).await?;
            let text = "is paused: it reaches no further shard until `quarry rollout resume`";
            done(&ordered, text, out)
        }
        RolloutVerb::Resume { place } => {
            let (_, ordered) = step(&place, Step::Resume).await?;
            done(&ordered, "goes on", out)
        }
    }
}

/// Gives an order to the rollout in progress.
async fn step(place: &super::args::Where, step: Step) -> Result<(Way, Value), Error> {
    interruptible(async {
        let way = Way::open(place).await?;
        let rollout = way.step(step).await?;
        let ordered = json!({"outcome": "ordered", "rollout": rollout});
        Ok((way, ordered))
    })
    .await
}

fn done(ordered: &Value, text: &str, out: Output) -> Result<Exit, Error> {
    if out.json {
        out.json(ordered)?;
    } else {
        out.note(&format!("rollout {} {text}", ordered["rollout"]));
    }
    Ok(Exit::Done)
}

/// Waits for the end of what was ordered, as far as it is to be waited for, and tells it.
pub(super) async fn follow(
    way: &Way,
    ordered: &Value,
    wait: Await,
    goal: Goal,
    out: Output,
) -> Result<Exit, Error> {
    if ordered["outcome"] == "unchanged" {
        if out.json {
            out.json(ordered)?;
        } else {
            let revision = &ordered["revision"];
            out.note(&format!(
                "nothing to do: every shard is to run just this already, as revision {revision}"
            ));
        }
        return Ok(Exit::Done);
    }
    let rollout = ordered["rollout"].as_u64().unwrap_or_default();
    let within = match wait.timeout {
        Some(Span(within)) => within,
        None if way.has_node() => PATIENCE,
        None => Duration::ZERO,
    };
    if wait.no_wait || within.is_zero() {
        return begun(ordered, rollout, way, out);
    }
    let mine = wait::Mine {
        rollout,
        order: ordered["order"].as_str().map(str::to_owned),
    };
    let ended = wait::wait(way, &mine, within, goal, out).await?;
    tell(rollout, &ended, goal, within, out)?;
    Ok(ended.end.exit(goal))
}

fn begun(ordered: &Value, rollout: u64, way: &Way, out: Output) -> Result<Exit, Error> {
    if out.json {
        out.json(ordered)?;
        return Ok(Exit::Begun);
    }
    let who = if way.has_node() {
        "the nodes carry it out"
    } else {
        "the nodes carry it out as soon as they run"
    };
    out.note(&format!(
        "rollout {rollout} is ordered, and {who}: `quarry rollout status --watch` shows it"
    ));
    Ok(Exit::Begun)
}

/// Tells how a rollout ended, or how far it came.
fn tell(
    rollout: u64,
    ended: &Ended,
    goal: Goal,
    within: Duration,
    out: Output,
) -> Result<(), Error> {
    if out.json {
        return out.json(&report::outcome(rollout, ended));
    }
    let status = &ended.status;
    let why = ended.why.as_str();
    let text = match ended.end {
        End::Adopted => report::adopted(ended),
        End::RolledBack if goal == Goal::Back => {
            format!("rollout {rollout} has gone back: {}", report::runs(status))
        }
        End::RolledBack => format!(
            "rollout {rollout} was rolled back: {why}; {}",
            report::runs(status)
        ),
        End::Refused if goal == Goal::Back => {
            format!("rollout {rollout} has ended before any shard was touched: {why}")
        }
        End::Refused => format!("refused, before any shard was touched: {why}"),
        End::Held => format!(
            "rollout {rollout} is held: {why}; `quarry rollout promote` has the rest follow, `quarry rollout abort` takes it back"
        ),
        End::Superseded => {
            format!("rollout {rollout} was superseded: {why}")
        }
        End::TimedOut => format!(
            "rollout {rollout} is not done after {}, and goes on: {why}",
            Span(within)
        ),
        End::Interrupted => format!(
            "interrupted; rollout {rollout} goes on ({why}): `quarry rollout status --watch` shows it, `quarry rollout abort` takes it back"
        ),
    };
    out.note(&text);
    Ok(())
}

/// Shows a rollout until it ends.
async fn watched(way: &Way, out: Output) -> Result<Exit, Error> {
    let status = interruptible(way.status()).await?;
    if status["active"].is_null() {
        if out.json {
            out.event(&status)?;
        } else {
            out.bytes(report::status(&status).as_bytes())?;
        }
        return Ok(Exit::Done);
    }
    let rollout = status["rollout"].as_u64().unwrap_or_default();
    let forever = Duration::MAX;
    let mine = wait::Mine {
        rollout,
        order: status["active"]["order"].as_str().map(str::to_owned),
    };
    let ended = wait::watch(way, &mine, out).await?;
    if out.json {
        out.event(&report::outcome(rollout, &ended))?;
    } else {
        tell(rollout, &ended, Goal::Forth, forever, out)?;
    }
    Ok(ended.end.exit(Goal::Forth))
}

//! What an operator may want of rollouts, as a change of the record.

use super::record::{Active, Ended, Gates, Outcome, Phase, Plan, RolloutRecord};
use super::selection::Selection;
use crate::lease::record::Nonce;

/// What an operator wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Roll a revision out. To go back to an older one is the same. One that goes back does not stand in the way.
    Deploy {
        /// The revision, which is in the bucket.
        target: u64,
        /// Who wants it.
        by: String,
        /// Which order it is of all that anybody gives: a number of its own.
        order: Nonce,
        /// How.
        plan: Plan,
        /// The shards that go first; none unless the plan is [`Plan::Chosen`].
        first: Selection,
        /// What stops it.
        gates: Gates,
        /// How long a step may take, in milliseconds.
        step_timeout_ms: u64,
        /// How long each step is watched before the next, in milliseconds.
        bake_ms: u64,
    },
    /// The rest of a canary may follow.
    Promote,
    /// Reach no further shard for now.
    Pause,
    /// Go on.
    Resume,
    /// Go back.
    Abort {
        /// Who wants it.
        by: String,
    },
}

/// Why a command was refused. The record stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Another rollout is in progress.
    #[error(
        "rollout {number}, of revision {target} by {by}, is in progress: wait for its end, or abort it"
    )]
    Busy {
        /// Its number.
        number: u64,
        /// Its revision.
        target: u64,
        /// Who ordered it.
        by: String,
    },
    /// Every shard runs it already.
    #[error("revision {revision} is what every shard runs")]
    Same {
        /// The revision.
        revision: u64,
    },
    /// There is no rollout in progress.
    #[error("no rollout is in progress")]
    Idle,
    /// It waits for nobody.
    #[error("rollout {number} is not held: it is {}", progress(*.phase))]
    NotHeld {
        /// Its number.
        number: u64,
        /// How far it is.
        phase: Phase,
    },
    /// It goes back already.
    #[error("rollout {number} goes back already: {why}")]
    GoesBack {
        /// Its number.
        number: u64,
        /// Why.
        why: String,
    },
    /// Nothing was chosen.
    #[error("no shard is chosen to go first: name some, such as 0-3")]
    NothingChosen,
}

fn progress(phase: Phase) -> &'static str {
    match phase {
        Phase::Checking => "checking its revision on every node",
        Phase::Rolling => "rolling",
        Phase::Held => "held",
        Phase::Back => "going back",
    }
}

/// The record after a command. Whoever writes it gives it the next counter and a nonce.
///
/// # Errors
/// When it makes no sense now.
pub fn command(record: &RolloutRecord, command: Command) -> Result<RolloutRecord, Refused> {
    let mut next = record.clone();
    if let Command::Deploy {
        target,
        by,
        order,
        plan,
        first,
        gates,
        step_timeout_ms,
        bake_ms,
    } = command
    {
        match &record.active {
            // What runs before may not start any more: then there is no way back, and a way on is all that is left.
            Some(active) if active.phase == Phase::Back && target != record.stable => {
                next.last = Some(Ended {
                    number: record.number,
                    target: active.target,
                    order: active.order,
                    outcome: Outcome::Superseded,
                    why: format!(
                        "{}; before every shard had gone back, rollout {} by {by} began",
                        active.why,
                        record.number + 1
                    ),
                });
            }
            Some(active) if active.phase == Phase::Back => {
                return Err(Refused::GoesBack {
                    number: record.number,
                    why: active.why.clone(),
                });
            }
            Some(active) => {
                return Err(Refused::Busy {
                    number: record.number,
                    target: active.target,
                    by: active.by.clone(),
                });
            }
            None => {}
        }
        if target == record.stable {
            return Err(Refused::Same { revision: target });
        }
        if plan == Plan::Chosen && first == Selection::None {
            return Err(Refused::NothingChosen);
        }
        next.number += 1;
        next.active = Some(Active {
            target,
            by,
            order,
            // Where nothing runs yet, there is nothing to be careful of, and nothing to go back to.
            plan: if record.stable == 0 { Plan::All } else { plan },
            gates,
            step_timeout_ms,
            bake_ms,
            phase: Phase::Checking,
            paused: false,
            // Of a choice only: kept here until the check has ended.
            selection: if plan == Plan::Chosen && record.stable != 0 {
                first
            } else {
                Selection::None
            },
            why: String::new(),
        });
        return Ok(next);
    }
    let number = record.number;
    let active = next.active.as_mut().ok_or(Refused::Idle)?;
    if active.phase == Phase::Back {
        let why = active.why.clone();
        return Err(Refused::GoesBack { number, why });
    }
    match command {
        Command::Promote => {
            if active.phase != Phase::Held {
                let phase = active.phase;
                return Err(Refused::NotHeld { number, phase });
            }
            active.phase = Phase::Rolling;
            active.selection = Selection::All;
            active.plan = Plan::All;
            active.paused = false;
        }
        Command::Pause => active.paused = true,
        Command::Resume => active.paused = false,
        Command::Abort { by } => {
            active.phase = Phase::Back;
            active.selection = Selection::None;
            active.why = format!("aborted by {by}");
        }
        Command::Deploy { .. } => {}
    }
    Ok(next)
}

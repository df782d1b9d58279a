//! What a runner has of each shard.

use super::event::{ClosedWhy, StopReason};
use crate::backoff::Backoff;
use crate::lease::record::NodeName;
use crate::strategy::DownReason;
use crate::time::Moment;

/// What a runner has of a shard.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) open: Open,
    pub(super) state: State,
    /// It was cut off: nothing revives it.
    pub(super) fenced: bool,
    /// The loop wants it to stop, once its open has come through.
    pub(super) stop: Option<Stop>,
    /// What is to be opened when this has closed.
    pub(super) next: Option<Open>,
    pub(super) backoff: Backoff,
    pub(super) failures: u32,
}

/// An open as the loop wants it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Open {
    pub(super) generation: u64,
    pub(super) writer_epoch: Option<u64>,
    pub(super) deadline: Moment,
}

#[derive(Debug, Clone)]
pub(super) struct Stop {
    pub(super) reason: StopReason,
    pub(super) successor: Option<NodeName>,
}

#[derive(Debug)]
pub(super) enum State {
    /// It waits for its turn.
    Queued,
    /// It waits for the end of a pause.
    Pausing {
        until: Moment,
    },
    Opening,
    Running {
        since: Moment,
    },
    Closing {
        then: Then,
    },
}

/// What follows a close.
#[derive(Debug, Clone)]
pub(super) enum Then {
    /// Nothing: the loop is told.
    Finish(ClosedWhy),
    /// The strategy decides.
    Ask { reason: DownReason, since: Moment },
}

//! What becomes of a shard that went down, with the `local` strategy: all shards are here, and each is opened again after a pause.

use std::time::Duration;

use crate::backoff::Backoff;

/// Why a shard's database is no longer open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DownReason {
    /// It was closed on purpose.
    Stopped,
    /// Another writer opened it.
    Fenced,
    /// Its lease was lost.
    Lost,
    /// It failed, or could not be opened.
    Crashed,
}

/// What to do about a shard that went down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Leave it closed.
    StayDown,
    /// Open it again after a pause.
    Reopen(Duration),
}

/// The `local` strategy's answer. `uptime` is how long the shard ran, `random` is from 0 to 1.
///
/// A fence means that a second process opened the same data. To take it back at once would make the two fence each other for ever, so a
/// fence counts as a failure like any other, and the pauses grow.
pub fn local(reason: &DownReason, backoff: &mut Backoff, uptime: Duration, random: f64) -> Next {
    match reason {
        DownReason::Stopped => Next::StayDown,
        DownReason::Fenced | DownReason::Lost | DownReason::Crashed => {
            Next::Reopen(backoff.failed(uptime, random))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_reopened_unless_it_was_stopped() {
        for (reason, next) in [
            (DownReason::Stopped, Next::StayDown),
            (DownReason::Fenced, Next::Reopen(Duration::from_secs(1))),
            (DownReason::Lost, Next::Reopen(Duration::from_secs(1))),
            (DownReason::Crashed, Next::Reopen(Duration::from_secs(1))),
        ] {
            assert_eq!(
                local(&reason, &mut Backoff::default(), Duration::ZERO, 1.0),
                next,
                "{reason:?}"
            );
        }
    }
}

//! The turn of a swap at its shard, which it waits for while a call, a timer or durable tags are in progress: `limits.drain`.
//!
//! Nothing in progress is cut short for a swap. Whoever ordered it keeps the time, on a thread of its own: native logic may block that of the
//! shard. Either the shard takes the turn or the other one gives it up, and each sees what the other did first.

use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::clock;

/// See the module. Both sides have it.
#[derive(Debug)]
pub(crate) struct Turn(watch::Sender<State>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The swap waits since then, or goes on by itself until then.
    Due(Instant),
    /// The shard works at it.
    Taken,
    GivenUp,
}

impl Turn {
    /// The turn of a swap that is ordered now.
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(State::Due(clock::now())))
    }

    /// The swap needs the shard again, from `at` on.
    pub(super) fn due(&self, at: Instant) {
        self.0.send_if_modified(|state| {
            let on = *state != State::GivenUp;
            if on {
                *state = State::Due(at);
            }
            on
        });
    }

    /// The shard has come to it; false where it was given up before.
    pub(super) fn take(&self) -> bool {
        let mut taken = false;
        self.0.send_if_modified(|state| {
            taken = *state != State::GivenUp;
            if taken {
                *state = State::Taken;
            }
            taken
        });
        taken
    }

    /// Waits until the shard has let the swap wait for longer than `within`, and gives up its turn. While `excused` says so the shard does
    /// something that has a limit of its own, and is given that time besides, `more`, once. Safe to drop.
    pub(crate) async fn overdue(
        &self,
        within: Duration,
        excused: impl Fn() -> bool,
        more: Duration,
    ) {
        let mut seen = self.0.subscribe();
        let mut besides = Duration::ZERO;
        loop {
            let state = *seen.borrow_and_update();
            let State::Due(since) = state else {
                if seen.changed().await.is_err() {
                    return;
                }
                continue;
            };
            let end = since + within + besides;
            if clock::now() < end {
                tokio::select! {
                    // The other end is this very turn.
                    _ = seen.changed() => {}
                    () = clock::sleep_until(end) => {}
                }
                continue;
            }
            if besides.is_zero() && !more.is_zero() && excused() {
                besides = more;
                continue;
            }
            let given_up = self.0.send_if_modified(|now| {
                let still = *now == state;
                if still {
                    *now = State::GivenUp;
                }
                still
            });
            if given_up {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHIN: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(3600);

    async fn soon(wait: impl Future<Output = ()>) {
        let limit = Duration::from_secs(30);
        tokio::time::timeout(limit, wait).await.expect("in time");
    }

    #[tokio::test]
    async fn a_turn_that_does_not_come_is_given_up_and_not_taken_any_more() {
        let turn = Turn::new();
        let begun = clock::now();
        soon(turn.overdue(WITHIN, || false, LONG)).await;
        assert!(clock::now().saturating_duration_since(begun) >= WITHIN);
        assert!(!turn.take(), "it was given up");
        turn.due(clock::now());
        assert!(!turn.take(), "and stays so");
    }

    #[tokio::test]
    async fn a_turn_that_was_taken_is_not_given_up() {
        let turn = Turn::new();
        assert!(turn.take());
        tokio::select! {
            () = turn.overdue(Duration::ZERO, || false, LONG) => panic!("it was taken"),
            () = clock::sleep(WITHIN) => {}
        }
        // It waits again: from then on, not from when it was ordered.
        let again = clock::now() + WITHIN;
        turn.due(again);
        soon(turn.overdue(WITHIN, || false, LONG)).await;
        assert!(clock::now() >= again + WITHIN);
        assert!(!turn.take());
    }

    #[tokio::test]
    async fn what_has_a_limit_of_its_own_is_waited_for_once() {
        let turn = Turn::new();
        let begun = clock::now();
        soon(turn.overdue(WITHIN, || true, WITHIN * 2)).await;
        assert!(clock::now().saturating_duration_since(begun) >= WITHIN * 3);
        assert!(!turn.take());
    }
}

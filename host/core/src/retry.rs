//! Whether a call that failed may be made again (promise P5): only when it is sure that nothing ran.

use std::time::Duration;

/// The rules of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Further attempts after the first.
    pub retries: u32,
    /// The pause before the first of them; before the n-th it is n times as long.
    pub delay: Duration,
}

/// What is known of an attempt that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failed {
    /// It was never sent: there is no owner, or it could not be reached.
    NeverSent,
    /// It was refused before anything ran: not the owner.
    Refused,
    /// It was sent; it may have run.
    Sent,
    /// It makes no sense to send it again.
    Final,
}

/// The pause before the next attempt; none when there is to be none. `attempt` counts from 1 for the first that failed, `left` is
/// what is left of the caller's time, `random` is from 0 to 1 and moves the pause by up to a quarter either way.
#[must_use]
pub fn next(
    policy: Policy,
    attempt: u32,
    failed: Failed,
    left: Duration,
    random: f64,
) -> Option<Duration> {
    if matches!(failed, Failed::Sent | Failed::Final) || attempt > policy.retries {
        return None;
    }
    let pause = policy
        .delay
        .saturating_mul(attempt)
        .mul_f64(0.75 + random.clamp(0.0, 1.0) / 2.0);
    (pause < left).then_some(pause)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: Policy = Policy {
        retries: 3,
        delay: Duration::from_millis(100),
    };

    #[test]
    fn only_what_never_ran_is_made_again() {
        let long = Duration::from_secs(30);
        for (attempt, failed, left, random, pause) in [
            (1, Failed::NeverSent, long, 0.5, Some(100)),
            (2, Failed::Refused, long, 0.5, Some(200)),
            (3, Failed::NeverSent, long, 0.5, Some(300)),
            (4, Failed::NeverSent, long, 0.5, None),
            (1, Failed::NeverSent, long, 0.0, Some(75)),
            (1, Failed::NeverSent, long, 1.0, Some(125)),
            (1, Failed::Sent, long, 0.5, None),
            (1, Failed::Final, long, 0.5, None),
            (1, Failed::NeverSent, Duration::from_millis(100), 0.5, None),
        ] {
            let next = next(POLICY, attempt, failed, left, random).map(|pause| pause.as_millis());
            assert_eq!(next, pause, "{attempt} {failed:?} {left:?} {random}");
        }
    }
}

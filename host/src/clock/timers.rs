//! Waiting: Tokio's timers, or those of a driven clock. A future keeps the clock of the thread that made it.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use pin_project_lite::pin_project;

use super::driven;

/// The time of a [`timeout`] is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it took longer than it may")]
pub struct Elapsed;

/// Waits for so long. Safe to drop.
pub fn sleep(time: Duration) -> Sleep {
    Sleep {
        timer: match driven::here() {
            None => Timer::Machine {
                sleep: tokio::time::sleep(time),
            },
            Some(clock) => Timer::Driven {
                alarm: clock.alarm_in(time),
            },
        },
    }
}

/// Waits until a moment. Safe to drop.
pub fn sleep_until(moment: Instant) -> Sleep {
    Sleep {
        timer: match driven::here() {
            None => Timer::Machine {
                sleep: tokio::time::sleep_until(moment.into()),
            },
            Some(clock) => Timer::Driven {
                alarm: clock.alarm(moment),
            },
        },
    }
}

/// Waits for a future, at most for so long; then it is dropped.
pub fn timeout<F: IntoFuture>(time: Duration, future: F) -> Timeout<F::IntoFuture> {
    Timeout {
        limited: match driven::here() {
            None => Limited::Machine {
                timeout: tokio::time::timeout(time, future),
            },
            Some(clock) => Limited::Driven {
                future: future.into_future(),
                alarm: clock.alarm_in(time),
            },
        },
    }
}

/// Waits for a future, at most until a moment; then it is dropped.
pub fn timeout_at<F: IntoFuture>(moment: Instant, future: F) -> Timeout<F::IntoFuture> {
    Timeout {
        limited: match driven::here() {
            None => Limited::Machine {
                timeout: tokio::time::timeout_at(moment.into(), future),
            },
            Some(clock) => Limited::Driven {
                future: future.into_future(),
                alarm: clock.alarm(moment),
            },
        },
    }
}

pin_project! {
    /// See [`sleep`].
    #[must_use = "futures do nothing unless they are awaited"]
    #[derive(Debug)]
    pub struct Sleep {
        #[pin]
        timer: Timer,
    }
}

pin_project! {
    #[project = OnTimer]
    #[derive(Debug)]
    enum Timer {
        Machine {
            #[pin]
            sleep: tokio::time::Sleep,
        },
        Driven { alarm: driven::Alarm },
    }
}

impl Sleep {
    /// The moment that it waits for.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        match &self.timer {
            Timer::Machine { sleep } => sleep.deadline().into(),
            Timer::Driven { alarm } => alarm.moment(),
        }
    }

    /// Waits until another moment instead.
    pub fn reset(self: Pin<&mut Self>, moment: Instant) {
        match self.project().timer.project() {
            OnTimer::Machine { sleep } => sleep.reset(moment.into()),
            OnTimer::Driven { alarm } => alarm.reset(moment),
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match self.project().timer.project() {
            OnTimer::Machine { sleep } => sleep.poll(context),
            OnTimer::Driven { alarm } => alarm.poll(context),
        }
    }
}

pin_project! {
    /// See [`timeout`].
    #[must_use = "futures do nothing unless they are awaited"]
    #[derive(Debug)]
    pub struct Timeout<F> {
        #[pin]
        limited: Limited<F>,
    }
}

pin_project! {
    #[project = OnLimited]
    #[derive(Debug)]
    enum Limited<F> {
        Machine {
            #[pin]
            timeout: tokio::time::Timeout<F>,
        },
        Driven {
            #[pin]
            future: F,
            alarm: driven::Alarm,
        },
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().limited.project() {
            OnLimited::Machine { timeout } => {
                timeout.poll(context).map(|done| done.map_err(|_| Elapsed))
            }
            OnLimited::Driven { future, alarm } => match future.poll(context) {
                Poll::Ready(output) => Poll::Ready(Ok(output)),
                Poll::Pending => alarm.poll(context).map(|()| Err(Elapsed)),
            },
        }
    }
}

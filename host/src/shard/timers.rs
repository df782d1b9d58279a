//! Timers of a shard: one that is due fires between two calls, on the shard's thread, as a call would run.
//!
//! They fire where calls run: not while the guest starts or is quarantined, not after the shard began to stop or was fenced, and not past the
//! deadline of its lease. Between the steps of a migration they fire in the older revision. Its last step and the taking over are one, so that
//! the next timer fires in the new one, perhaps before the first call.
//!
//! Timers that are due and calls take turns, so that neither can keep the other waiting. A shard whose guest takes no timers pays one
//! look at a flag for them.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use quarry_core::timers::Failure as Kind;
use tokio::sync::mpsc;

use super::Call;
use super::task::{Guest, Shard};
use crate::guest::timers::{Due, Schedule};
use crate::guest::{Failure, ShardStatus};

/// When it is looked again whether timers may fire, after they might not: what keeps them is the end of the shard, which is on its way.
const PUT_OFF: Duration = Duration::from_secs(1);

/// What the guest is to run next.
#[expect(
    clippy::large_enum_variant,
    reason = "it lives for a moment, once a call: a box would cost more"
)]
pub(super) enum Work {
    Call(Call),
    Fire,
}

impl Work {
    /// Waits for a call or, where `fires`, for a timer; `calls_first` where both are there. Safe to drop. It never comes
    /// to an end once no more calls can come and no timer is due.
    pub(super) async fn next(
        schedule: &mut Schedule,
        fires: bool,
        calls_first: bool,
        calls: &mut mpsc::UnboundedReceiver<Call>,
    ) -> Self {
        poll_fn(|context| {
            if !fires {
                return call(calls.poll_recv(context));
            }
            if calls_first && let Poll::Ready(work) = call(calls.poll_recv(context)) {
                return Poll::Ready(work);
            }
            if schedule.poll_due(context).is_ready() {
                return Poll::Ready(Self::Fire);
            }
            if calls_first {
                return Poll::Pending;
            }
            call(calls.poll_recv(context))
        })
        .await
    }
}

/// No call any more is no work; the shard is about to be told to stop.
fn call(polled: Poll<Option<Call>>) -> Poll<Work> {
    match polled {
        Poll::Ready(Some(call)) => Poll::Ready(Work::Call(call)),
        Poll::Ready(None) | Poll::Pending => Poll::Pending,
    }
}

impl Shard {
    /// Whether timers may fire, as far as it costs nothing to know.
    pub(super) fn may_fire(&self) -> bool {
        self.schedule.is_on() && matches!(self.guest, Guest::Running(_))
    }

    pub(super) async fn work(&mut self, work: Work) {
        self.fired_last = matches!(work, Work::Fire);
        match work {
            Work::Call(call) => self.call(call).await,
            Work::Fire => self.fire().await,
        }
    }

    /// Fires the timer that has been due for the longest.
    async fn fire(&mut self) {
        if self.ends() {
            return self.schedule.put_off(PUT_OFF);
        }
        let within = self.limits_of(&self.module).wall_time;
        let Some(due) = self.schedule.take(within).await else {
            return;
        };
        // Reading its payload may have taken long. A durable one is in the database still.
        if self.ends() {
            return;
        }
        let Guest::Running(instance) = &mut self.guest else {
            return;
        };
        let fired = instance.fire(&due.timer).await;
        match fired {
            Ok(()) => {
                self.slot.metrics.timer_fired("ok", due.late);
                self.schedule.fired(due, within).await;
            }
            Err(Failure::Error(error)) => {
                self.slot.metrics.timer_fired("error", due.late);
                self.failed(&due, Kind::Error, &error.to_string(), within)
                    .await;
            }
            Err(Failure::Trap(trap)) => {
                self.slot.metrics.timer_fired("trap", due.late);
                self.failed(&due, Kind::Trap, &trap.to_string(), within)
                    .await;
                self.tally.trapped();
                self.trapped(&trap, "fire");
            }
            // It is for instances that are to be made.
            Err(Failure::NoRoom(why)) => {
                self.failed(&due, Kind::Error, &why.to_string(), within)
                    .await;
            }
        }
    }

    /// Whether this node is not to begin anything any more.
    fn ends(&self) -> bool {
        self.gate.is_over()
            || self.gate.deadline().passed()
            || self.context.status.get() != ShardStatus::Running
    }

    /// The guest did not take a timer.
    async fn failed(&mut self, due: &Due, kind: Kind, why: &str, within: Duration) {
        let failed = self.schedule.failed(due, kind, within).await;
        let (failures, again) = failed.unzip();
        tracing::warn!(
            event = "guest.timer_failed",
            shard = self.shard,
            revision = self.module.describe().revision,
            module = &*due.timer.module,
            timer = &*due.timer.name,
            due_ms = due.timer.due_ms,
            durable = due.durable,
            why,
            failures,
            ?again,
            "timer failed"
        );
    }
}

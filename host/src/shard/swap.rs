//! The swap of a shard: an instance of another revision takes over between two calls.
//!
//! It is made beside the old one, on a task of its own on the shard's thread, while calls go on. Then the shard's task is the one that
//! swaps, so no call begins: the new instance takes the memory of the old one over ([`Instance::suspend`]), or begins without it, and
//! the queue goes on. Whatever fails before that leaves the old instance where it is.
//!
//! Where memory is handed over, the new instance is started beside the calls, too: `resume` puts right what it read too early. A guest
//! without it may rest on what it read at its start (a cache that it fills there would miss writes), so its start waits until no call runs.
//!
//! There is no limit of its own for the call in progress when the swap is due: calls are bounded by `limits.wall_time`, and one that was cut
//! short for a swap would be a call that the swap lost.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use super::task::{Guest, Shard, end};
use crate::call::{CallError, CallErrorKind};
use crate::clock;
use crate::cluster::status::ShardState;
use crate::guest::log::GuestLog;
use crate::guest::{
    Failure, GuestError, Instance, InstanceContext, Limits, Module, StopReason, Trap, TrapKind,
};

/// How much longer than its limits a start may take; a component never does.
const START_GRACE: Duration = Duration::from_secs(5);

/// A swap that was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Swapped {
    /// The revision that the shard ran before.
    pub from: u64,
    /// The revision that it runs now.
    pub to: u64,
    /// How long no call could begin.
    pub pause: Duration,
}

/// A swap that was not done: the shard runs the revision that it ran before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{step}: {error}")]
pub struct NotSwapped {
    /// How far it came.
    pub step: SwapStep,
    /// Why it came no further.
    pub error: CallError,
}

/// A step of a swap that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SwapStep {
    /// The new instance is made and started.
    Start,
    /// The old instance gives its memory.
    Suspend,
    /// The new instance takes it over.
    Resume,
    /// The shard says that it is done.
    Answer,
}

impl fmt::Display for SwapStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start => "the new revision did not start",
            Self::Suspend => "the old revision did not hand over its memory (handoff.suspend)",
            Self::Resume => {
                "the new revision did not take over the memory of the old one (handoff.resume)"
            }
            Self::Answer => "the shard did not answer",
        })
    }
}

/// The order to run another module.
pub(crate) struct Order {
    pub(crate) module: Arc<dyn Module>,
    pub(crate) options: Arc<str>,
    /// Whether memory is handed over, where both revisions can.
    pub(crate) carry_memory: bool,
    pub(crate) done: oneshot::Sender<Result<Swapped, NotSwapped>>,
}

/// A new instance on its way.
pub(super) struct Coming {
    order: Order,
    context: InstanceContext,
    /// Both revisions can hand memory over, and are to.
    carries: bool,
    /// It is started beside the calls.
    early: bool,
    making: AbortOnDropHandle<Result<Box<dyn Instance>, Failure>>,
}

impl Coming {
    /// Waits until the instance of a swap is made, for ever where there is no swap. Safe to drop; not to be called again after that.
    pub(super) async fn made(coming: &mut Option<Self>) -> Result<Box<dyn Instance>, Failure> {
        match coming {
            Some(coming) => (&mut coming.making).await.unwrap_or_else(|error| {
                let words = format!("the host failed to make an instance: {error}");
                Err(Failure::Trap(Trap::new(TrapKind::Host, words)))
            }),
            None => std::future::pending().await,
        }
    }

    /// Ends a swap on its way, and waits until nothing of its instance is left.
    pub(super) async fn give_up(mut self) {
        self.making.abort();
        _ = (&mut self.making).await;
    }
}

/// How handing over the memory ended, where it did not end well.
enum NotHandedOver {
    /// The old instance is as it was.
    Kept(NotSwapped),
    /// The old instance is gone.
    Lost(Trap),
}

impl Shard {
    /// Makes the new instance, beside the old one.
    pub(super) async fn begin_swap(&mut self, order: Order) {
        match self.coming.take() {
            Some(present) if !present.order.done.is_closed() => {
                self.coming = Some(present);
                let message = "another swap of the shard is on its way; try again once it is done";
                let error = CallError::host(CallErrorKind::Overloaded, message).at(self.shard);
                let step = SwapStep::Start;
                _ = order.done.send(Err(NotSwapped { step, error }));
                return;
            }
            // Whoever ordered it has given up.
            Some(abandoned) => abandoned.give_up().await,
            None => {}
        }
        let carries = order.carry_memory
            && self.module.describe().exports.handoff
            && order.module.describe().exports.handoff;
        let early = carries && matches!(self.guest, Guest::Running(_));
        let context = self.context_of(&order);
        self.tags.expect(&context.notifier);
        let (module, new, limits) = (
            order.module.clone(),
            context.clone(),
            self.db.limits().clone(),
        );
        let making = AbortOnDropHandle::new(tokio::spawn(async move {
            let mut instance = in_time(&limits, module.instantiate(new)).await?;
            if early {
                start(&module, &mut *instance, &limits).await?;
            }
            Ok(instance)
        }));
        self.coming = Some(Coming {
            order,
            context,
            carries,
            early,
            making,
        });
    }

    /// The new instance is made, or failed: swaps, while no call runs.
    pub(super) async fn end_swap(&mut self, made: Result<Box<dyn Instance>, Failure>) {
        let Some(coming) = self.coming.take() else {
            return;
        };
        // Whoever gave up reckons with the old revision.
        if coming.order.done.is_closed() {
            self.tags.dismiss();
            self.slot.metrics.swap_failed();
            return;
        }
        let begun = clock::now();
        let from = self.module.describe().revision;
        let swapped = self.take_over(&coming, made).await;
        let pause = clock::now().saturating_duration_since(begun);
        let done = coming.order.done;
        match swapped {
            Ok(()) => {
                let to = self.module.describe().revision;
                self.slot.metrics.swapped(to, pause);
                _ = done.send(Ok(Swapped { from, to, pause }));
            }
            Err(why) => {
                self.tags.dismiss();
                self.slot.metrics.swap_failed();
                // The words are the guest's, and may show a write.
                let tell = move |durable: Result<(), _>| {
                    let why = match durable {
                        Ok(()) => why,
                        Err(ended) => NotSwapped {
                            error: CallError::ended(&ended),
                            ..why
                        },
                    };
                    _ = done.send(Err(why));
                };
                self.gate
                    .when_durable(self.db.visible_seq(), Box::new(tell));
            }
        }
    }

    async fn take_over(
        &mut self,
        coming: &Coming,
        made: Result<Box<dyn Instance>, Failure>,
    ) -> Result<(), NotSwapped> {
        let limits = self.db.limits().clone();
        let module = coming.order.module.clone();
        let not_started = |failure| not_swapped(SwapStep::Start, failure);
        let mut instance = made.map_err(not_started)?;
        let mut context = coming.context.clone();
        let carries = coming.carries && matches!(self.guest, Guest::Running(_));
        if coming.early && !carries {
            // The old instance has trapped since, and its memory is gone. What the new one read at its start may be old, so that another one
            // starts, now that no call runs.
            drop(instance);
            context = self.context_of(&coming.order);
            self.tags.expect(&context.notifier);
            let making = module.instantiate(context.clone());
            instance = in_time(&limits, making).await.map_err(not_started)?;
        }
        if !(coming.early && carries) {
            let starting = start(&module, &mut *instance, &limits);
            starting.await.map_err(not_started)?;
        }
        let from = self.module.describe().revision;
        if let (Guest::Running(old), true) = (&mut self.guest, carries) {
            match hand_over(&mut **old, from, &mut *instance, &limits).await {
                Ok(()) => {}
                Err(NotHandedOver::Kept(why)) => return Err(why),
                Err(NotHandedOver::Lost(trap)) => {
                    drop(instance);
                    return Err(self.lost(&trap).await);
                }
            }
        }
        let old = std::mem::replace(&mut self.guest, Guest::Running(instance));
        if let (Guest::Running(old), false) = (old, carries) {
            end(self.shard, &self.module, old, StopReason::Swapping).await;
        }
        self.no_room = None;
        self.traps.clear();
        self.tags.adopt(&context.notifier);
        self.module = module.clone();
        self.context = context.clone();
        let revision = module.describe().revision;
        self.queries.swap(module, context);
        self.revision.store(revision, Ordering::Release);
        self.slot.guest(ShardState::Running);
        Ok(())
    }

    /// The old instance trapped when it was asked for its memory. It is made anew at once, and the trap brings no quarantine nearer: nobody
    /// called it, and calls wait for it.
    async fn lost(&mut self, trap: &Trap) -> NotSwapped {
        let revision = self.module.describe().revision;
        tracing::warn!(shard = self.shard, revision, %trap, "guest trapped in suspend; its memory is lost, and it starts anew");
        self.forget();
        self.slot.metrics.trapped(trap.kind);
        self.slot
            .trapped(ShardState::Crashed, trap.kind.to_string());
        self.explain(trap);
        // What is left of it makes room first.
        self.guest = Guest::Waiting(clock::now());
        self.start().await;
        let mut error = CallError::trap(trap);
        error.message.push_str(&format!(
            "; its memory is lost by that, and revision {revision} starts anew"
        ));
        NotSwapped {
            step: SwapStep::Suspend,
            error,
        }
    }

    fn context_of(&self, order: &Order) -> InstanceContext {
        let info = order.module.describe();
        let log = GuestLog::new(
            self.shard,
            info.name.clone(),
            info.revision,
            self.db.limits().log_bytes_per_second,
        );
        InstanceContext {
            options: order.options.clone(),
            notifier: Arc::new(self.notifier.next()),
            log: Arc::new(log),
            ..self.context.clone()
        }
    }
}

/// Carries the memory of the old instance to the new one.
async fn hand_over(
    old: &mut dyn Instance,
    from: u64,
    new: &mut dyn Instance,
    limits: &Limits,
) -> Result<(), NotHandedOver> {
    let state: Bytes = match old.suspend().await {
        Ok(state) => state,
        Err(Failure::Trap(trap)) => return Err(NotHandedOver::Lost(trap)),
        Err(failure) => {
            let why = not_swapped(SwapStep::Suspend, failure);
            return Err(NotHandedOver::Kept(why));
        }
    };
    let (size, limit) = (state.len(), limits.handoff_bytes);
    if size > limit {
        let words = format!("{size} bytes are over limits.handoff_bytes ({limit} bytes)");
        let failure = Failure::Error(GuestError::new("limit", words));
        let why = not_swapped(SwapStep::Suspend, failure);
        return Err(NotHandedOver::Kept(why));
    }
    let resumed = new.resume(from, &state).await;
    resumed.map_err(|failure| NotHandedOver::Kept(not_swapped(SwapStep::Resume, failure)))
}

fn not_swapped(step: SwapStep, failure: Failure) -> NotSwapped {
    let error = match failure {
        Failure::Error(error) => CallError::guest(error),
        Failure::Trap(trap) => CallError::trap(&trap),
        Failure::NoRoom(why) => CallError::no_room(why),
    };
    NotSwapped { step, error }
}

async fn start(
    module: &Arc<dyn Module>,
    instance: &mut dyn Instance,
    limits: &Limits,
) -> Result<(), Failure> {
    if !module.describe().exports.lifecycle {
        return Ok(());
    }
    in_time(limits, instance.start()).await
}

/// A component is bounded by its limits. Native logic may hang, and must not take the shard along.
async fn in_time<T>(
    limits: &Limits,
    step: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let limit = limits.start_time + START_GRACE;
    clock::timeout(limit, step).await.unwrap_or_else(|_| {
        let words = format!("it lasted longer than limits.start_time and {START_GRACE:?}");
        Err(Failure::Trap(Trap::new(TrapKind::WallTime, words)))
    })
}

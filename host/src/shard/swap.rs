//! The swap of a shard: an instance of another revision takes over between two calls.
//!
//! It is made beside the old one, on a task of its own on the shard's thread, while calls go on. Then the shard's task is the one that
//! swaps, so no call begins: the new instance takes the memory of the old one over ([`Instance::suspend`]), or begins without it, and
//! the queue goes on. Whatever fails before that leaves the old instance where it is.
//!
//! A revision that migrates stored data does so before, in steps between the calls of the old one (`migrate`). The last step and the
//! taking over are one: no call comes between them.
//!
//! Where memory is handed over, the new instance is started beside the calls, too: `resume` puts right what it read too early. A guest
//! without it may rest on what it read at its start (a cache that it fills there would miss writes), so its start waits until no call runs.
//! One that migrates is started beside the calls as well: its last step is where it reads again.
//!
//! The call in progress when the swap is due is not cut short: that would be a call that the swap lost. Where it has not ended within
//! `limits.drain` of the new revision, the swap is given up (`swap/turn.rs`), and the old instance goes on.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use super::migrate::Migration;
use super::task::{Guest, Shard, end};
use crate::call::{CallError, CallErrorKind};
use crate::clock;
use crate::cluster::status::ShardState;
use crate::guest::log::GuestLog;
use crate::guest::notify::Notifier;
use crate::guest::{
    Failure, GuestError, Instance, InstanceContext, Limits, Module, StopReason, Trap, TrapKind,
};
use crate::metrics;

mod turn;

pub(crate) use turn::Turn;

/// How much longer than its limits a start may take; a component never does.
pub(crate) const START_GRACE: Duration = Duration::from_secs(5);

/// A swap that was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Swapped {
    /// The revision that the shard ran before.
    pub from: u64,
    /// The revision that it runs now.
    pub to: u64,
    /// How long no call could begin.
    pub pause: Duration,
    /// How many calls waited in the queue at its end.
    pub parked: usize,
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
    /// The new instance brings the stored data to what it serves.
    Migrate,
    /// The old instance gives its memory.
    Suspend,
    /// The new instance takes it over.
    Resume,
    /// What is in progress ends, and the shard comes to the swap.
    Drain,
    /// The shard says that it is done.
    Answer,
}

impl fmt::Display for SwapStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start => "the new revision did not start",
            Self::Migrate => "the new revision did not migrate the stored data (migration.migrate)",
            Self::Suspend => "the old revision did not hand over its memory (handoff.suspend)",
            Self::Resume => {
                "the new revision did not take over the memory of the old one (handoff.resume)"
            }
            Self::Drain => "the call in progress did not end in time (limits.drain)",
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
    pub(crate) turn: Arc<Turn>,
    pub(crate) done: oneshot::Sender<Result<Swapped, NotSwapped>>,
}

/// A new instance on its way.
pub(super) struct Coming {
    plan: Plan,
    stage: Stage,
}

/// How it is to take over.
struct Plan {
    order: Order,
    context: InstanceContext,
    /// Both revisions can hand memory over, and are to.
    carries: bool,
    /// The new one migrates stored data.
    migrates: bool,
    /// It is started beside the calls.
    early: bool,
}

/// How far it is.
enum Stage {
    Making(AbortOnDropHandle<Result<Box<dyn Instance>, Failure>>),
    Migrating(Migration),
}

impl Coming {
    /// Waits until the instance of a swap is made, for ever where there is no swap. Safe to drop; not to be called again after that.
    pub(super) async fn made(coming: &mut Option<Self>) -> Result<Box<dyn Instance>, Failure> {
        match coming.as_mut().map(|coming| &mut coming.stage) {
            Some(Stage::Making(making)) => making.await.unwrap_or_else(|error| {
                let words = format!("the host failed to make an instance: {error}");
                Err(Failure::Trap(Trap::new(TrapKind::Host, words)))
            }),
            Some(Stage::Migrating(_)) | None => std::future::pending().await,
        }
    }

    /// Its migration, once it has come to that.
    pub(super) fn migration(&self) -> Option<&Migration> {
        match &self.stage {
            Stage::Migrating(migration) => Some(migration),
            Stage::Making(_) => None,
        }
    }

    /// Ends a swap on its way, and waits until nothing of its instance is left.
    pub(super) async fn give_up(self) {
        if let Stage::Making(mut making) = self.stage {
            making.abort();
            _ = (&mut making).await;
        }
    }

    /// Whoever ordered it has given up, and reckons with the old revision.
    fn is_abandoned(&self) -> bool {
        self.plan.order.done.is_closed()
    }

    /// The shard has come to it; false where it was given up before.
    fn take_turn(&self) -> bool {
        !self.is_abandoned() && self.plan.order.turn.take()
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
    /// The notifier of the next instance of a module.
    pub(super) fn notifier_of(&self, module: &Arc<dyn Module>) -> Arc<Notifier> {
        let name = &module.describe().name;
        Arc::new(self.notifier.next().of(name))
    }

    /// An instance of a module is on its way, and what it asks for is kept for it.
    pub(super) fn expect(&mut self, context: &InstanceContext, module: &Arc<dyn Module>) {
        self.tags.expect(&context.notifier);
        let takers = module.timer_takers();
        self.schedule.expect(&context.timers, &takers);
    }

    /// The limits of a module: its own, where its revision has some.
    pub(super) fn limits_of(&self, module: &Arc<dyn Module>) -> Arc<Limits> {
        let own = module.limits();
        own.cloned().unwrap_or_else(|| self.db.limits().clone())
    }

    /// Makes the new instance, beside the old one.
    pub(super) async fn begin_swap(&mut self, order: Order) {
        if order.done.is_closed() || !order.turn.take() {
            return self.slot.metrics.swap_failed();
        }
        match self.coming.take() {
            Some(present) if !present.is_abandoned() => {
                self.coming = Some(present);
                let message = "another swap of the shard is on its way; try again once it is done";
                let error = CallError::host(CallErrorKind::Overloaded, message).at(self.shard);
                let step = SwapStep::Start;
                _ = order.done.send(Err(NotSwapped { step, error }));
                return;
            }
            Some(abandoned) => abandoned.give_up().await,
            None => {}
        }
        let carries = order.carry_memory
            && self.module.describe().exports.handoff
            && order.module.describe().exports.handoff;
        let migrates = order.module.describe().exports.migration;
        let early = migrates || (carries && matches!(self.guest, Guest::Running(_)));
        let context = self.context_of(&order);
        self.expect(&context, &order.module);
        let (module, new, limits) = (
            order.module.clone(),
            context.clone(),
            self.limits_of(&order.module),
        );
        // Where it takes longer than it may, something in progress blocks the thread.
        let turn = order.turn.clone();
        turn.due(clock::now() + (limits.start_time + START_GRACE) * 2);
        let making = AbortOnDropHandle::new(tokio::spawn(async move {
            let made = async {
                let mut instance = in_time(&limits, module.instantiate(new)).await?;
                if early {
                    start(&module, &mut *instance, &limits).await?;
                }
                Ok(instance)
            };
            let made = made.await;
            turn.due(clock::now());
            made
        }));
        let plan = Plan {
            order,
            context,
            carries,
            migrates,
            early,
        };
        let stage = Stage::Making(making);
        self.coming = Some(Coming { plan, stage });
    }

    /// The new instance is made, or failed: goes on to its migration, or swaps, while no call runs.
    pub(super) async fn made(&mut self, made: Result<Box<dyn Instance>, Failure>) {
        let Some(Coming { plan, .. }) = self.coming.take_if(|coming| coming.take_turn()) else {
            return self.dismiss();
        };
        match made {
            Ok(instance) if plan.migrates => {
                let from = self.module.describe().revision;
                let limits = self.limits_of(&plan.order.module);
                let migration = Migration::new(instance, from, &limits);
                plan.order.turn.due(migration.next());
                let stage = Stage::Migrating(migration);
                self.coming = Some(Coming { plan, stage });
            }
            made => {
                let made = made.map_err(|failure| not_swapped(SwapStep::Start, failure));
                self.end_swap(plan, made, clock::now()).await;
            }
        }
    }

    /// Runs a step of the new instance's migration, and swaps after the last one.
    pub(super) async fn step_swap(&mut self) {
        let begun = clock::now();
        let Some(coming) = self.coming.as_mut().filter(|coming| coming.take_turn()) else {
            return self.dismiss();
        };
        let Stage::Migrating(migration) = &mut coming.stage else {
            return;
        };
        let stepped = migration.step().await;
        if stepped == Ok(false) {
            return coming.plan.order.turn.due(migration.next());
        }
        let Some(Coming {
            plan,
            stage: Stage::Migrating(migration),
        }) = self.coming.take()
        else {
            return;
        };
        let migrated = match stepped {
            Ok(_) => {
                migration.tell(self.shard, plan.order.module.describe().revision);
                Ok(migration.into_instance())
            }
            Err(failure) => Err(not_swapped(SwapStep::Migrate, failure)),
        };
        self.end_swap(plan, migrated, begun).await;
    }

    /// The new instance is not to take over.
    fn dismiss(&mut self) {
        self.coming = None;
        self.tags.dismiss();
        self.schedule.dismiss();
        self.slot.metrics.swap_failed();
    }

    /// Swaps, while no call runs, or tells why not. No call has begun since `begun`.
    async fn end_swap(
        &mut self,
        plan: Plan,
        ready: Result<Box<dyn Instance>, NotSwapped>,
        begun: Instant,
    ) {
        let from = self.module.describe().revision;
        let swapped = match ready {
            Ok(instance) => self.take_over(&plan, instance).await,
            Err(why) => Err(why),
        };
        let pause = clock::now().saturating_duration_since(begun);
        let done = plan.order.done;
        match swapped {
            Ok(()) => {
                let to = self.module.describe().revision;
                let parked = self.queue.calls.load(Ordering::Relaxed);
                self.parked = parked;
                self.slot.metrics.swapped(to, pause);
                tracing::debug!(
                    shard = self.shard,
                    from,
                    to,
                    ?pause,
                    parked,
                    "guest swapped"
                );
                _ = done.send(Ok(Swapped {
                    from,
                    to,
                    pause,
                    parked,
                }));
            }
            Err(why) => {
                self.tags.dismiss();
                self.schedule.dismiss();
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
        plan: &Plan,
        mut instance: Box<dyn Instance>,
    ) -> Result<(), NotSwapped> {
        let module = plan.order.module.clone();
        let limits = self.limits_of(&module);
        let not_started = |failure| not_swapped(SwapStep::Start, failure);
        let mut context = plan.context.clone();
        let carries = plan.carries && matches!(self.guest, Guest::Running(_));
        let started = plan.early && (carries || plan.migrates);
        if plan.early && !started {
            // The old instance has trapped since, and its memory is gone. What the new one read at its start may be old, so that another one
            // starts, now that no call runs.
            drop(instance);
            context = self.context_of(&plan.order);
            self.expect(&context, &module);
            let making = module.instantiate(context.clone());
            instance = in_time(&limits, making).await.map_err(not_started)?;
        }
        if !started {
            let starting = start(&module, &mut *instance, &limits);
            starting.await.map_err(not_started)?;
        }
        let from = self.module.describe().revision;
        let of_old = self.limits_of(&self.module);
        if let (Guest::Running(old), true) = (&mut self.guest, carries) {
            let most = of_old.handoff_bytes;
            let within = of_old.handoff_time.max(limits.handoff_time);
            match hand_over(&mut **old, from, &mut *instance, most, within).await {
                Ok(()) => {}
                Err(NotHandedOver::Kept(why)) => return Err(why),
                Err(NotHandedOver::Lost(trap)) => {
                    drop(instance);
                    return Err(self.lost(&trap).await);
                }
            }
        }
        let mut restarted = None;
        match std::mem::replace(&mut self.guest, Guest::Running(instance)) {
            Guest::Running(old) if !carries => {
                end(self.shard, &self.module, old, StopReason::Swapping).await;
            }
            Guest::Migrating(_, waits) => restarted = waits,
            _ => {}
        }
        self.no_room = None;
        self.traps.clear();
        self.tags.adopt(&context.notifier);
        let takers = module.timer_takers();
        self.schedule.adopt(&context.timers, takers);
        self.schedule.begin_anew();
        self.module = module.clone();
        self.context = context.clone();
        let revision = module.describe().revision;
        self.queries.swap(module, context);
        self.runs.set(&self.module);
        self.tally = self.book.tally(revision);
        self.slot.guest(ShardState::Running);
        if let Some(restarted) = restarted {
            self.tell_restarted(restarted);
        }
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
            notifier: self.notifier_of(&order.module),
            timers: self.timers.next().of(info),
            log: Arc::new(log),
            metrics: metrics::guest::of(&self.context.cluster, &info.name),
            ..self.context.clone()
        }
    }
}

/// Carries the memory of the old instance to the new one.
async fn hand_over(
    old: &mut dyn Instance,
    from: u64,
    new: &mut dyn Instance,
    limit: usize,
    within: Duration,
) -> Result<(), NotHandedOver> {
    // A component is bounded by its limits. Native logic may hang, and is then in the middle of something for ever.
    let late = |step: &str| {
        let words = format!("{step} lasted longer than limits.handoff_time and {START_GRACE:?}");
        Failure::Trap(Trap::new(TrapKind::WallTime, words))
    };
    let within = within + START_GRACE;
    let suspended = clock::timeout(within, old.suspend()).await;
    let state: Bytes = match suspended.unwrap_or_else(|_| Err(late("suspend"))) {
        Ok(state) => state,
        Err(Failure::Trap(trap)) => return Err(NotHandedOver::Lost(trap)),
        Err(failure) => {
            let why = not_swapped(SwapStep::Suspend, failure);
            return Err(NotHandedOver::Kept(why));
        }
    };
    let size = state.len();
    if size > limit {
        let words = format!("{size} bytes are over limits.handoff_bytes ({limit} bytes)");
        let failure = Failure::Error(GuestError::new("limit", words));
        let why = not_swapped(SwapStep::Suspend, failure);
        return Err(NotHandedOver::Kept(why));
    }
    let resumed = clock::timeout(within, new.resume(from, &state)).await;
    let resumed = resumed.unwrap_or_else(|_| Err(late("resume")));
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

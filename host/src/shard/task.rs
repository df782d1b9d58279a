//! A shard at work: one task on its shard thread that runs calls one at a time, hands out durable tags, and keeps a working guest.
//!
//! The database is open before the task starts and until after it has ended. What a call shows leaves through the gate.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quarry_core::pool;
use quarry_core::traps::{Ledger, Verdict};
use tokio::sync::{mpsc, oneshot};

use super::held::Held;
use super::migrate::Migration;
use super::queries::QueryPool;
use super::sample::{Book, Ending, Tally};
use super::slot::Slot;
use super::swap::Coming;
use super::timers::Work;
use super::{Begun, Call, Control, Outcome, Queue, Runs, expired};
use crate::call::{CallError, CallErrorKind, Durability};
use crate::clock;
use crate::cluster::status::ShardState;
use crate::db::ShardDb;
use crate::gate::Gate;
use crate::guest::notify::{Notifier, Tag, Tags};
use crate::guest::timers::{Schedule, Timers};
use crate::guest::{
    Failure, Instance, InstanceContext, Module, NoRoom, Reply, Request, StopReason, Trap, TrapKind,
};

/// Durable tags that a guest gets at once.
const TAGS_MAX: usize = 1024;

/// A shard's task and what belongs to it.
pub(super) struct Shard {
    pub(super) shard: u32,
    pub(super) db: Arc<ShardDb>,
    pub(super) gate: Arc<Gate>,
    pub(super) module: Arc<dyn Module>,
    pub(super) context: InstanceContext,
    pub(super) notifier: Notifier,
    pub(super) timers: Timers,
    pub(super) guest: Guest,
    pub(super) tags: Tags,
    pub(super) schedule: Schedule,
    /// The last work was a timer, and a call goes first.
    pub(super) fired_last: bool,
    pub(super) traps: Ledger,
    pub(super) held: Arc<Held>,
    pub(super) born: Instant,
    pub(super) slot: Arc<Slot>,
    pub(super) runs: Arc<Runs>,
    pub(super) queries: Arc<QueryPool>,
    pub(super) queue: Arc<Queue>,
    pub(super) book: Arc<Book>,
    /// Of the revision that it runs.
    pub(super) tally: Arc<Tally>,
    /// Calls that are still in the queue and waited there for the last swap.
    pub(super) parked: usize,
    /// How often in a row its guest found no room, and why.
    pub(super) no_room: Option<(u32, NoRoom)>,
    /// The instance that is to take over.
    pub(super) coming: Option<Coming>,
}

/// Whether the shard has a guest that works.
pub(super) enum Guest {
    Running(Box<dyn Instance>),
    /// It is started, and its migration goes on; whoever restarted it waits for the end of that.
    Migrating(Migration, Option<Restarted>),
    /// It is started at this time.
    Waiting(Instant),
    Quarantined(Arc<str>),
}

/// Who waits for a restart.
pub(super) type Restarted = oneshot::Sender<Result<(), CallError>>;

enum Event {
    Stop(StopReason),
    Control(Control),
    Made(Result<Box<dyn Instance>, Failure>),
    Step {
        /// There was nothing else to do.
        idle: bool,
    },
    Tags(Vec<Tag>),
    Work(Work),
    Restart,
    Room,
}

impl Shard {
    pub(super) async fn run(
        mut self,
        mut calls: mpsc::UnboundedReceiver<Call>,
        mut control: mpsc::Receiver<Control>,
        mut stop: oneshot::Receiver<StopReason>,
        started: oneshot::Sender<()>,
    ) {
        self.start().await;
        // Data that is migrated is so at the first step, and the shard serves as soon as it is published.
        if self.step_due().is_some() {
            self.step(true).await;
        }
        _ = started.send(());
        let reason = loop {
            match self.next(&mut calls, &mut control, &mut stop).await {
                Event::Stop(reason) => break reason,
                Event::Control(control) => self.control(control).await,
                Event::Made(made) => self.made(made).await,
                Event::Step { idle } => self.step(idle).await,
                Event::Tags(tags) => self.durable(tags).await,
                Event::Work(work) => {
                    self.gate.set_out().await;
                    self.work(work).await;
                }
                Event::Restart => self.start().await,
                Event::Room => {}
            }
        };
        self.slot.withdraw();
        calls.close();
        if let Some(coming) = self.coming.take() {
            coming.give_up().await;
        }
        while let Some(call) = calls.recv().await {
            if reason == StopReason::Stopping
                && !self.gate.is_over()
                && matches!(self.guest, Guest::Running(_))
                && !self.held.is_full()
            {
                self.call(call).await;
            } else {
                _ = call.answer.send(Err(CallError::closed(self.shard)));
            }
        }
        if let Guest::Running(instance) =
            std::mem::replace(&mut self.guest, Guest::Waiting(clock::now()))
        {
            end(self.shard, &self.module, instance, reason).await;
        }
    }

    async fn next(
        &mut self,
        calls: &mut mpsc::UnboundedReceiver<Call>,
        control: &mut mpsc::Receiver<Control>,
        stop: &mut oneshot::Receiver<StopReason>,
    ) -> Event {
        let full = self.held.is_full();
        let step = self.step_due();
        // They wait for the end of the migration, as calls do.
        let tagged = !matches!(self.guest, Guest::Migrating(..));
        let (serving, restart) = match &self.guest {
            Guest::Running(_) => (!full, None),
            Guest::Migrating(..) => (false, None),
            Guest::Waiting(at) => (false, Some(*at)),
            Guest::Quarantined(_) => (true, None),
        };
        let restart_at = async {
            match restart {
                Some(at) => clock::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let fires = self.may_fire();
        // Stop, control and a swap that is due come before work; tags before calls, since each stems from a call that came earlier. A step of
        // a migration is due at times, and comes else when there is nothing to do. Calls and timers that are due take turns.
        tokio::select! {
            biased;
            reason = stop => Event::Stop(reason.unwrap_or(StopReason::Stopping)),
            Some(control) = control.recv() => Event::Control(control),
            made = Coming::made(&mut self.coming) => Event::Made(made),
            () = step.before_calls() => Event::Step { idle: false },
            tags = self.tags.next(TAGS_MAX), if tagged => Event::Tags(tags),
            work = Work::next(&mut self.schedule, fires, self.fired_last, calls), if serving => Event::Work(work),
            () = restart_at => Event::Restart,
            () = self.held.room(), if full => Event::Room,
            // Not at once: others of the thread get their turn, and what came meanwhile is seen.
            () = tokio::task::yield_now(), if step.is_some() => Event::Step { idle: true },
        }
    }

    pub(super) async fn call(&mut self, call: Call) {
        let Call {
            request,
            durability,
            revision: only,
            answer,
            ticket,
            _place: place,
        } = call;
        let parked = self.parked > 0;
        self.parked = self.parked.saturating_sub(1);
        // A caller that went away before its call began does not want it any more.
        if answer.is_closed() {
            return;
        }
        // Refused meanwhile, and its caller told.
        if ticket.is_some_and(|ticket| !ticket.take()) {
            return;
        }
        if let Some(error) = expired(&request) {
            if parked {
                self.tally.lost();
            }
            _ = answer.send(Err(error));
            return;
        }
        if self.gate.deadline().passed() {
            _ = answer.send(Err(CallError::lease_ran_out(self.shard)));
            return;
        }
        // Its database has ended, and the word to stop is on its way.
        if self.gate.is_over() {
            _ = answer.send(Err(CallError::closed(self.shard)));
            return;
        }
        // No swap comes between this and the call: the task that swaps is this one.
        let runs = self.module.describe().revision;
        if let Some(wanted) = only.filter(|wanted| *wanted != runs) {
            _ = answer.send(Err(CallError::wrong_revision(self.shard, runs, wanted)));
            return;
        }
        let exports = &self.module.describe().exports;
        if request.http.is_some() && !exports.http {
            _ = answer.send(Err(CallError::no_http(&self.module.describe().name)));
            return;
        }
        let instance = match &mut self.guest {
            Guest::Running(instance) => instance,
            Guest::Quarantined(reason) => {
                // The reason holds words of the guest, which may show a write.
                let refused = CallError::host(CallErrorKind::Quarantined, &**reason);
                let refuse = move |_| _ = answer.send(Err(refused));
                self.gate
                    .when_durable(self.db.visible_seq(), Box::new(refuse));
                return;
            }
            Guest::Waiting(_) | Guest::Migrating(..) => return,
        };
        let answer = Begun::new(answer, self.shard);
        let begun = self.book.begun();
        let ran = instance.serve(&request).await;
        drop(place);
        if let Some(ending) = ending(&ran) {
            self.tally.ended(ending, begun);
        }
        let seq = self.db.visible_seq();
        let revision = self.module.describe().revision;
        let mut applied = durability == Some(Durability::Applied);
        let outcome = match ran {
            Ok(reply) => {
                applied |= reply.when_applied && durability.is_none();
                Ok(Outcome {
                    payload: reply.payload,
                    content_type: reply.content_type,
                    seq,
                    revision,
                    http: reply.http,
                })
            }
            Err(Failure::Error(error)) => Err(CallError {
                seq: Some(seq),
                revision: Some(revision),
                ..CallError::guest(error)
            }),
            Err(Failure::Trap(trap)) => {
                let error = CallError {
                    seq: Some(seq),
                    revision: Some(revision),
                    ..CallError::trap(&trap)
                };
                self.trapped(&trap, &request.method);
                Err(error)
            }
            Err(Failure::NoRoom(why)) => Err(CallError::no_room(why)),
        };
        if (applied && self.gate.may_answer()) || self.gate.is_open(seq) {
            answer.send(outcome);
            return;
        }
        let part = self.held.hold(outcome.as_ref().map_or(0, Outcome::bytes));
        self.gate.when_durable(
            seq,
            Box::new(move |durable| {
                drop(part);
                answer.send(match durable {
                    Ok(()) => outcome,
                    Err(ended) => Err(CallError {
                        seq: Some(seq),
                        revision: Some(revision),
                        ..CallError::ended(&ended)
                    }),
                });
            }),
        );
    }

    async fn durable(&mut self, tags: Vec<Tag>) {
        let Guest::Running(instance) = &mut self.guest else {
            return;
        };
        if !self.module.describe().exports.durable_events {
            return;
        }
        match instance.durable(tags).await {
            Ok(()) => {}
            Err(Failure::Trap(trap)) => {
                self.tally.trapped();
                self.trapped(&trap, "durable");
            }
            Err(Failure::Error(error)) => {
                tracing::warn!(shard = self.shard, %error, "guest failed to take durable tags")
            }
            Err(Failure::NoRoom(why)) => {
                tracing::warn!(shard = self.shard, %why, "guest failed to take durable tags")
            }
        }
    }

    async fn control(&mut self, control: Control) {
        match control {
            Control::Restart { done } => {
                if let Guest::Running(instance) =
                    std::mem::replace(&mut self.guest, Guest::Waiting(clock::now()))
                {
                    end(self.shard, &self.module, instance, StopReason::Stopping).await;
                }
                self.forget();
                self.traps.clear();
                self.schedule.begin_anew();
                self.start().await;
                match &mut self.guest {
                    Guest::Migrating(_, restarted) => *restarted = Some(done),
                    _ => self.tell_restarted(done),
                }
            }
            Control::Swap(order) => self.begin_swap(order).await,
            Control::Measure {
                request,
                calls,
                done,
            } => {
                let measured = self.measure(&request, calls).await;
                _ = done.send(measured);
            }
        }
    }

    async fn measure(&mut self, request: &Request, calls: usize) -> Result<Vec<u64>, CallError> {
        let Guest::Running(instance) = &mut self.guest else {
            return Err(self.not_started());
        };
        let mut times = Vec::with_capacity(calls);
        for _ in 0..calls {
            let before = clock::now();
            let ran = instance.call(request).await;
            let took = clock::now().saturating_duration_since(before);
            times.push(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
            match ran {
                Ok(_) => {}
                Err(Failure::Error(error)) => return Err(CallError::guest(error)),
                Err(Failure::Trap(trap)) => {
                    self.trapped(&trap, &request.method);
                    return Err(CallError::trap(&trap));
                }
                Err(Failure::NoRoom(why)) => return Err(CallError::no_room(why)),
            }
            // What the calls asked for is taken as it comes, so that their wishes do not pile up.
            if times.len().is_multiple_of(TAGS_MAX) {
                tokio::task::yield_now().await;
                self.tags.clear();
            }
            // A store that is slower than the calls is waited for between them, so that it costs none its notification.
            if self.tags.outstanding() > self.db.limits().notifications / 2 {
                _ = self.gate.durable(self.db.visible_seq()).await;
                self.tags.clear();
            }
        }
        Ok(times)
    }

    /// Tells whoever restarted the guest what came of it.
    pub(super) fn tell_restarted(&self, done: Restarted) {
        _ = done.send(match &self.guest {
            Guest::Running(_) => {
                self.slot.metrics.restarted();
                Ok(())
            }
            _ => Err(self.not_started()),
        });
    }

    /// Makes and starts an instance of the shard's module. It serves once its migration is done, where it has one.
    pub(super) async fn start(&mut self) {
        self.slot.guest(ShardState::Starting);
        self.context.notifier = self.notifier_of(&self.module);
        self.context.timers = self.timers.next().of(self.module.describe());
        let takers = self.module.timer_takers();
        self.schedule.expect(&self.context.timers, &takers);
        match fresh(&self.module, &self.context).await {
            Ok(instance) => {
                self.no_room = None;
                self.tags.adopt(&self.context.notifier);
                self.schedule.adopt(&self.context.timers, takers);
                if self.module.describe().exports.migration {
                    let limits = self.limits_of(&self.module);
                    let migration = Migration::new(instance, 0, &limits);
                    self.guest = Guest::Migrating(migration, None);
                } else {
                    self.serve(instance);
                }
            }
            Err(failure) => self.not_started_for(failure, "start"),
        }
    }

    /// The guest begins to serve.
    pub(super) fn serve(&mut self, instance: Box<dyn Instance>) {
        self.guest = Guest::Running(instance);
        self.slot.guest(ShardState::Running);
    }

    /// The guest failed at a step of its start.
    pub(super) fn not_started_for(&mut self, failure: Failure, step: &str) {
        let trap = match failure {
            Failure::Trap(trap) => trap,
            Failure::Error(error) => {
                let words = format!("the guest's {step} failed with {error}");
                Trap::new(TrapKind::Instantiate, words)
            }
            Failure::NoRoom(why) => return self.wait_for_room(why),
        };
        self.no_room = None;
        self.tally.trapped();
        self.trapped(&trap, step);
    }

    /// The guest is started once there is room. That there is none is not its fault, and no trap.
    fn wait_for_room(&mut self, why: NoRoom) {
        let before = self.no_room.take().map_or(0, |(times, _)| times);
        let pause = pool::pause(before);
        tracing::warn!(shard = self.shard, %why, ?pause, "guest not started for want of room");
        self.no_room = Some((before.saturating_add(1), why));
        self.slot.explain(why.to_string());
        self.guest = Guest::Waiting(clock::now() + pause);
    }

    pub(super) fn trapped(&mut self, trap: &Trap, method: &str) {
        self.forget();
        let now = clock::now();
        let text = trap.to_string();
        self.slot.metrics.trapped(trap.kind);
        // How much a reply has to say is up to the caller, who must not be able to quarantine a shard with it.
        let verdict = if trap.kind == TrapKind::ReplyTooLarge {
            Verdict::Restart(Duration::ZERO)
        } else {
            self.traps.trapped(now.saturating_duration_since(self.born))
        };
        match verdict {
            Verdict::Restart(pause) => {
                tracing::warn!(
                    shard = self.shard,
                    method,
                    trap = text,
                    ?pause,
                    "guest trapped; its instance is replaced"
                );
                self.slot
                    .trapped(ShardState::Crashed, trap.kind.to_string());
                self.guest = Guest::Waiting(now + pause);
            }
            Verdict::Quarantine => {
                let limits = self.db.limits();
                let (traps, window) = (limits.traps, limits.trap_window);
                let reason = format!(
                    "the guest of shard {} trapped more than {traps} times in {window:?} and is quarantined until it is restarted or swapped; last: {text}",
                    self.shard
                );
                tracing::error!(
                    shard = self.shard,
                    method,
                    trap = text,
                    traps,
                    ?window,
                    "guest quarantined"
                );
                self.slot.metrics.quarantined();
                self.slot
                    .trapped(ShardState::Quarantined, trap.kind.to_string());
                self.guest = Guest::Quarantined(reason.into());
            }
        }
        self.explain(trap);
    }

    /// Tells why it trapped. The words are the guest's, and may show a write.
    pub(super) fn explain(&self, trap: &Trap) {
        let slot = self.slot.clone();
        let words = trap.to_string();
        let explain = move |durable: Result<(), _>| {
            if durable.is_ok() {
                slot.explain(words);
            }
        };
        self.gate
            .when_durable(self.db.visible_seq(), Box::new(explain));
    }

    /// The memory of the instance is gone, and what it asked for with it.
    pub(super) fn forget(&mut self) {
        self.tags.forget();
        self.schedule.forget();
    }

    fn not_started(&self) -> CallError {
        if let Some((_, why)) = self.no_room {
            return CallError::no_room(why).at(self.shard);
        }
        let why = self.slot.last_error().unwrap_or_default();
        CallError::host(CallErrorKind::Trap(TrapKind::Instantiate), why).at(self.shard)
    }
}

/// How a call ended, as far as its revision is to blame; none where it did not run.
pub(super) fn ending(ran: &Result<Reply, Failure>) -> Option<Ending> {
    match ran {
        Ok(reply)
            if reply
                .http
                .as_ref()
                .is_some_and(|answer| answer.is_failure()) =>
        {
            Some(Ending::Error)
        }
        Ok(_) => Some(Ending::Reply),
        Err(Failure::Error(_)) => Some(Ending::Error),
        // How much a reply has to say is up to the caller.
        Err(Failure::Trap(trap)) if trap.kind == TrapKind::ReplyTooLarge => Some(Ending::Error),
        Err(Failure::Trap(_)) => Some(Ending::Trap),
        Err(Failure::NoRoom(_)) => None,
    }
}

/// A started instance.
async fn fresh(
    module: &Arc<dyn Module>,
    context: &InstanceContext,
) -> Result<Box<dyn Instance>, Failure> {
    let mut instance = module.instantiate(context.clone()).await?;
    if module.describe().exports.lifecycle {
        instance.start().await?;
    }
    Ok(instance)
}

/// Tells an instance that it is the last thing it does.
pub(super) async fn end(
    shard: u32,
    module: &Arc<dyn Module>,
    mut instance: Box<dyn Instance>,
    reason: StopReason,
) {
    if !module.describe().exports.lifecycle {
        return;
    }
    if let Err(Failure::Trap(trap)) = instance.stop(reason).await {
        tracing::warn!(shard, %trap, reason = reason.as_str(), "guest failed to stop");
    }
}

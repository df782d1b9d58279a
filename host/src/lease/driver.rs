//! The loop's task: drives `quarry_core::control`, which decides, and does what it says.
//!
//! It runs on the lease thread. It waits for the store only through operations, each with an end, next to one another; everything else is
//! done at once.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use quarry_core::control::{Command, CommandError, Control, Effect, Event, LeaseEvent};
use quarry_core::lease::op::{LeaseOp, OpId, OpResult};
use quarry_core::runner::{RunnerCommand, RunnerEvent, RunnerReport};
use quarry_core::time::Moment;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::LeaseStore;
use super::events::Events;
use super::handle::{Leases, Want};
use crate::clock;

/// How much longer than its limit a store may take to answer before it counts as hanging.
const GRACE: Duration = Duration::from_secs(1);
/// How long a peer may take to hear of a shard.
const NOTIFY: Duration = Duration::from_secs(1);

/// How a node's start stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The session, the first read or the first claims are not done.
    Starting,
    /// Another node that surely lives has this name.
    NameTaken {
        /// Where it is reached.
        address: String,
    },
    /// The first round was made: every shard that could be claimed was, and its open was tried.
    Ready,
}

/// Everything that the loop works with.
pub(crate) struct Driver {
    pub control: Control,
    pub store: Arc<dyn LeaseStore>,
    pub runner: mpsc::UnboundedSender<RunnerEvent>,
    pub reports: mpsc::UnboundedReceiver<RunnerReport>,
    pub leases: Arc<Leases>,
    pub wants: mpsc::Receiver<Want>,
    pub events: Events,
    pub progress: watch::Sender<Progress>,
    /// The node stops: give everything away and leave, within `leave`.
    pub stop: CancellationToken,
    pub leave: Duration,
    /// Has the runner stop everything, for good.
    pub finish: CancellationToken,
}

/// The loop at work.
struct Loop {
    control: Control,
    store: Arc<dyn LeaseStore>,
    runner: mpsc::UnboundedSender<RunnerEvent>,
    leases: Arc<Leases>,
    events: Events,
    progress: watch::Sender<Progress>,
    ops: FuturesUnordered<BoxFuture<'static, (Event, bool)>>,
    first: FirstRound,
    left: bool,
}

/// What is still to be done before a start counts as made.
#[derive(Debug, Default)]
struct FirstRound {
    /// All leases were read once.
    read: bool,
    claims: usize,
    opening: BTreeSet<u32>,
}

impl Driver {
    /// Works until the node has left its cluster, or gave up leaving in time. Then every shard is stopped.
    pub async fn run(self) {
        let Self {
            mut reports,
            mut wants,
            stop,
            leave,
            ..
        } = self;
        // However it ends.
        let _finish = self.finish.drop_guard();
        let mut work = Loop {
            control: self.control,
            store: self.store,
            runner: self.runner,
            leases: self.leases,
            events: self.events,
            progress: self.progress,
            ops: FuturesUnordered::new(),
            first: FirstRound::default(),
            left: false,
        };
        let mut leaving: Option<Moment> = None;
        while !work.left {
            let wake = work.control.wake_at();
            let event = tokio::select! {
                biased;
                () = clock::until(wake) => Event::Wake,
                () = clock::until(leaving), if leaving.is_some() => {
                    tracing::warn!(?leave, "the node did not free all its leases in time; other nodes take them over when they expire");
                    break;
                }
                report = reports.recv() => match report {
                    Some(report) => work.report(report),
                    // Without a runner no shard runs, and no lease is worth keeping.
                    None => break,
                },
                Some((done, claim)) = work.ops.next() => {
                    work.first.claims -= usize::from(claim);
                    if let Event::Done { result: OpResult::Owners(owners), .. } = &done {
                        work.first.read |= owners.failed.is_none();
                    }
                    done
                }
                () = stop.cancelled(), if leaving.is_none() => {
                    leaving = Some(clock::boot_now() + leave);
                    Event::Command(Command::Leave)
                }
                Some(want) = wants.recv() => match work.want(want) {
                    Some(event) => event,
                    None => continue,
                },
            };
            _ = work.handle(event);
        }
    }
}

impl Loop {
    /// Handles an event; gives why a command was refused.
    fn handle(&mut self, event: Event) -> Result<(), CommandError> {
        let now = clock::boot_now();
        let effects = self.control.handle(event, now);
        let mut refused = Ok(());
        for effect in effects {
            match effect {
                Effect::Op { id, op, deadline } => self.begin(id, op, deadline),
                Effect::Runner(command) => {
                    if let RunnerCommand::Open { shard, .. } = &command {
                        self.first.opening.insert(*shard);
                    }
                    // One that is gone has cut everything off, and is noticed by its reports.
                    _ = self.runner.send(RunnerEvent::Command(command));
                }
                Effect::Notify {
                    peer,
                    address,
                    shard,
                } => {
                    if let Some(notifier) = self.leases.notifier() {
                        tokio::spawn(async move {
                            let told = notifier.notify(&peer, &address, shard);
                            if clock::timeout(NOTIFY, told).await.is_err() {
                                tracing::debug!(%peer, shard, "a peer did not hear of a shard in time");
                            }
                        });
                    }
                }
                Effect::Routes(routes) => self.leases.set_routes(routes),
                Effect::Emit(event) => self.emit(&event),
                Effect::Refused(error) => refused = Err(error),
                Effect::Left => self.left = true,
            }
        }
        self.leases.set_session(self.control.session());
        let gauges = self.control.gauges(now);
        self.leases.set_share(gauges.share);
        self.events.gauges(&gauges);
        let first = &self.first;
        if first.read && first.claims == 0 && first.opening.is_empty() {
            self.progress.send_if_modified(|progress| {
                let news = *progress == Progress::Starting;
                if news {
                    *progress = Progress::Ready;
                }
                news
            });
        }
        refused
    }

    fn begin(&mut self, id: OpId, op: LeaseOp, limit: Duration) {
        let claim = matches!(
            op,
            LeaseOp::Claim { .. } | LeaseOp::Tombstone { .. } | LeaseOp::Read { .. }
        );
        self.first.claims += usize::from(claim);
        let store = self.store.clone();
        let given_up = op.clone();
        // Now, and not when the future is first polled: an owner's deadline counts from here.
        let sent = clock::boot_now();
        let run = async move {
            let ran = AssertUnwindSafe(store.run(op, limit)).catch_unwind();
            let result = match clock::timeout(limit + GRACE, ran).await {
                Ok(Ok(result)) => result,
                Ok(Err(_)) => given_up.unknown("the lease store panicked".into()),
                Err(_) => given_up.unknown(format!("no answer within {limit:?}")),
            };
            (Event::Done { id, result, sent }, claim)
        };
        self.ops.push(run.boxed());
    }

    fn report(&mut self, report: RunnerReport) -> Event {
        match &report {
            RunnerReport::Accepted { .. } => {}
            RunnerReport::Opened { shard, .. }
            | RunnerReport::Down { shard, .. }
            | RunnerReport::SelfFenced { shard, .. }
            | RunnerReport::Closed { shard, .. } => drop(self.first.opening.remove(shard)),
        }
        Event::Runner(report)
    }

    /// What is asked is answered at once; what is told becomes an event.
    fn want(&mut self, want: Want) -> Option<Event> {
        match want {
            Want::Notice(shard) => Some(Event::Notice { shard }),
            Want::RouteMiss(shard) => Some(Event::RouteMiss { shard }),
            Want::Command(command, answer) => {
                tracing::info!(?command, "an operator's command");
                let outcome = self.handle(Event::Command(command));
                _ = answer.send(outcome);
                None
            }
            Want::Nodes(answer) => {
                _ = answer.send(self.control.nodes(clock::boot_now()));
                None
            }
            Want::Shards(answer) => {
                _ = answer.send(self.control.shards(clock::boot_now()));
                None
            }
        }
    }

    fn emit(&self, event: &LeaseEvent) {
        if let LeaseEvent::NameTaken {
            address,
            alive: true,
            ..
        } = event
        {
            let taken = Progress::NameTaken {
                address: address.clone(),
            };
            self.progress.send_if_modified(|progress| {
                *progress == Progress::Starting && {
                    *progress = taken;
                    true
                }
            });
        }
        self.events.emit(event);
    }
}

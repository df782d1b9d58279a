//! The runner's task: drives `quarry_core::runner`, which decides, and does what it says.
//!
//! It runs on the lease thread, next to the loop but apart from it: it keeps the deadline of each shard whatever becomes of the loop. It
//! waits for nothing but its queue and its next moment. When it ends, in whatever way, every shard is cut off and the node stops.

use std::collections::BTreeMap;
use std::sync::Arc;

use quarry_core::runner::{
    HostEffect, HostEvent, How, Runner, RunnerCommand, RunnerEvent, RunnerReport, StopReason, Which,
};
use quarry_core::strategy::DownReason;
use quarry_core::time::Moment;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::node::Node;
use super::status::ShardState;
use super::supervise::{Life, Order};
use crate::clock;
use crate::db::open::{Cutoff, Terms};
use crate::gate::Ended;
use crate::gate::deadline::Deadline;

/// The runner and its hands.
pub(super) struct Hands {
    node: Arc<Node>,
    runner: Runner,
    /// For the openings. What is in the queue is bounded by the shards: each opening tells a few things and ends.
    tell: mpsc::UnboundedSender<RunnerEvent>,
    inbox: mpsc::UnboundedReceiver<RunnerEvent>,
    /// To the loop, if there is one.
    reports: Option<mpsc::UnboundedSender<RunnerReport>>,
    openings: BTreeMap<u32, OpeningOf>,
    /// Stop everything, for good.
    finish: CancellationToken,
}

/// How an opening is reached.
struct OpeningOf {
    generation: u64,
    cutoff: Cutoff,
    orders: mpsc::UnboundedSender<Order>,
}

impl Hands {
    pub fn new(
        node: Arc<Node>,
        runner: Runner,
        (tell, inbox): (
            mpsc::UnboundedSender<RunnerEvent>,
            mpsc::UnboundedReceiver<RunnerEvent>,
        ),
        reports: Option<mpsc::UnboundedSender<RunnerReport>>,
        finish: CancellationToken,
    ) -> Self {
        Self {
            node,
            runner,
            tell,
            inbox,
            reports,
            openings: BTreeMap::new(),
            finish,
        }
    }

    /// Works until it is to finish and everything has closed.
    pub async fn run(mut self) {
        let finish = self.finish.clone();
        let mut finishing = false;
        while !(finishing && self.openings.is_empty()) {
            let event = tokio::select! {
                biased;
                // Deadlines come before whatever else there is to do.
                () = clock::until(self.runner.wake_at()) => RunnerEvent::Wake,
                () = finish.cancelled(), if !finishing => {
                    finishing = true;
                    let reason = StopReason::Released;
                    RunnerEvent::Command(RunnerCommand::StopAll { reason })
                }
                event = self.inbox.recv() => match event {
                    Some(event) => event,
                    // It has a sender itself.
                    None => return,
                },
            };
            self.take(event);
        }
    }

    fn take(&mut self, event: RunnerEvent) {
        let touched = touched(&event);
        if let RunnerEvent::Host(
            HostEvent::OpenFailed { shard, .. } | HostEvent::Closed { shard, .. },
        ) = &event
        {
            self.openings.remove(shard);
        }
        let effects = self.runner.handle(event, clock::boot_now());
        let mut changed: Vec<u32> = effects.iter().filter_map(shard_of).collect();
        match touched {
            Some(shard) => changed.push(shard),
            None => changed.extend(self.openings.keys()),
        }
        for effect in effects {
            self.carry_out(effect);
        }
        changed.sort_unstable();
        changed.dedup();
        for shard in changed {
            if let Some(slot) = self.node.slots.get(shard as usize) {
                slot.set_local(self.runner.local(shard));
            }
        }
    }

    fn carry_out(&mut self, effect: HostEffect) {
        match effect {
            HostEffect::Open {
                shard,
                generation,
                writer_epoch,
                deadline,
            } => self.open(shard, generation, writer_epoch, deadline),
            HostEffect::Serve {
                shard,
                generation,
                deadline,
            } => {
                self.extend(shard, generation, deadline);
                if !self.order(shard, generation, Order::Serve) {
                    self.tell(HostEvent::Down {
                        shard,
                        generation,
                        reason: DownReason::Crashed,
                        error: "the host failed at this shard".into(),
                    });
                }
            }
            HostEffect::Deadline {
                shard,
                generation,
                deadline,
            } => self.extend(shard, generation, deadline),
            HostEffect::Fence {
                shard,
                generation,
                reason,
            } => self.fence(shard, generation, reason),
            HostEffect::Close {
                shard,
                generation,
                how,
                successor: _,
            } => {
                if !self.order(shard, generation, Order::Close(how)) {
                    self.tell(HostEvent::Closed {
                        shard,
                        generation,
                        clean: false,
                    });
                }
            }
            HostEffect::Report(report) => self.report(report),
        }
    }

    fn open(&mut self, shard: u32, generation: u64, writer_epoch: Option<u64>, deadline: Moment) {
        let cutoff = self.node.databases.cutoff(gate_deadline(deadline));
        let (orders, receive) = mpsc::unbounded_channel();
        let opening = OpeningOf {
            generation,
            cutoff: cutoff.clone(),
            orders,
        };
        self.openings.insert(shard, opening);
        let life = Life {
            node: self.node.clone(),
            shard,
            generation,
            terms: Terms {
                expected_epoch: writer_epoch,
                cutoff,
            },
            orders: receive,
            tell: self.tell.clone(),
        };
        self.node
            .tasks
            .spawn_on(life.run(), &self.node.threads.control());
    }

    /// The opening of this generation, if it has not ended.
    fn opening(&self, shard: u32, generation: u64) -> Option<&OpeningOf> {
        let opening = self.openings.get(&shard)?;
        (opening.generation == generation).then_some(opening)
    }

    fn extend(&self, shard: u32, generation: u64, deadline: Moment) {
        if let Some(opening) = self.opening(shard, generation) {
            opening.cutoff.deadline().extend(deadline.as_nanos());
        }
    }

    fn fence(&self, shard: u32, generation: u64, reason: StopReason) {
        let Some(opening) = self.opening(shard, generation) else {
            return;
        };
        let why = match reason {
            StopReason::Expired => "the lease could not be renewed in time",
            StopReason::Lost => "the lease was lost",
            StopReason::Released => "the shard was stopped",
        };
        opening.cutoff.cut(Ended::Expired, why);
        let slot = &self.node.slots[shard as usize];
        if let Some(handle) = slot.handle() {
            handle.flag().set_fenced();
        }
        slot.withdraw();
    }

    /// False when nobody takes it any more.
    fn order(&self, shard: u32, generation: u64, order: Order) -> bool {
        self.opening(shard, generation)
            .is_some_and(|opening| opening.orders.send(order).is_ok())
    }

    fn tell(&self, event: HostEvent) {
        // It comes back through the own queue, which is there.
        _ = self.tell.send(RunnerEvent::Host(event));
    }

    fn report(&self, report: RunnerReport) {
        if let RunnerReport::Closed { shard, .. } = &report
            && let Some(slot) = self.node.slots.get(*shard as usize)
        {
            slot.set(ShardState::Unassigned);
        }
        if let Some(reports) = &self.reports
            && reports.send(report).is_err()
        {
            tracing::debug!("the lease loop has ended before the runner");
        }
    }
}

/// Whatever the reason, no shard runs without a runner.
impl Drop for Hands {
    fn drop(&mut self) {
        for (shard, opening) in &self.openings {
            let why = "the node's runner ended";
            tracing::error!(shard, why);
            opening.cutoff.cut(Ended::Expired, why);
            self.node.slots[*shard as usize].withdraw();
            _ = opening.orders.send(Order::Close(How::Abandon));
        }
        self.node.stop.cancel();
    }
}

fn gate_deadline(moment: Moment) -> Deadline {
    if moment == Moment::NEVER {
        Deadline::never()
    } else {
        Deadline::at(moment.as_nanos())
    }
}

/// The shard that an event is about; none when it may be about all.
fn touched(event: &RunnerEvent) -> Option<u32> {
    match event {
        RunnerEvent::Wake => None,
        RunnerEvent::Command(command) => match command {
            RunnerCommand::Open { shard, .. }
            | RunnerCommand::Stop { shard, .. }
            | RunnerCommand::Retry { shard } => Some(*shard),
            RunnerCommand::Extend {
                which: Which::Shard(shard),
                ..
            } => Some(*shard),
            RunnerCommand::Extend { .. } | RunnerCommand::StopAll { .. } => None,
        },
        RunnerEvent::Host(event) => match event {
            HostEvent::Opened { shard, .. }
            | HostEvent::OpenFailed { shard, .. }
            | HostEvent::Down { shard, .. }
            | HostEvent::Closed { shard, .. } => Some(*shard),
        },
    }
}

fn shard_of(effect: &HostEffect) -> Option<u32> {
    match effect {
        HostEffect::Open { shard, .. }
        | HostEffect::Serve { shard, .. }
        | HostEffect::Deadline { shard, .. }
        | HostEffect::Fence { shard, .. }
        | HostEffect::Close { shard, .. } => Some(*shard),
        HostEffect::Report(_) => None,
    }
}

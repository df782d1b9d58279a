//! Drives the loops and the layouts of leases: their operations become requests to the store, which takes its time and its liberties.

use std::time::Duration;

use quarry_core::control::{Command, Effect, Event as ControlEvent};
use quarry_core::lease::layout::{AskId, Step};
use quarry_core::lease::object::{self, Entry, ObjectReply, ObjectRequest, Tag};
use quarry_core::lease::op::{LeaseOp, OpId, OpResult, Outcome};
use quarry_core::lease::record::MAX_BYTES;
use quarry_core::runner::RunnerReport;
use quarry_core::time::Moment;

use super::super::queue::Time;
use super::super::store::{Answer, Condition, fate};
use super::event::{Event, Message};
use super::process::{Life, ProcessId};
use super::{World, hop, shown};

/// A request of an operation, on its way.
#[derive(Debug)]
pub struct Request {
    pub process: ProcessId,
    pub op: OpId,
    pub ask: AskId,
    pub request: ObjectRequest,
    /// When it was sent, by its sender's clock.
    pub sent: Moment,
    /// What the effect says; none before it.
    pub reply: Option<ObjectReply>,
    pub answer: Option<Answer>,
    /// Whether the sender still waits.
    pub awaited: bool,
    /// Whether its effect is still to come.
    pub pending: bool,
}

/// The tag of an object, as the machines know it.
fn tag(tag: u64) -> Tag {
    Tag::e_tag(&format!("\"{tag:x}\""))
}

impl World {
    pub(super) fn wake_control(&mut self, process: ProcessId) {
        // A wake that was put off since; spurious wakes are legal, but would make a run slow.
        let now = self.queue.now();
        let wanted = self.processes[process].control_wake;
        if wanted.is_some_and(|at| at > now) {
            return;
        }
        self.processes[process].control_wake = None;
        self.drive_control(process, ControlEvent::Wake);
    }

    pub(super) fn report_control(&mut self, process: ProcessId, report: RunnerReport) {
        if let RunnerReport::Closed {
            shard, generation, ..
        } = &report
        {
            self.processes[process].closed.insert(*shard, *generation);
        }
        self.drive_control(process, ControlEvent::Runner(report));
    }

    pub(super) fn command(&mut self, process: ProcessId, command: Command) {
        self.trace(|| format!("{} is commanded: {command:?}", shown(process)));
        let target = &mut self.processes[process];
        match command {
            Command::Cordon => target.cordoned = true,
            Command::Uncordon => (target.cordoned, target.draining) = (false, false),
            Command::Drain => target.draining = true,
            Command::Leave => target.leaving = true,
            Command::Move { .. } => {}
        }
        self.drive_control(process, ControlEvent::Command(command));
    }

    pub(super) fn notice(&mut self, process: ProcessId, shard: u32) {
        self.drive_control(process, ControlEvent::Notice { shard });
    }

    pub(super) fn route_miss(&mut self, process: ProcessId, shard: u32) {
        self.drive_control(process, ControlEvent::RouteMiss { shard });
    }

    /// Gives an event to a loop and carries out what it wants.
    fn drive_control(&mut self, process: ProcessId, event: ControlEvent) {
        let now = self.local(process);
        if self.trace && event != ControlEvent::Wake {
            self.trace(|| format!("{} loop <- {event:?}", shown(process)));
        }
        let effects = self.processes[process].control.handle(event, now);
        for effect in effects {
            self.control_effect(process, effect);
            if !self.processes[process].running() {
                return;
            }
        }
        self.schedule_control(process);
    }

    fn schedule_control(&mut self, process: ProcessId) {
        let Some(at) = self.processes[process].control.wake_at() else {
            self.processes[process].control_wake = None;
            return;
        };
        if at == Moment::NEVER {
            return;
        }
        let at = self.world_time(process, at).max(self.queue.now());
        if self.processes[process].control_wake != Some(at) {
            self.processes[process].control_wake = Some(at);
            self.queue.at(at, Event::WakeControl(process));
        }
    }

    fn control_effect(&mut self, process: ProcessId, effect: Effect) {
        if self.trace && !matches!(effect, Effect::Routes(_)) {
            self.trace(|| format!("{} loop -> {effect:?}", shown(process)));
        }
        match effect {
            Effect::Op { id, op, deadline } => self.begin(process, id, op, deadline),
            Effect::Runner(command) => {
                let at = (self.queue.now() + hop(&mut self.network))
                    .max(self.processes[process].to_runner);
                self.processes[process].to_runner = at;
                self.queue.at(at, Event::ToRunner(process, command));
            }
            Effect::Notify { address, shard, .. } => {
                if let Some(to) = self.resolve(&address) {
                    self.send(process, to, Message::Notice(shard));
                }
            }
            Effect::Routes(table) => {
                self.processes[process].routes = table;
                self.unpark(process);
            }
            Effect::Emit(event) => self.emitted(process, &event),
            Effect::Refused(_) => {}
            Effect::Left => {
                self.check_left(process);
                self.kill(process, Life::Left);
            }
        }
    }

    fn begin(&mut self, process: ProcessId, id: OpId, op: LeaseOp, deadline: Duration) {
        let sent = self.local(process);
        self.check_op(process, &op);
        self.check_single(process, id, &op);
        let wall = self.processes[process].clock.wall(self.queue.now()) / 1_000_000;
        let target = &mut self.processes[process];
        target.ops.insert(id, sent);
        let step = target.layout.begin(id, op, wall);
        let end = self.world_time(process, sent + deadline);
        self.queue.at(end, Event::OpTimeout(process, id));
        self.step(process, id, step);
    }

    fn step(&mut self, process: ProcessId, op: OpId, step: Step) {
        match step {
            Step::Ask(asks) => {
                for ask in asks {
                    self.ask(process, op, ask.id, ask.request);
                }
            }
            Step::Done(result) => self.done(process, op, result),
        }
    }

    fn done(&mut self, process: ProcessId, id: OpId, result: OpResult) {
        let Some(sent) = self.processes[process].ops.remove(&id) else {
            return;
        };
        self.processes[process].writing.remove(&id);
        if let OpResult::Setup(Outcome::Lost(seen)) = &result {
            self.processes[process].waits |= seen.tag.is_some();
        }
        if let OpResult::Claim(outcome) = &result {
            match outcome {
                Outcome::Won(_) => self.figures.claims += 1,
                Outcome::Lost(_) => self.figures.claims_lost += 1,
                Outcome::Unknown(_) => {}
            }
        }
        self.drive_control(process, ControlEvent::Done { id, result, sent });
    }

    fn ask(&mut self, process: ProcessId, op: OpId, ask: AskId, request: ObjectRequest) {
        let id = self.next_request;
        self.next_request += 1;
        let put = matches!(request, ObjectRequest::Put { .. });
        let way = self.processes[process].way;
        let fate = fate(&mut self.network, &self.setup, way, put, self.hostile);
        let sent = self.local(process);
        self.figures.requests += 1;
        let target = &mut self.processes[process];
        target.requests += 1;
        if let ObjectRequest::Put { body, .. } = &request {
            target.written += body.len() as u64;
        }
        if let Some(after) = fate.effect {
            self.queue.after(after, Event::Effect(id));
            if put
                && fate
                    .answer
                    .is_none_or(|(_, answer)| answer != Answer::Honest)
            {
                self.aftermath = self.aftermath.max(self.queue.now() + after);
            }
        }
        if let Some((after, _)) = fate.answer {
            self.queue.after(after, Event::Answer(process, id));
        }
        self.queue
            .after(self.request_timeout(), Event::Timeout(process, id));
        self.requests.insert(
            id,
            Request {
                process,
                op,
                ask,
                request,
                sent,
                reply: None,
                answer: fate.answer.map(|(_, answer)| answer),
                awaited: true,
                pending: fate.effect.is_some(),
            },
        );
    }

    /// How long one request may take before its sender gives it up.
    fn request_timeout(&self) -> Time {
        self.setup.ttl / 5
    }

    /// A request takes effect, whoever still waits for it.
    pub(super) fn effect(&mut self, id: u64) {
        let Some(mut request) = self.requests.remove(&id) else {
            return;
        };
        request.pending = false;
        let reply = self.carry_out(&request);
        if request.awaited {
            request.reply = Some(reply);
            self.requests.insert(id, request);
        }
    }

    fn carry_out(&mut self, request: &Request) -> ObjectReply {
        let shards = self.setup.shards;
        match &request.request {
            ObjectRequest::Get(key) => match self.store.get(&key.object_name(shards)) {
                None => ObjectReply::Missing,
                Some(found) => ObjectReply::Found {
                    tag: tag(found.tag),
                    body: found.body.iter().copied().take(MAX_BYTES + 1).collect(),
                },
            },
            ObjectRequest::List { after, limit } => {
                let limit = usize::try_from(*limit).unwrap_or(1000);
                let (found, more) = self.store.list("", Some(after), limit);
                let entries = found
                    .into_iter()
                    .map(|(name, object)| Entry {
                        name: name.to_owned(),
                        tag: Some(tag(object.tag)),
                        size: object.body.len() as u64,
                    })
                    .collect();
                ObjectReply::Listed { entries, more }
            }
            ObjectRequest::Put {
                key,
                body,
                condition,
            } => {
                let name = key.object_name(shards);
                let before = self.store.get(&name).cloned();
                let condition = match condition {
                    object::Condition::Create => Condition::Create,
                    object::Condition::Always => Condition::Always,
                    object::Condition::Match(wanted) => match &before {
                        None => {
                            return if self.chance.chance(0.5) {
                                ObjectReply::Missing
                            } else {
                                ObjectReply::Conflict
                            };
                        }
                        Some(found) if tag(found.tag).same(wanted) => Condition::Match(found.tag),
                        Some(_) => return ObjectReply::Conflict,
                    },
                };
                match self.store.put(&name, body.clone(), condition) {
                    Err(()) => ObjectReply::Conflict,
                    Ok(new) => {
                        self.applied(request.process, request.sent, key, before.as_ref(), body);
                        ObjectReply::Written(tag(new))
                    }
                }
            }
            ObjectRequest::WriterEpoch { shard } => ObjectReply::WriterEpoch(
                usize::try_from(*shard)
                    .ok()
                    .and_then(|shard| self.databases.get(shard))
                    .map_or(0, |database| database.epoch()),
            ),
        }
    }

    /// The answer of a request comes.
    pub(super) fn answer(&mut self, process: ProcessId, id: u64) {
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        let put = matches!(request.request, ObjectRequest::Put { .. });
        let reply = match request.answer {
            Some(Answer::Honest) => request.reply.clone(),
            Some(Answer::Conflict) if put => Some(ObjectReply::Conflict),
            Some(Answer::Refused) => Some(failed(false, "the store refused the request")),
            _ => Some(failed(put, "the store failed")),
        };
        let Some(reply) = reply else {
            return;
        };
        self.hear(process, id, reply);
    }

    pub(super) fn timeout(&mut self, process: ProcessId, id: u64) {
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        let put = matches!(request.request, ObjectRequest::Put { .. });
        self.hear(process, id, failed(put, "no answer in time"));
    }

    /// Gives a reply to its operation; the request may still take effect.
    fn hear(&mut self, process: ProcessId, id: u64, reply: ObjectReply) {
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        let (op, ask, awaited) = (request.op, request.ask, request.awaited);
        request.awaited = false;
        if !request.pending {
            self.requests.remove(&id);
        }
        if !awaited || !self.processes[process].ops.contains_key(&op) {
            return;
        }
        if self.trace {
            self.trace(|| format!("{} {op:?} {ask:?} <- {}", shown(process), brief(&reply)));
        }
        if let ObjectReply::Found { body, .. } = &reply {
            self.processes[process].read += body.len() as u64;
        }
        let step = self.processes[process].layout.reply(op, ask, reply);
        self.step(process, op, step);
    }

    pub(super) fn op_timeout(&mut self, process: ProcessId, op: OpId) {
        if !self.processes[process].ops.contains_key(&op) {
            return;
        }
        let result = self.processes[process].layout.abandon(op);
        self.done(process, op, result);
    }
}

fn failed(maybe_applied: bool, message: &str) -> ObjectReply {
    ObjectReply::Failed {
        maybe_applied,
        message: message.to_owned(),
    }
}

/// A reply without its bytes.
fn brief(reply: &ObjectReply) -> String {
    match reply {
        ObjectReply::Found { tag, body } => format!(
            "found {tag:?}: {}",
            String::from_utf8_lossy(body).trim_end()
        ),
        ObjectReply::Listed { entries, more } => format!("{} listed, more: {more}", entries.len()),
        other => format!("{other:?}"),
    }
}

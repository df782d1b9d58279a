//! Callers: they read and write a register on each shard through any node, and remember what they heard.

mod ends;

use std::collections::BTreeMap;
use std::time::Duration;

use quarry_core::lease::record::{NodeName, SessionId};
use quarry_core::retry::{self, Failed, Policy};
use quarry_core::route::{self, Ask, Decision, Local};
use quarry_core::time::Moment;

use super::super::history::Operation;
use super::super::queue::{MILLI, SECOND, Time};
use super::super::rng::Rng;
use super::event::{Event, Message, Reply, Timer};
use super::process::{Item, Life, ProcessId, Ticket};
use super::{World, shown};

/// A caller's whole patience, and how long a call waits for its shard to come up somewhere.
const TIMEOUT: Time = 30 * SECOND;
const PARK: Time = 10 * SECOND;
/// How long a connection may take.
const CONNECT: Time = SECOND;
const RETRIES: Policy = Policy {
    retries: 3,
    delay: Duration::from_millis(100),
};

/// All calls, and what came of them.
#[derive(Debug)]
pub struct Calls {
    rng: Rng,
    pub open: BTreeMap<u64, Call>,
    next: u64,
    pub histories: Vec<Vec<Operation>>,
    /// Writes of which the callers were told that nothing ran.
    pub refused: Vec<(u32, u64)>,
    /// Calls that did not succeed, for the probes that forbid that: the last call and why.
    pub failed: u64,
    /// Calls that began earlier are blamed on what went before.
    pub counted_from: Time,
    pub last_failure: String,
}

/// A call in progress.
#[derive(Debug)]
pub struct Call {
    pub shard: u32,
    pub write: bool,
    pub begun: Time,
    /// The node it came to.
    pub entry: ProcessId,
    pub deadline: Moment,
    pub attempt: u32,
    pub retries: u32,
    /// How often it ran.
    pub executed: u32,
    /// Where it was sent, and when, while it is away.
    pub away: Option<(ProcessId, Time)>,
    /// The owner and the generation that it was sent to last, and that refused it last.
    pub sent_to: Option<(NodeName, u64)>,
    pub refused_by: Option<(NodeName, u64)>,
    /// Since when it looks for its shard, on the clock of its entry.
    pub since: Moment,
}

impl Calls {
    pub fn new(seed: u64, shards: usize) -> Self {
        Self {
            rng: Rng::new(seed, 4),
            open: BTreeMap::new(),
            next: 1,
            histories: vec![Vec::new(); shards],
            refused: Vec::new(),
            failed: 0,
            counted_from: 0,
            last_failure: String::new(),
        }
    }
}

impl World {
    pub(super) fn next_call(&mut self) {
        let gap = self.calls.rng.exponential(self.setup.call_gap) + MILLI;
        self.queue.after(gap, Event::NextCall);
        // Callers come to nodes that run; in a quiet world to those that say that they are ready.
        let entries: Vec<ProcessId> = self
            .processes
            .iter()
            .filter(|process| process.running() && !process.paused)
            .filter(|process| self.hostile || self.ready(process))
            .map(|process| process.id)
            .collect();
        if entries.is_empty() {
            return;
        }
        let entry = *self.calls.rng.pick(&entries);
        if self.processes[entry].routes.shards.is_empty() {
            return;
        }
        // Few shards get most of the calls, so that they get close to each other.
        let shards = u64::from(self.setup.shards);
        let hot = shards.min(3);
        let shard = if self.calls.rng.chance(0.7) {
            self.calls.rng.range(0, hot)
        } else {
            self.calls.rng.range(0, shards)
        };
        let write = self.calls.rng.chance(0.5);
        let id = self.calls.next;
        self.calls.next += 1;
        self.figures.calls += 1;
        let since = self.local(entry);
        let call = Call {
            shard: u32::try_from(shard).unwrap_or(0),
            write,
            begun: self.queue.now(),
            entry,
            deadline: since + Duration::from_nanos(TIMEOUT),
            attempt: 1,
            retries: 0,
            executed: 0,
            away: None,
            sent_to: None,
            refused_by: None,
            since,
        };
        if self.trace {
            self.trace(|| {
                format!(
                    "call {id} ({}) of shard {shard} at {}",
                    if write { "write" } else { "read" },
                    shown(entry)
                )
            });
        }
        self.calls.open.insert(id, call);
        self.queue.after(
            TIMEOUT + CONNECT,
            Event::CallTimer {
                call: id,
                attempt: u32::MAX,
                why: Timer::GiveUp,
            },
        );
        self.look_for(
            entry,
            Ticket {
                call: id,
                attempt: 1,
                from: None,
                since,
            },
        );
    }

    /// Decides where an attempt goes from here.
    fn look_for(&mut self, process: ProcessId, ticket: Ticket) {
        let Some(call) = self.calls.open.get(&ticket.call) else {
            return;
        };
        let now = self.local(process);
        // A forwarded call brings what is left of its time, not a moment of another clock.
        let left = Duration::from_nanos((call.begun + TIMEOUT).saturating_sub(self.queue.now()));
        let (shard, write) = (call.shard, call.write);
        let ask = Ask {
            shard,
            forwarded: ticket.from.is_some(),
            refused_by: call.refused_by.clone(),
            deadline: now + left,
            since: ticket.since,
            park: Duration::from_nanos(PARK),
        };
        let target = &self.processes[process];
        let local = target.runner.local(shard);
        let decision = route::route(&ask, &target.routes, &local, now, self.rules);
        if self.trace && !matches!(decision, Decision::Park { .. }) {
            self.trace(|| {
                format!(
                    "call {} at {}: {decision:?} ({local:?})",
                    ticket.call,
                    shown(process)
                )
            });
        }
        match decision {
            Decision::Local { .. } => {
                // The gate looks once more before anything runs.
                let takes = self.processes[process]
                    .sites
                    .get(&shard)
                    .is_some_and(|site| site.takes() && now < site.deadline);
                if !takes {
                    return self.answer_call(process, ticket, Reply::NotOwner);
                }
                self.check_run(process, shard, ticket.call, &local);
                let item = Item {
                    ticket,
                    value: ticket.call,
                    write,
                };
                self.run_call(process, shard, item);
            }
            Decision::Forward {
                node,
                session,
                address,
                generation,
                until,
            } => {
                if let Some(call) = self.calls.open.get_mut(&ticket.call) {
                    call.sent_to = Some((node, generation));
                }
                self.check_forward(process, ticket, until);
                if ticket.from.is_some() {
                    return self.answer_call(process, ticket, Reply::NotOwner);
                }
                let Some(to) = self.resolve(&address) else {
                    return self.answer_call(process, ticket, Reply::Unreachable);
                };
                self.forward(process, to, ticket, session, until);
            }
            Decision::Park { until } => {
                if until <= now {
                    return self.answer_call(process, ticket, Reply::NotOwner);
                }
                self.processes[process].parked.push(ticket);
                let at = self.world_time(process, until);
                self.queue
                    .at(at, Event::ParkTimer(process, ticket.call, ticket.attempt));
            }
            Decision::Refuse(_) => self.answer_call(process, ticket, Reply::NotOwner),
        }
    }

    fn forward(
        &mut self,
        process: ProcessId,
        to: ProcessId,
        ticket: Ticket,
        session: SessionId,
        until: Moment,
    ) {
        let end = self.world_time(process, until);
        let message = Message::Call {
            call: ticket.call,
            attempt: ticket.attempt,
            session,
        };
        if let Some(call) = self.calls.open.get_mut(&ticket.call) {
            call.away = Some((to, self.queue.now()));
        }
        self.queue.at(
            end,
            Event::CallTimer {
                call: ticket.call,
                attempt: ticket.attempt,
                why: Timer::GiveUp,
            },
        );
        // Half of the connections are there already and swallow; the others never come about.
        if (self.processes[process].cut || self.processes[to].cut) && self.network.chance(0.5) {
            let reply = Message::Reply {
                call: ticket.call,
                attempt: ticket.attempt,
                reply: Reply::Unreachable,
            };
            self.queue.after(
                CONNECT,
                Event::Message {
                    from: to,
                    to: process,
                    message: reply,
                },
            );
            return;
        }
        self.send(process, to, message);
    }

    /// Sends a message; a cut network loses it.
    pub(super) fn send(&mut self, from: ProcessId, to: ProcessId, message: Message) {
        if self.processes[from].cut || self.processes[to].cut {
            return;
        }
        let usual = self.setup.peer_delay;
        let delay = usual / 2 + self.network.exponential(usual / 2);
        self.queue
            .after(delay, Event::Message { from, to, message });
    }

    pub(super) fn message(&mut self, from: ProcessId, to: ProcessId, message: Message) {
        match message {
            Message::Notice(shard) => self.notice(to, shard),
            Message::Call {
                call,
                attempt,
                session,
            } => {
                let since = self.local(to);
                let ticket = Ticket {
                    call,
                    attempt,
                    from: Some(from),
                    since,
                };
                if self.processes[to].control.session() != session {
                    return self.answer_call(to, ticket, Reply::NotOwner);
                }
                self.look_for(to, ticket);
            }
            Message::Reply {
                call,
                attempt,
                reply,
            } => self.heard(call, attempt, reply),
        }
    }

    /// A message to a process that is gone: its machine refuses connections, or is gone too, unless it left by itself.
    pub(super) fn unreachable(&mut self, from: ProcessId, to: ProcessId, message: &Message) {
        if let Message::Call { call, attempt, .. } = message
            && (self.processes[to].life == Life::Left || self.network.chance(0.8))
        {
            let delay = if self.processes[to].life == Life::Left || self.network.chance(0.5) {
                MILLI
            } else {
                CONNECT
            };
            let reply = Message::Reply {
                call: *call,
                attempt: *attempt,
                reply: Reply::Unreachable,
            };
            self.queue.after(
                delay,
                Event::Message {
                    from,
                    to: from,
                    message: reply,
                },
            );
        }
    }

    /// Tells the outcome of an attempt to where it came from.
    pub(super) fn answer_call(&mut self, process: ProcessId, ticket: Ticket, reply: Reply) {
        match ticket.from {
            None => self.heard(ticket.call, ticket.attempt, reply),
            Some(from) => {
                let message = Message::Reply {
                    call: ticket.call,
                    attempt: ticket.attempt,
                    reply,
                };
                self.send(process, from, message);
            }
        }
    }

    /// The entry node hears of an attempt.
    fn heard(&mut self, id: u64, attempt: u32, reply: Reply) {
        let Some(call) = self.calls.open.get_mut(&id) else {
            return;
        };
        if call.attempt != attempt {
            return;
        }
        let away = call.away.take();
        // A peer that is gone says as much as one that refuses: its lease is looked at, and the call waits for another owner.
        let refused = matches!(reply, Reply::NotOwner | Reply::Unreachable) && away.is_some();
        call.refused_by = call.sent_to.take().filter(|_| refused);
        let (shard, entry) = (call.shard, call.entry);
        if self.trace {
            self.trace(|| format!("call {id} heard {reply:?}"));
        }
        let failed = match reply {
            Reply::Done(value) => return self.end_call(id, value),
            Reply::Unknown => Failed::Sent,
            Reply::NotOwner => Failed::Refused,
            Reply::Unreachable => Failed::NeverSent,
        };
        if refused {
            self.queue.after(0, Event::RouteMiss(entry, shard));
        }
        let Some(call) = self.calls.open.get_mut(&id) else {
            return;
        };
        let left = Duration::from_nanos((call.begun + TIMEOUT).saturating_sub(self.queue.now()));
        let random = self.calls.rng.unit();
        match retry::next(RETRIES, call.retries + 1, failed, left, random) {
            Some(pause) => {
                call.retries += 1;
                call.attempt += 1;
                let attempt = call.attempt;
                let pause = u64::try_from(pause.as_nanos()).unwrap_or(SECOND);
                self.queue.after(
                    pause,
                    Event::CallTimer {
                        call: id,
                        attempt,
                        why: Timer::Retry,
                    },
                );
            }
            None if failed == Failed::Sent => self.end_unknown(id, "outcome unknown"),
            None => self.end_refused(id),
        }
    }

    pub(super) fn call_timer(&mut self, id: u64, attempt: u32, why: Timer) {
        let Some(call) = self.calls.open.get(&id) else {
            return;
        };
        if attempt != u32::MAX && call.attempt != attempt {
            return;
        }
        match why {
            Timer::Retry => {
                let (entry, since) = (call.entry, call.since);
                self.look_for(
                    entry,
                    Ticket {
                        call: id,
                        attempt,
                        from: None,
                        since,
                    },
                );
            }
            Timer::GiveUp => self.end_unknown(id, "gave up"),
        }
    }

    /// What this process knows has changed: whatever waits there looks again.
    pub(super) fn unpark(&mut self, process: ProcessId) {
        for ticket in std::mem::take(&mut self.processes[process].parked) {
            self.look_for(process, ticket);
        }
    }

    pub(super) fn park_timer(&mut self, process: ProcessId, call: u64, attempt: u32) {
        let parked = &mut self.processes[process].parked;
        let Some(index) = parked
            .iter()
            .position(|ticket| (ticket.call, ticket.attempt) == (call, attempt))
        else {
            return;
        };
        let ticket = parked.swap_remove(index);
        self.look_for(process, ticket);
    }

    /// The node that advertises an address.
    pub(super) fn resolve(&self, address: &str) -> Option<ProcessId> {
        let id: ProcessId = address.strip_prefix('p')?.parse().ok()?;
        (id < self.processes.len()).then_some(id)
    }

    /// A call begins to run.
    fn check_run(&mut self, process: ProcessId, shard: u32, id: u64, local: &Local) {
        let Some(call) = self.calls.open.get_mut(&id) else {
            return;
        };
        call.executed += 1;
        let executed = call.executed;
        if executed > 1 {
            self.fail(
                "S12",
                format!(
                    "call {id} of shard {shard} ran {executed} times, now on {} ({local:?})",
                    shown(process)
                ),
            );
        }
    }
}

//! A small cluster on one event queue: loops, runners and layouts over one store, each request taking its time. What the simulator does
//! at length, for tests of single rules.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::store::{Fault, Store};
use crate::control::{Command, Control, ControlOptions, Effect, Event, LeaseEvent};
use crate::lease::layout::{AskId, Layout, LayoutOptions, Step};
use crate::lease::object::{Key, ObjectReply, ObjectRequest};
use crate::lease::op::{OpId, Renewal};
use crate::lease::record::{LeaseRecord, NodeName};
use crate::rng::Rng;
use crate::route::RouteTable;
use crate::rules::Rules;
use crate::runner::{HostEffect, HostEvent, OpenFailure, Runner, RunnerEvent, RunnerOptions};
use crate::strategy::Lease;
use crate::time::Moment;

/// What happens at a moment.
#[expect(
    clippy::large_enum_variant,
    reason = "each is moved a few times and kept nowhere in numbers"
)]
#[derive(Debug)]
enum Due {
    /// A request reaches the store.
    Request(OpId, AskId, ObjectRequest),
    Reply(OpId, AskId, ObjectReply),
    Deadline(OpId),
    Host(HostEvent),
    Control(Event),
    /// The database of a shard is claimed: between the order to open and its being open.
    Claim {
        shard: u32,
        generation: u64,
        expected: Option<u64>,
    },
}

pub(crate) struct Node {
    pub(crate) control: Control,
    pub(crate) runner: Runner,
    layout: Layout,
    sent: BTreeMap<OpId, Moment>,
    /// The shards that are served, with their epoch and deadline.
    pub(crate) serving: BTreeMap<u32, (u64, Moment)>,
    /// Epochs of databases that are open, by shard and generation.
    open: BTreeMap<(u32, u64), u64>,
    fenced: BTreeSet<(u32, u64)>,
    pub(crate) routes: RouteTable,
    pub(crate) events: Vec<LeaseEvent>,
    /// It takes part in nothing until then.
    pub(crate) paused: Moment,
    /// It cannot reach the store.
    pub(crate) cut: bool,
    /// It can write to the store but not read from it.
    pub(crate) blind: bool,
    pub(crate) left: bool,
    /// Shards that fail to open here.
    pub(crate) failing: BTreeSet<u32>,
}

pub(crate) struct Cluster {
    pub(crate) now: Moment,
    pub(crate) store: Store,
    pub(crate) nodes: BTreeMap<NodeName, Node>,
    queue: BTreeMap<(Moment, u64), (NodeName, u64, Due)>,
    next: u64,
    starts: BTreeMap<NodeName, u64>,
    rng: Rng,
    shards: u32,
    renewal: Renewal,
    pub(crate) ttl: Duration,
    pub(crate) latency: Duration,
    /// How many of a thousand writes fail in some way.
    pub(crate) faults: u64,
    pub(crate) rules: Rules,
    /// The highest epoch under which a shard was ever served, to see that it only grows.
    served: BTreeMap<u32, u64>,
}

pub(crate) fn name(name: &str) -> NodeName {
    name.parse().expect("a name")
}

impl Cluster {
    pub(crate) fn new(shards: u32, renewal: Renewal, seed: u128) -> Self {
        Self {
            now: Moment::ORIGIN + Duration::from_secs(100),
            store: Store::new(shards),
            nodes: BTreeMap::new(),
            queue: BTreeMap::new(),
            next: 0,
            starts: BTreeMap::new(),
            rng: Rng::new(seed),
            shards,
            renewal,
            ttl: Duration::from_secs(15),
            latency: Duration::from_millis(20),
            faults: 0,
            rules: Rules::default(),
            served: BTreeMap::new(),
        }
    }

    /// Starts a node, or starts it anew after it crashed.
    pub(crate) fn start(&mut self, node: &str) {
        let mut options = ControlOptions::new(name(node), "demo", self.shards);
        options.lease_ttl = self.ttl;
        options.renewal = self.renewal;
        options.advertise = format!("http://{node}");
        options.rules = self.rules;
        let strategy = Arc::new(Lease);
        let layout = LayoutOptions {
            renewal: self.renewal,
            shards: self.shards,
            rules: self.rules,
        };
        let runner = RunnerOptions {
            max_concurrency: 16,
            rules: self.rules,
        };
        let mut seed = || self.rng.next_u128();
        let fresh = Node {
            control: Control::new(options, strategy.clone(), seed(), self.now)
                .expect("good options"),
            runner: Runner::new(runner, strategy, seed()),
            layout: Layout::new(layout, seed()),
            sent: BTreeMap::new(),
            serving: BTreeMap::new(),
            open: BTreeMap::new(),
            fenced: BTreeSet::new(),
            routes: RouteTable::default(),
            events: Vec::new(),
            paused: Moment::ORIGIN,
            cut: false,
            blind: false,
            left: false,
            failing: BTreeSet::new(),
        };
        *self.starts.entry(name(node)).or_default() += 1;
        self.nodes.insert(name(node), fresh);
        self.push(&name(node), Duration::ZERO, Due::Control(Event::Wake));
    }

    pub(crate) fn crash(&mut self, node: &str) {
        self.nodes.remove(&name(node));
        *self.starts.entry(name(node)).or_default() += 1;
    }

    pub(crate) fn node(&mut self, node: &str) -> &mut Node {
        self.nodes.get_mut(&name(node)).expect("it runs")
    }

    pub(crate) fn command(&mut self, node: &str, command: Command) {
        self.event(node, Event::Command(command));
    }

    pub(crate) fn event(&mut self, node: &str, event: Event) {
        self.push(&name(node), Duration::ZERO, Due::Control(event));
    }

    /// A database fails by itself.
    pub(crate) fn down(&mut self, node: &str, event: HostEvent) {
        self.push(&name(node), Duration::ZERO, Due::Host(event));
    }

    fn push(&mut self, node: &NodeName, after: Duration, due: Due) {
        self.next += 1;
        let start = self.starts.get(node).copied().unwrap_or(0);
        self.queue
            .insert((self.now + after, self.next), (node.clone(), start, due));
    }

    /// Runs for this time.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        let mut steps = 0_u32;
        loop {
            let wake = |(name, node): (&NodeName, &Node)| {
                let wakes = [node.control.wake_at(), node.runner.wake_at()];
                let wake = wakes.into_iter().flatten().min()?;
                (!node.left).then(|| (wake.max(node.paused), name.clone()))
            };
            let wake = self.nodes.iter().filter_map(wake).min();
            let event = self.queue.first_key_value().map(|(key, _)| key.0);
            let next = wake
                .as_ref()
                .map(|(at, _)| *at)
                .into_iter()
                .chain(event)
                .min();
            let Some(next) = next.filter(|next| *next <= end) else {
                break;
            };
            steps += 1;
            assert!(steps < 2_000_000, "it does not come to rest");
            self.now = self.now.max(next);
            if event.is_some_and(|event| event <= next) {
                let (_, (node, start, due)) = self.queue.pop_first().expect("one is due");
                self.due(&node, start, due);
            } else if let Some((_, node)) = wake {
                self.host(&node, RunnerEvent::Wake);
                self.control(&node, Event::Wake);
            }
            // Looking at many shards takes its time.
            if self.shards <= 64 || steps.is_multiple_of(64) {
                self.check();
            }
        }
        self.now = end;
    }

    fn due(&mut self, node: &NodeName, start: u64, due: Due) {
        if let Due::Request(id, ask, request) = due {
            // What was sent reaches the store though its sender is gone.
            let put = matches!(request, ObjectRequest::Put { .. });
            let cut = |node: &Node| node.cut || (node.blind && !put);
            let cut = self.nodes.get(node).is_some_and(cut);
            if put && self.rng.next_u64() % 1000 < self.faults {
                let faults = [
                    Fault::AfterEffect,
                    Fault::BeforeEffect,
                    Fault::NotSent,
                    Fault::Repeated,
                    Fault::Spurious,
                ];
                let fault = faults[usize::try_from(self.rng.next_u64() % 5).expect("small")];
                self.store.faults.push_back(Some(fault));
            }
            let reply = if cut {
                ObjectReply::Failed {
                    maybe_applied: true,
                    message: "cut off".into(),
                }
            } else {
                self.store.carry_out(request)
            };
            self.store.faults.clear();
            if self.starts.get(node) == Some(&start) {
                let latency = self.latency / 2;
                self.push(node, latency, Due::Reply(id, ask, reply));
            }
            return;
        }
        if let Due::Claim {
            shard,
            generation,
            expected,
        } = due
        {
            return self.claim(node, start, shard, generation, expected);
        }
        let Some(there) = self
            .nodes
            .get(node)
            .filter(|_| self.starts.get(node) == Some(&start))
        else {
            return;
        };
        if there.paused > self.now {
            let after = there.paused.since(self.now);
            return self.push(node, after, due);
        }
        match due {
            Due::Reply(id, ask, reply) => {
                let step = self
                    .nodes
                    .get_mut(node)
                    .map(|node| node.layout.reply(id, ask, reply));
                self.step(node, id, step.unwrap_or(Step::Ask(Vec::new())));
            }
            Due::Deadline(id) => {
                let there = self.nodes.get_mut(node).expect("it runs");
                if there.sent.contains_key(&id) {
                    let result = there.layout.abandon(id);
                    self.step(node, id, Step::Done(result));
                }
            }
            Due::Host(event) => self.host(node, RunnerEvent::Host(event)),
            Due::Control(event) => self.control(node, event),
            Due::Request(..) | Due::Claim { .. } => {}
        }
    }

    fn claim(
        &mut self,
        node: &NodeName,
        start: u64,
        shard: u32,
        generation: u64,
        expected: Option<u64>,
    ) {
        if self.starts.get(node) != Some(&start) {
            return;
        }
        let epoch = self.store.epochs.entry(shard).or_default();
        let there = self.nodes.get_mut(node).expect("it runs");
        let event = if there.failing.contains(&shard) {
            (OpenFailure::Failed, "broken")
        } else if expected.is_some_and(|expected| expected != *epoch) || there.cut {
            (OpenFailure::Fenced, "fenced")
        } else {
            *epoch += 1;
            there.open.insert((shard, generation), *epoch);
            let event = HostEvent::Opened {
                shard,
                generation,
                writer_epoch: *epoch,
            };
            return self.push(node, Duration::from_millis(50), Due::Host(event));
        };
        let event = HostEvent::OpenFailed {
            shard,
            generation,
            kind: event.0,
            error: event.1.into(),
        };
        self.push(node, Duration::from_millis(50), Due::Host(event));
    }

    fn control(&mut self, node: &NodeName, event: Event) {
        let now = self.now;
        let Some(there) = self.nodes.get_mut(node) else {
            return;
        };
        for effect in there.control.handle(event, now) {
            match effect {
                Effect::Op { id, op, deadline } => {
                    let there = self.nodes.get_mut(node).expect("it runs");
                    there.sent.insert(id, now);
                    let step = there.layout.begin(id, op, 1_700_000_000_000);
                    self.push(node, deadline, Due::Deadline(id));
                    self.step(node, id, step);
                }
                Effect::Runner(command) => self.host(node, RunnerEvent::Command(command)),
                Effect::Notify {
                    peer,
                    address,
                    shard,
                } => {
                    // It is not known while the peer's record is unreadable.
                    assert!(
                        address.is_empty() || address == format!("http://{peer}"),
                        "{address}"
                    );
                    self.push(
                        &peer,
                        Duration::from_millis(1),
                        Due::Control(Event::Notice { shard }),
                    );
                }
                Effect::Routes(routes) => self.node(node.as_str()).routes = routes,
                Effect::Emit(event) => self.node(node.as_str()).events.push(event),
                Effect::Refused(_) => {}
                Effect::Left => self.node(node.as_str()).left = true,
            }
        }
    }

    fn step(&mut self, node: &NodeName, id: OpId, step: Step) {
        match step {
            Step::Ask(asks) => {
                for ask in asks {
                    let latency = self.latency / 2;
                    self.push(node, latency, Due::Request(id, ask.id, ask.request));
                }
            }
            Step::Done(result) => {
                let sent = self
                    .nodes
                    .get_mut(node)
                    .and_then(|node| node.sent.remove(&id));
                let sent = sent.expect("an operation in flight");
                self.push(
                    node,
                    Duration::ZERO,
                    Due::Control(Event::Done { id, result, sent }),
                );
            }
        }
    }

    fn host(&mut self, node: &NodeName, event: RunnerEvent) {
        let now = self.now;
        let Some(there) = self.nodes.get_mut(node) else {
            return;
        };
        for effect in there.runner.handle(event, now) {
            let there = self.nodes.get_mut(node).expect("it runs");
            match effect {
                HostEffect::Open {
                    shard,
                    generation,
                    writer_epoch,
                    ..
                } => {
                    let expected = writer_epoch;
                    let due = Due::Claim {
                        shard,
                        generation,
                        expected,
                    };
                    self.push(node, Duration::from_millis(100), due);
                }
                HostEffect::Serve {
                    shard,
                    generation,
                    deadline,
                } => {
                    there
                        .serving
                        .insert(shard, (there.open[&(shard, generation)], deadline));
                }
                HostEffect::Deadline {
                    shard, deadline, ..
                } => {
                    if let Some(serving) = there.serving.get_mut(&shard) {
                        serving.1 = deadline;
                    }
                }
                HostEffect::Fence {
                    shard, generation, ..
                } => {
                    there.serving.remove(&shard);
                    there.fenced.insert((shard, generation));
                }
                HostEffect::Close {
                    shard, generation, ..
                } => {
                    there.serving.remove(&shard);
                    there.open.remove(&(shard, generation));
                    let clean = !there.fenced.remove(&(shard, generation));
                    let event = HostEvent::Closed {
                        shard,
                        generation,
                        clean,
                    };
                    self.push(node, Duration::from_millis(50), Due::Host(event));
                }
                HostEffect::Report(report) => {
                    self.push(node, Duration::ZERO, Due::Control(Event::Runner(report)));
                }
            }
        }
    }

    /// At any time: nobody serves past its deadline, no two serve one shard within theirs, and epochs only grow.
    fn check(&mut self) {
        let now = self.now;
        let mut owners: BTreeMap<u32, &NodeName> = BTreeMap::new();
        for (name, node) in &self.nodes {
            for (shard, (epoch, deadline)) in &node.serving {
                // A paused node serves nobody; its gate is shut when it wakes after the deadline.
                if *deadline <= now {
                    let late = *deadline < now && node.paused < now;
                    assert!(!late, "{name} serves {shard} past its deadline");
                    continue;
                }
                let other = owners.insert(*shard, name);
                assert_eq!(other, None, "{name} serves {shard}, too, at {now:?}");
                let newest = self.served.entry(*shard).or_default();
                assert!(
                    *epoch >= *newest,
                    "{name} serves {shard} under epoch {epoch} after {newest}"
                );
                *newest = *epoch;
            }
        }
    }

    /// How many shards each node serves, by name.
    pub(crate) fn shares(&self) -> Vec<usize> {
        self.nodes.values().map(|node| node.serving.len()).collect()
    }

    pub(crate) fn served(&self) -> usize {
        self.shares().into_iter().sum()
    }

    pub(crate) fn lease(&self, shard: u32) -> LeaseRecord {
        let body = self.store.body(&Key::Lease(shard)).expect("a lease");
        LeaseRecord::decode(shard, body).expect("a readable lease")
    }

    /// How often the lease of each shard has been claimed: what moved, if none was lost meanwhile.
    pub(crate) fn generations(&self) -> Vec<u64> {
        (0..self.shards)
            .map(|shard| self.lease(shard).generation)
            .collect()
    }

    /// Runs until all shards are served, and says how long that took.
    pub(crate) fn until_served(&mut self, limit: Duration) -> Duration {
        let began = self.now;
        while self.served() < self.shards as usize {
            assert!(
                self.now.since(began) < limit,
                "not all are served after {limit:?}: {:?}",
                self.shares()
            );
            self.run(Duration::from_millis(100));
        }
        self.now.since(began)
    }
}

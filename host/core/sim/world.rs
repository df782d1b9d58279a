//! One run: the cluster, its store and its callers, and the two phases of it.

mod calls;
mod chaos;
mod checks;
mod event;
mod hosts;
mod loops;
mod process;
mod quiet;
mod report;
mod rollouts;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use quarry_core::control::{Control, ControlOptions};
use quarry_core::lease::layout::{Layout, LayoutOptions};
use quarry_core::lease::op::Renewal;
use quarry_core::lease::record::NodeName;
use quarry_core::route::RouteTable;
use quarry_core::rules::{Mutation, Rules};
use quarry_core::runner::{Runner, RunnerOptions};
use quarry_core::strategy::{Lease, Strategy};
use quarry_core::time::Moment;

use super::clock::Clock;
use super::database::Database;
use super::queue::{MILLI, Queue, SECOND, Time};
use super::rng::Rng;
use super::setup::{LayoutName, Setup};
use super::store::{Condition, Store, Way};
use calls::Calls;
use checks::Facts;
use event::{Event, Reply, Thread};
use loops::Request;
use process::{Life, Process, ProcessId};
use quiet::Quiet;
pub use report::{Figures, Outcome, Violation};
use rollouts::{Adopter, Rollouts};

/// More events than this at one moment mean that somebody wakes itself without end.
const STORM: u32 = 50_000;

/// A run in progress.
#[derive(Debug)]
pub struct World {
    setup: Setup,
    rules: Rules,
    trace: bool,
    queue: Queue<Event>,
    /// One stream each for what is independent of each other.
    seeds: Rng,
    network: Rng,
    chance: Rng,
    store: Store,
    databases: Vec<Database>,
    processes: Vec<Process>,
    requests: BTreeMap<u64, Request>,
    next_request: u64,
    next_handle: u64,
    calls: Calls,
    facts: Facts,
    rollouts: Rollouts,
    figures: Figures,
    violation: Option<Violation>,
    /// Whether the store misbehaves and things break.
    hostile: bool,
    /// The latest moment at which something that faults left behind still takes effect.
    aftermath: Time,
    quiet: Quiet,
    broken: u32,
    /// How many events came at one moment.
    instant: (Time, u32),
}

impl World {
    pub fn new(setup: Setup, rules: Rules, trace: bool) -> Self {
        let seed = setup.seed;
        let shards = usize::try_from(setup.shards).expect("a number of shards");
        Self {
            store: Store::new(setup.tags),
            databases: vec![Database::default(); shards],
            processes: Vec::new(),
            requests: BTreeMap::new(),
            next_request: 0,
            next_handle: 0,
            calls: Calls::new(seed, shards),
            facts: Facts::new(shards),
            rollouts: Rollouts::new(seed),
            figures: Figures::default(),
            violation: None,
            hostile: true,
            aftermath: 0,
            quiet: Quiet::default(),
            broken: 0,
            instant: (0, 0),
            queue: Queue::new(),
            seeds: Rng::new(seed, 1),
            network: Rng::new(seed, 2),
            chance: Rng::new(seed, 3),
            setup,
            rules,
            trace,
        }
    }

    /// Runs to the end or to the first violation.
    pub fn run(mut self) -> Outcome {
        for number in 0..self.setup.strangers {
            let folder = if number % 2 == 0 {
                "attic/"
            } else {
                "leases/old-"
            };
            let name = format!("{folder}{number}");
            let _ = self.store.put(&name, vec![b'x'], Condition::Always);
        }
        for index in 0..self.setup.nodes {
            let name = node_name(index);
            let at = self.chance.range(0, self.setup.interval);
            let process = self.spawn(&name, None);
            self.queue.at(at, Event::Start(process));
        }
        self.queue.after(SECOND, Event::NextCall);
        let gap = self.chance.exponential(self.setup.chaos.gap);
        self.queue.after(self.setup.ttl + gap, Event::Strike);
        self.begin_orders();
        self.advance(self.setup.fault_phase);
        self.run_quiet();
        self.finish()
    }

    /// Lets the world go on until a moment.
    fn advance(&mut self, until: Time) {
        while self.violation.is_none() {
            let Some(event) = self.queue.take(until) else {
                break;
            };
            self.happen(event);
        }
    }

    fn happen(&mut self, event: Event) {
        let now = self.queue.now();
        self.instant = if self.instant.0 == now {
            (now, self.instant.1 + 1)
        } else {
            (now, 0)
        };
        if self.instant.1 > STORM {
            return self.fail(
                "L4",
                format!("{STORM} events came at one moment, the last was {event:?}"),
            );
        }
        if let Some((process, thread)) = event.thread() {
            let target = &mut self.processes[process];
            if !target.running() {
                if let Event::Message { from, message, .. } = event {
                    self.unreachable(from, process, &message);
                }
                return;
            }
            if target.paused || (target.stalled && thread == Thread::Loop) {
                target.deferred.push((thread, event));
                return;
            }
        }
        match event {
            Event::WakeControl(process) => self.wake_control(process),
            Event::WakeRunner(process) => self.wake_runner(process),
            Event::ToRunner(process, command) => self.command_runner(process, command),
            Event::ToControl(process, report) => self.report_control(process, report),
            Event::Command(process, command) => self.command(process, command),
            Event::RouteMiss(process, shard) => self.route_miss(process, shard),
            Event::Effect(request) => self.effect(request),
            Event::Answer(process, request) => self.answer(process, request),
            Event::Timeout(process, request) => self.timeout(process, request),
            Event::OpTimeout(process, op) => self.op_timeout(process, op),
            Event::Site(process, shard, handle, event) => self.site(process, shard, handle, event),
            Event::Land(landing) => self.land(landing),
            Event::Message { from, to, message } => self.message(from, to, message),
            Event::NextCall => self.next_call(),
            Event::CallTimer { call, attempt, why } => self.call_timer(call, attempt, why),
            Event::ParkTimer(process, call, attempt) => self.park_timer(process, call, attempt),
            Event::Strike => self.strike(),
            Event::Heal(what, process) => self.heal(what, process),
            Event::Look => self.look(),
            Event::Start(process) => {
                self.wake_control(process);
                self.begin_rollouts(process);
            }
            Event::Rollout(process, work) => self.rollout(process, work),
        }
    }

    /// A new process of this name, on this machine or one of its own; it does nothing before it is started.
    fn spawn(&mut self, name: &NodeName, clock: Option<Clock>) -> ProcessId {
        let id = self.processes.len();
        let clock = clock.unwrap_or_else(|| Clock::new(&mut self.seeds, self.setup.drift));
        let renewal = match self.setup.layout {
            LayoutName::Session => Renewal::Session,
            LayoutName::Shard => Renewal::Lease,
        };
        let now = if self.rules.broken(Mutation::WallClock) {
            clock.wall(self.queue.now())
        } else {
            clock.boot(self.queue.now())
        };
        let concurrency = u32::try_from(self.setup.max_concurrency).unwrap_or(1);
        let mut options = ControlOptions::new(name.clone(), "simulated", self.setup.shards);
        options.advertise = format!("p{id}");
        options.renewal = renewal;
        options.lease_ttl = Duration::from_nanos(self.setup.ttl);
        options.interval = Some(Duration::from_nanos(self.setup.interval));
        options.margin = Some(Duration::from_nanos(self.setup.margin));
        options.max_concurrency = concurrency;
        options.rules = self.rules;
        let strategy: Arc<dyn Strategy> = Arc::new(Lease);
        let mut seed = || u128::from(self.seeds.bits()) << 64 | u128::from(self.seeds.bits());
        let layout = LayoutOptions {
            renewal,
            shards: self.setup.shards,
            rules: self.rules,
        };
        let runner = RunnerOptions {
            max_concurrency: concurrency,
            rules: self.rules,
        };
        let process = Process {
            id,
            name: name.clone(),
            life: Life::Running,
            born: self.queue.now(),
            died: None,
            paused: false,
            resumed: 0,
            stalled: false,
            deferred: Vec::new(),
            way: Way::default(),
            cut: false,
            control: Control::new(
                options,
                Arc::clone(&strategy),
                seed(),
                Moment::from_nanos(now),
            )
            .expect("options that make sense"),
            runner: Runner::new(runner, strategy, seed()),
            layout: Layout::new(layout, seed()),
            clock,
            ops: BTreeMap::new(),
            writing: BTreeMap::new(),
            routes: RouteTable::default(),
            sites: BTreeMap::new(),
            parked: Vec::new(),
            adopter: Adopter::default(),
            control_wake: None,
            runner_wake: None,
            to_runner: 0,
            to_control: 0,
            cordoned: false,
            draining: false,
            leaving: false,
            waits: false,
            closed: BTreeMap::new(),
            requests: 0,
            written: 0,
            read: 0,
        };
        self.trace(|| format!("{} is node {name}", shown(id)));
        self.processes.push(process);
        id
    }

    /// Ends a process from one moment to the next.
    fn kill(&mut self, process: ProcessId, life: Life) {
        self.trace(|| format!("{} ends: {life:?}", shown(process)));
        if life == Life::Left {
            // A node that leaves refuses what still waits there.
            for ticket in std::mem::take(&mut self.processes[process].parked) {
                self.answer_call(process, ticket, Reply::NotOwner);
            }
        }
        let now = self.queue.now();
        let target = &mut self.processes[process];
        target.life = life;
        target.died = Some(now);
        target.sites.clear();
        target.parked.clear();
        target.deferred.clear();
        target.ops.clear();
        self.forget_calls_of(process);
    }

    /// What its clock reads that its machines are driven by.
    fn local(&self, process: ProcessId) -> Moment {
        let clock = &self.processes[process].clock;
        let now = self.queue.now();
        Moment::from_nanos(if self.rules.broken(Mutation::WallClock) {
            clock.wall(now)
        } else {
            clock.boot(now)
        })
    }

    /// The moment of the world at which its clock reads this.
    fn world_time(&self, process: ProcessId, moment: Moment) -> Time {
        let clock = &self.processes[process].clock;
        if self.rules.broken(Mutation::WallClock) {
            clock.wall_world(moment.as_nanos())
        } else {
            clock.world(moment.as_nanos())
        }
    }

    /// Records the first violation; the run ends with it.
    fn fail(&mut self, oracle: &'static str, words: String) {
        self.trace(|| format!("VIOLATION {oracle}: {words}"));
        if self.violation.is_none() {
            self.violation = Some(Violation {
                oracle,
                words,
                at: self.queue.now(),
            });
        }
    }

    fn trace(&self, words: impl FnOnce() -> String) {
        if self.trace {
            println!(
                "{:>12.6} {}",
                self.queue.now() as f64 / SECOND as f64,
                words()
            );
        }
    }
}

/// A node's name.
fn node_name(index: usize) -> NodeName {
    format!("n{index}").parse().expect("a node's name")
}

/// A process, in words.
fn shown(process: ProcessId) -> String {
    format!("p{process}")
}

/// A delay between two tasks of one process.
fn hop(rng: &mut Rng) -> Time {
    rng.range(0, MILLI)
}

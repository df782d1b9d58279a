//! One run of one node: its machines, what its host has open, and what ails it.

use std::collections::BTreeMap;

use quarry_core::control::Control;
use quarry_core::lease::layout::Layout;
use quarry_core::lease::op::OpId;
use quarry_core::lease::record::NodeName;
use quarry_core::route::RouteTable;
use quarry_core::runner::Runner;
use quarry_core::time::Moment;

use super::super::clock::Clock;
use super::super::queue::Time;
use super::super::store::Way;
use super::event::{Event, Thread};
use super::rollouts::Adopter;

/// The index of a process; never used twice.
pub type ProcessId = usize;

/// A process.
#[derive(Debug)]
pub struct Process {
    pub id: ProcessId,
    pub name: NodeName,
    pub clock: Clock,
    pub life: Life,
    pub born: Time,
    pub died: Option<Time>,
    pub paused: bool,
    /// When its last pause ended.
    pub resumed: Time,
    /// Its loop hangs; its runner and its shards go on.
    pub stalled: bool,
    /// What is to happen when it goes on.
    pub deferred: Vec<(Thread, Event)>,
    pub way: Way,
    /// Messages to and from peers are lost.
    pub cut: bool,
    pub control: Control,
    pub runner: Runner,
    pub layout: Layout,
    pub ops: BTreeMap<OpId, Moment>,
    /// The operations that write a lease, by shard.
    pub writing: BTreeMap<OpId, u32>,
    pub routes: RouteTable,
    pub sites: BTreeMap<u32, Site>,
    pub parked: Vec<Ticket>,
    pub adopter: Adopter,
    pub control_wake: Option<Time>,
    pub runner_wake: Option<Time>,
    /// The last moments at which something reached the runner and the loop, to keep the order.
    pub to_runner: Time,
    pub to_control: Time,
    /// What operators wanted of it.
    pub cordoned: bool,
    pub draining: bool,
    pub leaving: bool,
    /// It has read the record of another session of its name, and waits for that to end.
    pub waits: bool,
    /// The generations of which its loop heard that the runner has nothing any more.
    pub closed: BTreeMap<u32, u64>,
    /// Store requests sent for its leases, the bytes of the bodies written and read, and the databases opened.
    pub requests: u64,
    pub written: u64,
    pub read: u64,
}

/// Whether a process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    Running,
    /// It ended by itself.
    Left,
    /// It was killed.
    Killed,
}

/// A shard as its host has it: from `Open` to `Closed`.
#[derive(Debug)]
pub struct Site {
    pub handle: u64,
    pub generation: u64,
    pub expected: Option<u64>,
    /// The writer epoch it reached.
    pub epoch: u64,
    pub stage: Stage,
    /// Cut off from its store, its gate shut for ever.
    pub killed: bool,
    /// Its database or its guest failed.
    pub down: bool,
    /// Whether the runner let it serve.
    pub serving: bool,
    pub deadline: Moment,
    /// The newest write in memory: its value.
    pub value: u64,
    /// What waits for the next flush, and for the one on its way.
    pub waiting: Vec<Item>,
    pub flushing: Option<Vec<Item>>,
    /// The step at which this open fails, if it does.
    pub fails_at: Option<u8>,
    /// How much slower than usual it opens and closes.
    pub slow: Time,
}

/// Where a shard is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Opening,
    Open,
    Closing,
}

/// A call at the gate.
#[derive(Debug, Clone, Copy)]
pub struct Item {
    pub ticket: Ticket,
    pub value: u64,
    pub write: bool,
}

/// One attempt of a call, and who is to hear of it: a peer, or the caller here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    pub call: u64,
    pub attempt: u32,
    pub from: Option<ProcessId>,
    /// Since when it has looked for its shard, on the clock of the process it is at.
    pub since: Moment,
}

impl Process {
    pub fn running(&self) -> bool {
        self.life == Life::Running
    }

    /// Its boot-time clock.
    pub fn now(&self, world: Time) -> Moment {
        Moment::from_nanos(self.clock.boot(world))
    }

    /// Whether a reply of this shard could leave now.
    pub fn gate(&self, shard: u32, world: Time) -> bool {
        self.running()
            && self
                .sites
                .get(&shard)
                .is_some_and(|site| site.open_gate() && self.now(world) < site.deadline)
    }
}

impl Site {
    /// Whether its gate is open, deadline apart.
    pub fn open_gate(&self) -> bool {
        self.serving && !self.killed && !self.down
    }

    /// Whether it takes calls, deadline apart.
    pub fn takes(&self) -> bool {
        self.stage == Stage::Open && self.open_gate()
    }
}

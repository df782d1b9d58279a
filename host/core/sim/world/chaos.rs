//! What strikes a cluster while faults last, and how it ends.

use quarry_core::control::Command;
use quarry_core::lease::object::{self, Key, ObjectRequest};
use quarry_core::lease::record::NodeName;
use quarry_core::strategy::DownReason;

use super::super::clock::Clock;
use super::super::queue::{MILLI, SECOND, Time};
use super::super::setup::Misfortune;
use super::super::store::{Condition, Way};
use super::event::{Event, Thread};
use super::loops::Request;
use super::process::{Life, Process, ProcessId, Stage};
use super::{World, node_name, shown};

/// No cluster of a run has more nodes than this.
const MOST_NODES: usize = 9;
/// Nor more processes, over all its restarts.
const MOST_PROCESSES: usize = 60;

impl World {
    pub(super) fn strike(&mut self) {
        if !self.hostile {
            return;
        }
        let gap = self
            .chance
            .exponential(self.setup.chaos.gap)
            .max(50 * MILLI);
        self.queue.after(gap, Event::Strike);
        if self.broken > 0 && !self.setup.chaos.together {
            return;
        }
        let Some(index) = self.chance.weighted(&self.setup.chaos.weights()) else {
            return;
        };
        self.figures.strikes += 1;
        let what = Misfortune::ALL[index];
        let most = self.setup.chaos.most;
        // Short ones, some about a TTL long, and long ones.
        let long = match self.chance.range(0, 3) {
            0 => self.chance.range(10 * MILLI, self.setup.interval),
            1 => self
                .chance
                .range(self.setup.ttl / 2, self.setup.ttl + self.setup.interval),
            _ => self.chance.range(SECOND, most.max(2 * SECOND)),
        };
        self.befall(what, long);
    }

    pub(super) fn befall(&mut self, what: Misfortune, long: Time) {
        if what == Misfortune::Join {
            return self.join();
        }
        if matches!(what, Misfortune::Outage | Misfortune::SlowStore) {
            self.trace(|| format!("all: {what:?} for {} ms", long / MILLI));
            for process in &mut self.processes {
                set(&mut process.way, what, true);
            }
            if what == Misfortune::Outage {
                self.facts.outage_began = self.queue.now();
            }
            self.broken += 1;
            return self.queue.after(long, Event::Heal(what, usize::MAX));
        }
        if self.spoil(what) {
            return;
        }
        let running: Vec<ProcessId> = self
            .processes
            .iter()
            .filter(|process| process.running())
            .map(|process| process.id)
            .collect();
        if running.is_empty() {
            return self.join();
        }
        let process = *self.chance.pick(&running);
        self.trace(|| format!("{}: {what:?} for {} ms", shown(process), long / MILLI));
        match what {
            Misfortune::Pause => self.processes[process].paused = true,
            Misfortune::StallLoop => self.processes[process].stalled = true,
            Misfortune::CutStore | Misfortune::CutReplies => {
                set(&mut self.processes[process].way, what, true)
            }
            Misfortune::CutPeers => self.processes[process].cut = true,
            Misfortune::Crash => self.kill(process, Life::Killed),
            Misfortune::RestartAtOnce => {
                self.kill(process, Life::Killed);
                let after = self.chance.range(0, SECOND);
                self.start_again(process, after);
                return;
            }
            Misfortune::Twin => return self.start_again(process, 0),
            Misfortune::Leave => self.queue.after(0, Event::Command(process, Command::Leave)),
            Misfortune::Drain => self.queue.after(0, Event::Command(process, Command::Drain)),
            Misfortune::Cordon => self
                .queue
                .after(0, Event::Command(process, Command::Cordon)),
            Misfortune::Move => return self.move_some(process),
            Misfortune::DatabaseCrash => {
                let open: Vec<u32> = self.processes[process]
                    .sites
                    .iter()
                    .filter(|(_, site)| site.stage == Stage::Open)
                    .map(|(shard, _)| *shard)
                    .collect();
                if !open.is_empty() && !self.processes[process].paused {
                    let shard = *self.chance.pick(&open);
                    self.down(process, shard, DownReason::Crashed);
                }
                return;
            }
            Misfortune::StepWall => {
                let by = self.chance.range(0, 2 * 86_400 * SECOND).cast_signed()
                    - (86_400 * SECOND).cast_signed();
                self.processes[process].clock.step(by);
                return;
            }
            _ => return,
        }
        self.broken += 1;
        self.queue.after(long, Event::Heal(what, process));
    }

    /// Misfortunes of what lies in the bucket. False for any other.
    fn spoil(&mut self, what: Misfortune) -> bool {
        let shard = self.chance.range(0, u64::from(self.setup.shards));
        let shard = u32::try_from(shard).unwrap_or(0);
        let names: Vec<_> = self
            .processes
            .iter()
            .map(|process| process.name.clone())
            .collect();
        let name = self.chance.pick(&names).clone();
        // Without a record a process that has not seen the first one of its name cannot tell that there is one.
        let members = self.members();
        let comes = self.processes.iter().any(|process| {
            process.running()
                && process.name == name
                && !process.waits
                && members
                    .get(&name)
                    .is_some_and(|member| *member != process.id)
        });
        if comes && what == Misfortune::DeleteNode {
            return true;
        }
        let key = match what {
            Misfortune::DeleteLease | Misfortune::CorruptLease => Key::Lease(shard),
            Misfortune::DeleteNode | Misfortune::CorruptNode => Key::Node(name),
            Misfortune::Garbage => {
                self.garbage();
                return true;
            }
            Misfortune::Stranger => {
                self.trace(|| format!("a stranger opens the database of shard {shard}"));
                let database = &mut self.databases[shard as usize];
                let epoch = database.raise(database.epoch()).unwrap_or(0);
                let _ = database.fence(epoch);
                return true;
            }
            _ => return false,
        };
        // A first write that is on its way lands as if nothing had been there: no store can tell.
        let creates = |request: &Request| {
            let ObjectRequest::Put {
                key: of, condition, ..
            } = &request.request
            else {
                return false;
            };
            request.pending && *of == key && *condition == object::Condition::Create
        };
        if self.requests.values().any(creates) {
            return true;
        }
        // What is gone, back, and gone again before anybody looked was gone all the time, for all that anybody can tell. Everybody looks
        // within three intervals, or counts anew.
        let now = self.queue.now();
        let restored = self.facts.restored.get(&key);
        if restored.is_some_and(|at| now < at + 3 * self.setup.interval) {
            return true;
        }
        self.trace(|| format!("an operator spoils {key:?}: {what:?}"));
        let object = key.object_name(self.setup.shards);
        match &key {
            Key::Lease(shard) => {
                let facts = &mut self.facts.shards[*shard as usize];
                (facts.spoiled, facts.deleted) = (Some(now), Some(now));
            }
            Key::Node(_) => self
                .facts
                .shards
                .iter_mut()
                .for_each(|facts| facts.spoiled = Some(now)),
        }
        if matches!(what, Misfortune::DeleteLease | Misfortune::DeleteNode) {
            self.store.delete(&object);
        } else {
            let body = self.spoiled_body(&object);
            let _ = self.store.put(&object, body, Condition::Always);
        }
        true
    }

    fn spoiled_body(&mut self, object: &str) -> Vec<u8> {
        let old = self
            .store
            .get(object)
            .map(|object| object.body.clone())
            .unwrap_or_default();
        match self.chance.range(0, 6) {
            0 => Vec::new(),
            1 => b"{}".to_vec(),
            2 => vec![b'x'; 20_000],
            3 => String::from_utf8_lossy(&old)
                .replace("\"version\":1", "\"version\":99")
                .into_bytes(),
            4 => old[..old.len() / 2].to_vec(),
            _ => (0..200)
                .map(|_| u8::try_from(self.chance.range(0, 256)).unwrap_or(0))
                .collect(),
        }
    }

    fn garbage(&mut self) {
        let many = if self.chance.chance(0.1) {
            1200
        } else {
            self.chance.range(1, 20)
        };
        for _ in 0..many {
            let number = self.chance.bits();
            let name = match number % 5 {
                0 => format!("leases/{number}.json"),
                1 => format!("leases/.{number}"),
                2 => format!("nodes/x y{number}.json"),
                3 => format!("nodes/ghost{number}.json"),
                _ => format!("zebra/{number}"),
            };
            let body = self.spoiled_body("");
            let _ = self.store.put(&name, body, Condition::Always);
        }
    }

    fn join(&mut self) {
        let running: Vec<_> = self
            .processes
            .iter()
            .filter(|process| process.running())
            .collect();
        if running.len() >= MOST_NODES || self.processes.len() >= MOST_PROCESSES {
            return;
        }
        let free: Vec<usize> = (0..MOST_NODES + 2)
            .filter(|index| {
                running
                    .iter()
                    .all(|process| process.name != node_name(*index))
            })
            .collect();
        let name = node_name(*self.chance.pick(&free));
        let process = self.spawn_into_this_world(&name, None);
        self.queue.after(0, Event::Start(process));
    }

    /// A further process of a name, after a while.
    pub(super) fn start_again(&mut self, process: ProcessId, after: Time) {
        if self.processes.len() >= MOST_PROCESSES {
            return;
        }
        let name = self.processes[process].name.clone();
        // Without a record it could not tell that there is another one of its name.
        let key = Key::Node(name.clone()).object_name(self.setup.shards);
        let lives = |other: &Process| other.running() && other.name == name;
        if self.store.get(&key).is_none() && self.processes.iter().any(lives) {
            return;
        }
        let clock = self.processes[process].clock.clone();
        // The same machine, most of the time.
        let clock = self.chance.chance(0.7).then_some(clock);
        let new = self.spawn_into_this_world(&name, clock);
        self.queue.after(after, Event::Start(new));
    }

    /// A new process meets the store as it is.
    fn spawn_into_this_world(&mut self, name: &NodeName, clock: Option<Clock>) -> ProcessId {
        let process = self.spawn(name, clock);
        let outage = self.processes.iter().any(|other| other.way.outage);
        let slow = self.processes.iter().any(|other| other.way.slow);
        self.processes[process].way = Way {
            outage,
            slow,
            ..Way::default()
        };
        process
    }

    fn move_some(&mut self, process: ProcessId) {
        let held: Vec<u32> = self.processes[process].sites.keys().copied().collect();
        let others: Vec<_> = self
            .processes
            .iter()
            .filter(|other| other.running() && other.id != process)
            .map(|other| other.name.clone())
            .collect();
        if held.is_empty() || others.is_empty() {
            return;
        }
        let shard = *self.chance.pick(&held);
        let to = self.chance.pick(&others).clone();
        self.queue
            .after(0, Event::Command(process, Command::Move { shard, to }));
    }

    pub(super) fn heal(&mut self, what: Misfortune, process: ProcessId) {
        self.broken = self.broken.saturating_sub(1);
        if matches!(what, Misfortune::Outage | Misfortune::SlowStore) {
            self.trace(|| format!("all: {what:?} ends"));
            for process in &mut self.processes {
                set(&mut process.way, what, false);
            }
            // Only one that was long enough to blind everybody counts.
            if what == Misfortune::Outage
                && self.queue.now() - self.facts.outage_began > self.setup.ttl
            {
                self.facts.outage_ended = Some(self.queue.now());
            }
            return;
        }
        if !self.processes[process].running() {
            // Some come back under their name, some never do.
            if matches!(what, Misfortune::Crash | Misfortune::Leave)
                && self.hostile
                && self.chance.chance(0.7)
            {
                self.start_again(process, 0);
            }
            return;
        }
        self.trace(|| format!("{}: {what:?} ends", shown(process)));
        match what {
            Misfortune::Pause | Misfortune::StallLoop => {
                self.resume(process, what == Misfortune::Pause)
            }
            Misfortune::CutStore | Misfortune::CutReplies => {
                set(&mut self.processes[process].way, what, false)
            }
            Misfortune::CutPeers => self.processes[process].cut = false,
            Misfortune::Drain | Misfortune::Cordon => {
                self.queue
                    .after(0, Event::Command(process, Command::Uncordon));
            }
            _ => {}
        }
    }

    /// A process goes on: all that came meanwhile happens now, each thread in its order, the threads in any.
    pub(super) fn resume(&mut self, process: ProcessId, pause: bool) {
        let target = &mut self.processes[process];
        if pause {
            target.paused = false;
            target.resumed = self.queue.now();
        } else {
            target.stalled = false;
        }
        let deferred = std::mem::take(&mut target.deferred);
        let now = self.queue.now();
        let offsets: [Time; 3] = std::array::from_fn(|_| now + self.chance.range(0, 5 * MILLI));
        let target = &mut self.processes[process];
        target.to_control = target.to_control.max(offsets[0]);
        target.to_runner = target.to_runner.max(offsets[1]);
        for (thread, event) in deferred {
            let at = match thread {
                Thread::Loop => offsets[0],
                Thread::Runner => offsets[1],
                Thread::Shards => offsets[2],
            };
            self.queue.at(at, event);
        }
    }
}

fn set(way: &mut Way, what: Misfortune, on: bool) {
    match what {
        Misfortune::CutStore => way.cut = on,
        Misfortune::CutReplies => way.deaf = on,
        Misfortune::Outage => way.outage = on,
        Misfortune::SlowStore => way.slow = on,
        _ => {}
    }
}

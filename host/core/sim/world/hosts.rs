//! What a node's host does for its runner: opens and closes databases, flushes, and keeps the gates.

mod flush;

use quarry_core::runner::{HostEffect, HostEvent, How, OpenFailure, RunnerCommand, RunnerEvent};
use quarry_core::strategy::DownReason;
use quarry_core::time::Moment;

use super::super::database::{Content, Database};
use super::super::queue::{MILLI, Time};
use super::event::{Event, Landing, RETRY, SiteEvent};
use super::process::{ProcessId, Site, Stage};
use super::{World, hop, shown};

/// The steps of an open: read the manifest, raise its writer epoch, put the fence, replay the log.
const RAISE: u8 = 1;
const FENCE: u8 = 2;
const REPLAY: u8 = 3;

impl World {
    pub(super) fn wake_runner(&mut self, process: ProcessId) {
        let now = self.queue.now();
        if self.processes[process]
            .runner_wake
            .is_some_and(|at| at > now)
        {
            return;
        }
        self.processes[process].runner_wake = None;
        self.drive_runner(process, RunnerEvent::Wake);
        self.check_deadlines(process);
    }

    pub(super) fn command_runner(&mut self, process: ProcessId, command: RunnerCommand) {
        self.drive_runner(process, RunnerEvent::Command(command));
    }

    fn tell_runner(&mut self, process: ProcessId, event: HostEvent) {
        self.drive_runner(process, RunnerEvent::Host(event));
    }

    fn drive_runner(&mut self, process: ProcessId, event: RunnerEvent) {
        let now = self.local(process);
        if self.trace && event != RunnerEvent::Wake {
            self.trace(|| format!("{} runner <- {event:?}", shown(process)));
        }
        let effects = self.processes[process].runner.handle(event, now);
        for effect in effects {
            self.host_effect(process, effect);
        }
        self.schedule_runner(process);
        self.unpark(process);
    }

    fn schedule_runner(&mut self, process: ProcessId) {
        let Some(at) = self.processes[process].runner.wake_at() else {
            self.processes[process].runner_wake = None;
            return;
        };
        if at == Moment::NEVER {
            return;
        }
        let at = self.world_time(process, at).max(self.queue.now());
        if self.processes[process].runner_wake != Some(at) {
            self.processes[process].runner_wake = Some(at);
            self.queue.at(at, Event::WakeRunner(process));
        }
    }

    fn host_effect(&mut self, process: ProcessId, effect: HostEffect) {
        if self.trace {
            self.trace(|| format!("{} runner -> {effect:?}", shown(process)));
        }
        match effect {
            HostEffect::Report(report) => {
                let at = (self.queue.now() + hop(&mut self.network))
                    .max(self.processes[process].to_control);
                self.processes[process].to_control = at;
                self.queue.at(at, Event::ToControl(process, report));
            }
            HostEffect::Open {
                shard,
                generation,
                writer_epoch,
                deadline,
            } => {
                self.check_open(process, shard, generation, writer_epoch, deadline);
                self.open(process, shard, generation, writer_epoch, deadline);
            }
            HostEffect::Serve {
                shard,
                generation,
                deadline,
            } => {
                self.check_serve(process, shard, generation, deadline);
                if let Some(site) = self.processes[process].sites.get_mut(&shard) {
                    site.serving = true;
                    site.deadline = deadline;
                }
                self.check_alone(process, shard);
                self.shard_opened(process, shard);
            }
            HostEffect::Deadline {
                shard,
                generation,
                deadline,
            } => {
                self.check_deadline(process, shard, generation, deadline);
                self.check_revival(process, shard);
                if let Some(site) = self.processes[process].sites.get_mut(&shard) {
                    site.deadline = site.deadline.max(deadline);
                    if site.serving {
                        self.check_alone(process, shard);
                    }
                }
            }
            HostEffect::Fence { shard, .. } => {
                let Some(site) = self.processes[process].sites.get_mut(&shard) else {
                    return;
                };
                site.killed = true;
                self.drop_waiting(process, shard);
            }
            HostEffect::Close { shard, how, .. } => self.close(process, shard, how),
        }
    }

    fn open(
        &mut self,
        process: ProcessId,
        shard: u32,
        generation: u64,
        expected: Option<u64>,
        deadline: Moment,
    ) {
        let handle = self.next_handle;
        self.next_handle += 1;
        self.figures.opens += 1;
        let databases = self.setup.databases.clone();
        let slow = if self.hostile && self.chance.chance(databases.slow) {
            self.chance.range(databases.step, databases.slow_most) / 3
        } else {
            0
        };
        let fails = self.hostile && self.chance.chance(databases.fails);
        let fails_at = fails.then(|| u8::try_from(self.chance.range(0, 4)).unwrap_or(0));
        self.processes[process].sites.insert(
            shard,
            Site {
                handle,
                generation,
                expected,
                epoch: 0,
                stage: Stage::Opening,
                killed: false,
                down: false,
                serving: false,
                deadline,
                value: 0,
                waiting: Vec::new(),
                flushing: None,
                fails_at,
                slow,
            },
        );
        self.site_after(
            process,
            shard,
            handle,
            databases.open_timeout,
            SiteEvent::OpenTimeout,
        );
        self.next_step(process, shard, handle, 0, 0);
    }

    fn next_step(&mut self, process: ProcessId, shard: u32, handle: u64, step: u8, read: u64) {
        let slow = self.processes[process]
            .sites
            .get(&shard)
            .map_or(0, |site| site.slow);
        let usual = self.setup.databases.step;
        let delay = usual / 2 + self.network.range(0, usual) + slow;
        self.site_after(process, shard, handle, delay, SiteEvent::Step(step, read));
    }

    fn site_after(
        &mut self,
        process: ProcessId,
        shard: u32,
        handle: u64,
        delay: Time,
        event: SiteEvent,
    ) {
        self.queue
            .after(delay, Event::Site(process, shard, handle, event));
    }

    /// Something happens to an open database; nothing when it is another one by now.
    pub(super) fn site(&mut self, process: ProcessId, shard: u32, handle: u64, event: SiteEvent) {
        let Some(site) = self.processes[process].sites.get(&shard) else {
            return;
        };
        if site.handle != handle {
            return;
        }
        let stage = site.stage;
        match event {
            SiteEvent::Step(step, read) if stage == Stage::Opening => {
                self.open_step(process, shard, step, read)
            }
            SiteEvent::OpenTimeout if stage == Stage::Opening => {
                self.open_failed(process, shard, OpenFailure::TimedOut);
            }
            SiteEvent::Flushed(result) => self.flushed(process, shard, result),
            SiteEvent::Poll if stage == Stage::Open => self.poll(process, shard),
            SiteEvent::Close => self.try_close(process, shard),
            SiteEvent::CloseTimeout => self.closed(process, shard, false),
            SiteEvent::Step(..) | SiteEvent::OpenTimeout | SiteEvent::Poll => {}
        }
    }

    fn open_step(&mut self, process: ProcessId, shard: u32, step: u8, read: u64) {
        let way = self.processes[process].way;
        let Some(site) = self.processes[process].sites.get(&shard) else {
            return;
        };
        let handle = site.handle;
        // A database that was cut off may come up all the same, when nothing was left for it to ask.
        let late = site.killed && step == REPLAY && handle % 2 == 0;
        if (site.killed && !late) || site.fails_at == Some(step) {
            return self.open_failed(process, shard, OpenFailure::Failed);
        }
        if (way.cut || way.outage) && !late {
            return self.site_after(process, shard, handle, RETRY, SiteEvent::Step(step, read));
        }
        let (expected, epoch, generation) = (site.expected, site.epoch, site.generation);
        let database = &mut self.databases[shard as usize];
        let next = match step {
            0 if expected.is_some_and(|expected| expected != database.epoch()) => None,
            0 => Some(database.epoch()),
            RAISE => match database.raise(read) {
                Ok(epoch) => Some(epoch),
                // Without an expected epoch the last opener wins: it reads again.
                Err(_) if expected.is_none() => {
                    return self.next_step(process, shard, handle, 0, 0);
                }
                Err(_) => None,
            },
            FENCE => database.fence(epoch).ok().map(|()| 0),
            _ => Some(0),
        };
        let Some(next) = next else {
            return self.open_failed(process, shard, OpenFailure::Fenced);
        };
        if let Some(site) = self.processes[process].sites.get_mut(&shard)
            && step == RAISE
        {
            site.epoch = next;
        }
        if step == FENCE {
            self.check_fence(process, shard, generation);
        }
        if way.deaf {
            // It took effect, and the client asks again.
            let again = if step == RAISE { 0 } else { step };
            return self.site_after(process, shard, handle, RETRY, SiteEvent::Step(again, read));
        }
        if step < REPLAY {
            return self.next_step(process, shard, handle, step + 1, next);
        }
        self.opened(process, shard);
    }

    fn opened(&mut self, process: ProcessId, shard: u32) {
        let Some(site) = self.processes[process].sites.get_mut(&shard) else {
            return;
        };
        site.stage = Stage::Open;
        site.value = value_at_fence(&self.databases[shard as usize], site.epoch);
        let (handle, generation, writer_epoch) = (site.handle, site.generation, site.epoch);
        let poll = self.setup.databases.poll;
        self.site_after(process, shard, handle, poll, SiteEvent::Poll);
        self.tell_runner(
            process,
            HostEvent::Opened {
                shard,
                generation,
                writer_epoch,
            },
        );
    }

    fn open_failed(&mut self, process: ProcessId, shard: u32, kind: OpenFailure) {
        let Some(site) = self.processes[process].sites.remove(&shard) else {
            return;
        };
        self.check_late_step(&site, shard);
        self.tell_runner(
            process,
            HostEvent::OpenFailed {
                shard,
                generation: site.generation,
                kind,
                error: format!("{kind:?}"),
            },
        );
    }

    /// A request of an open that was given up may still be on its way and raise the epoch later.
    fn check_late_step(&mut self, site: &Site, shard: u32) {
        if self.hostile && site.epoch == 0 && site.expected.is_some() && self.chance.chance(0.1) {
            let after = self.chance.range(0, self.setup.ttl);
            self.aftermath = self.aftermath.max(self.queue.now() + after);
            self.queue.after(
                after,
                Event::Land(Landing {
                    process: usize::MAX,
                    shard,
                    handle: site.handle,
                    epoch: site.expected.unwrap_or(0),
                    items: Vec::new(),
                }),
            );
        }
    }

    fn close(&mut self, process: ProcessId, shard: u32, how: How) {
        self.check_close(process, shard);
        let stuck = self.hostile && self.chance.chance(self.setup.databases.stuck);
        let step = self.setup.databases.step;
        let timeout = self.setup.databases.close_timeout;
        let Some(site) = self.processes[process].sites.get_mut(&shard) else {
            return;
        };
        site.stage = Stage::Closing;
        // What opened slowly in bad times closes as usual in good ones.
        let slow = if self.hostile { site.slow } else { 0 };
        let handle = site.handle;
        match how {
            How::Abandon => {
                site.killed = true;
                self.drop_waiting(process, shard);
                let after = self.chance.range(0, 20 * MILLI);
                self.site_after(process, shard, handle, after, SiteEvent::CloseTimeout);
            }
            How::Clean => {
                self.site_after(process, shard, handle, timeout, SiteEvent::CloseTimeout);
                if !stuck {
                    let after = step + self.chance.range(0, step) + slow;
                    self.site_after(process, shard, handle, after, SiteEvent::Close);
                }
            }
        }
    }

    fn try_close(&mut self, process: ProcessId, shard: u32) {
        let target = &self.processes[process];
        let way = target.way;
        let Some(site) = target.sites.get(&shard) else {
            return;
        };
        let handle = site.handle;
        if site.killed {
            return self.closed(process, shard, false);
        }
        if self.databases[shard as usize].epoch() != site.epoch {
            // The last flush is refused.
            return self.closed(process, shard, false);
        }
        if way.cut || way.outage || way.deaf || site.flushing.is_some() || !site.waiting.is_empty()
        {
            return self.site_after(process, shard, handle, RETRY / 10, SiteEvent::Close);
        }
        self.closed(process, shard, true);
    }

    fn closed(&mut self, process: ProcessId, shard: u32, clean: bool) {
        self.drop_waiting(process, shard);
        let Some(site) = self.processes[process].sites.remove(&shard) else {
            return;
        };
        self.tell_runner(
            process,
            HostEvent::Closed {
                shard,
                generation: site.generation,
                clean: clean && !site.down,
            },
        );
    }

    fn poll(&mut self, process: ProcessId, shard: u32) {
        self.check_deadlines(process);
        let way = self.processes[process].way;
        let current = self.databases[shard as usize].epoch();
        let Some(site) = self.processes[process].sites.get(&shard) else {
            return;
        };
        let (handle, epoch) = (site.handle, site.epoch);
        if !way.cut && !way.deaf && !way.outage && current > epoch {
            return self.down(process, shard, DownReason::Fenced);
        }
        let poll = self.setup.databases.poll;
        self.site_after(process, shard, handle, poll, SiteEvent::Poll);
    }

    /// A database that works no more.
    pub(super) fn down(&mut self, process: ProcessId, shard: u32, reason: DownReason) {
        let Some(site) = self.processes[process].sites.get_mut(&shard) else {
            return;
        };
        if site.stage != Stage::Open || site.down || !site.serving {
            return;
        }
        site.down = true;
        let generation = site.generation;
        self.drop_waiting(process, shard);
        let error = format!("{reason:?}");
        self.tell_runner(
            process,
            HostEvent::Down {
                shard,
                generation,
                reason,
                error,
            },
        );
    }
}

/// The register as the writer of `epoch` replayed it: the last write before its fence.
fn value_at_fence(database: &Database, epoch: u64) -> u64 {
    let before_fence = database
        .log()
        .iter()
        .take_while(|slot| !(slot.epoch == epoch && slot.content == Content::Fence));
    before_fence
        .filter_map(|slot| match slot.content {
            Content::Write(value) => Some(value),
            Content::Fence => None,
        })
        .last()
        .unwrap_or(0)
}

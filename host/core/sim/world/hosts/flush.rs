//! Calls at work, and the flushes and gates that their answers wait for.

use quarry_core::strategy::DownReason;

use super::super::super::database::Content;
use super::super::World;
use super::super::event::{Event, Landing, RETRY, Reply, SiteEvent};
use super::super::process::{Item, ProcessId};

impl World {
    /// Takes a call that may run here: it runs at once, and its answer waits at the gate.
    pub fn run_call(&mut self, process: ProcessId, shard: u32, mut item: Item) {
        let Some(site) = self.processes[process].sites.get_mut(&shard) else {
            return;
        };
        if item.write {
            site.value = item.value;
        } else {
            item.value = site.value;
        }
        site.waiting.push(item);
        self.sample_call(process, shard);
        self.flush(process, shard);
    }

    pub fn flush(&mut self, process: ProcessId, shard: u32) {
        let Some(site) = self.processes[process].sites.get_mut(&shard) else {
            return;
        };
        if site.killed || site.flushing.is_some() || site.waiting.is_empty() {
            return;
        }
        let items = std::mem::take(&mut site.waiting);
        if items.iter().all(|item| !item.write) {
            // Nothing of it is not durable.
            self.release(process, shard, &items);
            return;
        }
        let landing = Landing {
            process,
            shard,
            handle: site.handle,
            epoch: site.epoch,
            items: items.clone(),
        };
        site.flushing = Some(items);
        let usual = self.setup.store_delay;
        let mut delay = usual / 3 + self.network.exponential(usual / 3);
        if self.hostile
            && (self.processes[process].way.slow || self.network.chance(self.setup.faults.slow))
        {
            delay = self.network.heavy(usual, self.setup.faults.slow_most);
        }
        self.queue.after(delay, Event::Land(landing));
    }

    /// A flush reaches the store.
    pub fn land(&mut self, landing: Landing) {
        let Landing {
            process,
            shard,
            handle,
            epoch,
            ref items,
        } = landing;
        let database = &mut self.databases[shard as usize];
        if process == usize::MAX {
            // The late step of an open that was given up.
            let _ = database.raise(epoch);
            return;
        }
        let way = self.processes[process].way;
        let alive = self.processes[process].running()
            && self.processes[process]
                .sites
                .get(&shard)
                .is_some_and(|site| site.handle == handle && !site.killed);
        if way.cut || way.outage {
            // The client tries again for as long as it lives.
            if alive {
                self.queue.after(RETRY, Event::Land(landing));
            }
            return;
        }
        let mut result = Ok(());
        for item in items.iter().filter(|item| item.write) {
            let known = database
                .log()
                .iter()
                .rev()
                .any(|slot| slot.content == Content::Write(item.value));
            if !known && database.append(epoch, Content::Write(item.value)).is_err() {
                result = Err(());
                break;
            }
        }
        if way.deaf {
            if alive {
                self.queue.after(RETRY, Event::Land(landing));
            }
            return;
        }
        let back = self.setup.store_delay / 4;
        self.queue.after(
            back,
            Event::Site(process, shard, handle, SiteEvent::Flushed(result)),
        );
    }

    pub fn flushed(&mut self, process: ProcessId, shard: u32, result: Result<(), ()>) {
        let Some(site) = self.processes[process].sites.get_mut(&shard) else {
            return;
        };
        let items = site.flushing.take().unwrap_or_default();
        match result {
            Ok(()) => {
                self.release(process, shard, &items);
                self.flush(process, shard);
            }
            Err(()) => {
                self.refuse(process, &items, Reply::Unknown);
                self.drop_waiting(process, shard);
                self.down(process, shard, DownReason::Fenced);
            }
        }
    }

    /// Answers leave through the gate, if it is still open.
    pub fn release(&mut self, process: ProcessId, shard: u32, items: &[Item]) {
        let now = self.local(process);
        let open = self.processes[process]
            .sites
            .get(&shard)
            .is_some_and(|site| site.open_gate() && now < site.deadline);
        if !open {
            return self.refuse(process, items, Reply::Unknown);
        }
        for item in items {
            self.check_release(process, shard);
            self.answer_call(process, item.ticket, Reply::Done(item.value));
        }
    }

    pub fn refuse(&mut self, process: ProcessId, items: &[Item], reply: Reply) {
        for item in items {
            self.answer_call(process, item.ticket, reply);
        }
    }

    /// Calls at a gate that will not open again: nobody will know what became of them.
    pub fn drop_waiting(&mut self, process: ProcessId, shard: u32) {
        let Some(site) = self.processes[process].sites.get_mut(&shard) else {
            return;
        };
        let mut items = site.flushing.take().unwrap_or_default();
        items.append(&mut site.waiting);
        self.refuse(process, &items, Reply::Unknown);
    }
}

//! How calls end, and what is remembered of them.

use super::super::super::history::{Kind, Operation};
use super::super::World;
use super::super::process::ProcessId;

impl World {
    /// The callers of a process that was killed hear nothing more.
    pub fn forget_calls_of(&mut self, process: ProcessId) {
        let gone: Vec<u64> = self
            .calls
            .open
            .iter()
            .filter(|(_, call)| call.entry == process)
            .map(|(id, _)| *id)
            .collect();
        // Nobody failed them who is there to be blamed.
        let failed = self.calls.failed;
        for id in gone {
            self.end_unknown(id, "its node is gone");
        }
        self.calls.failed = failed;
    }

    pub fn end_call(&mut self, id: u64, value: u64) {
        let Some(call) = self.calls.open.remove(&id) else {
            return;
        };
        self.figures.calls_done += 1;
        let kind = if call.write {
            Kind::Write(id)
        } else {
            Kind::Read(value)
        };
        self.calls.histories[call.shard as usize].push(Operation {
            call: id,
            begun: call.begun,
            ended: Some(self.queue.now()),
            kind,
        });
        self.check_wait(id, &call);
    }

    pub fn end_unknown(&mut self, id: u64, why: &str) {
        let Some(call) = self.calls.open.remove(&id) else {
            return;
        };
        self.figures.calls_unknown += 1;
        self.calls.failed += u64::from(call.begun >= self.calls.counted_from);
        self.calls.last_failure = format!("call {id} of shard {}: {why}", call.shard);
        if call.write {
            self.calls.histories[call.shard as usize].push(Operation {
                call: id,
                begun: call.begun,
                ended: None,
                kind: Kind::Write(id),
            });
        }
        self.check_wait(id, &call);
    }

    pub fn end_refused(&mut self, id: u64) {
        let Some(call) = self.calls.open.remove(&id) else {
            return;
        };
        self.calls.failed += u64::from(call.begun >= self.calls.counted_from);
        self.calls.last_failure = format!("call {id} of shard {}: refused", call.shard);
        if call.executed > 0 {
            self.fail(
                "S12",
                format!(
                    "call {id} was reported as refused, but ran {} times",
                    call.executed
                ),
            );
        }
        if call.write {
            self.calls.refused.push((call.shard, id));
        }
    }
}

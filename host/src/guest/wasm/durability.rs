//! The imported interface `durability`.

use super::bindings::durability::Host;
use super::bindings::types::Error;
use super::state::State;

impl Host for State {
    fn durable_seq(&mut self) -> u64 {
        self.data.gate.as_ref().map_or(0, |gate| gate.durable_seq())
    }

    fn notify_when_durable(&mut self, seq: u64, tag: u64) -> Result<(), Error> {
        Ok(self.data.notify(seq, tag)?)
    }
}

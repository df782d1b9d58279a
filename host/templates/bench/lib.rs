//! The guest of `quarry bench`. Its methods are those of the native logic that it is compared with.

use quarry_guest::durability::notify_when_durable;
use quarry_guest::prelude::*;

#[derive(Default)]
pub struct Bench {
    /// Calls so far; carried over swaps.
    calls: u64,
}

impl Guest for Bench {
    fn call(&mut self, call: Call) -> Result<Reply> {
        self.calls += 1;
        match call.method() {
            "calls" => Ok(Reply::bytes(self.calls.to_string())),
            "empty" => Ok(Reply::empty()),
            "increment" => {
                let key = call.key().unwrap_or(b"counter");
                let count = db::get::<u64>(key)?.unwrap_or(0) + 1;
                let seq = db::put(key, count)?;
                notify_when_durable(seq, seq.0)?;
                Ok(Reply::bytes(count.to_string()))
            }
            "put" => {
                db::put(call.key().unwrap_or(b"counter"), 1_u64)?;
                Ok(Reply::empty())
            }
            "spin" => loop {
                std::hint::spin_loop();
            },
            _ => self.query(call),
        }
    }

    fn query(&self, call: Call) -> Result<Reply> {
        match call.method() {
            "get" => Ok(Reply::bytes(db::get::<u64>(call.key().unwrap_or(b"counter"))?.unwrap_or(0).to_string())),
            other => Err(Error::unknown_method(other)),
        }
    }

    fn durable(&mut self, _tags: Vec<u64>) {}

    fn suspend(&mut self) -> Result<Vec<u8>> {
        Ok(self.calls.to_le_bytes().into())
    }

    fn resume(&mut self, _from_revision: u64, state: Vec<u8>) -> Result<()> {
        self.calls = state.try_into().map_or(0, u64::from_le_bytes);
        Ok(())
    }
}

quarry_guest::export!(Bench, queries, durable_events, handoff);

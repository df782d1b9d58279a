//! A guest that gives the SDK and the host what they do not take, one method a fault. What its caller has to see stands in `.ci/bad-input.py`.

use std::time::Duration;

use quarry_guest::db::{Batch, Order, Seq};
use quarry_guest::prelude::*;
use quarry_guest::{cluster, durability, metrics, timers};

const TOO_MUCH: usize = (16 << 20) + 1;

#[derive(Default)]
struct BadInput {
    alive: u32,
}

impl Guest for BadInput {
    fn call(&mut self, call: Call) -> Result<Reply> {
        match call.method() {
            "alive" => {
                self.alive += 1;
                return Ok(Reply::text(self.alive));
            }
            "return-none" => {}
            "return-too-much" => return Ok(Reply::bytes(vec![0; TOO_MUCH])),
            "content-type" => return Ok(Reply::text("a").content_type("no\nline")),
            "raise-types" => return Err(Error::new("Not Good", "no")),
            "key-empty" => drop(db::get::<Vec<u8>>("")?),
            "key-large" => drop(db::get::<Vec<u8>>(vec![b'k'; 70_000])?),
            "value-large" => drop(db::put("a", vec![0; TOO_MUCH])?),
            "ttl-zero" => drop(db::put_for("a", "b", Duration::ZERO)?),
            "many-too-many" => drop(db::get_many::<Vec<u8>>(vec!["a"; 1025])?),
            "batch-empty" => drop(Batch::new().write()?),
            "stored-as-another" => {
                db::put("other", "text")?;
                db::get::<u64>("other")?;
            }
            "no-merge" => drop(db::merge("a", 1_u64)?),
            "scan-backwards" => drop(db::scan("b".."a", Order::Ascending)?.count()),
            "seq-ahead" => durability::notify_when_durable(Seq(u64::MAX), 1)?,
            "timer-name-empty" => timers::set("", Duration::ZERO, "")?,
            "call-shard" => drop(cluster::call_shard(u32::MAX, "a").send()?),
            "metric-name" => metrics::counter("no such name").add(1),
            "payload-text" => drop(call.text()?.len()),
            "payload-json" => drop(call.json::<u32>()?),
            other => return Err(Error::unknown_method(other)),
        }
        Ok(Reply::empty())
    }

    fn durable(&mut self, _tags: Vec<u64>) {}

    fn fire(&mut self, _timer: Timer) -> Result<()> {
        Ok(())
    }
}

quarry_guest::export!(BadInput, durable_events, timer_events);

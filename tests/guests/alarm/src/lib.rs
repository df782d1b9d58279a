//! Sets timers, and remembers which came.
//!
//! `set`, `set-durable`, `cancel` and `due` take JSON: name, milliseconds, and what the timer holds. A timer that holds `error` fails, `trap`
//! traps, `spin` runs for ever, and `count` adds one to the key `count`; others are remembered. `fired` gives the names of all in memory, and
//! `count` what is stored. The queries are the same.

use std::hint::black_box;
use std::time::Duration;

use quarry_guest::prelude::*;
use quarry_guest::timers;

#[derive(Default)]
struct Alarm {
    fired: Vec<String>,
}

impl Guest for Alarm {
    fn call(&mut self, call: Call) -> Result<Reply> {
        match call.method() {
            "fired" => Reply::json(&self.fired),
            _ => self.query(call),
        }
    }

    fn query(&self, call: Call) -> Result<Reply> {
        if call.method() == "count" {
            return Ok(Reply::text(db::get::<u64>("count")?.unwrap_or(0)));
        }
        let (name, after, holds): (String, u64, String) = call.json()?;
        let after = Duration::from_millis(after);
        match call.method() {
            "set" => timers::set(&name, after, holds)?,
            "set-durable" => return Ok(Reply::text(timers::set_durable(&name, after, holds)?)),
            "cancel" => return Ok(Reply::text(timers::cancel(&name)?)),
            "due" => return Ok(Reply::text(timers::due(&name)?.is_some())),
            other => return Err(Error::unknown_method(other)),
        }
        Ok(Reply::empty())
    }

    fn fire(&mut self, timer: Timer) -> Result<()> {
        self.fired.push(timer.name().to_owned());
        match timer.payload() {
            b"error" => Err(Error::new("mine", "not this one")),
            b"trap" => panic!("a timer traps on purpose"),
            b"spin" => loop {
                black_box(());
            },
            b"count" => {
                db::put("count", db::get::<u64>("count")?.unwrap_or(0) + 1)?;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

quarry_guest::export!(Alarm, queries, timer_events);

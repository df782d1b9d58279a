//! Sets timers, and remembers which came.
//!
//! `set`, `set-durable`, `cancel` and `due` take JSON: name, milliseconds, and what the timer holds. A timer that holds `error` fails, `trap`
//! traps, `spin` runs for ever, and `count` adds one to the key `count`; `note` and `slow` note in the database that it fired, the latter
//! three seconds after it has noted that it began to. Others are remembered. `fired` gives the names of all in memory, `count` what is stored,
//! `began` how often a slow one began, and `notes` all that was noted: name, node, when it was due and when it fired, in milliseconds since
//! 1970. The queries are the same.

use std::hint::black_box;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use quarry_guest::db::Order;
use quarry_guest::{context, prelude::*, timers};
use serde_json::{Value, json};

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
        match call.method() {
            "count" | "began" => {
                return Ok(Reply::text(db::get::<u64>(call.method())?.unwrap_or(0)));
            }
            "notes" => return Reply::json(&notes()?),
            _ => {}
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
            b"count" => more("count"),
            b"note" => note(&timer),
            b"slow" => {
                more("began")?;
                sleep(Duration::from_secs(3));
                note(&timer)
            }
            _ => Ok(()),
        }
    }
}

quarry_guest::export!(Alarm, queries, timer_events);

fn more(key: &str) -> Result<()> {
    db::put(key, db::get::<u64>(key)?.unwrap_or(0) + 1)?;
    Ok(())
}

/// Each time under a key of its own, so that a timer that fires twice is noted twice.
fn note(timer: &Timer) -> Result<()> {
    more("noted")?;
    let nth = db::get::<u64>("noted")?.unwrap_or(0);
    let note = json!([
        timer.name(),
        context::node(),
        milliseconds(timer.due()),
        milliseconds(SystemTime::now()),
    ]);
    db::put(format!("note/{nth:08}"), note.to_string())?;
    Ok(())
}

fn notes() -> Result<Vec<Value>> {
    let mut notes = Vec::new();
    for entry in db::scan_prefix("note/", Order::Ascending)? {
        let note = entry?.into_value::<Vec<u8>>()?;
        let note = serde_json::from_slice(&note);
        notes.push(note.map_err(|why| Error::new("note", why.to_string()))?);
    }
    Ok(notes)
}

fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(0))
}

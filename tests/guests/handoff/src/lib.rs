//! A guest that carries its memory over a swap. Options say which revision fails at it, and how:
//!
//! | option | values |
//! |---|---|
//! | `revision` | the revision that fails, a number; any where it is not set |
//! | `shard` | the shard on which it fails; on all where it is not set |
//! | `step` | `start`, `suspend`, `resume` |
//! | `how` | `error`, `panic`, `spin`, `hang`; `large`, `huge` (hands 64 KiB, 2 MiB over); `wait` (until the key `go` is there); `notify` (asks for tag 77, then waits so); `hold` (see `key`) |
//! | `key` | with `hold`: where it is not there yet, writes `held` to it, and waits until it has another value |
//!
//! | method | what it does |
//! |---|---|
//! | `count` | counts the key in memory alone |
//! | `count-through` | counts the key in memory and in the database; `start` reads from there, as a cache does |
//! | `memory` | the key's two counts, a space between |
//! | `put`, `get` | the database |
//! | `notify` | writes, and asks for the tag in the payload |
//! | `tags` | the tags that came |
//! | `resumed` | the revisions whose memory was taken over, oldest first |
//! | `linger` | counts the key in memory, and takes as many milliseconds for it as the payload says, or 2,000 |
//! | `panic`, `go-and-panic` | trap; the latter once the key `go` is there |

use std::collections::BTreeMap;
use std::hint::black_box;
use std::thread::sleep;
use std::time::Duration;

use quarry_guest::db::Order;
use quarry_guest::durability::notify_when_durable;
use quarry_guest::{context, prelude::*};
use serde_json::Value;

/// What is carried over.
#[derive(Default)]
struct Handoff {
    counted: BTreeMap<String, u64>,
    through: BTreeMap<String, u64>,
    tags: Vec<u64>,
    resumed: Vec<u64>,
}

impl Guest for Handoff {
    fn call(&mut self, call: Call) -> Result<Reply> {
        match call.method() {
            "count" => {
                let count = self.counted.entry(key(&call)?).or_default();
                *count += 1;
                Ok(Reply::text(count))
            }
            "linger" => {
                let millis = match call.payload() {
                    [] => 2_000,
                    _ => call.json()?,
                };
                sleep(Duration::from_millis(millis));
                let key = call
                    .key()
                    .map_or_else(Default::default, String::from_utf8_lossy);
                let count = self.counted.entry(key.into_owned()).or_default();
                *count += 1;
                Ok(Reply::text(count))
            }
            "count-through" => {
                let key = key(&call)?;
                let count = self.through.get(&key).copied().unwrap_or(0) + 1;
                db::put(format!("through/{key}"), count)?;
                self.through.insert(key, count);
                Ok(Reply::text(count))
            }
            "memory" => {
                let key = key(&call)?;
                let of = |counts: &BTreeMap<String, u64>| counts.get(&key).copied().unwrap_or(0);
                Ok(Reply::text(format_args!(
                    "{} {}",
                    of(&self.counted),
                    of(&self.through)
                )))
            }
            "put" => Ok(Reply::text(db::put(call.required_key()?, call.payload())?)),
            "get" => Ok(Reply::bytes(
                db::get::<Vec<u8>>(call.required_key()?)?.unwrap_or_default(),
            )),
            "notify" => {
                let seq = db::put("notify", call.payload())?;
                notify_when_durable(seq, call.json()?)?;
                Ok(Reply::text(seq))
            }
            "tags" => Reply::json(&self.tags),
            "resumed" => Reply::json(&self.resumed),
            "panic" => panic!("call panicked on purpose"),
            "go-and-panic" => {
                db::put("go", "x")?;
                panic!("call panicked on purpose")
            }
            other => Err(Error::unknown_method(other)),
        }
    }

    fn start(&mut self) -> Result<()> {
        for entry in db::scan_prefix("through/", Order::Ascending)? {
            let entry = entry?;
            let key = String::from_utf8_lossy(&entry.key["through/".len()..]).into_owned();
            let count = db::get::<u64>(&entry.key)?.unwrap_or(0);
            self.through.insert(key, count);
        }
        fail("start")?;
        Ok(())
    }

    fn suspend(&mut self) -> Result<Vec<u8>> {
        let size = fail("suspend")?;
        if size > 0 {
            return Ok(vec![0; size]);
        }
        let state = (&self.counted, &self.through, &self.tags, &self.resumed);
        serde_json::to_vec(&state).map_err(|why| Error::new("state", why.to_string()))
    }

    fn resume(&mut self, from_revision: u64, state: Vec<u8>) -> Result<()> {
        let state = serde_json::from_slice(&state);
        (self.counted, self.through, self.tags, self.resumed) =
            state.map_err(|why| Error::new("state", why.to_string()))?;
        self.resumed.push(from_revision);
        fail("resume")?;
        Ok(())
    }

    fn durable(&mut self, tags: Vec<u64>) {
        self.tags.extend(tags);
    }

    fn stop(&mut self, reason: StopReason) {
        let stopped = format!("{} {reason}", context::revision());
        if let Err(error) = db::put("stopped", stopped) {
            log::error!("stop could not write: {error}");
        }
    }
}

quarry_guest::export!(Handoff, lifecycle, durable_events, handoff);

fn key(call: &Call) -> Result<String> {
    Ok(String::from_utf8_lossy(call.required_key()?).into_owned())
}

/// Fails where the options say so; gives how many bytes to hand over in place of its memory, if any.
fn fail(step: &str) -> Result<usize> {
    let options = context::options::<Value>()?;
    let elsewhere = options["shard"]
        .as_u64()
        .is_some_and(|shard| shard != u64::from(context::shard()));
    let another = options["revision"]
        .as_u64()
        .is_some_and(|revision| revision != context::revision());
    if options["step"] != step || another || elsewhere {
        return Ok(0);
    }
    match options["how"].as_str().unwrap_or_default() {
        "error" => Err(Error::new("mine", format!("{step} failed on purpose"))),
        "panic" => panic!("{step} panicked on purpose"),
        "spin" => spin(),
        "hang" => hang(),
        "large" => Ok(64 << 10),
        "huge" => Ok(2 << 20),
        "notify" => {
            notify_when_durable(db::put("early", "x")?, 77)?;
            wait()
        }
        "wait" => wait(),
        "hold" => hold(options["key"].as_str().unwrap_or("hold")),
        other => Err(Error::new("option", format!("there is no way `{other}`"))),
    }
}

/// Until the key `go` is there.
fn wait() -> Result<usize> {
    while db::get::<Vec<u8>>("go")?.is_none() {
        sleep(Duration::from_millis(1));
    }
    Ok(0)
}

/// Where the data has the key already, somebody was held here before, and whoever comes later goes on.
fn hold(key: &str) -> Result<usize> {
    if db::get::<Vec<u8>>(key)?.is_some() {
        return Ok(0);
    }
    db::put(key, "held")?;
    while db::get::<Vec<u8>>(key)?.as_deref() == Some(b"held") {
        sleep(Duration::from_millis(5));
    }
    Ok(0)
}

fn spin() -> ! {
    let mut turns = 0u64;
    loop {
        turns = black_box(turns.wrapping_add(1));
    }
}

fn hang() -> ! {
    loop {
        sleep(Duration::from_secs(1));
    }
}

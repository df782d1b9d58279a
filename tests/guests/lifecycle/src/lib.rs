//! A guest with every export but `handoff` and `migration`, whose options say how it fails.
//!
//! | option | values |
//! |---|---|
//! | `start` | `error`, `panic`, `spin`, `once` (an error the first time that this shard's data sees a start), `write` |
//! | `stop` | `panic`, `spin`, `write` |
//! | `validate` | `refuse`, `panic`, `spin`, `read` (of the database, which is not open) |
//! | `durable` | `panic`, `spin` |
//! | `call` | `panic`, `error` |
//!
//! Any other value, and none, is good behaviour; an option of another name is refused. Methods: `options` (what the guest was
//! given), `put` and `get` (under the key), `stopped` (the reason of the last stop with `"stop":"write"`), `starts` (how
//! often an instance started over this data with `"start":"write"`), `memory-count`, `notify` (payload: a tag).

use std::hint::black_box;

use quarry_guest::durability::notify_when_durable;
use quarry_guest::{context, prelude::*};
use serde_json::Value;

const OPTIONS: [&str; 5] = ["start", "stop", "validate", "durable", "call"];

#[derive(Default)]
struct Lifecycle {
    count: u64,
}

impl Guest for Lifecycle {
    fn call(&mut self, call: Call) -> Result<Reply> {
        match (option("call").as_str(), call.method()) {
            ("panic", _) => panic!("call panicked on purpose"),
            ("error", _) => Err(Error::new("mine", "call failed on purpose")),
            (_, "put") => Ok(Reply::text(db::put(call.required_key()?, call.payload())?)),
            (_, "memory-count") => {
                self.count += 1;
                Ok(Reply::text(self.count))
            }
            (_, "notify") => {
                let seq = db::put("notify", call.payload())?;
                notify_when_durable(seq, call.json()?)?;
                Ok(Reply::text(seq))
            }
            _ => self.query(call),
        }
    }

    fn query(&self, call: Call) -> Result<Reply> {
        match call.method() {
            "options" => Ok(Reply::text(context::options_json())),
            "get" => Ok(Reply::bytes(
                db::get::<Vec<u8>>(call.required_key()?)?.unwrap_or_default(),
            )),
            "stopped" => Ok(Reply::text(
                db::get::<String>("stopped")?.unwrap_or_default(),
            )),
            "starts" => Ok(Reply::text(db::get::<u64>("starts")?.unwrap_or(0))),
            other => Err(Error::unknown_method(other)),
        }
    }

    fn start(&mut self) -> Result<()> {
        match option("start").as_str() {
            "error" => Err(Error::new("mine", "start failed on purpose")),
            "panic" => panic!("start panicked on purpose"),
            "spin" => spin(),
            "once" if db::get::<Vec<u8>>("failed-once")?.is_none() => {
                db::put("failed-once", "")?;
                Err(Error::new("mine", "start failed on purpose, once").retryable())
            }
            "write" => {
                db::put("starts", db::get::<u64>("starts")?.unwrap_or(0) + 1)?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn stop(&mut self, reason: StopReason) {
        match option("stop").as_str() {
            "panic" => panic!("stop panicked on purpose"),
            "spin" => spin(),
            "write" => {
                if let Err(error) = db::put("stopped", reason.as_str()) {
                    log::error!("stop could not write: {error}");
                }
            }
            _ => log::info!(reason = reason.as_str(); "stopped"),
        }
    }

    fn validate(options: &str) -> Result<(), String> {
        let options: Value = serde_json::from_str(options).map_err(|why| why.to_string())?;
        let fields = options.as_object().ok_or("options are a JSON object")?;
        if let Some(unknown) = fields.keys().find(|name| !OPTIONS.contains(&name.as_str())) {
            return Err(format!(
                "there is no option `{unknown}`: choose from {}",
                OPTIONS.join(", ")
            ));
        }
        match fields.get("validate").and_then(Value::as_str) {
            Some("refuse") => Err("refused on purpose".to_owned()),
            Some("panic") => panic!("validate panicked on purpose"),
            Some("spin") => spin(),
            Some("read") => match db::get::<Vec<u8>>("a") {
                Ok(_) => Err("the database was open".to_owned()),
                Err(error) => Err(format!("reading failed with {}", error.code())),
            },
            _ => Ok(()),
        }
    }

    fn durable(&mut self, tags: Vec<u64>) {
        match option("durable").as_str() {
            "panic" => panic!("durable panicked on purpose: {tags:?}"),
            "spin" => spin(),
            _ => log::info!("durable: {tags:?}"),
        }
    }
}

quarry_guest::export!(Lifecycle, queries, lifecycle, options, durable_events);

/// An option of the module; empty where it is not set.
fn option(name: &str) -> String {
    match context::options::<Value>() {
        Ok(options) => options[name].as_str().unwrap_or_default().to_owned(),
        Err(_) => String::new(),
    }
}

fn spin() -> ! {
    let mut turns = 0u64;
    loop {
        turns = black_box(turns.wrapping_add(1));
    }
}

//! A guest that asks other shards, and keeps metrics.
//!
//! | method | payload | |
//! |---|---|---|
//! | `ask` (call and query) | JSON: `kind` (`call`, `query`), `shard` or `key`, `method`, `payload` (text, or JSON for a further `ask`), `put` (a value to write before), `catch` | what the other shard answers; with `catch` its error as text: code, whether it is retryable, message |
//! | `count` | - | how often it ran here, this time included |
//! | `counted` (query too) | - | how often it ran here |
//! | `key` (query too) | - | the routing key |
//! | `left` (query too) | - | the milliseconds that the caller waits |
//! | `fail`, `trap` | - | the error `overdraft`, and a panic |
//! | `at-start` | - | what asking came to in `start` |
//! | `measure` | a label | one more in the counter `measured`, a gauge and a histogram |

use quarry_guest::cluster::{self, Ask};
use quarry_guest::{metrics, prelude::*};
use serde_json::Value;

#[derive(Default)]
struct Relay {
    at_start: String,
}

impl Guest for Relay {
    fn call(&mut self, call: Call) -> Result<Reply> {
        match call.method() {
            "ask" => {
                let plan: Value = call.json()?;
                if let Some(value) = plan["put"].as_str() {
                    db::put("written", value)?;
                }
                ask(&plan)
            }
            "count" => {
                let count = counted()? + 1;
                db::put("count", count)?;
                Ok(Reply::text(count))
            }
            "fail" => Err(Error::new("overdraft", "no money").retryable()),
            "trap" => panic!("trapped on purpose"),
            "at-start" => Ok(Reply::text(&self.at_start)),
            "measure" => {
                metrics::describe("measured", "What was measured.");
                metrics::counter("measured")
                    .label("what", call.text()?)
                    .add(2);
                metrics::gauge("measure").set(1.5);
                metrics::histogram("measures").observe(0.3);
                metrics::counter("Not a name").add(1);
                Ok(Reply::empty())
            }
            _ => self.query(call),
        }
    }

    fn query(&self, call: Call) -> Result<Reply> {
        match call.method() {
            "ask" => ask(&call.json()?),
            "counted" => Ok(Reply::text(counted()?)),
            "key" => Ok(Reply::bytes(call.key().unwrap_or(b"none"))),
            "left" => Ok(Reply::text(
                call.time_left().map_or(0, |left| left.as_millis()),
            )),
            other => Err(Error::unknown_method(other)),
        }
    }

    fn start(&mut self) -> Result<()> {
        self.at_start = match cluster::query_shard(0, "counted").send() {
            Ok(answer) => answer.text()?.to_owned(),
            Err(error) => error.to_string(),
        };
        Ok(())
    }
}

quarry_guest::export!(Relay, queries, lifecycle);

fn ask(plan: &Value) -> Result<Reply> {
    let method = plan["method"].as_str().unwrap_or_default();
    let query = plan["kind"] == "query";
    let prepared: Ask = match (plan["key"].as_str(), plan["shard"].as_u64()) {
        (Some(key), _) if query => cluster::query(key, method),
        (Some(key), _) => cluster::call(key, method),
        (None, Some(shard)) => {
            let shard = u32::try_from(shard).map_err(Error::invalid_payload)?;
            if query {
                cluster::query_shard(shard, method)
            } else {
                cluster::call_shard(shard, method)
            }
        }
        (None, None) => return Err(Error::invalid_payload("neither key nor shard")),
    };
    let payload = match &plan["payload"] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        further => further.to_string(),
    };
    match prepared.payload(payload).send() {
        Ok(answer) => Ok(Reply::bytes(answer.into_payload())),
        Err(error) if plan["catch"] == true => Ok(Reply::text(format!(
            "{} {} {}",
            error.code(),
            error.is_retryable(),
            error.message()
        ))),
        Err(error) => Err(error),
    }
}

fn counted() -> Result<u64> {
    Ok(db::get::<u64>("count")?.unwrap_or(0))
}

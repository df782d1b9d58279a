//! A counter per key.
//!
//! | method | key | payload | reply |
//! |---|---|---|---|
//! | `increment` | the counter | the amount in decimal, 1 where it is empty | the new count in decimal |
//! | `get`, also as a query | the counter | - | the count in decimal, 0 where it never was incremented |
//! | `durable` | - | - | the newest increment that is known to be durable, as its seq in decimal |

use quarry_guest::db::Seq;
use quarry_guest::durability::notify_when_durable;
use quarry_guest::prelude::*;

/// The guest of a shard. The counts are in the database; memory only holds what may be lost.
#[derive(Default)]
pub struct Counter {
    /// The newest increment, and the newest that is known to be durable.
    newest: Seq,
    last_durable: Seq,
    /// Whether the host was asked to tell of one.
    asked: bool,
}

impl Guest for Counter {
    fn call(&mut self, call: Call) -> Result<Reply> {
        match call.method() {
            "increment" => self.increment(&call),
            "durable" => Ok(Reply::text(self.last_durable.0)),
            // What can be asked in a query can be asked in a call: then it waits its turn behind the writes.
            _ => self.query(call),
        }
    }

    fn query(&self, call: Call) -> Result<Reply> {
        match call.method() {
            "get" => Ok(Reply::text(count(call.required_key()?)?)),
            other => Err(Error::unknown_method(other)),
        }
    }

    fn durable(&mut self, tags: Vec<u64>) {
        // Tags come in order, so the last one is the newest.
        self.last_durable = tags.last().map_or(self.last_durable, |tag| Seq(*tag));
        self.asked = false;
        if self.newest > self.last_durable {
            self.ask();
        }
    }
}

quarry_guest::export!(Counter, queries, durable_events);

impl Counter {
    fn increment(&mut self, call: &Call) -> Result<Reply> {
        let key = call.required_key()?;
        let amount = match call.text()?.trim() {
            "" => 1,
            text => text.parse::<u64>().map_err(|why| {
                Error::invalid_payload(format_args!("the amount `{text}` is no u64: {why}"))
            })?,
        };
        // Calls of a shard run one at a time, so nothing comes between the read and the write.
        let count = count(key)?.checked_add(amount).ok_or_else(|| {
            Error::new(
                "overflow",
                format!("adding {amount} would take the count over {}", u64::MAX),
            )
        })?;
        let seq = db::put(key, count)?;
        self.newest = seq;
        if !self.asked {
            self.ask();
        }
        Ok(Reply::text(count))
    }

    /// One question at a time: many writes become durable at once, and the newest of them says it for all.
    fn ask(&mut self) {
        self.asked = notify_when_durable(self.newest, self.newest.0).is_ok();
    }
}

fn count(key: &[u8]) -> Result<u64> {
    Ok(db::get(key)?.unwrap_or(0))
}

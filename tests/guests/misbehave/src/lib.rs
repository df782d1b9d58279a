//! A guest that misbehaves on demand: a method per way to do so. Exports calls, queries and durable events.
//!
//! | methods | module |
//! |---|---|
//! | `trap`, `spin`, `allocate`, `recurse`, `flood-log`, `stdout`, `stderr`, `big-reply`, `error`, `content-type`, ... | [`hostile`] |
//! | `get`, `put`, `delete`, `batch`, `txn-conflict`, `versioned`, `ttl`, `merge`, `snapshot`, `empty-key`, ... | [`database`] |
//! | `leak-cursors`, `leak-transactions`, `too-many-cursors`, `use-closed-transaction`, `use-leaked`, ... | [`resources`] |
//! | `context`, `deadline`, `header`, `clock`, `random`, `sleep`, `durable-seq`, `key` | [`surroundings`] |
//! | `notify`, `tags`, `memory-count`, `leak-memory` | here |
//!
//! Every method is also a query. A method that writes then fails with `read-only`, which is what the tests want to see.

mod database;
mod hostile;
mod resources;
mod surroundings;

use std::cell::{Cell, RefCell};

use quarry_guest::durability::notify_when_durable;
use quarry_guest::prelude::*;

#[derive(Default)]
struct Misbehave {
    /// Calls of `memory-count` since this instance was made.
    count: Cell<u64>,
    /// Durable tags in the order in which they came.
    tags: Vec<u64>,
    /// What `leak-cursors` and the like did not give back.
    leaked: RefCell<resources::Leaked>,
    /// What `leak-memory` keeps, a mebibyte a call.
    kept: RefCell<Vec<Vec<u8>>>,
}

impl Guest for Misbehave {
    fn call(&mut self, call: Call) -> Result<Reply> {
        self.query(call)
    }

    fn query(&self, call: Call) -> Result<Reply> {
        match call.method() {
            "notify" => notify(&call),
            "tags" => Reply::json(&self.tags),
            "memory-count" => {
                self.count.set(self.count.get() + 1);
                Ok(Reply::text(self.count.get()))
            }
            "leak-memory" => {
                let mut kept = self.kept.borrow_mut();
                kept.push(vec![1; 1 << 20]);
                Ok(Reply::text(kept.len()))
            }
            _ => hostile::run(&call)
                .or_else(|| database::run(&call))
                .or_else(|| resources::run(&call, &mut self.leaked.borrow_mut()))
                .or_else(|| surroundings::run(&call))
                .unwrap_or_else(|| Err(Error::unknown_method(call.method()))),
        }
    }

    fn durable(&mut self, tags: Vec<u64>) {
        self.tags.extend(tags);
    }
}

quarry_guest::export!(Misbehave, queries, durable_events);

/// Writes under the key and asks to be told with the tag in the payload. A payload `TAG SEQ` asks for another seq than that of
/// the write.
fn notify(call: &Call) -> Result<Reply> {
    let mut words = call.text()?.split_whitespace();
    let tag = number(words.next().unwrap_or("0"))?;
    let seq = db::put(call.required_key()?, tag)?;
    let seq = match words.next() {
        Some(other) => db::Seq(number(other)?),
        None => seq,
    };
    notify_when_durable(seq, tag)?;
    Ok(Reply::text(seq).when_applied())
}

/// A payload's decimal number.
fn number(text: &str) -> Result<u64> {
    text.trim()
        .parse()
        .map_err(|why| Error::invalid_payload(format_args!("`{text}` is no number: {why}")))
}

/// The payload's decimal number, or `default` where it is empty.
fn number_or(call: &Call, default: u64) -> Result<u64> {
    if call.payload().is_empty() {
        Ok(default)
    } else {
        number(call.text()?)
    }
}

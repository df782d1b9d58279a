//! Values under keys.
//!
//! | method | key | payload | reply |
//! |---|---|---|---|
//! | `put` | where to store | the value | the write's seq in decimal |
//! | `get`, also as a query | what to read | - | the value, or the error `not-found` |
//! | `delete` | what to delete | - | the write's seq in decimal |
//! | `scan`, also as a query | any key of the shard | a [`Scan`] in JSON, or nothing | a [`Line`] of JSON per entry |
//!
//! A scan reads one shard: the keys of the others are elsewhere. Call it with a shard instead of a key to go through them
//! all, one by one.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use quarry_guest::db::{Cursor, Order};
use quarry_guest::prelude::*;
use serde::{Deserialize, Serialize};

/// Entries of a scan that does not say how many it wants.
const DEFAULT_LIMIT: usize = 1_000;
/// Entries of a scan at most.
const MAX_LIMIT: usize = 100_000;
/// Entries of this size together fail a scan, which says how many fit.
const MAX_REPLY_BYTES: usize = 8 << 20;

/// What to scan. All of it is optional: an empty payload is the whole shard.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scan {
    /// Only keys that start with this. Not together with `start` or `end`.
    prefix: Option<String>,
    /// The first key.
    start: Option<String>,
    /// The key before which to end.
    end: Option<String>,
    /// How many entries at most: 1 to 100,000, and 1,000 unless set.
    limit: Option<usize>,
    /// Whether to begin with the highest key.
    reverse: bool,
}

/// A line of a scan's reply. Text stays text; what is not UTF-8 comes in base64, under another name.
///
/// `{"key":"a","value":"1"}`, `{"key_base64":"/w==","value_base64":"gA=="}`
#[derive(Debug, Serialize)]
pub struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
}

/// The guest of a shard. It has no memory: everything is in the database.
#[derive(Default)]
pub struct Kv;

impl Guest for Kv {
    fn call(&mut self, call: Call) -> Result<Reply> {
        match call.method() {
            "put" => Ok(Reply::text(db::put(call.required_key()?, call.payload())?)),
            "delete" => Ok(Reply::text(db::remove(call.required_key()?)?)),
            // What can be asked in a query can be asked in a call: then it waits its turn behind the writes.
            _ => self.query(call),
        }
    }

    fn query(&self, call: Call) -> Result<Reply> {
        match call.method() {
            "get" => get(call.required_key()?),
            "scan" => scan(&call),
            other => Err(Error::unknown_method(other)),
        }
    }
}

quarry_guest::export!(Kv, queries);

fn get(key: &[u8]) -> Result<Reply> {
    match db::get::<Vec<u8>>(key)? {
        Some(value) => Ok(Reply::bytes(value)),
        None => Err(Error::new(
            "not-found",
            format!("there is no key `{}`", key.escape_ascii()),
        )),
    }
}

fn scan(call: &Call) -> Result<Reply> {
    let scan = if call.payload().is_empty() {
        Scan::default()
    } else {
        call.json()?
    };
    let limit = scan.limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(Error::invalid_payload(format_args!(
            "`limit` is 1 to {MAX_LIMIT}, not {limit}"
        )));
    }
    let mut lines = Vec::new();
    for (count, entry) in open(scan)?.take(limit).enumerate() {
        let entry = entry?;
        if lines.len() + entry.key.len() + entry.value.len() > MAX_REPLY_BYTES && count > 0 {
            let why = format!(
                "the reply would be larger than {MAX_REPLY_BYTES} bytes at entry {} of {limit}: ask for at most {count}",
                count + 1
            );
            return Err(Error::new("reply-too-large", why));
        }
        serde_json::to_writer(&mut lines, &Line::new(&entry.key, &entry.value))?;
        lines.push(b'\n');
    }
    Ok(Reply::bytes(lines).content_type("application/jsonl"))
}

fn open(scan: Scan) -> Result<Cursor> {
    let order = if scan.reverse {
        Order::Descending
    } else {
        Order::Ascending
    };
    match scan.prefix {
        Some(_) if scan.start.is_some() || scan.end.is_some() => Err(Error::invalid_payload(
            "give `prefix`, or `start` and `end`, and not both",
        )),
        Some(prefix) => db::scan_prefix(prefix, order),
        None => db::scan(
            (
                scan.start.map(String::into_bytes),
                scan.end.map(String::into_bytes),
            ),
            order,
        ),
    }
}

impl<'a> Line<'a> {
    fn new(key: &'a [u8], value: &'a [u8]) -> Self {
        let (key, key_base64) = text_or_base64(key);
        let (value, value_base64) = text_or_base64(value);
        Line {
            key,
            key_base64,
            value,
            value_base64,
        }
    }
}

fn text_or_base64(bytes: &[u8]) -> (Option<&str>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(_) => (None, Some(BASE64_STANDARD.encode(bytes))),
    }
}

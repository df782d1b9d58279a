//! The database: what works, and what has to be refused. A routing key is the database's key.

use std::time::{Duration, UNIX_EPOCH};

use quarry_guest::db::{Isolation, Order};
use quarry_guest::prelude::*;

use crate::{number, number_or};

/// The reply of a method of this module.
pub fn run(call: &Call) -> Option<Result<Reply>> {
    Some(match call.method() {
        "get" => get(call),
        "get-many" => get_many(call),
        "put" => with_key(call, |key| Ok(Reply::text(db::put(key, call.payload())?))),
        "delete" => with_key(call, |key| Ok(Reply::text(db::remove(key)?))),
        "batch" => batch(call),
        "empty-batch" => db::Batch::new().write().map(Reply::text),
        "oversize-batch" => oversize_batch(),
        "empty-key" => db::put("", call.payload()).map(Reply::text),
        "empty-key-get" => db::get::<Vec<u8>>("").map(|_| Reply::empty()),
        "empty-key-batch" => {
            let mut batch = db::Batch::new();
            batch.put("first", "x").put("", "y");
            batch.write().map(Reply::text)
        }
        "empty-key-transaction" => {
            db::transaction(Isolation::Snapshot, |tx| tx.put("", "x")).map(Reply::from)
        }
        "oversize-key" => sized(call, 70_000)
            .and_then(|key| db::put(key, "x"))
            .map(Reply::text),
        "oversize-key-get" => sized(call, 70_000)
            .and_then(db::get::<Vec<u8>>)
            .map(|_| Reply::empty()),
        "oversize-value" => sized(call, (16 << 20) + 1)
            .and_then(|value| db::put("oversize", value))
            .map(Reply::text),
        "fill" => fill(call),
        "scan" => scan(call),
        "scan-range" => scan_range(call),
        "sleep-in-host" => sleep_in_host(call),
        "write-then-error" => with_key(call, |key| {
            db::put(key, call.payload())?;
            Err(Error::new("written", "the write before this error stays"))
        }),
        "write-then-trap" => with_key(call, |key| {
            db::put(key, call.payload())?;
            panic!("trapped after a write, on purpose")
        }),
        "transaction" => transaction(call),
        "transaction-dropped" => with_key(call, |key| {
            db::begin(Isolation::Snapshot)?.put(key, call.payload())?;
            Ok(Reply::empty())
        }),
        "txn-conflict" => txn_conflict(call),
        "versioned" => versioned(call),
        "ttl" => ttl(call),
        "ttl-zero" => with_key(call, |key| {
            Ok(Reply::text(db::put_for(key, "x", Duration::ZERO)?))
        }),
        "merge" => with_key(call, |key| Ok(Reply::text(db::merge(key, call.payload())?))),
        "merge-u64" => with_key(call, |key| {
            Ok(Reply::text(db::merge(key, number(call.text()?)?)?))
        }),
        "get-u64" => with_key(call, |key| {
            Ok(Reply::text(db::get::<u64>(key)?.unwrap_or(0)))
        }),
        "snapshot" => snapshot(call),
        _ => return None,
    })
}

fn with_key(call: &Call, body: impl FnOnce(&[u8]) -> Result<Reply>) -> Result<Reply> {
    body(call.required_key()?)
}

/// The value, or the error `not-found`.
fn get(call: &Call) -> Result<Reply> {
    let key = call.required_key()?;
    match db::get::<Vec<u8>>(key)? {
        Some(value) => Ok(Reply::bytes(value)),
        None => Err(Error::new(
            "not-found",
            format!("there is no key `{}`", key.escape_ascii()),
        )),
    }
}

/// The lengths of the values of the payload's keys, one a line; `-` for none. A payload `repeat N` asks for N keys.
fn get_many(call: &Call) -> Result<Reply> {
    let keys: Vec<String> = match call.text()?.strip_prefix("repeat ") {
        Some(count) => (0..number(count)?).map(|n| format!("key-{n}")).collect(),
        None => call.text()?.lines().map(str::to_owned).collect(),
    };
    let lengths: Vec<_> = db::get_many::<Vec<u8>>(&keys)?
        .into_iter()
        .map(|value| value.map_or("-".to_owned(), |value| value.len().to_string()))
        .collect();
    Ok(Reply::text(lengths.join("\n")))
}

/// Puts each line `KEY VALUE` of the payload, and removes each `KEY`, in one write. Later lines win.
fn batch(call: &Call) -> Result<Reply> {
    let mut batch = db::Batch::new();
    for line in call.text()?.lines() {
        match line.split_once(' ') {
            Some((key, value)) => batch.put(key, value),
            None => batch.remove(line),
        };
    }
    batch.write().map(Reply::text)
}

/// Three values of 15 MiB.
fn oversize_batch() -> Result<Reply> {
    let mut batch = db::Batch::new();
    for key in ["a", "b", "c"] {
        batch.put(key, vec![0u8; 15 << 20]);
    }
    batch.write().map(Reply::text)
}

/// Bytes, as many as the payload says or `default`.
fn sized(call: &Call, default: u64) -> Result<Vec<u8>> {
    let size = usize::try_from(number_or(call, default)?).map_err(Error::invalid_payload)?;
    Ok(vec![b'k'; size])
}

/// As many entries of 100 bytes as the payload says (10,000 unless it does), under `fill/`.
fn fill(call: &Call) -> Result<Reply> {
    let count = number_or(call, 10_000)?;
    for first in (0..count).step_by(1_000) {
        let mut batch = db::Batch::new();
        for n in first..count.min(first + 1_000) {
            batch.put(format!("fill/{n:08}"), [b'v'; 100]);
        }
        batch.write()?;
    }
    Ok(Reply::text(count))
}

/// The keys that start with the payload, one a line; backwards with a `!` before it.
fn scan(call: &Call) -> Result<Reply> {
    let text = call.text()?;
    let (prefix, order) = match text.strip_prefix('!') {
        Some(prefix) => (prefix, Order::Descending),
        None => (text, Order::Ascending),
    };
    keys(db::scan_prefix(prefix, order)?)
}

/// The keys from the payload's first line to before its second; an empty or missing line is open.
fn scan_range(call: &Call) -> Result<Reply> {
    let mut lines = call
        .text()?
        .lines()
        .map(|line| Some(line.as_bytes().to_vec()).filter(|key| !key.is_empty()));
    let range = (lines.next().flatten(), lines.next().flatten());
    keys(db::scan(range, Order::Ascending)?)
}

fn keys(cursor: db::Cursor) -> Result<Reply> {
    let keys = cursor
        .map(|entry| Ok(String::from_utf8_lossy(&entry?.key).into_owned()))
        .collect::<Result<Vec<_>>>()?;
    Ok(Reply::text(keys.join("\n")))
}

/// Scans everything as often as the payload says (1,000 times unless it does): time passes in the host.
fn sleep_in_host(call: &Call) -> Result<Reply> {
    let mut seen = 0u64;
    for _ in 0..number_or(call, 1_000)? {
        for entry in db::scan(.., Order::Ascending)? {
            entry?;
            seen += 1;
        }
    }
    Ok(Reply::text(seen))
}

/// Appends the payload to the value under the key.
fn transaction(call: &Call) -> Result<Reply> {
    let key = call.required_key()?;
    let tx = db::begin(Isolation::Serializable)?;
    let value = [
        tx.get::<Vec<u8>>(key)?.unwrap_or_default(),
        call.payload().to_vec(),
    ]
    .concat();
    tx.put(key, &value)?;
    tx.commit()?;
    Ok(Reply::bytes(value))
}

/// Commits a transaction after a write that it conflicts with: of its key (payload empty or `snapshot`), or of a key that it
/// read (`serializable`).
fn txn_conflict(call: &Call) -> Result<Reply> {
    let key = call.required_key()?;
    let isolation = match call.text()? {
        "serializable" => Isolation::Serializable,
        _ => Isolation::Snapshot,
    };
    let tx = db::begin(isolation)?;
    match isolation {
        Isolation::Serializable => {
            tx.get::<Vec<u8>>(key)?;
            tx.put("txn-conflict", "transaction")?;
        }
        Isolation::Snapshot => tx.put(key, "transaction")?,
    }
    db::put(key, "other")?;
    tx.commit()?;
    Ok(Reply::text("no conflict"))
}

/// `SEQ CREATED-MS EXPIRES-MS VALUE`, with `-` for never.
fn versioned(call: &Call) -> Result<Reply> {
    let key = call.required_key()?;
    let found = db::get_versioned::<Vec<u8>>(key)?
        .ok_or_else(|| Error::new("not-found", "there is no such key"))?;
    let ms = |time: std::time::SystemTime| {
        time.duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_millis()
            .to_string()
    };
    let expires = found.expires_at.map_or("-".to_owned(), ms);
    let value = String::from_utf8_lossy(&found.value).into_owned();
    Ok(Reply::text(format_args!(
        "{} {} {expires} {value}",
        found.seq,
        ms(found.created_at)
    )))
}

/// Stores `ttl` under the key for as many milliseconds as the payload says.
fn ttl(call: &Call) -> Result<Reply> {
    let time = Duration::from_millis(number(call.text()?)?);
    Ok(Reply::text(db::put_for(call.required_key()?, "ttl", time)?))
}

/// What a snapshot, taken before a write of the payload, still shows under the key.
fn snapshot(call: &Call) -> Result<Reply> {
    let key = call.required_key()?;
    let snapshot = db::snapshot()?;
    db::put(key, call.payload())?;
    let scanned = snapshot.scan_prefix(key, Order::Ascending)?.count();
    let value = snapshot.get::<Vec<u8>>(key)?;
    Ok(Reply::text(format_args!(
        "{scanned} {}",
        String::from_utf8_lossy(&value.unwrap_or_default())
    )))
}

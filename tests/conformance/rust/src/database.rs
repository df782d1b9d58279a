//! The commands of the database.

use crate::bindings::quarry::shard::db::{
    self, Cursor, IsolationLevel, KeyRange, Op, OpKind, Order, Snapshot, Transaction,
};
use crate::bindings::quarry::shard::types::Error;
use crate::broken::broken;
use crate::form::option;
use crate::script::{Args, Handle, Refused, Script, Values, bad, no_handle, number};

/// Runs a command, where it is one of these.
pub fn run(script: &mut Script, command: &str, args: &mut Args) -> Option<Result<Values, Refused>> {
    Some(match command {
        "db.get" => get(script, args),
        "db.get-many" => get_many(script, args),
        "db.get-versioned" => get_versioned(args),
        "db.put" => put(script, args),
        "db.remove" => remove(script, args),
        "db.merge" => merge(script, args),
        "db.write" => write(script, args),
        "db.scan" => scan(script, args),
        "db.scan-prefix" => scan_prefix(script, args),
        "cursor.next" => next(script, args),
        "cursor.page" => page(script, args),
        "db.open-snapshot" => open_snapshot(script, args),
        "db.begin" => begin(script, args),
        "transaction.commit" => commit(script, args),
        "drop" => args
            .number()
            .and_then(|number| script.close(number))
            .map(|()| Vec::new()),
        _ => return None,
    })
}

/// Where a command goes.
enum On<'a> {
    Database,
    Snapshot(&'a Snapshot),
    Transaction(&'a Transaction),
}

fn on<'a>(script: &'a Script, args: &mut Args) -> Result<On<'a>, Refused> {
    let on = args.text()?;
    if on.is_empty() {
        return Ok(On::Database);
    }
    let number = on.parse().map_err(|_| bad())?;
    match script.handle(number)? {
        Handle::Snapshot(_) if broken("snapshot-is-live") => Ok(On::Database),
        Handle::Snapshot(snapshot) => Ok(On::Snapshot(snapshot)),
        Handle::Transaction(transaction) => Ok(On::Transaction(transaction)),
        Handle::Cursor(_) => Err(no_handle(number)),
    }
}

/// Where a write goes: none is the database.
fn on_writer<'a>(script: &'a Script, args: &mut Args) -> Result<Option<&'a Transaction>, Refused> {
    match on(script, args)? {
        On::Database => Ok(None),
        On::Transaction(_) if broken("writes-through") => Ok(None),
        On::Transaction(transaction) => Ok(Some(transaction)),
        On::Snapshot(_) => Err(no_handle(0)),
    }
}

fn get(script: &Script, args: &mut Args) -> Result<Values, Refused> {
    let on = on(script, args)?;
    let key = &key(args)?;
    let found = match on {
        On::Database => db::get(key),
        On::Snapshot(snapshot) => snapshot.get(key),
        On::Transaction(transaction) => transaction.get(key),
    };
    Ok(vec![value(found?)])
}

fn get_many(script: &Script, args: &mut Args) -> Result<Values, Refused> {
    let on = on(script, args)?;
    let mut keys = Vec::new();
    while !args.is_empty() {
        keys.push(key(args)?);
    }
    if broken("sorted") {
        keys.sort();
    }
    let found = match on {
        On::Database => db::get_many(&keys),
        On::Snapshot(snapshot) => snapshot.get_many(&keys),
        On::Transaction(transaction) => transaction.get_many(&keys),
    };
    Ok(found?.into_iter().map(value).collect())
}

fn get_versioned(args: &mut Args) -> Result<Values, Refused> {
    let Some(found) = db::get_versioned(&key(args)?)? else {
        return Ok(Vec::new());
    };
    let expires = found.expires_at_ms.map(number);
    Ok(vec![
        found.value,
        number(found.seq),
        number(found.created_at_ms),
        option(expires),
    ])
}

fn put(script: &mut Script, args: &mut Args) -> Result<Values, Refused> {
    let on = on_writer(script, args)?;
    let (key, value, ttl) = (key(args)?, stored(args)?, ttl(args)?);
    let seq = match (on, ttl) {
        (None, None) => db::put(&key, &value),
        (None, Some(ttl)) => db::put_for(&key, &value, ttl),
        (Some(transaction), None) => return nothing(transaction.put(&key, &value)),
        (Some(transaction), Some(ttl)) => return nothing(transaction.put_for(&key, &value, ttl)),
    };
    Ok(script.wrote(written(seq)?))
}

fn remove(script: &mut Script, args: &mut Args) -> Result<Values, Refused> {
    let on = on_writer(script, args)?;
    let key = key(args)?;
    match on {
        None => Ok(script.wrote(written(db::remove(&key))?)),
        Some(transaction) => nothing(transaction.remove(&key)),
    }
}

fn merge(script: &mut Script, args: &mut Args) -> Result<Values, Refused> {
    let on = on_writer(script, args)?;
    let (key, operand) = (key(args)?, args.bytes()?);
    match on {
        None => Ok(script.wrote(written(db::merge(&key, operand))?)),
        Some(transaction) => nothing(transaction.merge(&key, operand)),
    }
}

fn write(script: &mut Script, args: &mut Args) -> Result<Values, Refused> {
    let mut ops = Vec::new();
    while !args.is_empty() {
        let kind = match args.text()? {
            "put" => OpKind::Put,
            "remove" => OpKind::Remove,
            "merge" => OpKind::Merge,
            _ => return Err(bad()),
        };
        ops.push(Op {
            kind,
            key: key(args)?,
            value: args.bytes()?.to_owned(),
            ttl_ms: ttl(args)?,
        });
    }
    if broken("batch-backwards") {
        ops.reverse();
    }
    if broken("no-batch") {
        let mut seq = 0;
        for op in &ops {
            seq = db::write(std::slice::from_ref(op))?;
        }
        return Ok(script.wrote(seq));
    }
    Ok(script.wrote(written(db::write(&ops))?))
}

fn scan(script: &mut Script, args: &mut Args) -> Result<Values, Refused> {
    let on = on(script, args)?;
    let handle = args.number()?;
    let mut range = KeyRange {
        start: args.option()?.map(<[u8]>::to_vec),
        end: args.option()?.map(<[u8]>::to_vec),
    };
    if let Some(start) = range.start.as_mut().filter(|_| broken("open-start")) {
        start.push(0);
    }
    if broken("no-end") {
        range.end = None;
    }
    let order = order(args)?;
    let cursor = match on {
        On::Database => db::scan(&range, order),
        On::Snapshot(snapshot) => snapshot.scan(&range, order),
        On::Transaction(transaction) => transaction.scan(&range, order),
    };
    opened(script, handle, cursor?)
}

fn scan_prefix(script: &mut Script, args: &mut Args) -> Result<Values, Refused> {
    let on = on(script, args)?;
    let handle = args.number()?;
    let prefix = args.bytes()?;
    let order = order(args)?;
    let cursor = match on {
        On::Database => db::scan_prefix(prefix, order),
        On::Snapshot(snapshot) => snapshot.scan_prefix(prefix, order),
        On::Transaction(transaction) => transaction.scan_prefix(prefix, order),
    };
    opened(script, handle, cursor?)
}

fn opened(script: &mut Script, handle: u64, cursor: Cursor) -> Result<Values, Refused> {
    script.open(handle, Handle::Cursor(cursor));
    Ok(Vec::new())
}

fn next(script: &Script, args: &mut Args) -> Result<Values, Refused> {
    let handle = args.number()?;
    let Handle::Cursor(cursor) = script.handle(handle)? else {
        return Err(no_handle(handle));
    };
    let page = cursor.next(args.number()?)?;
    let entries = page.into_iter();
    Ok(entries.flat_map(|entry| [entry.key, entry.value]).collect())
}

/// The bindings have pages, and so both commands are one.
fn page(script: &Script, args: &mut Args) -> Result<Values, Refused> {
    let mut page = next(script, &mut args.again())?;
    if broken("pages-joined") {
        page.extend(next(script, args)?);
    }
    Ok(page)
}

fn open_snapshot(script: &mut Script, args: &mut Args) -> Result<Values, Refused> {
    let handle = args.number()?;
    let snapshot = db::open_snapshot()?;
    let seq = snapshot.seq();
    script.open(handle, Handle::Snapshot(snapshot));
    Ok(vec![number(seq)])
}

fn begin(script: &mut Script, args: &mut Args) -> Result<Values, Refused> {
    let handle = args.number()?;
    let isolation = match args.text()? {
        "serializable" if broken("never-serializable") => IsolationLevel::SnapshotIsolation,
        "serializable" => IsolationLevel::Serializable,
        "snapshot" => IsolationLevel::SnapshotIsolation,
        _ => return Err(bad()),
    };
    let transaction = db::begin(isolation)?;
    script.open(handle, Handle::Transaction(transaction));
    Ok(Vec::new())
}

fn commit(script: &mut Script, args: &mut Args) -> Result<Values, Refused> {
    let handle = args.number()?;
    let Handle::Transaction(transaction) = script.handle(handle)? else {
        return Err(no_handle(handle));
    };
    if broken("lost-commit") {
        return Ok(vec![option(Some("1"))]);
    }
    let seq = transaction.commit()?;
    if let Some(seq) = seq {
        script.wrote(seq);
    }
    Ok(vec![option(seq.map(number))])
}

fn nothing(outcome: Result<(), Error>) -> Result<Values, Refused> {
    outcome.map(|()| Vec::new()).map_err(Refused::Host)
}

/// The seq of a write; a wrong one where a query lies.
fn written(seq: Result<u64, Error>) -> Result<u64, Error> {
    match seq {
        Err(error) if error.code == "read-only" && broken("query-writes") => Ok(1),
        seq => seq,
    }
}

fn key(args: &mut Args) -> Result<Vec<u8>, Refused> {
    let key = args.bytes()?;
    Ok(if broken("text-keys") {
        String::from_utf8_lossy(key).into_owned().into_bytes()
    } else {
        key.to_owned()
    })
}

/// A value that is to be stored.
fn stored(args: &mut Args) -> Result<Vec<u8>, Refused> {
    let mut value = args.bytes()?.to_owned();
    if broken("short-values") {
        value.truncate(65_535);
    }
    if broken("text-values") {
        let end = value.iter().position(|byte| *byte == 0);
        value.truncate(end.unwrap_or(value.len()));
    }
    Ok(value)
}

/// A value that was read.
fn value(value: Option<Vec<u8>>) -> Vec<u8> {
    option(value.filter(|value| !(value.is_empty() && broken("empty-is-none"))))
}

fn ttl(args: &mut Args) -> Result<Option<u64>, Refused> {
    let ttl = args.optional_number::<u64>()?;
    Ok(match ttl {
        Some(_) if broken("ttl-lost") => None,
        Some(ttl) if broken("ttl-seconds") => Some(ttl * 1_000),
        ttl => ttl,
    })
}

fn order(args: &mut Args) -> Result<Order, Refused> {
    match args.text()? {
        "ascending" => Ok(Order::Ascending),
        "descending" if broken("ascending") => Ok(Order::Ascending),
        "descending" => Ok(Order::Descending),
        _ => Err(bad()),
    }
}

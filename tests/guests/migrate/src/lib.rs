//! A guest whose revisions from 2 on keep counters in another form than those before, and migrate them. Options say which revision fails at
//! it, and how:
//!
//! | option | values |
//! |---|---|
//! | `revision` | the revision that fails, a number; any of the later ones where it is not set |
//! | `shard` | the shard on which it fails; on all where it is not set |
//! | `step` | the step of an instance at which it fails, from 1, once it wrote; `last`: the one with nothing left to write |
//! | `how` | `error`, `panic`, `spin`, `hang`; `wait` (says false, without end, until the key `go` is there) |
//!
//! | method | what it does |
//! |---|---|
//! | `add` | counts the key: older revisions in the database, later ones in a cache of it that the last step fills |
//! | `count` | the key's count in the database |
//! | `put`, `get` | the database |
//! | `old` | how many counters are of the old form; a query, too |
//! | `steps` | the revision from which each step of this instance migrated, oldest first |
//! | `panic` | traps |

use std::collections::BTreeMap;
use std::hint::black_box;
use std::thread::sleep;
use std::time::Duration;

use quarry_guest::db::{Batch, Order};
use quarry_guest::{context, prelude::*};
use serde_json::Value;

/// Where the counters are.
const ROWS: &str = "row/";
/// The first revision of the new form.
const NEW: u64 = 2;
/// Counters that a step rewrites.
const ROWS_OF_A_STEP: usize = 10;
/// The step with nothing left to write, whichever it is.
const LAST: usize = usize::MAX;

#[derive(Default)]
struct Migrate {
    steps: Vec<u64>,
    /// The counts of all rows, in the later revisions.
    cache: BTreeMap<Vec<u8>, u64>,
}

impl Guest for Migrate {
    fn call(&mut self, call: Call) -> Result<Reply> {
        match call.method() {
            "add" => {
                let row = row(&call)?;
                let stored = match db::get::<String>(&row)? {
                    Some(text) => Row::parse(&text)?,
                    None => Row {
                        old: false,
                        count: 0,
                    },
                };
                let count = if is_new() {
                    if stored.old {
                        return Err(Error::new("old-form", "the migration missed a row"));
                    }
                    let count = self.cache.entry(row.clone()).or_default();
                    *count += 1;
                    *count
                } else {
                    stored.count + 1
                };
                let old = !is_new();
                db::put(row, Row { old, count }.text())?;
                Ok(Reply::text(count))
            }
            "count" => match db::get::<String>(row(&call)?)? {
                Some(text) => Ok(Reply::text(Row::parse(&text)?.count)),
                None => Ok(Reply::text(0)),
            },
            "put" => Ok(Reply::text(db::put(call.required_key()?, call.payload())?)),
            "get" => Ok(Reply::bytes(
                db::get::<Vec<u8>>(call.required_key()?)?.unwrap_or_default(),
            )),
            "steps" => Reply::json(&self.steps),
            "panic" => panic!("call panicked on purpose"),
            _ => self.query(call),
        }
    }

    fn query(&self, call: Call) -> Result<Reply> {
        match call.method() {
            "old" => {
                let rows = rows()?;
                Ok(Reply::text(rows.iter().filter(|(_, row)| row.old).count()))
            }
            other => Err(Error::unknown_method(other)),
        }
    }

    fn migrate(&mut self, from_revision: u64) -> Result<bool> {
        self.steps.push(from_revision);
        if !is_new() {
            return Ok(true);
        }
        let (mut batch, rows) = (Batch::new(), rows()?);
        for (key, row) in rows.iter().filter(|(_, row)| row.old).take(ROWS_OF_A_STEP) {
            let new = Row { old: false, ..*row };
            batch.put(key, new.text());
        }
        if batch.is_empty() && !must_wait()? {
            fail(LAST)?;
            let counts = rows.into_iter().map(|(key, row)| (key, row.count));
            self.cache = counts.collect();
            return Ok(true);
        }
        if !batch.is_empty() {
            batch.write()?;
        }
        fail(self.steps.len())?;
        Ok(false)
    }
}

quarry_guest::export!(Migrate, queries, migration);

/// A counter, as it is stored.
#[derive(Clone, Copy)]
struct Row {
    old: bool,
    count: u64,
}

impl Row {
    fn parse(text: &str) -> Result<Self> {
        let unknown = || Error::new("unknown-form", text);
        let (form, count) = text.split_once(':').ok_or_else(unknown)?;
        let count = count.parse().map_err(|_| unknown())?;
        match form {
            "old" => Ok(Self { old: true, count }),
            "new" => Ok(Self { old: false, count }),
            _ => Err(unknown()),
        }
    }

    fn text(self) -> String {
        let form = if self.old { "old" } else { "new" };
        format!("{form}:{}", self.count)
    }
}

fn is_new() -> bool {
    context::revision() >= NEW
}

fn row(call: &Call) -> Result<Vec<u8>> {
    Ok([ROWS.as_bytes(), call.required_key()?].concat())
}

fn rows() -> Result<Vec<(Vec<u8>, Row)>> {
    let mut rows = Vec::new();
    for entry in db::scan_prefix(ROWS, Order::Ascending)? {
        let entry = entry?;
        let row = Row::parse(&String::from_utf8_lossy(&entry.value))?;
        rows.push((entry.key, row));
    }
    Ok(rows)
}

/// How this revision fails on this shard.
fn way() -> Result<(String, usize)> {
    let options = context::options::<Value>()?;
    let elsewhere = options["shard"]
        .as_u64()
        .is_some_and(|shard| shard != u64::from(context::shard()));
    let another = options["revision"]
        .as_u64()
        .is_some_and(|revision| revision != context::revision());
    if elsewhere || another {
        return Ok((String::new(), 0));
    }
    let step = match options["step"].as_u64() {
        Some(step) => usize::try_from(step).unwrap_or(LAST),
        None if options["step"] == "last" => LAST,
        None => 0,
    };
    let how = options["how"].as_str().unwrap_or_default();
    Ok((how.to_owned(), step))
}

fn must_wait() -> Result<bool> {
    Ok(way()?.0 == "wait" && db::get::<Vec<u8>>("go")?.is_none())
}

fn fail(step: usize) -> Result<()> {
    let (how, at) = way()?;
    if at != step {
        return Ok(());
    }
    match how.as_str() {
        "error" => Err(Error::new("mine", "migrate failed on purpose")),
        "panic" => panic!("migrate panicked on purpose"),
        "spin" => spin(),
        "hang" => hang(),
        _ => Ok(()),
    }
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

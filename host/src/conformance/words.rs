//! The words in which cases are written: a function for each command, and for each thing that they expect.

use super::expect::{Expect, Value};
use super::form;
use super::script::{Arg, Step, option, step};

pub(super) fn get(key: impl Into<Arg>) -> Step {
    step("db.get", ["".into(), key.into()])
}

pub(super) fn get_many<const N: usize>(keys: [&str; N]) -> Step {
    step("db.get-many", ["".into()]).with(keys)
}

pub(super) fn versioned(key: &str) -> Step {
    step("db.get-versioned", [key.into()])
}

pub(super) fn put(key: impl Into<Arg>, value: impl Into<Arg>) -> Step {
    step("db.put", ["".into(), key.into(), value.into()])
}

pub(super) fn put_for(key: &str, value: &str, ttl_ms: u64) -> Step {
    put(key, value).with([option(ttl_ms.to_string())])
}

pub(super) fn remove(key: &str) -> Step {
    step("db.remove", ["".into(), key.into()])
}

pub(super) fn merge(key: &str, operand: impl Into<Arg>) -> Step {
    step("db.merge", ["".into(), key.into(), operand.into()])
}

/// A batch: kind, key, value.
pub(super) fn write<const N: usize>(ops: [(&str, &str, &str); N]) -> Step {
    let args = ops
        .into_iter()
        .flat_map(|(kind, key, value)| [kind, key, value, ""]);
    step("db.write", []).with(args)
}

pub(super) fn scan(handle: u64, start: Option<&[u8]>, end: Option<&[u8]>, order: &str) -> Step {
    let bound = |bound: Option<&[u8]>| bound.map_or_else(|| "".into(), option);
    step(
        "db.scan",
        [
            "".into(),
            handle.into(),
            bound(start),
            bound(end),
            order.into(),
        ],
    )
}

pub(super) fn scan_prefix(handle: u64, prefix: impl Into<Arg>, order: &str) -> Step {
    step(
        "db.scan-prefix",
        ["".into(), handle.into(), prefix.into(), order.into()],
    )
}

pub(super) fn next(handle: u64, max: u64) -> Step {
    step("cursor.next", [handle.into(), max.into()])
}

/// One page, as the host gives it.
pub(super) fn page(handle: u64, max: u64) -> Step {
    step("cursor.page", [handle.into(), max.into()])
}

pub(super) fn snapshot(handle: u64) -> Step {
    step("db.open-snapshot", [handle.into()])
}

pub(super) fn begin(handle: u64, isolation: &str) -> Step {
    step("db.begin", [handle.into(), isolation.into()])
}

pub(super) fn commit(handle: u64) -> Step {
    step("transaction.commit", [handle.into()])
}

pub(super) fn give_back(handle: u64) -> Step {
    step("drop", [handle.into()])
}

pub(super) fn durable_seq() -> Step {
    step("durability.durable-seq", [])
}

/// Asks for a tag once the last write of the script is durable.
pub(super) fn notify(tag: u64) -> Step {
    notify_of("", tag)
}

pub(super) fn notify_of(seq: impl Into<Arg>, tag: u64) -> Step {
    step("durability.notify-when-durable", [seq.into(), tag.into()])
}

pub(super) fn set_timer(name: impl Into<Arg>, after_ms: u64, payload: impl Into<Arg>) -> Step {
    step("timers.set", [name.into(), after_ms.into(), payload.into()])
}

pub(super) fn set_durable(name: impl Into<Arg>, after_ms: u64, payload: impl Into<Arg>) -> Step {
    step(
        "timers.set-durable",
        [name.into(), after_ms.into(), payload.into()],
    )
}

pub(super) fn cancel(name: &str) -> Step {
    step("timers.cancel", [name.into()])
}

pub(super) fn due(name: &str) -> Step {
    step("timers.due-ms", [name.into()])
}

/// Runs a script on another shard: `call` or `query`.
pub(super) fn on_shard(kind: &str, shard: u64, script: impl Into<Arg>) -> Step {
    step(
        "cluster",
        [
            kind.into(),
            shard.into(),
            "".into(),
            "run".into(),
            script.into(),
        ],
    )
}

/// Runs a method on the shard of a key: `call` or `query`.
pub(super) fn on_key(kind: &str, key: &str, method: &str, payload: impl Into<Arg>) -> Step {
    step(
        "cluster-key",
        [kind.into(), key.into(), method.into(), payload.into()],
    )
}

pub(super) fn metric<const N: usize>(args: [&str; N]) -> Step {
    step("metrics", []).with(args)
}

pub(super) fn log<const N: usize>(args: [&str; N]) -> Step {
    step("log", []).with(args)
}

pub(super) fn remember(memory: &str) -> Step {
    step("memory", [option(memory)])
}

pub(super) fn recall() -> Step {
    step("memory", ["".into()])
}

pub(super) fn seen() -> Step {
    step("seen", [])
}

pub(super) fn raise(code: &str, message: impl Into<Arg>, retryable: bool) -> Step {
    let flag = if retryable { "1" } else { "0" };
    step("raise", [code.into(), message.into(), flag.into()])
}

/// A command without arguments.
pub(super) fn word(command: &str) -> Step {
    step(command, [])
}

/// Success without values.
pub(super) fn done() -> Expect {
    Expect::Ok(Vec::new())
}

/// Success with these values.
pub(super) fn ok<const N: usize>(values: [Value; N]) -> Expect {
    Expect::Ok(values.into())
}

/// An option that is there.
pub(super) fn some(value: impl AsRef<[u8]>) -> Expect {
    ok([Value::Bytes(form::some(value))])
}

/// An option that is none.
pub(super) fn none() -> Expect {
    ok([Value::Bytes(Vec::new())])
}

/// Options, `-` for none.
pub(super) fn options<const N: usize>(values: [&str; N]) -> Expect {
    let option = |value: &str| match value {
        "-" => Value::Bytes(Vec::new()),
        value => Value::Bytes(form::some(value)),
    };
    Expect::Ok(values.map(option).into())
}

/// A seq.
pub(super) fn seq() -> Expect {
    ok([Value::Number])
}

/// A seq that is kept under a name.
pub(super) fn save(name: &'static str) -> Expect {
    ok([Value::Save(name)])
}

/// A page of entries.
pub(super) fn entries<const N: usize>(entries: [(&str, &str); N]) -> Expect {
    Expect::Ok(
        entries
            .into_iter()
            .flat_map(|(key, value)| [text(key), text(value)])
            .collect(),
    )
}

/// A value that is this text.
pub(super) fn text(text: &str) -> Value {
    Value::Bytes(text.into())
}

/// An error that trying again does not help.
pub(super) fn err(code: &'static str, says: &'static str) -> Expect {
    Expect::Err(code, says, false)
}

/// An error that trying again may help.
pub(super) fn again(code: &'static str, says: &'static str) -> Expect {
    Expect::Err(code, says, true)
}

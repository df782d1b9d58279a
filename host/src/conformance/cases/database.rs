//! Keys and values: reads, writes, batches, merges, expiry, and what is left after a stop or a crash.

use crate::conformance::case::{Act, Call, Case, Group};
use crate::conformance::expect::{Expect, Value};
use crate::conformance::form;
use crate::conformance::script::{option, step};
use crate::conformance::words::{
    done, err, get, get_many, merge, none, ok, options, put, put_for, remove, save, seq, some,
    text, versioned, write,
};

pub(super) fn cases() -> Vec<Case> {
    [keys(), writes(), expiry(), lasting()].concat()
}

fn case(name: &'static str) -> Case {
    Case::new(Group::Database, name)
}

fn keys() -> Vec<Case> {
    let large = vec![0xa5; 1 << 20];
    vec![
        case("a value is read as it was written").run([
            (get("a"), none()),
            (put("a", "one"), seq()),
            (get("a"), some("one")),
            (put("a", "two"), seq()),
            (get("a"), some("two")),
        ]),
        case("an empty value is a value").run([
            (put("empty", ""), seq()),
            (get("empty"), some("")),
            (get_many(["empty", "none"]), options(["", "-"])),
            (
                versioned("empty"),
                ok([text(""), Value::Number, Value::Number, text("")]),
            ),
        ]),
        case("keys are bytes").run([
            (put(b"\0", "zero"), seq()),
            (put(b"\xff\xfe", "high"), seq()),
            (put(b"\xc3", "cut"), seq()),
            (put(b"\xef\xbf\xbd", "replaced"), seq()),
            (put(b"a\0b", "inner"), seq()),
            (get(b"\0"), some("zero")),
            (get(b"\xff\xfe"), some("high")),
            (get(b"\xc3"), some("cut")),
            (get(b"\xef\xbf\xbd"), some("replaced")),
            (get(b"a\0b"), some("inner")),
            (get("a"), none()),
        ]),
        case("values are bytes").run([
            (put("a", b"\0\xff\0\x80"), seq()),
            (get("a"), some(b"\0\xff\0\x80")),
        ]),
        case("a value of 1 MiB is read as it was written").run([
            (put("large", large.clone()), seq()),
            (get("large"), some(large)),
        ]),
        case("what is removed is not there, and removing nothing is no error").run([
            (put("a", "one"), seq()),
            (remove("a"), seq()),
            (get("a"), none()),
            (versioned("a"), done()),
            (remove("a"), seq()),
            (remove("never"), seq()),
        ]),
        case("many keys are read in their order, each as often as asked").run([
            (put("a", "1"), seq()),
            (put("b", "2"), seq()),
            (put("c", ""), seq()),
            (
                get_many(["c", "none", "a", "b", "a"]),
                options(["", "-", "1", "2", "1"]),
            ),
            (get_many([]), done()),
        ]),
        case("shards share nothing")
            .run([(put("a", "of shard 0"), seq())])
            .run_as(
                Call::shard(1),
                [(get("a"), none()), (put("a", "of shard 1"), seq())],
            )
            .run([(get("a"), some("of shard 0"))]),
    ]
}

fn writes() -> Vec<Case> {
    vec![
        case("a later write has a higher seq").run([
            (put("a", "1"), save("first")),
            (remove("a"), ok([Value::Above("first")])),
            (put("b", "1"), save("second")),
            (write([("put", "c", "1")]), ok([Value::Above("second")])),
        ]),
        case("a seq comes whole").run([(put("a", "1"), ok([Value::Newest]))]),
        case("what is known of a value: its seq, its times").run([
            (put("a", "1"), save("seq")),
            (
                versioned("a"),
                ok([text("1"), Value::Saved("seq"), Value::Number, text("")]),
            ),
            (versioned("none"), done()),
        ]),
        case("a batch has one seq, and its later operations win").run([
            (put("gone", "x"), save("before")),
            (
                write([
                    ("put", "a", "1"),
                    ("put", "b", "1"),
                    ("put", "a", "2"),
                    ("remove", "gone", ""),
                    ("remove", "b", ""),
                ]),
                save("batch"),
            ),
            (
                versioned("a"),
                ok([text("2"), Value::Saved("batch"), Value::Number, text("")]),
            ),
            (get_many(["b", "gone"]), options(["-", "-"])),
        ]),
        case("a batch is applied whole or not at all").run([
            (
                write([("put", "a", "1"), ("put", "", "no key"), ("put", "b", "1")]),
                err("invalid-key", "a key cannot be empty"),
            ),
            (get_many(["a", "b"]), options(["-", "-"])),
            (write([]), err("invalid-argument", "")),
        ]),
        case("a batch writes what expires, too").run([
            (
                step(
                    "db.write",
                    ["put".into(), "a".into(), "1".into(), option("60000")],
                ),
                seq(),
            ),
            (
                versioned("a"),
                Expect::That(
                    "a value that expires 60,000 ms after it was stored",
                    |values| lives_for(values, 60_000),
                ),
            ),
        ]),
        case("merges are combined in their order")
            .set("merge_operator", "append")
            .run([
                (merge("a", "1"), save("first")),
                (merge("a", "2"), ok([Value::Above("first")])),
                (get("a"), some("12")),
                (
                    write([("merge", "a", "3"), ("put", "b", "x"), ("merge", "b", "y")]),
                    seq(),
                ),
                (merge("a", ""), seq()),
                (get_many(["a", "b"]), options(["123", "xy"])),
            ]),
        case("a merge whose operator is of numbers takes numbers alone")
            .set("merge_operator", "u64-add")
            .run([
                (merge("a", b"\x05\0\0\0\0\0\0\0"), seq()),
                (merge("a", b"\xff\x01\0\0\0\0\0\0"), seq()),
                (get("a"), some(b"\x04\x02\0\0\0\0\0\0")),
                (merge("a", "5"), err("invalid-value", "u64-add")),
                (get("a"), some(b"\x04\x02\0\0\0\0\0\0")),
            ]),
    ]
}

fn expiry() -> Vec<Case> {
    vec![
        case("a value expires, and not before")
            .run([
                (put_for("long", "1", 60_000), seq()),
                (
                    versioned("long"),
                    Expect::That(
                        "a value that expires 60,000 ms after it was stored",
                        |values| lives_for(values, 60_000),
                    ),
                ),
                (put_for("short", "1", 40), seq()),
                (put("never", "1"), seq()),
            ])
            .until([(get("short"), none())])
            .run([
                (get("long"), some("1")),
                (get("never"), some("1")),
                (versioned("short"), done()),
                (get_many(["short", "long"]), options(["-", "1"])),
            ]),
        case("a later write takes the expiry away").run([
            (put_for("a", "1", 60_000), seq()),
            (put("a", "2"), save("seq")),
            (
                versioned("a"),
                ok([text("2"), Value::Saved("seq"), Value::Number, text("")]),
            ),
        ]),
        case("a time to live is at least 1 ms").run([
            (put_for("a", "1", 0), err("invalid-argument", "1 ms")),
            (get("a"), none()),
        ]),
    ]
}

fn lasting() -> Vec<Case> {
    vec![
        case("data outlives a stop of its node")
            .run([
                (put("a", "1"), seq()),
                (put(b"\xff\0", ""), seq()),
                (remove("a"), seq()),
                (put("b", "2"), save("before")),
            ])
            .act(Act::Reopen)
            .run([
                (get_many(["a", "b"]), options(["-", "2"])),
                (get(b"\xff\0"), some("")),
                (put("c", "3"), ok([Value::Above("before")])),
            ]),
        case("what was acknowledged outlives a node that loses its store")
            .run([(put("a", "1"), save("before"))])
            .run([(put("b", "2"), seq())])
            .act(Act::TakeOver)
            .run([
                (get_many(["a", "b"]), options(["1", "2"])),
                (put("c", "3"), ok([Value::Above("before")])),
            ]),
        case("an instance that is replaced leaves the data")
            .run([(put("a", "1"), seq())])
            .act(Act::Restart)
            .run([(get("a"), some("1"))]),
    ]
}

/// Whether a versioned value expires so many milliseconds after it was stored.
fn lives_for(values: &[Vec<u8>], ttl_ms: u64) -> bool {
    let [_, _, created, expires] = values else {
        return false;
    };
    let expires = expires.strip_prefix(b"+").and_then(form::number);
    form::number(created)
        .and_then(|created| created.checked_add(ttl_ms))
        .is_some_and(|end| expires == Some(end))
}

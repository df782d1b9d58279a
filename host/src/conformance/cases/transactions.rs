//! Transactions: what they show, when they conflict, and what is left of them.

use crate::conformance::case::{Act, Case, Failing, Group};
use crate::conformance::expect::Value;
use crate::conformance::words::{
    again, begin, commit, done, entries, err, get, get_many, give_back, merge, next, none, ok,
    options, put, put_for, raise, remove, save, scan, scan_prefix, seq, some, versioned,
};
use crate::conformance::{expect::Expect, script::Step};

const SNAPSHOT: &str = "snapshot";
const SERIALIZABLE: &str = "serializable";

pub(super) fn cases() -> Vec<Case> {
    [views(), conflicts()].concat()
}

fn case(name: &'static str) -> Case {
    Case::new(Group::Transactions, name)
}

fn committed() -> Expect {
    Expect::That(
        "some seq",
        |values| matches!(values, [seq] if seq.len() > 1 && seq[0] == b'+'),
    )
}

fn views() -> Vec<Case> {
    vec![
        case("a transaction shows its own writes, and nobody else does before the commit").run([
            (put("a", "old"), seq()),
            (put("gone", "x"), seq()),
            (begin(1, SERIALIZABLE), done()),
            (put("a", "new").on(1), done()),
            (put("b", "").on(1), done()),
            (remove("gone").on(1), done()),
            (
                get_many(["a", "b", "gone"]).on(1),
                options(["new", "", "-"]),
            ),
            (scan(2, None, None, "ascending").on(1), done()),
            (next(2, 10), entries([("a", "new"), ("b", "")])),
            (get_many(["a", "b", "gone"]), options(["old", "-", "x"])),
            (commit(1), committed()),
            (get_many(["a", "b", "gone"]), options(["new", "", "-"])),
        ]),
        case("a transaction sees nothing that is written after it began").run([
            (put("a", "old"), seq()),
            (begin(1, SNAPSHOT), done()),
            (put("a", "later"), seq()),
            (put("b", "later"), seq()),
            (get_many(["a", "b"]).on(1), options(["old", "-"])),
            (scan_prefix(2, "", "descending").on(1), done()),
            (next(2, 10), entries([("a", "old")])),
        ]),
        case("a transaction without a commit changes nothing")
            .run([
                (begin(1, SNAPSHOT), done()),
                (put("dropped", "x").on(1), done()),
                (give_back(1), done()),
                (get("dropped"), none()),
                (begin(2, SERIALIZABLE), done()),
                (put("left", "x").on(2), done()),
            ])
            .run([(get_many(["dropped", "left"]), options(["-", "-"]))]),
        case("a call that fails leaves no transaction behind")
            .fails(
                [
                    put("written", "x"),
                    begin(1, SNAPSHOT),
                    put("begun", "x").on(1),
                    raise("mine", "", false),
                ],
                Failing::Guest("mine", "", false),
            )
            .run([(get_many(["written", "begun"]), options(["x", "-"]))]),
        case("a commit has a seq, and one of nothing has none").run([
            (put("a", "1"), save("before")),
            (begin(1, SNAPSHOT), done()),
            (put("b", "1").on(1), done()),
            (commit(1), committed()),
            (
                versioned("b"),
                ok([
                    Value::Bytes(b"1".to_vec()),
                    Value::Above("before"),
                    Value::Number,
                    Value::Bytes(Vec::new()),
                ]),
            ),
            (begin(2, SERIALIZABLE), done()),
            (get("a").on(2), some("1")),
            (commit(2), none()),
        ]),
        case("a transaction is over after its commit").run([
            (begin(1, SNAPSHOT), done()),
            (put("a", "1").on(1), done()),
            (commit(1), committed()),
            (put("a", "2").on(1), err("closed", "")),
            (get("a").on(1), err("closed", "")),
            (commit(1), err("closed", "")),
            (get("a"), some("1")),
        ]),
        case("transactions merge, and write what expires")
            .set("merge_operator", "append")
            .run([
                (put("m", "1"), seq()),
                (begin(1, SNAPSHOT), done()),
                (merge("m", "2").on(1), done()),
                (merge("m", "3").on(1), done()),
                (put_for("t", "x", 60_000).on(1), done()),
                (get("m").on(1), some("123")),
                (commit(1), committed()),
                (get("m"), some("123")),
                (
                    versioned("t"),
                    Expect::That(
                        "a value that expires",
                        |values| matches!(values, [_, _, _, expires] if expires.len() > 1),
                    ),
                ),
            ]),
        case("a transaction refuses what a write refuses, and goes on").run([
            (begin(1, SNAPSHOT), done()),
            (
                put("", "x").on(1),
                err("invalid-key", "a key cannot be empty"),
            ),
            (merge("a", "x").on(1), err("no-merge-operator", "")),
            (put_for("a", "x", 0).on(1), err("invalid-argument", "1 ms")),
            (put("b", "x").on(1), done()),
            (commit(1), committed()),
            (get_many(["a", "b"]), options(["-", "x"])),
        ]),
        case("what was committed outlives a node that loses its store")
            .run([
                (begin(1, SERIALIZABLE), done()),
                (put("a", "1").on(1), done()),
                (put("b", "1").on(1), done()),
                (commit(1), committed()),
            ])
            .act(Act::TakeOver)
            .run([(get_many(["a", "b"]), options(["1", "1"]))]),
    ]
}

/// A transaction that reads, and one that writes what it read, before it writes something else.
fn read_then_written(isolation: &str, outcome: Expect) -> [(Step, Expect); 5] {
    [
        (begin(1, isolation), done()),
        (get("read").on(1), none()),
        (put("read", "x"), seq()),
        (put("written", "x").on(1), done()),
        (commit(1), outcome),
    ]
}

/// The same with a range, into which a key is put.
fn scanned_then_written(isolation: &str, outcome: Expect) -> [(Step, Expect); 6] {
    [
        (begin(1, isolation), done()),
        (scan_prefix(2, "range/", "ascending").on(1), done()),
        (next(2, 10), done()),
        (put("range/new", "x"), seq()),
        (put("written", "x").on(1), done()),
        (commit(1), outcome),
    ]
}

fn conflicts() -> Vec<Case> {
    vec![
        case("two writes of one key conflict, and the later commit can be tried again").run([
            (begin(1, SNAPSHOT), done()),
            (begin(2, SNAPSHOT), done()),
            (put("a", "of 1").on(1), done()),
            (put("a", "of 2").on(2), done()),
            (put("b", "of 2").on(2), done()),
            (commit(1), committed()),
            (commit(2), again("conflict", "begin the transaction again")),
            (get_many(["a", "b"]), options(["of 1", "-"])),
            (begin(3, SNAPSHOT), done()),
            (put("a", "of 3").on(3), done()),
            (commit(3), committed()),
            (get("a"), some("of 3")),
        ]),
        case("a write beside a transaction conflicts with it as well").run([
            (begin(1, SNAPSHOT), done()),
            (put("a", "of 1").on(1), done()),
            (put("a", "beside"), seq()),
            (commit(1), again("conflict", "")),
            (get("a"), some("beside")),
        ]),
        case("transactions on other keys do not conflict").run([
            (begin(1, SERIALIZABLE), done()),
            (begin(2, SERIALIZABLE), done()),
            (put("a", "1").on(1), done()),
            (put("b", "2").on(2), done()),
            (commit(1), committed()),
            (commit(2), committed()),
            (get_many(["a", "b"]), options(["1", "2"])),
        ]),
        case("serializable: what was read may not have changed")
            .run(read_then_written(SERIALIZABLE, again("conflict", ""))),
        case("snapshot isolation: what was read may have changed")
            .run(read_then_written(SNAPSHOT, committed())),
        case("serializable: nothing may have come into a range that was read")
            .run(scanned_then_written(SERIALIZABLE, again("conflict", ""))),
        case("snapshot isolation: something may have come into a range that was read")
            .run(scanned_then_written(SNAPSHOT, committed())),
        case("serializable: write skew is found").run([
            (put("on-call/ada", "yes"), seq()),
            (put("on-call/bob", "yes"), seq()),
            (begin(1, SERIALIZABLE), done()),
            (begin(2, SERIALIZABLE), done()),
            (get("on-call/bob").on(1), some("yes")),
            (get("on-call/ada").on(2), some("yes")),
            (put("on-call/ada", "no").on(1), done()),
            (put("on-call/bob", "no").on(2), done()),
            (commit(1), committed()),
            (commit(2), again("conflict", "")),
            (
                get_many(["on-call/ada", "on-call/bob"]),
                options(["no", "yes"]),
            ),
        ]),
    ]
}

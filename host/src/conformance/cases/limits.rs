//! Limits: what is just within one is taken, what is over it is an error that names it.

use crate::conformance::case::{Case, Failing, Group};
use crate::conformance::expect::Expect;
use crate::conformance::form;
use crate::conformance::words::{
    begin, commit, done, err, get, put, recall, remember, scan, seq, snapshot, some, versioned,
};
use crate::conformance::{script::Step, script::step};
use crate::guest::TrapKind;

pub(super) fn cases() -> Vec<Case> {
    let case = |name| Case::new(Group::Limits, name);
    let key = |size: usize| vec![b'k'; size];
    let value = |size: usize| vec![b'v'; size];
    let many =
        |count: usize| step("db.get-many", ["".into()]).with(std::iter::repeat_n("a", count));
    vec![
        case("limits.key").set("limits.key", "1000B").run([
            (put(key(1_000), "x"), seq()),
            (get(key(1_000)), some("x")),
            (put(key(1_001), "x"), err("invalid-key", "limits.key")),
            (get(key(1_001)), err("invalid-key", "limits.key")),
            (put("a", "x"), seq()),
        ]),
        case("the largest key that there can be").run([
            (put(key(65_535), "x"), seq()),
            (get(key(65_535)), some("x")),
            (put(key(65_536), "x"), err("invalid-key", "limits.key")),
        ]),
        case("limits.value").set("limits.value", "100000B").run([
            (put("a", value(100_000)), seq()),
            (
                put("a", value(100_001)),
                err("invalid-value", "limits.value"),
            ),
            (get("a"), some(value(100_000))),
        ]),
        case("the largest value of a cluster with the limits that it has by itself")
            .set("limits.reply", "20MiB")
            .run([
                (put("a", value(16 << 20)), seq()),
                (
                    versioned("a"),
                    Expect::That("16 MiB", |values| {
                        values[0].len() == 16 << 20 && values[0].iter().all(|byte| *byte == b'v')
                    }),
                ),
            ]),
        case("limits.batch")
            .set("limits.batch", "200000B")
            .set("limits.value", "100000B")
            .run([
                (batch(1), seq()),
                (batch(2), err("limit", "limits.batch")),
                (begin(1, "snapshot"), done()),
                (put("a", value(100_000)).on(1), done()),
                (put("b", value(100_000)).on(1), err("limit", "limits.batch")),
                (commit(1), Expect::Any),
            ]),
        case("keys of one get-many").run([
            (put("a", ""), seq()),
            (
                many(1_024),
                Expect::That("1,024 values", |values| values.len() == 1_024),
            ),
            (many(1_025), err("limit", "1025 keys")),
        ]),
        case("limits.open_resources")
            .set("limits.open_resources", "3")
            .run([
                (snapshot(1), seq()),
                (begin(2, "snapshot"), done()),
                (scan(3, None, None, "ascending"), done()),
                (snapshot(4), err("limit", "limits.open_resources")),
                (begin(5, "snapshot"), err("limit", "limits.open_resources")),
                (step("drop", [1.into()]), done()),
                (snapshot(4), seq()),
            ]),
        case("limits.transaction_age")
            .set("limits.transaction_age", "1ms")
            .run(aged()),
        case("limits.reply ends the call")
            .set("limits.reply", "100KiB")
            .run([(put("a", value(60_000)), seq())])
            .fails([get("a"), get("a")], Failing::Trap(TrapKind::ReplyTooLarge))
            .run([(get("a"), some(value(60_000)))]),
        case("after an error of a limit the instance is as it was")
            .set("limits.key", "1000B")
            .run([(remember("kept"), Expect::Any)])
            .run([(put(key(1_001), "x"), err("invalid-key", "limits.key"))])
            .run([(
                recall(),
                Expect::That("the memory", |values| values == [b"kept"]),
            )]),
    ]
}

/// A batch of so many values of 100,000 bytes.
fn batch(values: usize) -> Step {
    let op = |at: usize| {
        let value = vec![b'v'; 100_000];
        [
            b"put".to_vec(),
            format!("{at}").into_bytes(),
            value,
            Vec::new(),
        ]
    };
    step("db.write", []).with((0..values).flat_map(op))
}

/// A transaction in which so much is read that it is too old at the end.
fn aged() -> impl Iterator<Item = (Step, Expect)> {
    (0..4_004).map(|at| match at {
        0 => (put("a", "x"), seq()),
        1 => (begin(1, "snapshot"), done()),
        4_002 => (put("b", "x").on(1), err("limit", "limits.transaction_age")),
        4_003 => (commit(1), err("limit", "limits.transaction_age")),
        _ => (
            get("a"),
            Expect::That("a value", |values| values == [form::some("x")]),
        ),
    })
}

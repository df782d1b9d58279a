//! Ranges of keys, in both directions, by pages.

use crate::conformance::case::{Case, Group};
use crate::conformance::expect::{Expect, Value};
use crate::conformance::form;
use crate::conformance::script::Step;
use crate::conformance::words::{
    done, entries, err, get, give_back, next, page, put, put_for, remove, scan, scan_prefix, seq,
    some, write,
};

const UP: &str = "ascending";
const DOWN: &str = "descending";

pub(super) fn cases() -> Vec<Case> {
    let large = || vec![7_u8; 1 << 20];
    vec![
        case("a range has its start and not its end").run([
            (letters(), seq()),
            (scan(1, Some(b"b"), Some(b"d"), UP), done()),
            (next(1, 10), entries([("b", "2"), ("c", "3")])),
            (scan(2, Some(b"bb"), Some(b"d1"), UP), done()),
            (next(2, 10), entries([("c", "3"), ("d", "4")])),
        ]),
        case("a range can be open at either side").run([
            (letters(), seq()),
            (scan(1, None, Some(b"c"), UP), done()),
            (next(1, 10), entries([("a", "1"), ("b", "2")])),
            (scan(2, Some(b"d"), None, UP), done()),
            (next(2, 10), entries([("d", "4"), ("e", "5")])),
            (scan(3, None, None, UP), done()),
            (
                next(3, 10),
                entries([("a", "1"), ("b", "2"), ("c", "3"), ("d", "4"), ("e", "5")]),
            ),
        ]),
        case("a descending scan begins at the end, and has the same entries").run([
            (letters(), seq()),
            (scan(1, Some(b"b"), Some(b"e"), DOWN), done()),
            (next(1, 10), entries([("d", "4"), ("c", "3"), ("b", "2")])),
            (scan(2, None, None, DOWN), done()),
            (next(2, 2), entries([("e", "5"), ("d", "4")])),
            (next(2, 2), entries([("c", "3"), ("b", "2")])),
            (next(2, 2), entries([("a", "1")])),
            (next(2, 2), done()),
        ]),
        case("a range that ends before it starts is empty").run([
            (letters(), seq()),
            (scan(1, Some(b"d"), Some(b"b"), UP), done()),
            (next(1, 10), done()),
            (scan(2, Some(b"b"), Some(b"b"), UP), done()),
            (next(2, 10), done()),
            (scan(3, Some(b"d"), Some(b"b"), DOWN), done()),
            (next(3, 10), done()),
            (scan(4, None, Some(b""), UP), done()),
            (next(4, 10), done()),
        ]),
        case("a prefix has the keys that start with it").run([
            (
                write([
                    ("put", "p", "0"),
                    ("put", "p/", "1"),
                    ("put", "p/a", "2"),
                    ("put", "p/b", "3"),
                    ("put", "p0", "4"),
                    ("put", "q", "5"),
                ]),
                seq(),
            ),
            (scan_prefix(1, "p/", UP), done()),
            (
                next(1, 10),
                entries([("p/", "1"), ("p/a", "2"), ("p/b", "3")]),
            ),
            (scan_prefix(2, "p/", DOWN), done()),
            (
                next(2, 10),
                entries([("p/b", "3"), ("p/a", "2"), ("p/", "1")]),
            ),
            (scan_prefix(3, "none", UP), done()),
            (next(3, 10), done()),
            (scan_prefix(4, "", UP), done()),
            (
                next(4, 10),
                entries([
                    ("p", "0"),
                    ("p/", "1"),
                    ("p/a", "2"),
                    ("p/b", "3"),
                    ("p0", "4"),
                    ("q", "5"),
                ]),
            ),
        ]),
        case("keys are in the order of their bytes").run([
            (put(b"\xff\xff", "6"), seq()),
            (put(b"\0", "1"), seq()),
            (put(b"\x80", "4"), seq()),
            (put(b"\x7f", "3"), seq()),
            (put(b"\xff", "5"), seq()),
            (put(b"\0\0", "2"), seq()),
            (scan(1, None, None, UP), done()),
            (
                next(1, 10),
                Expect::Ok(
                    [
                        b"\0".as_slice(),
                        b"1",
                        b"\0\0",
                        b"2",
                        b"\x7f",
                        b"3",
                        b"\x80",
                        b"4",
                        b"\xff",
                        b"5",
                        b"\xff\xff",
                        b"6",
                    ]
                    .map(|bytes| Value::Bytes(bytes.to_vec()))
                    .into(),
                ),
            ),
            (scan_prefix(2, b"\xff", DOWN), done()),
            (
                next(2, 10),
                Expect::Ok(
                    [b"\xff\xff".as_slice(), b"6", b"\xff", b"5"]
                        .map(|bytes| Value::Bytes(bytes.to_vec()))
                        .into(),
                ),
            ),
        ]),
        case("pages go on where the last one ended, and the end stays the end").run([
            (letters(), seq()),
            (scan(1, None, None, UP), done()),
            (next(1, 2), entries([("a", "1"), ("b", "2")])),
            (next(1, 1), entries([("c", "3")])),
            (next(1, 10), entries([("d", "4"), ("e", "5")])),
            (next(1, 10), done()),
            (next(1, 10), done()),
        ]),
        case("a cursor sees the database as it was when it was opened").run([
            (letters(), seq()),
            (scan(1, None, None, UP), done()),
            (next(1, 1), entries([("a", "1")])),
            (put("b", "changed"), seq()),
            (put("bb", "new"), seq()),
            (remove("d"), seq()),
            (
                next(1, 10),
                entries([("b", "2"), ("c", "3"), ("d", "4"), ("e", "5")]),
            ),
            (get("b"), some("changed")),
        ]),
        case("what is removed, and what is expired, is in no scan")
            .run([
                (letters(), seq()),
                (remove("b"), seq()),
                (put_for("c", "short", 30), seq()),
            ])
            .until([(get("c"), crate::conformance::words::none())])
            .run([
                (scan(1, None, None, UP), done()),
                (next(1, 10), entries([("a", "1"), ("d", "4"), ("e", "5")])),
            ]),
        case("empty values are in a scan").run([
            (write([("put", "a", ""), ("put", "b", "")]), seq()),
            (scan(1, None, None, UP), done()),
            (next(1, 10), entries([("a", ""), ("b", "")])),
        ]),
        case("several cursors are apart").run([
            (letters(), seq()),
            (scan(1, None, None, UP), done()),
            (scan(2, None, None, DOWN), done()),
            (next(1, 2), entries([("a", "1"), ("b", "2")])),
            (next(2, 1), entries([("e", "5")])),
            (next(1, 1), entries([("c", "3")])),
            (give_back(1), done()),
            (next(2, 1), entries([("d", "4")])),
            (next(1, 1), err("no-handle", "")),
        ]),
        case("a page of large values is cut, and none is lost").run([
            (put("1", large()), seq()),
            (put("2", large()), seq()),
            (put("3", large()), seq()),
            (put("4", large()), seq()),
            (put("5", large()), seq()),
            (scan(1, None, None, UP), done()),
            // An SDK whose cursor is an iterator may put all of the host's pages together.
            (
                next(1, 100),
                Expect::That("entries from the first on", |values| {
                    !values.is_empty() && in_a_row(values) && values[0] == b"1"
                }),
            ),
            (
                next(1, 100),
                Expect::That("the entries that are left", |values| {
                    in_a_row(values) && (values.is_empty() || values[values.len() - 2] == b"5")
                }),
            ),
            (next(1, 100), done()),
        ]),
        case("a page of the host ends before 4 MiB")
            .run((1..=9_u64).map(|at| (put(at.to_string(), large()), seq())))
            .run([
                (scan(1, None, None, UP), done()),
                (
                    page(1, 100),
                    Expect::That("3 entries of 1 MiB", |values| of_1_mib(values, 1)),
                ),
                (
                    page(1, 2),
                    Expect::That("2 entries of 1 MiB", |values| {
                        values.len() == 4 && values[0] == b"4"
                    }),
                ),
                (
                    page(1, 100),
                    Expect::That("3 entries of 1 MiB", |values| of_1_mib(values, 6)),
                ),
                (
                    page(1, 100),
                    Expect::That("the last entry", |values| {
                        values.len() == 2 && values[0] == b"9"
                    }),
                ),
                (page(1, 100), done()),
            ]),
        case("1,000 entries come in their order, each once")
            .run([(thousand(), seq())])
            .run([
                (scan(1, None, None, UP), done()),
                (
                    next(1, 1_000),
                    Expect::That("1,000 entries in their order", numbered),
                ),
                (next(1, 1_000), done()),
            ]),
    ]
}

fn case(name: &'static str) -> Case {
    Case::new(Group::Scans, name)
}

fn letters() -> Step {
    write([
        ("put", "c", "3"),
        ("put", "a", "1"),
        ("put", "e", "5"),
        ("put", "b", "2"),
        ("put", "d", "4"),
    ])
}

/// A batch of 1,000 keys, in an order of its own.
fn thousand() -> Step {
    let numbers = (0..1_000_u32).map(|at| at * 7 % 1_000);
    let ops = numbers.flat_map(|number| {
        let key = format!("{number:04}");
        ["put".to_owned(), key, number.to_string(), String::new()]
    });
    crate::conformance::script::step("db.write", []).with(ops)
}

/// Whether these are the three entries of 1 MiB from this key on: a fourth would make the page larger than 4 MiB, with its keys.
fn of_1_mib(values: &[Vec<u8>], first: u64) -> bool {
    values.len() == 6 && in_a_row(values) && form::number(&values[0]) == Some(first)
}

/// Whether these are entries of 1 MiB whose keys are one number after the other.
fn in_a_row(values: &[Vec<u8>]) -> bool {
    let keys: Vec<_> = values
        .chunks(2)
        .map(|entry| form::number(&entry[0]))
        .collect();
    values
        .chunks(2)
        .all(|entry| entry.len() == 2 && entry[1].len() == 1 << 20)
        && keys.windows(2).all(|pair| match pair {
            [Some(before), Some(after)] => *after == before + 1,
            _ => false,
        })
}

fn numbered(values: &[Vec<u8>]) -> bool {
    values.len() == 2_000
        && values.chunks(2).zip(0_u64..).all(|(entry, number)| {
            entry[0] == format!("{number:04}").into_bytes()
                && form::number(&entry[1]) == Some(number)
        })
}

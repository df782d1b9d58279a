//! Views of one moment.

use crate::conformance::case::{Case, Group};
use crate::conformance::expect::Value;
use crate::conformance::words::{
    done, entries, err, get, get_many, give_back, next, ok, options, put, remove, save, scan,
    scan_prefix, seq, snapshot, some, write,
};

pub(super) fn cases() -> Vec<Case> {
    let case = |name| Case::new(Group::Snapshots, name);
    vec![
        case("later writes do not change a snapshot").run([
            (write([("put", "a", "1"), ("put", "b", "2")]), seq()),
            (snapshot(1), seq()),
            (put("a", "changed"), seq()),
            (remove("b"), seq()),
            (put("c", "new"), seq()),
            (get("a").on(1), some("1")),
            (get_many(["c", "b", "a"]).on(1), options(["-", "2", "1"])),
            (scan(2, None, None, "descending").on(1), done()),
            (next(2, 10), entries([("b", "2"), ("a", "1")])),
            (scan_prefix(3, "a", "ascending").on(1), done()),
            (next(3, 10), entries([("a", "1")])),
            (get_many(["c", "b", "a"]), options(["new", "-", "changed"])),
        ]),
        case("a snapshot knows its last write").run([
            (put("a", "1"), save("seq")),
            (snapshot(1), ok([Value::Saved("seq")])),
            (put("a", "2"), ok([Value::Above("seq")])),
            (snapshot(2), ok([Value::Above("seq")])),
            (get("a").on(1), some("1")),
            (get("a").on(2), some("2")),
        ]),
        case("a snapshot does not take writes").run([
            (snapshot(1), seq()),
            (put("a", "1").on(1), err("no-handle", "")),
        ]),
        case("what was given back can be opened again")
            .set("limits.open_resources", "2")
            .run([
                (put("a", "1"), seq()),
                (snapshot(1), seq()),
                (scan(2, None, None, "ascending").on(1), done()),
                (give_back(2), done()),
                (scan(2, None, None, "ascending").on(1), done()),
                (give_back(2), done()),
                (scan(2, None, None, "ascending").on(1), done()),
                (next(2, 10), entries([("a", "1")])),
                (give_back(2), done()),
                (give_back(1), done()),
                (snapshot(3), seq()),
                (snapshot(4), seq()),
                (get("a").on(1), err("no-handle", "")),
            ]),
        case("a snapshot ends with its call")
            .set("limits.open_resources", "2")
            .run([(snapshot(1), seq()), (snapshot(2), seq())])
            .run([(snapshot(1), seq()), (snapshot(2), seq())])
            .run([(snapshot(1), seq()), (snapshot(2), seq())]),
    ]
}

//! Read-only calls, on other instances than the writer's.

use crate::conformance::case::{Call, Case, Failing, Group};
use crate::conformance::expect::Expect;
use crate::conformance::form;
use crate::conformance::words::{
    begin, done, entries, err, get, get_many, next, none, notify_of, ok, options, put, raise,
    recall, remember, remove, scan, seen, seq, snapshot, some, text, versioned, word, write,
};

pub(super) fn cases() -> Vec<Case> {
    let case = |name| Case::new(Group::Queries, name).needs(&["queries"]);
    let refused = || err("read-only", "");
    vec![
        case("a query reads what was acknowledged, in every way")
            .run([(write([("put", "a", "1"), ("put", "b", "")]), seq())])
            .query([
                (get("a"), some("1")),
                (get_many(["b", "none", "a"]), options(["", "-", "1"])),
                (versioned("none"), done()),
                (scan(1, None, None, "descending"), done()),
                (next(1, 10), entries([("b", ""), ("a", "1")])),
                (snapshot(2), seq()),
                (get("a").on(2), some("1")),
            ]),
        case("a query writes nothing")
            .query([
                (put("a", "1"), refused()),
                (remove("a"), refused()),
                (write([("put", "a", "1")]), refused()),
                (begin(1, "snapshot"), refused()),
                (get("a"), none()),
            ])
            .run([(get("a"), none())]),
        case("a query asks for no tags")
            .needs(&["durable-events"])
            .query([(notify_of("1", 1), refused())]),
        case("a query has another memory than the calls")
            .run([(remember("of the calls"), Expect::Any)])
            .query([
                (recall(), ok([text("")])),
                (seen(), Expect::Events("start", vec![])),
            ])
            .query([(remember("of a query"), ok([text("of a query")]))])
            .run([(recall(), ok([text("of the calls")]))]),
        case("a query brings its method, its key and its payload")
            .request(
                Call {
                    key: Some(b"\0k".to_vec()),
                    ..Call::query()
                },
                "echo",
                "x",
                Ok(form::list([b"echo".as_slice(), b"+\0k", b"x"])),
            )
            .request(
                Call::query(),
                "no-such-method",
                "",
                Err(Failing::Guest("unknown-method", "", false)),
            ),
        case("an error of a query comes whole").fails_as(
            Call::query(),
            [raise("mine", "why", true)],
            Failing::Guest("mine", "why", true),
        ),
        case("a query that aborts costs its own instance alone")
            .run([(remember("kept"), Expect::Any), (put("a", "1"), seq())])
            .fails_as(
                Call::query(),
                [word("abort")],
                Failing::Trap(crate::guest::TrapKind::Aborted),
            )
            .query([(get("a"), some("1"))])
            .run([(recall(), ok([text("kept")]))]),
    ]
}

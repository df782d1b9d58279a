//! Another node takes the shard over, on purpose: what goes along, and what does not.

use crate::conformance::case::{Act, Case, Group};
use crate::conformance::expect::{Expect, Value};
use crate::conformance::script::saved;
use crate::conformance::words::{
    cancel, done, due, get, none, notify, notify_of, ok, put, recall, remember, seen, seq,
    set_durable, set_timer, some, text,
};

pub(super) fn cases() -> Vec<Case> {
    let case = |name| {
        Case::new(Group::Moves, name)
            .set("strategy", "lease")
            // Who joins is seen at once, and a slow machine loses no lease.
            .set("lease.interval", "200ms")
    };
    vec![
        case("the data is there, and the memory is not")
            .run([(remember("lost"), Expect::Any), (put(b"\xff", "1"), seq())])
            .act(Act::Move)
            .run([
                (recall(), ok([text("")])),
                (get(b"\xff"), some("1")),
                (get(b"\xfe"), none()),
                (put(b"\xff", "2"), seq()),
                (get(b"\xff"), some("2")),
            ]),
        case("the instance is told, with the database open")
            .needs(&["lifecycle"])
            .run([(put("a", "1"), seq())])
            .act(Act::Move)
            .run([(get("stopped"), some("stopping"))]),
        case("a durable timer goes along with its moment, a volatile one does not")
            .needs(&["timer-events"])
            .run([
                (set_timer("volatile", 60_000, ""), done()),
                (set_durable("later", 60_000, ""), seq()),
                (due("later"), ok([Value::SaveSome("due")])),
                (set_durable("soon", 100, [put("fired", "yes")]), seq()),
            ])
            .act(Act::Move)
            .run([
                (due("volatile"), none()),
                (due("later"), ok([Value::SavedSome("due")])),
            ])
            .until([(get("fired"), some("yes"))])
            .run([
                (cancel("later"), ok([text("1")])),
                (due("later"), none()),
                (due("soon"), none()),
            ]),
        case("seqs go on, and one of before is durable: its tag comes at once, and none twice")
            .needs(&["durable-events"])
            .run([
                (put("a", "1"), ok([Value::Save("before")])),
                (notify(1), done()),
            ])
            .until([(seen(), Expect::Tags(vec![1]))])
            .act(Act::Move)
            .run([
                (seen(), Expect::Tags(vec![])),
                (put("a", "2"), ok([Value::Above("before")])),
                (notify_of(saved("before"), 2), done()),
            ])
            .until([(seen(), Expect::Tags(vec![2]))]),
    ]
}

//! Volatile and durable timers: when they fire, in which order, and what is left of them after a stop, a crash, a swap.

use crate::conformance::case::{Act, Call, Case, Failing, Group};
use crate::conformance::expect::{Expect, Value};
use crate::conformance::words::{
    again, cancel, done, due, err, get, none, ok, put, raise, seen, seq, set_durable, set_timer,
    some, text, word,
};
use crate::guest::TrapKind;

pub(super) fn cases() -> Vec<Case> {
    [volatile(), durable(), refused()].concat()
}

fn case(name: &'static str) -> Case {
    Case::new(Group::Timers, name).needs(&["timer-events"])
}

/// These timers fired, in this order.
fn fired<const N: usize>(names: [&str; N]) -> Expect {
    Expect::Events("fire", names.map(|name| vec![text(name)]).into())
}

fn some_moment() -> Expect {
    ok([Value::SaveSome("due")])
}

fn volatile() -> Vec<Case> {
    vec![
        case("a timer fires once, at its moment, with its payload")
            .run([
                (set_timer("a", 60, [put("fired", "yes")]), done()),
                (due("a"), some_moment()),
            ])
            .until([(get("fired"), some("yes"))])
            .act(Act::Passed("due"))
            .run([
                (
                    seen(),
                    Expect::Events(
                        "fire",
                        vec![vec![text("a"), Value::Any, Value::Saved("due")]],
                    ),
                ),
                (due("a"), none()),
            ]),
        case("what is due earlier fires earlier")
            .run([
                (set_timer("c", 150, ""), done()),
                (set_timer("a", 50, ""), done()),
                (set_durable("b", 100, ""), seq()),
            ])
            .until([(seen(), fired(["a", "b", "c"]))]),
        case("a timer that is due at once fires, and after the call")
            .run([(set_timer("a", 0, ""), done()), (seen(), fired([]))])
            .until([(seen(), fired(["a"]))]),
        case("a name has one timer: setting it again replaces it")
            .run([
                (set_timer("a", 60_000, "old"), done()),
                (set_timer("a", 20, ""), done()),
                (set_timer("b", 60_000, ""), done()),
                (set_durable("b", 30, ""), seq()),
            ])
            .until([(seen(), fired(["a", "b"]))])
            .run([(due("a"), none()), (due("b"), none())]),
        case("a timer that is cancelled does not fire")
            .run([
                (set_timer("a", 20, ""), done()),
                (set_durable("b", 20, ""), seq()),
                (set_timer("last", 80, ""), done()),
                (cancel("a"), ok([text("1")])),
                (cancel("b"), ok([text("1")])),
                (cancel("a"), ok([text("0")])),
                (cancel("never"), ok([text("0")])),
                (due("a"), none()),
            ])
            .until([(seen(), fired(["last"]))]),
        case("a volatile timer is forgotten with its node, a durable one is not")
            .run([
                (set_timer("volatile", 50, ""), done()),
                (set_durable("durable", 100, ""), seq()),
            ])
            .act(Act::Reopen)
            .until([(seen(), fired(["durable"]))])
            .run([(due("volatile"), none())]),
        case("timers go on over a swap")
            .run([
                (set_timer("volatile", 200, ""), done()),
                (set_durable("durable", 250, ""), seq()),
            ])
            .swap()
            .until([(seen(), fired(["volatile", "durable"]))]),
        case("a volatile timer that fails fires no more")
            .run([
                (set_timer("a", 10, [raise("mine", "why", false)]), done()),
                (set_timer("last", 60, ""), done()),
            ])
            .until([(seen(), fired(["a", "last"]))])
            .run([(due("a"), none())]),
        case("shards have timers of their own")
            .run_as(Call::shard(1), [(set_timer("a", 60_000, ""), done())])
            .run([(due("a"), none()), (cancel("a"), ok([text("0")]))]),
    ]
}

fn durable() -> Vec<Case> {
    vec![
        case("a durable timer fires on another node, after one that lost its store")
            .run([
                (set_durable("a", 100, [put("fired", "yes")]), seq()),
                (due("a"), some_moment()),
            ])
            .act(Act::TakeOver)
            .until([(get("fired"), some("yes"))])
            .act(Act::Passed("due"))
            .run([(
                seen(),
                Expect::Events(
                    "fire",
                    vec![vec![text("a"), Value::Any, Value::Saved("due")]],
                ),
            )]),
        case("a durable timer that is done is done after a restart, too")
            .run([(set_durable("a", 10, ""), seq())])
            .until([(seen(), fired(["a"])), (due("a"), none())])
            .act(Act::Reopen)
            .run([(set_timer("last", 50, ""), done()), (due("a"), none())])
            .until([(seen(), fired(["last"]))]),
        case("a durable timer that fails fires again, with its moment")
            .run([
                (set_durable("a", 10, [raise("mine", "why", true)]), seq()),
                (due("a"), some_moment()),
            ])
            .until([(
                seen(),
                Expect::Events(
                    "fire",
                    vec![vec![text("a"), Value::Any, Value::Saved("due")]; 2],
                ),
            )])
            .run([(cancel("a"), ok([text("1")])), (due("a"), none())]),
        case("a durable timer can be set anew where it fires")
            .run([(
                set_durable("a", 10, [set_durable("a", 20, [put("second", "yes")])]),
                seq(),
            )])
            .until([(get("second"), some("yes")), (seen(), fired(["a", "a"]))])
            .until([(due("a"), none())]),
        case("a timer can be cancelled where it fires")
            .run([(
                set_durable("a", 10, [cancel("a"), raise("mine", "why", false)]),
                seq(),
            )])
            .until([(seen(), fired(["a"])), (due("a"), none())]),
        case("a durable timer whose guest aborts is there still, and the shard goes on")
            .run([(
                set_durable("a", 10, [put("began", "yes"), word("abort")]),
                seq(),
            )])
            .until([(get("began"), some("yes")), (seen(), fired([]))])
            .run([(due("a"), ok([Value::Any])), (cancel("a"), ok([text("1")]))]),
        case("the records of timers are no keys of the guest").run([
            (set_durable("a", 60_000, ""), seq()),
            (
                crate::conformance::words::scan(1, None, None, "ascending"),
                done(),
            ),
            (crate::conformance::words::next(1, 10), done()),
        ]),
    ]
}

fn refused() -> Vec<Case> {
    let long = || "n".repeat(257);
    vec![
        case("a query sets no timers, and may ask")
            .needs(&["queries"])
            .run([(set_timer("a", 60_000, ""), done())])
            .query([
                (set_timer("b", 10, ""), err("read-only", "")),
                (set_durable("b", 10, ""), err("read-only", "")),
                (cancel("a"), err("read-only", "")),
                (due("a"), ok([Value::Any])),
            ]),
        case("names, payloads and delays are bounded").run([
            (set_timer("", 10, ""), err("invalid-argument", "")),
            (set_timer(long(), 10, ""), err("invalid-argument", "")),
            (set_durable(long(), 10, ""), err("invalid-argument", "")),
            (
                set_timer("a", 10, vec![0; (64 << 10) + 1]),
                err("invalid-argument", ""),
            ),
            (set_timer("a", u64::MAX, ""), err("invalid-argument", "")),
            (set_timer("n".repeat(256), 60_000, ""), done()),
        ]),
        case("limits.timers").set("limits.timers", "2").run([
            (set_timer("a", 60_000, ""), done()),
            (set_durable("b", 60_000, ""), seq()),
            (set_timer("c", 60_000, ""), again("limit", "limits.timers")),
            (set_timer("a", 60_000, ""), done()),
            (cancel("b"), ok([text("1")])),
            (set_timer("c", 60_000, ""), done()),
        ]),
        case("a timer that loops is cut off, and the shard goes on")
            .set("limits.cpu_time", "300ms")
            .run([(
                set_timer("a", 10, [put("began", "yes"), word("spin")]),
                done(),
            )])
            .until([(get("began"), some("yes"))])
            .until([(seen(), fired([]))])
            .fails([word("abort")], Failing::Trap(TrapKind::Aborted))
            .run([(get("began"), some("yes"))]),
    ]
}

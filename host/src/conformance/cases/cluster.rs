//! Calls to other shards.

use crate::cluster::SwapStep;
use crate::conformance::case::{Act, Call, Case, Failing, Group};
use crate::conformance::expect::{Expect, Value};
use crate::conformance::form;
use crate::conformance::script::{Step, step};
use crate::conformance::words::{
    again, err, get, on_key, on_shard, put, raise, recall, remember, remove, seq, some, text, word,
};

pub(super) fn cases() -> Vec<Case> {
    [calls(), refusals(), queues()].concat()
}

fn case(name: &'static str) -> Case {
    Case::new(Group::Cluster, name)
}

/// The reply of a script on another shard with one result.
fn result<const N: usize>(values: [&[u8]; N]) -> Expect {
    let result = form::list(std::iter::once(b"ok".as_slice()).chain(values));
    Expect::Ok(vec![Value::Bytes(form::list([result]))])
}

fn calls() -> Vec<Case> {
    vec![
        case("a call reaches the shard, and its reply comes back")
            .run([
                (
                    on_shard("call", 1, [put("a", "of shard 1")]),
                    Expect::That("a seq", |values| values.len() == 1 && values[0].len() > 8),
                ),
                (get("a"), crate::conformance::words::none()),
                (on_shard("call", 1, [get("a")]), result([b"+of shard 1"])),
            ])
            .run_as(Call::shard(1), [(get("a"), some("of shard 1"))]),
        case("a call goes to the shard of its key, and brings the key").run([
            (
                on_key("call", other_key(), "echo", b"\0\xff"),
                Expect::Ok(vec![Value::Bytes(form::list([
                    b"echo".to_vec(),
                    form::some(other_key()),
                    b"\0\xff".to_vec(),
                ]))]),
            ),
            (
                step(
                    "cluster",
                    [
                        "call".into(),
                        1.into(),
                        "+k".into(),
                        "echo".into(),
                        "x".into(),
                    ],
                ),
                Expect::Ok(vec![Value::Bytes(form::list(["echo", "+k", "x"]))]),
            ),
        ]),
        case("a query reads another shard, and this one")
            .needs(&["queries"])
            .run_as(Call::shard(1), [(put("a", "1"), seq())])
            .run([(put("a", "0"), seq())])
            .run([
                (on_shard("query", 1, [get("a")]), result([b"+1"])),
                (on_shard("query", 0, [get("a")]), result([b"+0"])),
                (
                    on_key("query", other_key(), "echo", "x"),
                    Expect::Ok(vec![Value::Any]),
                ),
            ]),
        case("a query may query, and not call")
            .needs(&["queries"])
            .run_as(Call::shard(1), [(put("a", "1"), seq())])
            .query([
                (on_shard("query", 1, [get("a")]), result([b"+1"])),
                (on_shard("call", 1, [get("a")]), err("read-only", "")),
            ]),
        case("an error of the called guest comes whole").run([
            (
                on_shard("call", 1, [raise("theirs", "why: \u{e9}", false)]),
                err("theirs", "why: \u{e9}"),
            ),
            (
                on_shard("call", 1, [raise("theirs", "later", true)]),
                Expect::Err("theirs", "later", true),
            ),
        ]),
        case("a trap of the called guest is an error, and the caller goes on")
            .run([(remember("kept"), Expect::Any)])
            .run([
                (on_shard("call", 1, [word("abort")]), err("guest-trap", "")),
                (recall(), Expect::Ok(vec![text("kept")])),
                (on_shard("call", 1, [recall()]), result([b""])),
            ]),
        case("a loop of the called guest is an error, and the caller goes on")
            .set("limits.cpu_time", "300ms")
            .run([(remember("kept"), Expect::Any)])
            .run([
                (
                    on_shard("call", 1, [word("spin")]),
                    err("guest-cpu-limit", "limits.cpu_time"),
                ),
                (recall(), Expect::Ok(vec![text("kept")])),
                (
                    on_shard("call", 1, [put("a", "1")]),
                    Expect::Ok(vec![Value::Any]),
                ),
            ]),
        case("a shard that was set aside is an error of its own")
            .set("limits.traps", "1")
            .run([
                (on_shard("call", 1, [word("abort")]), err("guest-trap", "")),
                (on_shard("call", 1, [word("abort")]), err("guest-trap", "")),
                (on_shard("call", 1, [recall()]), err("quarantined", "")),
            ]),
        case("what the caller wrote is durable before the call leaves")
            .needs(&["queries"])
            .run([
                (put("a", "before"), seq()),
                (
                    on_shard("call", 1, [on_shard("query", 0, [get("a")])]),
                    Expect::That("the write", |values| {
                        values[0].windows(7).any(|found| found == b"+before")
                    }),
                ),
            ]),
        case("a timer calls another shard")
            .needs(&["timer-events"])
            .run([(
                crate::conformance::words::set_timer(
                    "a",
                    10,
                    [on_shard("call", 1, [put("by timer", "yes")])],
                ),
                Expect::Ok(vec![]),
            )])
            .act(Act::Until(
                Call {
                    script: vec![get("by timer")],
                    ..Call::shard(1)
                },
                vec![some("yes")],
            )),
    ]
}

fn refusals() -> Vec<Case> {
    vec![
        case("a shard that there is not").run([(
            on_shard("call", 99, [recall()]),
            err("invalid-argument", "99"),
        )]),
        case("a chain that comes back to a waiting shard is refused at once").run([
            (on_shard("call", 0, [recall()]), err("call-cycle", "")),
            (
                on_shard("call", 1, [on_shard("call", 0, [recall()])]),
                Expect::That("the error call-cycle", |values| {
                    values[0].windows(10).any(|found| found == b"call-cycle")
                }),
            ),
        ]),
        case("more shards than 16 do not wait for each other")
            .set("shards", "18")
            .run([(
                chain(1, 17),
                Expect::That("the error call-depth", |values| {
                    values[0].windows(10).any(|found| found == b"call-depth")
                }),
            )]),
        case("a start calls no other shard")
            .needs(&["lifecycle"])
            .run([(
                put("on-start", [on_shard("call", 1, [recall()]).or_fail()]),
                seq(),
            )])
            .no_swap(
                SwapStep::Start,
                Failing::Guest("invalid-argument", "", false),
            )
            .run([(remove("on-start"), seq())]),
    ]
}

fn queues() -> Vec<Case> {
    vec![
        case("a full queue is an error that passes, and nothing ran")
            .set("shards", "3")
            .set("limits.queue_calls", "1")
            .act(Act::Hold)
            // It waits for the reply of shard 2, which waits for the store, and has the only place.
            .begin(
                "what is busy",
                Call::shard(1),
                [on_shard("call", 2, [put("a", "1")])],
            )
            .act(Act::Waiting(1))
            .run([(
                on_shard("call", 1, [remember("it ran")]),
                again("overloaded", "limits.queue_calls"),
            )])
            .act(Act::Release)
            .end("what is busy", [Expect::Ok(vec![Value::Any])])
            .run([(on_shard("call", 1, [recall()]), result([b""]))]),
        case("of two chains that meet one is refused for now, and the other goes on")
            // Each waits for its own write before its call leaves, and so do both before either leaves.
            .act(Act::Hold)
            .begin(
                "one",
                Call::shard(0),
                [put("a", "1"), on_shard("call", 1, [recall()])],
            )
            .begin(
                "the other",
                Call::shard(1),
                [put("a", "1"), on_shard("call", 0, [recall()])],
            )
            .act(Act::Waiting(2))
            .act(Act::Release)
            .act(Act::EndEach(vec![
                ("one", vec![seq(), again("call-cycle", "")]),
                ("the other", vec![seq(), result([b""])]),
            ]))
            .run([(on_shard("call", 1, [get("a")]), result([b"+1"]))]),
    ]
}

/// A call on a shard that calls the next one, and so on.
fn chain(shard: u64, last: u64) -> Step {
    if shard == last {
        on_shard("call", shard, [recall()])
    } else {
        on_shard("call", shard, [chain(shard + 1, last)])
    }
}

/// A key of shard 1 of 2.
fn other_key() -> &'static str {
    let candidates = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let belongs = |key: &&str| quarry_core::hash::shard_for(key.as_bytes(), 2) == 1;
    candidates.into_iter().find(belongs).unwrap_or("a")
}

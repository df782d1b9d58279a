//! Where the guest runs, the call in progress, clocks and random.

use std::time::Duration;

use quarry_core::hash;

use crate::clock;
use crate::conformance::case::{Act, Call, Case, Group};
use crate::conformance::expect::{Expect, Value};
use crate::conformance::form;
use crate::conformance::script::{Step, step};
use crate::conformance::words::{done, ok, text, word};

pub(super) fn cases() -> Vec<Case> {
    let case = |name| Case::new(Group::Surroundings, name);
    let place = |number, revision| {
        ok([
            Value::Has("conformance"),
            text(number),
            text("2"),
            text("conformance"),
            text("0"),
            Value::Has("conformance"),
            text(revision),
            Value::Has("{"),
            text("running"),
            text("18446744073709551615"),
        ])
    };
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    vec![
        case("the guest is told where it is")
            .run([(word("shard"), place("0", "1"))])
            .run_as(Call::shard(1), [(word("shard"), place("1", "1"))])
            .swap()
            .run([(word("shard"), place("0", "2"))]),
        case("a key's shard is the same as everywhere").run([
            belongs(b"a"),
            belongs(b"b"),
            belongs(b"key-7"),
            belongs(b""),
            belongs(b"\xff\0\xfe"),
        ]),
        case("a call brings its headers, whatever their case").run_as(
            Call::default()
                .header("x-one", "1")
                .header("traceparent", traceparent),
            [
                (
                    this_call("X-One"),
                    ok([
                        Value::Any,
                        Value::Bytes(form::some(traceparent)),
                        Value::Bytes(form::some("1")),
                    ]),
                ),
                (this_call("x-two"), ok([Value::Any, Value::Any, text("")])),
            ],
        ),
        case("a call without a trace has none")
            .run([(this_call("x-one"), ok([Value::Any, text(""), text("")]))]),
        case("a call knows how long its caller waits").run_as(
            Call {
                timeout: Some(Duration::from_secs(40)),
                ..Call::default()
            },
            [(
                this_call("x"),
                Expect::That("at most 40,000 ms, and over 10,000", |values| {
                    let left = values[0].strip_prefix(b"+").and_then(form::number);
                    left.is_some_and(|left| (10_000..=40_000).contains(&left))
                }),
            )],
        ),
        case("a reply has the media type that the guest sets").run_as(
            Call {
                media_type: Some("text/plain; charset=utf-8"),
                ..Call::default()
            },
            [(
                step(
                    "current-call.set-content-type",
                    ["text/plain; charset=utf-8".into()],
                ),
                done(),
            )],
        ),
        case("the wall clock is that of the machine, and the other one goes on").run([
            (
                word("clock"),
                Expect::That("now, within a minute", |values| {
                    let now = u64::try_from(clock::wall_ms()).unwrap_or_default();
                    let told = form::number(&values[0]).unwrap_or_default();
                    values.len() == 2 && told.abs_diff(now) < 60_000
                }),
            ),
            (word("clock"), ok([Value::Number, Value::Save("earlier")])),
            (
                step("random", [1_024.into()]),
                Expect::That("1,024 bytes", |values| values[0].len() == 1_024),
            ),
            (word("clock"), ok([Value::Number, Value::Above("earlier")])),
        ]),
        case("random bytes are random, in each instance others")
            .run([
                (
                    step("random", [32.into()]),
                    Expect::That("32 bytes that are not all the same", |values| {
                        values[0].len() == 32 && values[0].iter().any(|byte| *byte != values[0][0])
                    }),
                ),
                (step("random", [8.into()]), ok([Value::Keep("first")])),
                (step("random", [8.into()]), ok([Value::Other("first")])),
                (step("random", [0.into()]), ok([text("")])),
            ])
            .act(Act::Restart)
            .run([(step("random", [8.into()]), ok([Value::Other("first")]))]),
    ]
}

fn this_call(header: &str) -> Step {
    step("current-call", [header.into()])
}

/// Where a key belongs in a cluster of two shards.
fn belongs(key: &[u8]) -> (Step, Expect) {
    let shard = hash::shard_for(key, 2).to_string();
    (step("shard.shard-for", [key.into()]), ok([text(&shard)]))
}

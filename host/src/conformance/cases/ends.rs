//! The ways in which a guest ends in the middle of a call, and that its shard goes on after each.

use crate::call::CallErrorKind;
use crate::cluster::status::ShardState;
use crate::conformance::case::{Act, Call, Case, Failing, Group};
use crate::conformance::expect::Expect;
use crate::conformance::script::{Step, step};
use crate::conformance::words::{
    begin, get, none, ok, on_shard, put, recall, remember, seq, snapshot, some, text, word,
};
use crate::guest::TrapKind;

const ANY: &[TrapKind] = &[TrapKind::Aborted, TrapKind::StackOverflow, TrapKind::Memory];

pub(super) fn cases() -> Vec<Case> {
    let case = |name| Case::new(Group::Ends, name).set("limits.memory", "96MiB");
    let aborted = || Failing::Trap(TrapKind::Aborted);
    vec![
        ended(
            case("an exception fails its call, and the shard goes on"),
            step("throw", ["on purpose".into()]),
            Failing::Either(&[TrapKind::Aborted]),
        ),
        ended(
            case("an abort traps, and the shard goes on"),
            word("abort"),
            aborted(),
        ),
        ended(
            case("recursion without an end fails its call, and the shard goes on"),
            word("recurse"),
            Failing::Either(ANY),
        ),
        ended(
            case("memory without an end fails its call, and the shard goes on"),
            word("allocate"),
            Failing::Either(ANY),
        ),
        ended(
            case("a loop without an end is cut off, and the shard goes on")
                .set("limits.cpu_time", "1s"),
            word("spin"),
            Failing::Trap(TrapKind::CpuTime),
        ),
        case("a trap says what the guest threw, or that it did")
            .fails(
                [step("throw", ["the words of it".into()])],
                Failing::Either(&[TrapKind::Aborted]),
            )
            .act(Act::Status(ShardState::Running)),
        case("after an abort the memory is new, and the data is not")
            .run([(remember("lost"), Expect::Any), (put("a", "1"), seq())])
            .fails([put("b", "2"), word("abort")], aborted())
            .run([
                (recall(), ok([text("")])),
                (get("a"), some("1")),
                (get("b"), some("2")),
            ]),
        case("an abort gives back what was open, and commits nothing")
            .set("limits.open_resources", "2")
            .fails(
                [
                    snapshot(1),
                    begin(2, "snapshot"),
                    put("a", "1").on(2),
                    word("abort"),
                ],
                aborted(),
            )
            .run([
                (get("a"), none()),
                (snapshot(1), seq()),
                (snapshot(2), seq()),
            ]),
        case("an abort on one shard is none on another")
            .run_as(Call::shard(1), [(remember("kept"), Expect::Any)])
            .fails([word("abort")], aborted())
            .run_as(Call::shard(1), [(recall(), ok([text("kept")]))]),
        case("too many traps set the shard aside, until it is restarted")
            .set("limits.traps", "1")
            .run([(put("a", "1"), seq())])
            .fails([word("abort")], aborted())
            .fails([word("abort")], aborted())
            .act(Act::Status(ShardState::Quarantined))
            .fails([get("a")], Failing::Host(CallErrorKind::Quarantined))
            .act(Act::Restart)
            .run([(get("a"), some("1"))]),
        case("a swap heals a shard that was set aside")
            .set("limits.traps", "1")
            .run([(put("a", "1"), seq())])
            .fails([word("abort")], aborted())
            .fails([word("abort")], aborted())
            .act(Act::Status(ShardState::Quarantined))
            .swap()
            .run([(get("a"), some("1"))]),
    ]
}

/// A case in which a step ends the call: what was written stays, the memory stays where it was an error, and calls go on. Its neighbour, on the
/// same thread, is served meanwhile, and keeps what it has.
fn ended(case: Case, end: Step, how: Failing) -> Case {
    let loops = matches!(how, Failing::Trap(TrapKind::CpuTime));
    let case = case
        .run([(remember("kept"), Expect::Any)])
        .run_as(Call::shard(1), [(remember("neighbour's"), Expect::Any)])
        .begin(
            "the end",
            Call::default(),
            [
                put("before", "x"),
                on_shard("call", 1, [put("began", "x")]),
                end,
                put("after", "x"),
            ],
        )
        .act(Act::Until(
            Call {
                script: vec![get("began")],
                ..Call::shard(1)
            },
            vec![some("x")],
        ))
        .run_as(
            Call::shard(1),
            [
                (put("meanwhile", "x"), seq()),
                (get("meanwhile"), some("x")),
                (recall(), ok([text("neighbour's")])),
            ],
        );
    // Others may have ended by now.
    let case = match loops {
        true => case.act(Act::Pending("the end")),
        false => case,
    };
    case.act(Act::End("the end", Err(how)))
        .run([
            (recall(), Expect::MemoryUnlessTrapped("kept")),
            (get("before"), some("x")),
            (get("after"), none()),
            (put("next", "x"), seq()),
        ])
        .run_as(
            Call::shard(1),
            [
                (recall(), ok([text("neighbour's")])),
                (get("meanwhile"), some("x")),
            ],
        )
        .act(Act::Status(ShardState::Running))
}

//! A revision that brings stored data to its form before it serves.

use crate::cluster::SwapStep;
use crate::conformance::case::{Act, Case, Failing, Group};
use crate::conformance::expect::Expect;
use crate::conformance::words::{
    get, none, ok, put, raise, recall, remember, remove, seen, seq, some, text, word,
};
use crate::guest::TrapKind;

pub(super) fn cases() -> Vec<Case> {
    let case = |name| Case::new(Group::Migration, name).needs(&["migration"]);
    let steps = |from, count| Expect::Events("migrate", vec![vec![text(from)]; count]);
    vec![
        case("with nothing to do there is one step, from nowhere")
            .run([(seen(), steps("0", 1))])
            .swap()
            .run([(seen(), steps("1", 1))]),
        case("steps go on until one says true, and what they write is there")
            .run([(
                put(
                    "on-migrate",
                    [
                        put("first", "1"),
                        put("on-migrate", [put("second", "2"), remove("on-migrate")]),
                    ],
                ),
                seq(),
            )])
            .swap()
            .run([
                (seen(), steps("1", 3)),
                (get("first"), some("1")),
                (get("second"), some("2")),
                (get("on-migrate"), none()),
            ]),
        case("a shard that opens migrates, too")
            .run([(
                put("on-migrate", [put("done", "1"), remove("on-migrate")]),
                seq(),
            )])
            .act(Act::Reopen)
            .run([(seen(), steps("0", 2)), (get("done"), some("1"))]),
        case("a step that fails leaves the older revision, and what was written")
            .run([
                (remember("kept"), Expect::Any),
                (
                    put("on-migrate", [put("half", "1"), raise("no", "why", false)]),
                    seq(),
                ),
            ])
            .no_swap(SwapStep::Migrate, Failing::Guest("no", "why", false))
            .run([
                (recall(), ok([text("kept")])),
                (get("half"), some("1")),
                (put("on-migrate", [remove("on-migrate")]), seq()),
            ])
            .swap()
            .run([(get("on-migrate"), none())]),
        case("a step that aborts leaves the older revision")
            .run([
                (remember("kept"), Expect::Any),
                (put("on-migrate", [word("abort")]), seq()),
            ])
            .no_swap(SwapStep::Migrate, Failing::Trap(TrapKind::Aborted))
            .run([(recall(), ok([text("kept")]))]),
        case("a migration with a handover keeps memory")
            .needs(&["handoff"])
            .run([
                (remember("kept"), Expect::Any),
                (put("on-migrate", [remove("on-migrate")]), seq()),
            ])
            .swap()
            .run([(recall(), ok([text("kept")])), (seen(), steps("1", 2))]),
    ]
}

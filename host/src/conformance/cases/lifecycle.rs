//! Starts, stops, and memory that a swap carries over.

use crate::cluster::SwapStep;
use crate::conformance::case::{Act, Case, Failing, Group};
use crate::conformance::expect::Expect;
use crate::conformance::script::step;
use crate::conformance::words::{
    get, none, ok, put, raise, recall, remember, remove, seen, seq, some, text, word,
};
use crate::guest::TrapKind;

pub(super) fn cases() -> Vec<Case> {
    [starts(), handoffs(), options()].concat()
}

fn one(name: &'static str) -> Expect {
    Expect::Events(name, vec![vec![]])
}

fn starts() -> Vec<Case> {
    let case = |name| Case::new(Group::Lifecycle, name).needs(&["lifecycle"]);
    vec![
        case("a start comes once, before the first call").run([(seen(), one("start"))]),
        case("a start reads and writes the database")
            .run([(put("on-start", [put("started", "yes")]), seq())])
            .act(Act::Reopen)
            .run([(get("started"), some("yes")), (seen(), one("start"))]),
        case("a stop says why, with the database open: the node stops")
            .run([(put("on-stop", [put("last", "words")]), seq())])
            .act(Act::Reopen)
            .run([
                (get("stopped"), some("stopping")),
                (get("last"), some("words")),
            ]),
        case("a stop says why: another revision takes the place")
            .swap_bare()
            .run([(get("stopped"), some("swapping")), (seen(), one("start"))]),
        case("a revision whose start fails is not taken")
            .run([
                (remember("kept"), Expect::Any),
                (put("on-start", [raise("no-start", "why", false)]), seq()),
            ])
            .no_swap(SwapStep::Start, Failing::Guest("no-start", "why", false))
            .run([(recall(), ok([text("kept")])), (remove("on-start"), seq())])
            .swap(),
        case("a revision whose start aborts is not taken")
            .run([
                (remember("kept"), Expect::Any),
                (put("on-start", [word("abort")]), seq()),
            ])
            .no_swap(SwapStep::Start, Failing::Trap(TrapKind::Aborted))
            .run([(recall(), ok([text("kept")]))]),
        case("a stop that aborts keeps nothing from stopping")
            .run([
                (put("on-stop", [word("abort")]), seq()),
                (put("a", "1"), seq()),
            ])
            .act(Act::Reopen)
            .run([(get("a"), some("1")), (get("stopped"), none())]),
        case("memory ends with the node")
            .run([(remember("x"), Expect::Any)])
            .act(Act::Reopen)
            .run([(recall(), ok([text("")])), (seen(), one("start"))]),
    ]
}

fn handoffs() -> Vec<Case> {
    let case = |name| Case::new(Group::Lifecycle, name).needs(&["handoff"]);
    let from_first = || Expect::Events("resume", vec![vec![text("1")]]);
    let bytes: Vec<u8> = (0..=255).collect();
    vec![
        case("a swap carries memory over, byte for byte, and says from where")
            .run([(
                step("memory", [[b"+".as_slice(), &bytes].concat().into()]),
                Expect::Any,
            )])
            .swap()
            .run([
                (
                    recall(),
                    Expect::That("each byte once", |values| {
                        values == [(0..=255).collect::<Vec<u8>>()]
                    }),
                ),
                (seen(), from_first()),
            ]),
        case("memory goes on over several swaps, empty or not")
            .swap()
            .run([(recall(), ok([text("")])), (remember("a"), Expect::Any)])
            .swap()
            .run([
                (recall(), ok([text("a")])),
                (seen(), Expect::Events("resume", vec![vec![text("2")]])),
            ]),
        case("a swap without handing over begins anew")
            .run([(remember("a"), Expect::Any)])
            .swap_bare()
            .run([
                (recall(), ok([text("")])),
                (seen(), Expect::Events("resume", vec![])),
            ]),
        case("resume comes after start, and may write")
            .needs(&["lifecycle"])
            .run([
                (put("on-start", [put("order", "start")]), seq()),
                (put("on-resume", [put("order", "resume")]), seq()),
            ])
            .swap()
            .run([(get("order"), some("resume")), (get("stopped"), none())]),
        case("where suspend fails, the same instance goes on")
            .run([
                (remember("kept"), Expect::Any),
                (put("on-suspend", [raise("not-now", "why", true)]), seq()),
            ])
            .no_swap(SwapStep::Suspend, Failing::Guest("not-now", "why", true))
            .run([
                (recall(), ok([text("kept")])),
                (seen(), Expect::Events("resume", vec![])),
                (remove("on-suspend"), seq()),
            ])
            .swap()
            .run([(recall(), ok([text("kept")]))]),
        case("where resume fails, the older instance goes on")
            .run([
                (remember("kept"), Expect::Any),
                (put("on-resume", [raise("not-mine", "why", false)]), seq()),
            ])
            .no_swap(SwapStep::Resume, Failing::Guest("not-mine", "why", false))
            .run([
                (recall(), ok([text("kept")])),
                (seen(), Expect::Events("resume", vec![])),
            ]),
        case("where resume aborts, the older instance goes on")
            .run([
                (remember("kept"), Expect::Any),
                (put("on-resume", [word("abort")]), seq()),
            ])
            .no_swap(SwapStep::Resume, Failing::Trap(TrapKind::Aborted))
            .run([(recall(), ok([text("kept")]))]),
        case("where suspend aborts, the shard goes on with a new instance")
            .run([
                (remember("lost"), Expect::Any),
                (put("on-suspend", [word("abort")]), seq()),
            ])
            .no_swap(SwapStep::Suspend, Failing::Trap(TrapKind::Aborted))
            .until([(recall(), ok([text("")]))])
            .run([(get("on-suspend"), Expect::Any)]),
        case("too much memory is not handed over, and the same instance goes on")
            .set("limits.handoff_bytes", "1000B")
            .run([(
                step(
                    "memory",
                    [[b"+".as_slice(), &[b'x'; 1_001]].concat().into()],
                ),
                Expect::Any,
            )])
            .act(Act::Swap(crate::conformance::case::Swap {
                carry: true,
                fails: Some((SwapStep::Suspend, Failing::Either(&[TrapKind::Host]))),
            }))
            .run([(
                recall(),
                Expect::That("1,001 bytes", |values| values[0].len() == 1_001),
            )])
            .run([(
                step(
                    "memory",
                    [[b"+".as_slice(), &[b'x'; 1_000]].concat().into()],
                ),
                Expect::Any,
            )])
            .swap()
            .run([(
                recall(),
                Expect::That("1,000 bytes", |values| values[0].len() == 1_000),
            )]),
    ]
}

fn options() -> Vec<Case> {
    let case = |name| Case::new(Group::Options, name).needs(&["options"]);
    vec![
        case("good options are accepted")
            .act(Act::Validate("{}", true))
            .act(Act::Validate(
                r#"{"greeting":"hello \u00e9","depth":{"n":1}}"#,
                true,
            )),
        case("bad options are refused, in the guest's words")
            .act(Act::Validate(r#"{"refuse":"because"}"#, false)),
        case("a node does not start with options that its guest refuses")
            .act(Act::Refused(r#"{"refuse":"because"}"#)),
    ]
}

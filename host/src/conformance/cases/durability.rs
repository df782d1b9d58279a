//! When writes are durable, and who is told of it.

use crate::conformance::case::{Act, Call, Case, Group};
use crate::conformance::expect::{Expect, Value};
use crate::conformance::script::{saved, step};
use crate::conformance::words::{
    again, done, durable_seq, get, notify, notify_of, ok, put, save, seen, seq, some, word,
};

pub(super) fn cases() -> Vec<Case> {
    let case = |name| Case::new(Group::Durability, name);
    let tags = |name| case(name).needs(&["durable-events"]);
    vec![
        case("a reply waits until its writes are durable").act(Act::Waits(
            Call {
                script: vec![put("a", "1")],
                ..Call::default()
            },
            vec![seq()],
        )),
        case("a reply that may leave early does")
            .act(Act::Hold)
            .run([
                (word("current-call.reply-when-applied"), done()),
                (put("a", "1"), seq()),
            ])
            .run_as(Call::applied(), [(get("a"), some("1"))])
            .act(Act::Release)
            .run([(get("a"), some("1"))]),
        case("the durable seq follows the writes")
            .run([(put("a", "1"), save("seq"))])
            .run([
                (durable_seq(), Expect::Any),
                (put("b", "1"), ok([Value::Above("seq")])),
            ])
            .act(Act::Hold)
            .run_as(
                Call::applied(),
                [
                    (put("c", "1"), save("later")),
                    (durable_seq(), save("durable")),
                ],
            )
            .run_as(
                Call::applied(),
                [(put("d", "1"), ok([Value::Above("durable")]))],
            )
            // More than `later`: the last write comes after it.
            .act(Act::Release)
            .until([(durable_seq(), ok([Value::Above("later")]))]),
        tags("a tag comes once its write is durable, and not before")
            .act(Act::Hold)
            .run_as(
                Call::applied(),
                [(put("a", "1"), seq()), (notify(7), done())],
            )
            .act(Act::Waiting(1))
            .run_as(Call::applied(), [(seen(), Expect::Tags(vec![]))])
            .act(Act::Release)
            .until([(seen(), Expect::Tags(vec![7]))]),
        tags("tags come in the order of their writes, each once")
            .act(Act::Hold)
            .run_as(
                Call::applied(),
                [
                    (put("a", "1"), save("first")),
                    (put("b", "1"), save("second")),
                    (put("c", "1"), save("third")),
                ],
            )
            .run_as(
                Call::applied(),
                [
                    (notify_of(saved("third"), 3), done()),
                    (notify_of(saved("first"), 1), done()),
                    (notify_of(saved("second"), 2), done()),
                    (seen(), Expect::Tags(vec![])),
                ],
            )
            .act(Act::Release)
            .until([(seen(), Expect::Tags(vec![1, 2, 3]))])
            .run([(put("d", "1"), seq()), (notify(4), done())])
            .until([(seen(), Expect::Tags(vec![1, 2, 3, 4]))]),
        tags("two hundred tags come in their order")
            .run((0..400_u64).map(|at| match at % 2 {
                0 => (put("a", "1"), seq()),
                _ => (notify(at / 2), done()),
            }))
            .until([(seen(), Expect::Tags((0..200).collect()))]),
        tags("a tag is any number of 64 bits")
            .run([(put("a", "1"), seq()), (notify(u64::MAX), done())])
            .until([(seen(), Expect::Tags(vec![u64::MAX]))]),
        tags("what is durable already is told at once")
            .run([(put("a", "1"), save("seq"))])
            .run([(notify_of(saved("seq"), 5), done())])
            .until([(seen(), Expect::Tags(vec![5]))]),
        tags("what may be outstanding is bounded")
            .set("limits.notifications", "2")
            .act(Act::Hold)
            .run_as(
                Call::applied(),
                [
                    (put("a", "1"), seq()),
                    (notify(1), done()),
                    (notify(2), done()),
                    (notify(3), again("limit", "limits.notifications")),
                ],
            )
            .act(Act::Release)
            .until([(seen(), Expect::Tags(vec![1, 2]))])
            .run([(put("b", "1"), seq()), (notify(4), done())])
            .until([(seen(), Expect::Tags(vec![1, 2, 4]))]),
        tags("tags go over to a revision that takes the place")
            .act(Act::Hold)
            .run_as(
                Call::applied(),
                [(put("a", "1"), seq()), (notify(9), done())],
            )
            .swap()
            .act(Act::Release)
            .until([(seen(), Expect::Tags(vec![9]))]),
        tags("tags are forgotten with the instance that asked for them")
            .act(Act::Hold)
            .run_as(
                Call::applied(),
                [(put("a", "1"), seq()), (notify(9), done())],
            )
            .act(Act::Restart)
            .act(Act::Release)
            .run([
                (put("b", "1"), seq()),
                (
                    step("durability.notify-when-durable", ["".into(), 10.into()]),
                    done(),
                ),
            ])
            .until([(seen(), Expect::Tags(vec![10]))]),
    ]
}

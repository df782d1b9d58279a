//! The host's errors as the guest gets them, and the guest's own as its callers do.

use crate::conformance::case::{Act, Case, Failing, Group};
use crate::conformance::expect::Expect;
use crate::conformance::words::{
    again, err, get, merge, none, notify_of, ok, put, raise, recall, remember, remove, scan, seq,
    some, text, write,
};

pub(super) fn cases() -> Vec<Case> {
    let case = |name| Case::new(Group::Errors, name);
    let empty = || err("invalid-key", "a key cannot be empty");
    vec![
        case("an empty key is refused wherever there is one").run([
            (get(""), empty()),
            (put("", "x"), empty()),
            (remove(""), empty()),
            (merge("", "x"), Expect::Any),
            (write([("remove", "", "")]), empty()),
            (scan(1, None, None, "ascending"), Expect::Ok(vec![])),
        ]),
        case("a merge without an operator says which setting it lacks").run([
            (merge("a", "x"), err("no-merge-operator", "merge_operator")),
            (
                write([("put", "a", "x"), ("merge", "a", "x")]),
                err("no-merge-operator", ""),
            ),
            (get("a"), none()),
        ]),
        case("a seq that was never given out is refused")
            .needs(&["durable-events"])
            .run([(
                notify_of("18446744073709551615", 1),
                err("invalid-argument", "was not given out"),
            )]),
        case("an error of the host leaves the instance as it is, and the script goes on")
            .run([
                (remember("kept"), Expect::Any),
                (put("", "x"), empty()),
                (put("a", "x"), seq()),
            ])
            .run([(
                recall(),
                Expect::That("the memory", |values| values == [b"kept"]),
            )]),
        case("an error of the host can end the call, with its code and its words")
            .fails(
                [put("a", "x"), put("", "x").or_fail(), put("b", "x")],
                Failing::Guest("invalid-key", "a key cannot be empty", false),
            )
            .run([(get("a"), some("x")), (get("b"), none())]),
        case("an error does not undo what was written before it")
            .fails(
                [put("a", "x"), raise("mine", "", false)],
                Failing::Guest("mine", "", false),
            )
            .run([(get("a"), some("x"))]),
        case("a store that fails is an error that passes, and the instance is as it was")
            // Otherwise it is tried again for as long as a call may last.
            .set("settings", r#"{"object_store_max_retries":0}"#)
            .run([(put("a", "1"), seq())])
            // Then it lies in the store alone.
            .act(Act::Reopen)
            .run([(remember("kept"), Expect::Any)])
            .act(Act::Refuse)
            .run([
                (get("a"), again("unavailable", "the store does not answer")),
                (put("b", "2"), seq()),
                (get("b"), some("2")),
            ])
            .act(Act::Release)
            .run([(get("a"), some("1")), (recall(), ok([text("kept")]))]),
        case("a code that is none is replaced, and told").fails(
            [raise("My Code", "why", false)],
            Failing::Guest("guest-error", "My Code", false),
        ),
        case("a message of 100 KiB is cut, and comes").fails(
            [raise("mine", "m".repeat(100 << 10), true)],
            Failing::Guest("mine", "mmmm", true),
        ),
    ]
}

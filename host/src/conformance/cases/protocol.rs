//! Scripts, requests and replies, without the database.

use crate::conformance::case::{Call, Case, Failing, Group};
use crate::conformance::expect::{Expect, Value};
use crate::conformance::form;
use crate::conformance::script::step;
use crate::conformance::words::{done, err, ok, raise, recall, remember, text, word};

pub(super) fn cases() -> Vec<Case> {
    let case = |name| Case::new(Group::Protocol, name);
    let invalid = || Err(Failing::Guest("invalid-payload", "", false));
    let echo = |key: &[u8], payload: &[u8]| Ok(form::list([b"echo", key, payload]));
    let every_byte: Vec<u8> = (0..=255).collect();
    let large = every_byte.repeat(4 << 10);
    vec![
        case("an empty script has an empty reply").request(
            Call::default(),
            "run",
            "",
            Ok(Vec::new()),
        ),
        case("a call brings its method, its key and its payload, byte for byte")
            .request(Call::default(), "echo", "x", echo(b"", b"x"))
            .request(Call::default(), "echo", "", echo(b"", b""))
            .request(
                Call::key(&every_byte),
                "echo",
                every_byte.clone(),
                echo(&form::some(&every_byte), &every_byte),
            ),
        case("an empty routing key is a key").request(
            Call::key(b""),
            "echo",
            "x",
            echo(b"+", b"x"),
        ),
        case("a payload of 1 MiB comes, and goes back").request(
            Call::default(),
            "echo",
            large.clone(),
            echo(b"", &large),
        ),
        case("a method that there is not is an error").request(
            Call::default(),
            "no-such-method",
            "",
            Err(Failing::Guest("unknown-method", "", false)),
        ),
        case("a command that there is not is a result").run([
            (word("no.such-command"), err("unknown-command", "")),
            (recall(), ok([text("")])),
        ]),
        case("what is no script fails the call, and nothing else")
            .run([(remember("kept"), Expect::Any)])
            .request(Call::default(), "run", "\x01", invalid())
            .request(
                Call::default(),
                "run",
                b"\xff\xff\xff\xffa".as_slice(),
                invalid(),
            )
            .request(
                Call::default(),
                "run",
                form::list([form::list(["db.get", ""])]),
                invalid(),
            )
            .request(
                Call::default(),
                "run",
                form::list([form::list(["random", "many"])]),
                invalid(),
            )
            .run([(recall(), ok([text("kept")]))]),
        case("an error of the guest comes whole, retryable or not")
            .fails(
                [raise("mine-1", "why: \u{e9}", false)],
                Failing::Guest("mine-1", "why: \u{e9}", false),
            )
            .fails(
                [raise("mine-2", "because", true)],
                Failing::Guest("mine-2", "because", true),
            ),
        case("nothing runs after what failed the call")
            .fails(
                [
                    remember("before"),
                    raise("mine", "", false),
                    remember("after"),
                ],
                Failing::Guest("mine", "", false),
            )
            .run([(recall(), ok([text("before")]))]),
        case("memory is state, as long as the instance")
            .run([(recall(), ok([text("")])), (remember("a"), ok([text("a")]))])
            .run([(recall(), ok([text("a")])), (remember(""), ok([text("")]))])
            .run([(recall(), ok([text("")]))]),
        case("each shard has an instance of its own")
            .run([(remember("of shard 0"), Expect::Any)])
            .run_as(Call::shard(1), [(recall(), ok([text("")]))]),
        case("a script of 2,000 steps has 2,000 results").run((0..2_000_u64).map(|at| {
            (
                step("memory", [form::some(at.to_string()).into()]),
                ok([Value::Bytes(at.to_string().into())]),
            )
        })),
        case("a handle that there is not is a result").run([
            (
                step("cursor.next", [7.into(), 1.into()]),
                err("no-handle", ""),
            ),
            (step("drop", [7.into()]), err("no-handle", "")),
            (step("db.get", [7.into(), "a".into()]), err("no-handle", "")),
            (word("current-call.reply-when-applied"), done()),
        ]),
    ]
}

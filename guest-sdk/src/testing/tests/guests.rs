//! Guests: their calls and queries, life, durable events and log.

use std::time::Duration;

use super::super::*;
use super::code;
use crate::db::{self, Isolation};
use crate::{context, durability};

#[test]
fn durability_is_told_in_order_and_once() {
    #[derive(Default)]
    struct Tags(Vec<u64>);
    impl Guest for Tags {
        fn call(&mut self, call: Call) -> Result<Reply> {
            let seq = db::put("a", call.payload())?;
            durability::notify_when_durable(seq, call.json()?)?;
            Ok(Reply::json(&self.0)?.when_applied())
        }
        fn durable(&mut self, tags: Vec<u64>) {
            self.0.extend(tags);
        }
    }
    crate::export!(Tags, durable_events);

    let mut host = Host::new::<Tags>();
    let seqs: Vec<_> = (1..=3)
        .map(|tag| host.call("put").json(&tag).run().unwrap().seq().unwrap())
        .collect();
    assert!(host.guest::<Tags>().0.is_empty());
    host.make_durable_to(seqs[1]);
    assert_eq!(host.guest::<Tags>().0, [1, 2]);
    host.make_durable_to(seqs[0]);
    assert_eq!(
        (host.durable_seq(), host.guest::<Tags>().0.len()),
        (seqs[1], 2)
    );
    host.run(|| durability::notify_when_durable(seqs[0], 9))
        .unwrap();
    assert_eq!(
        host.guest::<Tags>().0,
        [1, 2, 9],
        "what is durable already is told at once"
    );
    assert_eq!(
        code(host.run(|| durability::notify_when_durable(Seq(seqs[2].0 + 1), 9))),
        "invalid-argument"
    );
    host.crash().unwrap();
    host.make_durable();
    assert!(host.guest::<Tags>().0.is_empty(), "never after a stop");
    let reply = host.call("put").json(&5).run().unwrap();
    assert!(
        reply.is_applied() && reply.seq() > seqs.last().copied(),
        "numbers are not given out again"
    );
}

#[test]
fn notifications_are_bounded_and_need_the_export() {
    #[derive(Default)]
    struct Deaf;
    impl Guest for Deaf {
        fn call(&mut self, _: Call) -> Result<Reply> {
            durability::notify_when_durable(Seq(0), 1)?;
            Ok(Reply::empty())
        }
    }
    crate::export!(Deaf);
    assert_eq!(
        code(Host::new::<Deaf>().call("any").run()),
        "invalid-argument"
    );

    Host::bare()
        .run(|| {
            let seq = db::put("a", 1u8)?;
            for tag in 0..65_536 {
                durability::notify_when_durable(seq, tag)?;
            }
            assert_eq!(code(durability::notify_when_durable(seq, 0)), "limit");
            Ok(())
        })
        .unwrap();
}

#[derive(Default)]
struct Asking {
    calls: u32,
    started: bool,
}

impl Guest for Asking {
    fn call(&mut self, call: Call) -> Result<Reply> {
        self.calls += 1;
        db::put("calls", self.calls)?;
        match call.method() {
            "context" => Reply::json(&(
                context::cluster(),
                context::shard(),
                context::shard_count(),
                context::shard_for("a"),
                context::node(),
                context::revision(),
                context::options_json(),
            )),
            "call" => Reply::json(&(
                call.time_left(),
                call.traceparent(),
                call.header("X-Tenant"),
                call.header("cookie"),
            )),
            "log" => {
                log::info!(account = "a", amount = 5; "moved {}", "money");
                log::trace!("detail");
                Ok(Reply::empty())
            }
            _ => Ok(Reply::text(self.calls)),
        }
    }

    fn query(&self, call: Call) -> Result<Reply> {
        if call.method() == "write" {
            db::put("a", "b")?;
        }
        if call.method() == "transaction" {
            db::begin(Isolation::Snapshot)?;
        }
        let seen = db::get::<u32>("calls")?.unwrap_or(0);
        Reply::json(&(seen, self.calls, self.started))
    }

    fn start(&mut self) -> Result<()> {
        self.started = true;
        if context::options_json().contains("refuse") {
            Err(Error::new("mine", "no start"))
        } else {
            Ok(())
        }
    }

    fn stop(&mut self, reason: StopReason) {
        db::put("stopped", reason.as_str()).unwrap();
    }

    fn validate(options: &str) -> Result<(), String> {
        assert_eq!(code(db::get::<u32>("calls")), "closed");
        if options.contains("wrong") {
            Err("it is wrong".to_owned())
        } else {
            Ok(())
        }
    }
}

crate::export!(Asking, queries, lifecycle, options);

#[test]
fn queries_read_without_writing_or_sharing_memory() {
    let mut host = Host::new::<Asking>();
    host.call("any").run().unwrap();
    host.make_durable();
    host.call("any").run().unwrap();
    assert_eq!(
        host.query("read").run().unwrap().json::<(u32, u32, bool)>(),
        (2, 0, false)
    );
    assert_eq!(
        host.query("read")
            .read_durable()
            .run()
            .unwrap()
            .json::<(u32, u32, bool)>(),
        (1, 0, false)
    );
    assert_eq!(code(host.query("write").run()), "read-only");
    assert_eq!(code(host.query("transaction").run()), "read-only");
    assert_eq!(code(Host::bare().query("read").run()), "no-queries");
}

#[test]
fn a_guest_knows_where_it_runs() {
    let builder = Host::builder()
        .cluster("c")
        .shard(3, 8)
        .node("n")
        .revision(7)
        .options(r#"{"a":1}"#);
    let mut host = builder.start::<Asking>().unwrap();
    let context: serde_json::Value = host.call("context").run().unwrap().json();
    // xxh64("a", 0) = 0xd24ec4f1a98c6e5b
    assert_eq!(
        context,
        serde_json::json!([
            "c",
            3,
            8,
            0xd24e_c4f1_a98c_6e5b_u64 % 8,
            "n",
            7,
            r#"{"a":1}"#
        ])
    );

    let call = host
        .call("call")
        .header("x-tenant", "t")
        .header("Cookie", "secret")
        .header("traceparent", "00-1");
    let reply: serde_json::Value = call
        .timeout(Duration::from_millis(1_500))
        .run()
        .unwrap()
        .json();
    assert_eq!(
        reply,
        serde_json::json!([{"secs": 1, "nanos": 500_000_000}, "00-1", "t", null])
    );
}

#[test]
fn lifecycle_and_options_run_where_they_are_exported() {
    for (options, wanted) in [
        ("[]", "invalid-options"),
        (r#"{"wrong":1}"#, "invalid-options"),
        (r#"{"refuse":1}"#, "mine"),
    ] {
        assert_eq!(
            code(Host::builder().options(options).start::<Asking>()),
            wanted,
            "{options}"
        );
    }
    let mut host = Host::new::<Asking>();
    assert!(host.guest::<Asking>().started);
    host.call("any").run().unwrap();
    host.stop(StopReason::Moving);
    assert_eq!(code(host.call("any").run()), "closed");
    host.restart().unwrap();
    assert_eq!(
        host.run(|| db::get::<String>("stopped"))
            .unwrap()
            .as_deref(),
        Some("moving")
    );
    assert_eq!(
        host.call("any").run().unwrap().text(),
        "1",
        "memory is gone"
    );
    host.fence();
    let fenced = host.call("any").run().unwrap_err();
    assert!(fenced.code() == "fenced" && fenced.is_final());
}

/// Hands over how many calls it had.
#[derive(Default)]
struct Carrying {
    calls: u8,
    from: Vec<u64>,
    revision_at_start: u64,
}

impl Guest for Carrying {
    fn call(&mut self, call: Call) -> Result<Reply> {
        self.calls += 1;
        if call.method() == "notify" {
            durability::notify_when_durable(db::put("a", 1u8)?, 1)?;
        }
        Reply::json(&(self.calls, &self.from))
    }

    fn start(&mut self) -> Result<()> {
        self.revision_at_start = context::revision();
        step("start")
    }

    fn suspend(&mut self) -> Result<Vec<u8>> {
        step("suspend")?;
        Ok(vec![self.calls])
    }

    fn resume(&mut self, from_revision: u64, state: Vec<u8>) -> Result<()> {
        assert_eq!(context::revision(), self.revision_at_start);
        self.from.push(from_revision);
        self.calls = state[0];
        step("resume")
    }

    fn stop(&mut self, _: StopReason) {
        db::put("stopped", context::revision()).unwrap();
    }

    fn durable(&mut self, _: Vec<u64>) {
        self.calls += 100;
    }
}

crate::export!(Carrying, lifecycle, durable_events, handoff);

/// Fails where the database says so, as `step revision`.
fn step(step: &str) -> Result<()> {
    let fails = db::get::<String>("fails")?.unwrap_or_default();
    if fails == format!("{step} {}", context::revision()) {
        return Err(Error::new("mine", fails));
    }
    Ok(())
}

#[test]
fn a_swap_carries_the_memory_or_leaves_the_old_guest() {
    let mut host = Host::new::<Carrying>();
    host.call("notify").run().unwrap();
    host.swap::<Carrying>(2).unwrap();
    let counted = |host: &mut Host| host.call("count").run().unwrap().json::<(u8, Vec<u64>)>();
    assert_eq!(counted(&mut host), (2, vec![1]));
    host.make_durable();
    assert_eq!(
        counted(&mut host),
        (103, vec![1]),
        "what the old one asked for"
    );
    for (calls, fails) in [(104, "start 3"), (105, "suspend 2"), (106, "resume 3")] {
        host.run(|| db::put("fails", fails)).unwrap();
        let error = host.swap::<Carrying>(3).unwrap_err();
        assert_eq!((error.code(), error.message()), ("mine", fails));
        assert_eq!(counted(&mut host), (calls, vec![1]), "{fails}");
        assert_eq!(host.run(|| Ok(context::revision())).unwrap(), 2, "{fails}");
    }
    let stopped = |host: &mut Host| host.run(|| db::get::<u64>("stopped")).unwrap();
    host.swap::<Carrying>(4).unwrap();
    assert_eq!((counted(&mut host).0, stopped(&mut host)), (107, None));
    // To a guest that takes nothing over, and back.
    host.swap::<Asking>(5).unwrap();
    assert_eq!(stopped(&mut host), Some(4));
    host.swap::<Carrying>(6).unwrap();
    assert_eq!(counted(&mut host), (1, vec![]));
}

#[test]
fn what_is_handed_over_is_bounded() {
    let limits = Limits {
        handoff_bytes: 0,
        ..Limits::default()
    };
    let mut host = Host::builder().limits(limits).start::<Carrying>().unwrap();
    let error = host.swap::<Carrying>(2).unwrap_err();
    assert_eq!(error.code(), "limit");
    assert!(
        error.message().contains("limits.handoff_bytes (0 bytes)"),
        "{error}"
    );
}

#[test]
fn log_lines_keep_their_fields() {
    let mut host = Host::builder()
        .log_level(log::LevelFilter::Info)
        .start::<Asking>()
        .unwrap();
    host.call("log").run().unwrap();
    let line = LogLine {
        level: log::Level::Info,
        message: "moved money".to_owned(),
        fields: [
            ("target", module_path!()),
            ("account", "a"),
            ("amount", "5"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec(),
    };
    assert_eq!(host.logs(), [line]);
    host.run(|| {
        log::warn!("{}", "é".repeat(16 * 1024));
        Ok(())
    })
    .unwrap();
    assert_eq!(host.logs()[1].message.len(), 16 * 1024);
}

#[test]
fn a_panic_leaves_nothing_behind() {
    let mut host = Host::bare();
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        host.run(|| -> Result<()> { panic!("on purpose") })
    }));
    assert!(caught.is_err());
    assert_eq!(code(db::get::<u64>("a")), "closed");
    host.run(|| db::put("a", 1u64)).unwrap();
}

#[test]
fn replies_and_errors_are_held_to_their_bounds() {
    #[derive(Default)]
    struct Odd;
    impl Guest for Odd {
        fn call(&mut self, call: Call) -> Result<Reply> {
            match call.method() {
                "reply" => Ok(Reply::bytes(vec![0; call.json()?])),
                code => Err(Error::new(code.to_owned(), "text").retryable()),
            }
        }
    }
    crate::export!(Odd);

    let limits = Limits {
        reply: 10,
        ..Limits::default()
    };
    let mut host = Host::builder().limits(limits).start::<Odd>().unwrap();
    assert_eq!(
        host.call("reply").json(&10).run().unwrap().payload().len(),
        10
    );
    assert_eq!(
        code(host.call("reply").json(&11).run()),
        "guest-reply-limit"
    );
    let long = "x".repeat(64);
    for (method, kept) in [
        ("no-such-thing", true),
        (&long, true),
        ("", false),
        ("Bad", false),
        ("a b", false),
    ] {
        let error = host.call(method).run().unwrap_err();
        assert_eq!(error.code(), if kept { method } else { "guest-error" });
        assert!(error.is_retryable());
    }
}

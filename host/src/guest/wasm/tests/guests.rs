//! The guests of `tests/guests` and the examples, built for wasm32-wasip2, in the folder that `QUARRY_TEST_GUESTS` names:
//! `QUARRY_TEST_GUESTS=... cargo test -p quarry --lib -- --ignored guest::wasm`.

use super::*;

fn guest(name: &str) -> Bytes {
    let folder = std::env::var("QUARRY_TEST_GUESTS").expect("QUARRY_TEST_GUESTS names the folder of the built guests");
    std::fs::read(std::path::Path::new(&folder).join(name)).expect("a built guest").into()
}

/// The reply as text, or `code: message`.
async fn ask(instance: &mut dyn Instance, method: &str, key: Option<&str>, payload: &str) -> String {
    text(instance.call(&request(method, key, payload.to_owned())).await)
}

fn text(outcome: Result<Reply, Failure>) -> String {
    match outcome {
        Ok(reply) => String::from_utf8_lossy(&reply.payload).into_owned(),
        Err(Failure::Error(error)) => format!("{}: {}", error.code, error.message),
        Err(Failure::Trap(trap)) => trap.to_string(),
    }
}

#[tokio::test]
#[ignore = "needs built guests"]
async fn traps_are_told_apart() {
    let limits = Limits { cpu_time: Duration::from_millis(100), memory: 32 << 20, wall_time: Duration::from_secs(2), ..Limits::default() };
    let bench = Bench::new(limits, "{}").await;
    let module = bench.module(guest("misbehave.wasm")).await;
    for (method, payload, kind, says) in [
        ("trap", "because", TrapKind::Aborted, "trapped on purpose: because"),
        ("abort", "", TrapKind::Aborted, "unreachable"),
        ("exit", "", TrapKind::Aborted, "exited with status"),
        ("out-of-bounds", "", TrapKind::Aborted, "index out of bounds"),
        ("spin", "", TrapKind::CpuTime, "limits.cpu_time"),
        ("spin-ms", "1000", TrapKind::CpuTime, "limits.cpu_time"),
        ("allocate", "", TrapKind::Memory, "limits.memory (33554432 bytes)"),
        ("recurse", "", TrapKind::StackOverflow, "stack"),
        ("sleep", "60000", TrapKind::WallTime, "limits.wall_time"),
        ("big-reply", "16777217", TrapKind::ReplyTooLarge, "a reply of 16777217 bytes is over limits.reply (16777216 bytes)"),
    ] {
        let mut instance = module.instantiate(bench.context.clone()).await.expect("an instance");
        let found = trap(instance.call(&request(method, None, payload)).await);
        assert_eq!(found.kind, kind, "{method}: {found}");
        assert!(found.message.contains(says), "{method}: {found}");
        println!("{method}: {found}");
    }
}

#[tokio::test]
#[ignore = "needs built guests"]
async fn the_database_as_a_guest_sees_it() {
    let bench = Bench::new(Limits::default(), r#"{"greeting":"hello"}"#).await;
    let mut instance = bench.instance(guest("misbehave.wasm")).await;
    let instance = &mut *instance;
    let first = (1_u64 << 40).to_string();
    assert_eq!(ask(instance, "put", Some("a"), "one").await, first);
    for (method, key, payload, reply) in [
        ("get", Some("a"), "", "one"),
        ("memory-count", None, "", "1"),
        ("memory-count", None, "", "2"),
        ("empty-key", None, "x", "invalid-key"),
        ("empty-key-get", None, "", "invalid-key"),
        ("empty-key-batch", None, "", "invalid-key"),
        ("empty-key-transaction", None, "", "invalid-key"),
        ("oversize-key", None, "", "invalid-key"),
        ("oversize-key-get", None, "", "invalid-key"),
        ("oversize-value", Some("a"), "", "invalid-value"),
        ("oversize-batch", None, "", "limit"),
        ("empty-batch", None, "", "invalid-argument"),
        ("ttl-zero", Some("a"), "x", "invalid-argument"),
        ("merge", Some("a"), "x", "no-merge-operator"),
        ("txn-conflict", Some("a"), "", ""),
        ("use-closed-transaction", Some("a"), "", "closed"),
        ("too-many-cursors", None, "", "limit"),
        ("header", None, "X-Test", "yes"),
        ("error", None, "my-code retryable", "my-code"),
        ("error", None, "My_Code", "guest-error"),
        ("big-error", None, "", "big-error"),
        ("no-such-method", None, "", "unknown-method"),
    ] {
        let found = ask(instance, method, key, payload).await;
        assert!(found.starts_with(reply), "{method}: {found:.200}");
        println!("{method}: {found:.160}");
    }
    for method in ["context", "snapshot", "versioned", "get-many", "scan", "scan-range", "transaction", "deadline", "durable-seq", "random", "clock"] {
        println!("{method}: {:.200}", ask(instance, method, Some("a"), "").await);
    }
    for method in ["leak-cursors", "leak-snapshots", "leak-transactions"] {
        println!("{method}: {}", ask(instance, method, None, "10").await);
        let found = ask(instance, "use-leaked", None, "").await;
        assert!(found.contains("closed"), "{method}: {found}");
        ask(instance, "drop-leaked", None, "").await;
    }
}

#[tokio::test]
#[ignore = "needs built guests"]
async fn replies_carry_what_the_guest_set() {
    let bench = Bench::new(Limits::default(), "{}").await;
    let mut instance = bench.instance(guest("misbehave.wasm")).await;
    for (payload, content_type) in [("text/plain", Some("text/plain")), ("bad\ntype", None), ("", None)] {
        let reply = instance.call(&request("content-type", None, payload)).await.expect("a reply");
        assert_eq!(reply.content_type.as_deref(), content_type, "{payload}");
        assert!(!reply.when_applied);
    }
    let reply = instance.call(&request("reply-when-applied", Some("a"), "x")).await.expect("a reply");
    assert!(reply.when_applied);
    let reply = instance.call(&request("get", Some("a"), "")).await.expect("a reply");
    assert!(!reply.when_applied, "what a call set ends with it");
}

#[tokio::test]
#[ignore = "needs built guests"]
async fn queries_only_read() {
    let bench = Bench::new(Limits::default(), "{}").await;
    let module = bench.module(guest("misbehave.wasm")).await;
    let mut instance = module.instantiate(bench.context.clone()).await.expect("an instance");
    ask(&mut *instance, "put", Some("a"), "one").await;
    let view = bench.context.db.snapshot().expect("a view");
    ask(&mut *instance, "put", Some("a"), "two").await;
    let mut queries = module.instantiate_query(bench.context.clone()).await.expect("an instance");
    for (method, reply) in [
        ("get", "one"),
        ("put", "read-only"),
        ("delete", "read-only"),
        ("batch", "read-only"),
        ("merge", "read-only"),
        ("transaction", "read-only"),
        ("txn-conflict", "read-only"),
        ("memory-count", "1"),
        ("get", "one"),
    ] {
        let found = text(queries.query(&request(method, Some("a"), "x"), view.clone()).await);
        assert!(found.starts_with(reply), "{method}: {found}");
    }
    let latest = bench.context.db.snapshot().expect("a view");
    assert_eq!(text(queries.query(&request("get", Some("a"), ""), latest).await), "two");
}

#[tokio::test]
#[ignore = "needs built guests"]
async fn options_are_checked_without_a_database() {
    let limits = Limits { cpu_time: Duration::from_millis(100), ..Limits::default() };
    let bench = Bench::new(limits, "{}").await;
    let module = bench.module(guest("lifecycle.wasm")).await;
    for (options, expected) in [
        ("{}", None),
        (r#"{"validate":"refuse"}"#, Some("invalid-options: refused on purpose")),
        (r#"{"wrong":1}"#, Some("invalid-options: there is no option `wrong`")),
        (r#"{"validate":"read"}"#, Some("invalid-options: reading failed with closed")),
        (r#"{"validate":"panic"}"#, Some("guest aborted: ")),
        (r#"{"validate":"spin"}"#, Some("guest CPU time limit: ")),
    ] {
        let found = match module.validate(options).await {
            Ok(()) => None,
            Err(Failure::Error(error)) => Some(error.to_string()),
            Err(Failure::Trap(trap)) => Some(trap.to_string()),
        };
        assert_eq!(found.is_some(), expected.is_some(), "{options}: {found:?}");
        assert!(found.clone().unwrap_or_default().starts_with(expected.unwrap_or_default()), "{options}: {found:?}");
    }
    assert_eq!(bench.module(guest("counter.wasm")).await.validate("{}").await, Ok(()));
}

#[tokio::test]
#[ignore = "needs built guests"]
async fn lifecycle_and_durable_events_run() {
    let limits = Limits { cpu_time: Duration::from_secs(60), stop_time: Duration::from_millis(50), ..Limits::default() };
    let bench = Bench::new(limits, r#"{"stop":"spin"}"#).await;
    let module = bench.module(guest("lifecycle.wasm")).await;
    let mut instance = module.instantiate(bench.context.clone()).await.expect("an instance");
    instance.start().await.expect("started");
    instance.durable(vec![1, 2]).await.expect("told");
    match instance.stop(StopReason::Stopping).await {
        Err(Failure::Trap(trap)) => assert!(trap.kind == TrapKind::WallTime && trap.message.contains("limits.stop_time"), "{trap}"),
        other => panic!("{other:?}"),
    }
    let bench = Bench::new(Limits::default(), r#"{"start":"error"}"#).await;
    let mut instance = bench.instance(guest("lifecycle.wasm")).await;
    assert!(matches!(instance.start().await, Err(Failure::Error(error)) if error.code == "mine"));
}

#[tokio::test]
#[ignore = "needs built guests"]
async fn nothing_outside_is_reached() {
    let bench = Bench::new(Limits::default(), "{}").await;
    let mut instance = bench.instance(guest("reach.wasm")).await;
    for (method, payload, reply) in [
        ("read-file", "/etc/passwd", "refused"),
        ("write-file", "/tmp/reach", "refused"),
        ("list-folder", "/", "refused"),
        ("connect", "127.0.0.1:22", "refused"),
        ("resolve", "localhost:80", "refused"),
        ("listen", "", "refused"),
        ("send-udp", "", "refused"),
        ("env", "", "[]"),
        ("args", "", "[]"),
        ("stdin", "", "0"),
    ] {
        let found = ask(&mut *instance, method, None, payload).await;
        assert!(found.starts_with(reply), "{method}: {found}");
    }
}

#[tokio::test]
#[ignore = "needs built guests; prints what calls cost"]
async fn what_calls_cost() {
    let bench = Bench::new(Limits::default(), "{}").await;
    let mut empty = bench.instance(Wat::default().build()).await;
    let asked = request("any", None, "");
    time("empty call", 200_000, async || _ = empty.call(&asked).await.expect("a reply")).await;
    let mut misbehave = bench.instance(guest("misbehave.wasm")).await;
    for (method, key, payload) in [("key", None, ""), ("put", Some("c"), "one"), ("get", Some("c"), ""), ("durable-seq", None, "")] {
        let asked = request(method, key, payload);
        time(method, 20_000, async || _ = misbehave.call(&asked).await.expect("a reply")).await;
    }
    let mut counter = bench.instance(guest("counter.wasm")).await;
    let asked = request("increment", Some("a"), "");
    time("counter", 20_000, async || _ = counter.call(&asked).await.expect("a reply")).await;
    let db = bench.context.db.clone();
    time("native get", 20_000, async || _ = db.view().get(b"c").await.expect("read")).await;
    time("native put", 20_000, async || _ = db.put("c".into(), "one".into()).await.expect("written")).await;
}

async fn time(name: &str, times: u32, mut run: impl AsyncFnMut()) {
    for _ in 0..times / 10 {
        run().await;
    }
    let begun = Instant::now();
    for _ in 0..times {
        run().await;
    }
    println!("{name}: {:?} each", begun.elapsed() / times);
}

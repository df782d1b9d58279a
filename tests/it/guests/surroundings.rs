//! What a guest sees of the world, and what it does not.

use std::net::TcpListener;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quarry::call::{CallErrorKind, CallOptions, Target};
use quarry::config::Config;
use serde_json::{Value, json};

use crate::support::guests::{self, ask, keys, options, refused, shown};
use crate::support::log_lines;
use crate::support::native::{call, config};
use crate::support::store::within;

#[tokio::test(flavor = "multi_thread")]
async fn the_context_says_where_a_guest_runs() {
    let mut config = Config {
        cluster: "shop".into(),
        shards: 5,
        ..config()
    };
    options(&mut config, r#"{"greeting":"hello","depth":{"n":1}}"#);
    let cluster = guests::start(config, "misbehave").await;
    let keys = keys(&cluster);
    for (shard, key) in keys.iter().enumerate() {
        let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let options = CallOptions {
            headers: vec![("traceparent".into(), traceparent.into())],
            ..CallOptions::default()
        };
        let reply = within(cluster.call(
            Target::key(key.clone()),
            "context",
            keys[3].clone().into(),
            options,
        ))
        .await
        .expect("context");
        let context: Value = serde_json::from_slice(&reply.payload).expect("JSON");
        let expected = json!({
            "cluster": "shop", "shard": shard, "shard_count": 5, "shard_for": 3, "node": "test", "generation": 0,
            "module": "misbehave", "revision": 1, "options": {"greeting": "hello", "depth": {"n": 1}}, "status": "running",
            "owned_for_ms": u64::MAX, "traceparent": traceparent,
        });
        assert_eq!(context, expected);
        assert_eq!(reply.shard as usize, shard);
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_brings_its_key_its_headers_and_its_deadline() {
    let cluster = guests::start(config(), "misbehave").await;
    let bytes = vec![0, 255, 10, 128];
    let reply = within(cluster.call(
        Target::key(bytes.clone()),
        "key",
        "".into(),
        CallOptions::default(),
    ))
    .await
    .expect("key");
    assert_eq!(reply.payload, bytes);
    let reply = within(cluster.call(Target::Shard(1), "key", "".into(), CallOptions::default()))
        .await
        .expect("key");
    assert_eq!((shown(&reply).as_str(), reply.shard), ("no key", 1));
    let headers = vec![("x-one".into(), "1".into()), ("x-two".into(), "2".into())];
    for (name, value) in [("x-one", "1"), ("X-Two", "2"), ("x-three", "")] {
        let options = CallOptions {
            headers: headers.clone(),
            ..CallOptions::default()
        };
        let reply = within(cluster.call(Target::key("a"), "header", name.into(), options))
            .await
            .expect("header");
        assert_eq!(shown(&reply), value, "{name}");
    }
    for timeout in [5_000, 60_000] {
        let options = CallOptions {
            timeout: Some(Duration::from_millis(timeout)),
            ..CallOptions::default()
        };
        let reply = within(cluster.call(Target::key("a"), "deadline", "".into(), options))
            .await
            .expect("deadline");
        let left: u64 = shown(&reply).parse().expect("milliseconds");
        assert!(
            left <= timeout && left > timeout - 5_000,
            "{left} of {timeout}"
        );
    }
    for (given, kept) in [
        (
            "text/plain; charset=utf-8",
            Some("text/plain; charset=utf-8"),
        ),
        ("bad\ntype", None),
        ("", None),
    ] {
        let reply = within(call(&cluster, "a", "content-type", given))
            .await
            .expect("typed");
        assert_eq!(reply.content_type.as_deref(), kept, "{given:?}");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clocks_and_random_numbers_work() {
    let cluster = guests::start(config(), "misbehave").await;
    let now = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("after 1970")
            .as_millis()
    };
    let before = now();
    let told: u128 = ask(&cluster, "a", "clock", "")
        .await
        .parse()
        .expect("milliseconds");
    assert!((before..=now()).contains(&told), "{before} {told}");
    let slept: u64 = ask(&cluster, "a", "sleep", "40")
        .await
        .parse()
        .expect("milliseconds");
    assert!((40..20_000).contains(&slept), "{slept}");
    // An instance keeps its seed; another one has another.
    let mut random = vec![ask(&cluster, "a", "random", "").await];
    for _ in 0..4 {
        within(cluster.restart_shard(cluster.shard_for(b"a")))
            .await
            .expect("restart");
        random.push(ask(&cluster, "a", "random", "").await);
    }
    random.sort_unstable();
    random.dedup();
    assert_eq!(random.len(), 5, "{random:?}");
    cluster.stop().await;
}

/// No file, no network, no environment. What is reached for is there, so that only the host can be why it is refused.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_outside_can_be_reached() {
    let cluster = guests::start(config(), "reach").await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "secret").expect("written");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("non-blocking");
    let address = listener.local_addr().expect("an address").to_string();
    let path = |path: &std::path::Path| path.to_str().expect("text").to_owned();
    let written = path(&folder.path().join("written"));
    let cases = [
        ("read-file", path(&file)),
        ("read-file", "/etc/hostname".into()),
        ("read-file", "../../../../etc/hostname".into()),
        ("write-file", written.clone()),
        ("list-folder", path(folder.path())),
        ("list-folder", "/".into()),
        ("list-folder", ".".into()),
        ("connect", address),
        ("resolve", "localhost:80".into()),
        ("listen", String::new()),
        ("send-udp", String::new()),
    ];
    for (method, payload) in cases {
        let error = refused(&cluster, "a", method, &payload).await;
        assert_eq!(
            (error.kind, error.code.as_str()),
            (CallErrorKind::Guest, "refused"),
            "{method} {payload}: {error}"
        );
    }
    assert!(!std::path::Path::new(&written).exists());
    assert!(listener.accept().is_err(), "nobody connected");
    for (method, reply) in [("env", "[]"), ("args", "[]"), ("stdin", "0")] {
        assert_eq!(ask(&cluster, "a", method, "").await, reply, "{method}");
    }
    cluster.stop().await;
}

/// Every line says whose it is.
#[tokio::test(flavor = "multi_thread")]
async fn lines_of_a_guest_come_with_shard_and_revision() {
    log_lines::catch();
    let config = config();
    let module = guests::named(&config, "misbehave", "logged-lines", 4).await;
    let cluster = quarry::Cluster::start(config.into(), module)
        .await
        .expect("start");
    ask(&cluster, "a", "log", "hello").await;
    ask(&cluster, "a", "stdout", "to stdout").await;
    ask(&cluster, "a", "stderr", "to stderr").await;
    let shard = cluster.shard_for(b"a").to_string();
    let lines = log_lines::of("logged-lines");
    let seen: Vec<_> = lines
        .iter()
        .map(|line| (line.level.as_str(), line.get("stream"), line.get("text")))
        .collect();
    // Trace goes nowhere: the subscriber does not take it, and the guest is told so.
    let expected = [
        ("ERROR", "log", "hello"),
        ("WARN", "log", "hello"),
        ("INFO", "log", "hello"),
        ("DEBUG", "log", "hello"),
        ("INFO", "stdout", "to stdout"),
        ("WARN", "stderr", "to stderr"),
    ];
    assert_eq!(seen, expected);
    for line in &lines {
        assert_eq!(
            (line.get("shard"), line.get("revision")),
            (shard.as_str(), "4"),
            "{line:?}"
        );
    }
    assert!(
        lines[0]
            .get("fields")
            .contains(r#"method="log" length="5""#),
        "{:?}",
        lines[0]
    );
    cluster.stop().await;
}

/// A flood is cut to its rate, and what was dropped is counted and said; the calls are served all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_lines_is_cut_to_its_rate() {
    log_lines::catch();
    for (method, payload, name) in [
        ("flood-log", "20000", "logged-flood-log"),
        ("flood-stderr", "8", "logged-flood-stderr"),
    ] {
        let mut config = config();
        config.limits.log_bytes_per_second = 64 << 10;
        config.limits.cpu_time = Duration::from_secs(20);
        let module = guests::named(&config, "misbehave", name, 1).await;
        let cluster = quarry::Cluster::start(config.into(), module)
            .await
            .expect("start");
        let keys = keys(&cluster);
        let neighbour = crate::support::neighbour::Neighbour::of(&cluster, &keys[1]);
        let begun = std::time::Instant::now();
        assert_eq!(ask(&cluster, &keys[0], method, payload).await, payload);
        let seconds = begun.elapsed().as_secs() + 2;
        let lines = log_lines::of(name);
        let bytes: usize = lines
            .iter()
            .map(|line| line.get("text").len() + line.get("fields").len())
            .sum();
        assert!(bytes > 32 << 10, "{method}: something is seen");
        assert!(
            bytes as u64 <= seconds * (64 << 10),
            "{method}: {bytes} bytes in {seconds} s"
        );
        // The next window begins with the count.
        within(async {
            while !log_lines::of(name).iter().any(|line| {
                line.get("dropped")
                    .parse()
                    .is_ok_and(|dropped: u64| dropped > 100)
            }) {
                ask(&cluster, &keys[0], "stderr", "more").await;
            }
        })
        .await;
        let said = log_lines::of(name)
            .into_iter()
            .find(|line| !line.get("dropped").is_empty())
            .expect("said");
        assert!(
            said.level == "WARN" && said.get("message").contains("limits.log_bytes_per_second"),
            "{said:?}"
        );
        neighbour.serves(1).await;
        neighbour.stop().await;
        cluster.stop().await;
    }
}

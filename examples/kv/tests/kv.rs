//! The store against the in-memory host.

use kv::Kv;
use quarry_guest::testing::Host;
use serde_json::json;

fn host_with(keys: &[&str]) -> Host {
    let mut host = Host::new::<Kv>();
    for key in keys {
        host.call("put")
            .key(key)
            .payload(format!("value of {key}"))
            .run()
            .unwrap();
    }
    host
}

#[test]
fn puts_gets_and_deletes() {
    let mut host = Host::new::<Kv>();
    let put = host.call("put").key("a").payload([0, 255]).run().unwrap();
    assert_eq!(put.text(), put.seq().unwrap().to_string());
    assert_eq!(host.call("get").key("a").run().unwrap().payload(), [0, 255]);
    assert_eq!(
        host.query("get").key("a").run().unwrap().payload(),
        [0, 255]
    );
    let delete = host.call("delete").key("a").run().unwrap();
    assert!(delete.seq() > put.seq());
    assert_eq!(
        host.query("get").key("a").run().unwrap_err().code(),
        "not-found"
    );
    host.call("put").key("empty").run().unwrap();
    assert_eq!(host.call("get").key("empty").run().unwrap().payload(), b"");
}

#[test]
fn scans() {
    let mut host = host_with(&["a/1", "a/2", "b/1", "b/2"]);
    let cases = [
        (json!({}), "a/1 a/2 b/1 b/2"),
        (json!({"prefix": "a/"}), "a/1 a/2"),
        (json!({"prefix": "a/", "reverse": true, "limit": 1}), "a/2"),
        (json!({"start": "a/2"}), "a/2 b/1 b/2"),
        (json!({"start": "a/2", "end": "b/2"}), "a/2 b/1"),
        (json!({"end": "b/1", "reverse": true}), "a/2 a/1"),
        (json!({"start": "c", "end": "a"}), ""),
        (json!({"prefix": "none"}), ""),
    ];
    for (payload, wanted) in cases {
        for query in [false, true] {
            let request = if query {
                host.query("scan")
            } else {
                host.call("scan")
            };
            let reply = request.json(&payload).run().unwrap();
            let keys: Vec<_> = reply.text().lines().map(key_of).collect();
            assert_eq!(keys.join(" "), wanted, "{payload}");
            assert_eq!(reply.content_type(), "application/jsonl");
        }
    }
    let all = host.call("scan").run().unwrap();
    assert!(
        all.text()
            .starts_with("{\"key\":\"a/1\",\"value\":\"value of a/1\"}\n"),
        "{}",
        all.text()
    );
}

#[test]
fn scans_bytes_as_base64() {
    let mut host = Host::new::<Kv>();
    host.call("put").key([0xff]).payload([0x80]).run().unwrap();
    let reply = host.query("scan").run().unwrap();
    assert_eq!(
        reply.text(),
        "{\"key_base64\":\"/w==\",\"value_base64\":\"gA==\"}\n"
    );
}

#[test]
fn ends_a_scan_at_its_limits() {
    let mut host = Host::new::<Kv>();
    for n in 0..1_100u32 {
        host.call("put").key(format!("{n:04}")).run().unwrap();
    }
    assert_eq!(
        host.query("scan").run().unwrap().text().lines().count(),
        1_000
    );
    let all = host
        .query("scan")
        .json(&json!({"limit": 100_000}))
        .run()
        .unwrap();
    assert_eq!(all.text().lines().count(), 1_100);

    let mut host = Host::new::<Kv>();
    for key in ["a", "b", "c"] {
        host.call("put")
            .key(key)
            .payload(vec![b'x'; 3 << 20])
            .run()
            .unwrap();
    }
    let error = host.query("scan").run().unwrap_err();
    assert_eq!(error.code(), "reply-too-large");
    assert!(error.message().contains("at most 2"), "{error}");
    assert_eq!(
        host.query("scan")
            .json(&json!({"limit": 2}))
            .run()
            .unwrap()
            .text()
            .lines()
            .count(),
        2
    );
}

#[test]
fn refuses_what_it_does_not_understand() {
    let mut host = host_with(&["a"]);
    let cases = [
        ("scan", "{", "invalid-payload"),
        ("scan", r#"{"limit": 0}"#, "invalid-payload"),
        ("scan", r#"{"limit": 100001}"#, "invalid-payload"),
        ("scan", r#"{"limits": 1}"#, "invalid-payload"),
        (
            "scan",
            r#"{"prefix": "a", "start": "b"}"#,
            "invalid-payload",
        ),
        ("put", "value", "missing-key"),
        ("get", "", "missing-key"),
        ("delete", "", "missing-key"),
        ("copy", "", "unknown-method"),
    ];
    for (method, payload, code) in cases {
        let error = host.call(method).payload(payload).run().unwrap_err();
        assert_eq!(error.code(), code, "{method} {payload}: {error}");
    }
}

fn key_of(line: &str) -> String {
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    line["key"].as_str().unwrap().to_owned()
}

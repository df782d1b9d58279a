//! Where requests go, what the guest gets, and what comes back.

use std::sync::Arc;

use async_trait::async_trait;
use quarry::Cluster;
use quarry::guest::compound::{Compound, Part};
use quarry::guest::native::{self, Logic};
use quarry::guest::{GuestError, HttpAnswer, HttpHead, InstanceContext, Limits, Reply, Request};
use reqwest::header::HeaderMap;
use serde_json::json;

use super::{Door, answer};
use crate::support::guests;
use crate::support::native::config;

#[tokio::test(flavor = "multi_thread")]
async fn a_request_finds_its_shard_or_is_told_how() {
    let door = Door::open(config(), "web").await;
    let key = guests::keys(&door.cluster)[1].clone();
    let by_key = format!("/http/key/{key}/status?299");
    #[rustfmt::skip]
    let cases: &[(&str, &str, &[(&str, &str)], u16, &str)] = &[
        ("GET", "/http/shard/1/status?299", &[], 299, "1"),
        ("GET", "/http/status?299", &[("quarry-shard", "1")], 299, "1"),
        ("GET", "/http/status?299", &[("quarry-key", &key)], 299, "1"),
        ("GET", &by_key, &[], 299, "1"),
        ("GET", "/http/shard/0/status?299", &[("quarry-shard", "1")], 404, "1"),
        ("GET", "/http/shard/1", &[], 404, "1"),
        ("PROPFIND", "/http/shard/1/status?299", &[], 299, "1"),
        ("OPTIONS", "/http/shard/1/status?299", &[], 299, "1"),
        ("GET", "/http/status", &[], 400, "`quarry-key: KEY`, the header `quarry-shard: N`, or the path /http/key/KEY/... or /http/shard/N/..."),
        ("GET", "/http", &[], 400, "quarry-shard"),
        ("GET", "/http/shard/2/status", &[], 400, "there is no shard 2"),
        ("GET", "/http/shard/x/status", &[], 400, "`x` is not the number of a shard"),
        ("GET", "/http/key//status", &[], 400, "the key is empty"),
        ("GET", "/http/status", &[("quarry-shard", "0"), ("quarry-key", "a")], 400, "only one of"),
        ("GET", "/http/status", &[("quarry-shard", "0"), ("quarry-timeout", "soon")], 400, "`quarry-timeout`"),
        ("GET", "/http/status", &[("quarry-shard", "0"), ("quarry-durability", "maybe")], 400, "`quarry-durability`"),
        ("GET", "/http/shard/1/status?299", &[("quarry-revision", "1")], 299, "1"),
        ("GET", "/http/shard/1/status?299", &[("quarry-revision", "9")], 409, "runs revision 1"),
    ];
    for (method, path, headers, status, says) in cases {
        let mut request = door.ask(method, path);
        for (name, value) in *headers {
            request = request.header(*name, *value);
        }
        let got = answer(request).await;
        assert_eq!(got.status, *status, "{method} {path} {headers:?}: {got:?}");
        if got.header("quarry-seq").is_some() {
            assert_eq!(got.header("quarry-shard"), Some(*says), "{path}");
            assert_eq!(got.header("quarry-revision"), Some("1"));
            assert_eq!(got.header("quarry-node"), Some("test"));
        } else {
            got.code();
            assert!(got.body.contains(says), "{path}: {got:?}");
        }
    }
    door.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guest_gets_the_request_as_it_came() {
    let door = Door::open(config(), "web").await;
    let request = door
        .ask("PUT", "/http/key/a%2Fb/echo?x=%20&y")
        .header("x-twice", "one")
        .header("x-twice", "two")
        .header("cookie", "c=1")
        .header("quarry-timeout", "9s")
        .header("x-forwarded-prefix", "/forged")
        .body("größe");
    let got = answer(request).await.json();
    assert_eq!(got["method"], "PUT");
    assert_eq!(got["target"], "/echo?x=%20&y");
    assert_eq!(got["body"], "größe");
    let authority = got["authority"].as_str().expect("an authority");
    assert!(authority.starts_with("127.0.0.1:"), "{authority}");
    let headers = got["headers"].as_array().expect("headers");
    for expected in [
        json!(["x-twice", "one"]),
        json!(["x-twice", "two"]),
        json!(["cookie", "c=1"]),
        json!(["content-length", "7"]),
        json!(["x-forwarded-prefix", "/http/key/a%2Fb"]),
    ] {
        assert!(headers.contains(&expected), "{expected} in {headers:?}");
    }
    let names: Vec<_> = headers.iter().map(|header| header[0].as_str()).collect();
    assert!(!names.contains(&Some("quarry-timeout")) && !names.contains(&Some("host")));
    assert_eq!(
        names
            .iter()
            .filter(|name| **name == Some("x-forwarded-prefix"))
            .count(),
        1
    );
    let whole = answer(door.ask("GET", "/http/echo").header("quarry-shard", "0"))
        .await
        .json();
    assert_eq!(
        (&whole["target"], &whole["method"]),
        (&"/echo".into(), &"GET".into())
    );
    assert!(
        whole["headers"]
            .as_array()
            .expect("headers")
            .contains(&json!(["x-forwarded-prefix", "/http"]))
    );
    door.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_are_as_large_as_their_limits() {
    const LIMIT: usize = 3 << 20;
    let mut config = config();
    config.http.max_body = LIMIT as u64;
    config.limits.reply = LIMIT as u64;
    let door = Door::open(config, "web").await;
    for size in [0, 1, 4096, LIMIT] {
        let body: String = (0..size)
            .map(|n| char::from(b'a' + (n % 26) as u8))
            .collect();
        let got = door.post("/body", body.clone()).await;
        assert_eq!(got.status, 200, "{size}");
        assert!(
            got.body == body,
            "{size}: {} bytes came back",
            got.body.len()
        );
    }
    let got = door.post("/body", "x".repeat(LIMIT + 1)).await;
    assert_eq!((got.status, &*got.code()), (413, "body-too-large"));
    let got = door.get(&format!("/size?{}", LIMIT + 1)).await;
    assert_eq!((got.status, &*got.code()), (500, "guest-reply-limit"));
    assert!(got.body.contains("limits.reply"), "{got:?}");
    assert_eq!(door.get("/size?5").await.body, ".....");
    door.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_without_the_export_says_so_and_one_without_handler_too() {
    let door = Door::open(config(), "counter").await;
    let got = door.get("/").await;
    assert_eq!((got.status, &*got.code()), (404, "no-http"));
    assert!(
        got.body.contains("wasi:http/incoming-handler@0.2"),
        "{got:?}"
    );
    door.close().await;
    let door = Door::open(config(), "page").await;
    assert_eq!(door.get("/").await.body, "1");
    let got = answer(door.ask("POST", "/v1/call/put?shard=0")).await;
    assert_eq!((got.status, &*got.code()), (404, "unknown-method"));
    assert!(
        got.body.contains("`put`") && got.body.contains("quarry:shard/handler"),
        "{got:?}"
    );
    door.close().await;
}

/// Answers with the name that it has.
struct Named(&'static str);

#[async_trait]
impl Logic for Named {
    const HTTP: bool = true;

    async fn call(&mut self, _: &InstanceContext, _: &Request) -> Result<Reply, GuestError> {
        Ok(Reply::new(self.0))
    }

    async fn http(
        &mut self,
        _: &InstanceContext,
        request: &Request,
        head: &HttpHead,
    ) -> Result<Reply, GuestError> {
        if head.target.path() == "/refuse" {
            return Err(GuestError::new("conflict", "as it was told"));
        }
        let mut headers = HeaderMap::new();
        headers.insert("x-target", head.target.as_str().parse().expect("a value"));
        Ok(Reply {
            http: Some(Box::new(HttpAnswer {
                status: 418,
                headers,
            })),
            ..Reply::new(format!(
                "{} {}",
                self.0,
                String::from_utf8_lossy(&request.payload)
            ))
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_modules_the_one_that_is_named_answers_or_the_first_that_can() {
    let config = config();
    let counter = guests::module(&config, "counter", 1).await;
    let parts = [
        counter,
        native::module("a", 1, |_| Named("a")),
        native::module("b", 1, |_| Named("b")),
    ];
    let parts = parts.map(|module| Part {
        module,
        options: "{}".into(),
        prefix: "".into(),
    });
    let limits = Arc::new(Limits::from(&config));
    let module = Arc::new(Compound::new(parts.into(), &limits));
    let cluster = Cluster::start(Arc::new(config), module)
        .await
        .expect("start");
    let door = Door::of(cluster).await;
    let of = |module: &str, path: &str| {
        let request = door.ask("POST", &format!("/http/shard/0{path}")).body("x");
        match module {
            "" => request,
            name => request.header("quarry-module", name),
        }
    };
    for (module, body) in [("", "a x"), ("a", "a x"), ("b", "b x")] {
        let got = answer(of(module, "/t")).await;
        assert_eq!((got.status, &*got.body), (418, body), "{module}");
        assert_eq!(got.header("x-target"), Some("/t"));
    }
    for (module, path, status, code, says) in [
        ("counter", "/", 404, "no-http", "these do: a, b"),
        ("c", "/", 404, "no-http", "it runs counter, a, b"),
        ("b", "/refuse", 409, "conflict", "as it was told"),
    ] {
        let got = answer(of(module, path)).await;
        assert_eq!((got.status, &*got.code()), (status, code), "{module}");
        assert!(got.body.contains(says), "{got:?}");
    }
    door.close().await;
}

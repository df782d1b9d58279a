//! Headers that are not to pass, in either direction.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Door, answer};
use crate::support::native::config;
use crate::support::store::within;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_about_the_connection_or_ours_is_not_the_guests_to_set() {
    let door = Door::open(config(), "web").await;
    for name in [
        "connection",
        "transfer-encoding",
        "upgrade",
        "keep-alive",
        "host",
        "te",
        "trailer",
    ] {
        let got = door.get(&format!("/set?{name}=x")).await;
        assert_eq!(
            (got.status, &*got.body),
            (200, "Err(HeaderError::Forbidden)"),
            "{name}"
        );
        assert_ne!(got.header(name), Some("x"), "{name}");
    }
    let got = door.get("/set?quarry-shard=9").await;
    assert_eq!((got.status, got.header("quarry-shard")), (200, Some("0")));
    let got = door.get("/set?x-own=%20").await;
    assert_eq!((got.status, got.header("x-own")), (200, Some("%20")));
    let got = door.get("/set?x(y=a").await;
    assert_eq!(got.body, "Err(HeaderError::InvalidSyntax)");
    let got = door.get("/fields?64").await;
    assert_eq!((got.status, got.header("x-63")), (200, Some("v")));
    door.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_length_of_a_body_is_what_it_is() {
    let door = Door::open(config(), "web").await;
    // The guest says 7, and has no body.
    let got = door.get("/status?200").await;
    assert_eq!((got.header("content-length"), &*got.body), (Some("0"), ""));
    let head = answer(door.ask("HEAD", "/http/shard/0/status?200")).await;
    assert_eq!(
        (head.header("content-length"), &*head.body),
        (Some("7"), "")
    );
    for status in [204, 304] {
        let got = door.get(&format!("/status?{status}")).await;
        assert_eq!((got.status, &*got.body), (status, ""));
    }
    door.close().await;
}

/// As no proper client would write it.
#[tokio::test(flavor = "multi_thread")]
async fn raw_requests() {
    let door = Door::open(config(), "web").await;
    let at = door.server.local_addr();
    let ask = |head: String| async move {
        let mut stream = TcpStream::connect(at).await.expect("a connection");
        stream.write_all(head.as_bytes()).await.expect("sent");
        let mut all = Vec::new();
        within(stream.read_to_end(&mut all))
            .await
            .expect("an answer");
        String::from_utf8_lossy(&all).into_owned()
    };
    let named = "GET /http/shard/0/echo HTTP/1.1\r\nhost: localhost\r\nconnection: close, x-secret\r\nx-secret: 1\r\nte: trailers\r\nx-open: 1\r\n\r\n";
    let got = ask(named.into()).await;
    assert!(
        got.contains(r#"["x-open","1"]"#) && !got.contains("x-secret"),
        "{got}"
    );
    assert!(
        !got.contains(r#"["te""#) && !got.contains(r#"["connection""#),
        "{got}"
    );
    // HTTP/1.0 names no host, and chunks have no length.
    let got = ask("GET /http/shard/0/echo HTTP/1.0\r\n\r\n".into()).await;
    assert!(got.contains(r#""authority":"localhost""#), "{got}");
    let chunked = "POST /http/shard/0/echo HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    let got = ask(chunked.into()).await;
    assert!(
        got.contains(r#""body":"abcde""#)
            && got.contains(&json!(["content-length", "5"]).to_string()),
        "{got}"
    );
    for (name, head, status) in [
        ("too many", "x-a: b\r\n".repeat(65), "431"),
        (
            "too large",
            format!("x-a: {}\r\n", "b".repeat(17 << 10)),
            "431",
        ),
        (
            "twice",
            "quarry-shard: 0\r\nquarry-shard: 1\r\n".into(),
            "400",
        ),
        ("no text", "quarry-shard: \u{e9}\r\n".into(), "400"),
        ("another host", String::new(), "403"),
    ] {
        let host = if name == "another host" {
            "evil.example"
        } else {
            "localhost"
        };
        let request =
            format!("GET /http/a HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{head}\r\n");
        let got = ask(request).await;
        assert!(
            got.starts_with(&format!("HTTP/1.1 {status} ")),
            "{name}: {got}"
        );
    }
    door.close().await;
}

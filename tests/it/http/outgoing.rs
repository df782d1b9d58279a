//! Requests that guests make: to what is granted, within limits, and only once what they rest on is durable.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quarry::config::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::{Answer, Door, answer};
use crate::support::guests;
use crate::support::native::config;
use crate::support::store::{Held, within};

/// A server outside of the cluster, and how many requests it had, and how many heads of such.
pub struct Outside {
    at: SocketAddr,
    heads: watch::Receiver<usize>,
    had: watch::Receiver<usize>,
}

impl Outside {
    pub async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = listener.local_addr().expect("an address");
        let (head, heads) = watch::channel(0);
        let (count, had) = watch::channel(0);
        let counts = Arc::new((head, count));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, counts.clone()));
            }
        });
        Self { at, heads, had }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.at)
    }

    pub fn grant(&self) -> String {
        format!("http:127.0.0.1:{}", self.at.port())
    }
}

/// Answers one request: `/echo`, `/to?URL`, `/size?N`, `/fields?N`, `/never`, `/half`.
async fn serve(mut stream: TcpStream, counts: Arc<(watch::Sender<usize>, watch::Sender<usize>)>) {
    let mut got = Vec::new();
    let head = loop {
        let mut piece = [0; 4096];
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => return,
            Ok(read) => got.extend_from_slice(&piece[..read]),
        }
        if let Some(end) = got.windows(4).position(|at| at == b"\r\n\r\n") {
            break end + 4;
        }
    };
    counts.0.send_modify(|count| *count += 1);
    let text = String::from_utf8_lossy(&got[..head]).to_lowercase();
    let length = text
        .split("content-length: ")
        .nth(1)
        .and_then(|rest| rest.split("\r\n").next());
    let length: usize = length.map_or(0, |text| text.parse().expect("a length"));
    let chunked = text.contains("transfer-encoding: chunked");
    let whole = |got: &[u8]| match chunked {
        true => got[head..].ends_with(b"0\r\n\r\n"),
        false => got.len() >= head + length,
    };
    while !whole(&got) {
        let mut piece = [0; 65_536];
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => return,
            Ok(read) => got.extend_from_slice(&piece[..read]),
        }
    }
    counts.1.send_modify(|count| *count += 1);
    let target = text.split(' ').nth(1).expect("a target").to_owned();
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let number = query.parse().unwrap_or(0);
    let answer = match path {
        "/echo" => {
            let body = String::from_utf8_lossy(&got).into_owned();
            format!(
                "HTTP/1.1 200 OK\r\nx-own: 1\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )
        }
        "/to" => format!(
            "HTTP/1.1 302 Found\r\nlocation: {query}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        ),
        "/size" => format!(
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {number}\r\n\r\n{}",
            "x".repeat(number)
        ),
        "/fields" => format!(
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\nx-many: {}\r\n\r\n",
            "x".repeat(number)
        ),
        "/half" => "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf".into(),
        _ => {
            // Until the other side has enough of it.
            _ = stream.read(&mut [0; 1]).await;
            return;
        }
    };
    _ = stream.write_all(answer.as_bytes()).await;
    _ = stream.shutdown().await;
}

fn granted(grants: &[&str]) -> Config {
    let mut config = config();
    config.module.grants = grants.iter().map(ToString::to_string).collect();
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_granted_is_reached_and_nothing_follows_of_itself() {
    let (outside, other) = (Outside::open().await, Outside::open().await);
    let door = Door::open(granted(&[&outside.grant()]), "web").await;
    let got = door.get(&format!("/fetch?{}", outside.url("/echo"))).await;
    assert_eq!(got.status, 200, "{got:?}");
    let found = got.json();
    assert_eq!(found["status"], 200);
    assert!(
        found["headers"].to_string().contains(r#"["x-own","1"]"#),
        "{found}"
    );
    assert!(
        !found["headers"].to_string().contains("connection"),
        "{found}"
    );
    let sent = found["body"].as_str().expect("a body").to_lowercase();
    assert!(sent.starts_with("get /echo http/1.1\r\n"), "{sent}");
    assert!(
        sent.contains("x-from: web\r\n") && sent.contains(&format!("host: {}\r\n", outside.at)),
        "{sent}"
    );
    assert!(
        !sent.contains("transfer-encoding"),
        "an empty body is none: {sent}"
    );
    let got = door
        .post(
            &format!("/fetch?{}", outside.url("/echo")),
            "a".repeat(100_000),
        )
        .await;
    assert!(got.json()["bytes"].as_u64() > Some(100_000), "{got:?}");
    let there = format!(
        "/fetch?{}",
        outside.url(&format!("/to?{}", other.url("/echo")))
    );
    let found = door.get(&there).await.json();
    assert_eq!(found["status"], 302);
    assert!(
        found["headers"].to_string().contains(&other.url("/echo")),
        "{found}"
    );
    assert_eq!((*outside.had.borrow(), *other.had.borrow()), (3, 0));
    door.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_granted_is_denied_and_told_how() {
    let (outside, other) = (Outside::open().await, Outside::open().await);
    let some = granted(&[&outside.grant(), "http:api.example.com"]);
    for config in [granted(&[]), some] {
        let door = Door::open(config, "web").await;
        let port = other.at.port();
        for (url, says) in [
            (
                other.url("/echo"),
                format!("--grant http:127.0.0.1:{port}`"),
            ),
            (
                format!("http://localhost:{port}/"),
                format!("HTTP to localhost:{port} is not granted to module `web`"),
            ),
            ("http://127.0.0.1/".into(), "--grant http:127.0.0.1`".into()),
            (
                "https://example.com/".into(),
                "--grant http:example.com`".into(),
            ),
            (
                "http://api.example.com:8080/".into(),
                "--grant http:api.example.com:8080`".into(),
            ),
            (
                "http://a:b@api.example.com/".into(),
                "a user or a password".into(),
            ),
        ] {
            let got = door.get(&format!("/fetch?{url}")).await;
            assert_eq!(got.status, 502, "{url}: {got:?}");
            assert!(
                got.body.contains("InternalError") && got.body.contains(&says),
                "{url}: {got:?}"
            );
        }
        door.close().await;
    }
    assert_eq!(*other.had.borrow(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_bound_names_its_setting() {
    let outside = Outside::open().await;
    let mut config = granted(&[&outside.grant()]);
    config.limits.http_requests = 2;
    config.limits.http_request_body = 10_000;
    config.limits.http_response_body = 20_000;
    config.limits.http_headers = 4_096;
    let door = Door::open(config, "web").await;
    let fetch = |path: &str| format!("/fetch?{}", outside.url(path));
    assert_eq!(
        door.get(&fetch("/size?20000")).await.json()["bytes"],
        20_000
    );
    let echoed = door.post(&fetch("/echo"), "x".repeat(10_000)).await;
    assert_eq!(echoed.json()["status"], 200);
    for (got, says) in [
        (
            door.get(&fetch("/size?20001")).await,
            "limits.http_response_body (20000 bytes)",
        ),
        (
            door.post(&fetch("/echo"), "x".repeat(10_001)).await,
            "limits.http_request_body (10000 bytes)",
        ),
        (
            door.get(&fetch("/fields?5000")).await,
            "limits.http_headers (4096)",
        ),
    ] {
        assert_eq!(got.status, 502, "{says}: {got:?}");
        assert!(got.body.contains(says), "{says}: {got:?}");
    }
    let got = door
        .get(&format!("/together?3%20{}", outside.url("/echo")))
        .await;
    let ended: Vec<String> = serde_json::from_value(got.json()).expect("a list");
    assert_eq!(ended[..2], ["200", "200"]);
    assert!(ended[2].contains("limits.http_requests"), "{ended:?}");
    // What was open is not any more.
    for _ in 0..5 {
        assert_eq!(door.get(&fetch("/echo")).await.json()["status"], 200);
    }
    door.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_slow_or_gone_holds_up_nobody_for_longer_than_the_call() {
    let outside = Outside::open().await;
    let gone = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port")
        .local_addr()
        .expect("an address");
    let gone_grant = format!("http:127.0.0.1:{}", gone.port());
    let door = Door::open(granted(&[&outside.grant(), &gone_grant]), "web").await;
    let got = door.get(&format!("/fetch?http://{gone}/")).await;
    assert!(got.body.contains("ConnectionRefused"), "{got:?}");
    let got = door.get(&format!("/fetch?{}", outside.url("/half"))).await;
    assert_eq!(got.status, 502, "{got:?}");
    let path = format!("/http/shard/0/fetch?{}", outside.url("/never"));
    let got = answer(door.ask("GET", &path).header("quarry-timeout", "300ms")).await;
    ended_in_time(&got);
    assert_eq!(
        door.post("/count", "").await.body,
        "1",
        "the same instance goes on"
    );
    door.close().await;
}

/// The guest and its caller have the same deadline, and either may be told first.
fn ended_in_time(got: &Answer) {
    match got.status {
        504 => assert_eq!(got.code(), "timeout"),
        502 => assert!(got.body.contains("HttpResponseTimeout"), "{got:?}"),
        other => panic!("{other}: {got:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_leaves_once_what_was_written_before_is_durable() {
    let outside = Outside::open().await;
    let held = Held::new();
    let cluster = guests::start_on(held.store(), granted(&[&outside.grant()]), "web").await;
    let door = Arc::new(Door::of(cluster).await);
    assert_eq!(door.post("/count", "").await.body, "1");
    // In the second the head of the request may leave, and the body that was made later may not.
    for (path, had, heads) in [("/fetch-put", 0, 0), ("/fetch-late", 1, 2)] {
        held.hold();
        let path = format!("{path}?{}", outside.url("/echo"));
        let asking = tokio::spawn({
            let door = door.clone();
            async move { door.get(&path).await }
        });
        within(held.someone_waits()).await;
        let mut seen = outside.heads.clone();
        let seen = *within(seen.wait_for(|seen| *seen >= heads))
            .await
            .expect("the server is there");
        assert_eq!(seen, heads);
        // Others of the same thread come and go meanwhile.
        for _ in 0..20 {
            answer(door.ask("GET", "/http/shard/1/count")).await;
        }
        assert_eq!(
            *outside.had.borrow(),
            had,
            "it shows a write that is not durable"
        );
        held.release();
        let got = within(asking).await.expect("an answer");
        assert_eq!(got.json()["status"], 200);
        assert_eq!(*outside.had.borrow(), had + 1);
    }
    Arc::into_inner(door).expect("the last").close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_asks_and_does_not_tell() {
    let outside = Outside::open().await;
    let door = Door::open(granted(&[&outside.grant()]), "web").await;
    let query = |method: &str| {
        let path = format!("/v1/query/{method}?shard=0");
        answer(door.ask("POST", &path).body(outside.url("/echo")))
    };
    let got = query("fetch").await;
    assert_eq!((got.status, &got.json()["status"]), (200, &200.into()));
    let got = query("post").await;
    assert_eq!((got.status, &*got.code()), (422, "fetch-failed"));
    assert!(
        got.body.contains("GET and HEAD") && got.body.contains("make it a call"),
        "{got:?}"
    );
    assert_eq!(*outside.had.borrow(), 1);
    door.close().await;
}

/// A server that takes its time is waited for without the shard's thread.
#[tokio::test(flavor = "multi_thread")]
async fn other_shards_of_the_thread_go_on() {
    let outside = Outside::open().await;
    let door = Arc::new(Door::open(granted(&[&outside.grant()]), "web").await);
    let path = format!("/http/shard/0/fetch?{}", outside.url("/never"));
    let waiting = tokio::spawn({
        let door = door.clone();
        async move { answer(door.ask("GET", &path).header("quarry-timeout", "2s")).await }
    });
    let mut had = outside.had.clone();
    within(had.wait_for(|had| *had == 1))
        .await
        .expect("the server is there");
    let begun = std::time::Instant::now();
    for n in 1..=20 {
        let got = answer(door.ask("POST", "/http/shard/1/count")).await;
        assert_eq!(got.body, n.to_string());
    }
    assert!(!waiting.is_finished() || begun.elapsed() > Duration::from_secs(1));
    ended_in_time(&within(waiting).await.expect("an answer"));
    Arc::into_inner(door).expect("the last").close().await;
}

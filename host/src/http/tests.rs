//! A node over HTTP, from its socket: native logic on a store in memory.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::*;
use crate::client::{self, Client};
use crate::guest::native::{self, Logic};
use crate::guest::{GuestError, InstanceContext, Reply, Request};

mod bodies;
mod deployments;
mod ends;

/// Longest that a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a slow call of a test tells, and waits for.
#[derive(Default)]
struct Signals {
    began: Notify,
    go: Notify,
    ended: Notify,
}

struct Testing(Arc<Signals>);

#[async_trait]
impl Logic for Testing {
    async fn call(
        &mut self,
        context: &InstanceContext,
        request: &Request,
    ) -> Result<Reply, GuestError> {
        match request.method.as_str() {
            "echo" => Ok(Reply::new(request.payload.clone())),
            "put" => {
                let key = request
                    .key
                    .clone()
                    .ok_or_else(|| GuestError::new("invalid-key", "give a key"))?;
                context.db.put(key, request.payload.clone()).await?;
                Ok(Reply {
                    content_type: Some("text/plain".into()),
                    ..Reply::new("stored")
                })
            }
            "headers" => {
                let text: Vec<_> = request
                    .headers
                    .iter()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect();
                Ok(Reply::new(text.join("\n")))
            }
            "refuse" => Err(GuestError::new("insufficient-funds", "no money")),
            "panic" => panic!("on purpose"),
            "slow" => {
                self.0.began.notify_one();
                self.0.go.notified().await;
                self.0.ended.notify_one();
                Ok(Reply::new("done"))
            }
            other => Err(GuestError::new(
                "unknown-method",
                format!("there is no method `{other}`"),
            )),
        }
    }
}

struct Node {
    cluster: Cluster,
    server: HttpServer,
    signals: Arc<Signals>,
}

impl Node {
    async fn start(change: impl FnOnce(&mut HttpOptions)) -> Self {
        let config = Config {
            shards: 2,
            probe: crate::config::Probe::Off,
            ..Config::default()
        };
        let mut options = HttpOptions {
            listen: "127.0.0.1:0".parse().expect("address"),
            ..HttpOptions::from(&config)
        };
        change(&mut options);
        let signals = Arc::<Signals>::default();
        let given = signals.clone();
        let module = native::module("main", 1, move |_| Testing(given.clone()));
        let cluster = Cluster::start(Arc::new(config), module)
            .await
            .expect("a cluster in memory starts");
        let server = HttpServer::bind(options, cluster.clone(), &Handle::current())
            .await
            .expect("a free port");
        Self {
            cluster,
            server,
            signals,
        }
    }

    fn client(&self) -> Client {
        Client::new(&format!("http://{}", self.server.local_addr())).expect("client")
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.server.local_addr())
            .await
            .expect("connected")
    }

    /// Sends bytes on a connection of their own, and returns all that comes until the node closes it.
    async fn raw(&self, request: &[u8]) -> String {
        let mut stream = self.connect().await;
        stream.write_all(request).await.expect("sent");
        rest(&mut stream).await
    }

    /// A request that asks for the end of its connection.
    async fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String, Value) {
        let length = body.len();
        let answer = self.raw(format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}").as_bytes()).await;
        let (head, body) = answer
            .split_once("\r\n\r\n")
            .unwrap_or_else(|| panic!("{method} {path}: {answer}"));
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .expect("a status");
        (
            status,
            head.to_lowercase(),
            serde_json::from_str(body).unwrap_or(Value::String(body.into())),
        )
    }

    async fn stop(self) {
        assert!(
            self.server.stop(PATIENCE).await,
            "a request was still in progress"
        );
        self.cluster.stop().await;
    }
}

async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A node that refuses a body closes without reading it, and the system may then reset the connection.
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes))
        .await
        .expect("the node closes the connection");
    assert!(read.is_ok() || !bytes.is_empty(), "{read:?}");
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("in time")
}

#[tokio::test]
async fn calls_carry_raw_bytes_and_say_where_they_ran() {
    let node = Node::start(|_| {}).await;
    let client = node.client();
    let call = |method: &str, payload: &[u8]| client::Call {
        method: method.into(),
        target: crate::call::Target::key("a/b c+\u{fc}"),
        payload: payload.to_vec().into(),
        timeout: None,
        revision: None,
        headers: vec![
            ("x-user".into(), "ann".into()),
            ("authorization".into(), "secret".into()),
        ],
    };
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let reply = client
        .call(call("echo", &bytes), None)
        .await
        .expect("a reply");
    assert_eq!(reply.payload, bytes);
    assert_eq!(
        reply.header("content-type"),
        Some("application/octet-stream")
    );
    let stored = client
        .call(call("put", b"v"), Some(crate::call::Durability::Durable))
        .await
        .expect("a reply");
    let shard = node.cluster.shard_for("a/b c+\u{fc}".as_bytes());
    assert_eq!(stored.payload, "stored");
    assert_eq!(stored.header("content-type"), Some("text/plain"));
    assert_eq!(
        stored.header("quarry-shard"),
        Some(shard.to_string().as_str())
    );
    assert_eq!(stored.header("quarry-revision"), Some("1"));
    assert_eq!(stored.header("quarry-node"), Some(&**node.cluster.node()));
    let seq: u64 = stored
        .header("quarry-seq")
        .and_then(|seq| seq.parse().ok())
        .expect("a seq");
    let durable = client
        .get(&format!("/v1/shards/{shard}/durable-seq"))
        .await
        .expect("durable seq");
    assert!(
        durable["durable_seq"]
            .as_u64()
            .is_some_and(|durable| durable >= seq),
        "{durable} and {seq}"
    );
    let headers = client
        .call(call("headers", b""), None)
        .await
        .expect("a reply")
        .payload;
    let headers = String::from_utf8_lossy(&headers).into_owned();
    assert!(
        headers.contains("x-user=ann") && !headers.contains("secret"),
        "{headers}"
    );
    let refused = client
        .call(call("refuse", b""), None)
        .await
        .expect_err("the guest refuses");
    assert_eq!(refused.code(), "insufficient-funds");
    let trapped = client
        .call(call("panic", b""), None)
        .await
        .expect_err("the guest fails");
    assert_eq!(trapped.code(), "guest-trap");
    assert!(trapped.to_string().contains("on purpose"), "{trapped}");
    node.stop().await;
}

#[tokio::test]
async fn http2_with_prior_knowledge_is_served_too() {
    let node = Node::start(|_| {}).await;
    let http = reqwest::Client::builder()
        .http2_prior_knowledge()
        .build()
        .expect("client");
    let url = format!("http://{}/v1/call/echo?shard=1", node.server.local_addr());
    let calls = (0..20).map(|n| http.post(&url).body(n.to_string()).send());
    for (n, response) in futures::future::join_all(calls)
        .await
        .into_iter()
        .enumerate()
    {
        let response = response.expect("a response");
        assert_eq!(response.version(), ::http::Version::HTTP_2);
        assert_eq!(response.text().await.expect("text"), n.to_string());
    }
    drop(http);
    node.stop().await;
}

#[tokio::test]
async fn every_bad_request_gets_a_problem_that_names_it() {
    let node = Node::start(|options| options.max_body = 1000).await;
    let long = "m".repeat(129);
    for (method, path, body, status, code, part) in [
        (
            "POST",
            "/v1/call/echo",
            "",
            400,
            "invalid-request",
            "`key`, `key_base64` or `shard` is missing",
        ),
        (
            "POST",
            "/v1/call/echo?key=a&shard=1",
            "",
            400,
            "invalid-request",
            "only one of",
        ),
        (
            "POST",
            "/v1/call/echo?shard=2",
            "",
            400,
            "invalid-request",
            "shard 2",
        ),
        (
            "POST",
            "/v1/call/echo?shard=1&tiemout=1s",
            "",
            400,
            "invalid-request",
            "no parameter `tiemout`; valid are",
        ),
        (
            "POST",
            "/v1/call/echo?shard=1&timeout=1",
            "",
            400,
            "invalid-request",
            "is not a duration",
        ),
        (
            "POST",
            &format!("/v1/call/{long}?shard=1"),
            "",
            400,
            "invalid-request",
            "129 bytes; at most 128",
        ),
        (
            "POST",
            "/v1/call/?shard=1",
            "",
            400,
            "invalid-request",
            "no method",
        ),
        (
            "POST",
            "/v1/call/none?shard=1",
            "",
            404,
            "unknown-method",
            "no method `none`",
        ),
        (
            "POST",
            "/v1/query/none?shard=1",
            "",
            404,
            "unknown-method",
            "no query `none`",
        ),
        (
            "POST",
            "/v1/query/none?shard=1&durability=durable",
            "",
            400,
            "invalid-request",
            "no parameter `durability`",
        ),
        (
            "POST",
            "/v1/call/echo?shard=1",
            &"b".repeat(1001),
            413,
            "body-too-large",
            "larger than 1000B (`http.max_body`)",
        ),
        (
            "GET",
            "/v1/call/echo?shard=1",
            "",
            405,
            "method-not-allowed",
            "it answers POST, OPTIONS",
        ),
        (
            "DELETE",
            "/v1/status",
            "",
            405,
            "method-not-allowed",
            "it answers GET, HEAD, OPTIONS",
        ),
        (
            "GET",
            "/v1/nothing",
            "",
            404,
            "not-found",
            "no route /v1/nothing; GET / lists the routes",
        ),
        (
            "GET",
            "/v1/shards/9",
            "",
            400,
            "invalid-request",
            "no shard 9",
        ),
        (
            "GET",
            "/v1/shards/x",
            "",
            400,
            "invalid-request",
            "`x` is not the number of a shard",
        ),
        (
            "GET",
            "/v1/lookup",
            "",
            400,
            "invalid-request",
            "is missing",
        ),
        (
            "GET",
            "/v1/shards/0/durable",
            "",
            400,
            "invalid-request",
            "`seq` is missing",
        ),
        (
            "GET",
            "/health?x=1",
            "",
            400,
            "invalid-request",
            "this route has none",
        ),
    ] {
        let (got, head, problem) = node.ask(method, path, body).await;
        assert_eq!(got, status, "{method} {path}: {problem}");
        assert!(
            head.contains("content-type: application/problem+json"),
            "{head}"
        );
        assert_eq!(head.contains("allow: "), status == 405, "{head}");
        assert_eq!(problem["code"], code, "{path}");
        assert_eq!(problem["status"], status, "{path}");
        let detail = problem["detail"].as_str().expect("a detail");
        assert!(detail.contains(part), "{path}: {detail}");
    }
    node.stop().await;
}

#[tokio::test]
async fn views_answer() {
    let node = Node::start(|_| {}).await;
    let client = node.client();
    let index = client.get("/").await.expect("index");
    assert_eq!(index["routes"].as_array().map(Vec::len), Some(ROUTES.len()));
    assert_eq!(client.get("/health").await.expect("health")["status"], "ok");
    assert_eq!(client.get("/ready").await.expect("ready")["ready"], true);
    assert_eq!(
        client.get("/openapi.json").await.expect("document")["openapi"],
        "3.1.0"
    );
    let status = client.status().await.expect("status");
    assert_eq!(
        (
            &status["ready"],
            status["shards"].as_object().map(|shards| shards.len())
        ),
        (&true.into(), Some(2))
    );
    assert_eq!(
        client.get("/v1/assignments").await.expect("assignments")["local_shards"],
        serde_json::json!([0, 1])
    );
    let found = client.get("/v1/lookup?key=a").await.expect("lookup");
    assert_eq!(
        found,
        serde_json::json!({"shard": node.cluster.shard_for(b"a"), "location": "local"})
    );
    assert_eq!(
        client.get("/v1/shards/1").await.expect("shard")["status"],
        "running"
    );
    let seq = node.cluster.durable_seq(0).await.expect("open");
    let durable = client
        .get(&format!("/v1/shards/0/durable?seq={seq}"))
        .await
        .expect("durable");
    assert_eq!(
        durable,
        serde_json::json!({"shard": 0, "seq": seq, "durable": true})
    );
    let (status, _, shard) = node.ask("POST", "/v1/shards/1/restart", "").await;
    assert_eq!((status, &shard["shard"]), (200, &1.into()), "{shard}");
    let (status, head, text) = node.ask("GET", "/metrics", "").await;
    assert_eq!(status, 200);
    assert!(
        head.contains("content-type: text/plain; version=0.0.4"),
        "{head}"
    );
    assert!(
        text.as_str().is_some_and(
            |text| text.contains(r#"quarry_http_requests_total{route="/health",status="200"}"#)
        ),
        "{text}"
    );
    let (status, head, body) = node.ask("HEAD", "/health", "").await;
    assert_eq!((status, body), (200, Value::String(String::new())));
    assert!(!head.contains("content-length: 0"), "{head}");
    let (status, head, _) = node.ask("OPTIONS", "/v1/call/echo", "").await;
    assert_eq!(status, 204);
    assert!(head.contains("allow: post, options"), "{head}");
    node.stop().await;
}

#[tokio::test]
async fn a_name_that_is_not_the_nodes_is_refused() {
    let node = Node::start(|options| options.hosts = vec!["api.example.com".into()]).await;
    for (host, status) in [
        ("evil.example", 403),
        ("api.example.com", 200),
        ("127.0.0.1:7070", 200),
    ] {
        let request = format!(
            "POST /v1/call/echo?key=a HTTP/1.1\r\nhost: {host}\r\norigin: http://{host}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        );
        let answer = node.raw(request.as_bytes()).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{host}: {answer}"
        );
        assert_eq!(
            answer.contains("application/problem+json") && answer.contains("forbidden-host"),
            status == 403,
            "{host}: {answer}"
        );
    }
    node.stop().await;
}

//! How connections end: stops, cuts, and what a client must not hold on to.

use super::*;

#[tokio::test]
async fn a_node_that_stops_is_not_ready_and_finishes_what_it_began() {
    let node = Node::start(|_| {}).await;
    // It was answered, and is kept for the next request.
    let mut served = node.connect().await;
    served
        .write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .expect("sent");
    let mut first = [0; 15];
    soon(served.read_exact(&mut first))
        .await
        .expect("an answer");
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    node.server.announce_stop();
    let (status, head, problem) = node.ask("GET", "/ready", "").await;
    assert_eq!(
        (status, &problem["detail"]),
        (503, &"this node is stopping".into())
    );
    assert!(head.contains("retry-after: 1"), "{head}");
    assert!(head.contains("connection: close"), "{head}");

    // It answered, and so its connection ends.
    let mut kept = node.connect().await;
    kept.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .expect("sent");
    assert!(rest(&mut kept).await.starts_with("HTTP/1.1 200"));
    let mut idle = node.connect().await;
    let mut busy = node.connect().await;
    busy.write_all(b"POST /v1/call/slow?shard=0 HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .expect("sent");
    soon(node.signals.began.notified()).await;
    let address = node.server.local_addr();
    let stopping = tokio::spawn(node.server.stop(PATIENCE));
    rest(&mut idle).await;
    let left = rest(&mut served).await;
    assert!(
        !left.contains("connection: close"),
        "it came before: {left}"
    );
    node.signals.go.notify_one();
    let answer = rest(&mut busy).await;
    assert!(
        answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("done"),
        "{answer}"
    );
    assert!(answer.contains("connection: close"), "{answer}");
    assert!(stopping.await.expect("stopped"), "everything finished");
    assert!(
        TcpStream::connect(address).await.is_err(),
        "nobody listens any more"
    );
    node.cluster.stop().await;
}

#[tokio::test]
async fn a_stop_cuts_what_does_not_finish() {
    let node = Node::start(|_| {}).await;
    let mut busy = node.connect().await;
    busy.write_all(b"POST /v1/call/slow?shard=0 HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .expect("sent");
    soon(node.signals.began.notified()).await;
    assert!(
        !soon(node.server.stop(Duration::ZERO)).await,
        "a request was in progress"
    );
    assert_eq!(busy.read(&mut [0; 16]).await.unwrap_or(0), 0);
    node.signals.go.notify_one();
    node.cluster.stop().await;
}

#[tokio::test]
async fn a_cut_connection_does_not_stop_its_call() {
    let node = Node::start(|options| options.max_connections = 1).await;
    let mut stream = node.connect().await;
    stream
        .write_all(b"POST /v1/call/slow?shard=0 HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .expect("sent");
    soon(node.signals.began.notified()).await;
    drop(stream);
    // With room for one connection, the next is served once the node has dropped the cut one.
    assert_eq!(node.ask("GET", "/health", "").await.0, 200);
    node.signals.go.notify_one();
    soon(node.signals.ended.notified()).await;
    let (status, _, body) = node.ask("POST", "/v1/call/echo?shard=0", "next").await;
    assert_eq!(
        (status, body),
        (200, Value::String("next".into())),
        "the shard goes on"
    );
    node.stop().await;
}

#[tokio::test]
async fn who_sends_slowly_does_not_hold_a_connection() {
    let node = Node::start(|options| {
        options.header_timeout = Duration::from_millis(200);
        options.idle_timeout = Duration::from_millis(400);
    })
    .await;
    // Nothing at all, half of the headers, half of the next request's headers, no next request.
    let mut silent = node.connect().await;
    assert_eq!(rest(&mut silent).await, "");
    let half = node.raw(b"GET /health HTTP/1.1\r\nhost").await;
    assert_eq!(half, "");
    let next = node
        .raw(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\nGET /")
        .await;
    assert!(next.starts_with("HTTP/1.1 200 OK"), "{next}");
    let idle = node
        .raw(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await;
    assert!(idle.starts_with("HTTP/1.1 200 OK"), "{idle}");
    // A body has the request's own time.
    let body = node.raw(b"POST /v1/call/echo?shard=0&timeout=300ms HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\nhalf").await;
    assert!(
        body.starts_with("HTTP/1.1 408") && body.contains("did not arrive within 300ms"),
        "{body}"
    );
    node.stop().await;
}

#[tokio::test]
async fn limits_of_requests_and_connections() {
    let node = Node::start(|options| {
        (options.max_header, options.max_uri) = (8192, 8192);
        options.max_connections = 1;
    })
    .await;
    let header = format!(
        "GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-long: {}\r\n\r\n",
        "v".repeat(9000)
    );
    let answer = node.raw(header.as_bytes()).await;
    assert!(
        answer.starts_with("HTTP/1.1 431") && answer.contains("`http.max_header`"),
        "{answer}"
    );
    let path = format!(
        "GET /health?{} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
        "q".repeat(9000)
    );
    let answer = node.raw(path.as_bytes()).await;
    assert!(
        answer.starts_with("HTTP/1.1 414") && answer.contains("`http.max_uri`"),
        "{answer}"
    );
    let answer = node
        .raw(
            format!(
                "GET /health HTTP/1.1\r\nhost: localhost\r\nx-huge: {}\r\n\r\n",
                "v".repeat(200_000)
            )
            .as_bytes(),
        )
        .await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    let answer = node.raw(b"nonsense\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");

    // A second connection waits until the first has ended.
    let mut first = node.connect().await;
    first
        .write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .expect("sent");
    soon(first.readable()).await.expect("an answer");
    let mut second = node.connect().await;
    second
        .write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .await
        .expect("sent");
    let mut byte = [0];
    let early = tokio::time::timeout(Duration::from_millis(100), second.read(&mut byte)).await;
    assert!(
        early.is_err(),
        "the second connection was served beside the first"
    );
    drop(first);
    let answer = rest(&mut second).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    node.stop().await;
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let node = Node::start(|_| {}).await;
    let address = node.server.local_addr();
    let options = HttpOptions {
        listen: address,
        ..HttpOptions::from(node.cluster.config())
    };
    let error = HttpServer::bind(options, node.cluster.clone(), &Handle::current())
        .await
        .expect_err("in use");
    assert!(matches!(error, Error::InUse { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains(&address.to_string()) && text.contains("--listen"),
        "{text}"
    );
    node.stop().await;
}

#[tokio::test]
async fn bodies_have_a_bound_together_and_pages_of_others_are_refused() {
    let node = Node::start(|options| options.max_bodies = 10).await;
    let (status, _, _) = node
        .ask("POST", "/v1/call/echo?shard=0", "0123456789")
        .await;
    assert_eq!(status, 200);
    // Held by a request whose body is complete and one whose is not, both in progress.
    let mut slow = node.connect().await;
    slow.write_all(
        b"POST /v1/call/slow?shard=0 HTTP/1.1\r\nhost: localhost\r\ncontent-length: 6\r\n\r\n012345",
    )
    .await
    .expect("sent");
    soon(node.signals.began.notified()).await;
    let (status, head, problem) = node.ask("POST", "/v1/call/echo?shard=1", "01234").await;
    assert_eq!((status, &problem["code"]), (429, &"overloaded".into()));
    assert!(head.contains("retry-after: 1"), "{head}");
    let (status, _, _) = node.ask("POST", "/v1/call/echo?shard=1", "0123").await;
    assert_eq!(status, 200, "what is refused gives back what it took");
    node.signals.go.notify_one();
    soon(slow.readable()).await.expect("an answer");
    drop(slow);

    let answer = node
        .raw(b"POST /v1/call/echo?shard=0 HTTP/1.1\r\nhost: localhost\r\norigin: https://evil.example\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        .await;
    assert!(
        answer.starts_with("HTTP/1.1 403") && answer.contains("forbidden-origin"),
        "{answer}"
    );
    node.stop().await;
}

#[tokio::test]
async fn a_reserved_address_is_nobody_elses() {
    let first = Reserved::new("127.0.0.1:0".parse().expect("address")).expect("a free port");
    let address = first.listener.local_addr().expect("an address");
    let error = Reserved::new(address).expect_err("it is taken");
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    drop(first);
    Reserved::new(address).expect("free again");
}

/// Longer than headers may be together: routing keys lie in the path.
#[tokio::test]
async fn a_long_key_fits_the_path() {
    let node = Node::start(|_| {}).await;
    let path = |bytes: usize| {
        let start = "/v1/call/echo?key=";
        format!("{start}{}", "k".repeat(bytes - start.len()))
    };
    let (status, _, problem) = node.ask("POST", &path(65_000), "").await;
    assert_eq!(status, 200, "{problem}");
    let (status, ..) = node.ask("POST", &path(65_600), "").await;
    assert_eq!(status, 414);
    node.stop().await;
}

//! Two ends over a socket, and everything that may come to the door of the listener.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ::http::{Request as HttpRequest, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Handle;

use super::auth::{self, Challenge, End, Hello, PROTOCOL, Proof, Unfit};
use super::server::{ASK, CALL, HELLO, Listener, PROVE, Server};
use super::*;
use crate::clock;

const LONG: Duration = Duration::from_secs(20);

/// A service that answers with what it was asked.
#[derive(Default)]
struct Echo {
    runs: AtomicU64,
    refuse: Mutex<Option<NotOwner>>,
    /// Calls wait here while it is held.
    gate: tokio::sync::RwLock<()>,
}

#[async_trait]
impl Service for Echo {
    async fn run(&self, forward: Forward) -> Result<Answer, NotOwner> {
        if let Some(refused) = self.refuse.lock().expect("no panic").clone() {
            return Err(refused);
        }
        self.runs.fetch_add(1, Ordering::AcqRel);
        let _open = self.gate.read().await;
        if forward.request.method == "fail" {
            return Ok(Err(CallError::host(CallErrorKind::Quarantined, "no").at(3)));
        }
        Ok(Ok(CallReply {
            payload: forward.request.payload,
            content_type: forward
                .request
                .headers
                .first()
                .map(|(_, value)| value.clone()),
            shard: forward.shard,
            seq: forward.generation,
            revision: 1,
            node: "b".into(),
            http: None,
        }))
    }

    async fn answer(&self, ask: Ask) -> Told {
        match ask {
            Ask::DurableSeq { shard } => Told::Seq { seq: shard.into() },
            Ask::Place { .. } => {
                let _open = self.gate.read().await;
                Told::Done
            }
            _ => Told::Done,
        }
    }
}

fn identity(node: &str, secret: &str) -> Arc<Identity> {
    let session = auth::random();
    identity_of(node, secret, move || session.clone())
}

fn identity_of(
    node: &str,
    secret: &str,
    session: impl Fn() -> String + Send + Sync + 'static,
) -> Arc<Identity> {
    Arc::new(Identity {
        cluster: "c".into(),
        shards: 16,
        node: node.into(),
        session: Box::new(session),
        secret: Secret::new(secret.as_bytes()),
    })
}

fn limits() -> Limits {
    let mut limits = Limits::from(&crate::config::Config::default());
    limits.payload = 1 << 20;
    limits.payloads = 3 << 20;
    limits
}

/// A node `b` that listens, and what reaches it.
struct Rig {
    service: Arc<Echo>,
    at: Arc<Identity>,
    to: Destination,
    _server: Server,
}

impl Rig {
    async fn start() -> Self {
        let (service, at) = (Arc::new(Echo::default()), identity("b", "s"));
        let listener = Listener::bind("127.0.0.1:0".parse().expect("an address")).expect("bound");
        let to = Destination {
            node: "b".into(),
            session: at.party().session,
            address: listener.local_addr().to_string(),
        };
        let weak: Weak<dyn Service> = Arc::downgrade(&(service.clone() as Arc<dyn Service>));
        let server = listener
            .serve(at.clone(), weak, limits(), &Handle::current())
            .await
            .expect("listening");
        Self {
            service,
            at,
            to,
            _server: server,
        }
    }

    fn runs(&self) -> u64 {
        self.service.runs.load(Ordering::Acquire)
    }
}

fn client(identity: &Arc<Identity>) -> Http2 {
    Http2::new(identity.clone(), limits(), Handle::current())
}

fn forward(payload: impl Into<Bytes>) -> Forward {
    Forward {
        shard: 3,
        generation: 8,
        run: How::Call(None).into(),
        request: Request {
            method: "put".into(),
            key: Some("k".into()),
            payload: payload.into(),
            headers: vec![("x-type".into(), "text/plain".into())],
            deadline: clock::now() + LONG,
            chain: Vec::new(),
            http: None,
        },
    }
}

/// A connection that has proved nothing.
async fn raw(to: &Destination) -> SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(&to.address).await.expect("connected");
    let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (sender, connection) = builder
        .handshake(TokioIo::new(stream))
        .await
        .expect("HTTP/2");
    tokio::spawn(connection);
    sender
}

async fn post(
    sender: &mut SendRequest<Full<Bytes>>,
    path: &str,
    body: impl Into<Bytes>,
) -> Result<(StatusCode, Bytes), hyper::Error> {
    let request = HttpRequest::post(format!("http://node{path}"))
        .header("x-forwarded-for", "10.0.0.1")
        .header("quarry-node", "b")
        .header("quarry-forwarded", "1")
        .header("authorization", "Bearer s")
        .body(Full::new(body.into()))
        .expect("a request");
    let response = sender.send_request(request).await?;
    let status = response.status();
    Ok((status, response.into_body().collect().await?.to_bytes()))
}

fn hello(from: &Identity, to: &Destination) -> Hello {
    Hello {
        protocol: PROTOCOL,
        cluster: from.cluster.clone(),
        shards: from.shards,
        from: from.party(),
        to: Party {
            name: to.node.clone(),
            session: to.session.clone(),
        },
        nonce: auth::random(),
    }
}

fn json(value: &impl serde::Serialize) -> Bytes {
    serde_json::to_vec(value).expect("JSON").into()
}

#[tokio::test]
async fn calls_and_questions_get_through_on_connections_that_are_reused() {
    let rig = Rig::start().await;
    let http = client(&identity("a", "s"));
    for size in [0, 10, 100 << 10, 1 << 20] {
        let sent = forward(vec![7; size]);
        let reply = http.call(&rig.to, sent).await.expect("sent").expect("ran");
        assert_eq!(reply.payload.len(), size);
        assert_eq!((reply.shard, reply.seq, &*reply.node), (3, 8, "b"));
        assert_eq!(reply.content_type.as_deref(), Some("text/plain"));
    }
    let told = http.ask(&rig.to, Ask::DurableSeq { shard: 5 }, LONG).await;
    assert_eq!(told, Ok(Told::Seq { seq: 5 }));
    let many = (0..200).map(|_| http.call(&rig.to, forward("x")));
    for answer in futures::future::join_all(many).await {
        answer.expect("sent").expect("ran");
    }
    // One for calls, one for questions.
    assert_eq!((rig.runs(), http.connected()), (204, 2));
}

#[tokio::test]
async fn refusals_and_errors_come_as_they_were_given() {
    let rig = Rig::start().await;
    let http = client(&identity("a", "s"));
    let mut failing = forward("x");
    failing.request.method = "fail".into();
    let error = http.call(&rig.to, failing).await.expect("sent");
    let error = error.expect_err("it fails");
    assert_eq!(
        (error.kind, error.shard, &*error.message),
        (CallErrorKind::Quarantined, Some(3), "no")
    );
    let refused = NotOwner {
        generation: 12,
        owner: Some(rig.to.clone()),
    };
    *rig.service.refuse.lock().expect("no panic") = Some(refused.clone());
    let answer = http.call(&rig.to, forward("x")).await;
    assert_eq!(answer.expect_err("refused"), Failure::NotOwner(refused));
}

#[tokio::test]
async fn a_payload_over_the_owners_limit_is_refused_and_nothing_runs() {
    let rig = Rig::start().await;
    let http = client(&identity("a", "s"));
    let large = forward(vec![7; 4 << 20]);
    let error = http.call(&rig.to, large).await.expect("sent");
    let error = error.expect_err("too large");
    assert_eq!(error.kind, CallErrorKind::Invalid);
    assert!(error.message.contains("1MiB"), "{}", error.message);
    // Together they are bounded too: these are held while their calls wait.
    let closed = rig.service.gate.write().await;
    let many = (0..6).map(|_| http.call(&rig.to, forward(vec![7; 1 << 20])));
    let mut many: futures::stream::FuturesUnordered<_> = many.collect();
    let overloaded = futures::StreamExt::next(&mut many).await.expect("one");
    let error = overloaded.expect("sent").expect_err("no room");
    assert_eq!(error.kind, CallErrorKind::Overloaded);
    drop(closed);
    while let Some(answer) = futures::StreamExt::next(&mut many).await {
        if let Err(error) = answer.expect("sent") {
            assert_eq!(error.kind, CallErrorKind::Overloaded);
        }
    }
    http.call(&rig.to, forward("x"))
        .await
        .expect("sent")
        .expect("all room was given back");
}

#[tokio::test]
async fn without_a_proof_there_is_401_and_nothing_else() {
    let rig = Rig::start().await;
    let call = Bytes::from_static(b"\0\0\0\x02{}");
    for (path, body) in [
        (CALL, call.clone()),
        (ASK, Bytes::from_static(br#"{"ask":"report"}"#)),
        (PROVE, Bytes::from_static(br#"{"proof":"00"}"#)),
        (HELLO, Bytes::from_static(b"not json")),
        (HELLO, vec![b' '; 1 << 20].into()),
        ("/", Bytes::new()),
        ("/v1/call/put?shard=3", Bytes::from_static(b"x")),
        ("/metrics", Bytes::new()),
    ] {
        let mut sender = raw(&rig.to).await;
        let (status, body) = post(&mut sender, path, body).await.expect("answered");
        assert_eq!((status.as_u16(), body.len()), (401, 0), "{path}");
        // And that was all: the connection ends.
        let again = post(&mut sender, CALL, call.clone()).await;
        assert!(
            again.is_err() || again.is_ok_and(|(status, _)| status == StatusCode::UNAUTHORIZED)
        );
        tokio::time::timeout(LONG, async {
            while !sender.is_closed() {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("closed");
    }
    assert_eq!(rig.runs(), 0);
}

#[tokio::test]
async fn a_wrong_secret_gets_nowhere_and_is_named() {
    let rig = Rig::start().await;
    let failed = client(&identity("a", "other"))
        .call(&rig.to, forward("x"))
        .await
        .expect_err("refused");
    let Failure::NeverSent(text) = failed else {
        panic!("{failed:?}");
    };
    assert!(
        text.contains("node `b` cannot be reached") && text.contains("same store and path"),
        "{text}"
    );
    assert_eq!(rig.runs(), 0);
}

#[tokio::test]
async fn an_overheard_handshake_proves_nothing_again() {
    let rig = Rig::start().await;
    let a = identity("a", "s");
    let hello = hello(&a, &rig.to);
    let mut first = raw(&rig.to).await;
    let (status, body) = post(&mut first, HELLO, json(&hello)).await.expect("hello");
    assert_eq!(status, StatusCode::OK);
    let challenge: Challenge = serde_json::from_slice(&body).expect("a challenge");
    let proof = auth::prove(&a.secret, End::Client, &hello, &challenge.challenge);
    let (status, body) = post(&mut first, PROVE, json(&proof)).await.expect("proof");
    assert_eq!(status, StatusCode::OK);
    let answer: Proof = serde_json::from_slice(&body).expect("a proof");
    assert!(auth::is_proved(
        &a.secret,
        End::Server,
        &hello,
        &challenge.challenge,
        &answer
    ));
    // The same words on another connection, and the server's own proof sent back to it.
    for replayed in [&proof, &answer] {
        let mut second = raw(&rig.to).await;
        let (_, body) = post(&mut second, HELLO, json(&hello)).await.expect("hello");
        let other: Challenge = serde_json::from_slice(&body).expect("a challenge");
        assert_ne!(other.challenge, challenge.challenge);
        let (status, body) = post(&mut second, PROVE, json(replayed))
            .await
            .expect("sent");
        assert_eq!((status.as_u16(), body.len()), (401, 0));
        // A second try on the same connection is none.
        let good = auth::prove(&a.secret, End::Client, &hello, &other.challenge);
        if let Ok((status, _)) = post(&mut second, PROVE, json(&good)).await {
            assert_eq!(status, StatusCode::UNAUTHORIZED);
        }
    }
    // A challenge is used once, also where the first hello is followed by another.
    let mut third = raw(&rig.to).await;
    _ = post(&mut third, HELLO, json(&hello)).await.expect("hello");
    let (status, _) = post(&mut third, HELLO, json(&hello)).await.expect("sent");
    assert_eq!(status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn nodes_that_do_not_fit_are_told_why() {
    let rig = Rig::start().await;
    let change = |change: fn(&mut Identity)| {
        let mut identity = Identity {
            cluster: "c".into(),
            shards: 16,
            node: "a".into(),
            session: Box::new(auth::random),
            secret: Secret::new("s"),
        };
        change(&mut identity);
        Arc::new(identity)
    };
    let other_node = Destination {
        node: "d".into(),
        ..rig.to.clone()
    };
    let other_session = Destination {
        session: auth::random(),
        ..rig.to.clone()
    };
    for (identity, to, part) in [
        (
            change(|identity| identity.cluster = "other".into()),
            &rig.to,
            "it belongs to the cluster `c`, and this node to `other`",
        ),
        (
            change(|identity| identity.shards = 8),
            &rig.to,
            "its cluster has 16 shards, and this node is configured with 8",
        ),
        (
            change(|_| {}),
            &other_node,
            "it is node `b`, not `d`: does `internal.advertise` of `d` lead to another node?",
        ),
        (change(|_| {}), &other_session, "in another session by now"),
    ] {
        let failed = client(&identity).call(to, forward("x")).await;
        let failed = failed.expect_err("turned away");
        let Failure::NeverSent(text) = failed else {
            panic!("{failed:?}");
        };
        assert!(text.contains(part), "{text}");
    }
    // A protocol of tomorrow, on both sides.
    let a = identity("a", "s");
    let hello = Hello {
        protocol: PROTOCOL + 1,
        ..hello(&a, &rig.to)
    };
    let mut sender = raw(&rig.to).await;
    let (_, body) = post(&mut sender, HELLO, json(&hello)).await.expect("hello");
    let challenge: Challenge = serde_json::from_slice(&body).expect("a challenge");
    assert_eq!(
        challenge.protocol, PROTOCOL,
        "the client can see for itself"
    );
    let proof = auth::prove(&a.secret, End::Client, &hello, &challenge.challenge);
    let (status, body) = post(&mut sender, PROVE, json(&proof)).await.expect("sent");
    let unfit: Unfit = serde_json::from_slice(&body).expect("a reason");
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(unfit.error.contains("version 2"), "{}", unfit.error);
    assert_eq!(rig.runs(), 0);
}

#[tokio::test]
async fn what_is_no_http2_and_huge_frames_end_the_connection() {
    let rig = Rig::start().await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    // A HEADERS frame that says it has 16 MiB.
    let huge = [0xff, 0xff, 0xff, 1, 4, 0, 0, 0, 1];
    for bytes in [
        b"GET /internal/call HTTP/1.1\r\nhost: b\r\n\r\n".to_vec(),
        vec![0; 4096],
        [&preface[..], &settings, &huge, &[0; 4096]].concat(),
    ] {
        let mut stream = TcpStream::connect(&rig.to.address)
            .await
            .expect("connected");
        _ = stream.write_all(&bytes).await;
        let mut answer = Vec::new();
        let mut bounded = stream.take(64 << 10);
        let ended = bounded.read_to_end(&mut answer);
        let ended = tokio::time::timeout(LONG, ended).await.expect("it ends");
        assert!(
            ended.is_err() || answer.len() < 1024,
            "{} bytes",
            answer.len()
        );
    }
    // One that says nothing at all is cut too, and others are served meanwhile.
    let mut silent = TcpStream::connect(&rig.to.address)
        .await
        .expect("connected");
    let http = client(&identity("a", "s"));
    http.call(&rig.to, forward("x"))
        .await
        .expect("sent")
        .expect("ran");
    let mut answer = Vec::new();
    tokio::time::timeout(LONG, silent.read_to_end(&mut answer))
        .await
        .expect("it ends")
        .expect("cleanly");
}

#[tokio::test]
async fn whoever_is_not_reached_is_told_so_within_the_time_to_connect() {
    let http = client(&identity("a", "s"));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let mut to = Destination {
        node: "b".into(),
        session: auth::random(),
        address: listener.local_addr().expect("an address").to_string(),
    };
    // It accepts, and says nothing: as a process that is stopped.
    let begun = clock::now();
    let many = (0..20).map(|_| http.call(&to, forward("x")));
    for failed in futures::future::join_all(many).await {
        let failed = failed.expect_err("nobody answers");
        assert!(
            matches!(&failed, Failure::NeverSent(text) if text.contains("no connection within 1s")),
            "{failed}"
        );
    }
    let took = clock::now().saturating_duration_since(begun);
    assert!(
        took < CONNECT_TIMEOUT * 2,
        "{took:?}: the callers wait together"
    );
    drop(listener);
    let failed = http
        .call(&to, forward("x"))
        .await
        .expect_err("nobody is there");
    assert!(
        matches!(&failed, Failure::NeverSent(text) if text.contains("refused")),
        "{failed}"
    );
    to.address = "no-such-host.invalid:7071".into();
    let failed = http
        .call(&to, forward("x"))
        .await
        .expect_err("no such host");
    assert!(
        matches!(&failed, Failure::NeverSent(text) if text.contains("internal.advertise")),
        "{failed}"
    );
}

#[tokio::test]
async fn a_connection_that_broke_is_made_anew_and_what_was_sent_is_not_sent_again() {
    let mut rig = Rig::start().await;
    let http = client(&identity("a", "s"));
    http.call(&rig.to, forward("x"))
        .await
        .expect("sent")
        .expect("ran");
    let service = rig.service.clone();
    let closed = service.gate.write().await;
    let (http, to) = (Arc::new(http), rig.to.clone());
    let waiting = tokio::spawn({
        let (http, to) = (http.clone(), to.clone());
        async move { http.call(&to, forward("x")).await }
    });
    tokio::time::timeout(LONG, async {
        while rig.runs() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("it runs");
    // The server is gone in the middle of the call.
    let Rig {
        _server: server,
        at,
        ..
    } = rig;
    drop(server);
    let failed = waiting.await.expect("no panic").expect_err("cut");
    assert!(matches!(failed, Failure::Sent(_)), "{failed:?}");
    drop(closed);
    let failed = http.call(&to, forward("x")).await.expect_err("gone");
    assert!(matches!(failed, Failure::NeverSent(_)), "{failed:?}");
    // And is there again, at the same address.
    let weak: Weak<dyn Service> = Arc::downgrade(&(service.clone() as Arc<dyn Service>));
    let listener = Listener::bind(to.address.parse().expect("an address")).expect("bound");
    let on = Handle::current();
    let server = listener.serve(at.clone(), weak, limits(), &on);
    rig = Rig {
        service,
        at,
        to,
        _server: server.await.expect("listening"),
    };
    http.call(&rig.to, forward("x"))
        .await
        .expect("sent")
        .expect("ran");
    assert_eq!(rig.runs(), 3);
    assert_eq!(rig.at.node, "b");
}

#[tokio::test]
async fn requests_in_progress_and_waits_for_answers_are_bounded() {
    let rig = Rig::start().await;
    let few = Limits {
        requests: 2,
        ..limits()
    };
    let http = Http2::new(identity("a", "s"), few, Handle::current());
    let closed = rig.service.gate.write().await;
    let mut calls: futures::stream::FuturesUnordered<_> =
        (0..3).map(|_| http.call(&rig.to, forward("x"))).collect();
    let third = futures::StreamExt::next(&mut calls).await.expect("one");
    let error = third.expect("an answer").expect_err("one too many");
    assert_eq!(error.kind, CallErrorKind::Overloaded);
    assert!(error.message.contains("internal.max_requests"));
    let late = http
        .ask(
            &rig.to,
            Ask::Place {
                shard: 1,
                wait_ms: 0,
                above: 0,
            },
            Duration::from_millis(50),
        )
        .await
        .expect_err("it does not answer");
    assert!(matches!(late, Failure::Sent(_)), "{late:?}");
    drop(closed);
    for answer in futures::StreamExt::collect::<Vec<_>>(calls).await {
        answer.expect("sent").expect("ran");
    }
}

#[tokio::test]
async fn within_one_process_it_is_the_same() {
    let network = memory::Network::new();
    let session = Arc::new(Mutex::new(auth::random()));
    let current = session.clone();
    let now = move || current.lock().expect("no panic").clone();
    let (a, b) = (identity("a", "s"), identity_of("b", "s", now));
    let service = Arc::new(Echo::default());
    let weak: Weak<dyn Service> = Arc::downgrade(&(service.clone() as Arc<dyn Service>));
    let from_a = network.join(a, weak.clone(), Handle::current());
    _ = network.join(b.clone(), weak, Handle::current());
    let to = Destination {
        node: "b".into(),
        session: b.party().session,
        address: memory::Network::address("b"),
    };
    let reply = from_a.call(&to, forward("x")).await.expect("sent");
    assert_eq!(reply.expect("ran").payload, "x");
    network.cut("a", "b");
    let failed = from_a.call(&to, forward("x")).await.expect_err("cut");
    assert!(matches!(failed, Failure::NeverSent(_)), "{failed:?}");
    network.heal();
    network.pause("b");
    let late = from_a
        .ask(&to, Ask::Report, Duration::from_millis(20))
        .await;
    assert!(matches!(late, Err(Failure::Sent(_))), "{late:?}");
    network.resume("b");
    assert_eq!(from_a.ask(&to, Ask::Report, LONG).await, Ok(Told::Done));
    *session.lock().expect("no panic") = auth::random();
    let failed = from_a.call(&to, forward("x")).await.expect_err("restarted");
    assert!(matches!(failed, Failure::NeverSent(_)), "{failed:?}");
    assert_eq!(
        (network.requests(), service.runs.load(Ordering::Acquire)),
        (1, 1)
    );
}

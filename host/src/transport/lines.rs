//! Connections to peers: one for calls and one for questions to each, made when first needed, used until it breaks.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ::http::{Method, Request, Response, StatusCode};
use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::runtime::Handle;

use super::auth::{self, Challenge, End, Hello, MESSAGE_MAX_BYTES, PROTOCOL, Party, Proof, Unfit};
use super::server::{HELLO, KEEP_ALIVE, KEEP_ALIVE_TIMEOUT, PROVE};
use super::wire::Pieces;
use super::{CONNECT_TIMEOUT, Destination, Identity};
use crate::clock;

/// Lines that are kept, at most. The oldest sessions go first.
const LINES_MAX: usize = 2048;
/// Bytes that a peer may send on a connection before they are read, and on a stream of it.
const CONNECTION_WINDOW: u32 = 4 << 20;
const STREAM_WINDOW: u32 = 512 << 10;

type Sender = SendRequest<Pieces>;

/// What goes over a line: a large payload must not hold up a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    /// Calls and queries.
    Calls,
    /// Questions.
    Questions,
}

/// All lines of a node.
pub(super) struct Lines {
    identity: Arc<Identity>,
    on: Handle,
    lines: Mutex<BTreeMap<(Lane, Destination), Arc<Line>>>,
}

/// The way to one peer.
pub(super) struct Line {
    to: Destination,
    live: ArcSwapOption<Sender>,
    connecting: tokio::sync::Mutex<Connecting>,
    /// Requests in progress.
    pub(super) busy: AtomicUsize,
    /// Attempts to connect that have ended.
    attempts: AtomicUsize,
}

#[derive(Default)]
struct Connecting {
    /// Why the last attempt failed, while it is the last.
    failed: Option<String>,
}

impl Lines {
    pub(super) fn new(identity: Arc<Identity>, on: Handle) -> Self {
        Self {
            identity,
            on,
            lines: Mutex::default(),
        }
    }

    /// The line to a peer.
    pub(super) fn line(&self, lane: Lane, to: &Destination) -> Arc<Line> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        // A look-up by reference would need a key of borrowed parts; a clone is small beside a request.
        let key = (lane, to.clone());
        if let Some(line) = lines.get(&key) {
            return line.clone();
        }
        // What is known now replaces what the peer was; requests in progress there keep their connection to the end.
        lines.retain(|(other, old), _| *other != lane || old.node != to.node);
        if lines.len() >= LINES_MAX {
            lines.pop_first();
        }
        let line = Arc::new(Line {
            to: to.clone(),
            live: ArcSwapOption::empty(),
            connecting: tokio::sync::Mutex::default(),
            busy: AtomicUsize::new(0),
            attempts: AtomicUsize::new(0),
        });
        lines.insert(key, line.clone());
        line
    }

    /// A connection that is open, as far as anybody knows.
    ///
    /// # Errors
    /// Why there is none; nothing was sent then.
    pub(super) async fn open(&self, line: &Arc<Line>) -> Result<Arc<Sender>, String> {
        if let Some(sender) = line.usable() {
            return Ok(sender);
        }
        let seen = line.attempts.load(Ordering::Acquire);
        let connect = async {
            let mut connecting = line.connecting.lock().await;
            if let Some(sender) = line.usable() {
                return Ok(sender);
            }
            // Who waited for an attempt that failed does not make the next: many callers would wait one after the other.
            if line.attempts.load(Ordering::Acquire) != seen
                && let Some(error) = &connecting.failed
            {
                return Err(error.clone());
            }
            let (identity, to) = (self.identity.clone(), line.to.clone());
            // On the runtime that carries the connection, and to its end even when this caller goes away.
            let connecting_to = self.on.spawn(async move {
                clock::timeout(CONNECT_TIMEOUT, connect(&identity, &to))
                    .await
                    .unwrap_or_else(|_| Err(format!("no connection within {CONNECT_TIMEOUT:?}")))
            });
            let connected = connecting_to
                .await
                .unwrap_or_else(|error| Err(format!("connecting failed in this node: {error}")));
            line.attempts.fetch_add(1, Ordering::AcqRel);
            match connected {
                Ok(sender) => {
                    let sender = Arc::new(sender);
                    line.live.store(Some(sender.clone()));
                    connecting.failed = None;
                    Ok(sender)
                }
                Err(error) => {
                    let error = line.unreachable(&error);
                    connecting.failed = Some(error.clone());
                    Err(error)
                }
            }
        };
        // Also the wait for another caller's attempt is bounded: by that one's own bound, and some.
        clock::timeout(CONNECT_TIMEOUT * 2, connect)
            .await
            .unwrap_or_else(|_| Err(line.unreachable("others wait for a connection too")))
    }

    /// How many lines have a connection.
    #[cfg(test)]
    pub(super) fn connected(&self) -> usize {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines
            .values()
            .filter(|line| line.usable().is_some())
            .count()
    }
}

impl Line {
    fn usable(&self) -> Option<Arc<Sender>> {
        self.live.load_full().filter(|sender| !sender.is_closed())
    }

    fn unreachable(&self, why: &str) -> String {
        format!(
            "node `{}` cannot be reached at {} (`internal.advertise` of that node): {why}",
            self.to.node, self.to.address
        )
    }
}

/// Connects, and proves both ends to each other.
async fn connect(identity: &Identity, to: &Destination) -> Result<Sender, String> {
    let stream = TcpStream::connect(&to.address)
        .await
        .map_err(|error| error.to_string())?;
    stream
        .set_nodelay(true)
        .map_err(|error| error.to_string())?;
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_stream_window_size(STREAM_WINDOW)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true);
    let (mut sender, connection) = builder
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| causes(&error))?;
    let node = to.node.clone();
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(
                node,
                error = causes(&error),
                "the connection to another node broke"
            );
        }
    });
    handshake(identity, to, &mut sender).await?;
    Ok(sender)
}

/// Says who this is, and proves it; see [`auth`].
async fn handshake(
    identity: &Identity,
    to: &Destination,
    sender: &mut Sender,
) -> Result<(), String> {
    let hello = Hello {
        protocol: PROTOCOL,
        cluster: identity.cluster.clone(),
        shards: identity.shards,
        from: identity.party(),
        to: Party {
            name: to.node.clone(),
            session: to.session.clone(),
        },
        nonce: auth::random(),
    };
    let (status, body) = exchange(sender, HELLO, &hello).await?;
    if status != StatusCode::OK {
        return Err(format!(
            "it does not answer as a node of a Quarry cluster does (HTTP {status}); is it the internal listener of one?"
        ));
    }
    let challenge: Challenge = understood(&body)?;
    if challenge.protocol != PROTOCOL {
        return Err(format!(
            "it speaks version {} of the internal protocol, and this node version {PROTOCOL}: run the same version of Quarry on both",
            challenge.protocol
        ));
    }
    let proof = auth::prove(&identity.secret, End::Client, &hello, &challenge.challenge);
    let (status, body) = exchange(sender, PROVE, &proof).await?;
    match status {
        StatusCode::OK => {}
        StatusCode::FORBIDDEN => return Err(understood::<Unfit>(&body)?.error),
        _ => {
            return Err(
                "it does not accept this node's proof: do both use the same store and path?".into(),
            );
        }
    }
    let proof: Proof = understood(&body)?;
    let challenge = &challenge.challenge;
    if !auth::is_proved(&identity.secret, End::Server, &hello, challenge, &proof) {
        return Err(
            "it cannot prove that it is of this cluster: does another program listen there?".into(),
        );
    }
    Ok(())
}

async fn exchange(
    sender: &mut Sender,
    path: &'static str,
    message: &impl serde::Serialize,
) -> Result<(StatusCode, Bytes), String> {
    let body = serde_json::to_vec(message).map_err(|error| error.to_string())?;
    let response = sender
        .send_request(request(path, Pieces::plain(body)))
        .await
        .map_err(|error| causes(&error))?;
    let status = response.status();
    let body = read(response, MESSAGE_MAX_BYTES).await?;
    Ok((status, body))
}

/// A request of the internal protocol.
pub(super) fn request(path: &'static str, body: Pieces) -> Request<Pieces> {
    let mut request = Request::new(body);
    *request.method_mut() = Method::POST;
    // HTTP/2 wants a scheme and an authority; nobody looks at them.
    let uri = ::http::Uri::builder()
        .scheme("http")
        .authority("node")
        .path_and_query(path)
        .build();
    *request.uri_mut() = uri.expect("a fixed path is one");
    request
}

/// Reads a response of at most so many bytes.
pub(super) async fn read(response: Response<Incoming>, most: usize) -> Result<Bytes, String> {
    let body = Limited::new(response.into_body(), most).collect().await;
    body.map(|body| body.to_bytes())
        .map_err(|error| format!("its answer cannot be read: {error}"))
}

/// An error with the causes that say most.
pub(super) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

fn understood<M: for<'m> serde::Deserialize<'m>>(body: &[u8]) -> Result<M, String> {
    serde_json::from_slice(body)
        .map_err(|error| format!("its answer to the handshake cannot be understood: {error}"))
}

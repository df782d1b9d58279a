//! HTTP requests that a guest makes: to hosts that its revision is granted, and to nothing else.
//!
//! A request is to the world outside what a call is to another shard: it leaves once all that its shard has written is durable (promise P1), and
//! never after the lease ran out (P3); see [`Calls::leave`](super::calls::Calls::leave). A query may ask, and not tell: it can be made
//! again, so it sends GET and HEAD alone.
//!
//! The connections live on a runtime of their own, and bodies cross to it in pieces through channels that hold little. No redirect is
//! followed, no proxy is used, nothing is sent twice, and certificates are checked against what the platform trusts.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Method};
use reqwest::Url;
use reqwest::redirect::Policy;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;

use super::Limits;
use super::http::{bytes_of, strip_hop_by_hop};
use super::log::{GuestLog, Level};
use crate::clock;
use crate::metrics::OutgoingMetrics;

/// Requests of a node that are open at once, at most, whatever its guests may have each.
const NODE_MAX: usize = 1024;
/// Pieces of a body on their way between two threads.
const PIECES: usize = 2;
/// Connections to a host that are kept for the next request.
const IDLE_MAX: usize = 8;
/// How long they are kept.
const IDLE: Duration = Duration::from_secs(30);
/// Places whose denial a guest's log has already.
const TOLD_MAX: usize = 32;

/// The way out of a node, shared by its guests.
pub struct Outside {
    runtime: Handle,
    connect_time: Duration,
    /// Made for the first request: it reads what the platform trusts.
    client: OnceLock<Result<reqwest::Client, String>>,
    room: Arc<Semaphore>,
    metrics: OutgoingMetrics,
}

/// Why a request was not sent, or has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// It may not be sent.
    #[error("{0}")]
    Denied(String),
    /// A limit is in the way.
    #[error("{0}")]
    Limit(String),
    /// The time is up.
    #[error("{0}")]
    Late(String),
    /// The name of the host is not known.
    #[error("{0}")]
    NoName(String),
    /// Nobody listens there.
    #[error("{0}")]
    Refused(String),
    /// Whoever answers is not trusted, or speaks no TLS.
    #[error("{0}")]
    Untrusted(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

/// What an instance may ask, and how much of it at once.
pub struct Asking {
    module: Arc<str>,
    limits: Arc<Limits>,
    open: Arc<AtomicUsize>,
    told: Mutex<VecDeque<String>>,
}

/// A request that may be sent.
pub struct Ask {
    /// The method.
    pub method: Method,
    /// Where.
    pub url: Url,
    /// The headers.
    pub headers: HeaderMap,
    /// When its caller gives up.
    pub deadline: Instant,
    /// How long the head of the answer may take, where the guest says.
    pub first_byte: Option<Duration>,
    /// How long each further piece may take, where the guest says.
    pub between_bytes: Option<Duration>,
    open: Open,
}

/// A request that is open; no more when dropped.
struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A body on its way, piece by piece. Of an answer, an error or an empty piece is the last.
pub type Pieces = mpsc::Receiver<Result<Bytes, Failed>>;

/// An answer.
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Pieces,
    /// Ends with it.
    pub task: Task,
}

/// A task on the runtime of the connections; ended when dropped.
pub struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The body of a request on its way out.
pub enum Sent {
    /// There is none.
    Empty,
    /// It comes in pieces.
    Pieces(mpsc::Receiver<Result<Bytes, Failed>>),
}

/// A channel for the body of a request.
#[must_use]
pub fn pieces() -> (mpsc::Sender<Result<Bytes, Failed>>, Pieces) {
    mpsc::channel(PIECES)
}

impl Asking {
    /// What an instance of a module may ask.
    #[must_use]
    pub fn new(module: Arc<str>, limits: Arc<Limits>) -> Self {
        Self {
            module,
            limits,
            open: Arc::default(),
            told: Mutex::default(),
        }
    }

    /// The module's name.
    #[must_use]
    pub fn module(&self) -> &str {
        &self.module
    }

    /// The limits.
    #[must_use]
    pub fn limits(&self) -> &Arc<Limits> {
        &self.limits
    }

    /// Whether a request may be sent: to a host that is granted, by a method that the caller may use, within what may be open at once.
    ///
    /// # Errors
    /// Which of these it is not, and what to do.
    pub fn ask(
        &self,
        method: Method,
        url: Url,
        headers: HeaderMap,
        deadline: Instant,
        is_query: bool,
    ) -> Result<Ask, Failed> {
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            let message = format!("{} names no host", url.scheme());
            return Err(Failed::Denied(message));
        };
        if !matches!(url.scheme(), "http" | "https") {
            let message = format!(
                "guests can send to http and https, and not to {}",
                url.scheme()
            );
            return Err(Failed::Denied(message));
        }
        if !url.username().is_empty() || url.password().is_some() {
            let message = "the address has a user or a password; send the header `authorization`";
            return Err(Failed::Denied(message.into()));
        }
        if !self
            .limits
            .grants
            .iter()
            .any(|grant| grant.allows(host, port))
        {
            return Err(Failed::Denied(denied(&self.module, host, port)));
        }
        if is_query && !matches!(method, Method::GET | Method::HEAD) {
            let message = format!(
                "a query can be made again, so it may send GET and HEAD, and not {method}; make it a call"
            );
            return Err(Failed::Denied(message));
        }
        let sizes = bytes_of(&headers);
        if sizes > self.limits.http_headers {
            return Err(Failed::Limit(format!(
                "the headers of the request have {sizes} bytes, over limits.http_headers ({})",
                self.limits.http_headers
            )));
        }
        let most = self.limits.http_requests;
        let open = Open(self.open.clone());
        if open.0.fetch_add(1, Ordering::AcqRel) >= most {
            return Err(Failed::Limit(format!(
                "{most} HTTP requests of this instance are open, all that may be at once (limits.http_requests); take or drop an answer first"
            )));
        }
        Ok(Ask {
            method,
            url,
            headers,
            deadline,
            first_byte: None,
            between_bytes: None,
            open,
        })
    }

    /// Says in the guest's log that it was denied something; once for each place.
    pub fn tell(&self, log: &GuestLog, url: &Url, why: &str) {
        let place = format!(
            "{}:{}",
            url.host_str().unwrap_or_default(),
            url.port_or_known_default().unwrap_or_default()
        );
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.contains(&place) {
            return;
        }
        if told.len() >= TOLD_MAX {
            told.pop_front();
        }
        told.push_back(place);
        drop(told);
        log.write(Level::Warn, why, &[]);
    }
}

/// That a place is not granted, and how it would be.
fn denied(module: &str, host: &str, port: u16) -> String {
    let grant = match port {
        80 | 443 => format!("http:{host}"),
        port => format!("http:{host}:{port}"),
    };
    format!(
        "HTTP to {host}:{port} is not granted to module `{module}`: deploy it with `quarry deploy ... --grant {grant}`, or where `quarry dev` or `quarry serve --module` runs it, with their `--grant {grant}` (`module.grants`)"
    )
}

impl Outside {
    /// The way out of a node, on a runtime that carries its connections.
    #[must_use]
    pub fn new(runtime: Handle, connect_time: Duration, metrics: OutgoingMetrics) -> Arc<Self> {
        Arc::new(Self {
            runtime,
            connect_time,
            client: OnceLock::new(),
            room: Arc::new(Semaphore::new(NODE_MAX)),
            metrics,
        })
    }

    /// Counts what came of a request.
    pub fn count(&self, failed: Option<&Failed>) {
        self.metrics.ended(match failed {
            None => "ok",
            Some(Failed::Denied(_)) => "denied",
            Some(Failed::Limit(_)) => "limit",
            Some(Failed::Late(_)) => "timeout",
            Some(_) => "failed",
        });
    }

    /// Sends a request, and waits for the head of its answer. Dropping this future, or the answer, gives both up.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn send(
        self: &Arc<Self>,
        ask: Ask,
        body: Sent,
        limits: Arc<Limits>,
    ) -> Result<Answer, Failed> {
        let room = self.room.clone().try_acquire_owned().map_err(|_| {
            Failed::Limit(format!(
                "{NODE_MAX} HTTP requests of this node's guests are open, all that may be at once; try again later"
            ))
        })?;
        let (head, answered) = oneshot::channel();
        let (sender, body_in) = pieces();
        let way = self.clone();
        let task = self.runtime.spawn(async move {
            way.carry(ask, body, &limits, head, sender, room).await;
        });
        let task = Task(task);
        match answered.await {
            Ok(Ok((status, headers))) => Ok(Answer {
                status,
                headers,
                body: body_in,
                task,
            }),
            Ok(Err(failed)) => Err(failed),
            Err(_) => Err(Failed::Other(
                "the node stopped while the request was on its way".into(),
            )),
        }
    }

    /// Carries a request and its answer, on the runtime of the connections.
    async fn carry(
        &self,
        ask: Ask,
        body: Sent,
        limits: &Limits,
        head: oneshot::Sender<Result<(u16, HeaderMap), Failed>>,
        sender: mpsc::Sender<Result<Bytes, Failed>>,
        room: OwnedSemaphorePermit,
    ) {
        let (deadline, between, open) = (ask.deadline, ask.between_bytes, ask.open);
        let first = ask.first_byte.map(|first| clock::now() + first);
        let until = first.map_or(deadline, |first| first.min(deadline));
        let place = place(&ask.url);
        let request = self.client().map(|client| {
            let mut headers = ask.headers;
            strip_hop_by_hop(&mut headers);
            let request = client.request(ask.method, ask.url).headers(headers);
            match body {
                Sent::Empty => request,
                Sent::Pieces(pieces) => request.body(reqwest::Body::wrap_stream(stream(pieces))),
            }
        });
        let sent = match request {
            Ok(request) => clock::timeout_at(until, request.send()).await,
            Err(why) => {
                _ = head.send(Err(Failed::Other(why)));
                return;
            }
        };
        let mut response = match sent {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                _ = head.send(Err(failed(&place, &error)));
                return;
            }
            Err(_) => {
                _ = head.send(Err(late(&place)));
                return;
            }
        };
        let mut headers = std::mem::take(response.headers_mut());
        strip_hop_by_hop(&mut headers);
        let size = bytes_of(&headers);
        if size > limits.http_headers {
            _ = head.send(Err(Failed::Limit(format!(
                "the headers of the answer of {place} have {size} bytes, over limits.http_headers ({})",
                limits.http_headers
            ))));
            return;
        }
        if head
            .send(Ok((response.status().as_u16(), headers)))
            .is_err()
        {
            return;
        }
        let mut taken = 0;
        loop {
            let until = between.map_or(deadline, |pause| deadline.min(clock::now() + pause));
            let piece = match clock::timeout_at(until, response.chunk()).await {
                // The end: without it, a body that was cut off would look whole.
                Ok(Ok(None)) => Ok(Bytes::new()),
                Ok(Ok(Some(piece))) => {
                    taken += piece.len();
                    if taken <= limits.http_response_body {
                        Ok(piece)
                    } else {
                        Err(Failed::Limit(format!(
                            "the body of the answer of {place} is over limits.http_response_body ({} bytes)",
                            limits.http_response_body
                        )))
                    }
                }
                Ok(Err(error)) => Err(failed(&place, &error)),
                Err(_) => Err(late(&place)),
            };
            let is_last = piece.as_ref().map_or(true, Bytes::is_empty);
            // The guest may take its time, and no more than its call has.
            let given = clock::timeout_at(deadline, sender.send(piece)).await;
            if is_last || !matches!(given, Ok(Ok(()))) {
                break;
            }
        }
        drop((room, open));
    }

    fn client(&self) -> Result<&reqwest::Client, String> {
        let made = self.client.get_or_init(|| {
            let client = reqwest::Client::builder()
                .redirect(Policy::none())
                .no_proxy()
                .retry(reqwest::retry::never())
                .referer(false)
                .http1_only()
                .connect_timeout(self.connect_time)
                .pool_max_idle_per_host(IDLE_MAX)
                .pool_idle_timeout(IDLE)
                .build();
            client.map_err(|error| format!("this node has no client for HTTP: {}", chain(&error)))
        });
        made.as_ref().map_err(Clone::clone)
    }
}

/// A body as the client takes it.
fn stream(
    pieces: mpsc::Receiver<Result<Bytes, Failed>>,
) -> impl futures::Stream<Item = Result<Bytes, Failed>> + Send + 'static {
    futures::stream::unfold(pieces, |mut pieces| async {
        let piece = pieces.recv().await?;
        Some((piece, pieces))
    })
}

fn place(url: &Url) -> String {
    let port = url.port_or_known_default().unwrap_or_default();
    format!("{}:{port}", url.host_str().unwrap_or_default())
}

fn late(place: &str) -> Failed {
    Failed::Late(format!(
        "{place} did not answer within the time of the request, or of the call that made it"
    ))
}

/// What an error of the client means.
fn failed(place: &str, error: &reqwest::Error) -> Failed {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(at) = source {
        // Of the body of the request.
        if let Some(failed) = at.downcast_ref::<Failed>() {
            return failed.clone();
        }
        if let Some(io) = at.downcast_ref::<std::io::Error>()
            && io.kind() == std::io::ErrorKind::ConnectionRefused
        {
            return Failed::Refused(format!("{place} refused the connection"));
        }
        source = at.source();
    }
    let words = chain(error);
    if error.is_timeout() {
        return Failed::Late(format!(
            "{place} was not connected to within limits.http_connect_time: {words}"
        ));
    }
    let message = format!("the request to {place} failed: {words}");
    if error.is_connect() && words.contains("dns error") {
        Failed::NoName(message)
    } else if error.is_connect() && (words.contains("certificate") || words.contains("tls")) {
        Failed::Untrusted(message)
    } else {
        Failed::Other(message)
    }
}

/// An error with what is behind it, without the address, whose path and query may hold a secret.
fn chain(error: &reqwest::Error) -> String {
    let mut words = Vec::new();
    let mut source = std::error::Error::source(error);
    while let Some(at) = source {
        words.push(at.to_string());
        source = at.source();
    }
    if words.is_empty() {
        words.push("the client gave up".into());
    }
    let mut text = words.join(": ");
    text.truncate(text.floor_char_boundary(1024));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deploy::grants::grants;

    fn asking(texts: &[&str]) -> Asking {
        let texts: Vec<String> = texts.iter().map(ToString::to_string).collect();
        let limits = Limits {
            grants: grants(&texts),
            http_requests: 2,
            ..Limits::default()
        };
        Asking::new("web".into(), Arc::new(limits))
    }

    fn ask(asking: &Asking, method: Method, url: &str, is_query: bool) -> Result<Ask, Failed> {
        let url = url.parse().expect("an address");
        let deadline = clock::now() + Duration::from_secs(1);
        asking.ask(method, url, HeaderMap::new(), deadline, is_query)
    }

    #[test]
    fn what_is_not_granted_is_denied_and_told_how() {
        let asking = asking(&["http:api.example.com", "http:*.example.org:8080"]);
        for (url, says) in [
            ("http://api.example.com/a", ""),
            ("https://API.example.com", ""),
            ("http://a.example.org:8080", ""),
            (
                "http://api.example.com:81",
                "--grant http:api.example.com:81`",
            ),
            ("https://a.example.org", "--grant http:a.example.org`"),
            (
                "http://[::1]/",
                "HTTP to [::1]:80 is not granted to module `web`",
            ),
            // What an address is written as is not what it is.
            ("http://0x7f.1/", "HTTP to 127.0.0.1:80 is not granted"),
            (
                "http://api.example.com@evil.example/",
                "a user or a password",
            ),
            ("http://u:p@api.example.com/", "a user or a password"),
            ("ftp://api.example.com/", "and not to ftp"),
            ("file:///etc/passwd", "names no host"),
        ] {
            match ask(&asking, Method::POST, url, false) {
                Ok(_) => assert_eq!(says, "", "{url}"),
                Err(error) => {
                    let Failed::Denied(why) = &error else {
                        panic!("{url}: {error:?}");
                    };
                    assert!(!says.is_empty() && why.contains(says), "{url}: {why}");
                }
            }
        }
    }

    #[test]
    fn a_query_asks_and_does_not_tell() {
        let asking = asking(&["http:a.b"]);
        for (method, fine) in [
            (Method::GET, true),
            (Method::HEAD, true),
            (Method::POST, false),
        ] {
            let asked = ask(&asking, method.clone(), "http://a.b", true);
            assert_eq!(asked.is_ok(), fine, "{method}");
        }
    }

    #[test]
    fn only_so_many_are_open_at_once() {
        let asking = asking(&["http:a.b"]);
        let get = || ask(&asking, Method::GET, "http://a.b", false);
        let (one, _other) = (get().expect("room"), get().expect("room"));
        let Err(Failed::Limit(why)) = get() else {
            panic!("a third")
        };
        assert!(why.contains("limits.http_requests"), "{why}");
        drop(one);
        _ = get().expect("room again");
    }
}

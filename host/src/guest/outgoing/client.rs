//! The way of guests' requests out of a node: one client, on a thread of its own, that every guest of the node shares.
//!
//! No redirect is followed, no proxy is used, nothing is sent twice, and certificates are checked against what the platform trusts.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use reqwest::Url;
use reqwest::redirect::Policy;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::{Answer, Ask, Failed, Sent, Task, pieces};
use crate::clock;
use crate::guest::Limits;
use crate::guest::http::{bytes_of, strip_hop_by_hop};
use crate::metrics::OutgoingMetrics;

/// Requests of a node that are open at once, at most, whatever its guests may have each.
const NODE_MAX: usize = 1024;
/// Connections to a host that are kept for the next request.
const IDLE_MAX: usize = 8;
/// How long they are kept.
const IDLE: Duration = Duration::from_secs(30);

/// The way out of a node, shared by its guests.
pub struct Outside {
    runtime: Handle,
    connect_time: Duration,
    /// Made for the first request: it reads what the platform trusts.
    client: OnceLock<Result<reqwest::Client, String>>,
    room: Arc<Semaphore>,
    metrics: OutgoingMetrics,
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

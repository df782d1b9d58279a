//! How `wasi:http` behaves for a guest: which headers it may set, and where its requests go.
//!
//! What may be sent, and the way there, is the same for every kind of guest ([`crate::guest::outgoing`]). Here a request of WASI becomes one
//! of those: it waits on the shard's thread, without holding it, until it may leave, and its body is handed over in pieces.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use ::http::{HeaderName, Request, Response};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame};
use tokio::sync::mpsc;
use wasmtime_wasi_http::{Error, ForbiddenHeaderFilter, RequestOptions, WasiBody, WasiHttpHooks};

use crate::clock;
use crate::guest::Limits;
use crate::guest::calls::Calls;
use crate::guest::http::HOP_BY_HOP;
use crate::guest::log::GuestLog;
use crate::guest::outgoing::{self, Answer, Ask, Asking, Failed, Pieces, Sent, Task};

/// How long the first piece of a body is waited for. Most guests have finished an empty one by then, and it is sent as none.
const FIRST_PIECE: Duration = Duration::from_millis(100);

/// What is decided for a guest.
pub(in crate::guest::wasm) struct Hooks {
    asking: Asking,
    /// The way out; none where no database is open.
    calls: Option<Arc<Calls>>,
    log: Arc<GuestLog>,
    within: Option<Within>,
}

/// The call or the query in progress.
#[derive(Clone, Copy)]
struct Within {
    deadline: Instant,
    /// Of a query, the newest write that it sees.
    sees: Option<u64>,
}

impl Hooks {
    /// Those of an instance of a module.
    pub(in crate::guest::wasm) fn new(
        module: Arc<str>,
        limits: Arc<Limits>,
        calls: Option<Arc<Calls>>,
        log: Arc<GuestLog>,
    ) -> Self {
        Self {
            asking: Asking::new(module, limits),
            calls,
            log,
            within: None,
        }
    }

    /// Begins a call, or what is none: then there is no deadline. `sees` is of a query.
    pub(in crate::guest::wasm) fn begin(&mut self, deadline: Option<Instant>, sees: Option<u64>) {
        self.within = deadline.map(|deadline| Within { deadline, sees });
    }

    /// What is to be done with a request.
    fn prepare(
        &self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
    ) -> Result<impl Future<Output = Result<Received, Error>> + Send + 'static, Failed> {
        let (Some(within), Some(calls)) = (self.within, &self.calls) else {
            let message = "HTTP requests can be made in the middle of a call, a request, a timer or a query; this is none of them";
            return Err(Failed::Denied(message.into()));
        };
        let (parts, body) = request.into_parts();
        let url: reqwest::Url = parts
            .uri
            .to_string()
            .parse()
            .map_err(|_| Failed::Denied("the address is none".into()))?;
        let asked = self.asking.ask(
            parts.method,
            url.clone(),
            parts.headers,
            within.deadline,
            within.sees.is_some(),
        );
        let mut ask = asked.inspect_err(|failed| {
            calls.outside().count(Some(failed));
            if let Failed::Denied(why) = failed {
                self.asking.tell(&self.log, &url, why);
                tracing::debug!(
                    event = "guest_http.denied",
                    module = self.asking.module(),
                    why,
                    "a guest was denied an HTTP request"
                );
            }
        })?;
        if let Some(options) = options {
            let connect = options.connect_timeout.unwrap_or_default();
            ask.first_byte = options.first_byte_timeout.map(|first| first + connect);
            ask.between_bytes = options.between_bytes_timeout;
        }
        // Before anything waits: what is written later is no part of the head.
        let shown = within.sees.unwrap_or_else(|| calls.visible_seq());
        let (calls, limits) = (calls.clone(), self.asking.limits().clone());
        Ok(async move {
            let sent = send(&calls, ask, body, (shown, within.sees), limits).await;
            calls.outside().count(sent.as_ref().err());
            sent.map_err(error)
        })
    }
}

impl WasiHttpHooks for Hooks {
    fn is_forbidden_header(&mut self, name: &HeaderName) -> bool {
        HOP_BY_HOP.contains(name)
    }

    fn forbidden_header_filter(&mut self) -> ForbiddenHeaderFilter {
        Arc::new(|name| HOP_BY_HOP.contains(name))
    }

    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _: Rest,
    ) -> Box<dyn Future<Output = Result<Received, Error>> + Send> {
        match self.prepare(request, options) {
            Ok(sending) => Box::new(sending),
            Err(failed) => Box::new(std::future::ready(Err(error(failed)))),
        }
    }
}

/// What goes on when the head of an answer is there.
type Rest = Box<dyn Future<Output = Result<(), Error>> + Send>;

/// An answer, and the rest of the request.
type Received = (Response<WasiBody>, Rest);

/// Sends a request once it may leave, and waits for the head of the answer.
async fn send(
    calls: &Arc<Calls>,
    ask: Ask,
    body: WasiBody,
    (shown, sees): (u64, Option<u64>),
    limits: Arc<Limits>,
) -> Result<Received, Failed> {
    let left = calls.leave(shown, ask.deadline).await;
    left.map_err(|error| Failed::Other(error.message))?;
    let mut pump = Pump {
        calls: calls.clone(),
        sees,
        deadline: ask.deadline,
        body,
        held: None,
        taken: 0,
        most: limits.http_request_body,
    };
    let first = match clock::timeout(FIRST_PIECE, pump.next()).await {
        Ok(None) => None,
        Ok(Some(piece)) => Some(Some(piece?)),
        Err(_) => Some(None),
    };
    let (sender, pieces) = outgoing::pieces();
    let (sent, mut pumping) = match first {
        None => (Sent::Empty, None),
        Some(first) => (
            Sent::Pieces(pieces),
            Some(Box::pin(pump.run(first, sender))),
        ),
    };
    let mut sending = pin!(calls.outside().send(ask, sent, limits));
    let answer = loop {
        let pumped = async {
            match &mut pumping {
                Some(pumping) => pumping.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            answer = &mut sending => break answer?,
            () = pumped => pumping = None,
            // Nobody gets what a shard that has ended shows, so nothing is waited for, either.
            () = calls.over() => {
                let message = "the shard ended while it waited; what it sent may have arrived";
                return Err(Failed::Other(message.into()));
            }
        }
    };
    let rest: Rest = match pumping {
        Some(pumping) => Box::new(async move {
            pumping.await;
            Ok(())
        }),
        None => Box::new(std::future::ready(Ok(()))),
    };
    Ok((response(answer)?, rest))
}

fn response(answer: Answer) -> Result<Response<WasiBody>, Failed> {
    let Answer {
        status,
        headers,
        body,
        task,
    } = answer;
    let body = Incoming {
        pieces: body,
        whole: false,
        _task: task,
    };
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status
        .try_into()
        .map_err(|_| Failed::Other(format!("the answer has the status {status}")))?;
    *response.headers_mut() = headers;
    Ok(response)
}

/// The body of a request, from the guest to the connection. A guest may write to the database between two pieces, so each leaves by
/// itself when all that it may show is durable.
struct Pump {
    calls: Arc<Calls>,
    /// Of a query, the newest write that it sees.
    sees: Option<u64>,
    deadline: Instant,
    body: WasiBody,
    /// What the guest has written, and what may not leave yet.
    held: Option<Bytes>,
    taken: usize,
    most: usize,
}

impl Pump {
    /// The next piece, within the limit, once it may leave. Safe to drop.
    async fn next(&mut self) -> Option<Result<Bytes, Failed>> {
        if self.held.is_none() {
            match self.take().await? {
                Ok(data) => self.held = Some(data),
                Err(failed) => return Some(Err(failed)),
            }
        }
        let shown = self.sees.unwrap_or_else(|| self.calls.visible_seq());
        let left = self.calls.leave(shown, self.deadline).await;
        if let Err(error) = left {
            return Some(Err(Failed::Other(error.message)));
        }
        self.held.take().map(Ok)
    }

    /// What the guest writes next. Safe to drop.
    async fn take(&mut self) -> Option<Result<Bytes, Failed>> {
        loop {
            let Ok(frame) = self.body.frame().await? else {
                let message = "the guest did not finish the body of its request";
                return Some(Err(Failed::Other(message.into())));
            };
            let Ok(data) = frame.into_data() else {
                continue;
            };
            self.taken += data.len();
            if self.taken > self.most {
                return Some(Err(Failed::Limit(format!(
                    "the body of the request is over limits.http_request_body ({} bytes)",
                    self.most
                ))));
            }
            if !data.is_empty() {
                return Some(Ok(data));
            }
        }
    }

    /// Hands over all that is left.
    async fn run(mut self, first: Option<Bytes>, sender: mpsc::Sender<Result<Bytes, Failed>>) {
        let mut next = first.map(Ok);
        loop {
            let piece = match next.take() {
                Some(piece) => piece,
                None => match self.next().await {
                    Some(piece) => piece,
                    None => return,
                },
            };
            let is_last = piece.is_err();
            if sender.send(piece).await.is_err() || is_last {
                return;
            }
        }
    }
}

/// The body of an answer, as the guest reads it.
struct Incoming {
    pieces: Pieces,
    /// The end was seen.
    whole: bool,
    _task: Task,
}

impl Body for Incoming {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.whole {
            return Poll::Ready(None);
        }
        let piece = ready!(self.pieces.poll_recv(context));
        self.whole = !matches!(&piece, Some(Ok(data)) if !data.is_empty());
        Poll::Ready(match piece {
            Some(Ok(data)) if data.is_empty() => None,
            Some(Ok(data)) => Some(Ok(Frame::data(data))),
            Some(Err(failed)) => Some(Err(error(failed))),
            None => Some(Err(Error::HttpResponseIncomplete)),
        })
    }
}

/// What the guest is told. Only one kind of error has room for text, so what says how to go on is of that kind.
fn error(failed: Failed) -> Error {
    match failed {
        Failed::Denied(why) | Failed::Limit(why) | Failed::Other(why) => {
            Error::InternalError(Some(why))
        }
        Failed::Late(_) => Error::HttpResponseTimeout,
        Failed::NoName(why) => Error::DnsError {
            rcode: Some(why),
            info_code: None,
        },
        Failed::Refused(_) => Error::ConnectionRefused,
        Failed::Untrusted(_) => Error::TlsCertificateError,
    }
}

//! HTTP requests to a guest that exports `wasi:http/incoming-handler`.
//!
//! A request runs as a call does: one at a time, under the same limits. The guest writes its answer while its `handle` runs, into a channel
//! that holds little, so the answer is read at the same time, and kept until `handle` has returned: it may leave only once what it shows
//! is durable.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body_util::Full;
use hyper::body::{Body, Frame};
use tokio::sync::oneshot;
use wasmtime::component::{Linker, Resource, TypedFunc};
use wasmtime_wasi_http::p2::bindings::http::types::{ErrorCode, Scheme};
use wasmtime_wasi_http::p2::body::HyperOutgoingBody;
use wasmtime_wasi_http::p2::types::{HostIncomingRequest, HostResponseOutparam};
use wasmtime_wasi_http::{Error, WasiHttpCtxView, WasiHttpView};

use super::call::CurrentCall;
use super::failure;
use super::instance::Running;
use super::state::State;
use crate::guest::http::FIELDS_MAX;
use crate::guest::{
    Failure, GuestError, HttpAnswer, HttpHead, Limits, Reply, Request, Trap, TrapKind,
};

pub(super) mod ended;
pub(super) mod hooks;

/// The function that takes a request.
pub(super) type Handle = TypedFunc<
    (
        Resource<HostIncomingRequest>,
        Resource<HostResponseOutparam>,
    ),
    (),
>;

/// What a guest sets as its answer.
type Answer = Result<hyper::Response<HyperOutgoingBody>, ErrorCode>;

impl Running {
    /// Has the guest answer a request.
    pub(super) async fn http(
        &mut self,
        request: &Request,
        head: &HttpHead,
        handle: Handle,
    ) -> Result<Reply, Failure> {
        let (sender, answer) = oneshot::channel();
        let params = incoming(self.state(), head, request.payload.clone(), sender);
        let params = params.map_err(|error| {
            let message = format!("the request cannot be handed to the guest: {error:#}");
            Failure::Trap(Trap::new(TrapKind::Host, message))
        })?;
        let mut taking = Taking::new(answer, self.limits.reply);
        let limit = ("limits.wall_time", self.limits.wall_time);
        let call = CurrentCall::of(request);
        let ran = self
            .enter_beside(call, limit, handle, params, |context| taking.step(context))
            .await;
        if taking.is_too_large() {
            return Err(Failure::Trap(failure::reply_too_large(None, &self.limits)));
        }
        ran.map_err(Failure::Trap)?;
        let (_, when_applied) = self.state().call.end();
        // All that the guest had of its answer has ended with the request, so this waits for nobody.
        std::future::poll_fn(|context| taking.poll(context)).await;
        let mut reply = taking.reply(&self.limits)?;
        reply.when_applied = when_applied;
        Ok(reply)
    }
}

/// What `handle` gets.
fn incoming(
    state: &mut State,
    head: &HttpHead,
    body: Bytes,
    sender: oneshot::Sender<Answer>,
) -> wasmtime::Result<(
    Resource<HostIncomingRequest>,
    Resource<HostResponseOutparam>,
)> {
    let mut request = hyper::Request::new(Full::new(body));
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = head.target.clone().into();
    *request.headers_mut() = head.headers.clone();
    // It becomes the request's authority, and no header that the guest sees.
    let host = head.authority.parse()?;
    request.headers_mut().insert(hyper::header::HOST, host);
    let mut view = state.http();
    let request = view.new_incoming_request(Scheme::Http, request)?;
    let answer = view.new_response_outparam(sender)?;
    Ok((request, answer))
}

/// The answer as it comes.
struct Taking {
    state: Progress,
    most: usize,
}

enum Progress {
    /// The guest has not set it.
    Waiting(oneshot::Receiver<Answer>),
    /// It writes the body.
    Body {
        answer: HttpAnswer,
        body: HyperOutgoingBody,
        taken: Taken,
    },
    /// All of it is there.
    Whole(HttpAnswer, Bytes),
    /// There is none, and this is why.
    None(GuestError),
    /// The body is larger than a reply may be.
    TooLarge,
}

/// The body so far. One that came in one piece is not copied.
#[derive(Default)]
struct Taken {
    first: Bytes,
    all: BytesMut,
}

impl Taking {
    fn new(answer: oneshot::Receiver<Answer>, most: usize) -> Self {
        Self {
            state: Progress::Waiting(answer),
            most,
        }
    }

    /// Takes what is there; whether the guest is to go on.
    fn step(&mut self, context: &mut Context<'_>) -> bool {
        _ = self.poll(context);
        !self.is_too_large()
    }

    fn is_too_large(&self) -> bool {
        matches!(self.state, Progress::TooLarge)
    }

    /// Ready when there is nothing more to take.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let next = match &mut self.state {
                Progress::Waiting(answer) => match ready!(Pin::new(answer).poll(context)) {
                    Ok(Ok(response)) => begin(response),
                    Ok(Err(code)) => Progress::None(refused(code)),
                    Err(_) => Progress::None(GuestError::new(
                        "no-response",
                        "the guest returned without an answer: it never called `response-outparam.set`",
                    )),
                },
                Progress::Body {
                    answer,
                    body,
                    taken,
                } => match ready!(Pin::new(body).poll_frame(context)) {
                    Some(Ok(frame)) => {
                        let data = Frame::into_data(frame).unwrap_or_default();
                        if taken.len() + data.len() <= self.most {
                            taken.add(data);
                            continue;
                        }
                        Progress::TooLarge
                    }
                    None => Progress::Whole(
                        HttpAnswer {
                            status: answer.status,
                            headers: std::mem::take(&mut answer.headers),
                        },
                        std::mem::take(taken).whole(),
                    ),
                    Some(Err(_)) => Progress::None(GuestError::new(
                        "response-incomplete",
                        format!(
                            "the guest did not finish its answer: after {} bytes of the body it did not call `outgoing-body.finish`, or its `content-length` is another number",
                            taken.len()
                        ),
                    )),
                },
                Progress::Whole(..) | Progress::None(_) | Progress::TooLarge => {
                    return Poll::Ready(());
                }
            };
            self.state = next;
        }
    }

    fn reply(self, limits: &Limits) -> Result<Reply, Failure> {
        match self.state {
            Progress::Whole(answer, payload) => Ok(Reply {
                payload,
                http: Some(Box::new(answer)),
                ..Reply::default()
            }),
            Progress::None(error) => Err(Failure::Error(error)),
            Progress::TooLarge => Err(Failure::Trap(failure::reply_too_large(None, limits))),
            Progress::Waiting(_) | Progress::Body { .. } => {
                let message = "the guest's answer was not taken to its end";
                Err(Failure::Trap(Trap::new(TrapKind::Host, message)))
            }
        }
    }
}

impl Taken {
    fn len(&self) -> usize {
        self.first.len() + self.all.len()
    }

    fn add(&mut self, data: Bytes) {
        if self.len() == 0 {
            self.first = data;
            return;
        }
        if !self.first.is_empty() {
            self.all.reserve(self.first.len() + data.len());
            self.all.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.all.extend_from_slice(&data);
    }

    fn whole(self) -> Bytes {
        if self.all.is_empty() {
            self.first
        } else {
            self.all.freeze()
        }
    }
}

fn begin(response: hyper::Response<HyperOutgoingBody>) -> Progress {
    let (parts, body) = response.into_parts();
    let (status, fields) = (parts.status.as_u16(), parts.headers.len());
    let bad = |message: String| Progress::None(GuestError::new("bad-response", message));
    if status < 200 {
        return bad(format!(
            "the guest answered with the status {status}, which is of no final answer; valid are 200 to 999"
        ));
    }
    if fields > FIELDS_MAX {
        return bad(format!(
            "the guest's answer has {fields} header fields; at most {FIELDS_MAX} are allowed"
        ));
    }
    Progress::Body {
        answer: HttpAnswer {
            status,
            headers: parts.headers,
        },
        body,
        taken: Taken::default(),
    }
}

/// The guest's answer is an error of HTTP.
fn refused(code: ErrorCode) -> GuestError {
    let message = format!(
        "the guest answered with an error instead of a response: {}",
        Error::from(code)
    );
    failure::bounded(GuestError::new("response-error", message))
}

impl WasiHttpView for State {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        self.http_view()
    }
}

/// Offers `wasi:http`, beside the rest of WASI.
pub(super) fn link(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(linker)?;
    ended::link(linker)
}

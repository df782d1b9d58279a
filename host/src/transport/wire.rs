//! Bodies of internal requests and replies: a head in JSON, behind its length, then bytes as they are.
//!
//! ```text
//! call:   length of the head (4 bytes, big-endian) | head | routing key | payload
//! reply:  length of the head (4 bytes, big-endian) | head | payload
//! ```
//!
//! Whoever sends them is of the cluster, but may be of another version, or broken: every length is checked.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use hyper::body::{Body, Frame, SizeHint};
use quarry_core::chain::CHAIN_MAX;
use serde::{Deserialize, Serialize};

use self::head::{AnswerWord, HeadWord};
use super::{Answer, Forward, How, NotOwner, Run};
use crate::call::{CallError, CallErrorKind, CallReply, Durability, Read};
use crate::clock;
use crate::guest::{METHOD_MAX_BYTES, Request};

mod head;

/// Bytes of a head, at most: all headers for the guest, or an error's text.
pub(super) const HEAD_MAX_BYTES: usize = 2 << 20;
/// A body that is not larger goes out in one piece.
const ONE_PIECE: usize = 16 << 10;

/// A body that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Malformed(String);

#[derive(Debug, Serialize, Deserialize)]
struct CallHead {
    shard: u32,
    generation: u64,
    run: RunWord,
    method: String,
    /// Bytes of the routing key, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headers: Vec<(String, String)>,
    left_us: u64,
    /// The shards that wait for it; a node of an older version neither sends nor reads them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    chain: Vec<u32>,
    /// Of an HTTP request, which its own words of [`HowWord`] tell from a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    http: Option<HeadWord>,
}

/// How it is run. One that a single revision may run is told in another form than the others: a node of a version that does not know of it
/// cannot read that, and so refuses the request instead of running it by whatever revision the shard has.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(untagged)]
enum RunWord {
    Any(HowWord),
    Only { how: HowWord, revision: u64 },
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum HowWord {
    Call,
    CallDurable,
    CallApplied,
    QueryApplied,
    QueryDurable,
    // HTTP requests. A node of a version that knows of none cannot read these, and so refuses them instead of calling a method.
    Http,
    HttpDurable,
    HttpApplied,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ReplyHead {
    Reply {
        shard: u32,
        seq: u64,
        revision: u64,
        node: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        content_type: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        http: Option<AnswerWord>,
    },
    Error(WireError),
    NotOwner(NotOwner),
}

/// A [`CallError`] on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireError {
    kind: String,
    code: String,
    message: String,
    #[serde(default)]
    retryable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shard: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    revision: Option<u64>,
}

impl From<CallError> for WireError {
    fn from(error: CallError) -> Self {
        Self {
            kind: error.kind.code().into(),
            code: error.code,
            message: error.message,
            retryable: error.retryable,
            shard: error.shard,
            seq: error.seq,
            revision: error.revision,
        }
    }
}

impl From<WireError> for CallError {
    fn from(error: WireError) -> Self {
        // A kind of a newer version: nobody here knows what it means for the call.
        let kind = CallErrorKind::of_code(&error.kind).unwrap_or(CallErrorKind::Unknown);
        Self {
            kind,
            code: error.code,
            message: error.message,
            retryable: error.retryable,
            shard: error.shard,
            seq: error.seq,
            revision: error.revision,
        }
    }
}

impl RunWord {
    fn of(run: Run, is_http: bool) -> Self {
        let how = match run.how {
            How::Call(None) if is_http => HowWord::Http,
            How::Call(Some(Durability::Durable)) if is_http => HowWord::HttpDurable,
            How::Call(Some(Durability::Applied)) if is_http => HowWord::HttpApplied,
            How::Call(None) => HowWord::Call,
            How::Call(Some(Durability::Durable)) => HowWord::CallDurable,
            How::Call(Some(Durability::Applied)) => HowWord::CallApplied,
            How::Query(Read::Applied) => HowWord::QueryApplied,
            How::Query(Read::Durable) => HowWord::QueryDurable,
        };
        match run.revision {
            None => Self::Any(how),
            Some(revision) => Self::Only { how, revision },
        }
    }

    /// How it is run, and whether it is an HTTP request.
    fn read(self) -> (Run, bool) {
        let (how, revision) = match self {
            Self::Any(how) => (how, None),
            Self::Only { how, revision } => (how, Some(revision)),
        };
        let is_http = matches!(
            how,
            HowWord::Http | HowWord::HttpDurable | HowWord::HttpApplied
        );
        let how = match how {
            HowWord::Call | HowWord::Http => How::Call(None),
            HowWord::CallDurable | HowWord::HttpDurable => How::Call(Some(Durability::Durable)),
            HowWord::CallApplied | HowWord::HttpApplied => How::Call(Some(Durability::Applied)),
            HowWord::QueryApplied => How::Query(Read::Applied),
            HowWord::QueryDurable => How::Query(Read::Durable),
        };
        (Run { how, revision }, is_http)
    }
}

/// A request on its way to the owner.
pub(super) fn encode_call(forward: Forward) -> Pieces {
    let left = forward
        .request
        .deadline
        .saturating_duration_since(clock::now());
    let Forward {
        shard,
        generation,
        run,
        request,
    } = forward;
    let head = CallHead {
        shard,
        generation,
        run: RunWord::of(run, request.http.is_some()),
        method: request.method,
        key: request
            .key
            .as_ref()
            .map(|key| u32::try_from(key.len()).unwrap_or(u32::MAX)),
        headers: request.headers,
        left_us: micros(left),
        chain: request.chain,
        http: request.http.as_deref().map(HeadWord::from),
    };
    Pieces::new(
        &head,
        request.key.as_deref().unwrap_or(&[]),
        request.payload,
    )
}

/// A request as the owner reads it. Whoever sent it cannot make it wait for longer than `most`.
pub(super) fn decode_call(body: Bytes, most: Duration) -> Result<Forward, Malformed> {
    let (head, mut rest): (CallHead, Bytes) = split(body)?;
    let key = match head.key {
        None => None,
        Some(length) => {
            let length = length as usize;
            if length > rest.len() {
                return Err(Malformed(format!(
                    "the key has {length} bytes, and {} are left of the body",
                    rest.len()
                )));
            }
            Some(rest.split_to(length))
        }
    };
    if head.method.is_empty() || head.method.len() > METHOD_MAX_BYTES {
        return Err(Malformed(format!(
            "the method has {} bytes; valid are 1 to {METHOD_MAX_BYTES}",
            head.method.len()
        )));
    }
    if head.chain.len() > CHAIN_MAX {
        return Err(Malformed(format!(
            "{} shards wait for it; at most {CHAIN_MAX} can",
            head.chain.len()
        )));
    }
    let (run, is_http) = head.run.read();
    let http = match (is_http, head.http) {
        (true, Some(word)) => Some(Arc::new(word.read()?)),
        (false, None) => None,
        _ => {
            let message =
                "the request says that it is of HTTP, or has the head of one, and not both";
            return Err(Malformed(message.into()));
        }
    };
    let left = Duration::from_micros(head.left_us).min(most);
    Ok(Forward {
        shard: head.shard,
        generation: head.generation,
        run,
        request: Request {
            method: head.method,
            key,
            payload: rest,
            headers: head.headers,
            deadline: clock::now() + left,
            chain: head.chain,
            http,
        },
    })
}

/// What came of a request, on its way back.
pub(super) fn encode_answer(answer: Result<Answer, NotOwner>) -> Pieces {
    let (head, payload) = match answer {
        Ok(Ok(reply)) => {
            let head = ReplyHead::Reply {
                shard: reply.shard,
                seq: reply.seq,
                revision: reply.revision,
                node: reply.node.as_ref().into(),
                content_type: reply.content_type,
                http: reply.http.as_deref().map(AnswerWord::from),
            };
            (head, reply.payload)
        }
        Ok(Err(error)) => (ReplyHead::Error(error.into()), Bytes::new()),
        Err(refused) => (ReplyHead::NotOwner(refused), Bytes::new()),
    };
    Pieces::new(&head, &[], payload)
}

/// What came of a request, as its sender reads it.
pub(super) fn decode_answer(body: Bytes) -> Result<Result<Answer, NotOwner>, Malformed> {
    let (head, payload): (ReplyHead, Bytes) = split(body)?;
    Ok(match head {
        ReplyHead::Reply {
            shard,
            seq,
            revision,
            node,
            content_type,
            http,
        } => Ok(Ok(CallReply {
            payload,
            content_type,
            shard,
            seq,
            revision,
            node: node.into(),
            http: match http {
                None => None,
                Some(word) => Some(Box::new(word.read()?)),
            },
        })),
        ReplyHead::Error(error) => Ok(Err(error.into())),
        ReplyHead::NotOwner(refused) => Err(refused),
    })
}

fn split<H: for<'h> Deserialize<'h>>(mut body: Bytes) -> Result<(H, Bytes), Malformed> {
    let short = |body: &Bytes| Malformed(format!("a body of {} bytes has no head", body.len()));
    let length = body.first_chunk::<4>().ok_or_else(|| short(&body))?;
    let length = u32::from_be_bytes(*length) as usize;
    if length > HEAD_MAX_BYTES || length > body.len() - 4 {
        return Err(Malformed(format!(
            "the head has {length} bytes, in a body of {}; at most {HEAD_MAX_BYTES} are allowed",
            body.len()
        )));
    }
    let mut head = body.split_off(4);
    let rest = head.split_off(length);
    let head = serde_json::from_slice(&head)
        .map_err(|error| Malformed(format!("the head cannot be read: {error}")))?;
    Ok((head, rest))
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// A body in at most two pieces: what is large is not copied.
#[derive(Debug, Clone, Default)]
pub(super) struct Pieces {
    first: Bytes,
    second: Bytes,
}

impl Pieces {
    /// A body without a head.
    pub(super) fn plain(bytes: impl Into<Bytes>) -> Self {
        Self {
            first: bytes.into(),
            second: Bytes::new(),
        }
    }

    fn new(head: &impl Serialize, key: &[u8], payload: Bytes) -> Self {
        let mut first = BytesMut::with_capacity(256 + key.len() + payload.len().min(ONE_PIECE));
        first.put_u32(0);
        let mut writer = first.writer();
        // Into memory, of a type whose every value has a JSON form.
        serde_json::to_writer(&mut writer, head).expect("a head has a JSON form");
        let mut first = writer.into_inner();
        let length = u32::try_from(first.len() - 4).unwrap_or(u32::MAX);
        first[..4].copy_from_slice(&length.to_be_bytes());
        first.extend_from_slice(key);
        if first.len() + payload.len() <= ONE_PIECE {
            first.extend_from_slice(&payload);
            return Self::plain(first.freeze());
        }
        Self {
            first: first.freeze(),
            second: payload,
        }
    }

    /// Bytes of it.
    pub(super) fn len(&self) -> usize {
        self.first.len() + self.second.len()
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        let piece = if this.first.is_empty() {
            std::mem::take(&mut this.second)
        } else {
            std::mem::take(&mut this.first)
        };
        Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.len() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len() as u64)
    }
}

#[cfg(test)]
mod tests;

//! The transport over HTTP/2.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ::http::{Response, StatusCode};
use async_trait::async_trait;
use bytes::Bytes;
use hyper::body::Incoming;
use tokio::runtime::Handle;

use super::lines::{self, Lane, Line, Lines};
use super::server::{ASK, CALL};
use super::wire::{self, HEAD_MAX_BYTES, Pieces};
use super::{Answer, Ask, Destination, Failure, Forward, Identity, Limits, Told, Transport};
use crate::call::{CallError, CallErrorKind};
use crate::clock;

mod taken;

/// Bytes of an answer to a question, at most: a report of 65,536 shards fits.
const TOLD_MAX_BYTES: usize = 64 << 20;
/// Attempts to send one request: a connection may turn out to be closed when it is used, and then nothing was sent.
const ATTEMPTS: u32 = 2;

/// Reaches other nodes over HTTP/2 connections, which it makes when they are first needed and then reuses.
pub struct Http2 {
    lines: Lines,
    limits: Limits,
}

impl Http2 {
    /// Connections live on the runtime `on`. Nothing is connected yet.
    #[must_use]
    pub fn new(identity: Arc<Identity>, limits: Limits, on: Handle) -> Self {
        Self {
            lines: Lines::new(identity, on),
            limits,
        }
    }

    async fn send(
        &self,
        line: &Arc<Line>,
        path: &'static str,
        body: Pieces,
    ) -> Result<Response<Incoming>, Failure> {
        let mut attempt = 1;
        loop {
            let sender = self.lines.open(line).await.map_err(Failure::NeverSent)?;
            let request = lines::request(path, body.clone());
            let mut failed = match (*sender).clone().try_send_request(request).await {
                Ok(response) => return Ok(response),
                Err(failed) => failed,
            };
            // The request came back, so that nothing of it was written; or the other end said that it did not take it.
            let never_sent =
                failed.take_message().is_some() || taken::was_not_taken(failed.error());
            let error = lines::causes(failed.error());
            if !never_sent {
                return Err(Failure::Sent(format!("the connection broke: {error}")));
            }
            if attempt == ATTEMPTS {
                return Err(Failure::NeverSent(format!(
                    "the connection closed before the request was sent or taken: {error}"
                )));
            }
            attempt += 1;
        }
    }
}

/// A request in progress.
struct Busy<'l>(&'l Line);

impl<'l> Busy<'l> {
    fn enter(line: &'l Line, most: usize) -> Option<Self> {
        let before = line.busy.fetch_add(1, Ordering::AcqRel);
        let busy = Self(line);
        (before < most).then_some(busy)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

#[async_trait]
impl Transport for Http2 {
    async fn call(&self, to: &Destination, forward: Forward) -> Result<Answer, Failure> {
        let line = self.lines.line(Lane::Calls, to);
        let shard = forward.shard;
        let Some(_busy) = Busy::enter(&line, self.limits.requests) else {
            let message = format!(
                "{} requests to node `{}` are in progress (`internal.max_requests`); nothing was sent",
                self.limits.requests, to.node
            );
            return Ok(Err(
                CallError::host(CallErrorKind::Overloaded, message).at(shard)
            ));
        };
        let response = self.send(&line, CALL, wire::encode_call(forward)).await?;
        let status = response.status();
        if status != StatusCode::OK {
            return Err(Failure::Sent(format!(
                "node `{}` answered with HTTP {status}",
                to.node
            )));
        }
        let most = self.limits.reply.saturating_add(HEAD_MAX_BYTES + 4);
        let body = lines::read(response, most).await.map_err(Failure::Sent)?;
        match wire::decode_answer(body) {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(refused)) => Err(Failure::NotOwner(refused)),
            Err(malformed) => Err(Failure::Sent(format!(
                "the answer of node `{}` cannot be understood: {malformed}",
                to.node
            ))),
        }
    }

    async fn ask(&self, to: &Destination, ask: Ask, within: Duration) -> Result<Told, Failure> {
        let line = self.lines.line(Lane::Questions, to);
        let asking = async {
            let body =
                serde_json::to_vec(&ask).map_err(|error| Failure::NeverSent(error.to_string()))?;
            let Some(_busy) = Busy::enter(&line, self.limits.requests) else {
                return Err(Failure::NeverSent(format!(
                    "{} questions to node `{}` are in progress (`internal.max_requests`)",
                    self.limits.requests, to.node
                )));
            };
            let response = self.send(&line, ASK, Pieces::plain(body)).await?;
            let status = response.status();
            let body: Bytes = lines::read(response, TOLD_MAX_BYTES)
                .await
                .map_err(Failure::Sent)?;
            if status != StatusCode::OK {
                return Err(Failure::Sent(format!(
                    "node `{}` does not answer the question (HTTP {status})",
                    to.node
                )));
            }
            serde_json::from_slice(&body).map_err(|error| {
                Failure::Sent(format!(
                    "the answer of node `{}` cannot be understood: {error}",
                    to.node
                ))
            })
        };
        clock::timeout(within, asking).await.unwrap_or_else(|_| {
            Err(Failure::Sent(format!(
                "node `{}` did not answer within {within:?}",
                to.node
            )))
        })
    }
}

#[cfg(test)]
impl Http2 {
    /// How many connections there are.
    pub(super) fn connected(&self) -> usize {
        self.lines.connected()
    }
}

//! A call of a test, and what came back.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Host;
use crate::call::Call;
use crate::db::Seq;
use crate::error::Result;

/// A call or a query that a test prepares.
#[derive(Debug)]
#[must_use = "nothing happens before `run`"]
pub struct Request<'host> {
    host: &'host mut Host,
    query: bool,
    method: String,
    key: Option<Vec<u8>>,
    payload: Vec<u8>,
    headers: Vec<(String, String)>,
    timeout: Option<Duration>,
    durable_read: bool,
}

impl<'host> Request<'host> {
    pub(super) fn new(host: &'host mut Host, method: &str, query: bool) -> Self {
        Request {
            host,
            query,
            method: method.to_owned(),
            key: None,
            payload: Vec::new(),
            headers: Vec::new(),
            timeout: None,
            durable_read: false,
        }
    }

    /// The routing key. Without one the guest sees a caller that named the shard.
    pub fn key(mut self, key: impl AsRef<[u8]>) -> Self {
        self.key = Some(key.as_ref().to_vec());
        self
    }

    /// The payload.
    pub fn payload(mut self, payload: impl AsRef<[u8]>) -> Self {
        self.payload = payload.as_ref().to_vec();
        self
    }

    /// A payload of JSON. Panics where the value has no JSON form.
    pub fn json(self, value: &impl Serialize) -> Self {
        let payload = serde_json::to_vec(value).expect("the payload has no JSON form");
        self.payload(payload)
    }

    /// A header of the request. Those that the host does not pass on are dropped, as there.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers
            .push((name.to_ascii_lowercase(), value.to_owned()));
        self
    }

    /// How long the caller waits: 30 s unless set.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Lets a query see only what is durable (`read=durable`). It makes no difference to a call.
    pub fn read_durable(mut self) -> Self {
        self.durable_read = true;
        self
    }

    /// Runs it. The response is there at once, whether its writes are durable or not: see [`Response::seq`].
    pub fn run(self) -> Result<Response> {
        let call = Call::new(self.method, self.key, self.payload);
        let (reply, seq) = if self.query {
            let scope =
                self.host
                    .world
                    .borrow()
                    .query_scope(self.timeout, self.headers, self.durable_read);
            self.host.run_query(scope, call)?
        } else {
            let scope = self
                .host
                .world
                .borrow()
                .call_scope(self.timeout, self.headers);
            self.host.run_call(scope, call)?
        };
        Ok(Response {
            content_type: reply
                .media_type()
                .unwrap_or("application/octet-stream")
                .to_owned(),
            applied: reply.is_applied(),
            payload: reply.into_payload(),
            seq,
        })
    }
}

/// What a call gave back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    payload: Vec<u8>,
    content_type: String,
    applied: bool,
    seq: Option<Seq>,
}

impl Response {
    /// The bytes.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The bytes as text. Panics where they are not UTF-8.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.payload).expect("the reply is not UTF-8")
    }

    /// The bytes as JSON. Panics where they are not a `T`.
    pub fn json<T: DeserializeOwned>(&self) -> T {
        match serde_json::from_slice(&self.payload) {
            Ok(value) => value,
            Err(why) => panic!(
                "the reply is not the JSON that was expected: {why}: {}",
                self.payload.escape_ascii()
            ),
        }
    }

    /// The media type.
    pub fn content_type(&self) -> &str {
        &self.content_type
    }

    /// Whether the guest let the reply leave before its writes are durable.
    pub fn is_applied(&self) -> bool {
        self.applied
    }

    /// The last write of the call; none where it wrote nothing. Compare it with [`Host::durable_seq`].
    pub fn seq(&self) -> Option<Seq> {
        self.seq
    }
}

//! A call and its reply.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};
use crate::sys;

/// A call, or a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    method: String,
    key: Option<Vec<u8>>,
    payload: Vec<u8>,
}

impl Call {
    /// A call as the host makes it. For tests of a handler without a host.
    pub fn new(
        method: impl Into<String>,
        key: Option<Vec<u8>>,
        payload: impl Into<Vec<u8>>,
    ) -> Self {
        Call {
            method: method.into(),
            key,
            payload: payload.into(),
        }
    }

    /// The method that the caller named.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// The routing key; none when the caller named a shard.
    pub fn key(&self) -> Option<&[u8]> {
        self.key.as_deref()
    }

    /// The routing key, or the error `missing-key`.
    pub fn required_key(&self) -> Result<&[u8]> {
        self.key().ok_or_else(|| Error::missing_key(&self.method))
    }

    /// The payload's bytes.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The payload's bytes, without a copy.
    pub fn into_payload(self) -> Vec<u8> {
        self.payload
    }

    /// The payload as text, or the error `invalid-payload`.
    pub fn text(&self) -> Result<&str> {
        std::str::from_utf8(&self.payload).map_err(Error::invalid_payload)
    }

    /// The payload as JSON, or the error `invalid-payload`.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.payload).map_err(Error::invalid_payload)
    }

    /// How long the caller still waits. None outside of a call.
    pub fn time_left(&self) -> Option<Duration> {
        sys::deadline_ms().map(Duration::from_millis)
    }

    /// The caller's W3C trace context.
    pub fn traceparent(&self) -> Option<String> {
        sys::traceparent()
    }

    /// A header of the request, by name in any case. Passed on are `content-type`, `accept`, `traceparent`,
    /// `tracestate`, `idempotency-key`, and all that begin with `x-`.
    pub fn header(&self, name: &str) -> Option<String> {
        sys::header(name)
    }
}

/// What a call gives back: bytes, their media type, and when it may leave.
///
/// ```
/// use quarry_guest::Reply;
///
/// assert_eq!(Reply::text(42).payload(), b"42");
/// assert_eq!(Reply::json(&[1, 2]).unwrap().media_type(), Some("application/json"));
/// assert_eq!(Reply::from(vec![0xff]).content_type("image/png").media_type(), Some("image/png"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    payload: Vec<u8>,
    media_type: Option<String>,
    applied: bool,
}

impl Reply {
    /// No bytes.
    pub fn empty() -> Self {
        Reply::default()
    }

    /// Raw bytes, as `application/octet-stream` unless [`content_type`](Reply::content_type) says otherwise.
    pub fn bytes(payload: impl Into<Vec<u8>>) -> Self {
        Reply {
            payload: payload.into(),
            ..Reply::default()
        }
    }

    /// Text, as `text/plain; charset=utf-8`.
    pub fn text(text: impl fmt::Display) -> Self {
        Reply::bytes(text.to_string()).content_type("text/plain; charset=utf-8")
    }

    /// JSON, as `application/json`. Fails with `invalid-json` where the value has no JSON form.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self> {
        Ok(Reply::bytes(serde_json::to_vec(value)?).content_type("application/json"))
    }

    /// Sets the media type: up to 128 bytes of printable ASCII; the host ignores anything else.
    pub fn content_type(mut self, media_type: impl Into<String>) -> Self {
        self.media_type = Some(media_type.into());
        self
    }

    /// Lets the reply leave before the writes that it shows are durable. A caller that asked for durable still waits.
    pub fn when_applied(mut self) -> Self {
        self.applied = true;
        self
    }

    /// The bytes.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The bytes, without a copy.
    pub fn into_payload(self) -> Vec<u8> {
        self.payload
    }

    /// The media type, where one was set.
    pub fn media_type(&self) -> Option<&str> {
        self.media_type.as_deref()
    }

    /// Whether [`when_applied`](Reply::when_applied) was asked for.
    pub fn is_applied(&self) -> bool {
        self.applied
    }
}

impl From<Vec<u8>> for Reply {
    fn from(payload: Vec<u8>) -> Self {
        Reply::bytes(payload)
    }
}

impl From<&[u8]> for Reply {
    fn from(payload: &[u8]) -> Self {
        Reply::bytes(payload)
    }
}

impl From<String> for Reply {
    fn from(text: String) -> Self {
        Reply::text(text)
    }
}

impl From<&str> for Reply {
    fn from(text: &str) -> Self {
        Reply::text(text)
    }
}

impl From<()> for Reply {
    fn from((): ()) -> Self {
        Reply::empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_that_is_not_understood_says_so() {
        let call = Call::new("put", None, [0xff, b'{']);
        for error in [call.text().unwrap_err(), call.json::<u8>().unwrap_err()] {
            assert_eq!(error.code(), "invalid-payload");
        }
        assert_eq!(call.required_key().unwrap_err().code(), "missing-key");
        assert_eq!(
            Call::new("get", Some(vec![1]), []).required_key(),
            Ok(&[1][..])
        );
    }
}

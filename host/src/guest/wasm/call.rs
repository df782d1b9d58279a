//! The imported interface `current-call`: the call in progress, and its reply.

use std::time::Instant;

use super::bindings::current_call::Host;
use super::state::State;
use crate::clock;
use crate::guest::Request;
use crate::guest::calls::Within;

/// The longest media type of a reply, in bytes.
const MEDIA_TYPE_MAX_BYTES: usize = 128;

/// The call in progress; outside a call there is none.
pub(super) struct CurrentCall {
    deadline: Option<Instant>,
    chain: Vec<u32>,
    headers: Vec<(String, String)>,
    content_type: Option<String>,
    when_applied: bool,
}

impl CurrentCall {
    /// Outside a call.
    pub(super) fn none() -> Self {
        Self {
            deadline: None,
            chain: Vec::new(),
            headers: Vec::new(),
            content_type: None,
            when_applied: false,
        }
    }

    /// The call that `request` asks for.
    pub(super) fn of(request: &Request) -> Self {
        Self {
            deadline: Some(request.deadline),
            chain: request.chain.clone(),
            headers: request.headers.clone(),
            ..Self::none()
        }
    }

    /// A timer that fires: it has an end, as a call has, and no caller.
    pub(super) fn of_timer(deadline: Instant) -> Self {
        Self {
            deadline: Some(deadline),
            ..Self::none()
        }
    }

    /// Ends the call, and gives what the guest set for its reply: the media type, and whether it goes out when applied.
    pub(super) fn end(&mut self) -> (Option<String>, bool) {
        let ended = std::mem::replace(self, Self::none());
        (ended.content_type, ended.when_applied)
    }

    /// When its caller gives up; none outside a call.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// What matters of it to what it asks of other shards; nothing outside a call.
    pub(super) fn within(&self) -> Option<Within<'_>> {
        Some(Within {
            deadline: self.deadline?,
            chain: &self.chain,
            headers: &self.headers,
        })
    }

    fn header(&self, name: &str) -> Option<String> {
        let (_, value) = self
            .headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))?;
        Some(value.clone())
    }
}

impl Host for State {
    fn deadline_ms(&mut self) -> Option<u64> {
        let left = self.call.deadline?.saturating_duration_since(clock::now());
        Some(u64::try_from(left.as_millis()).unwrap_or(u64::MAX))
    }

    fn traceparent(&mut self) -> Option<String> {
        self.call.header("traceparent")
    }

    fn header(&mut self, name: String) -> Option<String> {
        self.call.header(&name)
    }

    fn set_content_type(&mut self, media_type: String) {
        let printable =
            !media_type.is_empty() && media_type.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        if self.call.deadline.is_some() && printable && media_type.len() <= MEDIA_TYPE_MAX_BYTES {
            self.call.content_type = Some(media_type);
        }
    }

    fn reply_when_applied(&mut self) {
        self.call.when_applied = self.call.deadline.is_some();
    }
}

//! An HTTP request as the guest of a shard gets it, and what the guest answers.
//!
//! A request is a call of its shard in every way but its form: it waits in the same queue, runs under the same limits, and what it shows
//! leaves through the same gate. Its body and that of the answer are whole, since an answer may leave only once what it shows is durable.

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};

/// The name that a request goes by where calls have the name of their method: in metrics, logs and samples.
pub const METHOD: &str = "http";

/// Header fields of a request or an answer, at most.
pub const FIELDS_MAX: usize = 64;

/// Headers that are about one connection, or about the way that a message takes over it. They are neither passed on nor taken from a guest.
pub const HOP_BY_HOP: [HeaderName; 12] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("http2-settings"),
    header::EXPECT,
    header::HOST,
];

/// A request, but for its body, which is the payload of the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpHead {
    /// The module that is to answer; the first that exports `wasi:http/incoming-handler` when none.
    pub module: Option<String>,
    /// Its method.
    pub method: Method,
    /// Path and query, as the guest gets them.
    pub target: PathAndQuery,
    /// Host, and port where there is one, as the client named them.
    pub authority: String,
    /// Its headers, without those of [`HOP_BY_HOP`].
    pub headers: HeaderMap,
}

/// What a guest answered, but for the body, which is the payload of the reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpAnswer {
    /// The status code, 200 to 999.
    pub status: u16,
    /// The headers, at most [`FIELDS_MAX`], without those of [`HOP_BY_HOP`].
    pub headers: HeaderMap,
}

impl HttpHead {
    /// How much it takes, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.target.as_str().len() + self.authority.len() + bytes_of(&self.headers)
    }
}

impl HttpAnswer {
    /// Whether the guest says that it failed. It counts as a failed call does: in metrics, and for a rollout that watches them.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        self.status >= 500
    }

    /// How much it takes, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        bytes_of(&self.headers)
    }
}

/// The bytes of all names and values.
#[must_use]
pub fn bytes_of(headers: &HeaderMap) -> usize {
    let fields = headers.iter();
    fields
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum()
}

/// Takes away what is about the connection alone, and what `Connection` names beside.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Headers in a form that text can carry: a value has any bytes but control characters, and each byte becomes the character of its number.
pub(crate) fn to_text(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| value.as_bytes().iter().copied().map(char::from).collect();
    headers
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), text(value)))
        .collect()
}

/// The opposite of [`to_text`]; none for what is no header, and for more than `most` fields.
pub(crate) fn from_text(fields: &[(String, String)], most: usize) -> Option<HeaderMap> {
    if fields.len() > most {
        return None;
    }
    let mut headers = HeaderMap::with_capacity(fields.len());
    for (name, value) in fields {
        let bytes: Vec<u8> = value
            .chars()
            .map(|char| u8::try_from(u32::from(char)))
            .collect::<Result<_, _>>()
            .ok()?;
        let name: HeaderName = name.parse().ok()?;
        headers.append(name, HeaderValue::from_bytes(&bytes).ok()?);
    }
    Some(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&str, &[u8])]) -> HeaderMap {
        let fields = fields.iter().map(|(name, value)| {
            let value = HeaderValue::from_bytes(value).expect("a value");
            (name.parse::<HeaderName>().expect("a name"), value)
        });
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(name, value);
        }
        headers
    }

    #[test]
    fn what_is_about_the_connection_is_taken_away() {
        let mut all = headers(&[
            ("connection", b"close, X-Mine"),
            ("connection", b"x-other"),
            ("x-mine", b"1"),
            ("x-other", b"1"),
            ("x-kept", b"1"),
            ("te", b"trailers"),
            ("transfer-encoding", b"chunked"),
            ("upgrade", b"websocket"),
            ("host", b"a"),
            ("cookie", b"c"),
        ]);
        strip_hop_by_hop(&mut all);
        assert_eq!(all, headers(&[("x-kept", b"1"), ("cookie", b"c")]));
    }

    #[test]
    fn headers_survive_as_text_and_what_is_none_is_refused() {
        let all = headers(&[
            ("set-cookie", b"a=1"),
            ("set-cookie", b"b=2"),
            ("x-any", b"\x80\xff\t \"\\"),
            ("x-empty", b""),
        ]);
        let text = to_text(&all);
        let json = serde_json::to_string(&text).expect("JSON");
        let back: Vec<(String, String)> = serde_json::from_str(&json).expect("JSON");
        assert_eq!(from_text(&back, 4), Some(all));
        assert_eq!(from_text(&back, 3), None);
        for (name, value) in [
            ("", "a"),
            ("a b", "a"),
            ("a\r\n", "a"),
            ("a", "b\r\nc: d"),
            ("a", "\u{100}"),
        ] {
            let fields = [(name.to_owned(), value.to_owned())];
            assert_eq!(from_text(&fields, 4), None, "{name:?} {value:?}");
        }
    }
}

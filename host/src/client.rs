//! A client of a node's HTTP API, as the command line uses it.
//!
//! It never sends a call again. Its errors say what to do, and keep three things apart: nobody was reached, so that nothing was sent;
//! the connection or the time ended after that, so that a call may have run; and the node or the guest refused.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode};
use reqwest::{Method, RequestBuilder, Response, Url};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::call::{Durability, Read, Target};
use crate::config::units::{Size, Span};

/// The longest wait for a connection.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How much longer than the call's own timeout an answer may take.
const GRACE: Duration = Duration::from_secs(5);
/// The longest wait for an answer where no timeout is given: the node's default for `call.max_timeout`, and the grace.
const LONGEST: Duration = Duration::from_secs(605);
/// The largest reply that is read, in bytes: the largest that `limits.reply` allows.
const REPLY_MAX_BYTES: usize = 1 << 30;
/// The longest path with its parameters that fits into a request, less what stands around key and method.
const URL_MAX_BYTES: usize = 65_000;
/// The largest body of an error that is read, in bytes.
const PROBLEM_MAX_BYTES: usize = 64 << 10;

/// A client of one node. Cheap to clone; connections are shared.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    server: Url,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server's address is none.
    #[error(
        "`{url}` is not the URL of a node: {reason}; give one like http://127.0.0.1:7070 with --server"
    )]
    Url {
        /// What was given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The key, or the method, makes a URL that HTTP does not carry. Nothing was sent.
    #[error(
        "{what} is too long: as a part of the URL it has {bytes} bytes, and a URL carries at most {URL_MAX_BYTES} (bytes that are not plain count three times); a shorter key, such as a hash of it, with the rest in the payload does it"
    )]
    TooLong {
        /// What is too long.
        what: &'static str,
        /// Its length as it would stand in the URL.
        bytes: usize,
    },
    /// No connection: nothing was sent.
    #[error(
        "no node answers at {server}: start one with `quarry dev` or `quarry serve`, or give --server ({reason})"
    )]
    Unreachable {
        /// The node's URL.
        server: String,
        /// What the system said.
        reason: String,
    },
    /// The connection ended before the answer came: the request may have been carried out.
    #[error(
        "the connection to {server} was lost before the reply came; the call may have run ({reason})"
    )]
    Lost {
        /// The node's URL.
        server: String,
        /// What the system said.
        reason: String,
    },
    /// No answer in time: the request may have been carried out.
    #[error("{server} did not answer within {}; the call may have run", Span(*after))]
    Timeout {
        /// The node's URL.
        server: String,
        /// How long the client waited.
        after: Duration,
    },
    /// The node or the guest refused the request.
    #[error("{}", refusal(.0))]
    Refused(Box<Refusal>),
    /// The answer is not that of a node.
    #[error("{server} does not answer as a Quarry node does: {what}; is --server right?")]
    Foreign {
        /// The URL.
        server: String,
        /// What came instead.
        what: String,
    },
}

impl Error {
    /// A stable word for the kind of failure; a refusal's own code.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Url { .. } => "invalid-url",
            Self::TooLong { .. } => "too-long",
            Self::Unreachable { .. } => "unreachable",
            Self::Lost { .. } => "connection-lost",
            Self::Timeout { .. } => "no-answer",
            Self::Refused(refusal) => &refusal.code,
            Self::Foreign { .. } => "foreign-server",
        }
    }

    /// Whether it is the way to the node that failed.
    #[must_use]
    pub fn is_connection(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. } | Self::Lost { .. } | Self::Timeout { .. }
        )
    }
}

/// A problem that a node answered with.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// The stable code.
    pub code: String,
    /// What happened, for a person.
    pub detail: String,
    /// Who says so: `host`, `guest` or `trap`.
    pub source: String,
    /// Whether the same request may succeed when made again.
    #[serde(default)]
    pub retryable: bool,
    /// The shard, where it is known.
    #[serde(default)]
    pub shard: Option<u32>,
}

fn refusal(refusal: &Refusal) -> String {
    let who = match refusal.source.as_str() {
        "guest" => "the guest refused",
        "trap" => "the guest failed",
        _ => "the node refused",
    };
    let shard = refusal
        .shard
        .map(|shard| format!(" on shard {shard}"))
        .unwrap_or_default();
    let again = if refusal.retryable {
        "; it may succeed when tried again"
    } else {
        ""
    };
    format!(
        "{who}{shard}: {} ({}, HTTP {}){again}",
        refusal.detail, refusal.code, refusal.status
    )
}

/// A call to make.
#[derive(Debug, Clone)]
pub struct Call {
    /// The guest's method.
    pub method: String,
    /// Where it goes.
    pub target: Target,
    /// The bytes for the guest.
    pub payload: Bytes,
    /// How long the node may take; its own default when none.
    pub timeout: Option<Duration>,
    /// Further headers.
    pub headers: Vec<(String, String)>,
    /// The only revision that may run it; any when none.
    pub revision: Option<u64>,
}

/// A reply.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The guest's bytes.
    pub payload: Bytes,
    /// All headers of the response.
    pub headers: HeaderMap,
}

impl Reply {
    /// A header of the response, where it is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

impl Client {
    /// A client of the node at a URL like `http://127.0.0.1:7070`. Does not connect yet.
    ///
    /// # Errors
    /// [`Error::Url`].
    pub fn new(server: &str) -> Result<Self, Error> {
        let fault = |reason: String| Error::Url {
            url: server.to_owned(),
            reason,
        };
        let mut url = Url::parse(server).map_err(|error| fault(error.to_string()))?;
        if !["http", "https"].contains(&url.scheme()) {
            return Err(fault(format!(
                "the scheme `{}` is neither http nor https",
                url.scheme()
            )));
        }
        if url.cannot_be_a_base() || url.host_str().is_none_or(str::is_empty) {
            return Err(fault("it names no host".into()));
        }
        url.set_query(None);
        url.set_fragment(None);
        let path = url.path().trim_end_matches('/').to_owned();
        url.set_path(&path);
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            // What was sent is not sent again, whatever the protocol would allow.
            .retry(reqwest::retry::never())
            .build()
            .map_err(|error| fault(causes(&error)))?;
        Ok(Self { http, server: url })
    }

    /// The node's URL.
    #[must_use]
    pub fn server(&self) -> &str {
        self.server.as_str().trim_end_matches('/')
    }

    /// Makes a call.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn call(&self, call: Call, durability: Option<Durability>) -> Result<Reply, Error> {
        let durability = durability.map(|durability| match durability {
            Durability::Durable => "durability=durable",
            Durability::Applied => "durability=applied",
        });
        self.run("call", call, durability).await
    }

    /// Asks a query.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn query(&self, call: Call, read: Read) -> Result<Reply, Error> {
        let read = match read {
            Read::Applied => "read=applied",
            Read::Durable => "read=durable",
        };
        self.run("query", call, Some(read)).await
    }

    /// How the cluster is, as `GET /v1/status` has it.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn status(&self) -> Result<Value, Error> {
        self.get("/v1/status").await
    }

    /// Asks for the JSON of a path with its parameters.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn get(&self, path: &str) -> Result<Value, Error> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let request = self.request(Method::GET, path, query);
        let reply = self.send(request, Duration::from_secs(30)).await?;
        serde_json::from_slice(&reply.payload)
            .map_err(|error| self.foreign(format!("{path} is not JSON: {error}")))
    }

    /// Has something done that a path names; gives the JSON of the answer.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn post(&self, path: &str, within: Duration) -> Result<Value, Error> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let request = self.request(Method::POST, path, query);
        let reply = self.send(request, within.saturating_add(GRACE)).await?;
        serde_json::from_slice(&reply.payload)
            .map_err(|error| self.foreign(format!("{path} is not JSON: {error}")))
    }

    /// Has something done that a JSON body describes; gives the JSON of the answer.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn post_json(
        &self,
        path: &str,
        body: &impl Serialize,
        within: Duration,
    ) -> Result<Value, Error> {
        let body = serde_json::to_vec(body)
            .map_err(|error| self.foreign(format!("the body has no JSON form: {error}")))?;
        let json = "application/json";
        self.post_body(path, json, body.into(), within).await
    }

    /// Sends bytes as they are; gives the JSON of the answer.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn upload(&self, path: &str, bytes: Bytes, within: Duration) -> Result<Value, Error> {
        self.post_body(path, "application/wasm", bytes, within)
            .await
    }

    async fn post_body(
        &self,
        path: &str,
        content: &str,
        body: Bytes,
        within: Duration,
    ) -> Result<Value, Error> {
        let request = self.request(Method::POST, path, "");
        let request = request
            .header(http::header::CONTENT_TYPE, content)
            .body(body);
        let reply = self.send(request, within.saturating_add(GRACE)).await?;
        serde_json::from_slice(&reply.payload)
            .map_err(|error| self.foreign(format!("{path} is not JSON: {error}")))
    }

    async fn run(&self, verb: &str, call: Call, option: Option<&str>) -> Result<Reply, Error> {
        let mut query = match &call.target {
            Target::Key(key) => format!("key={}", percent(key)),
            Target::Shard(shard) => format!("shard={shard}"),
        };
        let method = percent(call.method.as_bytes()).replace("%2F", "/");
        for (what, bytes) in [("the key", query.len()), ("the method", method.len())] {
            if query.len() + method.len() > URL_MAX_BYTES && bytes > URL_MAX_BYTES / 2 {
                return Err(Error::TooLong { what, bytes });
            }
        }
        if let Some(timeout) = call.timeout {
            _ = write!(query, "&timeout={}", Span(timeout));
        }
        if let Some(revision) = call.revision {
            _ = write!(query, "&revision={revision}");
        }
        if let Some(option) = option {
            _ = write!(query, "&{option}");
        }
        let path = format!("/v1/{verb}/{method}");
        let mut request = self.request(Method::POST, &path, &query).body(call.payload);
        for (name, value) in &call.headers {
            request = request.header(name, value);
        }
        self.send(
            request,
            call.timeout
                .map_or(LONGEST, |timeout| timeout.saturating_add(GRACE)),
        )
        .await
    }

    fn request(&self, method: Method, path: &str, query: &str) -> RequestBuilder {
        let mut url = self.server.clone();
        let path = format!("{}{path}", self.server.path().trim_end_matches('/'));
        url.set_path(&path);
        url.set_query(Some(query).filter(|query| !query.is_empty()));
        self.http.request(method, url)
    }

    async fn send(&self, request: RequestBuilder, within: Duration) -> Result<Reply, Error> {
        let exchange = async {
            let response = request.send().await.map_err(|error| self.failed(&error))?;
            let (status, headers) = (response.status(), response.headers().clone());
            if status.is_success() {
                return Ok(Reply {
                    payload: self.read(response, REPLY_MAX_BYTES).await?,
                    headers,
                });
            }
            let body = self.read(response, PROBLEM_MAX_BYTES).await?;
            Err(self.problem(status, &headers, &body))
        };
        let timeout = || {
            Err(Error::Timeout {
                server: self.server().to_owned(),
                after: within,
            })
        };
        tokio::time::timeout(within, exchange)
            .await
            .unwrap_or_else(|_| timeout())
    }

    async fn read(&self, mut response: Response, most: usize) -> Result<Bytes, Error> {
        let mut body = BytesMut::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| self.failed(&error))?
        {
            if body.len() + chunk.len() > most {
                return Err(
                    self.foreign(format!("its answer is larger than {}", Size(most as u64)))
                );
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body.freeze())
    }

    fn problem(&self, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Error {
        let is_problem = headers
            .get(http::header::CONTENT_TYPE)
            .is_some_and(|content| content.as_bytes().starts_with(b"application/problem+json"));
        if is_problem && let Ok(refusal) = serde_json::from_slice(body) {
            return Error::Refused(Box::new(refusal));
        }
        // The protocol's own refusals have no body.
        let known = [
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            StatusCode::URI_TOO_LONG,
        ];
        if known.contains(&status) {
            let detail =
                "the headers, or the path with its key, are too long (`http.max_header`, `http.max_uri`)".into();
            let (code, source) = ("headers-too-large".into(), "host".into());
            return Error::Refused(Box::new(Refusal {
                status: status.as_u16(),
                code,
                detail,
                source,
                retryable: false,
                shard: None,
            }));
        }
        self.foreign(format!("HTTP {status} without a problem"))
    }

    fn failed(&self, error: &reqwest::Error) -> Error {
        let (server, reason) = (self.server().to_owned(), causes(error));
        if error.is_connect() {
            return Error::Unreachable { server, reason };
        }
        if error.is_builder() {
            return Error::Url {
                url: server,
                reason,
            };
        }
        Error::Lost { server, reason }
    }

    fn foreign(&self, what: String) -> Error {
        Error::Foreign {
            server: self.server().to_owned(),
            what,
        }
    }
}

/// The causes of an error without its URL, the last first: it says most.
fn causes(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}

/// Bytes for a URL: what is not plain is escaped.
pub(crate) fn percent(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
            text.push(char::from(*byte));
        } else {
            _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn urls_of_a_node() {
        for (url, server) in [
            ("http://127.0.0.1:7070", "http://127.0.0.1:7070"),
            ("http://127.0.0.1:7070/", "http://127.0.0.1:7070"),
            ("http://proxy/quarry/?a=1#b", "http://proxy/quarry"),
        ] {
            assert_eq!(Client::new(url).expect(url).server(), server);
        }
        for (url, part) in [
            ("", "relative URL"),
            ("127.0.0.1:7070", "is not the URL of a node"),
            ("localhost:7070", "the scheme `localhost` is neither"),
            ("ftp://host", "the scheme `ftp` is neither"),
            ("http://", "empty host"),
        ] {
            let error = Client::new(url).expect_err(url).to_string();
            assert!(
                error.contains(part) && error.contains("--server"),
                "{url}: {error}"
            );
        }
    }

    #[test]
    fn a_call_becomes_a_url() {
        let client = Client::new("http://host/base").expect("client");
        let request = client.request(
            Method::POST,
            "/v1/call/main/put",
            &format!("key={}", percent(b"a/b c+\xff")),
        );
        let url = request.build().expect("request").url().to_string();
        assert_eq!(url, "http://host/base/v1/call/main/put?key=a%2Fb%20c%2B%FF");
    }

    #[tokio::test]
    async fn what_no_url_carries_is_named() {
        let client = Client::new("http://127.0.0.1:1").expect("client");
        for (key, method, named) in [
            ("k".repeat(65_535), "put".to_owned(), "the key"),
            ("/".repeat(30_000), "put".to_owned(), "the key"),
            ("k".into(), "m".repeat(65_535), "the method"),
        ] {
            let call = Call {
                method,
                target: Target::key(key),
                payload: Bytes::new(),
                timeout: None,
                headers: Vec::new(),
                revision: None,
            };
            let error = client.call(call, None).await.expect_err("too long");
            assert!(error.to_string().starts_with(named), "{error}");
            assert_eq!(error.code(), "too-long");
        }
    }

    #[tokio::test]
    async fn nobody_there_says_what_to_do() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("address");
        drop(listener);
        let error = Client::new(&format!("http://{address}"))
            .expect("client")
            .status()
            .await
            .expect_err("nobody listens");
        assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
        let text = error.to_string();
        assert!(
            text.contains(&format!(
                "no node answers at http://{address}: start one with `quarry dev`"
            )),
            "{text}"
        );
    }

    #[test]
    fn answers_that_are_no_reply() {
        let client = Client::new("http://host").expect("client");
        let mut headers = HeaderMap::new();
        headers.insert(
            "content-type",
            HeaderValue::from_static("application/problem+json"),
        );
        let body = br#"{"type":"t","title":"Conflict","status":409,"detail":"taken","code":"conflict","source":"guest","retryable":true,"shard":3}"#;
        let error = client.problem(StatusCode::CONFLICT, &headers, body);
        assert_eq!(error.code(), "conflict");
        assert_eq!(
            error.to_string(),
            "the guest refused on shard 3: taken (conflict, HTTP 409); it may succeed when tried again"
        );
        let error = client.problem(StatusCode::BAD_GATEWAY, &HeaderMap::new(), b"<html>");
        assert_eq!(
            error.to_string(),
            "http://host does not answer as a Quarry node does: HTTP 502 Bad Gateway without a problem; is --server right?"
        );
        let error = client.problem(StatusCode::URI_TOO_LONG, &HeaderMap::new(), b"");
        assert_eq!(error.code(), "headers-too-large");
    }
}

//! HTTP requests that a guest makes: to hosts that its revision is granted, and to nothing else.
//!
//! A request is to the world outside what a call is to another shard: it leaves once all that its shard has written is durable (promise P1), and
//! never after the lease ran out (P3); see `Calls::leave`. A query may ask, and not tell: it can be made
//! again, so it sends GET and HEAD alone.
//!
//! The connections live on a runtime of their own ([`Outside`]), and bodies cross to it in pieces through channels that hold little.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Method};
use reqwest::Url;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::Limits;
use super::http::bytes_of;
use super::log::{GuestLog, Level};

mod client;

pub use client::Outside;

/// Pieces of a body on their way between two threads.
const PIECES: usize = 2;
/// Places whose denial a guest's log has already.
const TOLD_MAX: usize = 32;

/// Why a request was not sent, or has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// It may not be sent.
    #[error("{0}")]
    Denied(String),
    /// A limit is in the way.
    #[error("{0}")]
    Limit(String),
    /// The time is up.
    #[error("{0}")]
    Late(String),
    /// The name of the host is not known.
    #[error("{0}")]
    NoName(String),
    /// Nobody listens there.
    #[error("{0}")]
    Refused(String),
    /// Whoever answers is not trusted, or speaks no TLS.
    #[error("{0}")]
    Untrusted(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

/// What an instance may ask, and how much of it at once.
pub struct Asking {
    module: Arc<str>,
    limits: Arc<Limits>,
    open: Arc<AtomicUsize>,
    told: Mutex<VecDeque<String>>,
}

/// A request that may be sent.
pub struct Ask {
    /// The method.
    pub method: Method,
    /// Where.
    pub url: Url,
    /// The headers.
    pub headers: HeaderMap,
    /// When its caller gives up.
    pub deadline: Instant,
    /// How long the head of the answer may take, where the guest says.
    pub first_byte: Option<Duration>,
    /// How long each further piece may take, where the guest says.
    pub between_bytes: Option<Duration>,
    open: Open,
}

/// A request that is open; no more when dropped.
struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A body on its way, piece by piece. Of an answer, an error or an empty piece is the last.
pub type Pieces = mpsc::Receiver<Result<Bytes, Failed>>;

/// An answer.
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Pieces,
    /// Ends with it.
    pub task: Task,
}

/// A task on the runtime of the connections; ended when dropped.
pub struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The body of a request on its way out.
pub enum Sent {
    /// There is none.
    Empty,
    /// It comes in pieces.
    Pieces(mpsc::Receiver<Result<Bytes, Failed>>),
}

/// A channel for the body of a request.
#[must_use]
pub fn pieces() -> (mpsc::Sender<Result<Bytes, Failed>>, Pieces) {
    mpsc::channel(PIECES)
}

impl Asking {
    /// What an instance of a module may ask.
    #[must_use]
    pub fn new(module: Arc<str>, limits: Arc<Limits>) -> Self {
        Self {
            module,
            limits,
            open: Arc::default(),
            told: Mutex::default(),
        }
    }

    /// The module's name.
    #[must_use]
    pub fn module(&self) -> &str {
        &self.module
    }

    /// The limits.
    #[must_use]
    pub fn limits(&self) -> &Arc<Limits> {
        &self.limits
    }

    /// Whether a request may be sent: to a host that is granted, by a method that the caller may use, within what may be open at once.
    ///
    /// # Errors
    /// Which of these it is not, and what to do.
    pub fn ask(
        &self,
        method: Method,
        url: Url,
        headers: HeaderMap,
        deadline: Instant,
        is_query: bool,
    ) -> Result<Ask, Failed> {
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            let message = format!("{} names no host", url.scheme());
            return Err(Failed::Denied(message));
        };
        if !matches!(url.scheme(), "http" | "https") {
            let message = format!(
                "guests can send to http and https, and not to {}",
                url.scheme()
            );
            return Err(Failed::Denied(message));
        }
        if !url.username().is_empty() || url.password().is_some() {
            let message = "the address has a user or a password; send the header `authorization`";
            return Err(Failed::Denied(message.into()));
        }
        if !self
            .limits
            .grants
            .iter()
            .any(|grant| grant.allows(host, port))
        {
            return Err(Failed::Denied(denied(&self.module, host, port)));
        }
        if method == Method::CONNECT {
            let message = "CONNECT makes a tunnel of a connection, and a guest has requests alone";
            return Err(Failed::Denied(message.into()));
        }
        if is_query && !matches!(method, Method::GET | Method::HEAD) {
            let message = format!(
                "a query can be made again, so it may send GET and HEAD, and not {method}; make it a call"
            );
            return Err(Failed::Denied(message));
        }
        let sizes = bytes_of(&headers);
        if sizes > self.limits.http_headers {
            return Err(Failed::Limit(format!(
                "the headers of the request have {sizes} bytes, over limits.http_headers ({})",
                self.limits.http_headers
            )));
        }
        let most = self.limits.http_requests;
        let open = Open(self.open.clone());
        if open.0.fetch_add(1, Ordering::AcqRel) >= most {
            return Err(Failed::Limit(format!(
                "{most} HTTP requests of this instance are open, all that may be at once (limits.http_requests); take or drop an answer first"
            )));
        }
        Ok(Ask {
            method,
            url,
            headers,
            deadline,
            first_byte: None,
            between_bytes: None,
            open,
        })
    }

    /// Says in the guest's log that it was denied something; once for each place.
    pub fn tell(&self, log: &GuestLog, url: &Url, why: &str) {
        let place = format!(
            "{}:{}",
            url.host_str().unwrap_or_default(),
            url.port_or_known_default().unwrap_or_default()
        );
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.contains(&place) {
            return;
        }
        if told.len() >= TOLD_MAX {
            told.pop_front();
        }
        told.push_back(place);
        drop(told);
        log.write(Level::Warn, why, &[]);
    }
}

/// That a place is not granted, and how it would be.
fn denied(module: &str, host: &str, port: u16) -> String {
    if host.starts_with('[') {
        return format!(
            "HTTP to {host}:{port} is not granted to module `{module}`, and cannot be: a grant has a name or an IPv4 address"
        );
    }
    let grant = match port {
        80 | 443 => format!("http:{host}"),
        port => format!("http:{host}:{port}"),
    };
    format!(
        "HTTP to {host}:{port} is not granted to module `{module}`: deploy it with `quarry deploy ... --grant {grant}`, or where `quarry dev` or `quarry serve --module` runs it, with their `--grant {grant}` (`module.grants`)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use crate::deploy::grants::grants;

    fn asking(texts: &[&str]) -> Asking {
        let texts: Vec<String> = texts.iter().map(ToString::to_string).collect();
        let limits = Limits {
            grants: grants(&texts),
            http_requests: 2,
            ..Limits::default()
        };
        Asking::new("web".into(), Arc::new(limits))
    }

    fn ask(asking: &Asking, method: Method, url: &str, is_query: bool) -> Result<Ask, Failed> {
        let url = url.parse().expect("an address");
        let deadline = clock::now() + Duration::from_secs(1);
        asking.ask(method, url, HeaderMap::new(), deadline, is_query)
    }

    #[test]
    fn what_is_not_granted_is_denied_and_told_how() {
        let asking = asking(&["http:api.example.com", "http:*.example.org:8080"]);
        for (url, says) in [
            ("http://api.example.com/a", ""),
            ("https://API.example.com", ""),
            ("http://a.example.org:8080", ""),
            (
                "http://api.example.com:81",
                "--grant http:api.example.com:81`",
            ),
            ("https://a.example.org", "--grant http:a.example.org`"),
            (
                "http://[::1]/",
                "HTTP to [::1]:80 is not granted to module `web`",
            ),
            // What an address is written as is not what it is.
            ("http://0x7f.1/", "HTTP to 127.0.0.1:80 is not granted"),
            (
                "http://api.example.com@evil.example/",
                "a user or a password",
            ),
            ("http://u:p@api.example.com/", "a user or a password"),
            ("ftp://api.example.com/", "and not to ftp"),
            ("file:///etc/passwd", "names no host"),
        ] {
            match ask(&asking, Method::POST, url, false) {
                Ok(_) => assert_eq!(says, "", "{url}"),
                Err(error) => {
                    let Failed::Denied(why) = &error else {
                        panic!("{url}: {error:?}");
                    };
                    assert!(!says.is_empty() && why.contains(says), "{url}: {why}");
                }
            }
        }
    }

    #[test]
    fn a_query_asks_and_does_not_tell() {
        let asking = asking(&["http:a.b"]);
        for (method, fine) in [
            (Method::GET, true),
            (Method::HEAD, true),
            (Method::POST, false),
            (Method::CONNECT, false),
        ] {
            let asked = ask(&asking, method.clone(), "http://a.b", true);
            assert_eq!(asked.is_ok(), fine, "{method}");
        }
    }

    #[test]
    fn only_so_many_are_open_at_once() {
        let asking = asking(&["http:a.b"]);
        let get = || ask(&asking, Method::GET, "http://a.b", false);
        let (one, _other) = (get().expect("room"), get().expect("room"));
        let Err(Failed::Limit(why)) = get() else {
            panic!("a third")
        };
        assert!(why.contains("limits.http_requests"), "{why}");
        drop(one);
        _ = get().expect("room again");
    }
}

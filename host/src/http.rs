//! The HTTP side of a node: it listens, bounds what a connection may do, and hands each request to its route.
//!
//! Everything that a client can hold on to is bounded: connections, header bytes and fields, the path, the body, the time that headers
//! and a body may take, and the time that a connection may do nothing. A connection that is cut ends the wait for a reply, never the
//! call: what was sent to a shard runs there to its end, and the reply is dropped.
//!
//! There are no layers between a connection and its route, since `POST /v1/call/...` is the hot path: its future lies inside the
//! connection's task, and nothing is boxed for it.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use ::http::HeaderValue;
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock;
use crate::cluster::Cluster;
use crate::config::Config;
use crate::listen;
use crate::metrics::{self, Exporter};

mod body;
mod calls;
mod deploy;
mod guest;
mod host;
mod openapi;
mod origin;
mod problem;
mod query;
mod route;
mod views;
mod watch;

pub(crate) use host::is_host;
pub(crate) use origin::is_origin;
pub use problem::{Problem, status_of};
pub use route::{ROUTES, Route};

use watch::{Activity, Verdict, Watched};

/// Header fields of a request, at most.
pub const HEADERS_MAX: usize = 64;
/// Requests in progress on one HTTP/2 connection, at most.
pub const STREAMS_MAX: u32 = 64;
/// Components that are uploaded at the same time, at most.
const UPLOADS_MAX: usize = 2;
/// Phases of a server, in their order: it serves,
const SERVING: u8 = 0;
/// accepts nothing more and finishes what is in progress,
const DRAINING: u8 = 1;
/// and cuts the rest.
const CUT: u8 = 2;
/// The longest pause after an accept that failed, such as for want of file descriptors.
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// What the HTTP side is bound to. The setting of each is `http.<field>`, but for the last two: `call.<field>`.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Where to listen. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// Bytes of a request's body, at most.
    pub max_body: usize,
    /// Bytes of all bodies together whose requests are in progress, at most; more are refused with 429.
    pub max_bodies: usize,
    /// Bytes of a request's headers, at most.
    pub max_header: usize,
    /// Bytes of a request's path and query, at most. The protocol's own limit is 65,534.
    pub max_uri: usize,
    /// Origins of web pages that may make requests although they are not this node's own, like `https://app.example.com`; `*` is all.
    pub allow_origins: Vec<String>,
    /// Names that may stand in `Host`, beside `localhost` and addresses; `*` is any. Empty, on an address that is not loopback: any.
    pub hosts: Vec<String>,
    /// Connections at once; more wait to be accepted.
    pub max_connections: usize,
    /// A connection on which nothing happens for this long is closed.
    pub idle_timeout: Duration,
    /// The longest that a request's headers may take to arrive; checked every half of it.
    pub header_timeout: Duration,
    /// How long a call may take whose caller does not say.
    pub timeout: Duration,
    /// The longest timeout that a caller may ask for.
    pub max_timeout: Duration,
}

impl From<&Config> for HttpOptions {
    fn from(config: &Config) -> Self {
        let (http, call) = (&config.http, &config.call);
        let bytes = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
        Self {
            listen: http.listen,
            max_body: bytes(http.max_body),
            max_bodies: bytes(http.max_bodies),
            max_header: bytes(http.max_header),
            max_uri: bytes(http.max_uri),
            allow_origins: http.allow_origins.clone(),
            hosts: http.hosts.clone(),
            max_connections: http.max_connections,
            idle_timeout: http.idle_timeout,
            header_timeout: http.header_timeout,
            timeout: call.timeout,
            max_timeout: call.max_timeout,
        }
    }
}

/// Why the HTTP side does not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another process listens there.
    #[error(
        "another process listens on {address}: stop it, or choose another address with `--listen` (`http.listen`), such as port 0 for a free one"
    )]
    InUse {
        /// The address.
        address: SocketAddr,
    },
    /// The address is not this machine's, or its port is reserved.
    #[error(
        "cannot listen on {address}: {reason}; `--listen` (`http.listen`) chooses another address"
    )]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        reason: io::Error,
    },
}

/// A listening HTTP side. Dropping it stops it at once; [`HttpServer::stop`] lets requests in progress finish.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    tasks: TaskTracker,
    /// No new connection, and none is kept after its requests in progress.
    drain: CancellationToken,
    /// Every connection ends now.
    cut: CancellationToken,
}

/// An address that nobody else can listen on. Connections wait to be accepted until [`HttpServer::serve`].
#[derive(Debug)]
pub struct Reserved {
    listener: std::net::TcpListener,
    wanted: SocketAddr,
}

impl Reserved {
    /// Takes the address, before anything is done that an address in use should prevent. Within a Tokio runtime.
    ///
    /// # Errors
    /// When it is in use or not this machine's, or this is no thread of a Tokio runtime.
    pub fn new(wanted: SocketAddr) -> Result<Self, Error> {
        let listener = listen::reserve(wanted).map_err(|reason| bind_error(wanted, reason))?;
        Ok(Self { listener, wanted })
    }
}

impl HttpServer {
    /// Listens, and serves `cluster` on the runtime `on` until it is stopped.
    ///
    /// # Errors
    /// When it cannot listen at `options.listen`.
    pub async fn bind(options: HttpOptions, cluster: Cluster, on: &Handle) -> Result<Self, Error> {
        let reserved = Reserved::new(options.listen)?;
        Self::serve(reserved, options, cluster, on).await
    }

    /// As [`HttpServer::bind`], at an address that was reserved before.
    ///
    /// # Errors
    /// When the system does not let this runtime have the socket.
    pub async fn serve(
        reserved: Reserved,
        options: HttpOptions,
        cluster: Cluster,
        on: &Handle,
    ) -> Result<Self, Error> {
        let Reserved { listener, wanted } = reserved;
        // The socket belongs to the runtime that serves it, not to the caller's.
        let bound = on
            .spawn(async move { TcpListener::from_std(listener) })
            .await;
        let listener = bound
            .unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(|reason| bind_error(wanted, reason))?;
        let address = listener
            .local_addr()
            .map_err(|reason| bind_error(wanted, reason))?;
        let node = HeaderValue::from_str(cluster.node()).ok();
        let exporter = metrics::install();
        let shared = Arc::new(Shared {
            node,
            cluster,
            exporter,
            counts: route::Counts::new(),
            started: clock::now(),
            stopping: AtomicBool::new(false),
            phase: AtomicU8::new(SERVING),
            connections: metrics::http_connections(),
            bodies: body::Bodies::new(options.max_bodies),
            uploads: Semaphore::new(UPLOADS_MAX),
            options,
        });
        let (tasks, drain, cut) = (
            TaskTracker::new(),
            CancellationToken::new(),
            CancellationToken::new(),
        );
        let listening = Listening {
            shared: shared.clone(),
            tasks: tasks.clone(),
            drain: drain.clone(),
            cut: cut.clone(),
        };
        tasks.spawn_on(listening.accept(listener), on);
        tasks.spawn_on(upkeep(exporter, drain.clone()), on);
        tracing::info!(%address, "HTTP listens");
        Ok(Self {
            address,
            shared,
            tasks,
            drain,
            cut,
        })
    }

    /// Where it listens, with the port that it got.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Says over `/ready` that this node is about to stop, while everything is still served.
    pub fn announce_stop(&self) {
        self.shared.stopping.store(true, Ordering::Release);
    }

    /// Stops: no further connection is accepted, requests in progress have `drain` to finish, and then their connections are cut.
    /// Returns whether all of them finished.
    pub async fn stop(self, drain: Duration) -> bool {
        self.announce_stop();
        self.enter(DRAINING);
        self.tasks.close();
        let finished = clock::timeout(drain, self.tasks.wait()).await.is_ok();
        if !finished {
            tracing::warn!(
                connections = self.tasks.len(),
                "HTTP connections are cut: their requests did not finish in time"
            );
            self.enter(CUT);
            self.tasks.wait().await;
        }
        finished
    }

    /// The phase first: whoever is woken, or looks by chance, has to find it.
    fn enter(&self, phase: u8) {
        self.shared.phase.fetch_max(phase, Ordering::AcqRel);
        self.drain.cancel();
        if phase == CUT {
            self.cut.cancel();
        }
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.enter(CUT);
    }
}

/// What all requests share.
struct Shared {
    cluster: Cluster,
    options: HttpOptions,
    exporter: Exporter,
    counts: route::Counts,
    /// This node's name as a header; none where it cannot be one.
    node: Option<HeaderValue>,
    started: Instant,
    /// This node is about to stop.
    stopping: AtomicBool,
    phase: AtomicU8,
    connections: ::metrics::Gauge,
    bodies: body::Bodies,
    /// Components in transfer, whose bytes are in no other bound.
    uploads: Semaphore,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

struct Listening {
    shared: Arc<Shared>,
    tasks: TaskTracker,
    drain: CancellationToken,
    cut: CancellationToken,
}

impl Listening {
    async fn accept(self, listener: TcpListener) {
        let permits = Arc::new(Semaphore::new(
            self.shared
                .options
                .max_connections
                .clamp(1, Semaphore::MAX_PERMITS),
        ));
        let mut pause = Duration::from_millis(1);
        loop {
            let accepted = tokio::select! {
                biased;
                () = self.drain.cancelled() => return,
                accepted = accept(&listener, &permits) => accepted,
            };
            match accepted {
                Ok((stream, permit)) => {
                    pause = Duration::from_millis(1);
                    self.tasks.spawn(serve(
                        stream,
                        permit,
                        self.shared.clone(),
                        self.drain.clone(),
                        self.cut.clone(),
                    ));
                }
                Err(error) => {
                    tracing::warn!(%error, "HTTP cannot accept a connection");
                    tokio::select! {
                        biased;
                        () = self.drain.cancelled() => return,
                        () = clock::sleep(pause) => pause = (pause * 2).min(ACCEPT_PAUSE_MAX),
                    }
                }
            }
        }
    }
}

/// A permit first: a connection beyond the limit stays in the system's queue, whose length bounds it.
async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let permit = permits
        .clone()
        .acquire_owned()
        .await
        .map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    // A reply is one small write, and must not wait for the acknowledgement of the one before.
    stream.set_nodelay(true)?;
    Ok((stream, permit))
}

/// Serves one connection until it ends, does nothing for too long, or has to.
async fn serve(
    stream: TcpStream,
    permit: OwnedSemaphorePermit,
    shared: Arc<Shared>,
    drain: CancellationToken,
    cut: CancellationToken,
) {
    shared.connections.increment(1.0);
    let activity = Arc::new(Activity::new(clock::now()));
    let io = TokioIo::new(Watched::new(stream, activity.clone()));
    let builder = builder(&shared.options);
    // What a request clones is its connection's own: a counter that all connections share would be fought over.
    let own = Arc::new((shared.clone(), activity.clone()));
    let service = service_fn(move |request: ::http::Request<Incoming>| {
        let (own, busy) = (own.clone(), own.1.request());
        async move {
            let one = request.version() < ::http::Version::HTTP_2;
            let mut response = route::answer(&own.0, request).await;
            if one && own.0.stopping.load(Ordering::Acquire) {
                // Whoever keeps a connection comes back on another, instead of sending into the end of this one.
                let close = HeaderValue::from_static("close");
                response
                    .headers_mut()
                    .insert(::http::header::CONNECTION, close);
            }
            busy.answered(response.body().size_hint().lower());
            Ok::<_, Infallible>(response)
        }
    });
    let mut connection = pin!(builder.serve_connection(io, service));
    let (mut drain, mut cut) = (pin!(drain.cancelled()), pin!(cut.cancelled()));
    let (header, idle) = (shared.options.header_timeout, shared.options.idle_timeout);
    let every = (header.min(idle) / 2).max(Duration::from_millis(10));
    let mut check = pin!(clock::sleep(every));
    let (mut ending, mut seen) = (false, None);
    loop {
        let step = poll_fn(|context| {
            if let Poll::Ready(ended) = connection.as_mut().poll(context) {
                return Poll::Ready(Step::Ended(ended));
            }
            let phase = shared.phase.load(Ordering::Acquire);
            if seen.is_none() {
                // To be woken when the phase moves. Once is enough: it is this task that they wake. Each of these takes a lock
                // that all connections share, which is too much for every request.
                _ = (drain.as_mut().poll(context), cut.as_mut().poll(context));
            }
            if seen != Some(phase) {
                seen = Some(phase);
                if phase > SERVING {
                    return Poll::Ready(Step::Phase(phase));
                }
            }
            check.as_mut().poll(context).map(|()| Step::Check)
        });
        match step.await {
            Step::Ended(Ok(())) | Step::Phase(CUT) => break,
            Step::Ended(Err(error)) => {
                tracing::debug!(%error, "HTTP connection failed");
                break;
            }
            // Between two requests it ends at once; otherwise with the one in progress.
            Step::Phase(_) => connection.as_mut().graceful_shutdown(),
            Step::Check => {
                match activity.judge(clock::now(), header, idle) {
                    Verdict::Fine => {}
                    // Half of a request, or none at all: there is nothing that could finish.
                    Verdict::Stuck => break,
                    // The peer does not even read that it ends.
                    Verdict::Idle if ending => break,
                    Verdict::Idle => {
                        ending = true;
                        connection.as_mut().graceful_shutdown();
                    }
                }
                check.as_mut().reset(clock::now() + every);
            }
        }
    }
    shared.connections.decrement(1.0);
    drop(permit);
}

/// What a connection's task has to do.
enum Step {
    /// The connection is over.
    Ended(Result<(), Box<dyn std::error::Error + Send + Sync>>),
    /// The server entered another phase.
    Phase(u8),
    /// It is time to see what the connection does.
    Check,
}

/// The protocol's own bounds lie somewhat above ours, so that what is over a limit mostly gets a problem that names it.
fn builder(options: &HttpOptions) -> auto::Builder<TokioExecutor> {
    let head = options
        .max_header
        .saturating_mul(2)
        .saturating_add(options.max_uri)
        .clamp(64 << 10, 4 << 20);
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_buf_size(head);
    let list = u32::try_from(head).unwrap_or(u32::MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(list);
    builder
}

async fn upkeep(exporter: Exporter, drain: CancellationToken) {
    while clock::timeout(metrics::UPKEEP_INTERVAL, drain.cancelled())
        .await
        .is_err()
    {
        exporter.upkeep();
    }
}

fn bind_error(address: SocketAddr, reason: io::Error) -> Error {
    match reason.kind() {
        io::ErrorKind::AddrInUse => Error::InUse { address },
        _ => Error::Bind { address, reason },
    }
}

#[cfg(test)]
mod tests;

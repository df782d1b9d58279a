//! The internal listener: peers prove themselves once a connection, then their requests are handed to this node's [`Service`].
//!
//! It is a door apart from the public one, and nothing gets through it unproved: a request on a connection that has not proved itself is
//! answered with 401 and nothing else, whatever its path and headers say. Such connections are few at a time, and cut soon. All that a
//! peer can hold on to is bounded: connections, requests, bodies, headers, and the time that a body takes.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use ::http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::auth::{self, Challenge, End, Hello, MESSAGE_MAX_BYTES, PROTOCOL, Proof, Unfit};
use super::wire::Pieces;
use super::{Identity, Limits, Service};
use crate::clock;
use crate::listen;

mod body;
mod requests;

/// Where a client says who it is, and proves it; see [`auth`].
pub(super) const HELLO: &str = "/internal/hello";
/// The second half.
pub(super) const PROVE: &str = "/internal/prove";
/// Where calls and queries go.
pub(super) const CALL: &str = "/internal/call";
/// Where questions go.
pub(super) const ASK: &str = "/internal/ask";

/// How long a connection may take to prove itself.
const PROOF_TIME: Duration = Duration::from_secs(2);
/// How long a connection that was refused may take to end.
const REFUSED_TIME: Duration = Duration::from_secs(1);
/// Connections that have not proved themselves, at most; more wait to be accepted.
const UNPROVED_MAX: usize = 32;
/// Bytes that a connection may send before they are read, and a stream of it.
const CONNECTION_WINDOW: u32 = 1 << 20;
const STREAM_WINDOW: u32 = 256 << 10;
/// Bytes of a request's headers, at most. What is meant for a guest travels in the body.
const HEADERS_MAX_BYTES: u32 = 8 << 10;
/// How often a peer is asked whether it is still there, and how long it may take to say so.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(10);
pub(super) const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// The pause after an accept that failed, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why the internal listener does not listen.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot listen for other nodes on {address}: {reason}; `--internal-listen` (`internal.listen`) chooses another address, such as port 0 for a free one"
)]
pub struct BindError {
    /// The address.
    pub address: SocketAddr,
    /// What the system said.
    pub reason: io::Error,
}

/// An address that is taken. Peers that connect wait until [`Listener::serve`].
#[derive(Debug)]
pub struct Listener {
    listener: std::net::TcpListener,
    address: SocketAddr,
}

/// The internal listener at work. Dropping it ends it at once.
#[derive(Debug)]
pub struct Server {
    tasks: TaskTracker,
    drain: CancellationToken,
    cut: CancellationToken,
}

impl Listener {
    /// Takes an address. Within a Tokio runtime.
    ///
    /// # Errors
    /// When it is in use, or not this machine's.
    pub fn bind(wanted: SocketAddr) -> Result<Self, BindError> {
        let bind = || {
            let listener = listen::reserve(wanted)?;
            let address = listener.local_addr()?;
            Ok(Self { listener, address })
        };
        bind().map_err(|reason| BindError {
            address: wanted,
            reason,
        })
    }

    /// Where it listens, with the port that it got.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves peers on the runtime `on`, for as long as the service is there.
    ///
    /// # Errors
    /// When the system does not let this runtime have the socket.
    pub async fn serve(
        self,
        identity: Arc<Identity>,
        service: Weak<dyn Service>,
        limits: Limits,
        on: &Handle,
    ) -> Result<Server, BindError> {
        let Self { listener, address } = self;
        // The socket belongs to the runtime that serves it, not to the caller's.
        let bound = on
            .spawn(async move { TcpListener::from_std(listener) })
            .await;
        let listener = bound
            .unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(|reason| BindError { address, reason })?;
        let server = Server {
            tasks: TaskTracker::new(),
            drain: CancellationToken::new(),
            cut: CancellationToken::new(),
        };
        let listening = Listening {
            shared: Arc::new(Shared {
                identity,
                service,
                limits,
                payloads: AtomicUsize::new(0),
            }),
            tasks: server.tasks.clone(),
            drain: server.drain.clone(),
            cut: server.cut.clone(),
        };
        server.tasks.spawn_on(listening.accept(listener), on);
        tracing::info!(%address, "listening for other nodes");
        Ok(server)
    }
}

impl Server {
    /// Stops: accepts nothing more, gives requests in progress `drain` to finish, and then cuts them.
    pub async fn stop(self, drain: Duration) {
        self.drain.cancel();
        self.tasks.close();
        if clock::timeout(drain, self.tasks.wait()).await.is_err() {
            self.cut.cancel();
            self.tasks.wait().await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.drain.cancel();
        self.cut.cancel();
    }
}

/// What all connections share.
struct Shared {
    identity: Arc<Identity>,
    service: Weak<dyn Service>,
    limits: Limits,
    /// Bytes of bodies that are being read or run.
    payloads: AtomicUsize,
}

struct Listening {
    shared: Arc<Shared>,
    tasks: TaskTracker,
    drain: CancellationToken,
    cut: CancellationToken,
}

impl Listening {
    async fn accept(self, listener: TcpListener) {
        let all = self
            .shared
            .limits
            .connections
            .clamp(1, Semaphore::MAX_PERMITS);
        let (all, unproved) = (
            Arc::new(Semaphore::new(all)),
            Arc::new(Semaphore::new(UNPROVED_MAX)),
        );
        loop {
            let accepted = tokio::select! {
                biased;
                () = self.drain.cancelled() => return,
                accepted = accept(&listener, &all, &unproved) => accepted,
            };
            match accepted {
                Ok((stream, permit, unproved)) => {
                    let connection = Connection {
                        shared: self.shared.clone(),
                        is_proved: AtomicBool::new(false),
                        standing: Mutex::new(Standing::Fresh),
                        unproved: Mutex::new(Some(unproved)),
                        refused: Notify::new(),
                    };
                    let (drain, cut) = (self.drain.clone(), self.cut.clone());
                    self.tasks.spawn(async move {
                        serve(stream, Arc::new(connection), drain, cut).await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection of another node");
                    tokio::select! {
                        biased;
                        () = self.drain.cancelled() => return,
                        () = clock::sleep(ACCEPT_PAUSE) => {}
                    }
                }
            }
        }
    }
}

async fn accept(
    listener: &TcpListener,
    all: &Arc<Semaphore>,
    unproved: &Arc<Semaphore>,
) -> io::Result<(TcpStream, OwnedSemaphorePermit, OwnedSemaphorePermit)> {
    let permit = all.clone().acquire_owned().await;
    let permit = permit.map_err(io::Error::other)?;
    let unproved = unproved.clone().acquire_owned().await;
    let unproved = unproved.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok((stream, permit, unproved))
}

/// A connection, from its first byte.
struct Connection {
    shared: Arc<Shared>,
    /// The fast read of `standing`.
    is_proved: AtomicBool,
    standing: Mutex<Standing>,
    unproved: Mutex<Option<OwnedSemaphorePermit>>,
    refused: Notify,
}

/// How far a connection has proved itself. It has one try.
enum Standing {
    Fresh,
    Challenged { hello: Hello, challenge: String },
    Proved,
    Refused,
}

async fn serve(
    stream: TcpStream,
    connection: Arc<Connection>,
    drain: CancellationToken,
    cut: CancellationToken,
) {
    let limits = &connection.shared.limits;
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(u32::try_from(limits.requests).unwrap_or(u32::MAX))
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_stream_window_size(STREAM_WINDOW)
        .max_header_list_size(HEADERS_MAX_BYTES)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .auto_date_header(false);
    let own = connection.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let own = own.clone();
        async move { Ok::<_, Infallible>(own.answer(request).await) }
    });
    let mut serving = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut end = pin!(clock::sleep(PROOF_TIME));
    let (mut draining, mut refused, mut proved) = (false, false, false);
    loop {
        tokio::select! {
            ended = serving.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection of another node failed");
                }
                return;
            }
            () = cut.cancelled() => return,
            () = drain.cancelled(), if !draining => {
                draining = true;
                serving.as_mut().graceful_shutdown();
            }
            () = connection.refused.notified(), if !refused => {
                refused = true;
                serving.as_mut().graceful_shutdown();
                end.as_mut().reset(clock::now() + REFUSED_TIME);
            }
            () = end.as_mut(), if !proved => {
                if refused || !connection.is_proved.load(Ordering::Acquire) {
                    return;
                }
                proved = true;
            }
        }
    }
}

impl Connection {
    async fn answer(&self, request: Request<Incoming>) -> Response<Pieces> {
        if self.is_proved.load(Ordering::Acquire) {
            return requests::answer(&self.shared, request).await;
        }
        match (request.method(), request.uri().path()) {
            (&Method::POST, HELLO) => self.hello(request).await,
            (&Method::POST, PROVE) => self.prove(request).await,
            _ => self.refuse(),
        }
    }

    /// The first half of the handshake.
    async fn hello(&self, request: Request<Incoming>) -> Response<Pieces> {
        let Some(hello) = message::<Hello>(request).await else {
            return self.refuse();
        };
        if hello.check().is_err() {
            return self.refuse();
        }
        let challenge = auth::random();
        {
            let mut standing = self.standing();
            if !matches!(*standing, Standing::Fresh) {
                drop(standing);
                return self.refuse();
            }
            *standing = Standing::Challenged {
                hello,
                challenge: challenge.clone(),
            };
        }
        json(
            StatusCode::OK,
            &Challenge {
                protocol: PROTOCOL,
                challenge,
            },
        )
    }

    /// The second.
    async fn prove(&self, request: Request<Incoming>) -> Response<Pieces> {
        let Some(proof) = message::<Proof>(request).await else {
            return self.refuse();
        };
        // Taken out: whatever comes of it, the challenge is used up.
        let standing = std::mem::replace(&mut *self.standing(), Standing::Refused);
        let Standing::Challenged { hello, challenge } = standing else {
            return self.refuse();
        };
        let identity = &self.shared.identity;
        if !auth::is_proved(&identity.secret, End::Client, &hello, &challenge, &proof) {
            tracing::warn!(
                from = %hello.from.name.escape_debug(),
                "a connection to the internal listener was refused: its proof is not made with this cluster's secret"
            );
            return self.refuse();
        }
        if let Some(error) = misfit(identity, &hello) {
            tracing::warn!(
                from = hello.from.name,
                error,
                "another node was turned away"
            );
            self.refused.notify_one();
            return json(StatusCode::FORBIDDEN, &Unfit { error });
        }
        let proof = auth::prove(&identity.secret, End::Server, &hello, &challenge);
        tracing::debug!(from = hello.from.name, "another node connected");
        *self.standing() = Standing::Proved;
        self.is_proved.store(true, Ordering::Release);
        let unproved = self.unproved.lock();
        unproved.unwrap_or_else(PoisonError::into_inner).take();
        json(StatusCode::OK, &proof)
    }

    /// 401 and nothing else, and the end of the connection.
    fn refuse(&self) -> Response<Pieces> {
        let mut standing = self.standing();
        if !matches!(*standing, Standing::Proved) {
            *standing = Standing::Refused;
        }
        drop(standing);
        self.refused.notify_one();
        let mut response = Response::new(Pieces::default());
        *response.status_mut() = StatusCode::UNAUTHORIZED;
        response
    }

    fn standing(&self) -> std::sync::MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a node that knows the secret is turned away all the same: in the words that it says at its end.
fn misfit(identity: &Identity, hello: &Hello) -> Option<String> {
    let own = identity.party();
    let text = if hello.protocol != PROTOCOL {
        format!(
            "it speaks version {PROTOCOL} of the internal protocol, and this node version {}: run the same version of Quarry on both",
            hello.protocol
        )
    } else if hello.cluster != identity.cluster {
        format!(
            "it belongs to the cluster `{}`, and this node to `{}`: set `cluster` to the same name on every node",
            identity.cluster, hello.cluster
        )
    } else if hello.shards != identity.shards {
        format!(
            "its cluster has {} shards, and this node is configured with {}: set `shards` to the same number on every node",
            identity.shards, hello.shards
        )
    } else if hello.to.name != own.name {
        format!(
            "it is node `{}`, not `{}`: does `internal.advertise` of `{}` lead to another node?",
            own.name, hello.to.name, hello.to.name
        )
    } else if hello.to.session != own.session {
        format!("node `{}` is in another session by now", own.name)
    } else {
        return None;
    };
    Some(text)
}

/// A message of the handshake; nothing where it is none, is too long, or takes too long (the connection's own deadline bounds that).
async fn message<M: for<'m> serde::Deserialize<'m>>(request: Request<Incoming>) -> Option<M> {
    let body = body::read(request.into_body(), MESSAGE_MAX_BYTES, None).await;
    serde_json::from_slice(&body.ok()?.0).ok()
}

fn json(status: StatusCode, value: &impl serde::Serialize) -> Response<Pieces> {
    let text = serde_json::to_vec(value).unwrap_or_default();
    let mut response = Response::new(Pieces::plain(text));
    *response.status_mut() = status;
    response
}

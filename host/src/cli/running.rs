//! A node of this process, as `serve` and `dev` run it: guest, cluster, HTTP, and a clean stop on a signal.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::{Builder, Handle, Runtime as Threads};
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};

use super::{Error, Output};
use crate::Cluster;
use crate::cluster::StartError;
use crate::config::{Config, Strategy};
use crate::guest::wasm::{Runtime, RuntimeOptions, default_cache_dir};
use crate::guest::{Limits, Module};
use crate::http::{self, HttpOptions, HttpServer, Reserved};
use crate::metrics;
use crate::store;

/// The largest component that is read, in bytes.
const COMPONENT_MAX_BYTES: u64 = 256 << 20;

/// A node that serves.
pub(super) struct Node {
    pub cluster: Cluster,
    pub http: HttpServer,
    pub guests: Arc<Runtime>,
    config: Arc<Config>,
    http_threads: HttpThreads,
}

/// The threads of the HTTP side. Dropping them does not wait, which is not allowed where they are dropped.
struct HttpThreads(Option<Threads>);

impl HttpThreads {
    fn start(config: &Config) -> Result<(Self, Handle), Error> {
        let threads = Builder::new_multi_thread()
            .worker_threads(config.threads.http)
            .thread_name("quarry-http")
            .enable_all()
            .build();
        let threads =
            threads.map_err(|error| Error::Failed(format!("no threads for HTTP: {error}")))?;
        let handle = threads.handle().clone();
        Ok((Self(Some(threads)), handle))
    }
}

impl Drop for HttpThreads {
    fn drop(&mut self) {
        if let Some(threads) = self.0.take() {
            threads.shutdown_background();
        }
    }
}

/// What ends a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// A request to end.
    Terminate,
}

/// The signals that end a node, watched from when this is made: one that comes between two waits is not missed.
pub(super) struct Signals {
    interrupt: SignalStream,
    terminate: SignalStream,
}

impl Signals {
    /// Begins to watch.
    pub fn watch() -> Result<Self, Error> {
        let watch = |kind| {
            signal(kind)
                .map_err(|error| Error::Failed(format!("signals cannot be watched: {error}")))
        };
        Ok(Self {
            interrupt: watch(SignalKind::interrupt())?,
            terminate: watch(SignalKind::terminate())?,
        })
    }

    /// Waits for Ctrl-C or a request to end. Safe to drop.
    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::Interrupt,
            _ = self.terminate.recv() => Signal::Terminate,
        }
    }
}

/// Where a node has its guests from.
pub(super) enum Guest {
    /// It runs this, whatever is deployed.
    Pinned(Arc<dyn Module>),
    /// It runs what is deployed; with a component for a cluster to which nothing was.
    Deployed(Option<Bytes>),
}

impl Node {
    /// Starts a node with a guest.
    pub async fn start(
        config: Arc<Config>,
        guests: Arc<Runtime>,
        guest: Guest,
    ) -> Result<Self, Error> {
        // Before the cluster, which makes the metrics of its shards.
        metrics::install();
        let failed = |error: http::Error| Error::Failed(error.to_string());
        let (http_threads, http) = HttpThreads::start(&config)?;
        // First: a node that was started twice must not take the shards from its twin before it notices.
        let address = Reserved::new(config.http.listen).map_err(failed)?;
        let builder = match guest {
            Guest::Pinned(module) => Cluster::builder(config.clone(), module),
            Guest::Deployed(first) => {
                let builder = Cluster::deployed(config.clone(), Arc::new(guests.clone()));
                match first {
                    Some(component) => builder.first(component),
                    None => builder,
                }
            }
        };
        let cluster = builder.start().await.map_err(start_error)?;
        let bound =
            HttpServer::serve(address, HttpOptions::from(&*config), cluster.clone(), &http).await;
        match bound {
            Ok(http) => Ok(Self {
                cluster,
                http,
                guests,
                config,
                http_threads,
            }),
            Err(error) => {
                cluster.stop().await;
                Err(failed(error))
            }
        }
    }

    /// The address that clients use.
    pub fn url(&self) -> String {
        format!("http://{}", self.http.local_addr())
    }

    /// Finishes the requests in progress, then closes every shard. A second signal ends the process at once.
    pub async fn stop(self, signals: &mut Signals, out: Output) {
        let ended = async {
            self.http.announce_stop();
            if self.config.strategy != Strategy::Local {
                tokio::time::sleep(FAREWELL).await;
            }
            self.http.stop(self.config.http.drain_timeout).await;
            self.cluster.stop().await;
        };
        tokio::select! {
            () = ended => {}
            _ = signals.next() => out.note("ended at once; whatever was acknowledged is safe"),
        }
        drop(self.http_threads);
    }
}

/// How long a node with peers goes on serving once it is to stop. Its readiness says so meanwhile, and each reply ends its connection:
/// clients that keep connections come back to another node, and none of them sends a request into a connection as it closes.
const FAREWELL: Duration = Duration::from_millis(500);

/// What the configuration is to blame for is told from what failed.
fn start_error(error: StartError) -> Error {
    let text = error.to_string();
    match error {
        StartError::Config(error) => Error::Config(error),
        StartError::Settings(_) | StartError::Merge(_) | StartError::Maintenance(_) => {
            Error::Usage(text)
        }
        StartError::Store(
            store::Error::Url { .. }
            | store::Error::Credentials { .. }
            | store::Error::UnknownOption { .. }
            | store::Error::RefusedOption { .. },
        ) => Error::Usage(text),
        StartError::Store(_)
        | StartError::Record(_)
        | StartError::RecordTimeout { .. }
        | StartError::Guest { .. }
        | StartError::Deploy(_)
        | StartError::NameTaken { .. }
        | StartError::Internal(_)
        | StartError::Threads(_) => Error::Failed(text),
    }
}

/// The engine of a node.
pub(super) fn engine(config: &Config) -> Result<Arc<Runtime>, Error> {
    let options = RuntimeOptions {
        instances: config.instances(),
        writers: config.writers(),
        compile_threads: config.threads.compile,
        cache_dir: default_cache_dir(),
    };
    Runtime::new(options).map_err(|error| Error::Failed(error.to_string()))
}

/// Reads, checks and compiles a component.
pub(super) async fn load(
    guests: &Arc<Runtime>,
    config: &Config,
    path: &Path,
    revision: u64,
) -> Result<Arc<dyn Module>, Error> {
    let bytes = read(path)?;
    let limits = Arc::new(Limits::from(config));
    let loaded = guests
        .load(bytes, config.module.name.as_str().into(), revision, limits)
        .await;
    let module = loaded.map_err(|error| Error::Failed(format!("{}: {error}", path.display())))?;
    Ok(module)
}

/// A component's bytes.
pub(super) fn read(path: &Path) -> Result<Bytes, Error> {
    let failed = |source| Error::Io {
        what: format!("cannot read the component {}", path.display()),
        source,
    };
    let size = std::fs::metadata(path).map_err(failed)?.len();
    if size > COMPONENT_MAX_BYTES {
        let message = format!(
            "{} has {size} bytes; a component has at most {COMPONENT_MAX_BYTES}",
            path.display()
        );
        return Err(Error::Failed(message));
    }
    Ok(std::fs::read(path).map_err(failed)?.into())
}

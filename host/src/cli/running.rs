//! A node of this process, as `serve` and `dev` run it: guest, cluster, HTTP, and a clean stop on a signal.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use tokio::runtime::{Builder, Runtime as Threads};
use tokio::signal::unix::{SignalKind, signal};

use super::{Error, Output};
use crate::Cluster;
use crate::config::Config;
use crate::guest::wasm::{Runtime, RuntimeOptions, default_cache_dir};
use crate::guest::{Limits, Module};
use crate::http::{HttpOptions, HttpServer};
use crate::metrics;

/// The largest component that is read, in bytes.
const COMPONENT_MAX_BYTES: u64 = 256 << 20;

/// A node that serves.
pub(super) struct Node {
    pub cluster: Cluster,
    pub http: HttpServer,
    pub guests: Arc<Runtime>,
    config: Arc<Config>,
    http_threads: Threads,
}

/// What ends a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// A request to end.
    Terminate,
}

impl Node {
    /// Starts a node with a guest.
    pub async fn start(config: Arc<Config>, guests: Arc<Runtime>, module: Arc<dyn Module>) -> Result<Self, Error> {
        // Before the cluster, which makes the metrics of its shards.
        metrics::install();
        let http_threads = Builder::new_multi_thread()
            .worker_threads(config.threads.http)
            .thread_name("quarry-http")
            .enable_all()
            .build()
            .map_err(|error| Error::Failed(format!("no threads for HTTP: {error}")))?;
        let cluster = Cluster::start(config.clone(), module).await.map_err(|error| Error::Failed(error.to_string()))?;
        let bound = HttpServer::bind(HttpOptions::from(&*config), cluster.clone(), http_threads.handle()).await;
        match bound {
            Ok(http) => Ok(Self { cluster, http, guests, config, http_threads }),
            Err(error) => {
                cluster.stop().await;
                http_threads.shutdown_background();
                Err(Error::Failed(error.to_string()))
            }
        }
    }

    /// The address that clients use.
    pub fn url(&self) -> String {
        format!("http://{}", self.http.local_addr())
    }

    /// Finishes the requests in progress, then closes every shard. A second signal ends the process at once.
    pub async fn stop(self, out: Output) {
        let ended = async {
            self.http.stop(self.config.http.drain_timeout).await;
            self.cluster.stop().await;
        };
        tokio::select! {
            () = ended => {}
            _ = wait_for_signal() => out.note("ended at once; whatever was acknowledged is safe"),
        }
        self.http_threads.shutdown_background();
    }
}

/// The engine of a node.
pub(super) fn engine(config: &Config) -> Result<Arc<Runtime>, Error> {
    let options = RuntimeOptions { instances: config.instances(), compile_threads: config.threads.compile, cache_dir: default_cache_dir() };
    Runtime::new(options).map_err(|error| Error::Failed(error.to_string()))
}

/// Reads, checks and compiles a component.
pub(super) async fn load(guests: &Arc<Runtime>, config: &Config, path: &Path, revision: u64) -> Result<Arc<dyn Module>, Error> {
    let bytes = read(path)?;
    let limits = Arc::new(Limits::from(config));
    let loaded = guests.load(bytes, config.module.name.as_str().into(), revision, limits).await;
    let module = loaded.map_err(|error| Error::Failed(format!("{}: {error}", path.display())))?;
    Ok(module)
}

/// A component's bytes.
pub(super) fn read(path: &Path) -> Result<Bytes, Error> {
    let failed = |source| Error::Io { what: format!("cannot read the component {}", path.display()), source };
    let size = std::fs::metadata(path).map_err(failed)?.len();
    if size > COMPONENT_MAX_BYTES {
        let message = format!("{} has {size} bytes; a component has at most {COMPONENT_MAX_BYTES}", path.display());
        return Err(Error::Failed(message));
    }
    Ok(std::fs::read(path).map_err(failed)?.into())
}

/// Waits for Ctrl-C or a request to end.
pub(super) async fn wait_for_signal() -> Signal {
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) else {
        tracing::error!("signals cannot be watched; end the process with SIGKILL");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => Signal::Interrupt,
        _ = terminate.recv() => Signal::Terminate,
    }
}

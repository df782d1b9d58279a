//! The threads of a node, and what runs where (measured in DESIGN: a thread hop costs 30 to 40 us, a call 1 to 10 us).
//!
//! - *shard threads*, each a current-thread runtime that carries its shards: mailbox, guest, SlateDB's writer task, and the flusher,
//!   which begins flushes. Guest code runs nowhere else, but for queries.
//! - *storage*: SlateDB's uploads, flushes and polls, the HTTP client of the store, and the release of what became durable.
//! - *query*: the instances that run queries.
//! - *control*: one thread that opens and closes shards, so that no guest and no database can delay it.
//! - *lease*: one thread for the loop that renews leases and the runner that keeps deadlines, with the lease client's connections:
//!   not even the work of opening shards delays it.
//! - *web*: one thread with the connections of guests to hosts that they are granted.
//! - *peers*: connections to other nodes, and the requests that come over them; there are none with `strategy = "local"`.
//!
//! Compaction has a runtime of its own at low priority (`db::maintenance`), compiling its own threads (`guest::wasm`), and so has HTTP.

use std::cell::Cell;
use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::sync::CancellationToken;

use crate::clock::driven::Heritage;

/// How long a runtime may take to end before it is left behind.
const SHUTDOWN: Duration = Duration::from_secs(5);

const STORAGE: &str = "quarry-storage";

thread_local! {
    static MAY_BLOCK: Cell<bool> = const { Cell::new(false) };
}

/// Whether this is a thread of the storage runtime: a task there may block it in place, since nothing else of that task is waited for with
/// a deadline, and its other tasks go on elsewhere meanwhile.
pub(crate) fn may_block() -> bool {
    MAY_BLOCK.get()
}

/// How many threads of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Shard threads.
    pub shard: usize,
    /// Threads of the storage runtime.
    pub storage: usize,
    /// Threads of the query runtime.
    pub query: usize,
    /// Threads of the compaction runtime.
    pub compaction: usize,
    /// Threads for the connections to other nodes; 0 where there are none.
    pub peers: usize,
}

/// The threads of a node. Dropping them stops everything that runs on them.
pub struct Threads {
    shard: Vec<Lone>,
    control: Option<Lone>,
    lease: Option<Lone>,
    storage: Option<Runtime>,
    query: Option<Runtime>,
    compaction: Option<Runtime>,
    web: Option<Runtime>,
    peers: Option<Runtime>,
}

impl Threads {
    /// Starts them.
    ///
    /// # Errors
    /// When the system gives no more threads.
    pub fn start(sizes: Sizes) -> io::Result<Self> {
        let shard = (0..sizes.shard.max(1))
            .map(|n| Lone::start(format!("quarry-shard-{n}")))
            .collect::<io::Result<_>>()?;
        Ok(Self {
            shard,
            control: Some(Lone::start("quarry-control".into())?),
            lease: Some(Lone::start("quarry-lease".into())?),
            storage: Some(pool(STORAGE, sizes.storage)?),
            query: Some(pool("quarry-query", sizes.query)?),
            compaction: Some(crate::db::maintenance::runtime(sizes.compaction.max(1))?),
            web: Some(pool("quarry-web", 1)?),
            peers: match sizes.peers {
                0 => None,
                threads => Some(pool("quarry-peers", threads)?),
            },
        })
    }

    /// The thread that carries a shard.
    #[must_use]
    pub fn shard(&self, shard: u32) -> Handle {
        self.shard[shard as usize % self.shard.len()].handle.clone()
    }

    /// The control thread.
    #[must_use]
    pub fn control(&self) -> Handle {
        lone(self.control.as_ref())
    }

    /// The lease thread.
    #[must_use]
    pub fn lease(&self) -> Handle {
        lone(self.lease.as_ref())
    }

    /// The storage runtime.
    #[must_use]
    pub fn storage(&self) -> Handle {
        handle(self.storage.as_ref())
    }

    /// The query runtime.
    #[must_use]
    pub fn query(&self) -> Handle {
        handle(self.query.as_ref())
    }

    /// The runtime of the connections of guests to other hosts.
    #[must_use]
    pub fn web(&self) -> Handle {
        handle(self.web.as_ref())
    }

    /// The runtime of the connections to other nodes; the control thread where there are no others.
    #[must_use]
    pub fn peers(&self) -> Handle {
        match &self.peers {
            Some(runtime) => runtime.handle().clone(),
            None => self.control(),
        }
    }

    /// The compaction runtime.
    #[must_use]
    pub fn compaction(&self) -> Handle {
        handle(self.compaction.as_ref())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // A runtime may not be dropped within another, and its end may take a while: neither is for the caller.
        let runtimes: Vec<Runtime> = [
            self.peers.take(),
            self.web.take(),
            self.query.take(),
            self.compaction.take(),
            self.storage.take(),
        ]
        .into_iter()
        .flatten()
        .collect();
        let mut lone = std::mem::take(&mut self.shard);
        lone.extend(self.control.take());
        lone.extend(self.lease.take());
        for thread in &lone {
            thread.stop.cancel();
        }
        let ending = std::thread::Builder::new()
            .name("quarry-end".into())
            .spawn(move || {
                for thread in &mut lone {
                    thread.join();
                }
                for runtime in runtimes {
                    runtime.shutdown_timeout(SHUTDOWN);
                }
            });
        if let Err(error) = ending {
            tracing::warn!(%error, "no thread left to end the node's threads on");
        }
    }
}

/// A thread with a runtime of its own.
struct Lone {
    handle: Handle,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Lone {
    fn start(name: String) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let clock = Heritage::here();
        clock.watch(&name, &handle);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            clock.take();
            runtime.block_on(stopped.cancelled());
            runtime.shutdown_timeout(SHUTDOWN);
        })?;
        Ok(Self {
            handle,
            stop,
            thread: Some(thread),
        })
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a thread of the node panicked");
        }
    }
}

fn pool(name: &'static str, threads: usize) -> io::Result<Runtime> {
    let clock = Heritage::here();
    let taken = clock.clone();
    let runtime = Builder::new_multi_thread()
        .worker_threads(threads.max(1))
        .thread_name(name)
        .on_thread_start(move || {
            taken.take();
            MAY_BLOCK.set(name == STORAGE);
        })
        .enable_all()
        .build()?;
    clock.watch(name, runtime.handle());
    Ok(runtime)
}

fn lone(thread: Option<&Lone>) -> Handle {
    thread
        .expect("a thread is there until the node's threads are dropped")
        .handle
        .clone()
}

fn handle(runtime: Option<&Runtime>) -> Handle {
    runtime
        .expect("a runtime is there until the node's threads are dropped")
        .handle()
        .clone()
}

/// Also where a later thread did not start.
impl Drop for Lone {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

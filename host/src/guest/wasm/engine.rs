//! The one engine of a node: compiles components, each once, on threads of its own, and makes modules of them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use quarry_core::pool;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore, oneshot};
use wasmtime::component::{Component, ComponentExportIndex, InstancePre, Linker};
use wasmtime::{
    Cache, CacheConfig, Config, Engine, InstanceAllocationStrategy, PoolingAllocationConfig,
    WasmBacktraceDetails,
};

use super::WasmModule;
use super::error::{Error, Reason};
use super::inspect::{self, Inspection};
use super::limiter::{CORE_INSTANCES_MAX, MEMORIES_MAX, TABLE_MAX_ELEMENTS, TABLES_MAX};
use super::state::{self, State};
use super::ticker::{Ticker, Ticks};
use crate::clock;
use crate::guest::{Limits, NoRoom};

/// Wasm stack of a guest, in bytes. More than this is a stack overflow, which ends the guest.
const WASM_STACK_BYTES: usize = 1 << 20;
/// Stack of the thread-like thing that a guest runs on, in bytes: the guest's part, and what the host needs on top when
/// the guest calls it (database reads run there). Reserved as address space; only what is touched costs memory.
const STACK_BYTES: usize = WASM_STACK_BYTES + (3 << 20);
/// The most instances a pool is made for. They reserve 59 TiB of address space in one piece, and of the 128 TiB that a
/// process has on x86-64 the largest piece is about 80.
const INSTANCES_MAX: u32 = 12_000;
/// How long a caller waits for a component to be compiled.
const COMPILE_TIME: Duration = Duration::from_secs(300);
/// How far compiling stands back behind the threads that serve.
const COMPILE_NICE: libc::c_int = 10;
/// Frames of a trap that are kept.
pub(super) const BACKTRACE_FRAMES: usize = 16;

/// How the engine of a node is made.
#[derive(Debug, Clone)]
pub struct RuntimeOptions {
    /// Instances that can exist at a time, 1 to 12,000: one a shard, its query instances, and twice as many while a swap is under way.
    pub instances: u32,
    /// How many of them run calls: shards times modules. Queries never take their room; see [`quarry_core::pool::query_share`].
    pub writers: u32,
    /// Threads that compile, at least 1.
    pub compile_threads: usize,
    /// Where compiled components are kept over restarts; [`default_cache_dir`] when none. Without such a place each start compiles anew.
    pub cache_dir: Option<PathBuf>,
}

/// The folder for compiled components: `quarry` in the user's cache folder.
#[must_use]
pub fn default_cache_dir() -> Option<PathBuf> {
    let absolute = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let caches = if cfg!(target_os = "macos") {
        absolute("HOME").map(|home| home.join("Library/Caches"))
    } else {
        absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))
    };
    Some(caches?.join("quarry"))
}

/// What runs components on this node.
pub struct Runtime {
    engine: Engine,
    linker: Linker<State>,
    ticker: Ticker,
    compilers: rayon::ThreadPool,
    /// One component is compiled at a time, on all compiling threads: a large one takes 500 MB while it is.
    turn: Arc<Semaphore>,
    compiled: Mutex<HashMap<String, Weak<Slot>>>,
    compilations: AtomicU64,
    instances: u32,
    /// The room of queries.
    queries: Arc<Semaphore>,
    query_share: u32,
    queries_refused: AtomicU64,
}

/// A component of this node, compiled once for all shards and revisions that run it.
pub(super) type Slot = OnceCell<Compiled>;

/// A compiled component.
pub(super) struct Compiled {
    pub(super) inspection: Inspection,
    pub(super) pre: InstancePre<State>,
    pub(super) indices: Indices,
}

/// Where a component has the functions that the host calls.
pub(super) struct Indices {
    pub(super) call: Option<ComponentExportIndex>,
    pub(super) query: Option<ComponentExportIndex>,
    pub(super) start_stop: Option<(ComponentExportIndex, ComponentExportIndex)>,
    pub(super) validate: Option<ComponentExportIndex>,
    pub(super) durable: Option<ComponentExportIndex>,
    pub(super) fire: Option<ComponentExportIndex>,
    pub(super) suspend_resume: Option<(ComponentExportIndex, ComponentExportIndex)>,
    pub(super) migrate: Option<ComponentExportIndex>,
    pub(super) http: Option<ComponentExportIndex>,
}

impl Runtime {
    /// Makes the engine of a node, and the threads that belong to it.
    ///
    /// # Errors
    /// [`Reason::Engine`] for options out of range, and when the machine gives no threads or not enough address space.
    pub fn new(options: RuntimeOptions) -> Result<Arc<Self>, Error> {
        let instances = options.instances;
        if instances == 0 || instances > INSTANCES_MAX {
            return Err(Reason::Engine(format!(
                "a pool of {instances} instances is out of range (1 to {INSTANCES_MAX})"
            ))
            .into());
        }
        let cache = open_cache(options.cache_dir.or_else(default_cache_dir));
        let engine = Engine::new(&config(instances, cache)).map_err(|error| {
            Reason::Engine(format!(
                "{error:#}; a pool of {instances} instances reserves {} GiB of address space",
                u64::from(memories(instances)) * 4
            ))
        })?;
        let mut linker = Linker::new(&engine);
        state::link(&mut linker).map_err(|error| Reason::Engine(format!("{error:#}")))?;
        let compilers = rayon::ThreadPoolBuilder::new()
            .num_threads(options.compile_threads.max(1))
            .thread_name(|n| format!("quarry-compile-{n}"))
            .start_handler(|_| stand_back())
            // Without this a panic of the compiler would end the process; with it the caller gets an error.
            .panic_handler(|_| tracing::error!("compiling a component panicked"))
            .build()
            .map_err(|error| {
                Reason::Engine(format!("cannot start the compiling threads: {error}"))
            })?;
        let ticker = Ticker::start(engine.clone())
            .map_err(|error| Reason::Engine(format!("cannot start the ticker: {error}")))?;
        let turn = Arc::new(Semaphore::new(1));
        let query_share = pool::query_share(instances, options.writers);
        Ok(Arc::new(Self {
            engine,
            linker,
            ticker,
            compilers,
            turn,
            compiled: Mutex::default(),
            compilations: AtomicU64::new(0),
            instances,
            queries: Arc::new(Semaphore::new(query_share as usize)),
            query_share,
            queries_refused: AtomicU64::new(0),
        }))
    }

    /// Makes a module of a component. The first to ask has it compiled, off the caller's thread; whoever asks for the same bytes
    /// meanwhile or later shares the result.
    ///
    /// # Errors
    /// Why the component cannot be a guest of this node; [`Reason::CompileTimeout`] after five minutes.
    pub async fn load(
        self: &Arc<Self>,
        bytes: Bytes,
        name: Arc<str>,
        revision: u64,
        limits: Arc<Limits>,
    ) -> Result<Arc<WasmModule>, Error> {
        let (digest, bytes) = self.aside(move || (inspect::digest(&bytes), bytes)).await?;
        let slot = self.slot(digest);
        slot.get_or_try_init(|| self.compile(bytes)).await?;
        Ok(Arc::new(WasmModule::new(
            self.clone(),
            slot,
            name,
            revision,
            limits,
        )))
    }

    /// How many components were compiled, or taken from the cache on disk, since the engine was made.
    #[must_use]
    pub fn compilations(&self) -> u64 {
        self.compilations.load(Ordering::Relaxed)
    }

    /// The slot of a component, new or known.
    fn slot(&self, digest: String) -> Arc<Slot> {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = compiled.get(&digest).and_then(Weak::upgrade) {
            return slot;
        }
        compiled.retain(|_, slot| slot.strong_count() > 0);
        let slot = Arc::new(Slot::new());
        compiled.insert(digest, Arc::downgrade(&slot));
        slot
    }

    async fn compile(self: &Arc<Self>, bytes: Bytes) -> Result<Compiled, Error> {
        let (inspection, bytes) = self
            .aside(move || inspect::inspect(&bytes).map(|inspection| (inspection, bytes)))
            .await??;
        let this = self.clone();
        let work = async {
            let turn = self
                .turn
                .clone()
                .acquire_owned()
                .await
                .map_err(|_| stopped())?;
            let (sender, receiver) = oneshot::channel();
            self.compilers.spawn(move || {
                let compiled = this.compile_here(&bytes, inspection);
                drop(turn);
                _ = sender.send(compiled);
            });
            receiver.await.map_err(|_| stopped())?
        };
        let limit = COMPILE_TIME;
        clock::timeout(limit, work).await.map_err(|_| {
            Error::new(Reason::CompileTimeout {
                seconds: limit.as_secs(),
            })
        })?
    }

    fn compile_here(&self, bytes: &[u8], inspection: Inspection) -> Result<Compiled, Error> {
        self.compilations.fetch_add(1, Ordering::Relaxed);
        let component = Component::new(&self.engine, bytes)
            .map_err(|error| Reason::Compile(format!("{error:#}")))?;
        let pre = self
            .linker
            .instantiate_pre(&component)
            .map_err(|error| Reason::Link(format!("{error:#}")))?;
        let indices = Indices::of(&component)?;
        Ok(Compiled {
            inspection,
            pre,
            indices,
        })
    }

    /// Runs what takes milliseconds on another thread.
    async fn aside<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        tokio::task::spawn_blocking(work)
            .await
            .map_err(|_| stopped())
    }

    /// Instances that can exist at a time.
    pub(super) fn instances(&self) -> u32 {
        self.instances
    }

    /// The room of one instance for queries.
    pub(super) fn query_place(&self) -> Result<OwnedSemaphorePermit, NoRoom> {
        self.queries.clone().try_acquire_owned().map_err(|_| {
            self.queries_refused.fetch_add(1, Ordering::Relaxed);
            let (queries, instances) = (self.query_share, self.instances);
            match queries {
                0 => NoRoom::NoQueries { instances },
                _ => NoRoom::Queries { queries, instances },
            }
        })
    }

    /// How often [`Runtime::query_place`] found none.
    pub(super) fn queries_refused(&self) -> u64 {
        self.queries_refused.load(Ordering::Relaxed)
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(super) fn ticks(&self) -> &Arc<Ticks> {
        self.ticker.ticks()
    }
}

impl Indices {
    fn of(component: &Component) -> Result<Self, Error> {
        let of = |interface: &str, function: &str| {
            // A version that is compatible is found as well.
            let instance = component.get_export_index(None, interface)?;
            component.get_export_index(Some(&instance), function)
        };
        let find = |interface: &str, function: &str| {
            of(&format!("quarry:shard/{interface}@0.1.0"), function)
        };
        let call = find("handler", "call");
        let http = of("wasi:http/incoming-handler@0.2.0", "handle");
        if call.is_none() && http.is_none() {
            let message =
                "neither handler.call nor incoming-handler.handle is found in its exports";
            return Err(Reason::Link(message.into()).into());
        }
        Ok(Self {
            call,
            query: find("queries", "query"),
            start_stop: find("lifecycle", "start").zip(find("lifecycle", "stop")),
            validate: find("options", "validate"),
            durable: find("durable-events", "durable"),
            fire: find("timer-events", "fire"),
            suspend_resume: find("handoff", "suspend").zip(find("handoff", "resume")),
            migrate: find("migration", "migrate"),
            http,
        })
    }
}

/// Memories of a pool: nearly every guest has one, and each reserves 4 GiB of address space.
fn memories(instances: u32) -> u32 {
    instances
        .saturating_add(instances / 4)
        .saturating_add(MEMORIES_MAX)
}

fn config(instances: u32, cache: Option<Cache>) -> Config {
    let mut pool = PoolingAllocationConfig::new();
    // Totals are for what guests are known to have, with room to spare; the bounds of a single component are far above that, so that a
    // strange one works and takes from the others' room. Memories and tables reserve address space, the others nothing.
    pool.total_component_instances(instances)
        .total_stacks(instances)
        .total_core_instances(instances.saturating_mul(CORE_INSTANCES_MAX))
        .max_core_instances_per_component(CORE_INSTANCES_MAX)
        .total_memories(memories(instances))
        .max_memories_per_component(MEMORIES_MAX)
        .max_memories_per_module(MEMORIES_MAX)
        .total_tables(instances.saturating_mul(4).max(TABLES_MAX))
        .max_tables_per_component(TABLES_MAX)
        .max_tables_per_module(TABLES_MAX)
        .table_elements(TABLE_MAX_ELEMENTS)
        .max_component_instance_size(8 << 20)
        .max_core_instance_size(4 << 20);
    let mut config = Config::new();
    config
        // The functions of the API are sync. An empty call costs a third of what it does with this on.
        .concurrency_support(false)
        .epoch_interruption(true)
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool))
        .max_wasm_stack(WASM_STACK_BYTES)
        .async_stack_size(STACK_BYTES)
        .wasm_backtrace_max_frames(std::num::NonZeroUsize::new(BACKTRACE_FRAMES))
        .wasm_backtrace_details(WasmBacktraceDetails::Disable)
        .cache(cache);
    config
}

/// Opens the cache of compiled components; without it everything works, and starts are slower.
fn open_cache(dir: Option<PathBuf>) -> Option<Cache> {
    let Some(dir) = dir else {
        tracing::warn!(
            "no folder for compiled components: neither XDG_CACHE_HOME nor HOME is set; every start compiles them anew"
        );
        return None;
    };
    let mut config = CacheConfig::new();
    config.with_directory(&dir);
    match Cache::new(config) {
        Ok(cache) => Some(cache),
        Err(error) => {
            tracing::warn!(dir = %dir.display(), error = format!("{error:#}"), "compiled components cannot be kept; every start compiles them anew");
            None
        }
    }
}

/// Lowers the priority of this thread. It is a wish: a machine that refuses compiles at the usual priority.
fn stand_back() {
    if cfg!(target_os = "linux") {
        #[expect(
            unsafe_code,
            reason = "the standard library cannot set a thread's priority"
        )]
        // SAFETY: the call takes plain numbers and touches no memory of ours. 0 is the calling thread, on Linux.
        unsafe {
            libc::setpriority(libc::PRIO_PROCESS, 0, COMPILE_NICE)
        };
    }
}

fn stopped() -> Error {
    Reason::Engine("the work was broken off, since the node stops or a thread of it failed".into())
        .into()
}

#[cfg(test)]
mod tests;

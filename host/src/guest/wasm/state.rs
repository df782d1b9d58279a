//! What the host keeps for an instance: where it runs, what it may use, the call in progress and what that has open.
//!
//! Each imported interface has a file beside this one, which implements it on [`State`].

use std::sync::Arc;

use wasmtime::component::{HasSelf, Linker, ResourceTable};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView};

use super::bindings::Imports;
use super::bindings::types;
use super::call::CurrentCall;
use super::http::ended::{Places, TooManyHandles};
use super::http::hooks::Hooks;
use super::limiter::Limiter;
use super::output::Output;
use super::resources::Resources;
use crate::db::{Error, ReadView, ShardDb};
use crate::gate::Gate;
use crate::guest::calls::Calls;
use crate::guest::log::GuestLog;
use crate::guest::notify::Notifier;
use crate::guest::timers::Timers;
use crate::guest::{GuestError, InstanceContext, Limits, ModuleInfo, ShardFlag};
use crate::metrics::guest::ModuleMetrics;

/// The data of an instance's store.
pub(super) struct State {
    pub(super) place: Place,
    pub(super) data: Data,
    pub(super) call: CurrentCall,
    pub(super) resources: Resources,
    pub(super) limiter: Limiter,
    pub(super) output: Output,
    wasi: WasiCtx,
    wasi_table: ResourceTable,
    http: WasiHttpCtx,
    hooks: Hooks,
    /// Since the last call began, the guest did something with HTTP.
    http_used: bool,
    places: Places,
}

/// Where an instance runs.
pub(super) struct Place {
    pub(super) cluster: Arc<str>,
    pub(super) node: Arc<str>,
    pub(super) shard: u32,
    pub(super) shards: u32,
    pub(super) generation: u64,
    pub(super) module: Arc<str>,
    pub(super) revision: u64,
    pub(super) options: Arc<str>,
    pub(super) status: Arc<ShardFlag>,
    pub(super) log: Arc<GuestLog>,
    pub(super) metrics: Arc<ModuleMetrics>,
}

/// What an instance may do with the database.
pub(super) struct Data {
    /// What is read from.
    pub(super) reads: ReadView,
    /// Where the durable seq comes from; none where no database is open.
    pub(super) gate: Option<Arc<Gate>>,
    /// The way to other shards; none where no database is open.
    pub(super) calls: Option<Arc<Calls>>,
    access: Access,
}

enum Access {
    /// The instance that runs the calls.
    Writes {
        db: Arc<ShardDb>,
        notifier: Option<Arc<Notifier>>,
        timers: Timers,
    },
    /// An instance for queries.
    ReadOnly { timers: Timers },
    /// An instance that checks options: there is no database.
    Closed,
}

impl State {
    /// The state of the instance that runs a shard's calls.
    pub(super) fn for_calls(
        info: &ModuleInfo,
        context: InstanceContext,
        limits: &Arc<Limits>,
    ) -> Self {
        let notifier = info
            .exports
            .durable_events
            .then(|| context.notifier.clone());
        let reads = context.db.view();
        let data = Data {
            reads,
            gate: Some(context.gate.clone()),
            calls: Some(context.calls.clone()),
            access: Access::Writes {
                db: context.db.clone(),
                notifier,
                timers: context.timers.clone(),
            },
        };
        Self::new(Place::of(info, context), data, limits)
    }

    /// The state of an instance for queries: it reads nothing until a query gives it a view.
    pub(super) fn for_queries(
        info: &ModuleInfo,
        context: InstanceContext,
        limits: &Arc<Limits>,
    ) -> Self {
        let data = Data {
            reads: ReadView::closed(limits.clone()),
            gate: Some(context.gate.clone()),
            calls: Some(context.calls.clone()),
            access: Access::ReadOnly {
                timers: context.timers.clone(),
            },
        };
        Self::new(Place::of(info, context), data, limits)
    }

    /// The state of an instance that checks options: it is nowhere, and there is no database.
    pub(super) fn for_validation(info: &ModuleInfo, options: &str, limits: &Arc<Limits>) -> Self {
        let log = GuestLog::new(
            0,
            info.name.clone(),
            info.revision,
            limits.log_bytes_per_second,
        );
        let place = Place {
            cluster: "".into(),
            node: "".into(),
            shard: 0,
            shards: 1,
            generation: 0,
            module: info.name.clone(),
            revision: info.revision,
            options: options.into(),
            status: Arc::default(),
            log: Arc::new(log),
            // What options are checked with is of no shard.
            metrics: ModuleMetrics::none(),
        };
        let data = Data {
            reads: ReadView::closed(limits.clone()),
            gate: None,
            calls: None,
            access: Access::Closed,
        };
        Self::new(place, data, limits)
    }

    fn new(place: Place, data: Data, limits: &Arc<Limits>) -> Self {
        let output = Output::new(place.log.clone());
        let mut wasi_table = ResourceTable::new();
        wasi_table.set_max_capacity(WASI_RESOURCES_MAX);
        // No files, no network, no arguments, no environment: these are the builder's defaults, and nothing below adds to them.
        let wasi = WasiCtx::builder()
            .stdout(output.stdout())
            .stderr(output.stderr())
            .max_random_size(RANDOM_MAX_BYTES)
            .allow_tcp(false)
            .allow_udp(false)
            .allow_ip_name_lookup(false)
            .build();
        let hooks = Hooks::new(
            place.module.clone(),
            limits.clone(),
            data.calls.clone(),
            place.log.clone(),
        );
        let mut http = WasiHttpCtx::new();
        http.set_field_size_limit(limits.http_headers);
        Self {
            place,
            data,
            call: CurrentCall::none(),
            resources: Resources::new(limits),
            limiter: Limiter::new(limits.memory),
            output,
            wasi,
            wasi_table,
            http,
            hooks,
            http_used: false,
            places: Places::default(),
        }
    }

    /// Begins a call: what the last one left behind is no part of it.
    pub(super) fn begin_call(&mut self, call: CurrentCall) {
        let sees = self.data.is_read_only().then(|| self.data.reads.seq());
        self.hooks.begin(call.deadline(), sees);
        self.call = call;
        self.limiter.forget();
        self.output.forget_last_words();
        self.place.log.report();
    }

    /// Ends the call in progress: closes what it left open, and writes out what is left of its output.
    ///
    /// # Errors
    /// The guest keeps too many handles of what was closed.
    pub(super) fn end_call(&mut self) -> Result<(), TooManyHandles> {
        self.resources.close_all();
        self.output.finish();
        if !std::mem::take(&mut self.http_used) {
            return Ok(());
        }
        let ended = self.places.end_all(&mut self.wasi_table);
        // What is kept for late drops takes no room from what is alive.
        let most = WASI_RESOURCES_MAX + self.places.len();
        self.wasi_table.set_max_capacity(most);
        ended
    }

    /// What `wasi:http` works on.
    pub(super) fn http_view(&mut self) -> WasiHttpCtxView<'_> {
        self.http_used = true;
        WasiHttpCtxView {
            hooks: &mut self.hooks,
            table: &mut self.wasi_table,
            ctx: &mut self.http,
        }
    }

    /// The places of what has ended, and the table where they are.
    pub(super) fn places(&mut self) -> (&mut Places, &mut ResourceTable) {
        (&mut self.places, &mut self.wasi_table)
    }
}

impl Data {
    /// The database, for writing.
    pub(super) fn db(&self) -> Result<&Arc<ShardDb>, Error> {
        match &self.access {
            Access::Writes { db, .. } => Ok(db),
            Access::ReadOnly { .. } => Err(read_only()),
            Access::Closed => Err(no_database()),
        }
    }

    /// Whether it may only read.
    pub(super) fn is_read_only(&self) -> bool {
        matches!(self.access, Access::ReadOnly { .. })
    }

    /// A view that later writes do not change.
    pub(super) fn snapshot(&self) -> Result<ReadView, Error> {
        match &self.access {
            Access::Writes { db, .. } => db.snapshot(),
            // A query's view does not change.
            Access::ReadOnly { .. } => Ok(self.reads.clone()),
            Access::Closed => Err(no_database()),
        }
    }

    /// Sets timers.
    pub(super) fn timers(&self) -> Result<&Timers, Error> {
        match &self.access {
            Access::Writes { timers, .. } => Ok(timers),
            Access::ReadOnly { .. } => Err(GuestError::new(
                "read-only",
                "a query can ask when a timer is due, and neither set nor cancel one; make it a call",
            )),
            Access::Closed => Err(no_database()),
        }
    }

    /// When a timer is due.
    pub(super) async fn due_ms(&self, name: &str) -> Result<Option<u64>, Error> {
        match &self.access {
            Access::Writes { timers, .. } => timers.due_ms(name).await,
            Access::ReadOnly { timers } => timers.due_ms_in(&self.reads, name).await,
            Access::Closed => Err(no_database()),
        }
    }

    /// Asks for a tag; see [`Notifier::when_durable`].
    pub(super) fn notify(&self, seq: u64, tag: u64) -> Result<(), Error> {
        match &self.access {
            Access::Writes {
                db,
                notifier: Some(notifier),
                ..
            } => notifier.when_durable(db, seq, tag),
            Access::Writes { notifier: None, .. } => Err(GuestError::new(
                "invalid-argument",
                "this guest does not export `durable-events`, so there is nobody to tell; export it",
            )),
            Access::ReadOnly { .. } => Err(read_only()),
            Access::Closed => Err(no_database()),
        }
    }
}

impl Place {
    fn of(info: &ModuleInfo, context: InstanceContext) -> Self {
        Self {
            cluster: context.cluster,
            node: context.node,
            shard: context.shard,
            shards: context.shards,
            generation: context.generation,
            module: info.name.clone(),
            revision: info.revision,
            options: context.options,
            status: context.status,
            log: context.log,
            metrics: context.metrics,
        }
    }
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: &mut self.wasi,
            table: &mut self.wasi_table,
        }
    }
}

impl types::Host for State {}

impl From<GuestError> for types::Error {
    fn from(error: GuestError) -> Self {
        Self {
            code: error.code,
            message: error.message,
            retryable: error.retryable,
        }
    }
}

/// Offers all that a guest may import.
pub(super) fn link(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    Imports::add_to_linker::<_, HasSelf<State>>(linker, |state| state)?;
    // Sockets and files are there because the standard libraries of most languages import them; nothing can be opened.
    wasmtime_wasi::p2::add_to_linker_async(linker)?;
    super::http::link(linker)
}

/// The most bytes of one request for random bytes, which the host has to make.
const RANDOM_MAX_BYTES: u64 = 1 << 20;

/// WASI resources (streams, pollables) that an instance may have; each takes some 200 bytes of the host. One more ends the instance. Engines
/// with a collector make one for each piece of a body that they read, and drop none before the call ends: a body of 16 MiB comes in some 2,000.
const WASI_RESOURCES_MAX: usize = 16_384;

pub(super) fn read_only() -> Error {
    GuestError::new("read-only", "a query cannot write; make it a call")
}

fn no_database() -> Error {
    GuestError::new("closed", "no database is open while options are checked")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::Exports;

    #[test]
    fn wasi_resources_are_bounded() {
        let info = ModuleInfo {
            name: "main".into(),
            revision: 1,
            digest: "none".into(),
            exports: Exports::default(),
        };
        let mut state = State::for_validation(&info, "{}", &Arc::default());
        let table = state.ctx().table;
        for _ in 0..WASI_RESOURCES_MAX {
            table.push(()).expect("room");
        }
        assert!(table.push(()).is_err());
    }
}

//! Guests as WebAssembly components. Only this folder knows wasmtime.
//!
//! [`Runtime`] is the engine of a node: it compiles a component once and makes a [`WasmModule`] of it. The module makes instances, each
//! a store of its own ([`instance`](self)) with what the host keeps for it ([`state`](self)). A call costs no thread hop: the guest runs on the
//! thread that polls it, on a stack of its own, and pauses there when a host function waits or a tick comes.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

use self::call::CurrentCall;
use self::engine::{Compiled, Slot};
use self::instance::Running;
use self::state::State;
use super::notify::{Notifier, Tag};
use super::{
    Failure, GuestError, HttpHead, Instance, InstanceContext, Limits, Module, ModuleInfo,
    QueryInstance, Reply, Request, StopReason, Timer, Trap, TrapKind,
};
use crate::clock;
use crate::db::ReadView;

mod bindings;
mod call;
mod cluster;
mod db;
mod durability;
mod engine;
mod error;
mod failure;
mod http;
mod inspect;
mod instance;
mod limiter;
mod log;
mod meter;
mod metrics;
mod output;
mod resources;
mod shard;
mod state;
mod ticker;
mod timers;

pub use self::engine::{Runtime, RuntimeOptions, default_cache_dir};
pub use self::error::{Error, Reason};
pub use self::inspect::{COMPONENT_MAX_BYTES, Inspection, digest, inspect};

/// A component of a revision, compiled on this node. Made by [`Runtime::load`].
pub struct WasmModule {
    runtime: Arc<Runtime>,
    slot: Arc<Slot>,
    info: ModuleInfo,
    limits: Arc<Limits>,
}

impl WasmModule {
    /// A module of a slot that is filled.
    fn new(
        runtime: Arc<Runtime>,
        slot: Arc<Slot>,
        name: Arc<str>,
        revision: u64,
        limits: Arc<Limits>,
    ) -> Self {
        let (digest, exports) = slot
            .get()
            .map(|compiled| {
                (
                    compiled.inspection.digest.as_str(),
                    compiled.inspection.exports,
                )
            })
            .unwrap_or_default();
        let info = ModuleInfo {
            name,
            revision,
            digest: digest.into(),
            exports,
        };
        Self {
            runtime,
            slot,
            info,
            limits,
        }
    }

    /// What was found when the component was looked at.
    ///
    /// # Errors
    /// A trap of kind host; it does not happen, as a module is made of a compiled component only.
    pub fn inspection(&self) -> Result<&Inspection, Trap> {
        Ok(&self.compiled()?.inspection)
    }

    fn compiled(&self) -> Result<&Compiled, Trap> {
        self.slot
            .get()
            .ok_or_else(|| Trap::new(TrapKind::Host, "the component is not compiled"))
    }

    /// Makes an instance and drops it: what a guest does when it is made, such as its initializers, has to work before anything else
    /// can. No database is open.
    ///
    /// # Errors
    /// As when a shard makes one.
    pub async fn try_out(&self, options: &str) -> Result<(), Failure> {
        let state = State::for_validation(&self.info, options, &self.limits);
        self.make(state).await.map(drop)
    }

    async fn make(&self, state: State) -> Result<Running, Failure> {
        let compiled = self.compiled().map_err(Failure::Trap)?;
        Running::make(&self.runtime, compiled, state, &self.limits).await
    }
}

#[async_trait]
impl Module for WasmModule {
    fn describe(&self) -> &ModuleInfo {
        &self.info
    }

    async fn validate(&self, options: &str) -> Result<(), Failure> {
        if !self.info.exports.options {
            return Ok(());
        }
        let state = State::for_validation(&self.info, options, &self.limits);
        let mut running = self.make(state).await?;
        let Some(validate) = running.exports.validate else {
            return Ok(());
        };
        let limit = self.limits.start_time;
        let (outcome,) = running
            .enter(
                CurrentCall::none(),
                ("limits.start_time", limit),
                validate,
                (options,),
            )
            .await
            .map_err(Failure::Trap)?;
        outcome.map_err(|text| {
            Failure::Error(failure::bounded(GuestError::new("invalid-options", text)))
        })
    }

    async fn instantiate(&self, context: InstanceContext) -> Result<Box<dyn Instance>, Failure> {
        let wants = self.info.exports.durable_events;
        let notifier = wants.then(|| context.notifier.clone());
        let state = State::for_calls(&self.info, context, &self.limits);
        Ok(Box::new(WasmInstance {
            running: self.make(state).await?,
            notifier,
        }))
    }

    async fn instantiate_query(
        &self,
        context: InstanceContext,
    ) -> Result<Box<dyn QueryInstance>, Failure> {
        let place = self.runtime.query_place().map_err(Failure::NoRoom)?;
        let state = State::for_queries(&self.info, context, &self.limits);
        Ok(Box::new(WasmQueryInstance {
            running: self.make(state).await?,
            _place: place,
        }))
    }

    fn limits(&self) -> Option<&Arc<Limits>> {
        Some(&self.limits)
    }

    fn crowded(&self) -> u64 {
        self.runtime.queries_refused()
    }
}

/// The instance that runs a shard's calls.
struct WasmInstance {
    running: Running,
    /// Where its tags come from, where it wants any.
    notifier: Option<Arc<Notifier>>,
}

#[async_trait]
impl Instance for WasmInstance {
    async fn start(&mut self) -> Result<(), Failure> {
        let Some(start) = self.running.exports.start else {
            return Ok(());
        };
        let limit = ("limits.start_time", self.running.limits.start_time);
        let (outcome,) = self
            .running
            .enter(CurrentCall::none(), limit, start, ())
            .await
            .map_err(Failure::Trap)?;
        outcome.map_err(failure::error)
    }

    async fn call(&mut self, request: &Request) -> Result<Reply, Failure> {
        let Some(call) = self.running.exports.call else {
            return Err(Failure::Error(GuestError::new(
                "unknown-method",
                format!(
                    "there is no method `{}`: this guest answers HTTP alone, under /http, and does not export `quarry:shard/handler`",
                    request.method
                ),
            )));
        };
        self.running.request(request, call).await
    }

    async fn http(&mut self, request: &Request, head: &HttpHead) -> Result<Reply, Failure> {
        let Some(handle) = self.running.exports.http else {
            return Err(Failure::Error(GuestError::new(
                "no-http",
                "this guest does not export `wasi:http/incoming-handler@0.2`",
            )));
        };
        self.running.http(request, head, handle).await
    }

    async fn durable(&mut self, tags: Vec<Tag>) -> Result<(), Failure> {
        let (Some(durable), Some(notifier)) = (self.running.exports.durable, &self.notifier) else {
            return Ok(());
        };
        let tags = Tag::of(&tags, notifier);
        if tags.is_empty() {
            return Ok(());
        }
        let limit = ("limits.wall_time", self.running.limits.wall_time);
        self.running
            .enter(CurrentCall::none(), limit, durable, (&tags,))
            .await
            .map_err(Failure::Trap)
    }

    async fn fire(&mut self, timer: &Timer) -> Result<(), Failure> {
        let Some(fire) = self.running.exports.fire else {
            return Ok(());
        };
        let deadline = clock::now() + self.running.limits.wall_time;
        let limit = ("limits.wall_time", self.running.limits.wall_time);
        let params = (&*timer.name, &*timer.payload, timer.due_ms);
        let (outcome,) = self
            .running
            .enter(CurrentCall::of_timer(deadline), limit, fire, params)
            .await
            .map_err(Failure::Trap)?;
        outcome.map_err(failure::error)
    }

    async fn stop(&mut self, reason: StopReason) -> Result<(), Failure> {
        let Some(stop) = self.running.exports.stop else {
            return Ok(());
        };
        let limit = ("limits.stop_time", self.running.limits.stop_time);
        self.running
            .enter(CurrentCall::none(), limit, stop, (reason.as_str(),))
            .await
            .map_err(Failure::Trap)
    }

    async fn suspend(&mut self) -> Result<Bytes, Failure> {
        match self.running.exports.suspend {
            Some(suspend) => self.running.suspend(suspend).await,
            None => Ok(Bytes::new()),
        }
    }

    async fn resume(&mut self, from_revision: u64, state: &[u8]) -> Result<(), Failure> {
        match self.running.exports.resume {
            Some(resume) => self.running.resume(resume, from_revision, state).await,
            None => Ok(()),
        }
    }

    async fn migrate(&mut self, from_revision: u64) -> Result<bool, Failure> {
        let Some(migrate) = self.running.exports.migrate else {
            return Ok(true);
        };
        let limit = (
            "limits.migrate_step_time",
            self.running.limits.migrate_step_time,
        );
        let (outcome,) = self
            .running
            .enter(CurrentCall::none(), limit, migrate, (from_revision,))
            .await
            .map_err(Failure::Trap)?;
        outcome.map_err(failure::error)
    }
}

/// An instance that runs queries.
struct WasmQueryInstance {
    running: Running,
    /// After the instance, whose room it stands for.
    _place: OwnedSemaphorePermit,
}

#[async_trait]
impl QueryInstance for WasmQueryInstance {
    async fn query(&mut self, request: &Request, view: ReadView) -> Result<Reply, Failure> {
        let Some(query) = self.running.exports.query else {
            return Err(Failure::Error(GuestError::new(
                "no-queries",
                "this guest does not export `queries`; make it a call",
            )));
        };
        self.running.read_from(view);
        let outcome = self.running.request(request, query).await;
        // The view keeps what it shows from being compacted away.
        self.running
            .read_from(ReadView::closed(self.running.limits.clone()));
        outcome
    }
}

#[cfg(test)]
mod tests;

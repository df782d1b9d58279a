//! Guests as Rust in this process: for people who embed Quarry, for tests, and as the measure of what WebAssembly costs.
//!
//! Native logic gets the same database, gate and calls as a component, but no limits on time and memory: it is trusted, and it must not
//! block its thread. A panic counts as a trap.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;

use super::notify::Tag;
use super::{
    Exports, Failure, GuestError, HttpHead, Instance, InstanceContext, Module, ModuleInfo,
    QueryInstance, Reply, Request, StopReason, Timer, Trap, TrapKind,
};
use crate::db::ReadView;

/// The logic of a shard, in Rust. One value a shard; its calls run one at a time, so its fields are state.
#[async_trait]
pub trait Logic: Send + 'static {
    /// Whether [`Logic::suspend`] and [`Logic::resume`] carry memory over a swap. See [`Logic::resume`] for what that means for the start.
    const HANDOFF: bool = false;

    /// Whether [`Logic::migrate`] brings stored data to what this logic serves. In a swap the start then runs while the old one still serves.
    const MIGRATION: bool = false;

    /// Whether [`Logic::fire`] takes timers. Without it `context.timers` refuses to set any.
    const TIMER_EVENTS: bool = false;

    /// Whether [`Logic::http`] answers HTTP requests.
    const HTTP: bool = false;

    /// Runs before the first call.
    ///
    /// # Errors
    /// Keeps the shard from serving; it is tried again, with growing pauses.
    async fn start(&mut self, context: &InstanceContext) -> Result<(), GuestError> {
        _ = context;
        Ok(())
    }

    /// Runs one call.
    ///
    /// # Errors
    /// The caller gets them.
    async fn call(
        &mut self,
        context: &InstanceContext,
        request: &Request,
    ) -> Result<Reply, GuestError>;

    /// Answers an HTTP request: `head` is all of it but the body, which is the payload, and the reply has [`Reply::http`].
    ///
    /// # Errors
    /// The client gets them, as problem details.
    async fn http(
        &mut self,
        context: &InstanceContext,
        request: &Request,
        head: &HttpHead,
    ) -> Result<Reply, GuestError> {
        _ = (context, request, head);
        Err(GuestError::new("no-http", "this guest answers no HTTP"))
    }

    /// Runs a query. There is one value more for each query instance, made by the same factory and never started.
    ///
    /// # Errors
    /// The caller gets them.
    async fn query(&mut self, request: &Request, view: &ReadView) -> Result<Reply, GuestError> {
        _ = view;
        Err(GuestError::new(
            "unknown-method",
            format!("there is no query `{}`", request.method),
        ))
    }

    /// Gets the tags that became durable, lowest seq first. To ask for them, see [`crate::gate::Gate::when_durable`] and, for tags,
    /// [`crate::Cluster::notify_when_durable`].
    async fn durable(&mut self, context: &InstanceContext, tags: Vec<u64>) {
        _ = (context, tags);
    }

    /// Gets a timer that is due, between calls; what is due earlier comes earlier. `context.timers` sets them, see
    /// [`Timers`](super::timers::Timers).
    ///
    /// # Errors
    /// Are logged and counted. A durable timer is then tried again, in 1 s, doubled each time up to 60 s; after a panic in 20 s, doubled up
    /// to 10 min.
    async fn fire(&mut self, context: &InstanceContext, timer: &Timer) -> Result<(), GuestError> {
        _ = (context, timer);
        Ok(())
    }

    /// Runs after the last call; the database is still open.
    async fn stop(&mut self, context: &InstanceContext, reason: StopReason) {
        _ = (context, reason);
    }

    /// Gives the memory that a swap carries over, at most `limits.handoff_bytes`, and leaves this value as it was: it goes on where the
    /// swap fails.
    ///
    /// # Errors
    /// End the swap.
    async fn suspend(&mut self, context: &InstanceContext) -> Result<Bytes, GuestError> {
        _ = context;
        Ok(Bytes::new())
    }

    /// Takes over what [`Logic::suspend`] of revision `from_revision` gave. In a swap between two modules with [`Logic::HANDOFF`] the start
    /// of the new one has run while the old one still served; this runs after the last call of the old one.
    ///
    /// # Errors
    /// End the swap; the old one goes on.
    async fn resume(
        &mut self,
        context: &InstanceContext,
        from_revision: u64,
        state: &[u8],
    ) -> Result<(), GuestError> {
        _ = (context, from_revision, state);
        Ok(())
    }

    /// Runs one step of a migration: true when the stored data is as this logic wants it, false to be called again. Where
    /// [`Logic::MIGRATION`] is set, it runs after each start and before the first call; in a swap, between the calls of the old one, which goes
    /// on with the data as the steps leave it. See `wit/migration.wit` for what a step has to keep to. `from_revision` is what the shard runs
    /// meanwhile, and 0 where nothing does.
    ///
    /// # Errors
    /// End the swap, and the old one goes on; without an old one, they are those of a start.
    async fn migrate(
        &mut self,
        context: &InstanceContext,
        from_revision: u64,
    ) -> Result<bool, GuestError> {
        _ = (context, from_revision);
        Ok(true)
    }
}

/// A module of native logic. `make` runs once for each instance.
pub fn module<L: Logic>(
    name: &str,
    revision: u64,
    make: impl Fn(&InstanceContext) -> L + Send + Sync + 'static,
) -> Arc<dyn Module> {
    let exports = Exports {
        queries: true,
        lifecycle: true,
        options: false,
        durable_events: true,
        timer_events: L::TIMER_EVENTS,
        handoff: L::HANDOFF,
        migration: L::MIGRATION,
        http: L::HTTP,
    };
    Arc::new(NativeModule {
        info: ModuleInfo {
            name: name.into(),
            revision,
            digest: "native".into(),
            exports,
        },
        make: Box::new(make),
    })
}

struct NativeModule<L> {
    info: ModuleInfo,
    make: Box<dyn Fn(&InstanceContext) -> L + Send + Sync>,
}

#[async_trait]
impl<L: Logic> Module for NativeModule<L> {
    fn describe(&self) -> &ModuleInfo {
        &self.info
    }

    async fn validate(&self, _options: &str) -> Result<(), Failure> {
        Ok(())
    }

    async fn instantiate(&self, context: InstanceContext) -> Result<Box<dyn Instance>, Failure> {
        let logic = caught(async { Ok((self.make)(&context)) }).await?;
        Ok(Box::new(NativeInstance { logic, context }))
    }

    async fn instantiate_query(
        &self,
        context: InstanceContext,
    ) -> Result<Box<dyn QueryInstance>, Failure> {
        let logic = caught(async { Ok((self.make)(&context)) }).await?;
        Ok(Box::new(NativeInstance { logic, context }))
    }
}

struct NativeInstance<L> {
    logic: L,
    context: InstanceContext,
}

#[async_trait]
impl<L: Logic> Instance for NativeInstance<L> {
    async fn start(&mut self) -> Result<(), Failure> {
        caught(self.logic.start(&self.context)).await
    }

    async fn call(&mut self, request: &Request) -> Result<Reply, Failure> {
        caught(self.logic.call(&self.context, request)).await
    }

    async fn http(&mut self, request: &Request, head: &HttpHead) -> Result<Reply, Failure> {
        caught(self.logic.http(&self.context, request, head)).await
    }

    async fn durable(&mut self, tags: Vec<Tag>) -> Result<(), Failure> {
        let tags = Tag::of(&tags, &self.context.notifier);
        caught(self.logic.durable(&self.context, tags).map(Ok)).await
    }

    async fn fire(&mut self, timer: &Timer) -> Result<(), Failure> {
        caught(self.logic.fire(&self.context, timer)).await
    }

    async fn stop(&mut self, reason: StopReason) -> Result<(), Failure> {
        caught(self.logic.stop(&self.context, reason).map(Ok)).await
    }

    async fn suspend(&mut self) -> Result<Bytes, Failure> {
        caught(self.logic.suspend(&self.context)).await
    }

    async fn resume(&mut self, from_revision: u64, state: &[u8]) -> Result<(), Failure> {
        caught(self.logic.resume(&self.context, from_revision, state)).await
    }

    async fn migrate(&mut self, from_revision: u64) -> Result<bool, Failure> {
        caught(self.logic.migrate(&self.context, from_revision)).await
    }
}

#[async_trait]
impl<L: Logic> QueryInstance for NativeInstance<L> {
    async fn query(&mut self, request: &Request, view: ReadView) -> Result<Reply, Failure> {
        caught(self.logic.query(request, &view)).await
    }
}

/// Runs native logic; a panic is a trap.
async fn caught<T>(run: impl Future<Output = Result<T, GuestError>> + Send) -> Result<T, Failure> {
    match AssertUnwindSafe(run).catch_unwind().await {
        Ok(outcome) => outcome.map_err(Failure::Error),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
            let text = text
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "panic".into());
            Err(Failure::Trap(Trap::new(TrapKind::Aborted, text)))
        }
    }
}

//! A running instance: its store, its functions, and how they are called.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use wasmtime::component::{
    ComponentExportIndex, ComponentNamedList, Instance, Lift, Lower, TypedFunc,
};
use wasmtime::{AsContextMut, Store};

use super::bindings::types;
use super::call::CurrentCall;
use super::engine::{Compiled, Indices, Runtime};
use super::failure::{self, Phase};
use super::http::Handle;
use super::meter::{Meter, WallTimeUsedUp, Watch};
use super::state::State;
use crate::db::ReadView;
use crate::guest::{Failure, Limits, Reply, Request, Trap, TrapKind};

/// A handler's or a query's function. It borrows what it is given.
pub(super) type Call<'a> =
    TypedFunc<(&'a str, Option<&'a [u8]>, &'a [u8]), (Result<Vec<u8>, types::Error>,)>;

/// The function that checks options.
type Validate = TypedFunc<(&'static str,), (Result<(), String>,)>;

/// The function that gives the memory to hand over.
pub(super) type Suspend = TypedFunc<(), (Result<Vec<u8>, types::Error>,)>;

/// The function that takes it over.
pub(super) type Resume = TypedFunc<(u64, &'static [u8]), (Result<(), types::Error>,)>;

/// The function that runs a step of a migration.
type Migrate = TypedFunc<(u64,), (Result<bool, types::Error>,)>;

/// The function that runs a timer.
type Fire = TypedFunc<(&'static str, &'static [u8], u64), (Result<(), types::Error>,)>;

/// The functions that an instance exports.
pub(super) struct Exports {
    pub(super) call: Option<Call<'static>>,
    pub(super) query: Option<Call<'static>>,
    pub(super) start: Option<TypedFunc<(), (Result<(), types::Error>,)>>,
    pub(super) stop: Option<TypedFunc<(&'static str,), ()>>,
    pub(super) validate: Option<Validate>,
    pub(super) durable: Option<TypedFunc<(&'static [u64],), ()>>,
    pub(super) fire: Option<Fire>,
    pub(super) suspend: Option<Suspend>,
    pub(super) resume: Option<Resume>,
    pub(super) migrate: Option<Migrate>,
    pub(super) http: Option<Handle>,
}

/// An instance and what watches over it.
pub(super) struct Running {
    store: Store<State>,
    watch: Watch,
    pub(super) exports: Exports,
    pub(super) limits: Arc<Limits>,
    /// Set while the guest runs, and for ever after it failed or its call was dropped on the way.
    broken: bool,
    /// The component's ticks and code outlive the instance.
    _runtime: Arc<Runtime>,
}

impl Running {
    /// Makes an instance, under the limits of a start.
    ///
    /// # Errors
    /// A trap, or that there is no room.
    pub(super) async fn make(
        runtime: &Arc<Runtime>,
        compiled: &Compiled,
        state: State,
        limits: &Arc<Limits>,
    ) -> Result<Self, Failure> {
        let meter = Arc::new(Meter::new(runtime.ticks().clone(), limits.cpu_time));
        let mut store = Store::new(runtime.engine(), state);
        store.limiter(|state| &mut state.limiter);
        store.set_hostcall_fuel(copy_limit(limits));
        store.set_epoch_deadline(1);
        let ticked = meter.clone();
        store.epoch_deadline_callback(move |_| ticked.tick());
        let mut watch = Watch::new(meter.clone());
        let made = watch
            .run(
                limits.start_time,
                pin!(compiled.pre.instantiate_async(&mut store)),
            )
            .await;
        _ = store.data_mut().end_call();
        let bound = match made {
            Err(WallTimeUsedUp) => {
                let limit = ("limits.start_time", limits.start_time);
                return Err(Failure::Trap(failure::wall_time(limit)));
            }
            Ok(made) => {
                made.and_then(|instance| Exports::of(&instance, &mut store, &compiled.indices))
            }
        };
        let exports = bound.map_err(|error| {
            failure::not_made(&error, store.data(), limits, runtime.instances())
        })?;
        // A new watch: the timer of the old one belongs to the runtime that made the instance, and another may run it.
        Ok(Self {
            store,
            watch: Watch::new(meter),
            exports,
            limits: limits.clone(),
            broken: false,
            _runtime: runtime.clone(),
        })
    }

    /// What the host keeps for it.
    pub(super) fn state(&mut self) -> &mut State {
        self.store.data_mut()
    }

    /// What queries read from here on.
    pub(super) fn read_from(&mut self, view: ReadView) {
        self.store.data_mut().data.reads = view;
    }

    /// Runs a call or a query, and takes its reply.
    pub(super) async fn request(
        &mut self,
        request: &Request,
        function: Call<'static>,
    ) -> Result<Reply, Failure> {
        let params = (
            request.method.as_str(),
            request.key.as_deref(),
            &*request.payload,
        );
        let limit = ("limits.wall_time", self.limits.wall_time);
        let (outcome,) = self
            .enter(CurrentCall::of(request), limit, function, params)
            .await
            .map_err(Failure::Trap)?;
        let (content_type, when_applied) = self.store.data_mut().call.end();
        let payload = outcome.map_err(failure::error)?;
        if payload.len() > self.limits.reply {
            self.broken = true;
            return Err(Failure::Trap(failure::reply_too_large(
                Some(payload.len()),
                &self.limits,
            )));
        }
        Ok(Reply {
            payload: Bytes::from(payload),
            content_type,
            when_applied,
            http: None,
        })
    }

    /// Takes the memory that the guest hands over; more than `limits.handoff_bytes` is the caller's to refuse.
    pub(super) async fn suspend(&mut self, function: Suspend) -> Result<Bytes, Failure> {
        let limit = ("limits.handoff_time", self.limits.handoff_time);
        let usual = copy_limit(&self.limits);
        let copied = well_above(self.limits.handoff_bytes, &self.limits);
        self.store.set_hostcall_fuel(copied.max(usual));
        self.watch.urgent = true;
        let outcome = self.enter(CurrentCall::none(), limit, function, ()).await;
        self.watch.urgent = false;
        self.store.set_hostcall_fuel(usual);
        match outcome {
            Ok((state,)) => state.map(Bytes::from).map_err(failure::error),
            Err(trap) if trap.kind == TrapKind::ReplyTooLarge => {
                let limit = self.limits.handoff_bytes;
                let words =
                    format!("what it hands over is far over limits.handoff_bytes ({limit} bytes)");
                Err(Failure::Trap(Trap::new(trap.kind, words)))
            }
            Err(trap) => Err(Failure::Trap(trap)),
        }
    }

    /// Gives the guest the memory that another one handed over.
    pub(super) async fn resume(
        &mut self,
        function: Resume,
        from_revision: u64,
        state: &[u8],
    ) -> Result<(), Failure> {
        let limit = ("limits.handoff_time", self.limits.handoff_time);
        self.watch.urgent = true;
        let params = (from_revision, state);
        let outcome = self
            .enter(CurrentCall::none(), limit, function, params)
            .await;
        self.watch.urgent = false;
        let (outcome,) = outcome.map_err(Failure::Trap)?;
        outcome.map_err(failure::error)
    }

    /// Calls a function of the guest. `limit` is the time that it may last, with its setting.
    pub(super) async fn enter<P, R>(
        &mut self,
        call: CurrentCall,
        limit: (&'static str, Duration),
        function: TypedFunc<P, R>,
        params: P,
    ) -> Result<R, Trap>
    where
        P: ComponentNamedList + Lower + Send + Sync,
        R: ComponentNamedList + Lift + Send + Sync + 'static,
    {
        self.enter_beside(call, limit, function, params, |_| true)
            .await
    }

    /// As [`Running::enter`], with work beside it on the same stack of polls: `beside` runs each time that the guest pauses, and gives it up
    /// where it returns false.
    pub(super) async fn enter_beside<P, R>(
        &mut self,
        call: CurrentCall,
        limit: (&'static str, Duration),
        function: TypedFunc<P, R>,
        params: P,
        mut beside: impl FnMut(&mut Context<'_>) -> bool + Send,
    ) -> Result<R, Trap>
    where
        P: ComponentNamedList + Lower + Send + Sync,
        R: ComponentNamedList + Lift + Send + Sync + 'static,
    {
        if self.broken {
            return Err(Trap::new(
                TrapKind::Host,
                "the instance has ended: it failed, or its last call was dropped on the way",
            ));
        }
        self.broken = true;
        self.store.data_mut().begin_call(call);
        self.store.set_epoch_deadline(1);
        let outcome = {
            let mut call = pin!(function.call_async(&mut self.store, params));
            let both = poll_fn(|context| match call.as_mut().poll(context) {
                Poll::Ready(returned) => Poll::Ready(Some(returned)),
                Poll::Pending if beside(context) => Poll::Pending,
                Poll::Pending => Poll::Ready(None),
            });
            self.watch.run(limit.1, pin!(both)).await
        };
        let ended = self.store.data_mut().end_call();
        match outcome {
            Ok(Some(Ok(returned))) => {
                ended.map_err(|error| Trap::new(TrapKind::Aborted, error.to_string()))?;
                self.broken = false;
                Ok(returned)
            }
            Ok(None) => Err(Trap::new(TrapKind::Host, "it was given up on its way")),
            Ok(Some(Err(error))) => Err(failure::classify(
                &error,
                self.store.data(),
                &self.limits,
                Phase::Call,
            )),
            Err(WallTimeUsedUp) => Err(failure::wall_time(limit)),
        }
    }
}

impl Exports {
    fn of(
        instance: &Instance,
        store: &mut Store<State>,
        indices: &Indices,
    ) -> wasmtime::Result<Self> {
        Ok(Self {
            call: bind(instance, store, indices.call)?,
            query: bind(instance, store, indices.query)?,
            start: bind(instance, store, indices.start_stop.map(|(start, _)| start))?,
            stop: bind(instance, store, indices.start_stop.map(|(_, stop)| stop))?,
            validate: bind(instance, store, indices.validate)?,
            durable: bind(instance, store, indices.durable)?,
            fire: bind(instance, store, indices.fire)?,
            suspend: bind(
                instance,
                store,
                indices.suspend_resume.map(|(suspend, _)| suspend),
            )?,
            resume: bind(
                instance,
                store,
                indices.suspend_resume.map(|(_, resume)| resume),
            )?,
            migrate: bind(instance, store, indices.migrate)?,
            http: bind(instance, store, indices.http)?,
        })
    }
}

fn bind<P, R>(
    instance: &Instance,
    store: &mut Store<State>,
    index: Option<ComponentExportIndex>,
) -> wasmtime::Result<Option<TypedFunc<P, R>>>
where
    P: ComponentNamedList + Lower,
    R: ComponentNamedList + Lift,
{
    index
        .map(|index| instance.get_typed_func(store.as_context_mut(), index))
        .transpose()
}

/// The most bytes that a guest can have the host copy at once, in a host call or a reply. Lists may name the same memory many
/// times, so the guest's memory alone does not bound it. Well above the limits of values, batches and replies, so that these are
/// what a guest meets.
fn copy_limit(limits: &Limits) -> usize {
    let largest = limits.batch.max(limits.value).max(limits.reply);
    well_above(largest, limits)
}

fn well_above(largest: usize, limits: &Limits) -> usize {
    let memory = usize::try_from(limits.memory).unwrap_or(usize::MAX);
    largest.saturating_mul(4).min(memory).max(COPY_MIN_BYTES)
}

/// A guest with very little memory still can name a key and log a line.
const COPY_MIN_BYTES: usize = 1 << 20;

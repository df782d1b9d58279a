//! Several modules as one guest: each shard runs an instance of each over its one database.
//!
//! They start in the order of the revision and stop in reverse; where some of them migrate stored data, the others start once that is done. A call names its module as `module/method`; where it names none, it is for
//! the first. A trap of one ends them all, as it would if they were one component: what they had in memory may rest on each other.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::log::GuestLog;
use super::notify::Tag;
use super::{
    Exports, Failure, GuestError, HttpHead, Instance, InstanceContext, Limits, Module, ModuleInfo,
    QueryInstance, Reply, Request, StopReason, Timer, Trap, TrapKind,
};
use crate::db::ReadView;
use crate::metrics;

/// A module of a revision, with what it is given there.
#[derive(Clone)]
pub struct Part {
    /// The module; its name is the one that calls use.
    pub module: Arc<dyn Module>,
    /// Its options, a JSON object.
    pub options: Arc<str>,
    /// The beginning of all keys that it sees; empty for the whole database.
    pub prefix: Bytes,
}

/// The modules of a revision, at least one, of different names.
pub struct Compound {
    info: ModuleInfo,
    limits: Option<Arc<Limits>>,
    parts: Arc<[Part]>,
}

impl Compound {
    /// Puts modules together. `otherwise` are the limits of those that have none of their own.
    ///
    /// # Panics
    /// Without a module.
    #[must_use]
    pub fn new(parts: Vec<Part>, otherwise: &Arc<Limits>) -> Self {
        let infos: Vec<&ModuleInfo> = parts.iter().map(|part| part.module.describe()).collect();
        let list = |of: fn(&ModuleInfo) -> &str| -> Arc<str> {
            let all: Vec<&str> = infos.iter().map(|info| of(info)).collect();
            all.join("+").into()
        };
        let any = |of: fn(&Exports) -> bool| infos.iter().any(|info| of(&info.exports));
        let info = ModuleInfo {
            name: list(|info| &info.name),
            revision: infos[0].revision,
            digest: list(|info| &info.digest),
            exports: Exports {
                queries: any(|exports| exports.queries),
                lifecycle: any(|exports| exports.lifecycle),
                // Each was asked for itself.
                options: false,
                durable_events: any(|exports| exports.durable_events),
                timer_events: any(|exports| exports.timer_events),
                // Whoever hands over memory is started beside calls. Those that do not must not be.
                handoff: infos.iter().all(|info| info.exports.handoff),
                migration: any(|exports| exports.migration),
                http: any(|exports| exports.http),
            },
        };
        let limits = parts
            .iter()
            .map(|part| part.module.limits().unwrap_or(otherwise));
        let limits = limits.fold(None, |sum: Option<Limits>, limits| {
            Some(sum.map_or_else(|| (**limits).clone(), |sum| sum.and(limits)))
        });
        Self {
            limits: limits.map(Arc::new),
            info,
            parts: parts.into(),
        }
    }
}

impl Part {
    fn name(&self) -> &str {
        &self.module.describe().name
    }

    /// What this module of a shard's may use.
    fn context(&self, whole: &InstanceContext) -> InstanceContext {
        let info = self.module.describe();
        let rate = whole.db.limits().log_bytes_per_second;
        let log = GuestLog::new(whole.shard, info.name.clone(), info.revision, rate);
        InstanceContext {
            options: self.options.clone(),
            db: Arc::new(whole.db.within(self.prefix.clone())),
            notifier: Arc::new(whole.notifier.of(&info.name)),
            timers: whole.timers.of(info),
            log: Arc::new(log),
            metrics: metrics::guest::of(&whole.cluster, &info.name),
            ..whole.clone()
        }
    }
}

/// The module that a method is for, and its name there.
fn addressed<'a>(parts: &[Part], method: &'a str) -> (usize, &'a str) {
    let named = method.split_once('/').and_then(|(module, method)| {
        let at = parts.iter().position(|part| part.name() == module)?;
        Some((at, method))
    });
    named.unwrap_or((0, method))
}

/// The request as the module gets it.
fn within(request: &Request, method: &str) -> Option<Request> {
    (method != request.method).then(|| Request {
        method: method.to_owned(),
        ..request.clone()
    })
}

#[async_trait]
impl Module for Compound {
    fn describe(&self) -> &ModuleInfo {
        &self.info
    }

    /// Asks each module about the options that it was given, whatever these are.
    async fn validate(&self, _: &str) -> Result<(), Failure> {
        for part in &*self.parts {
            part.module.validate(&part.options).await?;
        }
        Ok(())
    }

    async fn instantiate(&self, context: InstanceContext) -> Result<Box<dyn Instance>, Failure> {
        let mut running = Vec::with_capacity(self.parts.len());
        for part in &*self.parts {
            let context = part.context(&context);
            running.push(Running {
                notifier: context.notifier.clone(),
                instance: part.module.instantiate(context).await?,
                started: false,
            });
        }
        Ok(Box::new(Together {
            parts: self.parts.clone(),
            running,
            migrates: self.info.exports.migration,
        }))
    }

    async fn instantiate_query(
        &self,
        context: InstanceContext,
    ) -> Result<Box<dyn QueryInstance>, Failure> {
        let mut made: Vec<_> = self.parts.iter().map(|_| None).collect();
        if let [only] = &*self.parts {
            // It is the one that is asked.
            let context = only.context(&context);
            made[0] = Some(only.module.instantiate_query(context).await?);
        }
        Ok(Box::new(Queries {
            parts: self.parts.clone(),
            made,
            context,
        }))
    }

    fn limits(&self) -> Option<&Arc<Limits>> {
        self.limits.as_ref()
    }

    fn timer_takers(&self) -> Vec<Arc<str>> {
        let parts = self.parts.iter();
        parts.flat_map(|part| part.module.timer_takers()).collect()
    }

    fn crowded(&self) -> u64 {
        self.parts.iter().map(|part| part.module.crowded()).sum()
    }
}

/// The instances of a shard.
struct Together {
    parts: Arc<[Part]>,
    running: Vec<Running>,
    migrates: bool,
}

struct Running {
    instance: Box<dyn Instance>,
    notifier: Arc<super::notify::Notifier>,
    started: bool,
}

#[async_trait]
impl Instance for Together {
    /// A migration begins beside calls of an older revision. Whoever takes no part in it may fill a cache at its start, and waits for its end.
    async fn start(&mut self) -> Result<(), Failure> {
        let migrates = self.migrates;
        self.start_those(|exports| !migrates || exports.migration)
            .await
    }

    async fn call(&mut self, request: &Request) -> Result<Reply, Failure> {
        let (at, method) = addressed(&self.parts, &request.method);
        let within = within(request, method);
        let instance = &mut self.running[at].instance;
        let outcome = instance.call(within.as_ref().unwrap_or(request)).await;
        outcome.map_err(|failure| match failure {
            trap @ Failure::Trap(_) => named(&self.parts, &self.parts[at], trap),
            // The guest's own words.
            other => other,
        })
    }

    /// It is for the module that it names, else for the first that answers any.
    async fn http(&mut self, request: &Request, head: &HttpHead) -> Result<Reply, Failure> {
        let answers = |part: &&Part| part.module.describe().exports.http;
        let at = match &head.module {
            Some(name) => self.parts.iter().position(|part| part.name() == name),
            None => self.parts.iter().position(|part| answers(&part)),
        };
        let Some(at) = at else {
            let names: Vec<&str> = self.parts.iter().map(Part::name).collect();
            let message = format!(
                "the shard runs no module {:?}; it runs {}",
                head.module.as_deref().unwrap_or_default(),
                names.join(", ")
            );
            return Err(Failure::Error(GuestError::new("no-http", message)));
        };
        let part = &self.parts[at];
        if !answers(&part) {
            let names: Vec<&str> = self.parts.iter().filter(answers).map(Part::name).collect();
            let message = format!(
                "the module `{}` does not export `wasi:http/incoming-handler@0.2`; these do: {}",
                part.name(),
                names.join(", ")
            );
            return Err(Failure::Error(GuestError::new("no-http", message)));
        }
        let outcome = self.running[at].instance.http(request, head).await;
        outcome.map_err(|failure| match failure {
            trap @ Failure::Trap(_) => named(&self.parts, &self.parts[at], trap),
            other => other,
        })
    }

    async fn durable(&mut self, tags: Vec<Tag>) -> Result<(), Failure> {
        for (running, part) in self.running.iter_mut().zip(&*self.parts) {
            let own: Vec<Tag> = tags
                .iter()
                .copied()
                .filter(|tag| tag.is_of(&running.notifier))
                .collect();
            if own.is_empty() || !part.module.describe().exports.durable_events {
                continue;
            }
            match running.instance.durable(own).await {
                Ok(()) => {}
                Err(Failure::Error(error)) => {
                    tracing::warn!(module = part.name(), %error, "guest failed to take durable tags");
                }
                Err(failure) => return Err(named(&self.parts, part, failure)),
            }
        }
        Ok(())
    }

    /// A timer is for the module that set it.
    async fn fire(&mut self, timer: &Timer) -> Result<(), Failure> {
        let mut parts = self.running.iter_mut().zip(&*self.parts);
        let Some((running, part)) = parts.find(|(_, part)| part.name() == &*timer.module) else {
            return Ok(());
        };
        let fired = running.instance.fire(timer).await;
        fired.map_err(|failure| named(&self.parts, part, failure))
    }

    /// A step of each that has not done yet; all of them have when none of them has anything left to do at once.
    async fn migrate(&mut self, from_revision: u64) -> Result<bool, Failure> {
        for (running, part) in self.running.iter_mut().zip(&*self.parts) {
            if part.module.describe().exports.migration {
                let done = running.instance.migrate(from_revision).await;
                if !done.map_err(|failure| named(&self.parts, part, failure))? {
                    return Ok(false);
                }
            }
        }
        self.start_those(|_| true).await?;
        Ok(true)
    }

    async fn stop(&mut self, reason: StopReason) -> Result<(), Failure> {
        let mut outcome = Ok(());
        for (running, part) in self.running.iter_mut().zip(&*self.parts).rev() {
            if running.started {
                let stopped = running.instance.stop(reason).await;
                let stopped = stopped.map_err(|failure| named(&self.parts, part, failure));
                // The others are told all the same.
                outcome = outcome.and(stopped);
            }
        }
        outcome
    }

    async fn suspend(&mut self) -> Result<Bytes, Failure> {
        let mut memory = BytesMut::new();
        for (running, part) in self.running.iter_mut().zip(&*self.parts) {
            let state = running.instance.suspend().await;
            let state = state.map_err(|failure| named(&self.parts, part, failure))?;
            pack(&mut memory, part.name(), &state)?;
        }
        Ok(memory.freeze())
    }

    /// Each gets what the module of its name gave; one that is new begins as after any start.
    async fn resume(&mut self, from_revision: u64, memory: &[u8]) -> Result<(), Failure> {
        let states = unpack(memory)?;
        for (running, part) in self.running.iter_mut().zip(&*self.parts) {
            let Some((_, state)) = states.iter().find(|(name, _)| *name == part.name()) else {
                continue;
            };
            let resumed = running.instance.resume(from_revision, state).await;
            resumed.map_err(|failure| named(&self.parts, part, failure))?;
        }
        Ok(())
    }
}

impl Together {
    /// Starts those that are to and are not started yet, in their order.
    async fn start_those(
        &mut self,
        which: impl Fn(&Exports) -> bool + Send,
    ) -> Result<(), Failure> {
        for (running, part) in self.running.iter_mut().zip(&*self.parts) {
            if !running.started && which(&part.module.describe().exports) {
                let started = running.instance.start().await;
                started.map_err(|failure| named(&self.parts, part, failure))?;
                running.started = true;
            }
        }
        Ok(())
    }
}

/// Instances for queries, made when the first query for their module comes.
struct Queries {
    parts: Arc<[Part]>,
    made: Vec<Option<Box<dyn QueryInstance>>>,
    context: InstanceContext,
}

#[async_trait]
impl QueryInstance for Queries {
    async fn query(&mut self, request: &Request, view: ReadView) -> Result<Reply, Failure> {
        let (at, method) = addressed(&self.parts, &request.method);
        let part = &self.parts[at];
        if !part.module.describe().exports.queries {
            let message = format!(
                "the module `{}` does not export `queries`; make it a call",
                part.name()
            );
            return Err(Failure::Error(GuestError::new("no-queries", message)));
        }
        let mut instance = match self.made[at].take() {
            Some(instance) => instance,
            None => {
                let context = part.context(&self.context);
                part.module.instantiate_query(context).await?
            }
        };
        let within = within(request, method);
        let request = within.as_ref().unwrap_or(request);
        let outcome = instance.query(request, view.within(&part.prefix)).await;
        // After a trap the whole is dropped.
        self.made[at] = Some(instance);
        outcome
    }
}

/// A failure with the name of the module that it is of, where there are several.
fn named(parts: &[Part], part: &Part, failure: Failure) -> Failure {
    let module = part.name();
    match failure {
        failure if parts.len() == 1 => failure,
        Failure::Error(error) => Failure::Error(GuestError {
            message: format!("module `{module}`: {}", error.message),
            ..error
        }),
        Failure::Trap(trap) => Failure::Trap(Trap {
            message: format!("module `{module}`: {}", trap.message),
            ..trap
        }),
        room @ Failure::NoRoom(_) => room,
    }
}

/// The memory of a module, behind that of those before it: the lengths of name and memory, and both.
fn pack(memory: &mut BytesMut, name: &str, state: &[u8]) -> Result<(), Failure> {
    let long = |_| {
        Failure::Error(GuestError::new(
            "limit",
            "the memory to hand over is over 4 GiB",
        ))
    };
    let (of_name, of_state) = (
        u32::try_from(name.len()).map_err(long)?,
        u32::try_from(state.len()).map_err(long)?,
    );
    memory.put_u32(of_name);
    memory.put_slice(name.as_bytes());
    memory.put_u32(of_state);
    memory.put_slice(state);
    Ok(())
}

/// Names and memories, as [`pack`] wrote them.
fn unpack(mut memory: &[u8]) -> Result<Vec<(&str, &[u8])>, Failure> {
    // This process wrote it, a moment ago.
    let wrong = || {
        Failure::Trap(Trap::new(
            TrapKind::Host,
            "the memory handed over is damaged",
        ))
    };
    fn piece<'a>(memory: &mut &'a [u8]) -> Option<&'a [u8]> {
        let length = usize::try_from(memory.try_get_u32().ok()?).ok()?;
        let (piece, rest) = memory.split_at_checked(length)?;
        *memory = rest;
        Some(piece)
    }
    let mut states = Vec::new();
    while !memory.is_empty() {
        let name = piece(&mut memory).and_then(|name| std::str::from_utf8(name).ok());
        let (name, state) = name.zip(piece(&mut memory)).ok_or_else(wrong)?;
        states.push((name, state));
    }
    Ok(states)
}

#[cfg(test)]
mod tests;

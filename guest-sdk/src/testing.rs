//! An in-memory host for unit tests of guests, on native targets.
//!
//! It runs the guest's own code against a database that behaves as the real one: the same limits and error codes,
//! snapshots, both isolation levels with their conflicts, expiry, merge operators, and cursors that end with their call. The
//! test drives what the real host does by itself: time ([`Host::advance`]) and durability ([`Host::make_durable`]).
//!
//! ```
//! use quarry_guest::prelude::*;
//! use quarry_guest::testing::Host;
//!
//! # #[derive(Default)]
//! # struct Notes;
//! # impl Guest for Notes {
//! #     fn call(&mut self, call: Call) -> Result<Reply> {
//! #         match call.method() {
//! #             "add" => Ok(Reply::text(db::put(call.required_key()?, call.payload())?)),
//! #             "get" => self.query(call),
//! #             other => Err(Error::unknown_method(other)),
//! #         }
//! #     }
//! #     fn query(&self, call: Call) -> Result<Reply> {
//! #         Ok(Reply::bytes(db::get::<Vec<u8>>(call.required_key()?)?.unwrap_or_default()))
//! #     }
//! # }
//! # quarry_guest::export!(Notes, queries);
//! # fn main() {
//! let mut host = Host::new::<Notes>();
//! host.call("add").key("today").payload("buy milk").run().unwrap();
//! assert_eq!(host.query("get").key("today").run().unwrap().text(), "buy milk");
//! assert_eq!(host.call("add").run().unwrap_err().code(), "missing-key");
//!
//! // The write is not durable yet, so a crash takes it away.
//! host.crash().unwrap();
//! assert_eq!(host.query("get").key("today").run().unwrap().text(), "");
//! # }
//! ```
//!
//! A panic of the guest is a panic of the test. The guest runs on the test's own thread, and [`db`](crate::db) works only
//! within [`Request::run`] and [`Host::run`].

mod builder;
mod cluster;
mod limits;
mod log_line;
mod merge;
mod metrics;
mod migration;
mod request;
mod store;
mod timers;
mod transaction;
mod world;

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

pub use builder::Builder;
pub use cluster::Asked;
pub(crate) use cluster::Others;
pub use limits::Limits;
pub use log_line::LogLine;
pub use merge::MergeOperator;
pub use metrics::Metrics;
pub(crate) use metrics::Value;
use migration::Migration;
pub use request::{Request, Response};
pub(crate) use store::{Span, Stage, Write, entries};
pub(crate) use transaction::TransactionState;
use world::Scope;
pub(crate) use world::{Held, World, with_world};

use crate::call::{Call, Reply};
use crate::context::Status;
use crate::db::Seq;
use crate::error::{Error, Result};
use crate::guest::{Exported, Exports, Guest, StopReason};
use crate::timers::Timer;

/// The longest code of an error, in bytes.
const MAX_CODE_BYTES: usize = 64;

/// A host with one shard, in memory.
pub struct Host {
    world: Rc<RefCell<World>>,
    make: fn() -> Box<dyn Instance>,
    exports: Exports,
    /// The instance that runs calls; none when the shard is stopped.
    calls: Option<Box<dyn Instance>>,
    /// The instance that runs queries: made when it is first needed, and gone with the one for calls.
    queries: Option<Box<dyn Instance>>,
}

impl Host {
    /// A host with a guest and with the defaults of [`Builder`]. Panics where the guest does not start.
    pub fn new<G: Exported>() -> Host {
        match Host::builder().start::<G>() {
            Ok(host) => host,
            Err(error) => panic!("the guest did not start: {error}"),
        }
    }

    /// A host whose shard, options, limits or merge operator differ from the defaults.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A host without a guest, for tests of code that uses [`db`](crate::db): see [`Host::run`].
    pub fn bare() -> Host {
        Host::new::<NoGuest>()
    }

    /// Prepares a call.
    pub fn call(&mut self, method: &str) -> Request<'_> {
        Request::new(self, method, false)
    }

    /// Prepares a query. Fails with `no-queries` where the guest does not export `queries`.
    pub fn query(&mut self, method: &str) -> Request<'_> {
        Request::new(self, method, true)
    }

    /// Runs code as if it were a call's handler.
    pub fn run<T>(&mut self, body: impl FnOnce() -> Result<T>) -> Result<T> {
        let scope = self.world.borrow().call_scope(None, Vec::new());
        let (outcome, _) = World::enter(&self.world, scope, body);
        self.between_calls();
        outcome
    }

    /// Makes every write durable, and tells the guest of the tags that waited for that.
    pub fn make_durable(&mut self) {
        self.make_durable_to(self.last_seq());
    }

    /// Makes the writes up to `seq` durable.
    pub fn make_durable_to(&mut self, seq: Seq) {
        self.world.borrow_mut().make_durable(seq);
        self.deliver_tags();
    }

    /// The newest write up to which every write is durable.
    pub fn durable_seq(&self) -> Seq {
        self.world.borrow().durable_seq()
    }

    /// The newest write.
    pub fn last_seq(&self) -> Seq {
        Seq(self.world.borrow().store.last_seq())
    }

    /// Lets time pass: values expire, transactions grow old, and timers fire, each at its time, those that failed again as on a host. Nothing
    /// else moves this host's clock, which begins at 2026-01-01T00:00:00Z. Errors of [`Guest::fire`] are in [`Host::logs`].
    pub fn advance(&mut self, time: Duration) {
        let until = self.world.borrow().after(time);
        while self.calls.is_some() {
            let mut world = self.world.borrow_mut();
            let Some(at) = world.next_timer_ms().filter(|at| *at <= until) else {
                break;
            };
            world.now_ms = world.now_ms.max(at);
            drop(world);
            self.fire_due();
        }
        self.world.borrow_mut().now_ms = until;
    }

    /// Stops the guest: [`Guest::stop`] where it is exported, then every write becomes durable. Calls fail with `closed`
    /// until [`restart`](Host::restart).
    pub fn stop(&mut self, reason: StopReason) {
        self.world.borrow_mut().status = Status::Stopping;
        if let Some(mut guest) = self.calls.take()
            && self.exports.lifecycle
        {
            World::enter(&self.world, Scope::lifecycle(), || guest.stop(reason));
        }
        self.queries = None;
        let mut world = self.world.borrow_mut();
        world.drop_tags();
        world.timers.forget();
        let last = Seq(world.store.last_seq());
        world.make_durable(last);
    }

    /// Stops the guest cleanly if it runs, and starts a new instance over the same data.
    pub fn restart(&mut self) -> Result<()> {
        if self.calls.is_some() {
            self.stop(StopReason::Stopping);
        }
        self.start()
    }

    /// Swaps the guest for one of another revision, over the same data and with the same options. The new one starts, and runs the
    /// steps of its migration where it exports `migration`. Where both export `handoff`, the memory goes along:
    /// [`Guest::suspend`], [`Guest::resume`]. Otherwise the old one stops. Where one of these fails, the old guest goes on as it
    /// was. Panics where the shard is stopped.
    pub fn swap<G: Exported>(&mut self, revision: u64) -> Result<()> {
        self.swap_while::<G>(revision, |_| {})
    }

    /// As [`Host::swap`], with `between` after each step of the migration but the last: what it calls is served by the old guest, as calls
    /// are meanwhile.
    ///
    /// ```
    /// # use quarry_guest::prelude::*;
    /// # use quarry_guest::testing::Host;
    /// # #[derive(Default)]
    /// # struct Old;
    /// # impl Guest for Old {
    /// #     fn call(&mut self, call: Call) -> Result<Reply> {
    /// #         Ok(Reply::text(db::put(call.required_key()?, "old")?))
    /// #     }
    /// # }
    /// # #[derive(Default)]
    /// # struct New;
    /// # impl Guest for New {
    /// #     fn call(&mut self, call: Call) -> Result<Reply> {
    /// #         Ok(Reply::text(db::get::<String>(call.required_key()?)?.unwrap_or_default()))
    /// #     }
    /// #     fn migrate(&mut self, _: u64) -> Result<bool> {
    /// #         for key in ["a", "b"] {
    /// #             if db::get::<String>(key)?.as_deref() == Some("old") {
    /// #                 db::put(key, "new")?;
    /// #                 return Ok(false);
    /// #             }
    /// #         }
    /// #         Ok(true)
    /// #     }
    /// # }
    /// # mod old { quarry_guest::export!(super::Old); }
    /// # mod new { quarry_guest::export!(super::New, migration); }
    /// # fn main() {
    /// let mut host = Host::new::<Old>();
    /// host.call("write").key("b").run().unwrap();
    /// // The old guest writes a row behind the one that was migrated: a later step has to find it.
    /// let mut written = false;
    /// host.swap_while::<New>(2, |host| {
    ///     if !std::mem::replace(&mut written, true) {
    ///         host.call("write").key("a").run().unwrap();
    ///     }
    /// })
    /// .unwrap();
    /// assert_eq!(host.call("read").key("a").run().unwrap().text(), "new");
    /// # }
    /// ```
    pub fn swap_while<G: Exported>(
        &mut self,
        revision: u64,
        between: impl FnMut(&mut Host),
    ) -> Result<()> {
        assert!(self.calls.is_some(), "the shard is stopped");
        let present = (self.world.borrow().settings.revision, self.exports);
        let next = (revision, G::EXPORTS);
        let swapped = self.take_over::<G>(present, next, between);
        let ((revision, exports), outcome) = match swapped {
            Ok(new) => {
                self.world.borrow_mut().adopt_timers(next.1.timer_events);
                self.make = || Box::new(G::default());
                self.queries = None;
                self.calls = Some(new);
                (next, Ok(()))
            }
            Err(error) => (present, Err(error)),
        };
        self.world.borrow_mut().runs_as(revision, exports);
        self.world.borrow_mut().timers.early = None;
        self.exports = exports;
        self.between_calls();
        outcome
    }

    /// What a crash of the node does: no [`Guest::stop`], the writes that were not durable are gone, and a new instance
    /// starts over the rest.
    pub fn crash(&mut self) -> Result<()> {
        self.calls = None;
        self.queries = None;
        self.world.borrow_mut().lose_what_is_not_durable();
        self.start()
    }

    /// Lets another writer take the shard over: [`db`](crate::db) fails with `fenced` from now on.
    pub fn fence(&mut self) {
        self.world.borrow_mut().status = Status::Fenced;
    }

    /// Says what the other shards of the cluster do: the closure gets what the guest asks of them ([`cluster`](crate::cluster)), and answers. Until
    /// then they are `unassigned`. [`Builder::shard`] says how many there are: by default this one alone.
    pub fn on_cluster_call(&mut self, answer: impl FnMut(&Asked) -> Result<Vec<u8>> + 'static) {
        self.world.borrow_mut().others = Others::new(answer);
    }

    /// The metrics that the guest keeps ([`metrics`](crate::metrics)), as they are now.
    pub fn metrics(&self) -> Metrics {
        self.world.borrow().metrics.clone()
    }

    /// The lines that the guest has logged, oldest first.
    pub fn logs(&self) -> Vec<LogLine> {
        self.world.borrow().logs.clone()
    }

    /// The instance that runs calls, to look into its memory. Panics where the shard is stopped or the guest is of
    /// another type.
    pub fn guest<G: Guest>(&self) -> &G {
        let guest = self.calls.as_deref().expect("the shard is stopped");
        guest
            .as_any()
            .downcast_ref()
            .expect("the host runs a guest of another type")
    }

    fn start(&mut self) -> Result<()> {
        self.world.borrow_mut().status = Status::Running;
        let mut guest = (self.make)();
        if self.exports.lifecycle {
            World::enter(&self.world, Scope::lifecycle(), || guest.start()).0?;
        }
        if self.exports.migration {
            let mut steps = self.migration();
            while !steps
                .next(|| World::enter(&self.world, Scope::lifecycle(), || guest.migrate(0)).0)?
            {
            }
        }
        self.calls = Some(guest);
        self.between_calls();
        Ok(())
    }

    /// The steps of a swap, each as the guest of a revision.
    fn take_over<G: Exported>(
        &mut self,
        present: (u64, Exports),
        next: (u64, Exports),
        mut between: impl FnMut(&mut Host),
    ) -> Result<Box<dyn Instance>> {
        if next.1.options {
            let options = self.world.borrow().settings.options.clone();
            World::enter(&self.world, Scope::validation(), || G::validate(&options))
                .0
                .map_err(|why| Error::new("invalid-options", why))?;
        }
        let mut new = Box::new(G::default());
        self.world.borrow_mut().timers.early = Some(Default::default());
        if next.1.lifecycle {
            self.run_coming(next, || Guest::start(&mut *new))?;
        }
        if next.1.migration {
            let mut steps = self.migration();
            while !steps.next(|| self.run_coming(next, || Guest::migrate(&mut *new, present.0)))? {
                self.world.borrow_mut().runs_as(present.0, present.1);
                between(self);
            }
        }
        // Gone only where `between` stopped the shard.
        let mut old = self.calls.take().ok_or_else(stopped)?;
        let handed = self.hand_over(&mut *old, present, &mut *new, next);
        if handed.is_err() {
            self.calls = Some(old);
        }
        handed.map(|()| new as Box<dyn Instance>)
    }

    fn hand_over<G: Guest>(
        &self,
        old: &mut dyn Instance,
        present: (u64, Exports),
        new: &mut G,
        next: (u64, Exports),
    ) -> Result<()> {
        if present.1.handoff && next.1.handoff {
            let state = self.run_as(present, || old.suspend())?;
            let limit = self.world.borrow().settings.limits.handoff_bytes;
            if state.len() > limit {
                let why = format!(
                    "the memory to hand over has {} bytes, over limits.handoff_bytes ({limit} bytes)",
                    state.len()
                );
                return Err(Error::new("limit", why));
            }
            self.run_coming(next, || Guest::resume(new, present.0, state))?;
        } else if present.1.lifecycle {
            self.run_as(present, || old.stop(StopReason::Swapping));
        }
        Ok(())
    }

    fn migration(&self) -> Migration {
        let limits = &self.world.borrow().settings.limits;
        Migration::new(limits)
    }

    /// As the instance that is to take over: what it sets in memory counts once it has.
    fn run_coming<T>(&self, next: (u64, Exports), body: impl FnOnce() -> T) -> T {
        self.world.borrow_mut().timers.is_early = true;
        let outcome = self.run_as(next, body);
        self.world.borrow_mut().timers.is_early = false;
        outcome
    }

    fn run_as<T>(&self, (revision, exports): (u64, Exports), body: impl FnOnce() -> T) -> T {
        self.world.borrow_mut().runs_as(revision, exports);
        World::enter(&self.world, Scope::lifecycle(), body).0
    }

    /// What the host does between two calls.
    fn between_calls(&mut self) {
        self.deliver_tags();
        self.fire_due();
    }

    /// Fires what is due now.
    fn fire_due(&mut self) {
        let limit = self.world.borrow().settings.limits.timers;
        for fired in 0.. {
            let Some(guest) = self.calls.as_mut() else {
                return;
            };
            let due = self.world.borrow_mut().take_due_timer();
            let Some(due) = due else { return };
            assert!(
                fired <= limit,
                "timer `{}` is due again and again, since it is set anew without a delay",
                due.name()
            );
            let timer = due.timer();
            let scope = Scope::timer(self.world.borrow().now_ms);
            let (outcome, _) = World::enter(&self.world, scope, || guest.fire(timer));
            self.world.borrow_mut().fired(due, outcome.map_err(bounded));
            self.deliver_tags();
        }
    }

    /// Between calls: hands over the tags whose writes are durable.
    fn deliver_tags(&mut self) {
        let tags = self.world.borrow_mut().take_durable_tags();
        if let (false, Some(guest)) = (tags.is_empty(), self.calls.as_mut()) {
            World::enter(&self.world, Scope::lifecycle(), || guest.durable(tags));
        }
    }

    fn run_call(&mut self, scope: Scope, call: Call) -> Result<(Reply, Option<Seq>)> {
        let guest = self.calls.as_mut().ok_or_else(stopped)?;
        let (reply, seq) = World::enter(&self.world, scope, || guest.call(call));
        self.between_calls();
        Ok((self.checked(reply)?, seq))
    }

    fn run_query(&mut self, scope: Scope, call: Call) -> Result<(Reply, Option<Seq>)> {
        if !self.exports.queries {
            return Err(Error::new(
                "no-queries",
                "the guest does not export `queries`; use call",
            ));
        }
        self.calls.as_ref().ok_or_else(stopped)?;
        let guest = self.queries.get_or_insert_with(self.make);
        let (reply, seq) = World::enter(&self.world, scope, || guest.query(call));
        Ok((self.checked(reply)?, seq))
    }

    /// Holds a reply or an error to what the host lets through.
    fn checked(&self, reply: Result<Reply>) -> Result<Reply> {
        let reply = reply.map_err(bounded)?;
        let (size, limit) = (
            reply.payload().len(),
            self.world.borrow().settings.limits.reply,
        );
        if size > limit {
            let why = format!("a reply of {size} bytes is over limits.reply ({limit} bytes)");
            return Err(Error::new("guest-reply-limit", why));
        }
        Ok(reply)
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("exports", &self.exports)
            .field("last_seq", &self.last_seq())
            .field("durable_seq", &self.durable_seq())
            .finish_non_exhaustive()
    }
}

fn stopped() -> Error {
    Error::new("closed", "the shard is stopped").retryable()
}

/// The error of a guest as the host gives it on: a code that is not in the form of codes becomes `guest-error`.
fn bounded(error: Error) -> Error {
    let code = error.code();
    let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    if (1..=MAX_CODE_BYTES).contains(&code.len()) && code.bytes().all(allowed) {
        return error;
    }
    let why = format!(
        "{} (the guest's code {code:?} is not 1 to {MAX_CODE_BYTES} bytes of a-z, 0-9 and -)",
        error.message()
    );
    let bounded = Error::new("guest-error", why);
    if error.is_retryable() {
        bounded.retryable()
    } else {
        bounded
    }
}

/// A guest whose type is not known.
trait Instance {
    fn call(&mut self, call: Call) -> Result<Reply>;
    fn query(&self, call: Call) -> Result<Reply>;
    fn start(&mut self) -> Result<()>;
    fn stop(&mut self, reason: StopReason);
    fn durable(&mut self, tags: Vec<u64>);
    fn fire(&mut self, timer: Timer) -> Result<()>;
    fn suspend(&mut self) -> Result<Vec<u8>>;
    fn migrate(&mut self, from_revision: u64) -> Result<bool>;
    fn as_any(&self) -> &dyn Any;
}

impl<G: Guest> Instance for G {
    fn call(&mut self, call: Call) -> Result<Reply> {
        Guest::call(self, call)
    }
    fn query(&self, call: Call) -> Result<Reply> {
        Guest::query(self, call)
    }
    fn start(&mut self) -> Result<()> {
        Guest::start(self)
    }
    fn stop(&mut self, reason: StopReason) {
        Guest::stop(self, reason);
    }
    fn durable(&mut self, tags: Vec<u64>) {
        Guest::durable(self, tags);
    }
    fn fire(&mut self, timer: Timer) -> Result<()> {
        Guest::fire(self, timer)
    }
    fn suspend(&mut self) -> Result<Vec<u8>> {
        Guest::suspend(self)
    }
    fn migrate(&mut self, from_revision: u64) -> Result<bool> {
        Guest::migrate(self, from_revision)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The guest of [`Host::bare`]. It has durable events and takes timers, so that code that asks for them runs.
#[derive(Default)]
struct NoGuest;

impl Guest for NoGuest {
    fn call(&mut self, call: Call) -> Result<Reply> {
        Err(Error::unknown_method(call.method()))
    }
}

crate::export!(NoGuest, durable_events, timer_events);

#[cfg(test)]
mod tests;

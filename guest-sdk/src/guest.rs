//! The trait that a guest implements, and the macro that exports it.

use std::fmt;

use crate::call::{Call, Reply};
use crate::error::{Error, Result};
use crate::timers::Timer;

/// The logic of a shard.
///
/// The host makes one instance per shard with [`Default::default`], and keeps it for as long as the shard is open, so
/// memory is state. Calls run one at a time. Memory is gone after a trap (a panic), a restart or a move of the shard:
/// what has to last goes into [`db`](crate::db). A swap for another revision keeps it where both have [`suspend`](Guest::suspend)
/// and [`resume`](Guest::resume).
///
/// Only [`call`](Guest::call) is required. Each of the others is an optional export and runs only if it is named in
/// [`export!`](crate::export):
///
/// | method | name in `export!` |
/// |---|---|
/// | [`query`](Guest::query) | `queries` |
/// | [`start`](Guest::start), [`stop`](Guest::stop) | `lifecycle` |
/// | [`validate`](Guest::validate) | `options` |
/// | [`durable`](Guest::durable) | `durable_events` |
/// | [`fire`](Guest::fire) | `timer_events` |
/// | [`suspend`](Guest::suspend), [`resume`](Guest::resume) | `handoff` |
/// | [`migrate`](Guest::migrate) | `migration` |
///
/// ```
/// use quarry_guest::prelude::*;
///
/// #[derive(Default)]
/// struct Greeter;
///
/// impl Guest for Greeter {
///     fn call(&mut self, call: Call) -> Result<Reply> {
///         match call.method() {
///             "greet" => Ok(Reply::text(format!("Hello, {}", call.text()?))),
///             other => Err(Error::unknown_method(other)),
///         }
///     }
/// }
///
/// quarry_guest::export!(Greeter);
/// # fn main() {}
/// ```
pub trait Guest: Default + 'static {
    /// Runs a call.
    ///
    /// The reply leaves the host once every write that it may show is durable, so there is nothing to wait for here.
    /// An error does not undo the writes that were made before it: put them into one [`db::Batch`](crate::db::Batch) or
    /// one [`db::transaction`](crate::db::transaction) where that matters. A panic fails the call and replaces the
    /// instance.
    fn call(&mut self, call: Call) -> Result<Reply>;

    /// Runs a read-only call, on another instance than the calls and in parallel with them.
    ///
    /// The database is as it was when the query began, and writes fail with `read-only`. The instances that run queries
    /// share no memory with the one that runs calls, and [`start`](Guest::start) does not run on them.
    fn query(&self, call: Call) -> Result<Reply> {
        Err(Error::unknown_method(call.method()))
    }

    /// Runs before the first call, with the database open. An error or a panic keeps the shard from serving; it is tried
    /// again, with growing pauses. In a swap it leaves the older revision serving.
    ///
    /// No call runs beside it, except in a swap between two revisions that both export `handoff`, and in one to a revision that
    /// exports `migration`: see [`resume`](Guest::resume) and [`migrate`](Guest::migrate).
    fn start(&mut self) -> Result<()> {
        Ok(())
    }

    /// Runs after the last call, with the database still open, and has 5 s. It does not run after a panic, nor on an
    /// instance whose memory another one took over ([`resume`](Guest::resume)).
    fn stop(&mut self, reason: StopReason) {
        let _ = reason;
    }

    /// Checks the options (a JSON object) before anything is activated. The error is shown to whoever gave them. No
    /// database is open: [`db`](crate::db) fails with `closed`.
    fn validate(options: &str) -> std::result::Result<(), String> {
        let _ = options;
        Ok(())
    }

    /// Gets the tags of [`notify_when_durable`](crate::durability::notify_when_durable) whose writes became durable,
    /// lowest seq first. Runs between calls, never beside one.
    fn durable(&mut self, tags: Vec<u64>) {
        let _ = tags;
    }

    /// Gets a timer of [`timers`](crate::timers) that is due. Runs between calls, with the limits of a call, and may do what a call may. What
    /// is due earlier comes earlier.
    ///
    /// An error is logged and counted, as a panic is; a durable timer is then tried again, see
    /// [`set_durable`](crate::timers::set_durable).
    fn fire(&mut self, timer: Timer) -> Result<()> {
        let _ = timer;
        Ok(())
    }

    /// The memory to carry over a swap, as bytes that the other revision understands: up to 16 MiB
    /// (`limits.handoff_bytes`), within 5 s (`limits.handoff_time`). Calls wait meanwhile.
    ///
    /// It has to leave the guest as it was: where the swap fails, this same instance goes on to serve calls, and may be
    /// asked again. An error ends the swap in that way. A panic costs the instance and its memory.
    ///
    /// ```
    /// use quarry_guest::prelude::*;
    /// use quarry_guest::testing::Host;
    /// use std::collections::BTreeMap;
    ///
    /// /// Counts what it need not remember for ever.
    /// #[derive(Default)]
    /// struct Visits(BTreeMap<String, u64>);
    ///
    /// impl Guest for Visits {
    ///     fn call(&mut self, call: Call) -> Result<Reply> {
    ///         let count = self.0.entry(call.text()?.to_owned()).or_default();
    ///         *count += 1;
    ///         Ok(Reply::text(count))
    ///     }
    ///
    ///     fn suspend(&mut self) -> Result<Vec<u8>> {
    ///         Ok(Reply::json(&self.0)?.into_payload())
    ///     }
    ///
    ///     fn resume(&mut self, _from_revision: u64, state: Vec<u8>) -> Result<()> {
    ///         self.0 = serde_json::from_slice(&state).map_err(|why| Error::new("unknown-state", why.to_string()))?;
    ///         Ok(())
    ///     }
    /// }
    ///
    /// quarry_guest::export!(Visits, handoff);
    /// # fn main() {
    /// let mut host = Host::new::<Visits>();
    /// host.call("visit").payload("home").run().unwrap();
    /// host.swap::<Visits>(2).unwrap();
    /// assert_eq!(host.call("visit").payload("home").run().unwrap().text(), "2");
    /// # }
    /// ```
    fn suspend(&mut self) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    /// Takes the memory of the older instance over, after [`start`](Guest::start) and before the first call. `state` is
    /// what [`suspend`](Guest::suspend) of revision `from_revision` gave: a newer one, where a swap goes back. An error or a panic ends
    /// the swap: the older instance goes on.
    ///
    /// In such a swap `start` runs while the older instance still serves, so that calls need not wait for it: what it reads
    /// of the database may have changed by now, and what it writes falls between calls. What calls change has to come from
    /// `state`, or be read here.
    ///
    /// It does not run where there is nothing to take over: when the shard opens or restarts, after a panic, and where the
    /// other revision does not export `handoff`. No call runs beside `start` then.
    fn resume(&mut self, from_revision: u64, state: Vec<u8>) -> Result<()> {
        let _ = (from_revision, state);
        Ok(())
    }

    /// Brings the stored data to the form that this revision serves, one short step at a time: true when it is there, false
    /// to be called again. It runs after [`start`](Guest::start) and before the first call, whenever an instance starts; so
    /// where nothing is left to do it has to see that quickly.
    ///
    /// In a swap the older revision serves meanwhile: its calls run between the steps, and the swap happens at once when a step
    /// says true. So each step has to leave data that the older revision can read, and has to find what that one writes:
    /// "rewrite the next 100 rows of the old form; true when none is left". Write progress with the data, in one
    /// [`db::Batch`](crate::db::Batch): after a crash or a failure another instance goes on from there. What `start` read may
    /// have changed by the step that says true, which is the place to fill caches.
    ///
    /// `from_revision` is the revision that the shard runs meanwhile (a newer one, where a swap goes back), and 0 when the
    /// shard opens or restarts: then nothing runs between the steps.
    ///
    /// Calls wait for a step, so it should take milliseconds; it has 5 s (`limits.migrate_step_time`), and all of them
    /// together 10 min (`limits.migrate_time`). An error or a panic ends the migration with what was written: a swap leaves
    /// the older revision serving, and an opening is tried again, with growing pauses.
    ///
    /// ```
    /// use quarry_guest::db::{Batch, Order};
    /// use quarry_guest::prelude::*;
    /// use quarry_guest::testing::Host;
    ///
    /// /// Keeps names under `name/`, in lower case. The revision before kept them as they came, under `user/`.
    /// #[derive(Default)]
    /// struct Names;
    ///
    /// impl Guest for Names {
    ///     fn call(&mut self, call: Call) -> Result<Reply> {
    ///         let name = db::get::<String>(format!("name/{}", call.text()?))?;
    ///         Ok(Reply::text(name.unwrap_or_default()))
    ///     }
    ///
    ///     fn migrate(&mut self, _from_revision: u64) -> Result<bool> {
    ///         let (mut batch, mut rows) = (Batch::new(), 0);
    ///         for entry in db::scan_prefix("user/", Order::Ascending)?.take(100) {
    ///             let entry = entry?;
    ///             let key = [b"name/", &entry.key[b"user/".len()..]].concat();
    ///             batch.put(key, entry.value.to_ascii_lowercase());
    ///             batch.remove(entry.key);
    ///             rows += 1;
    ///         }
    ///         if rows > 0 {
    ///             batch.write()?;
    ///         }
    ///         Ok(rows == 0)
    ///     }
    /// }
    ///
    /// quarry_guest::export!(Names, migration);
    /// # fn main() {
    /// let mut host = Host::bare();
    /// host.run(|| db::put("user/1", "ADA")).unwrap();
    /// host.swap::<Names>(2).unwrap();
    /// assert_eq!(host.call("name").payload("1").run().unwrap().text(), "ada");
    /// # }
    /// ```
    fn migrate(&mut self, from_revision: u64) -> Result<bool> {
        let _ = from_revision;
        Ok(true)
    }
}

/// Why an instance is stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// The node or the shard is shut down.
    Stopping,
    /// The shard moves to another node.
    Moving,
    /// Another writer took the shard over.
    Fenced,
    /// Another revision takes the place of this one.
    Swapping,
    /// A reason that this version of the SDK does not know.
    Other(String),
}

impl StopReason {
    /// The reason as the host spells it.
    pub fn as_str(&self) -> &str {
        match self {
            StopReason::Stopping => "stopping",
            StopReason::Moving => "moving",
            StopReason::Fenced => "fenced",
            StopReason::Swapping => "swapping",
            StopReason::Other(reason) => reason,
        }
    }
}

impl From<String> for StopReason {
    fn from(reason: String) -> Self {
        match reason.as_str() {
            "stopping" => StopReason::Stopping,
            "moving" => StopReason::Moving,
            "fenced" => StopReason::Fenced,
            "swapping" => StopReason::Swapping,
            _ => StopReason::Other(reason),
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which optional exports a guest has. Made by [`export!`](crate::export).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exports {
    /// Whether [`Guest::query`] is exported.
    pub queries: bool,
    /// Whether [`Guest::start`] and [`Guest::stop`] are exported.
    pub lifecycle: bool,
    /// Whether [`Guest::validate`] is exported.
    pub options: bool,
    /// Whether [`Guest::durable`] is exported.
    pub durable_events: bool,
    /// Whether [`Guest::fire`] is exported.
    pub timer_events: bool,
    /// Whether [`Guest::suspend`] and [`Guest::resume`] are exported.
    pub handoff: bool,
    /// Whether [`Guest::migrate`] is exported.
    pub migration: bool,
}

/// A guest that [`export!`](crate::export) was called for.
pub trait Exported: Guest {
    /// Its optional exports.
    const EXPORTS: Exports;
}

/// Exports a [`Guest`] from the component. Once per component.
///
/// The names after the type are the optional exports, in any order: `queries`, `lifecycle`, `options`,
/// `durable_events`, `timer_events`, `handoff`, `migration`. What is not named is not exported, and the host then never calls it.
///
/// ```
/// use quarry_guest::prelude::*;
///
/// #[derive(Default)]
/// struct Settings;
///
/// impl Guest for Settings {
///     fn call(&mut self, call: Call) -> Result<Reply> {
///         self.query(call)
///     }
///     fn query(&self, _: Call) -> Result<Reply> {
///         Ok(Reply::text(quarry_guest::context::options_json()))
///     }
///     fn validate(options: &str) -> Result<(), String> {
///         if options == "{}" { Ok(()) } else { Err("there are no options to set".into()) }
///     }
/// }
///
/// quarry_guest::export!(Settings, queries, options);
/// # fn main() {}
/// ```
///
/// A name that there is not is refused where it is written:
///
/// ```compile_fail
/// # #[derive(Default)]
/// # struct Settings;
/// # impl quarry_guest::Guest for Settings {
/// #     fn call(&mut self, _: quarry_guest::Call) -> quarry_guest::Result<quarry_guest::Reply> {
/// #         Ok(().into())
/// #     }
/// # }
/// quarry_guest::export!(Settings, query);
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! export {
    ($guest:ty $(, $export:ident)* $(,)?) => {
        impl $crate::Exported for $guest {
            const EXPORTS: $crate::Exports = {
                #[allow(unused_mut, reason = "a guest may have no optional export")]
                let mut exports = $crate::Exports {
                    queries: false,
                    lifecycle: false,
                    options: false,
                    durable_events: false,
                    timer_events: false,
                    handoff: false,
                    migration: false,
                };
                $($crate::__name_export!(exports $export);)*
                exports
            };
        }
        $crate::__component!($guest; $($export)*);
    };
}

/// Refuses a misspelt optional export where it is written.
#[doc(hidden)]
#[macro_export]
macro_rules! __name_export {
    ($exports:ident queries) => {
        $exports.queries = true
    };
    ($exports:ident lifecycle) => {
        $exports.lifecycle = true
    };
    ($exports:ident options) => {
        $exports.options = true
    };
    ($exports:ident durable_events) => {
        $exports.durable_events = true
    };
    ($exports:ident timer_events) => {
        $exports.timer_events = true
    };
    ($exports:ident handoff) => {
        $exports.handoff = true
    };
    ($exports:ident migration) => {
        $exports.migration = true
    };
    ($exports:ident $other:ident) => {
        compile_error!(concat!(
            "there is no optional export `",
            stringify!($other),
            "`: choose from queries, lifecycle, options, durable_events, timer_events, handoff, migration"
        ))
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_reasons_keep_their_spelling() {
        for reason in ["stopping", "moving", "fenced", "swapping", "restored"] {
            assert_eq!(StopReason::from(reason.to_owned()).to_string(), reason);
        }
        assert_eq!(StopReason::from("moving".to_owned()), StopReason::Moving);
    }
}

//! The trait that a guest implements, and the macro that exports it.

use std::fmt;

use crate::call::{Call, Reply};
use crate::error::{Error, Result};

/// The logic of a shard.
///
/// The host makes one instance per shard with [`Default::default`], and keeps it for as long as the shard is open, so
/// memory is state. Calls run one at a time. Memory is gone after a trap (a panic), a restart or a move of the shard:
/// what has to last goes into [`db`](crate::db).
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
    /// again, with growing pauses.
    fn start(&mut self) -> Result<()> {
        Ok(())
    }

    /// Runs after the last call, with the database still open, and has 5 s. It does not run after a panic.
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
}

/// A guest that [`export!`](crate::export) was called for.
pub trait Exported: Guest {
    /// Its optional exports.
    const EXPORTS: Exports;
}

/// Exports a [`Guest`] from the component. Once per component.
///
/// The names after the type are the optional exports, in any order: `queries`, `lifecycle`, `options`,
/// `durable_events`. What is not named is not exported, and the host then never calls it.
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
    ($exports:ident $other:ident) => {
        compile_error!(concat!(
            "there is no optional export `",
            stringify!($other),
            "`: choose from queries, lifecycle, options, durable_events"
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

//! Write the logic of a Quarry shard in Rust.
//!
//! A guest is a type that implements [`Guest`], exported with [`export!`]. It runs inside each shard, next to the
//! shard's database. This is a whole one, with its test:
//!
//! ```
//! use quarry_guest::prelude::*;
//!
//! #[derive(Default)]
//! struct Counter;
//!
//! impl Guest for Counter {
//!     fn call(&mut self, call: Call) -> Result<Reply> {
//!         match call.method() {
//!             "increment" => {
//!                 let key = call.required_key()?;
//!                 let count = db::get::<u64>(key)?.unwrap_or(0) + 1;
//!                 db::put(key, count)?;
//!                 Ok(Reply::text(count))
//!             }
//!             other => Err(Error::unknown_method(other)),
//!         }
//!     }
//! }
//!
//! quarry_guest::export!(Counter);
//!
//! # fn main() {
//! // In a test: the same code against an in-memory host.
//! let mut host = quarry_guest::testing::Host::new::<Counter>();
//! host.call("increment").key("visits").run().unwrap();
//! assert_eq!(host.call("increment").key("visits").run().unwrap().text(), "2");
//! # }
//! ```
//!
//! - [`db`] is the shard's database: reads, writes, batches, scans, snapshots, transactions.
//! - [`codec`] says how typed keys and values become bytes.
//! - [`context`] says where this instance runs, and holds its options.
//! - [`durability`] tells when writes became durable.
//! - [`cluster`] asks other shards, and [`metrics`] counts for people who watch.
//! - [`timers`] have something done later, in memory or for sure.
//! - [`log`] lines go to the guest's log on the host, with key-value pairs as fields. So do standard output and standard
//!   error, and with it the message of a panic.
#![cfg_attr(
    not(target_family = "wasm"),
    doc = "- [`testing`] is the in-memory host for unit tests."
)]
//!
//! # Building
//!
//! ```toml
//! [lib]
//! crate-type = ["cdylib", "rlib"]   # rlib is for tests
//!
//! [profile.release]
//! opt-level = "s"
//! lto = true
//! codegen-units = 1
//! panic = "abort"
//! strip = true
//! ```
//!
//! `cargo build --release --target wasm32-wasip2` makes the component; `quarry build` does the same. `cargo test` runs
//! natively.

#![warn(missing_docs)]

#[cfg(target_family = "wasm")]
#[doc(hidden)]
pub mod bindings;
mod call;
pub mod cluster;
pub mod codec;
#[cfg(target_family = "wasm")]
#[doc(hidden)]
pub mod component;
pub mod context;
pub mod db;
pub mod durability;
mod error;
mod guest;
mod logger;
pub mod metrics;
mod sys;
#[cfg(not(target_family = "wasm"))]
pub mod testing;
pub mod timers;

pub use call::{Call, Reply};
pub use error::{Error, Result};
pub use guest::{Exported, Exports, Guest, StopReason};
pub use log;

/// The examples of README.md compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// What most guests use.
pub mod prelude {
    pub use crate::codec::Json;
    pub use crate::timers::Timer;
    pub use crate::{Call, Error, Guest, Reply, Result, StopReason, db, log};
}

/// For the macros of this crate only.
#[cfg(target_family = "wasm")]
#[doc(hidden)]
pub mod __private {
    pub use crate::{bindings, component};
}

/// Off WebAssembly there is no component to wire a guest into: the test double calls it by its trait.
#[cfg(not(target_family = "wasm"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __component {
    ($guest:ty; $($export:ident)*) => {};
}

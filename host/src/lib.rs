//! Quarry: a plugin host for sharded, stateful services.
//!
//! N SlateDB databases ("shards") in one object-store bucket; the logic of each shard is a WebAssembly component, or
//! native Rust, that gets the shard's database and a durability notifier. See [`Cluster`] for the API, and
//! `host/ARCHITECTURE.md` for the map of the code.

pub mod bench;
pub mod call;
pub mod cli;
pub mod client;
pub mod clock;
pub mod cluster;
pub mod config;
pub mod conformance;
pub mod db;
pub mod deploy;
pub mod gate;
pub mod guest;
pub mod http;
pub mod lease;
mod listen;
pub mod metrics;
pub mod record;
pub mod shard;
pub mod store;
pub mod telemetry;
pub mod threads;
pub mod transport;

pub use cluster::Cluster;

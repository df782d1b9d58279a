//! The arguments of `quarry bench compile`.

use std::path::PathBuf;

use clap::Args;

use crate::config::units::Span;

pub(super) const BENCH_COMPILE_EXAMPLES: &str = "\
A node of its own, with leases and data in a temporary folder, serves calls: first alone, then while the component is compiled with nothing
in the cache. A call that fails, or a lease that is lost, ends the bench with what it was.

Examples:
  quarry bench compile --component examples/kv-python/target/kv.wasm
  quarry bench compile --component guest.wasm --native --time 3s --json";

/// Arguments of `quarry bench compile`.
#[derive(Debug, Args)]
pub struct BenchCompile {
    /// The component that is compiled, with an empty cache; guests in Python and TypeScript are the largest
    #[arg(long, value_name = "FILE")]
    pub component: PathBuf,
    /// How long calls are measured without it
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub time: Span,
    /// How many shards serve calls
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub shards: u32,
    /// How many callers on each shard that wait until their writes are durable, and as many that do not
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub callers: u32,
    /// How long a lease lasts; it is renewed every third of that
    #[arg(long, value_name = "TIME", default_value = "3s")]
    pub lease_ttl: Span,
    /// Let the shards run logic in Rust instead of a component, which would have to be built first
    #[arg(long)]
    pub native: bool,
}

//! What a cluster costs, and how long it is away: several nodes in this process over one store in memory whose requests take 20 ms,
//! talking to each other over their real listeners. Each figure stands next to its bound and to what others reach.

use std::sync::Arc;
use std::time::Duration;

use crate::config::{Config, Layout};
use crate::guest::Module;
use crate::metrics;

use super::{Error, native};

mod figure;
mod idle;
mod members;
mod moves;
mod opening;
mod outage;
mod remote;
mod ring;

pub use figure::{Figure, Unit};
use ring::Ring;

/// The most shards of any part.
const SHARDS_MAX: u32 = 1000;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// Only these; all when empty.
    pub only: Vec<Part>,
    /// Fewer rounds: rough figures, of which the highest percentiles say little.
    pub quick: bool,
    /// How long each request to the store takes.
    pub latency: Duration,
    /// Logic in Rust instead of the component.
    pub native: bool,
}

/// A part of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// A call on another node, over one on the own
    Remote,
    /// The time to open 64 shards
    Open,
    /// A shard that is moved under load
    Move,
    /// What a join and a leave move
    Members,
    /// A node that is cut off without leaving
    Failover,
    /// Requests to the store while nothing happens
    Idle,
}

impl Part {
    const ALL: [Self; 6] = [
        Self::Remote,
        Self::Open,
        Self::Move,
        Self::Members,
        Self::Failover,
        Self::Idle,
    ];

    /// What it measures.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Remote => "a remote call over a local one, without a store",
            Self::Open => "opening 64 shards on one node",
            Self::Move => "planned move of a shard under load",
            Self::Members => "a node joins three that have 64 shards, and leaves",
            Self::Failover => "crash failover, last ack to first ack elsewhere",
            Self::Idle => "requests to the store while idle, 3 nodes",
        }
    }
}

/// Measures, in the order of [`Part`]. `make` gives the guest for a configuration's limits; `progress` hears what is measured, `found`
/// what was found, as soon as it is known.
///
/// # Errors
/// When nodes do not start, or the cluster does not settle. What was found before has been told.
pub async fn run<F>(
    options: &Options,
    make: impl Fn(Config) -> F,
    progress: impl Fn(&str),
    mut found: impl FnMut(Figure),
) -> Result<(), Error>
where
    F: Future<Output = Result<Arc<dyn Module>, String>>,
{
    metrics::install();
    let module = if options.native {
        native::module()
    } else {
        let mut config = Config::default();
        // While a shard moves, two nodes have an instance of it.
        config.limits.instances = Some(SHARDS_MAX * 2 + 64);
        make(config).await.map_err(Error)?
    };
    let (quick, latency) = (options.quick, options.latency);
    let rounds = |full: u32, short: u32| if quick { short } else { full };
    let wanted = |part: &Part| options.only.is_empty() || options.only.contains(part);
    for part in Part::ALL.into_iter().filter(wanted) {
        progress(part.title());
        let ring = |shards| Ring::new(shards, module.clone(), latency);
        match part {
            Part::Remote => {
                remote::measure(&ring(16), rounds(20_000, 2_000), &mut found).await?;
            }
            Part::Open => opening::measure(&ring(64), &mut found).await?,
            Part::Move => {
                moves::measure(&ring(64), rounds(60, 10), &progress, &mut found).await?;
            }
            Part::Members => {
                members::measure(&ring(64), rounds(3, 1), &progress, &mut found).await?;
            }
            Part::Failover => {
                for (ttl, rounds) in [(3, rounds(8, 2)), (15, rounds(4, 1))] {
                    let ring = ring(32).ttl(Duration::from_secs(ttl));
                    outage::measure(&ring, rounds, &progress, &mut found).await?;
                }
            }
            Part::Idle => {
                for (layout, shards) in [
                    (Layout::Session, 64),
                    (Layout::Session, SHARDS_MAX),
                    (Layout::Shard, 64),
                    (Layout::Shard, SHARDS_MAX),
                ] {
                    let ring = ring(shards).layout(layout);
                    progress(&format!("  {} layout, {shards} shards", ring.layout_name()));
                    idle::measure(&ring, rounds(60, 20), &mut found).await?;
                }
            }
        }
    }
    Ok(())
}

//! How a loop works, and which combinations make no sense.

use std::time::Duration;

use crate::lease::op::Renewal;
use crate::lease::record::{MAX_SHARDS, NodeName, RecordError};
use crate::rules::Rules;

/// The default TTL.
pub const LEASE_TTL: Duration = Duration::from_secs(15);
/// The default for shards that are opened at once.
pub const MAX_CONCURRENCY: u32 = 16;
/// The shortest TTL.
pub const MIN_TTL: Duration = Duration::from_secs(1);
/// The longest TTL.
pub const MAX_TTL: Duration = Duration::from_secs(600);

/// How a loop works.
#[derive(Debug, Clone)]
pub struct ControlOptions {
    /// This node's name, stable over restarts.
    pub name: NodeName,
    /// The cluster's name, the same on all nodes.
    pub cluster: String,
    /// Where peers reach this node's internal listener; empty when it has none.
    pub advertise: String,
    /// Where it stands; empty when that is not known.
    pub zone: String,
    /// Its software and version.
    pub software: String,
    /// The number of shards, 1 to [`MAX_SHARDS`].
    pub shards: u32,
    /// What keeps a lease alive in the store that is used.
    pub renewal: Renewal,
    /// How long a lease lives without being renewed; the same on all nodes.
    pub lease_ttl: Duration,
    /// The time between two renewals; none for a third of the TTL.
    pub interval: Option<Duration>,
    /// How long before its lease may expire a shard has stopped; none for a sixth of the TTL.
    pub margin: Option<Duration>,
    /// How many shards are opened at once; also the bound of claims and releases in flight.
    pub max_concurrency: u32,
    /// For the simulator only.
    pub rules: Rules,
}

impl ControlOptions {
    /// The defaults for a node of this name in a cluster with so many shards.
    #[must_use]
    pub fn new(name: NodeName, cluster: &str, shards: u32) -> Self {
        Self {
            name,
            cluster: cluster.into(),
            advertise: String::new(),
            zone: String::new(),
            software: concat!("quarry ", env!("CARGO_PKG_VERSION")).into(),
            shards,
            renewal: Renewal::Session,
            lease_ttl: LEASE_TTL,
            interval: None,
            margin: None,
            max_concurrency: MAX_CONCURRENCY,
            rules: Rules::default(),
        }
    }

    /// The times that follow.
    ///
    /// # Errors
    /// [`OptionsError`] for the first option or combination that makes no sense.
    pub fn timing(&self) -> Result<Timing, OptionsError> {
        let ttl = self.lease_ttl;
        if !(MIN_TTL..=MAX_TTL).contains(&ttl) {
            return Err(OptionsError::Ttl { ttl });
        }
        let interval = self.interval.unwrap_or(ttl / 3);
        let margin = self.margin.unwrap_or(ttl / 6);
        if margin * 20 < ttl || margin * 2 >= ttl {
            return Err(OptionsError::Margin {
                margin,
                least: ttl / 20,
                most: ttl / 2,
                ttl,
            });
        }
        if interval < ttl / 100 || interval * 2 + margin > ttl {
            return Err(OptionsError::Interval {
                interval,
                least: ttl / 100,
                most: (ttl - margin) / 2,
                ttl,
                margin,
            });
        }
        if !(1..=MAX_SHARDS).contains(&self.shards) {
            let shards = self.shards;
            return Err(OptionsError::Shards { shards });
        }
        if !(1..=1024).contains(&self.max_concurrency) {
            let value = self.max_concurrency;
            return Err(OptionsError::Concurrency { value });
        }
        Ok(Timing {
            ttl,
            interval,
            margin,
        })
    }
}

/// The times of a loop that make sense together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// How long a lease lives without being renewed.
    pub ttl: Duration,
    /// The time between two renewals.
    pub interval: Duration,
    /// How long before its lease may expire a shard has stopped.
    pub margin: Duration,
}

/// Options that make no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// The TTL is out of range.
    #[error("lease_ttl is {ttl:?}; valid are {MIN_TTL:?} to {MAX_TTL:?}")]
    Ttl {
        /// The TTL.
        ttl: Duration,
    },
    /// The margin is out of range.
    #[error(
        "margin is {margin:?}; with a lease_ttl of {ttl:?} valid are {least:?} to below {most:?}: clocks run at different speeds, and a margin of half the TTL leaves no time to renew"
    )]
    Margin {
        /// The margin.
        margin: Duration,
        /// The shortest.
        least: Duration,
        /// What it must stay below.
        most: Duration,
        /// The TTL.
        ttl: Duration,
    },
    /// The interval is out of range.
    #[error(
        "interval is {interval:?}; with a lease_ttl of {ttl:?} and a margin of {margin:?} valid are {least:?} to {most:?}, so that one renewal may fail before shards stop"
    )]
    Interval {
        /// The interval.
        interval: Duration,
        /// The shortest.
        least: Duration,
        /// The longest.
        most: Duration,
        /// The TTL.
        ttl: Duration,
        /// The margin.
        margin: Duration,
    },
    /// The number of shards is out of range.
    #[error("a cluster cannot have {shards} shards; valid are 1 to {MAX_SHARDS}")]
    Shards {
        /// The number.
        shards: u32,
    },
    /// The bound of opens is out of range.
    #[error("max_concurrency is {value}; valid are 1 to 1024")]
    Concurrency {
        /// The bound.
        value: u32,
    },
    /// A text cannot be told to peers.
    #[error(transparent)]
    Text(#[from] RecordError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combinations_that_make_no_sense_are_refused() {
        let ms = Duration::from_millis;
        for (ttl, interval, margin, valid) in [
            (15_000, None, None, true),
            (3000, None, None, true),
            (1000, None, None, true),
            (600_000, None, None, true),
            (999, None, None, false),
            (600_001, None, None, false),
            (15_000, Some(6250), None, true),
            (15_000, Some(6251), None, false),
            (15_000, Some(100), None, false),
            (15_000, None, Some(5000), true),
            (15_000, None, Some(5001), false),
            (15_000, Some(1000), Some(7500), false),
            (15_000, None, Some(700), false),
            (15_000, None, Some(750), true),
        ] {
            let mut options = ControlOptions::new("a".parse().unwrap(), "c", 8);
            options.lease_ttl = ms(ttl);
            options.interval = interval.map(ms);
            options.margin = margin.map(ms);
            let timing = options.timing();
            assert_eq!(
                timing.is_ok(),
                valid,
                "{ttl} {interval:?} {margin:?}: {timing:?}"
            );
        }
        for (shards, concurrency) in [(0, 16), (65_537, 16), (8, 0), (8, 1025)] {
            let mut options = ControlOptions::new("a".parse().unwrap(), "c", shards);
            options.max_concurrency = concurrency;
            assert!(options.timing().is_err(), "{shards} {concurrency}");
        }
    }
}

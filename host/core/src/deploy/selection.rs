//! The shards that are to run the revision that is being rolled out.

use std::fmt;
use std::str::FromStr;

use xxhash_rust::xxh64::xxh64;

/// The most ranges of a selection.
pub const MAX_RANGES: usize = 128;

/// Shards from one number to another, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardRange {
    /// The first.
    pub first: u32,
    /// The last.
    pub last: u32,
}

/// A part of the shards.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Selection {
    /// None of them.
    #[default]
    None,
    /// So many, in the order of the rollout: another in each, so that it is not always the same shards that go first, and spread over
    /// the nodes.
    First(u32),
    /// These; at most [`MAX_RANGES`] ranges, in rising order, without a gap of nothing between two.
    These(Vec<ShardRange>),
    /// All of them.
    All,
}

/// Why a text is no selection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` names no shards: {why}; valid are numbers and ranges such as 0-3,7, below {shards}"
)]
pub struct NoSelection {
    text: String,
    why: &'static str,
    shards: u32,
}

impl Selection {
    /// Reads ranges such as `0-3,7` of a cluster of `shards`.
    ///
    /// # Errors
    /// [`NoSelection`] with what is valid.
    pub fn parse(text: &str, shards: u32) -> Result<Self, NoSelection> {
        let wrong = |why| NoSelection {
            text: text.chars().take(80).collect(),
            why,
            shards,
        };
        let mut ranges = Vec::new();
        for part in text.split(',') {
            if ranges.len() >= MAX_RANGES {
                return Err(wrong("there are more than 128 ranges"));
            }
            let range: ShardRange = part.trim().parse().map_err(wrong)?;
            if range.last >= shards {
                return Err(wrong("there is no such shard"));
            }
            ranges.push(range);
        }
        Ok(Self::These(merged(ranges)))
    }

    /// So many percent of the shards, and one at least.
    #[must_use]
    pub fn part(percent: u8, shards: u32) -> Self {
        let count = (u64::from(shards) * u64::from(percent)).div_ceil(100);
        Self::First(u32::try_from(count).unwrap_or(u32::MAX).max(1))
    }

    /// Whether a shard is one of them. `order` is the number of the rollout.
    #[must_use]
    pub fn contains(&self, shard: u32, shards: u32, order: u64) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::These(ranges) => ranges
                .iter()
                .any(|range| (range.first..=range.last).contains(&shard)),
            Self::First(count) => {
                let mine = place(shard, order);
                let before = (0..shards)
                    .filter(|other| place(*other, order) < mine)
                    .count();
                u32::try_from(before).is_ok_and(|before| before < *count)
            }
        }
    }

    /// All of them in a cluster of `shards`, in rising order.
    #[must_use]
    pub fn of(&self, shards: u32, order: u64) -> Vec<u32> {
        let mut chosen: Vec<u32> = match self {
            Self::First(count) => {
                let mut all: Vec<u32> = (0..shards).collect();
                all.sort_by_key(|shard| place(*shard, order));
                all.truncate(usize::try_from(*count).unwrap_or(usize::MAX));
                all
            }
            other => (0..shards)
                .filter(|shard| other.contains(*shard, shards, order))
                .collect(),
        };
        chosen.sort_unstable();
        chosen
    }

    /// How many they are in a cluster of `shards`.
    #[must_use]
    pub fn count(&self, shards: u32) -> u32 {
        match self {
            Self::None => 0,
            Self::First(count) => (*count).min(shards),
            Self::These(ranges) => ranges
                .iter()
                .map(|range| range.last - range.first + 1)
                .sum(),
            Self::All => shards,
        }
    }
}

/// A shard's place in the order of a rollout.
fn place(shard: u32, order: u64) -> (u64, u32) {
    (xxh64(&shard.to_le_bytes(), order), shard)
}

/// The same shards in as few ranges as there can be.
fn merged(mut ranges: Vec<ShardRange>) -> Vec<ShardRange> {
    ranges.sort_by_key(|range| range.first);
    let mut merged: Vec<ShardRange> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.first <= last.last.saturating_add(1) => {
                last.last = last.last.max(range.last);
            }
            _ => merged.push(range),
        }
    }
    merged
}

impl FromStr for ShardRange {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            digits
                .then(|| text.parse().ok())
                .flatten()
                .ok_or("a part of it is no number")
        };
        let (first, last) = match text.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(text)?, number(text)?),
        };
        if first > last {
            return Err("a range ends before it begins");
        }
        Ok(Self { first, last })
    }
}

impl fmt::Display for ShardRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

/// As an operator would write it, and as it stands in the record.
impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::All => f.write_str("all"),
            Self::First(count) => write!(f, "first {count}"),
            Self::These(ranges) => {
                for (at, range) in ranges.iter().enumerate() {
                    write!(f, "{}{range}", if at == 0 { "" } else { "," })?;
                }
                Ok(())
            }
        }
    }
}

impl Selection {
    /// Reads what [`fmt::Display`] wrote, of a cluster of any size: a shard that does not exist is then never asked for.
    pub(super) fn read(text: &str) -> Option<Self> {
        match text {
            "none" => Some(Self::None),
            "all" => Some(Self::All),
            _ => match text.strip_prefix("first ") {
                Some(count) => count.parse().ok().map(Self::First),
                None => Self::parse(text, u32::MAX).ok(),
            },
        }
    }
}

//! What a node says of the rollout to whoever carries it on, or shows it.

use std::sync::Arc;

use quarry_core::deploy::Check;
use serde::{Deserialize, Serialize};

use super::adopter::is_lost;
use crate::cluster::node::Node;
use crate::cluster::status::ShardState;
use crate::cluster::swap;
use crate::shard::sample::{Counts, Times};

/// A node's part in a rollout, in its own words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSaid {
    /// Its name.
    pub node: Arc<str>,
    /// The counter of the record that it follows; 0 for none.
    pub counter: u64,
    /// Whether it can run the target.
    pub check: CheckSaid,
    /// The shards that it has, or tries to open.
    pub shards: Vec<ShardSaid>,
    /// What calls came to since the rollout began, by revision; empty while it does not count for it.
    pub calls: Vec<(u64, Counts)>,
    /// The swaps that it made in the rollout.
    pub swaps: SwapsSaid,
    /// How long the target may take to migrate the data of a shard here, in milliseconds; 0 where it migrates nothing, or is not ready.
    #[serde(default)]
    pub migration_ms: u64,
    /// Why it cannot read the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// Whether a node can run a revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "check", rename_all = "kebab-case")]
pub enum CheckSaid {
    /// It fetches, compiles or checks it.
    Busy,
    /// It can.
    Fine,
    /// It cannot.
    Refused {
        /// Why.
        why: String,
    },
}

/// A shard of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardSaid {
    /// Its number.
    pub shard: u32,
    /// The generation of its lease; 0 without leases.
    pub generation: u64,
    /// The revision of its guest, while it is open.
    pub revision: Option<u64>,
    /// What it does.
    pub does: ShardDoes,
}

/// What a shard does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "does", rename_all = "kebab-case")]
pub enum ShardDoes {
    /// It serves calls by its revision.
    Runs,
    /// It was to take a revision, and failed.
    Failed {
        /// The revision.
        revision: u64,
        /// Why.
        why: String,
    },
    /// It changes to a revision.
    Swaps {
        /// The revision.
        to: u64,
    },
    /// It does not serve calls now.
    Down {
        /// Why.
        why: String,
    },
}

/// The swaps that a node made in a rollout.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwapsSaid {
    /// How long no call could begin in each.
    pub pauses: Times,
    /// The longest of them, in microseconds.
    pub longest_us: u64,
    /// Calls that waited for one.
    pub parked: u64,
}

impl From<Check> for CheckSaid {
    fn from(check: Check) -> Self {
        match check {
            Check::Silent | Check::Busy => Self::Busy,
            Check::Fine => Self::Fine,
            Check::Refused(why) => Self::Refused { why },
        }
    }
}

impl From<CheckSaid> for Check {
    fn from(check: CheckSaid) -> Self {
        match check {
            CheckSaid::Busy => Self::Busy,
            CheckSaid::Fine => Self::Fine,
            CheckSaid::Refused { why } => Self::Refused(why),
        }
    }
}

impl Node {
    /// What this node says of a rollout and its target; none where it does not follow the record.
    pub(in crate::cluster) fn said(&self, number: u64, target: u64) -> Option<NodeSaid> {
        let deployed = self.deployed.as_ref()?;
        let followed = deployed.followed();
        let record = followed.record();
        if record.number < number {
            // Whoever asks has read a newer one.
            deployed.look();
        }
        let wanted = self.wanted.load_full();
        let adopting = deployed.adopting();
        let slots = self.slots.iter();
        let shards = slots
            .filter(|slot| slot.state() != ShardState::Unassigned)
            .map(|slot| {
                let (shard, handle) = (slot.shard(), slot.handle());
                let revision = handle.as_ref().map(|handle| handle.revision());
                let source = wanted.source(shard);
                let to = source.revision;
                let failed = adopting.failed.get(&shard);
                let failed = failed.filter(|failed| failed.blames(record.number, to));
                let state = slot.state();
                let last = || slot.last_error().unwrap_or_default();
                let does = match (failed, adopting.swapping.get(&shard)) {
                    // A swap that is on its way may still land: what runs now says nothing.
                    (_, Some(other)) if *other != to => ShardDoes::Swaps { to: *other },
                    _ if revision == Some(to) && slot.is_ready() => ShardDoes::Runs,
                    (_, Some(to)) => ShardDoes::Swaps { to: *to },
                    (Some(failed), None) if revision != Some(to) => ShardDoes::Failed {
                        revision: to,
                        why: failed.why.clone(),
                    },
                    _ if is_lost(state) && revision == Some(to) => ShardDoes::Failed {
                        revision: to,
                        why: format!("is quarantined: {}", last()),
                    },
                    _ if revision != Some(to) && deployed.catalog.is_refused(to) => {
                        let why = source.loaded.as_ref().err();
                        ShardDoes::Failed {
                            revision: to,
                            why: why.map_or_else(String::new, |why| why.to_string()),
                        }
                    }
                    _ if slot.is_ready() => ShardDoes::Runs,
                    _ => ShardDoes::Down {
                        why: format!("is {}: {}", state.as_str(), last()),
                    },
                };
                ShardSaid {
                    shard,
                    generation: slot.report().generation,
                    revision,
                    does,
                }
            })
            .collect();
        let loaded = deployed.catalog.source(target).loaded.ok();
        let migration = loaded.map(|loaded| swap::migration_time(self, &loaded.module));
        let migration = migration.unwrap_or_default();
        let swaps = &adopting.swaps;
        let swaps = if swaps.number == number {
            SwapsSaid {
                pauses: swaps.pauses.clone(),
                longest_us: u64::try_from(swaps.longest.as_micros()).unwrap_or(u64::MAX),
                parked: swaps.parked,
            }
        } else {
            SwapsSaid::default()
        };
        Some(NodeSaid {
            node: self.node.clone(),
            counter: followed.counter(),
            check: deployed.catalog.check(target).into(),
            shards,
            calls: self.samples.since(number).into_iter().flatten().collect(),
            swaps,
            migration_ms: u64::try_from(migration.as_millis()).unwrap_or(u64::MAX),
            trouble: followed.trouble.map(|why| why.to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::{Ask, Told};

    #[test]
    fn what_is_said_comes_over() {
        let mut pauses = Times::default();
        pauses.record(std::time::Duration::from_micros(900));
        let shard = |shard, does| ShardSaid {
            shard,
            generation: 3,
            revision: Some(1),
            does,
        };
        let why = || "no \"reason\"".to_owned();
        for check in [
            CheckSaid::Busy,
            CheckSaid::Fine,
            CheckSaid::Refused { why: why() },
        ] {
            let said = NodeSaid {
                node: "a".into(),
                counter: 7,
                check,
                shards: vec![
                    shard(0, ShardDoes::Runs),
                    shard(1, ShardDoes::Down { why: why() }),
                    shard(3, ShardDoes::Swaps { to: 2 }),
                    shard(
                        2,
                        ShardDoes::Failed {
                            revision: 2,
                            why: why(),
                        },
                    ),
                ],
                calls: vec![(
                    1,
                    Counts {
                        calls: 5,
                        took: pauses.clone(),
                        ..Counts::default()
                    },
                )],
                swaps: SwapsSaid {
                    pauses: pauses.clone(),
                    longest_us: 900,
                    parked: 2,
                },
                migration_ms: 600_000,
                trouble: None,
            };
            let told = Told::Deployed(Box::new(said));
            let json = serde_json::to_string(&told).expect("it has a form");
            assert_eq!(serde_json::from_str::<Told>(&json).expect(&json), told);
        }
        for ask in [
            Ask::Deployed {
                number: 1,
                target: 2,
            },
            Ask::Rollout { counter: u64::MAX },
            Ask::Outside {
                node: "c".into(),
                why: why(),
            },
        ] {
            let json = serde_json::to_string(&ask).expect("it has a form");
            assert_eq!(serde_json::from_str::<Ask>(&json).expect(&json), ask);
        }
    }
}

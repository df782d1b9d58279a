//! Worlds that are bad in one way above all.

use super::super::queue::MILLI;
use super::{LayoutName, Probe, Setup};

/// A world that is bad in one way above all: rules that matter only there are tested there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Climate {
    /// As the seed says.
    #[default]
    Usual,
    /// Long pauses, and a slow store, so that answers are on their way during a pause.
    Pauses,
    /// The whole store is away for longer than a TTL, again and again.
    Outages,
    /// Databases open slowly, one at a time, while renewals get lost.
    SlowOpens,
    /// Writes land late.
    LateWrites,
    /// Records of nodes are deleted, and nodes cannot reach the store.
    LostRecords,
    /// So many strange objects lie among the leases that no page of a listing shows all, and leases are deleted.
    Crowded,
    /// Nodes crash and come back at once, and each lease expires by itself.
    Restarts,
}

impl Climate {
    pub const ALL: [Self; 8] = [
        Self::Usual,
        Self::Pauses,
        Self::Outages,
        Self::SlowOpens,
        Self::LateWrites,
        Self::LostRecords,
        Self::Crowded,
        Self::Restarts,
    ];
}

impl Setup {
    /// The same run in another climate.
    pub fn in_climate(mut self, climate: Climate) -> Self {
        let (ttl, chaos, faults) = (self.ttl, &mut self.chaos, &mut self.faults);
        chaos.most = 3 * ttl;
        match climate {
            Climate::Usual => return Self::new(self.seed),
            Climate::Pauses => {
                chaos.pause += 20.0;
                chaos.stall_loop += 10.0;
                chaos.gap = ttl;
                faults.slow = 0.3;
                faults.slow_most = ttl / 5;
            }
            Climate::Outages => {
                self.nodes = self.nodes.max(5);
                chaos.outage += 30.0;
                chaos.gap = 3 * ttl;
                chaos.together = false;
            }
            Climate::SlowOpens => {
                self.max_concurrency = 1;
                self.shards = self.shards.max(6);
                self.databases.slow = 0.5;
                self.databases.slow_most = 2 * ttl;
                chaos.cut_store += 20.0;
                chaos.stall_loop += 10.0;
                chaos.gap = ttl / 2;
            }
            Climate::LateWrites => {
                faults.late = 0.2;
                faults.late_most = 2 * ttl;
                faults.hang_after = 0.1;
                chaos.moved += 10.0;
            }
            Climate::LostRecords => {
                self.shards = self.shards.min(4);
                self.nodes = self.nodes.clamp(2, 4);
                self.layout = LayoutName::Session;
                chaos.delete_node += 40.0;
                chaos.twin += 10.0;
                chaos.cut_store += 20.0;
                chaos.pause += 20.0;
                chaos.gap = ttl / 3;
                chaos.together = true;
            }
            Climate::Restarts => {
                self.layout = LayoutName::Shard;
                (self.interval, self.margin) = (ttl / 5, ttl / 4);
                self.store_delay = self.store_delay.min(5 * MILLI);
                chaos.crash += 5.0;
                chaos.restart_at_once += 10.0;
                self.probes = vec![Probe::Restart; 2];
            }
            Climate::Crowded => {
                self.strangers = 1500;
                self.layout = LayoutName::Session;
                chaos.delete_lease += 20.0;
                chaos.corrupt_lease += 10.0;
                self.probes = vec![Probe::SpoilLease; 2];
            }
        }
        self
    }
}

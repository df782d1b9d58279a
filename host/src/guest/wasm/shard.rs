//! The imported interface `shard`: where the instance runs.

use std::time::Duration;

use super::bindings::shard::{Host, ShardStatus};
use super::state::State;
use crate::guest::ShardStatus as Status;

impl Host for State {
    fn cluster(&mut self) -> String {
        self.place.cluster.as_ref().into()
    }

    fn number(&mut self) -> u32 {
        self.place.shard
    }

    fn count(&mut self) -> u32 {
        self.place.shards
    }

    fn shard_for(&mut self, key: Vec<u8>) -> u32 {
        quarry_core::hash::shard_for(&key, self.place.shards)
    }

    fn node(&mut self) -> String {
        self.place.node.as_ref().into()
    }

    fn generation(&mut self) -> u64 {
        self.place.generation
    }

    fn module(&mut self) -> String {
        self.place.module.as_ref().into()
    }

    fn revision(&mut self) -> u64 {
        self.place.revision
    }

    fn options(&mut self) -> String {
        self.place.options.as_ref().into()
    }

    fn status(&mut self) -> ShardStatus {
        match self.place.status.get() {
            Status::Running => ShardStatus::Running,
            Status::Stopping => ShardStatus::Stopping,
            Status::Fenced => ShardStatus::Fenced,
        }
    }

    fn owned_for_ms(&mut self) -> u64 {
        let owned = self.place.status.owned_for().unwrap_or(Duration::MAX);
        u64::try_from(owned.as_millis()).unwrap_or(u64::MAX)
    }
}

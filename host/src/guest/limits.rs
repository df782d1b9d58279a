//! The limits of a revision. Each error that comes from one names it as `limits.<field>`.

use std::sync::Arc;
use std::time::Duration;

use crate::deploy::grants::Grant;

/// What a guest may use. All have defaults; the setting is `limits.<field>`, but for `get_many` and `page`, which the WIT fixes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Linear memory of an instance, in bytes.
    pub memory: u64,
    /// Time on its thread that a call may use.
    pub cpu_time: Duration,
    /// Time from start to end that a call may last.
    pub wall_time: Duration,
    /// Time that `lifecycle.start` may last.
    pub start_time: Duration,
    /// Time that `lifecycle.stop` may last.
    pub stop_time: Duration,
    /// Time that a swap to the revision waits for what is in progress on a shard: the call, the timer or the durable tags that its guest
    /// is at. Where that takes longer, the swap of the shard is given up.
    pub drain: Duration,
    /// Time that `handoff.suspend` may last, and `handoff.resume`; calls wait for both.
    pub handoff_time: Duration,
    /// Bytes of memory that a swap carries over.
    pub handoff_bytes: usize,
    /// Time that one step of `migration.migrate` may last; calls wait for it.
    pub migrate_step_time: Duration,
    /// Time from the beginning of the first step of a migration to the end of the last one, with the calls between them.
    pub migrate_time: Duration,
    /// Calls that may wait in a shard's queue.
    pub queue_calls: usize,
    /// Payload and key bytes that may wait in a shard's queue.
    pub queue_bytes: usize,
    /// Bytes of a key; at most 65,535, SlateDB's own ceiling.
    pub key: usize,
    /// Bytes of a value.
    pub value: usize,
    /// Bytes of keys and values of a batch or a transaction, with 64 for each operation; of the values of one `get-many`; and half of
    /// what the open transactions and cursors of a call hold together.
    pub batch: usize,
    /// Keys of one `get-many`.
    pub get_many: usize,
    /// Cursors, snapshots and transactions that a call may have open.
    pub open_resources: usize,
    /// Age of a transaction.
    pub transaction_age: Duration,
    /// Bytes of a scan's page.
    pub page: usize,
    /// Bytes that a guest may log in a second, with 128 for each line.
    pub log_bytes_per_second: u64,
    /// Bytes of a reply.
    pub reply: usize,
    /// Durability notifications that may be outstanding.
    pub notifications: usize,
    /// Timers that may be set, of all modules of a shard together; at most [`TIMERS_MAX`](super::timers::TIMERS_MAX).
    pub timers: usize,
    /// Traps within `trap_window` that are borne; one more quarantines the shard.
    pub traps: usize,
    /// See `traps`.
    pub trap_window: Duration,
    /// Instances for queries a shard may have.
    pub query_instances: usize,
    /// Shards that may wait for each other, in calls between shards; at most [`quarry_core::chain::CHAIN_MAX`].
    pub call_depth: usize,
    /// Bytes of the headers of an HTTP request or answer that the guest makes, with about 40 for each name and each value.
    pub http_headers: usize,
    /// HTTP requests that an instance may have open at once.
    pub http_requests: usize,
    /// Bytes of the body of an HTTP request that the guest makes.
    pub http_request_body: usize,
    /// Bytes of the body of the answer to one.
    pub http_response_body: usize,
    /// What it may reach beyond its shard: of a revision, what that was granted.
    pub grants: Arc<[Grant]>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: 256 << 20,
            cpu_time: Duration::from_secs(1),
            wall_time: Duration::from_secs(30),
            start_time: Duration::from_secs(30),
            stop_time: Duration::from_secs(5),
            drain: Duration::from_secs(30),
            handoff_time: Duration::from_secs(5),
            handoff_bytes: 16 << 20,
            migrate_step_time: Duration::from_secs(5),
            migrate_time: Duration::from_secs(600),
            queue_calls: 1024,
            queue_bytes: 64 << 20,
            key: 65_535,
            value: 16 << 20,
            batch: 32 << 20,
            get_many: 1024,
            open_resources: 64,
            transaction_age: Duration::from_secs(10),
            page: 4 << 20,
            log_bytes_per_second: 256 << 10,
            reply: 16 << 20,
            notifications: 65_536,
            timers: 10_000,
            traps: 5,
            trap_window: Duration::from_secs(60),
            query_instances: 4,
            call_depth: 16,
            http_headers: 64 << 10,
            http_requests: 8,
            http_request_body: 16 << 20,
            http_response_body: 16 << 20,
            grants: Arc::default(),
        }
    }
}

impl Limits {
    /// What two modules of a shard may take together, where they do something one after the other.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        self.start_time += other.start_time;
        self.stop_time += other.stop_time;
        self.handoff_time += other.handoff_time;
        self.handoff_bytes = self.handoff_bytes.saturating_add(other.handoff_bytes);
        self.migrate_step_time += other.migrate_step_time;
        self.migrate_time += other.migrate_time;
        self.cpu_time = self.cpu_time.max(other.cpu_time);
        self.wall_time = self.wall_time.max(other.wall_time);
        self.drain = self.drain.max(other.drain);
        self
    }
}

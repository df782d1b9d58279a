//! What a guest may use.

use std::time::Duration;

/// The limits of a revision, as far as a guest can meet them here. The setting of each is `limits.<field>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a key; at most 65,535.
    pub key: usize,
    /// Bytes of a value.
    pub value: usize,
    /// Bytes of keys and values of a batch or a transaction, with 64 for each operation; of the values of one `get_many`; and half of
    /// what the open transactions and cursors of a call hold together.
    pub batch: usize,
    /// Keys of one `get_many`.
    pub get_many: usize,
    /// Cursors, snapshots and transactions that a call may have open.
    pub open_resources: usize,
    /// Age of a transaction.
    pub transaction_age: Duration,
    /// Bytes of a scan's page.
    pub page: usize,
    /// Bytes of a reply.
    pub reply: usize,
    /// Bytes of memory that a swap carries over.
    pub handoff_bytes: usize,
    /// Time that one step of a migration may last, on the test's own clock: [`Host::advance`](super::Host::advance) does not move it.
    pub migrate_step_time: Duration,
    /// Time from the beginning of the first step of a migration to the end of the last one, on that clock.
    pub migrate_time: Duration,
    /// Durability notifications that may be outstanding.
    pub notifications: usize,
    /// Timers that may be set.
    pub timers: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            key: 65_535,
            value: 16 << 20,
            batch: 32 << 20,
            get_many: 1_024,
            open_resources: 64,
            transaction_age: Duration::from_secs(10),
            page: 4 << 20,
            reply: 16 << 20,
            handoff_bytes: 16 << 20,
            migrate_step_time: Duration::from_secs(5),
            migrate_time: Duration::from_secs(600),
            notifications: 65_536,
            timers: 10_000,
        }
    }
}

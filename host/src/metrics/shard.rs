//! What one shard counts on its node.

use std::time::Duration;

use metrics::{Label, counter, gauge, histogram};

use super::{
    DURABILITY_LAG, GUEST_QUARANTINES, GUEST_SWAP_PAUSE, GUEST_SWAPS, GUEST_TRAPS, Metric,
    QUEUED_CALLS, SHARD_FENCED, SHARD_REVISION, SHARD_RUNNING, SHARD_START_DURATION, SHARD_STARTS,
    SHARD_STOP_DURATION, SHARD_STOPS, TIMER_LATENESS, TIMERS_FIRED, TIMERS_PENDING,
};
use crate::guest::TrapKind;

/// One shard's own metrics, resolved once. It is made when the shard is first placed here, and lives as long as the node.
#[derive(Debug)]
pub struct ShardMetrics {
    cluster: String,
    shard: String,
    queued: metrics::Gauge,
    lag: metrics::Gauge,
    timers: metrics::Gauge,
    running: metrics::Gauge,
    revision: metrics::Gauge,
}

impl ShardMetrics {
    /// The metrics of a shard of a cluster.
    #[must_use]
    pub fn new(cluster: &str, shard: u32) -> Self {
        let labels = shard_labels(cluster, &shard.to_string());
        Self {
            cluster: cluster.into(),
            shard: shard.to_string(),
            queued: gauge!(QUEUED_CALLS.name, labels.clone()),
            lag: gauge!(DURABILITY_LAG.name, labels.clone()),
            timers: gauge!(TIMERS_PENDING.name, labels.clone()),
            running: gauge!(SHARD_RUNNING.name, labels.clone()),
            revision: gauge!(SHARD_REVISION.name, labels),
        }
    }

    /// So many calls wait in the queue.
    pub fn queued(&self, calls: usize) {
        self.queued.set(calls as f64);
    }

    /// The newest write is `applied`, and every write up to `durable` is durable.
    pub fn lag(&self, applied: u64, durable: u64) {
        self.lag.set(applied.saturating_sub(durable) as f64);
    }

    /// So many timers are set.
    pub fn timers(&self, pending: usize) {
        self.timers.set(pending as f64);
    }

    /// A timer fired, `late` after it was due: outcome is ok, error or trap.
    pub fn timer_fired(&self, outcome: &'static str, late: Duration) {
        self.count(&TIMERS_FIRED, Some(outcome));
        self.observe(&TIMER_LATENESS, late);
    }

    /// The shard serves calls, `took` after its start began.
    pub fn started(&self, revision: u64, took: Duration) {
        self.running.set(1.0);
        self.runs(revision);
        self.count(&SHARD_STARTS, Some("started"));
        self.observe(&SHARD_START_DURATION, took);
    }

    /// An attempt to start the shard failed.
    pub fn start_failed(&self) {
        self.count(&SHARD_STARTS, Some("failed"));
    }

    /// The shard ended for a reason (stopped, fenced, lost or crashed), `took` after its stop began.
    pub fn stopped(&self, reason: &'static str, took: Duration) {
        self.running.set(0.0);
        self.queued.set(0.0);
        self.timers.set(0.0);
        self.count(&SHARD_STOPS, Some(reason));
        self.observe(&SHARD_STOP_DURATION, took);
    }

    /// Another writer opened the shard's database.
    pub fn fenced(&self) {
        self.running.set(0.0);
        self.count(&SHARD_FENCED, None);
    }

    /// The shard's guest failed.
    pub fn trapped(&self, kind: TrapKind) {
        self.count(&GUEST_TRAPS, Some(trap_word(kind)));
    }

    /// The shard's guest failed too often.
    pub fn quarantined(&self) {
        self.running.set(0.0);
        self.count(&GUEST_QUARANTINES, None);
    }

    /// The shard's guest was restarted by hand, which lifts a quarantine.
    pub fn restarted(&self) {
        self.running.set(1.0);
    }

    /// The shard's guest was swapped for one of another revision; calls waited for `pause`.
    pub fn swapped(&self, revision: u64, pause: Duration) {
        self.runs(revision);
        self.running.set(1.0);
        self.count(&GUEST_SWAPS, Some("swapped"));
        self.observe(&GUEST_SWAP_PAUSE, pause);
    }

    /// A swap failed, and the old guest goes on.
    pub fn swap_failed(&self) {
        self.count(&GUEST_SWAPS, Some("kept"));
    }

    fn runs(&self, revision: u64) {
        self.revision.set(revision as f64);
    }

    fn count(&self, metric: &Metric, outcome: Option<&'static str>) {
        let mut labels = shard_labels(&self.cluster, &self.shard);
        labels.extend(outcome.map(|outcome| Label::from_static_parts("outcome", outcome)));
        counter!(metric.name, labels).increment(1);
    }

    fn observe(&self, metric: &Metric, took: Duration) {
        histogram!(metric.name, "cluster" => self.cluster.clone()).record(took);
    }
}

/// The labels of what belongs to a shard.
pub(super) fn shard_labels(cluster: &str, shard: &str) -> Vec<Label> {
    vec![
        Label::new("cluster", cluster.to_owned()),
        Label::new("shard", shard.to_owned()),
    ]
}

fn trap_word(kind: TrapKind) -> &'static str {
    match kind {
        TrapKind::Aborted => "aborted",
        TrapKind::StackOverflow => "stack-overflow",
        TrapKind::Memory => "memory",
        TrapKind::CpuTime => "cpu-time",
        TrapKind::WallTime => "wall-time",
        TrapKind::ReplyTooLarge => "reply-too-large",
        TrapKind::Instantiate => "instantiate",
        TrapKind::Host => "host",
    }
}

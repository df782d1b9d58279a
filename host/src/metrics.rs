//! Every metric: its name, kind, unit, labels and meaning, and the functions that move it.
//!
//! Labels are few and bounded: never a key, never what a caller may choose freely. A method counts under its own name once a call
//! of it went well, as long as there are at most [`calls::METHODS_MAX`] of them; every other is `other`. What guests name themselves is in
//! [`guest`], and bounded there.
//!
//! Call [`install`] before anything else starts: handles that were made before it count nothing.

use std::fmt::Write as _;
use std::sync::OnceLock;
use std::time::Duration;

use metrics::{
    Label, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use quarry_core::control::Gauges;
use quarry_core::deploy::RolloutRecord;

use crate::call::{CallError, CallErrorKind, CallReply};
use crate::clock;
use crate::guest::TrapKind;

pub mod calls;
pub mod guest;
pub mod process;

pub use calls::{CallMetrics, Outcome};

/// What a metric measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution, in [`BUCKETS`].
    Histogram,
}

/// A metric, as the list below has it.
#[derive(Debug)]
pub struct Metric {
    /// Its name: `quarry_`, and the unit or `_total` last.
    pub name: &'static str,
    /// What it measures.
    pub kind: Kind,
    /// In what.
    pub unit: Option<Unit>,
    /// The labels that it has.
    pub labels: &'static [&'static str],
    /// What it says, for a person.
    pub help: &'static str,
}

/// Upper bounds of the buckets of every histogram, in seconds: 10 us to 30 s.
pub const BUCKETS: [f64; 20] = [
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025,
    0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];

/// How often samples of histograms are sorted into their buckets, so that memory stays bounded when nobody asks.
pub const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Declares the metrics: a constant each, and the list of all.
macro_rules! metrics_list {
    ($($constant:ident: $kind:ident $name:literal, $unit:expr, [$($label:literal),*], $help:literal;)*) => {
        $(#[doc = $help] pub const $constant: Metric =
            Metric { name: $name, kind: Kind::$kind, unit: $unit, labels: &[$($label),*], help: $help };)*

        /// Every metric.
        pub const ALL: &[&Metric] = &[$(&$constant),*];
    };
}

metrics_list! {
    CALLS: Counter "quarry_calls_total", Some(Unit::Count), ["cluster", "shard", "method", "outcome"], "Calls that a shard of this node answered or refused.";
    CALL_DURATION: Histogram "quarry_call_duration_seconds", Some(Unit::Seconds), ["cluster", "method"],
        "Time from a call's arrival at its shard to its reply, the wait for durability included.";
    QUERIES: Counter "quarry_queries_total", Some(Unit::Count), ["cluster", "shard", "method", "outcome"],
        "Queries that a shard of this node answered or refused.";
    QUERY_DURATION: Histogram "quarry_query_duration_seconds", Some(Unit::Seconds), ["cluster", "method"],
        "Time from a query's arrival at its shard to its reply, the wait for durability included.";
    CALLS_REMOTE: Counter "quarry_calls_remote_total", Some(Unit::Count), ["cluster", "outcome"],
        "Calls and queries sent to the node that owns their shard: outcome is answered, not-owner, unreachable or unknown.";
    CALL_REMOTE_DURATION: Histogram "quarry_call_remote_duration_seconds", Some(Unit::Seconds), ["cluster"],
        "Time from sending a call or query to another node to its answer.";
    CALLS_NOT_OWNER: Counter "quarry_calls_not_owner_total", Some(Unit::Count), ["cluster"],
        "Calls and queries that were sent to a node which did not own their shard any more.";
    CALLS_PARKED: Gauge "quarry_parked_calls", Some(Unit::Count), ["cluster"],
        "Calls and queries of this node that wait for their shard to move, open or get another owner.";
    QUEUED_CALLS: Gauge "quarry_shard_queued_calls", Some(Unit::Count), ["cluster", "shard"], "Calls that wait in a shard's queue.";
    DURABILITY_LAG: Gauge "quarry_durability_lag_writes", Some(Unit::Count), ["cluster", "shard"],
        "Sequence numbers between a shard's newest write and the newest up to which all are durable.";
    FLUSH_DURATION: Histogram "quarry_flush_duration_seconds", Some(Unit::Seconds), ["cluster"],
        "Time of a flush that makes a shard's writes durable: one WAL object.";
    SHARD_RUNNING: Gauge "quarry_shard_running_count", Some(Unit::Count), ["cluster", "shard"], "1 while the shard serves calls on this node, else 0.";
    SHARD_REVISION: Gauge "quarry_shard_revision_info", None, ["cluster", "shard"], "The revision that the shard's guest runs.";
    SHARD_STARTS: Counter "quarry_shard_starts_total", Some(Unit::Count), ["cluster", "shard", "outcome"],
        "Attempts to start a shard: outcome is started or failed.";
    SHARD_START_DURATION: Histogram "quarry_shard_start_duration_seconds", Some(Unit::Seconds), ["cluster"],
        "Time that a shard took to start: its database and its guest.";
    SHARD_STOPS: Counter "quarry_shard_stops_total", Some(Unit::Count), ["cluster", "shard", "outcome"],
        "Shards that ended on this node: outcome is the reason, such as stopped, fenced, lost or crashed.";
    SHARD_STOP_DURATION: Histogram "quarry_shard_stop_duration_seconds", Some(Unit::Seconds), ["cluster"],
        "Time that a shard took to stop: its guest, the last flush and the close.";
    SHARD_FENCED: Counter "quarry_shard_fenced_total", Some(Unit::Count), ["cluster", "shard"], "Shards whose database another writer opened.";
    GUEST_TRAPS: Counter "quarry_guest_traps_total", Some(Unit::Count), ["cluster", "shard", "outcome"],
        "Guests that failed: outcome is the kind of trap.";
    GUEST_QUARANTINES: Counter "quarry_guest_quarantines_total", Some(Unit::Count), ["cluster", "shard"],
        "Shards whose guest failed too often, so that calls are refused.";
    GUEST_SWAPS: Counter "quarry_guest_swaps_total", Some(Unit::Count), ["cluster", "shard", "outcome"],
        "Attempts to swap a guest in place: outcome is swapped, or kept when the old one stayed.";
    GUEST_SWAP_PAUSE: Histogram "quarry_guest_swap_pause_seconds", Some(Unit::Seconds), ["cluster"], "Time that calls waited because of a swap.";
    TIMERS_FIRED: Counter "quarry_timers_fired_total", Some(Unit::Count), ["cluster", "shard", "outcome"],
        "Timers that a guest was given: outcome is ok, error or trap.";
    TIMER_LATENESS: Histogram "quarry_timer_lateness_seconds", Some(Unit::Seconds), ["cluster"],
        "Time from when a timer was due, or was to be tried again, until it fired.";
    TIMERS_PENDING: Gauge "quarry_timers_pending_count", Some(Unit::Count), ["cluster", "shard"], "Timers that a shard of this node has set.";
    ROLLOUTS: Counter "quarry_rollouts_total", Some(Unit::Count), ["cluster", "outcome"],
        "Rollouts whose end this node learned of, as every node does: outcome is adopted, rolled-back, refused before any shard was touched, or superseded by another one while it went back.";
    ROLLOUT_ACTIVE: Gauge "quarry_rollout_active_count", Some(Unit::Count), ["cluster"], "1 while a rollout is in progress, as this node knows, else 0.";
    ROLLOUT_STABLE: Gauge "quarry_rollout_stable_info", None, ["cluster"], "The revision that shards run which no rollout has reached.";
    ROLLOUT_FAILED: Gauge "quarry_rollout_failed_shards_count", Some(Unit::Count), ["cluster"],
        "Shards of this node that did not take the revision that they are to run.";
    GUEST_METRICS_DROPPED: Counter "quarry_guest_metrics_dropped_total", Some(Unit::Count), ["cluster", "module"],
        "Uses of metrics by a guest that were dropped, since they are over a bound or not well formed.";
    CLUSTER_CALLS: Counter "quarry_cluster_calls_total", Some(Unit::Count), ["cluster", "outcome"],
        "Calls and queries that guests of this node made to other shards: outcome is that of a call, cycle or depth.";
    GUEST_HTTP_REQUESTS: Counter "quarry_guest_http_requests_total", Some(Unit::Count), ["cluster", "outcome"],
        "HTTP requests that guests of this node made: outcome is ok (an answer began), denied, limit, timeout or failed.";
    LEASE_CLAIMS: Counter "quarry_lease_claims_total", Some(Unit::Count), ["cluster", "outcome"],
        "Leases that this node tried to claim: outcome is won or lost.";
    LEASE_RELEASES: Counter "quarry_lease_releases_total", Some(Unit::Count), ["cluster"], "Leases that this node freed after it closed their shards.";
    LEASE_LOST: Counter "quarry_lease_lost_total", Some(Unit::Count), ["cluster"], "Leases that this node held and found to be another's.";
    LEASE_SELF_FENCES: Counter "quarry_lease_self_fences_total", Some(Unit::Count), ["cluster"],
        "Shards that this node cut off because their leases could not be renewed in time.";
    LEASE_RENEW_FAILURES: Counter "quarry_lease_renew_failures_total", Some(Unit::Count), ["cluster"], "Renewals that did not come through.";
    LEASE_READ_FAILURES: Counter "quarry_lease_read_failures_total", Some(Unit::Count), ["cluster"], "Rounds in which nodes or leases could not be read.";
    LEASE_SESSIONS_LOST: Counter "quarry_lease_sessions_lost_total", Some(Unit::Count), ["cluster"], "Sessions of this node that others ended.";
    LEASE_REQUESTS: Counter "quarry_lease_requests_total", Some(Unit::Count), ["cluster", "method"],
        "Requests to the store for leases: method is get, put, list or writer-epoch.";
    LEASES_OWNED: Gauge "quarry_lease_owned_count", Some(Unit::Count), ["cluster"], "Leases that this node holds.";
    LEASES_UNOWNED: Gauge "quarry_lease_unowned_count", Some(Unit::Count), ["cluster"], "Shards without an owner that lives, as far as this node knows.";
    LEASE_MOVES: Gauge "quarry_lease_moves_count", Some(Unit::Count), ["cluster"], "Shards on their way from or to this node.";
    LEASE_SLACK: Gauge "quarry_lease_deadline_slack_seconds", Some(Unit::Seconds), ["cluster"], "How long this node's shards run on without a renewal.";
    PROBES: Counter "quarry_probes_total", Some(Unit::Count), ["cluster", "outcome"], "Probes of the store: outcome is passed or failed.";
    HTTP_REQUESTS: Counter "quarry_http_requests_total", Some(Unit::Count), ["route", "status"], "HTTP requests, by route and status code.";
    HTTP_CONNECTIONS: Gauge "quarry_http_connections_count", Some(Unit::Count), [], "Open HTTP connections.";
    BUILD: Gauge "quarry_build_info", None, ["version"], "1, with the version of this process.";
    START_TIME: Gauge "quarry_process_start_time_seconds", Some(Unit::Seconds), [], "When this process installed its metrics, since the Unix epoch.";
    CPU: Gauge "quarry_process_cpu_seconds", Some(Unit::Seconds), [], "CPU time that this process has used.";
    MEMORY: Gauge "quarry_process_resident_memory_bytes", Some(Unit::Bytes), [], "Memory of this process that is resident.";
    FILES: Gauge "quarry_process_open_files_count", Some(Unit::Count), [], "Open file descriptors of this process.";
}

/// Where the metrics can be read.
#[derive(Debug, Clone, Copy)]
pub struct Exporter(Option<&'static PrometheusHandle>);

/// Installs the recorder of this process and describes every metric. Further calls give the same exporter. Where the program that
/// embeds Quarry installed a recorder of its own before, that one gets the metrics, and the exporter has none.
pub fn install() -> Exporter {
    static HANDLE: OnceLock<Option<PrometheusHandle>> = OnceLock::new();
    let handle = HANDLE.get_or_init(|| {
        // Fails only for an empty list; without buckets histograms would be summaries, which is still a working exporter.
        let builder = PrometheusBuilder::new()
            .set_buckets(&BUCKETS)
            .and_then(guest::with_buckets)
            .unwrap_or_else(|_| PrometheusBuilder::new());
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        let installed = metrics::set_global_recorder(recorder).is_ok();
        describe();
        gauge!(BUILD.name, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
        gauge!(START_TIME.name)
            .set(std::time::Duration::from_millis(clock::wall_ms().unsigned_abs()).as_secs_f64());
        installed.then_some(handle)
    });
    Exporter(handle.as_ref())
}

impl Exporter {
    /// All metrics in Prometheus' text format; none where another recorder has them.
    #[must_use]
    pub fn render(&self) -> Option<String> {
        process::sample();
        let mut text = self.0?.render();
        // An empty registry is a valid answer, but it looks like a fault.
        if text.is_empty() {
            _ = writeln!(text, "# no metrics yet");
        }
        Some(text)
    }

    /// Sorts the samples of histograms into their buckets. To be called every [`UPKEEP_INTERVAL`].
    pub fn upkeep(&self) {
        if let Some(handle) = self.0 {
            handle.run_upkeep();
        }
    }
}

fn describe() {
    for metric in ALL {
        let (name, help) = (metric.name, metric.help);
        match (metric.kind, metric.unit) {
            (Kind::Counter, Some(unit)) => describe_counter!(name, unit, help),
            (Kind::Counter, None) => describe_counter!(name, help),
            (Kind::Gauge, Some(unit)) => describe_gauge!(name, unit, help),
            (Kind::Gauge, None) => describe_gauge!(name, help),
            (Kind::Histogram, Some(unit)) => describe_histogram!(name, unit, help),
            (Kind::Histogram, None) => describe_histogram!(name, help),
        }
    }
}

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

/// The metrics of what is deployed, resolved once.
#[derive(Debug)]
pub struct DeployMetrics {
    cluster: String,
    active: metrics::Gauge,
    stable: metrics::Gauge,
    failed: metrics::Gauge,
}

impl DeployMetrics {
    /// The metrics of a node of a cluster.
    #[must_use]
    pub fn new(cluster: &str) -> Self {
        let gauge = |metric: &Metric| gauge!(metric.name, "cluster" => cluster.to_owned());
        Self {
            cluster: cluster.into(),
            active: gauge(&ROLLOUT_ACTIVE),
            stable: gauge(&ROLLOUT_STABLE),
            failed: gauge(&ROLLOUT_FAILED),
        }
    }

    /// The node follows this record.
    pub fn follows(&self, record: &RolloutRecord) {
        self.active
            .set(f64::from(u8::from(record.active.is_some())));
        self.stable.set(record.stable as f64);
    }

    /// So many shards did not take what they are to run.
    pub fn failed(&self, shards: usize) {
        self.failed.set(shards as f64);
    }

    /// This node learned of the end of a rollout: adopted, rolled-back, refused or superseded.
    pub fn ended(&self, outcome: &'static str) {
        counter!(ROLLOUTS.name, "cluster" => self.cluster.clone(), "outcome" => outcome)
            .increment(1);
    }
}

/// The metrics of a node's leases, resolved once.
#[derive(Debug)]
pub struct LeaseMetrics {
    cluster: String,
    owned: metrics::Gauge,
    unowned: metrics::Gauge,
    moves: metrics::Gauge,
    slack: metrics::Gauge,
}

impl LeaseMetrics {
    /// The metrics of this node's leases in a cluster.
    #[must_use]
    pub fn new(cluster: &str) -> Self {
        let gauge = |metric: &Metric| gauge!(metric.name, "cluster" => cluster.to_owned());
        Self {
            cluster: cluster.into(),
            owned: gauge(&LEASES_OWNED),
            unowned: gauge(&LEASES_UNOWNED),
            moves: gauge(&LEASE_MOVES),
            slack: gauge(&LEASE_SLACK),
        }
    }

    /// How things stand.
    pub fn gauges(&self, gauges: &Gauges) {
        self.owned.set(f64::from(gauges.owned));
        self.unowned.set(f64::from(gauges.unowned));
        self.moves.set(f64::from(gauges.moves));
        self.slack.set(gauges.slack.as_secs_f64());
    }

    /// A claim was won, or lost to another node.
    pub fn claimed(&self, won: bool) {
        let outcome = if won { "won" } else { "lost" };
        counter!(LEASE_CLAIMS.name, "cluster" => self.cluster.clone(), "outcome" => outcome)
            .increment(1);
    }

    /// A lease was freed.
    pub fn released(&self) {
        self.count(&LEASE_RELEASES);
    }

    /// A lease was found to be another's.
    pub fn lost(&self) {
        self.count(&LEASE_LOST);
    }

    /// A shard was cut off at its deadline.
    pub fn self_fenced(&self) {
        self.count(&LEASE_SELF_FENCES);
    }

    /// A renewal did not come through.
    pub fn renew_failed(&self) {
        self.count(&LEASE_RENEW_FAILURES);
    }

    /// Nodes or leases could not be read.
    pub fn read_failed(&self) {
        self.count(&LEASE_READ_FAILURES);
    }

    /// Another node ended this one's session.
    pub fn session_lost(&self) {
        self.count(&LEASE_SESSIONS_LOST);
    }

    fn count(&self, metric: &Metric) {
        counter!(metric.name, "cluster" => self.cluster.clone()).increment(1);
    }
}

/// The counter of requests for leases of one kind (get, put, list or writer-epoch).
pub fn lease_requests(cluster: &str, method: &'static str) -> metrics::Counter {
    counter!(LEASE_REQUESTS.name, "cluster" => cluster.to_owned(), "method" => method)
}

/// What a node sends to others, resolved once.
#[derive(Debug)]
pub struct PeerMetrics {
    cluster: String,
    parked: metrics::Gauge,
    not_owner: metrics::Counter,
    duration: metrics::Histogram,
}

impl PeerMetrics {
    /// The metrics of a node of a cluster.
    #[must_use]
    pub fn new(cluster: &str) -> Self {
        Self {
            cluster: cluster.into(),
            parked: gauge!(CALLS_PARKED.name, "cluster" => cluster.to_owned()),
            not_owner: counter!(CALLS_NOT_OWNER.name, "cluster" => cluster.to_owned()),
            duration: histogram!(CALL_REMOTE_DURATION.name, "cluster" => cluster.to_owned()),
        }
    }

    /// A call was sent to another node; outcome is answered, not-owner, unreachable or unknown.
    pub fn remote(&self, outcome: &'static str, took: Duration) {
        let labels = vec![
            Label::new("cluster", self.cluster.clone()),
            Label::from_static_parts("outcome", outcome),
        ];
        counter!(CALLS_REMOTE.name, labels).increment(1);
        self.duration.record(took);
        if outcome == "not-owner" {
            self.not_owner.increment(1);
        }
    }

    /// So many calls wait for their shard.
    pub fn parked(&self, calls: usize) {
        self.parked.set(calls as f64);
    }
}

/// Calls between shards.
#[derive(Debug)]
pub struct BetweenMetrics {
    cluster: String,
}

impl BetweenMetrics {
    /// Those of a node of a cluster.
    #[must_use]
    pub fn new(cluster: &str) -> Self {
        Self {
            cluster: cluster.into(),
        }
    }

    /// A guest asked another shard, and this came of it.
    pub fn asked(&self, outcome: &Result<CallReply, CallError>) {
        let word = match outcome {
            Err(error) if error.kind == CallErrorKind::Cycle => "cycle",
            Err(error) if error.kind == CallErrorKind::Depth => "depth",
            outcome => Outcome::of(outcome).as_str(),
        };
        let labels = vec![
            Label::new("cluster", self.cluster.clone()),
            Label::from_static_parts("outcome", word),
        ];
        counter!(CLUSTER_CALLS.name, labels).increment(1);
    }
}

/// HTTP requests that guests make.
#[derive(Debug)]
pub struct OutgoingMetrics {
    cluster: String,
}

impl OutgoingMetrics {
    /// Those of a node of a cluster.
    #[must_use]
    pub fn new(cluster: &str) -> Self {
        Self {
            cluster: cluster.into(),
        }
    }

    /// A request ended so.
    pub fn ended(&self, outcome: &'static str) {
        counter!(GUEST_HTTP_REQUESTS.name, "cluster" => self.cluster.clone(), "outcome" => outcome)
            .increment(1);
    }
}

/// The store was probed.
pub fn probed(cluster: &str, passed: bool) {
    counter!(PROBES.name, "cluster" => cluster.to_owned(), "outcome" => if passed { "passed" } else { "failed" }).increment(1);
}

/// The histogram of flushes.
pub fn flushes(cluster: &str) -> metrics::Histogram {
    histogram!(FLUSH_DURATION.name, "cluster" => cluster.to_owned())
}

/// The gauge of open HTTP connections.
pub fn http_connections() -> metrics::Gauge {
    gauge!(HTTP_CONNECTIONS.name)
}

/// The counter of HTTP requests of a route that were answered with a status.
pub fn http_requests(route: &'static str, status: u16) -> metrics::Counter {
    counter!(HTTP_REQUESTS.name, "route" => route, "status" => status.to_string())
}

fn shard_labels(cluster: &str, shard: &str) -> Vec<Label> {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_follow_the_rules() {
        let mut seen = BTreeSet::new();
        for metric in ALL {
            let name = metric.name;
            assert!(seen.insert(name), "{name} is twice in the list");
            assert!(name.starts_with("quarry_"), "{name}");
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{name}"
            );
            let last = match metric.kind {
                Kind::Counter => name.ends_with("_total"),
                Kind::Histogram => name.ends_with("_seconds"),
                Kind::Gauge => ["_calls", "_writes", "_count", "_info", "_seconds", "_bytes"]
                    .iter()
                    .any(|unit| name.ends_with(unit)),
            };
            assert!(last, "{name} ends in neither a unit nor _total");
            for label in metric.labels {
                let known = [
                    "cluster", "shard", "revision", "method", "outcome", "route", "status",
                    "version", "module",
                ];
                assert!(known.contains(label), "{name} has the label {label}");
            }
            assert!(metric.help.ends_with('.'), "{name}");
        }
    }

    #[test]
    fn what_is_counted_can_be_read_and_installing_twice_is_fine() {
        let (first, second) = (install(), install());
        let shard = ShardMetrics::new("metrics-test", 7);
        shard.started(3, Duration::from_millis(12));
        shard.trapped(TrapKind::CpuTime);
        shard.lag(110, 100);
        probed("metrics-test", true);
        http_requests("/health", 200).increment(1);
        for text in
            [first, second].map(|exporter| exporter.render().expect("the recorder of this process"))
        {
            for line in [
                r#"quarry_shard_running_count{cluster="metrics-test",shard="7"} 1"#,
                r#"quarry_shard_revision_info{cluster="metrics-test",shard="7"} 3"#,
                r#"quarry_guest_traps_total{cluster="metrics-test",shard="7",outcome="cpu-time"} 1"#,
                r#"quarry_durability_lag_writes{cluster="metrics-test",shard="7"} 10"#,
                r#"quarry_shard_start_duration_seconds_bucket{cluster="metrics-test",le="0.025"} 1"#,
                r#"quarry_probes_total{cluster="metrics-test",outcome="passed"} 1"#,
                "# HELP quarry_build_info 1, with the version of this process.",
            ] {
                assert!(text.contains(line), "{line} is not in\n{text}");
            }
        }
    }

    #[test]
    fn labels_are_those_of_the_list() {
        let exporter = install();
        ShardMetrics::new("labels-test", 1).stopped("fenced", Duration::ZERO);
        CallMetrics::new("labels-test", 1).call("m", Outcome::Ok, Duration::ZERO);
        let text = exporter.render().expect("the recorder of this process");
        for line in text.lines().filter(|line| line.contains("labels-test")) {
            let (name, rest) = line.split_once('{').expect("labels");
            let name = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end).filter(|name| is_listed(name)))
                .unwrap_or(name);
            let metric = ALL
                .iter()
                .find(|metric| metric.name == name)
                .unwrap_or_else(|| panic!("{name} is not in the list"));
            let (labels, _) = rest.split_once('}').expect("labels");
            for label in labels
                .split(',')
                .filter_map(|pair| pair.split_once('='))
                .map(|(label, _)| label)
                .filter(|label| *label != "le")
            {
                assert!(metric.labels.contains(&label), "{name} has {label}");
            }
        }
    }

    fn is_listed(name: &str) -> bool {
        ALL.iter().any(|metric| metric.name == name)
    }
}

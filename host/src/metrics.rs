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
    Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use crate::clock;

pub mod calls;
pub mod guest;
mod node;
pub mod process;
mod shard;

pub use calls::{CallMetrics, Outcome};
pub use node::{
    BetweenMetrics, DeployMetrics, LeaseMetrics, OutgoingMetrics, PeerMetrics, lease_requests,
};
pub use shard::ShardMetrics;

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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::guest::TrapKind;

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

//! What a node counts beside its shards: its leases, what is deployed, and what it sends to others.

use std::time::Duration;

use metrics::{Label, counter, gauge, histogram};
use quarry_core::control::Gauges;
use quarry_core::deploy::RolloutRecord;

use super::{
    CALL_REMOTE_DURATION, CALLS_NOT_OWNER, CALLS_PARKED, CALLS_REMOTE, CLUSTER_CALLS,
    GUEST_HTTP_REQUESTS, LEASE_CLAIMS, LEASE_LOST, LEASE_MOVES, LEASE_READ_FAILURES,
    LEASE_RELEASES, LEASE_RENEW_FAILURES, LEASE_REQUESTS, LEASE_SELF_FENCES, LEASE_SESSIONS_LOST,
    LEASE_SLACK, LEASES_OWNED, LEASES_UNOWNED, Metric, Outcome, ROLLOUT_ACTIVE, ROLLOUT_FAILED,
    ROLLOUT_STABLE, ROLLOUTS,
};
use crate::call::{CallError, CallErrorKind, CallReply};

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

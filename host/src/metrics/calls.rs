//! Counts and latencies of calls. A call costs its shard a few atomic additions: no lock, no label is made, nothing is looked up by
//! text beyond the method's name in a short list.

use std::sync::OnceLock;
use std::time::Duration;

use metrics::{Counter, Histogram, Label, counter, histogram};

use super::shard::shard_labels;
use super::{CALL_DURATION, CALLS, Metric, QUERIES, QUERY_DURATION};
use crate::call::{CallErrorKind, CallReply};

/// How many methods of a process have their own label; the rest is `other`.
pub const METHODS_MAX: usize = 64;

/// How a call ended, as the label `outcome` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// With a reply.
    Ok,
    /// With the guest's own error, or its answer of an HTTP request that it failed at (500 and above).
    Error,
    /// The guest failed.
    Trap,
    /// Refused by the host; nothing ran.
    Refused,
    /// The time was up.
    Timeout,
    /// Its writes may or may not survive.
    Unknown,
}

const OUTCOMES: usize = 6;

impl Outcome {
    /// How a call ended.
    #[must_use]
    pub fn of(outcome: &Result<CallReply, crate::call::CallError>) -> Self {
        match outcome {
            Ok(reply)
                if reply
                    .http
                    .as_ref()
                    .is_some_and(|answer| answer.is_failure()) =>
            {
                Self::Error
            }
            Ok(_) => Self::Ok,
            Err(error) => error.kind.into(),
        }
    }

    /// The label's value.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Trap => "trap",
            Self::Refused => "refused",
            Self::Timeout => "timeout",
            Self::Unknown => "unknown",
        }
    }
}

impl From<CallErrorKind> for Outcome {
    fn from(kind: CallErrorKind) -> Self {
        match kind {
            CallErrorKind::Guest => Self::Error,
            CallErrorKind::Trap(_) => Self::Trap,
            CallErrorKind::Timeout => Self::Timeout,
            CallErrorKind::Unknown => Self::Unknown,
            CallErrorKind::Invalid
            | CallErrorKind::Unassigned
            | CallErrorKind::NotOwner
            | CallErrorKind::Unreachable
            | CallErrorKind::Refused
            | CallErrorKind::Overloaded
            | CallErrorKind::Quarantined
            | CallErrorKind::NoRoom
            | CallErrorKind::NoQueries
            | CallErrorKind::NoHttp
            | CallErrorKind::WrongRevision
            | CallErrorKind::Cycle
            | CallErrorKind::Depth => Self::Refused,
        }
    }
}

/// The metrics of one shard's calls and queries. It is made when the shard is first placed here, and lives as long as the node; the
/// series of a method appear with its first call.
pub struct CallMetrics {
    cluster: Box<str>,
    shard: u32,
    calls: Slots,
    queries: Slots,
}

impl CallMetrics {
    /// The metrics of a shard of a cluster.
    #[must_use]
    pub fn new(cluster: &str, shard: u32) -> Self {
        Self {
            cluster: cluster.into(),
            shard,
            calls: empty(),
            queries: empty(),
        }
    }

    /// A call ended.
    pub fn call(&self, method: &str, outcome: Outcome, took: Duration) {
        self.record(&self.calls, (&CALLS, &CALL_DURATION), method, outcome, took);
    }

    /// A query ended.
    pub fn query(&self, method: &str, outcome: Outcome, took: Duration) {
        self.record(
            &self.queries,
            (&QUERIES, &QUERY_DURATION),
            method,
            outcome,
            took,
        );
    }

    fn record(
        &self,
        slots: &Slots,
        names: (&Metric, &Metric),
        method: &str,
        outcome: Outcome,
        took: Duration,
    ) {
        // Only what went well earns a name of its own, so that nobody can fill the list with names that mean nothing.
        let slot = METHODS.slot(method, outcome == Outcome::Ok);
        let handles = slots[slot]
            .get_or_init(|| Box::new(Handles::new(names.1, &self.cluster, METHODS.name(slot))));
        let counter = handles.outcomes[outcome as usize].get_or_init(|| {
            let mut labels = shard_labels(&self.cluster, &self.shard.to_string());
            labels.push(Label::new("method", METHODS.name(slot).to_owned()));
            labels.push(Label::from_static_parts("outcome", outcome.as_str()));
            counter!(names.0.name, labels)
        });
        counter.increment(1);
        handles.duration.record(took);
    }
}

type Slots = [OnceLock<Box<Handles>>; METHODS_MAX + 1];

fn empty() -> Slots {
    [const { OnceLock::new() }; METHODS_MAX + 1]
}

/// The handles of one method.
struct Handles {
    outcomes: [OnceLock<Counter>; OUTCOMES],
    duration: Histogram,
}

impl Handles {
    fn new(duration: &Metric, cluster: &str, method: &str) -> Self {
        let labels = vec![
            Label::new("cluster", cluster.to_owned()),
            Label::new("method", method.to_owned()),
        ];
        Self {
            outcomes: [const { OnceLock::new() }; OUTCOMES],
            duration: histogram!(duration.name, labels),
        }
    }
}

/// The methods that have a label of their own, of the whole process.
static METHODS: Methods = Methods::new();

/// A list that only grows, up to a bound. Reading it takes no lock.
struct Methods([OnceLock<Box<str>>; METHODS_MAX]);

impl Methods {
    const fn new() -> Self {
        Self([const { OnceLock::new() }; METHODS_MAX])
    }

    /// The slot of a method: its own when it has one, or when it may have one now; else that of `other`.
    fn slot(&self, method: &str, may_add: bool) -> usize {
        for (slot, place) in self.0.iter().enumerate() {
            let taken = match place.get() {
                None if !may_add => return METHODS_MAX,
                None => place.get_or_init(|| method.into()),
                Some(taken) => taken,
            };
            if **taken == *method {
                return slot;
            }
        }
        METHODS_MAX
    }

    fn name(&self, slot: usize) -> &str {
        self.0
            .get(slot)
            .and_then(|place| place.get())
            .map_or("other", |name| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_has_a_name_once_it_went_well_and_the_list_is_bounded() {
        let methods = Methods::new();
        assert_eq!(methods.slot("put", false), METHODS_MAX);
        assert_eq!(methods.name(METHODS_MAX), "other");
        assert_eq!(methods.slot("put", true), 0);
        assert_eq!(methods.slot("put", false), 0);
        for n in 1..METHODS_MAX {
            assert_eq!(methods.slot(&format!("m{n}"), true), n);
        }
        assert_eq!(methods.slot("one-more", true), METHODS_MAX);
        assert_eq!(methods.name(0), "put");
    }

    #[test]
    fn calls_are_counted_by_method_and_outcome() {
        let exporter = super::super::install();
        let calls = CallMetrics::new("calls-test", 3);
        let took = Duration::from_micros(30);
        calls.call("calls-test-put", Outcome::Ok, took);
        calls.call("calls-test-put", Outcome::Ok, took);
        calls.call("calls-test-put", Outcome::Trap, took);
        calls.query("calls-test-put", Outcome::Error, took);
        calls.call("calls-test-junk", Outcome::Error, took);
        let text = exporter.render().expect("the recorder of this process");
        for line in [
            r#"quarry_calls_total{cluster="calls-test",shard="3",method="calls-test-put",outcome="ok"} 2"#,
            r#"quarry_calls_total{cluster="calls-test",shard="3",method="calls-test-put",outcome="trap"} 1"#,
            r#"quarry_calls_total{cluster="calls-test",shard="3",method="other",outcome="error"} 1"#,
            r#"quarry_queries_total{cluster="calls-test",shard="3",method="calls-test-put",outcome="error"} 1"#,
            r#"quarry_call_duration_seconds_bucket{cluster="calls-test",method="calls-test-put",le="0.00005"} 3"#,
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}

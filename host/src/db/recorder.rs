//! SlateDB's metrics of one shard, forwarded to the `metrics` facade.
//!
//! SlateDB registers about a hundred series for each database and puts no label on them that says which one it is. Times
//! the shards of a node that would swamp any collector, so only what an operator asks of a single shard goes through (at
//! most 12 series each, labelled `cluster` and `shard`); all the rest is discarded at registration and costs nothing.
//!
//! | series | what it says |
//! | --- | --- |
//! | `quarry_slatedb_l0_ssts` | L0 SSTs that wait for compaction; at `l0_max_ssts` flushes stall |
//! | `quarry_slatedb_sorted_runs` | sorted runs that a read may have to search |
//! | `quarry_slatedb_memory_bytes` | bytes of the memtables and of the WAL buffer (refreshed by writes) |
//! | `quarry_slatedb_write_ops_total` | rows written, deleted or merged |
//! | `quarry_slatedb_backpressure_total` | writes that waited because `max_unflushed_bytes` was reached |
//! | `quarry_slatedb_l0_stalls_total` | memtable flushes that waited for compaction |
//! | `quarry_slatedb_wal_flushes_total` | WAL objects written |
//! | `quarry_slatedb_store_requests_total` | requests to the store by `method` (`get`, `head`, `list`, `put`, `delete`), each try counted |
//! | `quarry_slatedb_store_errors_total` | requests that failed, a probe for an object that does not exist yet among them |
//!
//! Store requests of the database, of its WAL and of its compactor add up.

use std::sync::Arc;

use metrics::{Counter, Gauge, Key, Label, Level, Metadata, Unit};
use slatedb::instrumented_object_store_stats as store_stats;
use slatedb::{db_stats, wal_buffer_stats};
use slatedb_common::metrics::{
    CounterFn, GaugeFn, HistogramFn, MetricsRecorder, NoopMetricsRecorder, UpDownCounterFn,
};

/// A SlateDB gauge that is forwarded.
struct GaugeRule {
    from: &'static str,
    to: &'static str,
    unit: Unit,
    help: &'static str,
}

/// A SlateDB counter that is forwarded. Its labels are dropped, so that its series add up to one for each shard; only
/// `by_method` keeps the kind of request.
struct CounterRule {
    from: &'static str,
    to: &'static str,
    by_method: bool,
    help: &'static str,
}

const GAUGES: [GaugeRule; 3] = [
    GaugeRule {
        from: db_stats::L0_SST_COUNT,
        to: "quarry_slatedb_l0_ssts",
        unit: Unit::Count,
        help: "L0 SSTs of a shard that wait for compaction",
    },
    GaugeRule {
        from: db_stats::SORTED_RUN_COUNT,
        to: "quarry_slatedb_sorted_runs",
        unit: Unit::Count,
        help: "Sorted runs of a shard that a read may have to search",
    },
    GaugeRule {
        from: db_stats::TOTAL_MEM_SIZE_BYTES,
        to: "quarry_slatedb_memory_bytes",
        unit: Unit::Bytes,
        help: "Bytes of a shard's memtables and WAL buffer",
    },
];

const COUNTERS: [CounterRule; 6] = [
    CounterRule {
        from: db_stats::WRITE_OPS,
        to: "quarry_slatedb_write_ops_total",
        by_method: false,
        help: "Rows that a shard wrote, deleted or merged",
    },
    CounterRule {
        from: db_stats::BACKPRESSURE_COUNT,
        to: "quarry_slatedb_backpressure_total",
        by_method: false,
        help: "Writes of a shard that waited for memory",
    },
    CounterRule {
        from: db_stats::L0_STALL_COUNT,
        to: "quarry_slatedb_l0_stalls_total",
        by_method: false,
        help: "Memtable flushes of a shard that waited for compaction",
    },
    CounterRule {
        from: wal_buffer_stats::WAL_BUFFER_FLUSHES,
        to: "quarry_slatedb_wal_flushes_total",
        by_method: false,
        help: "WAL objects that a shard wrote",
    },
    CounterRule {
        from: store_stats::REQUEST_COUNT,
        to: "quarry_slatedb_store_requests_total",
        by_method: true,
        help: "Requests of a shard's database to the object store",
    },
    CounterRule {
        from: store_stats::ERROR_COUNT,
        to: "quarry_slatedb_store_errors_total",
        by_method: false,
        help: "Requests of a shard's database to the object store that failed",
    },
];

/// Describes the forwarded metrics to the facade. Call it once, after its recorder was installed.
pub fn describe() {
    for rule in &GAUGES {
        metrics::describe_gauge!(rule.to, rule.unit, rule.help);
    }
    for rule in &COUNTERS {
        metrics::describe_counter!(rule.to, Unit::Count, rule.help);
    }
}

/// The recorder of one shard's database. Pass it to `DbBuilder::with_metrics_recorder` after the facade's own recorder was
/// installed: handles are resolved when SlateDB registers them, once, and an increment costs one atomic addition.
///
/// The series of a shard that was closed stay, as the facade cannot take them back: its counters stand still, and its
/// gauges go to 0. Their number is bounded by that of the shards.
#[derive(Debug)]
pub struct ShardRecorder {
    labels: [Label; 2],
}

impl ShardRecorder {
    /// The recorder of a shard.
    #[must_use]
    pub fn new(cluster: &str, shard: u32) -> Self {
        Self {
            labels: [
                Label::new("cluster", cluster.to_owned()),
                Label::new("shard", shard.to_string()),
            ],
        }
    }

    fn key(&self, name: &'static str, method: Option<&'static str>) -> Key {
        let mut labels = self.labels.to_vec();
        labels.extend(method.map(|method| Label::from_static_parts("method", method)));
        Key::from_parts(name, labels)
    }
}

impl MetricsRecorder for ShardRecorder {
    fn register_counter(
        &self,
        name: &str,
        description: &str,
        labels: &[(&str, &str)],
    ) -> Arc<dyn CounterFn> {
        let Some(rule) = COUNTERS.iter().find(|rule| rule.from == name) else {
            return NoopMetricsRecorder.register_counter(name, description, labels);
        };
        let key = self.key(rule.to, rule.by_method.then(|| method(labels)));
        Arc::new(ForwardedCounter(metrics::with_recorder(|facade| {
            facade.register_counter(&key, &METADATA)
        })))
    }

    fn register_gauge(
        &self,
        name: &str,
        description: &str,
        labels: &[(&str, &str)],
    ) -> Arc<dyn GaugeFn> {
        let Some(rule) = GAUGES.iter().find(|rule| rule.from == name) else {
            return NoopMetricsRecorder.register_gauge(name, description, labels);
        };
        let key = self.key(rule.to, None);
        Arc::new(ForwardedGauge(metrics::with_recorder(|facade| {
            facade.register_gauge(&key, &METADATA)
        })))
    }

    fn register_up_down_counter(
        &self,
        name: &str,
        description: &str,
        labels: &[(&str, &str)],
    ) -> Arc<dyn UpDownCounterFn> {
        NoopMetricsRecorder.register_up_down_counter(name, description, labels)
    }

    fn register_histogram(
        &self,
        name: &str,
        description: &str,
        labels: &[(&str, &str)],
        boundaries: &[f64],
    ) -> Arc<dyn HistogramFn> {
        NoopMetricsRecorder.register_histogram(name, description, labels, boundaries)
    }
}

const METADATA: Metadata<'static> =
    Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

/// The kind of a store request, from SlateDB's `api` label.
fn method(labels: &[(&str, &str)]) -> &'static str {
    match labels
        .iter()
        .find(|(name, _)| *name == "api")
        .map(|(_, api)| *api)
    {
        Some("get" | "get_range" | "get_ranges") => "get",
        Some("head") => "head",
        Some("list" | "list_with_offset" | "list_with_delimiter") => "list",
        Some("put" | "multipart_init" | "multipart_part" | "multipart_complete") => "put",
        Some("delete") => "delete",
        // A kind that a later SlateDB brings: still bounded.
        _ => "other",
    }
}

struct ForwardedCounter(Counter);

impl CounterFn for ForwardedCounter {
    fn increment(&self, value: u64) {
        self.0.increment(value);
    }
}

struct ForwardedGauge(Gauge);

impl GaugeFn for ForwardedGauge {
    #[expect(
        clippy::cast_precision_loss,
        reason = "the facade's gauges are floats; counts and bytes stay below 2^53"
    )]
    fn set(&self, value: i64) {
        self.0.set(value as f64);
    }
}

impl Drop for ForwardedGauge {
    /// The database is gone. Whoever looks at the node must not go on seeing its last L0 count.
    fn drop(&mut self) {
        self.0.set(0.0);
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
    use object_store::memory::InMemory;
    use slatedb::Db;

    use super::*;

    fn facade() -> PrometheusRecorder {
        PrometheusBuilder::new().build_recorder()
    }

    /// The samples of an exposition, without its comments, in order.
    fn samples(facade: &PrometheusRecorder) -> Vec<String> {
        let text = facade.handle().render();
        let mut samples: Vec<_> = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(str::to_owned)
            .collect();
        samples.sort();
        samples
    }

    #[test]
    fn counters_lose_their_labels_and_add_up() {
        let facade = facade();
        metrics::with_local_recorder(&facade, || {
            let shard = ShardRecorder::new("main", 7);
            shard
                .register_counter(db_stats::L0_STALL_COUNT, "", &[("type", "num_ssts")])
                .increment(2);
            shard
                .register_counter(
                    db_stats::L0_STALL_COUNT,
                    "",
                    &[("type", "num_ssts_per_key")],
                )
                .increment(3);
        });
        assert_eq!(
            samples(&facade),
            [r#"quarry_slatedb_l0_stalls_total{cluster="main",shard="7"} 5"#]
        );
    }

    #[test]
    fn store_requests_are_told_apart_by_their_kind_only() {
        let cases = [
            ("get", "get"),
            ("get_range", "get"),
            ("get_ranges", "get"),
            ("head", "head"),
            ("list", "list"),
            ("list_with_offset", "list"),
            ("list_with_delimiter", "list"),
            ("put", "put"),
            ("multipart_init", "put"),
            ("multipart_part", "put"),
            ("multipart_complete", "put"),
            ("delete", "delete"),
            ("a new one", "other"),
        ];
        for (api, kind) in cases {
            let facade = facade();
            metrics::with_local_recorder(&facade, || {
                let labels = [
                    ("component", "db"),
                    ("store_type", "main"),
                    ("op", "get"),
                    ("api", api),
                ];
                let shard = ShardRecorder::new("main", 0);
                shard
                    .register_counter(store_stats::REQUEST_COUNT, "", &labels)
                    .increment(1);
            });
            let expected = format!(
                r#"quarry_slatedb_store_requests_total{{cluster="main",shard="0",method="{kind}"}} 1"#
            );
            assert_eq!(samples(&facade), [expected], "{api}");
        }
    }

    #[test]
    fn a_gauge_goes_to_zero_with_its_database() {
        let facade = facade();
        metrics::with_local_recorder(&facade, || {
            let gauge =
                ShardRecorder::new("main", 1).register_gauge(db_stats::L0_SST_COUNT, "", &[]);
            gauge.set(6);
            assert_eq!(
                samples(&facade),
                [r#"quarry_slatedb_l0_ssts{cluster="main",shard="1"} 6"#]
            );
            drop(gauge);
        });
        assert_eq!(
            samples(&facade),
            [r#"quarry_slatedb_l0_ssts{cluster="main",shard="1"} 0"#]
        );
    }

    #[test]
    fn what_is_not_listed_is_discarded() {
        let facade = facade();
        metrics::with_local_recorder(&facade, || {
            let shard = ShardRecorder::new("main", 1);
            shard
                .register_counter(db_stats::REQUEST_COUNT, "", &[("op", "get")])
                .increment(1);
            shard.register_gauge(db_stats::SST_COUNT, "", &[]).set(1);
            shard
                .register_up_down_counter("slatedb.anything", "", &[])
                .increment(1);
            shard
                .register_histogram(store_stats::REQUEST_DURATION_SECONDS, "", &[], &[1.0])
                .record(1.0);
        });
        assert!(samples(&facade).is_empty(), "{:#?}", samples(&facade));
    }

    #[test]
    fn names_follow_the_rules_and_are_described() {
        let facade = facade();
        metrics::with_local_recorder(&facade, describe);
        for rule in &COUNTERS {
            assert!(
                rule.to.starts_with("quarry_slatedb_") && rule.to.ends_with("_total"),
                "{}",
                rule.to
            );
        }
        for rule in &GAUGES {
            assert!(
                rule.to.starts_with("quarry_slatedb_") && !rule.to.ends_with("_total"),
                "{}",
                rule.to
            );
        }
    }

    /// SlateDB's own registrations, so that a renamed or dropped metric of it fails here.
    #[tokio::test]
    async fn a_database_feeds_every_series_and_stays_within_the_bound() {
        let facade = facade();
        let guard = metrics::set_default_local_recorder(&facade);
        let recorder = Arc::new(ShardRecorder::new("main", 3));
        let db = Db::builder("shard-003", Arc::new(InMemory::new()))
            .with_metrics_recorder(recorder)
            .build()
            .await
            .expect("opens");
        db.put(b"key", b"value").await.expect("writes");
        db.flush().await.expect("flushes");
        drop(guard);
        let samples = samples(&facade);
        for name in GAUGES
            .iter()
            .map(|rule| rule.to)
            .chain(COUNTERS.iter().map(|rule| rule.to))
        {
            assert!(
                samples.iter().any(|sample| sample.starts_with(name)),
                "{name} is not in {samples:#?}"
            );
        }
        assert!(samples.len() <= 13, "{samples:#?}");
        let wrote = r#"quarry_slatedb_write_ops_total{cluster="main",shard="3"} 1"#;
        assert!(samples.iter().any(|sample| sample == wrote), "{samples:#?}");
        db.close().await.expect("closes");
    }
}

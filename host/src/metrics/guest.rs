//! The metrics that guests keep themselves, as `quarry_guest_NAME` with the labels `cluster`, `module` and their own.
//!
//! Guests are hostile, and series are for ever: no exporter forgets one. So a node keeps [`MODULES_MAX`] modules by name, each with its
//! bounds (`book.rs`), over any number of revisions and swaps. A module that comes again under its name goes on where it was. What is over
//! a bound or not well formed is dropped, counted and said once a minute; nothing fails.
//!
//! The registry is of the process, as the recorder is. Names that would render as those of another metric are refused by
//! `Families`, so that the text of all stays valid.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use metrics::{
    Counter, Gauge, Histogram, Label, counter, describe_counter, describe_gauge,
    describe_histogram, gauge, histogram,
};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder};

use super::{ALL, BUCKETS, GUEST_METRICS_DROPPED, Kind};
use crate::clock;

mod book;

use book::{Book, Dropped, Families, PREFIX};
pub use book::{
    HELP_MAX_BYTES, LABELS_MAX, NAME_MAX_BYTES, NAMES_MAX, SERIES_MAX, VALUE_MAX_BYTES,
};

/// Modules of a process that have metrics, by name; those of further names are dropped.
pub const MODULES_MAX: usize = 64;
/// Upper bounds of the buckets of guests' histograms.
pub const GUEST_BUCKETS: [f64; 25] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 2_500.0, 5_000.0, 10_000.0,
];
/// What was dropped is said once in this time.
const PAUSE: Duration = Duration::from_secs(60);

/// Everything that guests of this process named.
static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(|| {
    Mutex::new(Registry {
        modules: BTreeMap::new(),
        families: Families::new(ALL),
    })
});

struct Registry {
    modules: BTreeMap<(String, String), Arc<ModuleMetrics>>,
    families: Families,
}

/// The metrics of one module on this node, for all shards and revisions that run it.
pub struct ModuleMetrics {
    cluster: String,
    module: String,
    state: Mutex<State>,
}

struct State {
    /// None where nothing is kept.
    book: Option<Book<Handle>>,
    dropped: Option<Counter>,
    /// When it was last said what was dropped, and how much was since.
    said: Option<Instant>,
    unsaid: u64,
}

/// A series.
enum Handle {
    Counter(Counter),
    Gauge(Gauge),
    Histogram(Histogram),
}

/// The metrics of a module by its name, new or known.
#[must_use]
pub fn of(cluster: &str, module: &str) -> Arc<ModuleMetrics> {
    let mut registry = registry();
    let key = (cluster.to_owned(), module.to_owned());
    if let Some(known) = registry.modules.get(&key) {
        return known.clone();
    }
    if registry.modules.len() >= MODULES_MAX {
        tracing::warn!(
            module,
            "the metrics of this module are dropped: {MODULES_MAX} others have some on this node since it was started"
        );
        return Arc::new(ModuleMetrics::new(cluster, "other", None));
    }
    let made = Arc::new(ModuleMetrics::new(cluster, module, Some(Book::default())));
    registry.modules.insert(key, made.clone());
    made
}

/// Gives the metrics of guests their buckets; the host's own of such names keep theirs.
pub(super) fn with_buckets(builder: PrometheusBuilder) -> Result<PrometheusBuilder, BuildError> {
    let prefix = Matcher::Prefix(PREFIX.to_owned());
    let builder = builder.set_buckets_for_metric(prefix, &GUEST_BUCKETS)?;
    let own = ALL
        .iter()
        .filter(|metric| metric.kind == Kind::Histogram && metric.name.starts_with(PREFIX));
    own.into_iter().try_fold(builder, |builder, metric| {
        builder.set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), &BUCKETS)
    })
}

impl ModuleMetrics {
    fn new(cluster: &str, module: &str, book: Option<Book<Handle>>) -> Self {
        Self {
            cluster: cluster.into(),
            module: module.into(),
            state: Mutex::new(State {
                book,
                dropped: None,
                said: None,
                unsaid: 0,
            }),
        }
    }

    /// Metrics that go nowhere, for an instance that is of no shard.
    #[must_use]
    pub fn none() -> Arc<Self> {
        Arc::new(Self::new("", "", None))
    }

    /// Says what a metric is. The first text stays.
    pub fn describe(&self, name: &str, help: &str) {
        let mut state = self.lock();
        let described = match &mut state.book {
            Some(book) => book.describe(name, help),
            None => Err(Dropped::Nowhere),
        };
        match described {
            Ok(Some(kind)) => describe(kind, name, help),
            // It is said once the kind is known.
            Ok(None) => {}
            Err(why) => self.dropped(&mut state, name, &why),
        }
    }

    /// Adds to a counter.
    pub fn add(&self, name: &str, labels: Vec<(String, String)>, by: u64) {
        self.with(Kind::Counter, name, labels, |handle| {
            if let Handle::Counter(counter) = handle {
                counter.increment(by);
            }
        });
    }

    /// Sets a gauge.
    pub fn set(&self, name: &str, labels: Vec<(String, String)>, value: f64) {
        self.with(Kind::Gauge, name, labels, |handle| {
            if let Handle::Gauge(gauge) = handle {
                gauge.set(value);
            }
        });
    }

    /// Puts a value into a histogram; one that is no number or infinite is dropped, since it would spoil the sum for ever.
    pub fn observe(&self, name: &str, labels: Vec<(String, String)>, value: f64) {
        if !value.is_finite() {
            let mut state = self.lock();
            return self.dropped(&mut state, name, &Dropped::Value);
        }
        self.with(Kind::Histogram, name, labels, |handle| {
            if let Handle::Histogram(histogram) = handle {
                histogram.record(value);
            }
        });
    }

    fn with(
        &self,
        kind: Kind,
        name: &str,
        labels: Vec<(String, String)>,
        act: impl FnOnce(&Handle),
    ) {
        let mut state = self.lock();
        let Some(book) = &mut state.book else {
            return self.dropped(&mut state, name, &Dropped::Nowhere);
        };
        let claim = |kind, name: &str| registry().families.claim(kind, name);
        let make = |labels: &[(String, String)]| self.handle(kind, name, labels);
        match book.series(kind, name, labels, claim, make) {
            Ok(series) => {
                act(series.handle);
                if let Some(help) = series.help {
                    describe(kind, name, &help);
                }
            }
            Err(why) => self.dropped(&mut state, name, &why),
        }
    }

    fn handle(&self, kind: Kind, name: &str, own: &[(String, String)]) -> Handle {
        let mut labels = vec![
            Label::new("cluster", self.cluster.clone()),
            Label::new("module", self.module.clone()),
        ];
        // The exporter takes a single backslash for the beginning of an escape, and two for one that is escaped.
        let own = own
            .iter()
            .map(|(name, value)| Label::new(name.clone(), value.replace('\\', "\\\\")));
        labels.extend(own);
        let family = book::family(kind, name);
        match kind {
            Kind::Counter => Handle::Counter(counter!(family, labels)),
            Kind::Gauge => Handle::Gauge(gauge!(family, labels)),
            Kind::Histogram => Handle::Histogram(histogram!(family, labels)),
        }
    }

    fn dropped(&self, state: &mut State, name: &str, why: &Dropped) {
        // What options are checked with is of no module.
        if self.module.is_empty() {
            return;
        }
        let dropped = state.dropped.get_or_insert_with(|| {
            let labels = vec![
                Label::new("cluster", self.cluster.clone()),
                Label::new("module", self.module.clone()),
            ];
            counter!(GUEST_METRICS_DROPPED.name, labels)
        });
        dropped.increment(1);
        state.unsaid += 1;
        let now = clock::now();
        if state
            .said
            .is_some_and(|said| now.saturating_duration_since(said) < PAUSE)
        {
            return;
        }
        state.said = Some(now);
        let uses = std::mem::take(&mut state.unsaid);
        let name: String = name.chars().take(NAME_MAX_BYTES).collect();
        tracing::warn!(module = self.module, metric = %name.escape_debug(), %why, uses, "metrics of a guest were dropped");
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn describe(kind: Kind, name: &str, help: &str) {
    let (family, help) = (book::family(kind, name), help.to_owned());
    match kind {
        Kind::Counter => describe_counter!(family, help),
        Kind::Gauge => describe_gauge!(family, help),
        Kind::Histogram => describe_histogram!(family, help),
    }
}

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;

//! Loops that measure, and what they found.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;
use tokio::task::JoinSet;

use crate::clock;

/// What a measurement found.
#[derive(Debug, Clone, Serialize)]
pub struct Entry {
    /// What was measured, such as `counter, durable, 64 callers`.
    pub name: String,
    /// How: `guest`, `native`, `store`.
    pub what: String,
    /// How often in a second, all callers together.
    pub per_second: f64,
    /// Half were quicker, in microseconds.
    pub p50_us: f64,
    /// 99 of 100 were quicker, in microseconds.
    pub p99_us: f64,
    /// How many there were.
    pub count: u64,
    /// How many failed.
    pub failed: u64,
}

/// Latencies and their time.
pub(super) struct Sample {
    histogram: Histogram<u64>,
    failed: u64,
    elapsed: Duration,
}

impl Sample {
    pub fn new() -> Self {
        // From a nanosecond to an hour.
        let histogram = Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("valid bounds");
        Self {
            histogram,
            failed: 0,
            elapsed: Duration::ZERO,
        }
    }

    pub fn of(latencies: &[u64], elapsed: Duration) -> Self {
        let mut sample = Self::new();
        for nanos in latencies {
            sample.histogram.saturating_record(*nanos);
        }
        sample.elapsed = elapsed;
        sample
    }

    pub fn record(&mut self, took: Duration, ok: bool) {
        self.histogram
            .saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        self.failed += u64::from(!ok);
    }

    pub fn add(&mut self, other: &Self) {
        self.histogram += &other.histogram;
        self.failed += other.failed;
        self.elapsed = self.elapsed.max(other.elapsed);
    }

    pub fn p99(&self) -> Duration {
        self.at(0.99)
    }

    pub fn at(&self, quantile: f64) -> Duration {
        Duration::from_nanos(self.histogram.value_at_quantile(quantile))
    }

    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    pub fn entry(&self, name: impl Into<String>, what: &str) -> Entry {
        let micros = |quantile| self.histogram.value_at_quantile(quantile) as f64 / 1000.0;
        Entry {
            name: name.into(),
            what: what.into(),
            per_second: self.histogram.len() as f64 / self.elapsed.as_secs_f64().max(f64::EPSILON),
            p50_us: micros(0.5),
            p99_us: micros(0.99),
            count: self.histogram.len(),
            failed: self.failed,
        }
    }
}

/// Runs `work` again and again with so many callers at once, for a tenth of the time to warm up and then for `time`. `work` gets
/// the caller's number and says whether it went well.
pub(super) async fn callers<F>(
    callers: usize,
    time: Duration,
    work: impl Fn(usize) -> F + Send + Sync + 'static,
) -> Sample
where
    F: Future<Output = bool> + Send,
{
    let work = Arc::new(work);
    let begun = clock::now();
    let warm = begun + time / 10;
    let end = warm + time;
    let mut running = JoinSet::new();
    for caller in 0..callers {
        let work = work.clone();
        running.spawn(async move {
            let mut sample = Sample::new();
            let mut now: Instant = clock::now();
            while now < end {
                let ok = work(caller).await;
                let then = clock::now();
                if now >= warm {
                    sample.record(then - now, ok);
                    sample.elapsed = then - warm;
                }
                now = then;
            }
            sample
        });
    }
    let mut all = Sample::new();
    while let Some(sample) = running.join_next().await {
        if let Ok(sample) = sample {
            all.add(&sample);
        }
    }
    all
}

//! What a swap costs those who call meanwhile: one revision for another and back, on all shards of a node, under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use tokio::task::JoinSet;

use super::measure::Sample;
use super::{Error, start};
use crate::Cluster;
use crate::call::{CallOptions, Target};
use crate::clock;
use crate::config::Config;
use crate::guest::Module;

/// What is measured.
#[derive(Debug, Clone)]
pub struct Options {
    /// How many swaps.
    pub swaps: u32,
    /// How many shards.
    pub shards: u32,
    /// How many callers at once.
    pub callers: u32,
    /// The store, by its URL.
    pub store: String,
}

/// What was found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// How many shards there were.
    pub shards: u32,
    /// How many callers.
    pub callers: u32,
    /// How many swaps of all shards.
    pub swaps: u32,
    /// How long a swap of all shards took: half of them less than this, 99 of 100 less than that, and the longest; in milliseconds.
    pub took_ms: [f64; 3],
    /// The pauses of all shards in all swaps: half of them less than this, 99 of 100 less than that, and the longest; in milliseconds.
    pub pause_ms: [f64; 3],
    /// The longest pause of a swap: the median of all swaps, in milliseconds.
    pub longest_of_a_swap_ms: f64,
    /// Calls that were answered; none failed, or there were no report.
    pub calls: u64,
    /// Their latency: p50 and p99, in milliseconds.
    pub call_ms: [f64; 2],
}

impl Options {
    /// The node's configuration.
    #[must_use]
    pub fn config(&self) -> Config {
        let mut config = Config {
            store: self.store.clone(),
            path: format!("bench-{:016x}", rand::random::<u64>()),
            shards: self.shards,
            node: "bench".into(),
            ..Config::default()
        };
        // One of each shard that runs, and one that takes over.
        config.limits.instances = Some(self.shards * 2 + 64);
        config
    }
}

impl Report {
    /// For people.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let [p50, p99, most] = self.took_ms;
        let [pause, tail, worst] = self.pause_ms;
        let [call, slow] = self.call_ms;
        vec![
            format!(
                "{} swaps of {} shards under {} callers: {} calls answered, none failed, no increment lost or doubled",
                self.swaps, self.shards, self.callers, self.calls
            ),
            format!(
                "  all shards swapped in: p50 {p50:.1} ms, p99 {p99:.1} ms, longest {most:.1} ms"
            ),
            format!(
                "  pause of a shard: p50 {pause:.2} ms, p99 {tail:.2} ms, longest {worst:.2} ms; the longest of a swap is {:.2} ms in the median",
                self.longest_of_a_swap_ms
            ),
            format!("  latency of calls meanwhile: p50 {call:.2} ms, p99 {slow:.2} ms"),
        ]
    }
}

/// Swaps `revisions`, the first of which runs, in turn.
///
/// # Errors
/// When a node does not start, a swap fails, a call fails, or a count is not what it has to be.
pub async fn measure(
    options: &Options,
    config: Config,
    revisions: &[Arc<dyn Module>],
    progress: impl Fn(&str),
) -> Result<Report, Error> {
    let [first, ..] = revisions else {
        return Err(Error("there is nothing to swap".into()));
    };
    let cluster = start(config, first.clone()).await?;
    let mut load = Load::start(&cluster, options.callers);
    let mut took = Sample::new();
    let (mut pauses, mut longest) = (Sample::new(), Sample::new());
    for swap in 0..options.swaps {
        if swap % 50 == 0 {
            progress(&format!("swap {swap} of {}", options.swaps));
        }
        // Calls are in progress when a swap begins.
        load.goes_on().await?;
        let next = &revisions[(swap as usize + 1) % revisions.len()];
        let report = cluster.swap(next.clone()).await;
        let report = report.map_err(|error| Error(format!("swap {swap}: {error}")))?;
        took.record(report.took, true);
        longest.record(report.longest_pause(), true);
        for pause in report.pauses {
            pauses.record(pause, true);
        }
    }
    let calls = load.end().await?;
    cluster.stop().await;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let at = |sample: &Sample, quantile| ms(sample.at(quantile));
    Ok(Report {
        shards: options.shards,
        callers: options.callers,
        swaps: options.swaps,
        took_ms: [0.5, 0.99, 1.0].map(|quantile| at(&took, quantile)),
        pause_ms: [0.5, 0.99, 1.0].map(|quantile| at(&pauses, quantile)),
        longest_of_a_swap_ms: at(&longest, 0.5),
        calls: calls.count(),
        call_ms: [at(&calls, 0.5), at(&calls, 0.99)],
    })
}

/// Callers that count.
struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    callers: JoinSet<Result<Sample, String>>,
}

/// Keys of a caller.
const KEYS: u64 = 16;
/// Longest wait for a call that is answered.
const PATIENCE: Duration = Duration::from_secs(60);

impl Load {
    fn start(cluster: &Cluster, callers: u32) -> Self {
        let (stop, answered) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let mut running = JoinSet::new();
        for caller in 0..callers {
            let (cluster, stop, answered) = (cluster.clone(), stop.clone(), answered.clone());
            running.spawn(async move {
                let mut sample = Sample::new();
                for call in 0_u64.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let (key, before) = (call % KEYS, call / KEYS);
                    let began = clock::now();
                    let target = Target::key(format!("caller-{caller}-{key}"));
                    let reply = cluster
                        .call(target, "increment", Bytes::new(), CallOptions::default())
                        .await;
                    let reply = reply.map_err(|error| format!("call {call} failed: {error}"))?;
                    sample.record(clock::now() - began, true);
                    answered.fetch_add(1, Ordering::Relaxed);
                    if reply.payload != (before + 1).to_string() {
                        return Err(format!(
                            "an increment was lost or doubled: {before} and 1 came to {:?}",
                            reply.payload
                        ));
                    }
                }
                Ok(sample)
            });
        }
        Self {
            stop,
            answered,
            callers: running,
        }
    }

    /// Waits until a further call of each caller, about, was answered.
    async fn goes_on(&mut self) -> Result<(), Error> {
        let most = self.answered.load(Ordering::Relaxed) + self.callers.len() as u64;
        let end = clock::now() + PATIENCE;
        while self.answered.load(Ordering::Relaxed) < most {
            // None ends before it is told to.
            if let Some(ended) = self.callers.try_join_next() {
                let failed = ended.map_err(|error| Error(error.to_string()))?.err();
                return Err(Error(failed.unwrap_or_else(|| "a caller ended".into())));
            }
            if clock::now() > end {
                return Err(Error(format!("callers had no answers within {PATIENCE:?}")));
            }
            clock::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    async fn end(mut self) -> Result<Sample, Error> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Sample::new();
        while let Some(caller) = self.callers.join_next().await {
            let sample = caller
                .map_err(|error| Error(error.to_string()))?
                .map_err(Error)?;
            all.add(&sample);
        }
        Ok(all)
    }
}

//! What compiling a large component costs those beside it: calls of the shards of the same node, and the renewals of its leases.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde::Serialize;
use tokio::task::JoinSet;

use super::measure::Sample;
use super::{Error, native, start};
use crate::Cluster;
use crate::call::{CallOptions, Durability, Target};
use crate::clock;
use crate::config::{Config, Probe, Strategy};
use crate::guest::wasm::{Runtime, RuntimeOptions};
use crate::guest::{Limits, Module};

/// The pause of a caller between two calls: the load is to leave room, so that what is found is what compiling costs.
const PAUSE: Duration = Duration::from_millis(2);
/// How often the record of the node is looked at: far more often than it is renewed.
const LOOK: Duration = Duration::from_millis(10);

/// What is measured.
#[derive(Debug, Clone)]
pub struct Options {
    /// The component that is compiled.
    pub component: Bytes,
    /// How long calls are measured without it.
    pub time: Duration,
    /// How many shards.
    pub shards: u32,
    /// How many callers on each shard that wait until their writes are durable, and as many that do not.
    pub callers: u32,
    /// How long a lease lasts; renewed every third of it.
    pub ttl: Duration,
    /// A folder that is there, for the data and for the cache of compiled components. Both have to be empty.
    pub folder: PathBuf,
}

/// What was found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The size of the component, in bytes.
    pub size: u64,
    /// How long it took to compile, beside the calls, in milliseconds.
    pub compile_ms: f64,
    /// Threads that compiled.
    pub compile_threads: usize,
    /// How many shards served calls.
    pub shards: u32,
    /// Without it.
    pub alone: Phase,
    /// While it was compiled.
    pub beside: Phase,
}

/// What was found in a time.
#[derive(Debug, Clone, Serialize)]
pub struct Phase {
    /// Calls that did not wait until their writes were durable.
    pub applied: Calls,
    /// Calls that did.
    pub durable: Calls,
    /// The renewals of the leases.
    pub renewals: Renewals,
}

/// Latencies of calls, in milliseconds.
#[derive(Debug, Clone, Serialize)]
pub struct Calls {
    /// How many were answered; none failed, or there were no report.
    pub count: u64,
    /// Half of them took less.
    pub p50_ms: f64,
    /// 99 of 100 took less.
    pub p99_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

/// How punctual renewals were.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Renewals {
    /// How many there were.
    pub count: usize,
    /// What is to lie between two of them, in milliseconds.
    pub interval_ms: f64,
    /// The latest came so much later than that after the one before, in milliseconds. A lease is lost when it is as late as the rest of its time.
    pub late_max_ms: f64,
}

impl Options {
    /// The node's configuration: leases in a folder, as the only node.
    #[must_use]
    pub fn config(&self) -> Config {
        let mut config = Config {
            store: format!("file://{}", self.folder.join("store").display()),
            shards: self.shards,
            node: "bench".into(),
            strategy: Strategy::Lease,
            probe: Probe::Off,
            ..Config::default()
        };
        config.lease.ttl = self.ttl;
        config
    }

    /// An engine with nothing in its cache.
    ///
    /// # Errors
    /// When the machine does not give what it needs.
    pub fn engine(&self, config: &Config) -> Result<Arc<Runtime>, Error> {
        let options = RuntimeOptions {
            instances: config.instances(),
            writers: config.writers(),
            compile_threads: config.threads.compile,
            cache_dir: Some(self.folder.join("cache")),
        };
        Runtime::new(options).map_err(|error| Error(error.to_string()))
    }
}

impl Report {
    /// For people.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "a component of {:.1} MB, compiled in {:.1} s by {} threads at low priority, beside calls to {} shards; no call failed, no lease was lost",
            self.size as f64 / 1e6,
            self.compile_ms / 1e3,
            self.compile_threads,
            self.shards
        )];
        for (name, of) in [
            ("applied", [&self.alone.applied, &self.beside.applied]),
            ("durable", [&self.alone.durable, &self.beside.durable]),
        ] {
            for (when, calls) in ["alone", "beside"].into_iter().zip(of) {
                lines.push(format!(
                    "  calls, {name}, {when:<6}: p50 {:.2} ms, p99 {:.2} ms, longest {:.2} ms, of {}",
                    calls.p50_ms, calls.p99_ms, calls.max_ms, calls.count
                ));
            }
        }
        for (when, phase) in [("alone", &self.alone), ("beside", &self.beside)] {
            let renewals = &phase.renewals;
            lines.push(format!(
                "  renewals of leases, {when:<6}: {} of one every {:.0} ms, at most {:.1} ms late",
                renewals.count, renewals.interval_ms, renewals.late_max_ms
            ));
        }
        lines
    }
}

/// Measures. The shards run `own`, or native code where there is none.
///
/// # Errors
/// When the node does not start, a call fails, a lease is lost, or the component cannot be compiled.
pub async fn measure(
    options: &Options,
    own: Option<&Bytes>,
    progress: impl Fn(&str),
) -> Result<Report, Error> {
    let config = options.config();
    let engine = options.engine(&config)?;
    let limits = Arc::new(Limits::from(&config));
    let load = |bytes: &Bytes, revision| {
        let loaded = engine.load(bytes.clone(), "main".into(), revision, limits.clone());
        async move { loaded.await.map_err(|error| Error(error.to_string())) }
    };
    let module = match own {
        Some(bytes) => load(bytes, 1).await? as Arc<dyn Module>,
        None => native::module(),
    };
    let record = options.folder.join("store/_quarry/nodes/bench.json");
    let interval = config.lease.interval.unwrap_or(options.ttl / 3);
    let compile_threads = config.threads.compile;
    let cluster = start(config, module).await?;

    progress("calls, alone");
    let measuring = Measuring::start(&cluster, options.callers, &record);
    clock::sleep(options.time).await;
    let alone = measuring.end(interval).await?;
    progress("calls, while the component is compiled");
    let measuring = Measuring::start(&cluster, options.callers, &record);
    let begun = clock::now();
    let compiled = load(&options.component, 2).await;
    let took = clock::now() - begun;
    let beside = measuring.end(interval).await?;
    compiled?;

    let lost: Vec<u32> = (0..options.shards)
        .filter(|shard| !matches!(cluster.shard_report(*shard), Ok(report) if report.opens == 1))
        .collect();
    cluster.stop().await;
    if !lost.is_empty() {
        return Err(Error(format!(
            "the leases of the shards {lost:?} were lost"
        )));
    }
    Ok(Report {
        size: options.component.len() as u64,
        compile_ms: ms(took),
        compile_threads,
        shards: options.shards,
        alone,
        beside,
    })
}

/// Callers and whoever watches the leases, until they are told to end.
struct Measuring {
    ending: Arc<AtomicBool>,
    callers: JoinSet<Result<(Durability, Sample), Error>>,
    renewals: tokio::task::JoinHandle<Vec<SystemTime>>,
}

impl Measuring {
    fn start(cluster: &Cluster, callers: u32, record: &Path) -> Self {
        let ending = Arc::new(AtomicBool::new(false));
        let mut running = JoinSet::new();
        for shard in 0..cluster.shards() {
            for caller in 0..callers * 2 {
                let durability = match caller % 2 {
                    0 => Durability::Applied,
                    _ => Durability::Durable,
                };
                let (cluster, ending) = (cluster.clone(), ending.clone());
                running.spawn(call(cluster, shard, durability, ending));
            }
        }
        Self {
            renewals: tokio::spawn(watch(record.to_owned(), ending.clone())),
            ending,
            callers: running,
        }
    }

    async fn end(mut self, interval: Duration) -> Result<Phase, Error> {
        self.ending.store(true, Ordering::Relaxed);
        let (mut applied, mut durable) = (Sample::new(), Sample::new());
        while let Some(ended) = self.callers.join_next().await {
            let (durability, sample) = ended.map_err(|error| Error(error.to_string()))??;
            match durability {
                Durability::Applied => applied.add(&sample),
                Durability::Durable => durable.add(&sample),
            }
        }
        let times = self.renewals.await;
        let times = times.map_err(|error| Error(error.to_string()))?;
        Ok(Phase {
            applied: calls(&applied),
            durable: calls(&durable),
            renewals: punctual(&times, interval),
        })
    }
}

async fn call(
    cluster: Cluster,
    shard: u32,
    durability: Durability,
    ending: Arc<AtomicBool>,
) -> Result<(Durability, Sample), Error> {
    let mut sample = Sample::new();
    while !ending.load(Ordering::Relaxed) {
        let options = CallOptions {
            durability: Some(durability),
            ..CallOptions::default()
        };
        let begun = clock::now();
        let target = Target::Shard(shard);
        let reply = cluster.call(target, "increment", Bytes::new(), options);
        let reply = reply.await;
        sample.record(clock::now() - begun, reply.is_ok());
        reply.map_err(|error| Error(format!("a call to shard {shard} failed: {error}")))?;
        clock::sleep(PAUSE).await;
    }
    Ok((durability, sample))
}

/// When the record of the node was written, by the folder.
async fn watch(record: PathBuf, ending: Arc<AtomicBool>) -> Vec<SystemTime> {
    let mut times: Vec<SystemTime> = Vec::new();
    while !ending.load(Ordering::Relaxed) {
        let written = tokio::fs::metadata(&record).await;
        if let Ok(time) = written.and_then(|found| found.modified())
            && times.last() != Some(&time)
        {
            times.push(time);
        }
        clock::sleep(LOOK).await;
    }
    times
}

fn punctual(times: &[SystemTime], interval: Duration) -> Renewals {
    let gaps = times
        .windows(2)
        .map(|pair| pair[1].duration_since(pair[0]).unwrap_or_default());
    let late = gaps.map(|gap| gap.saturating_sub(interval));
    Renewals {
        // The first is of before.
        count: times.len().saturating_sub(1),
        interval_ms: ms(interval),
        late_max_ms: ms(late.max().unwrap_or_default()),
    }
}

fn calls(sample: &Sample) -> Calls {
    let at = |quantile| ms(sample.at(quantile));
    Calls {
        count: sample.count(),
        p50_ms: at(0.5),
        p99_ms: at(0.99),
        max_ms: at(1.0),
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewal_is_late_by_what_it_has_over_its_interval() {
        let at = |ms| SystemTime::UNIX_EPOCH + Duration::from_millis(ms);
        for (times, count, late) in [
            (&[][..], 0, 0.0),
            (&[at(5)], 0, 0.0),
            (&[at(0), at(90), at(190)], 2, 0.0),
            (&[at(0), at(130), at(200), at(320)], 3, 30.0),
        ] {
            let found = punctual(times, Duration::from_millis(100));
            assert_eq!((found.count, found.late_max_ms), (count, late), "{times:?}");
        }
    }
}

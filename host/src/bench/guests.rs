//! What a guest costs that runs the scripts of the conformance kit: its component, its start, its memory, its calls. Several guests are measured in
//! turns, so that what the machine does besides costs each the same.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use super::measure::{Sample, callers};
use super::resident::Reserved;
use super::{Error, start};
use crate::Cluster;
use crate::call::{CallOptions, Durability, Target};
use crate::clock;
use crate::config::{Config, Probe};
use crate::guest::wasm::{Runtime, RuntimeOptions};
use crate::guest::{Limits, Module};
use crate::metrics;

/// How often each guest gets its turn; the best one counts.
const TURNS: usize = 3;
/// Calls in a row on a shard's own thread in a turn.
const CALLS: usize = 5_000;
/// Starts of an instance in a turn.
const STARTS: usize = 10;
/// Instances whose memory is measured.
const INSTANCES: u32 = 32;
/// Callers of the throughput.
const CALLERS: usize = 64;

/// A guest to be measured.
#[derive(Debug, Clone)]
pub struct Guest {
    /// Its name in the report.
    pub name: String,
    /// Its component.
    pub component: Bytes,
    /// A payload of the method `run` that reads a key, and writes one.
    pub get_and_put: Bytes,
}

/// What was found of a guest.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    /// The guest.
    pub name: String,
    /// The size of its component, in bytes.
    pub size: u64,
    /// How long it took to compile, in milliseconds, with nothing in the cache.
    pub compile_ms: f64,
    /// The start of an instance, p50, in microseconds.
    pub start_us: f64,
    /// The linear memory of an instance that ran a call, in KiB. None where the system does not say (other than Linux).
    pub memory_kib: Option<f64>,
    /// What it has touched of that, in KiB; of a page that instances share, the part of one. The process has this much more for each instance,
    /// beside what the host keeps of a shard.
    pub touched_kib: Option<f64>,
    /// A call that does nothing, on its shard's thread, p50, in microseconds.
    pub empty_us: f64,
    /// A call that reads a key and writes one, p50, in microseconds.
    pub get_and_put_us: f64,
    /// Such calls a second by 64 callers on one shard, not waiting for them to be durable.
    pub per_second: f64,
}

/// Measures guests, for `time` each turn of the throughput.
///
/// # Errors
/// When a component cannot be a guest, a node does not start, or a call fails.
pub async fn measure(
    guests: &[Guest],
    time: Duration,
    progress: impl Fn(&str),
) -> Result<Vec<Figures>, Error> {
    metrics::install();
    let mut measured = Vec::new();
    for guest in guests {
        progress(&format!("figures: compiling {}", guest.name));
        measured.push(Measured::new(guest).await?);
    }
    for turn in 1..=TURNS {
        for measured in &mut measured {
            progress(&format!(
                "figures: {}, turn {turn} of {TURNS}",
                measured.figures.name
            ));
            measured.turn(time).await?;
        }
    }
    let mut figures = Vec::new();
    for measured in measured {
        measured.cluster.stop().await;
        figures.push(measured.figures);
    }
    Ok(figures)
}

/// A guest in the middle of it.
struct Measured {
    cluster: Cluster,
    get_and_put: Bytes,
    figures: Figures,
}

impl Measured {
    async fn new(guest: &Guest) -> Result<Self, Error> {
        // A cache of its own, which is empty and goes again: none would be that of all nodes of this user, who may have run the guest before.
        let folder = tempfile::tempdir().map_err(|error| Error(error.to_string()))?;
        let options = RuntimeOptions {
            instances: INSTANCES + 16,
            writers: INSTANCES,
            compile_threads: 1,
            cache_dir: Some(folder.path().to_owned()),
        };
        let runtime = Runtime::new(options).map_err(|error| Error(error.to_string()))?;
        let reserved = Reserved::now();
        let begun = clock::now();
        let one = config(1);
        let module = load(&runtime, guest, &one).await?;
        let compile_ms = (clock::now() - begun).as_secs_f64() * 1e3;
        let [memory_kib, touched_kib] = memory(module.clone(), guest, &reserved).await?;
        Ok(Self {
            cluster: start(one, module).await?,
            get_and_put: guest.get_and_put.clone(),
            figures: Figures {
                name: guest.name.clone(),
                size: guest.component.len() as u64,
                compile_ms,
                start_us: f64::INFINITY,
                memory_kib,
                touched_kib,
                empty_us: f64::INFINITY,
                get_and_put_us: f64::INFINITY,
                per_second: 0.0,
            },
        })
    }

    async fn turn(&mut self, time: Duration) -> Result<(), Error> {
        let failed = |error: crate::call::CallError| Error(error.to_string());
        let figures = &mut self.figures;
        let mut starts = Sample::new();
        for _ in 0..STARTS {
            let begun = clock::now();
            self.cluster.restart_shard(0).await.map_err(failed)?;
            starts.record(clock::now() - begun, true);
        }
        figures.start_us = figures.start_us.min(micros(starts.at(0.5)));
        for (payload, best) in [
            (Bytes::new(), &mut figures.empty_us),
            (self.get_and_put.clone(), &mut figures.get_and_put_us),
        ] {
            let times = self.cluster.measure(0, "run", payload, CALLS).await;
            let sample = Sample::of(&times.map_err(failed)?, Duration::ZERO);
            *best = best.min(micros(sample.at(0.5)));
        }
        let (cluster, payload) = (self.cluster.clone(), self.get_and_put.clone());
        let sample = callers(CALLERS, time, move |_| {
            let (cluster, payload) = (cluster.clone(), payload.clone());
            async move { run(&cluster, 0, payload).await.is_ok() }
        })
        .await;
        let entry = sample.entry("", "");
        if entry.failed > 0 {
            return Err(Error(format!(
                "{} of {} calls of {} failed",
                entry.failed, entry.count, figures.name
            )));
        }
        figures.per_second = figures.per_second.max(entry.per_second);
        Ok(())
    }
}

/// The linear memory of an instance that ran a call, and what is touched of it, in KiB.
async fn memory(
    module: Arc<dyn Module>,
    guest: &Guest,
    reserved: &Reserved,
) -> Result<[Option<f64>; 2], Error> {
    let before = reserved.used();
    let cluster = start(config(INSTANCES), module).await?;
    for shard in 0..INSTANCES {
        let ran = run(&cluster, shard, guest.get_and_put.clone()).await;
        ran.map_err(|error| Error(format!("{}: {error}", guest.name)))?;
    }
    let after = reserved.used();
    cluster.stop().await;
    let each = |before: u64, after: u64| {
        after.saturating_sub(before) as f64 / 1024.0 / f64::from(INSTANCES)
    };
    Ok(match before.zip(after) {
        Some((before, after)) => [
            Some(each(before.size, after.size)),
            Some(each(before.touched, after.touched)),
        ],
        None => [None, None],
    })
}

async fn run(
    cluster: &Cluster,
    shard: u32,
    payload: Bytes,
) -> Result<crate::call::CallReply, crate::call::CallError> {
    let options = CallOptions {
        durability: Some(Durability::Applied),
        ..CallOptions::default()
    };
    let target = Target::Shard(shard);
    cluster.call(target, "run", payload, options).await
}

async fn load(
    runtime: &Arc<Runtime>,
    guest: &Guest,
    config: &Config,
) -> Result<Arc<dyn Module>, Error> {
    let limits = Arc::new(Limits::from(config));
    let loaded = runtime
        .load(guest.component.clone(), "main".into(), 1, limits)
        .await;
    match loaded {
        Ok(module) => Ok(module),
        Err(error) => Err(Error(format!("{}: {error}", guest.name))),
    }
}

fn config(shards: u32) -> Config {
    let mut config = Config {
        shards,
        node: "bench".into(),
        probe: Probe::Off,
        ..Config::default()
    };
    config.threads.shard = 1;
    config.limits.instances = Some(shards + 8);
    config
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

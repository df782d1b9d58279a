//! What idle shards cost: memory, and time of a core.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::{Error, Options, config, start};
use crate::clock;
use crate::config::Config;
use crate::guest::Module;

/// What so many idle shards cost.
#[derive(Debug, Clone, Serialize)]
pub struct Idle {
    /// How many shards.
    pub shards: u32,
    /// How long it took to open them, in seconds.
    pub open_seconds: f64,
    /// Memory that the process has more than before, in MiB.
    pub memory_mib: f64,
    /// Time of a core that the process uses while nothing happens, in percent.
    pub cpu_percent: f64,
}

pub(super) async fn measure<F>(
    options: &Options,
    make: &impl Fn(Config) -> F,
) -> Result<Idle, Error>
where
    F: Future<Output = Result<Arc<dyn Module>, String>>,
{
    let mut config = config("memory:", options);
    config.shards = options.idle_shards;
    config.limits.instances = Some(options.idle_shards + 64);
    let module = make(config.clone()).await.map_err(Error)?;
    let before = memory_mib();
    let begun = clock::now();
    let cluster = start(config, module).await?;
    let open_seconds = (clock::now() - begun).as_secs_f64();
    // The opening itself writes a little, and that is flushed.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let memory_mib = memory_mib() - before;
    let time = options.time.max(Duration::from_secs(5));
    let cpu = cpu_seconds();
    tokio::time::sleep(time).await;
    let cpu_percent = (cpu_seconds() - cpu) / time.as_secs_f64() * 100.0;
    cluster.stop().await;
    Ok(Idle {
        shards: options.idle_shards,
        open_seconds,
        memory_mib,
        cpu_percent,
    })
}

/// Resident memory of this process; 0 where the system does not say.
fn memory_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or_default() / 1024.0
}

/// CPU time of this process so far; 0 where the system does not say.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in parentheses may hold blanks; user and system time are the 12th and 13th field after it, in hundredths of a second.
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let ticks = |n: usize| {
        fields
            .get(n)
            .and_then(|field| field.parse::<f64>().ok())
            .unwrap_or_default()
    };
    (ticks(11) + ticks(12)) / 100.0
}

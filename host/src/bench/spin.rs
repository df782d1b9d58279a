//! What a guest that never ends its call costs the other shards.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::measure::callers;
use super::{Error, Options, config, start};
use crate::Cluster;
use crate::call::{CallOptions, Durability, Target};
use crate::config::Config;
use crate::guest::Module;

/// What a spinning shard costs a neighbour.
#[derive(Debug, Clone, Serialize)]
pub struct Spin {
    /// Shard threads; with one, the neighbour shares it.
    pub shard_threads: usize,
    /// 99 of 100 of the neighbour's calls were quicker while the other shard was idle, in microseconds.
    pub alone_p99_us: f64,
    /// The same while it spun.
    pub beside_p99_us: f64,
}

pub(super) async fn measure<F>(
    options: &Options,
    threads: usize,
    make: &impl Fn(Config) -> F,
) -> Result<Spin, Error>
where
    F: Future<Output = Result<Arc<dyn Module>, String>>,
{
    let mut config = config("memory:", options);
    config.shards = 2;
    config.threads.shard = threads;
    // One call spins for as long as is measured, and then ends at its limit.
    config.limits.cpu_time = options.time + Duration::from_secs(2);
    config.limits.wall_time = options.time * 8 + Duration::from_secs(60);
    let module = make(config.clone()).await.map_err(Error)?;
    let cluster = start(config, module).await?;
    let alone = neighbour(&cluster, options.time).await;
    let spinning = tokio::spawn({
        let cluster = cluster.clone();
        async move {
            cluster
                .call(
                    Target::Shard(0),
                    "spin",
                    bytes::Bytes::new(),
                    CallOptions::default(),
                )
                .await
        }
    });
    let beside = neighbour(&cluster, options.time).await;
    spinning.abort();
    cluster.stop().await;
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    Ok(Spin {
        shard_threads: threads,
        alone_p99_us: us(alone),
        beside_p99_us: us(beside),
    })
}

async fn neighbour(cluster: &Cluster, time: Duration) -> Duration {
    let cluster = cluster.clone();
    let sample = callers(1, time, move |_| {
        let cluster = cluster.clone();
        async move {
            let options = CallOptions {
                durability: Some(Durability::Applied),
                ..CallOptions::default()
            };
            cluster
                .call(Target::Shard(1), "increment", bytes::Bytes::new(), options)
                .await
                .is_ok()
        }
    })
    .await;
    sample.p99()
}

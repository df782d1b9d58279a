//! The garbage collection of one shard: a pass when its garbage is due, one shard at a time over the node.

use std::time::Duration;

use slatedb::Db;
use slatedb::config::{GarbageCollectorDirectoryOptions, GarbageCollectorOptions};

use super::super::time;
use super::plan::{Footprint, Garbage, GcPolicy, first_pass};
use super::{Options, Tending};
use crate::clock::{self, timeout};

/// Added to the time in which garbage settles, since ages are counted on the store's clock.
const SLACK: Duration = Duration::from_secs(5);

/// Time between two looks at a busy shard.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Collects the shard's garbage whenever it is due, until it is stopped or its database closes.
pub(super) async fn tend(tending: Tending, jitter: f64) {
    let Tending {
        node,
        shard,
        stop,
        totals,
    } = &tending;
    let options = &node.options;
    let policy = policy(options);
    // When exactly a change came does not matter here. Within this time, though, a closed database is noticed.
    let spacing = options
        .look_interval
        .max(LOOK_INTERVAL.min(options.gc_interval / 20));
    let mut manifest = shard.manifest.clone();
    let Some(first) = footprint(&shard.db) else {
        return;
    };
    let mut garbage = Garbage::opened(first, clock::now(), first_pass(options.gc_interval, jitter));
    loop {
        // Before the look: what changes after it wakes.
        manifest.mark_unchanged();
        let Some(seen) = footprint(&shard.db) else {
            return;
        };
        garbage.note(seen, clock::now(), &policy);
        let due = garbage.due(&policy);
        if due.is_none_or(|due| due > clock::now()) {
            if !tending.changed(&mut manifest, due, spacing).await {
                return;
            }
            continue;
        }
        let passed = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            passed = in_turn(&tending) => passed,
        };
        match &passed {
            Ok(started) => {
                garbage.passed(*started, &policy);
                tracing::debug!(shard = shard.shard, "garbage of a shard collected");
            }
            Err(error) => {
                garbage.failed(clock::now(), &policy);
                tracing::warn!(shard = shard.shard, %error, "garbage collection failed; it is tried again later");
            }
        }
        shard.count("quarry_gc_passes_total", passed.is_ok());
        totals.send_modify(|totals| match passed {
            Ok(_) => totals.gc_passes += 1,
            Err(_) => totals.failed_gc_passes += 1,
        });
    }
}

/// Why a pass failed. What SlateDB meets within a pass it only logs.
#[derive(Debug, thiserror::Error)]
enum GcError {
    #[error("the store does not answer: {0}")]
    Store(#[source] slatedb::Error),
    #[error("it took longer than `gc_timeout` ({0:?})")]
    TimedOut(Duration),
}

/// One pass, when it is this shard's turn. Gives when it began.
async fn in_turn(tending: &Tending) -> Result<std::time::Instant, GcError> {
    let Tending { node, shard, .. } = tending;
    let options = &node.options;
    // The semaphore is never closed, and a pass without a turn would do no harm.
    let _turn = node.gc.acquire().await;
    let started = clock::now();
    let pass = async {
        // SlateDB logs and forgets what fails in a pass. A store that does not even give the manifest is found here, and
        // so is an owner that lost its shard: the next one collects.
        shard.db.refresh_manifest().await?;
        let admin = time::admin(shard.path.clone(), shard.store.clone()).build();
        admin.run_gc_once(gc_options(options)).await
    };
    match timeout(options.gc_timeout, pass).await {
        Ok(Ok(())) => Ok(started),
        Ok(Err(error)) => Err(GcError::Store(error)),
        Err(_) => Err(GcError::TimedOut(options.gc_timeout)),
    }
}

fn policy(options: &Options) -> GcPolicy {
    GcPolicy {
        interval: options.gc_interval,
        settle: options.gc_min_age.max(options.checkpoint_lifetime) + SLACK,
    }
}

fn gc_options(options: &Options) -> GarbageCollectorOptions {
    let directory = GarbageCollectorDirectoryOptions {
        interval: None,
        min_age: options.gc_min_age,
        dry_run: false,
    };
    GarbageCollectorOptions {
        manifest_options: Some(directory),
        wal_options: Some(directory),
        // Never: a writer that comes back after its fence was deleted could acknowledge what is lost.
        wal_fence_options: None,
        compacted_options: Some(directory),
        compactions_options: Some(directory),
        // Shards are not clones.
        detach_options: None,
        boundary_files_enabled: options.gc_boundary_files,
        object_store_max_retries: Some(options.store_retries),
        metric_level: None,
    }
}

/// What the shard's manifest shows for garbage; `None` when the database is closed.
fn footprint(db: &Db) -> Option<Footprint> {
    let status = db.status();
    if status.close_reason.is_some() {
        return None;
    }
    let manifest = &status.current_manifest;
    let segments = manifest.segments().iter();
    let (l0, sorted_runs) = segments.fold(
        (manifest.l0().len(), manifest.compacted().len()),
        |(l0, runs), segment| (l0 + segment.l0().len(), runs + segment.compacted().len()),
    );
    Some(Footprint {
        writer_epoch: manifest.writer_epoch(),
        compactor_epoch: manifest.compactor_epoch(),
        replay_after_wal_id: manifest.replay_after_wal_id(),
        l0,
        sorted_runs,
    })
}

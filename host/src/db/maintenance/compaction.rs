//! The compaction of one shard: when it needs one, in its turn, a compactor is started, watched and stopped.

use std::sync::Arc;
use std::time::Duration;

use slatedb::CompactorBuilder;
use slatedb::admin::Admin;
use slatedb::compactor::{CompactionStatus, Compactor};
use slatedb::config::{
    CompactionWorkerOptions, CompactorOptions, SizeTieredCompactionSchedulerOptions,
};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::super::time;
use super::plan::{Action, CompactionPolicy, LastCompaction, Look, decide};
use super::{Options, ShardDbInfo, Tending, look};
use crate::clock::{self, timeout};

/// Most time between two looks at a running compaction.
const LONGEST_LOOK: Duration = Duration::from_secs(2);

/// Jobs of a compactor at once: one of L0 that keeps the shard from stalling, beside one long merge of sorted runs.
const JOBS: usize = 2;

/// Bytes that a job reads ahead for each of its inputs, and the requests in flight for them.
const READ_AHEAD_BYTES: usize = 1024 * 1024;
const READ_AHEAD_REQUESTS: usize = 2;

/// Compacts the shard whenever it needs it, until it is stopped or its database closes.
pub(super) async fn tend(tending: Tending) {
    let Tending {
        node,
        shard,
        stop,
        totals,
    } = &tending;
    let policy = policy(&node.options);
    let mut manifest = shard.manifest.clone();
    let mut last: Option<LastCompaction> = None;
    while let Some(seen) = look_anew(shard, &mut manifest) {
        let wake = match decide(seen, last, clock::now(), &policy) {
            Action::Idle => None,
            Action::Wait(at) => Some(at),
            Action::Compact => {
                let turn = tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    turn = node.compactions.acquire() => turn,
                };
                let Ok(_turn) = turn else { return };
                // It may have waited long, and the need may be gone.
                match look_anew(shard, &mut manifest) {
                    Some(seen) if decide(seen, last, clock::now(), &policy) == Action::Compact => {}
                    Some(_) => continue,
                    None => return,
                }
                let outcome = run(&tending).await;
                if matches!(outcome, Ok(End::Stopped)) {
                    return;
                }
                last = Some(after(&outcome, last, shard));
                report(&tending, &outcome);
                totals.send_modify(|totals| match outcome {
                    Ok(_) => totals.compactions += 1,
                    Err(_) => totals.failed_compactions += 1,
                });
                continue;
            }
        };
        if !tending
            .changed(&mut manifest, wake, node.options.look_interval)
            .await
        {
            return;
        }
    }
}

/// What the manifest shows; changes up to here are known then.
fn look_anew(shard: &ShardDbInfo, manifest: &mut watch::Receiver<u64>) -> Option<Look> {
    manifest.mark_unchanged();
    look(&shard.db)
}

/// How a compaction ended without failing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The shard is in shape and nothing runs.
    Done,
    /// The shard's maintenance was stopped.
    Stopped,
}

/// Why a compaction failed.
#[derive(Debug, thiserror::Error)]
enum CompactionError {
    #[error("the manifest could not be read anew: {0}")]
    Manifest(#[source] slatedb::Error),
    #[error("the state of the compactions could not be read: {0}")]
    Compactions(#[source] slatedb::Error),
    #[error("a request took longer than `step_timeout` ({0:?})")]
    Step(Duration),
    #[error("the compactor failed: {0}")]
    Compactor(#[source] slatedb::Error),
    #[error("the compactor ended by itself")]
    Ended,
    #[error("it took longer than `compaction_timeout` ({0:?}); the next one resumes it")]
    TimedOut(Duration),
}

/// One compaction, from the start of a compactor to its stop.
async fn run(tending: &Tending) -> Result<End, CompactionError> {
    let Tending {
        node, shard, stop, ..
    } = tending;
    let options = &node.options;
    // The manifest may be old by a poll: refreshed, it shows the compactor epoch to follow, and whether this database
    // was fenced.
    if !refresh_unless_stopped(tending).await? {
        return Ok(End::Stopped);
    }
    let mut builder = CompactorBuilder::new(shard.path.clone(), shard.store.clone())
        .with_options(compactor_options(tending))
        .with_expected_epoch(shard.db.manifest().compactor_epoch())
        .with_runtime(options.runtime.clone());
    if let Some(operator) = &shard.merge_operator {
        builder = builder.with_merge_operator(operator.clone());
    }
    if let Some(recorder) = &shard.metrics {
        builder = builder.with_metrics_recorder(recorder.clone());
    }
    if let Some(clock) = time::driven() {
        builder = builder.with_system_clock(clock);
    }
    let mut running = Running::start(builder.build(), options.runtime.clone());
    let ended = tokio::select! {
        biased;
        () = stop.cancelled() => Ok(End::Stopped),
        error = running.failed() => Err(error),
        settled = timeout(options.compaction_timeout, settled(tending)) => match settled {
            Ok(settled) => settled.map(|()| End::Done),
            Err(_) => Err(CompactionError::TimedOut(options.compaction_timeout)),
        },
    };
    if !running.stop(options.stop_timeout).await {
        tracing::warn!(
            shard = shard.shard,
            timeout = ?options.stop_timeout,
            "compactor did not stop in time; it ends with its last request"
        );
    }
    // Readers should gain from the last result now, not at the database's next poll.
    if matches!(ended, Ok(End::Done)) && !refresh_unless_stopped(tending).await? {
        return Ok(End::Stopped);
    }
    ended
}

/// The task of a compactor; it ends by itself only when the compactor fails.
type RunTask = JoinHandle<Result<(), slatedb::Error>>;

/// A compactor and the task that runs it. However this ends, by [`stop`](Self::stop) or by being dropped (when the task
/// around it is aborted), the compactor is stopped: it would run for ever otherwise.
struct Running {
    /// Taken when the stop begins.
    parts: Option<(Arc<Compactor>, RunTask)>,
    runtime: Handle,
}

impl Running {
    fn start(compactor: Compactor, runtime: Handle) -> Self {
        let compactor = Arc::new(compactor);
        let task = runtime.spawn({
            let compactor = compactor.clone();
            async move { compactor.run().await }
        });
        Self {
            parts: Some((compactor, task)),
            runtime,
        }
    }

    /// Waits for the end of the compactor, which nobody asked for.
    async fn failed(&mut self) -> CompactionError {
        let Some((_, task)) = &mut self.parts else {
            return CompactionError::Ended;
        };
        match task.await {
            Ok(Err(error)) => CompactionError::Compactor(error),
            _ => CompactionError::Ended,
        }
    }

    /// Stops the compactor and waits for that; `false` when it still stops after `wait`.
    async fn stop(mut self, wait: Duration) -> bool {
        let Some(stopping) = self.begin_stop() else {
            return true;
        };
        timeout(wait, stopping).await.is_ok()
    }

    /// Stops the compactor in a task of its own, so that a stop which outlasts its caller is carried through.
    fn begin_stop(&mut self) -> Option<JoinHandle<()>> {
        let (compactor, task) = self.parts.take()?;
        Some(self.runtime.spawn(async move {
            // First the task: a compactor that still claims its epoch has nothing yet that a stop would find.
            task.abort();
            if !task.is_finished() {
                let _ = task.await;
            }
            // What made it fail was reported by its task.
            let _ = compactor.stop().await;
        }))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.begin_stop();
    }
}

/// Waits until the shard is in shape and its compactor has nothing left to do.
async fn settled(tending: &Tending) -> Result<(), CompactionError> {
    let Tending { node, shard, .. } = tending;
    let options = &node.options;
    let admin = time::admin(shard.path.clone(), shard.store.clone()).build();
    let mut pause = options.compaction_poll;
    // A compactor that just committed a result looks for further work only at its next poll, so one look is not enough.
    let mut quiet = false;
    loop {
        clock::sleep(pause).await;
        refresh(tending).await?;
        let Some(seen) = look(&shard.db) else {
            return Ok(());
        };
        let in_shape = seen.l0 < options.l0_trigger && !active(tending, &admin).await?;
        if in_shape && quiet {
            return Ok(());
        }
        quiet = in_shape;
        pause = if quiet {
            options.compaction_poll * 2
        } else {
            (pause * 2).min(LONGEST_LOOK)
        };
    }
}

/// Whether the compactor has a job that is not finished.
async fn active(tending: &Tending, admin: &Admin) -> Result<bool, CompactionError> {
    let wait = tending.node.options.step_timeout;
    let compactions = timeout(wait, admin.read_compactions(None))
        .await
        .map_err(|_| CompactionError::Step(wait))?;
    let compactions = compactions.map_err(CompactionError::Compactions)?;
    let unfinished = |status| {
        !matches!(
            status,
            CompactionStatus::Completed | CompactionStatus::Failed
        )
    };
    Ok(compactions.is_some_and(|all| {
        all.recent_compactions()
            .any(|compaction| unfinished(compaction.status()))
    }))
}

/// Refreshes the manifest; `false` when maintenance was stopped meanwhile.
async fn refresh_unless_stopped(tending: &Tending) -> Result<bool, CompactionError> {
    tokio::select! {
        biased;
        () = tending.stop.cancelled() => Ok(false),
        refreshed = refresh(tending) => refreshed.map(|()| true),
    }
}

async fn refresh(tending: &Tending) -> Result<(), CompactionError> {
    let wait = tending.node.options.step_timeout;
    let refreshed = timeout(wait, tending.shard.db.refresh_manifest())
        .await
        .map_err(|_| CompactionError::Step(wait))?;
    refreshed.map_err(CompactionError::Manifest)
}

fn after(
    outcome: &Result<End, CompactionError>,
    last: Option<LastCompaction>,
    shard: &ShardDbInfo,
) -> LastCompaction {
    let failures = match outcome {
        Ok(_) => 0,
        Err(_) => last.map_or(0, |last| last.failures).saturating_add(1),
    };
    let sorted_runs = look(&shard.db).map_or(0, |Look { sorted_runs, .. }| sorted_runs);
    LastCompaction {
        ended: clock::now(),
        failures,
        sorted_runs,
    }
}

fn report(tending: &Tending, outcome: &Result<End, CompactionError>) {
    let shard = &tending.shard;
    match outcome {
        Ok(_) => tracing::debug!(shard = shard.shard, "shard compacted"),
        // An owner that is on its way out sees its database closed or fenced: no fault of the compaction.
        Err(error) if shard.db.status().close_reason.is_some() => {
            tracing::debug!(shard = shard.shard, %error, "compaction ended with its database");
        }
        Err(error) => {
            tracing::warn!(shard = shard.shard, %error, "compaction failed; it is tried again later")
        }
    }
    shard.count("quarry_compactions_total", outcome.is_ok());
}

fn policy(options: &Options) -> CompactionPolicy {
    CompactionPolicy {
        l0_trigger: options.l0_trigger,
        l0_max_ssts: options.l0_max_ssts,
        sorted_run_trigger: options.sorted_run_trigger,
        rest: options.compaction_rest,
        retry_base: Duration::from_secs(1),
        retry_cap: Duration::from_secs(60),
    }
}

fn compactor_options(tending: &Tending) -> CompactorOptions {
    let Tending { node, shard, .. } = tending;
    let options = &node.options;
    let scheduler = SizeTieredCompactionSchedulerOptions {
        min_compaction_sources: options.l0_trigger,
        max_compaction_sources: options.l0_max_ssts.max(8),
        sorted_run_consolidation_threshold: options.sorted_run_trigger,
        ..SizeTieredCompactionSchedulerOptions::default()
    };
    let worker = CompactionWorkerOptions {
        max_concurrent_compactions: JOBS,
        compactions_poll_interval: options.compaction_poll,
        max_sst_size: options.max_sst_bytes,
        max_fetch_tasks: READ_AHEAD_REQUESTS,
        bytes_to_fetch: READ_AHEAD_BYTES,
        // The runtime has one thread: parts of a job would not run in parallel, but each would need its memory.
        max_subcompactions: 1,
        min_filter_keys: shard.min_filter_keys,
        compression_codec: shard.compression,
        ..CompactionWorkerOptions::default()
    };
    CompactorOptions {
        poll_interval: options.compaction_poll,
        commit_compacted_interval: options.compaction_poll,
        manifest_update_timeout: options.step_timeout,
        max_concurrent_compactions: JOBS,
        scheduler_options: scheduler.into(),
        worker: Some(worker),
        checkpoint_lifetime: options.checkpoint_lifetime,
        object_store_max_retries: Some(options.store_retries),
        ..CompactorOptions::default()
    }
}

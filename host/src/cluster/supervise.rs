//! The life of one shard on this node: open, start, run, stop, close, and again after a pause, as the strategy says.
//!
//! Runs on the control thread, one task a shard. An open that began is always waited for and closed: a stop follows the open that it
//! belongs to.

use std::sync::Arc;
use std::time::Duration;

use quarry_core::backoff::Backoff;
use quarry_core::strategy::{self, DownReason, Next};

use super::node::Node;
use super::status::ShardState;
use super::swap;
use crate::clock;
use crate::db::open::{OpenError, Opening};
use crate::guest::StopReason;
use crate::shard::running::{Running, Start};
use crate::shard::slot::Slot;

/// Runs a shard until the node stops.
pub(super) async fn supervise(node: Arc<Node>, shard: u32) {
    let slot = node.slots[shard as usize].clone();
    let mut backoff = Backoff::default();
    while !node.stop.is_cancelled() {
        let (reason, uptime) = once(&node, &slot, shard).await;
        slot.set_attempted();
        match strategy::local(&reason, &mut backoff, uptime, rand::random()) {
            Next::StayDown | Next::GiveBack => break,
            Next::Reopen(pause) => {
                tracing::info!(
                    shard,
                    ?pause,
                    ?reason,
                    "shard is opened again after a pause"
                );
                tokio::select! {
                    () = node.stop.cancelled() => {}
                    () = slot.retry() => {}
                    () = tokio::time::sleep(pause) => {}
                }
            }
        }
    }
    slot.set(ShardState::Unassigned);
}

/// One opening, from claim to close: why it ended, and how long the shard ran.
async fn once(node: &Arc<Node>, slot: &Arc<Slot>, shard: u32) -> (DownReason, Duration) {
    let place = tokio::select! {
        () = node.stop.cancelled() => return (DownReason::Stopped, Duration::ZERO),
        place = node.opening.acquire() => place,
    };
    slot.set(ShardState::Starting);
    let tried = clock::now();
    let path = node
        .store
        .path(&database_path(&node.config.path, shard, node.config.shards));
    let shard_thread = node.threads.shard(shard);
    let opened = node.databases.open(shard, path, shard_thread.clone()).await;
    let opening = match opened {
        Ok(opening) => opening,
        Err(error) => {
            let (state, reason) = match &error {
                OpenError::Fenced { .. } => (ShardState::Fenced, DownReason::Fenced),
                _ => (ShardState::Crashed, DownReason::Crashed),
            };
            tracing::error!(shard, %error, "shard did not open");
            slot.fail(state, error.to_string());
            slot.metrics.start_failed();
            return (reason, Duration::ZERO);
        }
    };
    if node.stop.is_cancelled() {
        if let Err(error) = opening.close().await {
            tracing::warn!(shard, %error, "a database that had just opened did not close cleanly");
        }
        return (DownReason::Stopped, Duration::ZERO);
    }
    slot.opened(opening.writer_epoch, opening.kill_switch().clone());
    let mut loaded = node.module.load_full();
    let start = Start {
        cluster: node.cluster.clone(),
        node: node.node.clone(),
        shard,
        shards: node.config.shards,
        db: opening.db.clone(),
        module: loaded.module.clone(),
        options: loaded.options.clone(),
        slot: slot.clone(),
        shard_thread,
        query: node.threads.query(),
    };
    let mut running = Running::start(start).await;
    drop(place);
    slot.set_attempted();
    let took = clock::now().saturating_duration_since(tried);
    slot.metrics
        .started(loaded.module.describe().revision, took);
    tracing::info!(shard, writer_epoch = opening.writer_epoch, "shard started");
    // A swap that went round while this shard opened did not find it.
    loop {
        let newest = node.module.load_full();
        if Arc::ptr_eq(&newest, &loaded) {
            break;
        }
        match swap::one(node, shard, newest.clone()).await.1 {
            Some(Ok(_)) => loaded = newest,
            Some(Err(error)) => {
                tracing::error!(shard, %error, "shard opened with a module that was swapped meanwhile, and keeps it");
                break;
            }
            None => break,
        }
    }
    let began = clock::now();
    let (reason, why) = tokio::select! {
        biased;
        () = node.stop.cancelled() => (DownReason::Stopped, "the node stops".to_owned()),
        down = opening.down() => down,
        why = running.ended() => (DownReason::Crashed, why),
    };
    let uptime = clock::now().saturating_duration_since(began);
    end(node, slot, running, opening, &reason, &why).await;
    (reason, uptime)
}

async fn end(
    node: &Arc<Node>,
    slot: &Arc<Slot>,
    running: Running,
    opening: Opening,
    reason: &DownReason,
    why: &str,
) {
    let shard = slot.shard();
    let limit = node.config.shard.close_timeout;
    let began = clock::now();
    match reason {
        DownReason::Stopped => {
            slot.withdraw();
            slot.set(ShardState::Stopping);
            running.stop(StopReason::Stopping, limit).await;
            match opening.close().await {
                Ok(()) => tracing::info!(shard, "shard stopped"),
                Err(error) => {
                    tracing::warn!(shard, %error, "shard stopped, but its database did not close cleanly");
                    slot.fail(ShardState::Stopping, error.to_string());
                }
            }
            slot.metrics
                .stopped("stopped", clock::now().saturating_duration_since(began));
        }
        DownReason::Fenced | DownReason::Lost => {
            // First nothing is served any more, then it is asked who has it.
            running.fence();
            slot.withdraw();
            slot.fail(ShardState::Fenced, why.to_owned());
            let text = fenced(node, &opening, why).await;
            slot.fail(ShardState::Fenced, text.clone());
            tracing::error!(
                shard,
                why = text,
                "shard fenced: another process opened its database; is a second instance running on this store?"
            );
            slot.metrics.fenced();
            running.stop(StopReason::Fenced, limit).await;
            opening.abandon(reason, &text).await;
            slot.metrics
                .stopped("fenced", clock::now().saturating_duration_since(began));
        }
        DownReason::Crashed => {
            slot.withdraw();
            slot.fail(ShardState::Crashed, why.to_owned());
            tracing::error!(shard, why, "shard crashed");
            running.stop(StopReason::Stopping, limit).await;
            opening.abandon(reason, why).await;
            slot.metrics
                .stopped("crashed", clock::now().saturating_duration_since(began));
        }
    }
}

/// A fence is confirmed before it is believed: SlateDB reports one in other cases, too.
async fn fenced(node: &Arc<Node>, opening: &Opening, why: &str) -> String {
    let epoch = opening.writer_epoch;
    match node.databases.newer_writer(opening.path(), epoch).await {
        Ok(Some(newer)) => format!(
            "another writer opened the database: its writer epoch is {newer}, ours was {epoch}"
        ),
        Ok(None) => format!("{why}, though the store shows no writer newer than ours ({epoch})"),
        Err(error) => format!("{why}; it could not be confirmed: {error}"),
    }
}

/// The path of a shard's database: its number padded to at least three digits, and to as many as the highest has.
pub(super) fn database_path(path: &str, shard: u32, shards: u32) -> String {
    let digits = (shards - 1).to_string().len().max(3);
    let name = format!("shard-{shard:0digits$}");
    if path.is_empty() {
        name
    } else {
        format!("{}/{name}", path.trim_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_shard_never_changes_for_a_count() {
        for (path, shard, shards, expected) in [
            ("", 0, 1, "shard-000"),
            ("", 7, 16, "shard-007"),
            ("a/b", 15, 16, "a/b/shard-015"),
            ("/a/", 999, 1000, "a/shard-999"),
            ("", 5, 1001, "shard-0005"),
        ] {
            assert_eq!(database_path(path, shard, shards), expected);
        }
    }
}

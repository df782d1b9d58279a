//! The life of one shard on this node, from open to close, as the runner commands it.
//!
//! Each opening is one task: it opens the database, starts the guest, serves when it is told to, and closes when it is told to. It never
//! ends by itself while the database is open: an open that began is always waited for and closed, and a stop follows the open that it
//! belongs to.

use std::sync::Arc;

use quarry_core::runner::{HostEvent, How, OpenFailure, RunnerEvent};
use quarry_core::strategy::DownReason;
use tokio::sync::mpsc;

use super::node::Node;
use super::status::ShardState;
use super::swap::{self, SwapOptions};
use crate::clock;
use crate::db::open::{Cutoff, OpenError, Opening, Terms};
use crate::deploy::Loaded;
use crate::gate::Ended;
use crate::guest::StopReason;
use crate::shard::running::{Running, Start};
use crate::shard::slot::Slot;

/// What the runner tells an opening, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Take calls.
    Serve,
    /// Close; the last order.
    Close(How),
}

/// One opening of a shard.
pub(super) struct Life {
    pub node: Arc<Node>,
    pub shard: u32,
    /// The generation of its lease; 0 without leases.
    pub generation: u64,
    pub terms: Terms,
    pub orders: mpsc::UnboundedReceiver<Order>,
    /// The runner.
    pub tell: mpsc::UnboundedSender<RunnerEvent>,
}

/// What an opening came to, once it is down.
enum Down {
    /// It works, or did when it was told to close.
    No,
    /// It was fenced.
    Fenced,
    /// It failed.
    Crashed,
}

impl Life {
    /// Lives it.
    pub async fn run(mut self) {
        let slot = self.node.slots[self.shard as usize].clone();
        let mut teller = Teller {
            shard: self.shard,
            generation: self.generation,
            tell: self.tell.clone(),
            cutoff: self.terms.cutoff.clone(),
            owed: Owed::Opened,
        };
        slot.set(ShardState::Starting);
        let tried = clock::now();
        // A database that nobody can use is not opened.
        let loaded = match self.node.opens_with(self.shard) {
            Ok(loaded) => loaded,
            Err(why) => return self.no_guest(&slot, teller, &why),
        };
        let path = database_path(&self.node.config.path, self.shard, self.node.config.shards);
        let opened = self.node.databases.open(
            self.shard,
            self.node.store.path(&path),
            self.node.threads.shard(self.shard),
            self.terms.clone(),
        );
        let opening = match opened.await {
            Ok(opening) => opening,
            Err(error) => return self.not_opened(&slot, teller, &error),
        };
        slot.opened(
            opening.writer_epoch,
            self.generation,
            opening.kill_switch().clone(),
        );
        let running = Running::start(Start {
            cluster: self.node.cluster.clone(),
            node: self.node.node.clone(),
            shard: self.shard,
            shards: self.node.config.shards,
            generation: self.generation,
            db: opening.db.clone(),
            module: loaded.module.clone(),
            options: loaded.options.clone(),
            slot: slot.clone(),
            samples: self.node.samples.clone(),
            shard_thread: self.node.threads.shard(self.shard),
            query: self.node.threads.query(),
            reach: self.node.reach(),
        });
        let mut running = running.await;
        teller.opened(opening.writer_epoch);
        let mut served = false;
        let mut down = Down::No;
        let how = loop {
            let watched = served && matches!(down, Down::No);
            tokio::select! {
                biased;
                order = self.orders.recv() => match order {
                    Some(Order::Serve) => {
                        served = true;
                        running.publish(&slot);
                        slot.set_attempted();
                        let took = clock::now().saturating_duration_since(tried);
                        slot.metrics.started(running.revision(), took);
                        tracing::info!(shard = self.shard, generation = self.generation, writer_epoch = opening.writer_epoch, "shard started");
                        match &self.node.deployed {
                            Some(deployed) => deployed.poke(),
                            None => catch_up(&self.node, self.shard, loaded.clone()).await,
                        }
                    }
                    Some(Order::Close(how)) => break how,
                    // The runner is gone, and with it the deadline.
                    None => {
                        self.terms.cutoff.cut(Ended::Expired, "the node's runner ended");
                        break How::Abandon;
                    }
                },
                (reason, why) = opening.down(), if watched => {
                    down = self.went_down(&slot, &running, &opening, &teller, reason, why).await;
                }
                why = running.ended(), if watched => {
                    down = self.went_down(&slot, &running, &opening, &teller, DownReason::Crashed, why).await;
                }
            }
        };
        teller.owed = Owed::Closed;
        let clean = self.close(&slot, running, opening, how, &down).await;
        teller.closed(clean);
    }

    fn no_guest(&self, slot: &Slot, teller: Teller, why: &str) {
        let (shard, generation) = (self.shard, self.generation);
        tracing::error!(
            shard,
            generation,
            why,
            "shard not opened: its guest cannot be had"
        );
        slot.metrics.start_failed();
        slot.fail(ShardState::Crashed, why.to_owned());
        slot.set_attempted();
        teller.open_failed(OpenFailure::Failed, why.to_owned());
    }

    fn not_opened(&self, slot: &Slot, teller: Teller, error: &OpenError) {
        let (state, kind) = match error {
            OpenError::Stopped { .. } => {
                tracing::info!(shard = self.shard, %error, "shard did not open");
                slot.set_attempted();
                return teller.open_failed(OpenFailure::Failed, error.to_string());
            }
            OpenError::Fenced { .. } => (ShardState::Fenced, OpenFailure::Fenced),
            OpenError::TimedOut { .. } => (ShardState::Crashed, OpenFailure::TimedOut),
            OpenError::Failed { .. } => (ShardState::Crashed, OpenFailure::Failed),
        };
        tracing::error!(shard = self.shard, generation = self.generation, %error, "shard did not open");
        slot.metrics.start_failed();
        slot.fail(state, error.to_string());
        slot.set_attempted();
        teller.open_failed(kind, error.to_string());
    }

    /// First nothing is served any more, then the runner is told. Closing is for it to say.
    async fn went_down(
        &self,
        slot: &Slot,
        running: &Running,
        opening: &Opening,
        teller: &Teller,
        reason: DownReason,
        why: String,
    ) -> Down {
        let shard = self.shard;
        if reason == DownReason::Crashed || reason == DownReason::Stopped {
            slot.withdraw();
            slot.fail(ShardState::Crashed, why.clone());
            tracing::error!(shard, why, "shard crashed");
            teller.down(DownReason::Crashed, why);
            return Down::Crashed;
        }
        running.fence();
        slot.withdraw();
        slot.fail(ShardState::Fenced, why.clone());
        let text = fenced(&self.node, opening, &why).await;
        slot.fail(ShardState::Fenced, text.clone());
        if self.generation == 0 {
            tracing::error!(
                shard,
                why = text,
                "shard fenced: another process opened its database; is a second instance running on this store?"
            );
        } else {
            let generation = self.generation;
            tracing::error!(
                shard,
                generation,
                why = text,
                "shard fenced: another node opened its database"
            );
        }
        slot.metrics.fenced();
        teller.down(DownReason::Fenced, text);
        Down::Fenced
    }

    /// Whether everything was flushed.
    async fn close(
        &self,
        slot: &Slot,
        running: Running,
        opening: Opening,
        how: How,
        down: &Down,
    ) -> bool {
        let shard = self.shard;
        let limit = self.node.config.shard.close_timeout;
        let began = clock::now();
        let clean = how == How::Clean && matches!(down, Down::No);
        if clean {
            // Calls go on meanwhile: those that come later wait for the next owner, and for less.
            opening.prepare_close().await;
        }
        slot.withdraw();
        if clean {
            slot.set(ShardState::Stopping);
            running.stop(StopReason::Stopping, limit).await;
            let closed = opening.close().await;
            match &closed {
                Ok(()) => tracing::info!(shard, "shard stopped"),
                Err(error) => {
                    tracing::warn!(shard, %error, "shard stopped, but its database did not close cleanly");
                    slot.fail(ShardState::Stopping, error.to_string());
                }
            }
            let took = clock::now().saturating_duration_since(began);
            slot.metrics.stopped("stopped", took);
            return closed.is_ok();
        }
        let (reason, stop, word) = match down {
            Down::Crashed => (DownReason::Crashed, StopReason::Stopping, "crashed"),
            Down::Fenced => (DownReason::Fenced, StopReason::Fenced, "fenced"),
            Down::No => (DownReason::Lost, StopReason::Fenced, "lost"),
        };
        if reason == DownReason::Lost {
            slot.fail(
                ShardState::Fenced,
                "this node's lease on the shard ended".into(),
            );
        }
        let why = slot.last_error().unwrap_or_default();
        running.stop(stop, limit).await;
        opening.abandon(&reason, &why).await;
        let took = clock::now().saturating_duration_since(began);
        slot.metrics.stopped(word, took);
        false
    }
}

/// A swap that went round while this shard opened did not find it.
async fn catch_up(node: &Arc<Node>, shard: u32, mut loaded: Arc<Loaded>) {
    loop {
        let Ok(newest) = node.opens_with(shard) else {
            return;
        };
        if Arc::ptr_eq(&newest, &loaded) {
            return;
        }
        match swap::one(node, shard, newest.clone(), SwapOptions::default())
            .await
            .1
        {
            Some(Ok(_)) => loaded = newest,
            Some(Err(error)) => {
                tracing::error!(shard, %error, "shard opened with a module that was swapped meanwhile, and keeps it");
                return;
            }
            None => return,
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

/// Tells the runner what comes of an opening. The runner waits for an answer to each of its orders, so one comes whatever happens: where
/// the host itself fails, the opening is cut off first.
struct Teller {
    shard: u32,
    generation: u64,
    tell: mpsc::UnboundedSender<RunnerEvent>,
    cutoff: Cutoff,
    owed: Owed,
}

/// What the runner waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owed {
    /// Whether it opened.
    Opened,
    /// Nothing, but an open shard that fails has to be told of.
    Nothing,
    /// That it has closed.
    Closed,
    /// Nothing any more.
    Ended,
}

impl Teller {
    fn event(&self, event: HostEvent) {
        // A runner that is gone does not listen, and has no deadline to keep.
        _ = self.tell.send(RunnerEvent::Host(event));
    }

    fn opened(&mut self, writer_epoch: u64) {
        self.owed = Owed::Nothing;
        let (shard, generation) = (self.shard, self.generation);
        self.event(HostEvent::Opened {
            shard,
            generation,
            writer_epoch,
        });
    }

    fn open_failed(mut self, kind: OpenFailure, error: String) {
        self.owed = Owed::Ended;
        let (shard, generation) = (self.shard, self.generation);
        self.event(HostEvent::OpenFailed {
            shard,
            generation,
            kind,
            error,
        });
    }

    fn down(&self, reason: DownReason, error: String) {
        let (shard, generation) = (self.shard, self.generation);
        self.event(HostEvent::Down {
            shard,
            generation,
            reason,
            error,
        });
    }

    fn closed(mut self, clean: bool) {
        self.owed = Owed::Ended;
        let (shard, generation) = (self.shard, self.generation);
        self.event(HostEvent::Closed {
            shard,
            generation,
            clean,
        });
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        if self.owed == Owed::Ended {
            return;
        }
        let why = "the host failed at this shard";
        let (shard, generation) = (self.shard, self.generation);
        tracing::error!(shard, generation, why);
        self.cutoff.cut(Ended::Failed(why.into()), why);
        let error = why.to_owned();
        self.event(match self.owed {
            Owed::Opened => HostEvent::OpenFailed {
                shard,
                generation,
                kind: OpenFailure::Failed,
                error,
            },
            Owed::Closed => HostEvent::Closed {
                shard,
                generation,
                clean: false,
            },
            // Orders that come now are answered in its place.
            _ => HostEvent::Down {
                shard,
                generation,
                reason: DownReason::Crashed,
                error,
            },
        });
    }
}

/// The path of a shard's database: its number padded to at least three digits, and to as many as the highest has.
pub(crate) fn database_path(path: &str, shard: u32, shards: u32) -> String {
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

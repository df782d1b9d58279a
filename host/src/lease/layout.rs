//! Leases in an object store: drives the machines of the core, which know the layouts.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use quarry_core::lease::layout::{Ask, AskId, Layout, LayoutOptions, Step};
use quarry_core::lease::object::ObjectReply;
use quarry_core::lease::op::{LeaseOp, OpId, OpResult, Renewal};

use super::LeaseStore;
use super::objects::LeaseObjects;
use crate::clock;

/// Leases in an object store, in one of the two layouts.
pub struct StoredLeases {
    renewal: Renewal,
    machine: Mutex<Layout>,
    objects: LeaseObjects,
    next: AtomicU64,
}

impl StoredLeases {
    /// The leases of a cluster as one node sees them; each node of a process has its own.
    #[must_use]
    pub fn new(options: LayoutOptions, objects: LeaseObjects) -> Self {
        Self {
            renewal: options.renewal,
            machine: Mutex::new(Layout::new(options, rand::random())),
            objects,
            next: AtomicU64::new(0),
        }
    }

    fn machine(&self) -> MutexGuard<'_, Layout> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(&self, ask: Ask) -> (AskId, ObjectReply) {
        (ask.id, self.objects.ask(ask.request).await)
    }
}

#[async_trait]
impl LeaseStore for StoredLeases {
    fn renewal(&self) -> Renewal {
        self.renewal
    }

    async fn run(&self, op: LeaseOp, limit: Duration) -> OpResult {
        let mut end = pin!(clock::sleep(limit));
        let id = OpId(self.next.fetch_add(1, Ordering::Relaxed));
        let wall_ms = u64::try_from(clock::wall_ms()).unwrap_or_default();
        let name = op.name();
        let mut open = Open {
            leases: self,
            id: Some(id),
        };
        let mut step = self.machine().begin(id, op, wall_ms);
        let mut asked = FuturesUnordered::new();
        loop {
            match step {
                Step::Done(result) => {
                    open.id = None;
                    return result;
                }
                // The machine asks a few things at a time, however many there are to ask.
                Step::Ask(asks) => asked.extend(asks.into_iter().map(|ask| self.answer(ask))),
            }
            let answered = tokio::select! {
                biased;
                answered = asked.next() => Ok(answered),
                () = &mut end => Err(clock::Elapsed),
            };
            match answered {
                Ok(Some((ask, reply))) => step = self.machine().reply(id, ask, reply),
                Ok(None) => {
                    tracing::error!(op = name, "a lease operation waits for nothing");
                    return open.abandon();
                }
                Err(clock::Elapsed) => {
                    tracing::debug!(op = name, ?limit, "a lease operation ran out of time");
                    return open.abandon();
                }
            }
        }
    }
}

/// An operation in progress. Dropped in the middle, it leaves nothing behind in the machine.
struct Open<'a> {
    leases: &'a StoredLeases,
    id: Option<OpId>,
}

impl Open<'_> {
    fn abandon(&mut self) -> OpResult {
        let id = self.id.take().expect("an operation ends once");
        self.leases.machine().abandon(id)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            drop(self.leases.machine().abandon(id));
        }
    }
}

//! The transport within one process: several nodes of a test, with no socket between them, and ways to come between two of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::clock;

use super::{Answer, Ask, Destination, Failure, Forward, Identity, Service, Told, Transport};

/// A network of nodes in one process. Clones are the same network.
#[derive(Clone, Default)]
pub struct Network {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    nodes: Mutex<BTreeMap<String, Joined>>,
    /// From whom to whom nothing gets through.
    cut: Mutex<BTreeSet<(String, String)>>,
    /// Nodes that take requests and do not answer, as one that is paused.
    paused: watch::Sender<BTreeSet<String>>,
    requests: std::sync::atomic::AtomicU64,
}

struct Joined {
    identity: Arc<Identity>,
    service: Weak<dyn Service>,
    on: Handle,
}

/// One node's end of a [`Network`].
struct End {
    network: Network,
    identity: Arc<Identity>,
}

impl Network {
    /// A network without nodes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The address of a node: its name, in the form that addresses have.
    #[must_use]
    pub fn address(node: &str) -> String {
        format!("{node}.memory:1")
    }

    /// Puts a node on the network, in place of one of the same name. What others ask of it runs there.
    pub fn join(
        &self,
        identity: Arc<Identity>,
        service: Weak<dyn Service>,
        on: Handle,
    ) -> Arc<dyn Transport> {
        let joined = Joined {
            identity: identity.clone(),
            service,
            on,
        };
        self.nodes().insert(identity.node.clone(), joined);
        Arc::new(End {
            network: self.clone(),
            identity,
        })
    }

    /// From now on nothing gets from one node to another; requests fail as never sent.
    pub fn cut(&self, from: &str, to: &str) {
        self.cuts().insert((from.into(), to.into()));
    }

    /// Everything gets through again.
    pub fn heal(&self) {
        self.cuts().clear();
    }

    /// From now on a node takes requests and does not answer.
    pub fn pause(&self, node: &str) {
        self.inner
            .paused
            .send_modify(|paused| _ = paused.insert(node.into()));
    }

    /// It answers again.
    pub fn resume(&self, node: &str) {
        self.inner
            .paused
            .send_modify(|paused| _ = paused.remove(node));
    }

    /// How many calls and queries were sent in all.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.inner
            .requests
            .load(std::sync::atomic::Ordering::Acquire)
    }

    fn nodes(&self) -> MutexGuard<'_, BTreeMap<String, Joined>> {
        let nodes = self.inner.nodes.lock();
        nodes.unwrap_or_else(PoisonError::into_inner)
    }

    fn cuts(&self) -> MutexGuard<'_, BTreeSet<(String, String)>> {
        let cut = self.inner.cut.lock();
        cut.unwrap_or_else(PoisonError::into_inner)
    }
}

impl End {
    /// The peer, if it is there and is who it should be.
    fn reach(&self, to: &Destination) -> Result<(Arc<dyn Service>, Handle), Failure> {
        let unreachable = |why: &str| {
            Failure::NeverSent(format!(
                "node `{}` cannot be reached at {}: {why}",
                to.node, to.address
            ))
        };
        let key = (self.identity.node.clone(), to.node.clone());
        if self.network.cuts().contains(&key) {
            return Err(unreachable("the network between the two is cut"));
        }
        let nodes = self.network.nodes();
        let joined = nodes
            .get(&to.node)
            .filter(|joined| Network::address(&joined.identity.node) == to.address)
            .ok_or_else(|| unreachable("nobody is there"))?;
        if (joined.identity.session)() != to.session {
            return Err(unreachable("it is in another session by now"));
        }
        let service = joined.service.upgrade();
        let service = service.ok_or_else(|| unreachable("it has ended"))?;
        Ok((service, joined.on.clone()))
    }

    async fn answering(&self, node: &str) {
        let mut paused = self.network.inner.paused.subscribe();
        // The sender lives in the network that this end holds.
        _ = paused.wait_for(|paused| !paused.contains(node)).await;
    }
}

#[async_trait]
impl Transport for End {
    async fn call(&self, to: &Destination, forward: Forward) -> Result<Answer, Failure> {
        let (service, on) = self.reach(to)?;
        let requests = &self.network.inner.requests;
        requests.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
        self.answering(&to.node).await;
        // Ends with whoever asked, as a request of a connection does.
        let running = AbortOnDropHandle::new(on.spawn(async move { service.run(forward).await }));
        let ended = running.await.map_err(|_| ended(to))?;
        ended.map_err(Failure::NotOwner)
    }

    async fn ask(&self, to: &Destination, ask: Ask, within: Duration) -> Result<Told, Failure> {
        let (service, on) = self.reach(to)?;
        let asking = async {
            self.answering(&to.node).await;
            let answering = on.spawn(async move { service.answer(ask).await });
            AbortOnDropHandle::new(answering).await
        };
        let told = clock::timeout(within, asking).await.map_err(|_| {
            Failure::Sent(format!(
                "node `{}` did not answer within {within:?}",
                to.node
            ))
        })?;
        told.map_err(|_| ended(to))
    }
}

fn ended(to: &Destination) -> Failure {
    Failure::Sent(format!("node `{}` ended before it answered", to.node))
}

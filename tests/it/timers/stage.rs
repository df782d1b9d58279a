//! Nodes on driven time, and a guest that does with timers what calls say and tells a story that outlives it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use quarry::call::{CallError, CallOptions, Target};
use quarry::clock::driven::{NodeClock, Time};
use quarry::config::Config;
use quarry::db::{KeyRange, Order};
use quarry::guest::native::{self, Logic};
use quarry::guest::{GuestError, InstanceContext, Module, Reply, Request, StopReason, Timer};
use quarry::store::Store;
use quarry::store::faults::{FaultStore, Faults};
use quarry::{Cluster, clock};
use tokio::sync::watch;

use crate::support::native::config;
use crate::support::ring::Ring;

/// Time moves in steps of this, and a timer comes late by less than two of them where nothing else runs.
pub const GRAIN: Duration = Duration::from_millis(5);

/// A revision that sets a timer at its start and then fails.
pub const FAILS: u64 = 13;

/// Something that a guest did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deed {
    pub node: String,
    pub revision: u64,
    /// `fire`, `call`, `step` or `stop`.
    pub what: &'static str,
    /// The timer's name or the call's method.
    pub name: String,
    pub payload: String,
    /// When a timer was due, and when it was done, in milliseconds on the node's wall clock.
    pub due_ms: u64,
    pub at_ms: u64,
}

/// What all guests of a test did, in order, and a hand that holds calls of `wait`.
#[derive(Clone)]
pub struct Story {
    deeds: Arc<Mutex<Vec<Deed>>>,
    pub holding: watch::Sender<bool>,
}

impl Story {
    pub fn new() -> Self {
        Self {
            deeds: Arc::default(),
            holding: watch::Sender::new(false),
        }
    }

    fn tell(&self, deed: Deed) {
        self.deeds.lock().expect("deeds").push(deed);
    }

    pub fn deeds(&self) -> Vec<Deed> {
        self.deeds.lock().expect("deeds").clone()
    }

    /// The timers that fired.
    pub fn fired(&self) -> Vec<Deed> {
        let mut deeds = self.deeds();
        deeds.retain(|deed| deed.what == "fire");
        deeds
    }

    /// Their names.
    pub fn names(&self) -> Vec<String> {
        self.fired().into_iter().map(|deed| deed.name).collect()
    }

    /// A revision that takes timers.
    pub fn takes(&self, revision: u64) -> Arc<dyn Module> {
        self.module::<true, false>("main", revision)
    }

    pub fn module<const TAKES: bool, const MIGRATES: bool>(
        &self,
        name: &str,
        revision: u64,
    ) -> Arc<dyn Module> {
        let story = self.clone();
        native::module(name, revision, move |_| Alarm::<TAKES, MIGRATES> {
            story: story.clone(),
            revision,
            failures: 0,
            steps: 0,
        })
    }
}

/// Calls are `set`, `set-durable` (payload: name, milliseconds, what the timer holds), `cancel`, `due`, `keys`, `wait` and `panic`. A timer
/// that holds `error 3` fails three times, one that holds `trap` traps, `anew` sets itself once more, and `again 20` sets itself every
/// 20 ms.
pub struct Alarm<const TAKES: bool, const MIGRATES: bool> {
    story: Story,
    revision: u64,
    failures: u32,
    steps: u32,
}

impl<const TAKES: bool, const MIGRATES: bool> Alarm<TAKES, MIGRATES> {
    fn tell(&self, context: &InstanceContext, what: &'static str, name: &str) -> Deed {
        Deed {
            node: context.node.to_string(),
            revision: self.revision,
            what,
            name: name.to_owned(),
            payload: String::new(),
            due_ms: 0,
            at_ms: wall_ms(),
        }
    }
}

pub fn wall_ms() -> u64 {
    u64::try_from(clock::wall_ms()).expect("after 1970")
}

#[async_trait]
impl<const TAKES: bool, const MIGRATES: bool> Logic for Alarm<TAKES, MIGRATES> {
    const TIMER_EVENTS: bool = TAKES;
    const MIGRATION: bool = MIGRATES;

    async fn start(&mut self, context: &InstanceContext) -> Result<(), GuestError> {
        if self.revision == FAILS {
            context
                .timers
                .set("of-start", Duration::ZERO, "".into())
                .await?;
            return Err(GuestError::new("no", "as it was told"));
        }
        Ok(())
    }

    async fn call(
        &mut self,
        context: &InstanceContext,
        request: &Request,
    ) -> Result<Reply, GuestError> {
        let deed = self.tell(context, "call", &request.method);
        let text = String::from_utf8_lossy(&request.payload).into_owned();
        let mut words = text.splitn(3, ' ');
        let name = words.next().unwrap_or_default();
        let after = words.next().and_then(|ms| ms.parse().ok());
        let after = Duration::from_millis(after.unwrap_or(0));
        let holds = words.next().unwrap_or_default().to_owned();
        let timers = &context.timers;
        let reply = match request.method.as_str() {
            "set" => timers
                .set(name, after, holds.into())
                .await
                .map(|()| "".into()),
            "set-durable" => {
                let seq = timers.set_durable(name, after, holds.into()).await;
                seq.map(|seq| seq.to_string())
            }
            "cancel" => timers.cancel(name).await.map(|there| there.to_string()),
            "due" => timers.due_ms(name).await.map(|due| format!("{due:?}")),
            "keys" => {
                let mut all = Vec::new();
                for order in [Order::Ascending, Order::Descending] {
                    let range = KeyRange::Prefix("".into());
                    let mut cursor = context.db.view().scan(&range, order).await?;
                    all.push(cursor.next(100).await?.len());
                }
                Ok(format!("{all:?}"))
            }
            "put" => {
                let put = context.db.put(name.to_owned().into(), "x".into()).await;
                put.map(|seq| seq.to_string())
            }
            "wait" => {
                let mut holding = self.story.holding.subscribe();
                let held = holding.wait_for(|holding| !holding).await;
                held.expect("a hand");
                Ok(String::new())
            }
            _ => panic!("a call traps on purpose"),
        };
        self.story.tell(deed);
        reply.map(Reply::new)
    }

    async fn fire(&mut self, context: &InstanceContext, timer: &Timer) -> Result<(), GuestError> {
        let payload = String::from_utf8_lossy(&timer.payload).into_owned();
        self.story.tell(Deed {
            payload: payload.clone(),
            due_ms: timer.due_ms,
            ..self.tell(context, "fire", &timer.name)
        });
        let (name, timers) = (&*timer.name, &context.timers);
        match payload.split_once(' ').unwrap_or((&payload, "0")) {
            ("error", times) if self.failures < times.parse().expect("a number") => {
                self.failures += 1;
                Err(GuestError::new("mine", "not now"))
            }
            ("trap", _) => panic!("a timer traps on purpose"),
            ("anew", _) => {
                let set = timers.set_durable(name, Duration::from_secs(5), "".into());
                set.await.map(drop)
            }
            ("again", ms) => {
                let after = Duration::from_millis(ms.parse().expect("a number"));
                timers.set(name, after, payload.into()).await
            }
            _ => Ok(()),
        }
    }

    /// Five steps of 100 ms.
    async fn migrate(&mut self, context: &InstanceContext, _: u64) -> Result<bool, GuestError> {
        clock::sleep(Duration::from_millis(100)).await;
        self.steps += 1;
        self.story.tell(self.tell(context, "step", ""));
        Ok(self.steps == 5)
    }

    async fn stop(&mut self, context: &InstanceContext, _: StopReason) {
        self.story.tell(self.tell(context, "stop", ""));
    }
}

/// A store that nodes share, and one clock for them all.
#[derive(Clone)]
pub struct Stage {
    pub story: Story,
    pub ring: Arc<Ring>,
    pub clock: NodeClock,
}

/// Runs a test on driven time.
pub fn driven<F>(test: impl FnOnce(Stage) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let time = Time::new(GRAIN);
    let clock = time.clock();
    let runtime = clock.runtime().expect("threads");
    let stage = Stage {
        story: Story::new(),
        ring: Arc::new(Ring::new(1)),
        clock,
    };
    time.run(&runtime, test(stage));
}

impl Stage {
    /// A configuration of a node that has the one shard without a lease.
    pub fn config(&self) -> Config {
        Config {
            shards: 1,
            ..config()
        }
    }

    /// A node with a guest that takes timers.
    pub async fn start(&self) -> Cluster {
        self.start_with(self.config(), self.story.takes(1)).await.0
    }

    /// A node, and a hand on its way to the store.
    pub async fn start_with(&self, config: Config, module: Arc<dyn Module>) -> (Cluster, Faults) {
        let wrapped = FaultStore::new(self.ring.store.objects(), 1);
        let faults = wrapped.faults();
        let store: Store = self.ring.store.wrap(|_| Arc::new(wrapped));
        let builder = Cluster::builder(Arc::new(config), module).store(store);
        (builder.start().await.expect("a node"), faults)
    }
}

/// A call to the only shard.
pub async fn call(cluster: &Cluster, method: &str, payload: &str) -> Result<String, CallError> {
    let options = CallOptions::default();
    let payload = payload.to_owned().into();
    let reply = cluster.call(Target::Shard(0), method, payload, options);
    let reply = reply.await?;
    Ok(String::from_utf8_lossy(&reply.payload).into_owned())
}

/// One that has to go well.
pub async fn ask(cluster: &Cluster, method: &str, payload: &str) -> String {
    let reply = call(cluster, method, payload).await;
    reply.unwrap_or_else(|error| panic!("{method} {payload}: {error:?}"))
}

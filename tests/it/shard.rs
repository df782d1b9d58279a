//! A shard whose parts are full, fail, or are interrupted.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use quarry::Cluster;
use quarry::call::{CallError, CallErrorKind, CallOptions, CallReply, QueryOptions, Target};
use quarry::cluster::status::ShardState;
use quarry::config::{Config, Probe};
use quarry::db::ReadView;
use quarry::guest::native::{self, Logic};
use quarry::guest::{GuestError, InstanceContext, Module, Reply, Request};
use quarry::store::Store;
use quarry::store::faults::{Fault, FaultStore, Faults, Op, Rule};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::support::native::{call, config};
use crate::support::store::{begun, fresh, within};

/// What a guest waits for, and what it was told.
#[derive(Clone)]
struct Hand {
    holding: watch::Sender<bool>,
    began: watch::Sender<usize>,
    tags: Arc<Mutex<Vec<u64>>>,
}

impl Hand {
    fn new() -> Self {
        Self {
            holding: watch::Sender::new(true),
            began: watch::Sender::new(0),
            tags: Arc::default(),
        }
    }

    fn module(&self, revision: u64) -> Arc<dyn Module> {
        let hand = self.clone();
        native::module("main", revision, move |_| Held {
            hand: hand.clone(),
            starts: revision == 1,
        })
    }

    async fn wait(&self) -> Reply {
        self.began.send_modify(|began| *began += 1);
        let mut holding = self.holding.subscribe();
        holding.wait_for(|holding| !holding).await.expect("a hand");
        Reply::new("waited")
    }

    async fn began(&self, count: usize) {
        let mut began = self.began.subscribe();
        within(began.wait_for(|began| *began >= count))
            .await
            .expect("a hand");
    }
}

/// `wait` (until the hand lets go), `put-and-wait`, `put`, `get`, `tag` (writes, and asks for the tag in the payload), and the query `wait`.
struct Held {
    hand: Hand,
    starts: bool,
}

#[async_trait]
impl Logic for Held {
    /// Any revision but the first asks for a tag, and fails.
    async fn start(&mut self, context: &InstanceContext) -> Result<(), GuestError> {
        if self.starts {
            return Ok(());
        }
        tag(context, 666).await?;
        Err(GuestError::new("not-now", "it asked for a tag and failed"))
    }

    async fn call(
        &mut self,
        context: &InstanceContext,
        request: &Request,
    ) -> Result<Reply, GuestError> {
        match request.method.as_str() {
            "wait" => Ok(self.hand.wait().await),
            "put-and-wait" => {
                context.db.put("other".into(), "x".into()).await?;
                Ok(self.hand.wait().await)
            }
            "put" => {
                let payload = request.payload.clone();
                context.db.put("key".into(), payload).await?;
                Ok(Reply::default())
            }
            "get" => Ok(Reply::new(
                context.db.view().get(b"key").await?.unwrap_or_default(),
            )),
            _ => {
                tag(context, request.payload.len() as u64).await?;
                Ok(Reply::default())
            }
        }
    }

    async fn query(&mut self, _: &Request, _: &ReadView) -> Result<Reply, GuestError> {
        Ok(self.hand.wait().await)
    }

    async fn durable(&mut self, _: &InstanceContext, tags: Vec<u64>) {
        self.hand.tags.lock().expect("tags").extend(tags);
    }
}

async fn tag(context: &InstanceContext, tag: u64) -> Result<(), GuestError> {
    let seq = context.db.put("tag".into(), "x".into()).await?;
    context.notifier.when_durable(&context.db, seq, tag)
}

fn one_shard() -> Config {
    Config {
        shards: 1,
        ..config()
    }
}

/// A store that a test can break, and the hand that does.
fn breakable() -> (Store, Faults) {
    let inner = fresh();
    let faults = FaultStore::new(inner.objects(), 1);
    let hand = faults.faults();
    (inner.wrap(|_| Arc::new(faults)), hand)
}

type Calling = JoinHandle<Result<CallReply, CallError>>;

fn calling(cluster: &Cluster, method: &'static str) -> Calling {
    let cluster = cluster.clone();
    begun(async move { call(&cluster, "a", method, "x").await })
}

fn querying(cluster: &Cluster, payload: usize, timeout: Duration) -> Calling {
    let cluster = cluster.clone();
    let options = QueryOptions {
        timeout: Some(timeout),
        ..QueryOptions::default()
    };
    begun(async move {
        let payload = vec![0; payload].into();
        cluster
            .query(Target::Shard(0), "wait", payload, options)
            .await
    })
}

async fn outcome(calling: Calling) -> Result<CallReply, CallError> {
    within(calling).await.expect("no panic")
}

/// Waits until so many calls and queries wait or run.
async fn queued(cluster: &Cluster, count: usize) {
    within(async {
        while cluster.shard_report(0).expect("a report").queued != count {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_that_wait_are_bounded_and_end_in_time() {
    const LONG: Duration = Duration::from_secs(60);
    let hand = Hand::new();
    let mut config = one_shard();
    config.limits.query_instances = 1;
    config.limits.queue_calls = 3;
    config.limits.queue_bytes = 1 << 10;
    config.http.max_body = 1 << 10;
    let cluster = Cluster::start(Arc::new(config), hand.module(1))
        .await
        .expect("start");
    let first = querying(&cluster, 1, LONG);
    hand.began(1).await;
    // One that finds no instance in its time does not run.
    let late = outcome(querying(&cluster, 1, Duration::from_millis(20)))
        .await
        .expect_err("no instance");
    assert_eq!(late.kind, CallErrorKind::Timeout, "{late}");
    queued(&cluster, 1).await;
    let second = querying(&cluster, 1, LONG);
    queued(&cluster, 2).await;
    let error = outcome(querying(&cluster, 1 << 10, LONG))
        .await
        .expect_err("too many bytes");
    assert_eq!(error.kind, CallErrorKind::Overloaded, "{error}");
    assert!(error.message.contains("limits.queue_bytes 1024"), "{error}");
    let third = querying(&cluster, 1, LONG);
    queued(&cluster, 3).await;
    let error = outcome(querying(&cluster, 1, LONG))
        .await
        .expect_err("too many");
    assert_eq!(error.kind, CallErrorKind::Overloaded, "{error}");
    assert!(error.message.contains("limits.queue_calls 3"), "{error}");
    // Calls have a queue of their own.
    within(call(&cluster, "a", "put", "x")).await.expect("put");
    hand.holding.send_replace(false);
    for query in [first, second, third] {
        assert_eq!(outcome(query).await.expect("a reply").payload, "waited");
    }
    assert_eq!(
        *hand.began.borrow(),
        3,
        "what was refused or late never ran"
    );
    queued(&cluster, 0).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_a_shard_that_crashed_are_refused_until_it_is_back() {
    let hand = Hand::new();
    let (store, faults) = breakable();
    let mut config = one_shard();
    // It gives a store up at once.
    config
        .settings
        .insert("object_store_max_retries".into(), 0.into());
    let cluster = Cluster::start_on(store, Arc::new(config), hand.module(1))
        .await
        .expect("start");
    call(&cluster, "a", "put", "kept").await.expect("put");
    let running = calling(&cluster, "wait");
    hand.began(1).await;
    let waiting = calling(&cluster, "put");
    queued(&cluster, 2).await;
    faults.add(Rule::new(Fault::FailBefore).path("shard-000"));
    hand.holding.send_replace(false);
    // The call that ran shows nothing, the next one writes what never becomes durable.
    outcome(running)
        .await
        .expect("it read nothing that is lost");
    let error = outcome(waiting).await.expect_err("not durable");
    assert_eq!(error.kind, CallErrorKind::Unknown, "{error}");
    assert!(
        error.message.contains("the request was not sent"),
        "{error}"
    );
    within(async {
        while cluster.shard_report(0).expect("a report").status != ShardState::Crashed {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let error = within(call(&cluster, "a", "get", ""))
        .await
        .expect_err("it is closed");
    assert_eq!(error.kind, CallErrorKind::Unassigned, "{error}");
    assert!(error.never_ran() && error.retryable, "{error}");
    let report = cluster.shard_report(0).expect("a report");
    let why = report.last_error.expect("why");
    assert!(why.contains("the request was not sent"), "{why}");
    faults.clear();
    within(async {
        while !cluster.ready() {
            cluster.restart_shard(0).await.expect("it is tried now");
            tokio::task::yield_now().await;
        }
    })
    .await;
    let kept = call(&cluster, "a", "get", "").await.expect("get");
    assert_eq!(kept.payload, "kept");
    cluster.stop().await;
}

/// A call that waits behind one that runs while the shard crashes.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_a_crash_finds_in_the_queue_never_runs() {
    let hand = Hand::new();
    let (store, faults) = breakable();
    let mut config = one_shard();
    config
        .settings
        .insert("object_store_max_retries".into(), 0.into());
    let cluster = Cluster::start_on(store, Arc::new(config), hand.module(1))
        .await
        .expect("start");
    faults.add(Rule::new(Fault::FailBefore).on(Op::Put).path("wal"));
    let running = calling(&cluster, "put-and-wait");
    hand.began(1).await;
    let waiting = calling(&cluster, "put");
    queued(&cluster, 2).await;
    // The write that nobody waits for ends the database; the shard ends once the call in progress has.
    within(async {
        while cluster.shard_report(0).expect("a report").status != ShardState::Crashed {
            tokio::task::yield_now().await;
        }
    })
    .await;
    hand.holding.send_replace(false);
    let error = outcome(running).await.expect_err("its write is lost");
    assert_eq!(error.kind, CallErrorKind::Unknown, "{error}");
    let error = outcome(waiting).await.expect_err("it did not begin");
    assert_eq!(error.kind, CallErrorKind::Unassigned, "{error}");
    assert!(error.never_ran(), "{error}");
    faults.clear();
    within(cluster.await_ready(None)).await.expect("ready");
    let get = within(call(&cluster, "a", "get", "")).await.expect("get");
    assert_eq!(get.payload, "", "the call that waited did not run");
    cluster.stop().await;
}

/// What an instance asked for that did not start is nobody's.
#[tokio::test(flavor = "multi_thread")]
async fn the_tags_of_a_failed_swap_reach_nobody() {
    let hand = Hand::new();
    let cluster = Cluster::start(Arc::new(one_shard()), hand.module(1))
        .await
        .expect("start");
    call(&cluster, "a", "tag", "1").await.expect("tag 1");
    let error = within(cluster.swap(hand.module(2)))
        .await
        .expect_err("it does not start");
    assert!(error.to_string().contains("asked for a tag"), "{error}");
    call(&cluster, "a", "tag", "22").await.expect("tag 2");
    // They come in the order of seq: the tag between the two would have come before the second.
    within(async {
        while !hand.tags.lock().expect("tags").contains(&2) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(*hand.tags.lock().expect("tags"), [1, 2]);
    cluster.stop().await;
}

/// Longer than the few seconds that a store may always take: the shard waits, its calls end in their own time, and nothing is reopened.
#[tokio::test(flavor = "multi_thread")]
async fn a_shard_outlives_an_outage_of_its_store() {
    let (store, faults) = breakable();
    let cluster = Cluster::start_on(store, Arc::new(one_shard()), Hand::new().module(1))
        .await
        .expect("start");
    call(&cluster, "a", "put", "before").await.expect("put");
    let before = faults.struck();
    faults.add(Rule::new(Fault::FailBefore).path("shard-000"));
    let waiting = calling(&cluster, "put");
    let options = CallOptions {
        timeout: Some(Duration::from_millis(50)),
        ..CallOptions::default()
    };
    let error = within(cluster.call(Target::key("a"), "put", "y".into(), options))
        .await
        .expect_err("its own time is up");
    assert_eq!(error.kind, CallErrorKind::Timeout, "{error}");
    // Some ten seconds of it.
    within(async {
        while faults.struck() < before + 9 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert!(cluster.ready() && !waiting.is_finished());
    faults.clear();
    outcome(waiting).await.expect("it is durable now");
    let report = cluster.shard_report(0).expect("a report");
    assert_eq!((report.opens, report.status), (1, ShardState::Running));
    within(cluster.stop()).await;
}

/// A store that never comes back does not hold up a stop beyond the limits of its parts.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_in_time_though_the_store_is_away() {
    for fault in [Fault::Hang, Fault::FailBefore] {
        let (store, faults) = breakable();
        let mut config = one_shard();
        config.shard.close_timeout = Duration::from_secs(1);
        let cluster = Cluster::start_on(store, Arc::new(config), Hand::new().module(1))
            .await
            .expect("start");
        faults.add(Rule::new(fault).path("shard-000"));
        let waiting = calling(&cluster, "put");
        within(async {
            while faults.struck() == 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        within(cluster.stop()).await;
        let error = outcome(waiting).await.expect_err("never durable");
        assert_eq!(error.kind, CallErrorKind::Unknown, "{fault:?}: {error}");
    }
}

/// A node whose only shard is being opened, and hangs on its way.
async fn opening() -> (Cluster, Faults) {
    let (store, faults) = breakable();
    let hang = Rule::new(Fault::Hang).on(Op::Put).path("manifest");
    faults.add(hang.times(1));
    let config = Config {
        probe: Probe::Background,
        ..one_shard()
    };
    let cluster = Cluster::start_on(store, Arc::new(config), Hand::new().module(1))
        .await
        .expect("start");
    within(faults.hanging(1)).await;
    (cluster, faults)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_waits_for_the_open_that_it_meets() {
    let (cluster, faults) = opening().await;
    let stopping = tokio::spawn({
        let cluster = cluster.clone();
        async move { cluster.stop().await }
    });
    within(async {
        while cluster.restart_shard(0).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // It stops by now, and a stop that does not wait needs no longer than this.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!stopping.is_finished(), "the open is still on its way");
    faults.clear();
    within(stopping).await.expect("stopped");
    let report = cluster.shard_report(0).expect("a report");
    assert_eq!(report.status, ShardState::Unassigned);
    assert_eq!(report.last_error, None, "opened, and closed cleanly");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_does_not_disturb_the_open_that_it_meets() {
    let (cluster, faults) = opening().await;
    for _ in 0..3 {
        within(cluster.restart_shard(0)).await.expect("taken");
    }
    let report = cluster.shard_report(0).expect("a report");
    assert_eq!((report.status, report.opens), (ShardState::Starting, 0));
    faults.clear();
    within(cluster.await_ready(None)).await.expect("ready");
    let report = cluster.shard_report(0).expect("a report");
    assert_eq!((report.opens, report.writer_epoch), (1, Some(1)));
    call(&cluster, "a", "put", "x").await.expect("put");
    within(cluster.stop()).await;
}

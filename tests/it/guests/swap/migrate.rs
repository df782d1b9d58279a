//! Stored data that a revision migrates: no call fails for it, no write is lost, and what a failure leaves the older one serves.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use quarry::Cluster;
use quarry::call::CallErrorKind;
use quarry::cluster::status::ShardState;
use quarry::cluster::{SwapError, SwapReport, SwapStep};
use quarry::config::Config;
use quarry::guest::native::{self, Logic};
use quarry::guest::{GuestError, InstanceContext, Reply, Request};
use tokio::task::JoinHandle;

use super::callers::{Callers, each_counted_once};
use crate::support::guests::{self, ask, options, query, refused, shown};
use crate::support::native::{call, config};
use crate::support::store::{fresh, within};

/// One shard, and how a revision fails on it.
fn with(text: &str) -> Config {
    let mut config = Config {
        shards: 1,
        ..config()
    };
    options(&mut config, text);
    config.limits.cpu_time = Duration::from_millis(200);
    config
}

async fn swap(cluster: &Cluster, config: &Config, revision: u64) -> Result<SwapReport, SwapError> {
    let module = guests::module(config, "migrate", revision).await;
    within(cluster.swap(module)).await
}

fn swapping(
    cluster: &Cluster,
    config: &Config,
    revision: u64,
) -> JoinHandle<Result<SwapReport, SwapError>> {
    let (cluster, config) = (cluster.clone(), config.clone());
    tokio::spawn(async move { swap(&cluster, &config, revision).await })
}

/// Counters of the present form, one call each.
async fn fill(cluster: &Cluster, rows: usize) {
    for row in 0..rows {
        ask(cluster, &format!("row-{row:03}"), "add", "").await;
    }
}

/// From which revision each step of the present instance of shard 0 came.
async fn steps(cluster: &Cluster) -> Vec<u64> {
    let key = &guests::keys(cluster)[0];
    let steps = ask(cluster, key, "steps", "").await;
    serde_json::from_str(&steps).expect("revisions")
}

async fn old_rows(cluster: &Cluster) -> u64 {
    let mut all = 0;
    for key in guests::keys(cluster) {
        all += ask(cluster, &key, "old", "")
            .await
            .parse::<u64>()
            .expect("a count");
    }
    all
}

/// Back and forth: each time the rows that callers wrote in the old form are found, whenever they did.
#[tokio::test(flavor = "multi_thread")]
async fn rows_change_their_form_under_load() {
    const ROUNDS: u64 = 5;
    let config = config();
    let cluster = guests::start(config.clone(), "migrate").await;
    fill(&cluster, 100).await;
    let callers = Callers::start(&cluster, 16, 8, "add");
    for _ in 0..ROUNDS {
        let report = swap(&cluster, &config, 2).await.expect("swap");
        assert_eq!((report.revision, report.shards), (2, 2));
        assert_eq!(old_rows(&cluster).await, 0);
        let steps = steps(&cluster).await;
        assert!(steps.iter().all(|from| *from == 1), "{steps:?}");
        // All at once, so that a later round has rows to migrate, too.
        swap(&cluster, &config, 1).await.expect("back");
        fill(&cluster, 30).await;
        assert!(old_rows(&cluster).await >= 30);
    }
    swap(&cluster, &config, 2).await.expect("swap");
    let counts = callers.stop().await;
    each_counted_once(&counts);
    assert_eq!(old_rows(&cluster).await, 0);
    for (key, counts) in &counts {
        let count = ask(&cluster, key, "count", "").await;
        assert_eq!(count, counts.len().to_string(), "{key}");
    }
    let kept = ask(&cluster, "row-000", "count", "").await;
    assert_eq!(
        kept,
        (1 + ROUNDS).to_string(),
        "what nobody called meanwhile"
    );
    cluster.stop().await;
}

/// The migration ends only when the older revision has served a call between two steps.
#[tokio::test(flavor = "multi_thread")]
async fn the_older_revision_serves_between_the_steps() {
    let config = with(r#"{"revision":2,"how":"wait"}"#);
    let cluster = guests::start(config.clone(), "migrate").await;
    fill(&cluster, 15).await;
    let swapping = swapping(&cluster, &config, 2);
    within(async { while old_rows(&cluster).await > 0 {} }).await;
    // It writes on in its own form; a later step finds that.
    let reply = within(call(&cluster, "row-000", "add", ""))
        .await
        .expect("call");
    assert_eq!((shown(&reply).as_str(), reply.revision), ("2", 1));
    let queried = query(&cluster, "row-000", "old", "").await.expect("query");
    assert_eq!(queried.revision, 1, "queries of the new one wait for it");
    assert!(!swapping.is_finished());
    ask(&cluster, "go", "put", "x").await;
    let report = within(swapping).await.expect("join").expect("swap");
    assert_eq!(report.revision, 2);
    let reply = within(call(&cluster, "row-000", "add", ""))
        .await
        .expect("call");
    assert_eq!((shown(&reply).as_str(), reply.revision), ("3", 2));
    let queried = query(&cluster, "row-000", "old", "").await.expect("query");
    assert_eq!((shown(&queried).as_str(), queried.revision), ("0", 2));
    cluster.stop().await;
}

/// How a step fails, and what the error says.
const FAILURES: [(&str, &[&str]); 5] = [
    (
        "error",
        &["step 2 of the migration", "migrate failed on purpose"],
    ),
    (
        "panic",
        &["step 2 of the migration", "migrate panicked on purpose"],
    ),
    (
        "spin",
        &["step 2 of the migration", "limits.cpu_time (200ms)"],
    ),
    (
        "hang",
        &[
            "step 2 of the migration",
            "limits.migrate_step_time (500ms)",
        ],
    ),
    ("wait", &["limits.migrate_time ", "what they wrote stays"]),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_fails_leaves_the_older_revision_and_its_progress() {
    for (how, says) in FAILURES {
        let mut config = with(&format!(r#"{{"revision":2,"step":2,"how":"{how}"}}"#));
        config.limits.traps = 0;
        if how == "hang" {
            config.limits.migrate_step_time = Duration::from_millis(500);
        }
        if how == "wait" {
            config.limits.migrate_time = Duration::from_secs(2);
        }
        let cluster = guests::start(config.clone(), "migrate").await;
        fill(&cluster, 50).await;
        let error = swap(&cluster, &config, 2).await.expect_err(how);
        let text = error.to_string();
        for part in says {
            assert!(text.contains(part), "{how}: {text}");
        }
        let SwapError::NotAdopted {
            revision: 2,
            shard: 0,
            why,
        } = error
        else {
            panic!("{how}: {error:?}");
        };
        assert_eq!(why.step, SwapStep::Migrate, "{how}");
        let report = cluster.shard_report(0).expect("a report");
        assert_eq!(
            (report.revision, report.status, report.traps),
            (Some(1), ShardState::Running, 0),
            "{how}"
        );
        // Two steps of ten rows, or all of them, are of the new form; the older one reads and rewrites them.
        let left = if how == "wait" { 0 } else { 30 };
        assert_eq!(old_rows(&cluster).await, left, "{how}");
        assert_eq!(ask(&cluster, "row-000", "add", "").await, "2", "{how}");
        swap(&cluster, &config, 3)
            .await
            .unwrap_or_else(|error| panic!("{how}: {error}"));
        assert_eq!(old_rows(&cluster).await, 0, "{how}");
        let took = if how == "wait" { 2 } else { 5 };
        assert_eq!(steps(&cluster).await, vec![1; took], "{how}: it resumes");
        assert_eq!(ask(&cluster, "row-000", "add", "").await, "3", "{how}");
        cluster.stop().await;
    }
}

/// One shard of two does not get there: the other goes back, over data of the new form.
#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_migrated_goes_back() {
    let mut config = config();
    options(
        &mut config,
        r#"{"revision":2,"step":1,"how":"error","shard":1}"#,
    );
    let cluster = guests::start(config.clone(), "migrate").await;
    fill(&cluster, 60).await;
    let error = swap(&cluster, &config, 2).await.expect_err("shard 1 fails");
    assert!(
        matches!(error, SwapError::NotAdopted { shard: 1, .. }),
        "{error:?}"
    );
    assert_eq!(steps(&cluster).await, [2], "the older one migrates from 2");
    for row in 0..60 {
        assert_eq!(
            ask(&cluster, &format!("row-{row:03}"), "add", "").await,
            "2"
        );
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cold_opening_goes_on_where_a_swap_ended() {
    let store = fresh();
    let config = with(r#"{"step":2,"how":"error"}"#);
    let cluster = guests::start_on(store.clone(), config.clone(), "migrate").await;
    fill(&cluster, 50).await;
    swap(&cluster, &config, 2).await.expect_err("it fails");
    cluster.stop().await;
    // Each start fails at its second step, and is tried again: 30 rows are left, then 10, then none.
    let module = guests::module(&config, "migrate", 3).await;
    let cluster = within(Cluster::start_on(store.clone(), config.into(), module))
        .await
        .expect("start");
    within(cluster.await_ready(None)).await.expect("ready");
    assert_eq!(old_rows(&cluster).await, 0);
    assert_eq!(steps(&cluster).await, [0, 0], "of the last start");
    assert_eq!(cluster.shard_report(0).expect("a report").traps, 1);
    for row in 0..50 {
        assert_eq!(
            ask(&cluster, &format!("row-{row:03}"), "add", "").await,
            "2"
        );
    }
    // Each instance that runs calls begins with it, and has nothing to do.
    refused(&cluster, "a", "panic", "").await;
    assert_eq!(steps(&cluster).await, [0]);
    within(cluster.restart_shard(0)).await.expect("restart");
    assert_eq!(steps(&cluster).await, [0]);
    assert_eq!(ask(&cluster, "row-000", "add", "").await, "3");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_opening_that_does_not_get_there_is_a_start_that_failed() {
    for (how, says) in FAILURES {
        let mut config = with(&format!(r#"{{"step":1,"how":"{how}"}}"#));
        config.limits.traps = 0;
        // What spins has to come to its own limit first, on however busy a machine.
        if how == "hang" {
            config.limits.migrate_step_time = Duration::from_millis(500);
        }
        if how == "wait" {
            config.limits.migrate_time = Duration::from_millis(300);
        }
        let store = fresh();
        let cluster = guests::start_on(store.clone(), config.clone(), "migrate").await;
        fill(&cluster, 5).await;
        cluster.stop().await;
        let module = guests::module(&config, "migrate", 2).await;
        let cluster = within(Cluster::start_on(store, config.into(), module))
            .await
            .expect("start");
        let error = refused(&cluster, "row-000", "add", "").await;
        assert_eq!(error.kind, CallErrorKind::Quarantined, "{how}: {error}");
        for part in says {
            let part = part.replace("step 2", "step 1");
            assert!(error.message.contains(&part), "{how}: {error}");
        }
        let error = within(cluster.restart_shard(0)).await;
        // What failed wrote its rows, and but for one that waits, the next finds none.
        assert_eq!(error.is_err(), how == "wait", "{how}: {error:?}");
        within(cluster.stop()).await;
    }
}

/// A shard that opens has no older revision: it is starting, and calls wait. It can be swapped, restarted and stopped meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_migrates_as_it_opens_can_be_told_things() {
    let config = with(r#"{"revision":2,"how":"wait"}"#);
    let module = guests::module(&config, "migrate", 2).await;
    for swaps in [false, true] {
        let started = Cluster::start_on(fresh(), config.clone().into(), module.clone());
        let cluster = within(started).await.expect("start");
        let state = || cluster.shard_report(0).expect("a report").status;
        assert_eq!(state(), ShardState::Starting);
        assert!(!cluster.ready());
        let waiting = tokio::spawn({
            let cluster = cluster.clone();
            async move { call(&cluster, "a", "add", "").await }
        });
        let queued = async {
            while cluster.shard_report(0).expect("a report").queued == 0 {
                tokio::task::yield_now().await;
            }
        };
        within(queued).await;
        if swaps {
            let restarting = tokio::spawn({
                let cluster = cluster.clone();
                async move { cluster.restart_shard(0).await }
            });
            swap(&cluster, &config, 3).await.expect("swap");
            let reply = within(waiting).await.expect("join").expect("call");
            assert_eq!((shown(&reply).as_str(), reply.revision), ("1", 3));
            within(restarting).await.expect("join").expect("restart");
            assert_eq!(state(), ShardState::Running);
            within(cluster.stop()).await;
        } else {
            within(cluster.stop()).await;
            let error = within(waiting).await.expect("join").expect_err("it stops");
            assert_eq!(error.kind, CallErrorKind::Unassigned, "{error}");
        }
    }
}

/// A node that stops does not wait for the end of a migration, and loses nothing of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_a_migration_on_its_way() {
    let store = fresh();
    let config = with(r#"{"revision":2,"how":"wait"}"#);
    let cluster = guests::start_on(store.clone(), config.clone(), "migrate").await;
    fill(&cluster, 15).await;
    let swapping = swapping(&cluster, &config, 2);
    within(async { while old_rows(&cluster).await > 0 {} }).await;
    within(cluster.stop()).await;
    let outcome = within(swapping).await.expect("join");
    assert!(outcome.is_ok_and(|report| report.shards == 0));
    let after = guests::start_on(store, config, "migrate").await;
    assert_eq!(old_rows(&after).await, 0);
    assert_eq!(ask(&after, "row-000", "add", "").await, "2");
    after.stop().await;
}

/// The older instance traps between two steps: it starts anew and serves, and the migration goes on.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_instance_that_traps_meanwhile_ends_nothing() {
    for traps in [0, 5] {
        let mut config = with(r#"{"revision":2,"how":"wait"}"#);
        config.limits.traps = traps;
        config.limits.migrate_time = Duration::from_secs(if traps == 0 { 1 } else { 60 });
        let cluster = guests::start(config.clone(), "migrate").await;
        fill(&cluster, 15).await;
        let swapping = swapping(&cluster, &config, 2);
        within(async { while old_rows(&cluster).await > 0 {} }).await;
        refused(&cluster, "a", "panic", "").await;
        if traps == 0 {
            // Nothing serves any more that could end it by a call; the limit does.
            let error = within(swapping).await.expect("join").expect_err("late");
            assert!(error.to_string().contains("limits.migrate_time"), "{error}");
            let error = refused(&cluster, "a", "old", "").await;
            assert_eq!(error.kind, CallErrorKind::Quarantined, "{error}");
            swap(&cluster, &config, 3).await.expect("swap");
        } else {
            ask(&cluster, "go", "put", "x").await;
            within(swapping).await.expect("join").expect("swap");
        }
        assert_eq!(old_rows(&cluster).await, 0);
        assert_eq!(ask(&cluster, "row-000", "add", "").await, "2");
        cluster.stop().await;
    }
}

/// What happened to the instances of [`Moving`], in order.
type Events = Arc<Mutex<Vec<String>>>;

/// Native logic that migrates in three steps, and hands its memory over.
struct Moving {
    revision: u64,
    steps: u64,
    events: Events,
}

impl Moving {
    fn tell(&self, what: &str) {
        let text = format!("{} {what}", self.revision);
        self.events.lock().expect("events").push(text);
    }
}

#[async_trait]
impl Logic for Moving {
    const HANDOFF: bool = true;
    const MIGRATION: bool = true;

    async fn start(&mut self, _: &InstanceContext) -> Result<(), GuestError> {
        self.tell("start");
        Ok(())
    }

    async fn call(&mut self, _: &InstanceContext, _: &Request) -> Result<Reply, GuestError> {
        Ok(Reply::new(self.steps.to_string()))
    }

    async fn suspend(&mut self, _: &InstanceContext) -> Result<Bytes, GuestError> {
        self.tell("suspend");
        Ok(Bytes::new())
    }

    async fn resume(&mut self, _: &InstanceContext, _: u64, _: &[u8]) -> Result<(), GuestError> {
        self.tell("resume");
        Ok(())
    }

    async fn migrate(&mut self, _: &InstanceContext, from: u64) -> Result<bool, GuestError> {
        self.steps += 1;
        self.tell(&format!("step from {from}"));
        if self.revision == 3 {
            // Native logic has no limits of its own.
            std::future::pending::<()>().await;
        }
        Ok(self.steps == 3)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn native_logic_migrates_before_memory_is_handed_over() {
    let mut config = Config {
        shards: 1,
        ..config()
    };
    config.limits.migrate_step_time = Duration::from_millis(10);
    let events = Events::default();
    let module = |revision| {
        let events = events.clone();
        native::module("moving", revision, move |_| Moving {
            revision,
            steps: 0,
            events: events.clone(),
        })
    };
    let cluster = Cluster::start(Arc::new(config), module(1))
        .await
        .expect("start");
    within(cluster.await_ready(None)).await.expect("ready");
    within(cluster.swap(module(2))).await.expect("swap");
    let expected = BTreeMap::from([
        (
            1,
            vec![
                "start",
                "step from 0",
                "step from 0",
                "step from 0",
                "suspend",
            ],
        ),
        (
            2,
            vec![
                "start",
                "step from 1",
                "step from 1",
                "step from 1",
                "resume",
            ],
        ),
    ]);
    let seen = events.lock().expect("events").clone();
    for (revision, expected) in expected {
        let of = format!("{revision} ");
        let seen: Vec<_> = seen
            .iter()
            .filter_map(|event| event.strip_prefix(&of))
            .collect();
        assert_eq!(seen, expected, "revision {revision}");
    }
    let position = |event: &str| seen.iter().rposition(|seen| seen == event);
    assert!(position("1 suspend") > position("2 step from 1"));
    let error = within(cluster.swap(module(3))).await.expect_err("it hangs");
    assert!(
        error.to_string().contains("limits.migrate_step_time"),
        "{error}"
    );
    let reply = within(call(&cluster, "a", "steps", ""))
        .await
        .expect("call");
    assert_eq!((shown(&reply).as_str(), reply.revision), ("3", 2));
    cluster.stop().await;
}

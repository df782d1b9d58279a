//! Openings that are interrupted, fail on the way, or hang as they close.

use std::time::Duration;

use futures::FutureExt as _;
use object_store::memory::InMemory;

use super::*;
use crate::db::maintenance;
use crate::store::faults::{Fault, FaultStore, Faults, Op, Rule};

/// Longest that a test waits for anything; the bounds under test are shorter.
const PATIENCE: Duration = Duration::from_secs(20);

struct Fixture {
    databases: Arc<Databases>,
    store: Arc<dyn ObjectStore>,
    faults: Faults,
    stop: CancellationToken,
}

impl Fixture {
    fn new(took: metrics::Histogram) -> Self {
        let store = FaultStore::new(Arc::new(InMemory::new()), 1);
        let faults = store.faults();
        let store: Arc<dyn ObjectStore> = Arc::new(store);
        let here = Handle::current();
        let stop = CancellationToken::new();
        let databases = Databases {
            cluster: "main".into(),
            store: store.clone(),
            settings: crate::db::settings::profile(),
            merge_operator: None,
            cache: NodeCache::new(0),
            maintenance: Maintenance::new(maintenance::Options::new(here.clone()))
                .expect("maintenance"),
            flush: flusher::Options {
                flush_interval: Duration::ZERO,
                flush_after: Duration::from_millis(10),
                memtable_flush_wal_objects: 256,
                took,
            },
            limits: Arc::default(),
            storage: here,
            open_timeout: Duration::from_secs(60),
            close_timeout: Duration::from_secs(1),
            stop: stop.clone(),
        };
        Self {
            databases: Arc::new(databases),
            store,
            faults,
            stop,
        }
    }

    async fn open(&self) -> Result<Opening, OpenError> {
        let terms = Terms {
            expected_epoch: None,
            cutoff: self.databases.cutoff(Deadline::never()),
        };
        let opening = self
            .databases
            .open(0, "shard-000".into(), Handle::current(), terms);
        soon(opening).await
    }

    /// Waits until nothing that was opened uses the store any more.
    async fn all_ended(&self) {
        // This one, and that of the databases.
        let ended = async {
            while Arc::strong_count(&self.store) > 2 {
                tokio::task::yield_now().await;
            }
        };
        soon(ended).await;
    }
}

async fn soon<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(PATIENCE, what).await.expect("in time")
}

#[tokio::test]
async fn an_open_that_began_is_waited_for_and_closed() {
    let fixture = Fixture::new(metrics::Histogram::noop());
    fixture
        .faults
        .add(Rule::new(Fault::Hang).on(Op::Put).path("manifest"));
    let (opened, ()) = tokio::join!(fixture.open(), async {
        soon(fixture.faults.hanging(1)).await;
        fixture.stop.cancel();
        fixture.faults.clear();
    });
    let opening = opened.expect("it was about to be open");
    assert_eq!(opening.writer_epoch, 1);
    soon(opening.close()).await.expect("closes");
    fixture.all_ended().await;
}

#[tokio::test]
async fn an_open_that_hangs_does_not_hold_up_a_stop() {
    let fixture = Fixture::new(metrics::Histogram::noop());
    fixture
        .faults
        .add(Rule::new(Fault::Hang).on(Op::Put).path("manifest"));
    let (opened, ()) = tokio::join!(fixture.open(), async {
        soon(fixture.faults.hanging(1)).await;
        fixture.stop.cancel();
    });
    assert_eq!(opened.err(), Some(OpenError::Stopped { shard: 0 }));
    fixture.all_ended().await;
}

#[tokio::test]
async fn an_open_that_takes_too_long_says_what_the_store_said() {
    let mut fixture = Fixture::new(metrics::Histogram::noop());
    Arc::get_mut(&mut fixture.databases)
        .expect("not shared")
        .open_timeout = Duration::from_millis(500);
    fixture.faults.add(Rule::new(Fault::PermissionDenied));
    let error = fixture.open().await.err().expect("denied").to_string();
    assert!(
        error.contains("500ms (shard.open_timeout)") && error.contains("AccessDenied"),
        "{error}"
    );
    fixture.all_ended().await;
}

/// Whatever panics in a flusher: here the histogram of its times.
struct Panics;

impl metrics::HistogramFn for Panics {
    fn record(&self, _: f64) {
        panic!("on purpose");
    }
}

#[tokio::test]
async fn a_flusher_that_panics_ends_its_shard() {
    let fixture = Fixture::new(metrics::Histogram::from_arc(Arc::new(Panics)));
    let opening = fixture.open().await.expect("opens");
    let seq = opening.db.put("a".into(), "b".into()).await.expect("put");
    let waiting = soon(opening.db.gate().durable(seq)).await;
    let told = matches!(&waiting, Err(Ended::Failed(why)) if why.contains("panicked"));
    assert!(told, "nobody waits for ever: {waiting:?}");
    let (reason, why) = soon(opening.down()).await;
    assert_eq!(reason, DownReason::Crashed);
    assert!(why.contains("the flusher panicked"), "{why}");
    soon(opening.abandon(&reason, &why)).await;
    fixture.all_ended().await;
}

#[tokio::test]
async fn a_close_ends_in_time_though_the_store_hangs() {
    for fault in [Fault::Hang, Fault::FailBefore] {
        let fixture = Fixture::new(metrics::Histogram::noop());
        let opening = fixture.open().await.expect("opens");
        let (db, limit) = (opening.db.clone(), Duration::from_secs(1));
        let seq = db.put("a".into(), "b".into()).await.expect("put");
        fixture.faults.add(Rule::new(fault).on(Op::Put));
        let durable = tokio::spawn(async move { db.gate().durable(seq).await });
        let closed = tokio::time::timeout(limit * 5, opening.close()).await;
        assert_eq!(
            closed.expect("in time"),
            Err(CloseError::TimedOut { shard: 0, limit }),
            "{fault:?}"
        );
        let waiting = soon(durable).await.expect("joins");
        assert_eq!(waiting, Err(Ended::Stopped), "{fault:?}");
        fixture.all_ended().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_wait_for_a_flush_that_sets_out_and_no_longer() {
    let fixture = Fixture::new(metrics::Histogram::noop());
    let opening = fixture.open().await.expect("opens");
    let (db, gate) = (&opening.db, opening.db.gate());
    let put = async || {
        let seq = db.put("a".into(), "b".into()).await.expect("put");
        gate.when_durable(seq, Box::new(|_| {}));
        seq
    };
    // A flush sets out in some 0.1 ms, which a busy machine may miss.
    let mut seen = false;
    for _ in 0..1000 {
        let seq = put().await;
        while !seen && gate.durable_seq() < seq {
            seen = gate.set_out().now_or_never().is_none();
            tokio::task::yield_now().await;
        }
        soon(gate.durable(seq)).await.expect("durable");
    }
    assert!(seen, "calls begin while a flush is on its way");
    // Once the object is on its way to the store, calls go on, however long the store takes.
    fixture.faults.add(Rule::new(Fault::Hang).on(Op::Put));
    let seq = put().await;
    soon(fixture.faults.hanging(1)).await;
    soon(gate.set_out()).await;
    assert!(gate.durable_seq() < seq);
    fixture.faults.clear();
    soon(opening.abandon(&DownReason::Stopped, "the test is over")).await;
    fixture.all_ended().await;
}

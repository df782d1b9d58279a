use std::sync::Mutex;
use std::time::Duration;

use futures::FutureExt as _;
use slatedb::object_store::memory::InMemory;
use tokio::sync::Notify;

use super::*;
use crate::gate::Gate;
use crate::gate::deadline::Deadline;
use crate::guest::Limits;

/// A way that leads nowhere.
struct Nowhere;

#[async_trait]
impl Route for Nowhere {
    async fn route(&self, shard: u32, _: Request, _: Kind) -> Result<CallReply, CallError> {
        Err(CallError::closed(shard))
    }
}

fn reach(route: Arc<dyn Route>) -> Reach {
    Reach {
        route,
        waits: Arc::default(),
        metrics: Arc::new(BetweenMetrics::new("test")),
        outside: Outside::new(
            tokio::runtime::Handle::current(),
            Duration::from_secs(1),
            crate::metrics::OutgoingMetrics::new("test"),
        ),
        payload: 10,
    }
}

/// For tests of guests that ask nobody.
pub(in crate::guest) fn nowhere() -> Reach {
    reach(Arc::new(Nowhere))
}

/// Takes what is sent, and answers when it is told to.
#[derive(Default)]
struct Taken {
    sent: Mutex<Vec<(u32, Request, Kind)>>,
    answer: Notify,
}

#[async_trait]
impl Route for Taken {
    async fn route(
        &self,
        shard: u32,
        request: Request,
        kind: Kind,
    ) -> Result<CallReply, CallError> {
        self.sent
            .lock()
            .expect("the list")
            .push((shard, request, kind));
        self.answer.notified().await;
        Ok(CallReply {
            payload: "done".into(),
            content_type: None,
            shard,
            seq: 1,
            revision: 1,
            node: "one".into(),
            http: None,
        })
    }
}

struct Bench {
    db: Arc<ShardDb>,
    gate: Arc<Gate>,
    deadline: Arc<Deadline>,
    route: Arc<Taken>,
    calls: Calls,
}

/// Shard 3 of 8. No flusher runs, so nothing that is written becomes durable.
async fn bench() -> Bench {
    let raw = slatedb::Db::builder("shard", Arc::new(InMemory::new())).build();
    let raw = raw.await.expect("a database");
    let deadline = Arc::new(Deadline::never());
    let gate = Arc::new(Gate::new(raw.snapshot().expect("a view"), deadline.clone()));
    let limits = Arc::new(Limits {
        call_depth: 3,
        ..Limits::default()
    });
    let db = Arc::new(ShardDb::new(raw, 1, gate.clone(), limits, None));
    let route = Arc::new(Taken::default());
    let calls = Calls::new(3, 8, db.clone(), reach(route.clone()));
    Bench {
        db,
        gate,
        deadline,
        route,
        calls,
    }
}

impl Bench {
    fn sent(&self) -> usize {
        self.route.sent.lock().expect("the list").len()
    }
}

fn within(chain: &[u32]) -> Within<'_> {
    Within {
        deadline: clock::now() + Duration::from_secs(30),
        chain,
        headers: &[],
    }
}

fn ask(shard: u32) -> Ask {
    Ask {
        shard,
        method: "put".into(),
        key: Some("k".into()),
        payload: "p".into(),
    }
}

#[tokio::test]
async fn a_call_takes_its_chain_and_its_trace_along_and_nothing_else() {
    let bench = bench().await;
    bench.route.answer.notify_one();
    let headers = [
        ("traceparent".to_owned(), "00-1".to_owned()),
        ("idempotency-key".to_owned(), "7".to_owned()),
    ];
    let within = Within {
        headers: &headers,
        ..within(&[5])
    };
    let reply = bench.calls.call(within, ask(1)).await.expect("a reply");
    assert_eq!(reply.payload, "done");
    let (shard, request, kind) = bench.route.sent.lock().expect("the list").remove(0);
    assert_eq!((shard, kind), (1, Kind::Call));
    assert_eq!(request.chain, [5, 3]);
    assert_eq!(request.headers, [headers[0].clone()]);
    assert_eq!(
        request.deadline, within.deadline,
        "what the caller has left"
    );
    assert_eq!(
        (request.method.as_str(), &*request.payload),
        ("put", &b"p"[..])
    );
    assert_eq!(request.key.as_deref(), Some(&b"k"[..]));
}

#[tokio::test]
async fn what_may_not_be_asked_is_refused_before_anything_is_sent() {
    let bench = bench().await;
    let long = Ask {
        method: "m".repeat(129),
        ..ask(1)
    };
    let heavy = Ask {
        payload: vec![0; 11].into(),
        ..ask(1)
    };
    let keyed = Ask {
        key: Some(vec![0; KEY_MAX_BYTES + 1].into()),
        ..ask(1)
    };
    let nameless = Ask {
        method: String::new(),
        ..ask(1)
    };
    for (chain, ask, code, says) in [
        (&[][..], ask(8), "invalid-argument", "from 0 to 7"),
        (&[], long, "invalid-argument", "1 to 128 bytes"),
        (&[], nameless, "invalid-argument", "1 to 128 bytes"),
        (&[], heavy, "limit", "http.max_body (10)"),
        (&[], keyed, "limit", "65535"),
        (&[], ask(3), "call-cycle", "3 -> 3"),
        (&[1, 0], ask(1), "call-cycle", "1 -> 0 -> 3 -> 1"),
        (&[0, 1, 2], ask(4), "call-depth", "limits.call_depth (3)"),
    ] {
        let error = bench.calls.call(within(chain), ask).await.expect_err(code);
        assert_eq!(error.code, code, "{error}");
        assert!(error.message.contains(says), "{error}");
        assert!(error.never_ran() && !error.retryable, "{error:?}");
    }
    assert_eq!(bench.sent(), 0);
    // A query closes no circle, and is as deep as a call.
    bench.route.answer.notify_one();
    bench
        .calls
        .query(within(&[1, 0]), ask(3))
        .await
        .expect("of itself");
    let deep = bench.calls.query(within(&[0, 1, 2]), ask(4)).await;
    assert_eq!(deep.expect_err("too deep").code, "call-depth");
}

#[tokio::test]
async fn a_call_leaves_when_what_was_written_is_durable() {
    let bench = bench().await;
    // Nothing was written, so nothing is waited for.
    bench.route.answer.notify_one();
    bench
        .calls
        .call(within(&[]), ask(1))
        .await
        .expect("a reply");
    bench.db.put("a".into(), "1".into()).await.expect("put");
    for kind in [Kind::Call, Kind::Query] {
        let mut waits = Box::pin(async {
            match kind {
                Kind::Call => bench.calls.call(within(&[]), ask(1)).await,
                Kind::Query => bench.calls.query(within(&[]), ask(1)).await,
            }
        });
        assert!(waits.as_mut().now_or_never().is_none());
        assert_eq!((bench.sent(), bench.gate.waiting()), (1, 1), "{kind:?}");
        // Given up, it leaves nothing behind.
        drop(waits);
        assert_eq!(bench.gate.waiting(), 0);
    }
    // A query over what is durable already shows nothing new.
    let view = bench.db.durable_view().expect("a view");
    bench.route.answer.notify_one();
    let asked = bench.calls.query_from(&view, within(&[]), ask(1)).await;
    asked.expect("a reply");
    let mut waits = Box::pin(bench.calls.call(within(&[]), ask(1)));
    assert!(waits.as_mut().now_or_never().is_none());
    bench.gate.end(Ended::Fenced);
    let error = waits.await.expect_err("it will never be durable");
    assert!(error.never_ran(), "{error:?}");
    assert_eq!(bench.sent(), 2);
}

#[tokio::test]
async fn nothing_leaves_late() {
    let bench = bench().await;
    let late = Within {
        deadline: clock::now(),
        ..within(&[])
    };
    let error = bench.calls.call(late, ask(1)).await.expect_err("late");
    assert_eq!(error.kind, CallErrorKind::Timeout);
    bench.deadline.shut();
    let error = bench
        .calls
        .call(within(&[]), ask(1))
        .await
        .expect_err("no lease");
    assert_eq!(error.kind, CallErrorKind::NotOwner);
    assert_eq!(bench.sent(), 0);
}

#[tokio::test]
async fn a_shard_that_ends_waits_no_more() {
    let bench = bench().await;
    let mut waits = Box::pin(bench.calls.call(within(&[]), ask(1)));
    assert!(waits.as_mut().now_or_never().is_none());
    assert_eq!(bench.sent(), 1);
    bench.gate.end(Ended::Expired);
    let error = waits.await.expect_err("ended");
    assert_eq!(error.kind, CallErrorKind::Unknown, "it may have run");
}

#[tokio::test]
async fn a_wait_ends_with_its_call() {
    let bench = bench().await;
    let waits = &bench.calls.reach.waits;
    {
        let mut call = Box::pin(bench.calls.call(within(&[]), ask(1)));
        assert!(call.as_mut().now_or_never().is_none());
        waits.enter(3, &[1]).expect_err("3 waits for 1");
        let mut query = Box::pin(bench.calls.query(within(&[]), ask(2)));
        assert!(query.as_mut().now_or_never().is_none());
        waits.enter(3, &[2]).expect("queries close no circle");
    }
    waits.enter(3, &[1]).expect("3 waits no more");
}

#[tokio::test]
async fn queries_that_wait_are_counted() {
    let bench = bench().await;
    let view = bench.db.durable_view().expect("a view");
    assert!(bench.calls.queries_wait(1).now_or_never().is_none());
    {
        let mut query = Box::pin(bench.calls.query_from(&view, within(&[]), ask(1)));
        assert!(query.as_mut().now_or_never().is_none());
        assert!(bench.calls.queries_wait(1).now_or_never().is_some());
        assert!(bench.calls.queries_wait(2).now_or_never().is_none());
    }
    assert!(bench.calls.queries_wait(1).now_or_never().is_none());
}

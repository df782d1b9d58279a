//! Timers over a real database in memory, with a test in place of the shard's task.

use std::future::poll_fn;

use futures::FutureExt as _;
use quarry_core::timers::Failure;

use super::*;
use crate::db::tests::shard_db;
use crate::guest::{Exports, Limits};

const SECOND: Duration = Duration::from_secs(1);
/// Longest that a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(20);

struct Bench {
    db: Arc<ShardDb>,
    root: Timers,
    schedule: Schedule,
}

fn info(name: &str, timer_events: bool) -> ModuleInfo {
    ModuleInfo {
        name: name.into(),
        revision: 1,
        digest: "none".into(),
        exports: Exports {
            timer_events,
            ..Exports::default()
        },
    }
}

impl Bench {
    async fn new() -> Self {
        Self::over(shard_db(Limits::default()).await, 100)
    }

    /// What a shard has that opens with this data.
    fn over(db: Arc<ShardDb>, limit: usize) -> Self {
        let (root, schedule) = Timers::new(db.clone(), limit);
        Self { db, root, schedule }
    }

    /// An instance of `main` that runs the shard.
    fn runs(&mut self) -> Timers {
        let timers = self.starts();
        self.schedule.adopt(&timers, vec!["main".into()]);
        timers
    }

    /// An instance that may come to run it.
    fn starts(&mut self) -> Timers {
        let timers = self.root.next().of(&info("main", true));
        self.schedule.expect(&timers, &["main".into()]);
        timers
    }

    async fn due(&mut self) -> Due {
        let ready = poll_fn(|context| self.schedule.poll_due(context));
        clock::timeout(PATIENCE, ready)
            .await
            .expect("a timer is due");
        self.schedule.take(PATIENCE).await.expect("it is there")
    }

    fn is_due(&mut self) -> bool {
        let ready = poll_fn(|context| self.schedule.poll_due(context));
        ready.now_or_never().is_some()
    }

    /// The names of the records.
    async fn records(&self) -> Vec<String> {
        let mut cursor = self.db.records(record::KIND).await.expect("a cursor");
        let page = cursor.next(1_000).await.expect("a page");
        let names = page.iter().map(|entry| {
            let (module, name) = record::parse_key(&entry.key).expect("a key");
            format!("{module}/{name}")
        });
        names.collect()
    }
}

#[tokio::test]
async fn what_is_set_fires_and_goes() {
    let mut bench = Bench::new().await;
    let timers = bench.runs();
    let now = Duration::ZERO;
    timers.set("v", now, "one".into()).await.expect("set");
    let seq = timers.set_durable("d", now, "two".into()).await;
    assert_eq!(seq, Ok(bench.db.visible_seq()));
    assert_eq!(bench.root.pending(), 2);
    let mut fired = Vec::new();
    for _ in 0..2 {
        let due = bench.due().await;
        assert!(due.timer.due_ms <= wall_ms());
        fired.push((due.timer.name.to_string(), due.timer.payload.clone()));
        bench.schedule.fired(due, PATIENCE).await;
    }
    fired.sort_unstable();
    assert_eq!(
        fired,
        [("d".into(), "two".into()), ("v".into(), "one".into())]
    );
    assert!(!bench.is_due() && bench.records().await.is_empty());
    assert_eq!(bench.root.pending(), 0);
    assert_eq!(timers.due_ms("d").await, Ok(None));
}

#[tokio::test]
async fn what_is_durable_is_there_at_the_next_opening() {
    let mut bench = Bench::new().await;
    let timers = bench.runs();
    timers.set("gone", SECOND, "".into()).await.expect("set");
    for (name, after) in [("late", SECOND * 3_600), ("soon", Duration::ZERO)] {
        let set = timers.set_durable(name, after, name.into()).await;
        set.expect("set");
    }
    let due = timers.due_ms("late").await.expect("asked").expect("a time");
    // What nobody wrote is passed over, and left.
    for (rest, value) in [(&b"main\0odd"[..], &[9_u8, 1][..]), (b"odd", &[1; 9])] {
        let value = Bytes::copy_from_slice(value);
        bench
            .db
            .put_record(record::KIND, rest, value)
            .await
            .expect("put");
    }
    let mut again = Bench::over(bench.db.clone(), 100);
    let timers = again.runs();
    assert_eq!(timers.due_ms("late").await, Ok(Some(due)));
    assert_eq!(timers.due_ms("gone").await, Ok(None));
    assert_eq!(timers.due_ms("odd").await, Ok(None));
    let fired = again.due().await;
    assert_eq!(
        (&*fired.timer.name, &*fired.timer.payload),
        ("soon", &b"soon"[..])
    );
    assert!(!again.is_due());
    // It fires again where its guest did not come to take it.
    let mut third = Bench::over(bench.db.clone(), 100);
    third.runs();
    assert_eq!(&*third.due().await.timer.name, "soon");
    timers
        .set_durable("odd", SECOND, "".into())
        .await
        .expect("set");
    assert_eq!(timers.cancel("odd").await, Ok(true));
}

#[tokio::test]
async fn one_that_fires_can_be_set_anew_or_cancelled() {
    let mut bench = Bench::new().await;
    let timers = bench.runs();
    for meanwhile in ["anew", "anew-volatile", "cancel", "nothing"] {
        timers
            .set_durable("a", Duration::ZERO, "".into())
            .await
            .expect("set");
        let due = bench.due().await;
        match meanwhile {
            "anew" => {
                _ = timers
                    .set_durable("a", SECOND, "".into())
                    .await
                    .expect("set")
            }
            "anew-volatile" => timers.set("a", SECOND, "".into()).await.expect("set"),
            "cancel" => assert_eq!(timers.cancel("a").await, Ok(true)),
            _ => assert!(timers.due_ms("a").await.expect("asked").is_some()),
        }
        bench.schedule.fired(due, PATIENCE).await;
        let there = timers.due_ms("a").await.expect("asked").is_some();
        assert_eq!(there, meanwhile.starts_with("anew"), "{meanwhile}");
        let stored = bench.records().await;
        assert_eq!(
            stored.len(),
            usize::from(meanwhile == "anew"),
            "{meanwhile}"
        );
    }
}

#[tokio::test]
async fn what_failed_is_tried_again_unless_it_is_volatile() {
    let mut bench = Bench::new().await;
    let timers = bench.runs();
    let now = Duration::ZERO;
    timers.set("v", now, "".into()).await.expect("set");
    let volatile = bench.due().await;
    let failed = bench.schedule.failed(&volatile, Failure::Error, PATIENCE);
    assert_eq!(failed.await, None);
    timers.set_durable("d", now, "".into()).await.expect("set");
    let durable = bench.due().await;
    let again = bench.schedule.failed(&durable, Failure::Trap, PATIENCE);
    assert_eq!(again.await, Some((1, SECOND * 20)));
    assert!(!bench.is_due());
    bench.schedule.begin_anew();
    assert_eq!(&*bench.due().await.timer.name, "d");
}

/// What failed goes on with its pauses where the shard is opened next, and is written only as long as they grow.
#[tokio::test]
async fn failures_outlive_the_opening() {
    let mut bench = Bench::new().await;
    let timers = bench.runs();
    let set = timers.set_durable("d", Duration::ZERO, "holds".into());
    set.await.expect("set");
    let due_ms = timers.due_ms("d").await.expect("asked");
    let (mut pauses, mut writes) = (Vec::new(), 0);
    for nth in 1..=9 {
        let due = bench.due().await;
        assert_eq!(
            (&*due.timer.payload, Some(due.timer.due_ms)),
            (&b"holds"[..], due_ms)
        );
        let before = bench.db.visible_seq();
        let failed = bench.schedule.failed(&due, Failure::Error, PATIENCE).await;
        pauses.push(failed.expect("it is durable").1.as_secs());
        writes += usize::from(bench.db.visible_seq() > before);
        if nth == 2 {
            // An error and a trap count each for itself.
            bench = Bench::over(bench.db.clone(), 100);
            bench.runs();
            let due = bench.due().await;
            let failed = bench.schedule.failed(&due, Failure::Trap, PATIENCE).await;
            assert_eq!(failed, Some((3, SECOND * 20)));
        }
        bench = Bench::over(bench.db.clone(), 100);
        bench.runs();
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    assert_eq!(writes, 6, "none once the pauses are the longest");
    // A swap, or a restart by hand, forgets it, and so does whoever sets it anew.
    let due = bench.due().await;
    bench.schedule.begin_anew();
    let failed = bench.schedule.failed(&due, Failure::Trap, PATIENCE).await;
    assert_eq!(failed, Some((1, SECOND * 20)));
    let mut bench = Bench::over(bench.db.clone(), 100);
    let timers = bench.runs();
    let due = bench.due().await;
    let set = timers.set_durable("d", Duration::ZERO, "anew".into());
    set.await.expect("set");
    let failed = bench.schedule.failed(&due, Failure::Error, PATIENCE).await;
    assert_eq!(failed, None, "another one of its name is there");
    let due = bench.due().await;
    assert_eq!(&*due.timer.payload, b"anew");
    let failed = bench.schedule.failed(&due, Failure::Error, PATIENCE).await;
    assert_eq!(failed, Some((1, SECOND)));
    // One that is cancelled while it fires does not come back by its failure.
    let mut bench = Bench::over(bench.db.clone(), 100);
    let timers = bench.runs();
    let due = bench.due().await;
    assert_eq!(timers.cancel("d").await, Ok(true));
    let failed = bench.schedule.failed(&due, Failure::Error, PATIENCE).await;
    assert_eq!(failed, None);
    assert!(bench.records().await.is_empty());
}

#[tokio::test]
async fn an_instance_that_does_not_run_yet_changes_nothing_in_memory() {
    let mut bench = Bench::new().await;
    let old = bench.runs();
    for name in ["kept", "gone", "both"] {
        old.set(name, SECOND, "old".into()).await.expect("set");
    }
    old.set_durable("stored", SECOND, "old".into())
        .await
        .expect("set");
    for takes_over in [false, true] {
        let new = bench.starts();
        for name in ["both", "new", "stored"] {
            let set = new.set(name, SECOND * 60, "new".into()).await;
            set.expect("set");
        }
        assert_eq!(new.cancel("gone").await, Ok(true));
        assert_eq!(new.cancel("gone").await, Ok(false));
        assert_eq!(new.due_ms("gone").await, Ok(None));
        assert!(new.due_ms("new").await.expect("asked").is_some());
        assert_eq!(old.due_ms("new").await, Ok(None));
        assert!(old.due_ms("gone").await.expect("asked").is_some());
        assert_eq!(bench.records().await, ["main/stored"]);
        if !takes_over {
            bench.schedule.dismiss();
            let late = new.set("late", SECOND, "".into()).await;
            assert_eq!(late.expect_err("it is gone").code, "closed");
            continue;
        }
        bench.schedule.adopt(&new, vec!["main".into()]);
        // In its turn, behind what makes way for `stored`.
        assert_eq!(new.cancel("none").await, Ok(false));
        assert!(bench.records().await.is_empty());
        for (name, there) in [
            ("kept", true),
            ("gone", false),
            ("both", true),
            ("new", true),
        ] {
            let due = new.due_ms(name).await.expect("asked");
            assert_eq!(due.is_some(), there, "{name}");
            let later = due.is_some_and(|due| due > wall_ms() + 10_000);
            assert_eq!(later, there && name != "kept", "{name}");
        }
    }
    bench.schedule.forget();
    assert_eq!(bench.root.pending(), 0);
}

#[tokio::test]
async fn a_guest_that_takes_no_timers_leaves_durable_ones() {
    let mut bench = Bench::new().await;
    let timers = bench.runs();
    let now = Duration::ZERO;
    timers.set("v", now, "".into()).await.expect("set");
    timers.set_durable("d", now, "".into()).await.expect("set");
    let deaf = bench.root.next().of(&info("main", false));
    bench.schedule.expect(&deaf, &[]);
    bench.schedule.adopt(&deaf, Vec::new());
    assert!(!bench.schedule.is_on() && !bench.is_due());
    for refused in [
        deaf.set("a", now, "".into()).await.err(),
        deaf.set_durable("a", now, "".into()).await.err(),
        deaf.cancel("d").await.err(),
        deaf.due_ms("d").await.err(),
        deaf.due_ms_in(&bench.db.view(), "d").await.err(),
    ] {
        let error = refused.expect("refused");
        assert_eq!(error.code, "invalid-argument");
        assert!(error.message.contains("timer-events"), "{error}");
    }
    bench.runs();
    assert_eq!(&*bench.due().await.timer.name, "d");
    assert_eq!(bench.root.pending(), 1);
}

#[tokio::test]
async fn what_is_over_a_bound_is_refused_and_named() {
    let mut bench = Bench::over(shard_db(Limits::default()).await, 2);
    let timers = bench.runs();
    let (long, large) = (
        "n".repeat(NAME_MAX_BYTES + 1),
        vec![0; PAYLOAD_MAX_BYTES + 1],
    );
    let far = DELAY_MAX + Duration::from_millis(1);
    let cases: [(&str, Duration, Bytes, &str); 4] = [
        (
            "",
            SECOND,
            "".into(),
            "has 0 bytes, and has to have 1 to 256",
        ),
        (&long, SECOND, "".into(), "has 257 bytes"),
        ("a", SECOND, large.into(), "65537 bytes, and may have 65536"),
        ("a", far, "".into(), "ten years"),
    ];
    for (name, after, payload, says) in cases {
        for error in [
            timers.set(name, after, payload.clone()).await.err(),
            timers.set_durable(name, after, payload).await.err(),
        ] {
            let error = error.expect("refused");
            assert_eq!(error.code, "invalid-argument");
            assert!(error.message.contains(says), "{error}");
        }
    }
    let full = |error: GuestError| {
        assert_eq!((&*error.code, error.retryable), ("limit", true));
        assert!(
            error.message.contains("may have 2 (limits.timers)"),
            "{error}"
        );
    };
    for durable in [true, false] {
        for name in ["a", "b", "a"] {
            let set = match durable {
                true => timers.set_durable(name, SECOND, "".into()).await.map(drop),
                false => timers.set(name, SECOND, "".into()).await,
            };
            set.expect("within");
        }
        full(timers.set("c", SECOND, "".into()).await.expect_err("full"));
        let set = timers.set_durable("c", SECOND, "".into()).await;
        full(set.expect_err("full"));
    }
    assert!(
        bench.records().await.is_empty(),
        "volatile ones took their place"
    );
    // A lower limit loses none that is there.
    for name in ["a", "b"] {
        timers
            .set_durable(name, SECOND, "".into())
            .await
            .expect("set");
    }
    let mut lower = Bench::over(bench.db.clone(), 0);
    let timers = lower.runs();
    assert!(timers.due_ms("b").await.expect("asked").is_some());
    assert_eq!(
        timers
            .set("c", SECOND, "".into())
            .await
            .expect_err("full")
            .code,
        "limit"
    );
    assert_eq!(lower.root.pending(), 2);
}

#[tokio::test]
async fn volatile_payloads_are_bounded_together() {
    let mut bench = Bench::over(shard_db(Limits::default()).await, 1_000);
    let timers = bench.runs();
    let payload = Bytes::from(vec![0; PAYLOAD_MAX_BYTES]);
    let mut refused = None;
    for n in 0..300 {
        let name = n.to_string();
        if let Err(error) = timers.set(&name, SECOND, payload.clone()).await {
            refused = Some(error);
            break;
        }
    }
    let error = refused.expect("it is bounded");
    assert_eq!(error.code, "limit");
    assert!(error.message.contains("may have 16777216"), "{error}");
    assert_eq!(timers.cancel("0").await, Ok(true));
    timers.set("again", SECOND, payload).await.expect("room");
}

/// A call that is cut off in the middle of its wish leaves memory and database of one mind.
#[tokio::test]
async fn a_wish_that_is_dropped_is_carried_out() {
    let mut bench = Bench::new().await;
    let timers = bench.runs();
    timers.due_ms("none").await.expect("loaded");
    let wish = timers.set_durable("a", SECOND, "".into());
    assert!(wish.now_or_never().is_none(), "it waits for its write");
    // In its turn, behind the first.
    assert_eq!(timers.cancel("none").await, Ok(false));
    assert!(timers.due_ms("a").await.expect("asked").is_some());
    assert_eq!(bench.records().await, ["main/a"]);
}

#[tokio::test]
async fn a_query_sees_what_its_view_shows() {
    let mut bench = Bench::new().await;
    let timers = bench.runs();
    let before = bench.db.snapshot().expect("a snapshot");
    timers.set("v", SECOND, "".into()).await.expect("set");
    timers
        .set_durable("d", SECOND, "".into())
        .await
        .expect("set");
    let after = bench.db.snapshot().expect("a snapshot");
    assert_eq!(timers.cancel("d").await, Ok(true));
    for (view, name, there) in [
        (&before, "d", false),
        (&before, "v", true),
        (&after, "d", true),
        (&bench.db.view(), "d", false),
    ] {
        let due = timers.due_ms_in(view, name).await.expect("asked");
        assert_eq!(due.is_some(), there, "{name}");
    }
}

#[tokio::test]
async fn who_waits_for_a_shard_that_ends_is_told() {
    let db = shard_db(Limits::default()).await;
    let (root, schedule) = Timers::new(db, 10);
    let timers = root.next().of(&info("main", true));
    let asked = tokio::spawn(async move { timers.due_ms("a").await });
    drop(schedule);
    let answer = clock::timeout(PATIENCE, asked).await.expect("in time");
    assert_eq!(answer.expect("no panic").expect_err("ended").code, "closed");
}

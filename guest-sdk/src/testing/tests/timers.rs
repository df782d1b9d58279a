//! Timers against what `wit/timers.wit` promises.

use std::time::{Duration, SystemTime};

use super::super::*;
use super::code;
use crate::{db, timers};

const SECOND: Duration = Duration::from_secs(1);

/// Sets timers as calls say, remembers what fired, and fails as the payload says: `error`, `anew`, `cancel`, `anew-volatile`.
#[derive(Default)]
struct Alarm {
    fired: Vec<(String, Vec<u8>, SystemTime)>,
    starts: bool,
}

impl Guest for Alarm {
    fn call(&mut self, call: Call) -> Result<Reply> {
        let (name, after_ms, payload): (String, u64, String) = call.json()?;
        let after = Duration::from_millis(after_ms);
        match call.method() {
            "set" => timers::set(&name, after, payload)?,
            "set-durable" => _ = timers::set_durable(&name, after, payload)?,
            "cancel" => return Ok(Reply::text(timers::cancel(&name)?)),
            "due" => return Guest::query(self, call),
            other => return Err(Error::unknown_method(other)),
        }
        Ok(Reply::empty())
    }

    fn query(&self, call: Call) -> Result<Reply> {
        let (name, after_ms, payload): (String, u64, String) = call.json()?;
        let after = Duration::from_millis(after_ms);
        match call.method() {
            "set" => timers::set(&name, after, payload)?,
            "set-durable" => _ = timers::set_durable(&name, after, payload)?,
            "cancel" => _ = timers::cancel(&name)?,
            _ => {}
        }
        Ok(Reply::text(timers::due(&name)?.is_some()))
    }

    fn start(&mut self) -> Result<()> {
        self.starts = crate::context::revision() > 1;
        if self.starts {
            timers::set("of-start", SECOND, "new")?;
            timers::cancel("gone")?;
        }
        if crate::context::revision() == 13 {
            return Err(Error::new("mine", "on purpose"));
        }
        Ok(())
    }

    fn fire(&mut self, timer: Timer) -> Result<()> {
        self.fired.push((
            timer.name().to_owned(),
            timer.payload().to_vec(),
            timer.due(),
        ));
        match timer.payload() {
            b"error" => Err(Error::new("mine", "not now")),
            b"anew" => timers::set_durable(timer.name(), SECOND, "second").map(|_| ()),
            b"anew-volatile" => timers::set(timer.name(), SECOND, "second"),
            b"cancel" => {
                let there = timers::cancel(timer.name())?;
                db::put("cancelled", u64::from(there)).map(|_| ())
            }
            _ => Ok(()),
        }
    }
}

mod taking {
    crate::export!(super::Alarm, queries, lifecycle, timer_events);
}

/// Does not take timers.
#[derive(Default)]
struct Deaf;

impl Guest for Deaf {
    fn call(&mut self, call: Call) -> Result<Reply> {
        match call.method() {
            "set" => timers::set("a", SECOND, "").map(|()| Reply::empty()),
            "set-durable" => timers::set_durable("a", SECOND, "").map(|_| Reply::empty()),
            "cancel" => Ok(Reply::text(timers::cancel("a")?)),
            _ => Ok(Reply::text(timers::due("a")?.is_some())),
        }
    }
}

mod deaf {
    crate::export!(super::Deaf);
}

fn set(host: &mut Host, method: &str, name: &str, after_ms: u64, payload: &str) {
    let request = host.call(method).json(&(name, after_ms, payload));
    request.run().unwrap();
}

fn asks(host: &mut Host, method: &str, name: &str) -> bool {
    let request = host.call(method).json(&(name, 0, ""));
    request.run().unwrap().text() == "true"
}

fn names(host: &Host) -> Vec<&str> {
    let fired = &host.guest::<Alarm>().fired;
    fired.iter().map(|(name, ..)| &**name).collect()
}

#[test]
fn timers_fire_in_the_order_of_their_times_and_never_early() {
    let mut host = Host::new::<Alarm>();
    for (name, method, after_ms) in [
        ("c", "set", 3_000),
        ("a", "set-durable", 1_000),
        ("b", "set", 2_000),
        ("now", "set", 0),
    ] {
        set(&mut host, method, name, after_ms, name);
    }
    assert_eq!(names(&host), ["now"], "it is due when its call is over");
    host.advance(Duration::from_millis(999));
    assert_eq!(names(&host), ["now"]);
    host.advance(Duration::from_millis(1));
    assert_eq!(names(&host), ["now", "a"]);
    host.advance(SECOND * 10);
    assert_eq!(names(&host), ["now", "a", "b", "c"]);
    let fired = &host.guest::<Alarm>().fired;
    let since_a = |at: usize| fired[at].2.duration_since(fired[1].2).unwrap();
    assert_eq!((since_a(2), since_a(3)), (SECOND, SECOND * 2));
    assert!(
        fired
            .iter()
            .all(|(name, payload, _)| name.as_bytes() == payload)
    );
    for name in ["a", "b", "c", "now"] {
        assert!(!asks(&mut host, "due", name), "{name}");
        assert!(!asks(&mut host, "cancel", name), "{name}");
    }
}

#[test]
fn durable_timers_outlive_what_volatile_ones_do_not() {
    for end in ["crash", "restart", "lost"] {
        let mut host = Host::new::<Alarm>();
        set(&mut host, "set-durable", "kept", 1_000, "");
        set(&mut host, "set", "gone", 1_000, "");
        if end != "lost" {
            host.make_durable();
        }
        match end {
            "restart" => host.restart().unwrap(),
            _ => host.crash().unwrap(),
        }
        let kept = end != "lost";
        assert_eq!(asks(&mut host, "due", "kept"), kept, "{end}");
        assert!(!asks(&mut host, "due", "gone"), "{end}");
        host.advance(SECOND);
        assert_eq!(names(&host), ["kept"][..usize::from(kept)], "{end}");
        // What removed it is a write as any other.
        host.crash().unwrap();
        assert_eq!(names(&host), ["kept"][..usize::from(kept)], "{end}");
        host.make_durable();
        host.crash().unwrap();
        assert!(names(&host).is_empty(), "{end}");
    }
}

#[test]
fn an_overdue_timer_fires_when_its_shard_is_there_again() {
    let mut host = Host::new::<Alarm>();
    set(&mut host, "set-durable", "late", 1_000, "");
    host.stop(StopReason::Stopping);
    host.advance(SECOND * 60);
    host.restart().unwrap();
    assert_eq!(names(&host), ["late"]);
}

/// The next opening tries it at once, and its pauses go on.
#[test]
fn pauses_go_on_where_the_shard_is_opened_again() {
    for end in ["restart", "crash"] {
        let mut host = Host::new::<Alarm>();
        set(&mut host, "set-durable", "a", 0, "error");
        host.make_durable();
        host.advance(SECOND * 3);
        assert_eq!(names(&host).len(), 3, "after 0, 1 and 3 s");
        match end {
            "restart" => host.restart().unwrap(),
            _ => host.crash().unwrap(),
        }
        assert_eq!(names(&host), ["a"], "{end}: at once");
        host.advance(SECOND * 8 - Duration::from_millis(1));
        assert_eq!(names(&host).len(), 1, "{end}: a pause of 8 s");
        host.advance(Duration::from_millis(1));
        assert_eq!(names(&host).len(), 2, "{end}");
    }
}

#[test]
fn a_durable_timer_that_fails_is_tried_again() {
    let mut host = Host::new::<Alarm>();
    set(&mut host, "set-durable", "a", 0, "error");
    set(&mut host, "set", "b", 0, "error");
    assert_eq!(names(&host), ["a", "b"]);
    for (after, fired) in [(999, 2), (1, 3), (1_999, 3), (1, 4), (4_000, 5), (8_000, 6)] {
        host.advance(Duration::from_millis(after));
        assert_eq!(names(&host).len(), fired, "{after}");
    }
    assert!(asks(&mut host, "due", "a"));
    let line = host.logs().pop().unwrap();
    assert!(line.message.contains("mine: not now"), "{line:?}");
    // Another guest is tried at once, and a timer that is set anew begins anew.
    host.swap::<Alarm>(1).unwrap();
    assert_eq!(names(&host), ["a"]);
    set(&mut host, "set-durable", "a", 500, "good");
    host.advance(SECOND);
    assert_eq!(names(&host), ["a", "a"]);
    assert!(!asks(&mut host, "due", "a"));
}

#[test]
fn a_timer_can_be_set_anew_and_cancelled_while_it_fires() {
    for (payload, again, there) in [
        ("anew", true, None),
        ("anew-volatile", true, None),
        ("cancel", false, Some(1)),
        ("", false, None),
    ] {
        for method in ["set-durable", "set"] {
            let mut host = Host::new::<Alarm>();
            set(&mut host, method, "a", 0, payload);
            assert_eq!(asks(&mut host, "due", "a"), again, "{method} {payload}");
            host.advance(SECOND * 5);
            let count = 1 + usize::from(again);
            assert_eq!(names(&host).len(), count, "{method} {payload}");
            let cancelled = host.run(|| db::get::<u64>("cancelled")).unwrap();
            let there = there.map(|_| u64::from(method == "set-durable"));
            assert_eq!(cancelled, there, "{method}");
        }
    }
}

#[test]
fn a_name_has_one_timer() {
    for (first, second) in [
        ("set", "set-durable"),
        ("set-durable", "set"),
        ("set", "set"),
    ] {
        let mut host = Host::new::<Alarm>();
        set(&mut host, first, "a", 1_000, "first");
        set(&mut host, second, "a", 2_000, "second");
        host.advance(SECOND * 5);
        let fired = &host.guest::<Alarm>().fired;
        assert_eq!(fired.len(), 1, "{first} {second}");
        assert_eq!(fired[0].1, b"second");
    }
}

#[test]
fn what_is_wrong_is_refused_and_named() {
    let mut host = Host::builder()
        .limits(Limits {
            timers: 2,
            ..Limits::default()
        })
        .start::<Alarm>()
        .unwrap();
    let year = 366 * 86_400_000_u64;
    let (long, large) = ("n".repeat(257), "p".repeat((64 << 10) + 1));
    for method in ["set", "set-durable"] {
        for (name, after_ms, payload, says) in [
            ("", 0, "", "the name of a timer has 0 bytes"),
            (&*long, 0, "", "has 257 bytes"),
            ("a", 0, &*large, "65537 bytes, and may have 65536"),
            ("a", 11 * year, "", "ten years"),
        ] {
            let request = host.call(method).json(&(name, after_ms, payload));
            let error = request.run().unwrap_err();
            assert_eq!(error.code(), "invalid-argument", "{says}");
            assert!(error.message().contains(says), "{error}");
        }
        let query = host.query(method).json(&("a", 0, ""));
        assert_eq!(code(query.run()), "read-only");
        set(&mut host, method, "a", 1_000, "");
        set(&mut host, method, "b", 1_000, "");
        let error = host.call(method).json(&("c", 0, "")).run().unwrap_err();
        assert_eq!((error.code(), error.is_retryable()), ("limit", true));
        assert!(error.message().contains("limits.timers"), "{error}");
        set(&mut host, method, "a", 2_000, "");
        assert!(asks(&mut host, "cancel", "b"));
    }
    let query = host.query("due").json(&("a", 0, "")).run().unwrap();
    assert_eq!(query.text(), "true");
    let mut deaf = Host::new::<Deaf>();
    for method in ["set", "set-durable", "cancel", "due"] {
        let error = deaf.call(method).run().unwrap_err();
        assert_eq!(error.code(), "invalid-argument", "{method}");
        assert!(error.message().contains("timer-events"), "{error}");
    }
}

#[test]
fn volatile_payloads_are_bounded_together() {
    let mut host = Host::bare();
    let payload = vec![0; 64 << 10];
    let error = host.run(|| {
        for n in 0..300 {
            timers::set(&n.to_string(), SECOND, &payload)?;
        }
        Ok(())
    });
    let error = error.unwrap_err();
    assert_eq!(error.code(), "limit");
    assert!(error.message().contains("may have 16777216"), "{error}");
}

#[test]
fn swaps_keep_what_the_next_guest_takes() {
    let mut host = Host::new::<Alarm>();
    for (name, method) in [("gone", "set"), ("kept", "set"), ("sure", "set-durable")] {
        set(&mut host, method, name, 1_000, "old");
    }
    assert_eq!(code(host.swap::<Alarm>(13)), "mine");
    assert!(asks(&mut host, "due", "gone"), "the swap failed");
    assert!(!asks(&mut host, "due", "of-start"));
    host.swap::<Alarm>(2).unwrap();
    assert!(!asks(&mut host, "due", "gone"));
    host.advance(SECOND);
    let mut fired = names(&host);
    fired.sort_unstable();
    assert_eq!(fired, ["kept", "of-start", "sure"]);

    set(&mut host, "set", "gone", 1_000, "");
    set(&mut host, "set-durable", "sure", 1_000, "");
    host.swap::<Deaf>(3).unwrap();
    host.advance(SECOND * 10);
    host.swap::<Alarm>(1).unwrap();
    assert_eq!(names(&host), ["sure"]);
}

#[test]
fn nothing_fires_once_the_shard_was_fenced() {
    let mut host = Host::new::<Alarm>();
    set(&mut host, "set", "a", 1_000, "");
    host.fence();
    host.advance(SECOND * 10);
    assert!(names(&host).is_empty());
}

#[test]
#[should_panic(expected = "set anew without a delay")]
fn a_timer_that_never_rests_is_told_to_the_test() {
    #[derive(Default)]
    struct Restless;
    impl Guest for Restless {
        fn call(&mut self, _: Call) -> Result<Reply> {
            timers::set("again", Duration::ZERO, "").map(|()| Reply::empty())
        }
        fn fire(&mut self, timer: Timer) -> Result<()> {
            timers::set(timer.name(), Duration::ZERO, "")
        }
    }
    crate::export!(Restless, timer_events);
    _ = Host::new::<Restless>().call("go").run();
}

/// Records of the host are neither shown nor reached, in any way to read and write.
#[test]
fn records_of_timers_are_nobodys_keys() {
    let mut host = Host::new::<Alarm>();
    set(&mut host, "set-durable", "a", 1_000, "");
    let key = [&[0xff; 8][..], b"tmain\0a"].concat();
    host.run(|| {
        db::put([0xff; 7], 1_u8)?;
        let mut seen = Vec::new();
        for order in [db::Order::Ascending, db::Order::Descending] {
            seen.push(db::scan_prefix("", order)?.count());
            seen.push(db::scan_prefix([0xff_u8; 3], order)?.count());
            seen.push(db::scan_prefix([0xff_u8; 8], order)?.count());
            let snapshot = db::snapshot()?;
            seen.push(snapshot.scan_prefix("", order)?.count());
            let transaction = db::begin(db::Isolation::Serializable)?;
            seen.push(transaction.scan_prefix("", order)?.count());
        }
        assert_eq!(seen, [1, 1, 0, 1, 1, 1, 1, 0, 1, 1]);
        for code in [
            code(db::get::<Vec<u8>>(&key[..])),
            code(db::put(&key[..], 1_u8)),
            code(db::remove(&key[..])),
            code(db::begin(db::Isolation::Snapshot)?.put(&key[..], 1_u8)),
        ] {
            assert_eq!(code, "invalid-key");
        }
        Ok(())
    })
    .unwrap();
    host.advance(SECOND);
    assert_eq!(names(&host), ["a"]);
}

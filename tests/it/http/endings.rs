//! How requests end: durable, one after the other, and each failure in its own words.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quarry::config::Config;

use super::{Door, answer};
use crate::support::guests;
use crate::support::native::config;
use crate::support::store::{Held, within};

#[tokio::test(flavor = "multi_thread")]
async fn what_an_answer_shows_is_durable_unless_it_may_leave_earlier() {
    let held = Held::new();
    let cluster = guests::start_on(held.store(), config(), "web").await;
    let door = Arc::new(Door::of(cluster).await);
    assert_eq!(door.post("/count", "").await.body, "1");
    held.hold();
    let applied = door
        .ask("POST", "/http/shard/0/count")
        .header("quarry-durability", "applied");
    assert_eq!(answer(applied).await.body, "2", "at once");
    assert_eq!(
        door.post("/applied", "").await.body,
        "3",
        "the guest said so"
    );
    let released = Arc::new(AtomicBool::new(false));
    let waiting: Vec<_> = ["/count", "/none", "/error", "/set?x-a=b"]
        .into_iter()
        .map(|path| {
            let (door, released) = (door.clone(), released.clone());
            tokio::spawn(async move {
                let got = door.get(path).await;
                assert!(
                    released.load(Ordering::SeqCst),
                    "{path} left too early: {got:?}"
                );
                got
            })
        })
        .collect();
    within(held.someone_waits()).await;
    released.store(true, Ordering::SeqCst);
    held.release();
    let mut statuses = Vec::new();
    for waiting in waiting {
        statuses.push(within(waiting).await.expect("an answer").status);
    }
    assert_eq!(statuses, [200, 502, 502, 200]);
    Arc::into_inner(door).expect("the last").close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_at_once_run_one_after_the_other() {
    let door = Door::open(config(), "web").await;
    let (one, other) = tokio::join!(door.get("/slow?100"), door.get("/slow?100"));
    let mut counts = [one.body, other.body];
    counts.sort();
    assert_eq!(counts, ["1", "2"]);
    let call = door.ask("POST", "/v1/call/count?shard=0");
    assert_eq!(answer(call).await.body, "2", "calls see the same data");
    door.close().await;
}

fn short() -> Config {
    let mut config = config();
    config.limits.cpu_time = std::time::Duration::from_millis(300);
    config.limits.traps = 100;
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn every_failure_has_its_own_words_and_the_next_request_is_served() {
    let door = Door::open(short(), "web").await;
    for (path, status, code, says) in [
        ("/none", 502, "no-response", "response-outparam.set"),
        ("/error", 502, "response-error", "loop detected"),
        ("/unfinished", 502, "response-incomplete", "after 4 bytes"),
        ("/short", 502, "response-incomplete", "content-length"),
        ("/status?103", 502, "bad-response", "the status 103"),
        (
            "/fields?65",
            502,
            "bad-response",
            "65 header fields; at most 64",
        ),
        ("/many?100000", 500, "guest-trap", "limits.http_headers"),
        ("/panic", 500, "guest-trap", "the guest's log says more"),
        ("/spin", 504, "guest-cpu-limit", "limits.cpu_time"),
    ] {
        let got = door.get(path).await;
        assert_eq!(
            (got.status, &*got.code()),
            (status, code),
            "{path}: {got:?}"
        );
        assert!(got.body.contains(says), "{path}: {got:?}");
        assert!(
            !got.body.contains("on demand"),
            "what the guest wrote is not for visitors: {got:?}"
        );
        assert_eq!(got.json()["shard"], 0, "{path}");
        assert_eq!(door.get("/count").await.body, "0", "after {path}");
    }
    let late = door
        .ask("GET", "/http/shard/0/slow?3000")
        .header("quarry-timeout", "100ms");
    let got = answer(late).await;
    assert_eq!((got.status, &*got.code()), (504, "timeout"));
    door.close().await;
}

/// Far more than the table of resources holds, and the places that it keeps for late drops.
#[tokio::test(flavor = "multi_thread")]
async fn what_requests_leave_behind_does_not_add_up() {
    const REQUESTS: usize = 20_000;
    let door = Arc::new(Door::open(config(), "web").await);
    assert_eq!(door.get("/keep").await.body, "kept");
    let ask = |from: usize| {
        let door = door.clone();
        tokio::spawn(async move {
            for n in (from..REQUESTS).step_by(8) {
                let path = if n % 4 == 0 { "/leak" } else { "/set?x-a=b" };
                let got = door.get(path).await;
                assert_eq!(got.status, 200, "{n}: {got:?}");
            }
        })
    };
    for asking in (0..8).map(ask).collect::<Vec<_>>() {
        asking.await.expect("no request fails");
    }
    // The same instance still: it drops what it kept, whose places were given up long ago, and goes on.
    assert_eq!(door.get("/keep").await.body, "kept");
    assert_eq!(door.get("/drop").await.body, "2");
    assert_eq!(door.post("/count", "").await.body, "1");
    Arc::into_inner(door).expect("the last").close().await;
}

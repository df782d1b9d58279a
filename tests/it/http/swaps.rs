//! Another revision in place, while requests come.

use std::sync::Arc;

use quarry::guest::wasm::inspect;
use tokio::sync::watch;

use super::{Door, answer};
use crate::support::guests;
use crate::support::native::config;
use crate::support::store::within;

#[tokio::test(flavor = "multi_thread")]
async fn a_swap_loses_no_request() {
    const CALLERS: usize = 6;
    let config = config();
    let door = Arc::new(Door::open(config.clone(), "web").await);
    let (stop, stopped) = watch::channel(false);
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (door, stopped) = (door.clone(), stopped.clone());
            tokio::spawn(async move {
                let mut made = 0_u64;
                while !*stopped.borrow() {
                    let got = door.post("/count", "").await;
                    assert_eq!(got.status, 200, "{got:?}");
                    made += 1;
                }
                made
            })
        })
        .collect();
    for revision in 2..=5 {
        let newer = guests::module(&config, "web", revision).await;
        within(door.cluster.swap(newer)).await.expect("swap");
        let shown = door.get("/count").await;
        assert_eq!(
            shown.header("quarry-revision"),
            Some(&*revision.to_string())
        );
    }
    stop.send(true).expect("callers");
    let mut made = 0;
    for caller in callers {
        made += within(caller).await.expect("no request fails");
    }
    assert_eq!(door.get("/count").await.body, made.to_string());
    Arc::into_inner(door).expect("the last").close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_of_http_alone_hands_its_memory_over() {
    let found = inspect(&guests::component("page")).expect("a guest");
    assert!(
        !found.handler && found.exports.http && found.exports.handoff,
        "{found:?}"
    );
    assert_eq!(found.api, "0.1.0");
    let config = config();
    let door = Door::open(config.clone(), "page").await;
    assert_eq!(
        answer(door.ask("PUT", "/http/shard/0/a").body("b"))
            .await
            .status,
        204
    );
    assert_eq!(door.get("/").await.body, "2");
    let newer = guests::module(&config, "page", 2).await;
    within(door.cluster.swap(newer)).await.expect("swap");
    let got = door.get("/").await;
    assert_eq!(
        (&*got.body, got.header("quarry-revision")),
        ("3", Some("2"))
    );
    door.close().await;
}

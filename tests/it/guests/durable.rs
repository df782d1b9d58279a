//! Durable events: a guest hears of its writes in their order, each once, and only of durable ones.

use quarry::call::{CallErrorKind, CallOptions, Durability, Target};
use quarry::config::Config;

use crate::support::guests::{self, ask, refused, shown};
use crate::support::native::{applied, call, config};
use crate::support::store::{Held, within};

fn one_shard() -> Config {
    Config {
        shards: 1,
        ..config()
    }
}

/// Asks until the guest has heard of so many tags.
async fn tags(cluster: &quarry::Cluster, count: usize) -> Vec<u64> {
    within(async {
        loop {
            let tags: Vec<u64> =
                serde_json::from_str(&ask(cluster, "a", "tags", "").await).expect("a list");
            if tags.len() >= count {
                return tags;
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_come_in_the_order_of_their_writes_and_once() {
    const CALLERS: u64 = 8;
    const EACH: u64 = 25;
    let cluster = guests::start(one_shard(), "misbehave").await;
    let callers = (0..CALLERS).map(|caller| {
        let cluster = cluster.clone();
        async move {
            let mut asked = Vec::new();
            for n in 0..EACH {
                let tag = caller * EACH + n;
                let reply = within(call(&cluster, "a", "notify", &tag.to_string()))
                    .await
                    .expect("notify");
                asked.push((reply.seq, tag));
            }
            asked
        }
    });
    let mut asked: Vec<(u64, u64)> = futures::future::join_all(callers).await.concat();
    asked.sort_unstable_by_key(|(seq, tag)| (*seq, *tag));
    let heard = tags(&cluster, asked.len()).await;
    assert_eq!(heard.len(), asked.len());
    let mut sorted = heard.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..CALLERS * EACH).collect::<Vec<_>>(), "each once");
    for caller in 0..CALLERS {
        let own: Vec<u64> = heard
            .iter()
            .copied()
            .filter(|tag| tag / EACH == caller)
            .collect();
        assert_eq!(
            own,
            (caller * EACH..(caller + 1) * EACH).collect::<Vec<_>>(),
            "a caller's in its order"
        );
    }
    assert_eq!(
        heard,
        asked.iter().map(|(_, tag)| *tag).collect::<Vec<_>>(),
        "all in the order of seq"
    );
    cluster.stop().await;
}

/// While the store takes nothing, nothing is told; and what may be outstanding is bounded.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_told_before_it_is_durable() {
    let held = Held::new();
    let mut config = one_shard();
    config.limits.notifications = 3;
    let cluster = guests::start_on(held.store(), config, "misbehave").await;
    held.hold();
    for tag in ["1", "2", "3"] {
        ask(&cluster, "a", "notify", tag).await;
    }
    within(held.someone_waits()).await;
    let options = CallOptions {
        durability: Some(Durability::Applied),
        ..CallOptions::default()
    };
    let error = within(cluster.call(Target::key("a"), "notify", "4".into(), options))
        .await
        .expect_err("one too many");
    assert_eq!(
        (error.kind, error.code.as_str()),
        (CallErrorKind::Guest, "limit"),
        "{error}"
    );
    assert!(
        error.retryable && error.message.contains("limits.notifications"),
        "{error}"
    );
    let tags_now = within(applied(&cluster, "a", "tags", ""))
        .await
        .expect("tags");
    assert_eq!(shown(&tags_now), "[]");
    held.release();
    assert_eq!(tags(&cluster, 3).await, [1, 2, 3]);
    ask(&cluster, "a", "notify", "5").await;
    assert_eq!(tags(&cluster, 4).await, [1, 2, 3, 5]);
    cluster.stop().await;
}

/// A tag means something to the memory of who asked for it. A trap ends that memory; a swap hands over.
#[tokio::test(flavor = "multi_thread")]
async fn a_trap_forgets_tags_and_a_swap_keeps_them() {
    let held = Held::new();
    let config = one_shard();
    let cluster = guests::start_on(held.store(), config.clone(), "misbehave").await;
    held.hold();
    ask(&cluster, "a", "notify", "1").await;
    let error = within(applied(&cluster, "a", "trap", ""))
        .await
        .expect_err("a trap");
    assert!(matches!(error.kind, CallErrorKind::Trap(_)), "{error}");
    let written = applied(&cluster, "a", "notify", "2").await.expect("notify");
    let newer = guests::module(&config, "misbehave", 2).await;
    within(cluster.swap(newer)).await.expect("swap");
    held.release();
    within(cluster.notify_when_durable(0, written.seq))
        .await
        .expect("durable");
    assert_eq!(tags(&cluster, 1).await, [2]);
    assert_eq!(
        ask(&cluster, "a", "get", "").await.len(),
        8,
        "the last write stays"
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seq_that_was_not_given_out_cannot_be_waited_for() {
    let cluster = guests::start(one_shard(), "misbehave").await;
    let error = refused(&cluster, "a", "notify", "1 18446744073709551615").await;
    assert_eq!(error.code, "invalid-argument", "{error}");
    assert!(
        error
            .message
            .contains("18446744073709551615 was not given out yet"),
        "{error}"
    );
    ask(&cluster, "a", "notify", "2").await;
    assert_eq!(tags(&cluster, 1).await, [2]);
    cluster.stop().await;
}

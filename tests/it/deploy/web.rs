//! Guests that answer HTTP, and what they are granted, as revisions.

use std::collections::BTreeSet;
use std::sync::Arc;

use quarry::call::{CallErrorKind, CallOptions, HttpReply, HttpRequest, Target};
use quarry::deploy::operate::Ordered;
use quarry::guest::HttpHead;

use super::world::{World, all};
use crate::http::outgoing::Outside;
use crate::support::guests;

/// A GET of shard 0, through the API of Rust.
async fn get(world: &World, path: &str) -> HttpReply {
    let head = HttpHead {
        module: None,
        method: "GET".parse().expect("a method"),
        target: path.parse().expect("a path"),
        authority: "localhost".into(),
        headers: reqwest::header::HeaderMap::new(),
    };
    let request = HttpRequest {
        head,
        body: "".into(),
    };
    let asked = world
        .door()
        .http(Target::Shard(0), request, CallOptions::default());
    asked.await.expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revision_may_reach_what_it_is_granted_and_the_next_one_what_that_is() {
    let outside = Outside::open().await;
    let world = World::with(2, &["a"], Arc::new(guests::runtime()), |config| {
        // What a node would grant to a module that it begins with is not the revision's.
        config.module.grants = vec!["http:*.example.com".into()];
    })
    .await;
    let none = HttpRequest {
        head: HttpHead {
            module: None,
            method: "GET".parse().expect("a method"),
            target: "/".parse().expect("a path"),
            authority: "localhost".into(),
            headers: reqwest::header::HeaderMap::new(),
        },
        body: "".into(),
    };
    let asked = world
        .door()
        .http(Target::Shard(0), none, CallOptions::default());
    let error = asked.await.expect_err("nothing is deployed");
    assert_eq!(
        (error.kind, &*error.code),
        (CallErrorKind::Guest, "not-deployed")
    );

    let ended = world.deploy(guests::component("page"), &all()).await;
    assert_eq!((ended.outcome, &*ended.why), ("adopted", ""));
    let reply = get(&world, "/").await;
    assert_eq!(
        (reply.status, &*reply.body, reply.revision),
        (200, &b"1"[..], 1)
    );

    let fetch = format!("/fetch?{}", outside.url("/echo"));
    for (grants, status, says) in [
        (vec![outside.grant()], 200, "get /echo"),
        (
            vec!["http:api.example.com".to_owned()],
            502,
            "is not granted to module `main`",
        ),
        (vec![], 502, "is not granted to module `main`"),
    ] {
        let mut draft = world.draft(guests::component("web"), "{}").await;
        draft.modules[0].grants = BTreeSet::from_iter(grants);
        let ordered = world.door().deploy(draft, &all()).await.expect("an order");
        let Ordered::Begun { rollout, .. } = ordered else {
            panic!("{ordered:?}")
        };
        let ended = world.ended(rollout).await;
        assert_eq!((ended.outcome, &*ended.why), ("adopted", ""));
        let reply = get(&world, &fetch).await;
        let body = String::from_utf8_lossy(&reply.body).to_lowercase();
        assert!(
            reply.status == status && body.contains(says),
            "{status}: {body}"
        );
    }
    world.stop().await;
}

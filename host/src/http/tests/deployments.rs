//! Deployments over HTTP: native logic that is deployed by its name, and a node that has a guest of its own.

use serde_json::json;

use super::*;
use crate::deploy::Library;

const WITHIN: Duration = Duration::from_secs(10);

/// A node that runs what is deployed, and its client.
async fn deployed() -> (Cluster, HttpServer, Client) {
    let config = Config {
        shards: 2,
        probe: crate::config::Probe::Off,
        ..Config::default()
    };
    let options = HttpOptions {
        listen: "127.0.0.1:0".parse().expect("address"),
        ..HttpOptions::from(&config)
    };
    let logic = |name: &str, revision| native::module(name, revision, |_| Testing(Arc::default()));
    let library = Library::new().with("one", logic).with("two", logic);
    let cluster = Cluster::deployed(Arc::new(config), Arc::new(library));
    let cluster = cluster.start().await.expect("a cluster in memory starts");
    let server = HttpServer::bind(options, cluster.clone(), &Handle::current())
        .await
        .expect("a free port");
    let client = Client::new(&format!("http://{}", server.local_addr())).expect("client");
    (cluster, server, client)
}

/// Waits until no rollout is in progress.
async fn ended(client: &Client) -> Value {
    let waiting = async {
        let mut status = client.get("/v1/rollout").await.expect("a status");
        while !status["active"].is_null() {
            let path = format!("/v1/rollout?since={}&wait=5s", status["counter"]);
            status = client.get(&path).await.expect("a status");
        }
        status
    };
    tokio::time::timeout(PATIENCE, waiting)
        .await
        .expect("it ends in time")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revision_is_stored_recorded_rolled_out_and_pruned() {
    let (cluster, server, client) = deployed().await;
    let post = async |path: &str, body: Value| client.post_json(path, &body, WITHIN).await;
    let mut digests = Vec::new();
    for logic in ["one", "two"] {
        for stored in [true, false] {
            let bytes = Library::bytes(logic);
            let answer = client.upload("/v1/modules", bytes, WITHIN).await;
            let answer = answer.expect("stored");
            assert_eq!(answer["stored"], stored, "{logic}");
            digests.push(answer["digest"].clone());
        }
    }
    let draft = |digest: &Value| json!({"modules": [{"digest": digest}], "author": "ann"});
    let order = json!({"draft": draft(&digests[0]), "by": "ann"});
    let begun = post("/v1/rollout", order.clone()).await.expect("ordered");
    assert_eq!(begun["outcome"], "begun", "{begun}");
    let status = ended(&client).await;
    assert_eq!(status["last"]["outcome"], "adopted", "{status}");
    assert_eq!(status["adopted"], 2, "{status}");
    let same = post("/v1/rollout", order).await.expect("answered");
    assert_eq!(same, json!({"outcome": "unchanged", "revision": 1}));

    let recorded = post("/v1/revisions", draft(&digests[2])).await;
    let recorded = recorded.expect("recorded");
    assert_eq!(
        (&recorded["revision"], &recorded["state"]),
        (&2.into(), &Value::Null)
    );
    post(
        "/v1/rollout",
        json!({"target": 2, "plan": "chosen", "shards": "1"}),
    )
    .await
    .expect("ordered");
    let held = async {
        loop {
            let status = client.get("/v1/rollout").await.expect("a status");
            if status["active"]["phase"] == "held" {
                return status;
            }
            let path = format!("/v1/rollout?since={}&wait=5s", status["counter"]);
            client.get(&path).await.expect("a status");
        }
    };
    let held = tokio::time::timeout(PATIENCE, held)
        .await
        .expect("it holds");
    let runs = [0, 1].map(|shard| held["shards"][shard]["revision"].clone());
    assert_eq!(runs, [json!(1), json!(2)], "{held}");
    let paused = client
        .post("/v1/rollout/pause", WITHIN)
        .await
        .expect("paused");
    assert_eq!(paused["record"]["active"]["paused"], true);
    client
        .post("/v1/rollout/promote", WITHIN)
        .await
        .expect("promoted");
    assert_eq!(ended(&client).await["stable"], 2);
    for path in ["/v1/revisions/2/prune", "/v1/revisions/1/prune"] {
        let refused = client.post(path, WITHIN).await.expect_err("needed");
        assert_eq!(refused.code(), "revision-needed", "{path}");
    }
    let pruned = client.post("/v1/revisions/prune?keep=1", WITHIN).await;
    assert_eq!(pruned.expect("pruned")["kept"], json!([1, 2]));
    let listed = client.get("/v1/revisions?limit=1").await.expect("listed");
    assert_eq!(
        (&listed["revisions"][0]["revision"], &listed["more"]),
        (&2.into(), &true.into())
    );
    assert!(server.stop(WITHIN).await);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_a_guest_of_its_own_takes_no_orders() {
    let node = Node::start(|_| {}).await;
    for (method, path, body) in [
        ("GET", "/v1/modules", ""),
        ("POST", "/v1/modules", "bytes"),
        ("GET", "/v1/revisions", ""),
        ("GET", "/v1/rollout", ""),
        ("POST", "/v1/rollout", r#"{"target":1}"#),
        ("POST", "/v1/rollout/abort", ""),
    ] {
        let (status, _, answer) = node.ask(method, path, body).await;
        assert_eq!(
            (status, &answer["code"]),
            (409, &"pinned".into()),
            "{method} {path}"
        );
    }
    for (path, body, says) in [
        ("/v1/rollout", "{", "the body is not an order"),
        (
            "/v1/rollout",
            r#"{"target":1,"plan":"chosen","shards":"7"}"#,
            "there is no such shard",
        ),
        ("/v1/rollout?x=1", "{}", "there is no parameter `x`"),
        ("/v1/revisions/prune?keep=0", "", "from 1"),
    ] {
        let (status, _, answer) = node.ask("POST", path, body).await;
        assert_eq!(status, 400, "{path}: {answer}");
        assert!(
            answer["detail"]
                .as_str()
                .is_some_and(|text| text.contains(says)),
            "{path}: {answer}"
        );
    }
    assert!(node.server.stop(WITHIN).await);
    node.cluster.stop().await;
}

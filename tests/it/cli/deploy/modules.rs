//! Revisions of several modules from the command line, with components: how they are addressed, what keys they see, and what a swap of one
//! of them leaves to the others.

use super::*;

/// A cluster of one shard, so that keys of both modules are on the same.
async fn one_shard(folder: &Path) -> Node {
    Setup::empty(folder, 1).start().await
}

/// A named target: `NAME=` and the component of a test guest.
fn named(name: &str, module: &str) -> String {
    format!("{name}={}", guest(module).display())
}

/// Calls a method on the one shard.
async fn called(node: &Node, method: &str, key: &str, payload: &str) -> String {
    let reply = node.call(method, key, payload).await;
    reply.unwrap_or_else(|error| panic!("{method} of {key}: {error}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn each_module_has_its_methods_its_keys_and_its_memory() {
    let folder = folder();
    let node = one_shard(folder.path()).await;
    let (main, users) = (named("main", "handoff"), named("users", "handoff"));
    let deploy = async |words: &[&str]| {
        let mut all = vec!["deploy"];
        all.extend(words);
        at(&node, &all).await
    };
    let both = [&*main, &*users, "--prefix", "users=u/"];
    let first = deploy(&both).await.with(0).json();
    assert_eq!(first["outcome"], "adopted", "{first}");
    let shown = at(&node, &["revision", "show", "1"]).await.with(0).json();
    let told: Vec<_> = shown["modules"]
        .as_array()
        .expect("modules")
        .iter()
        .map(|module| (&module["name"], &module["prefix"]))
        .collect();
    assert_eq!(
        told,
        [
            (&"main".into(), &"".into()),
            (&"users".into(), &"u/".into())
        ]
    );
    assert_eq!(deploy(&both).await.with(0).json()["outcome"], "unchanged");

    // The first module is meant where none is named; the prefix keeps keys apart.
    called(&node, "put", "k", "of main").await;
    called(&node, "users/put", "k", "of users").await;
    assert_eq!(called(&node, "get", "k", "").await, "of main");
    assert_eq!(called(&node, "main/get", "k", "").await, "of main");
    assert_eq!(called(&node, "users/get", "k", "").await, "of users");
    assert_eq!(called(&node, "main/get", "u/k", "").await, "of users");
    let counts = async |of_main: &str, of_users: &str| {
        assert_eq!(called(&node, "main/count", "c", "").await, of_main);
        assert_eq!(called(&node, "users/count", "c", "").await, of_users);
    };
    counts("1", "1").await;

    // Another revision of one of them: both keep their memory.
    let mut changed = both.to_vec();
    changed.extend(["--option", "users.x=1"]);
    let mut plan = changed.clone();
    plan.push("--plan");
    let plan = deploy(&plan).await.with(0).json();
    assert_eq!(
        plan["changes"],
        serde_json::json!([{"module": "users", "what": "option.x", "from": null, "to": 1}]),
        "{plan}"
    );
    let second = deploy(&changed).await.with(0).json();
    assert_eq!(
        (&second["outcome"], &second["revision"]),
        (&"adopted".into(), &2.into())
    );
    counts("2", "2").await;

    // Another component in the place of one, which hands nothing over. Memory goes along where every module hands over: an instance that is
    // started beside calls would miss writes. What is stored stays.
    let lifecycle = named("users", "lifecycle");
    let third = deploy(&[&main, &lifecycle, "--prefix", "users=u/"]).await;
    assert_eq!(third.with(0).json()["outcome"], "adopted");
    assert_eq!(called(&node, "main/count", "c", "").await, "1");
    assert_eq!(called(&node, "users/memory-count", "c", "").await, "1");
    assert_eq!(called(&node, "users/get", "k", "").await, "of users");

    // One that refuses its options is named.
    let bad = deploy(&[&main, &lifecycle, "--option", "users.validate=refuse"]).await;
    let bad = bad.with(4).json();
    let why = bad["why"].as_str().expect("a reason");
    assert!(
        why.contains("module `users`") && why.contains("refused on purpose"),
        "{why}"
    );
    assert_eq!(called(&node, "main/count", "c", "").await, "2");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_with_no_module_is_refused_before_anything_is_sent() {
    let (main, users) = (named("main", "counter"), named("users", "kv"));
    // Nobody listens there, and nobody has to.
    let nowhere = "http://127.0.0.1:1";
    for (words, says) in [
        (vec![&*main, &main], "two modules are named `main`"),
        (vec![&main, "b.wasm"], "`b.wasm` has no name"),
        (
            vec![&main, &users, "--prefix", "user=u/"],
            "no module `user`; the modules here are main, users",
        ),
        (
            vec![&main, &users, "--option", "limit=3"],
            "MODULE.NAME=VALUE",
        ),
        (
            vec![&main, "--grant", "main=files:/etc"],
            "there is no kind `files`; valid is http:HOST",
        ),
        (vec![&main, "--grant", "main=http:*.com"], "too wide"),
    ] {
        let mut all = vec!["deploy", "--json", "--server", nowhere];
        all.extend(words);
        let refused = run(&all).await.with(2);
        let message = error(&refused.stderr)["message"].to_string();
        assert!(message.contains(says), "{all:?}: {message}");
    }
}

/// A grant is part of a revision, and what is none is refused.
#[tokio::test(flavor = "multi_thread")]
async fn grants_are_shown_and_honoured() {
    let folder = folder();
    let node = one_shard(folder.path()).await;
    deploy(&node, "counter", &[]).await.with(0);
    let grant = ["--grant", "http:api.example.com"];
    let plan = deploy(&node, "counter", &[&grant[..], &["--plan"]].concat()).await;
    let plan = plan.with(0).json();
    assert_eq!(
        plan["changes"],
        serde_json::json!([{"module": "main", "what": "grants", "from": [], "to": ["http:api.example.com"]}]),
        "{plan}"
    );
    deploy(&node, "counter", &grant).await.with(0);
    let kept = node
        .client
        .get("/v1/revisions/2")
        .await
        .expect("a revision");
    assert_eq!(
        kept["modules"][0]["grants"][0], "http:api.example.com",
        "{kept}"
    );
    let draft =
        serde_json::json!({"modules": [{"digest": "ab".repeat(32), "grants": ["files:/etc"]}]});
    let within = std::time::Duration::from_secs(30);
    let path = "/v1/revisions";
    let bad = node.client.post_json(path, &draft, within).await;
    let bad = bad.expect_err("no module, and no grant").to_string();
    assert!(bad.contains("there is no kind `files`"), "{bad}");
    assert_eq!(node.call("increment", "a", "").await.expect("runs"), "1");
    node.stop().await;
}

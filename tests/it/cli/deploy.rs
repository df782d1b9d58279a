//! `quarry deploy` and the verbs around it, at a real node over a folder: what they print, their exits, and what goes on meanwhile.

use std::path::Path;

use serde_json::Value;

use super::error;
use crate::support::process::{
    Ended, Node, Process, Setup, Signal, folder, guest, quarry, run, until,
};

mod bad;
mod modules;
mod racing;

/// Shards of each cluster here.
const SHARDS: u32 = 4;

/// Runs a verb at a node, with JSON.
async fn at(node: &Node, words: &[&str]) -> Ended {
    started(node, words).ended().await
}

fn started(node: &Node, words: &[&str]) -> Process {
    let mut all = words.to_vec();
    all.extend(["--server", &node.url, "--json"]);
    Process::spawn(quarry(&all))
}

/// Deploys a test guest.
async fn deploy(node: &Node, module: &str, words: &[&str]) -> Ended {
    let module = guest(module).display().to_string();
    let mut all = vec!["deploy", module.as_str()];
    all.extend(words);
    at(node, &all).await
}

/// A deploy of what is being rolled out already, once it has come to wait for the end of that.
async fn waits_for(node: &Node, module: &str) -> Process {
    let module = guest(module).display().to_string();
    let waiting = Process::spawn(quarry(&["deploy", &module, "--server", &node.url]));
    let waits = |text: &str| text.contains("shards run revision").then_some(());
    waiting.complains(waits).await;
    waiting
}

/// A node without a guest.
async fn empty(folder: &Path) -> Node {
    Setup::empty(folder, SHARDS).start().await
}

/// What the rollout is.
async fn rollout(node: &Node) -> Value {
    node.client.get("/v1/rollout").await.expect("a status")
}

/// Waits until a rollout is as it is to be.
async fn rollout_until(node: &Node, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..3000 {
        let status = rollout(node).await;
        if holds(&status) {
            return status;
        }
        let counter = &status["counter"];
        let path = format!("/v1/rollout?since={counter}&wait=30ms");
        node.client.get(&path).await.expect("a status");
    }
    panic!("{what} did not come to be: {}", rollout(node).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_is_deployed_replaced_and_brought_back() {
    let folder = folder();
    let setup = Setup::empty(folder.path(), SHARDS);
    let node = setup.start().await;
    assert_eq!(node.ready["revision"], 0);
    let refused = node.call("get", "a", "").await.expect_err("nothing runs");
    assert_eq!(refused.code(), "not-deployed");
    let status = at(&node, &["rollout", "status"]).await.with(0).json();
    assert_eq!(
        (&status["rollout"], &status["stable"]),
        (&0.into(), &0.into())
    );

    let first = deploy(&node, "counter", &["--note", "the first"]).await;
    let first = first.with(0).json();
    assert_eq!(first["outcome"], "adopted", "{first}");
    assert_eq!(
        (&first["revision"], &first["adopted"]),
        (&1.into(), &SHARDS.into())
    );
    assert_eq!(node.call("increment", "a", "").await.expect("runs"), "1");

    let again = deploy(&node, "counter", &[]).await.with(0).json();
    assert_eq!(
        (&again["outcome"], &again["revision"]),
        (&"unchanged".into(), &1.into())
    );
    let plan = deploy(&node, "counter", &["--plan"]).await.with(0).json();
    assert_eq!(plan["unchanged"], true, "{plan}");
    let plan = deploy(
        &node,
        "kv",
        &["--plan", "--canary", "25%", "--option", "x=1"],
    )
    .await;
    let plan = plan.with(0).json();
    let changed: Vec<_> = plan["changes"]
        .as_array()
        .expect("changes")
        .iter()
        .map(|change| &change["what"])
        .collect();
    assert_eq!(changed, ["digest", "option.x"], "{plan}");
    assert_eq!(plan["first"].as_array().map(Vec::len), Some(1), "{plan}");
    assert_eq!(
        at(&node, &["revisions"])
            .await
            .with(0)
            .json()
            .as_array()
            .map(Vec::len),
        Some(1),
        "a plan changes nothing"
    );

    let second = deploy(&node, "kv", &["--wave", "50%"]).await.with(0).json();
    assert_eq!(
        (&second["outcome"], &second["revision"]),
        (&"adopted".into(), &2.into())
    );
    assert_eq!(second["swaps"]["made"], SHARDS, "{second}");
    assert_eq!(second["swaps"]["calls_failed"], 0, "{second}");
    node.call("put", "k", "v").await.expect("another guest");

    let listed = at(&node, &["revisions"]).await.with(0).json();
    let states: Vec<_> = listed
        .as_array()
        .expect("a list")
        .iter()
        .map(|revision| (&revision["revision"], &revision["state"]))
        .collect();
    assert_eq!(
        states,
        [
            (&2.into(), &"stable".into()),
            (&1.into(), &"previous".into())
        ]
    );
    let shown = at(&node, &["revision", "show", "1"]).await.with(0).json();
    assert_eq!(shown["note"], "the first");
    assert_eq!(
        at(&node, &["modules"])
            .await
            .with(0)
            .json()
            .as_array()
            .map(Vec::len),
        Some(2)
    );

    let back = at(&node, &["rollback"]).await.with(0).json();
    assert_eq!(
        (&back["outcome"], &back["revision"]),
        (&"adopted".into(), &1.into())
    );
    assert_eq!(
        node.call("increment", "a", "").await.expect("runs"),
        "2",
        "its data is still there"
    );
    let pruned = at(&node, &["revisions", "prune", "--keep", "1"])
        .await
        .with(0)
        .json();
    assert_eq!(
        pruned["revisions"],
        Value::Array(Vec::new()),
        "both are needed"
    );

    // What was deployed is what a node starts with, without being told.
    node.stop().await;
    let node = setup.start().await;
    assert_eq!(node.ready["revision"], 1);
    assert_eq!(node.call("increment", "a", "").await.expect("runs"), "3");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_end_has_its_exit() {
    let folder = folder();
    let node = empty(folder.path()).await;
    deploy(&node, "counter", &[]).await.with(0);
    let runs = async |revision: u64| {
        let status = rollout(&node).await;
        assert_eq!(
            (&status["stable"], &status["adopted"]),
            (&revision.into(), &SHARDS.into()),
            "{status}"
        );
        node.call("increment", "a", "").await.expect("it serves");
    };

    let refused = deploy(&node, "lifecycle", &["--option", "validate=refuse"]).await;
    let refused = refused.with(4).json();
    assert_eq!(refused["outcome"], "refused");
    assert!(
        refused["why"]
            .as_str()
            .is_some_and(|why| why.contains("refused on purpose")),
        "{refused}"
    );
    runs(1).await;

    let back = deploy(&node, "lifecycle", &["--option", "start=panic"]).await;
    let back = back.with(5).json();
    assert_eq!(back["outcome"], "rolled-back");
    assert!(
        back["why"]
            .as_str()
            .is_some_and(|why| why.contains("start panicked on purpose")),
        "{back}"
    );
    runs(1).await;

    let begun = deploy(&node, "kv", &["--wave", "25%", "--bake", "1h", "--no-wait"]).await;
    let begun = begun.with(8).json();
    assert_eq!(begun["outcome"], "begun");
    let late = deploy(&node, "kv", &["--timeout", "1ms"])
        .await
        .with(6)
        .json();
    assert_eq!(
        (&late["outcome"], &late["rollout"]),
        (&"timed-out".into(), &begun["rollout"])
    );
    let busy = deploy(&node, "lifecycle", &[]).await.with(4);
    let busy = error(&busy.stderr);
    assert_eq!(
        (&busy["code"], &busy["status"]),
        (&"rollout-busy".into(), &409.into())
    );

    // Ctrl-C ends the wait and not the rollout.
    let waiting = waits_for(&node, "kv").await;
    waiting.signal(Signal::Interrupt);
    let ended = waiting.ended().await.with(130);
    assert!(ended.stderr.contains("goes on"), "{ended:#?}");
    assert!(rollout(&node).await["active"].is_object());

    // A wait that slept through the end of its rollout, and the next one.
    let waiting = waits_for(&node, "kv").await;
    waiting.signal(Signal::Stop);
    at(&node, &["rollout", "abort"]).await.with(0);
    runs(1).await;
    deploy(&node, "bank", &[]).await.with(0);
    waiting.signal(Signal::Continue);
    let ended = waiting.ended().await.with(7);
    assert!(ended.stderr.contains("was superseded"), "{ended:#?}");

    // Each end was counted, and told in the log.
    let text = reqwest::get(format!("{}/metrics", node.url)).await;
    let text = text.expect("metrics").text().await.expect("text");
    let counted = |outcome: &str| {
        let labels = |line: &&str| {
            line.starts_with("quarry_rollouts_total{")
                && line.contains(&format!("outcome=\"{outcome}\""))
        };
        let line = text.lines().find(labels);
        line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
    };
    for (outcome, ends, event) in [
        ("adopted", Some(2), "deploy.adopted"),
        ("refused", Some(1), "deploy.refused"),
        ("rolled-back", Some(2), "deploy.rolled_back"),
    ] {
        assert_eq!(counted(outcome), ends, "{outcome}: {text}");
        let log = node.process.stderr();
        assert!(log.contains(event), "{event}: {log}");
    }
    for metric in [
        "quarry_guest_swaps_total{",
        "quarry_guest_swap_pause_seconds_count{",
        "quarry_rollout_active_count{",
        "quarry_rollout_stable_info{",
        "quarry_rollout_failed_shards_count{",
    ] {
        assert!(
            text.lines().any(|line| line.starts_with(metric)),
            "{metric}: {text}"
        );
    }

    let nobody = run(&["rollout", "status", "--server", "http://127.0.0.1:1"]).await;
    nobody.with(3);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_waits_for_its_operator() {
    let folder = folder();
    let node = empty(folder.path()).await;
    deploy(&node, "counter", &[]).await.with(0);
    let held = deploy(&node, "kv", &["--shards", "1-2"])
        .await
        .with(8)
        .json();
    assert_eq!(held["outcome"], "held", "{held}");
    let status = at(&node, &["rollout", "status"]).await.with(0).json();
    let runs: Vec<_> = status["shards"]
        .as_array()
        .expect("shards")
        .iter()
        .map(|shard| &shard["revision"])
        .collect();
    assert_eq!(runs, [1, 2, 2, 1], "{status}");

    // One call to one canary.
    for verb in ["call", "query"] {
        let reply = at(&node, &[verb, "scan", "--revision", "2"]).await;
        let reply = reply.with(0).json();
        let (revision, shard) = (&reply["revision"], &reply["shard"]);
        assert_eq!((revision, shard), (&2.into(), &1.into()), "{reply}");
    }
    // What runs elsewhere has no scan.
    let refused = at(&node, &["call", "scan", "--revision", "1"]).await;
    let refused = error(&refused.with(4).stderr);
    let (code, shard) = (&refused["code"], &refused["shard"]);
    assert_eq!((code, shard), (&"unknown-method".into(), &0.into()));
    for (words, says) in [
        (
            &["--shard", "0", "--revision", "2"][..],
            "shard 0 runs revision 1",
        ),
        (&["--revision", "3"], "revision 1 on 2, revision 2 on 2"),
    ] {
        let mut all = vec!["call", "scan"];
        all.extend(words);
        let refused = at(&node, &all).await.with(4);
        let refused = error(&refused.stderr);
        assert_eq!(refused["code"], "wrong-revision", "{refused}");
        let message = refused["message"].as_str().expect("a message");
        assert!(message.contains(says), "{message}");
    }
    at(&node, &["rollout", "promote"]).await.with(0);
    for (verb, code, exit) in [
        ("promote", "rollout-idle", 4),
        ("pause", "rollout-idle", 4),
        ("abort", "rollout-idle", 4),
    ] {
        let refused = at(&node, &["rollout", verb]).await.with(exit);
        assert_eq!(error(&refused.stderr)["code"], code, "{verb}");
    }
    deploy(&node, "lifecycle", &["--canary", "1%"])
        .await
        .with(8);
    let watching = started(&node, &["rollout", "status", "--watch"]);
    watching
        .prints(|text| text.contains("\"held\"").then_some(()))
        .await;
    at(&node, &["rollout", "abort"]).await.with(0);
    watching.ended().await.with(5);
    assert_eq!(rollout(&node).await["stable"], 2);
    node.call("put", "a", "b").await.expect("it serves");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_down_is_deployed_to_in_its_bucket() {
    let folder = folder();
    let store = format!("file://{}", folder.path().display());
    let there = async |words: &[&str]| {
        let mut all = words.to_vec();
        all.extend(["--store", &store, "--json"]);
        run(&all).await
    };
    let counter = guest("counter").display().to_string();
    let nothing = there(&["deploy", &counter]).await.with(1);
    assert!(
        error(&nothing.stderr)["message"]
            .as_str()
            .is_some_and(|text| text.contains("there is no cluster")),
        "{nothing:#?}"
    );

    Setup::in_folder("kv", folder.path(), SHARDS)
        .start()
        .await
        .stop()
        .await;
    let begun = there(&["deploy", &counter]).await.with(8).json();
    assert_eq!(
        (&begun["outcome"], &begun["revision"]),
        (&"begun".into(), &2.into())
    );
    let lifecycle = guest("lifecycle").display().to_string();
    let refused = there(&["deploy", &lifecycle, "--option", "validate=refuse"])
        .await
        .with(1);
    assert!(
        refused.stderr.contains("refused on purpose"),
        "{refused:#?}"
    );
    let status = there(&["rollout", "status"]).await.with(0).json();
    assert_eq!(
        (&status["stable"], &status["active"]["phase"]),
        (&1.into(), &"checking".into())
    );
    assert_eq!(
        there(&["revisions"])
            .await
            .with(0)
            .json()
            .as_array()
            .map(Vec::len),
        Some(2)
    );

    // The first module of the cluster is not what it runs any more: the bucket wins.
    let node = Setup::in_folder("kv", folder.path(), SHARDS).start().await;
    rollout_until(&node, "revision 2", |status| status["stable"] == 2).await;
    assert_eq!(node.call("increment", "a", "").await.expect("runs"), "1");
    node.stop().await;
    let node = Setup::in_folder("kv", folder.path(), SHARDS).start().await;
    assert_eq!(node.ready["revision"], 2);
    node.process
        .complains(|text| {
            let says = ["the cluster runs another module", "quarry deploy"];
            says.iter().all(|says| text.contains(says)).then_some(())
        })
        .await;
    assert_eq!(node.call("increment", "a", "").await.expect("runs"), "2");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deploy_from_an_image_layout_and_of_a_guest_that_is_none() {
    let folder = folder();
    let node = empty(&folder.path().join("data")).await;
    let layout = folder.path().join("image");
    let blobs = layout.join("blobs/sha256");
    std::fs::create_dir_all(&blobs).expect("a folder");
    let blob = |bytes: &[u8]| {
        let hex = quarry::deploy::objects::digest(bytes).to_string();
        std::fs::write(blobs.join(&hex), bytes).expect("a blob");
        serde_json::json!({"mediaType": "application/wasm", "digest": format!("sha256:{hex}"), "size": bytes.len()})
    };
    let layer = blob(&std::fs::read(guest("counter")).expect("a guest"));
    let manifest = blob(
        serde_json::json!({"layers": [layer]})
            .to_string()
            .as_bytes(),
    );
    std::fs::write(layout.join("oci-layout"), "{}").expect("the mark");
    let index = serde_json::json!({"manifests": [manifest]}).to_string();
    std::fs::write(layout.join("index.json"), index).expect("the index");
    let image = layout.display().to_string();
    let done = at(&node, &["deploy", &image]).await.with(0).json();
    assert_eq!(done["outcome"], "adopted");
    assert_eq!(node.call("increment", "a", "").await.expect("runs"), "1");

    let core = folder.path().join("core.wasm");
    std::fs::write(&core, b"\0asm\x01\0\0\0").expect("a module");
    let refused = at(&node, &["deploy", &core.display().to_string()])
        .await
        .with(1);
    assert!(
        error(&refused.stderr)["message"]
            .as_str()
            .is_some_and(|text| text.contains("core module")),
        "{refused:#?}"
    );
    let modules = at(&node, &["modules"]).await.with(0).json();
    assert_eq!(
        modules.as_array().map(Vec::len),
        Some(1),
        "nothing is uploaded"
    );
    node.stop().await;
}

/// What is in a file, once it is there.
async fn there(path: &Path) -> Vec<u8> {
    until("a file", || std::fs::read(path).ok()).await
}

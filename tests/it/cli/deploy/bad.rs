//! What is wrong in the bucket, or in what is asked: each has a clear error, and the cluster serves what it served.

use super::*;

/// A cluster that runs `counter` as revision 1, and has `kv` as revision 2, which nobody ran yet.
struct Place {
    folder: tempfile::TempDir,
    node: Node,
    /// The file of the component of revision 2.
    module: std::path::PathBuf,
}

impl Place {
    async fn new() -> Self {
        let folder = folder();
        let node = empty(folder.path()).await;
        deploy(&node, "counter", &[]).await.with(0);
        let bytes = std::fs::read(guest("kv")).expect("a guest");
        let within = std::time::Duration::from_secs(60);
        let uploaded = node
            .client
            .upload("/v1/modules", bytes.into(), within)
            .await;
        let digest = uploaded.expect("uploaded")["digest"]
            .as_str()
            .expect("a digest")
            .to_owned();
        let draft = serde_json::json!({"modules": [{"digest": digest}]});
        let recorded = node.client.post_json("/v1/revisions", &draft, within).await;
        assert_eq!(recorded.expect("recorded")["revision"], 2);
        let module = folder.path().join(format!("_quarry/modules/{digest}.wasm"));
        Self {
            folder,
            node,
            module,
        }
    }

    fn object(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join("_quarry").join(name)
    }

    /// Rolls revision 2 out, which is refused, and nothing else happens.
    async fn refused(&self, says: &str) {
        let ended = at(&self.node, &["rollback", "2"]).await.with(4);
        let all = format!("{}{}", ended.stdout, ended.stderr);
        assert!(all.contains(says), "not {says:?}: {ended:#?}");
        self.serves().await;
    }

    async fn serves(&self) {
        self.node
            .call("increment", "a", "")
            .await
            .expect("it serves");
        let status = rollout(&self.node).await;
        assert_eq!(
            (&status["stable"], &status["adopted"]),
            (&1.into(), &SHARDS.into()),
            "{status}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn modules_that_are_not_what_they_were() {
    let place = Place::new().await;
    let right = there(&place.module).await;

    let mut tampered = right.clone();
    *tampered.last_mut().expect("bytes") ^= 1;
    std::fs::write(&place.module, &tampered).expect("tampered");
    place.refused("has the content of another one").await;

    std::fs::write(&place.module, &right[..right.len() / 2]).expect("cut");
    place.refused("module-incomplete").await;

    std::fs::remove_file(&place.module).expect("removed");
    place.refused("no-module").await;
    let ended = at(&place.node, &["rollback", "7"]).await.with(4);
    assert_eq!(error(&ended.stderr)["code"], "no-revision");

    // The same file again repairs it, and then it runs.
    std::fs::write(&place.module, &tampered).expect("tampered");
    let done = deploy(&place.node, "kv", &[]).await.with(0).json();
    assert_eq!(done["outcome"], "adopted", "{done}");
    assert_eq!(there(&place.module).await, right);
    place.node.call("put", "a", "b").await.expect("it runs");
    place.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_cannot_be_read() {
    let place = Place::new().await;
    let record = place.object("rollout.json");
    let right = there(&record).await;
    std::fs::write(&record, r#"{"version": 9, "counter": 99}"#).expect("another version");
    let ended = at(&place.node, &["rollback", "2"]).await.with(4);
    let told = error(&ended.stderr);
    assert_eq!(
        (&told["code"], &told["status"]),
        (&"corrupt-record".into(), &500.into())
    );
    assert!(
        told["message"]
            .as_str()
            .is_some_and(|text| text.contains("has version 9; this build reads version 1")),
        "{told}"
    );
    place
        .node
        .call("increment", "a", "")
        .await
        .expect("it serves");
    std::fs::write(&record, right).expect("as it was");

    let revision = place.object("revisions/2.json");
    std::fs::write(&revision, "{").expect("broken");
    place
        .refused("revisions/2.json is not a record of this kind")
        .await;
    let listed = at(&place.node, &["revisions"]).await.with(0).json();
    assert!(
        listed[0]["error"]
            .as_str()
            .is_some_and(|text| text.contains("revisions/2.json")),
        "{listed}"
    );
    place.serves().await;
    place.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_that_make_no_sense() {
    let place = Place::new().await;
    let node = &place.node;
    let kv = guest("kv").display().to_string();
    let large = format!("large={}", "x".repeat(70_000));
    let cases: &[(&[&str], i32, &str, &str)] = &[
        (
            &["revisions", "prune", "1"],
            4,
            "revision-needed",
            "shards run it",
        ),
        (
            &["revisions", "prune", "2"],
            4,
            "revision-needed",
            "it is the newest",
        ),
        (
            &["revisions", "prune", "9"],
            4,
            "no-revision",
            "no revision 9",
        ),
        (
            &["revision", "show", "9"],
            4,
            "no-revision",
            "no revision 9",
        ),
        (
            &["deploy", &kv, "--shards", "2-9"],
            4,
            "invalid-request",
            "there is no such shard",
        ),
        (
            &["deploy", &kv, "--shards", "many"],
            4,
            "invalid-request",
            "names no shards",
        ),
        (
            &["deploy", &kv, "--option", &large],
            2,
            "usage",
            "at most 65536 are allowed",
        ),
        (
            &["deploy", &kv, "--limit", "memory=1B"],
            2,
            "usage",
            "limit `memory`",
        ),
        (
            &["deploy", &kv, "--limit", "fuel=1"],
            2,
            "usage",
            "a revision cannot set it",
        ),
        (&["deploy", "no/such.wasm"], 1, "io", "no/such.wasm"),
        (&["rollback"], 4, "no-way-back", "never ran another one"),
    ];
    for (words, exit, code, says) in cases {
        let ended = at(node, words).await.with(*exit);
        let told = error(&ended.stderr);
        assert_eq!(told["code"], *code, "{words:?}: {told}");
        assert!(
            told["message"]
                .as_str()
                .is_some_and(|text| text.contains(says)),
            "{words:?}: {told}"
        );
    }
    // The same past the checks of the command line.
    let within = std::time::Duration::from_secs(60);
    let digest = place
        .module
        .file_stem()
        .expect("a digest")
        .to_string_lossy()
        .into_owned();
    for (body, code) in [
        (
            serde_json::json!({"draft": {"modules": [{"digest": digest, "options": {"large": "x".repeat(70_000)}}]}}),
            "invalid-request",
        ),
        (
            serde_json::json!({"draft": {"modules": [{"digest": "0".repeat(64)}]}}),
            "no-module",
        ),
        (
            serde_json::json!({"draft": {"modules": []}}),
            "invalid-request",
        ),
        (
            serde_json::json!({"target": 2, "plan": "canary", "percent": 0}),
            "invalid-request",
        ),
        (
            serde_json::json!({"target": 2, "planet": "mars"}),
            "invalid-request",
        ),
    ] {
        let refused = node.client.post_json("/v1/rollout", &body, within).await;
        assert_eq!(refused.expect_err("refused").code(), code, "{body}");
    }
    let empty = node
        .client
        .upload("/v1/modules", Vec::new().into(), within)
        .await;
    assert_eq!(empty.expect_err("refused").code(), "module-size");
    place.serves().await;
    place.node.stop().await;
}

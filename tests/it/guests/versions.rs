//! A guest in Rust, built against the WIT of a later version of the API: the reference guest of the conformance kit, as its author would.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use quarry::Cluster;
use quarry::guest::Limits;
use tokio::process::Command;

use crate::support::guests::runtime;
use crate::support::native::config;
use crate::support::process::folder;
use crate::support::store::within;

/// A function that comes in 0.1.1, and a call of it.
const NEWER: &str = "  /// How many writes are not durable.\n  pending: func() -> u64;\n";
const USED: &str = "durability::pending()";
const KNOWN: &str = "durability::durable_seq()";

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_for_0_1_1_runs_on_0_1_0_unless_it_uses_what_is_new() {
    let (unused, used) = (built(KNOWN).await, built(USED).await);
    let config = config();
    let limits = Arc::new(Limits::from(&config));
    let refused = runtime().load(used, "main".into(), 1, limits.clone()).await;
    let refused = refused.map(|_| ()).expect_err("it asks for more");
    assert_eq!(refused.code(), "missing-function");
    assert_eq!(
        refused.to_string(),
        "this component needs quarry:shard/durability@0.1.1.pending, which this node (quarry:shard@0.1.0) does not have; \
         update the nodes to a version that has quarry:shard@0.1.1, or do not use it"
    );

    let module = runtime().load(unused, "main".into(), 1, limits).await;
    let module = module.expect("a guest");
    assert_eq!(module.inspection().expect("looked at").api, "0.1.1");
    let cluster = within(Cluster::start(Arc::new(config), module)).await;
    let cluster = cluster.expect("start");
    // A script that puts a key, and one that reads it.
    let put = list(&[list(&["db.put", "", "a", "1"].map(Vec::from))]);
    let get = list(&[list(&["db.get", "", "a"].map(Vec::from))]);
    for (script, holds) in [(put, "ok"), (get, "+1")] {
        let reply = cluster.call(
            quarry::call::Target::Shard(0),
            "run",
            script.into(),
            quarry::call::CallOptions::default(),
        );
        let reply = within(reply).await.expect("a reply").payload;
        assert!(String::from_utf8_lossy(&reply).contains(holds), "{reply:?}");
    }
    cluster.stop().await;
}

/// The kit's form of a list: each item behind its length.
fn list(items: &[Vec<u8>]) -> Vec<u8> {
    let item = |item: &Vec<u8>| {
        let length = u32::try_from(item.len()).expect("short");
        [&length.to_le_bytes()[..], item].concat()
    };
    items.iter().flat_map(item).collect()
}

/// The guest, whose `durability.durable-seq` does this.
async fn built(does: &str) -> Bytes {
    let home = folder();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let copied = |from: &Path, to: &Path, change: &dyn Fn(String) -> String| {
        std::fs::create_dir_all(to).expect("a folder");
        for file in std::fs::read_dir(from).expect("a folder") {
            let file = file.expect("a file");
            if file.file_type().expect("its type").is_file() {
                let text = std::fs::read_to_string(file.path()).expect("text");
                std::fs::write(to.join(file.file_name()), change(text)).expect("written");
            }
        }
    };
    copied(&here.join("../wit"), &home.path().join("wit"), &|text| {
        let text = text.replacen(
            "package quarry:shard@0.1.0;",
            "package quarry:shard@0.1.1;",
            1,
        );
        let interface = "interface durability {\n";
        text.replacen(interface, &format!("{interface}{NEWER}"), 1)
    });
    let guest = home.path().join("tests/conformance/rust");
    copied(
        &here.join("conformance/rust/src"),
        &guest.join("src"),
        &|text| text.replace(KNOWN, does),
    );
    // A name of its own: what it is built from would take its place in the folder of guests.
    let manifest = std::fs::read_to_string(here.join("conformance/rust/Cargo.toml"));
    let manifest = manifest.expect("a manifest");
    let manifest = manifest
        .replace("members = [\"bare\"]\n", "")
        .replace("name = \"conformance\"", "name = \"later\"");
    std::fs::write(guest.join("Cargo.toml"), manifest).expect("written");
    let lock = here.join("conformance/rust/Cargo.lock");
    std::fs::copy(lock, guest.join("Cargo.lock")).expect("copied");
    // What guests depend on is built there.
    let target = Path::new(env!("QUARRY_GUESTS")).join("../..");
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args([
            "build",
            "--offline",
            "--release",
            "--target",
            "wasm32-wasip2",
        ])
        .arg("--target-dir")
        .arg(&target)
        .current_dir(&guest);
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_TARGET_DIR"] {
        cargo.env_remove(name);
    }
    let output = cargo.output().await.expect("cargo runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let component = target.join("wasm32-wasip2/release/later.wasm");
    std::fs::read(component).expect("a component").into()
}

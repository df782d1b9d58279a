//! What `serve` is given and does not take: the exit, and a message that names the thing.

use std::path::Path;

use super::error;
use crate::support::process::{Process, Setup, folder, guest, quarry};

/// `quarry.toml`, flags, exit code, and what the message has in it.
type Case = (
    &'static str,
    &'static [&'static str],
    i32,
    &'static [&'static str],
);

const CASES: &[Case] = &[
    (
        "shards = 4\nshard = 5\n",
        &[],
        2,
        &["quarry.toml", "2", "shard"],
    ),
    (
        "[http]\nlisten = \"127.0.0.1:0\"\nlissen = 1\n",
        &[],
        2,
        &["quarry.toml", "3", "http.lissen", "http.listen"],
    ),
    (
        "shards = \"many\"\n",
        &[],
        2,
        &["quarry.toml", "1", "shards", "many"],
    ),
    ("shards = 0\n", &[], 2, &["shards", "0", "1", "65536"]),
    ("shards = 4\n[call\n", &[], 2, &["quarry.toml", "2"]),
    (
        "[call]\ntimeout = \"5\"\n",
        &[],
        2,
        &["quarry.toml", "2", "call.timeout", "\"5\""],
    ),
    (
        "[call]\ntimeout = \"5 parsecs\"\n",
        &[],
        2,
        &["call.timeout", "parsecs"],
    ),
    (
        "[settings]\nwal_enabled = false\n",
        &[],
        2,
        &["wal_enabled"],
    ),
    (
        "[settings]\nnothing_like_this = 1\n",
        &[],
        2,
        &["nothing_like_this"],
    ),
    (
        "[store_options]\naws_regoin = \"eu\"\n",
        &["--store", "s3://bucket"],
        2,
        &["aws_regoin", "aws_region"],
    ),
    (
        "",
        &["--store-option", "aws_region=eu"],
        2,
        &["aws_region", "memory:"],
    ),
    (
        "",
        &["--strategy", "lease"],
        2,
        &["`store`", "memory:", "all nodes share"],
    ),
    (
        "[lease]\nttl = \"3s\"\ninterval = \"2s\"\n",
        &[],
        2,
        &["quarry.toml", "3", "lease.interval", "lease.ttl"],
    ),
    ("", &["--strategy", "static"], 2, &["static.nodes", "empty"]),
    (
        "[static]\nnodes = [\"a\", \"b\"]\n",
        &["--strategy", "static", "--name", "c"],
        2,
        &["node", "--node", "\"c\"", "a, b"],
    ),
    (
        "",
        &[
            "--strategy",
            "lease",
            "--internal-listen",
            "0.0.0.0:7071",
            "--store",
            "file:data",
        ],
        2,
        &["internal.advertise", "0.0.0.0:7071"],
    ),
    (
        "",
        &["--advertise", "nowhere"],
        2,
        &["internal.advertise", "--advertise", "no port"],
    ),
    (
        "",
        &["--store", "s3://key:secret@bucket"],
        2,
        &["holds credentials"],
    ),
    (
        "",
        &["--merge-operator", "u65-add"],
        2,
        &["u65-add", "u64-add"],
    ),
    (
        "",
        &["--limit", "memory=lots"],
        2,
        &["limits.memory", "lots"],
    ),
    ("", &["--config", "no/such.toml"], 2, &["no/such.toml"]),
    (
        "",
        &["--module", "no/such.wasm"],
        1,
        &["no/such.wasm", "No such file"],
    ),
    (
        "",
        &["--module", "quarry.toml"],
        1,
        &["quarry.toml", "WebAssembly"],
    ),
    (
        "",
        &["--module", "core.wasm"],
        1,
        &["core.wasm", "core module", "component"],
    ),
    ("", &["--log-level", "loud=very=much"], 2, &["log.level"]),
];

#[tokio::test(flavor = "multi_thread")]
async fn what_serve_refuses() {
    let folder = folder();
    std::fs::write(folder.path().join("core.wasm"), b"\0asm\x01\0\0\0").expect("a module");
    let module = guest("counter").display().to_string();
    let mut wrong = Vec::new();
    for (toml, flags, code, words) in CASES {
        for json in [false, true] {
            let mut all = vec!["serve"];
            if !flags.contains(&"--module") {
                all.extend(["--module", &module]);
            }
            all.extend_from_slice(flags);
            if json {
                all.push("--json");
            }
            let ended = serve_in(folder.path(), toml, &all).ended().await;
            let said = if json && ended.code == Some(*code) {
                error(&ended.stderr)["message"].to_string()
            } else {
                ended.stderr.clone()
            };
            let missing: Vec<_> = words
                .iter()
                .filter(|word| !said.replace("\\\"", "\"").contains(**word))
                .collect();
            let clean =
                !said.contains("panicked") && !said.contains("secret@") && ended.stdout.is_empty();
            if ended.code != Some(*code) || !missing.is_empty() || !clean {
                wrong.push(format!(
                    "{toml:?} {flags:?}: exit {:?} (not {code}), without {missing:?}: {said}",
                    ended.code
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_in_use_is_named() {
    let node = Setup::fresh("counter", 1).start().await;
    let address = node.url.trim_start_matches("http://").to_owned();
    let second = Setup::fresh("counter", 1).with(&["--set", &format!("http.listen={address}")]);
    let folder = folder();
    let module = guest("counter").display().to_string();
    let ended = serve_in(
        folder.path(),
        "",
        &["serve", "--module", &module, "--listen", &address],
    )
    .ended()
    .await
    .with(1);
    assert!(
        ended.stderr.contains(&address) && ended.stderr.contains("another process listens on"),
        "{ended:#?}"
    );
    // A flag of its own wins over --set: the second node has a free port.
    second.start().await.stop().await;
    node.stop().await;
}

/// A guest that refuses its options, and one that fails in its start: nothing serves with the first, and shards say why with the second.
#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_does_not_start_says_why() {
    let refusing = Setup::fresh("lifecycle", 1).with(&["--option", "validate=refuse"]);
    let ended = refusing.refused().await.with(1);
    assert!(
        error(&ended.stderr)["message"]
            .as_str()
            .is_some_and(|text| text.contains("refuses its options")),
        "{ended:#?}"
    );

    let node = Setup::fresh("lifecycle", 1)
        .with(&["--option", "start=panic"])
        .start()
        .await;
    // It is tried again, until that is enough.
    node.process
        .complains(|text| text.contains("quarantined").then_some(()))
        .await;
    let refused = node.call("get", "a", "").await.expect_err("no guest runs");
    assert!(
        refused.to_string().contains("quarantined")
            && refused.to_string().contains("start panicked on purpose"),
        "{refused}"
    );
    node.stop().await;
}

fn serve_in(folder: &Path, toml: &str, words: &[&str]) -> Process {
    std::fs::write(folder.join("quarry.toml"), toml).expect("quarry.toml");
    let mut command = quarry(words);
    command.current_dir(folder);
    Process::spawn(command)
}

//! `new`, `build` and `dev`: from an empty folder to a guest that is edited while it runs.

use std::path::{Path, PathBuf};
use std::process::Command;

use quarry::client::Client;
use serde_json::Value;
use tempfile::TempDir;

use super::error;
use crate::support::process::{self, Process, Signal, call, folder, quarry};

/// The folder in which the guests of all tests were built: what they are made of is there already.
fn built() -> PathBuf {
    Path::new(env!("QUARRY_GUESTS"))
        .ancestors()
        .nth(2)
        .expect("a target folder")
        .to_owned()
}

fn sdk() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../guest-sdk")
        .canonicalize()
        .expect("the SDK")
        .display()
        .to_string()
}

/// A command of the program that builds guests.
fn building(words: &[&str]) -> Command {
    let mut command = quarry(words);
    without_cargos_own(&mut command);
    command
}

/// The tests run under cargo, which sets variables for them that would also steer the builds of guests.
fn without_cargos_own(command: &mut Command) {
    for name in [
        "RUSTFLAGS",
        "CARGO_ENCODED_RUSTFLAGS",
        "RUSTC",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "CARGO_BUILD_TARGET",
    ] {
        command.env_remove(name);
    }
    command.env("CARGO_TARGET_DIR", built());
}

/// A `quarry dev` that runs.
struct Dev {
    process: Process,
    client: Client,
}

impl Dev {
    async fn start(project: &Path) -> Self {
        let dir = project.display().to_string();
        let process = Process::spawn(building(&[
            "dev",
            &dir,
            "--json",
            "--listen",
            "127.0.0.1:0",
        ]));
        let ready = process
            .prints(|text| {
                events(text)
                    .into_iter()
                    .find(|event| event["event"] == "ready")
            })
            .await;
        let client = Client::new(ready["url"].as_str().expect("a URL")).expect("a client");
        Self { process, client }
    }

    async fn increment(&self) -> String {
        call(&self.client, "increment", "a", "")
            .await
            .expect("increment")
    }

    /// Waits until it reloaded so many times.
    async fn reloaded(&self, times: usize) -> Value {
        self.process
            .prints(|text| {
                events(text)
                    .into_iter()
                    .filter(|event| event["event"] == "reloaded")
                    .nth(times - 1)
            })
            .await
    }

    /// Waits for an error that says this, after what was said before.
    async fn failed(&self, said: usize, words: &str) {
        self.process
            .complains(|text| {
                text[said..]
                    .lines()
                    .any(|line| line.starts_with(r#"{"error""#) && line.contains(words))
                    .then_some(())
            })
            .await;
    }
}

/// The events that `dev --json` printed so far; the last one may not be whole yet.
fn events(text: &str) -> Vec<Value> {
    serde_json::Deserializer::from_str(text)
        .into_iter()
        .map_while(Result::ok)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_project_builds_passes_its_tests_and_runs() {
    let folder = folder();
    let project = folder.path().join("greeter");
    let path = project.display().to_string();
    let made = Process::spawn(building(&["new", &path, "--json", "--sdk-path", &sdk()]))
        .ended()
        .await
        .with(0)
        .json();
    assert_eq!(made["name"], "greeter");
    let again = Process::spawn(building(&["new", &path, "--json", "--sdk-path", &sdk()]))
        .ended()
        .await
        .with(2);
    assert!(
        error(&again.stderr)["message"]
            .as_str()
            .is_some_and(|text| text.contains("not empty"))
    );

    let built = Process::spawn(building(&["build", &path, "--json"]))
        .ended()
        .await
        .with(0)
        .json();
    let component = built["path"].as_str().expect("a path");
    assert!(component.ends_with("greeter.wasm"), "{built}");
    for what in [component, &path] {
        let verified = Process::spawn(building(&["verify", what, "--json"]))
            .ended()
            .await
            .with(0)
            .json();
        assert_eq!(
            verified["component"]["digest"],
            format!("sha256:{}", built["sha256"].as_str().expect("a digest"))
        );
    }

    let mut tests = Command::new(env!("CARGO"));
    tests.arg("test").current_dir(&project);
    without_cargos_own(&mut tests);
    let tested = Process::spawn(tests).ended().await.with(0);
    assert!(tested.stdout.contains("2 passed"), "{tested:#?}");

    let dev = Dev::start(&project).await;
    assert_eq!(
        (
            dev.increment().await.as_str(),
            dev.increment().await.as_str()
        ),
        ("1", "2")
    );
    dev.process.signal(Signal::Interrupt);
    dev.process.ended().await.with(0);
}

/// A copy of `examples/counter`, under a name of its own: its component lies beside those of the others.
fn copy_of_counter() -> (TempDir, PathBuf) {
    let folder = folder();
    let project = folder.path().join("edited");
    let original = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/counter");
    std::fs::create_dir_all(project.join("src")).expect("a folder");
    let read = |name: &str| {
        std::fs::read_to_string(original.join(name))
            .unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    let manifest = read("Cargo.toml")
        .replace("name = \"counter\"", "name = \"edited\"")
        .replace("../../guest-sdk", &sdk());
    std::fs::write(project.join("Cargo.toml"), manifest + "\n[workspace]\n").expect("Cargo.toml");
    std::fs::write(
        project.join("Cargo.lock"),
        read("Cargo.lock").replace("name = \"counter\"", "name = \"edited\""),
    )
    .expect("Cargo.lock");
    std::fs::write(project.join("src/lib.rs"), read("src/lib.rs")).expect("lib.rs");
    // Cargo says where it put the component, wherever that is.
    let toml: String = read("quarry.toml")
        .lines()
        .filter(|line| !line.starts_with("path") && !line.starts_with("build"))
        .fold(String::new(), |all, line| all + line + "\n");
    std::fs::write(
        project.join("quarry.toml"),
        toml.replace("shards = 16", "shards = 4"),
    )
    .expect("quarry.toml");
    (folder, project)
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_swaps_what_is_edited_and_keeps_what_does_not_work_out() {
    let (_folder, project) = copy_of_counter();
    let source = project.join("src/lib.rs");
    let original = std::fs::read_to_string(&source).expect("lib.rs");
    let edit = |from: &str, to: &str, text: &str| {
        assert!(text.contains(from), "the example has no {from:?} any more");
        let new = text.replacen(from, to, 1);
        std::fs::write(&source, &new).expect("lib.rs");
        new
    };
    let dev = Dev::start(&project).await;
    assert_eq!(
        (
            dev.increment().await.as_str(),
            dev.increment().await.as_str()
        ),
        ("1", "2")
    );

    // Another reply, over the same data, in place.
    let spoken = edit(
        "        Ok(Reply::text(count))\n    }\n",
        "        Ok(Reply::text(format!(\"count {count}\")))\n    }\n",
        &original,
    );
    let reloaded = dev.reloaded(1).await;
    assert_eq!(
        (&reloaded["module"], &reloaded["revision"]),
        (&"counter".into(), &2.into())
    );
    assert!(reloaded["pause_p99_ms"].is_number(), "{reloaded}");
    assert_eq!(dev.increment().await, "count 3");

    // What does not compile: the compiler says why, and the guest goes on.
    let said = dev.process.stderr().len();
    edit(
        "fn count(key: &[u8])",
        "fn count(key: &[u8]) this is no Rust",
        &spoken,
    );
    dev.failed(said, "\"code\":\"build\"").await;
    assert!(
        dev.process.stderr()[said..].contains("src/lib.rs:"),
        "the compiler's own words"
    );
    assert_eq!(dev.increment().await, "count 4");

    // What does not start: the same.
    let said = dev.process.stderr().len();
    let panics = spoken.replace(
        "queries, durable_events",
        "queries, durable_events, lifecycle",
    );
    edit(
        "    fn durable(&mut self",
        "    fn start(&mut self) -> Result<()> {\n        panic!(\"not today\")\n    }\n\n    fn durable(&mut self",
        &panics,
    );
    dev.failed(said, "the new revision did not start").await;
    assert!(
        dev.process.stderr()[said..].contains("not today"),
        "the guest's own words"
    );
    assert_eq!(dev.increment().await, "count 5");

    // And what works again is taken.
    edit("count {count}", "now {count}", &spoken);
    dev.reloaded(2).await;
    assert_eq!(dev.increment().await, "now 6");

    // Memory that cannot be carried over keeps nobody from going on.
    let silent = spoken.replace(
        "queries, durable_events",
        "queries, durable_events, handoff",
    );
    let silent = edit(
        "    fn durable(&mut self",
        "    fn suspend(&mut self) -> Result<Vec<u8>> {\n        Err(Error::new(\"no\", \"not a word\"))\n    }\n\n    fn durable(&mut self",
        &silent,
    );
    dev.reloaded(3).await;
    let said = dev.process.stderr().len();
    edit("count {count}", "at last {count}", &silent);
    dev.reloaded(4).await;
    assert_eq!(dev.increment().await, "at last 7");
    assert!(
        dev.process.stderr()[said..].contains("not a word; reloading without the memory"),
        "it says what is lost"
    );
    dev.process.signal(Signal::Terminate);
    let ended = dev.process.ended().await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bench_measures_calls_and_leases_beside_a_compilation() {
    let component = process::guest("kv");
    let words = "bench compile --native --time 1s --shards 2 --lease-ttl 1s --json --component";
    let mut words: Vec<&str> = words.split(' ').collect();
    words.push(component.to_str().expect("a path"));
    let report = process::run(&words).await.with(0).json();
    assert_eq!(report["shards"], 2);
    for field in ["size", "compile_ms"] {
        assert!(report[field].as_f64() > Some(0.0), "{field} of {report}");
    }
    for phase in ["alone", "beside"] {
        for calls in ["applied", "durable"] {
            let calls = &report[phase][calls];
            assert!(calls["count"].as_u64() > Some(0), "{phase}: {report}");
            assert!(
                calls["max_ms"].as_f64() >= calls["p50_ms"].as_f64(),
                "{report}"
            );
        }
    }
    let renewals = &report["alone"]["renewals"];
    assert!(renewals["count"].as_u64() >= Some(1), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guest_of_the_bench_builds_and_swaps() {
    let words = "bench swap --swaps 2 --shards 2 --callers 2 --store memory: --json";
    let words: Vec<&str> = words.split(' ').collect();
    let report = Process::spawn(building(&words))
        .ended()
        .await
        .with(0)
        .json();
    assert_eq!(
        (&report["swaps"], &report["shards"]),
        (&2.into(), &2.into())
    );
    assert!(report["calls"].as_u64().is_some_and(|calls| calls > 0));
}

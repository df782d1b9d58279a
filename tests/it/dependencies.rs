//! What must not depend on what (host/ARCHITECTURE.md), checked over the source text.

use std::fs;
use std::path::{Path, PathBuf};

/// Words that may only stand in some files of the host, and why.
const RULES: &[(&str, &[&str], &[&str], &str)] = &[
    (
        "wasmtime",
        &["wasmtime::", "wasmtime_wasi::"],
        &["guest/wasm.rs", "guest/wasm/"],
        "another guest runtime must stay possible",
    ),
    (
        "open and close",
        &["Db::builder", "Db::open", "close_with_options"],
        &["db/open.rs"],
        "one place knows that a database is closed",
    ),
    (
        "one subscription",
        &["db.subscribe()", "raw.subscribe()"],
        &["db/open.rs"],
        "each is woken for each WAL object, and one can tell the others what they need",
    ),
    (
        "time",
        &["Instant::now", "SystemTime::now"],
        &["clock.rs", "clock/"],
        "tests drive time",
    ),
    (
        "timers",
        &["tokio::time"],
        // The command line and benchmarks are no part of a node.
        &[
            "clock.rs",
            "clock/",
            "client.rs",
            "cli.rs",
            "cli/",
            "bench.rs",
            "bench/",
        ],
        "tests drive time",
    ),
    (
        "status codes",
        &["StatusCode::"],
        // Nodes speak HTTP to each other, too; what a call failed with travels in the body there.
        &["http.rs", "http/", "client.rs", "transport/"],
        "one table maps errors to HTTP",
    ),
    (
        "leases",
        &["ObjectRequest::Put", "LeaseRecord {", "NodeRecord {"],
        &["lease/"],
        "one place writes leases",
    ),
    (
        "standard threads",
        &["thread::sleep"],
        &["store/file/lock.rs", "telemetry/queue.rs"],
        "no thread sleeps, but one that may block: for another process, or at the very end for the log",
    ),
];

#[test]
fn words_stand_only_where_they_may() {
    let host = Path::new(env!("CARGO_MANIFEST_DIR")).join("../host/src");
    let mut broken = Vec::new();
    for file in files(&host) {
        let name = file
            .strip_prefix(&host)
            .expect("below")
            .to_string_lossy()
            .into_owned();
        let text = code(&fs::read_to_string(&file).expect("a source file"));
        for (rule, words, allowed, why) in RULES {
            if allowed.iter().any(|place| name.starts_with(place)) {
                continue;
            }
            for word in *words {
                if text.contains(word) {
                    broken.push(format!("{name}: `{word}` ({rule}: {why})"));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn the_core_is_pure_and_the_sdk_does_not_know_the_host() {
    for (package, allowed) in [
        (
            "host/core",
            &["serde", "serde_json", "thiserror", "xxhash-rust"][..],
        ),
        (
            "guest-sdk",
            &[
                "log",
                "serde",
                "serde_json",
                "wit-bindgen",
                "xxhash-rust",
                "quarry-guest-macros",
            ][..],
        ),
    ] {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join(package)
            .join("Cargo.toml");
        let text = fs::read_to_string(&manifest).expect("a manifest");
        let dependencies = text
            .split("[dependencies]")
            .nth(1)
            .expect("dependencies")
            .split("\n[")
            .next()
            .expect("a section");
        for line in dependencies
            .lines()
            .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
        {
            let name = line.split(['.', '=', ' ']).next().expect("a name");
            assert!(
                allowed.contains(&name),
                "{package} may not depend on {name}"
            );
        }
    }
    let core = Path::new(env!("CARGO_MANIFEST_DIR")).join("../host/core/src");
    for file in files(&core) {
        let text = code(&fs::read_to_string(&file).expect("a source file"));
        for word in [
            "async ",
            "Instant",
            "SystemTime",
            "std::fs",
            "std::net",
            "rand::",
            "HashMap",
        ] {
            assert!(
                !text.contains(word),
                "{} has `{word}`: the core decides, and does nothing",
                file.display()
            );
        }
    }
}

/// The code of a file without comments and without its tests.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    // Tokio's own clock is the one that tests drive.
    let text = text.replace("tokio::time::Instant::now", "");
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// The Rust files below a folder, without files of tests.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "tests") {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs")
            && path.file_stem().is_some_and(|stem| stem != "tests")
        {
            found.push(path);
        }
    }
    found
}

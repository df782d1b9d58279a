//! The guests of the conformance kit in other languages than Rust, each on its SDK, built by the program. Where what builds a language is not
//! installed, its test passes with a line that says so; with `CI=true` it fails.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::cases;
use crate::support::process::{Ended, Process, quarry, skipped};

const TOOLCHAINS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../.ci/toolchains");
/// How long a build may take, or the suite. A program that is not optimised compiles the largest of these components for half a minute, and others
/// are compiled beside it.
const LONG: Duration = Duration::from_secs(5 * 60);

/// The SDKs take pages by themselves.
const PAGES: &str = "a page of the host ends before 4 MiB";
/// How a guest ends whose loop, recursion or memory has no end: what is most a matter of its language. An expectation of these that is turned
/// into its opposite has to be missed, in each language.
const ENDS: &str = "without an end";

#[tokio::test]
async fn the_guest_in_c_passes_every_case() {
    passes("c", &[PAGES]).await;
}

#[tokio::test]
async fn the_guest_in_go_passes_every_case() {
    passes("go", &[PAGES]).await;
}

#[tokio::test]
async fn the_guest_in_python_passes_every_case() {
    passes("python", &[PAGES]).await;
}

/// But for standard output: what JavaScript has of that, the SDK makes lines of the log.
#[tokio::test]
async fn the_guest_in_typescript_passes_every_case() {
    let absent = [PAGES, "standard output and standard error go to the log"];
    passes("ts", &absent).await;
}

/// Every case passes, but for these, of which the language has nothing.
async fn passes(language: &str, absent: &[&str]) {
    let Some(component) = built(language).await else {
        return;
    };
    let file = component.to_str().expect("a path");
    let ended = run(&["conformance", file, "--no-figures", "--json"]).await;
    let report: Value = serde_json::from_str(&ended.stdout)
        .unwrap_or_else(|error| panic!("{language}: {error}: {ended:#?}"));
    let others: Vec<_> = cases(&report)
        .filter(|case| case["outcome"] != "passed")
        .collect();
    let unexpected = others.iter().find(|case| {
        let is_known = |name: &&str| case["name"] == *name;
        case["outcome"] != "absent" || !absent.iter().any(is_known)
    });
    assert!(unexpected.is_none(), "{language}: {others:#?}");
    assert_eq!(others.len(), absent.len(), "{language}: {others:#?}");
    ended.with(0);
    let turned = ["conformance", file, "--only", "ends", "--case", ENDS];
    let turned = [&turned[..], &["--turned", "--json"]].concat();
    let report: Value = run(&turned).await.with(0).json();
    assert_eq!(
        (&report["passed"], &report["absent"]),
        (&0.into(), &0.into())
    );
    assert!(report["failed"].as_u64() >= Some(3), "{language}: {report}");
}

/// The component of a language's guest. None where it cannot be built here, after saying so.
async fn built(language: &str) -> Option<PathBuf> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("conformance")
        .join(language);
    let project = project.to_str().expect("a path");
    let ended = run(&["build", project, "--json"]).await;
    if ended.code != Some(0) && ended.stderr.contains("install it with") {
        let last = ended.stderr.lines().last().unwrap_or_default();
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "CI=true, and the guest in {language} is not built (run .ci/toolchains install): {last}"
        );
        skipped(&format!("the guest in {language} is not built: {last}"));
        return None;
    }
    let built = ended.with(0).json();
    Some(built["path"].as_str().expect("a path").into())
}

/// Runs the program with the tools that `.ci/toolchains` installed, or else with those of this machine.
async fn run(arguments: &[&str]) -> Ended {
    let mut command = quarry(arguments);
    let installed = Command::new(TOOLCHAINS).arg("path").output();
    if let Ok(output) = installed
        && output.status.success()
    {
        let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        let before = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(folder).chain(std::env::split_paths(&before));
        command.env("PATH", std::env::join_paths(folders).expect("a path"));
    }
    Process::spawn(command).ended_within(LONG).await
}

//! Builds the guests that the tests run: the examples and `tests/guests`, for wasm32-wasip2, each with its own lock file. The tests find
//! them through `QUARRY_GUESTS`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where guests are, from this package.
const MANIFESTS: &[&str] = &[
    "guests/Cargo.toml",
    "conformance/rust/Cargo.toml",
    "../examples/counter/Cargo.toml",
    "../examples/kv/Cargo.toml",
    "../examples/bank/Cargo.toml",
];
/// What they are made of.
const SOURCES: &[&str] = &[
    "guests",
    "conformance/rust",
    "../examples",
    "../guest-sdk/src",
    "../guest-sdk/wit",
    "../guest-sdk/Cargo.toml",
    "../wit",
];

fn main() {
    let here = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    // Beside the profiles of the workspace's target folder, so that `cargo clean` takes it along and profiles share it.
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let target = out.ancestors().nth(4).unwrap_or(&out).join("guests");
    for source in SOURCES {
        watch(&here.join(source));
    }
    for manifest in MANIFESTS {
        build(&here.join(manifest), &target);
    }
    println!(
        "cargo::rustc-env=QUARRY_GUESTS={}",
        target.join("wasm32-wasip2/release").display()
    );
}

fn build(manifest: &Path, target: &Path) {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args([
            "build",
            "--locked",
            "--workspace",
            "--release",
            "--target",
            "wasm32-wasip2",
            "--manifest-path",
        ])
        .arg(manifest);
    cargo.arg("--target-dir").arg(target);
    // What is set for the host's own build is not for a guest's: flags, wrappers (clippy's, too), coverage.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        let for_host = [
            "RUSTFLAGS",
            "CARGO_ENCODED_RUSTFLAGS",
            "RUSTC",
            "RUSTC_WRAPPER",
            "RUSTC_WORKSPACE_WRAPPER",
            "RUSTDOCFLAGS",
            "CLIPPY_ARGS",
        ];
        if for_host.contains(&name.as_str())
            || name.starts_with("CARGO_FEATURE_")
            || name.starts_with("CARGO_CFG_")
        {
            cargo.env_remove(&name);
        }
    }
    let output = cargo
        .output()
        .unwrap_or_else(|error| panic!("cargo did not run: {error}"));
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        panic!(
            "{} was not built; the target is installed with `rustup target add wasm32-wasip2`\n{text}",
            manifest.display()
        );
    }
}

/// What building and testing leaves in a project. It is not what guests are made of, and there is much of it.
const LEFT: &[&str] = &["target", "node_modules", ".venv", "__pycache__"];

/// Runs this script again when a file below `path` changes; build output below it does not count.
fn watch(path: &Path) {
    if path
        .file_name()
        .is_some_and(|name| LEFT.iter().any(|left| name == *left))
    {
        return;
    }
    match std::fs::read_dir(path) {
        Ok(entries) => {
            for entry in entries.flatten() {
                watch(&entry.path());
            }
        }
        Err(_) => println!("cargo::rerun-if-changed={}", path.display()),
    }
}

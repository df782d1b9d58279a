use std::{fs, path::Path, time::Duration};

use super::*;

const COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0rest";

fn project(build: &str, path: Option<&str>) -> (tempfile::TempDir, Module) {
    let home = tempfile::tempdir().unwrap();
    let path = path.map(|path| home.path().join(path));
    let module = Module {
        build: Some(build.into()),
        path,
        ..Module::default()
    };
    (home, module)
}

async fn run_in(home: &Path, module: &Module) -> (Result<Built, Error>, Vec<String>) {
    let mut lines = Vec::new();
    let built = build(home, module, |line| lines.push(line.to_owned())).await;
    (built, lines)
}

#[tokio::test]
async fn a_command_makes_a_component() {
    let (home, module) = project(
        "echo working; echo aside >&2; cp made out.wasm",
        Some("out.wasm"),
    );
    fs::write(home.path().join("made"), COMPONENT).unwrap();
    let (built, mut lines) = run_in(home.path(), &module).await;
    let built = built.unwrap();
    assert_eq!(
        (built.path, built.bytes),
        (home.path().join("out.wasm"), COMPONENT.len() as u64)
    );
    assert_eq!(built.sha256.len(), 64);
    let known = measure(&home.path().join("made")).unwrap().1;
    assert_eq!(built.sha256, known);
    lines.sort();
    assert_eq!(lines, ["aside", "working"]);
}

#[tokio::test]
async fn what_goes_wrong_is_said() {
    let core = "printf '\\0asm\\1\\0\\0\\0' > out.wasm";
    for (command, path, part) in [
        (
            "echo broken >&2; exit 3",
            Some("out.wasm"),
            "`echo broken >&2; exit 3` failed: exit status: 3",
        ),
        ("true", Some("out.wasm"), "left no"),
        (
            "echo text > out.wasm",
            Some("out.wasm"),
            "is no WebAssembly",
        ),
        (": > out.wasm", Some("out.wasm"), "is no WebAssembly"),
        (core, Some("out.wasm"), "core module"),
        ("true", None, "set both"),
        (
            "no-such-tool-here a",
            Some("out.wasm"),
            "`no-such-tool-here`, which is missing",
        ),
        (
            "echo 'run rustup target add wasm32-wasip2' >&2; exit 1",
            Some("out.wasm"),
            "install it with: rustup target add wasm32-wasip2",
        ),
    ] {
        let (home, module) = project(command, path);
        let error = run_in(home.path(), &module).await.0.unwrap_err();
        assert!(error.to_string().contains(part), "{command}: {error}");
        if let Error::Failed { stderr, .. } = error {
            assert_eq!(stderr, "broken\n");
        }
    }
    let home = tempfile::tempdir().unwrap();
    for (module, part) in [
        (
            Module {
                language: "cobol".into(),
                ..Module::default()
            },
            "\"cobol\"",
        ),
        (Module::default(), "has no Cargo.toml"),
    ] {
        let error = run_in(home.path(), &module).await.0.unwrap_err();
        assert!(
            error.is_usage() && error.to_string().contains(part),
            "{error}"
        );
    }
    assert!(
        module_of(home.path())
            .unwrap_err()
            .to_string()
            .contains("neither quarry.toml nor Cargo.toml")
    );
    assert!(
        module_of(&home.path().join("none"))
            .unwrap_err()
            .to_string()
            .contains("is no folder")
    );
}

#[tokio::test]
async fn output_without_an_end_takes_bounded_memory() {
    let (home, module) = project(
        "head -c 3000000 /dev/zero | tr '\\0' x >&2; exit 1",
        Some("out.wasm"),
    );
    let (built, lines) = run_in(home.path(), &module).await;
    assert!(
        matches!(&built, Err(Error::Failed { stderr, .. }) if stderr.len() <= 64 * 1024),
        "{built:?}"
    );
    assert_eq!(lines.iter().map(String::len).sum::<usize>(), 3_000_000);
    assert!(lines.iter().all(|line| line.len() <= 1 << 20));
}

/// A grandchild holds the pipe's far end: the pipe ends only when that one does.
#[cfg(unix)]
#[tokio::test]
async fn dropping_a_build_ends_all_it_started() {
    let (home, module) = project(
        "(exec 3>gone; echo started; sleep 600) & wait",
        Some("out.wasm"),
    );
    let pipe = home.path().join("gone");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let mut gone = tokio::net::unix::pipe::OpenOptions::new()
        .open_receiver(&pipe)
        .unwrap();
    let (started, has_started) = tokio::sync::oneshot::channel();
    let mut started = Some(started);
    let folder = home.path().to_owned();
    let task = tokio::spawn(async move {
        let told = |_: &str| {
            if let Some(started) = started.take() {
                let _ = started.send(());
            }
        };
        build(&folder, &module, told).await
    });
    let limit = Duration::from_secs(20);
    tokio::time::timeout(limit, has_started)
        .await
        .unwrap()
        .unwrap();
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    let mut rest = Vec::new();
    let read = tokio::io::AsyncReadExt::read_to_end(&mut gone, &mut rest);
    tokio::time::timeout(limit, read)
        .await
        .expect("the grandchild still runs")
        .unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn a_daemon_that_holds_the_output_does_not_hold_the_build() {
    let (home, module) = project(
        "(exec 3<>stop; read -r _ <&3) & echo built; exit 1",
        Some("out.wasm"),
    );
    let pipe = home.path().join("stop");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let limit = Duration::from_secs(20);
    let (built, lines) = tokio::time::timeout(limit, run_in(home.path(), &module))
        .await
        .expect("the build waits for its daemon");
    std::fs::OpenOptions::new()
        .write(true)
        .open(&pipe)
        .and_then(|mut pipe| std::io::Write::write_all(&mut pipe, b"go\n"))
        .expect("the daemon reads");
    assert!(matches!(built, Err(Error::Failed { .. })), "{built:?}");
    assert_eq!(lines, ["built"]);
}

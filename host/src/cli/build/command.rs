//! Runs a build command: its output line by line, its end bounded, what it is missing said in plain words.

use std::{
    io,
    path::{Path, PathBuf},
    pin::pin,
    process::Stdio,
    time::Duration,
};

use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{Child, Command},
};

use super::missing::{missing_target, missing_tool, missing_wasi, too_old};
use super::recipe::{Kind, Recipe, Step};
use super::{Error, color};
use crate::clock;

/// A build that takes longer is ended.
const BUILD_LIMIT: Duration = Duration::from_secs(30 * 60);
/// How long the output is still read after the command ended. What it leaves running, such as a daemon, may hold the streams for ever.
const GRACE: Duration = Duration::from_secs(3);
/// How much of standard error an error keeps.
const TAIL_MAX_BYTES: usize = 64 * 1024;
/// A longer line is handed on in parts.
const LINE_MAX_BYTES: usize = 1 << 20;

/// What the steps of a build told of themselves; only cargo does.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Made {
    /// The components.
    pub components: Vec<PathBuf>,
    /// The version of the SDK.
    pub sdk: Option<String>,
}

/// Runs the steps of a build one after another.
pub(super) async fn run(
    dir: &Path,
    recipe: &Recipe,
    mut on_output: impl FnMut(&str),
) -> Result<Made, Error> {
    let begun = clock::now();
    let mut made = Made::default();
    for step in &recipe.steps {
        let left = BUILD_LIMIT.saturating_sub(clock::now().saturating_duration_since(begun));
        let told = run_step(dir, step, left, &mut on_output).await?;
        made.components.extend(told.components);
        made.sdk = told.sdk.or(made.sdk);
    }
    Ok(made)
}

async fn run_step(
    dir: &Path,
    step: &Step,
    left: Duration,
    on_output: &mut impl FnMut(&str),
) -> Result<Made, Error> {
    let mut command = Command::new(&step.program);
    command.args(&step.args).envs(step.env.iter().copied());
    if color() {
        command.env("CARGO_TERM_COLOR", "always");
        command.env("FORCE_COLOR", "1");
    }
    command
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    // A group of its own, so that the compilers under cargo or a shell end with it.
    #[cfg(unix)]
    command.process_group(0);
    let shown = || step.shown.clone();
    let child = command
        .spawn()
        .map_err(|source| match (source.kind(), step.kind) {
            (io::ErrorKind::NotFound, Kind::Cargo) => missing_tool("cargo"),
            (io::ErrorKind::NotFound, Kind::Tool { what, install }) => Error::Missing {
                what: format!("the build needs {what}, which is missing"),
                install: install.into(),
            },
            _ => Error::Run {
                command: shown(),
                source,
            },
        })?;
    let group = Group { id: child.id() };
    let is_cargo = step.kind == Kind::Cargo;
    let ended = tokio::time::timeout(left, follow(child, is_cargo, dir, on_output)).await;
    let Ok(ended) = ended else {
        return Err(Error::TooLong {
            command: shown(),
            limit: BUILD_LIMIT,
        });
    };
    let (status, stderr, made) = ended.map_err(|source| Error::Run {
        command: shown(),
        source,
    })?;
    group.ended();
    if status.success() {
        return Ok(made);
    }
    if status.code() == Some(127) && step.kind == Kind::Shell {
        let tool = step.shown.split_whitespace().next();
        return Err(missing_tool(tool.unwrap_or("sh")));
    }
    Err(missing_target(&stderr)
        .or_else(|| too_old(&stderr, step.kind))
        .or_else(|| missing_wasi(&stderr))
        .unwrap_or(Error::Failed {
            command: shown(),
            status: status.to_string(),
            stderr,
        }))
}

/// Reads both streams to their ends and waits. Streams that something else still holds are left soon after the command ended.
async fn follow(
    mut child: Child,
    is_cargo: bool,
    dir: &Path,
    on_output: &mut impl FnMut(&str),
) -> io::Result<(std::process::ExitStatus, String, Made)> {
    let mut stdout = Lines::new(child.stdout.take());
    let mut stderr = Lines::new(child.stderr.take());
    let mut tail = String::new();
    let mut made = Made::default();
    let manifest = dir.join("Cargo.toml").canonicalize().ok();
    let (mut ended, mut left) = (None, pin!(tokio::time::sleep(GRACE)));
    while stdout.is_open() || stderr.is_open() {
        tokio::select! {
            status = child.wait(), if ended.is_none() => {
                ended = Some(status?);
                left.as_mut().reset(tokio::time::Instant::now() + GRACE);
            },
            () = &mut left, if ended.is_some() => break,
            line = stdout.next(), if stdout.is_open() => if let Some(line) = line? {
                if is_cargo {
                    learn(&line, manifest.as_deref(), &mut made);
                } else {
                    on_output(&line);
                }
            },
            line = stderr.next(), if stderr.is_open() => if let Some(line) = line? {
                on_output(&line);
                tail.push_str(&line);
                tail.push('\n');
                trim_front(&mut tail, TAIL_MAX_BYTES);
            },
        }
    }
    let status = match ended {
        Some(status) => status,
        None => child.wait().await?,
    };
    Ok((status, tail, made))
}

/// Learns from a line of cargo's JSON: the components of the project's own package, and the version of the SDK.
fn learn(line: &str, manifest: Option<&Path>, made: &mut Made) {
    let Ok(message) = serde_json::from_str::<Value>(line) else {
        return;
    };
    if message["reason"] != "compiler-artifact" {
        return;
    }
    if message["target"]["name"] == "quarry_guest" {
        // `path+file:///sdk#quarry-guest@0.1.0`, or `...#0.1.0` where the folder has the package's name.
        let id = message["package_id"].as_str().unwrap_or_default();
        let version = id.rsplit(['#', '@']).next();
        made.sdk = version.map(str::to_owned);
    }
    if message["manifest_path"].as_str().map(Path::new) != manifest {
        return;
    }
    let files = message["filenames"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(PathBuf::from);
    made.components.extend(files.filter(|file| {
        file.extension()
            .is_some_and(|extension| extension == "wasm")
    }));
}

/// Keeps the last `max` bytes or a little less.
fn trim_front(text: &mut String, max: usize) {
    if text.len() > max {
        let cut = text.ceil_char_boundary(text.len() - max);
        text.drain(..cut);
    }
}

/// The lines of a stream. Not UTF-8 is shown as well as can be, and lines of any length take bounded memory.
struct Lines<R> {
    stream: Option<R>,
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    fn new(stream: Option<R>) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    fn is_open(&self) -> bool {
        self.stream.is_some() || !self.buffer.is_empty()
    }

    /// The next line; none at the end. Cancel safe: what was read stays in the buffer.
    async fn next(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') {
                let line = self.take(end);
                self.buffer.drain(..1);
                return Ok(Some(line));
            }
            if self.buffer.len() >= LINE_MAX_BYTES {
                return Ok(Some(self.take(LINE_MAX_BYTES)));
            }
            let Some(stream) = &mut self.stream else {
                let rest = self.buffer.len();
                return Ok((rest > 0).then(|| self.take(rest)));
            };
            if stream.read_buf(&mut self.buffer).await? == 0 {
                self.stream = None;
            }
        }
    }

    fn take(&mut self, end: usize) -> String {
        let line: Vec<u8> = self.buffer.drain(..end).collect();
        String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(&line)).into_owned()
    }
}

/// The processes of a build. Dropped before they ended, it ends them all.
struct Group {
    id: Option<u32>,
}

impl Group {
    fn ended(mut self) {
        self.id = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        // Through the shell, as signalling a group takes unsafe code otherwise. It only sends a signal, so it is short.
        // In a group of its own, or a second Ctrl-C would end it before it sent anything.
        #[cfg(unix)]
        {
            use std::os::unix::process::CommandExt;
            let _ = std::process::Command::new("sh")
                .args(["-c", &format!("kill -s KILL -- -{id}")])
                .process_group(0)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
        }
        #[cfg(not(unix))]
        let _ = id;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_components_of_the_own_package_count() {
        let own = Path::new("/p/Cargo.toml");
        for (line, expected) in [
            (
                r#"{"reason":"compiler-artifact","manifest_path":"/p/Cargo.toml","filenames":["/t/g.wasm","/t/libg.rlib"]}"#,
                vec!["/t/g.wasm"],
            ),
            (
                r#"{"reason":"compiler-artifact","manifest_path":"/dep/Cargo.toml","filenames":["/t/d.wasm"]}"#,
                vec![],
            ),
            (
                r#"{"reason":"build-finished","manifest_path":"/p/Cargo.toml","filenames":["/t/g.wasm"]}"#,
                vec![],
            ),
            (r#"{"reason":"compiler-artifact"}"#, vec![]),
            ("[]", vec![]),
            ("no JSON", vec![]),
        ] {
            let mut made = Made::default();
            learn(line, Some(own), &mut made);
            let expected: Vec<_> = expected.into_iter().map(PathBuf::from).collect();
            assert_eq!(made.components, expected, "{line}");
        }
    }

    #[test]
    fn cargo_tells_which_sdk_it_took() {
        for (name, id, expected) in [
            (
                "quarry_guest",
                "path+file:///sdk#quarry-guest@0.1.2",
                Some("0.1.2"),
            ),
            (
                "quarry_guest",
                "path+file:///quarry-guest#0.1.2",
                Some("0.1.2"),
            ),
            (
                "quarry_guest",
                "registry+https://example.org/index#quarry-guest@0.1.2",
                Some("0.1.2"),
            ),
            (
                "serde",
                "registry+https://example.org/index#serde@1.0.0",
                None,
            ),
        ] {
            let line = format!(
                r#"{{"reason":"compiler-artifact","package_id":"{id}","manifest_path":"/x/Cargo.toml","target":{{"name":"{name}"}},"filenames":[]}}"#
            );
            let mut made = Made::default();
            learn(&line, None, &mut made);
            assert_eq!(made.sdk.as_deref(), expected, "{id}");
        }
    }

    #[tokio::test]
    async fn lines_are_split_and_bounded() {
        let long = "x".repeat(LINE_MAX_BYTES + 3);
        let input = format!("a\r\n\nb\n{long}\nend");
        let mut lines = Lines::new(Some(input.as_bytes()));
        let mut found = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            found.push(line);
        }
        let expected = ["a", "", "b", &long[..LINE_MAX_BYTES], "xxx", "end"];
        assert!(
            found == expected,
            "{:?}",
            found.iter().map(String::len).collect::<Vec<_>>()
        );
        assert!(!lines.is_open());
    }

    #[test]
    fn the_end_of_a_text_is_kept_whole() {
        let mut text = "äöü".to_owned();
        trim_front(&mut text, 3);
        assert_eq!(text, "ü");
    }
}

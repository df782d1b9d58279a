//! The program as a process: nodes and verbs that are started, watched, signalled and always reaped.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use quarry::call::{Read as Sees, Target};
use quarry::client::{self, Client};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::watch;

use super::store::Place;

/// How long anything may take: a slow machine that does other things, too, needs seconds where a fast one needs none.
pub const DEADLINE: Duration = Duration::from_secs(90);
/// How often an exit or a file is looked at.
const POLL: Duration = Duration::from_millis(10);
/// Lines of standard error that a failed test shows.
const SHOWN_LINES: usize = 80;

/// A command of the program, in a folder without a configuration, and without the environment's settings.
pub fn quarry(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quarry-under-test"));
    command
        .args(arguments)
        .current_dir(env!("CARGO_TARGET_TMPDIR"));
    for (name, _) in std::env::vars_os() {
        if ["QUARRY_", "AWS_"]
            .iter()
            .any(|prefix| name.to_string_lossy().starts_with(prefix))
        {
            command.env_remove(name);
        }
    }
    command
}

/// Runs a verb to its end.
pub async fn run(arguments: &[&str]) -> Ended {
    Process::spawn(quarry(arguments)).ended().await
}

/// Says that a test does nothing here, also when it passes: the harness shows what `println` prints only of those that fail.
pub fn skipped(why: &str) {
    _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// A folder that is removed again, on the disk of the build and not in a small `/tmp`.
pub fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

/// The component of an example or of a test guest.
pub fn guest(name: &str) -> PathBuf {
    Path::new(env!("QUARRY_GUESTS")).join(format!("{name}.wasm"))
}

/// How a process ended.
#[derive(Debug)]
pub struct Ended {
    /// None after a signal.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// Fails unless the program ended with this code, without a panic.
    #[track_caller]
    pub fn with(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        // A guest's panic is a line of the log, the program's own is not.
        assert!(
            !self
                .stderr
                .lines()
                .any(|line| line.starts_with("thread '") && line.contains("panicked at")),
            "{self:#?}"
        );
        self
    }

    /// What was printed as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("not JSON ({error}): {self:#?}"))
    }
}

/// A signal.
#[derive(Clone, Copy, Debug)]
pub enum Signal {
    Interrupt,
    Terminate,
    Kill,
    Stop,
    Continue,
}

/// A running process.
pub struct Process {
    child: Child,
    stdout: watch::Receiver<String>,
    stderr: watch::Receiver<String>,
}

impl Process {
    /// Starts a command. Its standard input is what the command says, nothing unless set.
    pub fn spawn(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?} did not start: {error}"));
        let stdout = capture(child.stdout.take().expect("piped"));
        let stderr = capture(child.stderr.take().expect("piped"));
        Self {
            child,
            stdout,
            stderr,
        }
    }

    pub fn signal(&self, signal: Signal) {
        let name = match signal {
            Signal::Interrupt => "INT",
            Signal::Terminate => "TERM",
            Signal::Kill => "KILL",
            Signal::Stop => "STOP",
            Signal::Continue => "CONT",
        };
        // By the shell, whose own `kill` is always there, and without unsafe code.
        let sent = Command::new("sh")
            .args(["-c", "kill -$0 $1", name, &self.child.id().to_string()])
            .status()
            .expect("sh");
        assert!(sent.success(), "no {signal:?} to {}", self.child.id());
    }

    /// Waits for the end.
    pub async fn ended(self) -> Ended {
        self.ended_within(DEADLINE).await
    }

    /// Waits for the end, for so long at most.
    pub async fn ended_within(mut self, limit: Duration) -> Ended {
        let until = Instant::now() + limit;
        let status: ExitStatus = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            assert!(Instant::now() < until, "it did not end within {limit:?}");
            tokio::time::sleep(POLL).await;
        };
        // Whatever it started may hold the pipes open: what it printed is what came until it ended, and shortly after.
        let text = async |stream: &mut watch::Receiver<String>| {
            _ = tokio::time::timeout(Duration::from_secs(5), async {
                while stream.changed().await.is_ok() {}
            })
            .await;
            stream.borrow().clone()
        };
        Ended {
            code: status.code(),
            stdout: text(&mut self.stdout.clone()).await,
            stderr: text(&mut self.stderr.clone()).await,
        }
    }

    /// What it printed on standard error so far.
    pub fn stderr(&self) -> String {
        self.stderr.borrow().clone()
    }

    /// Waits until its standard error has something to show.
    #[track_caller]
    pub fn complains<T>(&self, mut find: impl FnMut(&str) -> Option<T>) -> impl Future<Output = T> {
        let stream = self.stderr.clone();
        async move { seen(stream, &mut find).await }
    }

    /// Waits until its standard output has something to show.
    pub fn prints<T>(&self, mut find: impl FnMut(&str) -> Option<T>) -> impl Future<Output = T> {
        let stream = self.stdout.clone();
        async move { seen(stream, &mut find).await }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
        if std::thread::panicking() {
            let text = self.stderr();
            let lines: Vec<_> = text.lines().collect();
            eprintln!(
                "-- standard error of process {}:\n{}",
                self.child.id(),
                lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
            );
        }
    }
}

/// How a node is started; the same again after it ended.
#[derive(Clone)]
pub struct Setup {
    arguments: Vec<String>,
}

impl Setup {
    /// With a guest, on any free port.
    pub fn new(module: &str, store: &str, shards: u32) -> Self {
        Self::at(module, &["--store".to_owned(), store.to_owned()], shards)
    }

    /// On an empty store that need not outlive the process.
    pub fn fresh(module: &str, shards: u32) -> Self {
        Self::at(module, &Place::fresh().arguments(), shards)
    }

    /// On an empty store for several processes, one after the other or together.
    pub fn lasting(module: &str, folder: &Path, shards: u32) -> Self {
        Self::at(module, &Place::lasting(folder).arguments(), shards)
    }

    /// In a folder.
    pub fn in_folder(module: &str, folder: &Path, shards: u32) -> Self {
        Self::new(module, &format!("file://{}", folder.display()), shards)
    }

    /// In a folder, for what is deployed there.
    pub fn empty(folder: &Path, shards: u32) -> Self {
        Self::of(&Place::lasting(folder).arguments(), shards)
    }

    fn at(module: &str, store: &[String], shards: u32) -> Self {
        let module = guest(module).display().to_string();
        Self::of(store, shards).with(&["--module", &module])
    }

    fn of(store: &[String], shards: u32) -> Self {
        let shards = shards.to_string();
        let arguments = [
            "serve",
            "--json",
            "--shards",
            &shards,
            "--listen",
            "127.0.0.1:0",
            "--node",
            "n1",
        ];
        let mut arguments = arguments.map(str::to_owned).to_vec();
        arguments.extend_from_slice(store);
        Self { arguments }
    }

    /// As another node.
    pub fn named(mut self, name: &str) -> Self {
        let at = self.arguments.iter().position(|word| word == "--node");
        self.arguments[at.expect("it has a name") + 1] = name.into();
        self
    }

    /// With further arguments.
    pub fn with(mut self, arguments: &[&str]) -> Self {
        self.arguments
            .extend(arguments.iter().map(|&argument| argument.to_owned()));
        self
    }

    /// Starts it, and waits until it serves.
    pub async fn start(&self) -> Node {
        let process = self.spawn();
        let ready: Value = process.prints(|text| serde_json::from_str(text).ok()).await;
        let url = ready["url"].as_str().expect("a URL").to_owned();
        let client = Client::new(&url).expect("a client");
        Node {
            process,
            url,
            client,
            ready,
        }
    }

    /// Starts it without waiting.
    pub fn spawn(&self) -> Process {
        Process::spawn(quarry(
            &self
                .arguments
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>(),
        ))
    }

    /// Starts it, and waits for its end: for what must not start.
    pub async fn refused(&self) -> Ended {
        self.spawn().ended().await
    }
}

/// A node that serves.
pub struct Node {
    pub process: Process,
    pub url: String,
    pub client: Client,
    /// What it printed when it was ready.
    pub ready: Value,
}

impl Node {
    pub async fn call(
        &self,
        method: &str,
        key: &str,
        payload: &str,
    ) -> Result<String, client::Error> {
        call(&self.client, method, key, payload).await
    }

    pub async fn query(&self, method: &str, key: &str) -> Result<String, client::Error> {
        let call = client::Call {
            method: method.into(),
            target: Target::key(key.to_owned()),
            payload: "".into(),
            timeout: None,
            headers: Vec::new(),
            revision: None,
        };
        Ok(text(self.client.query(call, Sees::Applied).await?))
    }

    /// Kill -9.
    pub async fn kill(self) -> Ended {
        self.process.signal(Signal::Kill);
        self.process.ended().await
    }

    /// A clean stop.
    pub async fn stop(self) -> Ended {
        self.process.signal(Signal::Terminate);
        self.process.ended().await.with(0)
    }

    /// Waits until every shard runs, for what heals by itself.
    pub async fn ready_again(&self) {
        let until = Instant::now() + DEADLINE;
        loop {
            let status = self.client.status().await.expect("status");
            if status["ready"] == true {
                return;
            }
            assert!(
                Instant::now() < until,
                "not ready after {DEADLINE:?}: {status}"
            );
            tokio::time::sleep(POLL * 10).await;
        }
    }

    /// Calls until it works, for what heals by itself.
    pub async fn call_until(&self, method: &str, key: &str, payload: &str) -> String {
        let until = Instant::now() + DEADLINE;
        loop {
            match self.call(method, key, payload).await {
                Ok(reply) => return reply,
                Err(error) => assert!(
                    Instant::now() < until,
                    "{method} {key} still fails after {DEADLINE:?}: {error}"
                ),
            }
            tokio::time::sleep(POLL * 10).await;
        }
    }
}

/// A call to a node, with one sending.
pub async fn call(
    client: &Client,
    method: &str,
    key: &str,
    payload: &str,
) -> Result<String, client::Error> {
    let call = client::Call {
        method: method.into(),
        target: Target::key(key.to_owned()),
        payload: payload.to_owned().into(),
        timeout: None,
        headers: Vec::new(),
        revision: None,
    };
    Ok(text(client.call(call, None).await?))
}

/// Waits until a condition holds, for what tells nobody that it changed.
#[track_caller]
pub fn until<T>(what: &str, mut holds: impl FnMut() -> Option<T>) -> impl Future<Output = T> {
    let place = std::panic::Location::caller();
    async move {
        let until = Instant::now() + DEADLINE;
        loop {
            if let Some(found) = holds() {
                return found;
            }
            assert!(
                Instant::now() < until,
                "{place}: not within {DEADLINE:?}: {what}"
            );
            tokio::time::sleep(POLL).await;
        }
    }
}

fn text(reply: client::Reply) -> String {
    String::from_utf8(reply.payload.to_vec()).expect("text")
}

async fn seen<T>(
    mut stream: watch::Receiver<String>,
    find: &mut impl FnMut(&str) -> Option<T>,
) -> T {
    let look = async {
        loop {
            if let Some(found) = find(&stream.borrow_and_update()) {
                return found;
            }
            let open = stream.changed().await.is_ok();
            assert!(
                open,
                "it ended its output without what was waited for:\n{}",
                stream.borrow().as_str()
            );
        }
    };
    let found = tokio::time::timeout(DEADLINE, look).await;
    found.unwrap_or_else(|_| panic!("not within {DEADLINE:?}"))
}

/// Gathers what comes from a stream, on a thread of its own.
fn capture(mut stream: impl Read + Send + 'static) -> watch::Receiver<String> {
    let (tell, seen) = watch::channel(String::new());
    std::thread::spawn(move || {
        let mut pending = Vec::new();
        let mut buffer = [0; 16 << 10];
        while let Ok(read @ 1..) = stream.read(&mut buffer) {
            pending.extend_from_slice(&buffer[..read]);
            // A character can be cut in two by a read.
            let whole = pending
                .utf8_chunks()
                .map(|chunk| chunk.valid().len())
                .next()
                .unwrap_or(0);
            let whole = if pending.len() - whole < 4 {
                whole
            } else {
                pending.len()
            };
            let text = String::from_utf8_lossy(&pending[..whole]).into_owned();
            pending.drain(..whole);
            tell.send_modify(|all| all.push_str(&text));
        }
    });
    seen
}

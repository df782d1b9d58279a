//! `quarry dev --nodes N`: several nodes on one data folder, each a process of its own, to see what happens when one of them dies.
//!
//! Each node is this same program as `quarry serve`, attended: it is told over its standard input to load its component again, and it ends
//! when that is closed, so that none is left behind however this process ends.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;

use super::changes::Changes;
use super::{SETTLE, build_anew};
use crate::cli::args::Dev;
use crate::cli::running::Signals;
use crate::cli::settings::file_url;
use crate::cli::{Error, Exit, Output, build, serve};
use crate::config::units::Span;
use crate::config::{Config, Flag};

mod plan;

use plan::{Plan, command};

/// How long a node may take to start, or to swap its guest.
const ANSWER: Duration = Duration::from_secs(120);
/// How long the nodes may take to stop.
const STOP: Duration = Duration::from_secs(60);
/// The longest line of a node that is passed on.
const LINE_MAX: usize = 16 << 10;

/// What a node tells.
enum Said {
    /// An event, on standard output.
    Event(usize, Value),
    /// It ended.
    Ended(usize, std::io::Result<ExitStatus>),
}

/// A node.
struct Node {
    name: String,
    pid: u32,
    /// Closed to end it.
    input: Option<ChildStdin>,
    url: String,
    alive: bool,
}

/// All nodes.
struct Nodes {
    nodes: Vec<Node>,
    said: mpsc::Receiver<Said>,
}

pub(super) async fn run(args: &Dev, count: usize, out: Output) -> Result<Exit, Error> {
    let project = build::module_of(&args.dir)?;
    let sources = args.sources()?;
    // Removed when this ends; the nodes have ended before.
    let temporary = match &args.data_dir {
        Some(_) => None,
        None => Some(tempfile::tempdir().map_err(|source| Error::Io {
            what: "cannot make a temporary folder".into(),
            source,
        })?),
    };
    let mut shared = sources.clone();
    let mut set = |key: &str, value: String| {
        shared.flags.push(Flag {
            flag: "--nodes".into(),
            key: key.into(),
            value,
        });
    };
    set("strategy", "lease".into());
    if let Some(folder) = &temporary {
        set("store", file_url(folder.path())?);
    }
    let loaded = Config::load(&shared)?;
    if loaded.config.internal.advertise.is_some() {
        let message = "internal.advertise is the address of one node, and `dev --nodes` gives each its own: remove it";
        return Err(Error::Usage(message.into()));
    }
    let mut signals = Signals::watch()?;
    // First: an edit made during the first build is a change too.
    let mut changes = Changes::watch(&args.dir, &project.watch)?;
    let built = tokio::select! {
        built = build::build(&args.dir, &project, |line| out.note(line)) => built?,
        _ = signals.next() => return Err(Error::Interrupted),
    };
    let store = loaded.config.store.clone();
    let component = absolute(&built.path)?;
    let plan = Plan {
        sources: &sources,
        loaded: &loaded,
        store: &store,
        component: &component,
    };
    let mut nodes = tokio::select! {
        nodes = Nodes::start(&plan, count, out) => nodes?,
        _ = signals.next() => return Err(Error::Interrupted),
    };
    announce(&nodes, &plan, &args.dir, temporary.is_some(), out)?;
    let mut digest = built.sha256;
    let ended = loop {
        tokio::select! {
            _ = signals.next() => break Exit::Done,
            said = nodes.said.recv() => {
                if let Some(Said::Ended(node, status)) = said {
                    nodes.ended(node, status, &plan, out);
                }
                if !nodes.nodes.iter().any(|node| node.alive) {
                    out.note("no node is left");
                    break Exit::Failed;
                }
            }
            Some(()) = changes.next() => {
                while tokio::time::timeout(SETTLE, changes.next()).await.is_ok_and(|change| change.is_some()) {}
                let rebuilt = tokio::select! {
                    rebuilt = rebuild(&mut nodes, &args.dir, &digest, &mut changes, out) => rebuilt,
                    _ = signals.next() => break Exit::Done,
                };
                match rebuilt {
                    Ok(Some(new)) => digest = new,
                    Ok(None) => out.note("built: the component is the same as before"),
                    Err(error) => {
                        out.error(&error);
                        out.note("what ran before goes on");
                    }
                }
            }
        }
    };
    out.note("stopping the nodes");
    nodes.stop(&mut signals, out).await;
    Ok(ended)
}

fn name(node: usize) -> String {
    format!("node-{}", node + 1)
}

impl Nodes {
    /// Starts all, and waits until each serves.
    async fn start(plan: &Plan<'_>, count: usize, out: Output) -> Result<Self, Error> {
        let program = std::env::current_exe().map_err(|error| {
            Error::Failed(format!("this program does not know where it is: {error}"))
        })?;
        let (tell, said) = mpsc::channel(64);
        let mut nodes = Self {
            nodes: Vec::with_capacity(count),
            said,
        };
        for node in 0..count {
            let mut child = Command::new(&program)
                .args(plan.arguments(node))
                .args(["--json", "--attended"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                // Ctrl-C is for this process, which stops them in order.
                .process_group(0)
                .kill_on_drop(true)
                .spawn()
                .map_err(|source| Error::Io {
                    what: format!("cannot start {}", program.display()),
                    source,
                })?;
            nodes.nodes.push(Node {
                name: name(node),
                pid: child.id().unwrap_or(0),
                input: child.stdin.take(),
                url: String::new(),
                alive: true,
            });
            if let Some(output) = child.stdout.take() {
                tokio::spawn(events(node, output, tell.clone()));
            }
            if let Some(errors) = child.stderr.take() {
                tokio::spawn(lines(name(node), errors, out));
            }
            tokio::spawn(watch(node, child, tell.clone()));
        }
        let ready = async {
            while nodes.nodes.iter().any(|node| node.url.is_empty()) {
                match nodes.said.recv().await {
                    Some(Said::Event(node, event)) => {
                        if let Some(url) = event["url"].as_str() {
                            nodes.nodes[node].url = url.to_owned();
                        }
                    }
                    Some(Said::Ended(node, _)) => {
                        return Err(Error::Failed(format!(
                            "{} did not start; what it said is above",
                            name(node)
                        )));
                    }
                    None => return Err(Error::Failed("no node started".into())),
                }
            }
            Ok(())
        };
        match tokio::time::timeout(ANSWER, ready).await {
            Ok(started) => started?,
            Err(_) => {
                return Err(Error::Failed(format!(
                    "not all nodes started within {}",
                    Span(ANSWER)
                )));
            }
        }
        Ok(nodes)
    }

    /// A node ended by itself, or was killed.
    fn ended(
        &mut self,
        node: usize,
        status: std::io::Result<ExitStatus>,
        plan: &Plan<'_>,
        out: Output,
    ) {
        let of = &mut self.nodes[node];
        of.alive = false;
        of.input = None;
        let how = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        let (name, ttl) = (of.name.clone(), Span(plan.ttl()));
        let other = self.nodes.iter().find(|node| node.alive);
        if out.json {
            let event = json!({"event": "ended", "node": name, "status": how});
            _ = out.event(&event);
            return;
        }
        out.note(&format!("\n{name} ended ({how})"));
        if let Some(other) = other {
            out.note(&format!(
                "Its shards move to the others within about {ttl} (lease.ttl), and a moment to open them:\n  quarry shards --server {}\nStart it again, in another terminal:\n  {}",
                other.url,
                command(&plan.arguments(node))
            ));
        }
    }

    /// Has every node load its component again; gives how many shards were swapped.
    async fn reload(&mut self, plan_of: &str, out: Output) -> Result<u64, Error> {
        let mut waiting = Vec::new();
        for (at, node) in self.nodes.iter_mut().enumerate() {
            if let Some(input) = node.input.as_mut().filter(|_| node.alive) {
                let line = format!("{}\n", serve::RELOAD);
                // One that cannot be told has ended, and says so itself.
                if input.write_all(line.as_bytes()).await.is_ok() && input.flush().await.is_ok() {
                    waiting.push(at);
                }
            }
        }
        let (mut shards, mut failed) = (0, None);
        let mut ended = Vec::new();
        let answers = async {
            while !waiting.is_empty() {
                match self.said.recv().await {
                    Some(Said::Event(node, event)) => {
                        waiting.retain(|at| *at != node);
                        shards += event["shards"].as_u64().unwrap_or(0);
                        if let Some(error) = event["error"].as_str() {
                            failed = Some(format!("{}: {error}", name(node)));
                        }
                    }
                    Some(Said::Ended(node, status)) => {
                        waiting.retain(|at| *at != node);
                        ended.push((node, status));
                    }
                    None => return,
                }
            }
        };
        if tokio::time::timeout(ANSWER, answers).await.is_err() {
            failed = Some(format!("not every node answered within {}", Span(ANSWER)));
        }
        for (node, _) in &ended {
            self.nodes[*node].alive = false;
            out.note(&format!(
                "{} ended while {plan_of} was swapped",
                name(*node)
            ));
        }
        match failed {
            Some(error) => Err(Error::Failed(error)),
            None => Ok(shards),
        }
    }

    /// Ends all, and waits for them. A second signal kills them.
    async fn stop(mut self, signals: &mut Signals, out: Output) {
        for node in &mut self.nodes {
            node.input = None;
        }
        let ended = async {
            while self.nodes.iter().any(|node| node.alive) {
                match self.said.recv().await {
                    Some(Said::Ended(node, _)) => self.nodes[node].alive = false,
                    Some(Said::Event(..)) => {}
                    None => return,
                }
            }
        };
        tokio::select! {
            stopped = tokio::time::timeout(STOP, ended) => {
                if stopped.is_err() {
                    out.note(&format!("nodes did not stop within {}, and are killed", Span(STOP)));
                }
            }
            _ = signals.next() => out.note("killed; whatever was acknowledged is safe"),
        }
    }
}

/// Waits for a node's end, and tells of it. A node whose end nobody waits for any more is killed.
async fn watch(node: usize, mut child: Child, tell: mpsc::Sender<Said>) {
    let status = tokio::select! {
        status = child.wait() => status,
        () = tell.closed() => return,
    };
    _ = tell.send(Said::Ended(node, status)).await;
}

/// Passes a node's events on.
async fn events(node: usize, output: impl AsyncRead + Unpin, tell: mpsc::Sender<Said>) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Ok(event) = serde_json::from_str(&line)
            && tell.send(Said::Event(node, event)).await.is_err()
        {
            return;
        }
    }
}

/// Passes on what a node says to people, with its name in front.
async fn lines(name: String, errors: impl AsyncRead + Unpin, out: Output) {
    let mut lines = BufReader::new(errors).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let end = line
            .char_indices()
            .map(|(at, _)| at)
            .take_while(|at| *at <= LINE_MAX)
            .last()
            .filter(|_| line.len() > LINE_MAX)
            .unwrap_or(line.len());
        out.note(&format!("{name} | {}", &line[..end]));
    }
}

/// Builds the project anew, and has every node swap it in. Gives the digest of a component that is another one.
async fn rebuild(
    nodes: &mut Nodes,
    dir: &Path,
    running: &str,
    changes: &mut Changes,
    out: Output,
) -> Result<Option<String>, Error> {
    let Some(built) = build_anew(dir, running, changes, out).await? else {
        return Ok(None);
    };
    let shards = nodes.reload("the component", out).await?;
    if out.json {
        out.event(&json!({"event": "reloaded", "shards": shards}))?;
    } else {
        out.note(&format!("reloaded on {shards} shards of all nodes"));
    }
    Ok(Some(built.sha256))
}

/// Says where the nodes are, how to call them, how to kill one, and what to watch.
fn announce(
    nodes: &Nodes,
    plan: &Plan<'_>,
    dir: &Path,
    temporary: bool,
    out: Output,
) -> Result<(), Error> {
    let config = &plan.loaded.config;
    if out.json {
        let list: Vec<_> = nodes
            .nodes
            .iter()
            .map(|node| json!({"node": node.name, "url": node.url, "pid": node.pid}))
            .collect();
        return out.event(
            &json!({"event": "ready", "nodes": list, "shards": config.shards, "store": plan.store}),
        );
    }
    out.note(&format!(
        "\n{} runs on {} nodes with {} shards, in {}{}\n",
        config.module.name,
        nodes.nodes.len(),
        config.shards,
        plan.store,
        if temporary {
            ", which is removed at the end (--data-dir DIR keeps it)"
        } else {
            ""
        }
    ));
    for node in &nodes.nodes {
        out.note(&format!(
            "  {:8} {:28} kill -9 {}",
            node.name, node.url, node.pid
        ));
    }
    let [first, .., last] = &nodes.nodes[..] else {
        let url = nodes.nodes.first().map_or("", |node| node.url.as_str());
        out.note(&format!(
            "\n  {}\n\nCtrl-C stops it.",
            super::curl(url, config)
        ));
        return Ok(());
    };
    out.note(&format!(
        "\nCall any node; it sends the call on to the owner of the key's shard:\n  {}\n\nWatch the shards move when one is killed, within about {} (lease.ttl) and a moment to open them:\n  quarry nodes --server {url}\n  quarry shards --server {url}\n\nChanges in {} are built and swapped on all nodes. Ctrl-C stops all.",
        super::curl(&first.url, config),
        Span(plan.ttl()),
        dir.display(),
        url = last.url,
    ));
    Ok(())
}

fn absolute(path: &Path) -> Result<PathBuf, Error> {
    std::path::absolute(path).map_err(|source| Error::Io {
        what: format!("{}", path.display()),
        source,
    })
}

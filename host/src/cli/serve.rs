//! `quarry serve`: a node, until a signal ends it.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};

use super::args::Serve;
use super::running::{self, Guest, Node, Signals};
use super::{Error, Exit, Output};
use crate::config::Config;
use crate::guest::wasm::inspect;
use crate::telemetry;

pub(super) async fn run(args: &Serve, out: Output) -> Result<Exit, Error> {
    let config = Arc::new(Config::load(&args.settings.sources())?.config);
    telemetry::init(&config.log)?;
    let path = config.module.path.clone();
    let mut signals = Signals::watch()?;
    let guests = running::engine(&config)?;
    let start = async {
        let guest = match (&path, args.attended) {
            (Some(path), true) => Guest::Pinned(running::load(&guests, &config, path, 1).await?),
            (Some(path), false) => Guest::Deployed(Some(component(path)?)),
            (None, _) => Guest::Deployed(None),
        };
        Node::start(config.clone(), guests.clone(), guest).await
    };
    let node = tokio::select! {
        node = start => node?,
        _ = signals.next() => return Err(Error::Interrupted),
    };
    let url = node.url();
    let (open, shards) = (node.cluster.local_shards().len(), node.cluster.shards());
    let revision = runs(&node);
    if out.json {
        out.event(&json!({"event": "ready", "url": url, "cluster": config.cluster, "node": config.node, "shards": shards, "open": open, "revision": revision}))?;
    } else {
        let keeps = if config.store == "memory:" {
            ", in memory: nothing is kept (--store URL keeps it)"
        } else {
            ""
        };
        let what = match revision {
            Some(0) => "nothing yet (deploy a guest with `quarry deploy FILE`)".into(),
            Some(revision) => format!("revision {revision}"),
            None => config.module.name.clone(),
        };
        out.note(&format!(
            "serving {what} on {url}: {open} of {shards} shards open{keeps}"
        ));
    }
    let mut told = args
        .attended
        .then(|| BufReader::new(tokio::io::stdin()).lines());
    let mut reloaded = 1;
    let why = loop {
        tokio::select! {
            signal = signals.next() => break format!("{signal:?}"),
            word = next(&mut told) => match word.as_deref() {
                Some(RELOAD) => {
                    reloaded += 1;
                    reload(&node, &config, path.as_deref(), reloaded, out).await?;
                }
                Some(other) => out.note(&format!("`{other}` is not known here: {RELOAD}")),
                None => break "the process that started this one ended".into(),
            },
            () = node.cluster.stopping() => {
                node.stop(&mut signals, out).await;
                return Err(Error::Failed("the node stopped by itself; the log says why".into()));
            }
        }
    };
    out.note("stopping: finishing what was accepted (a second signal ends at once)");
    tracing::info!(why, "stopping");
    node.stop(&mut signals, out).await;
    Ok(Exit::Done)
}

/// A component that a cluster can begin with, as far as it tells without being compiled.
fn component(path: &Path) -> Result<Bytes, Error> {
    let bytes = running::read(path)?;
    inspect(&bytes).map_err(|error| Error::Failed(format!("{}: {error}", path.display())))?;
    Ok(bytes)
}

/// The revision that the cluster runs, 0 for none; nothing where this node runs a component of its own.
fn runs(node: &Node) -> Option<u64> {
    let record = node.cluster.rollout_record().ok()?;
    Some(record.stable)
}

/// What a node that is attended is told to do: load its component again, and swap it in.
pub(super) const RELOAD: &str = "reload";

/// The lines of standard input.
type Told = Lines<BufReader<Stdin>>;

/// What is told next; nothing once nobody tells any more, and never without somebody. Safe to drop.
async fn next(told: &mut Option<Told>) -> Option<String> {
    match told {
        Some(told) => told.next_line().await.ok().flatten(),
        None => std::future::pending().await,
    }
}

/// Swaps in what lies in the component's file now. Whatever fails, the guest that runs goes on.
async fn reload(
    node: &Node,
    config: &Config,
    path: Option<&Path>,
    revision: u64,
    out: Output,
) -> Result<(), Error> {
    let swapped = async {
        let path = path.ok_or_else(|| {
            Error::Failed("this node was started without a component of its own".into())
        })?;
        let module = running::load(&node.guests, config, path, revision).await?;
        let swapped = node.cluster.swap(module).await;
        swapped.map_err(|error| Error::Failed(error.to_string()))
    };
    let event = match swapped.await {
        Ok(report) => json!({
            "event": "reloaded", "revision": revision, "shards": report.shards,
            "longest_pause_ms": report.longest_pause().as_secs_f64() * 1000.0,
        }),
        Err(error) => json!({"event": "kept", "error": error.to_string()}),
    };
    if out.json {
        return out.event(&event);
    }
    out.note(&event.to_string());
    Ok(())
}

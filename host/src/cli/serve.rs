//! `quarry serve`: a node, until a signal ends it.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};

use super::args::Serve;
use super::running::{self, Node, Signals};
use super::{Error, Exit, Output};
use crate::config::Config;
use crate::telemetry;

pub(super) async fn run(args: &Serve, out: Output) -> Result<Exit, Error> {
    let config = Arc::new(Config::load(&args.settings.sources())?.config);
    telemetry::init(&config.log)?;
    let Some(path) = config.module.path.clone() else {
        let hint = "give the guest's component with --module FILE (`module.path`); `quarry build` makes one, `quarry dev DIR` builds and runs it";
        return Err(Error::Usage(hint.into()));
    };
    let mut signals = Signals::watch()?;
    let guests = running::engine(&config)?;
    let start = async {
        let module = running::load(&guests, &config, &path, 1).await?;
        Node::start(config.clone(), guests.clone(), module).await
    };
    let node = tokio::select! {
        node = start => node?,
        _ = signals.next() => return Err(Error::Interrupted),
    };
    let url = node.url();
    let (open, shards) = (node.cluster.local_shards().len(), node.cluster.shards());
    if out.json {
        out.event(&json!({"event": "ready", "url": url, "cluster": config.cluster, "node": config.node, "shards": shards, "open": open}))?;
    } else {
        let keeps = if config.store == "memory:" {
            ", in memory: nothing is kept (--store URL keeps it)"
        } else {
            ""
        };
        out.note(&format!(
            "serving {} on {url}: {open} of {shards} shards open{keeps}",
            config.module.name
        ));
    }
    let mut told = args
        .attended
        .then(|| BufReader::new(tokio::io::stdin()).lines());
    let mut revision = 1;
    let why = loop {
        tokio::select! {
            signal = signals.next() => break format!("{signal:?}"),
            word = next(&mut told) => match word.as_deref() {
                Some(RELOAD) => {
                    revision += 1;
                    reload(&node, &config, &path, revision, out).await?;
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
    path: &Path,
    revision: u64,
    out: Output,
) -> Result<(), Error> {
    let swapped = async {
        let module = running::load(&node.guests, config, path, revision).await?;
        let swapped = node.cluster.swap(module).await;
        swapped.map_err(|error| Error::Failed(error.to_string()))
    };
    let event = match swapped.await {
        Ok(report) => json!({
            "event": "reloaded", "revision": revision, "shards": report.shards,
            "longest_pause_ms": report.longest_pause.as_secs_f64() * 1000.0,
        }),
        Err(error) => json!({"event": "kept", "error": error.to_string()}),
    };
    if out.json {
        return out.event(&event);
    }
    out.note(&event.to_string());
    Ok(())
}

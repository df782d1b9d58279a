//! `quarry dev`: builds the guest of a project, runs it on a node of its own, and swaps it live on each change.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::args::Dev;
use super::running::{self, Guest, Node, Signals};
use super::{Error, Exit, Output, build};
use crate::clock;
use crate::cluster::{SwapError, SwapOptions, SwapReport, SwapStep};
use crate::config::{Config, Origin};
use crate::telemetry;

mod changes;
mod nodes;

use changes::Changes;

/// Changes that come this close together are one.
const SETTLE: Duration = Duration::from_millis(120);

pub(super) async fn run(args: &Dev, out: Output) -> Result<Exit, Error> {
    if let Some(nodes) = args.nodes {
        return nodes::run(args, usize::from(nodes), out).await;
    }
    let project = build::module_of(&args.dir)?;
    let loaded = Config::load(&args.sources()?)?;
    let quiet = matches!(loaded.origin("log.level"), Origin::Default);
    let mut config = loaded.config;
    if quiet {
        // Who tries a guest wants to see what it says, and what goes wrong.
        config.log.level = "warn,quarry::guest=info".into();
    }
    telemetry::init(&config.log)?;
    let name = config.module.name.clone();
    let mut signals = Signals::watch()?;
    // First: an edit made during the first build is a change too.
    let changes = Changes::watch(&args.dir, &project.watch)?;
    let built = tokio::select! {
        built = build::build(&args.dir, &project, |line| out.note(line)) => built?,
        _ = signals.next() => return Err(Error::Interrupted),
    };
    config.module.path = Some(built.path.clone());
    let config = Arc::new(config);
    let guests = running::engine(&config)?;
    let start = async {
        let module = running::load(&guests, &config, &built.path, 1).await?;
        Node::start(config.clone(), guests.clone(), Guest::Pinned(module)).await
    };
    let node = tokio::select! {
        node = start => node?,
        _ = signals.next() => return Err(Error::Interrupted),
    };
    announce(&node, &config, &args.dir, out)?;
    let reloads = reload(&node, &config, &args.dir, built.sha256, changes, out);
    tokio::select! {
        () = reloads => {}
        _ = signals.next() => {}
    }
    out.note(&format!("stopping {name}"));
    node.stop(&mut signals, out).await;
    Ok(Exit::Done)
}

/// Says where it runs, and how to call it.
fn announce(node: &Node, config: &Config, dir: &Path, out: Output) -> Result<(), Error> {
    let url = node.url();
    let ready = node.cluster.ready();
    if out.json {
        return out.event(&json!({"event": "ready", "url": url, "shards": node.cluster.shards(), "ready": ready, "store": config.store}));
    }
    let name = &config.module.name;
    let keeps = if config.store == "memory:" {
        "in memory; nothing is kept (--data-dir DIR keeps it)".to_owned()
    } else {
        format!("in {}", config.store)
    };
    let curl = curl(&url, config);
    out.note(&format!(
        "\n{name} runs on {url}: {} shards, {keeps}",
        node.cluster.shards()
    ));
    if !ready {
        for (shard, report) in &node
            .cluster
            .assignments()
            .keys()
            .filter_map(|shard| Some((*shard, node.cluster.shard_report(*shard).ok()?)))
            .collect::<Vec<_>>()
        {
            if let Some(error) = &report.last_error {
                out.note(&format!(
                    "  shard {shard} is {}: {error}",
                    report.status.as_str()
                ));
                break;
            }
        }
    }
    out.note(&format!(
        "\n  {curl}\n\nChanges in {} are built and swapped in place. Ctrl-C stops.",
        dir.display()
    ));
    Ok(())
}

/// The curl line of the project's example (`module.example`).
fn curl(url: &str, config: &Config) -> String {
    let example = config.module.example.as_deref().unwrap_or("METHOD KEY");
    let mut words = example.splitn(3, ' ');
    let (method, key) = (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    let data = words
        .next()
        .map_or_else(String::new, |payload| format!(" -d '{payload}'"));
    format!("curl -X POST '{url}/v1/call/{method}?key={key}'{data}")
}

/// Builds and swaps on each change, for ever. Whatever fails, the guest that runs goes on.
async fn reload(
    node: &Node,
    config: &Arc<Config>,
    dir: &Path,
    mut digest: String,
    mut changes: Changes,
    out: Output,
) {
    let mut revision = 1;
    let settings = dir.join("quarry.toml");
    let mut known = std::fs::read(&settings).ok();
    while changes.next().await.is_some() {
        while tokio::time::timeout(SETTLE, changes.next())
            .await
            .is_ok_and(|change| change.is_some())
        {}
        let found = std::fs::read(&settings).ok();
        if found != known {
            known = found;
            out.note("quarry.toml has changed: what it says of the node, and the guest's options, is taken when `quarry dev` starts again");
        }
        match once(node, config, dir, &digest, revision + 1, &mut changes, out).await {
            Ok(Some(new)) => {
                digest = new;
                revision += 1;
            }
            Ok(None) => out.note("built: the component is the same as before"),
            Err(error) => report(&error, revision, out),
        }
    }
}

async fn once(
    node: &Node,
    config: &Arc<Config>,
    dir: &Path,
    running: &str,
    revision: u64,
    changes: &mut Changes,
    out: Output,
) -> Result<Option<String>, Error> {
    let Some(built) = build_anew(dir, running, changes, out).await? else {
        return Ok(None);
    };
    let begun = clock::now();
    let module = running::load(&node.guests, config, &built.path, revision).await?;
    let compiled = clock::now().saturating_duration_since(begun);
    let report = match node.cluster.swap(module.clone()).await {
        // Memory that the new code does not understand, or the old code cannot give, must not keep the developer from going on.
        Err(SwapError::NotAdopted { why, .. })
            if matches!(why.step, SwapStep::Suspend | SwapStep::Resume) =>
        {
            out.note(&format!("{why}; reloading without the memory"));
            let afresh = SwapOptions {
                carry_memory: false,
            };
            node.cluster.swap_with(module, afresh).await
        }
        swapped => swapped,
    };
    let report = report.map_err(|error| Error::Failed(error.to_string()))?;
    let name = &config.module.name;
    if out.json {
        let took = |time: Duration| time.as_secs_f64() * 1000.0;
        out.event(&json!({
            "event": "reloaded", "module": name, "revision": revision, "shards": report.shards,
            "build_ms": took(built.took), "compile_ms": took(compiled), "swap_ms": took(report.took), "pause_p50_ms": took(report.pause(50)),
            "pause_p99_ms": took(report.pause(99)), "longest_pause_ms": took(report.longest_pause()),
        }))?;
    } else {
        out.note(&reloaded(name, &report, built.took, compiled));
    }
    Ok(Some(built.sha256))
}

/// Builds the project; again when it changes meanwhile. None when the component is the one that runs, by its digest.
async fn build_anew(
    dir: &Path,
    running: &str,
    changes: &mut Changes,
    out: Output,
) -> Result<Option<build::Built>, Error> {
    let project = build::module_of(dir)?;
    changes.follow(&project.watch);
    let built = loop {
        let building = build::build(dir, &project, |line| out.note(line));
        tokio::select! {
            built = building => break built?,
            // What is being built is out of date already: begin again.
            Some(()) = changes.next() => out.note("changed again; building anew"),
        }
    };
    Ok((built.sha256 != running).then_some(built))
}

/// What a reload came to, for a person.
fn reloaded(name: &str, report: &SwapReport, built: Duration, compiled: Duration) -> String {
    let SwapReport {
        revision,
        shards,
        took,
        ..
    } = report;
    let pause_p99 = report.pause(99);
    format!(
        "reloaded {name}@{revision} on {shards} shards in {took:.1?} (pause p99 {pause_p99:.1?}; built in {built:.1?}, compiled in {compiled:.1?})"
    )
}

fn report(error: &Error, revision: u64, out: Output) {
    out.error(error);
    if !out.json {
        out.note(&format!("revision {revision} goes on"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_says_what_runs_where_and_how_long_calls_waited() {
        let report = SwapReport {
            revision: 3,
            shards: 16,
            took: Duration::from_micros(41_200),
            pauses: vec![Duration::from_micros(300), Duration::from_micros(600)],
        };
        let (built, compiled) = (Duration::from_secs(2), Duration::from_millis(350));
        assert_eq!(
            reloaded("main", &report, built, compiled),
            "reloaded main@3 on 16 shards in 41.2ms (pause p99 600.0µs; built in 2.0s, compiled in 350.0ms)"
        );
    }
}

//! `quarry serve`: a node, until a signal ends it.

use std::sync::Arc;

use serde_json::json;

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
        out.json(&json!({"url": url, "cluster": config.cluster, "node": config.node, "shards": shards, "open": open}))?;
    } else {
        out.note(&format!(
            "serving {} on {url}: {open} of {shards} shards open",
            config.module.name
        ));
    }
    let signal = tokio::select! {
        signal = signals.next() => signal,
        () = node.cluster.stopping() => {
            node.stop(&mut signals, out).await;
            return Err(Error::Failed("the node stopped by itself; the log says why".into()));
        }
    };
    out.note("stopping: finishing what was accepted (a second signal ends at once)");
    tracing::info!(?signal, "stopping");
    node.stop(&mut signals, out).await;
    Ok(Exit::Done)
}

//! `quarry shard`: what an operator does to one shard.

use std::time::Duration;

use serde_json::json;

use super::args::{ShardVerb, Wait};
use super::call::interruptible;
use super::operate::{self, Step};
use super::{Error, Exit, Output};
use crate::client::{Client, percent};
use crate::config::units::Span;

/// How long a node may take to take an order.
const ORDER: Duration = Duration::from_secs(10);

pub(super) async fn run(verb: ShardVerb, out: Output) -> Result<Exit, Error> {
    match verb {
        ShardVerb::Move {
            shard,
            to,
            wait,
            server,
        } => move_to(&Client::new(&server.server)?, shard, &to, wait, out).await,
        ShardVerb::Restart {
            shard,
            wait,
            server,
        } => restart(&Client::new(&server.server)?, shard, wait, out).await,
    }
}

async fn move_to(
    client: &Client,
    shard: u32,
    to: &str,
    wait: Wait,
    out: Output,
) -> Result<Exit, Error> {
    let path = format!("/v1/shards/{shard}/move?to={}", percent(to.as_bytes()));
    interruptible(client.post(&path, ORDER)).await?;
    let Span(within) = wait.timeout;
    let (path, what) = (
        format!("/v1/shards/{shard}"),
        format!("the move of shard {shard}"),
    );
    let waiting = operate::wait(client, within, out, &path, &what, |report| {
        let node = report["node"].as_str().unwrap_or("no node");
        let status = report["status"].as_str().unwrap_or("unknown");
        if node == to && status == "running" {
            return Step::Done(report.clone());
        }
        let error = report["last_error"]
            .as_str()
            .map(|error| format!(" ({error})"))
            .unwrap_or_default();
        Step::Going(format!("shard {shard} is {status} on {node}{error}"))
    });
    let report = tokio::select! {
        biased;
        _ = tokio::signal::ctrl_c() => return Err(Error::Interrupted),
        report = waiting => report?,
    };
    if out.json {
        out.json(&report)?;
    } else {
        out.note(&format!(
            "shard {shard} runs on {to}, generation {}",
            report["generation"]
        ));
    }
    Ok(Exit::Done)
}

async fn restart(client: &Client, shard: u32, wait: Wait, out: Output) -> Result<Exit, Error> {
    let Span(within) = wait.timeout;
    let path = format!("/v1/shards/{shard}/restart?timeout={}", wait.timeout);
    let report = interruptible(client.post(&path, within)).await?;
    if out.json {
        out.json(&report)?;
    } else {
        let word = |field: &str| report[field].as_str().unwrap_or("-").to_owned();
        out.note(&format!(
            "shard {shard} restarted: it is {} on {}",
            word("status"),
            word("node")
        ));
    }
    // For scripts: what is asked for is a shard that runs.
    let fine = ["running", "starting"]
        .iter()
        .any(|fine| report["status"] == json!(fine));
    Ok(if fine { Exit::Done } else { Exit::Failed })
}

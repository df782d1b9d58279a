//! Loads against a node in this process: what is sent, counted and written down.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use clap::Parser;
use tokio::runtime::Handle;

use super::*;
use crate::cli::Cli;
use crate::cli::args::Command;
use crate::cluster::Cluster;
use crate::config::{Config, Probe};
use crate::guest::native::{self, Logic};
use crate::guest::{GuestError, InstanceContext, Reply, Request};
use crate::http::{HttpOptions, HttpServer};

/// Keeps what it gets under the key, and refuses payloads that say so.
struct Keep;

#[async_trait]
impl Logic for Keep {
    async fn call(
        &mut self,
        context: &InstanceContext,
        request: &Request,
    ) -> Result<Reply, GuestError> {
        let key = request
            .key
            .clone()
            .ok_or_else(|| GuestError::new("invalid-key", "give a key"))?;
        match (request.method.as_str(), request.payload.as_ref()) {
            ("get", _) => Ok(Reply::new(
                context.db.view().get(&key).await?.unwrap_or_default(),
            )),
            ("put", b"refuse") => Err(GuestError::new("refused", "as\nit says")),
            _ => {
                context.db.put(key, request.payload.clone()).await?;
                Ok(Reply::default())
            }
        }
    }
}

async fn node() -> (Cluster, HttpServer) {
    let config = Config {
        shards: 2,
        probe: Probe::Off,
        ..Config::default()
    };
    let options = HttpOptions {
        listen: "127.0.0.1:0".parse().expect("address"),
        ..HttpOptions::from(&config)
    };
    let cluster = Cluster::start(Arc::new(config), native::module("main", 1, |_| Keep))
        .await
        .expect("a cluster in memory starts");
    let server = HttpServer::bind(options, cluster.clone(), &Handle::current())
        .await
        .expect("a free port");
    (cluster, server)
}

/// Runs `quarry load` on a text; returns its exit and the lines of `--acked` and `--failed`.
async fn load(server: &str, text: &str, arguments: &[&str]) -> (Exit, BTreeSet<u64>, Vec<String>) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("lines"), text).expect("written");
    let (lines, acked, failed) = (path("lines"), path("acked"), path("failed"));
    let own = [
        "quarry", "load", &lines, "--server", server, "--acked", &acked, "--failed", &failed,
    ];
    let cli = Cli::try_parse_from(own.iter().chain(arguments)).expect("arguments");
    let Command::Load(args) = cli.command else {
        panic!("another verb")
    };
    let exit = tokio::time::timeout(Duration::from_secs(60), run(args, Output { json: false }))
        .await
        .expect("in time")
        .expect("a summary");
    let read = |name: &str| {
        std::fs::read_to_string(path(name))
            .expect("written")
            .lines()
            .map(String::from)
            .collect::<Vec<_>>()
    };
    let acked = read("acked")
        .iter()
        .map(|line| line.parse().expect("a number"))
        .collect();
    let mut failed = read("failed");
    failed.sort();
    (exit, acked, failed)
}

#[tokio::test]
async fn every_line_is_either_acknowledged_or_listed() {
    let (cluster, server) = node().await;
    let url = format!("http://{}", server.local_addr());
    let mut text: String = (1..=300).map(|n| format!("k{n}\tv{n}\n")).collect();
    text.push_str("bad\trefuse\n\n\tno key\n");
    let (exit, acked, failed) = load(&url, &text, &["--format", "tsv", "--concurrency", "7"]).await;
    assert_eq!(exit, Exit::Refused);
    assert_eq!(acked, (1..=300).collect());
    assert_eq!(failed.len(), 2, "{failed:?}");
    assert!(
        failed[0].starts_with("line 301: refused: the guest refused on shard "),
        "{failed:?}"
    );
    assert!(
        failed[0].contains("as it says"),
        "a failed line is one line: {failed:?}"
    );
    assert_eq!(failed[1], "line 303: bad-line: the key is empty");
    for n in [1, 150, 300] {
        let reply = cluster
            .call(
                Target::key(format!("k{n}")),
                "get",
                "".into(),
                call::CallOptions::default(),
            )
            .await
            .expect("a reply");
        assert_eq!(reply.payload, format!("v{n}"));
    }
    let (exit, acked, failed) = load(
        &url,
        "{\"id\":1}\n{\"id\":2}\n",
        &["--format", "jsonl", "--key", "id"],
    )
    .await;
    assert_eq!((exit, acked.len(), failed.len()), (Exit::Done, 2, 0));
    assert!(server.stop(Duration::from_secs(20)).await);
    cluster.stop().await;
}

#[tokio::test]
async fn without_a_node_it_gives_up_and_says_so() {
    let (cluster, server) = node().await;
    let url = format!("http://{}", server.local_addr());
    assert!(server.stop(Duration::from_secs(20)).await);
    cluster.stop().await;
    let text: String = (1..=1000).map(|n| format!("{n}\n")).collect();
    let (exit, acked, failed) = load(
        &url,
        &text,
        &["--give-up-after", "20", "--concurrency", "4"],
    )
    .await;
    assert_eq!(exit, Exit::Unreachable);
    assert!(acked.is_empty());
    // Those in progress when it gave up are waited for.
    assert!((20..=24).contains(&failed.len()), "{} lines", failed.len());
    assert!(
        failed[0].contains(": unreachable: no node answers at "),
        "{}",
        failed[0]
    );
}

#[tokio::test]
async fn lost_calls_and_unreadable_input_have_exits_of_their_own() {
    let (cluster, server) = node().await;
    let url = format!("http://{}", server.local_addr());
    let (stopped, _) = (
        server.stop(Duration::from_secs(20)).await,
        cluster.stop().await,
    );
    assert!(stopped);
    let (exit, acked, failed) = load(&url, "a\n\tno key\n", &["--format", "tsv"]).await;
    assert_eq!((exit, acked.len(), failed.len()), (Exit::Unreachable, 0, 2));

    // A file that opens, and whose first byte cannot be read.
    #[cfg(target_os = "linux")]
    {
        let cli = Cli::try_parse_from(["quarry", "load", "/proc/self/mem", "--server", &url]);
        let Command::Load(args) = cli.expect("arguments").command else {
            panic!("another verb")
        };
        let exit = run(args, Output { json: false }).await.expect("a summary");
        assert_eq!(exit, Exit::Failed);
    }
}

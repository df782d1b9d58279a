//! The same over a real S3 API: SeaweedFS, where `.ci/s3-server install` put it. Without it these tests pass with a line that says so;
//! with `CI=true` they fail.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::crash::{bank_under_kills, kill_in_a_load};
use crate::support::lines::Lines;
use crate::support::process::{DEADLINE, Process, Setup, Signal, folder, quarry, skipped, until};
use crate::support::store::s3_options;

mod cluster;
mod leases;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../.ci/s3-server");
const STORE: &str = "s3://quarry/cluster";
/// Ports that one server takes, one after the other.
const PORTS: u16 = 10;

/// A server of its own, with a folder of its own.
struct Server {
    folder: TempDir,
    port: u16,
    process: Option<Process>,
}

impl Server {
    /// None where it is not installed, after saying so.
    fn new() -> Option<Self> {
        let installed = Command::new(SCRIPT)
            .arg("path")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if !installed.is_ok_and(|status| status.success()) {
            assert!(
                std::env::var("CI").as_deref() != Ok("true"),
                "CI=true, and there is no S3 server: run .ci/s3-server install"
            );
            skipped("no S3 server is installed; .ci/s3-server install does it");
            return None;
        }
        Some(Self {
            folder: folder(),
            port: ports(),
            process: None,
        })
    }

    async fn start(&mut self) {
        let mut command = Command::new(SCRIPT);
        command
            .arg("run")
            .arg(self.folder.path().join("data"))
            .arg(self.port.to_string())
            .stdin(Stdio::null());
        self.process = Some(Process::spawn(command));
        let address = (Ipv4Addr::LOCALHOST, self.port);
        until("the S3 server listens", || {
            std::net::TcpStream::connect(address).ok()
        })
        .await;
        // The bucket comes a little later than the port.
        let began = Instant::now();
        while self.doctor().await.is_err() {
            assert!(
                began.elapsed() < DEADLINE,
                "the S3 server has no bucket after {DEADLINE:?}"
            );
        }
    }

    /// Kill -9.
    async fn kill(&mut self) {
        let process = self.process.take().expect("it runs");
        process.signal(Signal::Kill);
        process.ended().await;
    }

    /// The options of its client.
    fn client(&self) -> BTreeMap<String, String> {
        s3_options(self.port)
    }

    /// The same as arguments of the program.
    fn options(&self) -> Vec<String> {
        let options = self.client().into_iter();
        options
            .flat_map(|(name, value)| ["--store-option".to_owned(), format!("{name}={value}")])
            .collect()
    }

    fn setup(&self, module: &str, shards: u32) -> Setup {
        let options = self.options();
        Setup::new(module, STORE, shards)
            .with(&options.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// What the program thinks of it.
    async fn doctor(&self) -> Result<serde_json::Value, String> {
        let options = self.options();
        let words: Vec<&str> = ["doctor", "--json", "--store", STORE]
            .into_iter()
            .chain(options.iter().map(String::as_str))
            .collect();
        let ended = Process::spawn(quarry(&words)).ended().await;
        if ended.code == Some(0) {
            Ok(ended.json())
        } else {
            Err(ended.stderr)
        }
    }
}

/// The first of ten free ports. Below those that the system gives out by itself.
fn ports() -> u16 {
    loop {
        let first = rand::random_range(1_000..3_000_u16) * PORTS;
        if (first..first + PORTS).all(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
        {
            return first;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn over_s3_kill_nine_loses_nothing_and_the_doctor_is_content() {
    let Some(mut server) = Server::new() else {
        return;
    };
    server.start().await;
    let report = server.doctor().await.expect("a store that is well");
    let failed: Vec<_> = report["checks"]
        .as_array()
        .expect("checks")
        .iter()
        .filter(|check| check["outcome"] == "failed")
        .collect();
    assert!(failed.is_empty() && report["store"] == STORE, "{report}");
    let folder = folder();
    kill_in_a_load(
        &server.setup("kv", 4),
        &Lines::write(folder.path(), 20_000),
        2_000,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn over_s3_money_is_neither_made_nor_lost_by_kill_nine() {
    let Some(mut server) = Server::new() else {
        return;
    };
    server.start().await;
    bank_under_kills(&server.setup("bank", 4), 2).await;
}

/// The server is killed and started again under load: calls end within their time, nothing acknowledged is lost, and the shards wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_survives_an_outage_of_its_store() {
    let Some(mut server) = Server::new() else {
        return;
    };
    server.start().await;
    let folder = folder();
    let lines = Lines::write(folder.path(), 20_000);
    let setup = server.setup("kv", 4).with(&["--set", "call.timeout=5s"]);
    let node = setup.start().await;
    let load = lines.load(&node);
    lines.acked_so_far(1_000).await;
    server.kill().await;
    // Calls end, one way or the other; none is acknowledged that is not durable, as is seen below.
    // All 64 callers wait for 5 s each: some half a minute.
    until("calls fail while the store is away", || {
        (lines.failed().lines().count() >= 6 * 64).then_some(())
    })
    .await;
    let began = Instant::now();
    let error = node
        .call("put", "during", "x")
        .await
        .expect_err("the store is away");
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{error} came after {:?}",
        began.elapsed()
    );
    server.start().await;
    let back = Instant::now();
    node.ready_again().await;
    node.call("put", "a", "after").await.expect("put");
    let status = node.client.status().await.expect("status");
    let shards = status["shards"].as_object().expect("shards");
    assert!(
        shards.len() == 4 && shards.values().all(|shard| shard["opens"] == 1),
        "a shard that could wait was opened again: {status}"
    );
    println!(
        "every shard serves again {:.1?} after the store came back",
        back.elapsed()
    );
    load.signal(Signal::Interrupt);
    load.ended().await.with(130);
    let acked = lines.acked();
    lines.check(&node, &acked).await;
    node.kill().await;
    let node = setup.start().await;
    lines.check(&node, &acked).await;
    assert_eq!(node.query("get", "a").await.expect("get"), "after");
    node.stop().await;
}

/// `probe = "background"`: the node is there before its store is.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_waits_for_its_store() {
    let Some(mut server) = Server::new() else {
        return;
    };
    let node = server
        .setup("kv", 2)
        .with(&["--probe", "background"])
        .start()
        .await;
    assert_eq!(node.ready["open"], 0);
    let status = node.client.status().await.expect("status");
    assert_eq!(
        (&status["ready"], &status["probe"]["status"]),
        (&false.into(), &"pending".into()),
        "{status}"
    );
    let refused = node
        .call("get", "a", "")
        .await
        .expect_err("no shard is open");
    assert!(refused.to_string().contains("not open"), "{refused}");
    server.start().await;
    node.ready_again().await;
    node.call("put", "a", "x").await.expect("put");
    let status = node.client.status().await.expect("status");
    assert_eq!(status["probe"]["status"], "passed", "{status}");
    node.stop().await;
}

/// A wrong secret is told as such, and never shown.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_secret_is_refused_and_not_shown() {
    let Some(mut server) = Server::new() else {
        return;
    };
    server.start().await;
    let ended = server
        .setup("kv", 1)
        .with(&["--store-option", "aws_secret_access_key=wr0ng"])
        .refused()
        .await
        .with(1);
    assert!(
        ended.stderr.contains(STORE) && !ended.stderr.contains("wr0ng"),
        "{ended:#?}"
    );
}

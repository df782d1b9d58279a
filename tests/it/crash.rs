//! A node that is killed or stopped while it works, as a real process: what was acknowledged is there afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use quarry::client::{self, Client};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;

use crate::support::lines::Lines;
use crate::support::process::{DEADLINE, Node, Setup, Signal, call, folder};

const BANKS: usize = 4;
const ACCOUNTS: usize = 8;
const BALANCE: u64 = 1_000;
const CALLERS: usize = 64;

#[tokio::test(flavor = "multi_thread")]
async fn kill_nine_in_the_middle_of_a_load_loses_no_acknowledged_line() {
    let folder = folder();
    let setup = Setup::lasting("kv", &folder.path().join("data"), 4);
    kill_in_a_load(&setup, &Lines::write(folder.path(), 20_000), 6_000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn money_is_neither_made_nor_lost_by_kill_nine() {
    let folder = folder();
    bank_under_kills(&Setup::lasting("bank", &folder.path().join("data"), 4), 3).await;
}

/// A clean stop answers what was accepted, and leaves databases that need no WAL.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_in_the_middle_of_a_load_leaves_nothing_to_replay() {
    let folder = folder();
    let data = folder.path().join("data");
    let setup = Setup::in_folder("kv", &data, 4);
    let lines = Lines::write(folder.path(), 20_000);
    let node = setup.start().await;
    let load = lines.load(&node);
    lines.acked_so_far(3_000).await;
    node.process.signal(Signal::Terminate);
    node.process.ended().await.with(0);
    let summary = load.ended().await.with(3).json();
    let acked = lines.acked();
    assert!(
        acked.len() < lines.count,
        "the load was over before the stop"
    );
    assert_eq!(summary["acknowledged"], acked.len());
    // What a node that stops refuses was not run; no call may be left without an answer.
    for line in lines.failed().lines() {
        let failed: Value = serde_json::from_str(line).expect("JSON");
        let code = failed["code"].as_str().unwrap_or_default();
        assert!(
            ["unassigned", "unreachable", "connection-lost"].contains(&code),
            "{line}"
        );
    }
    for shard in 0..4 {
        let wal = data.join(format!("shard-00{shard}/wal"));
        assert!(
            wal.is_dir(),
            "{} is no folder: has the layout changed?",
            wal.display()
        );
        std::fs::remove_dir_all(&wal).expect("the WAL goes");
    }
    let node = setup.start().await;
    lines.check(&node, &acked).await;
    node.stop().await;
}

/// What watches for signals does so before the node says that it is there.
#[tokio::test(flavor = "multi_thread")]
async fn a_signal_right_after_the_start_is_not_missed() {
    for signal in [Signal::Terminate, Signal::Interrupt] {
        let node = Setup::fresh("counter", 1).start().await;
        node.process.signal(signal);
        node.process.ended().await.with(0);
    }
}

/// A stop finishes the requests that it accepted; a second signal does not wait for them.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_finishes_what_was_accepted_unless_it_is_asked_again() {
    for patient in [true, false] {
        let setup = Setup::fresh("kv", 1).with(&["--set", "http.drain_timeout=60s"]);
        let node = setup.start().await;
        let address = node.url.trim_start_matches("http://");
        let mut request = tokio::net::TcpStream::connect(address)
            .await
            .expect("a connection");
        let head = "POST /v1/call/put?key=a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\nexpect: 100-continue\r\n\r\n";
        request.write_all(head.as_bytes()).await.expect("a head");
        let mut answer = [0; 25];
        request
            .read_exact(&mut answer)
            .await
            .expect("the node wants the body");
        assert_eq!(&answer, b"HTTP/1.1 100 Continue\r\n\r\n");
        node.process.signal(Signal::Terminate);
        node.process
            .complains(|text| {
                text.contains("stopping: finishing what was accepted")
                    .then_some(())
            })
            .await;
        if patient {
            request.write_all(b"value").await.expect("a body");
            let mut answer = String::new();
            request
                .read_to_string(&mut answer)
                .await
                .expect("an answer");
            assert!(
                answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("connection: close"),
                "{answer}"
            );
            node.process.ended().await.with(0);
        } else {
            let asked = Instant::now();
            node.process.signal(Signal::Terminate);
            let ended = node.process.ended().await.with(0);
            assert!(
                ended.stderr.contains("ended at once") && asked.elapsed() < Duration::from_secs(30),
                "{ended:#?}"
            );
        }
    }
}

/// Loads lines, kills the node after so many acknowledgements, starts it again, and reads back.
pub async fn kill_in_a_load(setup: &Setup, lines: &Lines, after: usize) {
    let node = setup.start().await;
    let load = lines.load(&node);
    lines.acked_so_far(after).await;
    node.kill().await;
    let ended = load.ended().await.with(3);
    let acked = lines.acked();
    assert!(
        acked.len() < lines.count,
        "the load was over before the kill"
    );
    assert_eq!(ended.json()["ended"], "gave-up");
    assert_eq!(ended.json()["acknowledged"], acked.len());
    let node = setup.start().await;
    lines.check(&node, &acked).await;
    node.stop().await;
}

/// Transfers of 64 callers between the accounts of some banks, and so many kills in between.
pub async fn bank_under_kills(setup: &Setup, kills: usize) {
    let seed = std::env::var("QUARRY_TEST_SEED").map_or_else(
        |_| rand::random(),
        |text| text.parse().expect("QUARRY_TEST_SEED is a number"),
    );
    eprintln!("QUARRY_TEST_SEED={seed} replays this run's choices");
    let mut random = StdRng::seed_from_u64(seed);
    let mut node = setup.start().await;
    for bank in 0..BANKS {
        for account in 0..ACCOUNTS {
            let payload = json!({"account": account.to_string(), "balance": BALANCE}).to_string();
            node.call("open", &name(bank), &payload)
                .await
                .expect("open");
        }
    }
    let (serve, serving) = watch::channel(node.client.clone());
    let done = watch::Sender::new(0_u64);
    let over = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..CALLERS as u64)
        .map(|caller| {
            tokio::spawn(transfers(
                StdRng::seed_from_u64(seed.wrapping_add(caller + 1)),
                serving.clone(),
                done.clone(),
                over.clone(),
            ))
        })
        .collect();
    for kill in 0..kills {
        let goal = *done.borrow() + random.random_range(100..600);
        reached(&done, goal).await;
        node.kill().await;
        node = setup.start().await;
        // Before the callers know of it.
        totals(&node, &format!("kill {kill}, seed {seed}")).await;
        serve.send_replace(node.client.clone());
    }
    let goal = *done.borrow() + 100;
    reached(&done, goal).await;
    totals(&node, "under load").await;
    over.store(true, Ordering::SeqCst);
    for caller in callers {
        caller.await.expect("a caller");
    }
    totals(&node, &format!("at the end, seed {seed}")).await;
    node.stop().await;
}

/// One caller: transfers until it is over; when the node is gone it waits for the next one.
async fn transfers(
    mut random: StdRng,
    mut serving: watch::Receiver<Client>,
    done: watch::Sender<u64>,
    over: Arc<AtomicBool>,
) {
    while !over.load(Ordering::SeqCst) {
        let client = serving.borrow_and_update().clone();
        let mut account = || random.random_range(0..ACCOUNTS).to_string();
        let payload =
            json!({"from": account(), "to": account(), "amount": random.random_range(0..BALANCE)})
                .to_string();
        match call(
            &client,
            "transfer",
            &name(random.random_range(0..BANKS)),
            &payload,
        )
        .await
        {
            Ok(_) => done.send_modify(|count| *count += 1),
            Err(client::Error::Refused(refusal)) => {
                assert_eq!(refusal.code, "overdraft", "{refusal:?}")
            }
            // The node was killed. Whether the transfer was made, nobody knows.
            Err(error) => {
                assert!(error.is_connection(), "{error}");
                if !over.load(Ordering::SeqCst) {
                    let next = tokio::time::timeout(DEADLINE, serving.changed()).await;
                    next.expect("no node came back").expect("the test is there");
                }
            }
        }
    }
}

async fn reached(done: &watch::Sender<u64>, goal: u64) {
    let mut done = done.subscribe();
    let reached = tokio::time::timeout(DEADLINE, done.wait_for(|count| *count >= goal)).await;
    reached
        .unwrap_or_else(|_| panic!("no {goal} transfers within {DEADLINE:?}"))
        .expect("the counter is there");
}

async fn totals(node: &Node, when: &str) {
    for bank in 0..BANKS {
        let total: Value =
            serde_json::from_str(&node.call("total", &name(bank), "").await.expect("total"))
                .expect("JSON");
        assert_eq!(
            total,
            json!({"accounts": ACCOUNTS, "total": BALANCE * ACCOUNTS as u64}),
            "{} after {when}",
            name(bank)
        );
    }
}

fn name(bank: usize) -> String {
    format!("bank-{bank}")
}

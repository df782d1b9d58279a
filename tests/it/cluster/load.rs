//! Clients of processes: each knows what may be, asks all the time, and at the end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use quarry::client::{Client, Error};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::fleet::Doors;
use crate::support::process::{DEADLINE, call, until};

const ACCOUNTS: u64 = 6;
const BALANCE: u64 = 1_000;
/// The pause of a client between two rounds. Without it a test leaves tens of thousands of small objects behind, and spends more time on
/// removing them than on what it tests.
const PACE: Duration = Duration::from_millis(40);

/// One client's work. It panics when something is lost.
#[async_trait]
pub trait Work: Send + Sync + Sized + 'static {
    /// Before the others begin.
    async fn prepare(number: usize, via: &Client) -> Self;
    /// One round of calls.
    async fn round(&mut self, via: &Client, random: &mut StdRng) -> Result<(), Error>;
    /// The key of all its calls.
    fn key(&self) -> &str;
    /// All that was acknowledged is there.
    async fn check(&self, via: &Client);
}

/// Clients at work.
pub struct Load<W> {
    tasks: Vec<JoinHandle<W>>,
    over: Arc<AtomicBool>,
    /// Rounds of each client that went well.
    rounds: Arc<Vec<AtomicU64>>,
}

impl<W: Work> Load<W> {
    /// Starts clients. Each has a node of its own, and another one while that is not there.
    pub async fn start(clients: usize, doors: &Doors, seed: u64) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let rounds: Arc<Vec<_>> = Arc::new((0..clients).map(|_| AtomicU64::new(0)).collect());
        let mut tasks = Vec::new();
        for number in 0..clients {
            let mut work = W::prepare(number, &doors.door(number).client).await;
            let (doors, over, rounds) = (doors.clone(), over.clone(), rounds.clone());
            let mut random = StdRng::seed_from_u64(seed.wrapping_add(number as u64));
            tasks.push(tokio::spawn(async move {
                while !over.load(Ordering::SeqCst) {
                    let door = doors.door(number);
                    let failed = work.round(&door.client, &mut random).await.err();
                    match failed {
                        None => {
                            rounds[number].fetch_add(1, Ordering::SeqCst);
                            drop(door);
                            tokio::time::sleep(PACE).await;
                        }
                        // Nothing was sent to a node that is gone: that is what the next door is for.
                        Some(Error::Unreachable { .. }) => tokio::task::yield_now().await,
                        Some(error) => {
                            let key = work.key();
                            assert!(door.may_fail(key), "a call with {key} failed: {error}");
                        }
                    }
                }
                work
            }));
        }
        Self {
            tasks,
            over,
            rounds,
        }
    }

    /// Waits until so many more rounds went well, of all clients together.
    pub async fn goes_on(&self, rounds: u64) {
        let goal = self.rounds().iter().sum::<u64>() + rounds;
        self.reach(|now| now.iter().sum::<u64>() >= goal).await;
    }

    /// Waits until every client has had an answer to all that it asked before.
    pub async fn quiet(&self) {
        let before = self.rounds();
        self.reach(|now| {
            now.iter()
                .zip(&before)
                .all(|(now, before)| *now > before + 1)
        })
        .await;
    }

    async fn reach(&self, goal: impl Fn(&[u64]) -> bool) {
        until("the load goes on", || {
            let failed = self.tasks.iter().any(JoinHandle::is_finished);
            assert!(!failed, "a client failed");
            goal(&self.rounds()).then_some(())
        })
        .await;
    }

    fn rounds(&self) -> Vec<u64> {
        let now = self.rounds.iter();
        now.map(|count| count.load(Ordering::SeqCst)).collect()
    }

    pub async fn end(self) -> Vec<W> {
        self.over.store(true, Ordering::SeqCst);
        let mut works = Vec::new();
        for task in self.tasks {
            let ended = tokio::time::timeout(DEADLINE, task).await;
            works.push(ended.expect("the client ends").expect("a client"));
        }
        works
    }
}

/// A key that one client writes, with growing numbers, and reads.
pub struct Writer {
    key: String,
    next: u64,
    acknowledged: u64,
    /// What was sent and never acknowledged: it may be there, and may come late.
    maybe: BTreeSet<u64>,
}

#[async_trait]
impl Work for Writer {
    async fn prepare(number: usize, via: &Client) -> Self {
        let key = format!("writer-{number}");
        call(via, "put", &key, "0").await.expect("put");
        Self {
            key,
            next: 1,
            acknowledged: 0,
            maybe: BTreeSet::new(),
        }
    }

    async fn round(&mut self, via: &Client, _: &mut StdRng) -> Result<(), Error> {
        let number = self.next;
        self.next += 1;
        match call(via, "put", &self.key, &number.to_string()).await {
            Ok(_) => self.acknowledged = number,
            Err(error) => {
                if !matches!(error, Error::Unreachable { .. }) {
                    self.maybe.insert(number);
                }
                return Err(error);
            }
        }
        let seen = call(via, "get", &self.key, "").await?;
        self.judge(&seen);
        Ok(())
    }

    fn key(&self) -> &str {
        &self.key
    }

    async fn check(&self, via: &Client) {
        let seen = call(via, "get", &self.key, "").await;
        self.judge(&seen.expect("get"));
        eprintln!(
            "{}: {} acknowledged last, {} of unknown outcome",
            self.key,
            self.acknowledged,
            self.maybe.len()
        );
    }
}

impl Writer {
    fn judge(&self, seen: &str) {
        let number: u64 = seen.parse().expect("a number");
        assert!(
            number == self.acknowledged || self.maybe.contains(&number),
            "{} is {number}, and {} was acknowledged last; of unknown outcome are {:?}",
            self.key,
            self.acknowledged,
            self.maybe
        );
    }
}

/// A bank in which one client moves money.
pub struct Teller {
    bank: String,
}

#[async_trait]
impl Work for Teller {
    async fn prepare(number: usize, via: &Client) -> Self {
        let bank = format!("bank-{number}");
        for account in 0..ACCOUNTS {
            let payload = json!({"account": account.to_string(), "balance": BALANCE}).to_string();
            call(via, "open", &bank, &payload).await.expect("open");
        }
        Self { bank }
    }

    async fn round(&mut self, via: &Client, random: &mut StdRng) -> Result<(), Error> {
        let mut account = || random.random_range(0..ACCOUNTS).to_string();
        let (from, to) = (account(), account());
        let amount = random.random_range(0..BALANCE / 2);
        let payload = json!({"from": from, "to": to, "amount": amount}).to_string();
        match call(via, "transfer", &self.bank, &payload).await {
            Err(Error::Refused(refusal)) if refusal.code == "overdraft" => {}
            other => drop(other?),
        }
        self.judge(&call(via, "total", &self.bank, "").await?);
        Ok(())
    }

    fn key(&self) -> &str {
        &self.bank
    }

    async fn check(&self, via: &Client) {
        let total = call(via, "total", &self.bank, "").await;
        self.judge(&total.expect("total"));
    }
}

impl Teller {
    fn judge(&self, total: &str) {
        let total: Value = serde_json::from_str(total).expect("JSON");
        let expected = json!({"accounts": ACCOUNTS, "total": BALANCE * ACCOUNTS});
        assert_eq!(total, expected, "{}", self.bank);
    }
}

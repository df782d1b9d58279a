//! Rollouts by real processes under load, while whatever carries them out is killed, stopped, raced or gone back from. In the end every
//! shard runs what the record says, and no call fails but those of a node that was killed or stopped.

use std::path::Path;
use std::time::{Duration, Instant};

use futures::future::{Either, select};
use quarry_core::hash::shard_for;
use serde_json::Value;

use super::fleet::{Fleet, NAMES, Owners, SHARDS, leased, of};
use super::load::{Load, Writer};
use super::{alone, seed};
use crate::support::process::{
    DEADLINE, Ended, Process, Setup, Signal, call, folder, guest, quarry,
};

/// Clients, two for each node.
const CLIENTS: usize = 6;
/// Rounds of the clients between two deeds.
const ROUNDS: u64 = 30;
/// Leases that a busy machine does not lose.
const LEASE: &str = "8s";
/// Until a shard whose owner died is somebody's again.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(8 + 3 + 12);
/// How long an answer waits for the rollout to change.
const LOOK: &str = "200ms";

#[tokio::test(flavor = "multi_thread")]
async fn rollouts_come_to_their_end_whoever_dies_meanwhile() {
    // Removed last, once another cluster may run.
    let folder = folder();
    let _alone = alone().await;
    let seed = seed();
    let mut stage = Stage::begin(&folder.path().join("data"), seed).await;
    stage.a_node_joins_a_canary().await;
    stage.two_deploy_at_once().await;
    stage.it_is_rolled_back_on_its_way().await;
    stage.the_command_is_killed().await;
    stage.the_coordinator_is_killed().await;
    stage.a_node_is_killed_in_its_swaps().await;
    stage.a_node_is_away_for_longer_than_its_lease().await;
    stage.end().await;
}

/// A cluster of which all shards run one revision, and its clients.
struct Stage {
    fleet: Fleet,
    load: Load<Writer>,
    /// What all shards run.
    revision: u64,
    /// Revisions that were held so far, so that each has a key of its own.
    held: usize,
}

/// A deploy of which all shards have taken the revision but one, whose new instance is held in its start.
struct Held {
    command: Process,
    rollout: u64,
    revision: u64,
    key: String,
}

impl Stage {
    /// Two of three nodes are up, and their first revision was deployed to them.
    async fn begin(data: &Path, seed: u64) -> Self {
        let setup = Setup::empty(data, SHARDS);
        let setups = NAMES.map(|name| leased(setup.clone(), name, LEASE));
        let fleet = Fleet::start_some(setups.to_vec(), 2).await;
        let first = deploy::<&str>(&fleet, 0, &[], &[])
            .ended()
            .await
            .with(0)
            .json();
        assert_eq!(
            (&first["outcome"], &first["revision"]),
            (&"adopted".into(), &1.into())
        );
        let load = Load::start(CLIENTS, &fleet.doors, seed).await;
        Self {
            fleet,
            load,
            revision: 1,
            held: 0,
        }
    }

    /// Shards that move to a node that joins run what they ran, those of the canary and the others.
    async fn a_node_joins_a_canary(&mut self) {
        eprintln!("{} joins during a canary", NAMES[2]);
        self.load.goes_on(ROUNDS).await;
        let canary = deploy(&self.fleet, 0, &[("canary", "1")], &["--canary", "34%"]);
        let canary = canary.ended().await.with(8).json();
        assert_eq!(canary["outcome"], "held", "{canary}");
        self.fleet.rise(2).await;
        let owners = self.fleet.settled().await;
        assert_eq!(of(&owners, 2).len(), 2, "{owners:?}");
        let target = self.revision + 1;
        let is = status_until(&self.fleet, 2, "each runs what it is to run", |status| {
            status["adopted"] == SHARDS
        })
        .await;
        assert_eq!(is["active"]["phase"], "held", "{is}");
        assert_eq!((count(&is, self.revision), count(&is, target)), (3, 3));
        self.load.goes_on(ROUNDS).await;
        let promoted = verb(&self.fleet, 2, &["rollout", "promote"]).ended().await;
        assert_eq!(promoted.with(0).json()["outcome"], "adopted");
        self.all_run(target).await;
    }

    /// One wins. The other is told, and changes nothing.
    async fn two_deploy_at_once(&mut self) {
        eprintln!("two deploy at once");
        let owners = self.fleet.settled().await;
        let shard = of(&owners, 1)[0];
        let keys = [self.key(shard), self.key(shard)];
        let [a, b] = [0, 1].map(|via| {
            let options = holding(&keys[via], shard);
            Box::pin(deploy(&self.fleet, via, &options, &[]).ended())
        });
        let (lost, winner) = match select(a, b).await {
            Either::Left(ended) | Either::Right(ended) => ended,
        };
        let told = error(&lost.with(4));
        assert_eq!(told["code"], "rollout-busy", "{told}");
        let is = self.status(2).await;
        let target = number(&is["active"]["target"]);
        assert!(target > self.revision, "{is}");
        // Whichever it is.
        for key in &keys {
            self.release(2, key).await;
        }
        let won = winner.await.with(0).json();
        assert_eq!(
            (&won["outcome"], &won["revision"]),
            (&"adopted".into(), &target.into())
        );
        self.all_run(target).await;
    }

    /// The instance that still starts is given up. Who deployed it is told.
    async fn it_is_rolled_back_on_its_way(&mut self) {
        eprintln!("a rollback during a rollout");
        let held = self.hold(0, 1).await;
        let back = verb(&self.fleet, 2, &["rollback"]).ended().await;
        let back = back.with(0).json();
        assert_eq!(back["outcome"], "rolled-back", "{back}");
        let told = held.command.ended().await.with(5).json();
        assert_eq!(
            (&told["outcome"], &told["rollout"]),
            (&"rolled-back".into(), &held.rollout.into())
        );
        self.all_run(self.revision).await;
        let last = self.status(1).await["last"].clone();
        let why = last["why"].as_str().expect("a reason");
        assert!(why.contains("aborted by "), "{last}");
    }

    /// Nobody needs it for anything but its own output.
    async fn the_command_is_killed(&mut self) {
        eprintln!("kill -9 of quarry deploy");
        let held = self.hold(0, 1).await;
        held.command.signal(Signal::Kill);
        assert_eq!(held.command.ended().await.code, None);
        self.release(2, &held.key).await;
        self.all_run(held.revision).await;
    }

    /// The next one by name carries it on, once it has looked for long enough.
    async fn the_coordinator_is_killed(&mut self) {
        eprintln!("kill -9 of {}, which coordinates", NAMES[0]);
        let held = self.hold(1, 2).await;
        let coordinates = format!(" rollout={} ", held.rollout);
        let stepped = |line: &str| line.contains("deploy.step") && line.contains(&coordinates);
        let log = self.fleet.node(0).process.stderr();
        assert!(log.lines().any(stepped), "another one coordinates:\n{log}");
        self.kill(0).await;
        self.release(2, &held.key).await;
        let adopted = held.command.ended().await.with(0).json();
        assert_eq!(adopted["revision"], held.revision, "{adopted}");
        self.all_run(held.revision).await;
        self.back(0).await;
    }

    /// What it did not get to is done by those that take its shards over.
    async fn a_node_is_killed_in_its_swaps(&mut self) {
        eprintln!("kill -9 of {} in the middle of its swaps", NAMES[1]);
        let held = self.hold(0, 1).await;
        self.kill(1).await;
        let adopted = held.command.ended().await.with(0).json();
        assert_eq!(adopted["revision"], held.revision, "{adopted}");
        self.all_run(held.revision).await;
        self.back(1).await;
    }

    /// The same of one that comes back by itself, and finds what it was about to do done.
    async fn a_node_is_away_for_longer_than_its_lease(&mut self) {
        eprintln!("SIGSTOP of {} in the middle of its swaps", NAMES[2]);
        let held = self.hold(0, 2).await;
        let owners = self.excuse(2).await;
        self.fleet.signal(2, Signal::Stop);
        let adopted = held.command.ended().await.with(0).json();
        assert_eq!(adopted["revision"], held.revision, "{adopted}");
        let after = self.fleet.owned_by(&[0, 1], TAKEN_OVER_WITHIN).await;
        assert!(of(&after, 2).is_empty() && !of(&owners, 2).is_empty());
        self.fleet.signal(2, Signal::Continue);
        self.revision = held.revision;
        self.settled().await;
        self.all_run(held.revision).await;
    }

    async fn end(self) {
        self.load.goes_on(ROUNDS).await;
        self.fleet.end(self.load).await;
    }

    /// Kills a node that has shards, and waits until others have them.
    async fn kill(&mut self, node: usize) {
        self.excuse(node).await;
        self.fleet.kill(node).await;
        let others = self.fleet.up();
        self.fleet.owned_by(&others, TAKEN_OVER_WITHIN).await;
    }

    /// Starts a node again that was killed: it runs what all do.
    async fn back(&mut self, node: usize) {
        self.fleet.rise(node).await;
        self.settled().await;
        self.all_run(self.revision).await;
    }

    /// From now on calls of this node may fail.
    async fn excuse(&self, node: usize) -> Owners {
        let owners = self.fleet.settled().await;
        self.fleet.excuse(node, &of(&owners, node));
        owners
    }

    /// Waits until all nodes have their shares, and from then on no call may fail.
    async fn settled(&self) {
        self.fleet.settled().await;
        self.load.quiet().await;
        self.fleet.excuse_nobody();
        self.load.goes_on(ROUNDS).await;
    }

    /// Deploys through a node what is held on a shard of another one, and waits until all the others have it.
    async fn hold(&mut self, via: usize, on: usize) -> Held {
        self.load.goes_on(ROUNDS).await;
        let owners = self.fleet.settled().await;
        let shard = of(&owners, on)[0];
        let key = self.key(shard);
        let command = deploy(&self.fleet, via, &holding(&key, shard), &[]);
        let before = self.revision;
        let is = status_until(&self.fleet, via, "all but one have swapped", |status| {
            let target = number(&status["active"]["target"]);
            target > before && count(status, target) == SHARDS - 1
        })
        .await;
        let client = &self.fleet.node(via).client;
        let began = Instant::now();
        while call(client, "get", &key, "").await.expect("no call fails") != "held" {
            assert!(began.elapsed() < DEADLINE, "shard {shard} was never held");
        }
        Held {
            command,
            rollout: number(&is["rollout"]),
            revision: number(&is["active"]["target"]),
            key,
        }
    }

    /// Lets the start go on that is held.
    async fn release(&self, via: usize, key: &str) {
        let client = &self.fleet.node(via).client;
        let put = call(client, "put", key, "go").await;
        put.expect("no call fails");
    }

    /// A key of a shard, that no start was held by.
    fn key(&mut self, shard: u32) -> String {
        self.held += 1;
        (0..)
            .map(|n| format!("hold-{}-{n}", self.held))
            .find(|key| shard_for(key.as_bytes(), SHARDS) == shard)
            .expect("there is one")
    }

    /// Waits until all shards run a revision, as every node that is up says.
    async fn all_run(&mut self, revision: u64) {
        for node in self.fleet.up() {
            let what = format!("all run {revision}, says {}", NAMES[node]);
            status_until(&self.fleet, node, &what, |status| {
                status["active"].is_null()
                    && status["stable"] == revision
                    && status["adopted"] == SHARDS
                    && count(status, revision) == SHARDS
            })
            .await;
        }
        self.revision = revision;
    }

    async fn status(&self, via: usize) -> Value {
        let client = &self.fleet.node(via).client;
        client.get("/v1/rollout").await.expect("a status")
    }
}

/// Options of a revision that is held in its start on a shard, by a key of it.
fn holding(key: &str, shard: u32) -> Vec<(&'static str, String)> {
    let options = [
        ("step", "start".to_owned()),
        ("how", "hold".to_owned()),
        ("key", key.to_owned()),
        ("shard", shard.to_string()),
    ];
    options.into()
}

/// Starts `quarry deploy` of the guest with these options.
fn deploy<V: AsRef<str>>(
    fleet: &Fleet,
    via: usize,
    options: &[(&str, V)],
    words: &[&str],
) -> Process {
    let guest = guest("handoff").display().to_string();
    let mut all = vec!["deploy".to_owned(), guest];
    for (name, value) in options {
        all.extend(["--option".to_owned(), format!("{name}={}", value.as_ref())]);
    }
    all.extend(words.iter().map(|&word| word.to_owned()));
    let all: Vec<_> = all.iter().map(String::as_str).collect();
    verb(fleet, via, &all)
}

/// Starts a verb at a node, with JSON.
fn verb(fleet: &Fleet, via: usize, words: &[&str]) -> Process {
    let url = fleet.node(via).url.as_str();
    Process::spawn(quarry(&[words, &["--server", url, "--json"]].concat()))
}

/// Waits until the rollout is as it is to be, as a node says.
async fn status_until(
    fleet: &Fleet,
    node: usize,
    what: &str,
    holds: impl Fn(&Value) -> bool,
) -> Value {
    let client = &fleet.node(node).client;
    let began = Instant::now();
    let mut path = "/v1/rollout".to_owned();
    loop {
        let status = client.get(&path).await.expect("a status");
        if holds(&status) {
            return status;
        }
        assert!(
            began.elapsed() < DEADLINE,
            "not within {DEADLINE:?}: {what}: {status:#}"
        );
        path = format!("/v1/rollout?since={}&wait={LOOK}", status["counter"]);
    }
}

/// How many shards run a revision.
fn count(status: &Value, revision: u64) -> u32 {
    let shards = status["shards"].as_array().into_iter().flatten();
    let running = shards.filter(|shard| shard["revision"] == revision);
    u32::try_from(running.count()).expect("few")
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

/// The error that a verb ended with.
fn error(ended: &Ended) -> Value {
    let mut lines = ended.stderr.lines();
    let line = lines.find(|line| line.starts_with(r#"{"error""#));
    let line = line.unwrap_or_else(|| panic!("no error: {ended:#?}"));
    serde_json::from_str::<Value>(line).expect("JSON")["error"].clone()
}

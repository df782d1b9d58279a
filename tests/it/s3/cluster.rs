//! Three nodes over S3, each with its own way to the server, that are cut off from it; and the server goes away and comes back.

use quarry::store::Store;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{STORE, Server};
use crate::cluster::deeds::{rolling, stopped, vandalized};
use crate::cluster::fleet::{
    Fleet, NAMES, SHARDS, SHARE, TAKEN_OVER_WITHIN, changed, configured, of,
};
use crate::cluster::load::{Load, Teller, Work, Writer};
use crate::cluster::proxy::Proxy;
use crate::cluster::{alone, seed};
use crate::support::process::{Setup, Signal};
use crate::support::store::s3_options;

const CLIENTS: usize = 6;
const ROUNDS: u64 = 30;

#[tokio::test(flavor = "multi_thread")]
async fn over_s3_values_outlive_kills_partitions_and_outages() {
    outlives::<Writer>("kv").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn over_s3_money_outlives_kills_partitions_and_outages() {
    outlives::<Teller>("bank").await;
}

async fn outlives<W: Work>(guest: &str) {
    let _alone = alone().await;
    let Some(mut server) = Server::new() else {
        return;
    };
    let seed = seed();
    let mut random = StdRng::seed_from_u64(seed);
    server.start().await;
    let mut proxies = Vec::new();
    let mut setups = Vec::new();
    for name in NAMES {
        let proxy = Proxy::to(server.port).await;
        let mut setup = configured(Setup::new(guest, STORE, SHARDS), name);
        for (name, value) in s3_options(proxy.port) {
            setup = setup.with(&["--store-option", &format!("{name}={value}")]);
        }
        setups.push(setup);
        proxies.push(proxy);
    }
    let mut fleet = Fleet::start(setups).await;
    let load = Load::<W>::start(CLIENTS, &fleet.doors, seed).await;
    fleet.lenient(true);

    // One node does not reach the store; its peers and its clients reach it.
    let victim = random.random_range(0..3);
    let others: Vec<_> = (0..3).filter(|node| *node != victim).collect();
    eprintln!("{} is cut off from the store", NAMES[victim]);
    load.goes_on(ROUNDS).await;
    let before = fleet.settled().await;
    proxies[victim].cut();
    let after = fleet.owned_by(&others, TAKEN_OVER_WITHIN).await;
    assert_eq!(changed(&before, &after), of(&before, victim), "{after:?}");
    load.goes_on(ROUNDS).await;
    // It serves nothing any more, whatever it believes.
    let status = fleet.node(victim).client.status().await.expect("a status");
    let served = status["shards"].as_object().expect("shards").values();
    let served =
        served.filter(|shard| shard["node"] == NAMES[victim] && shard["status"] == "running");
    assert_eq!(served.count(), 0, "{status:#}");
    // Who calls through it is answered all the same: it asks its peers for the owners.
    load.quiet().await;
    proxies[victim].heal();
    let again = fleet.settled().await;
    assert_eq!(changed(&after, &again), of(&again, victim), "{again:?}");
    assert_eq!(of(&again, victim).len(), SHARE);

    // Kill -9 of another.
    let victim = others[0];
    eprintln!("kill -9 of {}", NAMES[victim]);
    load.goes_on(ROUNDS).await;
    fleet.kill(victim).await;
    let others: Vec<_> = (0..3).filter(|node| *node != victim).collect();
    let after = fleet.owned_by(&others, TAKEN_OVER_WITHIN).await;
    assert_eq!(changed(&again, &after), of(&again, victim), "{after:?}");
    load.goes_on(ROUNDS).await;
    fleet.rise(victim).await;
    fleet.settled().await;

    // The store is gone for longer than every lease, and comes back with what it had.
    eprintln!("the store is killed");
    load.goes_on(ROUNDS).await;
    server.kill().await;
    fleet.fenced().await;
    server.start().await;
    fleet.settled().await;
    load.goes_on(ROUNDS).await;
    // Stopped for a moment, it costs nobody a shard.
    let before = fleet.settled().await;
    let process = server.process.as_ref().expect("it runs");
    process.signal(Signal::Stop);
    process.signal(Signal::Continue);
    load.goes_on(ROUNDS).await;
    let after = fleet.settled().await;
    assert_eq!(changed(&before, &after), Vec::<u32>::new());

    // What is done to processes on a folder.
    stopped(&mut fleet, &load, random.random_range(0..3)).await;
    let store = Store::open(STORE, &s3_options(server.port)).expect("a client");
    vandalized(&fleet, &load, &store, random.random_range(0..3)).await;
    rolling(&mut fleet, &load).await;
    fleet.end(load).await;
}

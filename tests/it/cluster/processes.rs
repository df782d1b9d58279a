//! Real processes on one folder that are killed, stopped, restarted, and whose leases are destroyed, under load.

use std::path::Path;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;

use super::fleet::{Fleet, NAMES, SHARE, TAKEN_OVER_WITHIN, changed, configured, of};
use super::load::{Load, Teller, Work, Writer};
use super::{alone, seed};
use crate::support::process::{Setup, Signal, folder, until};

/// Clients, two for each node.
const CLIENTS: usize = 6;
/// Rounds between two deeds.
const ROUNDS: u64 = 60;

async fn started(module: &str, data: &Path) -> Fleet {
    let setup = Setup::in_folder(module, data, super::fleet::SHARDS);
    let setups = NAMES.map(|name| configured(setup.clone(), name));
    Fleet::start(setups.to_vec()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn values_outlive_kills_pauses_vandals_and_a_rolling_restart() {
    let _alone = alone().await;
    let seed = seed();
    let mut random = StdRng::seed_from_u64(seed);
    let folder = folder();
    let data = folder.path().join("data");
    let mut fleet = started("kv", &data).await;
    let load = Load::<Writer>::start(CLIENTS, &fleet.doors, seed).await;
    fleet.lenient(true);
    killed(&mut fleet, &load, random.random_range(0..3)).await;
    stopped(&mut fleet, &load, random.random_range(0..3)).await;
    vandalized(&fleet, &load, &data, random.random_range(0..3)).await;
    rolling(&mut fleet, &load).await;
    fleet.end(load).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn money_outlives_kills_pauses_and_a_rolling_restart() {
    let _alone = alone().await;
    let seed = seed();
    let mut random = StdRng::seed_from_u64(seed);
    let folder = folder();
    let mut fleet = started("bank", &folder.path().join("data")).await;
    let load = Load::<Teller>::start(CLIENTS, &fleet.doors, seed).await;
    fleet.lenient(true);
    stopped(&mut fleet, &load, random.random_range(0..3)).await;
    killed(&mut fleet, &load, random.random_range(0..3)).await;
    rolling(&mut fleet, &load).await;
    fleet.end(load).await;
}

/// Kill -9: the others have its shards within the bound and keep their own, and it gets no more than its share back.
async fn killed<W: Work>(fleet: &mut Fleet, load: &Load<W>, victim: usize) {
    eprintln!("kill -9 of {}", NAMES[victim]);
    load.goes_on(ROUNDS).await;
    let before = fleet.settled().await;
    fleet.kill(victim).await;
    let others: Vec<_> = (0..3).filter(|node| *node != victim).collect();
    let after = fleet.owned_by(&others, TAKEN_OVER_WITHIN).await;
    assert_eq!(changed(&before, &after), of(&before, victim), "{after:?}");
    load.goes_on(ROUNDS).await;
    fleet.rise(victim).await;
    let again = fleet.settled().await;
    assert_eq!(changed(&after, &again), of(&again, victim), "{again:?}");
    assert_eq!(of(&again, victim).len(), SHARE);
}

/// SIGSTOP past the lease, and SIGCONT: calls that wait in it are answered rightly or not at all.
async fn stopped<W: Work>(fleet: &mut Fleet, load: &Load<W>, victim: usize) {
    eprintln!("SIGSTOP of {}", NAMES[victim]);
    load.goes_on(ROUNDS).await;
    let before = fleet.settled().await;
    fleet.signal(victim, Signal::Stop);
    let others: Vec<_> = (0..3).filter(|node| *node != victim).collect();
    let after = fleet.owned_by(&others, TAKEN_OVER_WITHIN).await;
    assert_eq!(changed(&before, &after), of(&before, victim), "{after:?}");
    load.goes_on(ROUNDS).await;
    fleet.signal(victim, Signal::Continue);
    let again = fleet.settled().await;
    assert_eq!(changed(&after, &again), of(&again, victim), "{again:?}");
    assert_eq!(of(&again, victim).len(), SHARE);
}

/// What lies in the folder of leases is deleted and overwritten: it is repaired, and shards go on.
async fn vandalized<W: Work>(fleet: &Fleet, load: &Load<W>, data: &Path, victim: usize) {
    eprintln!("the leases and {} are vandalized", NAMES[victim]);
    load.goes_on(ROUNDS).await;
    let at = |name: &str| data.join("_quarry").join(name);
    let leases: Vec<_> = (0..5).map(|n| at(&format!("leases/00{n}.json"))).collect();
    for lease in &leases {
        assert!(lease.is_file(), "{} is none", lease.display());
    }
    std::fs::remove_file(&leases[0]).expect("removed");
    std::fs::write(&leases[1], "").expect("written");
    std::fs::write(&leases[2], vec![b'['; 1 << 20]).expect("written");
    std::fs::write(&leases[3], "{\"version\":9}").expect("written");
    std::fs::write(&leases[4], b"\xff\x00garbage").expect("written");
    let node = at(&format!("nodes/{}.json", NAMES[victim]));
    std::fs::remove_file(&node).expect("removed");
    for number in 0..200 {
        std::fs::write(at(&format!("leases/garbage-{number}")), "x").expect("written");
    }
    let read =
        |path: &Path| -> Option<Value> { serde_json::from_slice(&std::fs::read(path).ok()?).ok() };
    until("leases and nodes are whole again", || {
        let owned = |lease| read(lease).is_some_and(|lease| lease["state"] == "owned");
        let lives = read(&node).is_some_and(|node| node["state"] == "live");
        (lives && leases.iter().all(|lease| owned(lease))).then_some(())
    })
    .await;
    fleet.settled().await;
    load.goes_on(ROUNDS).await;
}

/// Each is stopped and started again: no call fails.
async fn rolling<W: Work>(fleet: &mut Fleet, load: &Load<W>) {
    // What began before may still fail.
    fleet.settled().await;
    load.quiet().await;
    fleet.lenient(false);
    let mut owners = fleet.settled().await;
    for (node, name) in NAMES.iter().enumerate() {
        eprintln!("{name} is restarted");
        fleet.stop(node).await;
        let others: Vec<_> = (0..3).filter(|other| *other != node).collect();
        let without = fleet.owned_by(&others, Duration::from_secs(30)).await;
        assert_eq!(changed(&owners, &without), of(&owners, node), "{without:?}");
        load.goes_on(ROUNDS).await;
        fleet.rise(node).await;
        let again = fleet.settled().await;
        assert_eq!(changed(&without, &again), of(&again, node), "{again:?}");
        owners = again;
    }
    load.goes_on(ROUNDS).await;
    fleet.lenient(true);
}

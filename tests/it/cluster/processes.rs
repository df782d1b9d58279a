//! Real processes on one folder that are killed, stopped, restarted, and whose leases are destroyed, under load.

use std::collections::BTreeMap;
use std::path::Path;

use quarry::store::Store;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::deeds::{killed, rolling, stopped, vandalized};
use super::fleet::{Fleet, NAMES, configured};
use super::load::{Load, Teller, Writer};
use super::{alone, seed};
use crate::support::process::{Setup, folder};

/// Clients, two for each node.
const CLIENTS: usize = 6;

async fn started(module: &str, data: &Path) -> Fleet {
    let setup = Setup::in_folder(module, data, super::fleet::SHARDS);
    let setups = NAMES.map(|name| configured(setup.clone(), name));
    Fleet::start(setups.to_vec()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn values_outlive_kills_pauses_vandals_and_a_rolling_restart() {
    // Removed last, once another cluster may run.
    let folder = folder();
    let _alone = alone().await;
    let seed = seed();
    let mut random = StdRng::seed_from_u64(seed);
    let data = folder.path().join("data");
    let mut fleet = started("kv", &data).await;
    let load = Load::<Writer>::start(CLIENTS, &fleet.doors, seed).await;
    fleet.lenient(true);
    killed(&mut fleet, &load, random.random_range(0..3)).await;
    stopped(&mut fleet, &load, random.random_range(0..3)).await;
    let url = format!("file://{}", data.display());
    let store = Store::open(&url, &BTreeMap::new()).expect("the folder");
    vandalized(&fleet, &load, &store, random.random_range(0..3)).await;
    rolling(&mut fleet, &load).await;
    fleet.end(load).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn money_outlives_kills_pauses_and_a_rolling_restart() {
    // Removed last, once another cluster may run.
    let folder = folder();
    let _alone = alone().await;
    let seed = seed();
    let mut random = StdRng::seed_from_u64(seed);
    let mut fleet = started("bank", &folder.path().join("data")).await;
    let load = Load::<Teller>::start(CLIENTS, &fleet.doors, seed).await;
    fleet.lenient(true);
    stopped(&mut fleet, &load, random.random_range(0..3)).await;
    killed(&mut fleet, &load, random.random_range(0..3)).await;
    rolling(&mut fleet, &load).await;
    fleet.end(load).await;
}

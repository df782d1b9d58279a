//! Clusters that are broken on purpose while clients use them: whole nodes in this process, whose histories are checked for
//! linearizability, and real processes that are killed, stopped and cut off. Each test prints the seed of its choices.

use std::sync::LazyLock;

use tokio::sync::{Mutex, MutexGuard};

pub mod deeds;
pub mod fleet;
mod ledger;
mod linear;
pub mod load;
mod processes;
pub mod proxy;
mod rollouts;
mod whole;

/// One cluster at a time: leases are short here, and a machine that runs several of them starves a healthy node past its own.
static ALONE: LazyLock<Mutex<()>> = LazyLock::new(Mutex::default);

pub async fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().await
}

/// The seed of a test: `QUARRY_TEST_SEED`, or a fresh one. It is printed.
pub fn seed() -> u64 {
    let seed = std::env::var("QUARRY_TEST_SEED").map_or_else(
        |_| rand::random(),
        |text| text.parse().expect("QUARRY_TEST_SEED is a number"),
    );
    eprintln!("QUARRY_TEST_SEED={seed} replays this run's choices");
    seed
}

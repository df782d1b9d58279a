//! What is done to processes under load, and what has to become of it.

use std::time::Duration;

use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};
use quarry::store::Store;
use serde_json::Value;

use super::fleet::{Fleet, NAMES, SHARE, TAKEN_OVER_WITHIN, changed, of};
use super::load::{Load, Work};
use crate::support::process::{DEADLINE, Signal};

/// Rounds between two deeds.
const ROUNDS: u64 = 60;
/// The pause between two looks at the store.
const LOOK: Duration = Duration::from_millis(50);

/// Kill -9: the others have its shards within the bound and keep their own, and it gets no more than its share back.
pub async fn killed<W: Work>(fleet: &mut Fleet, load: &Load<W>, victim: usize) {
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
pub async fn stopped<W: Work>(fleet: &mut Fleet, load: &Load<W>, victim: usize) {
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

/// What lies among the leases is deleted and overwritten: it is repaired, and shards go on.
pub async fn vandalized<W: Work>(fleet: &Fleet, load: &Load<W>, store: &Store, victim: usize) {
    eprintln!("the leases and {} are vandalized", NAMES[victim]);
    load.goes_on(ROUNDS).await;
    let objects = store.objects();
    let at = |name: &str| store.path(&format!("_quarry/{name}"));
    let leases: Vec<_> = (0..5).map(|n| at(&format!("leases/00{n}.json"))).collect();
    for lease in &leases {
        objects.head(lease).await.expect("a lease");
    }
    objects.delete(&leases[0]).await.expect("deleted");
    let mess: [&[u8]; 4] = [
        b"",
        &[b'['; 1 << 20],
        b"{\"version\":9}",
        b"\xff\x00garbage",
    ];
    for (lease, mess) in leases[1..].iter().zip(mess) {
        let mess = PutPayload::from(mess.to_vec());
        objects.put(lease, mess).await.expect("written");
    }
    let node = at(&format!("nodes/{}.json", NAMES[victim]));
    objects.delete(&node).await.expect("deleted");
    for number in 0..200 {
        let garbage = at(&format!("leases/garbage-{number}"));
        objects.put(&garbage, "x".into()).await.expect("written");
    }
    let state = async |path: &Path| -> Option<String> {
        let body = objects.get(path).await.ok()?.bytes().await.ok()?;
        let body: Value = serde_json::from_slice(&body).ok()?;
        Some(body["state"].as_str()?.to_owned())
    };
    let whole = async {
        for (path, wanted) in leases
            .iter()
            .map(|lease| (lease, "owned"))
            .chain([(&node, "live")])
        {
            while state(path).await.as_deref() != Some(wanted) {
                tokio::time::sleep(LOOK).await;
            }
        }
    };
    let whole = tokio::time::timeout(DEADLINE, whole).await;
    whole.expect("leases and nodes are whole again");
    fleet.settled().await;
    load.goes_on(ROUNDS).await;
}

/// Each is stopped and started again: no call fails.
pub async fn rolling<W: Work>(fleet: &mut Fleet, load: &Load<W>) {
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

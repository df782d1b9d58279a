//! A large component comes to a node with many shards: it is compiled once, and meanwhile leases are renewed and calls answered.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use quarry::call::Target;
use quarry::deploy::Loader;
use quarry::deploy::operate::Ordered;
use quarry::guest::wasm::{Runtime, RuntimeOptions};
use quarry::guest::{Limits, Module};
use quarry::store::faults::{Fault, Op, Rule};
use quarry::transport::memory::Network;
use tokio::sync::watch;

use super::world::{World, all, call};
use crate::support::guests::text;
use crate::support::process::until;
use crate::support::ring::{Ring, TTL};

const SHARDS: u32 = 16;
/// Renewals that have to come while the component is compiled.
const RENEWALS: u64 = 5;
/// Functions of the large component, and sums that each of them takes.
const FUNCTIONS: usize = 1_500;
const SUMS: usize = 60;

/// An engine, and how many of its components are being loaded.
struct Watched {
    engine: Arc<Runtime>,
    loading: watch::Sender<usize>,
}

#[async_trait]
impl Loader for Watched {
    async fn load(
        &self,
        bytes: Bytes,
        name: &str,
        revision: u64,
        limits: Arc<Limits>,
    ) -> Result<Arc<dyn Module>, String> {
        self.loading.send_modify(|loading| *loading += 1);
        let loaded = Loader::load(&self.engine, bytes, name, revision, limits).await;
        self.loading.send_modify(|loading| *loading -= 1);
        loaded
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_compiles_once_for_all_its_shards_and_loses_no_lease_meanwhile() {
    let cache = tempfile::tempdir().expect("a folder");
    let engine = Runtime::new(RuntimeOptions {
        instances: SHARDS * 2 + 16,
        writers: SHARDS,
        compile_threads: 2,
        cache_dir: Some(cache.path().to_owned()),
    });
    let engine = engine.expect("an engine");
    let loader = Arc::new(Watched {
        engine: engine.clone(),
        loading: watch::Sender::new(0),
    });
    let mut world = World {
        ring: Ring::new(SHARDS),
        network: Network::new(),
        nodes: BTreeMap::new(),
        loader: loader.clone(),
        change: |config| {
            config.lease.ttl = TTL;
            config.lease.interval = Some(Duration::from_millis(100));
        },
    };
    world.join("a").await;
    world.spread().await;
    let ended = world.deploy(text("minimal.wat"), &all()).await;
    assert_eq!((ended.outcome, &*ended.why), ("adopted", ""));
    assert_eq!(engine.compilations(), 1);

    // It does nothing, and is counted.
    let faults = &world.nodes["a"].faults;
    faults.add(Rule::new(Fault::Nothing).on(Op::Put).path("_quarry/nodes"));
    let bytes = large();
    let number = world.order(bytes.clone(), &all()).await;
    until("it is being compiled", || {
        (engine.compilations() == 2).then_some(())
    })
    .await;
    let before = faults.struck();
    until("leases are renewed", || {
        (faults.struck() >= before + RENEWALS).then_some(())
    })
    .await;
    for shard in 0..SHARDS {
        let answered = call(world.door(), Target::Shard(shard), "anything").await;
        answered.unwrap_or_else(|error| panic!("shard {shard}: {error}"));
    }
    assert_eq!(
        *loader.loading.borrow(),
        1,
        "too small: it is compiled by now"
    );

    let ended = world.ended(number).await;
    assert_eq!((ended.outcome, &*ended.why), ("adopted", ""));
    // The same bytes as another revision.
    let draft = world.draft(bytes, r#"{"again":true}"#).await;
    let ordered = world.door().deploy(draft, &all()).await.expect("an order");
    let Ordered::Begun { rollout, .. } = ordered else {
        panic!("it did not begin: {ordered:?}");
    };
    let again = world.ended(rollout).await;
    assert_eq!((again.outcome, &*again.why), ("adopted", ""));
    assert_ne!(again.target, ended.target);
    assert_eq!(engine.compilations(), 2);
    for shard in 0..SHARDS {
        let report = world.door().shard_report(shard).expect("a report");
        assert_eq!(report.opens, 1, "shard {shard} was lost: {report:?}");
    }
    world.stop().await;
}

/// The smallest guest, with a lot of code that nobody calls.
fn large() -> Bytes {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/guests/wat/minimal.wat");
    let small = std::fs::read_to_string(file).expect("a component");
    let begins = "(core module $code\n";
    assert!(small.contains(begins));
    let mut code = begins.to_owned();
    for number in 0..FUNCTIONS {
        code.push_str("(func (param i64 i64) (result i64) local.get 0 ");
        for sum in 0..SUMS {
            let constant = number * SUMS + sum;
            write!(
                code,
                "local.get 1 i64.mul i64.const {constant} i64.add local.tee 0 local.get 1 i64.rotl "
            )
            .expect("text");
        }
        code.push_str(")\n");
    }
    wat::parse_str(small.replacen(begins, &code, 1))
        .expect("a component")
        .into()
}

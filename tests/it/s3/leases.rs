//! Leases over a real S3 API do what every store of leases must.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use object_store::ObjectStoreExt;
use quarry::lease::LeaseStore;
use quarry::lease::conformance::{self, Bucket, Object, Worlds};
use quarry::lease::layout::StoredLeases;
use quarry::lease::objects::LeaseObjects;
use quarry::store::Store;
use quarry_core::lease::layout::LayoutOptions;
use quarry_core::lease::object::Key;
use quarry_core::lease::op::Renewal;
use quarry_core::rules::Rules;

use super::{STORE, Server};

/// Worlds under paths of their own; each node has a client of its own.
struct Buckets {
    options: BTreeMap<String, String>,
    renewal: Renewal,
    worlds: AtomicU32,
}

struct OneBucket {
    options: BTreeMap<String, String>,
    renewal: Renewal,
    path: String,
    shards: u32,
}

impl OneBucket {
    fn store(&self) -> Store {
        Store::open(STORE, &self.options).expect("a client")
    }
}

#[async_trait]
impl Worlds for Buckets {
    async fn world(&self, shards: u32) -> Box<dyn Bucket> {
        let number = self.worlds.fetch_add(1, Ordering::Relaxed);
        Box::new(OneBucket {
            options: self.options.clone(),
            renewal: self.renewal,
            path: format!("{:?}-{number}", self.renewal),
            shards,
        })
    }
}

#[async_trait]
impl Bucket for OneBucket {
    fn node(&self) -> Arc<dyn LeaseStore> {
        let options = LayoutOptions {
            renewal: self.renewal,
            shards: self.shards,
            rules: Rules::default(),
        };
        let objects = LeaseObjects::new(&self.store(), &self.path, self.shards, "conformance");
        Arc::new(StoredLeases::new(options, objects))
    }

    async fn put(&self, object: Object, body: Option<Vec<u8>>) {
        let name = match &object {
            Object::Node(name) => Key::Node(name.clone()).object_name(self.shards),
            Object::Lease(shard) => Key::Lease(*shard).object_name(self.shards),
            Object::Other(name) => name.clone(),
        };
        let store = self.store();
        let at = store.path(&format!("{}/_quarry/{name}", self.path));
        match body {
            Some(body) => drop(store.objects().put(&at, body.into()).await.expect("put")),
            None => store.objects().delete(&at).await.expect("delete"),
        }
    }

    /// What rests on it is checked over stores in memory and on disk.
    async fn set_writer_epoch(&self, _: u32, _: u64) -> bool {
        false
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn layouts_over_s3_conform() {
    let Some(mut server) = Server::new() else {
        return;
    };
    server.start().await;
    for renewal in [Renewal::Session, Renewal::Lease] {
        let buckets = Buckets {
            options: server.client(),
            renewal,
            worlds: 0.into(),
        };
        conformance::run(&buckets).await;
    }
}

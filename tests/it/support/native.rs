//! A native guest with a method for each thing that a test needs.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use quarry::Cluster;
use quarry::call::{CallError, CallOptions, CallReply, Durability, Target};
use quarry::config::Config;
use quarry::db::ReadView;
use quarry::guest::native::{self, Logic};
use quarry::guest::{GuestError, InstanceContext, Module, Reply, Request};

use super::store::Place;

/// See [`module`].
pub struct Register;

/// `put`, `get`, `increment`, `fail-after-put`, `panic`, `wait` (until [`HELD`] is false), and the query `get`.
pub fn module() -> Arc<dyn Module> {
    native::module("main", 1, |_| Register)
}

#[async_trait]
impl Logic for Register {
    async fn call(
        &mut self,
        context: &InstanceContext,
        request: &Request,
    ) -> Result<Reply, GuestError> {
        let key = request
            .key
            .clone()
            .unwrap_or_else(|| Bytes::from_static(b"shard"));
        let db = &context.db;
        match request.method.as_str() {
            "put" => Ok(Reply::new(
                db.put(key, request.payload.clone()).await?.to_string(),
            )),
            "get" => Ok(Reply::new(db.view().get(&key).await?.unwrap_or_default())),
            "increment" => {
                let count = db.view().get(&key).await?.map_or(0, |value| {
                    u64::from_le_bytes(value[..].try_into().expect("8 bytes"))
                }) + 1;
                db.put(key, Bytes::copy_from_slice(&count.to_le_bytes()))
                    .await?;
                Ok(Reply::new(count.to_string()))
            }
            "fail-after-put" => {
                db.put(key, request.payload.clone()).await?;
                Err(GuestError::new("refused", "no"))
            }
            "panic" => panic!("on demand"),
            "wait" => {
                HELD.subscribe()
                    .wait_for(|held| !held)
                    .await
                    .expect("the hand is there");
                Ok(Reply::new("waited"))
            }
            method => Err(GuestError::new("unknown-method", method)),
        }
    }

    async fn query(&mut self, request: &Request, view: &ReadView) -> Result<Reply, GuestError> {
        let key = request
            .key
            .clone()
            .unwrap_or_else(|| Bytes::from_static(b"shard"));
        Ok(Reply::new(view.get(&key).await?.unwrap_or_default()))
    }
}

/// While true, calls of `wait` wait.
pub static HELD: std::sync::LazyLock<tokio::sync::watch::Sender<bool>> =
    std::sync::LazyLock::new(|| tokio::sync::watch::Sender::new(true));

/// A configuration for tests: an empty store, few shards, few threads, no waiting for ports.
pub fn config() -> Config {
    let place = Place::fresh();
    let mut config = Config {
        shards: 2,
        node: "test".into(),
        store: place.url,
        store_options: place.options,
        ..Config::default()
    };
    config.threads.shard = 1;
    config.threads.query = 1;
    config
}

pub async fn call(
    cluster: &Cluster,
    key: &str,
    method: &str,
    payload: &str,
) -> Result<CallReply, CallError> {
    cluster
        .call(
            Target::key(key.to_owned()),
            method,
            payload.to_owned().into(),
            CallOptions::default(),
        )
        .await
}

pub async fn applied(
    cluster: &Cluster,
    key: &str,
    method: &str,
    payload: &str,
) -> Result<CallReply, CallError> {
    let options = CallOptions {
        durability: Some(Durability::Applied),
        ..CallOptions::default()
    };
    cluster
        .call(
            Target::key(key.to_owned()),
            method,
            payload.to_owned().into(),
            options,
        )
        .await
}

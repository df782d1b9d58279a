//! The way to a cluster: one of its nodes, or its bucket alone. Both answer with the same JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use quarry_core::deploy::Command;
use quarry_core::lease::record::Nonce;
use serde_json::{Value, json};

use super::Error;
use super::args::{Settings, Where};
use crate::client::{self, Client, percent};
use crate::config::Config;
use crate::deploy::wire::{self, OrderBody, What};
use crate::deploy::{DeployError, Objects};
use crate::record;
use crate::store::Store;

/// How long a node may take to do something in the bucket.
const ORDER: Duration = Duration::from_secs(120);
/// How often an order is given whose answer does not come for want of the connection.
const TRIES: u32 = 3;
/// How long a component may take to get to a node and into the bucket.
const UPLOAD: Duration = Duration::from_secs(900);
/// The pause between two looks at the record, without a node that tells when it changes.
const LOOK: Duration = Duration::from_secs(1);

/// The way to a cluster.
pub(super) enum Way {
    /// Over one of its nodes.
    Node(Client),
    /// In its bucket.
    Bucket(Bucket),
}

/// The bucket of a cluster.
pub(super) struct Bucket {
    objects: Objects,
    shards: u32,
}

/// An order to the rollout in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Promote,
    Pause,
    Resume,
    /// With who wants it.
    Abort(String),
}

impl Way {
    /// Finds it. A node is not connected to yet.
    pub async fn open(place: &Where) -> Result<Self, Error> {
        let Some(store) = &place.store else {
            return Ok(Self::Node(Client::new(&place.server.server)?));
        };
        let settings = Settings {
            store: Some(store.clone()),
            store_option: place.store_option.clone(),
            path: place.path.clone(),
            ..Settings::default()
        };
        let config = Config::load(&settings.sources())?.config;
        let store = Store::open(&config.store, &config.store_options)
            .map_err(|error| Error::Usage(error.to_string()))?;
        let found = record::read(&store, &config.path).await;
        let found = found.map_err(|error| Error::Failed(error.to_string()))?;
        let Some(record) = found else {
            return Err(Error::Failed(format!(
                "there is no cluster in {store} under the path {:?}: a node makes one when it first starts; check --store and --path",
                config.path
            )));
        };
        Ok(Self::Bucket(Bucket {
            objects: Objects::new(&store, &config.path),
            shards: record.shards,
        }))
    }

    /// Whether nodes can be asked.
    pub fn has_node(&self) -> bool {
        matches!(self, Self::Node(_))
    }

    /// How many shards the cluster has.
    pub async fn shards(&self) -> Result<u32, Error> {
        match self {
            Self::Node(client) => {
                let about = client.get("/").await?;
                let shards = about["shards"].as_u64().unwrap_or_default();
                Ok(u32::try_from(shards).unwrap_or(u32::MAX))
            }
            Self::Bucket(bucket) => Ok(bucket.shards),
        }
    }

    /// How the rollout goes. In the bucket there is only the record of that.
    pub async fn status(&self) -> Result<Value, Error> {
        match self {
            Self::Node(client) => Ok(client.get("/v1/rollout").await?),
            Self::Bucket(bucket) => bucket.status().await,
        }
    }

    /// The same, once the record is another one than that with this counter, or the time is up.
    pub async fn changed(&self, since: u64, wait: Duration) -> Result<Value, Error> {
        match self {
            Self::Node(client) => {
                let path = format!("/v1/rollout?since={since}&wait={}ms", wait.as_millis());
                Ok(client.get(&path).await?)
            }
            Self::Bucket(bucket) => {
                tokio::time::sleep(wait.max(LOOK)).await;
                bucket.status().await
            }
        }
    }

    /// Stores a component.
    pub async fn upload(&self, component: Bytes) -> Result<Value, Error> {
        match self {
            Self::Node(client) => Ok(client.upload("/v1/modules", component, UPLOAD).await?),
            Self::Bucket(bucket) => {
                let size = component.len();
                let stored = bucket.objects.put_module(component).await;
                let (digest, stored) = stored.map_err(DeployError::from)?;
                Ok(json!({"digest": digest, "size": size, "stored": stored}))
            }
        }
    }

    /// Orders a rollout. What it began is told with the number of the order, by which it is known.
    pub async fn order(&self, mut order: OrderBody) -> Result<Value, Error> {
        let number = Nonce::new(rand::random()).to_string();
        order.order = Some(number.clone());
        let mut ordered = self.put_order(order).await?;
        if ordered["outcome"] == "begun" {
            ordered["order"] = number.into();
        }
        Ok(ordered)
    }

    async fn put_order(&self, order: OrderBody) -> Result<Value, Error> {
        match self {
            Self::Node(client) => {
                let mut tries = TRIES;
                loop {
                    tries -= 1;
                    let ordered = client.post_json("/v1/rollout", &order, ORDER).await;
                    match ordered {
                        // It may have been sent. Given again it begins nothing anew, but what goes back from one revision would go back once
                        // more.
                        Err(client::Error::Lost { .. }) if tries > 0 && !order.back => {
                            tokio::time::sleep(LOOK).await;
                        }
                        ordered => return Ok(ordered?),
                    }
                }
            }
            Self::Bucket(Bucket { objects, shards }) => {
                let (what, options) = order.read(*shards)?;
                let ordered = match what {
                    What::Revision(target) => objects.roll_out(target, &options).await?,
                    What::Back => objects.roll_back(&options).await?,
                    What::Draft(draft) => {
                        let draft = draft.read(objects).await?;
                        objects.deploy(draft, &options).await?
                    }
                };
                json_of(&ordered)
            }
        }
    }

    /// Gives an order to the rollout in progress. Answers its number.
    pub async fn step(&self, step: Step) -> Result<u64, Error> {
        match self {
            Self::Node(client) => {
                let path = match step {
                    Step::Promote => "/v1/rollout/promote".into(),
                    Step::Pause => "/v1/rollout/pause".into(),
                    Step::Resume => "/v1/rollout/resume".into(),
                    Step::Abort(by) => {
                        format!("/v1/rollout/abort?by={}", percent(by.as_bytes()))
                    }
                };
                let answer = client.post(&path, ORDER).await?;
                Ok(answer["record"]["rollout"].as_u64().unwrap_or_default())
            }
            Self::Bucket(bucket) => {
                let command = match step {
                    Step::Promote => Command::Promote,
                    Step::Pause => Command::Pause,
                    Step::Resume => Command::Resume,
                    Step::Abort(by) => Command::Abort { by },
                };
                let stored = bucket.objects.order(command).await?;
                Ok(stored.record.number)
            }
        }
    }

    /// The newest revisions.
    pub async fn revisions(&self, below: Option<u64>, limit: usize) -> Result<Value, Error> {
        match self {
            Self::Node(client) => {
                let below = below.map(|below| format!("&below={below}"));
                let below = below.unwrap_or_default();
                Ok(client
                    .get(&format!("/v1/revisions?limit={limit}{below}"))
                    .await?)
            }
            Self::Bucket(bucket) => Ok(wire::revisions(&bucket.objects, below, limit).await?),
        }
    }

    /// A revision.
    pub async fn revision(&self, number: u64) -> Result<Value, Error> {
        match self {
            Self::Node(client) => Ok(client.get(&format!("/v1/revisions/{number}")).await?),
            Self::Bucket(Bucket { objects, .. }) => {
                let found = objects.revision(number).await.map_err(DeployError::from)?;
                Ok(wire::revision_of(objects, &found).await?)
            }
        }
    }

    /// The components.
    pub async fn modules(&self) -> Result<Value, Error> {
        match self {
            Self::Node(client) => Ok(client.get("/v1/modules").await?),
            Self::Bucket(bucket) => Ok(wire::modules(&bucket.objects).await?),
        }
    }

    /// Removes old revisions.
    pub async fn prune(&self, keep: u32) -> Result<Value, Error> {
        match self {
            Self::Node(client) => Ok(client
                .post(&format!("/v1/revisions/prune?keep={keep}"), ORDER)
                .await?),
            Self::Bucket(bucket) => json_of(&bucket.objects.prune(keep as usize).await?),
        }
    }

    /// Removes a revision.
    pub async fn prune_revision(&self, number: u64) -> Result<Value, Error> {
        match self {
            Self::Node(client) => Ok(client
                .post(&format!("/v1/revisions/{number}/prune"), ORDER)
                .await?),
            Self::Bucket(bucket) => json_of(&bucket.objects.prune_revision(number).await?),
        }
    }
}

impl Bucket {
    async fn status(&self) -> Result<Value, Error> {
        let seen = self.objects.rollout().await.map_err(DeployError::from)?;
        Ok(seen.map_or_else(wire::no_record, |seen| wire::record(&seen.record)))
    }
}

/// Waits for something, or for Ctrl-C.
pub(super) async fn interruptible<T>(
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::select! {
        // The signal first: it is watched for before anything is sent.
        biased;
        _ = tokio::signal::ctrl_c() => Err(Error::Interrupted),
        outcome = work => outcome,
    }
}

/// Who works here, for the records: the user and the machine.
pub(super) fn who() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
    let user = user.unwrap_or_else(|_| "unknown".into());
    let plain = |c: &char| c.is_ascii_graphic() && *c != '"' && *c != '\\';
    let user: String = user.chars().filter(plain).take(64).collect();
    format!("{user}@{}", Config::default().node)
}

/// A map of what was given as `NAME=VALUE`; the last one counts.
pub(super) fn pairs(given: &[super::args::Assignment]) -> BTreeMap<String, String> {
    let pairs = given
        .iter()
        .map(|pair| (pair.name.clone(), pair.value.clone()));
    pairs.collect()
}

fn json_of(value: &impl serde::Serialize) -> Result<Value, Error> {
    serde_json::to_value(value).map_err(|error| Error::Failed(error.to_string()))
}

//! Native logic that asks other shards when it is told to.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use quarry::Cluster;
use quarry::call::{CallError, CallOptions, CallReply, QueryOptions, Read, Target};
use quarry::guest::calls::Ask;
use quarry::guest::native::{self, Logic};
use quarry::guest::{GuestError, InstanceContext, Module, Reply, Request};
use tokio::sync::watch;

use crate::support::store::{begun, within};

/// What the calls of a test wait for, and how many of them do.
#[derive(Clone)]
pub struct Stage {
    open: watch::Sender<bool>,
    waiting: watch::Sender<usize>,
}

impl Stage {
    pub fn new() -> Self {
        Self {
            open: watch::Sender::new(false),
            waiting: watch::Sender::new(0),
        }
    }

    /// The logic: `ask` (payload: shard, method and payload with spaces between), `meet` (waits for the stage, then as `ask`), `hold` (waits for
    /// the stage), `put-ask` (writes, then as `ask`), `count` and `counted`.
    pub fn module(&self) -> Arc<dyn Module> {
        let stage = self.clone();
        native::module("main", 1, move |_| Player(stage.clone()))
    }

    /// Waits until so many calls wait for the stage.
    pub async fn someone_waits(&self, calls: usize) {
        let mut waiting = self.waiting.subscribe();
        let waits = waiting.wait_for(|waiting| *waiting >= calls);
        within(waits).await.expect("the stage is there");
    }

    /// Lets all go on, those that come later too.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    async fn opened(&self) {
        self.waiting.send_modify(|waiting| *waiting += 1);
        let mut open = self.open.subscribe();
        open.wait_for(|open| *open)
            .await
            .expect("the stage is there");
    }
}

struct Player(Stage);

#[async_trait]
impl Logic for Player {
    async fn call(
        &mut self,
        context: &InstanceContext,
        request: &Request,
    ) -> Result<Reply, GuestError> {
        let count = Bytes::from_static(b"count");
        match request.method.as_str() {
            "ask" => ask(context, request).await,
            "meet" => {
                self.0.opened().await;
                ask(context, request).await
            }
            "put-ask" => {
                context.db.put("written".into(), "1".into()).await?;
                ask(context, request).await
            }
            "hold" => {
                self.0.opened().await;
                Ok(Reply::new("held"))
            }
            "count" => {
                let counted = context.db.view().get(&count).await?.unwrap_or_default();
                let counted = [&*counted, b"I"].concat();
                context.db.put(count, counted.clone().into()).await?;
                Ok(Reply::new(counted.len().to_string()))
            }
            "counted" => {
                let counted = context.db.view().get(&count).await?.unwrap_or_default();
                Ok(Reply::new(counted.len().to_string()))
            }
            "fail" => Err(GuestError::retryable("overdraft", "no money")),
            method => Err(GuestError::new("unknown-method", method)),
        }
    }

    async fn query(
        &mut self,
        _: &Request,
        view: &quarry::db::ReadView,
    ) -> Result<Reply, GuestError> {
        let counted = view.get(b"count").await?.unwrap_or_default();
        Ok(Reply::new(counted.len().to_string()))
    }
}

async fn ask(context: &InstanceContext, request: &Request) -> Result<Reply, GuestError> {
    let text = std::str::from_utf8(&request.payload).expect("text");
    let mut words = text.splitn(3, ' ');
    let shard = words.next().and_then(|word| word.parse().ok());
    let ask = Ask {
        shard: shard.expect("a shard"),
        method: words.next().expect("a method").to_owned(),
        key: None,
        payload: Bytes::from(words.next().unwrap_or_default().to_owned()),
    };
    let reply = context.calls.call(request.into(), ask).await?;
    Ok(Reply::new(reply.payload))
}

/// Calls a shard.
pub async fn call(
    cluster: &Cluster,
    shard: u32,
    method: &str,
    payload: &str,
) -> Result<CallReply, CallError> {
    let payload = Bytes::from(payload.to_owned());
    let options = CallOptions::default();
    within(cluster.call(Target::Shard(shard), method, payload, options)).await
}

/// Calls a shard beside the test.
pub fn beside(
    cluster: &Cluster,
    shard: u32,
    method: &'static str,
    payload: &'static str,
) -> tokio::task::JoinHandle<Result<CallReply, CallError>> {
    let cluster = cluster.clone();
    begun(async move { call(&cluster, shard, method, payload).await })
}

/// What a query of what is durable says.
pub async fn counted(cluster: &Cluster, shard: u32) -> String {
    let options = QueryOptions {
        read: Read::Durable,
        ..QueryOptions::default()
    };
    let asked = cluster.query(Target::Shard(shard), "counted", Bytes::new(), options);
    let reply = within(asked).await.expect("a reply");
    String::from_utf8_lossy(&reply.payload).into_owned()
}

//! What a call finds when its turn comes, on one node: promise P3, where the shard's deadline has passed before anybody closes it, and another
//! revision than the one that it is for.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;

use super::Cluster;
use crate::call::{
    CallError, CallErrorKind, CallOptions, CallReply, Durability, QueryOptions, Read, Target,
};
use crate::config::Config;
use crate::db::ReadView;
use crate::guest::native::{self, Logic};
use crate::guest::{GuestError, InstanceContext, Reply, Request};

/// Writes, says that it did, and replies when it is let to.
struct Writer {
    wrote: watch::Sender<u32>,
    reply: watch::Receiver<bool>,
}

#[async_trait]
impl Logic for Writer {
    async fn call(
        &mut self,
        context: &InstanceContext,
        request: &Request,
    ) -> Result<Reply, GuestError> {
        context.db.put("a".into(), request.payload.clone()).await?;
        self.wrote.send_modify(|wrote| *wrote += 1);
        _ = self.reply.wait_for(|reply| *reply).await;
        Ok(Reply::new("done"))
    }

    async fn query(&mut self, _: &Request, view: &ReadView) -> Result<Reply, GuestError> {
        Ok(Reply::new(view.get(b"a").await?.unwrap_or_default()))
    }
}

async fn call(cluster: &Cluster, durability: Option<Durability>) -> Result<CallReply, CallError> {
    let options = CallOptions {
        durability,
        ..CallOptions::default()
    };
    cluster
        .call(Target::Shard(0), "write", "x".into(), options)
        .await
}

async fn query(cluster: &Cluster, read: Read) -> Result<CallReply, CallError> {
    let options = QueryOptions {
        read,
        ..QueryOptions::default()
    };
    cluster
        .query(Target::Shard(0), "read", Bytes::new(), options)
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn past_its_deadline_a_shard_acknowledges_nothing_and_reads_nothing() {
    let (wrote, mut written) = watch::channel(0);
    let (reply, replied) = watch::channel(true);
    let module = native::module("main", 1, move |_| Writer {
        wrote: wrote.clone(),
        reply: replied.clone(),
    });
    let mut config = Config {
        shards: 1,
        ..Config::default()
    };
    config.threads.shard = 1;
    config.call.retries = 0;
    let cluster = Cluster::start(Arc::new(config), module)
        .await
        .expect("a node");
    call(&cluster, None).await.expect("in time");
    for read in [Read::Applied, Read::Durable] {
        query(&cluster, read).await.expect("in time");
    }
    // Two calls are in progress, or wait, when the deadline passes.
    reply.send_replace(false);
    let wait = |durability| {
        let cluster = cluster.clone();
        tokio::spawn(async move { call(&cluster, durability).await })
    };
    let before = *written.borrow();
    let durable = wait(None);
    written
        .wait_for(|wrote| *wrote > before)
        .await
        .expect("it runs");
    let applied = wait(Some(Durability::Applied));
    let handle = cluster.node.slots[0].handle().expect("it is open");
    while handle.queued() < 1 {
        tokio::task::yield_now().await;
    }
    handle.db().gate().deadline().shut();
    reply.send_replace(true);
    let error = durable
        .await
        .expect("ended")
        .expect_err("it ran, and cannot be acknowledged");
    assert_eq!(error.kind, CallErrorKind::Unknown, "{error}");
    let error = applied.await.expect("ended").expect_err("it never ran");
    assert_eq!(error.kind, CallErrorKind::NotOwner, "{error}");
    assert!(error.never_ran() && error.retryable);
    for read in [Read::Applied, Read::Durable] {
        let error = query(&cluster, read).await.expect_err("past the deadline");
        assert_eq!(error.kind, CallErrorKind::NotOwner, "{read:?}: {error}");
    }
    cluster.stop().await;
}

/// Replies with nothing; a start waits until it is let to.
struct Starts {
    begun: watch::Sender<bool>,
    go: watch::Receiver<bool>,
}

#[async_trait]
impl Logic for Starts {
    async fn start(&mut self, _: &InstanceContext) -> Result<(), GuestError> {
        self.begun.send_replace(true);
        _ = self.go.wait_for(|go| *go).await;
        Ok(())
    }

    async fn call(&mut self, _: &InstanceContext, _: &Request) -> Result<Reply, GuestError> {
        Ok(Reply::default())
    }
}

/// Calls that came while a shard ran one revision, and whose turn comes when it runs the next one.
#[tokio::test(flavor = "multi_thread")]
async fn the_revision_counts_that_a_call_finds_when_its_turn_comes() {
    let (begun, mut begins) = watch::channel(false);
    let (let_go, go) = watch::channel(true);
    let module = |revision| {
        let (begun, go) = (begun.clone(), go.clone());
        native::module("main", revision, move |_| Starts {
            begun: begun.clone(),
            go: go.clone(),
        })
    };
    let mut config = Config {
        shards: 1,
        ..Config::default()
    };
    config.threads.shard = 1;
    let cluster = Cluster::start(Arc::new(config), module(1))
        .await
        .expect("a node");
    begun.send_replace(false);
    let_go.send_replace(false);
    // The new instance starts while no call runs.
    let swapping = tokio::spawn({
        let (cluster, next) = (cluster.clone(), module(2));
        async move { cluster.swap(next).await }
    });
    begins.wait_for(|begun| *begun).await.expect("it starts");
    let handle = cluster.node.slots[0].handle().expect("it is open");
    assert_eq!(handle.revision(), 1);
    let waiting = [1, 2].map(|revision| {
        let cluster = cluster.clone();
        tokio::spawn(async move {
            let options = CallOptions {
                revision: Some(revision),
                ..CallOptions::default()
            };
            let target = Target::Shard(0);
            cluster.call(target, "any", Bytes::new(), options).await
        })
    });
    while handle.queued() < 2 {
        tokio::task::yield_now().await;
    }
    let_go.send_replace(true);
    swapping.await.expect("ended").expect("swapped");
    let [old, new] = waiting;
    let error = old.await.expect("ended").expect_err("it is gone");
    assert_eq!(
        (error.kind, error.revision),
        (CallErrorKind::WrongRevision, Some(2)),
        "{error}"
    );
    let reply = new.await.expect("ended").expect("it runs");
    assert_eq!(reply.revision, 2);
    cluster.stop().await;
}

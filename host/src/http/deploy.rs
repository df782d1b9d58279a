//! What is deployed, and what an operator wants of that. The node does it in the bucket; all nodes carry it out.

use std::time::Duration;

use ::http::{Request, StatusCode};
use bytes::Bytes;
use hyper::body::Incoming;
use quarry_core::deploy::Command;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::views::{Answer, reply};
use super::{Problem, Shared, body, query};
use crate::call::CallErrorKind;
use crate::deploy::objects::MAX_MODULE_BYTES;
use crate::deploy::wire::{self, DraftBody, MAX_LISTED, OrderBody, What};

/// How long a component may take to arrive.
const UPLOAD_TIME: Duration = Duration::from_secs(600);
/// The longest that a caller may wait for the rollout record to change.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// The largest order: a revision as it lies in the bucket, and what stands around it.
const ORDER_MAX_BYTES: usize = 3 << 20;
/// How many of the newest revisions a prune leaves, where nobody says.
const KEPT: usize = 10;

/// An order to the rollout in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Promote,
    Pause,
    Resume,
    Abort,
}

pub(super) async fn modules(shared: &Shared, query: &str) -> Answer {
    query::none(query)?;
    Ok(reply(&wire::modules(shared.cluster.objects()?).await?))
}

/// Stores a component. Its bytes are bounded apart from those of calls.
pub(super) async fn upload(shared: &Shared, query: &str, request: Request<Incoming>) -> Answer {
    query::none(query)?;
    let objects = shared.cluster.objects()?;
    let Ok(_permit) = shared.uploads.try_acquire() else {
        let detail = "other modules are being uploaded to this node; nothing was stored";
        let code = CallErrorKind::Overloaded.code();
        return Err(Problem {
            retryable: true,
            ..Problem::host(StatusCode::TOO_MANY_REQUESTS, code, detail)
        });
    };
    let asks = request.headers().contains_key(::http::header::EXPECT);
    let most = usize::try_from(MAX_MODULE_BYTES).unwrap_or(usize::MAX);
    let (body, limit) = (
        request.into_body(),
        (most, "the largest module that is stored"),
    );
    let room = body::Bodies::new(most);
    let (component, _share) = body::read(body, asks, limit, &room, UPLOAD_TIME).await?;
    let size = component.len();
    let (digest, stored) = objects.put_module(component).await?;
    Ok(reply(
        &json!({"digest": digest, "size": size, "stored": stored}),
    ))
}

pub(super) async fn revisions(shared: &Shared, query: &str) -> Answer {
    let (below, limit) = query::revisions(query, MAX_LISTED)?;
    let objects = shared.cluster.objects()?;
    Ok(reply(&wire::revisions(objects, below, limit).await?))
}

pub(super) async fn record(shared: &Shared, query: &str, request: Request<Incoming>) -> Answer {
    query::none(query)?;
    let draft: DraftBody = json_of(shared, request).await?;
    let objects = shared.cluster.objects()?;
    let draft = draft.read(objects).await?;
    let revision = objects.create_revision(draft).await?;
    Ok(reply(&wire::revision_of(objects, &revision).await?))
}

pub(super) async fn revision(shared: &Shared, number: &str, query: &str) -> Answer {
    query::none(query)?;
    let number = query::revision(number)?;
    let objects = shared.cluster.objects()?;
    let revision = objects.revision(number).await?;
    Ok(reply(&wire::revision_of(objects, &revision).await?))
}

pub(super) async fn prune(shared: &Shared, query: &str) -> Answer {
    let keep = query::keep(query)?.unwrap_or(KEPT);
    Ok(reply(&shared.cluster.objects()?.prune(keep).await?))
}

pub(super) async fn prune_revision(shared: &Shared, number: &str, query: &str) -> Answer {
    query::none(query)?;
    let number = query::revision(number)?;
    let pruned = shared.cluster.objects()?.prune_revision(number).await?;
    Ok(reply(&pruned))
}

/// How the rollout goes; with `since` and `wait`, as soon as the record is another one.
pub(super) async fn rollout(shared: &Shared, query: &str) -> Answer {
    let (since, wait) = query::rollout(query, WAIT_MAX)?;
    if let Some(since) = since.filter(|_| !wait.is_zero()) {
        shared.cluster.rollout_changed(since, wait).await?;
    }
    Ok(reply(&shared.cluster.rollout().await?))
}

pub(super) async fn deploy(shared: &Shared, query: &str, request: Request<Incoming>) -> Answer {
    query::none(query)?;
    let order: OrderBody = json_of(shared, request).await?;
    let cluster = &shared.cluster;
    let (what, options) = order.read(cluster.shards())?;
    let ordered = match what {
        What::Revision(target) => cluster.roll_out(target, &options).await?,
        What::Back => cluster.roll_back(&options).await?,
        What::Draft(draft) => {
            let draft = draft.read(cluster.objects()?).await?;
            cluster.deploy(draft, &options).await?
        }
    };
    Ok(reply(&ordered))
}

pub(super) async fn order(shared: &Shared, step: Step, query: &str) -> Answer {
    let command = match step {
        Step::Abort => Command::Abort {
            by: query::by(query)?,
        },
        Step::Promote => Command::Promote,
        Step::Pause => Command::Pause,
        Step::Resume => Command::Resume,
    };
    if step != Step::Abort {
        query::none(query)?;
    }
    let stored = shared.cluster.rollout_command(command).await?;
    Ok(reply(&json!({"record": wire::record(&stored.record)})))
}

/// Reads a body as JSON, strictly.
async fn json_of<T: DeserializeOwned>(
    shared: &Shared,
    request: Request<Incoming>,
) -> Result<T, Problem> {
    let asks = request.headers().contains_key(::http::header::EXPECT);
    let limit = (ORDER_MAX_BYTES, "the largest order");
    let within = shared.options.timeout;
    let (text, _share): (Bytes, _) =
        body::read(request.into_body(), asks, limit, &shared.bodies, within).await?;
    serde_json::from_slice(&text)
        .map_err(|error| Problem::invalid(format!("the body is not an order: {error}")))
}

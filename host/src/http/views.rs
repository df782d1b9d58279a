//! What a node says of itself and its shards, and the few things an operator can do to a shard.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use ::http::{HeaderValue, Response, StatusCode};
use bytes::Bytes;
use http_body_util::Full;
use serde::Serialize;
use serde_json::json;

use super::query;
use super::{Problem, ROUTES, Shared, openapi};
use crate::call::{CallError, CallErrorKind, Target};
use crate::clock;
use crate::cluster::status::{ProbeState, ProbeStatus, ShardReport};
use crate::config::units::Span;
use crate::transport::Command;

/// How long `/ready` and `/v1/status` wait for the shards' states, where the caller does not say.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a node may take to take an order, where the caller does not say.
const ORDER_TIMEOUT: Duration = Duration::from_secs(5);
/// Shards that `/ready` names, at most.
const NAMED_MAX: usize = 20;

pub(super) type Answer = Result<Response<Full<Bytes>>, Problem>;

pub(super) fn index(shared: &Shared, query: &str) -> Answer {
    query::none(query)?;
    let routes: Vec<_> = ROUTES.iter().map(|route| json!({"method": route.method.as_ref().map_or("*", ::http::Method::as_str), "path": route.path, "summary": route.summary})).collect();
    let cluster = &shared.cluster;
    Ok(reply(&json!({
        "name": "quarry",
        "version": env!("CARGO_PKG_VERSION"),
        "cluster": **cluster.name(),
        "node": **cluster.node(),
        "shards": cluster.shards(),
        "routes": routes,
    })))
}

pub(super) fn health(shared: &Shared, query: &str) -> Answer {
    query::none(query)?;
    let up = clock::now().saturating_duration_since(shared.started);
    let up_ms = u64::try_from(up.as_millis()).unwrap_or(u64::MAX);
    Ok(reply(
        &json!({"status": "ok", "version": env!("CARGO_PKG_VERSION"), "node": **shared.cluster.node(), "up_ms": up_ms}),
    ))
}

pub(super) async fn ready(shared: &Shared, query: &str) -> Answer {
    query::none(query)?;
    if shared.stopping.load(Ordering::Acquire) {
        return Err(not_ready("this node is stopping".into()));
    }
    if shared.cluster.ready() {
        return Ok(reply(&json!({"ready": true})));
    }
    let cluster = &shared.cluster;
    let reasons = reasons(
        &cluster.probe_state(),
        &cluster.store(),
        &cluster.not_ready(),
    );
    if cluster.ready() {
        // It became ready between the two questions.
        return Ok(reply(&json!({"ready": true})));
    }
    Err(not_ready(reasons.join("; ")))
}

fn not_ready(detail: String) -> Problem {
    Problem::host(StatusCode::SERVICE_UNAVAILABLE, "not-ready", detail)
}

/// Why a node is not ready, in words.
fn reasons(probe: &ProbeState, store: &str, shards: &[ShardReport]) -> Vec<String> {
    let mut reasons = Vec::new();
    match probe.status {
        ProbeStatus::Pending | ProbeStatus::Failed => {
            let why = probe
                .last_error
                .as_ref()
                .map(|error| format!(": {error}"))
                .unwrap_or_default();
            let what = if probe.status == ProbeStatus::Failed {
                "failed"
            } else {
                "has not passed yet"
            };
            reasons.push(format!("the probe of the store {store} {what}{why}"));
        }
        ProbeStatus::Passed | ProbeStatus::Skipped => {}
    }
    let mut waiting = shards.iter();
    for shard in waiting.by_ref().take(NAMED_MAX) {
        let why = shard
            .last_error
            .as_ref()
            .map(|error| format!(": {error}"))
            .unwrap_or_default();
        reasons.push(format!(
            "shard {} is {}{why}",
            shard.shard,
            shard.status.as_str()
        ));
    }
    let more = waiting.count();
    if more > 0 {
        reasons.push(format!("so are {more} more shards"));
    }
    if reasons.is_empty() {
        reasons.push("this node has not claimed its share of the shards yet".into());
    }
    reasons
}

pub(super) fn metrics(shared: &Shared, query: &str) -> Answer {
    query::none(query)?;
    let text = shared.exporter.render().ok_or_else(|| {
        let detail = "the program around this node installed a metrics recorder of its own; ask it for the metrics";
        Problem { retryable: false, ..Problem::host(StatusCode::SERVICE_UNAVAILABLE, "no-metrics", detail) }
    })?;
    Ok(respond(
        "text/plain; version=0.0.4; charset=utf-8",
        text.into(),
    ))
}

pub(super) fn openapi(query: &str) -> Answer {
    query::none(query)?;
    Ok(respond("application/json", openapi::document()))
}

pub(super) async fn status(shared: &Shared, query: &str) -> Answer {
    let timeout = query::timeout(query, shared.options.max_timeout)?.unwrap_or(STATUS_TIMEOUT);
    Ok(reply(&shared.cluster.status(timeout).await?))
}

pub(super) fn assignments(shared: &Shared, query: &str) -> Answer {
    query::none(query)?;
    let cluster = &shared.cluster;
    Ok(reply(&json!({
        "node": **cluster.node(),
        "shards": cluster.shards(),
        "assignments": cluster.assignments(),
        "local_shards": cluster.local_shards(),
    })))
}

pub(super) fn lookup(shared: &Shared, query: &str) -> Answer {
    let shard = match query::lookup(query)? {
        Target::Key(key) => shared.cluster.shard_for(&key),
        Target::Shard(shard) => shard,
    };
    let location = shared.cluster.lookup(shard)?;
    let mut answer = serde_json::to_value(location).unwrap_or_default();
    answer["shard"] = shard.into();
    Ok(reply(&answer))
}

pub(super) async fn shard(shared: &Shared, shard: &str, query: &str) -> Answer {
    let shard = query::shard(shard)?;
    let timeout = query::timeout(query, shared.options.max_timeout)?.unwrap_or(STATUS_TIMEOUT);
    Ok(reply(&shared.cluster.shard(shard, timeout).await?))
}

pub(super) async fn nodes(shared: &Shared, query: &str) -> Answer {
    query::none(query)?;
    let cluster = &shared.cluster;
    Ok(reply(&json!({
        "cluster": **cluster.name(),
        "node": **cluster.node(),
        "nodes": cluster.nodes().await?,
    })))
}

/// Has a node drain, take no shards, or take some again. The reply says how the nodes are then.
pub(super) async fn order(shared: &Shared, node: &str, command: Command, query: &str) -> Answer {
    let timeout = query::timeout(query, shared.options.max_timeout)?.unwrap_or(ORDER_TIMEOUT);
    let node = query::node(node)?;
    shared.cluster.order(&node, command, timeout).await?;
    let nodes = shared.cluster.nodes().await?;
    let view = nodes.iter().find(|view| *view.node == *node);
    Ok(reply(&json!({"node": node, "accepted": true, "now": view})))
}

/// Moves a shard to a node, where it stays.
pub(super) async fn move_shard(shared: &Shared, shard: &str, query: &str) -> Answer {
    let shard = query::shard(shard)?;
    let (to, timeout) = query::to(query, shared.options.max_timeout)?;
    let timeout = timeout.unwrap_or(ORDER_TIMEOUT);
    shared.cluster.move_shard(shard, &to, timeout).await?;
    Ok(reply(&json!({"shard": shard, "to": to, "accepted": true})))
}

pub(super) async fn restart(shared: &Shared, shard: &str, query: &str) -> Answer {
    let shard = query::shard(shard)?;
    let timeout =
        query::timeout(query, shared.options.max_timeout)?.unwrap_or(shared.options.timeout);
    // A restart that began is not taken back when nobody waits for it any more.
    let restarted = clock::timeout(timeout, shared.cluster.restart_shard(shard)).await;
    restarted.unwrap_or_else(|_| {
        let detail = format!(
            "the shard did not restart within {}; GET /v1/shards/{shard} says how it is",
            Span(timeout)
        );
        Err(CallError::host(CallErrorKind::Timeout, detail).at(shard))
    })?;
    Ok(reply(&shared.cluster.shard(shard, STATUS_TIMEOUT).await?))
}

pub(super) async fn durable_seq(shared: &Shared, shard: &str, query: &str) -> Answer {
    query::none(query)?;
    let shard = query::shard(shard)?;
    let seq = shared.cluster.durable_seq(shard).await?;
    Ok(reply(&json!({"shard": shard, "durable_seq": seq})))
}

pub(super) async fn durable(shared: &Shared, shard: &str, query: &str) -> Answer {
    let shard = query::shard(shard)?;
    let (seq, timeout) = query::durable(query, shared.options.max_timeout)?;
    let timeout = timeout.unwrap_or(shared.options.timeout);
    let waited = clock::timeout(timeout, shared.cluster.notify_when_durable(shard, seq)).await;
    match waited {
        Ok(waited) => waited?,
        Err(_) => {
            let now = shared.cluster.durable_seq(shard).await;
            let now = now.map(|seq| format!("; {seq} is")).unwrap_or_default();
            let detail = format!("seq {seq} was not durable within {}{now}", Span(timeout));
            return Err(CallError::host(CallErrorKind::Timeout, detail)
                .at(shard)
                .into());
        }
    }
    Ok(reply(&json!({"shard": shard, "seq": seq, "durable": true})))
}

pub(super) fn reply(value: &impl Serialize) -> Response<Full<Bytes>> {
    let text = serde_json::to_vec(value).unwrap_or_default();
    respond("application/json", text.into())
}

fn respond(content: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content));
    response
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

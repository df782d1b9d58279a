//! What a guest can see of the host. What it must not reach is the guest `reach`.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use quarry_guest::{context, durability, prelude::*};
use serde_json::json;

/// The reply of a method of this module.
pub fn run(call: &Call) -> Option<Result<Reply>> {
    Some(match call.method() {
        "context" => context(call),
        "key" => Ok(Reply::bytes(call.key().unwrap_or(b"no key"))),
        "deadline" => Ok(Reply::text(
            call.time_left().map_or(0, |left| left.as_millis()),
        )),
        "header" => call
            .text()
            .map(|name| Reply::text(call.header(name).unwrap_or_default())),
        "durable-seq" => Ok(Reply::text(durability::durable_seq())),
        "clock" => clock(),
        "sleep" => sleep(call),
        "random" => Ok(Reply::text(RandomState::new().hash_one(0))),
        _ => return None,
    })
}

/// Everything that the host says about where this runs. The payload, if any, is the key to find a shard for.
fn context(call: &Call) -> Result<Reply> {
    Reply::json(&json!({
        "cluster": context::cluster(),
        "shard": context::shard(),
        "shard_count": context::shard_count(),
        "shard_for": context::shard_for(call.payload()),
        "node": context::node(),
        "generation": context::generation(),
        "module": context::module(),
        "revision": context::revision(),
        "options": context::options::<serde_json::Value>()?,
        "status": format!("{:?}", context::status()).to_lowercase(),
        "owned_for_ms": u64::try_from(context::owned_for().as_millis()).unwrap_or(u64::MAX),
        "traceparent": call.traceparent(),
    }))
}

/// Milliseconds since the Unix epoch.
fn clock() -> Result<Reply> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_err(|why| Error::new("clock", why.to_string()))?;
    Ok(Reply::text(now.as_millis()))
}

/// Waits in the host for as many milliseconds as the payload says; replies with how many it was.
fn sleep(call: &Call) -> Result<Reply> {
    let start = Instant::now();
    std::thread::sleep(Duration::from_millis(crate::number(call.text()?)?));
    Ok(Reply::text(start.elapsed().as_millis()))
}

//! Where this instance runs.

use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::codec::Key;
use crate::error::{Error, Result};
use crate::sys;

/// The cluster's name.
pub fn cluster() -> String {
    sys::cluster()
}

/// This shard's number, from 0.
pub fn shard() -> u32 {
    sys::shard()
}

/// How many shards the cluster has. Fixed for the life of the data.
pub fn shard_count() -> u32 {
    sys::shard_count()
}

/// The shard that a key belongs to.
pub fn shard_for(key: impl Key) -> u32 {
    sys::shard_for(&key.to_key())
}

/// The node's name.
pub fn node() -> String {
    sys::node()
}

/// The lease's generation: grows with each owner. 0 without leases.
pub fn generation() -> u64 {
    sys::generation()
}

/// The name of this module within its revision.
pub fn module() -> String {
    sys::module()
}

/// The revision that this instance belongs to.
pub fn revision() -> u64 {
    sys::revision()
}

/// The module's options as deployed: a JSON object, `{}` where there are none.
pub fn options_json() -> String {
    sys::options()
}

/// The module's options, read as `T`. Fails with `invalid-options`; name `options` in [`export!`](crate::export) and
/// check them in [`Guest::validate`](crate::Guest::validate), so that wrong ones never get here.
///
/// ```
/// use quarry_guest::{context, testing::Host, prelude::*};
///
/// #[derive(serde::Deserialize)]
/// struct Options { greeting: String }
///
/// #[derive(Default)]
/// struct Greeter;
/// impl Guest for Greeter {
///     fn call(&mut self, _: Call) -> Result<Reply> {
///         Ok(Reply::text(context::options::<Options>()?.greeting))
///     }
/// }
/// quarry_guest::export!(Greeter);
///
/// # fn main() {
/// let mut host = Host::builder().options(r#"{"greeting": "Hi"}"#).start::<Greeter>().unwrap();
/// assert_eq!(host.call("greet").run().unwrap().text(), "Hi");
/// # }
/// ```
pub fn options<T: DeserializeOwned>() -> Result<T> {
    serde_json::from_str(&options_json()).map_err(|why| {
        Error::new(
            "invalid-options",
            format!("the module's options were not understood: {why}"),
        )
    })
}

/// Whether this shard goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It goes on.
    Running,
    /// It is being closed or moved.
    Stopping,
    /// Another writer took it over.
    Fenced,
}

/// Whether this shard goes on.
pub fn status() -> Status {
    sys::status()
}

/// How long this node is sure to own the shard: zero once its deadline has passed, [`Duration::MAX`] without leases.
pub fn owned_for() -> Duration {
    match sys::owned_for_ms() {
        u64::MAX => Duration::MAX,
        ms => Duration::from_millis(ms),
    }
}

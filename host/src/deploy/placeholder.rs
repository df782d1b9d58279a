//! What shards run before anything was deployed: it tells callers so.

use std::sync::Arc;

use async_trait::async_trait;

use crate::db::ReadView;
use crate::guest::native::{self, Logic};
use crate::guest::{GuestError, HttpHead, InstanceContext, Module, Reply, Request};

/// The number that it has as a revision; those in the bucket begin with 1.
pub const REVISION: u64 = 0;
/// The code of the error that it answers every call and query with.
pub const NOT_DEPLOYED: &str = "not-deployed";

/// The module.
#[must_use]
pub fn module() -> Arc<dyn Module> {
    native::module("placeholder", REVISION, |_| Placeholder)
}

struct Placeholder;

#[async_trait]
impl Logic for Placeholder {
    const HTTP: bool = true;

    async fn call(&mut self, _: &InstanceContext, _: &Request) -> Result<Reply, GuestError> {
        Err(not_deployed())
    }

    async fn http(
        &mut self,
        _: &InstanceContext,
        _: &Request,
        _: &HttpHead,
    ) -> Result<Reply, GuestError> {
        Err(not_deployed())
    }

    async fn query(&mut self, _: &Request, _: &ReadView) -> Result<Reply, GuestError> {
        Err(not_deployed())
    }
}

fn not_deployed() -> GuestError {
    GuestError::new(
        NOT_DEPLOYED,
        "no guest is deployed to this cluster: deploy one with `quarry deploy FILE`",
    )
}

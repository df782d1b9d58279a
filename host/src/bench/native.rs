//! The logic of the bench guest, natively: what WebAssembly costs is the difference.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use crate::db::ReadView;
use crate::guest::native::{self, Logic};
use crate::guest::{GuestError, InstanceContext, Module, Reply, Request};

struct Bench;

pub(super) fn module() -> Arc<dyn Module> {
    native::module("bench", 1, |_| Bench)
}

#[async_trait]
impl Logic for Bench {
    async fn call(
        &mut self,
        context: &InstanceContext,
        request: &Request,
    ) -> Result<Reply, GuestError> {
        let key = request
            .key
            .clone()
            .unwrap_or_else(|| Bytes::from_static(b"counter"));
        match request.method.as_str() {
            "empty" => Ok(Reply::default()),
            "increment" => {
                let count = count(&context.db.view(), &key).await? + 1;
                let seq = context
                    .db
                    .put(key, Bytes::copy_from_slice(&count.to_le_bytes()))
                    .await?;
                context.notifier.when_durable(&context.db, seq, seq)?;
                Ok(Reply::new(count.to_string()))
            }
            "put" => {
                context
                    .db
                    .put(key, Bytes::copy_from_slice(&1_u64.to_le_bytes()))
                    .await?;
                Ok(Reply::default())
            }
            "get" => Ok(Reply::new(
                count(&context.db.view(), &key).await?.to_string(),
            )),
            method => Err(GuestError::new("unknown-method", method)),
        }
    }

    async fn query(&mut self, request: &Request, view: &ReadView) -> Result<Reply, GuestError> {
        let key = request
            .key
            .clone()
            .unwrap_or_else(|| Bytes::from_static(b"counter"));
        Ok(Reply::new(count(view, &key).await?.to_string()))
    }
}

async fn count(view: &ReadView, key: &[u8]) -> Result<u64, GuestError> {
    Ok(view.get(key).await?.map_or(0, |value| {
        u64::from_le_bytes(value[..].try_into().unwrap_or_default())
    }))
}

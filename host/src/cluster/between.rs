//! Calls between shards take the way that calls from outside take.

use std::sync::{Arc, Weak};

use async_trait::async_trait;

use super::node::Node;
use crate::call::{CallError, CallErrorKind, CallReply, Durability, Read};
use crate::guest::Request;
use crate::guest::calls::{Kind, Reach, Route};
use crate::transport::How;

impl Node {
    /// How the shards of this node reach others.
    pub(super) fn reach(self: &Arc<Self>) -> Reach {
        Reach {
            route: Arc::new(Between(Arc::downgrade(self))),
            waits: self.waits.clone(),
            metrics: self.between.clone(),
            outside: self.outside.clone(),
            payload: usize::try_from(self.config.http.max_body).unwrap_or(usize::MAX),
        }
    }
}

/// The way to all shards. The node holds its shards, and they must not hold it.
struct Between(Weak<Node>);

#[async_trait]
impl Route for Between {
    async fn route(
        &self,
        shard: u32,
        request: Request,
        kind: Kind,
    ) -> Result<CallReply, CallError> {
        let Some(node) = self.0.upgrade() else {
            let message = "the node has stopped; nothing was sent";
            return Err(CallError::host(CallErrorKind::Unassigned, message));
        };
        let how = match kind {
            Kind::Call => How::Call(Some(Durability::Durable)),
            Kind::Query => How::Query(Read::Durable),
        };
        let method = request.method.clone();
        node.run(shard, &method, request, how.into()).await
    }
}

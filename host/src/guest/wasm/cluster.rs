//! The imported interface `cluster`: calls to other shards.
//!
//! The guest's stack waits, and its thread does not: the other shards of that thread go on, the one that is called among them.

use super::bindings::cluster::Host;
use super::bindings::types::Error;
use super::state::{self, State};
use crate::guest::GuestError;
use crate::guest::calls::{Ask, Kind};

impl Host for State {
    async fn call(
        &mut self,
        shard: u32,
        method: String,
        key: Option<Vec<u8>>,
        payload: Vec<u8>,
    ) -> Result<Vec<u8>, Error> {
        self.ask(Kind::Call, ask(shard, method, key, payload)).await
    }

    async fn call_key(
        &mut self,
        key: Vec<u8>,
        method: String,
        payload: Vec<u8>,
    ) -> Result<Vec<u8>, Error> {
        let shard = quarry_core::hash::shard_for(&key, self.place.shards);
        self.ask(Kind::Call, ask(shard, method, Some(key), payload))
            .await
    }

    async fn query(
        &mut self,
        shard: u32,
        method: String,
        key: Option<Vec<u8>>,
        payload: Vec<u8>,
    ) -> Result<Vec<u8>, Error> {
        self.ask(Kind::Query, ask(shard, method, key, payload))
            .await
    }

    async fn query_key(
        &mut self,
        key: Vec<u8>,
        method: String,
        payload: Vec<u8>,
    ) -> Result<Vec<u8>, Error> {
        let shard = quarry_core::hash::shard_for(&key, self.place.shards);
        self.ask(Kind::Query, ask(shard, method, Some(key), payload))
            .await
    }
}

impl State {
    async fn ask(&mut self, kind: Kind, ask: Ask) -> Result<Vec<u8>, Error> {
        let (Some(within), Some(calls)) = (self.call.within(), self.data.calls.clone()) else {
            return Err(GuestError::new(
                "invalid-argument",
                "other shards can be asked in the middle of a call, a timer or a query; this is none of them",
            )
            .into());
        };
        let outcome = match (kind, self.data.is_read_only()) {
            (Kind::Call, true) => return Err(state::read_only().into()),
            (Kind::Call, false) => calls.call(within, ask).await,
            (Kind::Query, false) => calls.query(within, ask).await,
            (Kind::Query, true) => calls.query_from(&self.data.reads, within, ask).await,
        };
        match outcome {
            Ok(reply) => Ok(reply.payload.into()),
            Err(error) => Err(GuestError::from(error).into()),
        }
    }
}

fn ask(shard: u32, method: String, key: Option<Vec<u8>>, payload: Vec<u8>) -> Ask {
    Ask {
        shard,
        method,
        key: key.map(Into::into),
        payload: payload.into(),
    }
}

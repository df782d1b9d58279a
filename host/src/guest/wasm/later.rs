//! The imported interfaces `cluster` and `metrics`, which this node does not have yet.

use super::bindings::types::Error;
use super::bindings::{cluster, metrics};
use super::state::State;
use crate::guest::GuestError;

type Bytes = Vec<u8>;
type Labels = Vec<(String, String)>;

fn later<T>() -> Result<T, Error> {
    Err(GuestError::new("unavailable", "this node has no calls between shards").into())
}

impl cluster::Host for State {
    fn call(&mut self, _: u32, _: String, _: Option<Bytes>, _: Bytes) -> Result<Bytes, Error> {
        later()
    }

    fn call_key(&mut self, _: Bytes, _: String, _: Bytes) -> Result<Bytes, Error> {
        later()
    }

    fn query(&mut self, _: u32, _: String, _: Option<Bytes>, _: Bytes) -> Result<Bytes, Error> {
        later()
    }

    fn query_key(&mut self, _: Bytes, _: String, _: Bytes) -> Result<Bytes, Error> {
        later()
    }
}

impl metrics::Host for State {
    fn describe(&mut self, _: String, _: String) {}
    fn add(&mut self, _: String, _: Labels, _: u64) {}
    fn set(&mut self, _: String, _: Labels, _: f64) {}
    fn observe(&mut self, _: String, _: Labels, _: f64) {}
}

//! The imported interface `timers`, whose functions fail.

use super::bindings::timers::Host;
use super::bindings::types::Error;
use super::state::State;
use crate::guest::GuestError;

impl Host for State {
    fn set(&mut self, _: String, _: u64, _: Vec<u8>) -> Result<(), Error> {
        Err(none())
    }

    fn set_durable(&mut self, _: String, _: u64, _: Vec<u8>) -> Result<u64, Error> {
        Err(none())
    }

    fn cancel(&mut self, _: String) -> Result<bool, Error> {
        Err(none())
    }

    fn due_ms(&mut self, _: String) -> Result<Option<u64>, Error> {
        Err(none())
    }
}

fn none() -> Error {
    GuestError::new("invalid-argument", "this node has no timers").into()
}

//! The imported interface `timers`.

use std::time::Duration;

use super::bindings::timers::Host;
use super::bindings::types::Error;
use super::state::State;

impl Host for State {
    async fn set(&mut self, name: String, after_ms: u64, payload: Vec<u8>) -> Result<(), Error> {
        let after = Duration::from_millis(after_ms);
        let timers = self.data.timers()?;
        Ok(timers.set(&name, after, payload.into()).await?)
    }

    async fn set_durable(
        &mut self,
        name: String,
        after_ms: u64,
        payload: Vec<u8>,
    ) -> Result<u64, Error> {
        let after = Duration::from_millis(after_ms);
        let timers = self.data.timers()?;
        Ok(timers.set_durable(&name, after, payload.into()).await?)
    }

    async fn cancel(&mut self, name: String) -> Result<bool, Error> {
        Ok(self.data.timers()?.cancel(&name).await?)
    }

    async fn due_ms(&mut self, name: String) -> Result<Option<u64>, Error> {
        Ok(self.data.due_ms(&name).await?)
    }
}

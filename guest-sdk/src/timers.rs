//! Timers: something to do later, between calls.
//!
//! [`Guest::fire`](crate::Guest::fire) gets a timer when it is due, and never early. Each needs `timer_events` in
//! [`export!`](crate::export), without which all of this fails with `invalid-argument`. A name has one timer, volatile or durable: to set it
//! again replaces it. A query may only ask ([`due`]).
//!
//! Up to 10,000 timers a shard (`limits.timers`), then `limit`, as for volatile ones of more than 16 MiB of names and payloads together. That
//! is retryable: there is room again once a timer has fired or was cancelled. `invalid-argument`, which is not, is the answer to a name that
//! has not 1 to 256 bytes, to a payload over 64 KiB, and to a time over ten years.
//!
//! ```
//! use std::time::Duration;
//! use quarry_guest::prelude::*;
//! use quarry_guest::testing::Host;
//! use quarry_guest::timers::{self, Timer};
//!
//! /// Carts that nobody comes back to are emptied after an hour.
//! #[derive(Default)]
//! struct Carts;
//!
//! impl Guest for Carts {
//!     fn call(&mut self, call: Call) -> Result<Reply> {
//!         let cart = call.text()?;
//!         db::put(cart, "tea")?;
//!         timers::set_durable(cart, Duration::from_secs(3_600), b"")?;
//!         Ok(Reply::empty())
//!     }
//!
//!     fn fire(&mut self, timer: Timer) -> Result<()> {
//!         db::remove(timer.name())?;
//!         Ok(())
//!     }
//! }
//!
//! quarry_guest::export!(Carts, timer_events);
//! # fn main() {
//! let mut host = Host::new::<Carts>();
//! host.call("add").payload("ada").run().unwrap();
//! host.make_durable();
//! host.crash().unwrap();
//! host.advance(Duration::from_secs(3_600));
//! assert_eq!(host.run(|| db::get::<String>("ada")).unwrap(), None);
//! # }
//! ```

use std::time::{Duration, SystemTime};

use crate::db::Seq;
use crate::error::Result;
use crate::sys;

/// A timer that is due, for [`Guest::fire`](crate::Guest::fire).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timer {
    name: String,
    payload: Vec<u8>,
    due_ms: u64,
}

impl Timer {
    pub(crate) fn new(name: String, payload: Vec<u8>, due_ms: u64) -> Self {
        Timer {
            name,
            payload,
            due_ms,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it was set with.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// What it was set with.
    pub fn into_payload(self) -> Vec<u8> {
        self.payload
    }

    /// When it was due. It fires later where the shard was busy or not open, and where it failed before.
    pub fn due(&self) -> SystemTime {
        at(self.due_ms)
    }
}

/// Sets a timer in memory, which fires once, `after` from now (whole milliseconds, rounded up).
///
/// It is kept over a swap to a revision that takes timers; it is forgotten when the shard closes or moves, and after a panic. Of an instance
/// that does not run the shard yet (in [`start`](crate::Guest::start)), it counts once that does.
pub fn set(name: &str, after: Duration, payload: impl AsRef<[u8]>) -> Result<()> {
    sys::set_timer(name, milliseconds(after), payload.as_ref())
}

/// Sets a timer in the shard's database: durable as any other write, so that after a crash or a move it fires where the shard is then, at
/// once if it is overdue. The time counts on the wall clock of the node that has the shard.
///
/// It fires at least once: it is removed in a write that follows those of a [`fire`](crate::Guest::fire) which returned well, so a crash
/// between the two fires it again. After an error it fires again in 1 s, doubled each time up to 60 s, and after a panic in 20 s, doubled up
/// to 10 min, until it goes well, is set anew or is cancelled. Another revision, a restart and another opening of the shard try it at once;
/// after the last of these the pauses go on as long as they were.
pub fn set_durable(name: &str, after: Duration, payload: impl AsRef<[u8]>) -> Result<Seq> {
    sys::set_durable_timer(name, milliseconds(after), payload.as_ref())
}

/// Removes a timer: false where there is none of that name. In [`fire`](crate::Guest::fire) the timer that fires counts as gone already if it
/// is volatile, and as there if it is durable.
pub fn cancel(name: &str) -> Result<bool> {
    sys::cancel_timer(name)
}

/// When a timer is due; none where there is none of that name. In the past for one that is about to fire, or that failed and is tried again.
pub fn due(name: &str) -> Result<Option<SystemTime>> {
    Ok(sys::timer_due_ms(name)?.map(at))
}

fn at(due_ms: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(due_ms)
}

/// Never less than the time itself.
fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

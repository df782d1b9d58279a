//! Calls to other shards of this cluster, wherever they are.
//!
//! ```
//! use quarry_guest::prelude::*;
//! use quarry_guest::{cluster, testing::Host};
//!
//! /// Moves money from an account of this shard to one of any shard.
//! #[derive(Default)]
//! struct Bank;
//!
//! impl Guest for Bank {
//!     fn call(&mut self, call: Call) -> Result<Reply> {
//!         match call.method() {
//!             "send" => {
//!                 let from = call.required_key()?;
//!                 let balance = db::get::<u64>(from)?.unwrap_or(100);
//!                 db::put(from, balance - 10)?;
//!                 // Leaves once that write is durable. It may run even where this fails with `timeout` or `outcome-unknown`.
//!                 let credited = cluster::call(call.payload(), "credit").json(&10)?.send()?;
//!                 Ok(Reply::text(credited.text()?))
//!             }
//!             other => Err(Error::unknown_method(other)),
//!         }
//!     }
//! }
//!
//! quarry_guest::export!(Bank);
//! # fn main() {
//! let mut host = Host::builder().shard(0, 16).start::<Bank>().unwrap();
//! // In a test, the other shards are a closure.
//! host.on_cluster_call(|asked| {
//!     assert_eq!((asked.method(), asked.key()), ("credit", Some(&b"bob"[..])));
//!     Ok(b"110".to_vec())
//! });
//! let reply = host.call("send").key("ann").payload("bob").run().unwrap();
//! assert_eq!(reply.text(), "110");
//! # }
//! ```
//!
//! The caller waits, and so do the other calls of its shard; it has the time that the call in progress has left
//! ([`Call::time_left`](crate::Call::time_left)). A call that would come back to a shard which waits for it, however far, fails at once
//! with `call-cycle`, since it could never be answered; it is retryable where two calls met that wait for each other. More than 16
//! shards that wait for each other fail with `call-depth`.
//!
//! The errors of the way there are `unassigned`, `not-owner`, `unreachable` and `overloaded` (it did not run), `timeout` and
//! `outcome-unknown` (it may have run), `guest-trap` and other kinds of a failed guest. An error of the called guest comes as it is.
//!
//! In queries there are [`query`] and [`query_shard`] alone; a call fails with `read-only`. In `start`, `stop`, `resume`, `migrate` and their
//! like all of it fails with `invalid-argument`.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::codec::Key;
use crate::error::{Error, Result};
use crate::sys;

/// Prepares a call to the shard that `key` belongs to; the guest there gets the key.
pub fn call(key: impl Key, method: impl Into<String>) -> Ask {
    Ask::new(false, To::Key(key.to_key()), method)
}

/// Prepares a call to a shard by its number.
pub fn call_shard(shard: u32, method: impl Into<String>) -> Ask {
    Ask::new(false, To::Shard(shard, None), method)
}

/// Prepares a query of the shard that `key` belongs to. It sees what is durable there.
pub fn query(key: impl Key, method: impl Into<String>) -> Ask {
    Ask::new(true, To::Key(key.to_key()), method)
}

/// Prepares a query of a shard by its number, which may be this shard itself: queries run beside calls.
pub fn query_shard(shard: u32, method: impl Into<String>) -> Ask {
    Ask::new(true, To::Shard(shard, None), method)
}

/// A call or a query of another shard that is prepared.
#[derive(Clone, Debug)]
#[must_use = "nothing is sent before `send`"]
pub struct Ask {
    query: bool,
    to: To,
    method: String,
    payload: Vec<u8>,
}

#[derive(Clone, Debug)]
enum To {
    Key(Vec<u8>),
    Shard(u32, Option<Vec<u8>>),
}

impl Ask {
    fn new(query: bool, to: To, method: impl Into<String>) -> Self {
        Ask {
            query,
            to,
            method: method.into(),
            payload: Vec::new(),
        }
    }

    /// The key that the guest there gets, on the shard that was named. Where a key was named it takes its place, and its shard's.
    pub fn key(mut self, key: impl Key) -> Self {
        let key = key.to_key();
        self.to = match self.to {
            To::Key(_) => To::Key(key),
            To::Shard(shard, _) => To::Shard(shard, Some(key)),
        };
        self
    }

    /// The payload: bytes or text. Empty unless set.
    pub fn payload(mut self, payload: impl Into<Vec<u8>>) -> Self {
        self.payload = payload.into();
        self
    }

    /// A payload of JSON. Fails with `invalid-json` where the value has no JSON form.
    pub fn json<T: Serialize + ?Sized>(self, value: &T) -> Result<Self> {
        Ok(self.payload(serde_json::to_vec(value)?))
    }

    /// Sends it, and waits for the answer.
    pub fn send(self) -> Result<Answer> {
        let Ask {
            query,
            to,
            method,
            payload,
        } = self;
        let payload = match (query, to) {
            (false, To::Key(key)) => sys::call_key(&key, &method, &payload),
            (false, To::Shard(shard, key)) => {
                sys::call_shard(shard, &method, key.as_deref(), &payload)
            }
            (true, To::Key(key)) => sys::query_key(&key, &method, &payload),
            (true, To::Shard(shard, key)) => {
                sys::query_shard(shard, &method, key.as_deref(), &payload)
            }
        }?;
        Ok(Answer { payload })
    }
}

/// What another shard answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    payload: Vec<u8>,
}

impl Answer {
    /// The bytes.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The bytes, without a copy.
    pub fn into_payload(self) -> Vec<u8> {
        self.payload
    }

    /// The bytes as text. Fails with `invalid-answer`.
    pub fn text(&self) -> Result<&str> {
        std::str::from_utf8(&self.payload).map_err(not_understood)
    }

    /// The bytes as JSON. Fails with `invalid-answer`.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.payload).map_err(not_understood)
    }
}

fn not_understood(why: impl std::fmt::Display) -> Error {
    Error::new(
        "invalid-answer",
        format!("the answer of another shard was not understood: {why}"),
    )
}

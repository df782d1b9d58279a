//! The other shards of a test: a closure.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use super::world::World;
use crate::error::{Error, Result};

/// What a guest asks of another shard, as [`Host::on_cluster_call`](super::Host::on_cluster_call) gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub(crate) query: bool,
    pub(crate) shard: u32,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) method: String,
    pub(crate) payload: Vec<u8>,
}

impl Asked {
    /// Whether it is a query.
    pub fn is_query(&self) -> bool {
        self.query
    }

    /// The shard that it goes to.
    pub fn shard(&self) -> u32 {
        self.shard
    }

    /// The key, where there is one.
    pub fn key(&self) -> Option<&[u8]> {
        self.key.as_deref()
    }

    /// The method.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// The payload.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }
}

type Answering = dyn FnMut(&Asked) -> Result<Vec<u8>>;

/// What answers for the other shards.
#[derive(Clone, Default)]
pub(crate) struct Others(Option<Rc<RefCell<Answering>>>);

impl Others {
    pub(crate) fn new(answer: impl FnMut(&Asked) -> Result<Vec<u8>> + 'static) -> Self {
        Others(Some(Rc::new(RefCell::new(answer))))
    }

    pub(crate) fn answer(&self, asked: &Asked) -> Result<Vec<u8>> {
        let Some(answer) = &self.0 else {
            let why = format!(
                "nobody answers for shard {} in this test: say what it does with `Host::on_cluster_call`",
                asked.shard
            );
            return Err(Error::new("unassigned", why).retryable());
        };
        let mut answer = answer.borrow_mut();
        answer(asked)
    }
}

impl fmt::Debug for Others {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Others").field(&self.0.is_some()).finish()
    }
}

impl World {
    /// Refuses what the host would, before anything is asked.
    pub(crate) fn check_asked(&self, asked: &Asked) -> Result<()> {
        let (own, count) = (self.settings.shard, self.settings.shard_count);
        if !self.is_in_call() {
            let why = "other shards can be asked in the middle of a call, a timer or a query; this is none of them";
            return Err(Error::new("invalid-argument", why));
        }
        if !asked.query {
            self.check_writable()?;
        }
        if asked.shard >= count {
            let why = format!(
                "there is no shard {}: the cluster has {count}, from 0 to {}",
                asked.shard,
                count - 1
            );
            return Err(Error::new("invalid-argument", why));
        }
        if asked.method.is_empty() || asked.method.len() > 128 {
            let why = format!(
                "a method's name has 1 to 128 bytes, not {}",
                asked.method.len()
            );
            return Err(Error::new("invalid-argument", why));
        }
        if !asked.query && asked.shard == own {
            let why = format!(
                "the call would come back to shard {own}, which waits for it: {own} -> {own}"
            );
            return Err(Error::new("call-cycle", why));
        }
        Ok(())
    }
}

//! The bodies in the bucket: a node's session (`_quarry/nodes/<name>.json`) and a shard's lease (`_quarry/leases/<nnn>.json`).
//!
//! They are small versioned JSON and are read as hostile input: at most [`MAX_BYTES`], every text bounded and of plain characters.
//! Fields that this version does not know are skipped, so that a later one may add some.

pub(crate) mod fields;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use fields::{Fields, clean, cut, plain};

/// The format of both bodies that this build writes and reads.
pub const VERSION: u64 = 1;
/// The protocol between nodes that this build speaks; nodes of another share a bucket, but neither shards nor calls.
pub const PROTOCOL: u32 = 1;
/// The longest body that is read.
pub const MAX_BYTES: usize = 8 * 1024;
/// The longest name of a node.
pub const MAX_NAME: usize = 64;
/// The longest name of a cluster.
pub const MAX_CLUSTER: usize = 128;
/// The longest address that a node advertises.
pub const MAX_ADDRESS: usize = 256;
/// The longest zone, and the longest name of a software.
pub const MAX_WORD: usize = 64;
/// The longest reason in a lease.
pub const MAX_WHY: usize = 256;
/// What a generation stays below.
pub const MAX_GENERATION: u64 = 1 << 53;
/// The most shards that a cluster can have.
pub const MAX_SHARDS: u32 = 65_536;

/// A node's body has at least so many bytes, and at most twice as many less one.
const PADDED: u64 = 1024;

/// Why a body, or a value that goes into one, was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The body is too long to be read.
    #[error("{object} has {size} bytes; a body has at most {most}")]
    TooLong {
        /// The object's name.
        object: String,
        /// Its size.
        size: u64,
        /// The most that a body of its kind has.
        most: usize,
    },
    /// The body is no JSON of the right shape.
    #[error("{object} is not a record of this kind: {why}")]
    Malformed {
        /// The object's name.
        object: String,
        /// What the parser said.
        why: String,
    },
    /// The body has a version that this build does not read.
    #[error("{object} has version {found}; this build reads version {VERSION}")]
    Version {
        /// The object's name.
        object: String,
        /// Its version.
        found: String,
    },
    /// A field has a value it may not have.
    #[error("{object}: `{field}` is {value:?}; {valid}")]
    Field {
        /// The object's name, or what was to become one.
        object: String,
        /// The field.
        field: &'static str,
        /// Its value, cut short.
        value: String,
        /// What is valid.
        valid: String,
    },
}

/// A node's name: 1 to 64 of letters, digits, `.`, `_` and `-`, not beginning with a dot. So it is a file name anywhere.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct NodeName(Box<str>);

impl NodeName {
    /// Checks a name.
    ///
    /// # Errors
    /// [`RecordError::Field`] with the name and what is valid.
    pub fn new(name: &str) -> Result<Self, RecordError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let valid = (1..=MAX_NAME).contains(&name.len())
            && !name.starts_with('.')
            && name.bytes().all(plain);
        if valid {
            return Ok(Self(name.into()));
        }
        Err(RecordError::Field {
            object: "a node's name".into(),
            field: "name",
            value: cut(name),
            valid: format!(
                "valid are 1 to {MAX_NAME} letters, digits, `.`, `_` and `-`, not beginning with a dot"
            ),
        })
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for NodeName {
    type Err = RecordError;

    fn from_str(name: &str) -> Result<Self, RecordError> {
        Self::new(name)
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u128);

        impl $name {
            /// From its 128 bits, which are to be random.
            #[must_use]
            pub const fn new(bits: u128) -> Self {
                Self(bits)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }

        impl FromStr for $name {
            type Err = RecordError;

            fn from_str(text: &str) -> Result<Self, RecordError> {
                let lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
                if text.len() == 32 && text.bytes().all(lower) {
                    if let Ok(bits) = u128::from_str_radix(text, 16) {
                        return Ok(Self(bits));
                    }
                }
                Err(RecordError::Field {
                    object: $what.into(),
                    field: $what,
                    value: cut(text),
                    valid: "valid are 32 lower-case hex digits".into(),
                })
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    };
}

id! {
    /// One run of a node: 128 random bits, 32 hex digits. A restarted node has another one, and inherits nothing.
    SessionId, "session"
}
id! {
    /// Makes each body unlike any other, and tells whose write it was: 128 random bits, 32 hex digits.
    Nonce, "nonce"
}

/// What a node's session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// It runs, and takes shards.
    Live,
    /// It runs, and gives its shards away.
    Draining,
    /// It ended by itself and holds nothing.
    Left,
    /// A peer ended it because it had expired. Whatever it held is free.
    Dead,
}

impl NodeState {
    /// Whether the session is over for good.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Left | Self::Dead)
    }
}

/// What a node says of itself; all that changes during a session except counter and nonce.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeInfo {
    /// The protocol between nodes, [`PROTOCOL`].
    pub protocol: u32,
    /// The cluster's name, at most [`MAX_CLUSTER`] bytes.
    pub cluster: String,
    /// The node's name.
    pub name: NodeName,
    /// This run of it.
    pub session: SessionId,
    /// What the session is.
    pub state: NodeState,
    /// How many shards it holds.
    pub shards: u32,
    /// The TTL it counts with, in milliseconds.
    pub ttl_ms: u64,
    /// Where peers reach its internal listener, at most [`MAX_ADDRESS`] bytes; empty when it has none.
    pub advertise: String,
    /// Where it stands, at most [`MAX_WORD`] bytes; empty when that is not known.
    pub zone: String,
    /// Whether it takes no further shards, by an operator's wish.
    pub cordoned: bool,
    /// Whether it takes no further shards because it can write to the store but not read from it. A body without this field says no.
    pub blind: bool,
    /// The name and version of the software, at most [`MAX_WORD`] bytes.
    pub software: String,
}

/// The body of `_quarry/nodes/<name>.json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRecord {
    /// What the node says of itself.
    pub info: NodeInfo,
    /// Grows with each rewrite.
    pub counter: u64,
    /// Fresh in each rewrite.
    pub nonce: Nonce,
    /// Grows when anything but counter and nonce changes, and when the node wrote a lease. The body's size follows from it, so that
    /// a listing tells peers whether there is news.
    pub changes: u64,
}

impl NodeRecord {
    /// The size of a body with so many changes.
    #[must_use]
    pub const fn padded_size(changes: u64) -> u64 {
        PADDED + changes % PADDED
    }

    /// The body: JSON, padded with spaces to [`NodeRecord::padded_size`].
    ///
    /// # Errors
    /// [`RecordError::Field`] when a text does not keep its bounds.
    pub fn encode(&self) -> Result<Vec<u8>, RecordError> {
        let object = format!("nodes/{}.json", self.info.name);
        self.info.check(&object)?;
        let info = &self.info;
        let json = serde_json::json!({
            "version": VERSION, "protocol": info.protocol, "cluster": info.cluster, "name": info.name,
            "session": info.session, "state": info.state, "counter": self.counter, "nonce": self.nonce,
            "changes": self.changes, "shards": info.shards, "ttl_ms": info.ttl_ms, "advertise": info.advertise,
            "zone": info.zone, "cordoned": info.cordoned, "blind": info.blind, "software": info.software,
        });
        let mut body = json.to_string().into_bytes();
        let size = usize::try_from(Self::padded_size(self.changes)).unwrap_or(usize::MAX);
        debug_assert!(body.len() <= size, "bounded texts fit the smallest size");
        body.resize(size.max(body.len()), b' ');
        Ok(body)
    }

    /// Reads the body that lies under `name`.
    ///
    /// # Errors
    /// A [`RecordError`] that names the object, the field and the value.
    pub fn decode(name: &NodeName, body: &[u8]) -> Result<Self, RecordError> {
        let object = format!("nodes/{name}.json");
        let fields = Fields::parse(object.clone(), body)?;
        let found = fields.text("name", MAX_NAME)?;
        if found != name.as_str() {
            return Err(fields.wrong("name", &found, format!("the object's name says {name:?}")));
        }
        let record = Self {
            info: NodeInfo {
                protocol: fields.small("protocol")?,
                cluster: fields.text("cluster", MAX_CLUSTER)?,
                name: name.clone(),
                session: fields.id("session")?,
                state: fields.word(
                    "state",
                    &[
                        ("live", NodeState::Live),
                        ("draining", NodeState::Draining),
                        ("left", NodeState::Left),
                        ("dead", NodeState::Dead),
                    ],
                )?,
                shards: fields.small("shards")?,
                ttl_ms: fields.number("ttl_ms")?,
                advertise: fields.text("advertise", MAX_ADDRESS)?,
                zone: fields.text("zone", MAX_WORD)?,
                cordoned: fields.flag("cordoned")?,
                blind: match fields.optional("blind") {
                    None => false,
                    Some(_) => fields.flag("blind")?,
                },
                software: fields.text("software", MAX_WORD)?,
            },
            counter: fields.number("counter")?,
            nonce: fields.id("nonce")?,
            changes: fields.number("changes")?,
        };
        record.info.check(&object)?;
        Ok(record)
    }
}

impl NodeInfo {
    /// Checks what has bounds.
    ///
    /// # Errors
    /// [`RecordError::Field`] for the first text that is too long or not plain.
    pub fn check(&self, object: &str) -> Result<(), RecordError> {
        for (field, value, most) in [
            ("cluster", &self.cluster, MAX_CLUSTER),
            ("advertise", &self.advertise, MAX_ADDRESS),
            ("zone", &self.zone, MAX_WORD),
            ("software", &self.software, MAX_WORD),
        ] {
            plain(object, field, value, most)?;
        }
        Ok(())
    }
}

/// Whether a lease is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LeaseState {
    /// Nobody may open the shard before it has claimed the lease.
    Free,
    /// Its owner may, while its session lives.
    Owned,
}

/// One run of one node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Owner {
    /// The node.
    pub name: NodeName,
    /// Its session.
    pub session: SessionId,
}

/// The body of `_quarry/leases/<nnn>.json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRecord {
    /// The shard.
    pub shard: u32,
    /// Who holds it; nobody when it is free.
    pub owner: Option<Owner>,
    /// Grows with each claim.
    pub generation: u64,
    /// The database's writer epoch: in an owned lease the one it was claimed against, in a free one the last owner's own. Nothing when
    /// that is not known, so that a claimant has to ask the database.
    pub writer_epoch: Option<u64>,
    /// Grows with each rewrite.
    pub counter: u64,
    /// Fresh in each rewrite.
    pub nonce: Nonce,
    /// In a free lease: the node that is to take it.
    pub successor: Option<NodeName>,
    /// Whether an operator put the shard where it is; such a shard moves last.
    pub pinned: bool,
    /// When it got its owner or lost it, in milliseconds since 1970 by that node's wall clock. For people; decides nothing.
    pub since_ms: u64,
    /// Why, for people; at most [`MAX_WHY`] bytes.
    pub why: String,
}

impl LeaseRecord {
    /// A lease that nobody has ever held.
    #[must_use]
    pub const fn vacant(shard: u32) -> Self {
        Self {
            shard,
            owner: None,
            generation: 0,
            writer_epoch: None,
            counter: 0,
            nonce: Nonce::new(0),
            successor: None,
            pinned: false,
            since_ms: 0,
            why: String::new(),
        }
    }

    /// Whether the lease is held.
    #[must_use]
    pub const fn state(&self) -> LeaseState {
        if self.owner.is_some() {
            LeaseState::Owned
        } else {
            LeaseState::Free
        }
    }

    /// The body. A reason that is too long or not plain is cut and cleaned: it is only for people.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        serde_json::json!({
            "version": VERSION, "shard": self.shard, "state": self.state(), "owner": self.owner,
            "generation": self.generation, "writer_epoch": self.writer_epoch, "counter": self.counter,
            "nonce": self.nonce, "successor": self.successor, "pinned": self.pinned, "since_ms": self.since_ms,
            "why": clean(&self.why),
        })
        .to_string()
        .into_bytes()
    }

    /// Reads the body that lies under the name of `shard`.
    ///
    /// # Errors
    /// A [`RecordError`] that names the object, the field and the value.
    pub fn decode(shard: u32, body: &[u8]) -> Result<Self, RecordError> {
        let fields = Fields::parse(format!("leases/{shard:03}.json"), body)?;
        let found: u32 = fields.small("shard")?;
        if found != shard {
            return Err(fields.wrong("shard", &found, format!("the object's name says {shard}")));
        }
        let state = fields.word(
            "state",
            &[("free", LeaseState::Free), ("owned", LeaseState::Owned)],
        )?;
        let owner = match state {
            LeaseState::Free => None,
            LeaseState::Owned => Some(fields.owner()?),
        };
        let successor = match fields.optional("successor") {
            None => None,
            Some(_) => {
                let name = fields.text("successor", MAX_NAME)?;
                Some(NodeName::new(&name).map_err(|_| {
                    fields.wrong("successor", &name, "valid is the name of a node".into())
                })?)
            }
        };
        let writer_epoch = match fields.optional("writer_epoch") {
            None => None,
            Some(_) => Some(fields.number("writer_epoch")?),
        };
        Ok(Self {
            shard,
            owner,
            generation: fields.generation()?,
            writer_epoch,
            counter: fields.number("counter")?,
            nonce: fields.id("nonce")?,
            successor,
            pinned: fields.flag("pinned")?,
            since_ms: fields.number("since_ms")?,
            why: fields.text("why", MAX_WHY)?,
        })
    }
}

#[cfg(test)]
mod tests;

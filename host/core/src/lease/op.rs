//! The operations on leases that the loop is built on, and how they can end. Any store that offers them can carry a cluster.

use super::object::Tag;
use super::record::{LeaseRecord, NodeInfo, NodeName, NodeRecord, RecordError, SessionId};

/// Names an operation in flight. Never used twice by one loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u64);

/// An operation. It carries all that it needs to know of what was read before, so that a store may be without memory.
///
/// The loop keeps these rules: at most one operation on a shard at a time, at most one of `Setup`, `Heartbeat` and `Leave`, and at most
/// one of `Nodes` and `Owners`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseOp {
    /// Begin a session: create its record, or replace that of an earlier session of this name which is over or whose record is
    /// unreadable. A live one of another session is replaced only when its record still has the tag `over`, and with one that is
    /// missing instead it is lost: its session may live, and write it again.
    Setup {
        /// The session to begin.
        me: NodeInfo,
        /// The tag of a session that did not change for a TTL; [`Tag::NOTHING`] when there was one that may have.
        over: Option<Tag>,
    },
    /// Rewrite the session's record, so that it lives on; in the `session` layout this renews all leases.
    Heartbeat {
        /// What the node says of itself.
        me: NodeInfo,
        /// Whether peers should look at the leases: this node wrote one since the last heartbeat.
        news: bool,
        /// Write the record anew if it is missing or unreadable. Not once the session's deadline has passed: a peer may have ended it,
        /// and the tombstone been lost. Then what is missing or unreadable is lost.
        repair: bool,
    },
    /// Read all nodes.
    Nodes {
        /// Read every body, though its size says that nothing changed.
        all: bool,
    },
    /// Read the leases that changed since this operation last told of them.
    Owners {
        /// Look at all of them, though no peer has news.
        all: bool,
    },
    /// Read one lease.
    Read {
        /// The shard.
        shard: u32,
    },
    /// Take a lease: write it with this session as its owner, on the condition that it is still what was seen.
    Claim {
        /// What was seen of it.
        seen: LeaseSeen,
        /// A generation that the new one has to be above, besides the lease's own: the highest that this node ever saw.
        above: u64,
        /// Take it only if the database's writer epoch is no higher: 0 for one that was never opened. For a lease that vanished, whose
        /// owner may live.
        at_most: Option<u64>,
        /// Ask the database for its writer epoch, though the lease tells one.
        ask_epoch: bool,
        /// Why, for people.
        why: String,
    },
    /// Rewrite an own lease, so that it lives on in layouts that renew each lease ([`Renewal::Lease`]); in any layout also to restore
    /// one that vanished: then the tag is that of what stands in its place.
    Renew {
        /// The lease as it was last written.
        lease: LeaseSeen,
    },
    /// Free an own lease. Its shard has closed.
    Release {
        /// The lease as it was last written.
        lease: LeaseSeen,
        /// The writer epoch of the database when it closed cleanly.
        writer_epoch: Option<u64>,
        /// Who is to take it.
        successor: Option<NodeName>,
        /// Whether an operator put it there.
        pinned: bool,
        /// Why, for people.
        why: String,
    },
    /// End a session that did not change for a TTL, on the condition that its record is still what was seen.
    Tombstone {
        /// The node.
        node: NodeName,
        /// The session to end.
        session: SessionId,
        /// The tag that stayed; none when the record is missing.
        tag: Option<Tag>,
    },
    /// End the own session: nothing is held any more.
    Leave {
        /// What the node says of itself.
        me: NodeInfo,
    },
}

impl LeaseOp {
    /// A short name, for logs and metrics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Setup { .. } => "setup",
            Self::Heartbeat { .. } => "heartbeat",
            Self::Nodes { .. } => "nodes",
            Self::Owners { .. } => "owners",
            Self::Read { .. } => "read",
            Self::Claim { .. } => "claim",
            Self::Renew { .. } => "renew",
            Self::Release { .. } => "release",
            Self::Tombstone { .. } => "tombstone",
            Self::Leave { .. } => "leave",
        }
    }

    /// The outcome of this operation when it was given up, or could not be carried out at all.
    #[must_use]
    pub fn unknown(&self, why: String) -> OpResult {
        match self {
            Self::Setup { .. } => OpResult::Setup(Outcome::Unknown(why)),
            Self::Heartbeat { .. } => OpResult::Heartbeat(Outcome::Unknown(why)),
            Self::Nodes { .. } => OpResult::Nodes(Err(why)),
            Self::Owners { .. } => OpResult::Owners(Owners {
                changed: Vec::new(),
                failed: Some(why),
            }),
            Self::Read { .. } => OpResult::Read(Err(why)),
            Self::Claim { .. } => OpResult::Claim(Outcome::Unknown(why)),
            Self::Renew { .. } => OpResult::Renew(Outcome::Unknown(why)),
            Self::Release { .. } => OpResult::Release(Outcome::Unknown(why)),
            Self::Tombstone { .. } => OpResult::Tombstone(Outcome::Unknown(why)),
            Self::Leave { .. } => OpResult::Leave(Outcome::Unknown(why)),
        }
    }
}

/// What keeps a lease alive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Renewal {
    /// The session of its owner: one heartbeat renews all leases, and a lease can be taken when its owner's session has ended.
    #[default]
    Session,
    /// The lease itself: each is rewritten each round, and can be taken when it did not change for a TTL.
    Lease,
}

/// How a conditional write ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<W, L> {
    /// It was carried out; a reply or a read of its own nonce proved it.
    Won(W),
    /// It was not, and will not be: this is what stands there.
    Lost(L),
    /// Nobody knows. It never extends a deadline.
    Unknown(String),
}

/// How an operation ended; the variant is the operation's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpResult {
    /// Lost: another session of this name lives.
    Setup(Outcome<NodeSeen, NodeSeen>),
    /// Lost: the record is of another session, or this one was ended.
    Heartbeat(Outcome<NodeSeen, NodeSeen>),
    /// All nodes, those that are over too.
    Nodes(Result<Nodes, String>),
    /// The leases that changed.
    Owners(Owners),
    /// The lease.
    Read(Result<LeaseSeen, String>),
    /// The lease as it was written, or why it could not be taken.
    Claim(Outcome<LeaseSeen, ClaimLost>),
    /// The lease as it was written, or as it stands.
    Renew(Outcome<LeaseSeen, LeaseSeen>),
    /// The lease as it was written, or as it stands.
    Release(Outcome<LeaseSeen, LeaseSeen>),
    /// The ended session, or what the record has become.
    Tombstone(Outcome<NodeSeen, NodeSeen>),
    /// Lost: the session had been ended before.
    Leave(Outcome<NodeSeen, NodeSeen>),
}

/// A node as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSeen {
    /// Its name.
    pub name: NodeName,
    /// The tag of its record; none when there is none.
    pub tag: Option<Tag>,
    /// Its record. A heartbeat of the same size changes the tag and is not read again: then counter and nonce are old. An error when
    /// there is none, or when it is unreadable.
    pub record: Result<NodeRecord, RecordError>,
}

/// All nodes at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Nodes {
    /// In the order of their names; this node among them.
    pub nodes: Vec<NodeSeen>,
    /// Objects in the folders that belong to nobody, or are too many to be followed.
    pub strangers: u64,
}

/// A lease as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseSeen {
    /// The tag of its record; none when there is none.
    pub tag: Option<Tag>,
    /// Its record; [`LeaseRecord::vacant`] when there is none or it is unreadable.
    pub record: LeaseRecord,
    /// What is wrong with the body, if it is unreadable.
    pub corrupt: Option<RecordError>,
}

impl LeaseSeen {
    /// A lease that is not there.
    #[must_use]
    pub const fn missing(shard: u32) -> Self {
        Self {
            tag: None,
            record: LeaseRecord::vacant(shard),
            corrupt: None,
        }
    }

    /// Whether nobody can tell from it who held the shard: there is none, or it is unreadable.
    #[must_use]
    pub const fn vanished(&self) -> bool {
        self.tag.is_none() || self.corrupt.is_some()
    }
}

/// The leases that changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Owners {
    /// Each as it stands; in the first answer of all that were read, all of them, the missing too. What was not told because of a
    /// failure comes with a later answer.
    pub changed: Vec<LeaseSeen>,
    /// What failed, if not all could be read.
    pub failed: Option<String>,
}

/// Why a lease could not be claimed.
#[expect(
    clippy::large_enum_variant,
    reason = "each is moved a few times and kept nowhere in numbers"
)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimLost {
    /// It has changed; this is what stands there.
    Changed(LeaseSeen),
    /// Its database was opened more often than it was to be taken after.
    Opened {
        /// The database's writer epoch.
        writer_epoch: u64,
    },
}

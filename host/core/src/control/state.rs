//! What a loop keeps in mind.

use crate::lease::object::Tag;
use crate::lease::op::{LeaseSeen, OpId};
use crate::lease::record::{NodeName, Owner, SessionId};
use crate::time::Moment;

/// Where the loop is in its life.
#[derive(Debug)]
pub(super) enum Phase {
    /// It has no session yet, or no more.
    Joining(Joining),
    /// It has one.
    Member,
    /// It is over.
    Left,
}

#[derive(Debug)]
pub(super) struct Joining {
    /// When it is tried next.
    pub(super) at: Moment,
    pub(super) flying: bool,
    /// Another session of this name: its tag, since when, and how often it was seen to change.
    pub(super) other: Option<(Option<Tag>, Moment, u32)>,
}

/// An operation in flight.
#[derive(Debug, Clone)]
pub(super) struct Flight {
    pub(super) what: What,
    /// The event that began it.
    pub(super) asked: u64,
    /// The session that it is for.
    pub(super) session: SessionId,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    Setup,
    Heartbeat,
    Nodes,
    Owners,
    Read(u32),
    Claim(u32),
    Renew(u32),
    Release(u32),
    Tombstone(NodeName),
    Leave,
}

/// Something that is done again and again.
#[derive(Debug)]
pub(super) struct Pace {
    /// When it is due.
    pub(super) at: Moment,
    pub(super) flying: Option<OpId>,
    /// How often it failed in a row.
    pub(super) failures: u32,
}

impl Pace {
    pub(super) fn due(&self) -> Option<Moment> {
        self.flying.is_none().then_some(self.at)
    }
}

/// A lease as this node knows it.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) seen: LeaseSeen,
    /// When this version was first seen.
    pub(super) since: Moment,
    /// The event at which it was.
    pub(super) event: u64,
    /// Since it vanished: when peers were told to look at the leases, its owner among them.
    pub(super) told: Option<Moment>,
    /// The writer epoch that its database was found to have, so that a vanished lease may have an owner.
    pub(super) opened: Option<u64>,
    /// A claim or a release of this node failed: not before.
    pub(super) not_before: Moment,
}

/// A shard that is to be claimed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) shard: u32,
    /// The highest writer epoch that its database may have for it.
    pub(super) at_most: Option<u64>,
    /// The version of the lease that was found to be free, by [`Known::event`]; of another one nothing is known.
    pub(super) event: u64,
}

/// A lease that this node holds.
#[derive(Debug, Clone)]
pub(super) struct Hold {
    /// As it was last written.
    pub(super) lease: LeaseSeen,
    /// Its own deadline, in layouts that renew each lease.
    pub(super) until: Moment,
    /// When it was last renewed, or was to be.
    pub(super) renewed: Moment,
    pub(super) failures: u32,
    /// Its database's epoch, when it closed cleanly.
    pub(super) epoch: Option<u64>,
    pub(super) wish: Wish,
    /// When something is done about one that is not with the runner.
    pub(super) retry: Moment,
    /// How often it was fenced or expired in a row.
    pub(super) setbacks: u32,
    /// It had vanished when it was claimed: an owner that lives may have opened the database meanwhile.
    pub(super) doubtful: bool,
    /// It has vanished and is to be written again as it was.
    pub(super) damaged: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wish {
    /// It is to run here.
    Keep,
    /// It is to be freed, once it has closed.
    Free(Freeing),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Freeing {
    pub(super) successor: Option<NodeName>,
    pub(super) pinned: bool,
    pub(super) why: &'static str,
}

/// What the runner has of a shard.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) generation: u64,
    /// It said that it has it.
    pub(super) accepted: bool,
    pub(super) open: bool,
    /// It was told to stop.
    pub(super) stopping: bool,
    pub(super) sent: Moment,
}

/// Whether the owner in a lease may still run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    /// Nobody holds it.
    Free,
    /// This session holds it.
    Mine,
    /// It may.
    Lives,
    /// It did not change for a TTL: its session is to be ended first.
    Expired(Owner),
    /// It has ended.
    Over,
    /// What was read of it is older than the lease.
    Unsure,
}

//! Ways to break the protocol on purpose.
//!
//! **For the simulator only.** A checker that never failed proves little, so the simulator breaks one rule at a time and expects its
//! oracles to notice. [`Rules::default`] breaks nothing, and is what every node runs with.

/// Which rule is broken, if any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rules {
    broken: Option<Mutation>,
}

impl Rules {
    /// Every rule but this one.
    #[must_use]
    pub const fn without(mutation: Mutation) -> Self {
        Self {
            broken: Some(mutation),
        }
    }

    /// Whether this rule is broken.
    #[must_use]
    pub fn broken(self, mutation: Mutation) -> bool {
        self.broken == Some(mutation)
    }
}

macro_rules! mutations {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A rule of the protocol that can be broken.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Mutation {
            $($(#[$doc])* $name,)*
        }

        impl Mutation {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
        }
    };
}

mutations! {
    /// Bodies carry no fresh nonce, so a write of unknown outcome cannot be told from another's.
    NoNonce,
    /// Bodies carry no counter and no fresh nonce: identical rewrites have one tag, and a heartbeat does not show.
    NoCounter,
    /// An owner's deadline counts from the reply of its renewal instead of from its sending.
    DeadlineFromReply,
    /// An owner's deadline is the whole TTL.
    NoMargin,
    /// A lease is freed when its shard is told to stop, not when it has closed.
    FreeBeforeClose,
    /// Databases are opened whatever their writer epoch.
    LastOpenerWins,
    /// Shares are only bounded above: nobody gives up a shard until it has more than the ceiling.
    CeilOnly,
    /// Expiry is judged by the wall clock in a body instead of by how long it stayed.
    WallClock,
    /// A write of unknown outcome is taken as lost.
    UnknownIsLost,
    /// A write of unknown outcome is taken as won.
    UnknownIsWon,
    /// The leases of an expired session are claimed without ending that session first.
    NoTombstone,
    /// A session is ended whatever its tag has become meanwhile.
    TombstoneAnyTag,
    /// A node whose own tick came late goes on counting against its peers.
    NoObserverGuard,
    /// Many peers that expire at once are all taken over at once.
    NoMassBrake,
    /// A queued open starts though its deadline has passed.
    OpenAfterDeadline,
    /// An open that finishes after its deadline is served.
    ServeLateOpen,
    /// A lease is claimed whatever has become of it since it was read.
    ClaimWithoutCas,
    /// A stop is carried out at once, though the open that it follows still runs.
    StopBeforeOpen,
    /// A lease is renewed though nothing runs under it.
    RenewIdle,
    /// A claim keeps the generation of the lease it takes.
    GenerationReused,
    /// The generation of a lost lease starts over, whatever the database's writer epoch.
    GenerationIgnoresEpoch,
    /// Leases are claimed though they could not be read in this round.
    ClaimThoughReadFailed,
    /// A released lease names nobody to take it.
    NoSuccessor,
    /// A released lease is claimed by anybody at once, whomever it names.
    IgnoreSuccessor,
    /// A shard is claimed though an operation on its lease is still in flight.
    TwoClaims,
    /// Any number of shards opens at once.
    NoMaxConcurrency,
    /// A route is used though the lease it was read under has expired.
    RoutePastDeadline,
    /// A call that was forwarded is forwarded again.
    ForwardTwice,
    /// A restarted node takes the leases of its former session as its own.
    InheritSession,
    /// A node takes over its own name from a live session without waiting.
    SetupOverLive,
    /// A node that drains goes on claiming.
    DrainingClaims,
    /// A node claims again what it has just released.
    ReclaimReleased,
    /// Shards that are past their deadline go on running.
    NoSelfFence,
    /// A shard past its deadline is closed with a flush, and nothing is cut off first.
    CloseWithoutFence,
    /// A renewal revives a shard whose deadline has passed.
    ExtendRevives,
    /// A claim extends a shard's deadline though only heartbeats renew its session.
    ClaimExtends,
    /// A node whose session was ended goes on under it.
    IgnoreLostSession,
    /// A lease that vanished is claimed at once, though its owner may live.
    ClaimVanishedAtOnce,
    /// A session or a lease that vanished is restored though its deadline has passed.
    RepairLate,
    /// A lease that names this session, though this node does not hold it, is left alone.
    IgnoreStray,
    /// A shard that nobody takes waits for its planned owner for ever.
    CapIsHard,
    /// A heartbeat that failed is tried again only after a whole interval and more.
    SlowRetry,
    /// A node that can write but not read does not say so.
    HideBlindness,
    /// Whoever sees that a lease has vanished does not tell its peers to look.
    HideVanished,
    /// A node that waits for a session of its name to end takes the name as soon as the record is missing.
    SetupOverMissing,
    /// A heartbeat that hung is followed by a pause, however little time is left.
    PauseAfterHang,
    /// A plan leaves out of account what this node is claiming.
    ForgetClaims,
    /// The record of rollouts is written whatever it has become since it was read.
    RolloutWithoutCas,
    /// A node follows an older version of the record when a read shows one.
    OldRecordWins,
    /// A node has all its shards run what is being rolled out, whichever were chosen and before the others said that they can.
    AdoptUnasked,
    /// A node goes on with what is being rolled back.
    NeverGoBack,
    /// A shard that is being swapped is said to run what it ran before.
    HideSwap,
    /// Whoever carries a rollout on believes nodes that do not follow the version it looks at.
    BelieveStale,
    /// Whoever carries a rollout on takes a node that is not done with checking for one that is.
    RollUnchecked,
    /// Whoever carries a rollout on takes nodes that do not answer for gone.
    SilentIsGone,
    /// A step of a rollout has no end.
    NeverLate,
    /// Whoever orders a rollout takes a write of unknown outcome as won.
    OrderIsWon,
    /// The plan deals all shards out afresh, whoever has them.
    NotSticky,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_broken_by_default() {
        for mutation in Mutation::ALL {
            assert!(!Rules::default().broken(*mutation), "{mutation:?}");
            assert!(Rules::without(*mutation).broken(*mutation), "{mutation:?}");
        }
        assert!(Mutation::ALL.len() >= 28);
    }
}

//! Which oracles notice which broken rule, and within how many seeds.

use quarry_core::rules::Mutation;

use super::setup::Climate;

/// A broken rule and who has to notice.
#[derive(Debug, Clone, Copy)]
pub struct Tooth {
    pub mutation: Mutation,
    /// The world it is set loose in.
    pub climate: Climate,
    /// The oracles that may notice first.
    pub oracles: &'static [&'static str],
    /// The first seed.
    pub from: u64,
    /// Seeds within which one of them must.
    pub seeds: u64,
}

/// All rules that can be broken. The seeds are several times what it took.
pub const TEETH: &[Tooth] = &[
    tooth(Mutation::NoNonce, Climate::Usual, &["S4", "S13"], 60),
    tooth(Mutation::NoCounter, Climate::Usual, &["S4", "S13"], 60),
    tooth(Mutation::DeadlineFromReply, Climate::Usual, &["S4"], 10),
    tooth(Mutation::NoMargin, Climate::Usual, &["S4"], 10),
    tooth(Mutation::FreeBeforeClose, Climate::Usual, &["S7"], 10),
    tooth(Mutation::LastOpenerWins, Climate::Usual, &["S6"], 10),
    tooth(Mutation::CeilOnly, Climate::Usual, &["L2"], 30),
    tooth(
        Mutation::WallClock,
        Climate::Usual,
        &["S4", "S9", "S12", "L2", "L7", "L8"],
        200,
    ),
    tooth(
        Mutation::UnknownIsLost,
        Climate::Usual,
        &["L1", "L2", "L3", "E2"],
        60,
    ),
    tooth(Mutation::UnknownIsWon, Climate::Usual, &["S4", "S11"], 30),
    tooth(
        Mutation::NoTombstone,
        Climate::Usual,
        &["L1", "L2", "S4"],
        100,
    ),
    tooth(
        Mutation::TombstoneAnyTag,
        Climate::Pauses,
        &["S4", "S13"],
        150,
    ),
    tooth(Mutation::NoObserverGuard, Climate::Pauses, &["L8"], 300),
    tooth(Mutation::NoMassBrake, Climate::Outages, &["L8"], 100),
    tooth(Mutation::OpenAfterDeadline, Climate::SlowOpens, &["S9"], 60),
    tooth(Mutation::ServeLateOpen, Climate::SlowOpens, &["S9"], 100),
    tooth(Mutation::ClaimWithoutCas, Climate::Usual, &["S4", "S5"], 60),
    tooth(Mutation::StopBeforeOpen, Climate::Usual, &["S8"], 60),
    tooth(Mutation::RenewIdle, Climate::Usual, &["S11", "L2"], 100),
    tooth(Mutation::GenerationReused, Climate::Usual, &["S5"], 10),
    tooth(
        Mutation::GenerationIgnoresEpoch,
        Climate::Usual,
        &["S5", "S6"],
        400,
    ),
    tooth(Mutation::ClaimThoughReadFailed, Climate::Usual, &["L8"], 60),
    tooth(
        Mutation::NoSuccessor,
        Climate::Usual,
        &["L1", "P3", "move"],
        100,
    ),
    tooth(
        Mutation::IgnoreSuccessor,
        Climate::Usual,
        &["E2", "E3"],
        400,
    ),
    tooth(Mutation::TwoClaims, Climate::Usual, &["S8"], 10),
    tooth(Mutation::NoMaxConcurrency, Climate::Usual, &["S8"], 60),
    tooth(Mutation::RoutePastDeadline, Climate::Usual, &["S12"], 60),
    tooth(Mutation::ForwardTwice, Climate::Usual, &["S12"], 60),
    tooth(
        Mutation::InheritSession,
        Climate::Usual,
        &["S11", "S13"],
        60,
    ),
    tooth(Mutation::SetupOverLive, Climate::Usual, &["S4"], 100),
    tooth(
        Mutation::DrainingClaims,
        Climate::Usual,
        &["L5", "E2", "E3"],
        100,
    ),
    tooth(Mutation::ReclaimReleased, Climate::Usual, &["L2"], 30),
    tooth(Mutation::NoSelfFence, Climate::Usual, &["L7"], 60),
    tooth(Mutation::CloseWithoutFence, Climate::Usual, &["S3"], 60),
    tooth(Mutation::ExtendRevives, Climate::Usual, &["S3"], 300),
    tooth(Mutation::ClaimExtends, Climate::Usual, &["S4"], 30),
    tooth(
        Mutation::IgnoreLostSession,
        Climate::Usual,
        &["S4", "S13"],
        60,
    ),
    tooth(
        Mutation::ClaimVanishedAtOnce,
        Climate::Usual,
        &["S4", "L1", "E2", "E3"],
        100,
    ),
    tooth(
        Mutation::RepairLate,
        Climate::LostRecords,
        &["S4", "S5", "S13"],
        400,
    )
    .from(900),
    tooth(Mutation::IgnoreStray, Climate::LateWrites, &["L2"], 60),
    tooth(Mutation::CapIsHard, Climate::Restarts, &["L1", "L2"], 150),
    tooth(Mutation::SlowRetry, Climate::Usual, &["L1"], 60),
    tooth(Mutation::HideBlindness, Climate::Usual, &["L1", "E2"], 200),
    tooth(Mutation::HideVanished, Climate::Crowded, &["S4"], 200),
    tooth(
        Mutation::SetupOverMissing,
        Climate::LostRecords,
        &["S4"],
        300,
    ),
    tooth(Mutation::NotSticky, Climate::Usual, &["E2"], 60),
    tooth(Mutation::RolloutWithoutCas, Climate::Usual, &["R1"], 30),
    tooth(Mutation::OldRecordWins, Climate::Usual, &["R2"], 30),
    tooth(Mutation::AdoptUnasked, Climate::Usual, &["R2"], 30),
    tooth(Mutation::NeverGoBack, Climate::Usual, &["R2"], 60),
    tooth(Mutation::HideSwap, Climate::Usual, &["R3"], 300),
    tooth(Mutation::BelieveStale, Climate::LateWrites, &["R3"], 100),
    tooth(Mutation::RollUnchecked, Climate::Usual, &["R3"], 30),
    tooth(Mutation::SilentIsGone, Climate::Pauses, &["R3"], 60),
    tooth(Mutation::NeverLate, Climate::Usual, &["R4"], 30),
    tooth(Mutation::OrderIsWon, Climate::Usual, &["R5"], 30),
    // Rare: only a few seeds notice.
    tooth(Mutation::PauseAfterHang, Climate::Pauses, &["L1"], 1).from(3385),
    tooth(Mutation::ForgetClaims, Climate::Restarts, &["E2"], 60).from(340),
];

/// Seeds that broke a promise once.
pub const FOUND: &[(u64, Climate)] = &[
    (3385, Climate::Pauses),
    (3561, Climate::LateWrites),
    (3112, Climate::Restarts),
    (32867, Climate::Restarts),
];

impl Tooth {
    /// The same from another seed on.
    const fn from(self, from: u64) -> Self {
        Self { from, ..self }
    }
}

const fn tooth(
    mutation: Mutation,
    climate: Climate,
    oracles: &'static [&'static str],
    seeds: u64,
) -> Tooth {
    Tooth {
        mutation,
        climate,
        oracles,
        from: 0,
        seeds,
    }
}

/// The mutation of this name.
pub fn mutation(name: &str) -> Option<Mutation> {
    Mutation::ALL
        .iter()
        .copied()
        .find(|mutation| format!("{mutation:?}").eq_ignore_ascii_case(name))
}

/// The climate of this name.
pub fn climate(name: &str) -> Option<Climate> {
    Climate::ALL
        .into_iter()
        .find(|climate| format!("{climate:?}").eq_ignore_ascii_case(name))
}

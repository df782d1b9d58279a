//! Which oracles notice which broken rule, and within how many seeds.

use quarry_core::rules::Mutation;

/// A broken rule and who has to notice.
#[derive(Debug, Clone, Copy)]
pub struct Tooth {
    pub mutation: Mutation,
    /// The oracles that may notice first.
    pub oracles: &'static [&'static str],
    /// Seeds within which one of them must.
    pub seeds: u64,
}

/// All rules that can be broken.
pub const TEETH: &[Tooth] = &[];

/// The mutation of this name.
pub fn mutation(name: &str) -> Option<Mutation> {
    Mutation::ALL
        .iter()
        .copied()
        .find(|mutation| format!("{mutation:?}").eq_ignore_ascii_case(name))
}

//! All cases, group by group.

use super::case::Case;

mod cluster;
mod database;
mod durability;
mod ends;
mod errors;
mod lifecycle;
mod limits;
mod migration;
mod moves;
mod protocol;
mod queries;
mod scans;
mod snapshots;
mod surroundings;
mod telemetry;
mod timers;
mod transactions;

/// Every case, in the order in which they run.
pub(super) fn all() -> Vec<Case> {
    [
        protocol::cases(),
        database::cases(),
        scans::cases(),
        snapshots::cases(),
        transactions::cases(),
        errors::cases(),
        durability::cases(),
        queries::cases(),
        lifecycle::cases(),
        migration::cases(),
        timers::cases(),
        cluster::cases(),
        moves::cases(),
        telemetry::cases(),
        surroundings::cases(),
        limits::cases(),
        ends::cases(),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::ValueEnum;

    use super::*;
    use crate::config::Config;
    use crate::conformance::{EXPORTS, Group};

    #[test]
    fn each_case_has_a_title_of_its_own_and_settings_that_exist() {
        let mut titles = BTreeSet::new();
        for case in all() {
            let title = case.title();
            assert!(titles.insert(title.clone()), "{title} is there twice");
            assert!(!case.acts.is_empty(), "{title} does nothing");
            let mut config = Config::default();
            for (key, value) in &case.settings {
                config
                    .set(key, value)
                    .unwrap_or_else(|why| panic!("{title}: {key}: {why}"));
            }
            config
                .validate()
                .unwrap_or_else(|why| panic!("{title}: {why}"));
            for export in &case.needs {
                assert!(EXPORTS.contains(export), "{title} needs {export}");
            }
        }
    }

    #[test]
    fn each_group_has_cases_and_its_name() {
        let cases = all();
        for group in Group::value_variants() {
            assert!(cases.iter().any(|case| case.group == *group), "{group:?}");
            let value = group.to_possible_value().expect("not hidden");
            assert_eq!(value.get_name(), group.name());
        }
    }
}

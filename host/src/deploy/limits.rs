//! The limits of a revision: those of the node, but for what the revision sets itself.

use std::collections::BTreeMap;

use crate::config::Config;
use crate::guest::Limits;

/// The limits that a revision may set. The others bound what the node keeps for a shard whatever its guest is: its queue, what it writes,
/// how it is quarantined.
pub const OF_A_REVISION: [&str; 11] = [
    "cpu_time",
    "drain",
    "handoff_bytes",
    "handoff_time",
    "memory",
    "migrate_step_time",
    "migrate_time",
    "open_resources",
    "start_time",
    "stop_time",
    "wall_time",
];

/// A limit that a revision cannot have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("limit `{name}` = {value:?}: {why}")]
pub struct BadLimit {
    /// Its name, cut.
    pub name: String,
    /// Its value, cut.
    pub value: String,
    /// What is wrong, and what is valid.
    pub why: String,
}

/// The limits of a node's guests, with those that a revision sets by name and value, as they stand in a configuration (`memory` = `64MiB`).
///
/// # Errors
/// The first that is not a revision's to set, out of its bounds, or at odds with another.
pub fn limits(config: &Config, set: &BTreeMap<String, String>) -> Result<Limits, BadLimit> {
    let cut = |text: &str| text.chars().take(80).collect::<String>();
    let bad = |name: &str, value: &str, why: String| BadLimit {
        name: cut(name),
        value: cut(value),
        why,
    };
    let mut changed = config.clone();
    for (name, value) in set {
        if !OF_A_REVISION.contains(&name.as_str()) {
            let why = format!(
                "a revision cannot set it; it may set {}",
                OF_A_REVISION.join(", ")
            );
            return Err(bad(name, value, why));
        }
        changed
            .set(&format!("limits.{name}"), value)
            .map_err(|why| bad(name, value, why))?;
    }
    let (cpu, wall) = (changed.limits.cpu_time, changed.limits.wall_time);
    if cpu > wall {
        let value = set.get("cpu_time").or_else(|| set.get("wall_time"));
        let why = format!(
            "the CPU time of a call, {cpu:?}, is over its whole time, {wall:?}; set cpu_time and wall_time so that they fit"
        );
        return Err(bad("cpu_time", value.map_or("", |value| value), why));
    }
    Ok(Limits::from(&changed))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn set(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn a_revision_sets_its_own_and_keeps_the_rest() {
        let config = Config::default();
        let own = limits(&config, &set(&[])).expect("nothing is set");
        assert_eq!(own, Limits::from(&config));
        let changed = limits(
            &config,
            &set(&[
                ("memory", "64MiB"),
                ("cpu_time", "250ms"),
                ("open_resources", "7"),
                ("drain", "2s"),
            ]),
        )
        .expect("valid");
        let expected = Limits {
            memory: 64 << 20,
            cpu_time: Duration::from_millis(250),
            open_resources: 7,
            drain: Duration::from_secs(2),
            ..own
        };
        assert_eq!(changed, expected);
    }

    #[test]
    fn what_it_cannot_have_is_said_with_what_is_valid() {
        for (pairs, says) in [
            (&[("queue_calls", "7")][..], "it may set cpu_time"),
            (&[("nonsense", "7")], "it may set cpu_time"),
            (&[("memory", "1B")], "a size from 1MiB to 4GiB"),
            (&[("memory", "much")], "memory"),
            (&[("cpu_time", "")], "cpu_time"),
            (&[("drain", "0s")], "a duration from 1ms"),
            (&[("open_resources", "-1")], "a whole number from 1"),
            (&[("cpu_time", "31s")], "over its whole time"),
            (&[("wall_time", "10ms")], "over its whole time"),
        ] {
            let error = limits(&Config::default(), &set(pairs)).expect_err("refused");
            assert!(error.to_string().contains(says), "{pairs:?}: {error}");
        }
    }
}

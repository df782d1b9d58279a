//! `quarry config`: the effective configuration, or every key there is.

use super::{Error, Exit, Output, args::ShowConfig};
use crate::config::{Config, describe, describe_json};
use crate::db::{merge, settings};
use crate::store::Store;

pub(super) fn run(args: &ShowConfig, out: Output) -> Result<Exit, Error> {
    match (args.describe, out.json) {
        (true, true) => out.json(&describe_json())?,
        (true, false) => out.bytes(describe().as_bytes())?,
        (false, json) => {
            let loaded = Config::load(&args.settings.sources())?;
            check(&loaded.config)?;
            if json {
                out.json(&loaded.to_json())?;
            } else {
                out.bytes(loaded.to_toml().as_bytes())?;
            }
        }
    }
    Ok(Exit::Done)
}

/// What a node would refuse at its start beyond the kinds and bounds of the keys, so that a configuration that is shown is one that starts.
fn check(config: &Config) -> Result<(), Error> {
    let wrong = |key: &str, error: &dyn std::fmt::Display| Error::Usage(format!("{key}: {error}"));
    settings::effective(config.settings.clone()).map_err(|error| wrong("settings", &error))?;
    if let Some(name) = &config.merge_operator {
        merge::operator(name).map_err(|error| wrong("merge_operator", &error))?;
    }
    Store::check(&config.store, &config.store_options).map_err(|error| wrong("store", &error))
}

//! `quarry config`: the effective configuration, or every key there is.

use super::{Error, Exit, Output, args::ShowConfig};
use crate::config::{Config, describe, describe_json};

pub(super) fn run(args: &ShowConfig, out: Output) -> Result<Exit, Error> {
    match (args.describe, out.json) {
        (true, true) => out.json(&describe_json())?,
        (true, false) => out.bytes(describe().as_bytes())?,
        (false, json) => {
            let loaded = Config::load(&args.settings.sources())?;
            if json {
                out.json(&loaded.to_json())?;
            } else {
                out.bytes(loaded.to_toml().as_bytes())?;
            }
        }
    }
    Ok(Exit::Done)
}

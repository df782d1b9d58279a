//! Logging of the process: `tracing` events to standard error. A thread of its own writes them: a pipe that nobody reads must hold up
//! no shard.

use std::io::IsTerminal;

use tracing_subscriber::{
    EnvFilter, filter::LevelFilter, layer::SubscriberExt, util::SubscriberInitExt,
};

use crate::config::{Log, LogFormat};

mod queue;

pub(crate) use queue::flush;

const LEVELS: [&str; 6] = ["trace", "debug", "info", "warn", "error", "off"];

/// Why logging cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `log.level` is no filter.
    #[error("log.level: {0}")]
    Filter(String),
    /// The system gives no more threads.
    #[error("the thread that writes the log did not start: {0}")]
    Thread(std::io::Error),
    /// Something else in this process logs already.
    #[error("logging was started before")]
    Started(#[from] tracing_subscriber::util::TryInitError),
}

/// Starts logging as `[log]` says. Once per process; an embedder with a subscriber of its own does not call it.
///
/// # Errors
/// When the level is no filter, or something logs already.
pub fn init(log: &Log) -> Result<(), Error> {
    check_filter(&log.level).map_err(Error::Filter)?;
    let filter = EnvFilter::builder()
        .parse(&log.level)
        .map_err(|error| Error::Filter(error.to_string()))?;
    let registry = tracing_subscriber::registry().with(filter);
    let lines = queue::start().map_err(Error::Thread)?;
    match log.format {
        LogFormat::Json => {
            let layer = tracing_subscriber::fmt::layer()
                .json()
                .flatten_event(true)
                .with_writer(lines);
            registry.with(layer).try_init()?;
        }
        LogFormat::Text => {
            let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            let color = !plain && std::io::stderr().is_terminal();
            let layer = tracing_subscriber::fmt::layer()
                .with_ansi(color)
                .with_writer(lines);
            registry.with(layer).try_init()?;
        }
    }
    Ok(())
}

/// Checks a filter. A lone word that is no level would be taken for the name of a target and silence all others, so it
/// is refused.
pub(crate) fn check_filter(text: &str) -> Result<(), String> {
    for part in text.split(',').map(str::trim) {
        if part.is_empty() {
            return Err("a directive is empty".into());
        }
        let is_path = part.contains("::") || part.contains('=') || part.contains('[');
        if !is_path && part.parse::<LevelFilter>().is_err() {
            return Err(format!(
                "{part:?} is none of {}; a target takes `=LEVEL`",
                LEVELS.join(", ")
            ));
        }
    }
    EnvFilter::builder()
        .parse(text)
        .map(drop)
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_checked_strictly() {
        for good in [
            "info",
            "WARN",
            "off",
            "quarry=debug",
            "info,slatedb=warn",
            "quarry::shard=trace, error",
        ] {
            assert_eq!(check_filter(good), Ok(()), "{good}");
        }
        for bad in ["", "infoo", "info,", "quarry", "quarry=loud", "[", "a=b=c"] {
            assert!(check_filter(bad).is_err(), "{bad}");
        }
    }
}

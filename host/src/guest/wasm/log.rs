//! The imported interface `log`.

use super::bindings::log::{Host, Level};
use super::state::State;
use crate::guest::log;

impl Host for State {
    fn enabled(&mut self, level: Level) -> bool {
        self.place.log.enabled(level.into())
    }

    fn write(&mut self, level: Level, message: String, fields: Vec<(String, String)>) {
        self.place.log.write(level.into(), &message, &fields);
    }
}

impl From<Level> for log::Level {
    fn from(level: Level) -> Self {
        match level {
            Level::Trace => Self::Trace,
            Level::Debug => Self::Debug,
            Level::Info => Self::Info,
            Level::Warn => Self::Warn,
            Level::Error => Self::Error,
        }
    }
}

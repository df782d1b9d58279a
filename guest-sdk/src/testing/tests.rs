//! The double against what `wit/` promises.

mod cluster;
mod database;
mod guests;
mod migration;
mod timers;

use crate::error::Result;

fn code<T: std::fmt::Debug>(result: Result<T>) -> String {
    result.unwrap_err().code().to_owned()
}

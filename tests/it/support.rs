//! What the tests share.

pub mod lines;
pub mod native;
pub mod process;
pub mod store;

//! What the tests share.

pub mod driven;
pub mod guests;
pub mod lines;
pub mod log_lines;
pub mod native;
pub mod neighbour;
pub mod process;
pub mod ring;
pub mod store;

//! What the tests share.

pub mod native;
pub mod store;

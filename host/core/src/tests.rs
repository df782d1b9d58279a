//! What tests of several modules share.

pub(crate) mod cluster;
pub(crate) mod store;

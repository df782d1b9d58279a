//! The public API of a node.
pub mod status;

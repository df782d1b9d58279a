//! Tests through the doors that users use, in one binary.

mod dependencies;
mod durability;
mod lifecycle;
mod support;

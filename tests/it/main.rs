//! Tests through the doors that users use, in one binary.

mod durability;
mod lifecycle;
mod support;

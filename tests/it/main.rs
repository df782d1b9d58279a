//! Tests through the doors that users use, in one binary.

mod dependencies;
mod durability;
mod examples;
mod guests;
mod lifecycle;
mod support;

//! Tests through the doors that users use, in one binary.

mod between;
mod cli;
mod cluster;
mod conformance;
mod crash;
mod dependencies;
mod deploy;
mod durability;
mod examples;
mod guests;
mod http;
mod leases;
mod lifecycle;
mod nodes;
mod s3;
mod shard;
mod stores;
mod support;
mod timers;

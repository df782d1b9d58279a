//! The simulator as a test: seeds that must pass, and broken rules that must not.

#[path = "simulator.rs"]
mod simulator;

//! Real guests, well-behaved and not, on a whole node.

mod calls;
mod database;
mod durable;
mod leaks;
mod lifecycle;
mod limits;
mod memory;
mod queries;
mod refused;
mod shared;
mod surroundings;
mod swap;
mod timers;
mod traps;
mod versions;

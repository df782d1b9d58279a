//! Calls between shards, by real components and by native logic, on one node and on several.

mod components;
mod nodes;
mod stage;
mod waiting;

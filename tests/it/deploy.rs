//! Deployments on whole nodes of one process, over one store in memory, while clients call.

mod bad;
mod broken;
mod compiling;
mod components;
mod forth;
mod logic;
mod web;
mod world;

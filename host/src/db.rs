pub mod cache;
pub mod maintenance;
pub mod merge;
pub mod recorder;
pub mod settings;

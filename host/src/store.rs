pub mod faults;
pub mod file;
pub mod kill_switch;
pub mod probe;

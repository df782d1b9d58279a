//! The tests across the border live in `it/`, one binary.

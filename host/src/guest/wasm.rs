//! Guests as WebAssembly components.

//! The host's functions, as the rest of this crate uses them: imports of the component on WebAssembly, the test double
//! elsewhere. Both sides have the same names and signatures.

#[cfg(target_family = "wasm")]
mod component;
#[cfg(not(target_family = "wasm"))]
mod native;

#[cfg(target_family = "wasm")]
pub(crate) use component::*;
#[cfg(not(target_family = "wasm"))]
pub(crate) use native::*;

/// A stored value and what is known of it.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) value: Vec<u8>,
    pub(crate) seq: u64,
    pub(crate) created_at_ms: i64,
    pub(crate) expires_at_ms: Option<i64>,
}

/// What an operation of a batch does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpKind {
    Put,
    Remove,
    Merge,
}

/// One operation of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) kind: OpKind,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) ttl_ms: Option<u64>,
}

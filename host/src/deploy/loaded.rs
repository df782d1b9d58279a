//! A revision on a node.

use std::sync::Arc;

use crate::guest::Module;

/// A revision made ready on this node.
#[derive(Clone)]
pub(crate) struct Loaded {
    pub(crate) module: Arc<dyn Module>,
    /// The options of its guest, a JSON object.
    pub(crate) options: Arc<str>,
}

/// A revision, and the guest that this node made of it, or why it has none.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) revision: u64,
    pub(crate) loaded: Result<Arc<Loaded>, Arc<str>>,
}

impl Loaded {
    /// The number of the revision.
    pub(crate) fn revision(&self) -> u64 {
        self.module.describe().revision
    }
}

//! Makes guests of what lies in the bucket.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use crate::guest::wasm::Runtime;
use crate::guest::{Limits, Module};

/// Makes a guest of a module's bytes. They are what the revision's digest says.
#[async_trait]
pub trait Loader: Send + Sync + 'static {
    /// Makes the guest of module `name` of a revision, to run under `limits`. It may take minutes, and must not hold up the thread that
    /// polls it. The same bytes come again with other revisions.
    ///
    /// # Errors
    /// Why this node cannot run them, for a person: with the same bytes it would be the same again.
    async fn load(
        &self,
        bytes: Bytes,
        name: &str,
        revision: u64,
        limits: Arc<Limits>,
    ) -> Result<Arc<dyn Module>, String>;
}

/// Components: compiled once a node, off the threads of the shards, and kept in the cache on disk.
#[async_trait]
impl Loader for Arc<Runtime> {
    async fn load(
        &self,
        bytes: Bytes,
        name: &str,
        revision: u64,
        limits: Arc<Limits>,
    ) -> Result<Arc<dyn Module>, String> {
        let loaded = Runtime::load(self, bytes, name.into(), revision, limits).await;
        loaded
            .map(|module| module as Arc<dyn Module>)
            .map_err(|error| error.to_string())
    }
}

/// What makes the module of a revision.
type Make = Box<dyn Fn(&str, u64) -> Arc<dyn Module> + Send + Sync>;

/// Logic in Rust that is part of this program: what lies in the bucket is its name ([`Library::bytes`]), and every node has to have it.
///
/// ```
/// # use quarry::deploy::Library;
/// # use quarry::guest::native::{self, Logic};
/// # use quarry::guest::{GuestError, InstanceContext, Reply, Request};
/// # struct Counter;
/// # #[async_trait::async_trait]
/// # impl Logic for Counter {
/// #     async fn call(&mut self, _: &InstanceContext, _: &Request) -> Result<Reply, GuestError> {
/// #         Ok(Reply::new("done"))
/// #     }
/// # }
/// let library = Library::new().with("counter-2", |name, revision| native::module(name, revision, |_| Counter));
/// ```
#[derive(Default)]
pub struct Library {
    logic: BTreeMap<String, Make>,
}

/// What the bytes of native logic begin with, so that nobody takes them for something else.
const NATIVE: &str = "quarry native logic: ";

impl Library {
    /// Without any logic.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With logic of this name. `make` gets the name of the module within its revision, and the revision's number, which the module that it
    /// makes has to have.
    #[must_use]
    pub fn with(
        mut self,
        logic: &str,
        make: impl Fn(&str, u64) -> Arc<dyn Module> + Send + Sync + 'static,
    ) -> Self {
        self.logic.insert(logic.to_owned(), Box::new(make));
        self
    }

    /// What stands for logic of this name in the bucket.
    #[must_use]
    pub fn bytes(logic: &str) -> Bytes {
        format!("{NATIVE}{logic}").into()
    }
}

#[async_trait]
impl Loader for Library {
    async fn load(
        &self,
        bytes: Bytes,
        name: &str,
        revision: u64,
        _: Arc<Limits>,
    ) -> Result<Arc<dyn Module>, String> {
        let logic = std::str::from_utf8(&bytes)
            .ok()
            .and_then(|text| text.strip_prefix(NATIVE))
            .ok_or("this is not the name of native logic, and this node runs no components")?;
        let make = self.logic.get(logic).ok_or_else(|| {
            let known: Vec<&str> = self.logic.keys().map(String::as_str).collect();
            let logic: String = logic.chars().take(80).collect();
            format!(
                "this program has no native logic named {logic:?}; it has {}",
                known.join(", ")
            )
        })?;
        Ok(make(name, revision))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deploy::placeholder;

    #[tokio::test]
    async fn native_logic_is_found_by_the_name_that_lies_in_the_bucket() {
        let library = Library::new().with("nothing", |_, _| placeholder::module());
        let load = |bytes| library.load(bytes, "main", 0, Arc::new(Limits::default()));
        assert!(load(Library::bytes("nothing")).await.is_ok());
        for (bytes, says) in [
            (Library::bytes("other"), "named \"other\"; it has nothing"),
            (Bytes::from_static(b"\0asm"), "runs no components"),
            (Bytes::from_static(b"\xff"), "runs no components"),
        ] {
            let error = load(bytes).await.err().expect("refused");
            assert!(error.contains(says), "{error}");
        }
    }
}

//! Why a component is not taken, for whoever deploys it.

use std::fmt;

/// Why a component is not taken, or why the engine cannot be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    file: Option<String>,
    reason: Reason,
}

/// The reasons, each with what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The bytes are something else.
    #[error("this is not WebAssembly: it begins with {begins}; give the .wasm file of a component")]
    NotWasm {
        /// The first bytes, in hex.
        begins: String,
    },
    /// The bytes are a module for WASI 0.1, or for the web.
    #[error(
        "this is a core module, not a component; build it for the target wasm32-wasip2, or wrap it with `wasm-tools component new`"
    )]
    CoreModule,
    /// The file is larger than a component may be.
    #[error(
        "the component has {size} bytes and may have {limit}; strip it (`wasm-tools strip -a`), or leave out debug information"
    )]
    TooLarge {
        /// Its size, in bytes.
        size: u64,
        /// The most, in bytes.
        limit: u64,
    },
    /// The component is damaged, or uses a feature that is not there.
    #[error("this is not a valid component: {0}")]
    Invalid(String),
    /// The component is for something else.
    #[error(
        "this component is not a Quarry guest: it exports neither {HANDLER}@0.1.x nor {HTTP_HANDLER}@0.2.x; it exports {exports}"
    )]
    WrongWorld {
        /// What it exports.
        exports: String,
    },
    /// The component is for another version of the API.
    #[error(
        "this component is built for {name}, and this node has quarry:shard@{OFFERED_VERSION}; {advice}"
    )]
    OtherVersion {
        /// The name with the version.
        name: String,
        /// What to do.
        advice: &'static str,
    },
    /// The component answers HTTP in another version of WASI.
    #[error(
        "this component exports {name}, and this node has WASI 0.2; build it against wasi:http@0.2"
    )]
    OtherHttp {
        /// The name with the version.
        name: String,
    },
    /// An export has another type than the API says.
    #[error(
        "{name} has the type `{found}` and has to have `{expected}`; build it against the WIT package quarry:shard@{OFFERED_VERSION}"
    )]
    WrongType {
        /// The function.
        name: String,
        /// Its type.
        found: String,
        /// The type of the API.
        expected: &'static str,
    },
    /// A function of an interface that is offered without it.
    #[error(
        "this component needs {name}, which this node (quarry:shard@{OFFERED_VERSION}) does not have; {advice}"
    )]
    MissingFunction {
        /// The function, after its interface.
        name: String,
        /// What to do.
        advice: String,
    },
    /// An interface of a later version of the API.
    #[error(
        "this component imports {name}, which this node (quarry:shard@{OFFERED_VERSION}) does not have; {advice}"
    )]
    NewerInterface {
        /// The interface, with its version.
        name: String,
        /// What to do.
        advice: String,
    },
    /// An import that nobody offers.
    #[error("this component imports {name}, which is not offered; a guest may import {offered}")]
    UnknownImport {
        /// The import.
        name: String,
        /// What there is.
        offered: String,
    },
    /// An import that is known, and refused.
    #[error("this component imports {name}, which guests are not granted: {advice}")]
    RefusedImport {
        /// The import.
        name: String,
        /// What to do.
        advice: &'static str,
    },
    /// The imports do not fit.
    #[error("this component does not fit what the node offers: {0}")]
    Link(String),
    /// The compiler refused it.
    #[error("this component cannot be compiled: {0}")]
    Compile(String),
    /// Compiling took too long.
    #[error("compiling this component took longer than {seconds} s")]
    CompileTimeout {
        /// The limit, in seconds.
        seconds: u64,
    },
    /// The engine could not be made.
    #[error("the WebAssembly engine cannot be started: {0}")]
    Engine(String),
}

/// The interface of the export that calls go to.
pub(super) const HANDLER: &str = "quarry:shard/handler";
/// The interface of the export that HTTP requests go to. A guest has to have one of the two.
pub(super) const HTTP_HANDLER: &str = "wasi:http/incoming-handler";
/// The version of the API that this host has.
pub(super) const OFFERED_VERSION: &str = "0.1.0";

impl Error {
    pub(super) fn new(reason: Reason) -> Self {
        Self { file: None, reason }
    }

    /// The same error, with the file that it is about.
    #[must_use]
    pub fn in_file(mut self, file: impl Into<String>) -> Self {
        self.file = Some(file.into());
        self
    }

    /// The reason.
    #[must_use]
    pub fn reason(&self) -> &Reason {
        &self.reason
    }

    /// A stable name of the reason, in kebab case.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self.reason {
            Reason::NotWasm { .. } => "not-wasm",
            Reason::CoreModule => "core-module",
            Reason::TooLarge { .. } => "component-too-large",
            Reason::Invalid(_) => "invalid-component",
            Reason::WrongWorld { .. } => "wrong-world",
            Reason::OtherVersion { .. } | Reason::OtherHttp { .. } => "other-version",
            Reason::WrongType { .. } => "wrong-type",
            Reason::MissingFunction { .. } => "missing-function",
            Reason::UnknownImport { .. } | Reason::NewerInterface { .. } => "unknown-import",
            Reason::RefusedImport { .. } => "refused-import",
            Reason::Link(_) => "link-failed",
            Reason::Compile(_) => "compile-failed",
            Reason::CompileTimeout { .. } => "compile-timeout",
            Reason::Engine(_) => "engine-failed",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}: ")?;
        }
        self.reason.fmt(f)
    }
}

impl std::error::Error for Error {}

impl From<Reason> for Error {
    fn from(reason: Reason) -> Self {
        Self::new(reason)
    }
}

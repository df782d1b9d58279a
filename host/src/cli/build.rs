//! `quarry build`: runs a project's build command and finds the component that it made.

use std::{
    fs, io,
    io::{IsTerminal, Read},
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::json;
use sha2::{Digest, Sha256};

mod command;
mod component;
mod missing;
mod recipe;
mod sdk;

use super::{Error as CliError, Exit, Output, args::Build, language::Language};
use crate::{
    clock,
    config::{self, Config, FileSource, Module, Sources, units::Size},
};

/// What a build made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// The component's file.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// Its SHA-256, in hexadecimal.
    pub sha256: String,
    /// How long it took.
    pub took: Duration,
}

/// Why there is no component.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The project's configuration is wrong.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// The folder is no project, or the project does not say how it is built.
    #[error("{0}")]
    Project(String),
    /// A tool or a target is missing.
    #[error("{what}; install it with: {install}")]
    Missing {
        /// What is missing.
        what: String,
        /// One command that installs it.
        install: String,
    },
    /// The build command could not be run.
    #[error("cannot run `{command}`")]
    Run {
        /// The command.
        command: String,
        /// Why not.
        source: io::Error,
    },
    /// The build command failed. Its own output says why.
    #[error("`{command}` failed: {status}")]
    Failed {
        /// The command.
        command: String,
        /// Its exit code or signal.
        status: String,
        /// The end of its standard error, at most 64 KiB.
        stderr: String,
    },
    /// The build command took too long and was ended.
    #[error("`{command}` was ended: it took over {} minutes", limit.as_secs() / 60)]
    TooLong {
        /// The command.
        command: String,
        /// How long it may take.
        limit: Duration,
    },
    /// The build went well, and left no component where one was expected.
    #[error("{0}")]
    NoComponent(String),
}

impl Error {
    /// Whether the user has to change the project's configuration, and not its code.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Config(_) | Self::Project(_))
    }
}

/// Reads the `[module]` of a project, with the environment over its file.
///
/// # Errors
/// When the folder is no project, or its configuration is wrong.
pub fn module_of(dir: &Path) -> Result<Module, Error> {
    if !dir.is_dir() {
        return Err(Error::Project(format!("{} is no folder", dir.display())));
    }
    if !dir.join("quarry.toml").exists() && !dir.join("Cargo.toml").exists() {
        let dir = dir.display();
        return Err(Error::Project(format!(
            "{dir} is no guest's project: it has neither quarry.toml nor Cargo.toml; `quarry new NAME` makes one"
        )));
    }
    let sources = Sources::of_process(FileSource::IfPresent(dir.join("quarry.toml")));
    Ok(Config::load(&sources)?.config.module)
}

/// Builds the project in `dir` as `module` says, and finds the component. `on_output` gets each line that the build
/// command prints.
///
/// # Errors
/// Why there is no component.
///
/// # Cancel safety
/// Dropping the future ends the build command and all it started.
pub async fn build(
    dir: &Path,
    module: &Module,
    mut on_output: impl FnMut(&str),
) -> Result<Built, Error> {
    let start = clock::now();
    if let Some(warning) = sdk::check(dir, module)? {
        on_output(&warning);
    }
    let recipe = recipe::of(dir, module)?;
    if let Some(folder) = recipe.component.as_deref().and_then(Path::parent) {
        fs::create_dir_all(folder).map_err(|error| {
            Error::NoComponent(format!("cannot make {}: {error}", folder.display()))
        })?;
    }
    let made = command::run(dir, &recipe, &mut on_output).await?;
    if let Some(version) = &made.sdk
        && let Some(warning) = sdk::check_rust(version)?
    {
        on_output(&warning);
    }
    let path = match (
        module.path.as_ref().or(recipe.component.as_ref()),
        made.components.as_slice(),
    ) {
        (Some(path), _) => path.clone(),
        (None, [path]) => path.clone(),
        (None, []) => {
            return Err(Error::NoComponent(
                "the build made no component: Cargo.toml needs `crate-type = [\"cdylib\", \"rlib\"]` in [lib]".into(),
            ));
        }
        (None, several) => {
            let several: Vec<_> = several
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            let several = several.join(", ");
            return Err(Error::NoComponent(format!(
                "the build made several components: set module.path to one of {several}"
            )));
        }
    };
    // A command of the project's own may be of any language.
    let language = Language::of(&module.language).filter(|_| module.build.is_none());
    component::put(path.clone(), language).await?;
    let (bytes, sha256) = measure(&path)?;
    Ok(Built {
        path,
        bytes,
        sha256,
        took: clock::now().duration_since(start),
    })
}

pub(super) async fn run(args: &Build, out: Output) -> Result<Exit, CliError> {
    let module = module_of(&args.dir)?;
    if args.update_sdk {
        out.note(&sdk::update(&args.dir, &module)?);
    }
    let built = tokio::select! {
        // The signal first: it is watched for before a compiler starts, which would outlive this program.
        biased;
        _ = tokio::signal::ctrl_c() => return Err(CliError::Interrupted),
        built = build(&args.dir, &module, |line| out.note(line)) => built?,
    };
    let path = built.path.display().to_string();
    if out.json {
        out.json(&json!({
            "path": path,
            "bytes": built.bytes,
            "sha256": built.sha256,
            "took_ms": u64::try_from(built.took.as_millis()).unwrap_or(u64::MAX),
        }))?;
    } else {
        let kib = Size(built.bytes.div_ceil(1024) * 1024);
        out.line(&format!(
            "{path}\nsize    {} bytes ({kib})\nsha256  {}",
            built.bytes, built.sha256
        ))?;
    }
    Ok(Exit::Done)
}

/// Length and digest of a component. Only looks at its first bytes to tell what it is: `quarry verify` checks all of it.
fn measure(path: &Path) -> Result<(u64, String), Error> {
    const MODULE: [u8; 8] = *b"\0asm\x01\0\0\0";
    const COMPONENT: [u8; 8] = *b"\0asm\x0d\0\x01\0";
    let shown = path.display();
    let fault = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => {
            Error::NoComponent(format!("the build left no {shown} (module.path)"))
        }
        _ => Error::NoComponent(format!("cannot read {shown}: {error}")),
    };
    let mut file = fs::File::open(path).map_err(fault)?;
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    let mut head: Vec<u8> = Vec::with_capacity(8);
    let mut bytes = 0;
    loop {
        let read = file.read(&mut buffer).map_err(fault)?;
        if read == 0 {
            break;
        }
        digest.update(&buffer[..read]);
        head.extend(buffer[..read].iter().take(8 - head.len().min(8)));
        bytes += read as u64;
    }
    match head.as_slice() {
        head if head == COMPONENT => {}
        head if head == MODULE => {
            return Err(Error::NoComponent(format!(
                "{shown} is a core module, not a component: build for wasm32-wasip2"
            )));
        }
        _ => return Err(Error::NoComponent(format!("{shown} is no WebAssembly"))),
    }
    let sha256 = digest
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    Ok((bytes, sha256))
}

/// Whether a build command should color what it prints.
fn color() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests;

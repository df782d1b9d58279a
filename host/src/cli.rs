//! The command line: verbs, exit codes, and what ends the program.

use std::{
    ffi::OsString,
    io::{self, Write},
    process::ExitCode,
};

use clap::{Parser, error::ErrorKind};

#[expect(
    missing_docs,
    reason = "clap takes the docs of fields for the help, and flattened ones have none"
)]
pub mod args;
mod bench;
pub mod build;
mod call;
mod config;
mod conformance;
mod deploy;
mod dev;
mod doctor;
pub mod language;
mod load;
mod new;
mod nodes;
mod operate;
pub mod output;
mod revisions;
mod rollout;
mod running;
mod serve;
mod settings;
mod shard;
mod shards;
mod status;
mod verify;
mod way;

pub use output::Output;

use crate::call::CallErrorKind;
use crate::config as configuration;
use crate::deploy::DeployError;
use crate::telemetry;
use args::Command;

/// Printed behind the help of the program. [`Exit`] is the same table in code.
const EXIT_CODES: &str = "\
Exit codes:
    0  done; also when whoever reads the output stopped reading, and when Ctrl-C or SIGTERM
       stopped a node of `serve` or `dev`, which is how those are done
    1  failed
    2  wrong arguments or configuration
    3  the server cannot be reached
    4  the server or the guest refused the request, or a node cannot run a revision
    5  a rollout was rolled back
    6  a rollout was not done in time, and goes on
    7  another rollout took the place of this one before its end was seen
    8  a rollout was begun, and its end was not awaited
  130  interrupted (Ctrl-C) before it was done

Data goes to standard output, messages to standard error. With --json data and errors are JSON;
an error has a code, a message, and what else the node said of it.";

/// A plugin host for sharded, stateful services: SlateDB shards in one bucket, logic as WebAssembly components.
#[derive(Debug, Parser)]
#[command(name = "quarry", version, after_help = EXIT_CODES, arg_required_else_help = true, max_term_width = 120)]
pub struct Cli {
    /// Print data, and errors, as JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// Failed.
    Failed = 1,
    /// Wrong arguments or configuration.
    Usage = 2,
    /// The server cannot be reached.
    Unreachable = 3,
    /// The server or the guest refused the request.
    Refused = 4,
    /// A rollout was rolled back.
    RolledBack = 5,
    /// A rollout was not done in time, and goes on.
    TimedOut = 6,
    /// Another rollout took the place of this one before its end was seen.
    Superseded = 7,
    /// A rollout was begun, and its end was not awaited.
    Begun = 8,
    /// Ctrl-C.
    Interrupted = 130,
}

/// Why a verb failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The arguments do not go together.
    #[error("{0}")]
    Usage(String),
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] configuration::Error),
    /// The guest could not be built.
    #[error(transparent)]
    Build(#[from] build::Error),
    /// Logging did not start.
    #[error(transparent)]
    Log(#[from] crate::telemetry::Error),
    /// A file or a stream failed.
    #[error("{what}")]
    Io {
        /// What was tried with which file.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// Whatever else failed.
    #[error("{0}")]
    Failed(String),
    /// The server cannot be reached. Names the server.
    #[error("{0}")]
    Unreachable(String),
    /// The server or the guest refused the request.
    #[error("{0}")]
    Refused(crate::client::Error),
    /// No shard serves calls by the revision that one was for. Nothing was sent.
    #[error("{0}")]
    NoShard(String),
    /// An order was not given to a cluster's bucket.
    #[error(transparent)]
    Deploy(#[from] DeployError),
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// Nobody reads the output any more. Ends the program as a success.
    #[error("the output was closed")]
    ClosedPipe,
}

impl Error {
    /// The program's exit.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::ClosedPipe => Exit::Done,
            Self::Io { .. } | Self::Failed(_) => Exit::Failed,
            Self::Build(error) if error.is_usage() => Exit::Usage,
            Self::Build(_) => Exit::Failed,
            Self::Usage(_) | Self::Config(_) | Self::Log(_) => Exit::Usage,
            Self::Unreachable(_) => Exit::Unreachable,
            Self::Refused(_) | Self::NoShard(_) => Exit::Refused,
            Self::Deploy(error) if error.is_refusal() => Exit::Refused,
            Self::Deploy(_) => Exit::Failed,
            Self::Interrupted => Exit::Interrupted,
        }
    }

    /// A stable word for programs; a refusal's own code.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Usage(_) => "usage",
            Self::Config(_) => "config",
            Self::Log(_) => "log",
            Self::Build(_) => "build",
            Self::Io { .. } => "io",
            Self::Failed(_) => "failed",
            Self::Unreachable(_) => "unreachable",
            Self::Refused(error) => error.code(),
            Self::NoShard(_) => CallErrorKind::WrongRevision.code(),
            Self::Deploy(error) => error.code(),
            Self::Interrupted => "interrupted",
            Self::ClosedPipe => "closed",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Parses arguments (the first is the program's name), runs the verb, prints what went wrong.
pub async fn main(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    // Arguments that are wrong tell of no flag; whoever reads JSON wants it of these, too.
    let json = arguments.iter().any(|argument| argument == "--json");
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => return usage(&error, json),
    };
    let out = Output { json: cli.json };
    let ended = run(cli.command, out).await;
    telemetry::flush();
    match ended {
        Ok(exit) => exit,
        Err(error) => {
            if !matches!(error, Error::ClosedPipe) {
                out.error(&error);
            }
            error.exit()
        }
    }
}

/// Runs a verb.
///
/// # Errors
/// Why it failed; [`Error::exit`] is the exit for it.
pub async fn run(command: Command, out: Output) -> Result<Exit, Error> {
    match command {
        Command::New(args) => new::run(&args, out),
        Command::Build(args) => build::run(&args, out).await,
        Command::Config(args) => config::run(&args, out),
        Command::Call(args) => call::call(args, out).await,
        Command::Query(args) => call::query(args, out).await,
        Command::Load(args) => load::run(args, out).await,
        Command::Status(args) => status::run(&args, out).await,
        Command::Shards(args) => shards::run(&args, out).await,
        Command::Shard(args) => shard::run(args.verb, out).await,
        Command::Nodes(args) => nodes::list(&args, out).await,
        Command::Node(args) => nodes::order(args.verb, out).await,
        Command::Doctor(args) => doctor::run(&args, out).await,
        Command::Dev(args) => dev::run(&args, out).await,
        Command::Serve(args) => serve::run(&args, out).await,
        Command::Verify(args) => verify::run(&args, out).await,
        Command::Conformance(args) => conformance::run(&args, out).await,
        Command::Bench(args) => bench::run(&args, out).await,
        Command::Deploy(args) => deploy::run(&args, out).await,
        Command::Rollback(args) => rollout::back(&args, out).await,
        Command::Rollout(args) => rollout::run(args.verb, out).await,
        Command::Revisions(args) => revisions::list(args, out).await,
        Command::Revision(args) => revisions::show(args.verb, out).await,
        Command::Modules(args) => revisions::modules(&args, out).await,
    }
}

/// Prints help, the version, or what is wrong with the arguments. Not `error.exit()`: a closed pipe is no failure.
fn usage(error: &clap::Error, json: bool) -> Exit {
    let text = error.render();
    let is_answer = matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    );
    if is_answer {
        let _ = error.print();
        let _ = io::stdout().flush();
        return Exit::Done;
    }
    if json {
        let text = text.to_string();
        let message = text.trim().trim_start_matches("error: ").to_owned();
        Output { json }.error(&Error::Usage(message));
        return Exit::Usage;
    }
    let _ = error.print().or_else(|_| write!(io::stderr(), "{text}"));
    Exit::Usage
}

#[cfg(test)]
mod tests;

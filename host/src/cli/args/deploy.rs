//! The arguments of the verbs that deploy, and look at what is deployed.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};

use super::{Assignment, Server, key_value};
use crate::config::units::Span;

/// The exits of every verb that waits for a rollout.
macro_rules! exits {
    () => {
        "\
Exit codes, beside those of `quarry --help`: 0 every shard runs it (or did before), 4 refused, by a node that cannot run it too,
5 rolled back, 6 not adopted within --timeout (it goes on), 7 superseded by another rollout, 8 begun and not adopted yet: with
--no-wait, with --store, and when a canary waits for `quarry rollout promote`. Ctrl-C ends the wait and not the rollout.
"
    };
}

pub(in crate::cli) const DEPLOY_EXAMPLES: &str = concat!(
    exits!(),
    "
Examples:
  quarry deploy counter.wasm
  quarry deploy examples/counter --option start=5 --note 'count from five'
  quarry deploy . --plan                           what it would change, and nothing else
  quarry deploy . --wave 25% --bake 1m             a quarter of the shards, then the next, each watched for a minute
  quarry deploy . --canary 5%                      then `quarry rollout promote`, or `abort`
  quarry deploy . --shards 0-3
  quarry deploy main=./app users=users.wasm --prefix users=u/ --option users.limit=3
  quarry deploy ./oci-layout-folder --server http://10.0.0.7:7070
  quarry deploy counter.wasm --store s3://bucket   with no node at hand; they follow when they run"
);

pub(in crate::cli) const ROLLBACK_EXAMPLES: &str = concat!(
    "Without N, a rollout in progress is taken back, and otherwise the revision before is rolled out.\n",
    exits!(),
    "
Examples:
  quarry rollback
  quarry rollback 3"
);

pub(in crate::cli) const ROLLOUT_EXAMPLES: &str = concat!(
    exits!(),
    "
Examples:
  quarry rollout status
  quarry rollout status --watch
  quarry rollout promote
  quarry rollout pause && quarry rollout resume
  quarry rollout abort"
);

pub(in crate::cli) const MODULES_EXAMPLES: &str = "\
Examples:
  quarry modules
  quarry modules --store s3://bucket --json";

pub(in crate::cli) const REVISIONS_EXAMPLES: &str = "\
Examples:
  quarry revisions
  quarry revisions --limit 5 --json
  quarry revisions prune --keep 20                 never what runs, or what a rollback goes back to
  quarry revisions prune 7";

pub(in crate::cli) const REVISION_EXAMPLES: &str = "\
Examples:
  quarry revision show 7
  quarry revision show 7 --json | jq .modules";

/// Where the cluster is: one of its nodes, or its bucket.
#[derive(Clone, Debug, Args)]
pub struct Where {
    #[command(flatten)]
    pub server: Server,
    /// Work on the cluster's bucket alone, without a node: for one whose nodes are down
    #[arg(long, value_name = "URL", help_heading = "Without a node")]
    pub store: Option<String>,
    /// An option of the store
    #[arg(long, value_name = "NAME=VALUE", value_parser = key_value, requires = "store", help_heading = "Without a node")]
    pub store_option: Vec<Assignment>,
    /// Prefix of everything in the store
    #[arg(
        long,
        value_name = "PREFIX",
        requires = "store",
        help_heading = "Without a node"
    )]
    pub path: Option<String>,
}

/// How long to wait for the end of a rollout.
#[derive(Clone, Copy, Debug, Args)]
pub struct Await {
    /// Order it and do not wait for its end; never exits with 0, unless nothing is to be done
    #[arg(long)]
    pub no_wait: bool,
    /// Give up waiting after this long; the rollout goes on [default: 10m; with --store do not wait]
    #[arg(long, value_name = "TIME", conflicts_with = "no_wait")]
    pub timeout: Option<Span>,
}

/// A component to deploy, with the name of its module where that is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeployTarget {
    pub name: Option<String>,
    pub path: PathBuf,
}

/// Arguments of `quarry deploy`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("first").args(["wave", "canary", "chosen"]))]
pub struct Deploy {
    /// A component, a guest's project (which is built), or the folder of an OCI image layout. Several, each with a name, are the modules
    /// of one revision, in the order in which they start; methods of a module are called as `NAME/METHOD`, those of the first also as
    /// `METHOD`
    #[arg(value_name = "[NAME=]FILE|DIR", required = true, value_parser = part)]
    pub targets: Vec<DeployTarget>,
    /// Show what it would change, and change nothing
    #[arg(long)]
    pub plan: bool,
    /// An option for the guest; the value is JSON, or else text
    #[arg(long, value_name = "[MODULE.]NAME=VALUE", value_parser = key_value)]
    pub option: Vec<Assignment>,
    /// A limit of the guest that differs from the nodes' own, e.g. `memory=64MiB`
    #[arg(long, value_name = "[MODULE.]NAME=VALUE", value_parser = key_value)]
    pub limit: Vec<Assignment>,
    /// Confine a module to the keys that begin with this
    #[arg(long, value_name = "MODULE=PREFIX", value_parser = key_value)]
    pub prefix: Vec<Assignment>,
    /// What the guest may use beyond its shard, e.g. `http:api.example.com`, for HTTP requests to that host
    #[arg(long, value_name = "[MODULE=]http:HOST[:PORT]")]
    pub grant: Vec<String>,
    /// Why, for whoever reads `quarry revisions`
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    pub note: String,
    /// So many shards more in each step, e.g. `25%`
    #[arg(long, value_name = "PERCENT", value_parser = percent, help_heading = "Rollout")]
    pub wave: Option<u8>,
    /// So many shards first, and the rest after `quarry rollout promote`
    #[arg(long, value_name = "PERCENT", value_parser = percent, help_heading = "Rollout")]
    pub canary: Option<u8>,
    /// These shards first, e.g. `0-3,7`, and the rest after `quarry rollout promote`
    #[arg(
        long = "shards",
        value_name = "RANGES",
        help_heading = "Rollout",
        id = "chosen"
    )]
    pub shards: Option<String>,
    /// Watch each step for this long before the next
    #[arg(long, value_name = "TIME", help_heading = "Rollout")]
    pub bake: Option<Span>,
    /// Roll back when for so long no further shard comes to run it; a migration may take `limits.migrate_time` besides [default: 5m]
    #[arg(long, value_name = "TIME", help_heading = "Rollout")]
    pub step_timeout: Option<Span>,
    /// Roll back after more traps of the new revision than this
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        help_heading = "Rollback by itself"
    )]
    pub max_traps: u64,
    /// Roll back when by so much more of its calls fail than of the old revision's
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = percent_or_none, help_heading = "Rollback by itself")]
    pub max_errors: u8,
    /// Roll back when the slowest percent of its calls takes longer than so much of the old revision's time, e.g. `150%`
    #[arg(long, value_name = "PERCENT", value_parser = latency, help_heading = "Rollback by itself")]
    pub max_latency: Option<u32>,
    /// Judge errors and latency only after so many calls of each revision
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100,
        help_heading = "Rollback by itself"
    )]
    pub least_calls: u64,
    #[command(flatten)]
    pub wait: Await,
    #[command(flatten)]
    pub place: Where,
}

/// Arguments of `quarry rollback`.
#[derive(Debug, Args)]
pub struct Rollback {
    /// The revision to go back to
    #[arg(value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub revision: Option<u64>,
    #[command(flatten)]
    pub wait: Await,
    #[command(flatten)]
    pub place: Where,
}

/// Arguments of `quarry rollout`.
#[derive(Debug, Args)]
pub struct Rollout {
    #[command(subcommand)]
    pub verb: RolloutVerb,
}

/// What can be done to a rollout.
#[derive(Debug, Subcommand)]
pub enum RolloutVerb {
    /// Show how it goes, or how the last one ended
    Status {
        /// Show it until it ends
        #[arg(long)]
        watch: bool,
        #[command(flatten)]
        place: Where,
    },
    /// Have the rest of the shards follow a canary, and wait until they have
    Promote {
        #[command(flatten)]
        wait: Await,
        #[command(flatten)]
        place: Where,
    },
    /// Reach no further shard for now
    Pause {
        #[command(flatten)]
        place: Where,
    },
    /// Go on after a pause
    Resume {
        #[command(flatten)]
        place: Where,
    },
    /// Go back, and wait until every shard has
    Abort {
        #[command(flatten)]
        wait: Await,
        #[command(flatten)]
        place: Where,
    },
}

/// Arguments of `quarry modules`.
#[derive(Debug, Args)]
pub struct Modules {
    #[command(flatten)]
    pub place: Where,
}

/// Arguments of `quarry revisions`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Revisions {
    #[command(subcommand)]
    pub verb: Option<RevisionsVerb>,
    /// List so many, the newest first
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub limit: u16,
    /// List those below this number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub below: Option<u64>,
    #[command(flatten)]
    pub place: Where,
}

/// What can be done to revisions.
#[derive(Debug, Subcommand)]
pub enum RevisionsVerb {
    /// Remove old ones, and the modules that no other one needs
    Prune {
        /// Only this one
        #[arg(value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        revision: Option<u64>,
        /// Leave so many of the newest; what runs, and what a rollback goes back to, stays anyway
        #[arg(long, value_name = "K", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "revision")]
        keep: u32,
        #[command(flatten)]
        place: Where,
    },
}

/// Arguments of `quarry revision`.
#[derive(Debug, Args)]
pub struct Revision {
    #[command(subcommand)]
    pub verb: RevisionVerb,
}

/// What can be done to a revision.
#[derive(Debug, Subcommand)]
pub enum RevisionVerb {
    /// Show what it is made of
    Show {
        /// Its number
        #[arg(value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        revision: u64,
        #[command(flatten)]
        place: Where,
    },
}

/// What stands before a `=` is a name, unless it is part of a path.
fn part(text: &str) -> Result<DeployTarget, String> {
    if text.is_empty() {
        return Err("write FILE|DIR, or NAME=FILE|DIR".into());
    }
    match text.split_once('=') {
        Some((name, path)) if !name.contains(['/', '\\']) => {
            if path.is_empty() {
                return Err(format!(
                    "`{text}` names nothing to deploy: write {name}=FILE|DIR"
                ));
            }
            Ok(DeployTarget {
                name: Some(name.into()),
                path: path.into(),
            })
        }
        _ => Ok(DeployTarget {
            name: None,
            path: text.into(),
        }),
    }
}

fn percent(text: &str) -> Result<u8, String> {
    match percent_or_none(text) {
        Ok(percent) if percent > 0 => Ok(percent),
        _ => Err("write 1% to 100%".into()),
    }
}

fn percent_or_none(text: &str) -> Result<u8, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse().ok();
    number
        .filter(|percent| *percent <= 100)
        .ok_or_else(|| "write 0% to 100%".into())
}

fn latency(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse().ok();
    number
        .filter(|percent| (100..=10_000).contains(percent))
        .ok_or_else(|| "write 100% to 10000%".into())
}

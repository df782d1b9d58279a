//! The arguments of every verb.

use std::{fmt, path::PathBuf};

use clap::{ArgGroup, Args, Subcommand, ValueEnum};

use super::language::Language;
use crate::bench::cluster::Part;
use crate::config::units::Span;

mod compile;
mod conformance;
mod deploy;
mod operate;

use compile::BENCH_COMPILE_EXAMPLES;
pub use compile::BenchCompile;
use conformance::CONFORMANCE_EXAMPLES;
pub use conformance::Conformance;

pub use deploy::{
    Await, Deploy, DeployTarget, Modules, Revision, RevisionVerb, Revisions, RevisionsVerb,
    Rollback, Rollout, RolloutVerb, Where,
};
use deploy::{
    DEPLOY_EXAMPLES, MODULES_EXAMPLES, REVISION_EXAMPLES, REVISIONS_EXAMPLES, ROLLBACK_EXAMPLES,
    ROLLOUT_EXAMPLES,
};
use operate::{NODE_EXAMPLES, NODES_EXAMPLES, SHARD_EXAMPLES};
pub use operate::{NodeOrder, NodeVerb, Nodes, Shard, ShardVerb, Wait};

/// A verb and its arguments.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a guest from its source: build it, serve it, swap it in on each change.
    #[command(after_long_help = DEV_EXAMPLES)]
    Dev(Dev),
    /// Run a node.
    #[command(after_long_help = SERVE_EXAMPLES)]
    Serve(Serve),
    /// Make the project of a new guest.
    #[command(after_long_help = NEW_EXAMPLES)]
    New(New),
    /// Build the guest of a project and say where its component is.
    #[command(after_long_help = BUILD_EXAMPLES)]
    Build(Build),
    /// Check that a component can run here, without running it.
    #[command(after_long_help = VERIFY_EXAMPLES)]
    Verify(Verify),
    /// Roll a guest out to every shard, and wait until each runs it.
    #[command(after_long_help = DEPLOY_EXAMPLES)]
    Deploy(Deploy),
    /// Go back to an older revision.
    #[command(after_long_help = ROLLBACK_EXAMPLES)]
    Rollback(Rollback),
    /// Watch a rollout, or decide how it goes on.
    #[command(after_long_help = ROLLOUT_EXAMPLES)]
    Rollout(Rollout),
    /// List the revisions of the cluster, or remove old ones.
    #[command(after_long_help = REVISIONS_EXAMPLES)]
    Revisions(Revisions),
    /// Show a revision.
    #[command(after_long_help = REVISION_EXAMPLES)]
    Revision(Revision),
    /// List the components in the cluster's bucket.
    #[command(after_long_help = MODULES_EXAMPLES)]
    Modules(Modules),
    /// Call a method of a guest and print its reply.
    #[command(after_long_help = CALL_EXAMPLES)]
    Call(Call),
    /// Ask a read-only query of a guest and print its reply.
    #[command(after_long_help = QUERY_EXAMPLES)]
    Query(Query),
    /// Call a method once per line of a file.
    #[command(after_long_help = LOAD_EXAMPLES)]
    Load(Load),
    /// Show how the cluster is.
    #[command(after_long_help = STATUS_EXAMPLES)]
    Status(Status),
    /// List the shards of the cluster: who has each, and how it is.
    #[command(after_long_help = SHARDS_EXAMPLES)]
    Shards(Shards),
    /// Move or restart a shard.
    #[command(after_long_help = SHARD_EXAMPLES)]
    Shard(Shard),
    /// List the nodes of the cluster.
    #[command(after_long_help = NODES_EXAMPLES)]
    Nodes(Nodes),
    /// Empty a node, or keep shards away from it.
    #[command(after_long_help = NODE_EXAMPLES)]
    Node(NodeOrder),
    /// Print the effective configuration and where each value came from.
    #[command(after_long_help = CONFIG_EXAMPLES)]
    Config(ShowConfig),
    /// Check what a store honours of what Quarry needs.
    #[command(after_long_help = DOCTOR_EXAMPLES)]
    Doctor(Doctor),
    /// Check that a language's guest and the host agree on the whole WIT.
    #[command(after_long_help = CONFORMANCE_EXAMPLES)]
    Conformance(Conformance),
    /// Measure this machine, guest beside native code.
    #[command(after_long_help = BENCH_EXAMPLES)]
    Bench(Bench),
}

const DEV_EXAMPLES: &str = "\
Examples:
  quarry dev examples/counter                      in memory, on http://127.0.0.1:7070
  quarry dev . --data-dir data --shards 4          keep the data
  quarry dev . --option greeting=Hello             options for the guest
  quarry dev . --nodes 3                           three nodes on one folder: kill one, and watch its shards move";

const SERVE_EXAMPLES: &str = "\
Every setting has a key: `quarry config --describe` lists them. Those without a flag of their own are given with --set.
Give credentials in the environment (QUARRY_STORE_OPTIONS_...): flags can be seen by other users of the machine.

Examples:
  quarry serve --store file:///var/lib/quarry --module counter.wasm
  quarry serve --store s3://bucket --store-option aws_region=eu-central-1 --shards 64 --listen 0.0.0.0:7070
  quarry serve --store s3://bucket --module counter.wasm --strategy lease --name a --internal-listen 0.0.0.0:7071 --advertise 10.0.0.5:7071
  quarry serve --config quarry.toml --set http.max_body=1MiB --limit memory=64MiB";

const NEW_EXAMPLES: &str = "\
Examples:
  quarry new greeter && quarry dev greeter
  quarry new greeter --sdk-path ../quarry/guest-sdk";

const BUILD_EXAMPLES: &str = "\
The command is `module.build` of quarry.toml; for Rust, without one, `cargo build --release --target wasm32-wasip2`.

Examples:
  quarry build
  quarry build examples/counter --json
  quarry build --update-sdk my-guest";

const VERIFY_EXAMPLES: &str = "\
Examples:
  quarry verify counter.wasm
  quarry verify examples/counter --option start=5";

const CALL_EXAMPLES: &str = "\
The reply's bytes go to standard output as they are. A call that was sent is never sent again, so after a timeout it may
have run or not.

Examples:
  quarry call increment --key visits
  quarry call put --key user/1 --data '{\"name\":\"Ann\"}'
  quarry call put --key photo/1 --file photo.jpg --timeout 10s
  generate | quarry call import --shard 3 --file -
  quarry call increment --key visits --durability applied -i
  quarry call health --revision 7                  one call to a shard that runs revision 7, such as a canary
  quarry call increment --key visits --revision 7  refused, and not run, where its shard runs another one";

const QUERY_EXAMPLES: &str = "\
A query sees every write that was applied before it, and waits until what it shows is durable. With --read durable it
sees only what is durable already, and never waits.

Examples:
  quarry query get --key visits
  quarry query scan --shard 0 --read durable
  quarry query count --revision 7                  of a shard that runs revision 7";

const LOAD_EXAMPLES: &str = "\
Formats: `lines` takes each line as both the key and the payload; `tsv` takes the column --key (a number from 1, or a
title of the first line, which is then not sent; default 1) as the key and the other columns as the payload; `jsonl`
takes the field --key of each object as the key and the line as the payload. Blank lines are passed over. Failed lines
are listed with their numbers. A call that was sent is never sent again. Keys travel in the path, of at most 65,534 bytes (`http.max_uri`),
in which a byte other than A-Z a-z 0-9 . _ ~ - takes three.

Exit codes: 0 when every line was acknowledged, 1 when the file could not be read to its end, 3 when calls did not reach the
node or lost their connection, 4 when lines were refused, here or by the node.

Examples:
  quarry load users.jsonl --format jsonl --key id --method put
  seq 100000 | quarry load - --method increment --concurrency 256";

const STATUS_EXAMPLES: &str = "\
Examples:
  quarry status
  quarry status --server http://10.0.0.7:7070 --json";

const SHARDS_EXAMPLES: &str = "\
Examples:
  quarry shards
  quarry shards --json | jq '.[] | select(.status != \"running\")'";

const CONFIG_EXAMPLES: &str = "\
Layers, each over the one before: defaults, quarry.toml (of this folder, or --config), environment, flags. Credentials are
not shown. The output is a file that gives the same configuration, credentials apart.

Examples:
  quarry config
  QUARRY_SHARDS=4 quarry config --set http.max_body=1MiB --json
  quarry config --describe                         every key with its default, bounds and variable";

const DOCTOR_EXAMPLES: &str = "\
Examples:
  quarry doctor --store file:///var/lib/quarry
  quarry doctor --store s3://bucket --store-option aws_endpoint=http://localhost:8333";

const BENCH_EXAMPLES: &str = "\
Examples:
  quarry bench --quick
  quarry bench --store file:///tmp/bench --only durable --json
  quarry bench cluster --quick                     several nodes: failover, moves, requests to the store";

const BENCH_SWAP_EXAMPLES: &str = "\
Every reply is checked: a call that fails, or a count that is not the one before and one more, ends the bench with what it was.

Examples:
  quarry bench swap
  quarry bench swap --quick --store memory:
  quarry bench swap --component python.wasm --json";

const BENCH_CLUSTER_EXAMPLES: &str = "\
Everything runs in this process, over one store in memory; nothing is left behind. Ctrl-C ends it; what was found until then was
printed. All of it takes about twenty minutes, with --quick about five.

Examples:
  quarry bench cluster --quick
  quarry bench cluster --only move --only remote
  quarry bench cluster --only failover --json";

/// Settings that most verbs with a node take. Without one of these, a key has its value from the environment, the file,
/// or its default.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Configuration")]
pub struct Settings {
    /// Read this file instead of ./quarry.toml
    #[arg(long, value_name = "FILE", env = "QUARRY_CONFIG")]
    pub config: Option<PathBuf>,
    /// Set any key, e.g. `http.max_body=1MiB`. Flags of their own win over this one
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    pub set: Vec<Assignment>,
    /// Where the data lies: memory:, file:///DIR, s3://BUCKET, gs://BUCKET, az://CONTAINER and others (key `store`)
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,
    /// An option of the store (key `store_options`)
    #[arg(long, value_name = "NAME=VALUE", value_parser = key_value)]
    pub store_option: Vec<Assignment>,
    /// Prefix of everything in the store (key `path`)
    #[arg(long, value_name = "PREFIX")]
    pub path: Option<String>,
    /// How many shards; fixed for the life of the data (key `shards`)
    #[arg(long, value_name = "N")]
    pub shards: Option<String>,
    /// The component to run (key `module.path`)
    #[arg(long, value_name = "FILE")]
    pub module: Option<String>,
    /// An option for the guest; the value is JSON, or else text (key `module.options`)
    #[arg(long, value_name = "NAME=VALUE", value_parser = key_value)]
    pub option: Vec<Assignment>,
    /// What the guest may use beyond its shard, e.g. `http:api.example.com` (key `module.grants`)
    #[arg(long, value_name = "http:HOST[:PORT]")]
    pub grant: Vec<String>,
    /// Where HTTP listens; port 0 takes a free one (key `http.listen`)
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// This node's name, unique in the cluster (key `node`)
    #[arg(long, value_name = "NAME", visible_alias = "name")]
    pub node: Option<String>,
    /// The cluster's name (key `cluster`)
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Which shards this node opens: local, static or lease (key `strategy`)
    #[arg(long, value_name = "STRATEGY")]
    pub strategy: Option<String>,
    /// How long a lease lasts after its last renewal, e.g. `3s` (key `lease.ttl`)
    #[arg(long, value_name = "DURATION")]
    pub lease_ttl: Option<String>,
    /// Where this node listens for other nodes; port 0 takes a free one (key `internal.listen`)
    #[arg(long, value_name = "ADDRESS")]
    pub internal_listen: Option<String>,
    /// Where other nodes reach this one (key `internal.advertise`)
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise: Option<String>,
    /// Where this node is (key `lease.zone`)
    #[arg(long, value_name = "NAME")]
    pub zone: Option<String>,
    /// Check the store before shards open: true, background or false (key `probe`)
    #[arg(long, value_name = "WHEN")]
    pub probe: Option<String>,
    /// How merges are combined; fixed for the life of the data (key `merge_operator`)
    #[arg(long, value_name = "NAME")]
    pub merge_operator: Option<String>,
    /// A SlateDB setting; the value is JSON, or else text (key `settings`)
    #[arg(long, value_name = "NAME=VALUE", value_parser = key_value)]
    pub setting: Vec<Assignment>,
    /// A limit of the guest, e.g. `memory=64MiB` (key `limits`)
    #[arg(long, value_name = "NAME=VALUE", value_parser = key_value)]
    pub limit: Vec<Assignment>,
    /// Memory of the block cache, e.g. `1GiB` (key `cache.capacity`)
    #[arg(long, value_name = "SIZE")]
    pub cache: Option<String>,
    /// Least severe level logged, or directives per target (key `log.level`)
    #[arg(long, value_name = "FILTER")]
    pub log_level: Option<String>,
    /// text or json (key `log.format`)
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<String>,
}

/// Arguments of `quarry dev`.
#[derive(Debug, Args)]
pub struct Dev {
    /// The guest's project
    pub dir: PathBuf,
    /// Keep the data in this folder instead of in memory
    #[arg(long, value_name = "DIR", conflicts_with = "store")]
    pub data_dir: Option<PathBuf>,
    /// Run this many nodes, each a process of its own, on one data folder (a temporary one without --data-dir)
    #[arg(long, value_name = "N", conflicts_with = "store", value_parser = clap::value_parser!(u16).range(1..=16))]
    pub nodes: Option<u16>,
    #[command(flatten)]
    pub settings: Settings,
}

/// Arguments of `quarry serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// Be told over standard input by the process that started this one: `reload`, and the end when that ends
    #[arg(long, hide = true)]
    pub attended: bool,
    #[command(flatten)]
    pub settings: Settings,
}

/// Arguments of `quarry new`.
#[derive(Debug, Args)]
pub struct New {
    /// The project's name, or a path that ends in it
    #[arg(value_name = "NAME")]
    pub path: PathBuf,
    /// What the guest is written in
    #[arg(long, value_enum, default_value_t)]
    pub lang: Language,
    /// Folder of the guest SDK, for Rust; otherwise the one of the checkout that this program was built from, if it is there
    #[arg(long, value_name = "DIR", env = "QUARRY_SDK_PATH")]
    pub sdk_path: Option<PathBuf>,
}

/// Arguments of `quarry build`.
#[derive(Debug, Args)]
pub struct Build {
    /// The guest's project
    #[arg(default_value = ".")]
    pub dir: PathBuf,
    /// First put this program's SDK in the place of the project's copy of one (quarry_guest); the copy is kept in target/quarry_guest.before
    #[arg(long)]
    pub update_sdk: bool,
}

/// Arguments of `quarry verify`.
#[derive(Debug, Args)]
pub struct Verify {
    /// A component, or a project that was built
    #[arg(value_name = "FILE|DIR")]
    pub target: PathBuf,
    /// An option for the guest; the value is JSON, or else text
    #[arg(long, value_name = "NAME=VALUE", value_parser = key_value)]
    pub option: Vec<Assignment>,
}

/// Which node to talk to.
#[derive(Clone, Debug, Args)]
pub struct Server {
    /// The node to talk to
    #[arg(
        long,
        value_name = "URL",
        env = "QUARRY_SERVER",
        default_value = "http://127.0.0.1:7070"
    )]
    pub server: String,
}

/// Which shard to talk to: one of the two, or one that runs a revision.
#[derive(Clone, Debug, Args)]
#[command(group = ArgGroup::new("target").args(["key", "shard"]))]
pub struct Target {
    /// Go to the shard of this key; the guest gets the key
    #[arg(long, value_name = "KEY", required_unless_present_any = ["shard", "revision"])]
    pub key: Option<String>,
    /// Go to this shard
    #[arg(long, value_name = "N")]
    pub shard: Option<u32>,
    /// Only where the shard runs this revision when the turn comes; else it is refused (`wrong-revision`), and nothing runs. Without
    /// --key and --shard, go to the first shard that runs it
    #[arg(long, value_name = "N")]
    pub revision: Option<u64>,
}

/// What to send: nothing unless one is given.
#[derive(Clone, Debug, Args)]
#[command(group = ArgGroup::new("payload").args(["data", "file"]))]
pub struct Payload {
    /// Send this text
    #[arg(long, short = 'd', value_name = "TEXT", allow_hyphen_values = true)]
    pub data: Option<String>,
    /// Send this file's bytes; `-` is standard input
    #[arg(long, short = 'f', value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// When a call's reply comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Durability {
    /// Once its writes are in memory; a crash can still lose them
    Applied,
    /// Once its writes are durable
    Durable,
}

/// What a query sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Read {
    /// Every applied write; the reply waits until they are durable
    #[default]
    Applied,
    /// Only durable writes; the reply never waits
    Durable,
}

/// What `call` and `query` have in common.
#[derive(Clone, Debug, Args)]
pub struct Request {
    /// The guest's method
    pub method: String,
    #[command(flatten)]
    pub target: Target,
    #[command(flatten)]
    pub payload: Payload,
    /// Give up after this long (default: the node's `call.timeout`)
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<Span>,
    /// A header of the request; guests see those that begin with `x-` and a few more
    #[arg(long, short = 'H', value_name = "NAME: VALUE", value_parser = header)]
    pub header: Vec<Assignment>,
    /// Print the reply's headers first, to standard error
    #[arg(long, short = 'i')]
    pub include: bool,
    #[command(flatten)]
    pub server: Server,
}

/// Arguments of `quarry call`.
#[derive(Debug, Args)]
pub struct Call {
    #[command(flatten)]
    pub request: Request,
    /// When the reply comes [default: durable, unless the guest asks for earlier]
    #[arg(long, value_enum)]
    pub durability: Option<Durability>,
}

/// Arguments of `quarry query`.
#[derive(Debug, Args)]
pub struct Query {
    #[command(flatten)]
    pub request: Request,
    /// What the query sees
    #[arg(long, value_enum, default_value_t)]
    pub read: Read,
}

/// How the lines of a file are taken apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LineFormat {
    /// The whole line is both the key and the payload
    #[default]
    Lines,
    /// Columns, split by tabs
    Tsv,
    /// A JSON object a line
    Jsonl,
}

/// Arguments of `quarry load`.
#[derive(Debug, Args)]
pub struct Load {
    /// The file; `-` is standard input
    #[arg(default_value = "-")]
    pub file: PathBuf,
    /// The method to call
    #[arg(long, short = 'm', value_name = "METHOD", default_value = "put")]
    pub method: String,
    /// How the lines are taken apart
    #[arg(long, value_enum, default_value_t)]
    pub format: LineFormat,
    /// The field (jsonl) or column (tsv: a number from 1, or a title of the first line) that holds the key
    #[arg(long, value_name = "FIELD", required_if_eq("format", "jsonl"))]
    pub key: Option<String>,
    /// Calls in progress at a time
    #[arg(long, short = 'c', value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub concurrency: u16,
    /// When a call counts as done [default: durable, unless the guest asks for earlier]
    #[arg(long, value_enum)]
    pub durability: Option<Durability>,
    /// Give a call up after this long [default: the node's call.timeout]
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<Span>,
    /// Write the failed lines, with their numbers, here instead of to standard error
    #[arg(long, value_name = "FILE")]
    pub failed: Option<PathBuf>,
    /// Write the number of each acknowledged line here, as soon as its reply came
    #[arg(long, value_name = "FILE")]
    pub acked: Option<PathBuf>,
    /// Stop after so many calls in a row that did not reach the node
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    pub give_up_after: u64,
    #[command(flatten)]
    pub server: Server,
}

/// Arguments of `quarry status`.
#[derive(Debug, Args)]
pub struct Status {
    #[command(flatten)]
    pub server: Server,
}

/// Arguments of `quarry shards`.
#[derive(Debug, Args)]
pub struct Shards {
    #[command(flatten)]
    pub server: Server,
}

/// Arguments of `quarry config`.
#[derive(Debug, Args)]
pub struct ShowConfig {
    /// List every key with what it is for, its default, bounds and variable
    #[arg(long)]
    pub describe: bool,
    #[command(flatten)]
    pub settings: Settings,
}

/// Arguments of `quarry doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    #[command(flatten)]
    pub settings: Settings,
}

/// Arguments of `quarry bench`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Bench {
    #[command(subcommand)]
    pub what: Option<BenchOf>,
    /// Measure for a shorter time: rough figures in under a minute
    #[arg(long)]
    pub quick: bool,
    /// Where durable calls write (default: a temporary folder)
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,
    /// An option of the store
    #[arg(long, value_name = "NAME=VALUE", value_parser = key_value)]
    pub store_option: Vec<Assignment>,
    /// Only this group of measurements; may be given several times
    #[arg(long, value_name = "GROUP", value_parser = crate::bench::GROUPS)]
    pub only: Vec<String>,
    /// How long each measurement runs
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: u64,
}

/// What else `quarry bench` measures.
#[derive(Debug, Subcommand)]
pub enum BenchOf {
    /// Measure a cluster: several nodes in this process, each figure beside its bound and what others reach
    #[command(after_long_help = BENCH_CLUSTER_EXAMPLES)]
    Cluster(BenchCluster),
    /// Measure swaps under load: one revision for another and back, in place, on all shards of a node
    #[command(after_long_help = BENCH_SWAP_EXAMPLES)]
    Swap(BenchSwap),
    /// Measure what compiling a large component costs the calls and the leases of its node meanwhile
    #[command(after_long_help = BENCH_COMPILE_EXAMPLES)]
    Compile(BenchCompile),
}

/// Arguments of `quarry bench swap`.
#[derive(Debug, Args)]
pub struct BenchSwap {
    /// Fewer swaps: rough figures
    #[arg(long)]
    pub quick: bool,
    /// How many swaps
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub swaps: u32,
    /// How many shards
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub shards: u32,
    /// How many callers, each of which increments counters of its own
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub callers: u32,
    /// Swap between the bench's own guest and this component, whose method `increment` counts its key and replies with the count
    #[arg(long, value_name = "FILE")]
    pub component: Option<PathBuf>,
    /// Where the counters lie (default: a temporary folder)
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,
}

/// Arguments of `quarry bench cluster`.
#[derive(Debug, Args)]
pub struct BenchCluster {
    /// Fewer rounds: rough figures
    #[arg(long)]
    pub quick: bool,
    /// Only these parts
    #[arg(long, value_name = "PART", value_enum)]
    pub only: Vec<Part>,
    /// How long each request to the store takes
    #[arg(long, value_name = "TIME", default_value = "20ms")]
    pub latency: Span,
    /// Run logic in Rust instead of a component, which would have to be built first
    #[arg(long)]
    pub native: bool,
}

/// A name and its value.
#[derive(Clone, PartialEq, Eq)]
pub struct Assignment {
    pub name: String,
    pub value: String,
}

impl fmt::Debug for Assignment {
    /// Without the value, which may be a credential.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=...", self.name)
    }
}

fn key_value(text: &str) -> Result<Assignment, String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok(Assignment {
            name: name.into(),
            value: value.into(),
        }),
        _ => Err("write NAME=VALUE".into()),
    }
}

fn header(text: &str) -> Result<Assignment, String> {
    let (name, value) = text.split_once(':').ok_or("write NAME: VALUE")?;
    let name = http::HeaderName::try_from(name.trim()).map_err(|error| error.to_string())?;
    let value = value.trim();
    http::HeaderValue::from_str(value).map_err(|error| error.to_string())?;
    Ok(Assignment {
        name: name.to_string(),
        value: value.into(),
    })
}

//! The whole configuration: one struct per part, one declaration per key.
//!
//! Layers, each over the one before: the defaults below, `quarry.toml`, the environment (`QUARRY_...`), flags. All of it
//! is strict: what is unknown, of a wrong type or out of bounds is an error that names the key and where it came from,
//! and every such problem is reported at once. An embedder fills a [`Config`] by struct update and calls
//! [`Config::validate`], or loads one with [`Config::load`]:
//!
//! ```
//! use quarry::config::Config;
//!
//! let config = Config { shards: 4, store: "file:///var/lib/quarry".into(), ..Config::default() };
//! config.validate().unwrap();
//! ```

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use serde_json::{Map, Value};

mod error;
mod kind;
mod layers;
mod redact;
mod section;
mod several;
mod show;
pub mod units;
mod words;

pub use error::{Error, Problem};
pub use kind::Kind;
pub use layers::{FileSource, Flag, Loaded, Origin, Sources};
pub use redact::{REDACTED, is_credential};
pub use section::Key;
pub use several::{ADVERTISE_MAX_BYTES, StaticNode};
pub use show::{describe, describe_json};
pub use words::{Layout, LogFormat, Probe, Strategy};

use crate::db::OP_OVERHEAD_BYTES;
use crate::guest::timers::TIMERS_MAX;
use section::section;
use units::{GIB, KIB, MIB, Size, Span};

/// SlateDB's own ceiling for the length of a key, in bytes: lengths are stored in two bytes.
pub const KEY_MAX_BYTES: u64 = 65_535;
/// The longest path and query that HTTP's library takes, in bytes.
const URI_MAX_BYTES: u64 = 65_534;
/// What `quarry dev` watches in a project of any language.
const WATCHED: [&str; 8] = [
    "src",
    "app",
    "wit",
    "quarry_guest",
    "Cargo.toml",
    "package.json",
    "tsconfig.json",
    "requirements.txt",
];
/// The most instances of components that a node can have; see the pool in `guest::wasm`.
const INSTANCES_MAX: u32 = 12_000;

section! {
    /// What a node needs to run.
    Config, "", TOP_KEYS, |c| c;

    /// The cluster's name, as logs, metrics and guests see it.
    cluster: String = "quarry".into(), Kind::Name;
    /// This node's name, unique in the cluster. Default: the host's name.
    node: String = host_name(), Kind::Name;
    /// Where the data lies.
    store: String = "memory:".into(), Kind::Url;
    /// Options of the store, like `aws_endpoint`. Which names are valid depends on the store.
    store_options: BTreeMap<String, String> = BTreeMap::new(), Kind::Strings;
    /// Prefix of everything in the store, so that clusters can share a bucket.
    path: String = String::new(), Kind::Prefix;
    /// How many shards the cluster has. Fixed for the life of the data.
    shards: u32 = 16, Kind::Count(1, 65_536);
    /// How merges of a key are combined. Fixed for the life of the data. Without one, guests cannot merge.
    merge_operator: Option<String> = None, Kind::Name;
    /// Whether the store is checked before any shard opens, beside the opening ones, or not at all.
    probe: Probe = Probe::Before, Kind::SwitchOr("background");
    /// Which shards this node opens. `local`: all of them; `static`: those of a fixed list; `lease`: its share, as leases in the store say.
    strategy: Strategy = Strategy::Local, Kind::Choice(&["local", "static", "lease"]);
    /// How often each shard reports how far its durable writes are behind its applied ones.
    lag_interval: Duration = secs(1), Kind::Duration(millis(100), secs(3600));
    /// Raw SlateDB settings, merged by key over Quarry's profile. The names are checked when the node starts.
    settings: Map<String, Value> = Map::new(), Kind::Table;

    parts {
        /// How nodes share the shards by leases in the store.
        lease: Lease;
        /// Which node has which shard, with `strategy = "static"`. Nothing fails over.
        fixed: Static;
        /// How nodes reach each other.
        internal: Internal;
        /// How shards open, close and make writes durable.
        shard: Shard;
        /// The block cache of the node.
        cache: Cache;
        /// How many threads do what.
        threads: Threads;
        /// The HTTP side.
        http: Http;
        /// Calls, as their callers see them.
        call: Call;
        /// The guest.
        module: Module;
        /// What a guest may use.
        limits: Limits;
        /// How nodes follow what is deployed to their cluster.
        deploy: Deploy;
        /// Logging.
        log: Log;
    }
}

section! {
    /// How nodes share the shards by leases in the store, with `strategy = "lease"`. All nodes of a cluster have the same `ttl`.
    Lease, "lease.", LEASE_KEYS, |c| c.lease;

    /// How long a lease lasts after its last renewal. A node that died is replaced after this, `interval` and the time of an open.
    ttl: Duration = secs(15), Kind::Duration(secs(1), secs(600));
    /// How often a node renews its leases and looks at the others. Default: a third of `ttl`.
    interval: Option<Duration> = None, Kind::Duration(millis(10), secs(300));
    /// How long before the end of a lease its owner stops. Default: a sixth of `ttl`.
    margin: Option<Duration> = None, Kind::Duration(millis(50), secs(300));
    /// How leases lie in the store. `session`: one small write a node and round; `shard`: one a shard and round. The first node's layout is
    /// kept in the cluster's record, and a node with another one refuses to start.
    layout: Layout = Layout::Session, Kind::Choice(&["session", "shard"]);
    /// Where this node is, for people, and for a placement of one's own: the default one does not look at it.
    zone: Option<String> = None, Kind::Name;
}

section! {
    /// Which node has which shard, with `strategy = "static"`.
    Static, "static.", STATIC_KEYS, |c| c.fixed;

    /// All nodes, `NAME` or `NAME=HOST:PORT` (its `internal.advertise`). Shard N is on the one at N mod their number.
    nodes: Vec<String> = Vec::new(), Kind::List;
    /// Instead of that rule: each node's shards, like `0-3,8`. Every shard is on exactly one node.
    map: BTreeMap<String, String> = BTreeMap::new(), Kind::Strings;
}

section! {
    /// How nodes reach each other, with `strategy = "static"` or `"lease"`.
    Internal, "internal.", INTERNAL_KEYS, |c| c.internal;

    /// Where this node listens for other nodes of its cluster. Port 0 takes a free one.
    listen: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), Kind::Address;
    /// The `HOST:PORT` at which other nodes reach it. Default: what `listen` became.
    advertise: Option<String> = None, Kind::Text(ADVERTISE_MAX_BYTES);
    /// Connections of other nodes at once; more wait to be accepted. Each node makes two.
    max_connections: usize = 1024, Kind::Count(1, 65_536);
    /// Requests in progress to one other node; more are refused with 429.
    max_requests: usize = 8192, Kind::Count(1, 1_000_000);
}

section! {
    /// How shards open, close and make writes durable.
    Shard, "shard.", SHARD_KEYS, |c| c.shard;

    /// Longest that opening a shard's database may take.
    open_timeout: Duration = secs(60), Kind::Duration(secs(1), secs(3600));
    /// Longest that closing a shard's database may take, its last flush included.
    close_timeout: Duration = secs(30), Kind::Duration(secs(1), secs(3600));
    /// Shortest time between two WAL objects of a shard: a longer one costs fewer requests, and replies wait longer.
    flush_interval: Duration = Duration::ZERO, Kind::Duration(Duration::ZERO, secs(60));
    /// A write that nobody waits for is durable this long after it was applied, plus the time of a PUT.
    flush_after: Duration = millis(100), Kind::Duration(millis(1), secs(60));
    /// Shards that open at the same time.
    max_concurrency: usize = 16, Kind::Count(1, 1024);
    /// WAL objects after which a memtable is flushed, so that a shard opens fast: an open reads them again.
    memtable_flush_wal_objects: u64 = 256, Kind::Count(1, 65_536);
}

section! {
    /// The block cache of the node.
    Cache, "cache.", CACHE_KEYS, |c| c.cache;

    /// Memory for blocks of the store, shared by all shards of the node; 0B turns the cache off.
    capacity: u64 = 256 * MIB, Kind::Size(0, 1024 * GIB);
}

section! {
    /// How many threads do what. A thread more is a few MiB; none of them is taken from another kind.
    Threads, "threads.", THREAD_KEYS, |c| c.threads;

    /// Threads that run shards: guest, database and replies. Default: one per core.
    shard: usize = cores(), Kind::Count(1, 1024);
    /// Threads for uploads, flushes and polls.
    storage: usize = 2, Kind::Count(1, 1024);
    /// Threads for HTTP.
    http: usize = 2, Kind::Count(1, 1024);
    /// Threads for queries. Default: one per core.
    query: usize = cores(), Kind::Count(1, 1024);
    /// Threads for compaction and garbage collection, at low priority.
    compaction: usize = 1, Kind::Count(1, 1024);
    /// Threads for the connections to other nodes. There are none with `strategy = "local"`.
    peers: usize = 2, Kind::Count(1, 1024);
    /// Threads that compile components, at low priority. Default: one per core.
    compile: usize = cores(), Kind::Count(1, 1024);
}

section! {
    /// The HTTP side.
    Http, "http.", HTTP_KEYS, |c| c.http;

    /// Where to listen. Port 0 takes a free one.
    listen: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, 7070)), Kind::Address;
    /// Longest body of a request.
    max_body: u64 = 16 * MIB, Kind::Size(0, GIB);
    /// Bodies of all requests in progress together; a request over it is refused with 429.
    max_bodies: u64 = 256 * MIB, Kind::Size(KIB, 1024 * GIB);
    /// All headers of a request together.
    max_header: u64 = 16 * KIB, Kind::Size(8 * KIB, MIB);
    /// Path and query of a request, which hold its routing key. The protocol's own limit is the default.
    max_uri: u64 = URI_MAX_BYTES, Kind::Size(KIB, URI_MAX_BYTES);
    /// Origins of web pages that may make requests although they are not this node's own, like `https://app.example.com`; `*` is
    /// all. Replies have no CORS headers, so such a page does not see them.
    allow_origins: Vec<String> = Vec::new(), Kind::List;
    /// Names by which clients reach this node, such as a proxy's `api.example.com`; `*` is any. While it listens on a loopback address, only
    /// those, `localhost` and loopback addresses may stand in a request's `Host`, so that a web page whose name was made to
    /// point here cannot make requests. With names listed that holds for any address, and each node is reached by any address too.
    hosts: Vec<String> = Vec::new(), Kind::List;
    /// Connections at once; more wait to be accepted.
    max_connections: usize = 4096, Kind::Count(1, 1_000_000);
    /// A connection without a request for this long is closed.
    idle_timeout: Duration = secs(75), Kind::Duration(secs(1), secs(3600));
    /// Longest that the headers of a request may take to arrive.
    header_timeout: Duration = secs(10), Kind::Duration(millis(100), secs(600));
    /// Longest that a stop waits for the requests in progress.
    drain_timeout: Duration = secs(30), Kind::Duration(Duration::ZERO, secs(3600));
}

section! {
    /// Calls, as their callers see them.
    Call, "call.", CALL_KEYS, |c| c.call;

    /// How long a call may take whose caller does not say.
    timeout: Duration = secs(30), Kind::Duration(millis(1), secs(86_400));
    /// Longest timeout that a caller may ask for.
    max_timeout: Duration = secs(600), Kind::Duration(millis(1), secs(86_400));
    /// How often a call that was not sent, or was refused by a node that is not the owner, is tried again.
    retries: u32 = 3, Kind::Count(0, 10);
    /// How long a call may wait for a shard that moves, opens or fails over, within its timeout.
    park: Duration = secs(10), Kind::Duration(Duration::ZERO, secs(600));
    /// Calls that may wait so for one shard; more are refused.
    max_parked: usize = 1024, Kind::Count(0, 1_000_000);
    /// Pause before a retry, times the number of the attempt, with jitter.
    retry_delay: Duration = millis(100), Kind::Duration(millis(1), secs(10));
}

section! {
    /// The guest.
    Module, "module.", MODULE_KEYS, |c| c.module;

    /// The module's name within its revision.
    name: String = "main".into(), Kind::Name;
    /// The component's file. In a file's value, relative to the file. Without one, it is what the build of the language makes.
    path: Option<PathBuf> = None, Kind::File;
    /// What the guest is written in. `rust`, `typescript`, `javascript`, `python`, `c` and `go` are built by themselves; any other needs `module.build`.
    language: String = "rust".into(), Kind::Name;
    /// The command that builds the component, run by `sh` in the project's folder.
    build: Option<String> = None, Kind::Text(4096);
    /// Options for the guest, which checks them itself.
    options: Map<String, Value> = Map::new(), Kind::Table;
    /// What the guest may use beyond its shard, like `http:api.example.com`. Of what is deployed, the revision says it.
    grants: Vec<String> = Vec::new(), Kind::List;
    /// A call that shows something, for `quarry dev` to print: a method, a key, and a payload where it takes one.
    example: Option<String> = None, Kind::Text(1024);
    /// Files and folders whose change makes `quarry dev` build again, relative to the project.
    watch: Vec<String> = WATCHED.map(String::from).to_vec(), Kind::List;
}

section! {
    /// What a guest may use. An error that a limit causes names it.
    Limits, "limits.", LIMIT_KEYS, |c| c.limits;

    /// Memory of an instance.
    memory: u64 = 256 * MIB, Kind::Size(MIB, 4 * GIB);
    /// CPU time of a call.
    cpu_time: Duration = secs(1), Kind::Duration(millis(1), secs(3600));
    /// Time of a call, its waits included.
    wall_time: Duration = secs(30), Kind::Duration(millis(1), secs(86_400));
    /// Calls that may wait for a shard.
    queue_calls: usize = 1024, Kind::Count(1, 1_000_000);
    /// Payloads of the calls that may wait for a shard, and as much again of replies that wait until their writes are durable.
    queue_bytes: u64 = 64 * MIB, Kind::Size(KIB, 64 * GIB);
    /// A key in the database.
    key: u64 = KEY_MAX_BYTES, Kind::Size(1, KEY_MAX_BYTES);
    /// A value in the database.
    value: u64 = 16 * MIB, Kind::Size(1, GIB);
    /// All keys and values of a batch or a transaction, and 64 B for each operation. Holds the largest key with the largest value.
    batch: u64 = 32 * MIB, Kind::Size(1, GIB);
    /// Cursors, snapshots and transactions that a call may have open.
    open_resources: usize = 64, Kind::Count(1, 65_536);
    /// A transaction older than this is closed.
    transaction_age: Duration = secs(10), Kind::Duration(millis(1), secs(3600));
    /// What the guest of a shard may log a second; more is dropped, counted and said.
    log_bytes_per_second: u64 = 256 * KIB, Kind::Size(0, GIB);
    /// A reply.
    reply: u64 = 16 * MIB, Kind::Size(0, GIB);
    /// Durability notifications that a shard may have outstanding.
    notifications: usize = 65_536, Kind::Count(1, 16_777_216);
    /// Timers that a shard may have set.
    timers: usize = 10_000, Kind::Count(0, TIMERS_MAX as u64);
    /// Traps within `trap_window` that a shard survives; one more quarantines it.
    traps: u32 = 5, Kind::Count(0, 10_000);
    /// See `traps`.
    trap_window: Duration = secs(60), Kind::Duration(secs(1), secs(86_400));
    /// Instances of a shard for queries, at most.
    query_instances: usize = 4, Kind::Count(1, 256);
    /// Shards that may wait for each other, in calls from shard to shard. One more is refused.
    call_depth: usize = 16, Kind::Count(1, 64);
    /// The headers of an HTTP request or answer that a guest makes, and about 40 B for each name and each value.
    http_headers: u64 = 64 * KIB, Kind::Size(KIB, MIB);
    /// HTTP requests to hosts that are granted which an instance may have open at once.
    http_requests: usize = 8, Kind::Count(1, 1024);
    /// The body of an HTTP request that a guest makes.
    http_request_body: u64 = 16 * MIB, Kind::Size(0, GIB);
    /// The body of the answer to one.
    http_response_body: u64 = 16 * MIB, Kind::Size(0, GIB);
    /// Longest that connecting for one may take, within the time of the call that makes it.
    http_connect_time: Duration = secs(5), Kind::Duration(millis(1), secs(600));
    /// Instances of the whole node, at most; of components at most 12,000. Default: two per shard, so that all can be swapped at once,
    /// and 64 for queries. Queries never take the room that shards need: they have what is over two per shard, or half of what is over
    /// one per shard, up to 64, where that is more.
    instances: Option<u32> = None, Kind::Count(1, 1_000_000);
    /// Longest that a guest's stop may take.
    stop_time: Duration = secs(5), Kind::Duration(millis(1), secs(600));
    /// Longest that a guest's start may take.
    start_time: Duration = secs(30), Kind::Duration(millis(1), secs(3600));
    /// Longest that a swap of a shard waits for the call in progress (or timer, or durable tags), which is never cut short for it. Where that
    /// has not ended, the shard does not take the new revision and goes on with the one that it runs; a rollout then goes back.
    drain: Duration = secs(30), Kind::Duration(millis(1), secs(86_400));
    /// Longest that a guest may take to hand its memory over in a swap, and another to take it over. Calls of the shard wait for both.
    handoff_time: Duration = secs(5), Kind::Duration(millis(1), secs(600));
    /// The memory that a guest hands over in a swap.
    handoff_bytes: u64 = 16 * MIB, Kind::Size(0, GIB);
    /// Longest that one step of a guest's migration may take. Calls of the shard wait for it.
    migrate_step_time: Duration = secs(5), Kind::Duration(millis(1), secs(600));
    /// Longest that a migration of a shard may take in all, from its first step to its last, with the calls between them. A rollout goes back
    /// after its step timeout, which has to be longer.
    migrate_time: Duration = secs(600), Kind::Duration(millis(1), secs(86_400));
}

section! {
    /// How nodes follow what is deployed to their cluster.
    Deploy, "deploy.", DEPLOY_KEYS, |c| c.deploy;

    /// How often a node looks whether something was deployed, where nobody tells it: one small read. While a rollout is in progress it looks
    /// every second.
    poll: Duration = secs(10), Kind::Duration(millis(100), secs(3600));
}

section! {
    /// Logging, to standard error.
    Log, "log.", LOG_KEYS, |c| c.log;

    /// Least severe level, or directives per target. `RUST_LOG` sets it too, under `QUARRY_LOG_LEVEL`.
    level: String = "info,slatedb=warn".into(), Kind::Filter;
    /// Lines for people, or one JSON object a line.
    format: LogFormat = LogFormat::Text, Kind::Choice(&["text", "json"]);
}

impl Config {
    /// Every key, section by section, in the order of the documentation.
    pub fn keys() -> impl Iterator<Item = &'static Key> {
        let sections = [
            TOP_KEYS,
            LEASE_KEYS,
            STATIC_KEYS,
            INTERNAL_KEYS,
            SHARD_KEYS,
            CACHE_KEYS,
            THREAD_KEYS,
            HTTP_KEYS,
            CALL_KEYS,
            MODULE_KEYS,
            LIMIT_KEYS,
            DEPLOY_KEYS,
            LOG_KEYS,
        ];
        sections.into_iter().flatten()
    }

    /// Reads the layers.
    ///
    /// # Errors
    /// Every problem of every layer, each with its key and where it came from.
    pub fn load(sources: &Sources) -> Result<Loaded, Error> {
        layers::load(sources)
    }

    /// The value of a key as a flag or a variable would give it; none where there is no such key, or it is a table.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<String> {
        let key = Self::keys().find(|key| key.name == name)?;
        match (key.get)(self) {
            serde_json::Value::String(text) => Some(text),
            value @ (serde_json::Value::Number(_) | serde_json::Value::Bool(_)) => {
                Some(value.to_string())
            }
            _ => None,
        }
    }

    /// Sets a key, such as `limits.memory`, to a value as a flag or a variable would give it. How it fits with others is for
    /// [`Config::validate`].
    ///
    /// # Errors
    /// That there is no such key, or what is wrong with the value and what is valid.
    pub(crate) fn set(&mut self, name: &str, text: &str) -> Result<(), String> {
        let key = Self::keys().find(|key| key.name == name);
        let key = key.ok_or_else(|| format!("there is no key {name}"))?;
        let value = key.read(&key.kind.parse_text(text, key.optional))?;
        (key.set)(self, &value)
    }

    /// Checks every value and how they fit together.
    ///
    /// # Errors
    /// Every problem at once, each with its key.
    pub fn validate(&self) -> Result<(), Error> {
        let faults =
            Self::keys().filter_map(|key| Some((key.name, key.read(&(key.get)(self)).err()?)));
        let faults: Vec<_> = faults.chain(self.misfits()).collect();
        Error::of(
            faults
                .into_iter()
                .map(|(key, message)| Problem {
                    key: key.into(),
                    origin: None,
                    message,
                })
                .collect(),
        )
    }

    /// Instances that the node may have at once: `limits.instances`, or what follows from the number of shards.
    #[must_use]
    pub fn instances(&self) -> u32 {
        self.limits
            .instances
            .unwrap_or_else(|| self.shards.saturating_mul(2).saturating_add(64))
    }

    /// Instances that run calls when every shard is open here: one a shard.
    #[must_use]
    pub fn writers(&self) -> u32 {
        self.shards
    }

    /// What is wrong between keys whose values are fine alone.
    fn misfits(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let (limits, call) = (&self.limits, &self.call);
        if call.timeout > call.max_timeout {
            let (least, most) = (Span(call.timeout), Span(call.max_timeout));
            found.push((
                "call.timeout",
                format!("{least} is over call.max_timeout, {most}"),
            ));
        }
        let overhead = OP_OVERHEAD_BYTES as u64;
        let largest = limits
            .key
            .saturating_add(limits.value)
            .saturating_add(overhead);
        if largest > limits.batch {
            let [key, value, batch] = [limits.key, limits.value, limits.batch].map(Size);
            let (overhead, largest) = (Size(overhead), Size(largest));
            found.push((
                "limits.value",
                format!("{value} and limits.key, {key}, and {overhead} that each operation counts are {largest}, over limits.batch, {batch}: no such write could be made; lower it, or raise limits.batch to {largest}"),
            ));
        }
        if limits.cpu_time > limits.wall_time {
            let (cpu, wall) = (Span(limits.cpu_time), Span(limits.wall_time));
            found.push((
                "limits.cpu_time",
                format!("{cpu} is over limits.wall_time, {wall}: it could never be used up"),
            ));
        }
        if self.http.max_body > limits.queue_bytes {
            let (body, queue) = (Size(self.http.max_body), Size(limits.queue_bytes));
            found.push((
                "http.max_body",
                format!("{body} is over limits.queue_bytes, {queue}: no such call could be queued"),
            ));
        }
        if self.http.max_bodies < self.http.max_body {
            let (bodies, body) = (Size(self.http.max_bodies), Size(self.http.max_body));
            found.push((
                "http.max_bodies",
                format!("{bodies} is under http.max_body, {body}: no such call could come in"),
            ));
        }
        for origin in &self.http.allow_origins {
            if !crate::http::is_origin(origin) {
                let origin = units::quoted(origin);
                found.push((
                    "http.allow_origins",
                    format!("{origin} is no origin: write SCHEME://HOST or SCHEME://HOST:PORT, or \"*\" for all"),
                ));
            }
        }
        for host in &self.http.hosts {
            if !crate::http::is_host(host) {
                let host = units::quoted(host);
                found.push((
                    "http.hosts",
                    format!("{host} is no name of a host: write one like \"api.example.com\", without scheme and port, or \"*\" for any"),
                ));
            }
        }
        for grant in &self.module.grants {
            if let Err(error) = grant.parse::<crate::deploy::grants::Grant>() {
                found.push(("module.grants", error.to_string()));
            }
        }
        if limits.instances.is_none() && self.instances() > INSTANCES_MAX {
            let (shards, instances) = (self.shards, self.instances());
            found.push((
                "shards",
                format!("limits.instances is unset, and two per shard and 64 are {instances} instances for {shards} shards; a node runs at most {INSTANCES_MAX} instances of components. Take at most {} shards, or set limits.instances: at least one per shard, and with less than two per shard not all can be swapped at once", (INSTANCES_MAX - 64) / 2),
            ));
        }
        if let Some(instances) = limits
            .instances
            .filter(|&instances| instances < self.shards)
        {
            let shards = self.shards;
            found.push((
                "limits.instances",
                format!("{instances} is under shards, {shards}: each shard needs one, and what is over that is for queries and swaps"),
            ));
        }
        found.extend(several::misfits(self));
        found
    }
}

/// Cores that this process may use.
fn cores() -> usize {
    std::thread::available_parallelism()
        .map_or(1, Into::into)
        .min(1024)
}

/// The host's name, with what a node's name cannot hold replaced; `node` where the system does not tell.
fn host_name() -> String {
    let told = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .or_else(|_| std::fs::read_to_string("/etc/hostname"))
        .or_else(|_| std::env::var("HOSTNAME"))
        .unwrap_or_default();
    as_name(told.trim())
}

fn as_name(text: &str) -> String {
    let keep = |c: char| {
        if c.is_ascii_alphanumeric() || "._-".contains(c) {
            c
        } else {
            '-'
        }
    };
    let name: String = text
        .chars()
        .map(keep)
        .skip_while(|c| !c.is_ascii_alphanumeric())
        .take(63)
        .collect();
    if name.is_empty() { "node".into() } else { name }
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[cfg(test)]
mod tests;

//! A case: what it needs, what it does, and what has to come of it. A description, and nothing that runs.

use std::time::Duration;

use serde::Serialize;

use super::expect::Expect;
use super::script::Step;
use crate::call::CallErrorKind;
use crate::cluster::SwapStep;
use crate::cluster::status::ShardState;
use crate::guest::TrapKind;

mod turned;

/// What cases are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// Scripts, requests and replies, without the database
    Protocol,
    /// Reads and writes of keys, batches, merges, expiry
    Database,
    /// Ranges, prefixes, orders, pages
    Scans,
    /// Views of one moment
    Snapshots,
    /// Transactions, conflicts, isolation
    Transactions,
    /// The host's errors and the guest's own
    Errors,
    /// When writes are durable, and who is told
    Durability,
    /// Read-only calls beside the writer
    Queries,
    /// Start, stop, memory over a swap
    Lifecycle,
    /// Stored data that a revision rewrites before it serves
    Migration,
    /// Options that are checked before anything runs
    Options,
    /// Volatile and durable timers, over restarts
    Timers,
    /// Calls to other shards
    Cluster,
    /// A shard that another node takes over on purpose
    Moves,
    /// The guest's own metrics
    Metrics,
    /// Lines of the log, standard output and error
    Log,
    /// Where the guest runs, the call in progress, clocks, random
    Surroundings,
    /// Limits, each with its error
    Limits,
    /// Exceptions, aborts, recursion, memory, loops, and the shard after each
    Ends,
}

impl Group {
    /// Its name, as on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Protocol => "protocol",
            Self::Database => "database",
            Self::Scans => "scans",
            Self::Snapshots => "snapshots",
            Self::Transactions => "transactions",
            Self::Errors => "errors",
            Self::Durability => "durability",
            Self::Queries => "queries",
            Self::Lifecycle => "lifecycle",
            Self::Migration => "migration",
            Self::Options => "options",
            Self::Timers => "timers",
            Self::Cluster => "cluster",
            Self::Moves => "moves",
            Self::Metrics => "metrics",
            Self::Log => "log",
            Self::Surroundings => "surroundings",
            Self::Limits => "limits",
            Self::Ends => "ends",
        }
    }
}

/// A case.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) group: Group,
    /// What has to hold, in words.
    pub(super) name: &'static str,
    /// The optional exports that it needs.
    pub(super) needs: Vec<&'static str>,
    /// Settings of the node, as `key`, `value`.
    pub(super) settings: Vec<(&'static str, &'static str)>,
    pub(super) acts: Vec<Act>,
}

/// What a case does.
#[derive(Debug, Clone)]
pub(super) enum Act {
    /// A script whose results are as expected.
    Run(Call, Vec<Expect>),
    /// The same, again and again until they are.
    Until(Call, Vec<Expect>),
    /// A script that fails.
    Fails(Call, Failing),
    /// A script that has no reply while the store takes no writes; then it takes them, and the results are as expected.
    Waits(Call, Vec<Expect>),
    /// A script that goes on beside what follows, under a name. It is in the queue of its shard before anything else happens.
    Begin(&'static str, Call),
    /// It has not ended.
    Pending(&'static str),
    /// It ends so.
    End(&'static str, Outcome),
    /// They end with these results, whichever with which.
    EndEach(Vec<(&'static str, Vec<Expect>)>),
    /// A method with any payload.
    Request(Call, Reply),
    /// The store takes no writes of databases until `Release`.
    Hold,
    /// The store refuses to give what lies in it of databases until `Release`.
    Refuse,
    Release,
    /// Until writes of so many databases wait for the store.
    Waiting(u64),
    /// The shard gets a new instance of its guest.
    Restart,
    /// The node stops, and starts again on its store.
    Reopen,
    /// The node loses its store for good, and another one takes its shards.
    TakeOver,
    /// Another node joins, and shard 0 moves from the one that has it to the one that has not. Calls still go to the first node.
    Move,
    /// Each shard runs a further revision of the same component.
    Swap(Swap),
    /// The shard is in this state within the time of the case.
    Status(ShardState),
    /// The guest accepts these options, or refuses them with their text.
    Validate(&'static str, bool),
    /// A node with these options does not start.
    Refused(&'static str),
    /// The wall clock has passed what was saved, in milliseconds.
    Passed(&'static str),
    /// A line of the guest's log with these fields.
    Line(Vec<(&'static str, &'static str)>),
    /// A line of the node's metrics that begins so (behind the name of the guest's metric) and has these texts, and the value at its end.
    Metric(&'static str, Vec<&'static str>, &'static str),
    /// No line of the node's metrics has this text.
    NoMetric(&'static str),
}

/// How a script ends.
pub(super) type Outcome = Result<Vec<Expect>, Failing>;

/// How a script gets to the guest.
#[derive(Debug, Clone, Default)]
pub(super) struct Call {
    pub(super) shard: u32,
    /// The routing key, instead of the shard.
    pub(super) key: Option<Vec<u8>>,
    pub(super) query: bool,
    /// The caller takes a reply that is not durable.
    pub(super) applied: bool,
    pub(super) timeout: Option<Duration>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) script: Vec<Step>,
    /// The media type that the reply has to have.
    pub(super) media_type: Option<&'static str>,
}

/// What a request has to give.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    pub(super) method: &'static str,
    pub(super) payload: Vec<u8>,
    pub(super) outcome: Result<Vec<u8>, Failing>,
}

/// How a call has to fail.
#[derive(Debug, Clone)]
pub(super) enum Failing {
    /// With the guest's own error: code, a part of the message, whether it is retryable.
    Guest(&'static str, &'static str, bool),
    /// With a trap of this kind.
    Trap(TrapKind),
    /// With a guest's error of whatever code, or a trap of one of these kinds: languages differ.
    Either(&'static [TrapKind]),
    /// By the host.
    Host(CallErrorKind),
    /// In any way but this.
    Not(Box<Failing>),
}

/// A swap, and how it has to end.
#[derive(Debug, Clone)]
pub(super) struct Swap {
    pub(super) carry: bool,
    /// Where it ends, and why; none where it has to be made.
    pub(super) fails: Option<(SwapStep, Failing)>,
}

impl Case {
    pub(super) fn new(group: Group, name: &'static str) -> Self {
        Self {
            group,
            name,
            needs: Vec::new(),
            settings: Vec::new(),
            acts: Vec::new(),
        }
    }

    /// Its name with its group, as in a report.
    pub(super) fn title(&self) -> String {
        format!("{}: {}", self.group.name(), self.name)
    }

    /// It is about optional exports.
    pub(super) fn needs(mut self, exports: &[&'static str]) -> Self {
        self.needs.extend(exports);
        self
    }

    /// The node has a setting.
    pub(super) fn set(mut self, key: &'static str, value: &'static str) -> Self {
        self.settings.push((key, value));
        self
    }

    pub(super) fn act(mut self, act: Act) -> Self {
        self.acts.push(act);
        self
    }

    /// A script on shard 0.
    pub(super) fn run(self, steps: impl IntoIterator<Item = (Step, Expect)>) -> Self {
        self.run_as(Call::default(), steps)
    }

    /// A script as a query on shard 0.
    pub(super) fn query(self, steps: impl IntoIterator<Item = (Step, Expect)>) -> Self {
        self.run_as(Call::query(), steps)
    }

    /// A script, in this way.
    pub(super) fn run_as(
        self,
        call: Call,
        steps: impl IntoIterator<Item = (Step, Expect)>,
    ) -> Self {
        let (script, expected) = steps.into_iter().unzip();
        self.act(Act::Run(Call { script, ..call }, expected))
    }

    /// A script on shard 0 until its results are as expected. Its caller takes what is not durable.
    pub(super) fn until(self, steps: impl IntoIterator<Item = (Step, Expect)>) -> Self {
        let (script, expected) = steps.into_iter().unzip();
        self.act(Act::Until(
            Call {
                script,
                ..Call::applied()
            },
            expected,
        ))
    }

    /// A script on shard 0 that fails.
    pub(super) fn fails<const N: usize>(self, script: [Step; N], how: Failing) -> Self {
        self.fails_as(Call::default(), script, how)
    }

    /// A script that fails, in this way.
    pub(super) fn fails_as<const N: usize>(
        self,
        call: Call,
        script: [Step; N],
        how: Failing,
    ) -> Self {
        let script = script.into();
        self.act(Act::Fails(Call { script, ..call }, how))
    }

    /// A script that goes on beside what follows.
    pub(super) fn begin<const N: usize>(
        self,
        name: &'static str,
        call: Call,
        script: [Step; N],
    ) -> Self {
        let script = script.into();
        self.act(Act::Begin(name, Call { script, ..call }))
    }

    /// It has these results.
    pub(super) fn end<const N: usize>(self, name: &'static str, expected: [Expect; N]) -> Self {
        self.act(Act::End(name, Ok(expected.into())))
    }

    /// A swap to a further revision of the component.
    pub(super) fn swap(self) -> Self {
        self.act(Act::Swap(Swap {
            carry: true,
            fails: None,
        }))
    }

    /// A swap that carries no memory.
    pub(super) fn swap_bare(self) -> Self {
        self.act(Act::Swap(Swap {
            carry: false,
            fails: None,
        }))
    }

    /// A swap that is not made.
    pub(super) fn no_swap(self, step: SwapStep, why: Failing) -> Self {
        self.act(Act::Swap(Swap {
            carry: true,
            fails: Some((step, why)),
        }))
    }

    /// A method with a payload.
    pub(super) fn request(
        self,
        call: Call,
        method: &'static str,
        payload: impl Into<Vec<u8>>,
        outcome: Result<Vec<u8>, Failing>,
    ) -> Self {
        let payload = payload.into();
        self.act(Act::Request(
            call,
            Reply {
                method,
                payload,
                outcome,
            },
        ))
    }
}

impl Call {
    /// A query on shard 0.
    pub(super) fn query() -> Self {
        Self {
            query: true,
            ..Self::default()
        }
    }

    /// A call on shard 0 whose caller takes what is not durable.
    pub(super) fn applied() -> Self {
        Self {
            applied: true,
            ..Self::default()
        }
    }

    /// A call on a shard.
    pub(super) fn shard(shard: u32) -> Self {
        Self {
            shard,
            ..Self::default()
        }
    }

    /// A call on the shard of a key.
    pub(super) fn key(key: &[u8]) -> Self {
        Self {
            key: Some(key.to_owned()),
            ..Self::default()
        }
    }

    /// With a header.
    pub(super) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }
}

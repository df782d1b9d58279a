//! Carries a case out: a node of its own in this process, on a store in memory that can be held up or taken away.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;

use super::calls::{failed, sent};
use super::case::{Act, Call, Case, Failing, Group, Reply, Swap};
use super::expect::{Answer, Expect, Known};
use super::script::{self, Memo};
use super::{Lines, Options, Subject, form};
use crate::Cluster;
use crate::call::{CallError, CallReply, Source};
use crate::clock;
use crate::cluster::{StartError, SwapError, SwapOptions};
use crate::config::{Config, Probe};
use crate::guest::Failure;
use crate::metrics;
use crate::store::Store;
use crate::store::faults::{Fault, Op, Rule};
use crate::transport::memory::Network;

mod beside;
mod nodes;

use beside::Beside;
use nodes::Node;

/// The pause between two looks at something that has to come.
const LOOK: Duration = Duration::from_millis(5);
/// Longest that the node of a case may take to stop.
const STOP: Duration = Duration::from_secs(10);
/// Longest that a shard without its store may take to close.
const CLOSE: Duration = Duration::from_secs(1);
/// Commands that a guest may lack, since its platform has nothing for them.
const MAY_LACK: [&str; 4] = ["clock", "random", "print", "cursor.page"];

/// Numbers the worlds of a process whose names have to be their own in logs and metrics.
static WORLDS: AtomicU64 = AtomicU64::new(1);

/// How a case ended that did not pass.
pub(super) enum Ended {
    /// The guest's platform lacks a command.
    Unsupported(String),
    /// Something is not as it has to be.
    Failed(String),
}

impl From<String> for Ended {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// Where a case runs.
pub(super) struct World<'a> {
    subject: &'a Subject,
    config: Config,
    /// A fault of the settings of the case.
    misfit: Option<String>,
    store: Store,
    network: Network,
    /// The node to which calls go.
    node: Option<Node>,
    /// Nodes that lost their store, and one that joined.
    others: Vec<Node>,
    /// Calls that go on beside the case.
    beside: Beside,
    revision: u64,
    memo: Memo,
    trapped: bool,
    lines: Option<Lines>,
    doing: String,
}

impl<'a> World<'a> {
    pub(super) fn new(subject: &'a Subject, options: &Options, case: &Case) -> Self {
        // A process keeps the metrics of so many modules, for ever: others share a name.
        let name = match case.group {
            Group::Metrics | Group::Log => {
                format!("conformance-{}", WORLDS.fetch_add(1, Ordering::Relaxed))
            }
            _ => "conformance".into(),
        };
        let mut config = Config {
            cluster: name.clone(),
            node: nodes::FIRST.into(),
            shards: 2,
            probe: Probe::Off,
            ..Config::default()
        };
        config.module.name = name;
        config.module.options = options.options.clone();
        config.threads.shard = 1;
        config.threads.storage = 1;
        config.threads.query = 1;
        config.limits.instances = Some(64);
        // A slow machine is no reason to fail where time is not what is tested.
        config.limits.cpu_time = Duration::from_secs(20);
        config.cache.capacity = 16 << 20;
        config.shard.close_timeout = CLOSE;
        let set = |(key, value): &(&str, &str)| {
            let set = config.set(key, value);
            set.map_err(|why| format!("{key}: {why}"))
        };
        let misfit = case.settings.iter().try_for_each(set).err();
        Self {
            subject,
            config,
            misfit,
            store: Store::open("memory:", &BTreeMap::new()).expect("memory: takes no options"),
            network: Network::new(),
            node: None,
            others: Vec::new(),
            beside: Beside::new(),
            revision: 1,
            memo: Memo::new(),
            trapped: false,
            lines: options.lines.clone(),
            doing: String::new(),
        }
    }

    /// What it did last.
    pub(super) fn doing(&self) -> &str {
        &self.doing
    }

    pub(super) async fn run(&mut self, case: &Case) -> Result<(), Ended> {
        if let Some(why) = self.misfit.take() {
            return Err(Ended::Failed(why));
        }
        for (at, act) in case.acts.iter().enumerate() {
            self.doing = format!("act {} of {}: {}", at + 1, case.acts.len(), named(act));
            let done = self.act(act).await;
            done.map_err(|ended| match ended {
                Ended::Failed(why) => Ended::Failed(format!("{}: {why}", self.doing)),
                other => other,
            })?;
        }
        Ok(())
    }

    /// Stops what still runs.
    pub(super) async fn end(&mut self) {
        self.beside.clear();
        let nodes = self.node.take().into_iter().chain(self.others.drain(..));
        for node in nodes {
            node.faults.clear();
            _ = clock::timeout(STOP, node.cluster.stop()).await;
        }
    }

    async fn act(&mut self, act: &Act) -> Result<(), Ended> {
        match act {
            Act::Run(call, expected) => {
                let reply = self.call(call).await?;
                let reply = reply.map_err(|error| failed(&error))?;
                self.check(call, expected, &reply)
            }
            Act::Until(call, expected) => self.until(call, expected).await,
            Act::Fails(call, how) => {
                let outcome = self.call(call).await?;
                self.has_failed(outcome, how)
            }
            Act::Waits(call, expected) => self.waits(call, expected).await,
            Act::Begin(name, call) => self.begin(name, call).await,
            Act::Pending(name) => self.pending(name),
            Act::End(name, outcome) => self.ended(name, outcome).await,
            Act::EndEach(calls) => self.ended_each(calls).await,
            Act::Request(call, reply) => self.request(call, reply).await,
            Act::Hold => {
                let hold = Rule::new(Fault::Hang).on(Op::Put).path("/wal/");
                self.node().await?.faults.add(hold);
                Ok(())
            }
            Act::Refuse => {
                let refuse = Rule::new(Fault::FailBefore).on(Op::Get).path("/compacted/");
                self.node().await?.faults.add(refuse);
                Ok(())
            }
            Act::Release => {
                self.node().await?.faults.clear();
                Ok(())
            }
            Act::Waiting(databases) => {
                self.node().await?.faults.hanging(*databases).await;
                Ok(())
            }
            Act::Restart => {
                let restarted = self.node().await?.cluster.restart_shard(0).await;
                restarted.map_err(|error| Ended::Failed(error.to_string()))
            }
            Act::Reopen => self.reopen().await,
            Act::TakeOver => self.take_over().await,
            Act::Move => self.move_shard().await,
            Act::Swap(swap) => self.swap(swap).await,
            Act::Status(status) => loop {
                let report = self.node().await?.cluster.shard_report(0);
                let report = report.map_err(|error| error.to_string())?;
                if report.status == *status {
                    return Ok(());
                }
                self.look(format!("the shard is {}", report.status.as_str()))
                    .await;
            },
            Act::Validate(options, good) => self.validate(options, *good).await,
            Act::Refused(options) => self.refused(options).await,
            Act::Passed(name) => {
                let moment = self.memo.get(name).and_then(|saved| form::number(saved));
                let now = u64::try_from(clock::wall_ms()).unwrap_or_default();
                match moment {
                    Some(moment) if now >= moment => Ok(()),
                    moment => Err(Ended::Failed(format!("it is {now}, before {moment:?}"))),
                }
            }
            Act::Line(fields) => loop {
                let Some(lines) = &self.lines else {
                    return Err(Ended::Failed("the guest's log is not caught".into()));
                };
                if lines.have(&self.config.module.name, fields) {
                    return Ok(());
                }
                self.look("there is no such line".into()).await;
            },
            Act::Metric(name, has, value) => loop {
                if self.metric(name, has, value)? {
                    return Ok(());
                }
                self.look("there is no such metric".into()).await;
            },
            Act::NoMetric(text) => {
                let found = metrics_text()?;
                match found.lines().find(|line| line.contains(text)) {
                    None => Ok(()),
                    Some(line) => Err(Ended::Failed(format!("there is {line}"))),
                }
            }
        }
    }

    /// Waits before another look, and keeps what the last one showed for whoever gives up.
    async fn look(&mut self, shown: String) {
        let what = self.doing.split(": last, ").next().unwrap_or_default();
        self.doing = format!("{what}: last, {shown}");
        clock::sleep(LOOK).await;
    }

    async fn call(&mut self, call: &Call) -> Result<Result<CallReply, CallError>, Ended> {
        let payload = script::script(&call.script, &self.memo);
        self.send(call, "run", payload.into()).await
    }

    async fn send(
        &mut self,
        call: &Call,
        method: &str,
        payload: Bytes,
    ) -> Result<Result<CallReply, CallError>, Ended> {
        let cluster = self.node().await?.cluster.clone();
        let outcome = sent(&cluster, call, method, payload).await;
        if let Err(error) = &outcome {
            self.trapped = error.source() == Source::Trap;
        }
        Ok(outcome)
    }

    fn check(&mut self, call: &Call, expected: &[Expect], reply: &CallReply) -> Result<(), Ended> {
        let answers =
            form::items(&reply.payload).ok_or_else(|| "the reply is no list".to_owned())?;
        if answers.len() != expected.len() {
            let message = format!("{} results of {} steps", answers.len(), expected.len());
            return Err(Ended::Failed(message));
        }
        let mut known = Known {
            memo: &mut self.memo,
            newest: reply.seq,
            trapped: self.trapped,
        };
        for (at, (item, expected)) in answers.iter().zip(expected).enumerate() {
            let step = &call.script[at];
            let place = || format!("step {} ({})", at + 1, step.shown());
            let answer = Answer::read(item)
                .ok_or_else(|| format!("{}: {} is no result", place(), form::shown(item)))?;
            if let Answer::Err { code, message, .. } = &answer
                && code == "unsupported"
                && MAY_LACK.contains(&step.command())
            {
                let what = format!("the command `{}`: {message}", step.command());
                return Err(Ended::Unsupported(what));
            }
            expected.check(&answer, &mut known).map_err(|wanted| {
                format!("{} gave {}; expected {wanted}", place(), answer.shown())
            })?;
        }
        if let Some(media_type) = call.media_type
            && reply.content_type.as_deref() != Some(media_type)
        {
            let found = reply.content_type.as_deref().unwrap_or("none");
            let message = format!("the media type is {found}; expected {media_type}");
            return Err(Ended::Failed(message));
        }
        Ok(())
    }

    async fn until(&mut self, call: &Call, expected: &[Expect]) -> Result<(), Ended> {
        loop {
            let shown = match self.call(call).await? {
                Ok(reply) => match self.check(call, expected, &reply) {
                    Err(Ended::Failed(why)) => why,
                    ended => return ended,
                },
                // It moves or restarts.
                Err(error) if error.never_ran() => error.to_string(),
                Err(error) => return Err(failed(&error)),
            };
            self.look(shown).await;
        }
    }

    async fn request(&mut self, call: &Call, wanted: &Reply) -> Result<(), Ended> {
        let payload = wanted.payload.clone().into();
        let outcome = self.send(call, wanted.method, payload).await?;
        match (&wanted.outcome, outcome) {
            (Ok(expected), Ok(reply)) if reply.payload == *expected => Ok(()),
            (Ok(expected), Ok(reply)) => Err(Ended::Failed(format!(
                "the reply is {}; expected {}",
                form::shown(&reply.payload),
                form::shown(expected)
            ))),
            (Ok(_), Err(error)) => Err(failed(&error)),
            (Err(how), outcome) => self.has_failed(outcome, how),
        }
    }

    fn has_failed(
        &self,
        outcome: Result<CallReply, CallError>,
        how: &Failing,
    ) -> Result<(), Ended> {
        match outcome {
            Ok(reply) => Err(Ended::Failed(format!(
                "it replied {}; expected {}",
                form::shown(&reply.payload),
                how.shown()
            ))),
            Err(error) if how.is(&error) => Ok(()),
            Err(error) => Err(Ended::Failed(format!(
                "it failed with {} ({:?}: {error}); expected {}",
                error.code,
                error.source(),
                how.shown()
            ))),
        }
    }

    async fn swap(&mut self, swap: &Swap) -> Result<(), Ended> {
        let cluster = self.node().await?.cluster.clone();
        let next = self.revision + 1;
        let module = self.subject.revision(&self.config, next).await?;
        let options = SwapOptions {
            carry_memory: swap.carry,
        };
        match (cluster.swap_with(module, options).await, &swap.fails) {
            (Ok(_), None) => {
                self.revision = next;
                Ok(())
            }
            (Ok(_), Some((step, _))) => Err(Ended::Failed(format!(
                "the swap was made; expected that {step}"
            ))),
            (Err(SwapError::NotAdopted { why, .. }), Some((step, how)))
                if why.step == *step && how.is(&why.error) =>
            {
                Ok(())
            }
            (Err(error), Some((step, how))) => Err(Ended::Failed(format!(
                "the swap was not made: {error}; expected that {step}, with {}",
                how.shown()
            ))),
            (Err(error), None) => Err(Ended::Failed(format!("the swap was not made: {error}"))),
        }
    }

    async fn validate(&mut self, options: &str, good: bool) -> Result<(), Ended> {
        let module = self.subject.revision(&self.config, 1).await?;
        match module.validate(options).await {
            Ok(()) if good => Ok(()),
            Ok(()) => Err(Ended::Failed(format!("it accepts {options}"))),
            Err(Failure::Error(error)) if !good && error.message.contains(options) => Ok(()),
            Err(failure) => Err(Ended::Failed(format!("{options}: {failure:?}"))),
        }
    }

    async fn refused(&mut self, options: &str) -> Result<(), Ended> {
        let mut config = self.config.clone();
        let given: serde_json::Map<_, _> =
            serde_json::from_str(options).map_err(|why| format!("{options}: {why}"))?;
        config.module.options.extend(given);
        let module = self.subject.revision(&config, 1).await?;
        match Cluster::start_on(self.store.clone(), Arc::new(config), module).await {
            Err(StartError::Guest { .. }) => Ok(()),
            Err(error) => Err(Ended::Failed(error.to_string())),
            Ok(cluster) => {
                cluster.stop().await;
                Err(Ended::Failed("the node started".into()))
            }
        }
    }

    /// Whether a metric of this node's guest has a value.
    fn metric(&self, name: &str, has: &[&str], value: &str) -> Result<bool, Ended> {
        let text = metrics_text()?;
        let begins = format!("quarry_guest_{name}{{");
        let cluster = format!("cluster=\"{}\"", self.config.cluster);
        Ok(text.lines().any(|line| {
            line.starts_with(&begins)
                && line.contains(&cluster)
                && has.iter().all(|has| line.contains(has))
                && line.rsplit(' ').next() == Some(value)
        }))
    }
}

fn metrics_text() -> Result<String, Ended> {
    let text = metrics::install().render();
    text.ok_or_else(|| Ended::Failed("the metrics of this process go elsewhere".into()))
}

/// An act for people.
fn named(act: &Act) -> String {
    let call = |what: &str, call: &Call| {
        let how = if call.query { "a query" } else { "a call" };
        format!("{what} {how} of {} steps", call.script.len())
    };
    match act {
        Act::Run(of, _) => call("run", of),
        Act::Until(of, _) => call("until", of),
        Act::Fails(of, _) => call("fail", of),
        Act::Waits(of, _) => call("wait with", of),
        Act::Begin(name, of) => call(&format!("begin {name},"), of),
        Act::End(name, _) => format!("the end of {name}"),
        Act::EndEach(calls) => {
            let names: Vec<_> = calls.iter().map(|(name, _)| *name).collect();
            format!("the ends of {}", names.join(", "))
        }
        Act::Request(_, reply) => format!("the method {}", reply.method),
        Act::Swap(_) => "a swap".into(),
        other => format!("{other:?}").to_lowercase(),
    }
}

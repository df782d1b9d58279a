//! Calls that go on beside the acts of a case, and one whose reply has to wait.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::FutureExt;
use tokio_util::task::AbortOnDropHandle;

use super::{Ended, World};
use crate::call::{CallError, CallReply, Source};
use crate::conformance::calls::{failed, sent};
use crate::conformance::case::{Call, Outcome};
use crate::conformance::expect::Expect;
use crate::conformance::script;
use crate::store::faults::{Fault, Op, Rule};

/// Such calls, by their names. They are given up when they are dropped.
pub(super) type Beside = BTreeMap<&'static str, Begun>;

/// A call in progress, or one that ended meanwhile.
pub(super) struct Begun {
    call: Call,
    task: AbortOnDropHandle<Result<CallReply, CallError>>,
}

impl World<'_> {
    /// Sends a script, and does not wait for its end.
    pub(super) async fn begin(&mut self, name: &'static str, call: &Call) -> Result<(), Ended> {
        let payload: Bytes = script::script(&call.script, &self.memo).into();
        let cluster = self.node().await?.cluster.clone();
        let (of, call) = (call.clone(), call.clone());
        let mut reply = Box::pin(async move { sent(&cluster, &of, "run", payload).await });
        // Its first step puts it into the queue of its shard, before whatever comes next. The task asks it again at once.
        let task = match reply.as_mut().now_or_never() {
            Some(outcome) => tokio::spawn(async { outcome }),
            None => tokio::spawn(reply),
        };
        let task = AbortOnDropHandle::new(task);
        self.beside.insert(name, Begun { call, task });
        Ok(())
    }

    /// Whether a call is in progress still.
    pub(super) fn pending(&self, name: &str) -> Result<(), Ended> {
        let begun = self.beside.get(name);
        match begun.is_some_and(|begun| !begun.task.is_finished()) {
            true => Ok(()),
            false => Err(Ended::Failed(format!("{name} has ended"))),
        }
    }

    /// Waits for the end of a call, which has to be this.
    pub(super) async fn ended(&mut self, name: &str, expected: &Outcome) -> Result<(), Ended> {
        let (call, outcome) = self.take(name).await?;
        match (expected, outcome) {
            (Ok(expected), Ok(reply)) => self.check(&call, expected, &reply),
            (Ok(_), Err(error)) => Err(failed(&error)),
            (Err(how), outcome) => self.has_failed(outcome, how),
        }
    }

    /// Waits for the ends of calls, each of which has to be one of these, and no two the same.
    pub(super) async fn ended_each(
        &mut self,
        calls: &[(&'static str, Vec<Expect>)],
    ) -> Result<(), Ended> {
        let mut left: Vec<&Vec<Expect>> = calls.iter().map(|(_, expected)| expected).collect();
        for (name, _) in calls {
            let (call, outcome) = self.take(name).await?;
            let reply = outcome.map_err(|error| failed(&error))?;
            let mut whys = Vec::new();
            let mut met = None;
            for (at, expected) in left.iter().enumerate() {
                match self.check(&call, expected, &reply) {
                    Ok(()) => met = met.or(Some(at)),
                    Err(Ended::Failed(why)) => whys.push(why),
                    Err(ended) => return Err(ended),
                }
            }
            let Some(met) = met else {
                return Err(Ended::Failed(format!("{name}: {}", whys.join("; or: "))));
            };
            left.remove(met);
        }
        Ok(())
    }

    /// The reply must not come while a write waits for the store.
    pub(super) async fn waits(&mut self, call: &Call, expected: &[Expect]) -> Result<(), Ended> {
        let payload: Bytes = script::script(&call.script, &self.memo).into();
        let node = self.node().await?;
        let (cluster, faults) = (node.cluster.clone(), node.faults.clone());
        faults.add(Rule::new(Fault::Hang).on(Op::Put).path("/wal/"));
        let reply = sent(&cluster, call, "run", payload);
        tokio::pin!(reply);
        tokio::select! {
            biased;
            outcome = &mut reply => {
                faults.clear();
                return Err(Ended::Failed(match outcome {
                    Ok(_) => "the reply came before its write was durable".into(),
                    Err(error) => error.to_string(),
                }));
            }
            () = faults.hanging(1) => {}
        }
        faults.clear();
        let reply = reply.await.map_err(|error| failed(&error))?;
        self.check(call, expected, &reply)
    }

    async fn take(&mut self, name: &str) -> Result<(Call, Result<CallReply, CallError>), Ended> {
        let begun = self.beside.remove(name);
        let Begun { call, task } = begun.ok_or_else(|| format!("{name} was not begun"))?;
        let outcome = task.await.map_err(|error| format!("{name}: {error}"))?;
        if let Err(error) = &outcome {
            self.trapped = error.source() == Source::Trap;
        }
        Ok((call, outcome))
    }
}

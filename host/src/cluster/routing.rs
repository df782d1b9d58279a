//! The way of a call to its shard: run here, sent to the owner in one hop, or parked until there is one.
//!
//! A shard that is open here is called at once, and nothing else is looked at. Otherwise the core decides ([`quarry_core::route`]), and
//! this carries it out. What was sent is never sent again (promise P5): a call goes on to a second node only when the first was never
//! reached, or refused it. A route is given up when the lease ends that it was read under, also in the middle of a call: nobody waits for a
//! node that may be paused for ever. A query changes nothing, so one that got no answer is asked again.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quarry_core::retry::{self, Failed, Policy};
use quarry_core::route::{self, Ask, Refusal};
use quarry_core::rules::Rules;
use quarry_core::time::Moment;
use tokio::sync::watch;

use super::node::Node;
use super::parking::{Parking, Place, Way};
use super::peers::Peers;
use crate::call::{CallError, CallErrorKind, CallReply};
use crate::clock;
use crate::config::units::Span;
use crate::guest::Request;
use crate::metrics;
use crate::shard::{Outcome, ShardHandle};
use crate::transport::{Answer, Destination, Failure, Forward, How, NotOwner, Run};

/// How much sooner than its time is up a call that waits is answered.
const EARLY: Duration = Duration::from_millis(5);

/// The pause between two attempts to reach an owner that is waited for.
const UNREACHED: Duration = Duration::from_millis(50);

/// What came of a call, and whether it was run by a peer.
pub(super) struct Routed {
    pub outcome: Answer,
    pub remote: bool,
}

impl Routed {
    fn here(outcome: Answer) -> Self {
        Self {
            outcome,
            remote: false,
        }
    }
}

impl Run {
    async fn on(self, handle: &ShardHandle, request: Request) -> Result<Outcome, CallError> {
        match self.how {
            How::Call(durability) => handle.call(request, durability, self.revision).await,
            How::Query(read) => handle.query(request, read, self.revision).await,
        }
    }
}

/// Runs a request on its shard, wherever that is.
pub(super) async fn route(node: &Arc<Node>, shard: u32, request: Request, run: Run) -> Routed {
    let deadline = request.deadline;
    let routed = async {
        match node.peers() {
            None => Routed::here(alone(node, shard, request, run).await),
            Some(peers) => {
                let look = Look {
                    node,
                    peers,
                    shard,
                    run,
                    since: clock::boot_now(),
                    attempt: 0,
                    stuck: None,
                    news: None,
                    place: None,
                };
                look.go(request).await
            }
        }
    };
    clock::timeout_at(deadline, routed)
        .await
        .unwrap_or_else(|_| Routed::here(Err(node.late(shard))))
}

impl Node {
    /// Runs a request on its shard, wherever that is, and counts it.
    pub(super) async fn run(
        self: &Arc<Self>,
        shard: u32,
        method: &str,
        request: Request,
        run: Run,
    ) -> Answer {
        let begun = clock::now();
        let routed = route(self, shard, request, run).await;
        // What another node ran is counted there.
        if !routed.remote {
            self.count(shard, method, run.how, &routed.outcome, begun);
        }
        routed.outcome
    }

    /// A request that began then was answered here.
    pub(super) fn count(
        &self,
        shard: u32,
        method: &str,
        how: How,
        answer: &Answer,
        begun: Instant,
    ) {
        let took = clock::now().saturating_duration_since(begun);
        let calls = &self.slots[shard as usize].calls;
        match how {
            How::Call(_) => calls.call(method, metrics::Outcome::of(answer), took),
            How::Query(_) => calls.query(method, metrics::Outcome::of(answer), took),
        }
    }
}

/// Where no other node has shards: again, after a pause, only where it is sure that nothing ran.
async fn alone(node: &Arc<Node>, shard: u32, request: Request, run: Run) -> Answer {
    let slot = &node.slots[shard as usize];
    let mut failed = 0;
    loop {
        let outcome = match slot.handle() {
            Some(handle) => run.on(&handle, request.clone()).await,
            None => Err(node.unassigned(shard)),
        };
        let error = match outcome {
            Ok(outcome) => return Ok(node.reply(shard, outcome)),
            Err(error) => error,
        };
        failed += 1;
        let kind = if has_moved(&error) {
            Failed::NeverSent
        } else {
            Failed::Final
        };
        match pause(node, failed, kind, request.deadline) {
            Some(pause) => clock::sleep(pause).await,
            None => return Err(error),
        }
    }
}

/// Runs a request that a peer sent here, or refuses it at once. It is never sent on, and never waits for a shard that is yet to open: who
/// sent it waits, and may still give up knowing that nothing ran.
pub(super) async fn forwarded(node: &Node, forward: Forward) -> Result<Answer, NotOwner> {
    let Forward {
        shard,
        run,
        request,
        ..
    } = forward;
    let Some(handle) = node.slots[shard as usize].handle() else {
        return Err(node.not_owner(shard));
    };
    let answered = clock::timeout_at(request.deadline, run.on(&handle, request)).await;
    match answered {
        Ok(Ok(outcome)) => Ok(Ok(node.reply(shard, outcome))),
        Ok(Err(error)) if has_moved(&error) => Err(node.not_owner(shard)),
        Ok(Err(error)) => Ok(Err(error)),
        Err(_) => Ok(Err(node.late(shard))),
    }
}

/// A call that looks for its shard.
struct Look<'n> {
    node: &'n Arc<Node>,
    peers: &'n Peers,
    shard: u32,
    run: Run,
    since: Moment,
    /// Attempts that failed.
    attempt: u32,
    /// Until when the route to an owner that is not reached was good at first.
    stuck: Option<Stuck>,
    news: Option<News>,
    place: Option<Place>,
}

/// What comes of one look.
enum Next {
    Again,
    Done(Routed),
}

impl Look<'_> {
    async fn go(mut self, request: Request) -> Routed {
        let slot = &self.node.slots[self.shard as usize];
        let mut last = None;
        loop {
            if let Some(handle) = slot.handle() {
                self.place = None;
                match self.run.on(&handle, request.clone()).await {
                    Ok(outcome) => return Routed::here(Ok(self.node.reply(self.shard, outcome))),
                    Err(error) if !has_moved(&error) => return Routed::here(Err(error)),
                    Err(error) => last = Some(error),
                }
            }
            let next = match self.way(request.deadline) {
                Way::Peer {
                    to,
                    generation,
                    until,
                } => {
                    self.place = None;
                    let forward = Forward {
                        shard: self.shard,
                        generation,
                        run: self.run,
                        request: request.clone(),
                    };
                    self.send(&to, forward, until, &mut last).await
                }
                Way::Here { until } | Way::Wait { until } => {
                    // Just before the call's own time is up, so that it is told that nothing ran.
                    let end = until.min(moment(request.deadline) - EARLY);
                    self.wait(end, &mut last).await
                }
                Way::Refused(refusal) => Next::Done(Routed::here(Err(last
                    .take()
                    .unwrap_or_else(|| self.node.refusal(self.shard, &refusal))))),
            };
            if let Next::Done(routed) = next {
                return routed;
            }
        }
    }

    /// Where it goes now.
    fn way(&self, deadline: Instant) -> Way {
        let ask = Ask {
            shard: self.shard,
            forwarded: false,
            // What was refused is kept for all calls of the shard; see `Parking`.
            refused_by: None,
            deadline: moment(deadline),
            since: self.since,
            park: self.node.config.call.park,
        };
        let local = self.node.slots[self.shard as usize].local();
        let now = clock::boot_now();
        let decision = route::route(
            &ask,
            &self.node.leases.routes(),
            &local,
            now,
            Rules::default(),
        );
        self.peers
            .parking
            .correct(self.shard, decision, &local, self.patience(), now)
    }

    /// The end of its patience.
    fn patience(&self) -> Moment {
        self.since + self.node.config.call.park
    }

    /// Waits until something has changed.
    async fn wait(&mut self, until: Moment, last: &mut Option<CallError>) -> Next {
        let Some(news) = &mut self.news else {
            // From before the next look, so that nothing is missed.
            self.news = Some(News::of(self.node, self.peers));
            return Next::Again;
        };
        if self.place.is_none() {
            self.place = Parking::enter(self.node, self.shard);
            if self.place.is_none() {
                return Next::Done(Routed::here(Err(self.crowded())));
            }
        }
        let patient = clock::boot_now() < until && news.until(until).await;
        if patient && !self.node.stop.is_cancelled() {
            return Next::Again;
        }
        let error = last.take().unwrap_or_else(|| {
            let refusal = Refusal::Unassigned { shard: self.shard };
            self.node.refusal(self.shard, &refusal)
        });
        Next::Done(Routed::here(Err(error)))
    }

    /// Sends it to a peer. Whatever is not sure to have run nothing ends it.
    async fn send(
        &mut self,
        to: &Destination,
        forward: Forward,
        until: Moment,
        last: &mut Option<CallError>,
    ) -> Next {
        let (shard, generation) = (self.shard, forward.generation);
        let deadline = forward.request.deadline;
        let begun = clock::now();
        let call = self.peers.transport.call(to, forward);
        let answered = self.while_route_lasts(to, until, call).await;
        let took = clock::now().saturating_duration_since(begun);
        let failure = match answered {
            Some(Ok(outcome)) => {
                self.peers.metrics.remote("answered", took);
                tracing::trace!(shard, node = to.node, ?took, event = "call.remote");
                return Next::Done(Routed {
                    outcome,
                    remote: true,
                });
            }
            Some(Err(failure)) => failure,
            None => Failure::Sent(format!(
                "the lease ended under which node `{}` has the shard, and it has not answered: it may be paused or cut off",
                to.node
            )),
        };
        match failure {
            Failure::NotOwner(refusal) => {
                self.peers.metrics.remote("not-owner", took);
                tracing::debug!(
                    shard,
                    node = to.node,
                    generation,
                    event = "call.not_owner",
                    "a node that should have the shard does not"
                );
                self.peers
                    .parking
                    .refused(shard, generation, refusal, &to.node);
                let message = format!(
                    "node `{}` does not own shard {shard} any more (generation {generation})",
                    to.node
                );
                *last = Some(CallError::host(CallErrorKind::NotOwner, message).at(shard));
                self.refused(last).await
            }
            Failure::NeverSent(why) => {
                self.peers.metrics.remote("unreachable", took);
                self.unreached(why, until, deadline, last).await
            }
            Failure::Sent(why) if matches!(self.run.how, How::Query(_)) => {
                self.peers.metrics.remote("unknown", took);
                self.unreached(why, until, deadline, last).await
            }
            Failure::Sent(why) => {
                self.peers.metrics.remote("unknown", took);
                let message = format!(
                    "the call was sent to node `{}` and may have run: {why}",
                    to.node
                );
                let error = CallError::host(CallErrorKind::Unknown, message).at(shard);
                Next::Done(Routed::here(Err(error)))
            }
        }
    }

    /// Waits for an answer for as long as its sender has its lease; a lease that is renewed meanwhile lasts longer.
    async fn while_route_lasts<T>(
        &self,
        to: &Destination,
        mut until: Moment,
        answer: impl Future<Output = T>,
    ) -> Option<T> {
        let mut answer = pin!(answer);
        loop {
            if let Ok(answer) = clock::timeout_at(instant(until), answer.as_mut()).await {
                return Some(answer);
            }
            until = self.node.route_until(self.shard, to)?;
            if until <= clock::boot_now() {
                return None;
            }
        }
    }

    /// The owner could not be asked. It is tried again, and then waited for: if it died, its lease ends soon, and another node takes over.
    async fn unreached(
        &mut self,
        why: String,
        until: Moment,
        deadline: Instant,
        last: &mut Option<CallError>,
    ) -> Next {
        self.node.leases.route_miss(self.shard);
        *last = Some(CallError::host(CallErrorKind::Unreachable, why).at(self.shard));
        if self.attempt < self.node.config.call.retries {
            return self.again(deadline, last).await;
        }
        let stuck = self.stuck.get_or_insert(Stuck {
            end: until,
            renewed: false,
        });
        let end = stuck.until(until, clock::boot_now());
        if end >= self.patience() || clock::boot_now() >= end {
            return self.give_up(last);
        }
        if self.place.is_none() {
            self.place = Parking::enter(self.node, self.shard);
        }
        if self.place.is_none() {
            return Next::Done(Routed::here(Err(self.crowded())));
        }
        // It is tried again at times: it may be reached after all.
        clock::sleep(UNREACHED).await;
        let news = self
            .news
            .get_or_insert_with(|| News::of(self.node, self.peers));
        _ = news.until(end).await;
        Next::Again
    }

    /// Too many calls wait for the shard.
    fn crowded(&self) -> CallError {
        let message = format!(
            "{} calls wait for shard {} already (call.max_parked), which has no owner that serves it now; try again later",
            self.node.config.call.max_parked, self.shard
        );
        CallError::host(CallErrorKind::Overloaded, message).at(self.shard)
    }

    /// A peer refused it, so it looks for the new owner: at once, then after a pause, for as long as its patience lasts.
    async fn refused(&mut self, last: &mut Option<CallError>) -> Next {
        self.attempt += 1;
        let retries = self.node.config.call.retries;
        if self.attempt > retries && clock::boot_now() >= self.patience() {
            return self.give_up(last);
        }
        if self.attempt > 1 {
            let delay = self.node.config.call.retry_delay;
            clock::sleep(delay.saturating_mul(self.attempt.min(retries))).await;
        }
        Next::Again
    }

    /// It was never sent. It is tried again after a pause, so many times.
    async fn again(&mut self, deadline: Instant, last: &mut Option<CallError>) -> Next {
        self.attempt += 1;
        match pause(self.node, self.attempt, Failed::NeverSent, deadline) {
            Some(pause) => {
                clock::sleep(pause).await;
                Next::Again
            }
            None => self.give_up(last),
        }
    }

    fn give_up(&self, last: &mut Option<CallError>) -> Next {
        let error = last.take();
        let error = error.unwrap_or_else(|| self.node.unassigned(self.shard));
        Next::Done(Routed::here(Err(error)))
    }
}

/// An owner that is not reached.
struct Stuck {
    /// When its lease ends, as far as it was known then.
    end: Moment,
    /// Whether a renewal was seen since.
    renewed: bool,
}

impl Stuck {
    /// Until when it is waited for; `until` is when its lease ends as far as is known now. It may have renewed it once more before it died,
    /// which is seen only later. One that renews it again lives: it is not taken over, and waiting for that is of no use.
    fn until(&mut self, until: Moment, now: Moment) -> Moment {
        if now >= self.end && until > self.end && !self.renewed {
            *self = Self {
                end: until,
                renewed: true,
            };
        }
        self.end
    }
}

/// Whatever may change where a call goes.
pub(super) struct News {
    slots: watch::Receiver<u64>,
    routes: watch::Receiver<Arc<route::RouteTable>>,
    learned: watch::Receiver<u64>,
}

impl News {
    pub fn of(node: &Node, peers: &Peers) -> Self {
        Self {
            slots: node.changed.subscribe(),
            routes: node.leases.watch_routes(),
            learned: peers.parking.news(),
        }
    }

    /// Waits for news.
    pub async fn changed(&mut self) {
        tokio::select! {
            _ = self.slots.changed() => {}
            _ = self.routes.changed() => {}
            _ = self.learned.changed() => {}
        }
    }

    /// Waits for news, at most until a moment; says whether there are any.
    pub async fn until(&mut self, until: Moment) -> bool {
        let changed = clock::timeout_at(instant(until), self.changed());
        changed.await.is_ok()
    }
}

/// Whether the shard is not here any more, and nothing ran.
fn has_moved(error: &CallError) -> bool {
    matches!(
        error.kind,
        CallErrorKind::Unassigned | CallErrorKind::NotOwner
    )
}

fn pause(node: &Node, failed: u32, kind: Failed, deadline: Instant) -> Option<Duration> {
    let policy = Policy {
        retries: node.config.call.retries,
        delay: node.config.call.retry_delay,
    };
    let left = deadline.saturating_duration_since(clock::now());
    retry::next(policy, failed, kind, left, rand::random())
}

/// A moment of the core as timers have it. Those stand still while the machine sleeps; whoever wakes looks again.
pub(super) fn instant(moment: Moment) -> Instant {
    /// Longer than any call may take.
    const FAR: Duration = Duration::from_secs(86_400);
    clock::now() + moment.since(clock::boot_now()).min(FAR)
}

fn moment(instant: Instant) -> Moment {
    clock::boot_now() + instant.saturating_duration_since(clock::now())
}

impl Node {
    /// A reply of a shard that is open here.
    fn reply(&self, shard: u32, outcome: Outcome) -> CallReply {
        let Outcome {
            payload,
            content_type,
            seq,
            revision,
            http,
        } = outcome;
        CallReply {
            payload,
            content_type,
            shard,
            seq,
            revision,
            node: self.node.clone(),
            http,
        }
    }

    /// The shard is not open here.
    pub(super) fn unassigned(&self, shard: u32) -> CallError {
        let slot = &self.slots[shard as usize];
        let state = slot.state().as_str();
        let why = slot
            .last_error()
            .map_or_else(String::new, |error| format!("; last error: {error}"));
        CallError::host(
            CallErrorKind::Unassigned,
            format!("shard {shard} is not open here now ({state}){why}"),
        )
        .at(shard)
    }

    /// The time is up.
    fn late(&self, shard: u32) -> CallError {
        let why = self.slots[shard as usize]
            .store_trouble()
            .map_or_else(String::new, |trouble| {
                format!("; the store fails: {trouble}")
            });
        let message = format!(
            "shard {shard} did not reply in time; the call may have run, or may still run{why}"
        );
        CallError::host(CallErrorKind::Timeout, message).at(shard)
    }

    /// What the core says no to.
    fn refusal(&self, shard: u32, refusal: &Refusal) -> CallError {
        let (kind, message) = match refusal {
            Refusal::NoSuchShard { .. } => (CallErrorKind::Invalid, refusal.to_string()),
            Refusal::Unassigned { .. } => {
                let error = self.slots[shard as usize].last_error();
                let why = error.map_or_else(String::new, |error| format!("; last error: {error}"));
                let park = Span(self.config.call.park);
                (
                    CallErrorKind::Unassigned,
                    format!(
                        "{refusal} that serves it, for {park} (`call.park`) or the call's own time{why}"
                    ),
                )
            }
            Refusal::NotOwner { .. } => (CallErrorKind::NotOwner, refusal.to_string()),
            Refusal::NoAddress { .. } => (
                CallErrorKind::Unreachable,
                format!("{refusal}: set `internal.advertise` there"),
            ),
        };
        CallError::host(kind, message).at(shard)
    }
}

#[cfg(test)]
mod tests;

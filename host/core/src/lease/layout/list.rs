//! All nodes, and the leases that changed: listings first, then the bodies that have news.
//!
//! While the bucket is small, one page of a listing shows nodes and leases both. When it is not, only the nodes are listed each round,
//! and the leases when a peer has news or everything is to be looked at.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::shard::lease_seen;
use super::{Ask, AskId, Shared, Step, node_seen};
use crate::lease::object::{Entry, Key, ObjectReply, ObjectRequest, PAGE, Tag};
use crate::lease::op::{LeaseSeen, NodeSeen, Nodes, OpResult, Owners};
use crate::lease::record::{MAX_BYTES, NodeName, NodeRecord, RecordError};

/// How many bodies are read at once.
const WINDOW: usize = 16;
/// How many pages are read in one operation.
const PAGES: u32 = 256;
/// How many nodes whose session is not over are followed.
const MAX_NODES: usize = 1024;
/// How many further objects are kept in mind, so that they are not read again and again: sessions that are over, which nobody deletes, and
/// what only has the name of a node.
const MAX_OTHERS: usize = 16_384;
/// The folders as a listing orders them: after `X/` and up to `X0`.
const LEASES: (&str, &str) = ("leases/", "leases0");
const NODES: (&str, &str) = ("nodes/", "nodes0");

/// What was last read of all nodes.
#[derive(Debug, Default)]
pub(super) struct NodeCache {
    nodes: BTreeMap<NodeName, Cached>,
    /// One page did not show everything the last time it was tried.
    large: bool,
}

#[derive(Debug)]
struct Cached {
    tag: Option<Tag>,
    size: u64,
    record: Result<NodeRecord, RecordError>,
}

/// What the loop was last told of all leases.
#[derive(Debug, Default)]
pub(super) struct LeaseCache {
    /// The tag that each had; none for one that was missing.
    told: BTreeMap<u32, Option<Tag>>,
    /// Those that have changed since, and whether they are missing now.
    changed: BTreeMap<u32, bool>,
    /// The listing of nodes showed all leases, too.
    listed: bool,
    /// A peer has written a lease since they were listed, or they never were.
    stale: bool,
    /// They were listed once.
    known: bool,
}

impl LeaseCache {
    /// The loop has been told that the lease has this tag.
    pub(super) fn told(&mut self, shard: u32, tag: Option<Tag>) {
        self.told.insert(shard, tag);
        self.changed.remove(&shard);
    }

    /// What becomes of the lease is not known: it is read next time.
    pub(super) fn forget(&mut self, shard: u32) {
        self.told.remove(&shard);
        self.changed.insert(shard, false);
    }

    fn show(&mut self, shard: u32, tag: Option<&Tag>) {
        let same = match (self.told.get(&shard), tag) {
            (Some(Some(told)), Some(tag)) => told.same(tag),
            _ => false,
        };
        if same {
            self.changed.remove(&shard);
        } else {
            self.changed.insert(shard, false);
        }
    }

    /// A whole listing showed these leases and no others.
    fn finish(&mut self, shown: &BTreeSet<u32>, shards: u32) {
        for shard in (0..shards).filter(|shard| !shown.contains(shard)) {
            if self.told.get(&shard) == Some(&None) {
                self.changed.remove(&shard);
            } else {
                self.changed.insert(shard, true);
            }
        }
        self.stale = false;
        self.known = true;
    }
}

/// Requests in flight, a bounded number at a time.
#[derive(Debug)]
struct Window<T> {
    waiting: VecDeque<T>,
    flying: BTreeMap<AskId, T>,
    next: u32,
}

impl<T: Clone> Window<T> {
    fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            flying: BTreeMap::new(),
            next: 0,
        }
    }

    fn single(&mut self, what: T, request: ObjectRequest) -> Step {
        self.next += 1;
        let id = AskId(self.next);
        self.flying.insert(id, what);
        Step::Ask(vec![Ask { id, request }])
    }

    fn fill(&mut self, request: impl Fn(&T) -> ObjectRequest) -> Vec<Ask> {
        let mut asks = Vec::new();
        while self.flying.len() < WINDOW {
            let Some(what) = self.waiting.pop_front() else {
                break;
            };
            self.next += 1;
            let id = AskId(self.next);
            let request = request(&what);
            asks.push(Ask { id, request });
            self.flying.insert(id, what);
        }
        asks
    }

    fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.flying.is_empty()
    }
}

/// The next page of a listing.
fn page(after: &str) -> ObjectRequest {
    ObjectRequest::List {
        after: after.to_owned(),
        limit: PAGE,
    }
}

/// Reads all nodes.
#[derive(Debug)]
pub(super) struct NodesJob {
    all: bool,
    /// The listing began with everything, so it may show all leases.
    whole: bool,
    pages: u32,
    found: BTreeMap<NodeName, (Option<Tag>, u64)>,
    leases: BTreeSet<u32>,
    strangers: u64,
    window: Window<Option<NodeName>>,
}

impl NodesJob {
    pub(super) fn begin(shared: &mut Shared, all: bool) -> (Self, Step) {
        let whole = !shared.nodes.large || all;
        let mut job = Self {
            all,
            whole,
            pages: 0,
            found: BTreeMap::new(),
            leases: BTreeSet::new(),
            strangers: 0,
            window: Window::new(),
        };
        let step = job
            .window
            .single(None, page(if whole { "" } else { NODES.0 }));
        (job, step)
    }

    pub(super) fn reply(&mut self, shared: &mut Shared, id: AskId, reply: ObjectReply) -> Step {
        let Some(what) = self.window.flying.remove(&id) else {
            return Step::Ask(Vec::new());
        };
        match (what, reply) {
            (None, ObjectReply::Listed { entries, more }) => self.listed(shared, &entries, more),
            (Some(name), ObjectReply::Found { tag, body }) => {
                // What is too long is answered cut; by the size of the rest it would look changed each time.
                let listed = self.found.get(&name).map(|(_, size)| *size);
                let whole = (body.len() <= MAX_BYTES).then_some(body.len() as u64);
                let size = whole.or(listed).unwrap_or_default();
                let seen = node_seen(&name, Some((tag, &body)));
                self.cache(shared, name, size, seen);
                self.proceed(shared)
            }
            (Some(name), ObjectReply::Missing) => {
                self.found.remove(&name);
                self.proceed(shared)
            }
            (_, ObjectReply::Failed { message, .. }) => Step::Done(OpResult::Nodes(Err(message))),
            (_, other) => {
                let why = format!("the store answered {other:?}, which is no answer to that");
                Step::Done(OpResult::Nodes(Err(why)))
            }
        }
    }

    fn listed(&mut self, shared: &mut Shared, entries: &[Entry], more: bool) -> Step {
        self.pages += 1;
        for entry in entries {
            match Key::parse(&entry.name, shared.options.shards) {
                Some(Key::Node(name)) if self.found.len() < MAX_NODES + MAX_OTHERS => {
                    self.found.insert(name, (entry.tag.clone(), entry.size));
                }
                Some(Key::Lease(shard)) => {
                    shared.leases.show(shard, entry.tag.as_ref());
                    self.leases.insert(shard);
                }
                _ => self.strangers += u64::from(is_stranger(&entry.name)),
            }
        }
        let last = entries.last().map_or("", |entry| entry.name.as_str());
        if self.whole && self.pages == 1 {
            shared.nodes.large = more && last < NODES.1;
            if !more || last >= LEASES.1 {
                shared.leases.finish(&self.leases, shared.options.shards);
                shared.leases.listed = true;
            }
        }
        if more && last < NODES.1 {
            if self.pages >= PAGES || entries.is_empty() {
                let why = format!("more than {} names in {}", PAGES * PAGE, NODES.0);
                return Step::Done(OpResult::Nodes(Err(why)));
            }
            return self.window.single(None, page(last.max(NODES.0)));
        }
        self.choose(shared);
        self.proceed(shared)
    }

    /// The bodies that have news: of new names, of another size, without a tag, and those that were unreadable when their tag changed.
    fn choose(&mut self, shared: &mut Shared) {
        shared
            .nodes
            .nodes
            .retain(|name, _| self.found.contains_key(name));
        for (name, (tag, size)) in &self.found {
            let Some(cached) = shared.nodes.nodes.get_mut(name) else {
                self.window.waiting.push_back(Some(name.clone()));
                continue;
            };
            let same = matches!((&cached.tag, tag), (Some(old), Some(new)) if old.same(new));
            let readable = cached.record.is_ok();
            // What was unreadable and has the same tag still is: so a read that was given up goes on where it stopped, however many
            // objects only have the name of a node.
            let asked = self.all && (readable || !same);
            if asked || tag.is_none() || cached.size != *size || (!readable && !same) {
                self.window.waiting.push_back(Some(name.clone()));
            } else if !same {
                cached.tag.clone_from(tag);
            }
        }
    }

    fn cache(&mut self, shared: &mut Shared, name: NodeName, size: u64, seen: NodeSeen) {
        let cache = &mut shared.nodes.nodes;
        let is_me = shared.me.as_ref().is_some_and(|me| me.name == name);
        let known = cache.get(&name);
        let has_news = known.is_none_or(|known| known.size != size || known.record.is_err());
        let lives = |record: &Result<NodeRecord, RecordError>| {
            record
                .as_ref()
                .is_ok_and(|record| !record.info.state.is_over())
        };
        let room = || {
            cache
                .values()
                .filter(|cached| lives(&cached.record))
                .count()
                < MAX_NODES
        };
        if known.is_none() && !is_me && lives(&seen.record) && !room() {
            self.strangers += 1;
            self.found.remove(&name);
            return;
        }
        shared.leases.stale |= has_news && !is_me;
        let cached = Cached {
            tag: seen.tag,
            size,
            record: seen.record,
        };
        cache.insert(name, cached);
    }

    fn proceed(&mut self, shared: &mut Shared) -> Step {
        let asks = self.window.fill(|name| match name {
            Some(name) => ObjectRequest::Get(Key::Node(name.clone())),
            None => page(NODES.0),
        });
        if !self.window.is_done() {
            return Step::Ask(asks);
        }
        shared
            .nodes
            .nodes
            .retain(|name, _| self.found.contains_key(name));
        let seen = |(name, cached): (&NodeName, &Cached)| NodeSeen {
            name: name.clone(),
            tag: cached.tag.clone(),
            record: cached.record.clone(),
        };
        Step::Done(OpResult::Nodes(Ok(Nodes {
            nodes: shared.nodes.nodes.iter().map(seen).collect(),
            strangers: self.strangers,
        })))
    }
}

/// Whether an object lies in a folder where only leases and nodes belong.
fn is_stranger(name: &str) -> bool {
    name.starts_with(NODES.0) || name.starts_with(LEASES.0)
}

/// Reads the leases that changed.
#[derive(Debug)]
pub(super) struct OwnersJob {
    pages: u32,
    shown: BTreeSet<u32>,
    changed: Vec<LeaseSeen>,
    failed: Option<String>,
    window: Window<Option<u32>>,
}

impl OwnersJob {
    pub(super) fn begin(shared: &mut Shared, all: bool) -> (Self, Step) {
        let mut job = Self {
            pages: 0,
            shown: BTreeSet::new(),
            changed: Vec::new(),
            failed: None,
            window: Window::new(),
        };
        let leases = &mut shared.leases;
        let listed = std::mem::take(&mut leases.listed);
        let step = if !listed && (all || leases.stale || !leases.known) {
            job.window.single(None, page(LEASES.0))
        } else {
            job.choose(shared)
        };
        (job, step)
    }

    pub(super) fn reply(&mut self, shared: &mut Shared, id: AskId, reply: ObjectReply) -> Step {
        let Some(what) = self.window.flying.remove(&id) else {
            return Step::Ask(Vec::new());
        };
        match (what, reply) {
            (None, ObjectReply::Listed { entries, more }) => {
                return self.listed(shared, &entries, more);
            }
            (Some(shard), ObjectReply::Found { tag, body }) => {
                self.tell(shared, lease_seen(shard, Some((tag, &body))));
            }
            (Some(shard), ObjectReply::Missing) => self.tell(shared, LeaseSeen::missing(shard)),
            (_, ObjectReply::Failed { message, .. }) => self.failed = Some(message),
            (_, other) => {
                let why = format!("the store answered {other:?}, which is no answer to that");
                self.failed = Some(why);
            }
        }
        if self.failed.is_some() {
            // The rest would hardly fare better; what is missing comes the next time.
            self.window.waiting.clear();
        }
        self.proceed()
    }

    /// What was read until now, when the operation is given up.
    pub(super) fn so_far(self, shared: &mut Shared, why: String) -> Owners {
        // A listing that was cut short is begun anew.
        shared.leases.stale |= self.window.flying.values().any(Option::is_none);
        Owners {
            changed: self.changed,
            failed: Some(self.failed.unwrap_or(why)),
        }
    }

    fn listed(&mut self, shared: &mut Shared, entries: &[Entry], more: bool) -> Step {
        self.pages += 1;
        for entry in entries {
            if let Some(Key::Lease(shard)) = Key::parse(&entry.name, shared.options.shards) {
                shared.leases.show(shard, entry.tag.as_ref());
                self.shown.insert(shard);
            }
        }
        let last = entries.last().map_or("", |entry| entry.name.as_str());
        if more && last < LEASES.1 {
            if self.pages >= PAGES || entries.is_empty() {
                self.failed = Some(format!("more than {} names in {}", PAGES * PAGE, LEASES.0));
                return self.proceed();
            }
            return self.window.single(None, page(last));
        }
        shared.leases.finish(&self.shown, shared.options.shards);
        self.choose(shared)
    }

    fn choose(&mut self, shared: &mut Shared) -> Step {
        for (shard, missing) in shared.leases.changed.clone() {
            if missing {
                self.tell(shared, LeaseSeen::missing(shard));
            } else {
                self.window.waiting.push_back(Some(shard));
            }
        }
        self.proceed()
    }

    fn tell(&mut self, shared: &mut Shared, seen: LeaseSeen) {
        shared.leases.told(seen.record.shard, seen.tag.clone());
        self.changed.push(seen);
    }

    fn proceed(&mut self) -> Step {
        let asks = self.window.fill(|shard| match shard {
            Some(shard) => ObjectRequest::Get(Key::Lease(*shard)),
            None => page(LEASES.0),
        });
        if !self.window.is_done() {
            return Step::Ask(asks);
        }
        Step::Done(OpResult::Owners(Owners {
            changed: std::mem::take(&mut self.changed),
            failed: self.failed.take(),
        }))
    }
}

//! Everything a seed decides before its run begins: the cluster, its options, and how hostile its world is. Printed in full when a run
//! fails, so that nothing has to be guessed from the seed.

mod climate;
mod deploys;

pub use climate::Climate;
pub use deploys::Deploys;

use super::queue::{MICRO, MILLI, SECOND, Time};
use super::rng::Rng;

/// How leases are kept, as the configuration names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayoutName {
    Session,
    Shard,
}

/// How the store makes its tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tags {
    /// A hash of the content, as S3 does: the same bytes have the same tag.
    Content,
    /// A number of its own for each version, as Google's and Azure's stores do.
    Unique,
}

/// How often the store does what to a request while faults last. Probabilities.
#[derive(Debug, Clone)]
pub struct StoreFaults {
    /// Answers 429, or refuses the connection: nothing happened, and the caller may know that.
    pub throttled: f64,
    /// Answers 500 or 503 before the effect; the caller cannot tell.
    pub before: f64,
    /// Answers 500 or 503 after the effect.
    pub after: f64,
    /// Answers 409 although the condition held and nothing happened.
    pub conflict: f64,
    /// Takes effect, is sent again by the client underneath, and answers 412 on the caller's own write.
    pub own_conflict: f64,
    /// Never answers, and nothing happens.
    pub hang: f64,
    /// Takes effect and never answers.
    pub hang_after: f64,
    /// Answers an error, or nothing, and a PUT lands up to `late_most` later.
    pub late: f64,
    pub late_most: Time,
    /// The share of requests whose delays have the heavy tail, up to `slow_most`.
    pub slow: f64,
    pub slow_most: Time,
}

/// How often which misfortune strikes: weights. A gap of `gap` on average lies between two.
#[derive(Debug, Clone)]
pub struct Chaos {
    pub gap: Time,
    pub pause: f64,
    pub stall_loop: f64,
    pub crash: f64,
    pub restart_at_once: f64,
    pub twin: f64,
    pub join: f64,
    pub leave: f64,
    pub drain: f64,
    pub cordon: f64,
    pub moved: f64,
    pub cut_store: f64,
    pub cut_replies: f64,
    pub cut_peers: f64,
    pub outage: f64,
    pub slow_store: f64,
    pub delete_lease: f64,
    pub corrupt_lease: f64,
    pub delete_node: f64,
    pub corrupt_node: f64,
    pub garbage: f64,
    pub database_crash: f64,
    pub stranger: f64,
    pub step_wall: f64,
    /// The longest pause, partition or outage.
    pub most: Time,
    /// Whether several may be broken at once.
    pub together: bool,
}

impl Chaos {
    /// The weights in the order of [`Misfortune::ALL`].
    pub fn weights(&self) -> [f64; 23] {
        [
            self.pause,
            self.stall_loop,
            self.crash,
            self.restart_at_once,
            self.twin,
            self.join,
            self.leave,
            self.drain,
            self.cordon,
            self.moved,
            self.cut_store,
            self.cut_replies,
            self.cut_peers,
            self.outage,
            self.slow_store,
            self.delete_lease,
            self.corrupt_lease,
            self.delete_node,
            self.corrupt_node,
            self.garbage,
            self.database_crash,
            self.stranger,
            self.step_wall,
        ]
    }
}

/// One kind of misfortune.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misfortune {
    Pause,
    StallLoop,
    Crash,
    RestartAtOnce,
    Twin,
    Join,
    Leave,
    Drain,
    Cordon,
    Move,
    CutStore,
    CutReplies,
    CutPeers,
    Outage,
    SlowStore,
    DeleteLease,
    CorruptLease,
    DeleteNode,
    CorruptNode,
    Garbage,
    DatabaseCrash,
    Stranger,
    StepWall,
}

impl Misfortune {
    pub const ALL: [Self; 23] = [
        Self::Pause,
        Self::StallLoop,
        Self::Crash,
        Self::RestartAtOnce,
        Self::Twin,
        Self::Join,
        Self::Leave,
        Self::Drain,
        Self::Cordon,
        Self::Move,
        Self::CutStore,
        Self::CutReplies,
        Self::CutPeers,
        Self::Outage,
        Self::SlowStore,
        Self::DeleteLease,
        Self::CorruptLease,
        Self::DeleteNode,
        Self::CorruptNode,
        Self::Garbage,
        Self::DatabaseCrash,
        Self::Stranger,
        Self::StepWall,
    ];
}

/// How databases open and close.
#[derive(Debug, Clone)]
pub struct Databases {
    /// About how long one step of an open takes; an open has four.
    pub step: Time,
    /// The share of opens and closes that take up to `slow_most`.
    pub slow: f64,
    pub slow_most: Time,
    /// The share of opens that fail at some step.
    pub fails: f64,
    /// The share of closes that never end by themselves.
    pub stuck: f64,
    pub open_timeout: Time,
    pub close_timeout: Time,
    /// How often an idle writer looks whether it was fenced.
    pub poll: Time,
}

/// One run.
#[derive(Debug, Clone)]
pub struct Setup {
    pub seed: u64,
    pub layout: LayoutName,
    pub tags: Tags,
    pub nodes: usize,
    pub shards: u32,
    pub ttl: Time,
    pub interval: Time,
    pub margin: Time,
    pub max_concurrency: usize,
    /// How far a clock's rate may be off, in parts per million.
    pub drift: u64,
    /// The usual delay of a store request, and of a message between nodes.
    pub store_delay: Time,
    pub peer_delay: Time,
    pub faults: StoreFaults,
    pub chaos: Chaos,
    pub databases: Databases,
    pub deploys: Deploys,
    /// How many objects that are nobody's lie in the bucket from the beginning.
    pub strangers: u32,
    /// The mean time between two calls of the whole cluster.
    pub call_gap: Time,
    /// How long faults last.
    pub fault_phase: Time,
    /// What happens in the quiet world, one after the other, each with bounds of its own.
    pub probes: Vec<Probe>,
}

/// A single clean change in a quiet world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    Crash,
    Restart,
    Leave,
    Join,
    Move,
    Drain,
    /// The store is away, but not for so long that a renewal could not come in time.
    Blip,
    /// A node stands still for longer than its leases live.
    Pause,
    /// The lease of a shard is deleted or spoiled.
    SpoilLease,
    /// The record of a node is deleted or spoiled.
    SpoilNode,
    /// A node can write but not read, and so takes nothing, while another one crashes.
    Blind,
}

impl Probe {
    pub const ALL: [Self; 11] = [
        Self::Crash,
        Self::Restart,
        Self::Leave,
        Self::Join,
        Self::Move,
        Self::Drain,
        Self::Blip,
        Self::Pause,
        Self::SpoilLease,
        Self::SpoilNode,
        Self::Blind,
    ];
}

impl Setup {
    /// The run of a seed.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed, 0);
        let nodes = *rng.pick(&[1, 2, 2, 3, 3, 3, 3, 4, 4, 5, 5, 6, 7, 9]);
        let shards = match rng.range(0, 10) {
            0 => 1,
            1..4 => rng.range(2, 6),
            4..8 => rng.range(4, 17),
            8 => rng.range(16, 33),
            _ => *rng.pick(&[32, 64, 64]),
        };
        let layout = if rng.chance(0.65) {
            LayoutName::Session
        } else {
            LayoutName::Shard
        };
        let ttl = *rng.pick(&[3, 9, 15, 15, 15]) * SECOND;
        let (interval, margin) = match rng.range(0, 4) {
            0 => (ttl / 4, ttl / 8),
            1 => (ttl / 5, ttl / 4),
            _ => (ttl / 3, ttl / 6),
        };
        let databases = Databases {
            step: rng.range(2 * MILLI, 60 * MILLI),
            slow: *rng.pick(&[0.0, 0.02, 0.2]),
            slow_most: rng.range(SECOND, 2 * ttl),
            fails: *rng.pick(&[0.0, 0.0, 0.02, 0.2]),
            stuck: *rng.pick(&[0.0, 0.0, 0.02, 0.1]),
            open_timeout: *rng.pick(&[10, 30]) * SECOND,
            close_timeout: *rng.pick(&[3, 10, 30]) * SECOND,
            poll: *rng.pick(&[1, 5, 10]) * SECOND,
        };
        let (faults, chaos) = hostility(&mut rng, ttl);
        let shards = u32::try_from(shards).unwrap_or(1);
        let probes = (0..2).map(|_| *rng.pick(&Probe::ALL)).collect();
        Self {
            seed,
            layout,
            tags: if rng.chance(0.6) {
                Tags::Content
            } else {
                Tags::Unique
            },
            nodes,
            shards,
            ttl,
            interval,
            margin,
            max_concurrency: *rng.pick(&[1, 2, 16, 16]),
            drift: *rng.pick(&[0, 200, 10_000, 10_000]),
            store_delay: rng.range(2 * MILLI, 50 * MILLI),
            peer_delay: rng.range(100 * MICRO, 3 * MILLI),
            faults,
            chaos,
            databases,
            deploys: Deploys::new(seed, shards, ttl),
            strangers: 0,
            call_gap: rng.range(100 * MILLI, 800 * MILLI),
            fault_phase: rng.range(8, 21) * ttl,
            probes,
        }
    }

    /// How long it takes one node to claim and open so many shards.
    pub fn opens(&self, shards: u64) -> Time {
        let request = 2 * self.store_delay;
        let one = 6 * self.databases.step + 4 * request;
        shards.div_ceil(self.max_concurrency as u64) * one + 10 * MILLI
    }
}

/// How hostile the world is: most runs have a theme, since a world in which everything breaks all the time gets nowhere near the
/// states in which bugs lie.
fn hostility(rng: &mut Rng, ttl: Time) -> (StoreFaults, Chaos) {
    let mut faults = StoreFaults {
        throttled: 0.0,
        before: 0.0,
        after: 0.0,
        conflict: 0.0,
        own_conflict: 0.0,
        hang: 0.0,
        hang_after: 0.0,
        late: 0.0,
        late_most: rng.range(ttl, 12 * ttl),
        slow: *rng.pick(&[0.0, 0.02, 0.1]),
        slow_most: rng.range(ttl / 4, 2 * ttl),
    };
    let mut chaos = Chaos {
        gap: rng.range(ttl / 2, 4 * ttl),
        pause: 0.0,
        stall_loop: 0.0,
        crash: 0.0,
        restart_at_once: 0.0,
        twin: 0.0,
        join: 0.0,
        leave: 0.0,
        drain: 0.0,
        cordon: 0.0,
        moved: 0.0,
        cut_store: 0.0,
        cut_replies: 0.0,
        cut_peers: 0.0,
        outage: 0.0,
        slow_store: 0.0,
        delete_lease: 0.0,
        corrupt_lease: 0.0,
        delete_node: 0.0,
        corrupt_node: 0.0,
        garbage: 0.0,
        database_crash: 0.0,
        stranger: 0.0,
        step_wall: 0.0,
        most: rng.range(ttl / 2, 4 * ttl),
        together: rng.chance(0.6),
    };
    let mut theme = |theme: u64, strength: f64| match theme {
        0 => {
            faults.throttled += 0.02 * strength;
            faults.before += 0.02 * strength;
            faults.after += 0.03 * strength;
            faults.conflict += 0.02 * strength;
            faults.own_conflict += 0.03 * strength;
        }
        1 => {
            faults.hang += 0.01 * strength;
            faults.hang_after += 0.01 * strength;
            faults.late += 0.03 * strength;
        }
        2 => {
            chaos.pause += 4.0 * strength;
            chaos.stall_loop += strength;
        }
        3 => {
            chaos.crash += 3.0 * strength;
            chaos.restart_at_once += 2.0 * strength;
            chaos.twin += 0.5 * strength;
        }
        4 => {
            chaos.join += 2.0 * strength;
            chaos.leave += 2.0 * strength;
            chaos.drain += 0.5 * strength;
            chaos.cordon += strength;
            chaos.moved += 3.0 * strength;
        }
        5 => {
            chaos.cut_store += 2.0 * strength;
            chaos.cut_replies += 1.5 * strength;
            chaos.cut_peers += strength;
        }
        6 => {
            chaos.outage += strength;
            chaos.slow_store += 2.0 * strength;
        }
        7 => {
            chaos.delete_lease += 2.0 * strength;
            chaos.corrupt_lease += 2.0 * strength;
            chaos.garbage += strength;
        }
        8 => {
            chaos.delete_node += strength;
            chaos.corrupt_node += strength;
        }
        _ => {
            chaos.database_crash += 2.0 * strength;
            chaos.stranger += strength;
            chaos.step_wall += strength;
        }
    };
    match rng.range(0, 12) {
        // A calm world: only the membership changes.
        0 => theme(4, 1.0),
        1..9 => {
            for _ in 0..rng.range(1, 4) {
                theme(rng.range(0, 10), 1.0);
            }
            theme(rng.range(2, 6), 0.5);
        }
        _ => (0..10).for_each(|each| theme(each, 0.6)),
    }
    (faults, chaos)
}

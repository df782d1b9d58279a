//! What happens in a world.

use quarry_core::control::Command;
use quarry_core::lease::op::OpId;
use quarry_core::lease::record::SessionId;
use quarry_core::runner::{RunnerCommand, RunnerReport};

use super::super::queue::Time;
use super::super::setup::Misfortune;
use super::process::{Item, ProcessId};
use super::rollouts::Work;

/// An event.
#[derive(Debug, Clone)]
pub enum Event {
    /// The loop's or the runner's moment has come.
    WakeControl(ProcessId),
    WakeRunner(ProcessId),
    /// A command or a report between the two, which are tasks of their own.
    ToRunner(ProcessId, RunnerCommand),
    ToControl(ProcessId, RunnerReport),
    Command(ProcessId, Command),
    /// A peer said that it does not have a shard.
    RouteMiss(ProcessId, u32),
    /// A request to the store takes effect; its answer comes; its time is up; the whole operation's time is up.
    Effect(u64),
    Answer(ProcessId, u64),
    Timeout(ProcessId, u64),
    OpTimeout(ProcessId, OpId),
    /// Something happens to the database that a process has open under this handle.
    Site(ProcessId, u32, u64, SiteEvent),
    /// A flush reaches the store, whatever has become of its process.
    Land(Landing),
    /// A message arrives.
    Message {
        from: ProcessId,
        to: ProcessId,
        message: Message,
    },
    /// The next call of a caller; the patience of one ends; one is tried again.
    NextCall,
    CallTimer {
        call: u64,
        attempt: u32,
        why: Timer,
    },
    ParkTimer(ProcessId, u64, u32),
    /// Something bad, and its end.
    Strike,
    Heal(Misfortune, ProcessId),
    /// The oracles of the quiet phase look around.
    Look,
    Start(ProcessId),
    /// Something of a rollout, in a process or outside of all.
    Rollout(Option<ProcessId>, Work),
}

/// Why a call is looked at again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timer {
    Retry,
    /// The route it was sent on, or its patience, has ended.
    GiveUp,
}

/// What happens to an open database.
#[derive(Debug, Clone)]
pub enum SiteEvent {
    /// The next step of its open is done.
    Step(u8, u64),
    OpenTimeout,
    /// The answer to a flush.
    Flushed(Result<(), ()>),
    /// It looks whether it was fenced.
    Poll,
    Close,
    CloseTimeout,
}

/// A flush on its way.
#[derive(Debug, Clone)]
pub struct Landing {
    pub process: ProcessId,
    pub shard: u32,
    pub handle: u64,
    pub epoch: u64,
    pub items: Vec<Item>,
}

/// What processes say to each other.
#[derive(Debug, Clone)]
pub enum Message {
    Call {
        call: u64,
        attempt: u32,
        session: SessionId,
    },
    Reply {
        call: u64,
        attempt: u32,
        reply: Reply,
    },
    Notice(u32),
}

/// How an attempt ended, as the entry node hears it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// It ran and may be told: the value read or written.
    Done(u64),
    /// Nothing ran: not the owner.
    NotOwner,
    /// The peer could not be reached.
    Unreachable,
    /// It ran, or may have; nobody knows more.
    Unknown,
}

/// What runs apart from each other in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thread {
    Loop,
    Runner,
    Shards,
}

impl Event {
    /// The process that has to run for this to happen, and what in it.
    pub fn thread(&self) -> Option<(ProcessId, Thread)> {
        match self {
            Self::WakeControl(process)
            | Self::ToControl(process, _)
            | Self::Command(process, _)
            | Self::RouteMiss(process, _)
            | Self::Answer(process, _)
            | Self::Timeout(process, _)
            | Self::OpTimeout(process, _)
            | Self::Rollout(Some(process), _) => Some((*process, Thread::Loop)),
            Self::WakeRunner(process) | Self::ToRunner(process, _) => {
                Some((*process, Thread::Runner))
            }
            Self::Message {
                to,
                message: Message::Notice(_),
                ..
            } => Some((*to, Thread::Loop)),
            Self::Site(process, ..)
            | Self::ParkTimer(process, ..)
            | Self::Message { to: process, .. } => Some((*process, Thread::Shards)),
            Self::Effect(_)
            | Self::Land(_)
            | Self::NextCall
            | Self::CallTimer { .. }
            | Self::Strike
            | Self::Heal(..)
            | Self::Look
            | Self::Start(_)
            | Self::Rollout(None, _) => None,
        }
    }
}

/// How often at the most something is tried again while a store is away.
pub const RETRY: Time = 300 * super::super::queue::MILLI;

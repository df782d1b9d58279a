//! Revisions in Rust: all add to the same counters, and each fails in a way of its own.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use quarry::deploy::Library;
use quarry::guest::native::{self, Logic};
use quarry::guest::{GuestError, InstanceContext, Reply, Request};
use tokio::sync::watch;

/// How a revision behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// As it should.
    Good,
    /// Its start fails with an error.
    StartFails,
    /// Its start traps.
    StartTraps,
    /// Its start hangs.
    StartHangs,
    /// Its `resume` fails with an error.
    ResumeFails,
    /// Its `resume` traps.
    ResumeTraps,
    /// Its `suspend` hangs.
    SuspendHangs,
    /// Its `suspend` fails with an error.
    SuspendFails,
    /// Its migration fails with an error.
    MigrateFails,
    /// Its migration does not end.
    MigratesOn,
    /// Its tenth call traps.
    TenthTraps,
    /// Each twentieth call fails.
    FivePercent,
    /// Each call takes 20 ms.
    Slow,
}

/// True from when a call of `hold` has begun, which ends once it is false again.
pub static HOLDING: LazyLock<watch::Sender<bool>> = LazyLock::new(|| watch::Sender::new(false));

/// What a name of the library does, and whether it hands memory over.
const LOGIC: [(&str, Way, bool); 14] = [
    ("plain-1", Way::Good, false),
    ("plain-2", Way::Good, false),
    ("plain-3", Way::Good, false),
    ("memory-1", Way::Good, true),
    ("memory-2", Way::Good, true),
    ("start-fails", Way::StartFails, false),
    ("start-traps", Way::StartTraps, false),
    ("start-hangs", Way::StartHangs, false),
    ("resume-fails", Way::ResumeFails, true),
    ("resume-traps", Way::ResumeTraps, true),
    ("suspend-hangs", Way::SuspendHangs, true),
    ("suspend-fails", Way::SuspendFails, true),
    ("tenth-traps", Way::TenthTraps, false),
    ("five-percent", Way::FivePercent, false),
];

pub fn library() -> Library {
    let mut library = Library::new().with("slow", |name, revision| {
        native::module(name, revision, |_| Adder::<false>::new(Way::Slow))
    });
    for (logic, way) in [
        ("migrate-fails", Way::MigrateFails),
        ("migrates-on", Way::MigratesOn),
    ] {
        library = library.with(logic, move |name, revision| {
            native::module(name, revision, move |_| Adder::<false, true>::new(way))
        });
    }
    for (logic, way, memory) in LOGIC {
        library = library.with(logic, move |name, revision| {
            if memory {
                native::module(name, revision, move |_| Adder::<true>::new(way))
            } else {
                native::module(name, revision, move |_| Adder::<false>::new(way))
            }
        });
    }
    library
}

/// Of a program that knows of one alone, which behaves as it should.
pub fn only(logic: &str) -> Library {
    Library::new().with(logic, |name, revision| {
        native::module(name, revision, |_| Adder::<false>::new(Way::Good))
    })
}

struct Adder<const MEMORY: bool, const MIGRATES: bool = false> {
    way: Way,
    calls: u64,
    /// Calls of `remember` that its memory knows of.
    remembered: u64,
}

impl<const MEMORY: bool, const MIGRATES: bool> Adder<MEMORY, MIGRATES> {
    fn new(way: Way) -> Self {
        Self {
            way,
            calls: 0,
            remembered: 0,
        }
    }
}

#[async_trait]
impl<const MEMORY: bool, const MIGRATES: bool> Logic for Adder<MEMORY, MIGRATES> {
    const HANDOFF: bool = MEMORY;
    const MIGRATION: bool = MIGRATES;

    async fn start(&mut self, _: &InstanceContext) -> Result<(), GuestError> {
        match self.way {
            Way::StartFails => Err(GuestError::new("mine", "start failed on purpose")),
            Way::StartTraps => panic!("start panicked on purpose"),
            Way::StartHangs => std::future::pending().await,
            _ => Ok(()),
        }
    }

    async fn call(
        &mut self,
        context: &InstanceContext,
        request: &Request,
    ) -> Result<Reply, GuestError> {
        self.calls += 1;
        match self.way {
            Way::TenthTraps if self.calls == 10 => panic!("the tenth call panicked on purpose"),
            Way::FivePercent if self.calls.is_multiple_of(20) => {
                return Err(GuestError::new("mine", "one of twenty fails on purpose"));
            }
            Way::Slow => tokio::time::sleep(Duration::from_millis(20)).await,
            _ => {}
        }
        let db = &context.db;
        let key = request.key.clone().unwrap_or_else(|| "shard".into());
        match request.method.as_str() {
            "add" => {
                let count = db.view().get(&key).await?.map_or(0, |value| {
                    u64::from_le_bytes(value[..].try_into().expect("8 bytes"))
                }) + 1;
                let value = Bytes::copy_from_slice(&count.to_le_bytes());
                db.put(key, value).await?;
                Ok(Reply::new(count.to_string()))
            }
            "remember" => {
                self.remembered += 1;
                Ok(Reply::new(self.remembered.to_string()))
            }
            "get" => Ok(Reply::new(db.view().get(&key).await?.unwrap_or_default())),
            "hold" => {
                HOLDING.send_replace(true);
                let mut holding = HOLDING.subscribe();
                _ = holding.wait_for(|holding| !holding).await;
                Ok(Reply::new("held"))
            }
            "options" => Ok(Reply::new(context.options.to_string())),
            method => Err(GuestError::new("unknown-method", method)),
        }
    }

    async fn suspend(&mut self, _: &InstanceContext) -> Result<Bytes, GuestError> {
        match self.way {
            Way::SuspendHangs => std::future::pending().await,
            Way::SuspendFails => Err(GuestError::new("mine", "suspend failed on purpose")),
            _ => Ok(Bytes::copy_from_slice(&self.remembered.to_le_bytes())),
        }
    }

    async fn resume(
        &mut self,
        _: &InstanceContext,
        _: u64,
        state: &[u8],
    ) -> Result<(), GuestError> {
        match self.way {
            Way::ResumeFails => Err(GuestError::new("mine", "resume failed on purpose")),
            Way::ResumeTraps => panic!("resume panicked on purpose"),
            _ => {
                self.remembered = u64::from_le_bytes(state.try_into().expect("8 bytes"));
                Ok(())
            }
        }
    }

    async fn migrate(&mut self, context: &InstanceContext, _: u64) -> Result<bool, GuestError> {
        match self.way {
            Way::MigrateFails => Err(GuestError::new("mine", "migrate failed on purpose")),
            Way::MigratesOn => {
                context.db.put("migrates".into(), "on".into()).await?;
                Ok(false)
            }
            _ => Ok(true),
        }
    }
}

/// The loader of a node.
pub fn loader() -> Arc<Library> {
    Arc::new(library())
}

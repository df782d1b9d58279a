//! The revisions that a node has made ready: those that its shards may have to run soon.
//!
//! Each is fetched, verified, compiled and checked once for all shards of the node, on tasks of its own, so that no shard waits for it. What
//! fails for a reason that passes is tried again with growing pauses. What this node refuses is remembered with the reason, and looked at
//! again at times: somebody may repair what lies in the bucket.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use quarry_core::deploy::{Check, ModuleSpec};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::grants::honoured;
use super::limits::limits;
use super::{Error, Loaded, Loader, Objects, Source, placeholder};
use crate::clock;
use crate::config::Config;
use crate::guest::compound::{Compound, Part};
use crate::guest::{Failure, Limits};

/// The pauses after failures that pass.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// When a revision that was refused is looked at again.
const REFUSED_FOR: Duration = Duration::from_secs(60);
/// How long a loader may take, so that one that hangs is told of.
const LOAD_TIME: Duration = Duration::from_secs(600);

/// The revisions of a node.
pub(crate) struct Catalog {
    maker: Arc<Maker>,
    /// Where they are made.
    on: Handle,
    entries: Mutex<BTreeMap<u64, Entry>>,
}

/// What makes revisions ready.
struct Maker {
    objects: Objects,
    loader: Arc<dyn Loader>,
    config: Arc<Config>,
    /// Tells of each entry that changed.
    changed: watch::Sender<u64>,
}

/// A revision that is wanted. Dropped, it is given up.
struct Entry {
    state: Arc<Mutex<State>>,
    _making: AbortOnDropHandle<()>,
}

#[derive(Clone)]
enum State {
    /// It is being made; what failed before it was tried again.
    Busy(Option<Arc<str>>),
    Ready(Arc<Loaded>),
    Refused(Arc<str>),
}

/// Why a revision is not ready.
#[derive(Debug, PartialEq, Eq)]
enum NotMade {
    /// It passes.
    Failed(String),
    /// It does not.
    Refused(String),
}

impl Catalog {
    /// A node's, empty. Revisions are made on a runtime with several threads.
    pub(crate) fn new(
        objects: Objects,
        loader: Arc<dyn Loader>,
        config: Arc<Config>,
        on: Handle,
    ) -> Self {
        let maker = Maker {
            objects,
            loader,
            config,
            changed: watch::Sender::new(0),
        };
        Self {
            maker: Arc::new(maker),
            on,
            entries: Mutex::default(),
        }
    }

    /// From now on has these, and no others.
    pub(crate) fn want(&self, numbers: &BTreeSet<u64>) {
        let mut entries = self.lock();
        entries.retain(|number, _| numbers.contains(number));
        for number in numbers {
            entries.entry(*number).or_insert_with(|| self.make(*number));
        }
    }

    /// Looks at a revision again that was refused.
    pub(crate) fn afresh(&self, number: u64) {
        let mut entries = self.lock();
        let refused = entries
            .get(&number)
            .is_some_and(|entry| matches!(entry.state(), State::Refused(_)));
        if refused {
            entries.insert(number, self.make(number));
        }
    }

    /// A revision as this node has it.
    pub(crate) fn source(&self, revision: u64) -> Source {
        let state = self.lock().get(&revision).map(Entry::state);
        let loaded = match state {
            Some(State::Ready(loaded)) => Ok(loaded),
            Some(State::Refused(why)) => {
                Err(format!("this node cannot run revision {revision}: {why}").into())
            }
            Some(State::Busy(Some(why))) => {
                Err(format!("revision {revision} is not ready on this node yet: {why}").into())
            }
            Some(State::Busy(None)) | None => {
                Err(format!("revision {revision} is not ready on this node yet").into())
            }
        };
        Source { revision, loaded }
    }

    /// Whether this node can run a revision.
    pub(crate) fn check(&self, revision: u64) -> Check {
        match self.lock().get(&revision).map(Entry::state) {
            Some(State::Ready(_)) => Check::Fine,
            Some(State::Refused(why)) => Check::Refused(why.to_string()),
            Some(State::Busy(_)) | None => Check::Busy,
        }
    }

    /// Whether this node cannot run a revision.
    pub(crate) fn is_refused(&self, revision: u64) -> bool {
        matches!(self.check(revision), Check::Refused(_))
    }

    /// Tells when any of them has changed.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.maker.changed.subscribe()
    }

    fn make(&self, number: u64) -> Entry {
        let state = Arc::new(Mutex::new(State::Busy(None)));
        let (maker, told) = (self.maker.clone(), state.clone());
        let making = self.on.spawn(async move { maker.run(number, &told).await });
        Entry {
            state,
            _making: AbortOnDropHandle::new(making),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn state(&self) -> State {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Maker {
    /// Makes a revision ready, however often it takes.
    async fn run(&self, number: u64, state: &Mutex<State>) {
        let tell = |to: State| {
            *state.lock().unwrap_or_else(PoisonError::into_inner) = to;
            self.changed.send_modify(|version| *version += 1);
        };
        let mut pause = FIRST_PAUSE;
        loop {
            match self.make(number).await {
                Ok(loaded) => {
                    tracing::info!(revision = number, "revision ready");
                    return tell(State::Ready(Arc::new(loaded)));
                }
                Err(NotMade::Failed(why)) => {
                    tracing::warn!(revision = number, why, ?pause, "revision not ready yet");
                    tell(State::Busy(Some(why.into())));
                    clock::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Err(NotMade::Refused(why)) => {
                    tracing::error!(revision = number, why, "this node cannot run a revision");
                    tell(State::Refused(why.into()));
                    clock::sleep(REFUSED_FOR).await;
                    pause = FIRST_PAUSE;
                }
            }
        }
    }

    async fn make(&self, number: u64) -> Result<Loaded, NotMade> {
        if number == placeholder::REVISION {
            return Ok(Loaded {
                module: placeholder::module(),
                options: "{}".into(),
            });
        }
        let revision = self.objects.revision(number).await?;
        let mut parts = Vec::with_capacity(revision.modules.len());
        for module in &revision.modules {
            let part = self.part(number, module).await;
            // One of several is named.
            parts.push(match part {
                Ok(part) => part,
                Err(why) if revision.modules.len() == 1 => return Err(why),
                Err(NotMade::Failed(why)) => {
                    return Err(NotMade::Failed(format!("module `{}`: {why}", module.name)));
                }
                Err(NotMade::Refused(why)) => {
                    return Err(NotMade::Refused(format!("module `{}`: {why}", module.name)));
                }
            });
        }
        // Also a single one: so it is addressed as one of several is, and hands its memory over to one of several and back.
        let limits = Arc::new(Limits::from(&*self.config));
        Ok(Loaded {
            module: Arc::new(Compound::new(parts, &limits)),
            options: "{}".into(),
        })
    }

    /// Makes one module of a revision ready.
    async fn part(&self, number: u64, module: &ModuleSpec) -> Result<Part, NotMade> {
        let (options, limits) = self.terms(module).map_err(NotMade::Refused)?;
        let bytes = self.objects.module(&module.digest, module.size).await?;
        let loading = self.loader.load(bytes, &module.name, number, limits);
        let loaded = clock::timeout(LOAD_TIME, loading).await;
        let loaded = loaded
            .map_err(|_| NotMade::Failed(format!("it was not made ready within {LOAD_TIME:?}")))?;
        let loaded = loaded.map_err(NotMade::Refused)?;
        if loaded.describe().revision != number {
            let found = loaded.describe().revision;
            let why = format!("its loader made a module of revision {found} of it");
            return Err(NotMade::Refused(why));
        }
        match loaded.validate(&options).await {
            Ok(()) => {}
            Err(Failure::Error(error)) => {
                let why = format!("it refuses its options: {}", error.message);
                return Err(NotMade::Refused(why));
            }
            Err(Failure::Trap(trap)) => {
                let why = format!("it failed to check its options: {trap}");
                return Err(NotMade::Refused(why));
            }
            Err(Failure::NoRoom(why)) => return Err(NotMade::Failed(why.to_string())),
        }
        Ok(Part {
            module: loaded,
            options,
            prefix: Bytes::copy_from_slice(module.prefix.as_bytes()),
        })
    }

    /// The options and limits of a module, or what of them this node does not have.
    fn terms(&self, module: &ModuleSpec) -> Result<(Arc<str>, Arc<Limits>), String> {
        let grants = honoured(&module.grants)?;
        let options = match module.options.as_str() {
            "" => "{}",
            options => options,
        };
        if !matches!(
            serde_json::from_str(options),
            Ok(serde_json::Value::Object(_))
        ) {
            return Err("its options are no JSON object".into());
        }
        let limits = limits(&self.config, &module.limits).map_err(|error| error.to_string())?;
        // Its own, and not what the node's configuration grants to a module that it begins with.
        let limits = Limits { grants, ..limits };
        Ok((options.into(), Arc::new(limits)))
    }
}

impl From<Error> for NotMade {
    fn from(error: Error) -> Self {
        if error.is_transient() {
            Self::Failed(error.to_string())
        } else {
            Self::Refused(error.to_string())
        }
    }
}

#[cfg(test)]
mod tests;

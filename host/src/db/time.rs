//! SlateDB's clock. It keeps the machine's time by itself; where a test drives time, it gets that.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use object_store::ObjectStore;
use object_store::path::Path;
use slatedb::admin::AdminBuilder;
use slatedb_common::clock::{SystemClock, SystemClockTicker};

use crate::clock::driven::{self, NodeClock};

/// The driven clock of the calling thread, for SlateDB; none on the machine's time.
pub(super) fn driven() -> Option<Arc<dyn SystemClock>> {
    let clock = driven::here()?;
    Some(Arc::new(Driven(clock)))
}

/// A builder of what is done to a database from beside it.
pub(super) fn admin(path: Path, store: Arc<dyn ObjectStore>) -> AdminBuilder<Path> {
    let admin = AdminBuilder::new(path, store);
    match driven() {
        Some(clock) => admin.with_system_clock(clock),
        None => admin,
    }
}

/// As SlateDB's own clock, it takes the wall clock once, and from then on counts: nobody can set it back.
#[derive(Debug)]
struct Driven(NodeClock);

impl SystemClock for Driven {
    fn now(&self) -> DateTime<Utc> {
        DateTime::from_timestamp_millis(self.0.steady_wall_ms()).unwrap_or_default()
    }

    fn sleep<'a>(&'a self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(self.0.sleep(time))
    }

    fn ticker<'a>(&'a self, time: Duration) -> SystemClockTicker<'a> {
        SystemClockTicker::new(self, time)
    }
}

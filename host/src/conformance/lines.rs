//! What guests log, for the cases that look at it.

use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};

/// Lines that are kept, the newest.
const LINES_MAX: usize = 10_000;

/// The lines of the guests of this process.
#[derive(Clone, Default, Debug)]
pub struct Lines(Arc<Mutex<Vec<Line>>>);

/// A line: its fields as text, its level among them.
pub(super) type Line = Vec<(&'static str, String)>;

impl Lines {
    /// Takes the events of this process, and keeps those of guests; all others are dropped. Once per process, and instead of a log.
    ///
    /// # Errors
    /// When something takes them already.
    pub fn catch() -> Result<Self, TryInitError> {
        let lines = Self::default();
        tracing_subscriber::registry()
            .with(Catcher(lines.clone()))
            .try_init()?;
        Ok(lines)
    }

    /// Whether there is a line of a module with these fields. `text` and `fields` are to contain theirs, others to be the same.
    pub(super) fn have(&self, module: &str, wanted: &[(&str, &str)]) -> bool {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().any(|line| {
            let field = |name: &str| {
                let found = line.iter().find(|(known, _)| *known == name);
                found.map_or("", |(_, value)| value.as_str())
            };
            field("module") == module
                && wanted.iter().all(|(name, value)| match *name {
                    "text" | "fields" => field(name).contains(value),
                    name => field(name) == *value,
                })
        })
    }

    fn add(&self, line: Line) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LINES_MAX {
            lines.drain(..LINES_MAX / 2);
        }
        lines.push(line);
    }
}

struct Catcher(Lines);

impl<S: Subscriber> Layer<S> for Catcher {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.target() == "quarry::guest"
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields(vec![("level", event.metadata().level().to_string())]);
        event.record(&mut fields);
        self.0.add(fields.0);
    }
}

struct Fields(Line);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push((field.name(), value.to_owned()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push((field.name(), format!("{value:?}")));
    }
}

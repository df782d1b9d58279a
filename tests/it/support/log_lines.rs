//! What guests log, caught in this process: the lines of modules whose name begins with `logged-`.

use std::sync::{Mutex, Once, PoisonError};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

/// Lines that are kept, at most.
const LINES_MAX: usize = 50_000;

static LINES: Mutex<Vec<Line>> = Mutex::new(Vec::new());

/// One event of a guest's log.
#[derive(Debug, Clone, Default)]
pub struct Line {
    /// Its level, in capitals.
    pub level: String,
    /// Its fields, as text.
    pub fields: Vec<(&'static str, String)>,
}

impl Line {
    /// A field; empty where it has none.
    pub fn get(&self, name: &str) -> &str {
        self.fields
            .iter()
            .find(|(known, _)| *known == name)
            .map_or("", |(_, value)| value)
    }
}

/// Begins to catch. Has to come before the guest's first line.
pub fn catch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let subscriber = tracing_subscriber::registry().with(Catcher);
        tracing::subscriber::set_global_default(subscriber)
            .expect("nothing else takes this process's events");
    });
}

/// The lines of a module so far.
pub fn of(module: &str) -> Vec<Line> {
    assert!(module.starts_with("logged-"), "{module} is not caught");
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    lines
        .iter()
        .filter(|line| line.get("module") == module)
        .cloned()
        .collect()
}

struct Catcher;

impl<S: Subscriber> Layer<S> for Catcher {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.target() == "quarry::guest" && *metadata.level() <= Level::DEBUG
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = Line {
            level: event.metadata().level().to_string(),
            ..Line::default()
        };
        event.record(&mut line);
        let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        if line.get("module").starts_with("logged-") && lines.len() < LINES_MAX {
            lines.push(line);
        }
    }
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.push((field.name(), value.to_owned()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.fields.push((field.name(), format!("{value:?}")));
    }
}

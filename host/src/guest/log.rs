//! The lines of a guest: its `log` calls and what it writes to stdout and stderr, as `tracing` events with shard, module and
//! revision, within a byte rate.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::clock;

/// The longest message, in bytes; the rest is cut.
pub const MESSAGE_MAX_BYTES: usize = 16 << 10;
/// Fields of a line; further ones are cut.
pub const FIELDS_MAX: usize = 32;
/// The longest field name or value, in bytes; the rest is cut.
pub const FIELD_MAX_BYTES: usize = 1 << 10;
/// What a line counts beside its text, in bytes: the rest of what is written for it.
pub const LINE_OVERHEAD_BYTES: u64 = 128;
/// Lines are counted, and what was dropped is said, once in this time.
const WINDOW: Duration = Duration::from_secs(1);

/// The level of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Finer than debug.
    Trace,
    /// For developers.
    Debug,
    /// State changes.
    Info,
    /// Unexpected, carried on.
    Warn,
    /// A person should look.
    Error,
}

/// Where the lines of one shard's guest go.
pub struct GuestLog {
    shard: u32,
    module: Arc<str>,
    revision: u64,
    bytes_per_second: u64,
    /// Whether lines were dropped that were not reported, so that asking for a report mostly takes no lock.
    dropped: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    window: Option<Instant>,
    bytes: u64,
    dropped: u64,
}

impl GuestLog {
    /// A log for a shard's guest of a revision.
    #[must_use]
    pub fn new(shard: u32, module: Arc<str>, revision: u64, bytes_per_second: u64) -> Self {
        Self {
            shard,
            module,
            revision,
            bytes_per_second,
            dropped: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// Whether lines of this level go anywhere.
    #[must_use]
    pub fn enabled(&self, level: Level) -> bool {
        match level {
            Level::Trace => tracing::enabled!(target: "quarry::guest", tracing::Level::TRACE),
            Level::Debug => tracing::enabled!(target: "quarry::guest", tracing::Level::DEBUG),
            Level::Info => tracing::enabled!(target: "quarry::guest", tracing::Level::INFO),
            Level::Warn => tracing::enabled!(target: "quarry::guest", tracing::Level::WARN),
            Level::Error => tracing::enabled!(target: "quarry::guest", tracing::Level::ERROR),
        }
    }

    /// Writes a line, cut to the bounds; drops it when the guest's byte rate is used up.
    pub fn write(&self, level: Level, message: &str, fields: &[(String, String)]) {
        let message = cut(message, MESSAGE_MAX_BYTES);
        let mut text = String::new();
        for (name, value) in fields.iter().take(FIELDS_MAX) {
            if !text.is_empty() {
                text.push(' ');
            }
            text.push_str(cut(name, FIELD_MAX_BYTES));
            text.push('=');
            text.push_str(&format!("{:?}", cut(value, FIELD_MAX_BYTES)));
        }
        if self.admit((message.len() + text.len()) as u64) {
            self.emit(level, "log", message, &text);
        }
    }

    /// Takes a line of the guest's stdout (info) or stderr (warn).
    pub fn output(&self, stderr: bool, line: &str) {
        let line = cut(line, MESSAGE_MAX_BYTES);
        if self.admit(line.len() as u64) {
            if stderr {
                self.emit(Level::Warn, "stderr", line, "");
            } else {
                self.emit(Level::Info, "stdout", line, "");
            }
        }
    }

    /// Says how many lines were dropped, where some were; at most once a second, however often it is called. Without it, only a
    /// further line of the guest would tell.
    pub fn report(&self) {
        if !self.dropped.load(Ordering::Relaxed) {
            return;
        }
        let now = clock::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = self.next_window(&mut state, now);
        drop(state);
        self.say_dropped(lines);
    }

    /// Counts a line of so many bytes of text; false when it is to be dropped.
    fn admit(&self, bytes: u64) -> bool {
        let bytes = bytes.saturating_add(LINE_OVERHEAD_BYTES);
        let now = clock::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let report = self.next_window(&mut state, now);
        let admitted = state.bytes.saturating_add(bytes) <= self.bytes_per_second;
        if admitted {
            state.bytes += bytes;
        } else {
            state.dropped += 1;
            self.dropped.store(true, Ordering::Relaxed);
        }
        drop(state);
        self.say_dropped(report);
        admitted
    }

    /// Begins a window when the last one is over, and gives how many lines that dropped.
    fn next_window(&self, state: &mut State, now: Instant) -> u64 {
        let over = state
            .window
            .is_none_or(|start| now.saturating_duration_since(start) >= WINDOW);
        if !over {
            return 0;
        }
        state.window = Some(now);
        state.bytes = 0;
        self.dropped.store(false, Ordering::Relaxed);
        std::mem::take(&mut state.dropped)
    }

    fn say_dropped(&self, lines: u64) {
        if lines > 0 {
            tracing::warn!(target: "quarry::guest", shard = self.shard, module = &*self.module, revision = self.revision, dropped = lines,
                limit = self.bytes_per_second, "guest log lines dropped (limits.log_bytes_per_second)");
        }
    }

    fn emit(&self, level: Level, stream: &'static str, text: &str, fields: &str) {
        let fields = Some(fields).filter(|fields| !fields.is_empty());
        macro_rules! line {
            ($level:ident) => {
                tracing::event!(target: "quarry::guest", tracing::Level::$level, shard = self.shard, module = &*self.module,
                    revision = self.revision, stream, fields, text)
            };
        }
        match level {
            Level::Trace => line!(TRACE),
            Level::Debug => line!(DEBUG),
            Level::Info => line!(INFO),
            Level::Warn => line!(WARN),
            Level::Error => line!(ERROR),
        }
    }
}

impl Drop for GuestLog {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let lines = std::mem::take(&mut state.dropped);
        self.say_dropped(lines);
    }
}

fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts events of guests on this thread, and the lines that they say were dropped.
    #[derive(Clone, Default)]
    struct Events(Arc<Mutex<(u64, u64)>>);

    impl tracing::Subscriber for Events {
        fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
            metadata.target() == "quarry::guest"
        }

        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }

        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

        fn event(&self, event: &tracing::Event<'_>) {
            struct Dropped(u64);
            impl tracing::field::Visit for Dropped {
                fn record_debug(&mut self, _: &tracing::field::Field, _: &dyn std::fmt::Debug) {}

                fn record_str(&mut self, field: &tracing::field::Field, value: &str) {
                    assert!(field.name() != "fields" || !value.is_empty());
                }

                fn record_u64(&mut self, field: &tracing::field::Field, value: u64) {
                    if field.name() == "dropped" {
                        self.0 += value;
                    }
                }
            }
            let mut dropped = Dropped(0);
            event.record(&mut dropped);
            let mut seen = self.0.lock().expect("lock");
            seen.0 += 1;
            seen.1 += dropped.0;
        }

        fn enter(&self, _: &tracing::span::Id) {}

        fn exit(&self, _: &tracing::span::Id) {}
    }

    /// Lets the window of a log be over.
    fn pass(log: &GuestLog) {
        log.state.lock().expect("lock").window = None;
    }

    #[test]
    fn lines_cost_more_than_their_text_and_those_over_the_rate_are_dropped() {
        for (rate, line, admitted) in [
            (0, "", 0),
            (LINE_OVERHEAD_BYTES - 1, "", 0),
            (LINE_OVERHEAD_BYTES, "", 1),
            (10 * LINE_OVERHEAD_BYTES, "", 10),
            (10 * LINE_OVERHEAD_BYTES, "x", 9),
        ] {
            let events = Events::default();
            let lines = 10_000;
            tracing::subscriber::with_default(events.clone(), || {
                let log = GuestLog::new(0, "main".into(), 1, rate);
                for _ in 0..lines / 2 {
                    log.output(false, line);
                    log.write(Level::Error, line, &[]);
                }
                // The windows that began meanwhile, and the report of the end.
                let slack = 4 * (admitted + 1);
                drop(log);
                let (seen, dropped) = *events.0.lock().expect("lock");
                assert!(
                    (admitted..=admitted + slack).contains(&seen),
                    "{rate}: {seen} events"
                );
                assert!(
                    dropped >= lines - admitted - slack,
                    "{rate}: {dropped} said"
                );
            });
        }
    }

    #[test]
    fn what_was_dropped_is_said_without_a_further_line() {
        let events = Events::default();
        let seen = || *events.0.lock().expect("lock");
        tracing::subscriber::with_default(events.clone(), || {
            let log = GuestLog::new(0, "main".into(), 1, 0);
            log.report();
            assert_eq!(seen(), (0, 0), "nothing was dropped");
            log.output(true, "a");
            log.output(true, "b");
            pass(&log);
            log.report();
            assert_eq!(seen(), (1, 2));
            log.report();
            assert_eq!(seen(), (1, 2), "it is said once");
            log.output(true, "c");
            drop(log);
            assert_eq!(seen(), (2, 3), "the last lines are counted too");
        });
    }

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(cut("aä", 2), "a");
        assert_eq!(cut("abc", 10), "abc");
    }
}

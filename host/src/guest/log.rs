//! The lines of a guest: its `log` calls and what it writes to stdout and stderr, as `tracing` events with cluster, shard, module
//! and revision, within a byte rate. The last lines of stderr are kept, since they say why a guest trapped.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::clock;

/// The longest message, in bytes; the rest is cut.
pub const MESSAGE_MAX_BYTES: usize = 16 << 10;
/// Fields of a line; further ones are cut.
pub const FIELDS_MAX: usize = 32;
/// The longest field name or value, in bytes; the rest is cut.
pub const FIELD_MAX_BYTES: usize = 1 << 10;
/// How much of stderr is kept for the message of a trap, in bytes.
const LAST_WORDS_MAX_BYTES: usize = 4 << 10;

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
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    window: Option<Instant>,
    bytes: u64,
    dropped: u64,
    last_words: VecDeque<u8>,
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
        if stderr {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.last_words.extend(line.as_bytes());
            state.last_words.push_back(b'\n');
            let excess = state.last_words.len().saturating_sub(LAST_WORDS_MAX_BYTES);
            state.last_words.drain(..excess);
        }
        let line = cut(line, MESSAGE_MAX_BYTES);
        if self.admit(line.len() as u64) {
            if stderr {
                self.emit(Level::Warn, "stderr", line, "");
            } else {
                self.emit(Level::Info, "stdout", line, "");
            }
        }
    }

    /// What the guest last wrote to stderr, taken out: the panic message of most languages.
    pub fn take_last_words(&self) -> String {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: Vec<u8> = std::mem::take(&mut state.last_words).into();
        String::from_utf8_lossy(&bytes).trim().to_owned()
    }

    fn admit(&self, bytes: u64) -> bool {
        let now = clock::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = state
            .window
            .is_none_or(|start| now.saturating_duration_since(start) >= Duration::from_secs(1));
        let mut report = 0;
        if fresh {
            state.window = Some(now);
            state.bytes = 0;
            report = std::mem::take(&mut state.dropped);
        }
        let admitted = state.bytes.saturating_add(bytes) <= self.bytes_per_second;
        if admitted {
            state.bytes += bytes;
        } else {
            state.dropped += 1;
        }
        drop(state);
        if report > 0 {
            tracing::warn!(target: "quarry::guest", shard = self.shard, module = &*self.module, revision = self.revision, dropped = report,
                limit = self.bytes_per_second, "guest log lines dropped (limits.log_bytes_per_second)");
        }
        admitted
    }

    fn emit(&self, level: Level, stream: &'static str, text: &str, fields: &str) {
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

fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_are_kept_within_their_bound() {
        let log = GuestLog::new(0, "main".into(), 1, 1024);
        for n in 0..10_000 {
            log.output(true, &format!("line {n}"));
        }
        let words = log.take_last_words();
        assert!(words.ends_with("line 9999"), "{words}");
        assert!(words.len() <= LAST_WORDS_MAX_BYTES);
        assert_eq!(log.take_last_words(), "");
    }

    #[test]
    fn lines_over_the_byte_rate_are_dropped_and_counted() {
        let log = GuestLog::new(0, "main".into(), 1, 100);
        assert!(log.admit(60));
        assert!(!log.admit(60));
        assert!(log.admit(40));
        assert_eq!(log.state.lock().expect("lock").dropped, 1);
    }

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(cut("aä", 2), "a");
        assert_eq!(cut("abc", 10), "abc");
    }
}

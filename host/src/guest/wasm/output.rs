//! A guest's stdout and stderr, line by line to its log. The last lines of stderr are kept, since they say why a guest trapped.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError, StreamResult};

use crate::guest::log::{GuestLog, MESSAGE_MAX_BYTES};

/// What a guest may write at once; what it does not need to be, since a write only fills the buffer.
const PERMIT_BYTES: usize = 64 << 10;

/// How much of stderr is kept for the message of a trap, in bytes.
const LAST_WORDS_MAX_BYTES: usize = 4 << 10;

/// Both streams of an instance.
pub(super) struct Output {
    stdout: Arc<Lines>,
    stderr: Arc<Lines>,
}

impl Output {
    pub(super) fn new(log: Arc<GuestLog>) -> Self {
        let stream = |stderr| {
            Arc::new(Lines {
                log: log.clone(),
                stderr,
                used: AtomicBool::new(false),
                state: Mutex::default(),
            })
        };
        Self {
            stdout: stream(false),
            stderr: stream(true),
        }
    }

    pub(super) fn stdout(&self) -> Stream {
        Stream(self.stdout.clone())
    }

    pub(super) fn stderr(&self) -> Stream {
        Stream(self.stderr.clone())
    }

    /// Writes out lines that were begun and not ended.
    pub(super) fn finish(&self) {
        self.stdout.finish();
        self.stderr.finish();
    }

    /// What the guest last wrote to stderr, taken out: the panic message of most languages.
    pub(super) fn take_last_words(&self) -> String {
        let bytes: Vec<u8> = std::mem::take(&mut self.stderr.lock().last_words).into();
        let text = String::from_utf8_lossy(&bytes);
        // A hint of Rust's that a guest cannot follow: it has no environment.
        let hint = |line: &&str| line.starts_with("note: run with `RUST_BACKTRACE");
        let lines: Vec<&str> = text.lines().filter(|line| !hint(line)).collect();
        lines.join("\n").trim().to_owned()
    }

    /// Forgets what was written to stderr so far.
    pub(super) fn forget_last_words(&self) {
        if self.stderr.used.swap(false, Ordering::Relaxed) {
            self.stderr.lock().last_words.clear();
        }
    }
}

/// One stream: complete lines go to the log at once, the last one waits for its end, or for the call's.
struct Lines {
    log: Arc<GuestLog>,
    stderr: bool,
    /// Whether the state may hold something, so that most calls take no lock.
    used: AtomicBool,
    state: Mutex<Written>,
}

#[derive(Default)]
struct Written {
    /// A line without an end yet.
    partial: Vec<u8>,
    last_words: VecDeque<u8>,
}

impl Lines {
    fn lock(&self) -> MutexGuard<'_, Written> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, mut bytes: &[u8]) {
        let state = &mut *self.lock();
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = bytes.split_at(end);
            bytes = &rest[1..];
            if state.partial.is_empty() {
                self.emit(line, &mut state.last_words);
            } else {
                state.partial.extend_from_slice(line);
                self.emit(&std::mem::take(&mut state.partial), &mut state.last_words);
            }
        }
        state.partial.extend_from_slice(bytes);
        if state.partial.len() >= MESSAGE_MAX_BYTES {
            self.emit(&std::mem::take(&mut state.partial), &mut state.last_words);
        }
        self.used.store(true, Ordering::Relaxed);
    }

    fn finish(&self) {
        if !self.used.load(Ordering::Relaxed) {
            return;
        }
        let state = &mut *self.lock();
        if !state.partial.is_empty() {
            self.emit(&std::mem::take(&mut state.partial), &mut state.last_words);
        }
    }

    fn emit(&self, line: &[u8], last_words: &mut VecDeque<u8>) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if self.stderr {
            last_words.extend(line);
            last_words.push_back(b'\n');
            let excess = last_words.len().saturating_sub(LAST_WORDS_MAX_BYTES);
            last_words.drain(..excess);
        }
        self.log.output(self.stderr, &String::from_utf8_lossy(line));
    }
}

/// What WASI writes to.
#[derive(Clone)]
pub(super) struct Stream(Arc<Lines>);

impl IsTerminal for Stream {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Stream {
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }

    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Stream {
    async fn ready(&mut self) {}
}

impl OutputStream for Stream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        if bytes.len() > PERMIT_BYTES {
            return Err(StreamError::Trap(wasmtime::Error::msg(
                "the guest wrote more to a stream than it was permitted",
            )));
        }
        self.0.write(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(PERMIT_BYTES)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let bytes = &bytes[..bytes.len().min(PERMIT_BYTES)];
        self.0.write(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_at_newlines_whatever_the_writes() {
        for (writes, words) in [
            (&["one\ntwo\n"][..], "one\ntwo"),
            (&["on", "e\ntw", "o"], "one\ntwo"),
            (&["one\r\n", "\r\n", "two"], "one\n\ntwo"),
            (&["", "one"], "one"),
        ] {
            let log = Arc::new(GuestLog::new(0, "main".into(), 1, 1 << 20));
            let output = Output::new(log);
            for write in writes {
                output.stderr().write(Bytes::from(*write)).expect("written");
            }
            output.finish();
            assert_eq!(output.take_last_words(), words, "{writes:?}");
        }
    }

    #[test]
    fn the_last_words_are_kept_within_their_bound_and_forgotten() {
        let output = Output::new(Arc::new(GuestLog::new(0, "main".into(), 1, 1024)));
        let write = |line: String| output.stderr().write(line.into()).expect("written");
        for n in 0..10_000 {
            write(format!("line {n}\n"));
        }
        assert!(output.stderr.lock().last_words.len() <= LAST_WORDS_MAX_BYTES);
        let words = output.take_last_words();
        assert!(words.ends_with("line 9999"), "{words}");
        assert_eq!(output.take_last_words(), "");
        write("of an earlier call".into());
        output.finish();
        output.forget_last_words();
        assert_eq!(output.take_last_words(), "");
    }

    #[test]
    fn a_line_without_end_is_bounded() {
        let log = Arc::new(GuestLog::new(0, "main".into(), 1, 1 << 20));
        let output = Output::new(log);
        for _ in 0..100 {
            output
                .stdout()
                .write(Bytes::from(vec![b'x'; 4096]))
                .expect("written");
            assert!(output.stdout.lock().partial.len() < MESSAGE_MAX_BYTES);
        }
        assert!(
            output
                .stdout()
                .write(Bytes::from(vec![0; PERMIT_BYTES + 1]))
                .is_err()
        );
    }
}

//! Log lines on their way to standard error: a bounded queue, and a thread that writes. When the queue is full, lines are dropped and
//! counted, and the count is written once there is room.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

use crate::clock;

/// Lines that may wait.
const LINES_MAX: usize = 8192;
/// Their bytes together. One line is taken at any length when none waits.
const BYTES_MAX: usize = 8 << 20;
/// How long the end of the process waits for what is queued.
const FLUSH_TIME: Duration = Duration::from_secs(1);
/// Between two looks whether there is room for the request to flush.
const FLUSH_PAUSE: Duration = Duration::from_millis(10);

/// The queue of this process, once [`start`] was called.
static STARTED: OnceLock<Lines> = OnceLock::new();

/// Starts the thread that writes to standard error.
pub(super) fn start() -> io::Result<Lines> {
    if let Some(lines) = STARTED.get() {
        return Ok(lines.clone());
    }
    let (lines, receiver) = Lines::new();
    let state = lines.state.clone();
    thread::Builder::new()
        .name("quarry-log".into())
        .spawn(move || write_all(&receiver, &state, &mut io::stderr()))?;
    Ok(STARTED.get_or_init(|| lines).clone())
}

/// Waits until what was logged so far is written, but not for long: nobody may read it.
pub(crate) fn flush() {
    if let Some(lines) = STARTED.get() {
        lines.flush(FLUSH_TIME);
    }
}

enum Item {
    Line(Vec<u8>),
    /// Tell when everything before this was written.
    Flush(SyncSender<()>),
}

#[derive(Debug, Default)]
struct State {
    bytes: AtomicUsize,
    dropped: AtomicU64,
}

/// The queue's near end. `tracing` writes each event at once, as one line.
#[derive(Debug, Clone)]
pub(super) struct Lines {
    queue: SyncSender<Item>,
    state: Arc<State>,
}

impl Lines {
    fn new() -> (Self, Receiver<Item>) {
        let (queue, receiver) = mpsc::sync_channel(LINES_MAX);
        let state = Arc::default();
        (Self { queue, state }, receiver)
    }

    fn push(&self, line: &[u8]) {
        let before = self.state.bytes.fetch_add(line.len(), Relaxed);
        let fits = before == 0 || before.saturating_add(line.len()) <= BYTES_MAX;
        if !fits || self.queue.try_send(Item::Line(line.to_vec())).is_err() {
            self.state.bytes.fetch_sub(line.len(), Relaxed);
            self.state.dropped.fetch_add(1, Relaxed);
        }
    }

    fn flush(&self, within: Duration) -> bool {
        let until = clock::now() + within;
        let (told, done) = mpsc::sync_channel(1);
        let mut item = Item::Flush(told);
        loop {
            let left = until.saturating_duration_since(clock::now());
            match self.queue.try_send(item) {
                Ok(()) => return done.recv_timeout(left).is_ok(),
                Err(mpsc::TrySendError::Full(back)) if !left.is_zero() => item = back,
                Err(_) => return false,
            }
            thread::sleep(FLUSH_PAUSE.min(left));
        }
    }
}

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// Writes until every near end is gone. That nobody can see it is no failure.
fn write_all(queue: &Receiver<Item>, state: &State, out: &mut impl Write) {
    while let Ok(item) = queue.recv() {
        match item {
            Item::Line(line) => {
                let _ = out.write_all(&line);
                state.bytes.fetch_sub(line.len(), Relaxed);
            }
            Item::Flush(told) => {
                let _ = out.flush();
                let _ = told.send(());
            }
        }
        let dropped = state.dropped.swap(0, Relaxed);
        if dropped > 0 {
            let _ = writeln!(
                out,
                "{dropped} log lines were dropped here: standard error is not read fast enough"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_nobody_reads_holds_up_nothing_and_says_what_it_dropped() {
        let (mut lines, receiver) = Lines::new();
        for _ in 0..LINES_MAX + 3 {
            lines.write_all(b"line\n").expect("never fails");
        }
        assert!(!lines.flush(Duration::ZERO), "nobody writes");
        let state = lines.state.clone();
        drop(lines);
        let mut out = Vec::new();
        write_all(&receiver, &state, &mut out);
        let text = String::from_utf8(out).expect("text");
        assert_eq!(text.matches("line\n").count(), LINES_MAX);
        assert_eq!(
            text.matches("3 log lines were dropped").count(),
            1,
            "the queue's bound, said once"
        );
        assert_eq!(state.bytes.load(Relaxed), 0);
    }

    #[test]
    fn bytes_are_bounded_too() {
        let (mut lines, receiver) = Lines::new();
        let long = vec![b'x'; BYTES_MAX + 1];
        lines.write_all(&long).expect("never fails");
        lines.write_all(b"short\n").expect("never fails");
        assert_eq!(lines.state.dropped.load(Relaxed), 1);
        let state = lines.state.clone();
        let writer = thread::spawn(move || {
            let mut out = Vec::new();
            write_all(&receiver, &state, &mut out);
            out.len()
        });
        assert!(lines.flush(Duration::from_secs(20)), "all is written");
        drop(lines);
        assert!(writer.join().expect("no panic") > long.len());
    }
}

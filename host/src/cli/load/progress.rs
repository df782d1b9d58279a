//! How far a load is: a bar for a person, a line every few seconds for a log.

use std::io::Write as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{is_watched, seconds};
use crate::clock;

/// How often a line is written where nobody watches.
const EVERY: Duration = Duration::from_secs(5);

/// Says on standard error how far a load is.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    began: Instant,
    last: Instant,
}

impl Progress {
    /// For an input of this many bytes, where it is known.
    pub(super) fn new(size: Option<u64>) -> Self {
        let now = clock::now();
        let bar = is_watched().then(|| bar(size));
        Self {
            bar,
            began: now,
            last: now,
        }
    }

    /// So many bytes were read, and so many lines were acknowledged and failed.
    pub(super) fn tick(&mut self, bytes: u64, (acknowledged, failed): (u64, u64)) {
        if let Some(bar) = &self.bar {
            bar.set_position(bytes);
            // The bar draws at most so often, but the message is made here.
            if (acknowledged + failed).is_multiple_of(64) {
                bar.set_message(self.words(acknowledged, failed, clock::now()));
            }
            return;
        }
        let now = clock::now();
        if now.saturating_duration_since(self.last) >= EVERY {
            self.last = now;
            self.say(&self.words(acknowledged, failed, now));
        }
    }

    /// Writes a line, above the bar if there is one. That nobody can see it is no failure.
    pub(super) fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| _ = writeln!(std::io::stderr().lock(), "{text}")),
            None => _ = writeln!(std::io::stderr().lock(), "{text}"),
        }
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn words(&self, acknowledged: u64, failed: u64, now: Instant) -> String {
        let rate = acknowledged as f64 / seconds(self.began, now);
        format!("{acknowledged} acknowledged, {failed} failed, {rate:.0}/s")
    }
}

fn bar(size: Option<u64>) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(size, ProgressDrawTarget::stderr_with_hz(10));
    let template = match size {
        Some(_) => "{bar:32} {percent:>3}%  {msg}  {eta} left",
        None => "{spinner} {bytes}  {msg}",
    };
    bar.set_style(
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar
}

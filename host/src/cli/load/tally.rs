//! What came of the lines: counts, latencies, and the summary at the end.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

use super::seconds;

/// The longest latency that is told apart, in microseconds: one hour.
const LATENCY_MAX_US: u64 = 3_600_000_000;

/// How a load ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Ended {
    /// Every line was sent.
    Done,
    /// Ctrl-C.
    Interrupted,
    /// The node could not be reached any more.
    GaveUp,
    /// The lines could not be read to their end.
    Unreadable,
}

/// Counts so far.
pub(super) struct Tally {
    began: Instant,
    acknowledged: u64,
    failed: u64,
    codes: BTreeMap<String, u64>,
    lost: u64,
    lost_in_a_row: u64,
    latencies: Option<Histogram<u64>>,
}

impl Tally {
    pub(super) fn new(began: Instant) -> Self {
        // Three digits over an hour are bounds that the histogram takes.
        let latencies = Histogram::new_with_bounds(1, LATENCY_MAX_US, 3).ok();
        Self {
            began,
            acknowledged: 0,
            failed: 0,
            codes: BTreeMap::new(),
            lost: 0,
            lost_in_a_row: 0,
            latencies,
        }
    }

    /// A reply came.
    pub(super) fn acknowledged(&mut self, took: Duration) {
        self.acknowledged += 1;
        self.answered(false, took);
    }

    /// A call ended; `lost` when it was the connection that failed. Latencies are of those that were answered.
    pub(super) fn answered(&mut self, lost: bool, took: Duration) {
        if lost {
            self.lost += 1;
            self.lost_in_a_row += 1;
            return;
        }
        self.lost_in_a_row = 0;
        if let Some(latencies) = &mut self.latencies {
            latencies.saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1));
        }
    }

    /// A line failed.
    pub(super) fn failed(&mut self, code: &str) {
        self.failed += 1;
        *self.codes.entry(code.to_owned()).or_default() += 1;
    }

    /// Calls whose connection failed.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Calls in a row whose connection failed.
    pub(super) fn lost_in_a_row(&self) -> u64 {
        self.lost_in_a_row
    }

    /// Lines that were acknowledged, and that failed.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.acknowledged, self.failed)
    }

    pub(super) fn summary(&self, ended: Ended, now: Instant) -> Summary {
        let took = seconds(self.began, now);
        let at = |quantile| {
            self.latencies
                .as_ref()
                .filter(|all| !all.is_empty())
                .map(|all| all.value_at_quantile(quantile))
        };
        Summary {
            ended,
            lines: self.acknowledged + self.failed,
            acknowledged: self.acknowledged,
            failed: self.failed,
            errors: self.codes.clone(),
            seconds: took,
            per_second: self.acknowledged as f64 / took,
            latency_us: Latency {
                p50: at(0.5),
                p90: at(0.9),
                p99: at(0.99),
                max: at(1.0),
            },
        }
    }
}

/// The end of a load.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    ended: Ended,
    lines: u64,
    acknowledged: u64,
    pub(super) failed: u64,
    errors: BTreeMap<String, u64>,
    seconds: f64,
    per_second: f64,
    latency_us: Latency,
}

/// Latencies in microseconds, of what was answered.
#[derive(Debug, Serialize)]
struct Latency {
    p50: Option<u64>,
    p90: Option<u64>,
    p99: Option<u64>,
    max: Option<u64>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = match self.ended {
            Ended::Done => "",
            Ended::Interrupted => ", interrupted",
            Ended::GaveUp => ", gave up",
            Ended::Unreadable => ", not read to the end",
        };
        let Self {
            lines,
            acknowledged,
            failed,
            seconds,
            per_second,
            ..
        } = self;
        writeln!(
            f,
            "{lines} lines: {acknowledged} acknowledged, {failed} failed{end}, in {seconds:.2} s ({per_second:.0}/s)"
        )?;
        let Latency {
            p50: Some(p50),
            p90: Some(p90),
            p99: Some(p99),
            max: Some(max),
        } = self.latency_us
        else {
            return self.codes(f);
        };
        let ms = |us: u64| us as f64 / 1000.0;
        writeln!(
            f,
            "latency: p50 {:.2} ms, p90 {:.2} ms, p99 {:.2} ms, max {:.2} ms",
            ms(p50),
            ms(p90),
            ms(p99),
            ms(max)
        )?;
        self.codes(f)
    }
}

impl Summary {
    fn codes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.errors
            .iter()
            .try_for_each(|(code, count)| writeln!(f, "  {count} x {code}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn a_summary_in_words() {
        let began = clock::now();
        let mut tally = Tally::new(began);
        for ms in 1..=100 {
            tally.acknowledged(Duration::from_millis(ms));
        }
        for _ in 0..2 {
            tally.answered(false, Duration::from_millis(1));
            tally.failed("conflict");
        }
        tally.failed("bad-line");
        let summary = tally
            .summary(Ended::Done, began + Duration::from_secs(2))
            .to_string();
        let lines: Vec<_> = summary.lines().collect();
        assert_eq!(
            lines[0],
            "103 lines: 100 acknowledged, 3 failed, in 2.00 s (50/s)"
        );
        assert!(lines[1].starts_with("latency: p50 49."), "{}", lines[1]);
        assert_eq!(lines[2..], ["  1 x bad-line", "  2 x conflict"]);
    }

    #[test]
    fn calls_that_reached_nobody_are_counted_in_a_row() {
        let mut tally = Tally::new(clock::now());
        tally.answered(true, Duration::ZERO);
        tally.answered(true, Duration::ZERO);
        assert_eq!(tally.lost_in_a_row(), 2);
        tally.answered(false, Duration::ZERO);
        assert_eq!((tally.lost_in_a_row(), tally.lost()), (0, 2));
        let nothing = Tally::new(clock::now())
            .summary(Ended::GaveUp, clock::now())
            .to_string();
        assert!(
            nothing.starts_with("0 lines: 0 acknowledged, 0 failed, gave up"),
            "{nothing}"
        );
    }
}

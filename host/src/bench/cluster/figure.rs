//! A figure and its bound.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::Part;

/// One figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// The part that it belongs to.
    pub part: Part,
    /// What was measured.
    pub name: String,
    /// How much it is, in `unit`.
    pub value: f64,
    /// What it counts.
    pub unit: Unit,
    /// What it may be at most, where that is promised.
    pub bound: Option<f64>,
    /// Whether it is within its bound.
    pub holds: Option<bool>,
    /// What others reach.
    pub peers: Option<&'static str>,
}

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Milliseconds.
    #[serde(rename = "ms")]
    Millis,
    /// Microseconds.
    #[serde(rename = "us")]
    Micros,
    /// Times in a second.
    #[serde(rename = "per-second")]
    PerSecond,
    /// Things.
    #[serde(rename = "count")]
    Count,
}

impl Figure {
    /// A figure without a bound.
    pub(super) fn new(part: Part, name: impl Into<String>, value: f64, unit: Unit) -> Self {
        Self {
            part,
            name: name.into(),
            value,
            unit,
            bound: None,
            holds: None,
            peers: None,
        }
    }

    /// A time in milliseconds.
    pub(super) fn time(part: Part, name: impl Into<String>, time: Duration) -> Self {
        Self::new(part, name, time.as_secs_f64() * 1e3, Unit::Millis)
    }

    /// It may be so much at most, in its own unit.
    pub(super) fn at_most(mut self, bound: f64) -> Self {
        self.bound = Some(bound);
        // What is not a number is within nothing.
        self.holds = Some(self.value <= bound);
        self
    }

    /// What others reach.
    pub(super) fn peers(mut self, peers: &'static str) -> Self {
        self.peers = Some(peers);
        self
    }

    /// As a line of a table.
    #[must_use]
    pub fn line(&self) -> String {
        let amount = |value| self.unit.amount(value).to_string();
        let bound = self
            .bound
            .map_or_else(String::new, |bound| format!("<= {}", amount(bound)));
        let holds = match self.holds {
            Some(true) => "within",
            Some(false) => "OVER",
            None => "",
        };
        let line = format!(
            "  {:<52} {:>12}   {bound:<14} {holds}",
            self.name,
            amount(self.value)
        );
        let line = line.trim_end();
        match self.peers {
            Some(peers) => format!("{line}\n      others: {peers}"),
            None => line.to_owned(),
        }
    }
}

/// An amount as people read it.
struct Amount(f64, Unit);

impl Unit {
    fn amount(self, value: f64) -> Amount {
        Amount(value, self)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(value, unit) = *self;
        match unit {
            Unit::Millis if value >= 10_000.0 => write!(f, "{:.2} s", value / 1000.0),
            Unit::Millis if value >= 100.0 => write!(f, "{value:.0} ms"),
            Unit::Millis => write!(f, "{value:.1} ms"),
            Unit::Micros if value >= 1000.0 => write!(f, "{:.2} ms", value / 1000.0),
            Unit::Micros => write!(f, "{value:.0} us"),
            Unit::PerSecond if value >= 10.0 => write!(f, "{value:.0}/s"),
            Unit::PerSecond => write!(f, "{value:.3}/s"),
            Unit::Count => write!(f, "{value:.0}"),
        }
    }
}

/// Times, in order.
#[derive(Debug, Default)]
pub(super) struct Times(Vec<Duration>);

impl Times {
    pub fn of(times: impl IntoIterator<Item = Duration>) -> Self {
        let mut times: Vec<_> = times.into_iter().collect();
        times.sort_unstable();
        Self(times)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The least of them that so many of a hundred are not over; zero where there are none.
    pub fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent).div_ceil(100);
        let time = self.0.get(rank.saturating_sub(1));
        time.copied().unwrap_or_default()
    }

    pub fn max(&self) -> Duration {
        self.percentile(100)
    }

    pub fn mean(&self) -> Duration {
        let count = u32::try_from(self.0.len()).unwrap_or(u32::MAX).max(1);
        self.0.iter().sum::<Duration>() / count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(times: &[u64]) -> Times {
        Times::of(times.iter().copied().map(Duration::from_millis))
    }

    #[test]
    fn percentiles_are_times_that_were_seen() {
        let hundred: Vec<u64> = (1..=100).rev().collect();
        for (times, percent, expected) in [
            (&[][..], 50, 0),
            (&[7], 1, 7),
            (&[7], 99, 7),
            (&[3, 1, 2], 50, 2),
            (&[4, 3, 1, 2], 50, 2),
            (&[1, 2], 99, 2),
            (&hundred, 50, 50),
            (&hundred, 99, 99),
            (&hundred, 100, 100),
        ] {
            let found = millis(times).percentile(percent);
            assert_eq!(
                found,
                Duration::from_millis(expected),
                "{times:?} at {percent}"
            );
        }
        assert_eq!(millis(&[1, 3, 5]).mean(), Duration::from_millis(3));
        assert_eq!(millis(&[]).mean(), Duration::ZERO);
        assert_eq!(millis(&[2, 9, 4]).max(), Duration::from_millis(9));
    }

    #[test]
    fn a_bound_is_kept_or_not() {
        for (value, bound, holds) in [
            (399.9, 400.0, true),
            (400.0, 400.0, true),
            (400.1, 400.0, false),
            (f64::NAN, 400.0, false),
        ] {
            let figure = Figure::new(Part::Move, "gap", value, Unit::Millis).at_most(bound);
            assert_eq!(figure.holds, Some(holds), "{value}");
        }
        let free = Figure::new(Part::Move, "gap", 1.0, Unit::Millis);
        assert_eq!(free.holds, None);
    }

    #[test]
    fn amounts_as_people_read_them() {
        for (value, unit, text) in [
            (0.25, Unit::Millis, "0.2 ms"),
            (99.94, Unit::Millis, "99.9 ms"),
            (312.4, Unit::Millis, "312 ms"),
            (21_000.0, Unit::Millis, "21.00 s"),
            (151.3, Unit::Micros, "151 us"),
            (1_500.0, Unit::Micros, "1.50 ms"),
            (0.4, Unit::PerSecond, "0.400/s"),
            (266.6, Unit::PerSecond, "267/s"),
            (16.0, Unit::Count, "16"),
        ] {
            assert_eq!(unit.amount(value).to_string(), text);
        }
    }

    #[test]
    fn a_line_says_whether_the_bound_is_kept() {
        let figure = Figure::time(Part::Move, "write gap, p50", Duration::from_millis(450));
        let line = figure.clone().line();
        assert!(line.starts_with("  write gap, p50 ") && line.ends_with(" 450 ms"));
        let line = figure.clone().at_most(400.0).line();
        assert!(line.ends_with("450 ms   <= 400 ms      OVER"), "{line:?}");
        let line = figure.at_most(500.0).peers("KCL 3 up to 30 s").line();
        assert!(
            line.ends_with("within\n      others: KCL 3 up to 30 s"),
            "{line:?}"
        );
    }
}

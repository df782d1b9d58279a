//! The guest's own metrics, on the node's `/metrics` as `quarry_guest_NAME`.
//!
//! ```
//! use quarry_guest::prelude::*;
//! use quarry_guest::{metrics, testing::Host};
//!
//! #[derive(Default)]
//! struct Shop;
//!
//! impl Guest for Shop {
//!     fn call(&mut self, call: Call) -> Result<Reply> {
//!         metrics::counter("orders").label("kind", call.text()?).add(1);
//!         metrics::histogram("order_bytes").observe(call.payload().len() as f64);
//!         metrics::gauge("last_order_bytes").set(call.payload().len() as f64);
//!         Ok(Reply::empty())
//!     }
//! }
//!
//! quarry_guest::export!(Shop);
//! # fn main() {
//! let mut host = Host::new::<Shop>();
//! host.call("order").payload("large").run().unwrap();
//! let metrics = host.metrics();
//! assert_eq!(metrics.counter("orders", &[("kind", "large")]), 1);
//! assert_eq!(metrics.histogram("order_bytes", &[]), [5.0]);
//! # }
//! ```
//!
//! A node adds up its shards, and labels them with `cluster` and `module`. Nothing here fails: what is over a bound or not well formed is
//! dropped, counted (`quarry_guest_metrics_dropped_total`) and logged by the node.
//!
//! A name has 1 to 64 bytes, begins with a letter and goes on with `a-z`, `0-9` and `_`; it is of the kind of its first use. A module has up
//! to 100 names and 1,000 series (a name with one set of labels). A series has up to 4 labels, named as metrics are and not `cluster`,
//! `module`, `le` or `quantile`, with values of up to 64 bytes without control characters. The name of a histogram does not end in
//! `bucket`, `count` or `sum`.

use crate::sys;

type Labels = Vec<(String, String)>;

/// A counter; the host adds `_total` to its name.
pub fn counter(name: &str) -> Counter<'_> {
    Counter {
        name,
        labels: Vec::new(),
    }
}

/// A gauge: the last value that a shard of the node set.
pub fn gauge(name: &str) -> Gauge<'_> {
    Gauge {
        name,
        labels: Vec::new(),
    }
}

/// A histogram. Its buckets go in steps of 1, 2.5, 5 from 0.0001 to 10,000.
pub fn histogram(name: &str) -> Histogram<'_> {
    Histogram {
        name,
        labels: Vec::new(),
    }
}

/// Says what a metric is, for people who read `/metrics`: up to 256 bytes without control characters. The first text stays.
pub fn describe(name: &str, help: &str) {
    sys::describe_metric(name, help);
}

/// See [`counter`].
#[derive(Clone, Debug)]
#[must_use = "nothing is counted before `add`"]
pub struct Counter<'a> {
    name: &'a str,
    labels: Labels,
}

/// See [`gauge`].
#[derive(Clone, Debug)]
#[must_use = "nothing is set before `set`"]
pub struct Gauge<'a> {
    name: &'a str,
    labels: Labels,
}

/// See [`histogram`].
#[derive(Clone, Debug)]
#[must_use = "nothing is counted before `observe`"]
pub struct Histogram<'a> {
    name: &'a str,
    labels: Labels,
}

impl Counter<'_> {
    /// One more label.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push((name.into(), value.into()));
        self
    }

    /// Adds to it.
    pub fn add(&self, by: u64) {
        sys::add_to_counter(self.name, &self.labels, by);
    }
}

impl Gauge<'_> {
    /// One more label.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push((name.into(), value.into()));
        self
    }

    /// Sets it.
    pub fn set(&self, value: f64) {
        sys::set_gauge(self.name, &self.labels, value);
    }
}

impl Histogram<'_> {
    /// One more label.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push((name.into(), value.into()));
        self
    }

    /// Puts a value into it. One that is not a number, or infinite, is dropped.
    pub fn observe(&self, value: f64) {
        sys::observe_histogram(self.name, &self.labels, value);
    }
}

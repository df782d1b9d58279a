//! The imported interface `metrics`.

use super::bindings::metrics::Host;
use super::state::State;

type Labels = Vec<(String, String)>;

impl Host for State {
    fn describe(&mut self, name: String, help: String) {
        self.place.metrics.describe(&name, &help);
    }

    fn add(&mut self, counter: String, labels: Labels, by: u64) {
        self.place.metrics.add(&counter, labels, by);
    }

    fn set(&mut self, gauge: String, labels: Labels, value: f64) {
        self.place.metrics.set(&gauge, labels, value);
    }

    fn observe(&mut self, histogram: String, labels: Labels, value: f64) {
        self.place.metrics.observe(&histogram, labels, value);
    }
}

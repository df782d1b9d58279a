//! The metrics that a guest kept, within the bounds of the host.

use std::collections::BTreeMap;

/// The longest name of a metric or a label, and the longest value of a label, in bytes.
const TEXT_MAX_BYTES: usize = 64;
const HELP_MAX_BYTES: usize = 256;
const LABELS_MAX: usize = 4;
const NAMES_MAX: usize = 100;
const SERIES_MAX: usize = 1_000;
const RESERVED: [&str; 4] = ["cluster", "module", "le", "quantile"];

/// What a guest's metrics came to. See [`Host::metrics`](super::Host::metrics).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    names: BTreeMap<String, Name>,
    series: BTreeMap<(String, Vec<(String, String)>), Value>,
    dropped: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Name {
    kind: Option<&'static str>,
    help: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Counter(u64),
    Gauge(f64),
    Histogram(Vec<f64>),
}

impl Metrics {
    /// The value of a counter with these labels, in any order; 0 where there is none.
    pub fn counter(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        match self.find(name, labels) {
            Some(Value::Counter(value)) => *value,
            _ => 0,
        }
    }

    /// The value of a gauge; none where it was not set.
    pub fn gauge(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        match self.find(name, labels) {
            Some(Value::Gauge(value)) => Some(*value),
            _ => None,
        }
    }

    /// The values that were put into a histogram, in their order.
    pub fn histogram(&self, name: &str, labels: &[(&str, &str)]) -> &[f64] {
        match self.find(name, labels) {
            Some(Value::Histogram(values)) => values,
            _ => &[],
        }
    }

    /// What the guest said that a metric is.
    pub fn help(&self, name: &str) -> Option<&str> {
        self.names.get(name)?.help.as_deref()
    }

    /// How often a metric was used in a way that the host drops.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn find(&self, name: &str, labels: &[(&str, &str)]) -> Option<&Value> {
        let mut labels: Vec<_> = labels
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        labels.sort_unstable();
        self.series.get(&(name.to_owned(), labels))
    }

    pub(crate) fn describe(&mut self, name: &str, help: &str) {
        let full = !self.names.contains_key(name) && self.names.len() >= NAMES_MAX;
        if !is_name(name) || full || !is_text(help, HELP_MAX_BYTES) {
            self.dropped += 1;
            return;
        }
        let known = self.names.entry(name.to_owned()).or_default();
        known.help.get_or_insert_with(|| help.to_owned());
    }

    pub(crate) fn use_one(&mut self, name: &str, labels: &[(String, String)], with: Value) {
        let mut labels = labels.to_vec();
        labels.sort_unstable();
        let kind = with.kind();
        if !self.takes(name, &labels, &with) {
            self.dropped += 1;
            return;
        }
        self.names.entry(name.to_owned()).or_default().kind = Some(kind);
        let value = self
            .series
            .entry((name.to_owned(), labels))
            .or_insert_with(|| with.empty());
        match (value, with) {
            (Value::Counter(value), Value::Counter(by)) => *value = value.wrapping_add(by),
            (Value::Gauge(value), Value::Gauge(to)) => *value = to,
            (Value::Histogram(values), Value::Histogram(more)) => values.extend(more),
            _ => unreachable!("a name has one kind"),
        }
    }

    fn takes(&self, name: &str, labels: &[(String, String)], with: &Value) -> bool {
        let known = self.names.get(name);
        let same_kind = known
            .and_then(|known| known.kind)
            .is_none_or(|kind| kind == with.kind());
        let is_new = !self
            .series
            .contains_key(&(name.to_owned(), labels.to_vec()));
        let room = (known.is_some() || self.names.len() < NAMES_MAX)
            && (!is_new || self.series.len() < SERIES_MAX);
        let twice = labels.windows(2).any(|pair| pair[0].0 == pair[1].0);
        let good_labels = labels.iter().all(|(name, value)| {
            is_name(name) && !RESERVED.contains(&name.as_str()) && is_text(value, TEXT_MAX_BYTES)
        });
        let good_value = match with {
            Value::Histogram(values) => {
                values.iter().all(|value| value.is_finite())
                    && !["bucket", "count", "sum"]
                        .iter()
                        .any(|end| name.ends_with(end))
            }
            Value::Counter(_) | Value::Gauge(_) => true,
        };
        is_name(name)
            && same_kind
            && room
            && labels.len() <= LABELS_MAX
            && !twice
            && good_labels
            && good_value
    }
}

impl Value {
    fn kind(&self) -> &'static str {
        match self {
            Value::Counter(_) => "counter",
            Value::Gauge(_) => "gauge",
            Value::Histogram(_) => "histogram",
        }
    }

    fn empty(&self) -> Value {
        match self {
            Value::Counter(_) => Value::Counter(0),
            Value::Gauge(_) => Value::Gauge(0.0),
            Value::Histogram(_) => Value::Histogram(Vec::new()),
        }
    }
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    name.len() <= TEXT_MAX_BYTES
        && bytes.next().is_some_and(|first| first.is_ascii_lowercase())
        && bytes.all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
}

fn is_text(text: &str, max: usize) -> bool {
    text.len() <= max && !text.chars().any(char::is_control)
}

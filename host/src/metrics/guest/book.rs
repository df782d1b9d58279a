//! What guests may name, as rules without effects: well-formed names and labels, bounds, and names that would be those of another metric.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};

use super::super::{Kind, Metric};

/// The longest name of a metric or a label, in bytes.
pub const NAME_MAX_BYTES: usize = 64;
/// The longest value of a label, in bytes.
pub const VALUE_MAX_BYTES: usize = 64;
/// The longest description, in bytes.
pub const HELP_MAX_BYTES: usize = 256;
/// Labels of a series, beside those of the host.
pub const LABELS_MAX: usize = 4;
/// Names of a module.
pub const NAMES_MAX: usize = 100;
/// Series of a module: a name with one set of labels each.
pub const SERIES_MAX: usize = 1_000;

/// What all names begin with.
pub(super) const PREFIX: &str = "quarry_guest_";
/// Labels that the host and the format have.
const RESERVED: [&str; 4] = ["cluster", "module", "le", "quantile"];
/// Ends of the names that a histogram has in the text.
const ENDS: [&str; 3] = ["bucket", "count", "sum"];

/// Why a use of a metric was dropped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Dropped {
    #[error(
        "a name has 1 to {NAME_MAX_BYTES} bytes, begins with a letter and goes on with a-z, 0-9 and _"
    )]
    Name,
    #[error("it is a {} since its first use", word(*.0))]
    OtherKind(Kind),
    #[error(
        "the name of a histogram does not end in bucket, count or sum, which it has for its parts"
    )]
    HistogramName,
    #[error("it would be in the way of {0}, which another metric has")]
    Taken(String),
    #[error("the module has {NAMES_MAX} names already")]
    Names,
    #[error("the module has {SERIES_MAX} series already")]
    Series,
    #[error("it has more than {LABELS_MAX} labels")]
    Labels,
    #[error("its label {0:?} is not named as metrics are, or is there twice")]
    LabelName(String),
    #[error("its label {0} is the host's own (cluster, module, le, quantile)")]
    Reserved(String),
    #[error(
        "the value of its label {0} is over {VALUE_MAX_BYTES} bytes, or has control characters"
    )]
    LabelValue(String),
    #[error("its description is over {HELP_MAX_BYTES} bytes, or has control characters")]
    Help,
    #[error("a histogram takes no value that is not a number, or is infinite")]
    Value,
    #[error("too many modules have metrics on this node")]
    Nowhere,
}

/// The names and series of a module; `H` is what stands for a series.
pub(super) struct Book<H> {
    names: BTreeMap<String, Name<H>>,
    series: usize,
}

struct Name<H> {
    /// None while it is only described.
    kind: Option<Kind>,
    /// What was not said yet.
    help: Option<String>,
    described: bool,
    series: HashMap<Vec<(String, String)>, H>,
}

impl<H> Default for Name<H> {
    fn default() -> Self {
        Self {
            kind: None,
            help: None,
            described: false,
            series: HashMap::new(),
        }
    }
}

/// A series that is used.
#[derive(Debug)]
pub(super) struct Series<'a, H> {
    pub handle: &'a H,
    /// A description to be said now.
    pub help: Option<String>,
}

impl<H> Default for Book<H> {
    fn default() -> Self {
        Self {
            names: BTreeMap::new(),
            series: 0,
        }
    }
}

impl<H> Book<H> {
    /// The series of a name with these labels, made where it is new and there is room. `claim` says whether the name is free.
    pub fn series(
        &mut self,
        kind: Kind,
        name: &str,
        mut labels: Vec<(String, String)>,
        claim: impl FnOnce(Kind, &str) -> Result<(), Dropped>,
        make: impl FnOnce(&[(String, String)]) -> H,
    ) -> Result<Series<'_, H>, Dropped> {
        labels.sort_unstable();
        let known = self.names.get(name);
        let of_kind = known.and_then(|known| known.kind);
        if let Some(other) = of_kind.filter(|known| *known != kind) {
            return Err(Dropped::OtherKind(other));
        }
        let exists = known.is_some_and(|known| known.series.contains_key(&labels));
        if !exists {
            // Only what is well formed gets in, so that what is there needs no further look.
            check_name(name)?;
            check_labels(&labels)?;
            if known.is_none() && self.names.len() >= NAMES_MAX {
                return Err(Dropped::Names);
            }
            if self.series >= SERIES_MAX {
                return Err(Dropped::Series);
            }
            if of_kind.is_none() {
                claim(kind, name)?;
            }
            self.series += 1;
        }
        let known = match self.names.entry(name.to_owned()) {
            Entry::Vacant(vacant) => vacant.insert(Name::default()),
            Entry::Occupied(known) => known.into_mut(),
        };
        known.kind = Some(kind);
        let help = known.help.take();
        let handle = match known.series.entry(labels) {
            std::collections::hash_map::Entry::Occupied(series) => series.into_mut(),
            std::collections::hash_map::Entry::Vacant(vacant) => {
                let handle = make(vacant.key());
                vacant.insert(handle)
            }
        };
        Ok(Series { handle, help })
    }

    /// Describes a metric. Gives its kind where the text is to be said now: it is known, and this is the first text.
    pub fn describe(&mut self, name: &str, help: &str) -> Result<Option<Kind>, Dropped> {
        check_name(name)?;
        if help.len() > HELP_MAX_BYTES || help.chars().any(char::is_control) {
            return Err(Dropped::Help);
        }
        if !self.names.contains_key(name) && self.names.len() >= NAMES_MAX {
            return Err(Dropped::Names);
        }
        let known = self.names.entry(name.to_owned()).or_default();
        if known.described {
            return Ok(None);
        }
        known.described = true;
        if known.kind.is_none() {
            known.help = Some(help.to_owned());
        }
        Ok(known.kind)
    }
}

/// The names in the text of all metrics, and whose they are.
pub(super) struct Families(BTreeMap<String, String>);

impl Families {
    /// Those of the host are taken.
    pub fn new(host: &[&Metric]) -> Self {
        let mut taken = BTreeMap::new();
        for metric in host.iter().filter(|metric| metric.name.starts_with(PREFIX)) {
            for name in names_of(metric.kind, metric.name) {
                taken.insert(name, format!("{} of the host", metric.name));
            }
        }
        Self(taken)
    }

    /// Takes the names that a metric has in the text, unless another has one of them. Those of one kind and name are one, whatever
    /// module they are of.
    pub fn claim(&mut self, kind: Kind, name: &str) -> Result<(), Dropped> {
        if kind == Kind::Histogram && ENDS.iter().any(|end| name.ends_with(end)) {
            return Err(Dropped::HistogramName);
        }
        let family = family(kind, name);
        let owner = format!("{} {family}", word(kind));
        let names = names_of(kind, &family);
        let other = |name: &String| self.0.get(name).is_some_and(|taken| *taken != owner);
        if let Some(taken) = names.iter().find(|name| other(name)) {
            return Err(Dropped::Taken(taken.clone()));
        }
        for name in names {
            self.0.insert(name, owner.clone());
        }
        Ok(())
    }
}

/// The name that a metric of a guest is exported by.
pub(super) fn family(kind: Kind, name: &str) -> String {
    let end = if kind == Kind::Counter { "_total" } else { "" };
    format!("{PREFIX}{name}{end}")
}

/// The names that a metric has in the text.
fn names_of(kind: Kind, family: &str) -> Vec<String> {
    let mut names = vec![family.to_owned()];
    if kind == Kind::Histogram {
        names.extend(ENDS.iter().map(|end| format!("{family}_{end}")));
    }
    names
}

fn check_name(name: &str) -> Result<(), Dropped> {
    let mut bytes = name.bytes();
    let good = name.len() <= NAME_MAX_BYTES
        && bytes.next().is_some_and(|first| first.is_ascii_lowercase())
        && bytes.all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
    good.then_some(()).ok_or(Dropped::Name)
}

/// `labels` are sorted.
fn check_labels(labels: &[(String, String)]) -> Result<(), Dropped> {
    let short = |text: &str| text.chars().take(NAME_MAX_BYTES).collect::<String>();
    if labels.len() > LABELS_MAX {
        return Err(Dropped::Labels);
    }
    for (at, (name, value)) in labels.iter().enumerate() {
        let twice = at > 0 && labels[at - 1].0 == *name;
        if twice || check_name(name).is_err() {
            return Err(Dropped::LabelName(short(name)));
        }
        if RESERVED.contains(&name.as_str()) {
            return Err(Dropped::Reserved(name.clone()));
        }
        if value.len() > VALUE_MAX_BYTES || value.chars().any(char::is_control) {
            return Err(Dropped::LabelValue(name.clone()));
        }
    }
    Ok(())
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    }
}

#[cfg(test)]
mod tests {
    use Kind::{Counter, Gauge, Histogram};

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn add(
        book: &mut Book<()>,
        kind: Kind,
        name: &str,
        own: &[(&str, &str)],
    ) -> Result<(), Dropped> {
        book.series(kind, name, labels(own), |_, _| Ok(()), |_| ())
            .map(|_| ())
    }

    #[test]
    fn only_what_is_well_formed_gets_in() {
        let long = "x".repeat(65);
        let most = "x".repeat(64);
        let five = [("a", ""), ("b", ""), ("c", ""), ("d", ""), ("e", "")];
        for (name, own, good) in [
            ("a", &[][..], true),
            ("orders_2", &[("kind", "large \\ \" {} ü")], true),
            (&most, &[(&*most, &*most)], true),
            ("four", &five[..4], true),
            ("", &[], false),
            (&long, &[], false),
            ("2a", &[], false),
            ("_a", &[], false),
            ("A", &[], false),
            ("a-b", &[], false),
            ("a b", &[], false),
            ("a\n", &[], false),
            ("ä", &[], false),
            ("a", &five, false),
            ("a", &[("", "")], false),
            ("a", &[("__name__", "x")], false),
            ("a", &[("x", "1"), ("x", "2")], false),
            ("a", &[("x", "1"), ("x", "1")], false),
            ("a", &[("cluster", "")], false),
            ("a", &[("module", "")], false),
            ("a", &[("le", "1")], false),
            ("a", &[("quantile", "1")], false),
            ("a", &[("x", &*long)], false),
            ("a", &[("x", "a\nb")], false),
            ("a", &[("x", "\0")], false),
        ] {
            let outcome = add(&mut Book::default(), Gauge, name, own);
            assert_eq!(outcome.is_ok(), good, "{name:?} {own:?}: {outcome:?}");
        }
    }

    #[test]
    fn a_name_is_of_the_kind_of_its_first_use() {
        let mut book = Book::default();
        add(&mut book, Counter, "a", &[]).expect("new");
        add(&mut book, Counter, "a", &[("x", "1")]).expect("another series");
        let other = add(&mut book, Gauge, "a", &[]).expect_err("a counter");
        assert_eq!(other.to_string(), "it is a counter since its first use");
        // The order of labels makes no series.
        add(&mut book, Gauge, "b", &[("x", "1"), ("y", "2")]).expect("new");
        add(&mut book, Gauge, "b", &[("y", "2"), ("x", "1")]).expect("known");
        assert_eq!(book.series, 3);
    }

    #[test]
    fn names_and_series_are_bounded_and_what_is_there_goes_on() {
        let mut book = Book::default();
        for n in 0..NAMES_MAX {
            add(&mut book, Counter, &format!("n{n}"), &[]).expect("room");
        }
        assert_eq!(add(&mut book, Counter, "more", &[]), Err(Dropped::Names));
        assert_eq!(book.describe("more", "x"), Err(Dropped::Names));
        for n in NAMES_MAX..SERIES_MAX {
            add(&mut book, Counter, "n0", &[("n", &n.to_string())]).expect("room");
        }
        assert_eq!(
            add(&mut book, Counter, "n0", &[("n", "x")]),
            Err(Dropped::Series)
        );
        add(&mut book, Counter, "n0", &[("n", "500")]).expect("it is there");
        add(&mut book, Counter, "n99", &[]).expect("it is there");
    }

    #[test]
    fn a_description_waits_for_the_kind_and_the_first_one_stays() {
        let mut book = Book::default();
        assert_eq!(book.describe("a", "early"), Ok(None));
        let claim = |_: Kind, _: &str| Ok(());
        let used = book.series(Counter, "a", Vec::new(), claim, |_| ());
        assert_eq!(used.expect("new").help.as_deref(), Some("early"));
        assert_eq!(book.describe("a", "again"), Ok(None));
        let used = book.series(Counter, "a", Vec::new(), claim, |_| ());
        assert_eq!(used.expect("known").help, None);
        add(&mut book, Gauge, "b", &[]).expect("new");
        assert_eq!(book.describe("b", "late"), Ok(Some(Gauge)));
        let long = "x".repeat(257);
        for (name, help) in [("c", &*long), ("c", "a\nb"), ("C", "text")] {
            assert!(book.describe(name, help).is_err(), "{name}");
        }
    }

    #[test]
    fn no_name_is_in_the_way_of_another() {
        let host = crate::metrics::ALL;
        for (taken, kind, name, free) in [
            (&[][..], Counter, "orders", true),
            // Two modules may have the same.
            (&[(Counter, "orders")], Counter, "orders", true),
            (&[(Counter, "orders")], Gauge, "orders", true),
            (&[(Counter, "orders")], Gauge, "orders_total", false),
            (&[(Gauge, "orders_total")], Counter, "orders", false),
            (&[(Gauge, "size")], Histogram, "size", false),
            (&[(Gauge, "size_sum")], Histogram, "size", false),
            (&[(Histogram, "size")], Gauge, "size_count", false),
            (&[(Histogram, "size")], Gauge, "size_bucket", false),
            (&[(Histogram, "size")], Counter, "size", true),
            (&[], Histogram, "discount", false),
            (&[], Histogram, "a_sum", false),
            (&[], Gauge, "discount", true),
            // Those of the host.
            (&[], Counter, "traps", false),
            (&[], Counter, "metrics_dropped", false),
            (&[], Histogram, "swap_pause_seconds", false),
            (&[], Gauge, "swap_pause_seconds_sum", false),
        ] {
            let mut families = Families::new(host);
            for (kind, name) in taken {
                families.claim(*kind, name).expect("free");
            }
            let claimed = families.claim(kind, name);
            assert_eq!(
                claimed.is_ok(),
                free,
                "{taken:?} {kind:?} {name}: {claimed:?}"
            );
        }
    }
}

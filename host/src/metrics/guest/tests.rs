use std::collections::BTreeMap;

use super::*;
use crate::clock::driven::Time;

fn labels(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let pairs = pairs.iter();
    pairs
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

#[test]
fn a_guest_sees_its_metrics_and_their_text_stays_valid() {
    let exporter = crate::metrics::install();
    let metrics = of("guest-test", "shop");
    metrics.describe("orders", "Orders \"taken\" \\ so far.");
    metrics.add("orders", labels(&[("kind", r#"a "b" \ {c}"#)]), 2);
    metrics.add("orders", labels(&[("kind", r#"a "b" \ {c}"#)]), 3);
    metrics.add("orders", labels(&[("kind", r#"a "b" \\ {c}"#)]), 1);
    metrics.set("temperature", Vec::new(), -1.5);
    metrics.set("forever", Vec::new(), f64::INFINITY);
    metrics.observe("size", labels(&[("unit", "kg")]), 0.3);
    metrics.observe("size", labels(&[("unit", "kg")]), f64::NAN);
    metrics.set("orders", Vec::new(), 1.0);
    metrics.add("Bad name", Vec::new(), 1);
    metrics.add("traps", Vec::new(), 1);
    metrics.set("orders_total", Vec::new(), 1.0);
    // The module comes again, in another revision.
    of("guest-test", "shop").add("orders", Vec::new(), 7);
    let text = exporter.render().expect("the recorder of this process");
    for line in [
        r#"quarry_guest_orders_total{cluster="guest-test",module="shop",kind="a \"b\" \\ {c}"} 5"#,
        r#"quarry_guest_orders_total{cluster="guest-test",module="shop",kind="a \"b\" \\\\ {c}"} 1"#,
        r#"quarry_guest_orders_total{cluster="guest-test",module="shop"} 7"#,
        r#"quarry_guest_temperature{cluster="guest-test",module="shop"} -1.5"#,
        r#"quarry_guest_size_bucket{cluster="guest-test",module="shop",unit="kg",le="0.25"} 0"#,
        r#"quarry_guest_size_bucket{cluster="guest-test",module="shop",unit="kg",le="0.5"} 1"#,
        r#"quarry_guest_size_bucket{cluster="guest-test",module="shop",unit="kg",le="10000"} 1"#,
        r#"quarry_guest_size_sum{cluster="guest-test",module="shop",unit="kg"} 0.3"#,
        r#"quarry_guest_metrics_dropped_total{cluster="guest-test",module="shop"} 5"#,
        "# TYPE quarry_guest_orders_total counter",
        r#"# HELP quarry_guest_orders_total Orders "taken" \\ so far."#,
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    let mut types = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("# TYPE ")) {
        let (name, kind) = line[7..].split_once(' ').expect("a kind");
        assert_eq!(types.insert(name, kind), None, "{name} is there twice");
    }
    let mut seen = std::collections::BTreeSet::new();
    for line in text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
    {
        let (series, value) = line.rsplit_once(' ').expect("a value");
        assert!(value.parse::<f64>().is_ok(), "{line}");
        assert!(seen.insert(series), "{series} is there twice");
    }
}

#[test]
fn the_hosts_own_histograms_keep_their_buckets() {
    let exporter = crate::metrics::install();
    crate::metrics::ShardMetrics::new("guest-buckets", 1).swapped(2, Duration::from_micros(20));
    let text = exporter.render().expect("the recorder of this process");
    let line = r#"quarry_guest_swap_pause_seconds_bucket{cluster="guest-buckets",le="0.000025"} 1"#;
    assert!(text.contains(line), "{text}");
}

#[test]
fn what_is_of_no_shard_leaves_nothing() {
    let none = ModuleMetrics::none();
    none.add("a", Vec::new(), 1);
    none.describe("a", "text");
    assert!(none.lock().book.is_none());
}

/// Lines about dropped metrics on this thread: the module, and how many uses each says.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<(String, u64)>>>);

impl Said {
    fn lines(&self) -> Vec<(String, u64)> {
        self.0.lock().expect("lines").clone()
    }
}

impl tracing::Subscriber for Said {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "quarry::metrics::guest"
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        #[derive(Default)]
        struct Line(String, u64);
        impl tracing::field::Visit for Line {
            fn record_debug(&mut self, _: &tracing::field::Field, _: &dyn std::fmt::Debug) {}

            fn record_str(&mut self, field: &tracing::field::Field, value: &str) {
                if field.name() == "module" {
                    value.clone_into(&mut self.0);
                }
            }

            fn record_u64(&mut self, field: &tracing::field::Field, value: u64) {
                if field.name() == "uses" {
                    self.1 = value;
                }
            }
        }
        let mut line = Line::default();
        event.record(&mut line);
        self.0.lock().expect("lines").push((line.0, line.1));
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// However often a guest does it, a line a minute tells of that, with how often it was since the last.
#[test]
fn what_is_dropped_is_said_once_a_minute() {
    const STEP: Duration = Duration::from_secs(10);
    let time = Time::new(Duration::from_millis(20));
    let runtime = time.clock().runtime().expect("threads");
    let said = Said::default();
    let lines = said.clone();
    time.run(&runtime, async move {
        let drops = |module: &str, times: u64| {
            let metrics = of("guest-dropped", module);
            tracing::subscriber::with_default(lines.clone(), || {
                for _ in 0..times {
                    metrics.add("Bad name", Vec::new(), 1);
                }
            });
        };
        let line = |module: &str, uses| (module.to_owned(), uses);
        drops("shop", 1_000);
        assert_eq!(lines.lines(), [line("shop", 1)], "the first at once");
        for _ in 0..5 {
            clock::sleep(STEP).await;
            drops("shop", 100);
        }
        assert_eq!(lines.lines().len(), 1, "within the minute");
        // Each module has a minute of its own.
        drops("stock", 1);
        assert_eq!(lines.lines()[1..], [line("stock", 1)]);
        clock::sleep(STEP).await;
        drops("shop", 1);
        assert_eq!(lines.lines()[2..], [line("shop", 999 + 500 + 1)]);
        drops("shop", 7);
        // Who was quiet for long is told of at once again, with what was left.
        clock::sleep(STEP * 360).await;
        drops("shop", 1);
        assert_eq!(lines.lines()[3..], [line("shop", 7 + 1)]);
    });
    assert_eq!(said.lines().len(), 4);
}

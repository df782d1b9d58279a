use std::collections::BTreeMap;

use super::*;

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

//! What guests log and measure.

use crate::conformance::case::{Act, Case, Group};
use crate::conformance::expect::Expect;
use crate::conformance::script::step;
use crate::conformance::words::{done, log, metric, ok, recall, remember, text};

pub(super) fn cases() -> Vec<Case> {
    [logs(), metrics()].concat()
}

fn logs() -> Vec<Case> {
    let case = |name| Case::new(Group::Log, name);
    let enabled = || ok([text("1")]);
    vec![
        case("lines have their level, their text and their fields")
            .run([
                (log(["error", "an error \u{e9}", "n", "1"]), enabled()),
                (log(["warn", "a warning"]), enabled()),
                (
                    log(["info", "a note", "a", "1", "b", "two words"]),
                    enabled(),
                ),
                (log(["debug", "a detail"]), enabled()),
                (log(["trace", "a step"]), enabled()),
            ])
            .act(Act::Line(vec![
                ("level", "ERROR"),
                ("text", "an error \u{e9}"),
                ("fields", "n=\"1\""),
            ]))
            .act(Act::Line(vec![("level", "WARN"), ("text", "a warning")]))
            .act(Act::Line(vec![
                ("level", "INFO"),
                ("text", "a note"),
                ("fields", "a=\"1\" b=\"two words\""),
                ("shard", "0"),
                ("revision", "1"),
            ]))
            .act(Act::Line(vec![("level", "DEBUG"), ("text", "a detail")]))
            .act(Act::Line(vec![("level", "TRACE"), ("text", "a step")])),
        case("standard output and standard error go to the log")
            .run([
                (step("print", ["out".into(), "to out".into()]), done()),
                (step("print", ["err".into(), "to err".into()]), done()),
            ])
            .act(Act::Line(vec![("stream", "stdout"), ("text", "to out")]))
            .act(Act::Line(vec![("stream", "stderr"), ("text", "to err")])),
        case("a flood of lines costs no more than the lines")
            .set("limits.log_bytes_per_second", "10KiB")
            .run([(remember("kept"), Expect::Any)])
            .run((0..500_u64).map(|_| {
                (
                    log(["info", "one of many lines of a flood"]),
                    ok([text("1")]),
                )
            }))
            .run([(recall(), ok([text("kept")]))]),
    ]
}

fn metrics() -> Vec<Case> {
    let case = |name| Case::new(Group::Metrics, name);
    vec![
        case("a counter adds up, by its labels")
            .run([
                (
                    metric(["describe", "orders", "Orders of this shop"]),
                    done(),
                ),
                (metric(["add", "orders", "2", "kind", "new"]), done()),
                (metric(["add", "orders", "3", "kind", "new"]), done()),
                (metric(["add", "orders", "1", "kind", "old"]), done()),
            ])
            .act(Act::Metric("orders_total", vec!["kind=\"new\""], "5"))
            .act(Act::Metric("orders_total", vec!["kind=\"old\""], "1")),
        case("a gauge has the value that was set last")
            .run([
                (metric(["set", "level", "1.5"]), done()),
                (metric(["set", "level", "-2.25"]), done()),
            ])
            .act(Act::Metric("level", vec![], "-2.25")),
        case("a histogram counts what it sees")
            .run([
                (metric(["observe", "took", "0.3"]), done()),
                (metric(["observe", "took", "0.3"]), done()),
                (metric(["observe", "took", "70"]), done()),
            ])
            .act(Act::Metric("took_count", vec![], "3"))
            .act(Act::Metric("took_bucket", vec!["le=\"0.5\""], "2"))
            .act(Act::Metric("took_bucket", vec!["le=\"+Inf\""], "3")),
        case("what is no metric is dropped, and nothing else")
            .run([
                (metric(["add", "Bad-Name", "1"]), done()),
                (metric(["add", "", "1"]), done()),
                (metric(["add", "reserved", "1", "cluster", "mine"]), done()),
                (metric(["set", "fine", "1"]), done()),
                (metric(["add", "fine", "1"]), done()),
            ])
            .act(Act::Metric("fine", vec![], "1"))
            .act(Act::NoMetric("quarry_guest_Bad"))
            .act(Act::NoMetric("cluster=\"mine\"")),
        case("a label's value can be any text")
            .run([(
                metric(["set", "odd", "1", "what", "a \"b\" \\ {c}"]),
                done(),
            )])
            .act(Act::Metric(
                "odd",
                vec!["what=\"a \\\"b\\\" \\\\ {c}\""],
                "1",
            )),
    ]
}

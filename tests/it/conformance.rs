//! The conformance suite: the reference guest passes it, and it notices guests that are wrong.

use std::collections::BTreeSet;
use std::time::Duration;

use quarry::conformance::{self, Group, Options, Outcome, Subject};
use serde_json::{Value, json};

use crate::support::guests::{component, runtime};
use crate::support::process::{self, guest};

mod languages;

/// Faults of the reference guest (`tests/conformance/rust/src/broken.rs`), and a case that has to find each.
#[rustfmt::skip]
const BROKEN: &[(&str, &str)] = &[
    ("swallow-errors", "errors: an empty key is refused wherever there is one"),
    ("drop-raise", "protocol: an error of the guest comes whole, retryable or not"),
    ("one-code", "errors: an empty key is refused wherever there is one"),
    ("no-message", "errors: an empty key is refused wherever there is one"),
    ("final-errors", "transactions: two writes of one key conflict, and the later commit can be tried again"),
    ("trap-on-error", "errors: an error of the host leaves the instance as it is, and the script goes on"),
    ("abort-is-error", "ends: an abort traps, and the shard goes on"),
    ("abort-is-error", "cluster: a trap of the called guest is an error, and the caller goes on"),
    ("throw-swallowed", "ends: an exception fails its call, and the shard goes on"),
    ("recursion-ends", "ends: recursion without an end fails its call, and the shard goes on"),
    ("memory-ends", "ends: memory without an end fails its call, and the shard goes on"),
    ("loop-is-error", "ends: a loop without an end is cut off, and the shard goes on"),
    ("loop-is-error", "cluster: a loop of the called guest is an error, and the caller goes on"),
    ("pages-joined", "scans: a page of the host ends before 4 MiB"),
    ("final-errors", "errors: a store that fails is an error that passes, and the instance is as it was"),
    ("final-errors", "cluster: a full queue is an error that passes, and nothing ran"),
    ("final-errors", "cluster: of two chains that meet one is refused for now, and the other goes on"),
    ("swallow-errors", "cluster: a shard that was set aside is an error of its own"),
    ("timers-volatile", "moves: a durable timer goes along with its moment, a volatile one does not"),
    ("stop-lost", "moves: the instance is told, with the database open"),
    ("tags-twice", "moves: seqs go on, and one of before is durable: its tag comes at once, and none twice"),
    ("text-keys", "moves: the data is there, and the memory is not"),
    ("empty-is-none", "database: an empty value is a value"),
    ("empty-option", "protocol: an empty routing key is a key"),
    ("text-keys", "database: keys are bytes"),
    ("text-values", "database: values are bytes"),
    ("short-values", "database: a value of 1 MiB is read as it was written"),
    ("32-bit", "database: a seq comes whole"),
    ("sorted", "database: many keys are read in their order, each as often as asked"),
    ("ascending", "scans: a descending scan begins at the end, and has the same entries"),
    ("open-start", "scans: a range has its start and not its end"),
    ("no-end", "scans: a range has its start and not its end"),
    ("ttl-lost", "database: a value expires, and not before"),
    ("ttl-seconds", "database: a value expires, and not before"),
    ("no-batch", "database: a batch is applied whole or not at all"),
    ("batch-backwards", "database: a batch has one seq, and its later operations win"),
    ("snapshot-is-live", "snapshots: later writes do not change a snapshot"),
    ("writes-through", "transactions: a transaction without a commit changes nothing"),
    ("never-serializable", "transactions: serializable: write skew is found"),
    ("lost-commit", "transactions: a transaction shows its own writes, and nobody else does before the commit"),
    ("drop-commits", "transactions: a transaction without a commit changes nothing"),
    ("keep-handles", "snapshots: what was given back can be opened again"),
    ("tags-backwards", "durability: two hundred tags come in their order"),
    ("tags-twice", "durability: tags come in the order of their writes, each once"),
    ("tags-lost", "durability: a tag comes once its write is durable, and not before"),
    ("memory-lost", "lifecycle: a swap carries memory over, byte for byte, and says from where"),
    ("resume-errors-lost", "lifecycle: where resume fails, the older instance goes on"),
    ("migrated-at-once", "migration: steps go on until one says true, and what they write is there"),
    ("start-errors-lost", "lifecycle: a revision whose start fails is not taken"),
    ("stop-lost", "lifecycle: a stop says why, with the database open: the node stops"),
    ("options-unchecked", "options: a node does not start with options that its guest refuses"),
    ("fire-errors-lost", "timers: a durable timer that fails fires again, with its moment"),
    ("due-now", "timers: a durable timer that fails fires again, with its moment"),
    ("timers-volatile", "timers: a volatile timer is forgotten with its node, a durable one is not"),
    ("applied", "durability: a reply waits until its writes are durable"),
    ("header-lost", "surroundings: a call brings its headers, whatever their case"),
    ("query-writes", "queries: a query writes nothing"),
];

/// By the program, whose log the cases look at.
#[tokio::test]
async fn the_reference_guest_passes_every_case() {
    let file = guest("conformance");
    let file = file.to_str().expect("a path");
    let ended = process::run(&["conformance", file, "--strict", "--no-figures", "--json"]).await;
    let report: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let failed: Vec<_> = cases(&report)
        .filter(|case| case["outcome"] != "passed")
        .collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(report["passed"], cases(&report).count());
    assert_eq!(
        cases(&report).count(),
        conformance::titles(&options(json!({}), &[], 60)).len()
    );
    ended.with(0);
}

#[tokio::test]
async fn what_a_guest_leaves_out_is_absent_and_fails_only_where_that_is_asked() {
    let file = guest("conformance_bare");
    let file = file.to_str().expect("a path");
    let few = [
        "--only", "queries", "--only", "options", "--only", "protocol",
    ];
    let arguments = [&["conformance", file, "--json"][..], &few].concat();
    let ended = process::run(&arguments).await.with(0);
    let report: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    for case in cases(&report) {
        let (expected, what) = match case["group"].as_str() {
            Some("protocol") => ("passed", Value::Null),
            Some(group) => ("absent", json!(format!("the export `{group}`"))),
            None => panic!("{case}"),
        };
        assert_eq!(case["outcome"], expected, "{case}");
        assert_eq!(case["what"], what, "{case}");
    }
    let strict = [&arguments[..], &["--strict"]].concat();
    process::run(&strict).await.with(1);
}

#[tokio::test]
async fn a_component_that_is_no_guest_of_the_kit_fails() {
    let file = guest("kv");
    let file = file.to_str().expect("a path");
    let ended = process::run(&["conformance", file, "--only", "protocol"]).await;
    let ended = ended.with(1);
    assert!(ended.stdout.contains("FAILED  protocol: "), "{ended:#?}");
    for wrong in [
        &["--only", "nothing"][..],
        &["--case", "there is no such case"],
    ] {
        let arguments = [&["conformance", file][..], wrong].concat();
        process::run(&arguments).await.with(2);
    }
}

#[tokio::test]
async fn figures_are_of_both_guests() {
    let [file, other] = ["conformance", "conformance_bare"].map(guest);
    let ended = process::run(&[
        "conformance",
        file.to_str().expect("a path"),
        "--case",
        "protocol: an empty script",
        "--against",
        other.to_str().expect("a path"),
        "--json",
    ])
    .await
    .with(0);
    let report: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let figures = report["figures"].as_array().expect("a list");
    assert_eq!(figures.len(), 2);
    for guest in figures {
        for field in [
            "size",
            "compile_ms",
            "start_us",
            "empty_us",
            "get_and_put_us",
            "per_second",
        ] {
            assert!(guest[field].as_f64() > Some(0.0), "{field} of {guest}");
        }
        if cfg!(target_os = "linux") {
            let [memory, touched] =
                ["memory_kib", "touched_kib"].map(|field| guest[field].as_f64());
            // Of a memory of some pages of 64 KiB a guest in Rust touches its stack and its heap, and not all of it.
            assert!(memory >= Some(64.0), "{guest}");
            assert!(touched >= Some(4.0) && touched < memory, "{guest}");
        }
    }
}

/// The suite has teeth: each fault is found by the case that is named for it.
#[tokio::test(flavor = "multi_thread")]
async fn broken_guests_are_found() {
    let subject = Subject::load(runtime(), component("conformance"))
        .await
        .expect("a guest");
    let mut missed = Vec::new();
    for (fault, title) in BROKEN {
        let options = options(json!({"break": fault}), &[title], 4);
        assert_eq!(conformance::titles(&options), [*title], "of {fault}");
        let report = conformance::run(&subject, &options, |_, _, _| {}).await;
        if !matches!(report.cases[0].outcome, Outcome::Failed { .. }) {
            missed.push(format!("{fault}: {title}: {:?}", report.cases[0].outcome));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// An expectation that is turned into its opposite is missed, each of them: the suite looks at what it says that it looks at.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_turned_into_its_opposite_fails() {
    let subject = Subject::load(runtime(), component("conformance"));
    let subject = subject.await.expect("a guest");
    let options = Options {
        only: vec![Group::Ends, Group::Cluster, Group::Moves],
        ..options(json!({}), &[], 20)
    };
    let report = conformance::run_turned(&subject, &options, |_, _, _| {}).await;
    let passed: Vec<_> = report
        .cases
        .iter()
        .filter(|case| !matches!(case.outcome, Outcome::Failed { .. }))
        .collect();
    assert!(passed.is_empty(), "{passed:#?}");
    assert!(report.cases.len() > 100, "{}", report.cases.len());
}

/// And the table is of all faults that the guest has.
#[test]
fn each_fault_has_a_case() {
    let source = include_str!("../conformance/rust/src/broken.rs");
    let rows = source
        .lines()
        .filter_map(|line| line.strip_prefix("//! | `"));
    let described: BTreeSet<&str> = rows
        .filter_map(|row| row.split(" | ").next())
        .flat_map(|names| names.split(", "))
        .map(|name| name.trim_matches('`'))
        .collect();
    let tested: BTreeSet<&str> = BROKEN.iter().map(|(fault, _)| *fault).collect();
    assert_eq!(described, tested);
}

fn options(guest: Value, matching: &[&str], seconds: u64) -> Options {
    Options {
        only: Vec::new(),
        matching: matching.iter().map(|text| (*text).to_owned()).collect(),
        timeout: Duration::from_secs(seconds),
        options: guest.as_object().expect("an object").clone(),
        lines: None,
    }
}

fn cases(report: &Value) -> impl Iterator<Item = &Value> {
    report["cases"].as_array().expect("a list").iter()
}

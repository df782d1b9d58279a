use std::path::Path;

use clap::CommandFactory;

use super::*;
use crate::config::{Config, Origin, Sources};

fn parse(line: &str) -> Result<Command, clap::Error> {
    Ok(Cli::try_parse_from(std::iter::once("quarry").chain(line.split_whitespace()))?.command)
}

#[test]
fn the_definition_is_sound_and_every_verb_has_examples() {
    Cli::command().debug_assert();
    for verb in Cli::command().get_subcommands() {
        let help = verb
            .get_after_long_help()
            .map(ToString::to_string)
            .unwrap_or_default();
        assert!(
            help.contains(&format!("quarry {}", verb.get_name())),
            "{} has no example",
            verb.get_name()
        );
    }
}

fn refused() -> crate::client::Error {
    crate::client::Error::Refused(Box::new(crate::client::Refusal {
        status: 409,
        code: "taken".into(),
        detail: "it is taken".into(),
        source: "guest".into(),
        retryable: true,
        shard: Some(3),
    }))
}

#[test]
fn the_exit_codes_in_the_help_are_those_of_the_program() {
    let exits = [
        Exit::Done,
        Exit::Failed,
        Exit::Usage,
        Exit::Unreachable,
        Exit::Refused,
        Exit::RolledBack,
        Exit::TimedOut,
        Exit::Superseded,
        Exit::Begun,
        Exit::Interrupted,
    ]
    .map(|exit| exit as u8);
    let listed: Vec<u8> = EXIT_CODES
        .lines()
        .filter_map(|line| line.split_whitespace().next()?.parse().ok())
        .collect();
    assert_eq!(listed, exits);
    for (error, exit) in [
        (Error::Usage(String::new()), Exit::Usage),
        (Error::Failed(String::new()), Exit::Failed),
        (Error::Unreachable(String::new()), Exit::Unreachable),
        (Error::Refused(refused()), Exit::Refused),
        (Error::Deploy(DeployError::Pinned), Exit::Refused),
        (Error::Deploy(DeployError::Changing), Exit::Failed),
        (Error::Interrupted, Exit::Interrupted),
        (Error::ClosedPipe, Exit::Done),
        (
            Error::Build(build::Error::Project(String::new())),
            Exit::Usage,
        ),
        (
            Error::Build(build::Error::NoComponent(String::new())),
            Exit::Failed,
        ),
    ] {
        assert_eq!(error.exit(), exit, "{error:?}");
    }
}

#[test]
fn good_lines_parse() {
    for line in [
        "dev examples/counter",
        "dev . --data-dir d --shards 4 --listen 127.0.0.1:0",
        "serve --store file:///d --store-option a=b --setting a.b=1 --limit memory=1MiB --set http.max_body=1MiB",
        "new greeter --lang rust --sdk-path x",
        "build",
        "verify a.wasm --option a=1",
        "call increment --key k",
        "call increment --shard 0 -d -5 --timeout 250ms -i -H x-a:b --durability applied",
        "call increment --revision 3",
        "call increment --key k --revision 3",
        "query get --shard 0 --revision 3",
        "query get --key k --read durable --server http://h:1",
        "load --format tsv --key 2 --method put --concurrency 8",
        "load a.jsonl --format jsonl --key id",
        "status --json",
        "shards",
        "shard move 3 --to node-b --timeout 5s",
        "shard restart 3 --json",
        "nodes --server http://h:1",
        "node drain node-b --timeout 1m",
        "node cordon node-b",
        "node uncordon node-b",
        "dev . --nodes 3 --data-dir d",
        "deploy a.wasm",
        "deploy main=./a users=b.wasm --prefix users=u/ --option users.limit=3 --grant users=http:h",
        "deploy . --plan --option a=1 --limit memory=64MiB --note why",
        "deploy . --wave 25% --bake 1m --step-timeout 2m --no-wait",
        "deploy . --canary 5 --max-traps 3 --max-errors 0% --max-latency 150% --least-calls 10",
        "deploy . --shards 0-3,7 --timeout 5m --server http://h:1 --json",
        "deploy a.wasm --store s3://b --store-option aws_region=x --path p",
        "rollback",
        "rollback 3 --no-wait --store file:///d",
        "rollout status --watch --json",
        "rollout promote --timeout 1m",
        "rollout pause",
        "rollout resume",
        "rollout abort --no-wait",
        "revisions --limit 5 --below 9",
        "revisions prune --keep 3",
        "revisions prune 7 --store file:///d",
        "revision show 3",
        "modules --json",
        "config --describe",
        "doctor --store memory:",
        "bench --quick --only call --seconds 1 --json",
        "bench cluster",
        "bench cluster --quick --native --latency 5ms --only move --only idle --json",
    ] {
        parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}

#[test]
fn bad_lines_are_refused() {
    for (line, part) in [
        ("", "Usage"),
        ("fly", "fly"),
        ("call", "METHOD"),
        ("deploy", "FILE|DIR"),
        ("deploy main=", "write main=FILE|DIR"),
        ("deploy a --wave 0%", "1% to 100%"),
        ("deploy a --canary 101%", "1% to 100%"),
        ("deploy a --wave 5% --canary 5%", "cannot be used with"),
        ("deploy a --canary 5% --shards 0", "cannot be used with"),
        ("deploy a --no-wait --timeout 5s", "cannot be used with"),
        ("deploy a --max-latency 50%", "100% to 10000%"),
        ("deploy a --store-option a=b", "--store"),
        ("rollback 0", "0"),
        ("revisions prune --keep 0", "0"),
        ("revisions prune 3 --keep 3", "cannot be used with"),
        ("revision show", "<N>"),
        ("call get", "--key"),
        ("call get --key a --shard 1", "cannot be used with"),
        ("call get --shard -1", "-1"),
        ("call get --revision -1", "-1"),
        ("call get --revision x", "invalid value 'x'"),
        ("call get --key a --data x --file y", "cannot be used with"),
        ("call get --key a --timeout 5", "ns, us, ms, s, m, h, d"),
        ("call get --key a --durability maybe", "applied, durable"),
        ("call get --key a -H nothing", "NAME: VALUE"),
        ("load --format jsonl", "--key"),
        ("load --concurrency 0", "1..=4096"),
        ("load --retry 3", "--retry"),
        ("serve --set x", "NAME=VALUE"),
        ("serve --shard 4", "--shards"),
        ("dev . --data-dir d --store memory:", "cannot be used with"),
        ("shard", "move"),
        ("shard move 3", "--to"),
        ("shard move x --to a", "invalid value 'x'"),
        ("node", "drain"),
        ("node drain", "<NAME>"),
        ("node drain a --timeout 5", "ns, us, ms, s, m, h, d"),
        ("dev . --nodes 0", "1..=16"),
        ("dev . --nodes 3 --store file:///d", "cannot be used with"),
        ("bench --seconds 0", "1..=3600"),
        ("bench --only counter", "durable"),
        ("bench cluster --only nothing", "failover"),
        ("bench cluster --latency fast", "latency"),
        ("bench --quick cluster", "cannot be used with"),
        ("new a --lang cobol", "rust"),
    ] {
        let error = parse(line).expect_err(line).to_string();
        assert!(
            error.contains(part),
            "{line}: {error} does not say {part:?}"
        );
    }
}

#[test]
fn flags_become_the_top_layer() {
    let line = "serve --store file:///d --store-option aws_region=eu --shards 4 --module a.wasm --option greet=\"hi\" \
                --option n=3 --listen 127.0.0.1:0 --node n1 --cluster c1 --path p/q --probe background \
                --merge-operator u64-add --setting a.b=5 --limit memory=1MiB --cache 0 --log-level debug \
                --log-format json --set call.retries=1";
    let Ok(Command::Serve(serve)) = parse(line) else {
        panic!("serve did not parse")
    };
    // Not the test's own environment.
    let sources = Sources {
        flags: serve.settings.sources().flags,
        ..Sources::default()
    };
    let loaded = Config::load(&sources).unwrap();
    let config = &loaded.config;
    assert_eq!(
        (config.store.as_str(), config.shards, config.path.as_str()),
        ("file:///d", 4, "p/q")
    );
    assert_eq!(
        (config.node.as_str(), config.cluster.as_str()),
        ("n1", "c1")
    );
    assert_eq!(config.store_options["aws_region"], "eu");
    assert_eq!(config.module.path.as_deref(), Some(Path::new("a.wasm")));
    assert_eq!(
        (&config.module.options["greet"], &config.module.options["n"]),
        (&"hi".into(), &3.into())
    );
    assert_eq!(config.settings["a"]["b"], 5);
    assert_eq!(
        (
            config.limits.memory,
            config.cache.capacity,
            config.call.retries
        ),
        (1 << 20, 0, 1)
    );
    assert_eq!(
        loaded.origin("limits.memory"),
        Origin::Flag("--limit".into())
    );
    assert_eq!(
        loaded.origin("settings.a.b"),
        Origin::Flag("--setting".into())
    );
}

#[test]
fn a_data_folder_becomes_a_store() {
    let Ok(Command::Dev(dev)) = parse("dev g --data-dir /tmp/a%20b") else {
        panic!("dev did not parse")
    };
    let sources = Sources {
        flags: dev.sources().unwrap().flags,
        ..Sources::default()
    };
    let loaded = Config::load(&sources).unwrap();
    assert_eq!(loaded.config.store, "file:///tmp/a%2520b");
    assert_eq!(loaded.origin("store"), Origin::Flag("--data-dir".into()));
}

#[test]
fn arguments_hide_what_may_be_a_credential() {
    let command =
        parse("serve --store-option key=t0p --option token=t0p --set store_options.sas=t0p")
            .unwrap();
    assert!(!format!("{command:?}").contains("t0p"), "{command:?}");
}

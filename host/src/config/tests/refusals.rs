//! Every kind of bad input, and what is said about it.

use super::*;

#[test]
fn bad_files_name_the_key_the_line_and_what_is_expected() {
    for (file, key, line, parts) in [
        (
            "shard = 4",
            "shard",
            1,
            &["is a section", "open_timeout"][..],
        ),
        ("\nshrads = 4", "shrads", 2, &["unknown key", "`shards`"]),
        (
            "[http]\nlisen = \"a\"",
            "http.lisen",
            2,
            &["unknown key", "`http.listen`"],
        ),
        (
            "listen = \"127.0.0.1:1\"",
            "listen",
            1,
            &["unknown key", "`http.listen`"],
        ),
        ("[htpp]\nlisten = 1", "htpp", 1, &["unknown key", "`http`"]),
        (
            "[zzzzzzzzzzzz]\na = 1",
            "zzzzzzzzzzzz",
            1,
            &["unknown key", "--describe"],
        ),
        ("\"http.listen\" = 1", "http.listen", 1, &[]),
        (
            "[shards]\na = 1",
            "shards",
            1,
            &["a table is not a whole number from 1 to 65536"],
        ),
        ("settings = 4", "settings", 1, &["expected a table"]),
        (
            "shards = \"4\"",
            "shards",
            1,
            &["\"4\" is not a whole number"],
        ),
        ("shards = 0", "shards", 1, &["0 is not", "from 1 to 65536"]),
        ("shards = 65537", "shards", 1, &["65537 is not"]),
        ("shards = -1", "shards", 1, &["-1 is not"]),
        ("shards = 1.5", "shards", 1, &["1.5 is not"]),
        ("shards = 99999999999999999999", "shards", 1, &["too large"]),
        (
            "lag_interval = 15",
            "lag_interval",
            1,
            &["15 is not a duration from 100ms to 60m"],
        ),
        (
            "lag_interval = \"15 minutes\"",
            "lag_interval",
            1,
            &["not a duration", "ns, us, ms, s, m, h, d"],
        ),
        (
            "lag_interval = \"1ms\"",
            "lag_interval",
            1,
            &["\"1ms\" is not", "from 100ms to 60m"],
        ),
        (
            "[limits]\nkey = \"64KiB\"",
            "limits.key",
            2,
            &["\"64KiB\" is not a size from 1B to 65535B"],
        ),
        (
            "[limits]\nvalue = \"16MB\"",
            "limits.value",
            2,
            &["not a size", "B, KiB, MiB"],
        ),
        (
            "[http]\nlisten = \"localhost\"",
            "http.listen",
            2,
            &["address and port"],
        ),
        (
            "probe = \"later\"",
            "probe",
            1,
            &["true, \"background\" or false"],
        ),
        (
            "strategy = \"raft\"",
            "strategy",
            1,
            &["\"raft\" is not one of local, static, lease"],
        ),
        ("node = \"a b\"", "node", 1, &["\"a b\" is not a name"]),
        ("path = \"/abs\"", "path", 1, &["not a path in the store"]),
        ("path = \"a/../b\"", "path", 1, &["not a path in the store"]),
        (
            "store = \"bucket\"",
            "store",
            1,
            &["not a URL", "s3://BUCKET"],
        ),
        (
            "store = \"ftp://x\"",
            "store",
            1,
            &["\"ftp\" is unknown", "s3://BUCKET"],
        ),
        (
            "[log]\nlevel = \"infoo\"",
            "log.level",
            2,
            &["infoo", "trace, debug, info"],
        ),
        (
            "[module]\nwatch = [1]",
            "module.watch",
            2,
            &["list of texts"],
        ),
        (
            "[store_options]\na = [1]",
            "store_options.a",
            2,
            &["expected text"],
        ),
        (
            "[store_options.a]\nb = \"x\"",
            "store_options.a.b",
            2,
            &["expected text"],
        ),
        ("[settings]\na = nan", "settings.a", 2, &["finite"]),
        (
            "[limits]\nvalue = \"1GiB\"",
            "limits.value",
            2,
            &["1GiB and", "over limits.batch, 32MiB"],
        ),
        (
            // One byte too few for the largest key and value in one operation.
            "[limits]\nvalue = \"1MiB\"\nkey = \"1000B\"\nbatch = \"1049639B\"",
            "limits.value",
            2,
            &[
                "1MiB and limits.key, 1000B, and 64B",
                "are 1049640B, over limits.batch, 1049639B",
                "raise limits.batch to 1049640B",
            ],
        ),
        (
            "[call]\ntimeout = \"1h\"",
            "call.timeout",
            2,
            &["over call.max_timeout, 10m"],
        ),
        (
            "shards = 4\n[limits]\ninstances = 3",
            "limits.instances",
            3,
            &["under shards, 4"],
        ),
        (
            "shards = 6000",
            "shards",
            1,
            &["limits.instances", "12064 instances", "at most 5968 shards"],
        ),
        (
            "[http]\nmax_bodies = \"1MiB\"",
            "http.max_bodies",
            2,
            &["1MiB is under http.max_body, 16MiB"],
        ),
        (
            "[http]\nallow_origins = [\"localhost:3000\"]",
            "http.allow_origins",
            2,
            &["\"localhost:3000\" is no origin", "SCHEME://HOST"],
        ),
        (
            "[http]\nhosts = [\"api.example.com:80\"]",
            "http.hosts",
            2,
            &[
                "\"api.example.com:80\" is no name",
                "without scheme and port",
            ],
        ),
        ("shards = 4\nshards = 5", "", 2, &["not TOML", "duplicate"]),
        ("shards = ", "", 1, &["not TOML"]),
    ] {
        let error = load(Some(file), &[], &[]).expect_err(file);
        let [problem] = error.problems() else {
            panic!("{file}: {error}")
        };
        assert_eq!(problem.key, key, "{file}: {error}");
        let Some(Origin::File(path, found)) = &problem.origin else {
            panic!("{file}: {error}")
        };
        assert!(path.ends_with("quarry.toml"));
        assert_eq!(*found, line, "{file}: {error}");
        for part in parts {
            assert!(
                problem.message.contains(part),
                "{file}: {error} does not say {part:?}"
            );
        }
    }
}

#[test]
fn bad_variables_and_flags_are_named() {
    for (name, text, part) in [
        ("QUARRY_SHARD", "4", "`QUARRY_SHARDS`"),
        ("QUARRY_HTTP_LISTEM", "x", "`QUARRY_HTTP_LISTEN`"),
        (
            "QUARRY_SHARDS",
            "many",
            "\"many\" is not a whole number from 1 to 65536",
        ),
        ("QUARRY_SETTINGS", "[1]", "expected a table"),
        ("QUARRY_SETTINGS_A____B", "1", "a name is empty"),
        ("RUST_LOG", "loud", "no filter"),
    ] {
        let error = load(None, &[(name, text)], &[]).unwrap_err();
        assert_eq!(error.problems().len(), 1, "{error}");
        assert_eq!(
            error.problems()[0].origin,
            Some(Origin::Variable(name.into()))
        );
        assert!(error.to_string().contains(part), "{name}: {error}");
    }
    for (key, text, part) in [
        ("limits.memry", "1MiB", "`limits.memory`"),
        ("limits", "1MiB", "is a section"),
        ("shards.x", "1", "unknown key"),
        ("", "1", "unknown key"),
        ("cache.capacity", "lots", "not a size"),
        ("settings.", "1", "a name is empty"),
    ] {
        let error = load(None, &[], &[(key, text)]).unwrap_err();
        assert_eq!(
            error.problems()[0].origin,
            Some(Origin::Flag("--set".into())),
            "{error}"
        );
        assert!(error.to_string().contains(part), "{key}: {error}");
    }
    let others = [
        ("QUARRY_CONFIG", "x"),
        ("QUARRY_SERVER", "x"),
        ("QUARRY_SDK_PATH", "x"),
        ("OTHER", "x"),
    ];
    load(None, &others, &[]).unwrap();
}

#[test]
fn every_problem_is_reported_at_once() {
    let file = "shards = 0\nnope = 1\n[http]\nmax_body = 1\n";
    let error = load(
        Some(file),
        &[("QUARRY_NODE", "a b")],
        &[("call.retries", "11")],
    )
    .unwrap_err();
    let keys: Vec<_> = error
        .problems()
        .iter()
        .map(|problem| problem.key.as_str())
        .collect();
    let expected = ["call.retries", "http.max_body", "node", "nope", "shards"];
    assert_eq!(BTreeSet::from_iter(keys), BTreeSet::from(expected));
    assert!(
        error
            .to_string()
            .starts_with("bad configuration, 5 problems:\n"),
        "{error}"
    );
}

#[test]
fn validate_finds_what_was_set_in_rust() {
    let mut config = Config {
        shards: 0,
        node: String::new(),
        store: "nowhere".into(),
        ..Config::default()
    };
    config.limits.key = 100_000;
    config.call.timeout = Duration::from_secs(3000);
    let error = config.validate().unwrap_err();
    let keys: Vec<_> = error
        .problems()
        .iter()
        .map(|problem| problem.key.as_str())
        .collect();
    assert_eq!(
        keys,
        ["node", "store", "shards", "limits.key", "call.timeout"]
    );
    assert!(
        error
            .problems()
            .iter()
            .all(|problem| problem.origin.is_none())
    );
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let home = tempfile::tempdir().unwrap();
    let missing = home.path().join("missing.toml");
    let required = Sources {
        file: FileSource::Required(missing.clone()),
        ..Sources::default()
    };
    let error = Config::load(&required).unwrap_err().to_string();
    assert!(
        error.contains("cannot read") && error.contains("missing.toml"),
        "{error}"
    );
    let optional = Sources {
        file: FileSource::IfPresent(missing),
        ..Sources::default()
    };
    assert_eq!(Config::load(&optional).unwrap().file, None);
    let large = home.path().join("large.toml");
    for (bytes, part) in [
        (vec![b'#'; (1 << 20) + 1], "over 1048576 bytes"),
        (vec![0xff, 0xfe], "UTF-8"),
    ] {
        fs::write(&large, bytes).unwrap();
        let sources = Sources {
            file: FileSource::IfPresent(large.clone()),
            ..Sources::default()
        };
        let error = Config::load(&sources).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

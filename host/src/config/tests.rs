use std::{collections::BTreeSet, fs, path::Path};

use serde_json::json;

use super::*;

/// The layers of a test: a file, variables, flags.
fn load(
    file: Option<&str>,
    variables: &[(&str, &str)],
    flags: &[(&str, &str)],
) -> Result<Loaded, Error> {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("quarry.toml");
    let file = match file {
        Some(text) => {
            fs::write(&path, text).unwrap();
            FileSource::Required(path)
        }
        None => FileSource::None,
    };
    Config::load(&Sources {
        file,
        variables: variables
            .iter()
            .map(|&(name, value)| (name.into(), value.into()))
            .collect(),
        flags: flags
            .iter()
            .map(|&(key, value)| Flag {
                flag: "--set".into(),
                key: key.into(),
                value: value.into(),
            })
            .collect(),
    })
}

/// `default`, `file:LINE`, `env`, `flag`.
fn origin(loaded: &Loaded, key: &str) -> String {
    match loaded.origin(key) {
        Origin::Default => "default".into(),
        Origin::File(_, line) => format!("file:{line}"),
        Origin::Variable(_) => "env".into(),
        Origin::Flag(_) => "flag".into(),
    }
}

fn value(loaded: &Loaded, name: &str) -> Value {
    let key = Config::keys().find(|key| key.name == name).unwrap();
    (key.get)(&loaded.config)
}

#[test]
fn the_defaults_are_valid_and_documented() {
    let config = Config::default();
    config.validate().unwrap();
    assert_eq!(config.shard.open_timeout, Duration::from_secs(60));
    assert_eq!(config.http.listen.to_string(), "127.0.0.1:7070");
    assert_eq!(config.limits.key, 65_535);
    assert_eq!(config.instances(), 96);
    let mut names = BTreeSet::new();
    for key in Config::keys() {
        assert!(key.doc.trim().ends_with('.'), "{} has no doc", key.name);
        assert!(
            names.insert(key.variable()),
            "{} shares its variable with another key",
            key.name
        );
    }
}

#[test]
fn each_layer_covers_the_ones_before() {
    let file =
        "shards = 2\n[http]\nmax_body = \"1MiB\"\nlisten = \"127.0.0.1:1\"\n[call]\nretries = 1\n";
    let variables = [
        ("QUARRY_HTTP_LISTEN", "127.0.0.1:2"),
        ("QUARRY_CALL_RETRIES", "2"),
        ("PATH", "/bin"),
    ];
    let loaded = load(Some(file), &variables, &[("call.retries", "3")]).unwrap();
    for (key, expected, from) in [
        ("cluster", json!("quarry"), "default"),
        ("shards", json!(2), "file:1"),
        ("http.max_body", json!("1MiB"), "file:3"),
        ("http.listen", json!("127.0.0.1:2"), "env"),
        ("call.retries", json!(3), "flag"),
    ] {
        assert_eq!(value(&loaded, key), expected, "{key}");
        assert_eq!(origin(&loaded, key), from, "{key}");
    }
}

#[test]
fn tables_are_merged_by_name() {
    let file = "[settings]\nmanifest_poll_interval = \"2s\"\nmin_filter_keys = 5\n[settings.compactor_options]\na = 1\nb = 2\n\
                [store_options]\naws_region = \"eu\"\nallow_http = true\n";
    let variables = [
        ("QUARRY_SETTINGS_COMPACTOR_OPTIONS__B", "3"),
        ("QUARRY_STORE_OPTIONS_AWS_REGION", "us"),
        (
            "QUARRY_MODULE_OPTIONS",
            r#"{"greeting": {"text": "hi", "times": 2}}"#,
        ),
    ];
    let flags = [
        ("settings.min_filter_keys", "7"),
        ("settings.compactor_options.c", "text"),
        ("module.options.greeting.times", "3"),
        ("store_options.aws_timeout", "30"),
    ];
    let loaded = load(Some(file), &variables, &flags).unwrap();
    let settings = json!({
        "manifest_poll_interval": "2s", "min_filter_keys": 7, "compactor_options": {"a": 1, "b": 3, "c": "text"}
    });
    assert_eq!(Value::Object(loaded.config.settings.clone()), settings);
    assert_eq!(
        Value::Object(loaded.config.module.options.clone()),
        json!({"greeting": {"text": "hi", "times": 3}})
    );
    let options = json!({"aws_region": "us", "allow_http": "true", "aws_timeout": "30"});
    assert_eq!(value(&loaded, "store_options"), options);
    for (key, from) in [
        ("settings.manifest_poll_interval", "file:2"),
        ("settings.compactor_options.a", "file:5"),
        ("settings.compactor_options.b", "env"),
        ("settings.compactor_options.c", "flag"),
        ("module.options.greeting.text", "env"),
        ("module.options.greeting.times", "flag"),
        ("store_options.allow_http", "file:9"),
    ] {
        assert_eq!(origin(&loaded, key), from, "{key}");
    }
}

#[test]
fn a_value_that_replaces_a_table_replaces_its_origins() {
    let loaded = load(
        Some("[settings.a]\nb = 1\n"),
        &[("QUARRY_SETTINGS_A", "2")],
        &[],
    )
    .unwrap();
    assert_eq!(value(&loaded, "settings"), json!({"a": 2}));
    assert_eq!(origin(&loaded, "settings.a"), "env");
    let loaded = load(
        Some("[settings]\na = 1\n"),
        &[("QUARRY_SETTINGS_A__B", "2")],
        &[],
    )
    .unwrap();
    assert_eq!(value(&loaded, "settings"), json!({"a": {"b": 2}}));
    assert_eq!(origin(&loaded, "settings.a.b"), "env");
}

#[test]
fn words_and_lists_and_unset_values_are_read() {
    let file = "probe = false\n[module]\nwatch = [\"src\"]\n[log]\nformat = \"json\"\n";
    let loaded = load(Some(file), &[], &[]).unwrap();
    assert_eq!(loaded.config.probe, Probe::Off);
    assert_eq!(loaded.config.log.format, LogFormat::Json);
    assert_eq!(loaded.config.module.watch, ["src"]);
    let flags = [
        ("probe", "background"),
        ("module.watch", "a,b"),
        ("merge_operator", "u64-add"),
        ("limits.instances", "99"),
    ];
    let loaded = load(Some(file), &[("QUARRY_MERGE_OPERATOR", "append")], &flags).unwrap();
    assert_eq!(loaded.config.probe, Probe::Background);
    assert_eq!(loaded.config.module.watch, ["a", "b"]);
    assert_eq!(loaded.config.merge_operator.as_deref(), Some("u64-add"));
    assert_eq!(loaded.config.instances(), 99);
    let unset = [("merge_operator", ""), ("limits.instances", "")];
    let loaded = load(None, &[("QUARRY_MERGE_OPERATOR", "append")], &unset).unwrap();
    assert_eq!(
        (loaded.config.merge_operator, loaded.config.limits.instances),
        (None, None)
    );
}

#[test]
fn rust_log_is_under_our_own_variable_and_the_flag() {
    for (variables, flags, level, from) in [
        (vec![("RUST_LOG", "warn")], vec![], "warn", "env"),
        (vec![("RUST_LOG", "")], vec![], "error", "file:2"),
        (
            vec![("RUST_LOG", "warn"), ("QUARRY_LOG_LEVEL", "debug")],
            vec![],
            "debug",
            "env",
        ),
        (
            vec![("RUST_LOG", "warn")],
            vec![("log.level", "trace")],
            "trace",
            "flag",
        ),
    ] {
        let loaded = load(Some("[log]\nlevel = \"error\"\n"), &variables, &flags).unwrap();
        assert_eq!(
            (
                loaded.config.log.level.as_str(),
                origin(&loaded, "log.level").as_str()
            ),
            (level, from)
        );
    }
}

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
            &["15 is not a duration from 100ms to 1h"],
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
            "strategy = \"lease\"",
            "strategy",
            1,
            &["\"lease\" is not one of local"],
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
            "store_options",
            2,
            &["`a` is not text"],
        ),
        ("[settings]\na = nan", "settings.a", 2, &["finite"]),
        (
            "[limits]\nvalue = \"1GiB\"",
            "limits.value",
            2,
            &["over limits.batch, 32MiB"],
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

#[test]
fn a_component_path_is_relative_to_its_file() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("quarry.toml");
    fs::write(&path, "[module]\npath = \"out/a.wasm\"\n").unwrap();
    let mut sources = Sources {
        file: FileSource::Required(path),
        ..Sources::default()
    };
    let loaded = Config::load(&sources).unwrap();
    assert_eq!(
        loaded.config.module.path,
        Some(home.path().join("out/a.wasm"))
    );
    sources.flags = vec![Flag {
        flag: "--module".into(),
        key: "module.path".into(),
        value: "b.wasm".into(),
    }];
    let loaded = Config::load(&sources).unwrap();
    assert_eq!(
        loaded.config.module.path.as_deref(),
        Some(Path::new("b.wasm"))
    );
}

#[test]
fn credentials_are_never_printed() {
    let file = "[store_options]\naws_secret_access_key = \"t0p\"\naws_region = \"eu\"\n[module.options]\nauth.token = \"t0p\"\n";
    let loaded = load(
        Some(file),
        &[("QUARRY_STORE_OPTIONS_AWS_SESSION_TOKEN", "t0p")],
        &[],
    )
    .unwrap();
    assert_eq!(loaded.config.store_options["aws_secret_access_key"], "t0p");
    let flag = Flag {
        flag: "--set".into(),
        key: "store_options.sas".into(),
        value: "t0p".into(),
    };
    let hidden = Config {
        store: "s3://user:t0p@bucket".into(),
        ..Config::default()
    };
    for text in [
        loaded.to_toml(),
        loaded.to_json().to_string(),
        format!("{:?} {:#?}", loaded, loaded.config),
        format!("{:?}", loaded.config.module),
        format!("{flag:?}"),
        format!("{hidden:?}"),
        hidden.validate().unwrap_err().to_string(),
        load(None, &[("QUARRY_STORE", "az://t0p@box")], &[])
            .unwrap_err()
            .to_string(),
        load(Some("store_options = \"t0p\""), &[], &[])
            .unwrap_err()
            .to_string(),
        load(Some("[store_options]\nkey = [\"t0p\"]"), &[], &[])
            .unwrap_err()
            .to_string(),
        load(Some("secret = \"t0p\""), &[], &[])
            .unwrap_err()
            .to_string(),
        load(Some("[store_options]\nkey = \"t0p"), &[], &[])
            .unwrap_err()
            .to_string(),
    ] {
        assert!(!text.contains("t0p"), "{text}");
    }
    assert!(
        loaded
            .to_toml()
            .contains("aws_secret_access_key = \"(redacted)\"  # "),
        "{}",
        loaded.to_toml()
    );
}

#[test]
fn what_is_printed_gives_the_same_configuration() {
    let file = "shards = 3\nnode = \"n1\"\n[settings]\na = { \"b.c\" = [1, \"x\\ny\"], d = {} }\n[module.options]\ntext = \"q\\\"\"\n";
    let loaded = load(
        Some(file),
        &[("QUARRY_LOG_LEVEL", "quarry=debug")],
        &[("merge_operator", "append")],
    )
    .unwrap();
    let printed = loaded.to_toml();
    let again = load(Some(&printed), &[], &[]).unwrap_or_else(|error| panic!("{error}\n{printed}"));
    assert_eq!(again.config, loaded.config, "{printed}");
    assert!(
        printed.contains("shards = 3  # ") && printed.contains("quarry.toml:1"),
        "{printed}"
    );
    assert!(
        printed.contains("level = \"quarry=debug\"  # environment QUARRY_LOG_LEVEL"),
        "{printed}"
    );
    assert!(
        printed.contains("merge_operator = \"append\"  # flag --set"),
        "{printed}"
    );
    assert!(
        printed.contains("# instances is unset  # default"),
        "{printed}"
    );
    let json = loaded.to_json();
    assert_eq!(json["values"]["shards"]["value"], 3);
    assert_eq!(json["values"]["merge_operator"]["origin"], "flag --set");
    assert_eq!(json["values"]["settings"]["value"]["a"]["d"], json!({}));
}

#[test]
fn the_description_has_every_key_and_parses() {
    let text = describe();
    let listed = describe_json();
    assert_eq!(listed.as_array().unwrap().len(), Config::keys().count());
    for key in Config::keys() {
        assert!(text.contains(&key.variable()), "{}", key.name);
    }
    text.parse::<toml::Table>().unwrap();
}

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::json;

use super::*;

mod refusals;

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

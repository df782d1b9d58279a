//! SlateDB's settings for a node with many shards: a lean profile, and the user's own settings merged over it by key.
//!
//! SlateDB's defaults are made for one database on a machine: 3.2 requests a second each when idle, 64 MiB memtables, and
//! retries without end. It ignores unknown keys, so they are checked here, together with those that would break fencing or
//! durability, or that Quarry has to drive itself.

use std::time::Duration;

use serde_json::{Map, Value};
use slatedb::config::Settings;

use crate::store::nearest::nearest;

/// The most retries that may be asked for: one or two seconds each, and as long as the store client's own (20 s and more).
const MAX_RETRIES: u32 = 1_000;
/// Fewer level-0 tables than this and compaction never starts, so writes stop for good (SlateDB compacts from 4 on).
const MIN_L0_SSTS: usize = 4;

/// Why settings were refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// SlateDB has no such setting.
    #[error("unknown SlateDB setting {path:?}; {hint}")]
    Unknown {
        /// The key, with the keys above it.
        path: String,
        /// Near or valid keys.
        hint: String,
    },
    /// The value has the wrong type, or cannot be read.
    #[error("SlateDB setting {path:?} cannot be {value}: {problem}")]
    Type {
        /// The key, with the keys above it.
        path: String,
        /// The value, shortened.
        value: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The setting would be unsafe, or is not the user's to choose.
    #[error("SlateDB setting {path:?} cannot be set: {reason}")]
    Refused {
        /// The key, with the keys above it.
        path: String,
        /// Why not, and what to do instead.
        reason: String,
    },
    /// The settings do not go together.
    #[error("SlateDB settings: {problem}")]
    Invalid {
        /// What does not fit, with the values.
        problem: String,
    },
}

/// The settings that a shard's database gets when the user sets nothing.
///
/// An idle database costs 0.2 requests a second (its manifest poll). Quarry itself flushes the WAL, compacts and collects
/// garbage, so SlateDB's own tasks for these are off.
#[must_use]
pub fn profile() -> Settings {
    Settings {
        flush_interval: None,
        // How late an idle writer notices a fence, beside the lease which notices first.
        manifest_poll_interval: Duration::from_secs(10),
        // Bounds the claim of the writer epoch at open.
        manifest_update_timeout: Duration::from_secs(15),
        l0_sst_size_bytes: 16 * 1024 * 1024,
        max_unflushed_bytes: 64 * 1024 * 1024,
        l0_flush_parallelism: 1,
        // Twice SlateDB's default: compaction is scheduled per node here, and may come a little later.
        l0_max_ssts: 16,
        l0_max_ssts_per_key: 16,
        compactor_options: None,
        garbage_collector_options: None,
        // Two to four minutes, on top of what the store's client tries itself: while a store is away its shards wait for it, and so do
        // their calls, each for as long as it may take. A kill switch ends all of it at once. Without a bound a database
        // whose store never comes back would wait for ever.
        object_store_max_retries: Some(120),
        ..Settings::default()
    }
}

/// The profile with the user's settings merged over it, key by key; nested maps may be partial. Durations are texts such as
/// `"100ms"`, `"10s"`, `"1m"`.
///
/// # Errors
///
/// For an unknown key at any depth (with the nearest valid one), a value of the wrong type, a setting that would be unsafe
/// or that Quarry drives itself, and settings that do not go together. Errors name the key with those above it.
pub fn effective(user: Map<String, Value>) -> Result<Settings, Error> {
    let valid = to_json(&Settings::default())?;
    let mut leaves = Vec::new();
    collect(&mut Vec::new(), user, &valid, &mut leaves)?;
    let mut merged = to_json(&profile())?;
    // It has no text form for "none". A placeholder, as nobody else may set it either.
    merged["flush_interval"] = Value::from("1s");
    let mut settings = from_json(&merged).map_err(|problem| Error::Invalid { problem })?;
    for (path, value) in leaves {
        let shown = shorten(&value.to_string());
        set(&mut merged, &path, value);
        settings = from_json(&merged).map_err(|problem| Error::Type {
            path: path.join("."),
            value: shown,
            problem: problem.to_string(),
        })?;
    }
    settings.flush_interval = None;
    check(&settings)?;
    Ok(settings)
}

/// Settings that cannot be set, at whatever value, and why. The longest path comes first.
const REFUSED: &[(&str, &str)] = &[
    (
        "flush_interval",
        "Quarry decides when to flush the WAL, so that a write which waits for durability starts a flush at once; to space out WAL objects set shard.flush_interval",
    ),
    (
        "wal_enabled",
        "without the WAL a durable write would wait for a whole memtable, and the fence of a shard would not hold",
    ),
    (
        "garbage_collector_options.wal_fence_options",
        "a fence that was collected lets a stalled former owner write again, and lose or wrongly acknowledge data",
    ),
    (
        "garbage_collector_options.boundary_files_enabled",
        "without boundary files a stalled process can recreate a deleted manifest and acknowledge a stale update",
    ),
    (
        "garbage_collector_options",
        "Quarry collects garbage itself, for one shard at a time on each node, and nothing of that is to be set",
    ),
    (
        "compactor_options",
        "Quarry compacts itself, a few shards at a time on each node, and a second compactor on a shard would fence its database; of all that only l0_max_ssts is to be set: a shard is compacted from 4 L0 SSTs on, or one below it",
    ),
];

/// Flattens the user's map to its leaves, and refuses keys that are unknown or not to be set.
fn collect(
    above: &mut Vec<String>,
    user: Map<String, Value>,
    valid: &Value,
    leaves: &mut Vec<(Vec<String>, Value)>,
) -> Result<(), Error> {
    for (key, value) in user {
        above.push(key.chars().take(64).collect());
        let path = above.join(".");
        refuse(&path, &value)?;
        match (valid.get(&key), value) {
            (None, _) => return Err(unknown(path, &key, valid)),
            (Some(inner @ Value::Object(_)), Value::Object(map)) => {
                collect(above, map, inner, leaves)?
            }
            (Some(_), value) => leaves.push((above.clone(), value)),
        }
        above.pop();
    }
    Ok(())
}

fn refuse(path: &str, value: &Value) -> Result<(), Error> {
    // The most telling reason is that of an inner key, if the user set one.
    let inner = |refused: &str| {
        let key = refused.strip_prefix(path)?.strip_prefix('.')?;
        value.get(key).map(|_| refused.to_owned())
    };
    for (refused, reason) in REFUSED {
        if let Some(path) = if *refused == path {
            Some(path.to_owned())
        } else {
            inner(refused)
        } {
            return Err(Error::Refused {
                path,
                reason: (*reason).to_owned(),
            });
        }
    }
    let reason = match (path, value) {
        ("object_store_max_retries", Value::Null) => {
            "without a bound a database whose store went away can neither fail nor close"
        }
        _ => return Ok(()),
    };
    Err(Error::Refused {
        path: path.to_owned(),
        reason: reason.to_owned(),
    })
}

fn unknown(path: String, key: &str, valid: &Value) -> Error {
    let settable = |key: &&str| !REFUSED.iter().any(|(refused, _)| refused == key);
    let names: Vec<&str> = valid
        .as_object()
        .into_iter()
        .flat_map(Map::keys)
        .map(String::as_str)
        .filter(settable)
        .collect();
    let hint = match nearest(key, names.iter().copied()) {
        Some(near) => format!("did you mean {near:?}?"),
        None if names.is_empty() => "there is nothing to set here".to_owned(),
        None => format!("valid are {}", names.join(", ")),
    };
    Error::Unknown { path, hint }
}

/// Bounds that SlateDB does not check and whose breach stops writes, or panics.
fn check(settings: &Settings) -> Result<(), Error> {
    let poll = settings.manifest_poll_interval;
    let timeout = settings.manifest_update_timeout;
    let scan = settings.object_store_cache_options.scan_interval;
    let (sst, unflushed) = (settings.l0_sst_size_bytes, settings.max_unflushed_bytes);
    let problem = if !(Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&poll) {
        format!("manifest_poll_interval is {poll:?}; valid are 100ms to 1h")
    } else if !(Duration::from_secs(1)..=Duration::from_secs(300)).contains(&timeout) {
        format!("manifest_update_timeout is {timeout:?}; valid are 1s to 5m")
    } else if let Some(scan) = scan.filter(|scan| *scan < Duration::from_secs(1)) {
        format!("object_store_cache_options.scan_interval is {scan:?}; the least is 1s")
    } else if settings.l0_max_ssts < MIN_L0_SSTS || settings.l0_max_ssts_per_key < MIN_L0_SSTS {
        let (all, key) = (settings.l0_max_ssts, settings.l0_max_ssts_per_key);
        format!(
            "l0_max_ssts is {all} and l0_max_ssts_per_key is {key}; each has to be at least {MIN_L0_SSTS}, or compaction never starts and writes stop for good"
        )
    } else if sst < 64 * 1024 {
        format!("l0_sst_size_bytes is {sst}; the least is 65536")
    } else if unflushed / 2 < sst {
        format!(
            "max_unflushed_bytes is {unflushed} and l0_sst_size_bytes is {sst}; it has to be at least twice that, or writes wait for a memtable that never fills"
        )
    } else if settings.l0_flush_parallelism > 64 {
        format!(
            "l0_flush_parallelism is {}; the most is 64",
            settings.l0_flush_parallelism
        )
    } else if settings
        .object_store_max_retries
        .is_none_or(|retries| retries > MAX_RETRIES)
    {
        format!(
            "object_store_max_retries is {:?}; valid are 0 to {MAX_RETRIES}",
            settings.object_store_max_retries
        )
    } else {
        return settings.validate().map_err(|error| Error::Invalid {
            problem: error.to_string(),
        });
    };
    Err(Error::Invalid { problem })
}

fn to_json(settings: &Settings) -> Result<Value, Error> {
    serde_json::to_value(settings).map_err(|error| Error::Invalid {
        problem: error.to_string(),
    })
}

fn from_json(value: &Value) -> Result<Settings, String> {
    // By way of text: durations refuse a borrowed value otherwise.
    serde_json::from_str(&value.to_string()).map_err(|error| without_position(&error.to_string()))
}

/// The position is one in a text that the user never saw.
fn without_position(message: &str) -> String {
    message
        .split(" at line ")
        .next()
        .unwrap_or(message)
        .to_owned()
}

fn set(target: &mut Value, path: &[String], value: Value) {
    let mut place = target;
    for key in path {
        place = &mut place[key.as_str()];
    }
    *place = value;
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(64) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settings(user: Value) -> Result<Settings, String> {
        let Value::Object(user) = user else {
            panic!("{user} is not a map")
        };
        effective(user).map_err(|error| error.to_string())
    }

    #[test]
    fn nothing_set_is_the_profile() {
        let settings = settings(json!({})).expect("valid");
        assert_eq!(settings.flush_interval, None);
        assert!(
            settings.compactor_options.is_none() && settings.garbage_collector_options.is_none()
        );
        assert_eq!(settings.object_store_max_retries, Some(120));
        assert_eq!(settings.manifest_poll_interval, Duration::from_secs(10));
        assert_eq!(settings.manifest_update_timeout, Duration::from_secs(15));
        assert_eq!(
            (settings.l0_sst_size_bytes, settings.max_unflushed_bytes),
            (16 << 20, 64 << 20)
        );
        assert_eq!(
            (settings.l0_max_ssts, settings.l0_max_ssts_per_key),
            (16, 16)
        );
        assert_eq!(format!("{settings:?}"), format!("{:?}", profile()));
    }

    #[test]
    fn the_users_keys_win_and_the_rest_stays() {
        let settings = settings(json!({
            "manifest_poll_interval": "1m",
            "default_ttl_millis": 5000,
            "l0_max_ssts": 32,
            "object_store_max_retries": 0,
            "object_store_cache_options": { "part_size_bytes": 1024, "scan_interval": "2s" },
        }))
        .expect("valid");
        assert_eq!(settings.manifest_poll_interval, Duration::from_secs(60));
        assert_eq!(settings.default_ttl_millis, Some(5000));
        assert_eq!(settings.l0_max_ssts, 32);
        assert_eq!(settings.object_store_max_retries, Some(0));
        assert_eq!(settings.object_store_cache_options.part_size_bytes, 1024);
        assert_eq!(
            settings.object_store_cache_options.scan_interval,
            Some(Duration::from_secs(2))
        );
        // Untouched ones, beside and above.
        assert_eq!(
            settings.object_store_cache_options.max_open_file_handles,
            1000
        );
        assert_eq!(settings.l0_sst_size_bytes, 16 << 20);
        assert_eq!(settings.flush_interval, None);
    }

    #[test]
    fn refusals_name_the_key_and_the_reason() {
        for (user, texts) in [
            (
                json!({"manifest_pol_interval": "1s"}),
                &[
                    "\"manifest_pol_interval\"",
                    "did you mean \"manifest_poll_interval\"",
                ][..],
            ),
            (
                json!({"zebra": 1}),
                &["\"zebra\"", "valid are", "l0_max_ssts"],
            ),
            (
                json!({"object_store_cache_options": {"rot_folder": "x"}}),
                &[
                    "\"object_store_cache_options.rot_folder\"",
                    "\"root_folder\"",
                ],
            ),
            (
                json!({"object_store_cache_options": {"zebra": "x"}}),
                &["object_store_cache_options.zebra", "part_size_bytes"],
            ),
            (json!({"": 1}), &["\"\"", "valid are"]),
            (
                json!({"l0_max_ssts": "many"}),
                &["\"l0_max_ssts\"", "\"many\"", "usize"],
            ),
            (json!({"l0_max_ssts": -1}), &["\"l0_max_ssts\"", "-1"]),
            (
                json!({"l0_max_ssts": {"a": 1}}),
                &["\"l0_max_ssts\"", "map"],
            ),
            (
                json!({"manifest_poll_interval": 10}),
                &["\"manifest_poll_interval\"", "10"],
            ),
            (
                json!({"manifest_poll_interval": "soon"}),
                &["\"manifest_poll_interval\"", "soon"],
            ),
            (
                json!({"manifest_poll_interval": null}),
                &["\"manifest_poll_interval\"", "null"],
            ),
            (
                json!({"object_store_cache_options": 7}),
                &["\"object_store_cache_options\"", "7"],
            ),
            (
                json!({"object_store_cache_options": {"part_size_bytes": "x"}}),
                &["\"object_store_cache_options.part_size_bytes\"", "x"],
            ),
            (
                json!({"compression_codec": "zebra"}),
                &["\"compression_codec\"", "zebra"],
            ),
            (
                json!({"flush_interval": "1ms"}),
                &["\"flush_interval\"", "set shard.flush_interval"],
            ),
            (
                json!({"wal_enabled": false}),
                &["\"wal_enabled\"", "durable"],
            ),
            (
                json!({"compactor_options": {"poll_interval": "1s"}}),
                &["\"compactor_options\"", "Quarry compacts itself"],
            ),
            (
                json!({"garbage_collector_options": {"metric_level": null}}),
                &[
                    "\"garbage_collector_options\"",
                    "Quarry collects garbage itself",
                ],
            ),
            (
                json!({"garbage_collector_options": {"wal_fence_options": {"dry_run": false}}}),
                &["\"garbage_collector_options.wal_fence_options\"", "stalled"],
            ),
            (
                json!({"garbage_collector_options": {"boundary_files_enabled": false}}),
                &["garbage_collector_options.boundary_files_enabled", "stale"],
            ),
            (
                json!({"object_store_max_retries": null}),
                &["\"object_store_max_retries\"", "bound"],
            ),
            (
                json!({"object_store_max_retries": 1001}),
                &["object_store_max_retries", "1001", "0 to 1000"],
            ),
            (
                json!({"manifest_poll_interval": "0s"}),
                &["manifest_poll_interval", "0ns", "100ms to 1h"],
            ),
            (
                json!({"manifest_update_timeout": "10m"}),
                &["manifest_update_timeout", "600s", "5m"],
            ),
            (
                json!({"l0_max_ssts_per_key": 3}),
                &["l0_max_ssts_per_key is 3", "at least 4"],
            ),
            (
                json!({"l0_sst_size_bytes": 33_554_433}),
                &["max_unflushed_bytes is 67108864", "33554433", "twice"],
            ),
            (
                json!({"l0_sst_size_bytes": 1}),
                &["l0_sst_size_bytes is 1", "65536"],
            ),
            (
                json!({"l0_flush_parallelism": 0}),
                &["l0_flush_parallelism", "at least 1"],
            ),
            (json!({"l0_flush_parallelism": 65}), &["65", "64"]),
            (
                json!({"max_wal_flushes_before_l0_flush": 1}),
                &["max_wal_flushes_before_l0_flush", "4096"],
            ),
            (
                json!({"object_store_cache_options": {"scan_interval": "0s"}}),
                &["scan_interval", "1s"],
            ),
        ] {
            let error = settings(user.clone()).expect_err("refused");
            for text in texts {
                assert!(error.contains(text), "{user}: {error:?} lacks {text:?}");
            }
            assert!(!error.contains("line 1"), "{error}");
        }
    }

    #[test]
    fn long_values_and_keys_are_cut() {
        let error = settings(json!({"l0_max_ssts": "x".repeat(100_000)})).expect_err("refused");
        assert!(error.contains("xxx..."), "{error}");
        let error = settings(json!({"k".repeat(100_000): 1})).expect_err("refused");
        assert!(error.len() < 1000, "{} bytes", error.len());
    }
}

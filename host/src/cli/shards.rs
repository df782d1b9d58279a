//! `quarry shards`: every shard of the cluster, one a line.

use serde_json::Value;

use super::args::Shards;
use super::call::interruptible;
use super::output::{self, Column};
use super::{Error, Exit, Output};
use crate::client::Client;
use crate::clock;

/// The columns.
const COLUMNS: [Column; 12] = [
    ("SHARD", |shard| output::cell(&shard["shard"])),
    ("OWNER", |shard| output::cell(&shard["node"])),
    ("GENERATION", |shard| output::cell(&shard["generation"])),
    ("STATUS", |shard| output::cell(&shard["status"])),
    ("SINCE", since),
    ("WHY", why),
    ("REVISION", |shard| output::cell(&shard["revision"])),
    ("DURABLE", |shard| output::cell(&shard["durable_seq"])),
    ("APPLIED", |shard| output::cell(&shard["applied_seq"])),
    ("QUEUED", |shard| output::cell(&shard["queued"])),
    ("TRAPS", |shard| output::cell(&shard["traps"])),
    ("LAST ERROR", |shard| output::cell(&shard["last_error"])),
];

/// Lists the shards.
pub(super) async fn run(args: &Shards, out: Output) -> Result<Exit, Error> {
    let client = Client::new(&args.server.server)?;
    let shards = listed(&client).await?;
    if out.json {
        out.json(&shards)?;
    } else {
        out.bytes(output::table(&COLUMNS, &shards).as_bytes())?;
    }
    Ok(Exit::Done)
}

/// Every shard of the cluster, in order.
pub(super) async fn listed(client: &Client) -> Result<Vec<Value>, Error> {
    let status = interruptible(client.status()).await?;
    let mut shards: Vec<Value> = status["shards"]
        .as_object()
        .map(|shards| shards.values().cloned().collect())
        .unwrap_or_default();
    shards.sort_by_key(|shard| shard["shard"].as_u64());
    Ok(shards)
}

/// Why its owner has it.
fn why(shard: &Value) -> String {
    let text = output::cell(&shard["why"]);
    match shard["pinned"] == true {
        true => format!("{text}, pinned"),
        false => text,
    }
}

/// How long it has been so, by the clocks of two machines: negative times count as none.
fn since(shard: &Value) -> String {
    let Some(since) = shard["since_ms"].as_i64() else {
        return "-".into();
    };
    let seconds = clock::wall_ms().saturating_sub(since).max(0) / 1000;
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=7199 => format!("{}m", seconds / 60),
        7200..=172_799 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_line_a_shard() {
        let shards = [
            json!({"shard": 0, "status": "running", "node": "a", "generation": 7, "since_ms": clock::wall_ms() - 90_000, "why": "expired", "pinned": true, "revision": 1, "durable_seq": 17, "applied_seq": 17, "queued": 0, "traps": 0, "last_error": null}),
            json!({"shard": 10, "status": "quarantined", "node": null, "generation": 0, "since_ms": null, "queued": 3, "traps": 6, "last_error": "trapped\nin the middle"}),
        ];
        let expected = "\
SHARD  OWNER  GENERATION  STATUS       SINCE  WHY              REVISION  DURABLE  APPLIED  QUEUED  TRAPS  LAST ERROR
0      a      7           running      90s    expired, pinned  1         17       17       0       0      -
10     -      0           quarantined  -      -                -         -        -        3       6      trapped
";
        assert_eq!(output::table(&COLUMNS, &shards), expected);
    }

    #[test]
    fn times_are_short() {
        let ago = |seconds: i64| since(&json!({"since_ms": clock::wall_ms() - seconds * 1000}));
        for (seconds, text) in [
            (-5, "0s"),
            (119, "119s"),
            (120, "2m"),
            (7300, "2h"),
            (200_000, "2d"),
        ] {
            assert_eq!(ago(seconds), text);
        }
    }
}

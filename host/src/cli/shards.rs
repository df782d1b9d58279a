//! `quarry shards`: every shard of a node, one a line.

use std::fmt::Write as _;

use serde_json::Value;

use super::args::Shards;
use super::call::interruptible;
use super::{Error, Exit, Output};
use crate::client::Client;

/// The columns: title and field.
const COLUMNS: [(&str, &str); 9] = [
    ("SHARD", "shard"),
    ("STATUS", "status"),
    ("NODE", "node"),
    ("REVISION", "revision"),
    ("DURABLE", "durable_seq"),
    ("APPLIED", "applied_seq"),
    ("QUEUED", "queued"),
    ("TRAPS", "traps"),
    ("LAST ERROR", "last_error"),
];
/// Characters of an error in the table; `--json` has all of it.
const ERROR_MAX_CHARS: usize = 80;

/// Lists the shards.
pub(super) async fn run(args: &Shards, out: Output) -> Result<Exit, Error> {
    let client = Client::new(&args.server.server)?;
    let status = interruptible(client.status()).await?;
    let mut shards: Vec<Value> = status["shards"]
        .as_object()
        .map(|shards| shards.values().cloned().collect())
        .unwrap_or_default();
    shards.sort_by_key(|shard| shard["shard"].as_u64());
    if out.json {
        out.json(&shards)?;
    } else {
        out.bytes(table(&shards).as_bytes())?;
    }
    Ok(Exit::Done)
}

fn table(shards: &[Value]) -> String {
    let titles = COLUMNS.map(|(title, _)| title.to_owned());
    let rows = shards
        .iter()
        .map(|shard| COLUMNS.map(|(_, field)| cell(&shard[field])));
    let rows: Vec<_> = std::iter::once(titles).chain(rows).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = rows
                .iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0);
            _ = write!(line, "{cell:width$}  ");
        }
        _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => return "-".into(),
        Value::String(text) => text.lines().next().unwrap_or("").to_owned(),
        other => other.to_string(),
    };
    match text.char_indices().nth(ERROR_MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_line_a_shard() {
        let shards = [
            json!({"shard": 0, "status": "running", "node": "a", "revision": 1, "durable_seq": 17, "applied_seq": 17, "queued": 0, "traps": 0, "last_error": null}),
            json!({"shard": 10, "status": "quarantined", "node": null, "queued": 3, "traps": 6, "last_error": "trapped\nin the middle"}),
        ];
        let expected = "\
SHARD  STATUS       NODE  REVISION  DURABLE  APPLIED  QUEUED  TRAPS  LAST ERROR
0      running      a     1         17       17       0       0      -
10     quarantined  -     -         -        -        3       6      trapped
";
        assert_eq!(table(&shards), expected);
    }

    #[test]
    fn a_long_error_is_cut() {
        assert_eq!(
            cell(&"é".repeat(100).into()).chars().count(),
            ERROR_MAX_CHARS + 1
        );
    }
}

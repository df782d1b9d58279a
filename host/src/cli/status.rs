//! `quarry status`: how the cluster is, at a glance.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use super::args::Status;
use super::call::interruptible;
use super::{Error, Exit, Output};
use crate::client::Client;

/// Shards with an error that are named, at most; `quarry shards` lists all.
const NAMED_MAX: usize = 10;

/// Shows how the cluster is. Fails when it is not ready, so that scripts can wait for it.
pub(super) async fn run(args: &Status, out: Output) -> Result<Exit, Error> {
    let client = Client::new(&args.server.server)?;
    let status = interruptible(client.status()).await?;
    if out.json {
        out.json(&status)?;
    } else {
        out.bytes(text(&status).as_bytes())?;
    }
    Ok(if status["ready"] == true {
        Exit::Done
    } else {
        Exit::Failed
    })
}

fn text(status: &Value) -> String {
    let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let mut text = String::new();
    let ready = if status["ready"] == true {
        "ready"
    } else {
        "not ready"
    };
    _ = writeln!(text, "cluster  {} ({ready})", word(&status["cluster"]));
    _ = writeln!(text, "node     {}", word(&status["node"]));
    _ = writeln!(
        text,
        "store    {}, probe {}",
        word(&status["store"]),
        word(&status["probe"]["status"])
    );
    if let Some(error) = status["probe"]["last_error"].as_str() {
        _ = writeln!(text, "         last error of the probe: {error}");
    }
    match &status["module"] {
        Value::Null => _ = writeln!(text, "module   none"),
        module => {
            _ = writeln!(
                text,
                "module   {} revision {} ({})",
                word(&module["name"]),
                module["revision"],
                word(&module["digest"])
            )
        }
    }
    nodes(&status["nodes"], &mut text);
    let empty = serde_json::Map::new();
    let shards = status["shards"].as_object().unwrap_or(&empty);
    let mut states = BTreeMap::<&str, usize>::new();
    for shard in shards.values() {
        *states
            .entry(shard["status"].as_str().unwrap_or("unknown"))
            .or_default() += 1;
    }
    let states: Vec<_> = states
        .iter()
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    _ = writeln!(text, "shards   {}", states.join(", "));
    let mut troubled: Vec<_> = shards
        .values()
        .filter(|shard| shard["status"] != "running")
        .collect();
    troubled.sort_by_key(|shard| shard["shard"].as_u64());
    for shard in troubled.iter().take(NAMED_MAX) {
        let error = shard["last_error"]
            .as_str()
            .map(|error| format!(": {error}"))
            .unwrap_or_default();
        _ = writeln!(
            text,
            "         {} is {}{error}",
            shard["shard"],
            word(&shard["status"])
        );
    }
    if troubled.len() > NAMED_MAX {
        _ = writeln!(
            text,
            "         and {} more: `quarry shards` lists them",
            troubled.len() - NAMED_MAX
        );
    }
    text
}

/// The nodes, where there are several: how many are how, and each that is not well.
fn nodes(nodes: &Value, text: &mut String) {
    let nodes: Vec<&Value> = nodes.as_array().into_iter().flatten().collect();
    if nodes.len() < 2 {
        return;
    }
    let mut states = BTreeMap::<&str, (usize, u64)>::new();
    for node in &nodes {
        let of = states
            .entry(node["state"].as_str().unwrap_or("unknown"))
            .or_default();
        of.0 += 1;
        of.1 += node["shards"].as_u64().unwrap_or(0);
    }
    let states: Vec<_> = states
        .iter()
        .map(|(state, (count, shards))| format!("{count} {state} with {shards} shards"))
        .collect();
    _ = writeln!(text, "nodes    {}", states.join(", "));
    for node in nodes
        .iter()
        .filter(|node| node["error"].is_string())
        .take(NAMED_MAX)
    {
        let word = |field: &str| node[field].as_str().unwrap_or("-").to_owned();
        _ = writeln!(text, "         {}: {}", word("node"), word("error"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn trouble_is_named() {
        let status = json!({
            "cluster": "c", "node": "n", "ready": false, "store": "memory:", "probe": {"status": "passed", "last_error": null},
            "module": {"name": "main", "revision": 3, "digest": "sha256:ab"},
            "nodes": [
                {"node": "n", "state": "live", "shards": 2, "error": null},
                {"node": "m", "state": "live", "shards": 1, "error": "did not answer"},
                {"node": "k", "state": "dead", "shards": 0, "error": null},
            ],
            "shards": {
                "0": {"shard": 0, "status": "running", "last_error": null},
                "1": {"shard": 1, "status": "crashed", "last_error": "no memory"},
                "2": {"shard": 2, "status": "running", "last_error": "old"},
            },
        });
        let expected = "cluster  c (not ready)\nnode     n\nstore    memory:, probe passed\nmodule   main revision 3 (sha256:ab)\n\
                        nodes    1 dead with 0 shards, 2 live with 3 shards\n         m: did not answer\n\
                        shards   1 crashed, 2 running\n         1 is crashed: no memory\n";
        assert_eq!(text(&status), expected);
    }

    #[test]
    fn an_answer_of_another_shape_is_no_panic() {
        assert!(text(&json!([])).contains("not ready"));
        assert!(text(&json!({"shards": {"x": 1}})).contains("1 unknown"));
    }
}

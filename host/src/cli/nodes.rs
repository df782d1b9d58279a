//! `quarry nodes` and `quarry node`: the nodes of the cluster, and what an operator does to one.

use std::time::Duration;

use serde_json::Value;

use super::args::{NodeVerb, Nodes};
use super::call::interruptible;
use super::operate::{self, Step};
use super::output::{self, Column};
use super::{Error, Exit, Output};
use crate::client::{Client, percent};
use crate::config::units::Span;

/// How long a node may take to take an order.
const ORDER: Duration = Duration::from_secs(10);

/// The columns.
const COLUMNS: [Column; 7] = [
    ("NODE", |node| output::cell(&node["node"])),
    ("STATE", state),
    ("SHARDS", |node| output::cell(&node["shards"])),
    ("SEEN", seen),
    ("ADDRESS", |node| output::cell(&node["address"])),
    ("ZONE", |node| output::cell(&node["zone"])),
    ("PROBLEM", |node| output::cell(&node["error"])),
];

/// Lists the nodes.
pub(super) async fn list(args: &Nodes, out: Output) -> Result<Exit, Error> {
    let client = Client::new(&args.server.server)?;
    let answer = interruptible(client.get("/v1/nodes")).await?;
    let nodes = answer["nodes"].as_array().cloned().unwrap_or_default();
    if out.json {
        out.json(&nodes)?;
    } else {
        out.bytes(output::table(&COLUMNS, &nodes).as_bytes())?;
    }
    Ok(Exit::Done)
}

/// Drains, cordons or uncordons a node.
pub(super) async fn order(verb: NodeVerb, out: Output) -> Result<Exit, Error> {
    match verb {
        NodeVerb::Drain { node, wait, server } => {
            let client = Client::new(&server.server)?;
            tell(&client, &node, "drain").await?;
            let Span(within) = wait.timeout;
            let what = format!("the drain of node {node}");
            let waiting = operate::wait(&client, within, out, "/v1/nodes", &what, |answer| {
                drained(answer, &node)
            });
            let view = tokio::select! {
                biased;
                _ = tokio::signal::ctrl_c() => return Err(Error::Interrupted),
                view = waiting => view?,
            };
            done(
                &view,
                &format!(
                    "node {node} has no shards, and takes none until `quarry node uncordon {node}`"
                ),
                out,
            )
        }
        NodeVerb::Cordon { node, server } => {
            let answer = tell(&Client::new(&server.server)?, &node, "cordon").await?;
            done(
                &answer["now"],
                &format!("node {node} takes no further shards"),
                out,
            )
        }
        NodeVerb::Uncordon { node, server } => {
            let answer = tell(&Client::new(&server.server)?, &node, "uncordon").await?;
            done(
                &answer["now"],
                &format!("node {node} takes shards again"),
                out,
            )
        }
    }
}

async fn tell(client: &Client, node: &str, verb: &str) -> Result<Value, Error> {
    let path = format!("/v1/nodes/{}/{verb}", percent(node.as_bytes()));
    interruptible(client.post(&path, ORDER)).await
}

fn done(view: &Value, text: &str, out: Output) -> Result<Exit, Error> {
    if out.json {
        out.json(view)?;
    } else {
        out.note(text);
    }
    Ok(Exit::Done)
}

/// How far a node is with its drain.
fn drained(answer: &Value, node: &str) -> Step {
    let mut nodes = answer["nodes"].as_array().into_iter().flatten();
    let Some(view) = nodes.find(|view| view["node"] == node) else {
        return Step::Going(format!("node {node} is not known any more"));
    };
    match view["shards"].as_u64() {
        Some(0) => Step::Done(view.clone()),
        Some(left) => Step::Going(format!("node {node} has {left} shards yet")),
        None => Step::Going(format!("node {node} does not say how many shards it has")),
    }
}

/// A node's state, and whether it is kept free.
fn state(node: &Value) -> String {
    let mut text = output::cell(&node["state"]);
    if node["cordoned"] == true {
        text.push_str(", cordoned");
    }
    if node["this"] == true {
        text.push_str(" (this)");
    }
    text
}

/// How long ago it was seen.
fn seen(node: &Value) -> String {
    match node["seen_ms"].as_u64() {
        Some(ms) if node["state"] == "live" || node["state"] == "draining" => {
            format!("{:.1} s ago", Duration::from_millis(ms).as_secs_f64())
        }
        _ => "-".into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_line_a_node() {
        let nodes = [
            json!({"node": "a", "state": "live", "this": true, "shards": 3, "seen_ms": 1234, "address": "10.0.0.1:7071", "zone": null, "cordoned": false, "error": null}),
            json!({"node": "node-b", "state": "draining", "this": false, "shards": 0, "seen_ms": 50, "address": "", "zone": "z", "cordoned": true, "error": "no answer"}),
            json!({"node": "c", "state": "dead", "shards": 0, "seen_ms": 99}),
        ];
        let expected = "\
NODE    STATE               SHARDS  SEEN       ADDRESS        ZONE  PROBLEM
a       live (this)         3       1.2 s ago  10.0.0.1:7071  -     -
node-b  draining, cordoned  0       0.1 s ago  -              z     no answer
c       dead                0       -          -              -     -
";
        assert_eq!(output::table(&COLUMNS, &nodes), expected);
    }

    #[test]
    fn a_drain_is_done_when_no_shard_is_left() {
        let answer = |shards: Value| json!({"nodes": [{"node": "a", "shards": 9}, {"node": "b", "shards": shards}]});
        assert!(matches!(drained(&answer(json!(0)), "b"), Step::Done(_)));
        for (answer, part) in [
            (answer(json!(2)), "node b has 2 shards yet"),
            (answer(Value::Null), "does not say"),
            (json!({}), "not known"),
        ] {
            let Step::Going(how) = drained(&answer, "b") else {
                panic!("{answer} is no end")
            };
            assert!(how.contains(part), "{how}");
        }
    }
}

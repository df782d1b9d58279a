//! `quarry deploy --plan`: what a deployment would change.

use std::fmt::Write as _;

use quarry_core::deploy::{Plan, Selection};
use serde_json::{Value, json};

use super::super::way::Way;
use super::super::{Error, Exit, Output};
use super::{Source, object};
use crate::deploy::wire::OrderBody;
use crate::guest::wasm::inspect;

/// Shows it. Nothing is uploaded, and nothing is changed.
pub(super) async fn show(
    way: &Way,
    source: &Source,
    order: &OrderBody,
    out: Output,
) -> Result<Exit, Error> {
    let status = way.status().await?;
    let shards = way.shards().await?;
    let (_, options) = order.clone().read(shards)?;
    let stable = status["stable"].as_u64().unwrap_or_default();
    let runs = if stable == 0 {
        Value::Null
    } else {
        way.revision(stable).await?
    };
    let inspection = inspect(&source.component);
    let inspection =
        inspection.map_err(|error| Error::Failed(format!("{}: {error}", source.shown)))?;
    let to_be = to_be(order);
    let changes = changes(&runs, &to_be);
    // Its number decides which shards go first.
    let number = status["rollout"].as_u64().unwrap_or_default() + 1;
    let first = match options.plan {
        _ if stable == 0 => Selection::All,
        Plan::All => Selection::All,
        Plan::Waves(percent) | Plan::Canary(percent) => Selection::part(percent, shards),
        Plan::Chosen => options.first.clone(),
    };
    let plan = json!({
        "unchanged": !runs.is_null() && changes.is_empty(),
        "runs": runs, "module": to_be, "component": inspection, "changes": changes,
        "plan": order.plan, "percent": order.percent, "shards": shards, "first": first.of(shards, number),
        "in_progress": status["active"],
    });
    if out.json {
        out.json(&plan)?;
    } else {
        out.bytes(text(&plan, &source.shown).as_bytes())?;
    }
    Ok(Exit::Done)
}

/// The one module of an order.
fn to_be(order: &OrderBody) -> Value {
    let module = order.draft.as_ref().and_then(|draft| draft.modules.first());
    let module = module.map(|module| serde_json::to_value(module).unwrap_or_default());
    module.unwrap_or_default()
}

/// Each part of the module that would be another one: what it is, and what it would be.
fn changes(runs: &Value, to_be: &Value) -> Vec<Value> {
    let modules = runs["modules"].as_array().into_iter().flatten();
    let now = modules
        .clone()
        .find(|module| module["name"] == to_be["name"]);
    let mut changes = Vec::new();
    let mut change = |what: String, from: &Value, to: &Value| {
        if from != to {
            changes.push(json!({"what": what, "from": from, "to": to}));
        }
    };
    let now = now.cloned().unwrap_or_default();
    for field in ["name", "digest", "prefix", "grants"] {
        change(field.to_owned(), &now[field], &to_be[field]);
    }
    for table in ["options", "limits"] {
        let (from, to) = (object(&now[table]), object(&to_be[table]));
        let mut names: Vec<&String> = from.keys().chain(to.keys()).collect();
        names.sort();
        names.dedup();
        for name in names {
            let part = |table: &serde_json::Map<String, Value>| table.get(name).cloned();
            let (from, to) = (part(&from), part(&to));
            let name = format!("{}.{name}", table.trim_end_matches('s'));
            change(name, &from.unwrap_or_default(), &to.unwrap_or_default());
        }
    }
    for module in modules.filter(|module| module["name"] != to_be["name"]) {
        change("name".into(), &module["name"], &Value::Null);
    }
    changes
}

fn text(plan: &Value, shown: &str) -> String {
    let mut text = String::new();
    if plan["unchanged"] == true {
        let runs = &plan["runs"]["revision"];
        _ = writeln!(text, "nothing would change: revision {runs} is just this");
        return text;
    }
    match plan["runs"]["revision"].as_u64() {
        Some(runs) => _ = writeln!(text, "{shown} in the place of revision {runs}:"),
        None => _ = writeln!(text, "{shown} as the first revision of the cluster:"),
    }
    for change in plan["changes"].as_array().into_iter().flatten() {
        let value = |value: &Value| match value {
            Value::Null => "none".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let what = change["what"].as_str().unwrap_or_default();
        let (from, to) = (value(&change["from"]), value(&change["to"]));
        _ = writeln!(text, "  {what:18} {from} -> {to}");
    }
    let component = &plan["component"];
    let imports = ["imports", "wasi_imports"].map(|field| {
        let names = component[field].as_array().into_iter().flatten();
        let names: Vec<&str> = names.filter_map(Value::as_str).collect();
        names.join(" ")
    });
    _ = writeln!(text, "  {:18} {} bytes", "size", component["size"]);
    _ = writeln!(text, "  {:18} {}", "imports", imports.join(" ").trim());
    let (first, shards) = (
        plan["first"].as_array().map_or(0, Vec::len),
        &plan["shards"],
    );
    _ = writeln!(text, "  {:18} {first} of {shards} at first", "shards");
    if !plan["in_progress"].is_null() {
        let target = &plan["in_progress"]["target"];
        _ = writeln!(
            text,
            "not now: a rollout of revision {target} is in progress"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module() -> Value {
        json!({"name": "main", "digest": "b", "options": {"x": 1, "y": 2}, "limits": {"memory": "1MiB"}, "grants": [], "prefix": ""})
    }

    #[test]
    fn each_change_is_told() {
        let runs = json!({"revision": 2, "modules": [{"name": "main", "digest": "a", "options": {"x": 1, "z": 3}, "limits": {}, "grants": [], "prefix": ""}]});
        let whats = |runs: &Value| -> Vec<String> {
            let changes = changes(runs, &module());
            changes
                .iter()
                .map(|change| format!("{} {} {}", change["what"], change["from"], change["to"]))
                .collect()
        };
        assert_eq!(
            whats(&runs),
            [
                "\"digest\" \"a\" \"b\"",
                "\"option.y\" null 2",
                "\"option.z\" 3 null",
                "\"limit.memory\" null \"1MiB\""
            ]
        );
        let same = json!({"revision": 2, "modules": [module()]});
        assert_eq!(whats(&same), [""; 0]);
        let shown = text(&json!({"unchanged": true, "runs": same}), "a.wasm");
        assert_eq!(shown, "nothing would change: revision 2 is just this\n");
    }

    #[test]
    fn a_plan_for_a_person() {
        let plan = json!({
            "unchanged": false, "runs": null, "changes": changes(&Value::Null, &module()), "shards": 16, "first": [1, 2],
            "component": {"size": 7, "imports": ["quarry:shard/db@0.1.0"], "wasi_imports": []}, "in_progress": {"target": 4},
        });
        let shown = text(&plan, "a.wasm");
        for part in [
            "a.wasm as the first revision",
            "digest             none -> b",
            "quarry:shard/db@0.1.0",
            "2 of 16 at first",
            "not now: a rollout of revision 4",
        ] {
            assert!(shown.contains(part), "{shown}");
        }
    }
}

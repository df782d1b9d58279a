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
    sources: &[Source],
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
    let to_be = to_be(order);
    let mut modules = Vec::with_capacity(sources.len());
    for (source, module) in sources.iter().zip(&to_be) {
        let inspection = inspect(&source.component);
        let inspection =
            inspection.map_err(|error| Error::Failed(format!("{}: {error}", source.shown)))?;
        modules.push(json!({"module": module, "component": inspection}));
    }
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
        "runs": runs, "modules": modules, "changes": changes,
        "plan": order.plan, "percent": order.percent, "shards": shards, "first": first.of(shards, number),
        "in_progress": status["active"],
    });
    if out.json {
        out.json(&plan)?;
    } else {
        let shown: Vec<&str> = sources.iter().map(|source| source.shown.as_str()).collect();
        out.bytes(text(&plan, &shown.join(", ")).as_bytes())?;
    }
    Ok(Exit::Done)
}

/// The modules of an order.
fn to_be(order: &OrderBody) -> Vec<Value> {
    let modules = order.draft.iter().flat_map(|draft| &draft.modules);
    modules
        .map(|module| serde_json::to_value(module).unwrap_or_default())
        .collect()
}

/// Each part of a module that would be another one: the module, what it is, and what it would be. A module that comes or goes is told by its
/// digest.
fn changes(runs: &Value, to_be: &[Value]) -> Vec<Value> {
    let now: Vec<&Value> = runs["modules"].as_array().into_iter().flatten().collect();
    let mut changes = Vec::new();
    for module in to_be {
        let named = now.iter().find(|other| other["name"] == module["name"]);
        let mut parts = parts(named.copied().unwrap_or(&Value::Null), module);
        if named.is_none() {
            // It begins with nothing: what is empty is no change.
            let empty = |value: &Value| value == &json!("") || value == &json!([]);
            parts.retain(|(_, _, to)| !empty(to));
        }
        for (what, from, to) in parts {
            changes.push(json!({"module": module["name"], "what": what, "from": from, "to": to}));
        }
    }
    let name = |module: &&Value| module["name"].clone();
    let gone = now
        .iter()
        .filter(|old| to_be.iter().all(|new| new["name"] != old["name"]));
    for module in gone {
        let (name, digest) = (&module["name"], &module["digest"]);
        changes.push(json!({"module": name, "what": "digest", "from": digest, "to": null}));
    }
    let (before, after): (Vec<Value>, Vec<Value>) = (
        now.iter().map(name).collect(),
        to_be.iter().map(|new| name(&new)).collect(),
    );
    let both = |names: &[Value], others: &[Value]| -> Vec<Value> {
        let there = names.iter().filter(|name| others.contains(name));
        there.cloned().collect()
    };
    if both(&before, &after) != both(&after, &before) {
        // The order in which they start.
        changes.push(json!({"module": null, "what": "order", "from": before, "to": after}));
    }
    changes
}

/// What of one module differs, from what it is to what it is to be.
fn parts(now: &Value, to_be: &Value) -> Vec<(String, Value, Value)> {
    let mut parts = Vec::new();
    let mut change = |what: String, from: &Value, to: &Value| {
        if from != to {
            parts.push((what, from.clone(), to.clone()));
        }
    };
    for field in ["digest", "prefix", "grants"] {
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
    parts
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
    let modules: Vec<&Value> = plan["modules"].as_array().into_iter().flatten().collect();
    let names = modules.iter().map(|module| &module["module"]["name"]);
    let of = names.chain(
        plan["changes"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|change| &change["module"]),
    );
    let mut each: Vec<&Value> = Vec::new();
    for name in of.filter(|name| !name.is_null()) {
        if !each.contains(&name) {
            each.push(name);
        }
    }
    for name in &each {
        // One alone needs no heading.
        if each.len() > 1 {
            _ = writeln!(text, "  module {}", shown_value(name));
        }
        for change in plan["changes"].as_array().into_iter().flatten() {
            if change["module"] == **name {
                line_of(&mut text, change);
            }
        }
        if let Some(module) = modules
            .iter()
            .find(|module| module["module"]["name"] == **name)
        {
            let component = &module["component"];
            let imports = ["imports", "wasi_imports"].map(|field| {
                let names = component[field].as_array().into_iter().flatten();
                let names: Vec<&str> = names.filter_map(Value::as_str).collect();
                names.join(" ")
            });
            _ = writeln!(text, "  {:18} {} bytes", "size", component["size"]);
            _ = writeln!(text, "  {:18} {}", "imports", imports.join(" ").trim());
        }
    }
    for change in plan["changes"].as_array().into_iter().flatten() {
        if change["module"].is_null() {
            line_of(&mut text, change);
        }
    }
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

fn line_of(text: &mut String, change: &Value) {
    let what = change["what"].as_str().unwrap_or_default();
    let (from, to) = (shown_value(&change["from"]), shown_value(&change["to"]));
    _ = writeln!(text, "  {what:18} {from} -> {to}");
}

fn shown_value(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
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
            let changes = changes(runs, &[module()]);
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
    fn changes_are_told_by_module() {
        let named = |name: &str, digest: &str, prefix: &str| json!({"name": name, "digest": digest, "options": {}, "limits": {}, "grants": [], "prefix": prefix});
        let runs = json!({"revision": 2, "modules": [named("main", "a", ""), named("old", "o", ""), named("users", "u", "")]});
        let to_be = [
            named("users", "u", "u/"),
            named("main", "a", ""),
            named("new", "n", "n/"),
        ];
        let changes = changes(&runs, &to_be);
        let told: Vec<String> = changes
            .iter()
            .map(|change| {
                format!(
                    "{} {} {} {}",
                    change["module"], change["what"], change["from"], change["to"]
                )
                .replace('"', "")
            })
            .collect();
        assert_eq!(
            told,
            [
                "users prefix  u/",
                "new digest null n",
                "new prefix null n/",
                "old digest o null",
                "null order [main,old,users] [users,main,new]",
            ]
        );
        let component = json!({"size": 7, "imports": [], "wasi_imports": []});
        let modules: Vec<Value> = to_be
            .iter()
            .map(|module| json!({"module": module, "component": component}))
            .collect();
        let plan = json!({"unchanged": false, "runs": runs, "changes": changes, "modules": modules, "shards": 1, "first": [0], "in_progress": null});
        let shown = text(&plan, "a, b");
        for part in [
            "a, b in the place of revision 2:\n  module users\n  prefix              -> u/\n  size               7 bytes",
            "  module old\n  digest             o -> none\n",
            "  order              [\"main\",\"old\",\"users\"] -> [\"users\",\"main\",\"new\"]\n",
        ] {
            assert!(shown.contains(part), "{part}\n{shown}");
        }
    }

    #[test]
    fn a_plan_for_a_person() {
        let plan = json!({
            "unchanged": false, "runs": null, "changes": changes(&Value::Null, &[module()]), "shards": 16, "first": [1, 2],
            "modules": [{"module": module(), "component": {"size": 7, "imports": ["quarry:shard/db@0.1.0"], "wasi_imports": []}}], "in_progress": {"target": 4},
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

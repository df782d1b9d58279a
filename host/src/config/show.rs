//! Prints the effective configuration, without credentials.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::{Config, Key, Loaded, redact};

impl Loaded {
    /// The configuration as TOML, with where each value came from behind it. A file with this text gives the same
    /// configuration, credentials apart.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut out = String::new();
        let (tables, plain): (Vec<_>, Vec<_>) = Config::keys().partition(|key| key.kind.is_map());
        let mut section = "";
        for key in plain {
            let (of, name) = split(key);
            if of != section {
                self.write_tables(&mut out, &tables, section);
                section = of;
                let _ = write!(out, "\n[{section}]\n");
            }
            let value = self.value(key);
            let origin = self.origin(key.name);
            let _ = match value {
                Value::Null => writeln!(out, "# {name} is unset  # {origin}"),
                value => writeln!(out, "{name} = {}  # {origin}", inline(&value)),
            };
        }
        self.write_tables(&mut out, &tables, section);
        out
    }

    /// The configuration as JSON: `{"file", "values": {key: {"value", "origin"}}}`. A table has its entries' origins
    /// by path in `origins`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let values = Config::keys().map(|key| {
            let value = self.value(key);
            let mut entry = json!({"origin": self.origin(key.name).to_string()});
            if key.kind.is_map() {
                let origins = leaves(&value).into_iter().map(|(path, _)| {
                    let name = path.join(".");
                    let origin = self.origin(&format!("{}.{name}", key.name)).to_string();
                    (name, Value::from(origin))
                });
                entry["origins"] = Value::Object(origins.collect());
            }
            entry["value"] = value;
            (key.name.to_owned(), entry)
        });
        let values: Map<_, _> = values.collect();
        json!({"file": self.file.as_ref().map(|file| file.display().to_string()), "values": values})
    }

    fn value(&self, key: &Key) -> Value {
        redact::shown(key.kind, (key.get)(&self.config))
    }

    /// The tables of free names that belong to a section; behind its plain keys, as TOML wants it.
    fn write_tables(&self, out: &mut String, tables: &[&Key], section: &str) {
        for key in tables.iter().filter(|key| split(key).0 == section) {
            let leaves = leaves(&self.value(key));
            if leaves.is_empty() {
                continue;
            }
            let _ = write!(out, "\n[{}]\n", key.name);
            for (path, value) in leaves {
                let origin = self.origin(&format!("{}.{}", key.name, path.join(".")));
                let name = path
                    .iter()
                    .map(|name| bare_or_quoted(name))
                    .collect::<Vec<_>>()
                    .join(".");
                let _ = match value {
                    // TOML has no null: one cannot come from a file, but from a flag or a variable.
                    Value::Null => writeln!(out, "# {name} is null  # {origin}"),
                    value => writeln!(out, "{name} = {}  # {origin}", inline(&value)),
                };
            }
        }
    }
}

/// Every key with its default, kind, variable and doc, as a commented TOML file.
#[must_use]
pub fn describe() -> String {
    let config = Config::default();
    let mut out = String::from(
        "# Every key of quarry.toml with its default. A variable overrides the file, a flag overrides both.\n",
    );
    let (tables, plain): (Vec<_>, Vec<_>) = Config::keys().partition(|key| key.kind.is_map());
    let mut section = "";
    for key in plain.into_iter().chain(tables) {
        let (of, name) = split(key);
        if of != section && !key.kind.is_map() {
            section = of;
            let _ = write!(out, "\n[{section}]\n");
        }
        let _ = write!(
            out,
            "\n#{}\n# {}. {}\n",
            key.doc,
            key.kind.expects(),
            key.variable()
        );
        let _ = match (key.get)(&config) {
            Value::Object(_) => writeln!(out, "# [{}]", key.name),
            Value::Null => writeln!(out, "# {name} = (unset)"),
            value => writeln!(out, "# {name} = {}", inline(&value)),
        };
    }
    out
}

/// The same as JSON: `[{"key", "expects", "default", "variable", "table", "doc"}]`.
#[must_use]
pub fn describe_json() -> Value {
    let config = Config::default();
    let keys = Config::keys().map(|key| {
        json!({
            "key": key.name,
            "expects": key.kind.expects(),
            "default": (key.get)(&config),
            "variable": key.variable(),
            "table": key.kind.is_map(),
            "doc": key.doc.trim(),
        })
    });
    keys.collect()
}

fn split(key: &Key) -> (&'static str, &'static str) {
    key.name.split_once('.').unwrap_or(("", key.name))
}

/// The entries of a table, each with the path of its names.
fn leaves(table: &Value) -> Vec<(Vec<String>, Value)> {
    fn walk(value: &Value, path: &mut Vec<String>, out: &mut Vec<(Vec<String>, Value)>) {
        match value {
            Value::Object(entries) if !entries.is_empty() => {
                for (name, value) in entries {
                    path.push(name.clone());
                    walk(value, path, out);
                    path.pop();
                }
            }
            _ if path.is_empty() => {}
            value => out.push((path.clone(), value.clone())),
        }
    }
    let mut out = Vec::new();
    walk(table, &mut Vec::new(), &mut out);
    out
}

fn bare_or_quoted(name: &str) -> String {
    let bare = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    if bare {
        name.to_owned()
    } else {
        toml::Value::from(name).to_string()
    }
}

/// A value on one line of TOML.
fn inline(value: &Value) -> String {
    match value {
        // An inline table has `=`, JSON has `:`.
        Value::Object(entries) => {
            let entries: Vec<_> = entries
                .iter()
                .map(|(name, value)| format!("{} = {}", bare_or_quoted(name), inline(value)))
                .collect();
            format!("{{ {} }}", entries.join(", "))
        }
        Value::Array(items) => format!(
            "[{}]",
            items.iter().map(inline).collect::<Vec<_>>().join(", ")
        ),
        // What JSON escapes TOML escapes the same way, but for the delete character.
        Value::String(text) => Value::from(text.as_str())
            .to_string()
            .replace('\u{7f}', "\\u007F"),
        other => other.to_string(),
    }
}

//! Settings whose values are words.

use serde_json::Value;

use super::kind::{Field, Kind};

/// When the store is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Probe {
    /// `true`: before any shard opens; a store that fails stops the start.
    #[default]
    Before,
    /// `"background"`: while shards open; a failure is reported.
    Background,
    /// `false`: never.
    Off,
}

/// Which shards a node opens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// `local`: all of them, here.
    #[default]
    Local,
    /// `static`: those that a fixed list gives it.
    Static,
    /// `lease`: its share of them, as leases in the store say.
    Lease,
}

/// How leases lie in the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// `session`: a node's one write a round renews all that it owns.
    #[default]
    Session,
    /// `shard`: each lease is written each round.
    Shard,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// `text`: for people.
    #[default]
    Text,
    /// `json`: one object a line.
    Json,
}

impl Field for Probe {
    fn get(&self, _: Kind) -> Value {
        match self {
            Self::Before => Value::Bool(true),
            Self::Background => Value::from("background"),
            Self::Off => Value::Bool(false),
        }
    }

    fn set(&mut self, value: &Value) -> Result<(), String> {
        *self = match value {
            Value::Bool(true) => Self::Before,
            Value::Bool(false) => Self::Off,
            Value::String(word) if word == "background" => Self::Background,
            _ => return Err("not true, \"background\" or false".into()),
        };
        Ok(())
    }
}

impl Field for Strategy {
    fn get(&self, _: Kind) -> Value {
        Value::from(match self {
            Self::Local => "local",
            Self::Static => "static",
            Self::Lease => "lease",
        })
    }

    fn set(&mut self, value: &Value) -> Result<(), String> {
        *self = match value.as_str() {
            Some("local") => Self::Local,
            Some("static") => Self::Static,
            Some("lease") => Self::Lease,
            _ => return Err("not local, static or lease".into()),
        };
        Ok(())
    }
}

impl Layout {
    /// Its word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Shard => "shard",
        }
    }
}

impl Field for Layout {
    fn get(&self, _: Kind) -> Value {
        Value::from(self.as_str())
    }

    fn set(&mut self, value: &Value) -> Result<(), String> {
        *self = match value.as_str() {
            Some("session") => Self::Session,
            Some("shard") => Self::Shard,
            _ => return Err("not session or shard".into()),
        };
        Ok(())
    }
}

impl Field for LogFormat {
    fn get(&self, _: Kind) -> Value {
        Value::from(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }

    fn set(&mut self, value: &Value) -> Result<(), String> {
        *self = match value.as_str() {
            Some("text") => Self::Text,
            Some("json") => Self::Json,
            _ => return Err("not text or json".into()),
        };
        Ok(())
    }
}

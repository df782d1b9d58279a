//! Reads the layers of a configuration and lays them over each other, keeping where each value came from.

use std::{
    collections::BTreeMap,
    fmt, fs,
    io::Read,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};
use toml::de::{DeTable, DeValue};

use super::{
    Config, Error, Key, Problem,
    error::{nearest, unknown_key},
};

/// A larger file is refused.
const FILE_MAX_BYTES: u64 = 1 << 20;

/// Variables that begin with `QUARRY_` and are for the command line, not for the configuration.
const OTHER_VARIABLES: [&str; 3] = ["QUARRY_CONFIG", "QUARRY_SERVER", "QUARRY_SDK_PATH"];

/// Where a configuration is read from. The default reads nothing and gives the defaults.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The file.
    pub file: FileSource,
    /// Environment variables; those that do not begin with `QUARRY_` are ignored, `RUST_LOG` apart.
    pub variables: Vec<(String, String)>,
    /// Flags; later ones win.
    pub flags: Vec<Flag>,
}

/// The file of a configuration.
#[derive(Clone, Debug, Default)]
pub enum FileSource {
    /// None.
    #[default]
    None,
    /// This one, when it exists.
    IfPresent(PathBuf),
    /// This one; it has to exist.
    Required(PathBuf),
}

/// A value that a flag gave.
#[derive(Clone, PartialEq, Eq)]
pub struct Flag {
    /// The flag as it was written, for messages: `--listen`.
    pub flag: String,
    /// The key, like `http.listen`.
    pub key: String,
    /// The value as text.
    pub value: String,
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody gave it.
    Default,
    /// A file, at a line counted from 1.
    File(PathBuf, usize),
    /// An environment variable.
    Variable(String),
    /// A flag.
    Flag(String),
}

/// A configuration that was read, with where each value came from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration, validated.
    pub config: Config,
    /// The file that was read.
    pub file: Option<PathBuf>,
    /// By key, for what is no default; an entry of a table by the table's key and its own path.
    pub(super) origins: BTreeMap<String, Origin>,
}

impl Sources {
    /// This process's environment, and a file.
    #[must_use]
    pub fn of_process(file: FileSource) -> Self {
        // Variables that are no Unicode are none of ours unless their name is; `to_string_lossy` then fails the check.
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            Some((
                name.into_string().ok()?,
                value.to_string_lossy().into_owned(),
            ))
        });
        Self {
            file,
            variables: variables.collect(),
            flags: Vec::new(),
        }
    }
}

impl Loaded {
    /// Where the value of a key came from. An entry of a table is named with the table: `store_options.aws_region`.
    #[must_use]
    pub fn origin(&self, key: &str) -> Origin {
        let mut name = key;
        loop {
            if let Some(origin) = self.origins.get(name) {
                return origin.clone();
            }
            match name.rsplit_once('.') {
                Some((parent, _)) => name = parent,
                None => return Origin::Default,
            }
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => write!(f, "environment {name}"),
            Self::Flag(flag) => write!(f, "flag {flag}"),
        }
    }
}

impl fmt::Debug for Flag {
    /// Without the value, which may be a credential.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flag")
            .field("flag", &self.flag)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

pub(super) fn load(sources: &Sources) -> Result<Loaded, Error> {
    let mut layers = Layers::default();
    let file = layers.read_file(&sources.file);
    layers.read_variables(&sources.variables);
    for flag in &sources.flags {
        layers.set(
            &flag.key,
            Given::Text(&flag.value),
            Origin::Flag(flag.flag.clone()),
        );
    }
    layers.finish(file)
}

/// A value on its way in.
enum Given<'a> {
    /// From a place that knows types.
    Typed(Value),
    /// From a variable or a flag.
    Text(&'a str),
}

/// What the layers read so far add up to.
#[derive(Default)]
struct Layers {
    config: Config,
    tables: BTreeMap<&'static str, Value>,
    origins: BTreeMap<String, Origin>,
    problems: Vec<Problem>,
}

impl Layers {
    fn problem(&mut self, key: &str, origin: Origin, message: impl Into<String>) {
        let key = key.chars().take(128).collect();
        self.problems.push(Problem {
            key,
            origin: Some(origin),
            message: message.into(),
        });
    }

    fn finish(mut self, file: Option<PathBuf>) -> Result<Loaded, Error> {
        for (name, table) in std::mem::take(&mut self.tables) {
            let key = key(name).expect("only tables of known keys are kept");
            let set = key
                .read(&table)
                .and_then(|table| (key.set)(&mut self.config, &table));
            if let Err(message) = set {
                self.problems.push(Problem {
                    key: name.into(),
                    origin: self.origins.get(name).cloned(),
                    message,
                });
            }
        }
        let mut loaded = Loaded {
            config: self.config,
            file,
            origins: self.origins,
        };
        if let Some(Origin::File(file, _)) = loaded.origins.get("module.path")
            && let (Some(path), Some(folder)) = (&mut loaded.config.module.path, file.parent())
        {
            *path = folder.join(&*path);
        }
        // A value that was refused was not set, so what is found now lies between keys.
        if let Err(error) = loaded.config.validate() {
            self.problems
                .extend(error.problems().iter().cloned().map(|problem| Problem {
                    origin: Some(loaded.origin(&problem.key)),
                    ..problem
                }));
        }
        Error::of(self.problems)?;
        Ok(loaded)
    }

    /// Sets a key, or an entry of a table, by its whole name.
    fn set(&mut self, name: &str, given: Given<'_>, origin: Origin) {
        if let Some(key) = key(name) {
            return self.set_key(key, given, origin);
        }
        match Config::keys().find(|key| key.kind.is_map() && entry_of(key, name).is_some()) {
            Some(key) => {
                let path: Vec<_> = entry_of(key, name)
                    .unwrap_or_default()
                    .split('.')
                    .map(String::from)
                    .collect();
                self.set_entry(key, &path, given, origin);
            }
            None => self.problem(name, origin, unknown_key(name)),
        }
    }

    fn set_key(&mut self, key: &'static Key, given: Given<'_>, origin: Origin) {
        let value = match given {
            Given::Typed(value) => value,
            Given::Text(text) => key.kind.from_text(text, key.optional),
        };
        if key.kind.is_map() {
            return match value {
                Value::Object(entries) => self.set_entries(key, &mut Vec::new(), entries, &origin),
                _ => self.problem(key.name, origin, format!("expected {}", key.kind.expects())),
            };
        }
        match key
            .read(&value)
            .and_then(|value| (key.set)(&mut self.config, &value))
        {
            Ok(()) => drop(self.origins.insert(key.name.into(), origin)),
            Err(message) => self.problem(key.name, origin, message),
        }
    }

    fn set_entries(
        &mut self,
        key: &'static Key,
        path: &mut Vec<String>,
        entries: Map<String, Value>,
        origin: &Origin,
    ) {
        for (name, value) in entries {
            path.push(name);
            match value {
                Value::Object(inner) if !inner.is_empty() => {
                    self.set_entries(key, path, inner, origin)
                }
                value => self.set_entry(key, path, Given::Typed(value), origin.clone()),
            }
            path.pop();
        }
    }

    fn set_entry(&mut self, key: &'static Key, path: &[String], given: Given<'_>, origin: Origin) {
        let name = format!("{}.{}", key.name, path.join("."));
        if path.iter().any(String::is_empty) {
            return self.problem(&name, origin, "a name is empty");
        }
        let value = match given {
            Given::Typed(value) => value,
            // A store's options are texts, whatever they look like.
            Given::Text(text) if key.kind == super::Kind::Strings => Value::from(text),
            Given::Text(text) => serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)),
        };
        let is_text = matches!(value, Value::String(_) | Value::Bool(_) | Value::Number(_));
        if key.kind == super::Kind::Strings && (path.len() > 1 || !is_text) {
            return self.problem(&name, origin, "expected text, a number or true/false");
        }
        let mut place = self
            .tables
            .entry(key.name)
            .or_insert_with(|| Value::Object(Map::new()));
        for part in path {
            if !place.is_object() {
                *place = Value::Object(Map::new());
            }
            place = place
                .as_object_mut()
                .expect("made one above")
                .entry(part.as_str())
                .or_insert(Value::Null);
        }
        *place = value;
        // What lay under this name before is gone, and so is where it came from.
        let under = format!("{name}.");
        self.origins.retain(|known, _| !known.starts_with(&under));
        self.origins.insert(name, origin);
    }

    /// Reads the file and returns its path, if there is one.
    fn read_file(&mut self, source: &FileSource) -> Option<PathBuf> {
        let (path, required) = match source {
            FileSource::None => return None,
            FileSource::IfPresent(path) => (path, false),
            FileSource::Required(path) => (path, true),
        };
        let text = match read_bounded(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !required => return None,
            Err(error) => {
                self.problems.push(Problem {
                    key: String::new(),
                    origin: None,
                    message: format!("cannot read {}: {error}", path.display()),
                });
                return None;
            }
        };
        match DeTable::parse(&text) {
            Ok(table) => self.read_table(
                &File { path, text: &text },
                table.get_ref(),
                &mut Vec::new(),
            ),
            Err(error) => {
                let line = line_of(&text, error.span().map_or(0, |span| span.start));
                // Only the message: the error's own text quotes the line, which may hold a credential.
                self.problem(
                    "",
                    Origin::File(path.clone(), line),
                    format!("not TOML: {}", error.message()),
                );
            }
        }
        Some(path.clone())
    }

    fn read_table(&mut self, file: &File<'_>, table: &DeTable<'_>, path: &mut Vec<String>) {
        for (name, value) in table {
            let origin = Origin::File(file.path.into(), line_of(file.text, name.span().start));
            path.push(name.get_ref().to_string());
            let whole = path.join(".");
            match value.get_ref() {
                // A dot within a quoted name must not pass for a path.
                _ if name.get_ref().contains('.') => {
                    self.problem(&whole, origin, unknown_key(&whole))
                }
                DeValue::Table(entries) => match key(&whole) {
                    Some(key) if key.kind.is_map() => {
                        self.read_entries(file, key, entries, &mut Vec::new())
                    }
                    None if is_section(&whole) => self.read_table(file, entries, path),
                    _ => self.set(&whole, Given::Typed(Value::Object(Map::new())), origin),
                },
                other => match as_json(other) {
                    Ok(value) => self.set(&whole, Given::Typed(value), origin),
                    Err(message) => self.problem(&whole, origin, message),
                },
            }
            path.pop();
        }
    }

    /// The entries of a table of free names, each with its own line.
    fn read_entries(
        &mut self,
        file: &File<'_>,
        key: &'static Key,
        table: &DeTable<'_>,
        path: &mut Vec<String>,
    ) {
        for (name, value) in table {
            let origin = Origin::File(file.path.into(), line_of(file.text, name.span().start));
            path.push(name.get_ref().to_string());
            match value.get_ref() {
                DeValue::Table(inner) if !inner.is_empty() => {
                    self.read_entries(file, key, inner, path)
                }
                other => match as_json(other) {
                    Ok(value) => self.set_entry(key, path, Given::Typed(value), origin),
                    Err(message) => {
                        self.problem(&format!("{}.{}", key.name, path.join(".")), origin, message)
                    }
                },
            }
            path.pop();
        }
    }

    fn read_variables(&mut self, variables: &[(String, String)]) {
        let given = |name: &str| variables.iter().any(|(known, _)| known == name);
        // Sorted, so that the order of the environment decides nothing.
        let sorted: BTreeMap<_, _> = variables
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        for (name, text) in sorted {
            let origin = Origin::Variable(name.to_owned());
            if name == "RUST_LOG" {
                if !given("QUARRY_LOG_LEVEL") && !text.is_empty() {
                    self.set("log.level", Given::Text(text), origin);
                }
                continue;
            }
            if !name.starts_with("QUARRY_") || OTHER_VARIABLES.contains(&name) {
                continue;
            }
            if let Some(key) = Config::keys().find(|key| key.variable() == name) {
                self.set_key(key, Given::Text(text), origin);
                continue;
            }
            let table = Config::keys()
                .filter(|key| key.kind.is_map())
                .find_map(|key| {
                    let entry = name.strip_prefix(&key.variable())?.strip_prefix('_')?;
                    Some((key, entry.to_lowercase()))
                });
            match table {
                Some((key, entry)) => {
                    let path: Vec<_> = entry.split("__").map(String::from).collect();
                    self.set_entry(key, &path, Given::Text(text), origin);
                }
                None => {
                    let names: Vec<_> = Config::keys().map(Key::variable).collect();
                    let message = match nearest(name, names.iter().map(String::as_str)) {
                        Some(near) => format!("no setting has this variable; the nearest one is `{near}`"),
                        None => "no setting has this variable; `quarry config --describe` lists them all".into(),
                    };
                    self.problem(name, origin, message);
                }
            }
        }
    }
}

struct File<'a> {
    path: &'a Path,
    text: &'a str,
}

fn key(name: &str) -> Option<&'static Key> {
    Config::keys().find(|key| key.name == name)
}

/// The path of an entry within the table of a key.
fn entry_of<'a>(key: &Key, name: &'a str) -> Option<&'a str> {
    name.strip_prefix(key.name)?.strip_prefix('.')
}

fn is_section(name: &str) -> bool {
    Config::keys().any(|key| {
        key.name
            .strip_prefix(name)
            .is_some_and(|rest| rest.starts_with('.'))
    })
}

fn read_bounded(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    fs::File::open(path)?
        .take(FILE_MAX_BYTES + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > FILE_MAX_BYTES {
        return Err(std::io::Error::other(format!(
            "the file is over {FILE_MAX_BYTES} bytes"
        )));
    }
    Ok(text)
}

fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()
        .iter()
        .take(at)
        .filter(|&&byte| byte == b'\n')
        .count()
        + 1
}

fn as_json(value: &DeValue<'_>) -> Result<Value, String> {
    Ok(match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Boolean(value) => Value::from(*value),
        DeValue::Datetime(time) => Value::from(time.to_string()),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Value::from(number),
            Err(_) => return Err(format!("{} is too large a number", number.as_str())),
        },
        DeValue::Float(number) => match number.as_str().parse::<f64>() {
            Ok(number) if number.is_finite() => Value::from(number),
            _ => return Err(format!("{} is no finite number", number.as_str())),
        },
        DeValue::Array(items) => items
            .iter()
            .map(|item| as_json(item.get_ref()))
            .collect::<Result<_, _>>()?,
        DeValue::Table(entries) => {
            let entries = entries
                .iter()
                .map(|(name, value)| Ok((name.get_ref().to_string(), as_json(value.get_ref())?)));
            Value::Object(entries.collect::<Result<_, String>>()?)
        }
    })
}

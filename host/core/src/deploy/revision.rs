//! The body of `_quarry/revisions/<n>.json`: one deployment, which never changes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::lease::record::fields::{Fields, cut, plain};
use crate::lease::record::{MAX_WORD, RecordError, VERSION};

/// The longest body of a revision that is read.
pub const MAX_REVISION_BYTES: usize = 2 << 20;
/// The most modules of a revision.
pub const MAX_MODULES: usize = 16;
/// The longest options of a module.
pub const MAX_OPTIONS: usize = 64 << 10;
/// The most limits that a module sets.
pub const MAX_LIMITS: usize = 64;
/// The most grants of a module.
pub const MAX_GRANTS: usize = 64;
/// The longest note.
pub const MAX_NOTE: usize = 4096;
/// The longest name of an author, of a limit's value, of a grant and of a key prefix.
const MAX_TEXT: usize = 256;

/// The SHA-256 of a component, 64 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// From its 32 bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Where the component lies, below `_quarry/`.
    #[must_use]
    pub fn object(&self) -> String {
        format!("modules/{self}.wasm")
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for Digest {
    type Err = RecordError;

    fn from_str(text: &str) -> Result<Self, RecordError> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; 32];
        let valid = text.len() == 64
            && text
                .as_bytes()
                .chunks(2)
                .zip(&mut bytes)
                .all(|(pair, byte)| match (digit(pair[0]), digit(pair[1])) {
                    (Some(high), Some(low)) => {
                        *byte = high << 4 | low;
                        true
                    }
                    _ => false,
                });
        if valid {
            return Ok(Self(bytes));
        }
        Err(RecordError::Field {
            object: "a component's digest".into(),
            field: "digest",
            value: cut(text),
            valid: "valid are 64 lower-case hex digits".into(),
        })
    }
}

/// One module of a revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModuleSpec {
    /// Its name in calls (`name/method`): 1 to 64 lower-case letters, digits and `-`, beginning with a letter.
    pub name: String,
    /// Its component.
    pub digest: Digest,
    /// The component's size in bytes.
    pub size: u64,
    /// The guest's options, at most [`MAX_OPTIONS`] bytes.
    pub options: String,
    /// Limits that differ from the nodes' own: setting and value, as they stand in a configuration.
    pub limits: BTreeMap<String, String>,
    /// What it may use beyond its shard.
    pub grants: BTreeSet<String>,
    /// The beginning of all keys that it sees; empty for the whole database.
    pub prefix: String,
}

/// One deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    /// Its number, from 1.
    pub number: u64,
    /// Its modules, in the order in which they are started: 1 to [`MAX_MODULES`], of different names.
    pub modules: Vec<ModuleSpec>,
    /// Who made it, at most 256 bytes.
    pub author: String,
    /// When, in milliseconds since 1970 by that node's wall clock. For people; decides nothing.
    pub created_ms: u64,
    /// Why, at most [`MAX_NOTE`] bytes.
    pub note: String,
}

impl Revision {
    /// Where a revision lies, below `_quarry/`.
    #[must_use]
    pub fn object(number: u64) -> String {
        format!("revisions/{number}.json")
    }

    /// The number of the revision that lies under this name; none when it is the name of something else.
    #[must_use]
    pub fn number_of(object: &str) -> Option<u64> {
        let digits = object.strip_prefix("revisions/")?.strip_suffix(".json")?;
        let number: u64 = digits.parse().ok().filter(|number| *number > 0)?;
        (Self::object(number) == object).then_some(number)
    }

    /// Whether it runs just what another one runs: to deploy it again would change nothing.
    #[must_use]
    pub fn runs_the_same(&self, other: &Self) -> bool {
        self.modules == other.modules
    }

    /// The body.
    ///
    /// # Errors
    /// [`RecordError::Field`] for the first value that does not keep its bounds.
    pub fn encode(&self) -> Result<Vec<u8>, RecordError> {
        self.check()?;
        let json = serde_json::json!({
            "version": VERSION, "number": self.number, "modules": self.modules, "author": self.author,
            "created_ms": self.created_ms, "note": self.note,
        });
        Ok(json.to_string().into_bytes())
    }

    /// Reads the body that lies under the name of `number`.
    ///
    /// # Errors
    /// A [`RecordError`] that names the object, the field and the value.
    pub fn decode(number: u64, body: &[u8]) -> Result<Self, RecordError> {
        let object = Self::object(number);
        let fields = Fields::parse_up_to(MAX_REVISION_BYTES, object.clone(), body)?;
        let found = fields.number("number")?;
        if found != number {
            let valid = format!("the object's name says {number}");
            return Err(fields.wrong("number", &found, valid));
        }
        let modules = fields.list("modules", MAX_MODULES)?.iter().enumerate();
        let revision = Self {
            number,
            modules: modules
                .map(|(at, module)| {
                    let fields = Fields::within(format!("{object}, module {at}"), module)?;
                    ModuleSpec::of(&fields)
                })
                .collect::<Result<_, _>>()?,
            author: fields.text("author", MAX_TEXT)?,
            created_ms: fields.number("created_ms")?,
            note: fields.free_text("note", MAX_NOTE)?,
        };
        revision.check()?;
        Ok(revision)
    }

    /// Checks what has bounds.
    ///
    /// # Errors
    /// [`RecordError::Field`] for the first value that does not keep them.
    pub fn check(&self) -> Result<(), RecordError> {
        let object = Self::object(self.number);
        let wrong = |field, value: &str, valid: &str| {
            Err(RecordError::Field {
                object: object.clone(),
                field,
                value: cut(value),
                valid: valid.into(),
            })
        };
        if self.number == 0 {
            return wrong("number", "0", "revisions are numbered from 1");
        }
        if self.modules.is_empty() || self.modules.len() > MAX_MODULES {
            let count = self.modules.len().to_string();
            return wrong("modules", &count, "valid are 1 to 16 modules");
        }
        let mut names = BTreeSet::new();
        for module in &self.modules {
            if !is_module_name(&module.name) {
                let valid =
                    "valid are 1 to 64 lower-case letters, digits and `-`, beginning with a letter";
                return wrong("name", &module.name, valid);
            }
            if !names.insert(&module.name) {
                return wrong("name", &module.name, "each module has a name of its own");
            }
            module.check(&object)?;
        }
        plain(&object, "author", &self.author, MAX_TEXT)?;
        if self.note.len() > MAX_NOTE {
            return wrong("note", &self.note, "valid are at most 4096 bytes");
        }
        Ok(())
    }
}

impl ModuleSpec {
    fn of(fields: &Fields) -> Result<Self, RecordError> {
        let digest = fields.text("digest", 64)?;
        let digest = digest.parse().map_err(|_| {
            fields.wrong(
                "digest",
                &digest,
                "valid are 64 lower-case hex digits".into(),
            )
        })?;
        let mut limits = BTreeMap::new();
        let found = fields.value("limits")?;
        let Some(found) = found.as_object().filter(|found| found.len() <= MAX_LIMITS) else {
            let valid = format!("valid is an object of at most {MAX_LIMITS} fields");
            return Err(fields.wrong("limits", found, valid));
        };
        for (name, value) in found {
            let Some(text) = value.as_str() else {
                return Err(fields.wrong("limits", value, "each limit's value is a text".into()));
            };
            limits.insert(name.clone(), text.to_owned());
        }
        let mut grants = BTreeSet::new();
        for grant in fields.list("grants", MAX_GRANTS)? {
            let Some(text) = grant.as_str() else {
                return Err(fields.wrong("grants", grant, "each grant is a text".into()));
            };
            grants.insert(text.to_owned());
        }
        Ok(Self {
            name: fields.text("name", MAX_WORD)?,
            digest,
            size: fields.number("size")?,
            options: fields.free_text("options", MAX_OPTIONS)?,
            limits,
            grants,
            prefix: fields.text("prefix", MAX_TEXT)?,
        })
    }

    fn check(&self, object: &str) -> Result<(), RecordError> {
        let object = format!("{object}, module {}", self.name);
        let wrong = |field, value: &str, valid: String| RecordError::Field {
            object: object.clone(),
            field,
            value: cut(value),
            valid,
        };
        if self.options.len() > MAX_OPTIONS {
            let value = format!("{} bytes", self.options.len());
            return Err(wrong(
                "options",
                &value,
                format!("valid are at most {MAX_OPTIONS} bytes"),
            ));
        }
        for (field, count, most) in [
            ("limits", self.limits.len(), MAX_LIMITS),
            ("grants", self.grants.len(), MAX_GRANTS),
        ] {
            if count > most {
                return Err(wrong(
                    field,
                    &count.to_string(),
                    format!("valid are at most {most}"),
                ));
            }
        }
        for (name, value) in &self.limits {
            plain(&object, "limits", name, MAX_WORD)?;
            plain(&object, "limits", value, MAX_TEXT)?;
        }
        for grant in &self.grants {
            plain(&object, "grants", grant, MAX_TEXT)?;
        }
        plain(&object, "prefix", &self.prefix, MAX_TEXT)
    }
}

/// Whether this can be the name of a module: 1 to 64 lower-case letters, digits and `-`, beginning with a letter.
#[must_use]
pub fn is_module_name(name: &str) -> bool {
    let valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=MAX_WORD).contains(&name.len())
        && name.as_bytes()[0].is_ascii_lowercase()
        && name.bytes().all(valid)
}

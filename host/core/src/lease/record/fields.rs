//! Reading a body field by field: each of the right kind, within its bounds, or an error that says what is wrong.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

use super::{MAX_BYTES, MAX_GENERATION, MAX_WHY, NodeName, Owner, RecordError, VERSION};

/// The fields of an object in JSON.
type Map = serde_json::Map<String, Value>;

/// The fields of a body of the right version.
pub(crate) struct Fields {
    object: String,
    fields: Map,
}

impl Fields {
    pub(crate) fn parse(object: String, body: &[u8]) -> Result<Self, RecordError> {
        Self::parse_up_to(MAX_BYTES, object, body)
    }

    /// The same, of a body of at most so many bytes.
    pub(crate) fn parse_up_to(
        most: usize,
        object: String,
        body: &[u8],
    ) -> Result<Self, RecordError> {
        if body.len() > most {
            let size = body.len() as u64;
            return Err(RecordError::TooLong { object, size, most });
        }
        let fields = match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => fields,
            Ok(_) => {
                let why = "it is JSON, but not an object".into();
                return Err(RecordError::Malformed { object, why });
            }
            Err(error) => {
                let why = error.to_string();
                return Err(RecordError::Malformed { object, why });
            }
        };
        match fields.get("version") {
            Some(Value::Number(version)) if version.as_u64() == Some(VERSION) => {
                Ok(Self { object, fields })
            }
            version => Err(RecordError::Version {
                found: version.map_or_else(|| "none".into(), |value| cut(&value.to_string())),
                object,
            }),
        }
    }

    /// The fields of an object within a body; `object` says where it is.
    pub(crate) fn within(object: String, fields: &Value) -> Result<Self, RecordError> {
        match fields {
            Value::Object(fields) => Ok(Self {
                object,
                fields: fields.clone(),
            }),
            _ => Err(RecordError::Malformed {
                object,
                why: "it is no JSON object".into(),
            }),
        }
    }

    pub(crate) fn optional(&self, field: &str) -> Option<&Value> {
        self.fields.get(field).filter(|value| !value.is_null())
    }

    pub(crate) fn wrong(
        &self,
        field: &'static str,
        value: &dyn fmt::Display,
        valid: String,
    ) -> RecordError {
        RecordError::Field {
            object: self.object.clone(),
            field,
            value: cut(&value.to_string()),
            valid,
        }
    }

    pub(crate) fn value(&self, field: &'static str) -> Result<&Value, RecordError> {
        self.optional(field)
            .ok_or_else(|| self.wrong(field, &"absent", "it must be there".into()))
    }

    pub(crate) fn number(&self, field: &'static str) -> Result<u64, RecordError> {
        let value = self.value(field)?;
        // One below the largest, so that the next number is always one more.
        value
            .as_u64()
            .filter(|number| *number < u64::MAX / 2)
            .ok_or_else(|| {
                let valid = format!("valid are whole numbers from 0 to {}", u64::MAX / 2 - 1);
                self.wrong(field, value, valid)
            })
    }

    pub(crate) fn generation(&self) -> Result<u64, RecordError> {
        let number = self.number("generation")?;
        if number < MAX_GENERATION {
            return Ok(number);
        }
        let valid = format!("valid are whole numbers below {MAX_GENERATION}");
        Err(self.wrong("generation", &number, valid))
    }

    pub(crate) fn small(&self, field: &'static str) -> Result<u32, RecordError> {
        let number = self.number(field)?;
        u32::try_from(number).map_err(|_| {
            let valid = format!("valid are whole numbers from 0 to {}", u32::MAX);
            self.wrong(field, &number, valid)
        })
    }

    pub(crate) fn flag(&self, field: &'static str) -> Result<bool, RecordError> {
        let value = self.value(field)?;
        value
            .as_bool()
            .ok_or_else(|| self.wrong(field, value, "valid are true and false".into()))
    }

    pub(crate) fn text(&self, field: &'static str, most: usize) -> Result<String, RecordError> {
        let value = self.value(field)?;
        let Some(text) = value.as_str() else {
            return Err(self.wrong(field, value, "valid is a text".into()));
        };
        plain(&self.object, field, text, most)?;
        Ok(text.to_owned())
    }

    /// A text that may hold any character.
    pub(crate) fn free_text(
        &self,
        field: &'static str,
        most: usize,
    ) -> Result<String, RecordError> {
        let value = self.value(field)?;
        match value.as_str() {
            Some(text) if text.len() <= most => Ok(text.to_owned()),
            _ => Err(self.wrong(
                field,
                value,
                format!("valid is a text of at most {most} bytes"),
            )),
        }
    }

    /// A list of at most so many.
    pub(crate) fn list(&self, field: &'static str, most: usize) -> Result<&[Value], RecordError> {
        let value = self.value(field)?;
        match value.as_array() {
            Some(list) if list.len() <= most => Ok(list),
            _ => Err(self.wrong(field, value, format!("valid is a list of at most {most}"))),
        }
    }

    pub(crate) fn word<T: Copy>(
        &self,
        field: &'static str,
        words: &[(&'static str, T)],
    ) -> Result<T, RecordError> {
        let value = self.value(field)?;
        let found = words.iter().find(|(word, _)| value.as_str() == Some(word));
        found.map(|(_, meaning)| *meaning).ok_or_else(|| {
            let valid: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.wrong(field, value, format!("valid are {}", valid.join(", ")))
        })
    }

    pub(crate) fn id<T: FromStr<Err = RecordError>>(
        &self,
        field: &'static str,
    ) -> Result<T, RecordError> {
        let text = self.text(field, 32)?;
        text.parse()
            .map_err(|_| self.wrong(field, &text, "valid are 32 lower-case hex digits".into()))
    }

    pub(crate) fn owner(&self) -> Result<Owner, RecordError> {
        let value = self.value("owner")?;
        let part = |part| value.get(part).and_then(Value::as_str).unwrap_or_default();
        match (NodeName::new(part("name")), part("session").parse()) {
            (Ok(name), Ok(session)) => Ok(Owner { name, session }),
            _ => {
                let valid = "valid is an object with the name and the session of a node".into();
                Err(self.wrong("owner", value, valid))
            }
        }
    }
}

/// Refuses a text that is too long, or that JSON would have to escape: then the size of a body is known before.
pub(crate) fn plain(
    object: &str,
    field: &'static str,
    text: &str,
    most: usize,
) -> Result<(), RecordError> {
    if text.len() <= most && !text.chars().any(is_odd) {
        return Ok(());
    }
    Err(RecordError::Field {
        object: object.into(),
        field,
        value: cut(text),
        valid: format!("valid are at most {most} bytes without control characters, \" and \\"),
    })
}

fn is_odd(c: char) -> bool {
    c.is_control() || c == '"' || c == '\\'
}

/// A reason as it may stand in a body.
pub(crate) fn clean(text: &str) -> String {
    let mut clean: String = text
        .chars()
        .map(|c| if is_odd(c) { '\'' } else { c })
        .collect();
    clean.truncate(clean.floor_char_boundary(MAX_WHY));
    clean
}

/// A value as it may stand in an error.
pub(crate) fn cut(text: &str) -> String {
    let mut short: String = text.chars().take(80).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

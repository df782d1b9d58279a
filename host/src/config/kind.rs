//! What a key's value may be, and how it moves between its plain Rust type and its written form.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration};

use object_store::ObjectStoreScheme;
use serde_json::{Map, Value};

use super::units::{Size, Span, quoted};

/// The written form of a key's value and its bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// 1 to 63 of `A-Z a-z 0-9 . _ -`, beginning with a letter or digit.
    Name,
    /// Text of at most this many bytes.
    Text(usize),
    /// A store's URL, without credentials in it.
    Url,
    /// A path within the store: segments joined by `/`, or empty.
    Prefix,
    /// A path of this machine.
    File,
    /// A duration between the two, inclusive.
    Duration(Duration, Duration),
    /// A size in bytes between the two, inclusive.
    Size(u64, u64),
    /// A whole number between the two, inclusive.
    Count(u64, u64),
    /// `true`, `false`, or the one further word.
    SwitchOr(&'static str),
    /// `ADDRESS:PORT`.
    Address,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A `tracing` filter: a level, or directives like `quarry=debug,slatedb=warn`.
    Filter,
    /// A list of texts.
    List,
    /// Names and texts; merged by name across layers.
    Strings,
    /// Names and values of any kind; merged by name across layers, to any depth.
    Table,
}

/// A field of the configuration.
pub(super) trait Field {
    /// The value as it is written; null when it is unset.
    fn get(&self, kind: Kind) -> Value;
    /// Takes a value that [`Kind::read`] returned.
    fn set(&mut self, value: &Value) -> Result<(), String>;
    /// Whether the field may be left unset.
    const OPTIONAL: bool = false;
}

impl Kind {
    /// Whether values are merged by name across layers.
    #[must_use]
    pub const fn is_map(self) -> bool {
        matches!(self, Self::Strings | Self::Table)
    }

    /// What a value may be, for help and errors.
    #[must_use]
    pub fn expects(self) -> String {
        match self {
            Self::Name => "a name: 1 to 63 of A-Z a-z 0-9 . _ -, beginning with a letter or digit".into(),
            Self::Text(max) => format!("text of at most {max} bytes"),
            Self::Url => "a store URL: memory:, file:///DIR, s3://BUCKET (s3a:), gs://BUCKET, az://CONTAINER (azure:, adl:, abfs:, abfss:), or the https: address of a bucket of S3, R2 or Azure".into(),
            Self::Prefix => "a path in the store: at most 512 bytes, segments of A-Z a-z 0-9 . _ = -, joined by /".into(),
            Self::File => "a path".into(),
            Self::Duration(min, max) => format!("a duration from {} to {}", Span(min), Span(max)),
            Self::Size(min, max) => format!("a size from {} to {}", Size(min), Size(max)),
            Self::Count(min, max) => format!("a whole number from {min} to {max}"),
            Self::SwitchOr(word) => format!("true, \"{word}\" or false"),
            Self::Address => "an address and port, like 127.0.0.1:7070 or [::1]:7070".into(),
            Self::Choice(words) => format!("one of {}", words.join(", ")),
            Self::Filter => "trace, debug, info, warn, error or off, or directives like quarry=debug,slatedb=warn".into(),
            Self::List => "a list of texts".into(),
            Self::Strings => "a table of names and texts".into(),
            Self::Table => "a table".into(),
        }
    }

    /// Turns text of a variable or a flag into the value that a file would hold.
    pub(super) fn parse_text(self, text: &str, optional: bool) -> Value {
        let string = || Value::from(text);
        match self {
            _ if optional && text.is_empty() => Value::Null,
            Self::Count(..) => text.parse::<i64>().map_or_else(|_| string(), Value::from),
            Self::SwitchOr(_) => text.parse::<bool>().map_or_else(|_| string(), Value::from),
            Self::List if text.starts_with('[') => {
                serde_json::from_str(text).unwrap_or_else(|_| string())
            }
            Self::List => text
                .split(',')
                .filter(|part| !part.is_empty())
                .map(Value::from)
                .collect(),
            Self::Strings | Self::Table => serde_json::from_str(text).unwrap_or_else(|_| string()),
            _ => string(),
        }
    }

    /// Checks a value and returns it in its canonical form. The error says what was found and what is expected.
    pub(super) fn read(self, value: &Value) -> Result<Value, String> {
        let wrong = || format!("{} is not {}", found(value), self.expects());
        match (self, value) {
            (Self::Name, Value::String(text)) if is_name(text) => Ok(value.clone()),
            (Self::Text(max), Value::String(text)) if text.len() <= max && !text.contains('\0') => {
                Ok(value.clone())
            }
            (Self::Prefix, Value::String(text)) if is_prefix(text) => Ok(value.clone()),
            (Self::File, Value::String(text)) if !text.is_empty() && !text.contains('\0') => {
                Ok(value.clone())
            }
            (Self::Url, Value::String(text)) => url(text).map(|()| value.clone()),
            (Self::Duration(min, max), Value::String(text)) => {
                let span: Span = text
                    .parse()
                    .map_err(|error: super::units::UnitError| error.to_string())?;
                if span.0 < min || span.0 > max {
                    return Err(wrong());
                }
                Ok(Value::from(span.to_string()))
            }
            (Self::Size(min, max), Value::String(text)) => {
                let size: Size = text
                    .parse()
                    .map_err(|error: super::units::UnitError| error.to_string())?;
                if size.0 < min || size.0 > max {
                    return Err(wrong());
                }
                Ok(Value::from(size.to_string()))
            }
            (Self::Count(min, max), Value::Number(number)) => match number.as_u64() {
                Some(number) if (min..=max).contains(&number) => Ok(value.clone()),
                _ => Err(wrong()),
            },
            (Self::SwitchOr(_), Value::Bool(_)) => Ok(value.clone()),
            (Self::SwitchOr(word), Value::String(text)) if text == word => Ok(value.clone()),
            (Self::Address, Value::String(text)) => text
                .parse::<SocketAddr>()
                .map(|_| value.clone())
                .map_err(|_| wrong()),
            (Self::Choice(words), Value::String(text)) if words.contains(&text.as_str()) => {
                Ok(value.clone())
            }
            (Self::Filter, Value::String(text)) => match crate::telemetry::check_filter(text) {
                Ok(()) => Ok(value.clone()),
                Err(fault) => Err(format!(
                    "{} is no filter ({fault}): write {}",
                    quoted(text),
                    self.expects()
                )),
            },
            (Self::List, Value::Array(items)) if items.iter().all(Value::is_string) => {
                Ok(value.clone())
            }
            (Self::Table, Value::Object(_)) => Ok(value.clone()),
            (Self::Strings, Value::Object(entries)) => {
                let texts = entries.iter().map(|(name, value)| match value {
                    Value::String(_) => Ok((name.clone(), value.clone())),
                    Value::Bool(_) | Value::Number(_) => {
                        Ok((name.clone(), Value::from(value.to_string())))
                    }
                    // Not `found`: an option can be a credential.
                    _ => Err(format!("`{name}` is not text, a number or true/false")),
                });
                texts.collect::<Result<Map<_, _>, _>>().map(Value::Object)
            }
            _ => Err(wrong()),
        }
    }
}

fn is_name(text: &str) -> bool {
    let first = text
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphanumeric());
    first
        && text.len() <= 63
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

fn is_prefix(text: &str) -> bool {
    let segment = |segment: &str| {
        let dots = segment.bytes().all(|byte| byte == b'.');
        !dots
            && segment
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"._=-".contains(&byte))
    };
    text.is_empty() || text.len() <= 512 && text.split('/').all(segment)
}

/// The errors do not repeat the URL: what is wrong with it may be that it holds a password.
fn url(text: &str) -> Result<(), String> {
    let url = url::Url::parse(text)
        .map_err(|error| format!("not a URL ({error}): expected {}", Kind::Url.expects()))?;
    // In abfss://container@account.dfs.core.windows.net the user's place holds the container.
    let holds_container =
        url.scheme().starts_with("abfs") && url.host_str().is_some_and(|host| host.contains('.'));
    if (!url.username().is_empty() && !holds_container) || url.password().is_some() {
        return Err("the URL holds credentials: give them as options of the store ([store_options], --store-option)".into());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("the URL has a query or a fragment: give options in [store_options] or with --store-option".into());
    }
    match url.scheme() {
        "memory" | "file" | "s3" | "s3a" | "gs" | "az" | "azure" | "adl" | "abfs" | "abfss" => Ok(()),
        "https" | "http" => match ObjectStoreScheme::parse(&url) {
            Ok((ObjectStoreScheme::AmazonS3 | ObjectStoreScheme::GoogleCloudStorage | ObjectStoreScheme::MicrosoftAzure, _)) => Ok(()),
            _ => Err("the address is none of a known store's: for an S3 server of one's own write s3://BUCKET and set aws_endpoint in [store_options]".into()),
        },
        scheme => Err(format!(
            "the scheme {} is unknown: expected {}",
            quoted(scheme),
            Kind::Url.expects()
        )),
    }
}

/// A value for a message.
fn found(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "a table".into(),
        Value::Null => "nothing".into(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

fn text(value: &Value) -> Result<&str, String> {
    value
        .as_str()
        .ok_or_else(|| format!("{} is not text", found(value)))
}

fn whole<T: TryFrom<u64>>(value: &Value) -> Result<T, String> {
    let number = value.as_u64().and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| format!("{} is not a whole number of this range", found(value)))
}

impl Field for String {
    fn get(&self, _: Kind) -> Value {
        Value::from(self.as_str())
    }
    fn set(&mut self, value: &Value) -> Result<(), String> {
        text(value).map(|text| text.clone_into(self))
    }
}

impl Field for PathBuf {
    fn get(&self, _: Kind) -> Value {
        Value::from(self.to_string_lossy())
    }
    fn set(&mut self, value: &Value) -> Result<(), String> {
        text(value).map(|text| *self = text.into())
    }
}

impl Field for Duration {
    fn get(&self, _: Kind) -> Value {
        Value::from(Span(*self).to_string())
    }
    fn set(&mut self, value: &Value) -> Result<(), String> {
        let span: Span = text(value)?
            .parse()
            .map_err(|error: super::units::UnitError| error.to_string())?;
        *self = span.0;
        Ok(())
    }
}

impl Field for u64 {
    fn get(&self, kind: Kind) -> Value {
        match kind {
            Kind::Size(..) => Value::from(Size(*self).to_string()),
            _ => Value::from(*self),
        }
    }
    fn set(&mut self, value: &Value) -> Result<(), String> {
        *self = match value {
            Value::String(text) => text.parse::<Size>().map_err(|error| error.to_string())?.0,
            _ => whole(value)?,
        };
        Ok(())
    }
}

impl Field for u32 {
    fn get(&self, _: Kind) -> Value {
        Value::from(*self)
    }
    fn set(&mut self, value: &Value) -> Result<(), String> {
        whole(value).map(|number| *self = number)
    }
}

impl Field for usize {
    fn get(&self, _: Kind) -> Value {
        Value::from(*self)
    }
    fn set(&mut self, value: &Value) -> Result<(), String> {
        whole(value).map(|number| *self = number)
    }
}

impl Field for SocketAddr {
    fn get(&self, _: Kind) -> Value {
        Value::from(self.to_string())
    }
    fn set(&mut self, value: &Value) -> Result<(), String> {
        let address = text(value)?.parse();
        address
            .map(|address| *self = address)
            .map_err(|_| format!("{} is no address", found(value)))
    }
}

impl Field for Vec<String> {
    fn get(&self, _: Kind) -> Value {
        self.iter().map(String::as_str).collect()
    }
    fn set(&mut self, value: &Value) -> Result<(), String> {
        let items = value
            .as_array()
            .ok_or_else(|| format!("{} is no list", found(value)))?;
        *self = items
            .iter()
            .map(|item| text(item).map(str::to_owned))
            .collect::<Result<_, _>>()?;
        Ok(())
    }
}

impl Field for BTreeMap<String, String> {
    fn get(&self, _: Kind) -> Value {
        self.iter()
            .map(|(name, value)| (name.clone(), Value::from(value.as_str())))
            .collect()
    }
    fn set(&mut self, value: &Value) -> Result<(), String> {
        let entries = value
            .as_object()
            .ok_or_else(|| format!("{} is no table", found(value)))?;
        let texts = entries
            .iter()
            .map(|(name, value)| text(value).map(|text| (name.clone(), text.to_owned())));
        *self = texts.collect::<Result<_, _>>()?;
        Ok(())
    }
}

impl Field for Map<String, Value> {
    fn get(&self, _: Kind) -> Value {
        Value::Object(self.clone())
    }
    fn set(&mut self, value: &Value) -> Result<(), String> {
        value
            .as_object()
            .ok_or_else(|| format!("{} is no table", found(value)))?
            .clone_into(self);
        Ok(())
    }
}

impl<T: Field + Default> Field for Option<T> {
    const OPTIONAL: bool = true;

    fn get(&self, kind: Kind) -> Value {
        self.as_ref().map_or(Value::Null, |value| value.get(kind))
    }
    fn set(&mut self, value: &Value) -> Result<(), String> {
        *self = match value {
            Value::Null => None,
            _ => {
                let mut inner = T::default();
                inner.set(value)?;
                Some(inner)
            }
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_those_that_stores_take() {
        for good in [
            "memory:",
            "file:///var/lib/quarry",
            "s3://b/p",
            "s3a://b",
            "gs://b",
            "az://c",
            "azure://c",
            "adl://c",
            "abfs://c@account.dfs.core.windows.net/p",
            "abfss://c@account.dfs.core.windows.net/p",
            "https://s3.eu-central-1.amazonaws.com/bucket",
            "https://account.blob.core.windows.net/container",
        ] {
            assert_eq!(url(good), Ok(()), "{good}");
        }
        for (bad, part) in [
            ("http://127.0.0.1:9000/bucket", "aws_endpoint"),
            ("https://example.com/bucket", "aws_endpoint"),
            ("ftp://b", "unknown"),
            ("s3://user@b", "credentials"),
            (
                "abfss://c:secret@account.dfs.core.windows.net",
                "credentials",
            ),
            ("s3://b?x=1", "query"),
        ] {
            let error = url(bad).expect_err(bad);
            assert!(error.contains(part), "{bad}: {error}");
        }
    }
}

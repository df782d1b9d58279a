//! Lines of a file, and how one is taken apart into a key and a payload.

use std::io;

use bytes::Bytes;
use serde_json::Value;
use tokio::io::{AsyncBufRead, AsyncBufReadExt};

use crate::cli::args::LineFormat;
use crate::config::units::Size;

/// The longest line, in bytes, as the default of `http.max_body`. A longer one fails by itself, and the rest goes on.
pub(super) const LINE_MAX_BYTES: usize = 16 << 20;

/// A line with its number, counted from 1.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) number: u64,
    /// Its bytes without the line end, or what is wrong with it.
    pub(super) text: Result<Bytes, String>,
}

/// Reads lines within a bound. Dropping the future of [`Lines::next`] loses nothing.
pub(super) struct Lines<R> {
    input: R,
    number: u64,
    bytes: u64,
    line: Vec<u8>,
    /// Bytes of the present line, also those that were not kept.
    length: usize,
    most: usize,
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            number: 0,
            bytes: 0,
            line: Vec::new(),
            length: 0,
            most: LINE_MAX_BYTES,
        }
    }

    /// Lines so far.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Bytes so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The next line; none at the end.
    pub(super) async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let available = self.input.fill_buf().await?;
            if available.is_empty() {
                return Ok((self.length > 0).then(|| self.end()));
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let part = &available[..end.unwrap_or(available.len())];
            self.length += part.len();
            let room = (self.most + 2).saturating_sub(self.line.len());
            self.line.extend_from_slice(&part[..part.len().min(room)]);
            let used = part.len() + usize::from(end.is_some());
            self.input.consume(used);
            self.bytes += used as u64;
            if end.is_some() {
                return Ok(Some(self.end()));
            }
        }
    }

    fn end(&mut self) -> Line {
        self.number += 1;
        let mut line = std::mem::take(&mut self.line);
        let mut length = std::mem::take(&mut self.length);
        if line.last() == Some(&b'\r') {
            line.pop();
            length -= 1;
        }
        let text = if length > self.most {
            Err(format!(
                "the line has {length} bytes; at most {} are sent",
                Size(self.most as u64)
            ))
        } else {
            Ok(line.into())
        };
        Line {
            number: self.number,
            text,
        }
    }
}

/// A line taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Keyed {
    pub(super) key: Bytes,
    pub(super) payload: Bytes,
}

/// How lines are taken apart.
#[derive(Debug)]
pub(super) enum Splitter {
    /// The line is key and payload.
    Lines,
    /// A column, from 0, is the key; the other columns are the payload.
    Column(usize),
    /// As `Column`, where the first line has yet to tell which one has this name.
    Named(String),
    /// A field of the JSON object is the key; the line is the payload.
    Field(String),
}

impl Splitter {
    /// For a format and `--key`.
    pub(super) fn new(format: LineFormat, key: Option<&str>) -> Result<Self, String> {
        match (format, key) {
            (LineFormat::Lines, None) => Ok(Self::Lines),
            (LineFormat::Lines, Some(_)) => Err(
                "--key goes with --format tsv or jsonl; with lines, each line is its own key"
                    .into(),
            ),
            (LineFormat::Tsv, None) => Ok(Self::Column(0)),
            (LineFormat::Tsv, Some(key)) => match key.parse::<usize>() {
                Ok(0) => Err("--key 0: columns are counted from 1".into()),
                Ok(column) => Ok(Self::Column(column - 1)),
                Err(_) => Ok(Self::Named(key.into())),
            },
            (LineFormat::Jsonl, Some(field)) => Ok(Self::Field(field.into())),
            (LineFormat::Jsonl, None) => {
                Err("--format jsonl needs --key FIELD: the field that holds the key".into())
            }
        }
    }

    /// Takes a line apart. Nothing for a blank line, and for a header.
    pub(super) fn split(&mut self, line: Bytes) -> Result<Option<Keyed>, String> {
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(None);
        }
        let keyed = match self {
            Self::Lines => Keyed {
                key: line.clone(),
                payload: line,
            },
            Self::Column(column) => split_column(&line, *column)?,
            Self::Named(name) => {
                let column = line
                    .split(|byte| *byte == b'\t')
                    .position(|title| title == name.as_bytes());
                *self = Self::Column(column.ok_or_else(|| format!("the first line has no column `{name}`; --key takes a title of it, or a number from 1"))?);
                return Ok(None);
            }
            Self::Field(field) => Keyed {
                key: json_key(&line, field)?,
                payload: line,
            },
        };
        if keyed.key.is_empty() {
            return Err("the key is empty".into());
        }
        Ok(Some(keyed))
    }
}

fn split_column(line: &Bytes, column: usize) -> Result<Keyed, String> {
    let mut columns: Vec<&[u8]> = line.split(|byte| *byte == b'\t').collect();
    if column >= columns.len() {
        return Err(format!(
            "the line has {} columns, and the key is in column {}",
            columns.len(),
            column + 1
        ));
    }
    let key = line.slice_ref(columns.remove(column));
    // Mostly the key comes first, and the payload is the rest as it lies.
    let payload = match column {
        0 => line.slice((key.len() + 1).min(line.len())..),
        _ => columns.join(&b'\t').into(),
    };
    Ok(Keyed { key, payload })
}

fn json_key(line: &[u8], field: &str) -> Result<Bytes, String> {
    let value: Value =
        serde_json::from_slice(line).map_err(|error| format!("the line is not JSON: {error}"))?;
    let object = value.as_object().ok_or("the line is not a JSON object")?;
    match object.get(field) {
        Some(Value::String(text)) => Ok(text.clone().into()),
        Some(Value::Number(number)) => Ok(number.to_string().into()),
        Some(Value::Bool(_) | Value::Null | Value::Array(_) | Value::Object(_)) => {
            Err(format!("the field `{field}` is neither text nor a number"))
        }
        None => Err(format!("the object has no field `{field}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(text: &[u8], most: usize, buffer: usize) -> Vec<Result<String, String>> {
        let mut lines = Lines {
            most,
            ..Lines::new(tokio::io::BufReader::with_capacity(buffer, text))
        };
        let mut found = Vec::new();
        while let Some(line) = lines.next().await.expect("bytes in memory") {
            assert_eq!(line.number, found.len() as u64 + 1);
            found.push(
                line.text
                    .map(|text| String::from_utf8_lossy(&text).into_owned()),
            );
        }
        assert_eq!(lines.bytes(), text.len() as u64);
        found
    }

    #[tokio::test]
    async fn lines_are_bounded_and_counted() {
        let long = |bytes| Err(format!("the line has {bytes} bytes; at most 4B are sent"));
        let ok = |text: &str| Ok(text.to_owned());
        for (text, expected) in [
            ("", vec![]),
            ("a", vec![ok("a")]),
            ("a\nb\n", vec![ok("a"), ok("b")]),
            ("a\r\n\nb", vec![ok("a"), ok(""), ok("b")]),
            ("abcd\r\nabcde\nx", vec![ok("abcd"), long(5), ok("x")]),
            ("abcdefghijklmnop\nabcd", vec![long(16), ok("abcd")]),
            ("\n", vec![ok("")]),
        ] {
            for buffer in [1, 2, 3, 64] {
                assert_eq!(
                    lines(text.as_bytes(), 4, buffer).await,
                    expected,
                    "{text:?} read {buffer} bytes at a time"
                );
            }
        }
    }

    #[test]
    fn keys_and_payloads() {
        use LineFormat::{Jsonl, Lines, Tsv};
        for (format, key, line, expected) in [
            (Lines, None, "a b", Ok(Some(("a b", "a b")))),
            (Lines, None, "", Ok(None)),
            (Lines, None, " \t", Ok(None)),
            (Tsv, None, "k\tv\tw", Ok(Some(("k", "v\tw")))),
            (Tsv, None, "k", Ok(Some(("k", "")))),
            (Tsv, None, "k\t", Ok(Some(("k", "")))),
            (Tsv, None, "\tv", Err("the key is empty")),
            (Tsv, Some("2"), "a\tk\tb", Ok(Some(("k", "a\tb")))),
            (
                Tsv,
                Some("3"),
                "a\tk",
                Err("the line has 2 columns, and the key is in column 3"),
            ),
            (
                Jsonl,
                Some("id"),
                r#"{"id":"k","v":1}"#,
                Ok(Some(("k", r#"{"id":"k","v":1}"#))),
            ),
            (
                Jsonl,
                Some("id"),
                r#"{"id":17}"#,
                Ok(Some(("17", r#"{"id":17}"#))),
            ),
            (
                Jsonl,
                Some("id"),
                r#"{"id":12345678901234567890}"#,
                Ok(Some((
                    "12345678901234567890",
                    r#"{"id":12345678901234567890}"#,
                ))),
            ),
            (Jsonl, Some("id"), r#"{"id":""}"#, Err("the key is empty")),
            (
                Jsonl,
                Some("id"),
                r#"{"id":null}"#,
                Err("the field `id` is neither text nor a number"),
            ),
            (
                Jsonl,
                Some("id"),
                r#"{"v":1}"#,
                Err("the object has no field `id`"),
            ),
            (
                Jsonl,
                Some("id"),
                "[1]",
                Err("the line is not a JSON object"),
            ),
            (Jsonl, Some("id"), "{", Err("the line is not JSON")),
        ] {
            let mut splitter = Splitter::new(format, key).expect("arguments");
            let got = splitter.split(line.as_bytes().to_vec().into());
            match expected {
                Ok(keyed) => {
                    let keyed = keyed.map(|(key, payload)| Keyed {
                        key: key.into(),
                        payload: payload.into(),
                    });
                    assert_eq!(got, Ok(keyed), "{line}");
                }
                Err(part) => assert!(
                    got.as_ref().is_err_and(|error| error.starts_with(part)),
                    "{line}: {got:?}"
                ),
            }
        }
    }

    #[test]
    fn a_title_names_the_column() {
        let mut splitter = Splitter::new(LineFormat::Tsv, Some("id")).expect("arguments");
        assert_eq!(splitter.split("name\tid".into()), Ok(None));
        assert_eq!(
            splitter.split("ann\t7".into()),
            Ok(Some(Keyed {
                key: "7".into(),
                payload: "ann".into()
            }))
        );
        let mut splitter = Splitter::new(LineFormat::Tsv, Some("id")).expect("arguments");
        assert!(
            splitter
                .split("name\tkey".into())
                .is_err_and(|error| error.contains("no column `id`"))
        );
    }

    #[test]
    fn arguments_that_do_not_go_together() {
        assert!(Splitter::new(LineFormat::Lines, Some("1")).is_err());
        assert!(Splitter::new(LineFormat::Tsv, Some("0")).is_err());
        assert!(Splitter::new(LineFormat::Jsonl, None).is_err());
    }
}

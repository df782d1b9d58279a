//! What a verb prints: data on standard output, messages on standard error.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Value, json};

use super::{Error, build};
use crate::client;

/// Characters of a cell of a table, at most; `--json` has all of it.
const CELL_MAX_CHARS: usize = 80;

/// A column of a table: its title, and its cell of a row.
pub(super) type Column = (&'static str, fn(&Value) -> String);

/// Where and how a verb prints.
#[derive(Clone, Copy, Debug, Default)]
pub struct Output {
    /// Whether data and errors are JSON.
    pub json: bool,
}

impl Output {
    /// Prints data as it is, without a line end.
    ///
    /// # Errors
    /// [`Error::ClosedPipe`] when nobody reads any more: pass it on, it ends the program as a success.
    pub fn bytes(self, data: &[u8]) -> Result<(), Error> {
        let mut out = io::stdout().lock();
        out.write_all(data)
            .and_then(|()| out.flush())
            .map_err(closed)
    }

    /// Prints data and a line end.
    ///
    /// # Errors
    /// As [`Output::bytes`].
    pub fn line(self, text: &str) -> Result<(), Error> {
        self.bytes(format!("{text}\n").as_bytes())
    }

    /// Prints a value as JSON, indented, and a line end.
    ///
    /// # Errors
    /// As [`Output::bytes`], and when the value has no JSON form.
    pub fn json(self, value: &impl Serialize) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(value)
            .map_err(|error| Error::Failed(error.to_string()))?;
        self.line(&text)
    }

    /// Prints a value as JSON on one line, as an event of a stream.
    ///
    /// # Errors
    /// As [`Output::json`].
    pub fn event(self, value: &impl Serialize) -> Result<(), Error> {
        let text =
            serde_json::to_string(value).map_err(|error| Error::Failed(error.to_string()))?;
        self.line(&text)
    }

    /// Prints a message for a person. That nobody can see it is no failure.
    pub fn note(self, text: &str) {
        let _ = writeln!(io::stderr().lock(), "{text}");
    }

    /// Prints why a verb failed: `error: ...`, or `{"error": {"code", "message"}}`, with all that a node or a guest said of a refusal,
    /// or a compiler of a guest (`output`, the end of its standard error).
    pub fn error(self, error: &Error) {
        let mut message = error.to_string();
        let mut source = std::error::Error::source(error);
        while let Some(cause) = source {
            // Some errors show their source themselves.
            let text = cause.to_string();
            if !message.ends_with(&text) {
                message = format!("{message}: {text}");
            }
            source = cause.source();
        }
        if self.json {
            let mut told = json!({"code": error.code(), "message": message});
            if let Error::Refused(client::Error::Refused(refusal)) = error {
                told["status"] = refusal.status.into();
                told["source"] = refusal.source.as_str().into();
                told["retryable"] = refusal.retryable.into();
                told["shard"] = refusal.shard.into();
            }
            if let Error::Build(build::Error::Failed { stderr, .. }) = error {
                told["output"] = stderr.as_str().into();
            }
            self.note(&json!({"error": told}).to_string());
        } else {
            self.note(&format!("error: {message}"));
        }
    }
}

fn closed(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Error::ClosedPipe,
        _ => Error::Io {
            what: "cannot write to standard output".into(),
            source: error,
        },
    }
}

/// A table, one line a row, as wide as its cells.
pub(super) fn table(columns: &[Column], rows: &[Value]) -> String {
    let titles: Vec<String> = columns
        .iter()
        .map(|(title, _)| (*title).to_owned())
        .collect();
    let cells = rows
        .iter()
        .map(|row| columns.iter().map(|(_, cell)| cell(row)).collect());
    let lines: Vec<Vec<String>> = std::iter::once(titles).chain(cells).collect();
    let widths: Vec<usize> = (0..columns.len())
        .map(|column| {
            let cells = lines.iter().map(|line| line[column].chars().count());
            cells.max().unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for line in &lines {
        let padded = line
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}  "));
        text.push_str(padded.collect::<String>().trim_end());
        text.push('\n');
    }
    text
}

/// A value as a cell: one line, not too long.
pub(super) fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => return "-".into(),
        Value::String(text) if text.is_empty() => return "-".into(),
        Value::String(text) => text.lines().next().unwrap_or("").to_owned(),
        other => other.to_string(),
    };
    match text.char_indices().nth(CELL_MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// A moment given in milliseconds since 1970, as a cell.
pub(super) fn utc(ms: &Value) -> String {
    let Some(ms) = ms.as_u64() else {
        return "-".into();
    };
    let (days, rest) = (ms / 86_400_000, ms / 1000 % 86_400);
    // Days since 1 March of the year 0, in eras of 400 years: leap days then end a year.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let (month, day) = (
        (5 * of_year + 2) / 153,
        of_year - (153 * ((5 * of_year + 2) / 153) + 2) / 5 + 1,
    );
    let (year, month) = if month < 10 {
        (year + era * 400, month + 3)
    } else {
        (year + era * 400 + 1, month - 9)
    };
    let (hours, minutes, seconds) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates() {
        for (ms, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (951_868_799_999, "2000-02-29T23:59:59Z"),
            (951_868_800_000, "2000-03-01T00:00:00Z"),
            (1_764_494_478_123_u64, "2025-11-30T09:21:18Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(&ms.into()), expected);
        }
        assert_eq!(utc(&Value::Null), "-");
    }

    #[test]
    fn a_long_cell_is_cut() {
        let long = cell(&"é".repeat(100).into());
        assert_eq!(long.chars().count(), CELL_MAX_CHARS + 1);
    }
}

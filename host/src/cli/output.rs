//! What a verb prints: data on standard output, messages on standard error.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::json;

use super::Error;

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

    /// Prints why a verb failed: `error: ...`, or `{"error": {"code", "message"}}`.
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
            self.note(&json!({"error": {"code": error.code(), "message": message}}).to_string());
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

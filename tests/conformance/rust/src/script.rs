//! Runs scripts: steps one after the other, with what they opened.

use std::collections::BTreeMap;

use crate::bindings::quarry::shard::current_call;
use crate::bindings::quarry::shard::db::{self, Cursor, Snapshot, Transaction};
use crate::bindings::quarry::shard::types::Error;
use crate::broken::broken;
use crate::{database, form, surroundings};

/// The values of a result.
pub type Values = Vec<Vec<u8>>;

/// Why a step gives none.
pub enum Refused {
    /// The host says so: a result of the step.
    Host(Error),
    /// The call is to fail.
    Call(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Host(error)
    }
}

/// A script in progress.
#[derive(Default)]
pub struct Script {
    /// What is open. Given back when the script ends.
    handles: BTreeMap<u64, Handle>,
    /// The seq of its last write.
    pub last_seq: u64,
}

/// What a script opened.
pub enum Handle {
    Cursor(Cursor),
    Snapshot(Snapshot),
    Transaction(Transaction),
}

/// A call or a query.
pub fn request(method: &str, key: Option<&[u8]>, payload: &[u8]) -> Result<Vec<u8>, Error> {
    match method {
        "run" => run(payload),
        "echo" => {
            let key = key.filter(|key| !(key.is_empty() && broken("empty-option")));
            Ok(form::list([method.as_bytes(), &form::option(key), payload]))
        }
        other => Err(error(
            "unknown-method",
            format!("there is no method `{other}`: choose from run, echo"),
        )),
    }
}

/// Runs a script; the list of its results.
pub fn run(steps: &[u8]) -> Result<Vec<u8>, Error> {
    if broken("applied") {
        current_call::reply_when_applied();
    }
    let mut script = Script::default();
    let mut results = Vec::new();
    for step in form::items(steps).ok_or_else(invalid)? {
        form::push(&mut results, &script.step(step)?);
    }
    if broken("drop-commits") {
        script.commit_all();
    }
    Ok(results)
}

/// Runs the script under a key, and says whether there is that key.
pub fn stored(key: &str) -> Result<bool, Error> {
    match db::get(key.as_bytes())? {
        Some(script) => run(&script).map(|_| true),
        None => Ok(false),
    }
}

impl Script {
    fn step(&mut self, step: &[u8]) -> Result<Vec<u8>, Error> {
        let items = form::items(step).ok_or_else(invalid)?;
        let (command, args) = items.split_first().ok_or_else(invalid)?;
        let command = std::str::from_utf8(command).map_err(|_| invalid())?;
        let (raises, command) = match command.strip_prefix('!') {
            Some(command) => (true, command),
            None => (false, command),
        };
        match self.command(command, &mut Args(args)) {
            Ok(values) => Ok(ok(values)),
            Err(Refused::Call(_)) if broken("drop-raise") => Ok(ok(Vec::new())),
            Err(Refused::Call(error)) => Err(error),
            Err(Refused::Host(error)) => self.refused(error, raises),
        }
    }

    fn refused(&self, mut error: Error, raises: bool) -> Result<Vec<u8>, Error> {
        if broken("trap-on-error") {
            panic!("{}", error.message);
        }
        if broken("swallow-errors") {
            return Ok(ok(Vec::new()));
        }
        if broken("one-code") {
            error.code = "error".into();
        }
        if broken("no-message") {
            error.message.clear();
        }
        if broken("final-errors") {
            error.retryable = false;
        }
        if raises && !broken("drop-raise") {
            return Err(error);
        }
        let retryable = flag(error.retryable);
        Ok(form::list([
            b"err",
            error.code.as_bytes(),
            error.message.as_bytes(),
            &retryable,
        ]))
    }

    fn command(&mut self, command: &str, args: &mut Args) -> Result<Values, Refused> {
        database::run(self, command, args)
            .or_else(|| surroundings::run(self, command, args))
            .unwrap_or_else(|| {
                Err(error(
                    "unknown-command",
                    format!("there is no command `{command}`"),
                )
                .into())
            })
    }

    /// Keeps what was opened under its number.
    pub fn open(&mut self, number: u64, handle: Handle) {
        self.handles.insert(number, handle);
    }

    /// Gives back what was opened.
    pub fn close(&mut self, number: u64) -> Result<(), Refused> {
        if broken("keep-handles") {
            return Ok(());
        }
        self.handles
            .remove(&number)
            .map(drop)
            .ok_or_else(|| no_handle(number))
    }

    /// What is open under a number.
    pub fn handle(&self, number: u64) -> Result<&Handle, Refused> {
        self.handles.get(&number).ok_or_else(|| no_handle(number))
    }

    /// Notes the seq of a write.
    pub fn wrote(&mut self, seq: u64) -> Values {
        self.last_seq = seq;
        let seq = if broken("32-bit") {
            u64::from(seq as u32)
        } else {
            seq
        };
        vec![number(seq)]
    }

    fn commit_all(&self) {
        for handle in self.handles.values() {
            if let Handle::Transaction(transaction) = handle {
                _ = transaction.commit();
            }
        }
    }
}

/// The arguments of a step that are left.
pub struct Args<'a>(&'a [&'a [u8]]);

impl<'a> Args<'a> {
    /// The next as bytes.
    pub fn bytes(&mut self) -> Result<&'a [u8], Refused> {
        let (first, rest) = self.0.split_first().ok_or_else(bad)?;
        self.0 = rest;
        Ok(first)
    }

    /// The next as text.
    pub fn text(&mut self) -> Result<&'a str, Refused> {
        std::str::from_utf8(self.bytes()?).map_err(|_| bad())
    }

    /// The next as a number, or as whatever else is written in digits.
    pub fn number<T: std::str::FromStr>(&mut self) -> Result<T, Refused> {
        self.text()?.parse().map_err(|_| bad())
    }

    /// The next as a flag.
    pub fn flag(&mut self) -> Result<bool, Refused> {
        match self.bytes()? {
            b"1" => Ok(true),
            b"0" => Ok(false),
            _ => Err(bad()),
        }
    }

    /// The next as an option; none too where it was left out at the end.
    pub fn option(&mut self) -> Result<Option<&'a [u8]>, Refused> {
        if self.is_empty() {
            return Ok(None);
        }
        match self.bytes()?.split_first() {
            None => Ok(None),
            Some((b'+', [])) if broken("empty-option") => Ok(None),
            Some((b'+', value)) => Ok(Some(value)),
            Some(_) => Err(bad()),
        }
    }

    /// The next as an option of a number.
    pub fn optional_number<T: std::str::FromStr>(&mut self) -> Result<Option<T>, Refused> {
        let Some(value) = self.option()? else {
            return Ok(None);
        };
        let text = std::str::from_utf8(value).map_err(|_| bad())?;
        text.parse().map(Some).map_err(|_| bad())
    }

    /// All that are left, two by two, as text.
    pub fn pairs(&mut self) -> Result<Vec<(String, String)>, Refused> {
        let mut pairs = Vec::new();
        while !self.is_empty() {
            pairs.push((self.text()?.to_owned(), self.text()?.to_owned()));
        }
        Ok(pairs)
    }

    /// The same arguments, to be taken once more.
    pub fn again(&self) -> Self {
        Self(self.0)
    }

    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A number as an item.
pub fn number(number: impl ToString) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// A flag as an item.
pub fn flag(flag: bool) -> Vec<u8> {
    number(u8::from(flag))
}

/// An error that is not retryable.
pub fn error(code: &str, message: String) -> Error {
    Error {
        code: code.into(),
        message,
        retryable: false,
    }
}

/// What is no script.
pub fn bad() -> Refused {
    Refused::Call(invalid())
}

/// A handle that is not there, or of another kind.
pub fn no_handle(number: u64) -> Refused {
    error(
        "no-handle",
        format!("{number} is no handle that takes this"),
    )
    .into()
}

fn invalid() -> Error {
    error("invalid-payload", "this is no script".into())
}

fn ok(values: Values) -> Vec<u8> {
    form::list(std::iter::once(b"ok".to_vec()).chain(values))
}

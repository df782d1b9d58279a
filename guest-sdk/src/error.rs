//! Why something failed.

use std::borrow::Cow;
use std::fmt;

/// The result of most functions here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the host, or one that a guest gives to its caller.
///
/// `?` works on every function of this crate, because a handler returns this type. For errors of your own,
/// implement `From<YourError> for Error` and `?` works on them too:
///
/// ```
/// use quarry_guest::{Error, Result};
///
/// enum BankError { Overdraft { balance: u64, amount: u64 } }
///
/// impl From<BankError> for Error {
///     fn from(error: BankError) -> Self {
///         match error {
///             BankError::Overdraft { balance, amount } => {
///                 Error::new("overdraft", format!("the account has {balance}, and {amount} were asked for"))
///             }
///         }
///     }
/// }
///
/// fn withdraw(balance: u64, amount: u64) -> Result<u64, BankError> {
///     balance.checked_sub(amount).ok_or(BankError::Overdraft { balance, amount })
/// }
///
/// fn handler() -> Result<u64> {
///     Ok(withdraw(10, 20)?)
/// }
/// assert_eq!(handler().unwrap_err().code(), "overdraft");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    code: Cow<'static, str>,
    message: String,
    retryable: bool,
}

impl Error {
    /// An error of the guest's own.
    ///
    /// `code` is stable and for programs: up to 64 bytes of `a-z`, `0-9` and `-`. `message` is for a person, names the
    /// thing and the value, and may have 8 KiB; more is cut.
    pub fn new(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Error {
            code: code.into(),
            message: message.into(),
            retryable: false,
        }
    }

    /// The same error, saying that the same request may succeed when it is made again.
    pub fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }

    /// The guest has no such method. Code `unknown-method`.
    pub fn unknown_method(method: &str) -> Self {
        Error::new("unknown-method", format!("there is no method `{method}`"))
    }

    /// The method needs a routing key, and the caller named a shard. Code `missing-key`.
    pub fn missing_key(method: &str) -> Self {
        Error::new(
            "missing-key",
            format!("`{method}` needs a key: call it with a key, not with a shard"),
        )
    }

    /// The payload is not what the method takes. Code `invalid-payload`.
    pub fn invalid_payload(why: impl fmt::Display) -> Self {
        Error::new(
            "invalid-payload",
            format!("the payload was not understood: {why}"),
        )
    }

    /// A key or value of the database is not of the type it was read as. Code `invalid-data`.
    pub fn invalid_data(why: impl fmt::Display) -> Self {
        Error::new(
            "invalid-data",
            format!("stored data was not understood: {why}"),
        )
    }

    /// The code, in kebab case.
    ///
    /// The host's own are `invalid-key`, `invalid-value`, `invalid-argument`, `limit`, `conflict`, `read-only`,
    /// `no-merge-operator`, `closed`, `fenced`, `unavailable` and `internal`.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// The text for a person.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Whether the same request may succeed when it is made again.
    pub fn is_retryable(&self) -> bool {
        self.retryable
    }

    /// Whether a transaction met another write. [`db::transaction`](crate::db::transaction) begins again by itself.
    pub fn is_conflict(&self) -> bool {
        self.code == "conflict"
    }

    /// Whether this instance is about to be stopped (`closed`, `fenced`): there is nothing left to do.
    pub fn is_final(&self) -> bool {
        self.code == "closed" || self.code == "fenced"
    }

    #[cfg(target_family = "wasm")]
    pub(crate) fn from_parts(code: String, message: String, retryable: bool) -> Self {
        Error {
            code: code.into(),
            message,
            retryable,
        }
    }

    #[cfg(target_family = "wasm")]
    pub(crate) fn into_parts(self) -> (String, String, bool) {
        (self.code.into_owned(), self.message, self.retryable)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for Error {}

/// JSON that was not understood. Code `invalid-json`.
impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Error::new("invalid-json", error.to_string())
    }
}

//! Where a book's data lies: keys that begin with the length of the book's name (so that no book's keys begin with another's), the name, and
//! a byte for the kind.

use quarry_guest::codec::{FromKey, Key};
use quarry_guest::{Call, Error, Result};

use crate::refusal::Refusal;

/// The longest name of an account or a book, and the longest id, in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 256;

/// The keys of a book.
pub(crate) struct Book {
    prefix: Vec<u8>,
}

impl Book {
    /// The book that a call names.
    pub(crate) fn of(call: &Call) -> Result<Self> {
        let name = call.required_key()?;
        check("book", name)?;
        Ok(Book {
            prefix: (length(name), name).to_key().into_owned(),
        })
    }

    /// All accounts.
    pub(crate) fn accounts(&self) -> Vec<u8> {
        self.key(b'a', &[])
    }

    /// An account's record.
    pub(crate) fn account(&self, account: &str) -> Result<Vec<u8>, Refusal> {
        check("account", account.as_bytes())?;
        Ok(self.key(b'a', account.as_bytes()))
    }

    /// An account's balance, which is merged.
    pub(crate) fn balance(&self, account: &str) -> Result<Vec<u8>, Refusal> {
        check("account", account.as_bytes())?;
        Ok(self.key(b'b', account.as_bytes()))
    }

    /// The number of the last entry.
    pub(crate) fn last_entry(&self) -> Vec<u8> {
        self.key(b'n', &[])
    }

    /// An entry of the journal.
    pub(crate) fn entry(&self, entry: u64) -> Vec<u8> {
        self.key(b'e', &entry.to_key())
    }

    /// Which entry has an id.
    pub(crate) fn id(&self, id: &str) -> Result<Vec<u8>, Refusal> {
        check("id", id.as_bytes())?;
        Ok(self.key(b'i', id.as_bytes()))
    }

    /// What an entry did to an account.
    pub(crate) fn leg(&self, account: &str, entry: u64) -> Result<Vec<u8>, Refusal> {
        check("account", account.as_bytes())?;
        let name = account.as_bytes();
        Ok([
            self.key(b'l', &(length(name), name).to_key()),
            entry.to_key().into_owned(),
        ]
        .concat())
    }

    /// The key behind all that entries did to an account.
    pub(crate) fn legs_end(&self, account: &str) -> Result<Vec<u8>, Refusal> {
        self.leg(account, u64::MAX)
    }

    /// The entry of a leg's key.
    pub(crate) fn entry_of_leg(key: &[u8]) -> Result<u64> {
        u64::from_key(&key[key.len().saturating_sub(size_of::<u64>())..])
    }

    fn key(&self, kind: u8, rest: &[u8]) -> Vec<u8> {
        [&self.prefix[..], &[kind], rest].concat()
    }
}

fn check(what: &'static str, name: &[u8]) -> Result<(), Refusal> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        return Err(Refusal::Name(what, name.len()));
    }
    Ok(())
}

/// Names were checked: they are shorter than a u16 can say.
fn length(name: &[u8]) -> u16 {
    u16::try_from(name.len()).unwrap_or(u16::MAX)
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Error::new(refusal.code(), refusal.to_string())
    }
}

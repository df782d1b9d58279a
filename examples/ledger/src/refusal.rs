//! What the ledger refuses.

use std::fmt;

use crate::book::MAX_NAME_BYTES;
use crate::{Leg, MAX_AMOUNT, MAX_ENTRIES, MAX_LEGS, MAX_MEMO_BYTES};

/// A call that changed nothing.
#[derive(Debug)]
pub(crate) enum Refusal {
    AccountExists(String),
    UnknownAccount(String),
    /// What has the name, and how long it is.
    Name(&'static str, usize),
    Floor(i64),
    Legs(usize),
    Memo(usize),
    Amount(Leg),
    TwoLegs(String),
    Unbalanced(i64),
    /// The leg, the balance before it, and the floor.
    Overdraft(Leg, i64, i64),
    IdTaken(String, u64),
    BookFull,
}

impl Refusal {
    /// The stable code for programs.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Refusal::AccountExists(_) => "account-exists",
            Refusal::UnknownAccount(_) => "unknown-account",
            Refusal::Name(..) => "invalid-name",
            Refusal::Floor(_) => "invalid-floor",
            Refusal::Legs(_) | Refusal::Memo(_) | Refusal::Amount(_) | Refusal::TwoLegs(_) => {
                "invalid-entry"
            }
            Refusal::Unbalanced(_) => "unbalanced",
            Refusal::Overdraft(..) => "overdraft",
            Refusal::IdTaken(..) => "id-taken",
            Refusal::BookFull => "book-full",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::AccountExists(account) => {
                write!(f, "there is an account `{account}` with another floor")
            }
            Refusal::UnknownAccount(account) => write!(f, "there is no account `{account}`"),
            Refusal::Name(what, len) => {
                write!(
                    f,
                    "a name of {what} has 1 to {MAX_NAME_BYTES} bytes, not {len}"
                )
            }
            Refusal::Floor(floor) => write!(
                f,
                "a floor is zero or below, as an account begins at zero; not {floor}"
            ),
            Refusal::Legs(legs) => write!(f, "an entry has 2 to {MAX_LEGS} legs, not {legs}"),
            Refusal::Memo(len) => {
                write!(f, "a memo has up to {MAX_MEMO_BYTES} bytes, not {len}")
            }
            Refusal::Amount(Leg { account, amount }) => write!(
                f,
                "the amount for `{account}` is 1 to {MAX_AMOUNT}, or the same below zero; not {amount}"
            ),
            Refusal::TwoLegs(account) => {
                write!(f, "account `{account}` has two legs: add them up")
            }
            Refusal::Unbalanced(sum) => write!(
                f,
                "the amounts of an entry add up to zero, and these to {sum}"
            ),
            Refusal::Overdraft(Leg { account, amount }, balance, floor) => write!(
                f,
                "account `{account}` has {balance} and its floor is {floor}: {} cannot be taken from it",
                amount.unsigned_abs()
            ),
            Refusal::IdTaken(id, entry) => {
                write!(
                    f,
                    "id `{id}` belongs to entry {entry}, which is another one"
                )
            }
            Refusal::BookFull => write!(f, "the book has its {MAX_ENTRIES} entries"),
        }
    }
}

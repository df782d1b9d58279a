//! Books by double entry: whatever an entry takes from one account, it gives to others.
//!
//! The routing key of a call is the book. All that a book has lies in the shard of its key, so an entry with any number of legs is one
//! transaction.
//!
//! | method | payload | reply |
//! |---|---|---|
//! | `open` | `{"account":"ann","floor":0}` | the account, in the same form |
//! | `post` | `{"id":"order-17","memo":"tea","legs":[{"account":"ann","amount":-300},{"account":"shop","amount":300}]}` | the entry with its number |
//! | `balance`, also as a query | `{"account":"ann"}` | `{"account":"ann","balance":-300}` |
//! | `statement`, also as a query | `{"account":"ann","after":0,"limit":100}` | a line of JSON per leg, the oldest first |
//! | `audit`, also as a query | - | `{"accounts":2,"entries":1,"sum":0,"agrees":true}` |
//!
//! What holds at every moment, and after every crash:
//!
//! 1. The balances of a book add up to zero.
//! 2. A balance is the sum of its account's legs in the journal.
//! 3. No account with a floor is below it.
//! 4. An `id` has been posted once, however often it was sent.
//!
//! The cluster's merge operator has to be `i64-add`: a balance is changed by merging an amount into it, and only read where there is a
//! floor to keep.

mod book;
mod refusal;

use quarry_guest::db::{Isolation, Order};
use quarry_guest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::book::Book;
use crate::refusal::Refusal;

/// The largest amount of a leg, either way.
const MAX_AMOUNT: i64 = 1_000_000_000;
/// Entries of a book at most. An account is in an entry once, so no sum of legs leaves an i64.
const MAX_ENTRIES: u64 = 1 << 33;
const _: () = assert!(MAX_ENTRIES as i128 * MAX_AMOUNT as i128 <= i64::MAX as i128);
/// Legs of an entry at most.
const MAX_LEGS: usize = 64;
/// The longest memo, in bytes.
const MAX_MEMO_BYTES: usize = 1_024;
/// Legs of a statement that does not say how many it wants, and at most.
const STATEMENT: (usize, usize) = (100, 1_000);

/// An account. One without a floor may be owed any sum: where money comes from, and where it goes.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Account {
    account: String,
    /// The lowest balance that an entry may leave, zero or below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    floor: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Leg {
    account: String,
    amount: i64,
}

/// What is posted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Posting {
    /// Chosen by the caller: sent again with the same content it changes nothing.
    id: String,
    #[serde(default)]
    memo: String,
    legs: Vec<Leg>,
}

/// A posting in the journal.
#[derive(Debug, Serialize)]
struct Entry<'a> {
    entry: u64,
    #[serde(flatten)]
    posting: &'a Posting,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    account: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pages {
    account: String,
    /// The entry after which to begin.
    #[serde(default)]
    after: u64,
    limit: Option<usize>,
}

#[derive(Debug, Serialize)]
struct Audit {
    accounts: u64,
    entries: u64,
    sum: i64,
    agrees: bool,
}

/// The guest of a shard. It has no memory: everything is in the database.
#[derive(Default)]
pub struct Ledger;

impl Guest for Ledger {
    fn call(&mut self, call: Call) -> Result<Reply> {
        match call.method() {
            "open" => open(&Book::of(&call)?, &call.json()?),
            "post" => post(&Book::of(&call)?, &call.json()?),
            // What can be asked in a query can be asked in a call: then it waits its turn behind the writes.
            _ => self.query(call),
        }
    }

    fn query(&self, call: Call) -> Result<Reply> {
        match call.method() {
            "balance" => balance(&Book::of(&call)?, &call.json()?),
            "statement" => statement(&Book::of(&call)?, &call.json()?),
            "audit" => audit(&Book::of(&call)?),
            other => Err(Error::unknown_method(other)),
        }
    }
}

quarry_guest::export!(Ledger, queries);

fn open(book: &Book, account: &Account) -> Result<Reply> {
    let key = book.account(&account.account)?;
    if let Some(floor) = account.floor
        && floor > 0
    {
        return Err(Refusal::Floor(floor).into());
    }
    db::transaction(Isolation::Serializable, |tx| {
        match tx.get::<Json<Account>>(&key)? {
            // Opened again as it is: a caller that missed the reply may ask twice.
            Some(Json(there)) if there == *account => Ok(()),
            Some(_) => Err(Refusal::AccountExists(account.account.clone()).into()),
            None => {
                tx.put(&key, Json(account))?;
                tx.put(book.balance(&account.account)?, 0_i64)
            }
        }
    })?;
    Reply::json(account)
}

fn post(book: &Book, posting: &Posting) -> Result<Reply> {
    check(posting)?;
    let id = book.id(&posting.id)?;
    let entry = db::transaction(Isolation::Serializable, |tx| {
        if let Some(entry) = tx.get::<u64>(&id)? {
            let there = tx.get::<Json<Posting>>(book.entry(entry))?;
            return match there {
                Some(Json(there)) if there == *posting => Ok(entry),
                _ => Err(Refusal::IdTaken(posting.id.clone(), entry).into()),
            };
        }
        let entry = tx.get::<u64>(book.last_entry())?.unwrap_or(0) + 1;
        if entry > MAX_ENTRIES {
            return Err(Refusal::BookFull.into());
        }
        for leg in &posting.legs {
            let account: Account = tx
                .get::<Json<Account>>(book.account(&leg.account)?)?
                .ok_or_else(|| Refusal::UnknownAccount(leg.account.clone()))?
                .0;
            let balance = book.balance(&leg.account)?;
            tx.merge(&balance, leg.amount)?;
            // A transaction sees its own merges. Without a floor there is nothing to see: the balance is never read.
            if let Some(floor) = account.floor
                && leg.amount < 0
                && let Some(after) = tx.get::<i64>(&balance)?
                && after < floor
            {
                return Err(Refusal::Overdraft(leg.clone(), after - leg.amount, floor).into());
            }
            tx.put(book.leg(&leg.account, entry)?, leg.amount)?;
        }
        tx.put(book.entry(entry), Json(posting))?;
        tx.put(&id, entry)?;
        tx.put(book.last_entry(), entry)?;
        Ok(entry)
    })?;
    Reply::json(&Entry { entry, posting })
}

/// What can be said of a posting by itself.
fn check(posting: &Posting) -> Result<(), Refusal> {
    let legs = &posting.legs;
    if legs.len() < 2 || legs.len() > MAX_LEGS {
        return Err(Refusal::Legs(legs.len()));
    }
    if posting.memo.len() > MAX_MEMO_BYTES {
        return Err(Refusal::Memo(posting.memo.len()));
    }
    for (at, leg) in legs.iter().enumerate() {
        if leg.amount == 0 || !(-MAX_AMOUNT..=MAX_AMOUNT).contains(&leg.amount) {
            return Err(Refusal::Amount(leg.clone()));
        }
        if legs[..at].iter().any(|other| other.account == leg.account) {
            return Err(Refusal::TwoLegs(leg.account.clone()));
        }
    }
    match legs.iter().map(|leg| leg.amount).sum() {
        0 => Ok(()),
        sum => Err(Refusal::Unbalanced(sum)),
    }
}

fn balance(book: &Book, Which { account }: &Which) -> Result<Reply> {
    let amount: i64 =
        db::get(book.balance(account)?)?.ok_or_else(|| Refusal::UnknownAccount(account.clone()))?;
    Reply::json(&serde_json::json!({"account": account, "balance": amount}))
}

fn statement(book: &Book, wanted: &Pages) -> Result<Reply> {
    let limit = wanted.limit.unwrap_or(STATEMENT.0);
    if limit == 0 || limit > STATEMENT.1 {
        let why = format!("`limit` is 1 to {}, not {limit}", STATEMENT.1);
        return Err(Error::invalid_payload(why));
    }
    let account = &wanted.account;
    let view = db::snapshot()?;
    if view.get::<Vec<u8>>(book.account(account)?)?.is_none() {
        return Err(Refusal::UnknownAccount(account.clone()).into());
    }
    let from = book.leg(account, wanted.after.saturating_add(1))?;
    let mut lines = String::new();
    for leg in view
        .scan(from..book.legs_end(account)?, Order::Ascending)?
        .take(limit)
    {
        let leg = leg?;
        let entry = Book::entry_of_leg(&leg.key)?;
        let amount: i64 = leg.into_value()?;
        lines += &format!("{{\"entry\":{entry},\"amount\":{amount}}}\n");
    }
    Ok(Reply::bytes(lines).content_type("application/jsonl"))
}

/// Adds all up again from the journal's legs, over one moment of the database, and compares.
fn audit(book: &Book) -> Result<Reply> {
    let view = db::snapshot()?;
    let mut audit = Audit {
        accounts: 0,
        entries: view.get(book.last_entry())?.unwrap_or(0),
        sum: 0,
        agrees: true,
    };
    for account in view
        .scan_prefix(book.accounts(), Order::Ascending)?
        .typed::<Vec<u8>, Json<Account>>()
    {
        let (_, Json(Account { account, floor })) = account?;
        let balance: i64 = view.get(book.balance(&account)?)?.unwrap_or(0);
        let mut legs = 0_i64;
        for leg in view.scan(
            book.leg(&account, 0)?..book.legs_end(&account)?,
            Order::Ascending,
        )? {
            legs = legs.wrapping_add(leg?.into_value()?);
        }
        audit.accounts += 1;
        audit.sum = audit.sum.wrapping_add(balance);
        audit.agrees &= legs == balance && floor.is_none_or(|floor| balance >= floor);
    }
    audit.agrees &= audit.sum == 0;
    Reply::json(&audit)
}

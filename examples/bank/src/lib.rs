//! Accounts, and money that moves between them.
//!
//! The routing key of a call is the bank. All accounts of a bank live in the shard of its key, so a transfer is one
//! transaction, and the sum of a bank's accounts only changes when an account is opened.
//!
//! | method | payload | reply |
//! |---|---|---|
//! | `open` | `{"account":"alice","balance":100}` | the account, in the same form; `account-exists` where there is one |
//! | `transfer` | `{"from":"alice","to":"bob","amount":10}` | `{"from":90,"to":110}`: the balances after it |
//! | `total`, also as a query | - | `{"accounts":2,"total":200}` |
//!
//! Errors of its own: `missing-key`, `invalid-payload`, `invalid-bank`, `invalid-account`, `account-exists`, `unknown-account`, `overdraft`,
//! `overflow`.

use quarry_guest::codec::Key;
use quarry_guest::db::{Isolation, Order, Transaction};
use quarry_guest::prelude::*;
use serde::{Deserialize, Serialize};

/// The longest name of an account, in bytes.
const MAX_NAME_BYTES: usize = 256;
/// The longest name of a bank, in bytes.
const MAX_BANK_BYTES: usize = 1_024;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Account {
    account: String,
    balance: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Transfer {
    from: String,
    to: String,
    amount: u64,
}

#[derive(Debug, Serialize)]
struct Balances {
    from: u64,
    to: u64,
}

#[derive(Debug, Serialize)]
struct Total {
    accounts: u64,
    total: u128,
}

/// What the bank refuses.
#[derive(Debug)]
enum Refusal {
    AccountExists(String),
    UnknownAccount(String),
    InvalidAccount(String),
    Overdraft {
        account: String,
        balance: u64,
        amount: u64,
    },
    Overflow {
        account: String,
        amount: u64,
    },
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::AccountExists(account) => Error::new(
                "account-exists",
                format!("there is an account `{account}` already"),
            ),
            Refusal::UnknownAccount(account) => Error::new(
                "unknown-account",
                format!("there is no account `{account}`"),
            ),
            Refusal::InvalidAccount(why) => Error::new("invalid-account", why),
            Refusal::Overdraft {
                account,
                balance,
                amount,
            } => Error::new(
                "overdraft",
                format!("account `{account}` has {balance}, and {amount} were asked for"),
            ),
            Refusal::Overflow { account, amount } => Error::new(
                "overflow",
                format!(
                    "account `{account}` cannot hold {amount} more: it ends at {}",
                    u64::MAX
                ),
            ),
        }
    }
}

/// The guest of a shard. It has no memory: everything is in the database.
#[derive(Default)]
pub struct Bank;

impl Guest for Bank {
    fn call(&mut self, call: Call) -> Result<Reply> {
        match call.method() {
            "open" => open(&Accounts::of(&call)?, &call.json()?),
            "transfer" => transfer(&Accounts::of(&call)?, &call.json()?),
            // What can be asked in a query can be asked in a call: then it waits its turn behind the writes.
            _ => self.query(call),
        }
    }

    fn query(&self, call: Call) -> Result<Reply> {
        match call.method() {
            "total" => total(&Accounts::of(&call)?),
            other => Err(Error::unknown_method(other)),
        }
    }
}

quarry_guest::export!(Bank, queries);

fn open(accounts: &Accounts, account: &Account) -> Result<Reply> {
    let key = accounts.key(&account.account)?;
    db::transaction(Isolation::Serializable, |tx| {
        if tx.get::<u64>(&key)?.is_some() {
            return Err(Refusal::AccountExists(account.account.clone()).into());
        }
        tx.put(&key, account.balance)
    })?;
    Reply::json(account)
}

fn transfer(accounts: &Accounts, transfer: &Transfer) -> Result<Reply> {
    let (from_key, to_key) = (accounts.key(&transfer.from)?, accounts.key(&transfer.to)?);
    let amount = transfer.amount;
    let balances = db::transaction(Isolation::Serializable, |tx| {
        let from = balance(tx, &from_key, &transfer.from)?;
        balance(tx, &to_key, &transfer.to)?;
        let from = from.checked_sub(amount).ok_or_else(|| Refusal::Overdraft {
            account: transfer.from.clone(),
            balance: from,
            amount,
        })?;
        tx.put(&from_key, from)?;
        // Read after the first write, so that a transfer to the same account changes nothing.
        let to = balance(tx, &to_key, &transfer.to)?
            .checked_add(amount)
            .ok_or_else(|| Refusal::Overflow {
                account: transfer.to.clone(),
                amount,
            })?;
        tx.put(&to_key, to)?;
        Ok(Balances {
            from: balance(tx, &from_key, &transfer.from)?,
            to,
        })
    })?;
    Reply::json(&balances)
}

fn total(accounts: &Accounts) -> Result<Reply> {
    let mut sum = Total {
        accounts: 0,
        total: 0,
    };
    for account in db::scan_prefix(&accounts.prefix, Order::Ascending)?.typed::<Vec<u8>, u64>() {
        let (_, balance) = account?;
        sum.accounts += 1;
        sum.total += u128::from(balance);
    }
    Reply::json(&sum)
}

fn balance(tx: &Transaction, key: &[u8], account: &str) -> Result<u64> {
    Ok(tx
        .get(key)?
        .ok_or_else(|| Refusal::UnknownAccount(account.to_owned()))?)
}

/// The keys of a bank's accounts: the length of the bank's name (so that no bank's keys begin with another's), its name,
/// and the account's name.
struct Accounts {
    prefix: Vec<u8>,
}

impl Accounts {
    fn of(call: &Call) -> Result<Self> {
        let bank = call.required_key()?;
        match u16::try_from(bank.len()) {
            Ok(len) if bank.len() <= MAX_BANK_BYTES => Ok(Accounts {
                prefix: (len, bank).to_key().into_owned(),
            }),
            _ => {
                let why = format!(
                    "the bank's name has {} bytes, and at most {MAX_BANK_BYTES} are allowed",
                    bank.len()
                );
                Err(Error::new("invalid-bank", why))
            }
        }
    }

    fn key(&self, account: &str) -> Result<Vec<u8>, Refusal> {
        if account.is_empty() || account.len() > MAX_NAME_BYTES {
            let why = format!(
                "an account's name has 1 to {MAX_NAME_BYTES} bytes, not {}",
                account.len()
            );
            return Err(Refusal::InvalidAccount(why));
        }
        Ok([&self.prefix, account.as_bytes()].concat())
    }
}

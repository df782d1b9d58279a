//! A native guest with registers and a bank, the model of each, and how a client's calls become a history.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use quarry::call::{CallError, CallErrorKind, CallReply};
use quarry::db::Op as Write;
use quarry::guest::native::{self, Logic};
use quarry::guest::{GuestError, InstanceContext, Module, Reply, Request};

use super::linear::{Done, Model};

pub const ACCOUNTS: usize = 4;
/// What each account has at the beginning.
pub const BALANCE: u64 = 1_000_000;

pub struct Ledger;

pub fn module() -> Arc<dyn Module> {
    native::module("ledger", 1, |_| Ledger)
}

#[async_trait]
impl Logic for Ledger {
    /// `put` and `get` of the register of a key; of the bank of a key `transfer` (`from to amount`) and `balances`. Every account has a key
    /// of its own in the database, so that a transfer which is not whole shows.
    async fn call(
        &mut self,
        context: &InstanceContext,
        request: &Request,
    ) -> Result<Reply, GuestError> {
        let key = request.key.clone().unwrap_or_default();
        let db = &context.db;
        match request.method.as_str() {
            "put" => {
                db.put(key, request.payload.clone()).await?;
                Ok(Reply::new(""))
            }
            "get" => Ok(Reply::new(db.view().get(&key).await?.unwrap_or_default())),
            "transfer" => {
                let words = numbers(&request.payload);
                let (from, to) = (words[0] as usize, words[1] as usize);
                let before = balances(context, &key).await?;
                let (after, answer) = Bank::run(&before, &BankOp::Transfer(from, to, words[2]));
                let writes = [from, to]
                    .map(|account| Write::put(name(&key, account), after[account].to_string()));
                db.write(writes.to_vec()).await?;
                Ok(Reply::new(text(&answer)))
            }
            "balances" => Ok(Reply::new(text(&balances(context, &key).await?))),
            method => Err(GuestError::new("unknown-method", method)),
        }
    }
}

async fn balances(context: &InstanceContext, key: &Bytes) -> Result<Vec<u64>, GuestError> {
    let mut balances = Vec::new();
    for account in 0..ACCOUNTS {
        let found = context.db.view().get(&name(key, account)).await?;
        balances.push(found.map_or(BALANCE, |value| numbers(&value)[0]));
    }
    Ok(balances)
}

fn name(key: &Bytes, account: usize) -> Bytes {
    [key, &b"/"[..], account.to_string().as_bytes()]
        .concat()
        .into()
}

fn text(numbers: &[u64]) -> String {
    let words: Vec<_> = numbers.iter().map(u64::to_string).collect();
    words.join(" ")
}

fn numbers(text: &[u8]) -> Vec<u64> {
    let text = std::str::from_utf8(text).expect("text");
    text.split_whitespace()
        .map(|word| word.parse().expect("a number"))
        .collect()
}

/// A register; an empty answer to `get` is one that was never written.
pub struct Register;

#[derive(Debug, Clone)]
pub enum RegisterOp {
    Put(String),
    Get,
}

impl Model for Register {
    type State = String;
    type Op = RegisterOp;
    type Answer = String;

    fn run(state: &String, op: &RegisterOp) -> (String, String) {
        match op {
            RegisterOp::Put(value) => (value.clone(), String::new()),
            RegisterOp::Get => (state.clone(), state.clone()),
        }
    }
}

/// The balances of all accounts of a bank. A transfer answers with both balances after it, also where there was too little.
pub struct Bank;

#[derive(Debug, Clone)]
pub enum BankOp {
    Transfer(usize, usize, u64),
    Balances,
}

impl Model for Bank {
    type State = Vec<u64>;
    type Op = BankOp;
    type Answer = Vec<u64>;

    fn run(state: &Vec<u64>, op: &BankOp) -> (Vec<u64>, Vec<u64>) {
        match *op {
            BankOp::Balances => (state.clone(), state.clone()),
            BankOp::Transfer(from, to, amount) => {
                let mut after = state.clone();
                if after[from] >= amount {
                    after[from] -= amount;
                    after[to] += amount;
                }
                let answer = vec![after[from], after[to]];
                (after, answer)
            }
        }
    }
}

/// An operation as a call.
pub trait Sent {
    type Answer;
    fn method(&self) -> &'static str;
    fn payload(&self) -> String;
    fn answer(reply: &CallReply) -> Self::Answer;
}

impl Sent for RegisterOp {
    type Answer = String;

    fn method(&self) -> &'static str {
        match self {
            Self::Put(_) => "put",
            Self::Get => "get",
        }
    }

    fn payload(&self) -> String {
        match self {
            Self::Put(value) => value.clone(),
            Self::Get => String::new(),
        }
    }

    fn answer(reply: &CallReply) -> String {
        String::from_utf8_lossy(&reply.payload).into_owned()
    }
}

impl Sent for BankOp {
    type Answer = Vec<u64>;

    fn method(&self) -> &'static str {
        match self {
            Self::Transfer(..) => "transfer",
            Self::Balances => "balances",
        }
    }

    fn payload(&self) -> String {
        match self {
            Self::Transfer(from, to, amount) => format!("{from} {to} {amount}"),
            Self::Balances => String::new(),
        }
    }

    fn answer(reply: &CallReply) -> Vec<u64> {
        numbers(&reply.payload)
    }
}

/// The time of histories: one counter for all clients.
#[derive(Default)]
pub struct Order(AtomicU64);

impl Order {
    /// The next moment.
    pub fn tick(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }
}

/// What a call that began at `began` has become; none where it certainly did not run.
pub fn done<O: Sent>(
    order: &Order,
    began: u64,
    op: O,
    reply: Result<CallReply, CallError>,
) -> Option<Done<O, O::Answer>> {
    let ended = match reply {
        Ok(reply) => Some((order.tick(), O::answer(&reply))),
        Err(error) if error.never_ran() => return None,
        Err(error) => {
            let unknown = matches!(
                error.kind,
                CallErrorKind::Timeout | CallErrorKind::Unknown | CallErrorKind::Guest
            );
            // A guest's error is one of its database's, which was cut off: what it wrote may be there.
            assert!(unknown, "{}: {error:?}", op.method());
            None
        }
    };
    Some(Done { op, began, ended })
}

#[cfg(test)]
mod tests {
    use super::super::linear::{Refusal, check};
    use super::*;

    const TRANSFER: BankOp = BankOp::Transfer(0, 1, 10);

    /// What two accounts show after a transfer between them that overlaps or precedes; the others never change.
    fn shows(
        transfer_ended: Option<u64>,
        began: u64,
        first: u64,
        second: u64,
    ) -> Result<(), Refusal> {
        let (first, second) = (BALANCE - first, BALANCE + second);
        let transfer = Done {
            op: TRANSFER,
            began: 1,
            ended: transfer_ended.map(|at| (at, vec![BALANCE - 10, BALANCE + 10])),
        };
        let seen = Done {
            op: BankOp::Balances,
            began,
            ended: Some((began + 1, vec![first, second, BALANCE, BALANCE])),
        };
        check::<Bank>(&vec![BALANCE; ACCOUNTS], &vec![transfer, seen])
    }

    #[test]
    fn a_transfer_is_seen_whole_or_not_at_all() {
        for (ended, began, first, second, good) in [
            (Some(2), 3, 10, 10, true),
            (Some(9), 3, 10, 10, true),
            (Some(9), 3, 0, 0, true),
            (None, 3, 10, 10, true),
            (None, 3, 0, 0, true),
            // Lost, torn, made twice.
            (Some(2), 3, 0, 0, false),
            (Some(2), 3, 10, 0, false),
            (Some(9), 3, 0, 10, false),
            (None, 3, 10, 0, false),
            (None, 3, 20, 20, false),
        ] {
            let verdict = shows(ended, began, first, second);
            let case = (ended, began, first, second);
            assert_eq!(verdict.is_ok(), good, "{case:?}: {verdict:?}");
        }
    }
}

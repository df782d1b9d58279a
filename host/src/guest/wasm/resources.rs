//! What a call has open: cursors, snapshots and transactions.
//!
//! They belong to the call: whatever a guest leaves open is closed when the call returns, since some languages drop late. A guest
//! may keep a handle for longer; handles are never given out twice in 2^32, so an old one finds nothing and reads as `closed`.

use crate::db::{Cursor, Error, ReadView, Transaction};
use crate::guest::GuestError;

/// The open things of a call, in the order of opening.
pub(super) struct Resources {
    open: Vec<(u32, Open)>,
    next: u32,
    limit: usize,
}

enum Open {
    Cursor(Cursor),
    Snapshot(ReadView),
    Transaction(Transaction),
}

impl Resources {
    pub(super) fn new(limit: usize) -> Self {
        Self { open: Vec::new(), next: 0, limit }
    }

    /// Closes everything.
    pub(super) fn close_all(&mut self) {
        if !self.open.is_empty() {
            self.open.clear();
        }
    }

    /// Checks that one more may be opened; before the work of opening it.
    pub(super) fn check_room(&self) -> Result<(), Error> {
        let limit = self.limit;
        if self.open.len() < limit {
            return Ok(());
        }
        Err(GuestError::new(
            "limit",
            format!("{limit} cursors, snapshots and transactions are open in this call (limits.open_resources); drop some first"),
        ))
    }

    pub(super) fn add_cursor(&mut self, cursor: Cursor) -> u32 {
        self.add(Open::Cursor(cursor))
    }

    pub(super) fn add_snapshot(&mut self, view: ReadView) -> u32 {
        self.add(Open::Snapshot(view))
    }

    pub(super) fn add_transaction(&mut self, transaction: Transaction) -> u32 {
        self.add(Open::Transaction(transaction))
    }

    pub(super) fn cursor(&mut self, handle: u32) -> Result<&mut Cursor, Error> {
        match self.get(handle) {
            Some(Open::Cursor(cursor)) => Ok(cursor),
            _ => Err(closed("cursor")),
        }
    }

    pub(super) fn snapshot(&mut self, handle: u32) -> Result<&ReadView, Error> {
        match self.get(handle) {
            Some(Open::Snapshot(view)) => Ok(view),
            _ => Err(closed("snapshot")),
        }
    }

    pub(super) fn transaction(&mut self, handle: u32) -> Result<&mut Transaction, Error> {
        match self.get(handle) {
            Some(Open::Transaction(transaction)) => Ok(transaction),
            _ => Err(closed("transaction")),
        }
    }

    /// Closes one; nothing happens when its call closed it before.
    pub(super) fn close(&mut self, handle: u32) {
        if let Some(at) = self.open.iter().rposition(|(known, _)| *known == handle) {
            self.open.remove(at);
        }
    }

    fn add(&mut self, open: Open) -> u32 {
        let handle = self.next;
        self.next = self.next.wrapping_add(1);
        self.open.push((handle, open));
        handle
    }

    fn get(&mut self, handle: u32) -> Option<&mut Open> {
        // The newest is used most, and there are few.
        self.open.iter_mut().rev().find(|(known, _)| *known == handle).map(|(_, open)| open)
    }
}

fn closed(what: &str) -> Error {
    GuestError::new("closed", format!("the {what} was closed when the call that opened it returned; open another"))
}

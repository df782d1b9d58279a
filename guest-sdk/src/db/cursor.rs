//! Scans, as iterators.

use std::marker::PhantomData;
use std::vec;

use super::Entry;
use crate::codec::{FromKey, FromValue};
use crate::error::Result;
use crate::sys;

/// Entries asked for at first: a scan that is given up soon costs little.
const FIRST_PAGE: u32 = 64;
/// Entries asked for at most. The host ends a page before it grows over 4 MiB.
const LARGEST_PAGE: u32 = 4_096;

/// The entries of a range, in order.
///
/// It fetches them page by page, so a long range needs little memory. It ends with the call that opened it: used later
/// it fails with `closed`. After an error it yields nothing more.
#[derive(Debug)]
pub struct Cursor {
    source: sys::Cursor,
    page: vec::IntoIter<Entry>,
    page_len: u32,
    grows: bool,
    done: bool,
}

impl Cursor {
    pub(super) fn new(source: sys::Cursor) -> Self {
        Cursor {
            source,
            page: Vec::new().into_iter(),
            page_len: FIRST_PAGE,
            grows: true,
            done: false,
        }
    }

    /// Fetches pages of up to `entries` (1 to 10,000) instead of pages that grow from 64 to 4,096.
    pub fn page_len(mut self, entries: u32) -> Self {
        self.page_len = entries.max(1);
        self.grows = false;
        self
    }

    /// The entries as keys of type `K` and values of type `V`.
    pub fn typed<K: FromKey, V: FromValue>(self) -> Typed<K, V> {
        Typed {
            cursor: self,
            types: PhantomData,
        }
    }

    fn fetch(&mut self) -> Result<()> {
        self.page = self.source.next(self.page_len)?.into_iter();
        self.done = self.page.len() == 0;
        if self.grows {
            self.page_len = (self.page_len * 4).min(LARGEST_PAGE);
        }
        Ok(())
    }
}

impl Iterator for Cursor {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.page.len() == 0
            && !self.done
            && let Err(error) = self.fetch()
        {
            self.done = true;
            return Some(Err(error));
        }
        self.page.next().map(Ok)
    }
}

/// A [`Cursor`] whose entries are read as keys of type `K` and values of type `V`.
#[derive(Debug)]
pub struct Typed<K, V> {
    cursor: Cursor,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K: FromKey, V: FromValue> Iterator for Typed<K, V> {
    type Item = Result<(K, V)>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(
            self.cursor
                .next()?
                .and_then(|entry| Ok((entry.key()?, entry.into_value()?))),
        )
    }
}

//! A map that keeps every version, so that any moment of the past can be read.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::world::OP_OVERHEAD_BYTES;
use super::{MergeOperator, World};
use crate::db::Entry;
use crate::error::{Error, Result};
use crate::sys::{OpKind, Stored};

/// How the keys begin that are the host's own, after all others.
pub(crate) const RESERVED: [u8; 8] = [0xff; 8];

/// The shard's data.
#[derive(Debug, Default)]
pub(crate) struct Store {
    /// Versions of a key, oldest first.
    rows: BTreeMap<Vec<u8>, Vec<Version>>,
    last_seq: u64,
}

#[derive(Debug)]
struct Version {
    seq: u64,
    change: Change,
    created_at_ms: i64,
}

/// What a write made of a key.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Put {
        value: Vec<u8>,
        expires_at_ms: Option<i64>,
    },
    Remove,
}

impl Change {
    /// The value, where there is one at `now_ms`.
    pub(crate) fn live(&self, now_ms: i64) -> Option<&[u8]> {
        match self {
            Change::Put {
                expires_at_ms: Some(at),
                ..
            } if *at <= now_ms => None,
            Change::Put { value, .. } => Some(value),
            Change::Remove => None,
        }
    }
}

impl Store {
    pub(crate) fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// The value of a key as of the write `view`.
    pub(crate) fn get(&self, key: &[u8], view: u64, now_ms: i64) -> Option<&[u8]> {
        self.version(key, view)?.change.live(now_ms)
    }

    /// The same with its seq and times.
    pub(crate) fn get_stored(&self, key: &[u8], view: u64, now_ms: i64) -> Option<Stored> {
        let version = self.version(key, view)?;
        let value = version.change.live(now_ms)?.to_vec();
        let expires_at_ms = match version.change {
            Change::Put { expires_at_ms, .. } => expires_at_ms,
            Change::Remove => None,
        };
        Some(Stored {
            value,
            seq: version.seq,
            created_at_ms: version.created_at_ms,
            expires_at_ms,
        })
    }

    /// The entries of a range as of the write `view`, ascending.
    pub(crate) fn scan(&self, span: &Span, view: u64, now_ms: i64) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.rows
            .range::<[u8], _>(span.bounds())
            .filter_map(|(key, _)| Some((key.clone(), self.get(key, view, now_ms)?.to_vec())))
            .collect()
    }

    /// The records of the host as of the write `view`, ascending. No other read shows them.
    pub(crate) fn records(&self, view: u64) -> impl Iterator<Item = (&[u8], &[u8], u64)> {
        let rows = self
            .rows
            .range::<[u8], _>((Bound::Included(&RESERVED[..]), Bound::Unbounded));
        rows.filter_map(move |(key, _)| {
            let version = self.version(key, view)?;
            // They do not expire.
            Some((&**key, version.change.live(i64::MIN)?, version.seq))
        })
    }

    /// Whether a key was written after the write `view`.
    pub(crate) fn changed(&self, key: &[u8], view: u64) -> bool {
        self.rows
            .get(key)
            .and_then(|versions| versions.last())
            .is_some_and(|version| version.seq > view)
    }

    /// Whether a key of a range was written after the write `view`.
    pub(crate) fn range_changed(&self, span: &Span, view: u64) -> bool {
        self.rows
            .range::<[u8], _>(span.bounds())
            .any(|(key, _)| self.changed(key, view))
    }

    /// Applies changes as one write.
    pub(crate) fn commit(&mut self, changes: BTreeMap<Vec<u8>, Change>, now_ms: i64) -> u64 {
        self.last_seq += 1;
        for (key, change) in changes {
            let version = Version {
                seq: self.last_seq,
                change,
                created_at_ms: now_ms,
            };
            self.rows.entry(key).or_default().push(version);
        }
        self.last_seq
    }

    /// Forgets the writes after `seq`. Their numbers are not given out again.
    pub(crate) fn forget_after(&mut self, seq: u64) {
        for versions in self.rows.values_mut() {
            versions.retain(|version| version.seq <= seq);
        }
        self.rows.retain(|_, versions| !versions.is_empty());
    }

    fn version(&self, key: &[u8], view: u64) -> Option<&Version> {
        self.rows
            .get(key)?
            .iter()
            .rev()
            .find(|version| version.seq <= view)
    }
}

/// An operation on a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write<'a> {
    pub(crate) kind: OpKind,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) expires_at_ms: Option<i64>,
}

/// Changes that are not applied yet: of a batch, or of a transaction.
#[derive(Debug, Default)]
pub(crate) struct Stage {
    pub(crate) changes: BTreeMap<Vec<u8>, Change>,
    /// Keys and values handed in so far, and 64 for each operation.
    pub(crate) bytes: usize,
    /// Operations handed in so far.
    pub(crate) ops: usize,
}

impl Stage {
    /// Adds an operation. `existing` is the key's value below the stage, for a merge, and `limit` bounds what comes of it.
    pub(crate) fn add(
        &mut self,
        write: &Write<'_>,
        existing: Option<&[u8]>,
        operator: Option<MergeOperator>,
        limit: usize,
        now_ms: i64,
    ) -> Result<()> {
        let Write {
            kind,
            key,
            value,
            expires_at_ms,
        } = *write;
        let change = match kind {
            OpKind::Put => Change::Put {
                value: value.to_vec(),
                expires_at_ms,
            },
            OpKind::Remove => Change::Remove,
            OpKind::Merge => {
                let Some(operator) = operator else {
                    return Err(Error::new("internal", "a merge was not checked"));
                };
                let existing = match self.changes.get(key) {
                    Some(staged) => staged.live(now_ms),
                    None => existing,
                };
                Change::Put {
                    value: operator.merge(existing, value, limit)?,
                    expires_at_ms: None,
                }
            }
        };
        self.bytes += key.len() + value.len() + OP_OVERHEAD_BYTES;
        self.ops += 1;
        self.changes.insert(key.to_vec(), change);
        Ok(())
    }

    /// Lays the staged changes of a range over its entries.
    pub(crate) fn overlay(
        &self,
        span: &Span,
        entries: &mut BTreeMap<Vec<u8>, Vec<u8>>,
        now_ms: i64,
    ) {
        for (key, change) in self.changes.range::<[u8], _>(span.bounds()) {
            match change.live(now_ms) {
                Some(value) => entries.insert(key.clone(), value.to_vec()),
                None => entries.remove(key),
            };
        }
    }
}

/// A range of keys, from its start (inclusive) to its end (exclusive).
#[derive(Clone, Debug)]
pub(crate) struct Span {
    start: Vec<u8>,
    end: Option<Vec<u8>>,
}

impl Span {
    /// Bytes of its bounds.
    pub(crate) fn size(&self) -> usize {
        self.start.len() + self.end.as_ref().map_or(0, Vec::len)
    }

    pub(crate) fn new(start: Option<Vec<u8>>, end: Option<Vec<u8>>) -> Self {
        Span {
            start: start.unwrap_or_default(),
            end,
        }
    }

    /// The keys that start with `prefix`.
    pub(crate) fn prefix(prefix: &[u8]) -> Self {
        let mut end = prefix.to_vec();
        while end.last() == Some(&u8::MAX) {
            end.pop();
        }
        let end = match end.last_mut() {
            Some(last) => {
                *last += 1;
                Some(end)
            }
            None => None,
        };
        Span {
            start: prefix.to_vec(),
            end,
        }
    }

    /// Fails with `invalid-key` where a bound is longer than a key can be.
    pub(crate) fn check(&self, world: &World) -> Result<()> {
        world.check_bound(Some(&self.start))?;
        world.check_bound(self.end.as_deref())
    }

    /// They end before the records of the host.
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        let ceiling = &RESERVED[..];
        let end = self.end.as_deref().map_or(ceiling, |end| end.min(ceiling));
        // A range that begins after its end is empty; a map would panic.
        let end = end.max(&self.start);
        (Bound::Included(&self.start), Bound::Excluded(end))
    }
}

/// A page of a scan in the asked-for order.
pub(crate) fn entries(map: BTreeMap<Vec<u8>, Vec<u8>>, descending: bool) -> Vec<Entry> {
    let mut entries: Vec<_> = map
        .into_iter()
        .map(|(key, value)| Entry { key, value })
        .collect();
    if descending {
        entries.reverse();
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(value: &str) -> Change {
        Change::Put {
            value: value.into(),
            expires_at_ms: None,
        }
    }

    #[test]
    fn the_past_can_be_read() {
        let mut store = Store::default();
        let first = store.commit(
            BTreeMap::from([(b"a".to_vec(), put("1")), (b"b".to_vec(), put("2"))]),
            0,
        );
        let second = store.commit(BTreeMap::from([(b"a".to_vec(), Change::Remove)]), 0);
        assert_eq!(store.get(b"a", first, 0), Some(&b"1"[..]));
        assert_eq!(store.get(b"a", second, 0), None);
        assert_eq!(store.scan(&Span::new(None, None), first, 0).len(), 2);
        assert_eq!(store.scan(&Span::new(None, None), second, 0).len(), 1);
        assert!(store.changed(b"a", first) && !store.changed(b"b", first));
        store.forget_after(first);
        assert_eq!(store.get(b"a", second, 0), Some(&b"1"[..]));
        assert!(
            store.commit(BTreeMap::new(), 0) > second,
            "a lost number is not given out again"
        );
    }

    #[test]
    fn prefixes_cover_what_starts_with_them() {
        let mut store = Store::default();
        for key in [
            &b"a"[..],
            b"a\xff",
            b"a\xff\xff",
            b"b",
            b"\xff",
            b"\xff\xff",
        ] {
            store.commit(BTreeMap::from([(key.to_vec(), put(""))]), 0);
        }
        for (prefix, wanted) in [
            (&b"a"[..], 3),
            (b"a\xff", 2),
            (b"\xff", 2),
            (b"", 6),
            (b"c", 0),
        ] {
            assert_eq!(
                store.scan(&Span::prefix(prefix), u64::MAX, 0).len(),
                wanted,
                "{prefix:?}"
            );
        }
        let backwards = Span::new(Some(b"b".to_vec()), Some(b"a".to_vec()));
        assert!(store.scan(&backwards, u64::MAX, 0).is_empty());
    }
}

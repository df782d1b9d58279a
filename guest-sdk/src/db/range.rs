//! Ranges of keys.

use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use crate::codec::Key;

/// A range of keys: any of Rust's own.
pub trait KeyRange {
    /// The first key, and the one after the last; none is open.
    fn bounds(self) -> (Option<Vec<u8>>, Option<Vec<u8>>);
}

impl KeyRange for RangeFull {
    fn bounds(self) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
        (None, None)
    }
}

impl<K: Key> KeyRange for Range<K> {
    fn bounds(self) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
        (Some(bytes(&self.start)), Some(bytes(&self.end)))
    }
}

impl<K: Key> KeyRange for RangeFrom<K> {
    fn bounds(self) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
        (Some(bytes(&self.start)), None)
    }
}

impl<K: Key> KeyRange for RangeTo<K> {
    fn bounds(self) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
        (None, Some(bytes(&self.end)))
    }
}

impl<K: Key> KeyRange for RangeInclusive<K> {
    fn bounds(self) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
        (Some(bytes(self.start())), Some(after(self.end())))
    }
}

impl<K: Key> KeyRange for RangeToInclusive<K> {
    fn bounds(self) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
        (None, Some(after(&self.end)))
    }
}

/// From the first (inclusive) to the second (exclusive); none is open.
impl KeyRange for (Option<Vec<u8>>, Option<Vec<u8>>) {
    fn bounds(self) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
        self
    }
}

fn bytes(key: &impl Key) -> Vec<u8> {
    key.to_key().into_owned()
}

/// The key that follows `key` with nothing between.
fn after(key: &impl Key) -> Vec<u8> {
    let mut key = bytes(key);
    key.push(0);
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_range_has_its_bounds() {
        let bytes = |text: &str| Some(text.as_bytes().to_vec());
        for (range, start, end) in [
            ((..).bounds(), None, None),
            (("a".."c").bounds(), bytes("a"), bytes("c")),
            (("a"..).bounds(), bytes("a"), None),
            ((.."c").bounds(), None, bytes("c")),
            (("a"..="c").bounds(), bytes("a"), bytes("c\0")),
            ((..="c").bounds(), None, bytes("c\0")),
        ] {
            assert_eq!(range, (start, end));
        }
    }
}

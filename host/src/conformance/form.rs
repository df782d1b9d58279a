//! The form in which the suite and a guest talk: a list of byte strings, each with its length before it. `tests/conformance/README.md` describes it.

/// A list of items.
pub(super) fn list<I: AsRef<[u8]>>(items: impl IntoIterator<Item = I>) -> Vec<u8> {
    let mut list = Vec::new();
    for item in items {
        let item = item.as_ref();
        // What the suite makes is far below 4 GiB.
        let length = u32::try_from(item.len()).unwrap_or(u32::MAX);
        list.extend(length.to_le_bytes());
        list.extend(item);
    }
    list
}

/// The items of a list; none where it is cut short.
pub(super) fn items(mut bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut items = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (item, rest) = rest.split_at_checked(length)?;
        items.push(item.to_vec());
        bytes = rest;
    }
    Some(items)
}

/// The bytes of an option that is there.
pub(super) fn some(value: impl AsRef<[u8]>) -> Vec<u8> {
    [b"+", value.as_ref()].concat()
}

/// A number of an item.
pub(super) fn number(item: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(item).ok()?;
    // `+1` and the like are no numbers here.
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// An item for people: as text where it is some, and not too long.
pub(super) fn shown(item: &[u8]) -> String {
    const SHOWN: usize = 120;
    let cut = &item[..item.len().min(SHOWN)];
    let text = format!("\"{}\"", cut.escape_ascii());
    if item.len() > SHOWN {
        format!("{text}... ({} bytes)", item.len())
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_come_back() {
        let long = vec![7; 70_000];
        for items_of in [
            vec![],
            vec![&b""[..]],
            vec![b"db.put", b"a"],
            vec![b"", b"\0\xff", &long, b""],
        ] {
            let bytes = list(&items_of);
            assert_eq!(items(&bytes).expect("a list"), items_of);
        }
        assert_eq!(list(["db.put", "a"]), b"\x06\0\0\0db.put\x01\0\0\0a");
    }

    #[test]
    fn what_is_no_list_is_none() {
        for bytes in [
            &b"\x01"[..],
            b"\x01\0\0",
            b"\x01\0\0\0",
            b"\x02\0\0\0a",
            b"\xff\xff\xff\xffa",
        ] {
            assert_eq!(items(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn numbers_are_digits() {
        for (item, expected) in [
            (&b"0"[..], Some(0)),
            (b"18446744073709551615", Some(u64::MAX)),
            (b"18446744073709551616", None),
            (b"+1", None),
            (b"-1", None),
            (b"", None),
            (b"1.0", None),
        ] {
            assert_eq!(number(item), expected, "{item:?}");
        }
    }
}

//! The form of everything: a list of byte strings, each with its length before it.

/// Adds an item to a list.
pub fn push(list: &mut Vec<u8>, item: &[u8]) {
    list.extend((item.len() as u32).to_le_bytes());
    list.extend(item);
}

/// A list of items.
pub fn list<I: AsRef<[u8]>>(items: impl IntoIterator<Item = I>) -> Vec<u8> {
    let mut list = Vec::new();
    for item in items {
        push(&mut list, item.as_ref());
    }
    list
}

/// The items of a list; none where it is cut short.
pub fn items(mut bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut items = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (item, rest) = rest.split_at_checked(length)?;
        items.push(item);
        bytes = rest;
    }
    Some(items)
}

/// An option as an item.
pub fn option<T: AsRef<[u8]>>(value: Option<T>) -> Vec<u8> {
    value.map_or_else(Vec::new, |value| [b"+", value.as_ref()].concat())
}

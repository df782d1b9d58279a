//! A durable timer as it is stored: a record of the host (`db/reserved.rs`) under the module's name, a zero byte and the timer's name.
//!
//! The value is a version, the due time (milliseconds since the Unix epoch, big-endian) and the payload. It is read as if anybody could
//! have written it.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The kind of such a record.
pub(super) const KIND: u8 = b't';

/// The form that this version writes.
const VERSION: u8 = 1;

/// What does not read as a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unreadable {
    /// The key has no zero byte, is no text, or has an empty name.
    #[error("its key is not a module's name, a zero byte and a timer's name")]
    Key,
    /// A later version wrote it.
    #[error("its form is {0}, and this version of quarry reads {VERSION}")]
    Version(u8),
    /// The value ends too early, or its time is out of range.
    #[error("its value is damaged")]
    Value,
}

/// The key of a timer, after the kind.
pub(super) fn key(module: &str, name: &str) -> Vec<u8> {
    [module.as_bytes(), &[0], name.as_bytes()].concat()
}

/// The module and the name that a key is of.
pub(super) fn parse_key(key: &[u8]) -> Result<(&str, &str), Unreadable> {
    let text = std::str::from_utf8(key).map_err(|_| Unreadable::Key)?;
    let (module, name) = text.split_once('\0').ok_or(Unreadable::Key)?;
    if module.is_empty() || name.is_empty() {
        return Err(Unreadable::Key);
    }
    Ok((module, name))
}

/// The value of a timer.
pub(super) fn value(due_ms: u64, payload: &[u8]) -> Bytes {
    let mut value = BytesMut::with_capacity(9 + payload.len());
    value.put_u8(VERSION);
    value.put_u64(due_ms);
    value.put_slice(payload);
    value.freeze()
}

/// The due time and the payload of a value.
pub(super) fn parse_value(mut value: Bytes) -> Result<(u64, Bytes), Unreadable> {
    let version = value.try_get_u8().map_err(|_| Unreadable::Value)?;
    if version != VERSION {
        return Err(Unreadable::Version(version));
    }
    let due_ms = value.try_get_u64().map_err(|_| Unreadable::Value)?;
    // The clock counts in signed numbers.
    if i64::try_from(due_ms).is_err() {
        return Err(Unreadable::Value);
    }
    Ok((due_ms, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        for (module, name, due_ms, payload) in [
            ("main", "tick", 0, &b""[..]),
            ("a", "b\0c", 1_767_225_600_000, b"payload"),
            ("jobs", "\u{e4}/1", i64::MAX as u64, &[0, 255, 1]),
        ] {
            assert_eq!(parse_key(&key(module, name)), Ok((module, name)));
            let value = value(due_ms, payload);
            assert_eq!(
                parse_value(value),
                Ok((due_ms, Bytes::copy_from_slice(payload)))
            );
        }
    }

    #[test]
    fn what_nobody_wrote_is_refused() {
        for key in [
            &b""[..],
            b"main",
            b"\0tick",
            b"main\0",
            b"\xff\0x",
            b"x\0\xff",
        ] {
            assert_eq!(parse_key(key), Err(Unreadable::Key), "{key:?}");
        }
        let good = value(7, b"x");
        for length in 0..9 {
            let cut = parse_value(good.slice(..length));
            assert_eq!(cut, Err(Unreadable::Value), "{length}");
        }
        let late = value(u64::MAX, b"");
        assert_eq!(parse_value(late), Err(Unreadable::Value));
        for version in [0, 2, 255] {
            let mut other = good.to_vec();
            other[0] = version;
            assert_eq!(parse_value(other.into()), Err(Unreadable::Version(version)));
        }
    }
}

//! A durable timer as it is stored: a record of the host (`db/reserved.rs`) under the module's name, a zero byte and the timer's name.
//!
//! The value is a version, the due time (milliseconds since the Unix epoch, big-endian) and the payload; of one that failed, between these
//! two, how often it did with an error and how often with a trap (32 bits each, big-endian). It is read as if anybody could have written it.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use quarry_core::timers::Backoff;

/// The kind of such a record.
pub(super) const KIND: u8 = b't';

/// The form of a timer that did not fail.
const VERSION: u8 = 1;
/// The form of one that did.
const FAILED: u8 = 2;

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) due_ms: u64,
    pub(super) backoff: Backoff,
    pub(super) payload: Bytes,
}

/// What does not read as a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unreadable {
    /// The key has no zero byte, is no text, or has an empty name.
    #[error("its key is not a module's name, a zero byte and a timer's name")]
    Key,
    /// A later version wrote it.
    #[error("its form is {0}, and this version of quarry reads {VERSION} and {FAILED}")]
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
pub(super) fn value(due_ms: u64, backoff: Backoff, payload: &[u8]) -> Bytes {
    let mut value = BytesMut::with_capacity(17 + payload.len());
    let failed = backoff.failures() > 0;
    value.put_u8(if failed { FAILED } else { VERSION });
    value.put_u64(due_ms);
    if failed {
        value.put_u32(backoff.errors());
        value.put_u32(backoff.traps());
    }
    value.put_slice(payload);
    value.freeze()
}

/// What a value says.
pub(super) fn parse_value(mut value: Bytes) -> Result<Stored, Unreadable> {
    let version = value.try_get_u8().map_err(|_| Unreadable::Value)?;
    if ![VERSION, FAILED].contains(&version) {
        return Err(Unreadable::Version(version));
    }
    let due_ms = value.try_get_u64().map_err(|_| Unreadable::Value)?;
    // The clock counts in signed numbers.
    if i64::try_from(due_ms).is_err() {
        return Err(Unreadable::Value);
    }
    let mut backoff = Backoff::default();
    if version == FAILED {
        let mut count = || value.try_get_u32().map_err(|_| Unreadable::Value);
        backoff = Backoff::of(count()?, count()?);
    }
    Ok(Stored {
        due_ms,
        backoff,
        payload: value,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        for (module, name, due_ms, failures, payload) in [
            ("main", "tick", 0, (0, 0), &b""[..]),
            ("a", "b\0c", 1_767_225_600_000, (1, 0), b"payload"),
            ("a", "b", 1_767_225_600_000, (0, 7), b""),
            (
                "jobs",
                "\u{e4}/1",
                i64::MAX as u64,
                (u32::MAX, u32::MAX),
                &[0, 255, 1],
            ),
        ] {
            assert_eq!(parse_key(&key(module, name)), Ok((module, name)));
            let backoff = Backoff::of(failures.0, failures.1);
            let value = value(due_ms, backoff, payload);
            let stored = Stored {
                due_ms,
                backoff,
                payload: Bytes::copy_from_slice(payload),
            };
            assert_eq!(parse_value(value), Ok(stored));
        }
    }

    /// What earlier versions wrote knows of no failure, and they read what did not fail.
    #[test]
    fn one_that_did_not_fail_is_stored_as_it_always_was() {
        let old = [&[1, 0, 0, 0, 0, 0, 0, 0, 7][..], b"payload"].concat();
        assert_eq!(value(7, Backoff::default(), b"payload"), old);
        let stored = parse_value(old.into()).expect("it reads");
        assert_eq!((stored.due_ms, &*stored.payload), (7, &b"payload"[..]));
        assert_eq!(stored.backoff, Backoff::default());
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
        let good = value(7, Backoff::default(), b"x");
        let failed = value(7, Backoff::of(1, 1), b"x");
        for (value, least) in [(&good, 9), (&failed, 17)] {
            for length in 0..least {
                let cut = parse_value(value.slice(..length));
                assert_eq!(cut, Err(Unreadable::Value), "{length}");
            }
        }
        let late = value(u64::MAX, Backoff::default(), b"");
        assert_eq!(parse_value(late), Err(Unreadable::Value));
        for version in [0, 3, 255] {
            let mut other = good.to_vec();
            other[0] = version;
            assert_eq!(parse_value(other.into()), Err(Unreadable::Version(version)));
        }
    }
}

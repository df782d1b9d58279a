//! Merge operators: how an operand joins the value that a key already has, without reading it first.
//!
//! They are a fixed set, chosen by name, and part of the data: SlateDB calls them when it writes, reads, flushes and
//! compacts, on whatever node that happens, so they have to give one answer everywhere, and never panic (a panic closes
//! the database). All of them are associative.
//!
//! | name | operand | value of a key that has none |
//! |---|---|---|
//! | `u64-add` | 8 bytes, little-endian; wraps around at 2^64, as a saturated sum would depend on the order of merging | 0 |
//! | `u64-max` | 8 bytes, little-endian | 0 |
//! | `i64-add` | 8 bytes, little-endian, two's complement; wraps around | 0 |
//! | `i64-max`, `i64-min` | 8 bytes, little-endian, two's complement | the operand |
//! | `append` | any bytes, joined to the end; the value grows with each operand | empty |
//!
//! An operand is checked with [`check_operand`] before SlateDB sees it. The operators themselves never fail: an error would come
//! back in flushes and compactions, and end the database for one bad row. So a value that is no number of 8 bytes, which only a
//! plain put can have stored, counts as none, and `append` has no bound of its own: the host bounds what it lets grow.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use slatedb::{MergeOperator, MergeOperatorError};

/// The operators' names.
pub const NAMES: [&str; 6] = [
    "u64-add", "u64-max", "i64-add", "i64-max", "i64-min", "append",
];

/// Why there is no such operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown merge operator {name:?}; valid are {}", NAMES.join(", "))]
pub struct Error {
    /// The name asked for.
    pub name: String,
}

/// The operator of this name.
///
/// # Errors
///
/// When there is none; the error lists the valid names.
pub fn operator(name: &str) -> Result<Arc<dyn MergeOperator + Send + Sync>, Error> {
    Ok(Arc::new(kind(name)?))
}

/// Whether SlateDB may be given this operand. An operand that an operator cannot take must never reach the database: it
/// would fail reads and compactions of its key.
///
/// # Errors
///
/// A text for the caller that says what the operator takes, for an operand of the wrong length or an unknown operator.
pub fn check_operand(name: &str, operand: &[u8]) -> Result<(), String> {
    match kind(name).map_err(|error| error.to_string())? {
        Kind::Append => Ok(()),
        _ if number(operand).is_some() => Ok(()),
        _ => Err(format!(
            "the operand of merge operator {name} has {} bytes; it has to be a little-endian 64-bit number, 8 bytes",
            operand.len()
        )),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    U64Add,
    U64Max,
    I64Add,
    I64Max,
    I64Min,
    Append,
}

fn kind(name: &str) -> Result<Kind, Error> {
    Ok(match name {
        "u64-add" => Kind::U64Add,
        "u64-max" => Kind::U64Max,
        "i64-add" => Kind::I64Add,
        "i64-max" => Kind::I64Max,
        "i64-min" => Kind::I64Min,
        "append" => Kind::Append,
        _ => {
            return Err(Error {
                name: name.chars().take(64).collect(),
            });
        }
    })
}

impl Kind {
    fn join(self, a: [u8; 8], b: [u8; 8]) -> [u8; 8] {
        let unsigned = |join: fn(u64, u64) -> u64| {
            join(u64::from_le_bytes(a), u64::from_le_bytes(b)).to_le_bytes()
        };
        let signed = |join: fn(i64, i64) -> i64| {
            join(i64::from_le_bytes(a), i64::from_le_bytes(b)).to_le_bytes()
        };
        match self {
            Self::U64Add | Self::Append => unsigned(u64::wrapping_add),
            Self::U64Max => unsigned(u64::max),
            Self::I64Add => signed(i64::wrapping_add),
            Self::I64Max => signed(i64::max),
            Self::I64Min => signed(i64::min),
        }
    }

    fn merge_all(self, existing: Option<&Bytes>, operands: &[Bytes]) -> Bytes {
        let pieces = existing.into_iter().chain(operands);
        if self == Self::Append {
            let mut joined = BytesMut::with_capacity(pieces.clone().map(Bytes::len).sum());
            pieces.for_each(|piece| joined.put_slice(piece));
            return joined.freeze();
        }
        let numbers = pieces.filter_map(|piece| number(piece));
        let joined = numbers.reduce(|a, b| self.join(a, b));
        joined.map_or_else(Bytes::new, |joined| Bytes::copy_from_slice(&joined))
    }
}

impl MergeOperator for Kind {
    fn merge(
        &self,
        _key: &Bytes,
        existing: Option<Bytes>,
        operand: Bytes,
    ) -> Result<Bytes, MergeOperatorError> {
        Ok(self.merge_all(existing.as_ref(), std::slice::from_ref(&operand)))
    }

    fn merge_batch(
        &self,
        _key: &Bytes,
        existing: Option<Bytes>,
        operands: &[Bytes],
    ) -> Result<Bytes, MergeOperatorError> {
        if existing.is_none() && operands.is_empty() {
            return Err(MergeOperatorError::EmptyBatch);
        }
        Ok(self.merge_all(existing.as_ref(), operands))
    }
}

fn number(bytes: &[u8]) -> Option<[u8; 8]> {
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merge(name: &str, existing: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        let operands: Vec<Bytes> = operands
            .iter()
            .map(|operand| Bytes::copy_from_slice(operand))
            .collect();
        let existing = existing.map(Bytes::copy_from_slice);
        let operator = operator(name).map_err(|error| error.to_string())?;
        let all = operator.merge_batch(&Bytes::from_static(b"k"), existing, &operands);
        all.map(|value| value.to_vec())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn numbers() {
        let minus = |n: i64| n.to_le_bytes();
        let plus = |n: u64| n.to_le_bytes();
        for (name, existing, operands, expected) in [
            ("u64-add", None, vec![plus(3)], plus(3)),
            ("u64-add", Some(plus(1)), vec![plus(2), plus(3)], plus(6)),
            ("u64-add", Some(plus(u64::MAX)), vec![plus(2)], plus(1)),
            ("u64-max", None, vec![plus(3), plus(9), plus(4)], plus(9)),
            (
                "u64-max",
                Some(plus(u64::MAX)),
                vec![plus(0)],
                plus(u64::MAX),
            ),
            ("i64-add", Some(minus(-5)), vec![minus(2)], minus(-3)),
            (
                "i64-add",
                Some(minus(i64::MIN)),
                vec![minus(-1)],
                minus(i64::MAX),
            ),
            ("i64-max", None, vec![minus(-7), minus(-3)], minus(-3)),
            (
                "i64-min",
                Some(minus(2)),
                vec![minus(-3), minus(5)],
                minus(-3),
            ),
            ("i64-min", None, vec![minus(5)], minus(5)),
        ] {
            let operands: Vec<&[u8]> = operands.iter().map(|operand| &operand[..]).collect();
            let existing = existing.as_ref().map(|existing| &existing[..]);
            assert_eq!(
                merge(name, existing, &operands),
                Ok(expected.to_vec()),
                "{name} {existing:?} {operands:?}"
            );
        }
    }

    #[test]
    fn appends_in_order() {
        assert_eq!(
            merge("append", Some(b"a"), &[b"", b"bc", b"d"]),
            Ok(b"abcd".to_vec())
        );
        assert_eq!(merge("append", None, &[b"x"]), Ok(b"x".to_vec()));
    }

    #[test]
    fn a_value_that_is_no_number_counts_as_none() {
        let three = 3_u64.to_le_bytes();
        for name in NAMES.iter().filter(|name| **name != "append") {
            for bad in [&b""[..], b"123", b"123456789"] {
                assert_eq!(
                    merge(name, Some(bad), &[&three]),
                    Ok(three.to_vec()),
                    "{name} {bad:?}"
                );
            }
        }
    }

    /// SlateDB merges in batches, and merges results again: grouping must not matter.
    #[test]
    fn associative() {
        let seed: u64 = rand::random();
        let mut state = seed;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state.to_le_bytes()
        };
        for name in NAMES {
            for _ in 0..100 {
                let (a, b, c) = (next(), next(), next());
                let left = merge(
                    name,
                    Some(&merge(name, Some(&a), &[&b]).expect("left")),
                    &[&c],
                );
                let right = merge(
                    name,
                    Some(&a),
                    &[&merge(name, Some(&b), &[&c]).expect("right")],
                );
                assert_eq!(left, right, "{name}, seed {seed}");
                assert_eq!(
                    left,
                    merge(name, Some(&a), &[&b, &c]),
                    "{name}, seed {seed}"
                );
                let no_base = merge(name, None, &[&a, &b, &c]);
                assert_eq!(left, no_base, "{name}, seed {seed}");
            }
        }
    }

    #[test]
    fn wrong_lengths_are_errors() {
        for name in NAMES.iter().filter(|name| **name != "append") {
            for operand in [&b""[..], b"1234567", b"123456789"] {
                let expected = format!("has {} bytes", operand.len());
                let error = check_operand(name, operand).expect_err("operand");
                assert!(error.contains(&expected) && error.contains(name), "{error}");
            }
            assert_eq!(check_operand(name, b"12345678"), Ok(()));
        }
        assert_eq!(check_operand("append", b""), Ok(()));
        assert!(check_operand("u64-sum", b"12345678").is_err());
    }

    #[test]
    fn an_empty_batch_is_an_error_without_a_value() {
        for name in NAMES {
            assert!(merge(name, None, &[]).is_err(), "{name}");
            assert_eq!(
                merge(name, Some(b"12345678"), &[]),
                Ok(b"12345678".to_vec()),
                "{name}"
            );
        }
    }

    #[test]
    fn unknown_names_list_the_valid_ones() {
        let error = merge("u64-sum", None, &[]).expect_err("unknown");
        assert!(
            error.contains("u64-sum") && NAMES.iter().all(|name| error.contains(name)),
            "{error}"
        );
        for (at, name) in NAMES.iter().enumerate() {
            assert_eq!(kind(name).map(|kind| kind as usize), Ok(at));
        }
    }
}

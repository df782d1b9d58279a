//! The merge operators that a cluster can have.

use crate::error::{Error, Result};

/// A merge operator, as in the configuration `merge_operator`. Those for numbers take 8 bytes, little-endian (as `u64` and
/// `i64` are [as values](crate::codec)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MergeOperator {
    /// `u64-add`: adds, and wraps around at 2^64. A key without a value counts as 0.
    U64Add,
    /// `u64-max`: keeps the larger.
    U64Max,
    /// `i64-add`: adds, and wraps around. A key without a value counts as 0.
    I64Add,
    /// `i64-max`: keeps the larger.
    I64Max,
    /// `i64-min`: keeps the smaller.
    I64Min,
    /// `append`: joins the operand's bytes to the end, up to `limits.value` in all.
    Append,
}

impl MergeOperator {
    /// Checks an operand, as the host does before the database sees it. Its length is checked as that of any value.
    pub(crate) fn check_operand(self, operand: &[u8]) -> Result<()> {
        match self {
            MergeOperator::Append => Ok(()),
            _ => number("operand", operand)
                .map(drop)
                .map_err(|why| Error::new("invalid-value", why)),
        }
    }

    /// The value that comes of an operand that was checked. One that would grow over `limit` bytes fails with `invalid-value`.
    pub(crate) fn merge(
        self,
        existing: Option<&[u8]>,
        operand: &[u8],
        limit: usize,
    ) -> Result<Vec<u8>> {
        self.merged(existing, operand, limit)
            .map_err(|why| Error::new("invalid-value", why))
    }

    fn merged(
        self,
        existing: Option<&[u8]>,
        operand: &[u8],
        limit: usize,
    ) -> Result<Vec<u8>, String> {
        if self == MergeOperator::Append {
            let joined = [existing.unwrap_or_default(), operand].concat();
            return if joined.len() > limit {
                let size = joined.len();
                Err(format!(
                    "the value would grow to {size} bytes, over limits.value ({limit} bytes)"
                ))
            } else {
                Ok(joined)
            };
        }
        let operand = number("operand", operand)?;
        let Some(existing) = existing else {
            return Ok(operand.to_vec());
        };
        // A value that is no number counts as none, as in the host.
        let Ok(existing) = <[u8; 8]>::try_from(existing) else {
            return Ok(operand.to_vec());
        };
        let unsigned = |join: fn(u64, u64) -> u64| {
            join(u64::from_le_bytes(existing), u64::from_le_bytes(operand)).to_le_bytes()
        };
        let signed = |join: fn(i64, i64) -> i64| {
            join(i64::from_le_bytes(existing), i64::from_le_bytes(operand)).to_le_bytes()
        };
        let joined = match self {
            MergeOperator::U64Add | MergeOperator::Append => unsigned(u64::wrapping_add),
            MergeOperator::U64Max => unsigned(u64::max),
            MergeOperator::I64Add => signed(i64::wrapping_add),
            MergeOperator::I64Max => signed(i64::max),
            MergeOperator::I64Min => signed(i64::min),
        };
        Ok(joined.to_vec())
    }
}

fn number(what: &str, bytes: &[u8]) -> Result<[u8; 8], String> {
    bytes.try_into().map_err(|_| {
        format!("the {what} of a merge has {} bytes; it has to be a little-endian 64-bit number, 8 bytes", bytes.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_merge() {
        use MergeOperator::{I64Add, I64Max, I64Min, U64Add, U64Max};
        for (operator, existing, operand, wanted) in [
            (U64Add, None, 3, 3),
            (U64Add, Some(4), 3, 7),
            (U64Add, Some(-1), 3, 2),
            (U64Max, Some(-1), 3, -1),
            (I64Add, Some(-5), -2, -7),
            (I64Max, Some(-7), -5, -5),
            (I64Min, Some(-7), -5, -7),
            (I64Min, None, 5, 5),
        ] {
            let existing = existing.map(|n: i64| n.to_le_bytes());
            let merged = operator.merge(
                existing.as_ref().map(|bytes| &bytes[..]),
                &i64::to_le_bytes(operand),
                8,
            );
            assert_eq!(
                merged,
                Ok(i64::to_le_bytes(wanted).to_vec()),
                "{operator:?} {existing:?} {operand}"
            );
        }
    }

    #[test]
    fn append_joins_up_to_its_limit() {
        let append = MergeOperator::Append;
        assert_eq!(append.merge(Some(b"ab"), b"c", 3), Ok(b"abc".to_vec()));
        let error = append.merge(Some(b"ab"), b"c", 2).unwrap_err();
        assert_eq!(error.code(), "invalid-value");
        assert!(error.to_string().contains("limits.value (2 bytes)"));
    }

    #[test]
    fn numbers_have_8_bytes() {
        let add = MergeOperator::U64Add;
        assert_eq!(add.check_operand(b"1").unwrap_err().code(), "invalid-value");
        let seven = 7_u64.to_le_bytes();
        assert_eq!(
            add.merge(Some(b"1"), &seven, 8),
            Ok(seven.to_vec()),
            "a value that is no number counts as none"
        );
    }
}

//! The merge operators that a cluster can have.

use crate::error::{Error, Result};

/// A merge operator, as in the configuration `merge_operator`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MergeOperator {
    /// `u64-add`: operands and values are 8 bytes, big-endian; adds them, and stays at the largest `u64`.
    U64Add,
    /// `i64-max`: operands and values are 8 bytes, big-endian two's complement; keeps the larger.
    I64Max,
    /// `append`: appends the operand's bytes.
    Append,
}

impl MergeOperator {
    pub(crate) fn merge(self, existing: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>> {
        match self {
            MergeOperator::U64Add => {
                let sum =
                    existing.map_or(Ok(0), |value| self.number(value).map(u64::from_be_bytes))?;
                let operand = u64::from_be_bytes(self.number(operand)?);
                Ok(sum.saturating_add(operand).to_be_bytes().to_vec())
            }
            MergeOperator::I64Max => {
                let operand = i64::from_be_bytes(self.number(operand)?);
                let largest = match existing {
                    Some(value) => operand.max(i64::from_be_bytes(self.number(value)?)),
                    None => operand,
                };
                Ok(largest.to_be_bytes().to_vec())
            }
            MergeOperator::Append => Ok([existing.unwrap_or_default(), operand].concat()),
        }
    }

    fn number(self, bytes: &[u8]) -> Result<[u8; 8]> {
        bytes.try_into().map_err(|_| {
            Error::new(
                "invalid-value",
                format!(
                    "merge operator {self:?} takes 8 bytes, and got {}",
                    bytes.len()
                ),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_merge() {
        let add = |a: Option<u64>, b: u64| {
            MergeOperator::U64Add.merge(
                a.map(u64::to_be_bytes).as_ref().map(|a| &a[..]),
                &b.to_be_bytes(),
            )
        };
        assert_eq!(add(None, 3), Ok(3u64.to_be_bytes().to_vec()));
        assert_eq!(add(Some(4), 3), Ok(7u64.to_be_bytes().to_vec()));
        assert_eq!(add(Some(u64::MAX), 3), Ok(u64::MAX.to_be_bytes().to_vec()));
        let max = MergeOperator::I64Max.merge(Some(&(-5i64).to_be_bytes()), &(-7i64).to_be_bytes());
        assert_eq!(max, Ok((-5i64).to_be_bytes().to_vec()));
        assert_eq!(
            MergeOperator::Append.merge(Some(b"ab"), b"c"),
            Ok(b"abc".to_vec())
        );
        assert_eq!(
            MergeOperator::U64Add.merge(None, b"1").unwrap_err().code(),
            "invalid-value"
        );
    }
}

//! The history of one shard's register, and the check that it is linearizable.
//!
//! The log of the database gives the order of the writes that took effect; every write has a value of its own, so a read names the
//! write it saw. With that order given, a history is linearizable exactly if no operation that ended before another began comes
//! after it in the order (a write at its position, a read at the position of the write it saw, a write before the reads of it), and
//! that takes one sweep. Writes without an acknowledgement may have taken effect at any time after they began, or never.

use std::collections::BTreeMap;

use super::database::{Content, Slot};
use super::queue::Time;

/// One call as its caller saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    pub call: u64,
    pub begun: Time,
    /// When the caller heard; none for a write whose outcome nobody knows.
    pub ended: Option<Time>,
    pub kind: Kind,
}

/// What a call did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Wrote this value.
    Write(u64),
    /// Read this value; 0 is the empty register.
    Read(u64),
}

/// Checks one shard's operations against its log; the error says which promise broke and between which calls.
pub fn check(operations: &[Operation], log: &[Slot]) -> Result<(), String> {
    let positions: BTreeMap<u64, u64> = log
        .iter()
        .enumerate()
        .filter_map(|(index, slot)| match slot.content {
            Content::Write(value) => Some((value, index as u64 + 1)),
            Content::Fence => None,
        })
        .collect();
    let mut placed = Vec::with_capacity(operations.len());
    for operation in operations {
        let place = match operation.kind {
            Kind::Write(value) => match (positions.get(&value), operation.ended) {
                (Some(position), _) => 2 * position,
                (None, None) => continue,
                (None, Some(ended)) => {
                    return Err(format!(
                        "S2: call {} wrote {value}, was acknowledged at {ended} ns, and the write is not in the log",
                        operation.call
                    ));
                }
            },
            Kind::Read(0) => 1,
            Kind::Read(value) => match positions.get(&value) {
                Some(position) => 2 * position + 1,
                None => {
                    return Err(format!(
                        "S2: call {} read {value}, which is not durable in the log",
                        operation.call
                    ));
                }
            },
        };
        placed.push((place, operation));
    }
    placed.sort_by_key(|(place, operation)| (*place, operation.begun));
    // From the last in the order to the first: nobody may have begun after the end of one that comes later in the order.
    let mut earliest_end: Option<(Time, &Operation)> = None;
    let mut index = placed.len();
    while index > 0 {
        let place = placed[index - 1].0;
        let from = placed[..index].partition_point(|(other, _)| *other < place);
        for (_, operation) in &placed[from..index] {
            if let Some((ended, later)) = earliest_end
                && operation.begun > ended
            {
                return Err(format!(
                    "linearizability: call {} ({:?}) began at {} ns, after call {} ({:?}) had ended at {ended} ns, but precedes it in the log",
                    operation.call, operation.kind, operation.begun, later.call, later.kind
                ));
            }
        }
        for (_, operation) in &placed[from..index] {
            if let Some(ended) = operation.ended
                && earliest_end.is_none_or(|(end, _)| ended < end)
            {
                earliest_end = Some((ended, operation));
            }
        }
        index = from;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(call: u64, value: u64, begun: Time, ended: Option<Time>) -> Operation {
        Operation {
            call,
            begun,
            ended,
            kind: Kind::Write(value),
        }
    }

    fn read(call: u64, value: u64, begun: Time, ended: Time) -> Operation {
        Operation {
            call,
            begun,
            ended: Some(ended),
            kind: Kind::Read(value),
        }
    }

    #[test]
    fn a_history_is_judged_by_the_order_of_the_log() {
        let log: Vec<Slot> = [Content::Fence, Content::Write(7), Content::Write(8)]
            .into_iter()
            .map(|content| Slot { epoch: 1, content })
            .collect();
        let (first, second) = (write(1, 7, 0, Some(10)), write(2, 8, 5, Some(20)));
        for (why, operations, fault) in [
            ("nothing", vec![], None),
            ("in order", vec![first, second, read(3, 8, 21, 22)], None),
            (
                "a read of the empty register before any write ended",
                vec![first, read(3, 0, 0, 30)],
                None,
            ),
            (
                "a read while the second write goes on",
                vec![first, second, read(3, 7, 11, 19)],
                None,
            ),
            (
                "a write nobody heard of may be missing",
                vec![write(1, 9, 0, None)],
                None,
            ),
            (
                "a write nobody heard of may be seen late",
                vec![write(2, 8, 0, None), read(3, 8, 90, 91)],
                None,
            ),
            ("a lost write", vec![write(1, 9, 0, Some(1))], Some("S2")),
            (
                "a read of what is not durable",
                vec![read(1, 9, 0, 1)],
                Some("S2"),
            ),
            (
                "a stale read",
                vec![first, second, read(3, 7, 21, 22)],
                Some("linearizability"),
            ),
            (
                "an empty read after a write",
                vec![first, read(3, 0, 11, 12)],
                Some("linearizability"),
            ),
            (
                "a read from the future",
                vec![write(2, 8, 30, Some(40)), read(3, 8, 1, 2)],
                Some("linearizability"),
            ),
            (
                "two reads against the order",
                vec![
                    write(1, 7, 0, None),
                    write(2, 8, 0, None),
                    read(3, 8, 1, 2),
                    read(4, 7, 3, 4),
                ],
                Some("linearizability"),
            ),
            (
                "writes against the order",
                vec![write(1, 7, 30, Some(40)), write(2, 8, 5, Some(20))],
                Some("linearizability"),
            ),
        ] {
            let found = check(&operations, &log).err();
            match fault {
                None => assert_eq!(found, None, "{why}"),
                Some(word) => assert!(
                    found.as_ref().is_some_and(|text| text.starts_with(word)),
                    "{why}: {found:?}"
                ),
            }
        }
    }
}

//! Cases that must not pass: a suite that looks at what it expects fails each of them, whatever the guest.

use super::{Act, Case, Failing, Reply};
use crate::conformance::expect::Expect;

/// Expectations of a script that are turned, at most: those of the longest are all of one kind.
const TURNS_MAX: usize = 16;

impl Case {
    /// This case once for each thing that it expects, with that turned into its opposite, and nothing after it. What is waited for is left
    /// as it is: its opposite would be waited for until the time is up.
    pub(in crate::conformance) fn turned(&self) -> Vec<Self> {
        let acts = self.acts.iter().enumerate();
        acts.flat_map(|(at, act)| {
            act.turned().into_iter().map(move |act| Self {
                acts: self.acts[..at].iter().cloned().chain([act]).collect(),
                ..self.clone()
            })
        })
        .collect()
    }
}

impl Act {
    fn turned(&self) -> Vec<Self> {
        match self {
            Self::Run(call, expected) => {
                let turned = each(expected).into_iter();
                turned
                    .map(|expected| Self::Run(call.clone(), expected))
                    .collect()
            }
            Self::Waits(call, expected) => {
                let turned = each(expected).into_iter();
                turned
                    .map(|expected| Self::Waits(call.clone(), expected))
                    .collect()
            }
            Self::Fails(call, how) => vec![Self::Fails(call.clone(), not(how))],
            Self::End(name, Ok(expected)) => {
                let turned = each(expected).into_iter();
                turned
                    .map(|expected| Self::End(name, Ok(expected)))
                    .collect()
            }
            Self::End(name, Err(how)) => vec![Self::End(name, Err(not(how)))],
            Self::EndEach(calls) => {
                let turned = |at: usize| {
                    each(&calls[at].1).into_iter().map(move |expected| {
                        let mut calls = calls.clone();
                        calls[at].1 = expected;
                        Self::EndEach(calls)
                    })
                };
                (0..calls.len()).flat_map(turned).collect()
            }
            Self::Request(call, reply) => {
                let outcome = match &reply.outcome {
                    Ok(payload) => Ok([payload, &b"!"[..]].concat()),
                    Err(how) => Err(not(how)),
                };
                let reply = Reply {
                    outcome,
                    ..reply.clone()
                };
                vec![Self::Request(call.clone(), reply)]
            }
            Self::Validate(options, good) => vec![Self::Validate(options, !good)],
            _ => Vec::new(),
        }
    }
}

/// These expectations once for each of them, with that one turned; not for those that are met by anything.
fn each(expected: &[Expect]) -> Vec<Vec<Expect>> {
    let turns = |at: &usize| !matches!(expected[*at], Expect::Any);
    let turned = |at: usize| {
        let mut turned = expected.to_vec();
        turned[at] = Expect::Not(Box::new(turned[at].clone()));
        turned
    };
    let places = (0..expected.len()).filter(turns);
    places.take(TURNS_MAX).map(turned).collect()
}

fn not(how: &Failing) -> Failing {
    Failing::Not(Box::new(how.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::Group;
    use crate::conformance::case::Call;
    use crate::conformance::cases;
    use crate::conformance::words::{get, put, seq, some};

    #[test]
    fn each_expectation_is_turned_by_itself() {
        let case = Case::new(Group::Protocol, "a case")
            .run([(put("a", "1"), seq()), (get("a"), some("1"))])
            .act(Act::Reopen)
            .begin("beside", Call::default(), [get("a")])
            .end("beside", [some("1")]);
        let turned = case.turned();
        let lengths: Vec<_> = turned.iter().map(|case| case.acts.len()).collect();
        assert_eq!(lengths, [1, 1, 4]);
        for (case, at) in turned.iter().zip([0, 1, 0]) {
            let (Act::Run(_, expected) | Act::End(_, Ok(expected))) =
                case.acts.last().expect("acts")
            else {
                panic!("{case:?}");
            };
            for (number, expect) in expected.iter().enumerate() {
                let is_turned = matches!(expect, Expect::Not(_));
                assert_eq!(is_turned, number == at, "{case:?}");
            }
        }
    }

    #[test]
    fn nearly_every_case_has_something_to_turn() {
        let none: Vec<_> = cases::all()
            .into_iter()
            .filter(|case| case.turned().is_empty())
            .map(|case| case.title())
            .collect();
        assert_eq!(
            none,
            ["options: a node does not start with options that its guest refuses"]
        );
    }
}
